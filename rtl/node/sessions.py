"""Session table: read-after-write, also while a session moves; models.spec.sessions as logic around its rows."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from kvnode.models.spec.clock import TTL_TICKS
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Kind, Status
from kvnode.models.spec.sessions import EPOCH_BITS, SEQUENCE_BITS, WINDOW

from ..layouts import KIND_BITS, STATUS_BITS, TICK_BITS, Shapes, one_of
from ..memory import ForwardedRam
from ..ownership import By, Owned

TTL_BITS = bits_for(TTL_TICKS - 1)


def session_layout(config: NodeConfig) -> data.StructLayout:
    """models.spec.sessions.Session in hardware."""
    return data.StructLayout(
        {
            "open": 1,
            "generation": config.session_generation_bits,
            "epoch": EPOCH_BITS,
            "ports": config.ports,
            "limit": SEQUENCE_BITS,
            "committed": SEQUENCE_BITS,
            "ahead": WINDOW,
            "waiters": config.ports,
            "wake_at": SEQUENCE_BITS,
            "wait_until": TICK_BITS,
            "wait_timed": 1,
            "ttl": TTL_BITS,
            "until": TICK_BITS,
        }
    )


def passed(now, deadline):
    """models.spec.clock.passed."""
    return ~(now - deadline)[TICK_BITS - 1]


class Sessions(wiring.Component):
    """Rows of all partitions, `config.sessions` each: read at stage 7, judged and committed at stage 8.

    Contract, for one operation per cycle. Stage 7: `s7_*` say which row; SESSION_OPEN gets the partition's offer,
    EXPIRE_SESSION the row `s7_row`, everything else that of `s7_subject`. Stage 8: `alive` says that the subject is
    open. With `asks` the operation names it, and `refused` is models.spec.sessions.verdict (OK if it does not ask).
    `late`: a block of the subject with `fill_epoch` and `fill_sequence` may not be written any more. For operations
    of SESSION_KINDS `status` is the answer. `commits` counts `commit_sequence` as sealed. `wakes` is the mask of ports
    to wake; `number`, `epoch`, `committed` report the session after the operation, of one that it closes before it.

    `now` and `now_ttl` are ticks and units of TTL_TICKS. `clear` resets the row `clear_row` of all partitions' rows.

    Used by: directory.
    """

    OWNERSHIP = (
        Owned("offer_*", By.NUMBER),
        Owned("offered_*", By.NUMBER),
        Owned("open_*", By.NUMBER),
        Owned("s8_*", By.TAG, "s8_head"),
        Owned("rows.forward", By.TAG, "s8_head"),
        Owned("rows.forwarded", By.TAG, "s8_head", when="rows.forward"),
        Owned("rows.ram", By.ADDRESS),
    )

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        self.row = session_layout(config)
        shapes = self.shapes
        rows = len(config.partitions) << shapes.session_row_bits
        super().__init__(
            {
                "s7_partition": In(shapes.partition_bits),
                "s7_kind": In(KIND_BITS),
                "s7_row": In(shapes.look_bits),
                "s7_subject": In(shapes.session_bits),
                "valid": In(1),
                "partition": In(shapes.partition_bits),
                "kind": In(KIND_BITS),
                "owner": In(shapes.owner_bits),
                "asks": In(1),
                "ask_epoch": In(EPOCH_BITS),
                "ask_sequence": In(SEQUENCE_BITS),
                "deadline": In(8),
                "ttl": In(TTL_BITS),
                "ports": In(config.ports),
                "fill_epoch": In(EPOCH_BITS),
                "fill_sequence": In(SEQUENCE_BITS),
                "commits": In(1),
                "commit_sequence": In(SEQUENCE_BITS),
                "now": In(TICK_BITS),
                "now_ttl": In(TICK_BITS),
                "alive": Out(1),
                "refused": Out(STATUS_BITS),
                "late": Out(1),
                "status": Out(STATUS_BITS),
                "wakes": Out(config.ports),
                "number": Out(shapes.session_bits),
                "epoch": Out(EPOCH_BITS),
                "committed": Out(SEQUENCE_BITS),
                "open_counts": Out(range(config.sessions + 1)).array(len(config.partitions)),
                "clear": In(1),
                "clear_row": In(range(max(2, rows))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, shapes = self.config, self.shapes
        count, row_bits = len(config.partitions), shapes.session_row_bits
        m.submodules.rows = rows = ForwardedRam(self.row, count << row_bits)
        offers = [Signal(row_bits, name=f"offer_{i}") for i in range(count)]
        offered = [Signal(init=1, name=f"offered_{i}") for i in range(count)]
        opened = [Signal(range(config.sessions + 1), name=f"open_{i}") for i in range(count)]

        # Stage 7: the row. An offer that the operation in front makes or takes is seen.
        next_offers = [Signal(row_bits, name=f"next_offer_{i}") for i in range(count)]
        row7 = Signal(row_bits)
        with m.Switch(self.s7_kind):
            with m.Case(Kind.SESSION_OPEN):
                m.d.comb += row7.eq(Array(next_offers)[self.s7_partition])
            with m.Case(Kind.EXPIRE_SESSION):
                m.d.comb += row7.eq(self.s7_row)
            with m.Default():
                m.d.comb += row7.eq(self.s7_subject[: config.session_bits])
        row8 = Signal(row_bits, name="s8_row")
        subject = Signal(shapes.session_bits, name="s8_subject")
        m.d.sync += [row8.eq(row7), subject.eq(self.s7_subject)]
        m.d.comb += rows.read_address.eq(Cat(row7, self.s7_partition))

        # Stage 8: what the session says.
        row = Signal(self.row)
        m.d.comb += row.eq(rows.read)

        def may_write(epoch, sequence):
            before = epoch == (row.epoch - 1)[:EPOCH_BITS]
            return (epoch == row.epoch) | (before & (sequence != 0) & (sequence <= row.limit))

        named = subject[-1]
        same_epoch = self.ask_epoch == row.epoch
        ahead = Signal(SEQUENCE_BITS)
        in_window = Signal()
        m.d.comb += [
            self.alive.eq(named & row.open & (row.generation == subject[config.session_bits : -1])),
            ahead.eq(self.ask_sequence - row.committed - 1),
            in_window.eq(ahead < WINDOW),
            self.late.eq(~self.alive | ~may_write(self.fill_epoch, self.fill_sequence)),
        ]
        foreign = same_epoch & ~row.ports.bit_select(self.owner, 1)
        sealed_already = in_window & row.ahead.bit_select(ahead[: bits_for(WINDOW - 1)], 1)
        with m.If(self.asks):
            with m.If(~self.alive):
                m.d.comb += self.refused.eq(Status.STALE_EPOCH)
            with m.Elif(self.kind == Kind.PUT_START):
                with m.If(~may_write(self.ask_epoch, self.ask_sequence) | foreign):
                    m.d.comb += self.refused.eq(Status.STALE_EPOCH)
                with m.Elif(self.ask_sequence != 0):
                    with m.If((self.ask_sequence <= row.committed) | sealed_already):
                        m.d.comb += self.refused.eq(Status.WRITE_ORDER)
                    with m.Elif(~in_window):
                        m.d.comb += self.refused.eq(Status.BUSY)
            with m.Elif(~same_epoch):
                m.d.comb += self.refused.eq(Status.STALE_EPOCH)
            with m.Elif((self.kind != Kind.SESSION_MIGRATE) & (row.committed < self.ask_sequence)):
                m.d.comb += self.refused.eq(Status.NOT_READY)

        # What becomes of the row: a waiter, a committed number, a sign of life.
        after = Signal(self.row)
        m.d.comb += after.eq(row)
        waits = self.refused == Status.NOT_READY
        until = Signal(TICK_BITS)
        still_timed = (row.waiters != 0) & row.wait_timed
        m.d.comb += until.eq(self.now + self.deadline)
        with m.If(waits):
            m.d.comb += [
                after.waiters.eq(row.waiters | (1 << self.owner)[: config.ports]),
                after.wake_at.eq(
                    Mux((row.waiters != 0) & (row.wake_at < self.ask_sequence), row.wake_at, self.ask_sequence)
                ),
                after.wait_timed.eq(still_timed),
            ]
            with m.If((self.deadline != 0) & ~(still_timed & ~passed(row.wait_until, until))):
                m.d.comb += [after.wait_timed.eq(1), after.wait_until.eq(until)]
        step = Signal(SEQUENCE_BITS)
        sealed = Signal(WINDOW)
        steps = Signal(range(WINDOW + 1))
        m.d.comb += [
            step.eq(self.commit_sequence - row.committed - 1),
            sealed.eq(row.ahead | (1 << step[: bits_for(WINDOW - 1)])),
            steps.eq(WINDOW),
        ]
        for i in reversed(range(WINDOW)):
            with m.If(~sealed[i]):
                m.d.comb += steps.eq(i)
        committed = Signal(SEQUENCE_BITS)
        counts = self.commits & (self.commit_sequence != 0) & (step < WINDOW)
        m.d.comb += [committed.eq(row.committed + Mux(counts, steps, 0)), after.committed.eq(committed)]
        with m.If(counts):
            m.d.comb += after.ahead.eq(sealed >> steps)
        with m.If(self.commits):
            with m.If(row.wake_at <= committed):
                m.d.comb += [self.wakes.eq(row.waiters), after.waiters.eq(0)]
                with m.If(row.waiters != 0):
                    m.d.comb += after.wait_timed.eq(0)
        with m.If(self.asks & (row.ttl != 0) & (self.refused != Status.STALE_EPOCH)):
            m.d.comb += after.until.eq(self.now_ttl + row.ttl)

        # Operations on the row itself.
        one = (1 << self.owner)[: config.ports]
        owners_ports = Mux(self.ports == 0, one, self.ports)
        partition_offered = Array(offered)[self.partition]
        all_open = Array(opened)[self.partition] == config.sessions
        closed = Signal(self.row)
        m.d.comb += [closed.generation.eq(row.generation + 1), self.status.eq(self.refused)]
        opens, closes, offers_row = Signal(), Signal(), Signal()
        changes = Signal()
        m.d.comb += changes.eq(self.asks & self.alive | self.commits)
        with m.Switch(self.kind):
            with m.Case(Kind.SESSION_OPEN):
                m.d.comb += [
                    opens.eq(partition_offered),
                    changes.eq(opens),
                    self.status.eq(Mux(opens, Status.OK, Mux(all_open, Status.QUOTA, Status.BUSY))),
                    after.eq(0),
                    after.open.eq(1),
                    after.generation.eq(row.generation),
                    after.ports.eq(owners_ports),
                    after.ttl.eq(self.ttl),
                    after.until.eq(self.now_ttl + self.ttl),
                ]
            with m.Case(Kind.SESSION_MIGRATE):
                with m.If(self.refused == Status.OK):
                    m.d.comb += [
                        self.wakes.eq(row.waiters),
                        after.waiters.eq(0),
                        after.wait_timed.eq(0),
                        after.epoch.eq(row.epoch + 1),
                        after.ports.eq(owners_ports),
                        after.limit.eq(self.ask_sequence),
                    ]
            with m.Case(Kind.SESSION_CLOSE):
                with m.If(self.refused == Status.OK):
                    m.d.comb += [self.wakes.eq(row.waiters), closes.eq(1), after.eq(closed)]
            with m.Case(Kind.EXPIRE_SESSION):
                with m.If(~row.open):
                    m.d.comb += offers_row.eq(1)
                with m.Elif((row.ttl != 0) & passed(self.now_ttl, row.until)):
                    m.d.comb += [changes.eq(1), closes.eq(1), self.wakes.eq(row.waiters), after.eq(closed)]
                with m.Elif(row.wait_timed & passed(self.now, row.wait_until)):
                    m.d.comb += [
                        changes.eq(1), self.wakes.eq(row.waiters), after.waiters.eq(0), after.wait_timed.eq(0),
                    ]  # fmt: skip
        m.d.comb += [
            rows.commit.eq(self.valid & changes | self.clear),
            rows.commit_address.eq(Mux(self.clear, self.clear_row, Cat(row8, self.partition))),
            rows.value.eq(Mux(self.clear, 0, after.as_value())),
        ]
        for i in range(count):
            here = self.valid & (self.partition == i)
            taken = here & (self.kind == Kind.SESSION_OPEN)
            m.d.comb += [
                next_offers[i].eq(Mux(here & offers_row, row8, offers[i])),
                self.open_counts[i].eq(opened[i]),
            ]
            m.d.sync += [
                offers[i].eq(next_offers[i]),
                offered[i].eq((offered[i] & ~taken) | (here & offers_row)),
                opened[i].eq(opened[i] + (here & opens) - (here & closes)),
            ]

        # The report.
        by_row = (self.kind == Kind.SESSION_OPEN) | (self.kind == Kind.EXPIRE_SESSION)
        row_number = Cat(row8[: config.session_bits], row.generation, Const(1, 1))
        with m.If(by_row):
            shown = Mux(self.kind == Kind.SESSION_OPEN, opens, row.open)
            with m.If(shown):
                m.d.comb += self.number.eq(row_number)
                with m.If(self.kind == Kind.EXPIRE_SESSION):
                    m.d.comb += [self.epoch.eq(row.epoch), self.committed.eq(row.committed)]
        with m.Elif(self.alive):
            m.d.comb += [self.number.eq(subject), self.epoch.eq(row.epoch), self.committed.eq(row.committed)]
            with m.If(~closes):
                m.d.comb += [self.epoch.eq(after.epoch), self.committed.eq(after.committed)]
        return m


#: Kinds whose answer is `status`.
ANSWERED_HERE = (Kind.SESSION_OPEN, Kind.SESSION_FENCE, Kind.SESSION_MIGRATE, Kind.SESSION_CLOSE)


def is_session_kind(kind):
    """Whether the session table answers an operation of this kind."""
    return one_of(kind, ANSWERED_HERE)
