"""Why a block leaves: the cause of every transition to RETIRING.

Used by: golden.directory, rtl.node.directory, events, reports.
"""

import enum

from .coherence import Event
from .enums import State


class Cause(enum.IntEnum):
    """Causes, for the trace, the events and the counters."""

    NONE = 0
    #: Slots were short; nobody can find the block (its model was retired, its private session was closed) or complete
    #: it (the session it is written in was closed or moved); its time was over; its bytes are damaged; DROP.
    CAPACITY = 1
    MODEL = 2
    SESSION = 3
    TTL = 4
    POISONED = 5
    DROPPED = 6
    #: Only of blocks being written: PUT_REVOKE; a failed PUT_END; the deadline; a writer's port went down; the session
    #: refused the block when its slot was granted already.
    REVOKED = 7
    FAILED = 8
    DEADLINE = 9
    PORT = 10
    REFUSED = 11


_OF_EVENT = {
    Event.ADMIT_REFUSED: Cause.REFUSED,
    Event.FINISH_SHORT: Cause.FAILED,
    Event.FINISH_WRONG: Cause.FAILED,
    Event.REVOKE: Cause.REVOKED,
    Event.DROP: Cause.DROPPED,
    Event.SPOILED: Cause.POISONED,
}


def cause_of(event: Event, state: State, stale: bool, session_over: bool, poisoned: bool, other: bool) -> Cause:
    """Cause of a transition of a block in `state` to RETIRING by `event`.

    `stale`: its model was retired; `session_over`: its private session was closed, or the session it is written in was
    closed or moved; `other`: of a sealed block its time is over, of one being written a writer's port is down.
    """
    if event != Event.EVICT:
        return _OF_EVENT[event]
    if stale:
        return Cause.MODEL
    if session_over:
        return Cause.SESSION
    if state == State.FILLING:
        return Cause.PORT if other else Cause.DEADLINE
    if poisoned:
        return Cause.POISONED
    return Cause.TTL if other else Cause.CAPACITY
