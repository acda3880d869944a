"""Write-once coherence: the state table of ARCHITECTURE section 4 as data, and the one function that applies it.

An operation meets a block in a state; `classify` turns the two into an event, `TRANSITIONS` gives the next state and
the answer. A block that the operation's key or handle does not reach is met in state FREE. The golden model, the RTL
and the proofs all derive from this file; offsets, lengths and watermarks are beats.

Used by: golden.node, rtl.node.coherence, verif.
"""

import enum
from collections.abc import Callable
from typing import NamedTuple

from .enums import SWEEPER_KINDS, Kind, State, Status
from .policy import AGE_ON_INSERT, age_on_hit, visit


class Event(enum.IntEnum):
    """What an operation means for the block it meets."""

    ANSWER = 0
    #: PUT_START of a key that is not there: with or without a slot, an index way and a fill row for it.
    ADMIT = 1
    CROWDED = 2
    #: PUT_START of a key that is there.
    START = 3
    #: LOOKUP or a digest of a MATCH; FIND_SKIPPED comes behind a miss of the same MATCH.
    FIND = 4
    FIND_SKIPPED = 5
    #: READ: inside what may be read; of bytes not yet landed or by another port; beyond the block's length.
    FETCH = 6
    FETCH_EARLY = 7
    FETCH_BEYOND = 8
    #: WRITE: at the watermark; elsewhere or past the length; by another port than the writer's.
    APPEND = 9
    APPEND_ELSEWHERE = 10
    APPEND_FOREIGN = 11
    #: The last beat of a WRITE has landed: in order; after a gap left by a broken one; with the wrong number of bytes.
    LAND = 12
    LAND_GAP = 13
    LAND_BROKEN = 14
    #: PUT_END: complete; bytes missing; by another port.
    FINISH = 15
    FINISH_SHORT = 16
    FINISH_FOREIGN = 17
    REVOKE = 18
    REVOKE_FOREIGN = 19
    DROP = 20
    #: The sweeper's visit: nothing to do; one step older; out (stale model, or not used and slots are short).
    KEEP = 21
    AGE = 22
    EVICT = 23
    REAP = 24


_F, _W, _S, _R = State.FREE, State.FILLING, State.SEALED, State.RETIRING
_E, _A = Event, Status

#: (state, event) -> (next state, answer). Pairs that are not here cannot occur: see `classify`.
TRANSITIONS: dict[tuple[State, Event], tuple[State, Status]] = {
    (_F, _E.ADMIT): (_W, _A.GRANTED),
    (_F, _E.CROWDED): (_F, _A.NO_SPACE),
    (_W, _E.START): (_W, _A.BUSY),
    (_S, _E.START): (_S, _A.EXISTS),
    (_R, _E.START): (_R, _A.BUSY),
    (_F, _E.FIND): (_F, _A.MISS),
    (_W, _E.FIND): (_W, _A.NOT_READY),
    (_S, _E.FIND): (_S, _A.HIT),
    (_R, _E.FIND): (_R, _A.MISS),
    (_F, _E.FIND_SKIPPED): (_F, _A.MISS),
    (_W, _E.FIND_SKIPPED): (_W, _A.MISS),
    (_S, _E.FIND_SKIPPED): (_S, _A.MISS),
    (_R, _E.FIND_SKIPPED): (_R, _A.MISS),
    (_F, _E.FETCH): (_F, _A.MISS),
    (_W, _E.FETCH): (_W, _A.OK),
    (_W, _E.FETCH_EARLY): (_W, _A.NOT_READY),
    (_W, _E.FETCH_BEYOND): (_W, _A.BAD_REQUEST),
    (_S, _E.FETCH): (_S, _A.OK),
    (_S, _E.FETCH_BEYOND): (_S, _A.BAD_REQUEST),
    (_R, _E.FETCH): (_R, _A.MISS),
    (_W, _E.APPEND): (_W, _A.OK),
    (_W, _E.APPEND_ELSEWHERE): (_W, _A.WRITE_ORDER),
    (_W, _E.APPEND_FOREIGN): (_W, _A.BUSY),
    (_S, _E.APPEND): (_S, _A.WRITE_ONCE),
    (_W, _E.LAND): (_W, _A.OK),
    (_W, _E.LAND_GAP): (_W, _A.WRITE_ORDER),
    (_W, _E.LAND_BROKEN): (_W, _A.BAD_REQUEST),
    (_W, _E.FINISH): (_S, _A.SEALED),
    (_W, _E.FINISH_SHORT): (_R, _A.INCOMPLETE),
    (_W, _E.FINISH_FOREIGN): (_W, _A.BUSY),
    (_S, _E.FINISH): (_S, _A.SEALED),
    (_W, _E.REVOKE): (_R, _A.OK),
    (_W, _E.REVOKE_FOREIGN): (_W, _A.BUSY),
    (_S, _E.REVOKE): (_S, _A.WRITE_ONCE),
    (_F, _E.DROP): (_F, _A.MISS),
    (_W, _E.DROP): (_W, _A.BUSY),
    (_S, _E.DROP): (_R, _A.OK),
    (_R, _E.DROP): (_R, _A.MISS),
    (_F, _E.KEEP): (_F, _A.OK),
    (_W, _E.KEEP): (_W, _A.OK),
    (_S, _E.KEEP): (_S, _A.OK),
    (_R, _E.KEEP): (_R, _A.OK),
    (_S, _E.AGE): (_S, _A.OK),
    (_W, _E.EVICT): (_R, _A.OK),
    (_S, _E.EVICT): (_R, _A.OK),
    (_R, _E.REAP): (_F, _A.OK),
}


