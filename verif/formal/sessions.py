"""Sessions: nobody is told that a number is there before all blocks up to it are, also while the session moves; late
writers are refused, and who was told to wait is woken.

Used by: block_claims.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data

from kvnode.models.spec.enums import SESSION_KINDS, Kind, Status
from kvnode.models.spec.sessions import EPOCH_BITS, SEQUENCE_BITS, WINDOW
from kvnode.rtl.layouts import TICK_BITS, one_of
from kvnode.rtl.node.sessions import Sessions, is_session_kind

from .proof import ProofOf


def may_write(row: data.View, epoch: Value, sequence: Value) -> Value:
    """models.spec.sessions.may_write."""
    before = ((epoch + 1)[:EPOCH_BITS] == row.epoch) & (sequence > 0) & (sequence <= row.limit)
    return (epoch == row.epoch) | before


def admission(row: data.View, port: Value, epoch: Value, sequence: Value) -> Value:
    """models.spec.sessions.admission, in whole numbers."""
    following = row.committed + 1
    foreign = (epoch == row.epoch) & ~row.ports.bit_select(port, 1)
    sealed = Cat((following + i == sequence) & row.ahead[i] for i in range(WINDOW)).any()
    counted = Mux(
        (sequence < following) | sealed, Status.WRITE_ORDER, Mux(sequence < following + WINDOW, Status.OK, Status.BUSY)
    )
    own = may_write(row, epoch, sequence) & ~foreign
    return Mux(own, Mux(sequence == 0, Status.OK, counted), Status.STALE_EPOCH)


def visibility(row: data.View, epoch: Value, sequence: Value) -> Value:
    """models.spec.sessions.visibility."""
    there = Mux(row.committed >= sequence, Status.OK, Status.NOT_READY)
    return Mux(epoch == row.epoch, there, Status.STALE_EPOCH)


class ReadAfterWrite(ProofOf):
    """One row of one partition, one number, one port that waits: which ones does not matter.

    The contract of the directory: operations come when the table has been cleared; the kind and the partition at stage
    8 are those that were at stage 7 before; who asks names a session; MIGRATE, CLOSE and FENCE ask, OPEN and the
    sweeper do not; a CLOSE has no number. Only a PUT_START that finds its block (it commits its own number) and
    a PUT_END commit, in a session that is open and refuses them nothing, and a number that was admitted: not one 2**32
    numbers behind. The sweeper looks at every row before half of the time that is counted has passed.
    """

    def describe(self, m: Module) -> None:
        config, sessions = self.config, Sessions(self.config)
        driven = ("partition", "kind", "valid", "clear", "clear_row", "now")
        design = self._design = self.design("sessions", sessions, driven=driven, clash=True)
        count, row_bits = len(config.partitions), len(design["s8_row"])
        rows = design.rows("rows.ram")

        # The walk; the pipeline before; time.
        walk, clearing = Signal(range(len(rows) + 1)), Signal()
        valid7 = self.free("valid7")
        m.d.comb += [
            clearing.eq(walk != len(rows)),
            sessions.clear.eq(clearing),
            sessions.clear_row.eq(walk),
        ]
        now = Signal(TICK_BITS)
        m.d.comb += sessions.now.eq(now)
        partition8, kind8, valid8 = Signal.like(sessions.partition), Signal.like(sessions.kind), Signal()
        m.d.sync += [
            walk.eq(walk + clearing),
            now.eq(now + self.free("ticks")),
            partition8.eq(sessions.s7_partition),
            kind8.eq(sessions.s7_kind),
            valid8.eq(valid7),
        ]
        m.d.comb += [sessions.partition.eq(partition8), sessions.kind.eq(kind8), sessions.valid.eq(valid8)]
        asks, commits, refused, kind = sessions.asks, sessions.commits, sessions.refused, sessions.kind
        self.assume("walk", ~(valid7 & clearing))
        self.assume("partition", sessions.s7_partition < count)
        self.assume("sweeps_rows", (sessions.s7_kind != Kind.EXPIRE_SESSION) | (sessions.s7_row < config.sessions))
        self.assume("asks", ~(valid8 & asks) | (design["s8_subject"][-1] & (sessions.owner < config.ports)))
        self.assume("who_asks", ~valid8 | asks | ~(is_session_kind(kind) & (kind != Kind.SESSION_OPEN)))
        self.assume("who_does_not", ~(valid8 & asks) | ~one_of(kind, (Kind.SESSION_OPEN, Kind.EXPIRE_SESSION)))
        self.assume("close", ~valid8 | (kind != Kind.SESSION_CLOSE) | (sessions.ask_sequence == 0))
        admitted = valid8 & sessions.alive & (refused == Status.OK) & ~one_of(kind, SESSION_KINDS)
        own_number = ~asks | ((kind == Kind.PUT_START) & (sessions.commit_sequence == sessions.ask_sequence))
        self.assume("commits", ~commits | (admitted & own_number))

        # The row, and what happens to it.
        partition, number = self.chosen("partition", len(sessions.partition)), self.chosen("row", row_bits)
        self.assume("place", (partition < count) & (number < config.sessions))
        row = Signal(sessions.row)
        m.d.comb += row.eq(Array(rows)[Cat(number, partition)])
        cleared = ~clearing | (walk > Cat(number, partition))
        here = valid8 & (sessions.partition == partition) & (design["s8_row"] == number)
        behind = sessions.commit_sequence + (1 << SEQUENCE_BITS) - row.committed - 1
        self.assume("admitted", ~(here & commits) | (behind >= WINDOW) | (sessions.commit_sequence > row.committed))
        succeeds = here & (sessions.status == Status.OK)
        opens, moves = succeeds & (kind == Kind.SESSION_OPEN), succeeds & (kind == Kind.SESSION_MIGRATE)
        alive = here & sessions.alive

        self._of_rows(m, sessions, here, cleared, row)
        for i, word in enumerate(rows):
            self.help(f"cleared_{i}", ~clearing | (walk <= i) | (word == 0))
        self.help("operations", ~clearing | ~valid8)
        self.help("walk", walk <= len(rows))

        # What it says, by the rules of the specification.
        is_open = design["s8_subject"][-1] & row.open
        same = row.generation == design["s8_subject"][config.session_bits : -1]
        self.check("alive", ~here | (sessions.alive == (is_open & same)))
        late = ~may_write(row, sessions.fill_epoch, sessions.fill_sequence)
        self.check("late_by_rule", ~alive | (sessions.late == late))
        unnumbered = one_of(kind, (Kind.SESSION_MIGRATE, Kind.SESSION_CLOSE))
        asked = Mux(unnumbered, 0, sessions.ask_sequence)
        starts = admission(row, sessions.owner, sessions.ask_epoch, sessions.ask_sequence)
        verdict = Mux(kind == Kind.PUT_START, starts, visibility(row, sessions.ask_epoch, asked))
        self.check("verdict", ~(here & asks) | (refused == Mux(sessions.alive, verdict, Status.STALE_EPOCH)))
        self.check("late_when_dead", sessions.alive | sessions.late)
        self.check("no_verdict", asks | (refused == Status.OK))

        # Read after write: what was said of `wanted` and everything behind it.
        wanted, there = self.chosen("wanted", SEQUENCE_BITS), Signal()
        self.assume("wanted", wanted != 0)
        with m.If(opens):
            m.d.sync += there.eq(0)
        with m.Elif(here & commits & (sessions.commit_sequence == wanted)):
            m.d.sync += there.eq(1)
        visible = alive & asks & ~unnumbered & (kind != Kind.PUT_START) & (refused == Status.OK)
        self.check("visible", ~(visible & (sessions.ask_sequence >= wanted)) | there)
        self.cover("visible", visible & (sessions.ask_sequence == 3) & (wanted == 2))
        self.help("committed", ~(cleared & row.open) | (row.committed < wanted) | there)
        for i in range(WINDOW):
            ahead = row.committed + 1 + i
            self.help(f"ahead_{i}", ~(cleared & row.open & row.ahead[i]) | (ahead != wanted) | there)
            self.help(f"no_wrap_{i}", ~(cleared & row.open & row.ahead[i]) | (ahead < 1 << SEQUENCE_BITS))
        before = Signal(sessions.row)
        was_cleared, reopened = Signal(), Signal()
        m.d.sync += [before.eq(row), was_cleared.eq(cleared), reopened.eq(opens)]
        session = was_cleared & before.open & row.open & ~reopened
        self.check("never_back", ~session | (row.committed >= before.committed))
        self.check("one_generation", ~session | (row.generation == before.generation))
        closed = was_cleared & before.open & ~row.open
        self.check("next_generation", ~closed | (row.generation == (before.generation + 1)[: len(row.generation)]))

        # Moves: how many there were, and what the last one has left to the owner before.
        epoch, limit, moved = Signal(EPOCH_BITS), Signal(SEQUENCE_BITS), Signal()
        with m.If(opens):
            m.d.sync += [epoch.eq(0), limit.eq(0), moved.eq(0)]
        with m.Elif(moves):
            m.d.sync += [epoch.eq(epoch + 1), limit.eq(sessions.ask_sequence), moved.eq(1)]
        self.check("moves", ~(cleared & row.open) | ((row.epoch == epoch) & (row.limit == limit)))
        sequence, age = sessions.fill_sequence, (epoch - sessions.fill_epoch)[:EPOCH_BITS]
        older = (age > 1) | ((age == 1) & ((sequence > limit) | (sequence == 0)))
        self.check("late_writer", ~(alive & older) | sessions.late)
        self.cover("late_writer", alive & (age == 1) & moved & ~sessions.late & (row.committed == 1))
        self._of_waiters(m, sessions, here, cleared, row, opens)

    def _of_rows(self, m: Module, sessions: Sessions, here: Value, cleared: Value, row: data.View) -> None:
        """Rows are read with all commits, are opened only when they are closed, and are counted."""
        config, design = self.config, self._design
        read = Mux(design["rows.forward"], design["rows.forwarded"], design["rows.ram.ram.read_data"])
        rows, row_bits = design.rows("rows.ram"), len(design["s8_row"])
        place = Cat(design["s8_row"], sessions.partition)
        self.help("read", ~sessions.valid | (read == Array(rows)[place]))
        for i in range(len(config.partitions)):
            words = [data.View(sessions.row, word) for word in rows[i << row_bits :][: config.sessions]]
            offered, offer = design[f"offered_{i}"], design[f"offer_{i}"]
            over = ~sessions.clear
            self.help(f"offer_{i}", offer < config.sessions)
            self.check(f"offers_closed_{i}", ~(over & offered) | ~Array(word.open for word in words)[offer])
            self.check(f"counts_{i}", sessions.open_counts[i] == Mux(over, sum(word.open for word in words), 0))
            opening = sessions.valid & (sessions.partition == i) & (sessions.kind == Kind.SESSION_OPEN)
            self.help(f"opens_offer_{i}", ~opening | (design["s8_row"] == offer))
        opening = here & (sessions.kind == Kind.SESSION_OPEN) & (sessions.status == Status.OK)
        self.check("opens_closed", ~(opening & cleared) | ~row.open)
        self.help("in_range", ~sessions.valid | (design["s8_row"] < config.sessions))
        self.help("of_partition", sessions.partition < len(config.partitions))

    def _of_waiters(
        self, m: Module, sessions: Sessions, here: Value, cleared: Value, row: data.View, opens: Value
    ) -> None:
        """A port that was told NOT_READY waits until it is woken: never longer than until its number is committed, the
        session moves or closes, or the sweeper looks at it after the deadline.
        """
        now, kind = sessions.now, sessions.kind
        port = self.chosen("port", len(sessions.owner))
        self.assume("port", port < self.config.ports)
        told = here & sessions.asks & (sessions.refused == Status.NOT_READY) & (sessions.owner == port)
        wakes = here & sessions.wakes.bit_select(port, 1)
        waits, number, timed = Signal(), Signal(SEQUENCE_BITS), Signal()
        until, epoch = Signal(TICK_BITS), Signal(EPOCH_BITS)
        generation = Signal(len(row.generation))
        looks = here & (kind == Kind.EXPIRE_SESSION)
        with m.If(wakes):
            m.d.sync += waits.eq(0)
        # Of several things that a port waits for, any one.
        with m.Elif(told & ~waits & self.free("follow")):
            m.d.sync += [
                waits.eq(1),
                number.eq(sessions.ask_sequence),
                timed.eq(sessions.deadline != 0),
                until.eq(now + sessions.deadline),
                epoch.eq(row.epoch),
                generation.eq(row.generation),
            ]
        same = (row.epoch == epoch) & (row.generation == generation)
        self.check("waits_in_vain", ~waits | (row.open & same & (row.committed < number)))
        self.check("told", ~waits | row.waiters.bit_select(port, 1))
        passed = ~(now - until)[TICK_BITS - 1]
        self.check("deadline", ~(waits & timed & looks & passed) | wakes)
        self.cover("woken", waits & wakes & (kind == Kind.PUT_END) & (number == 2))
        self.cover("in_time", waits & wakes & looks & row.open & (row.ttl == 0))
        self.cover("moved", waits & wakes & (kind == Kind.SESSION_MIGRATE))
        # The sweeper's last look: deadlines lie behind it, but for those that it has seen passed.
        looked = Signal(TICK_BITS)
        with m.If(looks | opens):
            m.d.sync += looked.eq(now)
        age = Signal(TICK_BITS)
        m.d.comb += age.eq(now - looked)
        longest = (1 << sessions.deadline.shape().width) - 1
        live = cleared & row.open
        self.assume("laps", ~live | (age < (1 << TICK_BITS - 1) - longest))
        kept, own = (row.wait_until - looked)[:TICK_BITS], (until - looked)[:TICK_BITS]
        self.help("a_waiter", ~waits | cleared)
        self.help("wake_at", ~(live & (row.waiters != 0)) | (row.committed < row.wake_at))
        self.help("first_number", ~waits | (row.wake_at <= number))
        self.help("timed", ~(live & row.wait_timed) | ((row.waiters != 0) & (kept != 0) & (kept <= age + longest)))
        self.help("first_deadline", ~(waits & timed) | (row.wait_timed & (kept <= own) & (own <= age + longest)))
        self.help("closed", ~cleared | row.open | ((row.waiters == 0) & ~row.wait_timed))
