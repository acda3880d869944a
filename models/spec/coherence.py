"""Write-once coherence: the state table of ARCHITECTURE section 4 as data, and the one function that applies it.

An operation meets a block in a state; `classify` turns the two into an event, `TRANSITIONS` gives the next state and
the answer. A block that the operation's key or handle does not reach is met in state FREE. The golden model, the RTL
and the proofs all derive from this file; offsets, lengths and watermarks are beats.

Used by: golden.node, rtl.node.coherence, verif.
"""

import enum
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple, cast

from .enums import SWEEPER_KINDS, Kind, State, Status
from .policy import AGE_ON_INSERT, age_on_hit, visit


class Event(enum.IntEnum):
    """What an operation means for the block it meets."""

    ANSWER = 0
    #: Refused by the session that the operation names, or by that of the block (late: it was moved or closed).
    REFUSE = 1
    #: PUT_START of a key that is not there: granted; granted before the session refused it, so to be taken back; no
    #: slot, index way or fill row; none that the quota allows.
    ADMIT = 2
    ADMIT_REFUSED = 3
    CROWDED = 4
    OVER_QUOTA = 5
    #: PUT_START of a key that is there: by a member that may join, by anybody else.
    JOIN = 6
    START = 7
    #: LOOKUP, LEASE or a digest of a MATCH, without and with a lease to be granted, or none left; FIND_SKIPPED comes
    #: behind a miss of the same MATCH.
    FIND = 8
    LOCK = 9
    LOCKED_OUT = 10
    FIND_SKIPPED = 11
    #: RELEASE of a lease that is held, and of one that is not.
    UNLOCK = 12
    UNLOCK_AGAIN = 13
    #: READ: inside what may be read; of bytes not yet landed or by a stranger; beyond the block's length.
    FETCH = 14
    FETCH_EARLY = 15
    FETCH_BEYOND = 16
    #: LOOKUP, MATCH, LEASE, READ, PUT_START of a block whose bytes are damaged, while a lease holds it, and while none
    #: does.
    SPOILED_HELD = 17
    SPOILED = 18
    #: WRITE: at the member's watermark; elsewhere or past its part; by another port than the member's.
    APPEND = 19
    APPEND_ELSEWHERE = 20
    APPEND_FOREIGN = 21
    #: The last beat of a WRITE has landed: in order; after a gap left by a broken one; with the wrong number of bytes.
    LAND = 22
    LAND_GAP = 23
    LAND_BROKEN = 24
    #: PUT_END: the last member to complete; another; again; with other shares than at the start; bytes missing; with
    #: another CRC; by another port.
    FINISH = 25
    FINISH_MEMBER = 26
    FINISH_AGAIN = 27
    FINISH_MISMATCH = 28
    FINISH_SHORT = 29
    FINISH_WRONG = 30
    FINISH_FOREIGN = 31
    REVOKE = 32
    REVOKE_FOREIGN = 33
    DROP = 34
    DROP_LEASED = 35
    #: The sweeper: nothing to do; one step older; out; one lease less; a slot is free again; the bytes are damaged.
    KEEP = 36
    AGE = 37
    EVICT = 38
    EXPIRE_LEASE = 39
    REAP = 40
    SPOIL = 41


_F, _W, _S, _R = State.FREE, State.FILLING, State.SEALED, State.RETIRING
# Members of enumerations are slow to look up in their class, and these are needed for every operation.
_E = cast(type[Event], SimpleNamespace(**Event.__members__))
_A = cast(type[Status], SimpleNamespace(**Status.__members__))
_RELEASE, _SWEEPER = int(Kind.RELEASE), frozenset(map(int, SWEEPER_KINDS))

