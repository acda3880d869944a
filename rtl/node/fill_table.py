"""Fill table: one row per block being written, read at stage 7, committed at stage 8; rows are granted at stage 5."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig

from ..layouts import Shapes
from ..memory import Ram
from ..ownership import By, Owned


def fill_layout(config: NodeConfig) -> data.StructLayout:
    """Who writes the block, how far writes were accepted, and how far their bytes have landed (beats)."""
    shapes = Shapes(config)
    return data.StructLayout({"writer": shapes.port_bits, "accepted": shapes.beat_bits, "landed": shapes.beat_bits})


class FillTable(wiring.Component):
    """Rows of all partitions, `config.fill_rows` each.

    Contract: `s5_room` and `s5_row` name the lowest free row of `s5_partition`; `take` takes it in the same cycle. The
    row `s7_row` of `s7_partition` is at `s8_fill` a cycle later with every earlier commit in it. `commit` writes the
    row of the operation at stage 8, `release` frees it: it can be granted to the operation that is at stage 5 in the
    next cycle.

    Used by: directory.
    """

    OWNERSHIP = (
        Owned("taken_*", By.NUMBER),
        Owned("forward*", By.TAG, "s8_head"),
        Owned("rows", By.ADDRESS),
    )

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        self.fill = fill_layout(config)
        partition_bits, row_bits = self.shapes.partition_bits, self.shapes.fill_row_bits
        super().__init__(
            {
                "s5_partition": In(partition_bits),
                "s5_room": Out(1),
                "s5_row": Out(row_bits),
                "take": In(1),
                "s7_partition": In(partition_bits),
                "s7_row": In(row_bits),
                "s8_fill": Out(self.fill),
                "commit": In(1),
                "release": In(1),
                "s8_partition": In(partition_bits),
                "s8_row": In(row_bits),
                "s8_commit": In(self.fill),
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
            with m.If(self.release & (self.s8_partition == i)):
                m.d.sync += taken[i].bit_select(self.s8_row, 1).eq(0)
            with m.If(self.take & (self.s5_partition == i)):
                m.d.sync += taken[i].bit_select(self.s5_row, 1).eq(1)

        m.submodules.rows = rows = Ram(self.fill.size, len(config.partitions) << self.shapes.fill_row_bits)
        s7_address, s8_address = Cat(self.s7_row, self.s7_partition), Cat(self.s8_row, self.s8_partition)
        forward = Signal()
        forwarded = Signal(self.fill)
        m.d.comb += [
            rows.read_address.eq(s7_address),
            rows.write_address.eq(s8_address),
            rows.write_enable.eq(self.commit),
            rows.write_data.eq(self.s8_commit),
            self.s8_fill.eq(rows.read_data),
        ]
        m.d.sync += [forward.eq(self.commit & (s7_address == s8_address)), forwarded.eq(self.s8_commit)]
        with m.If(forward):
            m.d.comb += self.s8_fill.eq(forwarded)
        return m
