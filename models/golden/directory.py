"""The directory, untimed and exact: one operation at a time on the tables of all partitions."""

from typing import NamedTuple

from ..spec.causes import Cause, cause_of
from ..spec.clock import after, passed, tick_of, ttl_tick_of
from ..spec.coherence import Event, View, outcome_of
from ..spec.config import NodeConfig
from ..spec.enums import BLOCKLESS_KINDS, SWEEPER_KINDS, Kind, State, Status
from ..spec.messages import TraceFlag
from ..spec.sessions import Session, commit, may_write, verdict, wait
from ..spec.settings import Setting
from .block_table import Block
from .fill_table import Fill, Part
from .partitions import GoldenPartition


class Operation(NamedTuple):
    """One directory operation: the fields of a trace record that are the operation's own, in its order.

    `owner` is a port, or the number of ports for the sweeper; offsets, lengths and the extent are beats; `flags` are
    those of TraceFlag that go in. What the others mean depends on the kind: see models.spec.messages.
    """

    owner: int
    kind: Kind
    status: int = 0
    partition: int = 0
    group: int = 0
    klass: int = 0
    flags: int = 0
    member: int = 0
    members: int = 0
    ttl: int = 0
    deadline: int = 0
    ports: int = 0
    model_id: int = 0
    session_epoch: int = 0
    slot: int = 0
    generation: int = 0
    offset: int = 0
    length: int = 0
    extent: int = 0
    row: int = 0
    session: int = 0
    sequence: int = 0
    lease: int = 0
    crc: int = 0
    part_crc: int = 0
    digest: int = 0


class Result(NamedTuple):
    """What an operation did: the fields of a trace record that are not the operation's own, in its order.

    `present`: its key or handle reached the block; `found`: and the answer may say so.
    """

    status: Status
    state_before: State = State.FREE
    state_after: State = State.FREE
    age: int = 0
    wakes: int = 0
    cause: Cause = Cause.NONE
    epoch: int = 0
    slot: int = 0
    generation: int = 0
    length: int = 0
    crc: int = 0
    session: int = 0
    model_id: int = 0
    group: int = 0
    private: bool = False
    digest: int = 0
    accepted: int = 0
    landed: int = 0
    free_count: int = 0
    leases: int = 0
    granted_lease: int = 0
    found_session: int = 0
    found_epoch: int = 0
    committed: int = 0
    present: bool = False
    found: bool = False


#: Cycles between operations that name none: far enough apart for everything to have settled.
_OWN_PACE_CYCLES = 16