#: (state, event) -> (next state, answer). Pairs that are not here cannot occur: see `classify`. REFUSE is answered with
#: the session's status.
TRANSITIONS: dict[tuple[State, Event], tuple[State, Status]] = {
    **{(state, _E.REFUSE): (state, _A.STALE_EPOCH) for state in State},
    (_F, _E.ADMIT): (_W, _A.GRANTED),
    (_F, _E.ADMIT_REFUSED): (_R, _A.STALE_EPOCH),
    (_F, _E.CROWDED): (_F, _A.NO_SPACE),
    (_F, _E.OVER_QUOTA): (_F, _A.QUOTA),
    (_W, _E.JOIN): (_W, _A.GRANTED),
    (_W, _E.START): (_W, _A.BUSY),
    (_S, _E.START): (_S, _A.EXISTS),
    (_R, _E.START): (_R, _A.BUSY),
    (_F, _E.FIND): (_F, _A.MISS),
    (_W, _E.FIND): (_W, _A.NOT_READY),
    (_S, _E.FIND): (_S, _A.HIT),
    (_R, _E.FIND): (_R, _A.MISS),
    (_S, _E.LOCK): (_S, _A.HIT),
    (_S, _E.LOCKED_OUT): (_S, _A.QUOTA),
    (_F, _E.FIND_SKIPPED): (_F, _A.MISS),
    (_W, _E.FIND_SKIPPED): (_W, _A.MISS),
    (_S, _E.FIND_SKIPPED): (_S, _A.MISS),
    (_R, _E.FIND_SKIPPED): (_R, _A.MISS),
    (_S, _E.UNLOCK): (_S, _A.OK),
    (_F, _E.UNLOCK_AGAIN): (_F, _A.OK),
    (_W, _E.UNLOCK_AGAIN): (_W, _A.OK),
    (_S, _E.UNLOCK_AGAIN): (_S, _A.OK),
    (_F, _E.FETCH): (_F, _A.MISS),
    (_W, _E.FETCH): (_W, _A.OK),
    (_W, _E.FETCH_EARLY): (_W, _A.NOT_READY),
    (_W, _E.FETCH_BEYOND): (_W, _A.BAD_REQUEST),
    (_S, _E.FETCH): (_S, _A.OK),
    (_S, _E.FETCH_BEYOND): (_S, _A.BAD_REQUEST),
    (_R, _E.FETCH): (_R, _A.MISS),
    (_S, _E.SPOILED_HELD): (_S, _A.POISONED),
    (_S, _E.SPOILED): (_R, _A.POISONED),
    (_W, _E.APPEND): (_W, _A.OK),
    (_W, _E.APPEND_ELSEWHERE): (_W, _A.WRITE_ORDER),
    (_W, _E.APPEND_FOREIGN): (_W, _A.BUSY),
    (_S, _E.APPEND): (_S, _A.WRITE_ONCE),
    (_W, _E.LAND): (_W, _A.OK),
    (_W, _E.LAND_GAP): (_W, _A.WRITE_ORDER),
    (_W, _E.LAND_BROKEN): (_W, _A.BAD_REQUEST),
    (_W, _E.FINISH): (_S, _A.SEALED),
    (_W, _E.FINISH_MEMBER): (_W, _A.OK),
    (_W, _E.FINISH_AGAIN): (_W, _A.OK),
    (_W, _E.FINISH_MISMATCH): (_W, _A.BAD_REQUEST),
    (_W, _E.FINISH_SHORT): (_R, _A.INCOMPLETE),
    (_W, _E.FINISH_WRONG): (_R, _A.CHECKSUM_MISMATCH),
    (_W, _E.FINISH_FOREIGN): (_W, _A.BUSY),
    (_S, _E.FINISH): (_S, _A.SEALED),
    (_W, _E.REVOKE): (_R, _A.OK),
    (_W, _E.REVOKE_FOREIGN): (_W, _A.BUSY),
    (_S, _E.REVOKE): (_S, _A.WRITE_ONCE),
    (_F, _E.DROP): (_F, _A.MISS),
    (_W, _E.DROP): (_W, _A.BUSY),
    (_S, _E.DROP): (_R, _A.OK),
    (_S, _E.DROP_LEASED): (_S, _A.BUSY),
    (_R, _E.DROP): (_R, _A.MISS),
    (_F, _E.KEEP): (_F, _A.OK),
    (_W, _E.KEEP): (_W, _A.OK),
    (_S, _E.KEEP): (_S, _A.OK),
    (_R, _E.KEEP): (_R, _A.OK),
    (_S, _E.AGE): (_S, _A.OK),
    (_W, _E.EVICT): (_R, _A.OK),
    (_S, _E.EVICT): (_R, _A.OK),
    (_S, _E.EXPIRE_LEASE): (_S, _A.OK),
    (_R, _E.REAP): (_F, _A.OK),
    (_S, _E.SPOIL): (_S, _A.OK),
}


