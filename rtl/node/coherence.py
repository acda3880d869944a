"""Write-once coherence in hardware: the table of models.spec.coherence as one combinational block."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from kvnode.models.spec.coherence import TRANSITIONS, Event
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import SWEEPER_KINDS, Kind, State, Status
from kvnode.models.spec.policy import AGE_MAX, AGE_ON_INSERT, CLASS_COUNT, age_on_hit, visit

from ..layouts import AGE_BITS, CLASS_BITS, KIND_BITS, STATE_BITS, STATUS_BITS, Shapes, one_of

EVENT_BITS = bits_for(max(Event))


def view_layout(config: NodeConfig) -> data.StructLayout:
    """models.spec.coherence.View in hardware."""
    beat_bits = Shapes(config).beat_bits
    return data.StructLayout(
        {
            "present": 1,
            "state": STATE_BITS,
            "owner": 1,
            "offset": beat_bits,
            "length": beat_bits,
            "block_length": beat_bits,
            "accepted": beat_bits,
            "landed": beat_bits,
            "age": AGE_BITS,
            "klass": CLASS_BITS,
            "room": 1,
            "chained": 1,
            "whole": 1,
            "stale": 1,
            "low": 1,
        }
    )


class Coherence(wiring.Component):
    """`models.spec.coherence.decide` for operations that meet a block: same inputs, same outputs, no latency.

    `fault` is for tests: "transition" seals no block, "watermark" inverts a bit of the landed watermark.
    Used by: directory.
    """

    def __init__(self, config: NodeConfig, fault: str | None = None):
        self.fault = fault
        self.transitions = dict(TRANSITIONS)
        if fault == "transition":
            self.transitions[State.FILLING, Event.FINISH] = State.FILLING, Status.SEALED
        beat_bits = Shapes(config).beat_bits
        super().__init__(
            {
                "kind": In(KIND_BITS),
                "by_handle": In(1),
                "view": In(view_layout(config)),
                "event": Out(EVENT_BITS),
                "state": Out(STATE_BITS),
                "status": Out(STATUS_BITS),
                "accepted": Out(beat_bits),
                "landed": Out(beat_bits),
                "age": Out(AGE_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        v, event = self.view, self.event
        filling = v.present & (v.state == State.FILLING)
        end = Signal(len(v.offset) + 1)
        m.d.comb += end.eq(Mux(v.length == 0, v.block_length, v.offset + v.length))

        # The truth table of the clock: bit (age, class) of two constants.
        ages = [(age, klass) for klass in range(CLASS_COUNT) for age in range(AGE_MAX + 1)]
        evicts = sum(visit(age, klass)[0] << n for n, (age, klass) in enumerate(ages))
        aged = sum(visit(age, klass)[1] << AGE_BITS * n for n, (age, klass) in enumerate(ages))
        position = Cat(v.age, v.klass)
        evict = Signal()
        older = Signal(AGE_BITS)
        m.d.comb += [
            evict.eq(Const(evicts, len(ages)).bit_select(position, 1)),
            older.eq(Const(aged, AGE_BITS * len(ages)).word_select(position, AGE_BITS)),
        ]

        def either(condition, event_if, event_else):
            return Mux(condition, event_if, event_else)

        foreign = filling & ~v.owner
        with m.Switch(self.kind):
            with m.Case(Kind.PUT_START):
                m.d.comb += event.eq(either(v.present, Event.START, either(v.room, Event.ADMIT, Event.CROWDED)))
            with m.Case(Kind.LOOKUP):
                m.d.comb += event.eq(Event.FIND)
            with m.Case(Kind.MATCH):
                m.d.comb += event.eq(either(v.chained, Event.FIND, Event.FIND_SKIPPED))
            with m.Case(Kind.READ):
                m.d.comb += event.eq(Event.FETCH)
                with m.If(v.present & (v.state != State.RETIRING)):
                    with m.If((end > v.block_length) | (v.offset >= end)):
                        m.d.comb += event.eq(Event.FETCH_BEYOND)
                    with m.Elif(filling & ~(v.owner & (end <= v.landed))):
                        m.d.comb += event.eq(Event.FETCH_EARLY)
            with m.Case(Kind.WRITE):
                m.d.comb += event.eq(either(foreign, Event.APPEND_FOREIGN, Event.APPEND))
                with m.If(filling & v.owner & ((v.offset != v.accepted) | (v.offset + v.length > v.block_length))):
                    m.d.comb += event.eq(Event.APPEND_ELSEWHERE)
            with m.Case(Kind.LAND):
                in_order = either(v.offset == v.landed, Event.LAND, Event.LAND_GAP)
                m.d.comb += event.eq(either(v.whole, in_order, Event.LAND_BROKEN))
            with m.Case(Kind.PUT_END):
                m.d.comb += event.eq(either(foreign, Event.FINISH_FOREIGN, Event.FINISH))
                with m.If(filling & v.owner & (v.landed != v.block_length)):
                    m.d.comb += event.eq(Event.FINISH_SHORT)
            with m.Case(Kind.PUT_REVOKE):
                m.d.comb += event.eq(either(foreign, Event.REVOKE_FOREIGN, Event.REVOKE))
            with m.Case(Kind.DROP):
                m.d.comb += event.eq(Event.DROP)
            with m.Case(Kind.VISIT, Kind.PATROL):
                m.d.comb += event.eq(Event.KEEP)
                with m.If(((v.state == State.FILLING) | (v.state == State.SEALED)) & v.stale):
                    m.d.comb += event.eq(Event.EVICT)
                with m.Elif((self.kind == Kind.VISIT) & (v.state == State.SEALED) & v.low):
                    m.d.comb += event.eq(either(evict, Event.EVICT, Event.AGE))
            with m.Case(Kind.REAP):
                m.d.comb += event.eq(Event.REAP)

        met = Signal(STATE_BITS)
        swept = one_of(self.kind, SWEEPER_KINDS)
        m.d.comb += [met.eq(Mux(v.present | swept, v.state, State.FREE)), self.state.eq(met)]
        with m.Switch(Cat(event, met)):
            for (state, happens), (following, status) in self.transitions.items():
                with m.Case(state << EVENT_BITS | happens):
                    m.d.comb += [self.state.eq(following), self.status.eq(status)]

        m.d.comb += [self.accepted.eq(v.accepted), self.landed.eq(v.landed), self.age.eq(v.age)]
        with m.Switch(event):
            with m.Case(Event.ADMIT):
                m.d.comb += [self.accepted.eq(0), self.landed.eq(0), self.age.eq(Array(AGE_ON_INSERT)[v.klass])]
            with m.Case(Event.APPEND):
                with m.If(met == State.FILLING):
                    m.d.comb += self.accepted.eq(v.accepted + v.length)
            with m.Case(Event.LAND):
                landed = Signal.like(v.landed)
                m.d.comb += [
                    landed.eq((v.landed + v.length) ^ (self.fault == "watermark")),
                    self.landed.eq(landed),
                    self.accepted.eq(Mux(v.accepted > landed, v.accepted, landed)),
                ]
            with m.Case(Event.LAND_GAP, Event.LAND_BROKEN):
                m.d.comb += self.accepted.eq(v.landed)
            with m.Case(Event.FIND, Event.FETCH):
                with m.If(met == State.SEALED):
                    m.d.comb += self.age.eq(Array(age_on_hit(age) for age in range(AGE_MAX + 1))[v.age])
            with m.Case(Event.AGE):
                m.d.comb += self.age.eq(older)

        with m.If(self.by_handle & ~v.present):
            m.d.comb += [
                event.eq(Event.ANSWER),
                self.state.eq(v.state),
                self.status.eq(Status.STALE_HANDLE),
                self.accepted.eq(v.accepted),
                self.landed.eq(v.landed),
                self.age.eq(v.age),
            ]
        return m
