"""Tables of the pipeline: a row is read with every earlier commit in it, whatever is still on its way.

A memory gives anything at all for a row that is written in the cycle of the read, so that forwarding is really needed.

Used by: block_claims.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from kvnode.rtl.memory import ForwardedRam
from kvnode.rtl.node.block_table import BlockTable
from kvnode.rtl.node.fill_table import FillTable

from .proof import Proof, ProofOf


class Forwarded(Proof):
    """ForwardedRam: `read` is what was last committed to the row, the commit of the cycle before included."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.width, self.depth = width, depth

    def describe(self, m: Module) -> None:
        table = ForwardedRam(data.StructLayout({"word": self.width}), self.depth)
        design = self.design("table", table, clash=True)
        row = self.chosen("row", len(table.read_address))
        self.assume("row", row < self.depth)
        known, last, reads = Signal(), Signal(self.width), Signal()
        with m.If(table.commit & (table.commit_address == row)):
            m.d.sync += [known.eq(1), last.eq(table.value.word)]
        m.d.sync += reads.eq(table.read_address == row)
        self.check("word", ~(known & reads) | (table.read.word == last))
        self.cover("read", known & reads & design["forward"] & (last == 5))
        self.cover("again", known & reads & ~design["forward"] & (last == 5))
        self.help("inside", ~known | (Array(design.rows("ram"))[row] == last))
        forwards = design["forward"] & (design["forwarded"] == last)
        self.help("on_its_way", ~(known & reads) | forwards | (design["ram.ram.read_data"] == last))


class Blocks(ProofOf):
    """BlockTable: the state row at stage 7 has every commit in it, those of the two operations in front as well; the
    key row is the one last written. Tables are cleared before there are operations, as the directory does it.
    """

    def describe(self, m: Module) -> None:
        config, table = self.config, BlockTable(self.config)
        design = self.design("table", table, clash=True)
        slot = self.chosen("slot", len(table.s6_slot))
        self.assume("slot", slot < config.slots)
        # The walk is over for ever at some time; operations that were read before are none.
        over, cleared, read, wrote = Signal(), Signal(), Signal(), Signal()
        m.d.sync += over.eq(over | ~table.clear)
        self.assume("walk", ~(over & table.clear) & (~table.clear | ~table.commit))
        state, key, has_key = Signal(len(table.commit_state.as_value())), Signal(len(table.s6_key.as_value())), Signal()
        committed = table.commit & (table.commit_slot == slot)
        with m.If(table.clear & (table.clear_slot == slot)):
            m.d.sync += [cleared.eq(1), state.eq(0)]
        with m.Elif(committed):
            m.d.sync += [cleared.eq(1), state.eq(table.commit_state)]
        m.d.sync += [
            read.eq((table.s6_slot == slot) & ~table.clear),
            wrote.eq(table.s6_write_key),
        ]
        with m.If(table.s6_write_key & (table.s6_slot == slot)):
            m.d.sync += [key.eq(table.s6_key), has_key.eq(1)]
        latest = Mux(committed, table.commit_state, state)
        self.check("state", ~(cleared & read) | (table.s7_state.as_value() == latest))
        self.check("key", ~(has_key & read & ~wrote) | (table.s7_key.as_value() == key))
        self.cover("both", cleared & read & committed & design["previous"] & (table.s7_state.age == 1))
        self.cover("key", has_key & read & ~wrote & (table.s7_key.digest == 3))
        inside, kept = Array(design.rows("states"))[slot], Array(design.rows("keys"))[slot]
        self.help("state_inside", ~cleared | (inside == state))
        self.help("key_inside", ~has_key | (kept == key))
        own = design["previous"] & (design["previous_slot"] == slot)
        coming = Mux(own, design["previous_state"], design["states.ram.read_data"])
        self.help("slot", ~read | (design["s7_slot"] == slot))
        self.help("state_on_its_way", ~(cleared & read) | (coming == state))
        self.help("key_on_its_way", ~(has_key & read & ~wrote) | (design["keys.ram.read_data"] == key))