class View(NamedTuple):
    """What an operation sees of its block and of the tables, all at one moment.

    `present`: its key or handle reaches a block (a RETIRING block is reached by key only). `room`: a slot, a way and
    a fill row were there to be granted; `quota`: all but the slots that the partition keeps back. `refused`: what the
    session says, OK if it lets the operation pass; `late`: the block's own session was moved or closed.

    Of the member that the operation names: `owner`, its port, or for a READ a port of the block's session, is the
    operation's; `joins`: it has not joined and may; `base`, `end` and the watermarks `accepted` and `landed` of its
    part; `done`: its part is complete; `others_done`: all other members' parts are. `shares`: the operation speaks of
    the shares that the block was begun with; `crc_right`: and of its bytes' CRC.

    `chained`: no earlier digest of the same MATCH missed. `whole`: the payload of the WRITE that landed had its
    announced length. `locks`: a lease is wanted; `lockable`: there is one to give; `lease`: that of a RELEASE or
    EXPIRE_LEASE is held (and to end). `leased`: the block has leases. `dead`: nobody can find the block any more, or
    nobody will complete it. `poisoned`: its bytes are damaged. `low`: the partition is short of free slots. `klass` is
    the operation's for a PUT_START of an absent key.
    """

    present: bool = False
    state: State = State.FREE
    owner: bool = False
    joins: bool = False
    offset: int = 0
    length: int = 0
    block_length: int = 0
    base: int = 0
    end: int = 0
    accepted: int = 0
    landed: int = 0
    done: bool = False
    others_done: bool = False
    shares: bool = False
    crc_right: bool = False
    age: int = 0
    klass: int = 0
    room: bool = False
    quota: bool = False
    refused: Status = Status.OK
    late: bool = False
    chained: bool = False
    whole: bool = False
    locks: bool = False
    lockable: bool = False
    lease: bool = False
    leased: bool = False
    dead: bool = False
    poisoned: bool = False
    low: bool = False


def _filling(v: View) -> bool:
    return v.present and v.state == _W


def _spoiled(v: View) -> Event:
    return _E.SPOILED_HELD if v.leased else _E.SPOILED


def _find(v: View) -> Event:
    if not v.present or v.state != _S:
        return _E.FIND
    if v.poisoned:
        return _spoiled(v)
    if v.locks:
        return _E.LOCK if v.lockable else _E.LOCKED_OUT
    return _E.FIND


def _match(v: View) -> Event:
    return _find(v) if v.chained else _E.FIND_SKIPPED


def _read(v: View) -> Event:
    if not v.present or v.state == _R:
        return _E.FETCH
    if v.state == _S and v.poisoned:
        return _spoiled(v)
    end = v.offset + v.length if v.length else v.block_length
    if end > v.block_length or v.offset >= end:
        return _E.FETCH_BEYOND
    if v.state == _W and not (v.owner and v.base <= v.offset and end <= v.landed):
        return _E.FETCH_EARLY
    return _E.FETCH


def _put_start(v: View) -> Event:
    if not v.present:
        if not v.room:
            return _E.CROWDED
        return _E.ADMIT if v.quota else _E.OVER_QUOTA
    if v.state == _S and v.poisoned:
        return _spoiled(v)
    return _E.JOIN if v.state == _W and v.joins else _E.START


def _write(v: View) -> Event:
    if not _filling(v):
        return _E.APPEND
    if v.late:
        return _E.REFUSE
    if not v.owner:
        return _E.APPEND_FOREIGN
    in_order = v.offset == v.accepted and v.offset + v.length <= v.end
    return _E.APPEND if in_order else _E.APPEND_ELSEWHERE


def _land(v: View) -> Event:
    if not v.whole:
        return _E.LAND_BROKEN
    return _E.LAND if v.offset == v.landed else _E.LAND_GAP


def _put_end(v: View) -> Event:
    if not _filling(v):
        return _E.FINISH
    if v.late:
        return _E.REFUSE
    if not v.owner:
        return _E.FINISH_FOREIGN
    if not v.shares:
        return _E.FINISH_MISMATCH
    if v.done:
        return _E.FINISH_AGAIN
    if v.landed != v.end:
        return _E.FINISH_SHORT
    if not v.crc_right:
        return _E.FINISH_WRONG
    return _E.FINISH if v.others_done else _E.FINISH_MEMBER


def _release(v: View) -> Event:
    return _E.UNLOCK if v.present and v.state == _S and v.lease else _E.UNLOCK_AGAIN


def _drop(v: View) -> Event:
    return _E.DROP_LEASED if v.present and v.state == _S and v.leased else _E.DROP


def _patrol(v: View) -> Event:
    held = v.state == _S and v.leased
    return _E.EVICT if v.dead and v.state in (_W, _S) and not held else _E.KEEP


def _visit(v: View) -> Event:
    if v.low and v.state == _S and not v.dead and not v.leased:
        return _E.EVICT if visit(v.age, v.klass)[0] else _E.AGE
    return _patrol(v)


