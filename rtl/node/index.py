"""Two-choice bucketed index: short tags and slots in two tables, one commit stage (ARCHITECTURE section 5)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.hashing import (
    AND_ROTATIONS,
    FOLD_ROTATIONS,
    ROUNDS,
    SEED_BITS,
    SPREAD_ROTATIONS,
    XOR_ROTATIONS,
)

from ..layouts import Shapes, index_bits
from ..memory import Ram
from ..ownership import By, Owned


def fold(digest):
    """The 64-bit fold of a digest: `models.spec.hashing.fold` on hardware."""
    padded = Cat(digest, Const(0, 256 - len(digest))) if len(digest) < 256 else digest
    folded = 0
    for word, rotation in enumerate(FOLD_ROTATIONS):
        folded ^= padded[64 * word : 64 * word + 64].rotate_left(rotation)
    return folded


def feistel_round(left, right, key):
    """One round of `models.spec.hashing.place`; returns the new left, the new right is the old left."""
    mixed = left.rotate_left(AND_ROTATIONS[0]) & left.rotate_left(AND_ROTATIONS[1])
    for rotation in XOR_ROTATIONS:
        mixed ^= left.rotate_left(rotation)
    return right ^ mixed ^ key


def spread(word):
    """The linear layer in front of the rounds."""
    return word ^ word.rotate_left(SPREAD_ROTATIONS[0]) ^ word.rotate_left(SPREAD_ROTATIONS[1])


def popcount(bits):
    return sum(bits[i] for i in range(len(bits)))


def onehot_select(choices):
    """OR of the values whose condition holds; `choices` are (condition, value) pairs."""
    result = 0
    for condition, value in choices:
        result |= Mux(condition, value, 0)
    return result


def entry_layout(shapes: Shapes) -> data.StructLayout:
    """A way of a row."""
    return data.StructLayout({"valid": 1, "tag": shapes.config.tag_bits, "slot": shapes.slot_bits})


def event_layout(shapes: Shapes) -> data.StructLayout:
    """What the operation at stage 5 does to an entry: sets it, or clears it."""
    return data.StructLayout(
        {
            "valid": 1,
            "set": 1,
            "table": 1,
            "address": index_bits(shapes.config.index_rows),
            "way": shapes.way_bits,
            "tag": shapes.config.tag_bits,
            "slot": shapes.slot_bits,
        }
    )


class Index(wiring.Component):
    """Stages 1 to 5 of the directory: place the key, read both rows, compare tags, commit an insertion or a removal.

    Contract: one operation per cycle enters at stage 1 and leaves with its verdict at stage 5, in which the owner of
    the pipeline says at once whether it inserts (`insert`, at the place `choice`) or removes (`remove`, at
    `remove_where`). Every later operation sees it: the verdicts of the two operations behind are patched, never the
    rows.

    Ports (s1_* at stage 1, s5_* at stage 5):
        s1_folded, s1_whitening, s1_seed, s1_base, s1_mask: folded digest; model, epoch, group; the partition's seed,
        first
            row and row mask.
        s5_hit, s5_slot: the one entry with this tag in the candidate pair, and its slot.
        s5_room, s5_choice: a way is free in the emptier row, and its place.
        insert, insert_slot, remove, remove_where, remove_base: the commit of the operation at stage 5.
        clear, clear_row: overwrite a row of both tables with invalid entries.

    `fault` is for tests: "index_compare" inverts a bit of the tag compare.
    Used by: directory.
    """

    OWNERSHIP = (
        Owned("s2_*", By.TAG, "s2_head"),
        Owned("s3_*", By.TAG, "s3_head"),
        Owned("s4_*", By.TAG, "s4_head"),
        Owned("s5_*", By.TAG, "s5_head"),
        Owned("previous", By.ADDRESS),
        Owned("table*_way*", By.ADDRESS),
    )

    def __init__(self, config: NodeConfig, fault: str | None = None):
        self.config, self.shapes, self.fault = config, Shapes(config), fault
        self.address_bits = index_bits(config.index_rows)
        row_bits, slot_bits = self.shapes.row_bits, self.shapes.slot_bits
        super().__init__(
            {
                "s1_folded": In(64),
                "s1_whitening": In(64),
                "s1_seed": In(SEED_BITS),
                "s1_base": In(self.address_bits),
                "s1_mask": In(row_bits),
                "s5_hit": Out(1),
                "s5_slot": Out(slot_bits),
                "s5_room": Out(1),
                "s5_choice": Out(self.shapes.where),
                "insert": In(1),
                "insert_slot": In(slot_bits),
                "remove": In(1),
                "remove_where": In(self.shapes.where),
                "remove_base": In(self.address_bits),
                "clear": In(1),
                "clear_row": In(self.address_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, shapes = self.config, self.shapes
        ways, tag_bits, row_bits = config.ways, config.tag_bits, shapes.row_bits
        entry_shape = entry_layout(shapes)

        # Stages 1 and 2: the keyed rounds. Stage 3: row addresses.
        left, right = [Signal(32, name=f"s{i}_left") for i in (2, 3)], [Signal(32, name=f"s{i}_right") for i in (2, 3)]
        seeds = self.s1_seed, Signal(SEED_BITS // 2, name="s2_seed")
        bases = [Signal(self.address_bits, name=f"s{i}_base") for i in (2, 3, 4, 5)]
        masks = [Signal(row_bits, name=f"s{i}_mask") for i in (2, 3)]
        m.d.sync += [
            seeds[1].eq(self.s1_seed[SEED_BITS // 2 :]),
            bases[0].eq(self.s1_base),
            masks[0].eq(self.s1_mask),
            masks[1].eq(masks[0]),
        ]
        m.d.sync += [later.eq(earlier) for earlier, later in zip(bases, bases[1:], strict=False)]
        half = Signal(32, name="s1_left"), Signal(32, name="s1_right")
        whitened = spread(self.s1_folded ^ self.s1_whitening)
        m.d.comb += [half[0].eq(whitened[32:]), half[1].eq(whitened[:32])]
        for stage in range(2):
            for step in range(ROUNDS // 2):
                mixed = Signal(32, name=f"s{stage + 1}_round{step}")
                m.d.comb += mixed.eq(feistel_round(*half, seeds[stage][32 * step : 32 * step + 32]))
                half = mixed, half[0]
            m.d.sync += [left[stage].eq(half[0]), right[stage].eq(half[1])]
            half = left[stage], right[stage]
        s3_tag, s3_rows = left[1][:tag_bits], [Signal(row_bits, name=f"s3_row{t}") for t in range(2)]
        m.d.comb += [
            s3_rows[0].eq(right[1] & masks[1]),
            s3_rows[1].eq((right[1] ^ s3_tag ^ s3_tag[11:]) & masks[1]),
        ]

        # Stage 4: both rows are here. Tags are compared, and the verdict is patched with the commits not yet seen.
        s4_tag = Signal(tag_bits)
        s4_rows = [Signal(row_bits, name=f"s4_row{t}") for t in range(2)]
        s5_tag = Signal(tag_bits)
        s5_rows = [Signal(row_bits, name=f"s5_row{t}") for t in range(2)]
        m.d.sync += [s4_tag.eq(s3_tag), s5_tag.eq(s4_tag)]
        event = Signal(event_layout(shapes))
        previous = Signal(event_layout(shapes))
        m.d.sync += previous.eq(event)
        s4_valid, s4_hits, s4_slots = [], [], []
        for table in range(2):
            m.d.sync += [s4_rows[table].eq(s3_rows[table]), s5_rows[table].eq(s4_rows[table])]
            valid = Signal(ways, name=f"s4_valid{table}")
            hits = Signal(ways, name=f"s4_hits{table}")
            address = Signal(self.address_bits, name=f"s4_address{table}")
            m.d.comb += address.eq(bases[2] | s4_rows[table])
            for way in range(ways):
                ram = Ram(entry_shape.size, config.index_rows)
                m.submodules[f"table{table}_way{way}"] = ram
                entry = data.View(entry_shape, ram.read_data)
                written = Signal(entry_shape, name=f"table{table}_way{way}_written")
                here = event.valid & (event.table == table) & (event.way == way)
                m.d.comb += [
                    ram.read_address.eq(bases[1] | s3_rows[table]),
                    written.valid.eq(event.set),
                    written.tag.eq(event.tag),
                    written.slot.eq(event.slot),
                    ram.write_enable.eq(here | self.clear),
                    ram.write_address.eq(Mux(self.clear, self.clear_row, event.address)),
                    ram.write_data.eq(Mux(self.clear, 0, written)),
                    valid[way].eq(entry.valid),
                    hits[way].eq(entry.valid & (entry.tag == s4_tag ^ (self.fault == "index_compare"))),
                ]
                s4_slots.append((hits[way], entry.slot))
                for commit in (previous, event):
                    with m.If(
                        commit.valid & (commit.table == table) & (commit.way == way) & (commit.address == address)
                    ):
                        m.d.comb += [valid[way].eq(commit.set), hits[way].eq(commit.set & (commit.tag == s4_tag))]
            s4_valid.append(valid)
            s4_hits.append((hits, address))
        s4_slot = Signal(shapes.slot_bits)
        m.d.comb += s4_slot.eq(onehot_select(s4_slots))
        for commit in (previous, event):
            for table in range(2):
                with m.If(
                    commit.valid
                    & commit.set
                    & (commit.table == table)
                    & (commit.address == s4_hits[table][1])
                    & (commit.tag == s4_tag)
                ):
                    m.d.comb += s4_slot.eq(commit.slot)

        # Stage 5: the verdict, and the place a new entry would take: the emptier row, the first table on a tie.
        choice = Signal(shapes.where)
        second = popcount(s4_valid[0]) > popcount(s4_valid[1])
        chosen = Signal(ways)
        m.d.comb += [chosen.eq(Mux(second, s4_valid[1], s4_valid[0])), choice.table.eq(second)]
        m.d.comb += choice.row.eq(Mux(second, s4_rows[1], s4_rows[0]))
        for way in reversed(range(ways)):
            with m.If(~chosen[way]):
                m.d.comb += choice.way.eq(way)
        m.d.sync += [
            self.s5_hit.eq((s4_hits[0][0] | s4_hits[1][0]).any()),
            self.s5_slot.eq(s4_slot),
            self.s5_room.eq(~chosen.all()),
            self.s5_choice.eq(choice),
        ]
        m.d.comb += [
            event.valid.eq(self.insert | self.remove),
            event.set.eq(self.insert),
            event.tag.eq(s5_tag),
            event.slot.eq(self.insert_slot),
        ]
        where = Mux(self.insert, self.s5_choice.as_value(), self.remove_where.as_value())
        view = data.View(shapes.where, where)
        m.d.comb += [
            event.table.eq(view.table),
            event.way.eq(view.way),
            event.address.eq(Mux(self.insert, bases[3], self.remove_base) | view.row),
        ]
        return m
