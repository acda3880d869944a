"""The event ring: what the trace says that software must learn, kept until it is read (ARCHITECTURE section 14)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.enums import Kind, State, Status
from kvnode.models.spec.events import EVENT, RING_DEPTH, SEQUENCE_BITS, EventType

from ..layouts import TRACE_STRUCT, filled, index_bits, struct
from ..memory import Ram
from ..ownership import By, Owned

EVENT_STRUCT = struct(EVENT)


def event_of(trace):
    """`models.spec.events.event_of` in hardware: whether a trace record gives rise to an event, and the event."""
    moved = Cat(trace.state_before, trace.state_after)
    stored = moved == Cat(Const(State.FILLING, 8), Const(State.SEALED, 8))
    removed = moved == Cat(Const(State.SEALED, 8), Const(State.RETIRING, 8))
    poisoned = (trace.kind == Kind.POISON) & (trace.state_before == State.SEALED)
    retired = trace.kind == Kind.RETIRE_MODEL
    session_moved = (trace.kind == Kind.SESSION_MIGRATE) & (trace.status == Status.OK)
    port_down = trace.kind == Kind.PORT_DOWN
    of_block = stored | removed | poisoned

    # Later ones give way to earlier ones.
    cases = [
        (stored, EventType.STORED),
        (removed, EventType.REMOVED),
        (poisoned, EventType.POISONED),
        (retired, EventType.MODEL_RETIRED),
        (session_moved, EventType.SESSION_MOVED),
        (port_down, EventType.PORT_DOWN),
    ]
    type_ = Const(0, 8)
    for happened, number in reversed(cases):
        type_ = Mux(happened, Const(number, 8), type_)

    def only(condition, value):
        return Mux(condition, value, Const(0, len(value)))

    ports = Cat(trace.ports, Const(0, 24))
    event = filled(
        EVENT_STRUCT,
        type=type_,
        cause=only(removed, trace.cause),
        partition=trace.partition,
        owner=trace.owner,
        model_id=Mux(of_block, trace.block_model_id, only(retired, trace.model_id)),
        group=only(of_block, trace.block_group),
        private=only(of_block, trace.block_private),
        slot=Mux(of_block, trace.block_slot, only(session_moved | port_down, ports)),
        generation=Mux(
            of_block, trace.block_generation, Mux(retired, trace.epoch, only(session_moved, trace.found_epoch))
        ),
        session=Mux(of_block, trace.block_session, only(session_moved, trace.found_session)),
        length=only(of_block, trace.block_length),
        cycle=trace.cycle,
        digest=only(of_block, trace.block_digest),
    )
    return Cat(happened for happened, _ in cases).any(), event


class EventRing(wiring.Component):
    """Room for `depth` events (a power of two), one of which may come in every cycle.

    Contract: `trace_valid` says that `trace` is the record of an operation committed; `cleared`, in a cycle without
    one, that the tables are clear after a reset. `valid` says that `data` (spec.events.EVENT) and `sequence` are the
    oldest event and its number; they stand until `pop`, which removes it and does nothing while not `valid`. Events
    are numbered from 0, lost ones too. An event that comes while `depth` are in the ring is lost, unless one is
    removed in that cycle; `overflow` is then set until the last event in the ring is removed. `level` counts the
    events in the ring.

    Latency: `level` is that of the cycle before; an event is shown two cycles after its record at the earliest, one
    cycle after it was counted in `level`. Throughput: one event in and one out per cycle, while more than one is there.

    Used by: node, beside the register bank.
    """

    OWNERSHIP = (Owned("*", By.MANAGEMENT),)

    def __init__(self, depth: int = RING_DEPTH):
        if depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth = {depth}: must be a power of two, at least 2")
        self.depth = depth
        super().__init__(
            {
                "trace_valid": In(1),
                "trace": In(TRACE_STRUCT),
                "cleared": In(1),
                "pop": In(1),
                "level": Out(range(depth + 1)),
                "sequence": Out(SEQUENCE_BITS),
                "valid": Out(1),
                "overflow": Out(1),
                "data": Out(8 * EVENT.size_bytes),
            }
        )

    def elaborate(self, platform):
        m = Module()
        data_bits = 8 * EVENT.size_bytes
        m.submodules.ring = ring = Ram(data_bits + SEQUENCE_BITS, self.depth)
        head = Signal(index_bits(self.depth))
        tail = Signal.like(head)
        number = Signal(SEQUENCE_BITS)
        happened, taken, kept = Signal(), Signal(), Signal()

        of_trace, event = event_of(self.trace)
        cleared = Value.cast(EVENT_STRUCT.const({"type": EventType.CLEARED}))
        m.d.comb += [
            happened.eq(self.cleared | self.trace_valid & of_trace),
            taken.eq(self.pop & self.valid),
            kept.eq(happened & ((self.level != self.depth) | taken)),
            ring.write_enable.eq(kept),
            ring.write_address.eq(tail),
            ring.write_data.eq(Cat(Mux(self.cleared, cleared, event), number)),
            # The place is read in every cycle; what is written there in the same cycle is shown by the read after it.
            ring.read_address.eq(head + taken),
            Cat(self.data, self.sequence).eq(ring.read_data),
        ]
        m.d.sync += [
            head.eq(head + taken),
            tail.eq(tail + kept),
            number.eq(number + happened),
            self.level.eq(self.level + kept - taken),
            self.valid.eq(self.level > taken),
        ]
        with m.If(happened & ~kept):
            m.d.sync += self.overflow.eq(1)
        with m.Elif(taken & (self.level == 1)):
            m.d.sync += self.overflow.eq(0)
        return m
