"""Sessions: read-after-write, also while a session moves (ARCHITECTURE section 6), as pure functions of a row.

Used by: golden.directory, rtl.node.sessions.
"""

from typing import NamedTuple

from .clock import after, passed
from .enums import Kind, Status

EPOCH_BITS = 16
SEQUENCE_BITS = 32
#: Blocks may be sealed so far ahead of the committed number.
WINDOW = 16

_EPOCH_MASK = (1 << EPOCH_BITS) - 1

# Members of enumerations are slow to look up, and these are needed for every operation of a session.
_PUT_START, _WITHOUT_SEQUENCE = int(Kind.PUT_START), frozenset(map(int, (Kind.SESSION_MIGRATE, Kind.SESSION_CLOSE)))
_OK, _STALE_EPOCH, _NOT_READY = Status.OK, Status.STALE_EPOCH, Status.NOT_READY


class Session(NamedTuple):
    """A row of the session table.

    `generation` belongs to the row's use, `epoch` rises when the session moves. `ports`: mask of its owner's ports.
    `limit`: numbers up to it are accepted from the owner before. `committed`: the block with this number, and all
    before it, are sealed; bit i of `ahead` says the same of number committed + 1 + i. `waiters`: mask of the ports to
    wake when `wake_at` is committed or, with `wait_timed`, the tick `wait_until` has come. `ttl`, `until`: how long it
    may be idle (0: for ever), and until when.
    """

    open: bool = False
    generation: int = 0
    epoch: int = 0
    ports: int = 0
    limit: int = 0
    committed: int = 0
    ahead: int = 0
    waiters: int = 0
    wake_at: int = 0
    wait_until: int = 0
    wait_timed: bool = False
    ttl: int = 0
    until: int = 0


#: Where a row has what a sealed block changes: the committed number, and those ahead of it.
_COMMITTED = Session._fields.index("committed")


def may_write(row: Session, epoch: int, sequence: int) -> bool:
    """Whether a block of this epoch and number may be written: by the present owner, or by the one before it, as late
    as the move allowed. Those before that one were given another limit, which nobody remembers.
    """
    return epoch == row.epoch or epoch == row.epoch - 1 & _EPOCH_MASK and 0 < sequence <= row.limit


def admission(row: Session, port: int, epoch: int, sequence: int) -> Status:
    """OK, or why a PUT_START is refused: STALE_EPOCH (the session has moved), WRITE_ORDER (the number is sealed), BUSY
    (it is too far ahead of the committed one). A number of 0 is not counted.
    """
    if not may_write(row, epoch, sequence) or epoch == row.epoch and not row.ports >> port & 1:
        return _STALE_EPOCH
    if sequence == 0:
        return _OK
    ahead = sequence - row.committed - 1
    if ahead < 0 or ahead < WINDOW and row.ahead >> ahead & 1:
        return Status.WRITE_ORDER
    return _OK if ahead < WINDOW else Status.BUSY


def visibility(row: Session, epoch: int, sequence: int) -> Status:
    """OK, or why a question with `after = sequence` has no answer: STALE_EPOCH, or NOT_READY until it is committed."""
    if epoch != row.epoch:
        return _STALE_EPOCH
    return _OK if row.committed >= sequence else _NOT_READY


def verdict(kind: Kind, row: Session, port: int, epoch: int, sequence: int) -> Status:
    """OK, or what an operation that names an open session is answered instead of being executed."""
    if kind == _PUT_START:
        return admission(row, port, epoch, sequence)
    return visibility(row, epoch, 0 if kind in _WITHOUT_SEQUENCE else sequence)


def wait(row: Session, port: int, sequence: int, now: int, ticks: int) -> Session:
    """The row after `port` was told NOT_READY for `sequence` and will wait `ticks` at most (0: without a limit).

    One number and one deadline are kept for all that wait, those that come first; who is woken too early asks again.
    """
    wake_at = min(row.wake_at, sequence) if row.waiters else sequence
    until = after(now, ticks)
    timed = bool(row.waiters) and row.wait_timed
    if ticks and not (timed and not passed(row.wait_until, until)):
        timed, row = True, row._replace(wait_until=until)
    return row._replace(waiters=row.waiters | 1 << port, wake_at=wake_at, wait_timed=timed)


def commit(row: Session, sequence: int) -> Session:
    """The row after block `sequence` was sealed (0: not counted). The committed number passes all that are sealed."""
    ahead = sequence - row.committed - 1
    if sequence == 0 or not 0 <= ahead < WINDOW:
        return row
    sealed = row.ahead | 1 << ahead
    steps = (~sealed & sealed + 1).bit_length() - 1
    return Session._make((*row[:_COMMITTED], row.committed + steps, sealed >> steps, *row[_COMMITTED + 2 :]))
