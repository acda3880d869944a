"""The trace port: one record per committed operation, for lockstep and debugging (ARCHITECTURE section 15)."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .layouts import TRACE_STRUCT
from .ownership import By, Owned


class TracePort(wiring.Component):
    """Numbers and dates the records of the directory.

    Ports: `commit` says that `record` is that of an operation committed in this cycle; its `order`, which counts
    operations from 0 without a gap, and its `cycle`, counted from reset, are the numbers that the port gives. `valid`
    and `trace` are the record a cycle later.

    Used by: directory.
    """

    OWNERSHIP = (Owned("cycle", By.PUBLIC), Owned("*", By.MANAGEMENT))

    def __init__(self):
        super().__init__(
            {
                "commit": In(1),
                "order": Out(64),
                "cycle": Out(64),
                "record": In(TRACE_STRUCT),
                "valid": Out(1),
                "trace": Out(TRACE_STRUCT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.sync += [
            self.cycle.eq(self.cycle + 1),
            self.order.eq(self.order + self.commit),
            self.valid.eq(self.commit),
            self.trace.eq(self.record),
        ]
        return m