#: What each kind of operation is for the block it sees; the others meet none (enums.BLOCKLESS_KINDS).
_EVENT_OF: dict[Kind, Callable[[View], Event]] = {
    Kind.LOOKUP: _find,
    Kind.MATCH: _match,
    Kind.LEASE: _find,
    Kind.READ: _read,
    Kind.PUT_START: _put_start,
    Kind.WRITE: _write,
    Kind.LAND: _land,
    Kind.PUT_END: _put_end,
    Kind.PUT_REVOKE: lambda v: _E.REVOKE_FOREIGN if _filling(v) and not v.owner else _E.REVOKE,
    Kind.DROP: _drop,
    Kind.RELEASE: _release,
    Kind.VISIT: _visit,
    Kind.PATROL: _patrol,
    Kind.EXPIRE_FILL: lambda v: _E.EVICT if v.dead and v.state == _W else _E.KEEP,
    Kind.EXPIRE_LEASE: lambda v: _E.EXPIRE_LEASE if v.lease and v.state == _S else _E.KEEP,
    Kind.REAP: lambda v: _E.REAP,
    Kind.POISON: lambda v: _E.SPOIL if v.state == _S else _E.KEEP,
}

#: The same by number: members of enumerations are slow keys.
_EVENT_BY_NUMBER = [_EVENT_OF.get(kind) for kind in Kind]


def classify(kind: Kind, v: View) -> Event:
    """The event that an operation of `kind` is for the block it sees.

    Raises ValueError for a kind that meets no block.
    """
    event_of = _EVENT_BY_NUMBER[kind]
    if event_of is None:
        raise ValueError(f"{kind!r} does not meet a block")
    event = event_of(v)
    if v.refused:
        # What an operation of earlier stages has granted must be taken back; nothing else has happened yet.
        return _E.ADMIT_REFUSED if event == _E.ADMIT else _E.REFUSE
    return event


class Outcome(NamedTuple):
    """What an operation does: the block's next state, watermarks and age, and the answer."""

    event: Event
    state: State
    status: Status
    accepted: int
    landed: int
    age: int


def _land_at(v: View) -> tuple[int, int, int]:
    landed = v.landed + v.length
    return max(v.accepted, landed), landed, v.age


def _refresh(v: View) -> tuple[int, int, int]:
    return v.accepted, v.landed, age_on_hit(v.age)


#: (state met, event) -> (accepted, landed, age) afterwards; all other pairs leave them as they are. A member's
#: watermarks begin where its part does, which PUT_START gives as its offset.
_EFFECTS: dict[tuple[State, Event], Callable[[View], tuple[int, int, int]]] = {
    (_F, _E.ADMIT): lambda v: (v.offset, v.offset, AGE_ON_INSERT[v.klass]),
    (_W, _E.JOIN): lambda v: (v.offset, v.offset, v.age),
    (_W, _E.APPEND): lambda v: (v.accepted + v.length, v.landed, v.age),
    (_W, _E.LAND): _land_at,
    (_W, _E.LAND_GAP): lambda v: (v.landed, v.landed, v.age),
    (_W, _E.LAND_BROKEN): lambda v: (v.landed, v.landed, v.age),
    (_S, _E.FIND): _refresh,
    (_S, _E.LOCK): _refresh,
    (_S, _E.FETCH): _refresh,
    (_S, _E.AGE): lambda v: (v.accepted, v.landed, visit(v.age, v.klass)[1]),
}


#: TRANSITIONS and effects by `state << 6 | event`.
_STEPS = {state << 6 | event: (*result, _EFFECTS.get((state, event))) for (state, event), result in TRANSITIONS.items()}


def decide(kind: Kind, by_handle: bool, v: View) -> Outcome:
    """Apply the table to what the operation sees. A handle that reaches no block answers STALE_HANDLE; for RELEASE OK:
    there is nothing left to release.

    An operation whose key or handle reaches no block meets state FREE and, unless it admits one, changes nothing.
    """
    return Outcome._make(outcome_of(kind, by_handle, v))


def outcome_of(kind: Kind, by_handle: bool, v: View) -> tuple[Event, State, Status, int, int, int]:
    """The fields of the Outcome of `decide`, faster."""
    present, refused = v.present, v.refused
    if by_handle and not present and not refused:
        status = _A.OK if kind == _RELEASE else _A.STALE_HANDLE
        return _E.ANSWER, v.state, status, v.accepted, v.landed, v.age
    event = classify(kind, v)
    reached = present or kind in _SWEEPER
    state, status, effect = _STEPS[(v.state if reached else _F) << 6 | event]
    if refused:
        status = refused
    accepted, landed, age = effect(v) if effect else (v.accepted, v.landed, v.age)
    if not reached and state == _F:
        state = v.state
    return event, state, status, accepted, landed, age
