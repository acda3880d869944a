"""The machinery: a run gives counts, what is hit is counted and what is not is a hole, and counts can be added."""

import re

import pytest

from kvnode.models.spec.coherence import TRANSITIONS
from kvnode.models.spec.enums import Opcode, Status

from .data import Counts, read_points
from .measure import CONFIGS, NodeCoverage, coverage_config
from .plan import items, statuses_of
from .report import Coverage, Exclusion, evaluate, load_exclusions, page

DATA = (
    "# SystemC::Coverage-3\n"
    "C '\x01f\x02node.v\x01l\x0212\x01t\x02branch\x01page\x02v_branch/top.a\x01o\x02case\x01S\x0212-13' 7\n"
    "C '\x01f\x02node.v\x01l\x029\x01t\x02toggle\x01page\x02v_toggle/top.a\x01o\x02op__02ekind[3]:0->1' 5\n"
    "C '\x01f\x02node.v\x01l\x029\x01t\x02toggle\x01page\x02v_toggle/top.a\x01o\x02__0241[3]:0->1' 5\n"
)


@pytest.fixture(scope="module")
def run():
    """Counts of a little traffic on the tiny node."""
    with NodeCoverage(coverage_config("tiny")) as node:
        node.play(1, 200)
        first = node.counts()
        node.direct("drain")
        yield first, node.counts()


def of_kind(coverage: Coverage, kind: str, block: str):
    return coverage.blocks[kind][block]


def test_reader_gives_the_points_and_leaves_out_dollar_names(tmp_path):
    path = tmp_path / "coverage.dat"
    path.write_text(DATA)
    branch, toggle = read_points(path)
    assert (branch.kind, branch.module, branch.line, branch.count) == ("branch", "top.a", 12, 7)
    assert (toggle.name, toggle.count) == ("op.kind[3]:0->1", 5)


def test_a_run_gives_lines_bits_and_items(run):
    coverage = evaluate(run[0], [])
    assert 60 < coverage.total("lines").percent < 100 and coverage.total("lines").hit > 200
    assert 40 < coverage.total("toggles").percent < 95 and coverage.total("toggles").hit > 5000
    assert of_kind(coverage, "toggles", "wheel").percent == 100
    assert run[0].items["status.PING.OK"] > 0 and run[0].items["transition.FREE.ADMIT"] > 0


def test_what_is_not_hit_is_a_hole_until_it_is_hit(run):
    before, after = (evaluate(counts, []) for counts in run)
    assert "register.drain" in of_kind(before, "items", "register").holes
    assert "register.drain" not in of_kind(after, "items", "register").holes
    assert "wrap.tick" in of_kind(after, "items", "wrap").holes
    assert "management.bank:control_drain[0]" in before.total("toggles").holes
    assert "management.bank:control_drain[0]" not in after.total("toggles").holes


def test_a_second_look_counts_on(run):
    before, after = run
    assert set(before.lines) == set(after.lines) and set(before.sources) == set(after.sources)
    assert all(after.lines[line] >= count for line, count in before.lines.items())
    assert sum(after.rises.values()) > sum(before.rises.values())


def test_merging_adds_and_keeps_what_nobody_hit(run):
    before, after = run
    both = Counts()
    both.add(before)
    both.add(Counts.from_dict(after.to_dict()))
    assert all(both.lines[line] == before.lines[line] + after.lines[line] for line in before.lines)
    assert both.items["status.PING.OK"] == before.items["status.PING.OK"] + after.items["status.PING.OK"]
    assert set(both.sources) == set(before.sources)
    assert evaluate(both, []).total("toggles").holes == evaluate(after, []).total("toggles").holes


def test_exclusions_leave_out_holes_and_nothing_that_was_hit(run):
    exclusions = [Exclusion("items", r"wrap\.tick|status\.PING\.OK", "Why."), Exclusion("items", "nothing", "Why.")]
    coverage = evaluate(run[1], exclusions)
    assert exclusions[0].used == 1 and coverage.unused == [exclusions[1]]
    assert "wrap.tick" not in of_kind(coverage, "items", "wrap").holes
    assert of_kind(coverage, "items", "wrap").excluded == 1
    assert "status.PING.OK" not in coverage.total("items").holes
    assert "| items | 1 | Why. |" in page(coverage, CONFIGS, 1)


def test_every_exclusion_has_a_pattern_and_a_reason():
    for exclusion in load_exclusions():
        re.compile(exclusion.pattern)
        assert exclusion.kind in ("lines", "toggles", "items")
        assert exclusion.reason.endswith(".") and len(exclusion.reason.split()) > 3, exclusion


def test_plan_is_derived_from_the_specification():
    assert sum(name.startswith("transition.") for name in items()) == len(TRANSITIONS)
    assert statuses_of(Opcode.PING) == {Status.OK, Status.BAD_REQUEST, Status.DENIED}
    assert statuses_of(Opcode.RELEASE) == {Status.OK, Status.BAD_REQUEST, Status.DENIED, Status.STALE_HANDLE}
    assert {Status.SEALED, Status.INCOMPLETE, Status.CHECKSUM_MISMATCH} < statuses_of(Opcode.PUT_END)
    assert Status.WRITE_ONCE not in statuses_of(Opcode.READ)