# Looked up in every operation, and members of enumerations are slow to look up (Python 3.11: 90 ns each). Kinds are
# plain numbers here: these are compared faster, and are what a trace has.
_MATCH, _READ, _PUT_START, _WRITE, _PUT_END, _REVOKE, _LEASE, _RELEASE = map(
    int, (Kind.MATCH, Kind.READ, Kind.PUT_START, Kind.WRITE, Kind.PUT_END, Kind.PUT_REVOKE, Kind.LEASE, Kind.RELEASE)
)
_ANSWER, _SESSION_OPEN, _EXPIRE_SESSION = int(Kind.ANSWER), int(Kind.SESSION_OPEN), int(Kind.EXPIRE_SESSION)
_VISIT, _PATROL, _POISON, _LOOK_AT_FILL, _LOOK_AT_LEASE = map(
    int, (Kind.VISIT, Kind.PATROL, Kind.POISON, Kind.EXPIRE_FILL, Kind.EXPIRE_LEASE)
)
_FREE, _FILLING, _SEALED, _RETIRING = State.FREE, State.FILLING, State.SEALED, State.RETIRING
_OK, _HIT, _EXISTS, _NOT_READY, _STALE_EPOCH = (
    Status.OK, Status.HIT, Status.EXISTS, Status.NOT_READY, Status.STALE_EPOCH,
)  # fmt: skip
_GRANTED, _NO_CAUSE = Status.GRANTED, Cause.NONE
_ADMIT, _JOIN, _LAND, _LOCK, _UNLOCK = Event.ADMIT, Event.JOIN, Event.LAND, Event.LOCK, Event.UNLOCK
_FINISH, _FINISH_MEMBER, _EXPIRE_LEASE = Event.FINISH, Event.FINISH_MEMBER, Event.EXPIRE_LEASE
_REFUSE, _SPOIL = Event.REFUSE, Event.SPOIL
_BY_HANDLE, _CHAIN_FIRST, _WHOLE = TraceFlag.BY_HANDLE, TraceFlag.CHAIN_FIRST, TraceFlag.WHOLE
_LOCKS, _PRIVATE = TraceFlag.LEASE, TraceFlag.PRIVATE
_SWEEPER = frozenset(map(int, SWEEPER_KINDS))
#: Kinds that name no block by key or handle.
_WITHOUT_KEY = _SWEEPER | frozenset(map(int, BLOCKLESS_KINDS))
_NO_SESSION = (0, 0, 0)
#: What no session says, and its row.
_LET_PASS: tuple[Status, int | None] = _OK, None
_RESERVE, _FILL_TICKS = int(Setting.RESERVE_SLOTS), int(Setting.FILL_DEADLINE_TICKS)
_LEASE_TICKS, _BLOCK_TTL = int(Setting.LEASE_TICKS), int(Setting.BLOCK_TTL)
#: Makes a View or a Result of all its fields in order, in half the time of its constructor.
_new = tuple.__new__
#: What an operation sees that reaches no block, behind no miss of a MATCH and as its first digest.
_ABSENT, _ABSENT_CHAINED = View(), View(chained=True)


