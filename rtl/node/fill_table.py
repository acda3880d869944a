"""Fill table: one row per block being written, and one for each of its members; read at stage 7, committed at stage 8.

Rows are granted at stage 5.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.requests import MAX_MEMBERS
from kvnode.models.spec.sessions import EPOCH_BITS, SEQUENCE_BITS

from ..layouts import CRC_BITS, MEMBER_BITS, MEMBERS_BITS, TICK_BITS, Shapes
from ..memory import ForwardedRam, Ram
from ..ownership import By, Owned


def fill_layout(config: NodeConfig) -> data.StructLayout:
    """golden.fill_table.Fill in hardware. `joined`: mask of the members of which there is a row."""
    shapes = Shapes(config)
    return data.StructLayout(
        {
            "extent": shapes.beat_bits,
            "members": MEMBERS_BITS,
            "joined": MAX_MEMBERS,
            "done": MAX_MEMBERS,
            "ports": config.ports,
            "waiters": config.ports,
            "epoch": EPOCH_BITS,
            "sequence": SEQUENCE_BITS,
            "timed": 1,
            "deadline": TICK_BITS,
            "crc": CRC_BITS,
        }
    )


def member_layout(config: NodeConfig) -> data.StructLayout:
    """golden.fill_table.Part in hardware: who writes, how far writes were accepted and have landed, end and CRC."""
    shapes = Shapes(config)
    return data.StructLayout(
        {
            "port": shapes.port_bits,
            "accepted": shapes.beat_bits,
            "landed": shapes.beat_bits,
            "end": shapes.beat_bits,
            "crc": CRC_BITS,
        }
    )


class FillTable(wiring.Component):
    """Rows of all partitions, `config.fill_rows` each, and MAX_MEMBERS member rows for each of them.

    Contract: `s5_room` and `s5_row` name the lowest free row of `s5_partition`; `take` takes it for `s5_slot` in the
    same cycle. The row `s7_row` of `s7_partition` is at `s8_fill`, and that of `s7_member` at `s8_part`, a cycle later
    with every earlier commit in it. `commit` writes the row of the operation at stage 8, `commit_part` that of its
    member, `release` frees it: it can be granted to the operation that is at stage 5 in the next cycle. `look_slot` is
    the slot that the row `look_row` of `look_partition`, both of the cycle before, was last taken for.

    Used by: directory.
    """

    OWNERSHIP = (
        Owned("taken_*", By.NUMBER),
        Owned("rows.forward", By.TAG, "s8_head"),
        Owned("rows.forwarded", By.TAG, "s8_head", when="rows.forward"),
        Owned("parts.forward", By.TAG, "s8_head"),
        Owned("parts.forwarded", By.TAG, "s8_head", when="parts.forward"),
        Owned("rows.ram", By.ADDRESS),
        Owned("parts.ram", By.ADDRESS),
        Owned("slots", By.ADDRESS),
    )

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        self.fill, self.part = fill_layout(config), member_layout(config)
        partition_bits, row_bits = self.shapes.partition_bits, self.shapes.fill_row_bits
        super().__init__(
            {
                "s5_partition": In(partition_bits),
                "s5_room": Out(1),
                "s5_row": Out(row_bits),
                "s5_slot": In(self.shapes.slot_bits),
                "take": In(1),
                "s7_partition": In(partition_bits),
                "s7_row": In(row_bits),
                "s7_member": In(MEMBER_BITS),
                "s8_fill": Out(self.fill),
                "s8_part": Out(self.part),
                "commit": In(1),
                "commit_part": In(1),
                "release": In(1),
                "s8_partition": In(partition_bits),
                "s8_row": In(row_bits),
                "s8_member": In(MEMBER_BITS),
                "s8_commit": In(self.fill),
                "s8_commit_part": In(self.part),
                "look_partition": In(partition_bits),
                "look_row": In(row_bits),
                "look_slot": Out(self.shapes.slot_bits),
                "used": Out(range(config.fill_rows + 1)).array(len(config.partitions)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        partitions = range(len(config.partitions))
        taken = [Signal(config.fill_rows, name=f"taken_{i}") for i in partitions]
        with m.Switch(self.s5_partition):
            for i in partitions:
                with m.Case(i):
                    m.d.comb += self.s5_room.eq(~taken[i].all())
                    for row in reversed(range(config.fill_rows)):
                        with m.If(~taken[i][row]):
                            m.d.comb += self.s5_row.eq(row)
        for i in partitions:
            m.d.comb += self.used[i].eq(sum(taken[i][row] for row in range(config.fill_rows)))
            with m.If(self.release & (self.s8_partition == i)):
                m.d.sync += taken[i].bit_select(self.s8_row, 1).eq(0)
            with m.If(self.take & (self.s5_partition == i)):
                m.d.sync += taken[i].bit_select(self.s5_row, 1).eq(1)

        rows_of_all = len(config.partitions) << self.shapes.fill_row_bits
        m.submodules.rows = rows = ForwardedRam(self.fill, rows_of_all)
        m.submodules.parts = parts = ForwardedRam(self.part, rows_of_all << MEMBER_BITS)
        m.submodules.slots = slots = Ram(self.shapes.slot_bits, rows_of_all)
        m.d.comb += [
            rows.read_address.eq(Cat(self.s7_row, self.s7_partition)),
            rows.commit_address.eq(Cat(self.s8_row, self.s8_partition)),
            rows.commit.eq(self.commit),
            rows.value.eq(self.s8_commit),
            self.s8_fill.eq(rows.read),
            parts.read_address.eq(Cat(self.s7_member, self.s7_row, self.s7_partition)),
            parts.commit_address.eq(Cat(self.s8_member, self.s8_row, self.s8_partition)),
            parts.commit.eq(self.commit_part),
            parts.value.eq(self.s8_commit_part),
            self.s8_part.eq(parts.read),
            slots.write_enable.eq(self.take),
            slots.write_address.eq(Cat(self.s5_row, self.s5_partition)),
            slots.write_data.eq(self.s5_slot),
            slots.read_address.eq(Cat(self.look_row, self.look_partition)),
            self.look_slot.eq(slots.read_data),
        ]
        return m
