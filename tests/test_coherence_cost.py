"""The numbers of docs/coherence-cost.md are those of the tables' rows as they are built."""

from pathlib import Path

import pytest

from kvnode.models.spec.config import NodeConfig, preset
from kvnode.models.spec.requests import MAX_MEMBERS
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.block_table import key_layout, state_layout
from kvnode.rtl.node.fill_table import fill_layout, member_layout
from kvnode.rtl.node.leases import lease_layout
from kvnode.rtl.node.sessions import session_layout

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "coherence-cost.md").read_text(encoding="utf-8")

#: Columns of the page: blocks of a store on the chip, and of 16 tokens of 80 layers with 8 heads of 128 bytes each.
CONFIGS = {"sim": preset("sim"), "wide": preset("wide"), "sim_large": preset("sim").replace(block_bytes=2560 << 10)}

LINE_BYTES = 64
MESI_STATE_BITS = 2
POINTERS = 4
SHARERS = (4, 8, 64, 256)


def shared_bits(config: NodeConfig) -> int:
    """Bits of the fill, session and lease tables of all partitions, with what is kept beside their rows."""
    shapes = Shapes(config)
    fill = fill_layout(config).size + MAX_MEMBERS * member_layout(config).size + shapes.slot_bits + 1
    lease = lease_layout(config).size + shapes.slot_bits + shapes.session_bits + 1
    sessions = config.sessions * session_layout(config).size
    return len(config.partitions) * (config.fill_rows * fill + sessions + config.leases * lease)


def coherence_bits(config: NodeConfig) -> float:
    """Bits for each block: its state row and its share of the tables that serve all."""
    return state_layout(config).size + shared_bits(config) / config.slots


def name_bits(config: NodeConfig) -> int:
    """Bits for each block that only say which one it is: its key row and two entries of the index."""
    return key_layout(config).size + 2 * (1 + config.tag_bits + config.slot_bits)


def full_map_bits(sharers: int) -> int:
    return MESI_STATE_BITS + sharers


def pointer_bits(sharers: int) -> int:
    """Four pointers and an overflow bit, or the full map where that is smaller."""
    return min(full_map_bits(sharers), MESI_STATE_BITS + 1 + POINTERS * (sharers - 1).bit_length())


def row(title, *cells):
    return f"| {title} | " + " | ".join(cells) + " |"


def of_all(title, number):
    return row(title, *(f"{number(config):,}" for config in CONFIGS.values()))


OURS = [
    of_all("`state_layout`, one for each slot", lambda c: state_layout(c).size),
    of_all("`fill_layout`, one for each fill row", lambda c: fill_layout(c).size),
    of_all("`member_layout`, eight for each fill row", lambda c: member_layout(c).size),
    of_all("`session_layout`, one for each session", lambda c: session_layout(c).size),
    of_all("`lease_layout`, one for each lease", lambda c: lease_layout(c).size),
    of_all("fill, session and lease tables, whole node", shared_bits),
    of_all("the same for each slot", lambda c: round(shared_bits(c) / c.slots, 1)),
    of_all("**coherence state of a block**", lambda c: round(coherence_bits(c), 1)),
    of_all("`key_layout` and two index entries", name_bits),
    of_all("with its name", lambda c: round(coherence_bits(c) + name_bits(c), 1)),
]


def mesi_row(sharers: int) -> str:
    cells = [str(full_map_bits(sharers)), str(pointer_bits(sharers))]
    for config in (CONFIGS["sim"], CONFIGS["sim_large"]):
        lines = config.block_bytes // LINE_BYTES
        for bits in (full_map_bits(sharers), pointer_bits(sharers)):
            times = lines * bits / coherence_bits(config)
            cells.append(f"{lines * bits:,} ({times:,.0f}×)" if times >= 10 else f"{lines * bits:,} ({times:.1f}×)")
    return row(sharers, *cells)


@pytest.mark.parametrize("line", OURS)
def test_widths_of_the_page_are_those_of_the_rows(line):
    assert line in PAGE


@pytest.mark.parametrize("line", [mesi_row(sharers) for sharers in SHARERS])
def test_costs_of_a_directory_of_lines_are_those_of_the_formulas(line):
    assert line in PAGE


def test_fields_of_the_state_row_are_all_accounted_for():
    fields = {name for name, _ in state_layout(preset("sim"))}
    listed = PAGE.split("| fields of the state row |")[1].split("\n\n")[0]
    assert {name for name in fields if f"`{name}`" in listed} == fields
    assert listed.count("`") == 2 * len(fields)


def test_sums_of_the_state_row_are_those_of_its_fields():
    widths = {name: field.width for name, field in state_layout(preset("sim"))}
    for line in PAGE.split("| fields of the state row |")[1].split("\n\n")[0].splitlines()[2:]:
        names, bits, _ = [cell.strip() for cell in line.strip("|").split("|")]
        assert sum(widths[name.strip(" `")] for name in names.split(",")) == int(bits), line


def test_readers_cost_nothing():
    """A sealed block has no row for those that read it: ports widen only masks of writers and of who waits."""
    more_ports = preset("sim").replace(
        ports=8, partitions=tuple(p.__class__(**{**vars(p), "ports": ports}) for p, ports in zip(
            preset("sim").partitions, ((0, 3, 4, 5), (1, 6), (2, 7))
        )),
    )  # fmt: skip
    assert state_layout(more_ports).size == state_layout(preset("sim")).size
    assert coherence_bits(more_ports) - coherence_bits(preset("sim")) < 0.5