class GoldenDirectory:
    """The tables of a node of `config`, as they are after reset, and `operate`.

    Used by: GoldenNode, Lockstep.
    """

    def __init__(self, config: NodeConfig):
        self.config = config
        self.partitions = [GoldenPartition(config, number) for number in range(len(config.partitions))]
        self._chained = [False] * config.ports
        self._cycle, self._pace_cycles = 0, _OWN_PACE_CYCLES
        #: Ports that were told to ask again, as a mask; whoever looks at it clears it.
        self.woken = 0

    def operate(self, op: Operation, cycle: int | None = None) -> Result:
        """Execute one operation and return what it did. `cycle`: that of its commit, if a run has one."""
        if cycle is None:
            cycle = self._cycle + self._pace_cycles
        self._cycle = cycle
        part, kind = self.partitions[op.partition], op.kind
        if kind in _WITHOUT_KEY:
            return self._sweep(part, op, cycle) if kind in _SWEEPER else self._without_block(part, op, cycle)
        session, flags = op.session, op.flags
        epoch, by_handle = part.epochs[op.model_id], flags & _BY_HANDLE != 0
        refused, row = self._ask_session(part, op, cycle) if session else _LET_PASS
        if by_handle:
            slot = op.slot
            block = part.blocks[slot]
            before = block.state
            present = block.generation == op.generation and (before is _FILLING or before is _SEALED)
            if present and kind != _RELEASE:
                present = block.model_id == op.model_id and block.epoch == epoch
                present = present and (not block.private or self._reaches(part, op, block))
        else:
            private = flags & _PRIVATE
            pair = part.index.place(op.digest, op.model_id, op.group, epoch, session if private else 0)
            found = part.index.find(pair)
            if found is None and kind == _PUT_START:
                return self._start(part, op, pair, epoch, refused, row, cycle)
            slot = found or 0
            block = part.blocks[slot]
            before = block.state
            present = (
                found is not None
                and block.digest == op.digest
                and block.model_id == op.model_id
                and block.group == op.group
                and block.epoch == epoch
                and (block.private and block.session == session if private else not block.private)
            )
        matches = kind == _MATCH
        chained = matches and (flags & _CHAIN_FIRST != 0 or self._chained[op.owner])
        if present:
            view = self._view(part, op, block, slot, chained, refused)
        elif refused is _OK:
            view = _ABSENT_CHAINED if chained else _ABSENT
        else:
            view = View(chained=chained, refused=refused)
        event, state, status, accepted, landed, age = outcome_of(kind, by_handle, view)
        if matches:
            self._chained[op.owner] = status is _HIT
        if not present:
            return self._nothing(part, op, status, epoch, row)
        wakes = granted_lease = 0
        if before is _FILLING:
            wakes = self._touch_fill(op, block, event, state, status, accepted, landed)
        elif event is _LOCK:
            granted_lease = self._lock(part, op, block, slot, cycle)
        elif event is _UNLOCK:
            self._unlock(part, op, block, slot)
        block.age = age
        cause = _NO_CAUSE
        if state is not before:
            if state is _RETIRING:
                cause = cause_of(event, before, False, False, False, False)
            self._move(part, slot, block, state, cycle)
            # The number of a block in its session: sealed now, or below: there already.
            if state is _SEALED and block.session:
                assert block.fill is not None
                wakes |= self._commit(part, part.session_row(block.session), block.fill.sequence)
            block.fill = None
        elif status is _EXISTS and row is not None:
            wakes = self._commit(part, row, op.sequence)
        if wakes:
            self.woken |= wakes
        told = before is not _RETIRING and refused is _OK
        return self._result(part, op, status, before, slot, block, epoch, wakes, cause, granted_lease, True, told)

    # Sessions.

    def _ask_session(self, part: GoldenPartition, op: Operation, cycle: int) -> tuple[Status, int | None]:
        """What the session that is named says, and its row; it waits there, and is not idle."""
        row = part.session_row(op.session)
        if row is None:
            return _STALE_EPOCH, None
        session = part.sessions[row]
        refused = verdict(op.kind, session, op.owner, op.session_epoch, op.sequence)
        if refused is _NOT_READY:
            now = tick_of(cycle, self.config.tick_cycles_log2)
            session = wait(session, op.owner, op.sequence, now, op.deadline)
        if session.ttl and refused is not _STALE_EPOCH:
            until = after(ttl_tick_of(cycle, self.config.tick_cycles_log2), session.ttl)
            if until != session.until:
                session = session._replace(until=until)
        part.set_session(row, session)
        return refused, row

    @staticmethod
    def _commit(part: GoldenPartition, row: int | None, sequence: int) -> int:
        """Count a sealed block; the mask of ports to wake."""
        if row is None:
            return 0
        session = commit(part.sessions[row], sequence)
        wakes = session.waiters if session.wake_at <= session.committed else 0
        if wakes:
            session = _silent(session)
        part.set_session(row, session)
        return wakes

    @staticmethod
    def _reaches(part: GoldenPartition, op: Operation, block: Block) -> bool:
        """Whether a handle reaches a private block: its session is alive, and the one that is named, if any."""
        return part.session_of(block.session) is not None and op.session in (0, block.session)

    @staticmethod
    def _late(part: GoldenPartition, block: Block) -> bool:
        """The session that the block is written in was closed, or has moved and wants no more of it."""
        fill = block.fill
        if fill is None or not block.session:
            return False
        session = part.session_of(block.session)
        return session is None or not may_write(session, fill.epoch, fill.sequence)

    # Operations that meet no block.

    def _without_block(self, part: GoldenPartition, op: Operation, cycle: int) -> Result:
        kind = op.kind
        if kind == _ANSWER:
            return Result(_STATUSES[op.status], free_count=part.free_count)
        epoch, status, wakes, subject = 0, _OK, 0, op.session
        report = None
        if kind == _EXPIRE_SESSION:
            report, wakes = self._expire_session(part, op.row, cycle)
        elif kind == _SESSION_OPEN:
            status, subject = self._open_session(part, op, cycle)
        elif kind == Kind.RETIRE_MODEL:
            epoch = part.epochs[op.model_id] = (part.epochs[op.model_id] + 1) % (1 << self.config.epoch_bits)
        elif kind == Kind.RELEASE_ALL:
            part.releasing[op.owner] = 2 * self.config.leases
        elif kind == Kind.PORT_DOWN:
            for port in range(self.config.ports):
                if op.ports >> port & 1:
                    part.releasing[port], part.revoking[port] = 2 * self.config.leases, 2 * self.config.fill_rows
        elif kind == Kind.CONFIGURE:
            part.settings[op.row] = op.sequence
            part.update_low()
        else:
            status, row = self._ask_session(part, op, cycle)
            if status is _OK and kind != Kind.SESSION_FENCE:
                assert row is not None
                session = part.sessions[row]
                wakes = session.waiters
                if kind == Kind.SESSION_MIGRATE:
                    ports, epoch_now = op.ports or 1 << op.owner, session.epoch + 1 & 0xFFFF
                    part.set_session(row, _silent(session)._replace(epoch=epoch_now, ports=ports, limit=op.sequence))
                else:
                    report = part.session_reports.get(subject, _NO_SESSION)
                    self._close_session(part, row)
        self.woken |= wakes
        if report is None:
            report = part.session_reports.get(subject, _NO_SESSION)
        number, session_epoch, committed = report
        return Result(
            status, wakes=wakes, epoch=epoch, free_count=part.free_count, found_session=number,
            found_epoch=session_epoch, committed=committed,
        )  # fmt: skip

    def _open_session(self, part: GoldenPartition, op: Operation, cycle: int) -> tuple[Status, int]:
        row, part.offer = part.offer, None
        if row is None:
            return Status.QUOTA if all(session.open for session in part.sessions) else Status.BUSY, 0
        until = after(ttl_tick_of(cycle, self.config.tick_cycles_log2), op.ttl)
        generation, ports = part.sessions[row].generation, op.ports or 1 << op.owner
        part.set_session(row, Session(open=True, generation=generation, ports=ports, ttl=op.ttl, until=until))
        return _OK, part.session_number(row)

    def _close_session(self, part: GoldenPartition, row: int) -> None:
        generation = part.sessions[row].generation + 1
        part.set_session(row, Session(generation=generation % (1 << self.config.session_generation_bits)))

    def _expire_session(self, part: GoldenPartition, row: int, cycle: int) -> tuple[tuple[int, int, int], int]:
        """The sweeper's look at a row: (report of what was there, ports to wake)."""
        part.session_hand = (row + 1) % self.config.sessions
        session, wakes = part.sessions[row], 0
        if not session.open:
            part.offer = row
            return _NO_SESSION, 0
        report = part.session_reports.get(part.session_number(row), _NO_SESSION)
        ticks = self.config.tick_cycles_log2
        if session.ttl and passed(ttl_tick_of(cycle, ticks), session.until):
            wakes = session.waiters
            self._close_session(part, row)
        elif session.wait_timed and passed(tick_of(cycle, ticks), session.wait_until):
            wakes = session.waiters
            part.set_session(row, _silent(session))
        return report, wakes

    # Operations on a block.

    def _start(
        self, part: GoldenPartition, op: Operation, pair: tuple[int, int], epoch: int, refused: Status,
        session_row: int | None, cycle: int,
    ) -> Result:  # fmt: skip
        """PUT_START of a key whose tag is not in its candidate pair."""
        where = part.index.choose(pair)
        fill_row = part.fills.lowest_free(cycle)
        room = where is not None and fill_row is not None and part.free_count > 0
        quota = part.free_count > part.settings[_RESERVE]
        view = _new(View, (
            False, _FREE, False, False, op.offset, 0, 0, 0, 0, 0, 0, False, False, False, False, 0, op.klass, room,
            quota, refused, False, False, False, False, False, False, False, False, False, False,
        ))  # fmt: skip
        event, state, status, accepted, landed, age = outcome_of(op.kind, False, view)
        if where is None or fill_row is None or state is _FREE:
            return self._nothing(part, op, status, epoch, session_row)
        slot = part.pop_free()
        part.index.insert(pair, where, slot)
        part.fills.take(fill_row, slot)
        block = part.blocks[slot]
        block.state, block.digest, block.model_id, block.group = _FILLING, op.digest, op.model_id, op.group
        block.epoch, block.length, block.klass, block.age = epoch, op.length, op.klass, age
        block.session, block.private = op.session, bool(op.flags & _PRIVATE)
        block.crc, block.leases, block.poisoned = 0, 0, False
        ticks, log2 = op.ttl or part.settings[_BLOCK_TTL], self.config.tick_cycles_log2
        block.timed, block.until = ticks != 0, after(ttl_tick_of(cycle, log2), ticks) if ticks else 0
        block.pair, block.where = pair, where
        deadline = op.deadline or part.settings[_FILL_TICKS]
        fill = block.fill = Fill(
            fill_row, op.extent, op.members, op.session_epoch, op.sequence, deadline != 0,
            after(tick_of(cycle, log2), deadline) if deadline else 0, 1 << op.owner,
        )  # fmt: skip
        fill.parts[op.member] = Part(op.owner, accepted, landed, op.offset + op.extent)
        cause = _NO_CAUSE
        if state is _RETIRING:
            cause = cause_of(event, _FREE, False, False, False, False)
            self._move(part, slot, block, _RETIRING, cycle)
            block.fill = None
        else:
            part.update_low()
        return self._result(part, op, status, _FREE, slot, block, epoch, 0, cause, 0, False, status is _GRANTED)

    def _view(
        self, part: GoldenPartition, op: Operation, block: Block, slot: int, chained: bool, refused: Status
    ) -> View:
        """What an operation sees of the block that it reaches; of one being written only what its kind looks at."""
        kind, flags = op.kind, op.flags
        if block.state is not _FILLING:
            locks = flags & _LOCKS != 0 or kind == _LEASE
            lockable = locks and part.leases.any_free and op.owner not in part.releasing
            lease = kind == _RELEASE and part.leases.find(op.lease, slot) is not None
            return _new(View, (
                True, block.state, False, False, op.offset, op.length, block.length, 0, 0, 0, 0, False, False, False,
                False, block.age, block.klass, False, False, refused, False, chained, flags & _WHOLE != 0, locks,
                lockable, lease, block.leases != 0, False, block.poisoned, False,
            ))  # fmt: skip
        fill, owner, named = block.fill, op.owner, op.member
        assert fill is not None
        member = fill.parts[named]
        if kind == _REVOKE:
            owns = fill.ports >> owner & 1 != 0
        else:
            owns = member is not None and member.port == owner
            owns = owns or kind == _READ and op.session != 0 and op.session == block.session
        joins = late = done = others_done = shares = crc_right = False
        base = end = accepted = landed = 0
        if member is not None:
            end, accepted, landed = member.end, member.accepted, member.landed
            base = end - fill.extent
        if kind == _WRITE or kind == _PUT_END:
            late = self._late(part, block)
        if kind == _PUT_START or kind == _PUT_END:
            same = op.members == fill.members and op.extent == fill.extent
            shares = same or op.members == fill.members == 1
            crc_right = member is not None and member.crc == op.crc
            done, others_done = fill.done >> named & 1 != 0, fill.done | 1 << named == (1 << fill.members) - 1
            joins = member is None and same and op.session == block.session
            joins = joins and op.session_epoch == fill.epoch and op.sequence == fill.sequence
        return _new(View, (
            True, _FILLING, owns, joins, op.offset, op.length, block.length, base, end, accepted, landed, done,
            others_done, shares, crc_right, block.age, block.klass, False, False, refused, late, chained,
            flags & _WHOLE != 0, False, False, False, False, False, False, False,
        ))  # fmt: skip

    def _lock(self, part: GoldenPartition, op: Operation, block: Block, slot: int, cycle: int) -> int:
        """Number of a lease granted on a block."""
        ticks = op.deadline or part.settings[_LEASE_TICKS]
        until = after(tick_of(cycle, self.config.tick_cycles_log2), ticks)
        block.leases += 1
        return part.leases.grant(slot, op.owner, op.session, ticks != 0, until)

    @staticmethod
    def _unlock(part: GoldenPartition, op: Operation, block: Block, slot: int) -> None:
        row = part.leases.find(op.lease, slot)
        assert row is not None
        part.leases.end(row)
        block.leases -= 1

    def _touch_fill(
        self, op: Operation, block: Block, event: Event, state: State, status: Status, accepted: int, landed: int
    ) -> int:
        """What an operation does to a block being written beside its state; the ports to wake."""
        fill = block.fill
        assert fill is not None
        if event is _JOIN:
            fill.parts[op.member] = Part(op.owner, accepted, landed, op.offset + op.extent)
            fill.ports |= 1 << op.owner
            return 0
        member = fill.parts[op.member]
        if member is not None:
            member.accepted, member.landed = accepted, landed
            if event is _LAND:
                member.crc = op.crc
        if event is _FINISH or event is _FINISH_MEMBER:
            fill.done |= 1 << op.member
            fill.crc ^= op.part_crc
            if event is _FINISH:
                block.crc = fill.crc
                return fill.waiters
        elif state is _RETIRING:
            return fill.waiters | fill.ports & ~(1 << op.owner)
        elif status is _NOT_READY and event is not _REFUSE and self.config.partition_of_port[op.owner] == op.partition:
            fill.waiters |= 1 << op.owner
        return 0

    # The sweeper's.

    def _sweep(self, part: GoldenPartition, op: Operation, cycle: int) -> Result:
        block, kind = part.blocks[op.slot], op.kind
        before, log2 = block.state, self.config.tick_cycles_log2
        stale, session_over, poisoned, other, dead = False, False, False, False, False
        lease = None
        if before is _FILLING:
            fill = block.fill
            assert fill is not None
            stale, session_over = part.stale(block), self._late(part, block)
            if part.revoking:
                other = any(fill.ports >> port & 1 for port in part.revoking)
            overdue = fill.timed and passed(tick_of(cycle, log2), fill.deadline)
            dead = stale or session_over or other or overdue
        elif before is _SEALED:
            stale, session_over, poisoned = part.stale(block), False, block.poisoned
            if block.private:
                session_over = not self._reaches(part, op, block)
            other = block.timed and passed(ttl_tick_of(cycle, log2), block.until)
            dead = stale or session_over or poisoned or other
            if kind == _LOOK_AT_LEASE:
                lease = self._ending_lease(part, op, cycle)
        view = _new(View, (
            False, before, False, False, 0, 0, 0, 0, 0, 0, 0, False, False, False, False, block.age, block.klass,
            False, False, _OK, False, False, False, False, False, lease is not None, block.leases != 0, dead, poisoned,
            part.low,
        ))  # fmt: skip
        event, state, status, _, _, age = outcome_of(kind, False, view)
        block.age = age
        if kind == _VISIT:
            part.hand = (op.slot + 1) % part.slots
        elif kind == _PATROL:
            part.patrol = (op.slot + 1) % part.slots
        elif kind == _LOOK_AT_FILL:
            part.fill_hand = (op.row + 1) % self.config.fill_rows
            if part.revoking:
                _count_down(part.revoking)
        elif kind == _LOOK_AT_LEASE:
            part.lease_hand = (op.row + 1) % self.config.leases
            if part.releasing:
                _count_down(part.releasing)
            if event is _EXPIRE_LEASE:
                part.leases.end(op.row)
                block.leases -= 1
        elif kind == _POISON:
            block.poisoned = block.poisoned or event is _SPOIL
        else:
            part.retire_queue.remove(op.slot)
            part.index.remove(block.pair, block.where)
            part.push_free(op.slot)
            block.generation = (block.generation + 1) % (1 << self.config.generation_bits)
        wakes, cause = 0, _NO_CAUSE
        if state is _RETIRING and before is not _RETIRING:
            cause = cause_of(event, before, stale, session_over, poisoned, other)
            if block.fill is not None:
                wakes = block.fill.waiters | block.fill.ports
                self.woken |= wakes
        self._move(part, op.slot, block, state, cycle)
        if state is not _FILLING:
            block.fill = None
        if before is _FREE:
            return Result(
                status, age=age, slot=op.slot, generation=block.generation, length=block.length, crc=block.crc,
                free_count=part.free_count,
            )  # fmt: skip
        return self._result(part, op, status, before, op.slot, block, 0, wakes, cause, 0, False, False)

    def _ending_lease(self, part: GoldenPartition, op: Operation, cycle: int) -> int | None:
        """The row that EXPIRE_LEASE names, if its lease on that slot is over."""
        lease = part.leases.rows[op.row]
        if lease is None or lease.slot != op.slot:
            return None
        over = lease.timed and passed(tick_of(cycle, self.config.tick_cycles_log2), lease.until)
        over = over or lease.port in part.releasing
        over = over or op.session != 0 and op.session == lease.session and part.session_of(op.session) is None
        return op.row if over else None

    @staticmethod
    def _move(part: GoldenPartition, slot: int, block: Block, state: State, cycle: int) -> None:
        """Bring a block into a state, with what leaving and entering states means for the tables around it."""
        if state is block.state:
            return
        if block.state is _FILLING:
            assert block.fill is not None
            part.fills.release(block.fill.row, cycle)
        if state is _RETIRING:
            part.retire_queue.append(slot)
            part.update_low()
        block.state = state

    # What is reported.

    def _nothing(
        self, part: GoldenPartition, op: Operation, status: Status, epoch: int, session_row: int | None
    ) -> Result:
        if session_row is None:
            return Result(status, epoch=epoch, free_count=part.free_count)
        number, session_epoch, committed = part.session_reports.get(op.session, _NO_SESSION)
        return Result(
            status, epoch=epoch, free_count=part.free_count, found_session=number, found_epoch=session_epoch,
            committed=committed,
        )  # fmt: skip

    def _result(
        self, part: GoldenPartition, op: Operation, status: Status, before: State, slot: int, block: Block, epoch: int,
        wakes: int, cause: Cause, granted_lease: int, present: bool, found: bool,
    ) -> Result:  # fmt: skip
        """What an operation did that has met a block."""
        fill = block.fill
        member = fill.parts[op.member] if fill is not None else None
        accepted, landed = (member.accepted, member.landed) if member is not None else (0, 0)
        number, session_epoch, committed = part.session_reports.get(op.session or block.session, _NO_SESSION)
        return _new(Result, (
            status, before, block.state, block.age, wakes, cause, epoch, slot, block.generation, block.length,
            block.crc, block.session, block.model_id, block.group, block.private, block.digest, accepted, landed,
            part.free_count, block.leases, granted_lease, number, session_epoch, committed, present, found,
        ))  # fmt: skip


_STATUSES = list(Status)


def _silent(session: Session) -> Session:
    """The row when its waiters have been told."""
    return session._replace(waiters=0, wait_timed=False)


def _count_down(ports: dict[int, int]) -> None:
    """One of the looks that are left for each port was made."""
    for port in list(ports):
        ports[port] -= 1
        if not ports[port]:
            del ports[port]
