"""Write-once coherence: the state table of ARCHITECTURE section 4 as data, and the one function that applies it.

An operation meets a block in a state; `classify` turns the two into an event, `TRANSITIONS` gives the next state and
the answer. A block that the operation's key or handle does not reach is met in state FREE. The golden model, the RTL
and the proofs all derive from this file; offsets, lengths and watermarks are beats.

Used by: golden.node, rtl.node.coherence, verif.
"""

import enum
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


def classify(kind: Kind, v: View) -> Event:
    """The event that an operation of `kind` is for the block it sees; every kind but ANSWER and RETIRE_MODEL."""
    filling = v.present and v.state == State.FILLING
    if kind == Kind.PUT_START:
        return Event.START if v.present else Event.ADMIT if v.room else Event.CROWDED
    if kind == Kind.LOOKUP:
        return Event.FIND
    if kind == Kind.MATCH:
        return Event.FIND if v.chained else Event.FIND_SKIPPED
    if kind == Kind.READ:
        if not v.present or v.state == State.RETIRING:
            return Event.FETCH
        end = v.offset + v.length if v.length else v.block_length
        if end > v.block_length or v.offset >= end:
            return Event.FETCH_BEYOND
        if filling and not (v.owner and end <= v.landed):
            return Event.FETCH_EARLY
        return Event.FETCH
    if kind == Kind.WRITE:
        if filling and not v.owner:
            return Event.APPEND_FOREIGN
        if filling and (v.offset != v.accepted or v.offset + v.length > v.block_length):
            return Event.APPEND_ELSEWHERE
        return Event.APPEND
    if kind == Kind.LAND:
        return Event.LAND_BROKEN if not v.whole else Event.LAND if v.offset == v.landed else Event.LAND_GAP
    if kind == Kind.PUT_END:
        if filling and not v.owner:
            return Event.FINISH_FOREIGN
        return Event.FINISH_SHORT if filling and v.landed != v.block_length else Event.FINISH
    if kind == Kind.PUT_REVOKE:
        return Event.REVOKE_FOREIGN if filling and not v.owner else Event.REVOKE
    if kind == Kind.DROP:
        return Event.DROP
    if kind in (Kind.VISIT, Kind.PATROL):
        if v.state in (State.FILLING, State.SEALED) and v.stale:
            return Event.EVICT
        if kind == Kind.VISIT and v.state == State.SEALED and v.low:
            return Event.EVICT if visit(v.age, v.klass)[0] else Event.AGE
        return Event.KEEP
    if kind == Kind.REAP:
        return Event.REAP
    raise ValueError(f"{kind!r} does not meet a block")


class Outcome(NamedTuple):
    """What an operation does: the block's next state, watermarks and age, and the answer."""

    event: Event
    state: State
    status: Status
    accepted: int
    landed: int
    age: int


def decide(kind: Kind, by_handle: bool, v: View) -> Outcome:
    """Apply the table to what the operation sees. A handle that reaches no block answers STALE_HANDLE."""
    if by_handle and not v.present:
        return Outcome(Event.ANSWER, v.state, Status.STALE_HANDLE, v.accepted, v.landed, v.age)
    event = classify(kind, v)
    met = v.state if v.present or kind in SWEEPER_KINDS else State.FREE
    state, status = TRANSITIONS[met, event]
    accepted, landed, age = v.accepted, v.landed, v.age
    if event == Event.ADMIT:
        accepted, landed, age = 0, 0, AGE_ON_INSERT[v.klass]
    elif event == Event.APPEND and status == Status.OK:
        accepted += v.length
    elif event == Event.LAND:
        landed += v.length
        accepted = max(accepted, landed)
    elif event in (Event.LAND_GAP, Event.LAND_BROKEN):
        accepted = landed
    elif met == State.SEALED and event in (Event.FIND, Event.FETCH):
        age = age_on_hit(age)
    elif event == Event.AGE:
        age = visit(age, v.klass)[1]
    if not (v.present or event == Event.ADMIT or kind in SWEEPER_KINDS):
        state = v.state
    return Outcome(event, state, status, accepted, landed, age)
