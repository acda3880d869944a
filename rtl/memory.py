"""The memory under every table and bank: one write port, one synchronous read port, no initial contents.

A read of the address being written in the same cycle returns either the old or the new word: every user forwards what
it needs. Tables that must be clear after reset are cleared by the directory's walk.

Used by: every table, the store, the delay line.
"""

from amaranth.hdl import ClockSignal, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .layouts import index_bits
from .ownership import By, Owned

#: The module behind every `Ram`; `elaborate` puts it beside the generated Verilog.
RAM_VERILOG = """\
module kvnode_ram #(parameter WIDTH = 1, DEPTH = 2, ADDRESS = 1) (
  input wire clk,
  input wire write_enable,
  input wire [ADDRESS-1:0] write_address,
  input wire [WIDTH-1:0] write_data,
  input wire [ADDRESS-1:0] read_address,
  output reg [WIDTH-1:0] read_data
);
  reg [WIDTH-1:0] memory [0:DEPTH-1];
  always @(posedge clk) begin
    if (write_enable) memory[write_address] <= write_data;
    read_data <= memory[read_address];
  end
endmodule
"""


class Ram(wiring.Component):
    """`depth` words of `width` bits. Latency: `read_data` is the word at `read_address` of the previous cycle."""

    def __init__(self, width: int, depth: int):
        self.width, self.depth = width, max(2, depth)
        address_bits = index_bits(self.depth)
        super().__init__(
            {
                "write_enable": In(1),
                "write_address": In(address_bits),
                "write_data": In(width),
                "read_address": In(address_bits),
                "read_data": Out(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = Instance(
            "kvnode_ram",
            p_WIDTH=self.width,
            p_DEPTH=self.depth,
            p_ADDRESS=len(self.write_address),
            i_clk=ClockSignal("sync"),
            i_write_enable=self.write_enable,
            i_write_address=self.write_address,
            i_write_data=self.write_data,
            i_read_address=self.read_address,
            o_read_data=self.read_data,
        )
        return m


class ForwardedRam(wiring.Component):
    """A table of a pipeline: rows are read in one stage and committed in the next.

    `read` is the row at `read_address` of the previous cycle, with the `commit` of the previous cycle (`value` at
    `commit_address`) in it; so an operation sees what the one in front of it has committed.

    Used by: fill_table, sessions, leases.
    """

    def __init__(self, shape, depth: int):
        self.shape, self.depth = shape, max(2, depth)
        address_bits = index_bits(self.depth)
        super().__init__(
            {
                "read_address": In(address_bits),
                "read": Out(shape),
                "commit": In(1),
                "commit_address": In(address_bits),
                "value": In(shape),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(self.shape.size, self.depth)
        forward = Signal()
        forwarded = Signal(self.shape)
        m.d.comb += [
            ram.read_address.eq(self.read_address),
            ram.write_address.eq(self.commit_address),
            ram.write_enable.eq(self.commit),
            ram.write_data.eq(self.value),
            self.read.eq(ram.read_data),
        ]
        m.d.sync += [forward.eq(self.commit & (self.read_address == self.commit_address)), forwarded.eq(self.value)]
        with m.If(forward):
            m.d.comb += self.read.eq(forwarded)
        return m


class DelayLine(wiring.Component):
    """`output` is `input` of `cycles` cycles ago (at least 2): wide data beside a pipeline, kept in memory.

    Used by: directory, for the digest and what else its last stages need.
    """

    OWNERSHIP = (
        Owned("position", By.PUBLIC),
        Owned("ram", By.TAG, "s5_head"),
    )

    def __init__(self, width: int, cycles: int):
        if cycles < 2:
            raise ValueError(f"cycles = {cycles}: a delay line has at least 2")
        self.cycles = cycles
        super().__init__({"input": In(width), "output": Out(width)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.ram = ram = Ram(len(self.input), self.cycles)
        position = Signal(range(self.cycles))
        following = Signal.like(position)
        m.d.comb += following.eq(position + 1)
        with m.If(position == self.cycles - 1):
            m.d.comb += following.eq(0)
        m.d.sync += position.eq(following)
        m.d.comb += [
            ram.write_enable.eq(1),
            ram.write_address.eq(position),
            ram.write_data.eq(self.input),
            ram.read_address.eq(following),
            self.output.eq(ram.read_data),
        ]
        return m