class View(NamedTuple):
    """What an operation sees of its block and of the tables, all at one moment.

    `present`: its key or handle reaches a block (a RETIRING block is reached by key only). `room`: a slot, a way and
    a fill row were there to be granted. `owner`: the operation's port is the block's writer. `chained`: no earlier
    digest of the same MATCH missed. `whole`: the payload of the WRITE that landed had its announced length. `stale`:
    the block's model epoch is not the current one. `low`: the partition is short of free slots. `klass` is the
    operation's for a PUT_START of an absent key.
    """

    present: bool
    state: State
    owner: bool
    offset: int
    length: int
    block_length: int
    accepted: int
    landed: int
    age: int
    klass: int
    room: bool
    chained: bool
    whole: bool
    stale: bool
    low: bool


def _filling(v: View) -> bool:
    return v.present and v.state == State.FILLING


def _read(v: View) -> Event:
    if not v.present or v.state == State.RETIRING:
        return Event.FETCH
    end = v.offset + v.length if v.length else v.block_length
    if end > v.block_length or v.offset >= end:
        return Event.FETCH_BEYOND
    if v.state == State.FILLING and not (v.owner and end <= v.landed):
        return Event.FETCH_EARLY
    return Event.FETCH


def _write(v: View) -> Event:
    if not _filling(v):
        return Event.APPEND
    if not v.owner:
        return Event.APPEND_FOREIGN
    in_order = v.offset == v.accepted and v.offset + v.length <= v.block_length
    return Event.APPEND if in_order else Event.APPEND_ELSEWHERE


def _land(v: View) -> Event:
    if not v.whole:
        return Event.LAND_BROKEN
    return Event.LAND if v.offset == v.landed else Event.LAND_GAP


def _put_end(v: View) -> Event:
    if not _filling(v):
        return Event.FINISH
    if not v.owner:
        return Event.FINISH_FOREIGN
    return Event.FINISH if v.landed == v.block_length else Event.FINISH_SHORT


def _patrol(v: View) -> Event:
    return Event.EVICT if v.stale and v.state in (State.FILLING, State.SEALED) else Event.KEEP


def _visit(v: View) -> Event:
    if v.low and v.state == State.SEALED and not v.stale:
        return Event.EVICT if visit(v.age, v.klass)[0] else Event.AGE
    return _patrol(v)


#: What each kind of operation is for the block it sees; ANSWER and RETIRE_MODEL meet none.
_EVENT_OF: dict[Kind, Callable[[View], Event]] = {
    Kind.LOOKUP: lambda v: Event.FIND,
    Kind.MATCH: lambda v: Event.FIND if v.chained else Event.FIND_SKIPPED,
    Kind.READ: _read,
    Kind.PUT_START: lambda v: Event.START if v.present else Event.ADMIT if v.room else Event.CROWDED,
    Kind.WRITE: _write,
    Kind.LAND: _land,
    Kind.PUT_END: _put_end,
    Kind.PUT_REVOKE: lambda v: Event.REVOKE_FOREIGN if _filling(v) and not v.owner else Event.REVOKE,
    Kind.DROP: lambda v: Event.DROP,
    Kind.VISIT: _visit,
    Kind.PATROL: _patrol,
    Kind.REAP: lambda v: Event.REAP,
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
    return event_of(v)


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


#: (state met, event) -> (accepted, landed, age) afterwards; all other pairs leave them as they are.
_EFFECTS: dict[tuple[State, Event], Callable[[View], tuple[int, int, int]]] = {
    (State.FREE, Event.ADMIT): lambda v: (0, 0, AGE_ON_INSERT[v.klass]),
    (State.FILLING, Event.APPEND): lambda v: (v.accepted + v.length, v.landed, v.age),
    (State.FILLING, Event.LAND): _land_at,
    (State.FILLING, Event.LAND_GAP): lambda v: (v.landed, v.landed, v.age),
    (State.FILLING, Event.LAND_BROKEN): lambda v: (v.landed, v.landed, v.age),
    (State.SEALED, Event.FIND): lambda v: (v.accepted, v.landed, age_on_hit(v.age)),
    (State.SEALED, Event.FETCH): lambda v: (v.accepted, v.landed, age_on_hit(v.age)),
    (State.SEALED, Event.AGE): lambda v: (v.accepted, v.landed, visit(v.age, v.klass)[1]),
}


#: TRANSITIONS and effects by `state << 5 | event`.
_STEPS = {state << 5 | event: (*result, _EFFECTS.get((state, event))) for (state, event), result in TRANSITIONS.items()}


def decide(kind: Kind, by_handle: bool, v: View) -> Outcome:
    """Apply the table to what the operation sees. A handle that reaches no block answers STALE_HANDLE.

    An operation whose key or handle reaches no block meets state FREE and, unless it admits one, changes nothing.
    """
    present = v.present
    if by_handle and not present:
        return Outcome(Event.ANSWER, v.state, Status.STALE_HANDLE, v.accepted, v.landed, v.age)
    event = classify(kind, v)
    reached = present or kind in SWEEPER_KINDS
    met = v.state if reached else _F
    state, status, effect = _STEPS[met << 5 | event]
    accepted, landed, age = effect(v) if effect else (v.accepted, v.landed, v.age)
    if not reached and state == _F:
        state = v.state
    return Outcome(event, state, status, accepted, landed, age)