class Fills(ProofOf):
    """FillTable: rows of fills and of members at stage 8 have every commit in them; a row has at most one owner, is
    granted only when it is free, and the count is that of the rows taken; `look_slot` is the slot it was taken for.
    """

    def describe(self, m: Module) -> None:
        config, table = self.config, FillTable(self.config)
        design = self.design("table", table, clash=True)
        partition = self.chosen("partition", len(table.s7_partition))
        row = self.chosen("row", len(table.s7_row))
        member = self.chosen("member", len(table.s7_member))
        self.assume("place", (partition < len(config.partitions)) & (row < config.fill_rows))

        def committed(name: str, commit: Signal, value: Value, here: Value) -> tuple[Signal, Signal]:
            known, last = Signal(name=f"{name}_known"), Signal(len(value), name=f"{name}_last")
            with m.If(commit & here):
                m.d.sync += [known.eq(1), last.eq(value)]
            return known, last

        at7 = (table.s7_partition == partition) & (table.s7_row == row)
        at8 = (table.s8_partition == partition) & (table.s8_row == row)
        member7, member8 = table.s7_member == member, table.s8_member == member
        address = Cat(row, partition)
        for name, commit, value, answer, here7, here8, path, place in (
            ("fill", table.commit, table.s8_commit.as_value(), table.s8_fill.as_value(), at7, at8, "rows", address),
            (
                "part",
                table.commit_part,
                table.s8_commit_part.as_value(),
                table.s8_part.as_value(),
                at7 & member7,
                at8 & member8,
                "parts",
                Cat(member, address),
            ),
        ):
            known, last = committed(name, commit, value, here8)
            reads = Signal(name=f"{name}_reads")
            m.d.sync += reads.eq(here7)
            self.check(name, ~(known & reads) | (answer == last))
            self.cover(name, known & reads & (last == 5) & ~design[f"{path}.forward"])
            self.help(f"{name}_inside", ~known | (Array(design.rows(f"{path}.ram"))[place] == last))
            forwards = design[f"{path}.forward"] & (design[f"{path}.forwarded"] == last)
            self.help(
                f"{name}_on_its_way",
                ~(known & reads) | forwards | (design[f"{path}.ram.ram.read_data"] == last),
            )

        # Grants: the caller takes a row only when there is room, and releases one that is taken.
        grants = table.take & (table.s5_partition == partition) & (table.s5_row == row)
        self.assume("room", ~table.take | table.s5_room)
        self.assume("partition", (table.s5_partition < len(config.partitions)))
        taken, slot, was_taken = Signal(), Signal(len(table.s5_slot)), Signal()
        with m.If(table.release & at8):
            m.d.sync += taken.eq(0)
        with m.If(grants):
            m.d.sync += [taken.eq(1), was_taken.eq(1), slot.eq(table.s5_slot)]
        self.check("granted_once", ~grants | ~taken)
        takens = Array(design[f"taken_{i}"] for i in range(len(config.partitions)))[partition]
        self.check("taken", takens.bit_select(row, 1) == taken)
        used = Array(table.used)[partition]
        self.check("used", used == sum(takens[i] for i in range(config.fill_rows)))
        room_here = (table.s5_partition != partition) | (table.s5_room == (used != config.fill_rows))
        self.check("room_is_known", room_here)
        looks = Signal()
        look = (table.look_partition == partition) & (table.look_row == row)
        m.d.sync += looks.eq(look & was_taken & ~grants)
        self.check("look", ~looks | (table.look_slot == slot))
        self.help("slot_inside", ~was_taken | (Array(design.rows("slots"))[address] == slot))
        self.cover("granted_again", grants & was_taken & (used == config.fill_rows - 1))
        self.cover("look", looks & (slot == 3))
