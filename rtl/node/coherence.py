"""Write-once coherence in hardware: the table of models.spec.coherence as one combinational block."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from kvnode.models.spec.coherence import TRANSITIONS, Event, View
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import SWEEPER_KINDS, Kind, State, Status
from kvnode.models.spec.policy import AGE_MAX, AGE_ON_INSERT, CLASS_COUNT, age_on_hit, visit

from ..layouts import AGE_BITS, CLASS_BITS, KIND_BITS, STATE_BITS, STATUS_BITS, Shapes, one_of

EVENT_BITS = bits_for(max(Event))


def view_layout(config: NodeConfig) -> data.StructLayout:
    """models.spec.coherence.View in hardware."""
    beat_bits = Shapes(config).beat_bits
    widths = {"state": STATE_BITS, "age": AGE_BITS, "klass": CLASS_BITS, "refused": STATUS_BITS}
    beats = ("offset", "length", "block_length", "base", "end", "accepted", "landed")
    return data.StructLayout({name: beat_bits if name in beats else widths.get(name, 1) for name in View._fields})


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
        v = self.view
        refused = Signal()
        unreached = Signal()
        m.d.comb += [
            refused.eq(v.refused != Status.OK),
            unreached.eq(self.by_handle & ~v.present & ~refused),
        ]
        plain = Signal(EVENT_BITS)
        older = self._classify(m, plain)
        event = self.event
        m.d.comb += event.eq(plain)
        with m.If(refused):
            m.d.comb += event.eq(Mux(plain == Event.ADMIT, Event.ADMIT_REFUSED, Event.REFUSE))

        met = Signal(STATE_BITS)
        swept = one_of(self.kind, SWEEPER_KINDS)
        m.d.comb += [met.eq(Mux(v.present | swept, v.state, State.FREE)), self.state.eq(met)]
        with m.Switch(Cat(event, met)):
            for (state, happens), (following, status) in self.transitions.items():
                with m.Case(state << EVENT_BITS | happens):
                    m.d.comb += [self.state.eq(following), self.status.eq(status)]
        with m.If(refused):
            m.d.comb += self.status.eq(v.refused)

        m.d.comb += [self.accepted.eq(v.accepted), self.landed.eq(v.landed), self.age.eq(v.age)]
        with m.Switch(event):
            with m.Case(Event.ADMIT):
                m.d.comb += [
                    self.accepted.eq(v.offset),
                    self.landed.eq(v.offset),
                    self.age.eq(Array(AGE_ON_INSERT)[v.klass]),
                ]
            with m.Case(Event.JOIN):
                m.d.comb += [self.accepted.eq(v.offset), self.landed.eq(v.offset)]
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
            with m.Case(Event.FIND, Event.LOCK, Event.FETCH):
                with m.If(met == State.SEALED):
                    m.d.comb += self.age.eq(Array(age_on_hit(age) for age in range(AGE_MAX + 1))[v.age])
            with m.Case(Event.AGE):
                m.d.comb += self.age.eq(older)

        with m.If(unreached):
            m.d.comb += [
                event.eq(Event.ANSWER),
                self.state.eq(v.state),
                self.status.eq(Mux(self.kind == Kind.RELEASE, Status.OK, Status.STALE_HANDLE)),
                self.accepted.eq(v.accepted),
                self.landed.eq(v.landed),
                self.age.eq(v.age),
            ]
        return m

    def _classify(self, m, event):
        """`event` becomes what an operation that nobody refuses is; returns the age one step of the clock later."""
        v = self.view
        filling = v.present & (v.state == State.FILLING)
        sealed = v.present & (v.state == State.SEALED)
        spoiled = sealed & v.poisoned
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

        def choose(*cases, default):
            """The event of the first condition that holds."""
            chosen = default
            for condition, happens in reversed(cases):
                chosen = Mux(condition, happens, chosen)
            return event.eq(chosen)

        spoil = ((spoiled & v.leased, Event.SPOILED_HELD), (spoiled, Event.SPOILED))
        finds = (
            *spoil,
            (v.locks & sealed & v.lockable, Event.LOCK),
            (v.locks & sealed, Event.LOCKED_OUT),
        )
        live = (v.state == State.FILLING) | (v.state == State.SEALED)
        held = (v.state == State.SEALED) & v.leased
        takes = v.dead & live & ~held
        with m.Switch(self.kind):
            with m.Case(Kind.PUT_START):
                m.d.comb += choose(
                    *spoil,
                    (filling & v.joins, Event.JOIN),
                    (v.present, Event.START),
                    (~v.room, Event.CROWDED),
                    (v.quota, Event.ADMIT),
                    default=Event.OVER_QUOTA,
                )
            with m.Case(Kind.LOOKUP, Kind.LEASE):
                m.d.comb += choose(*finds, default=Event.FIND)
            with m.Case(Kind.MATCH):
                m.d.comb += choose((~v.chained, Event.FIND_SKIPPED), *finds, default=Event.FIND)
            with m.Case(Kind.READ):
                m.d.comb += choose(
                    (~v.present | (v.state == State.RETIRING), Event.FETCH),
                    *spoil,
                    ((end > v.block_length) | (v.offset >= end), Event.FETCH_BEYOND),
                    (filling & ~(v.owner & (v.base <= v.offset) & (end <= v.landed)), Event.FETCH_EARLY),
                    default=Event.FETCH,
                )
            with m.Case(Kind.WRITE):
                m.d.comb += choose(
                    (~filling, Event.APPEND),
                    (v.late, Event.REFUSE),
                    (~v.owner, Event.APPEND_FOREIGN),
                    ((v.offset != v.accepted) | (v.offset + v.length > v.end), Event.APPEND_ELSEWHERE),
                    default=Event.APPEND,
                )
            with m.Case(Kind.LAND):
                m.d.comb += choose(
                    (~v.whole, Event.LAND_BROKEN), (v.offset == v.landed, Event.LAND), default=Event.LAND_GAP
                )
            with m.Case(Kind.PUT_END):
                m.d.comb += choose(
                    (~filling, Event.FINISH),
                    (v.late, Event.REFUSE),
                    (~v.owner, Event.FINISH_FOREIGN),
                    (~v.shares, Event.FINISH_MISMATCH),
                    (v.done, Event.FINISH_AGAIN),
                    (v.landed != v.end, Event.FINISH_SHORT),
                    (~v.crc_right, Event.FINISH_WRONG),
                    (v.others_done, Event.FINISH),
                    default=Event.FINISH_MEMBER,
                )
            with m.Case(Kind.PUT_REVOKE):
                m.d.comb += choose((filling & ~v.owner, Event.REVOKE_FOREIGN), default=Event.REVOKE)
            with m.Case(Kind.RELEASE):
                m.d.comb += choose((sealed & v.lease, Event.UNLOCK), default=Event.UNLOCK_AGAIN)
            with m.Case(Kind.DROP):
                m.d.comb += choose((sealed & v.leased, Event.DROP_LEASED), default=Event.DROP)
            with m.Case(Kind.VISIT):
                moves = v.low & (v.state == State.SEALED) & ~v.dead & ~v.leased
                m.d.comb += choose(
                    (moves & evict, Event.EVICT), (moves, Event.AGE), (takes, Event.EVICT), default=Event.KEEP
                )
            with m.Case(Kind.PATROL):
                m.d.comb += choose((takes, Event.EVICT), default=Event.KEEP)
            with m.Case(Kind.EXPIRE_FILL):
                m.d.comb += choose((v.dead & (v.state == State.FILLING), Event.EVICT), default=Event.KEEP)
            with m.Case(Kind.EXPIRE_LEASE):
                m.d.comb += choose((v.lease & (v.state == State.SEALED), Event.EXPIRE_LEASE), default=Event.KEEP)
            with m.Case(Kind.POISON):
                m.d.comb += choose((v.state == State.SEALED, Event.SPOIL), default=Event.KEEP)
            with m.Case(Kind.REAP):
                m.d.comb += event.eq(Event.REAP)
        return older
