"""Streams: valid/ready handshakes with two laws (valid never waits for ready, payload stable while valid), and a queue.

Used by: every RTL block with a queue or a stream port.
"""

from amaranth.hdl import Module, Shape, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from .ownership import By, Owned


class Queue(wiring.Component):
    """First-in first-out queue of `depth` items of `shape`, first word falls through.

    Latency: an item is at `o` the cycle after it was taken at `i`. Throughput: one in and one out per cycle. An item
    may be put in while another is taken out, also when the queue is full or empty (then it is not).

    `level` is the number of items inside.
    """

    OWNERSHIP = (Owned("*", By.PORT),)

    def __init__(self, shape, depth: int):
        if depth < 1:
            raise ValueError(f"depth = {depth}: a queue has at least one place")
        self.shape, self.depth = shape, depth
        super().__init__(
            {"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), "level": Out(range(depth + 1))}
        )

    def elaborate(self, platform):
        m = Module()
        width = Shape.cast(self.shape).width
        m.submodules.fifo = queue = fifo.SyncFIFO(width=width, depth=self.depth)
        raw = Signal(width)
        m.d.comb += [
            raw.eq(self.i.p if isinstance(self.i.p, Signal) else self.i.p.as_value()),
            queue.w_data.eq(raw),
            queue.w_en.eq(self.i.valid),
            self.i.ready.eq(queue.w_rdy),
            (self.o.p if isinstance(self.o.p, Signal) else self.o.p.as_value()).eq(queue.r_data),
            self.o.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.o.ready),
            self.level.eq(queue.level),
        ]
        return m
