"""Events: what whoever routes requests must learn of a node, as data and as a pure function of the trace.

Used by: golden.events, rtl.node.events, sw_driver.
"""

import enum
from collections.abc import Mapping

from .enums import Kind, State, Status
from .layout import Layout

#: Events for which a node keeps room until they are taken.
RING_DEPTH = 256


class EventType(enum.IntEnum):
    """First byte of an event.

    CLEARED is the first event after a reset: the node holds nothing. STORED, REMOVED: a block was sealed; a sealed
    block has left, for `cause`. MODEL_RETIRED: no block of the model that was stored before is found any more, and
    each is REMOVED later. SESSION_MOVED: a session has another owner. PORT_DOWN: what ports hold is taken back.
    POISONED: bytes of a sealed block are damaged; it is REMOVED when it is next asked for, or evicted.
    """

    CLEARED = 1
    STORED = 2
    REMOVED = 3
    MODEL_RETIRED = 4
    SESSION_MOVED = 5
    PORT_DOWN = 6
    POISONED = 7


#: 64 bytes. `owner` is that of the operation that the event came from, `cycle` that of its commit.
#:
#: STORED, REMOVED, POISONED: every field is the block's; `length` in beats, `session` the one that it was written in.
#: MODEL_RETIRED: `model_id`, and the model's new epoch as `generation`. SESSION_MOVED: `session`, its new epoch as
#: `generation`, the mask of the new owner's ports as `slot` (0: `owner`). PORT_DOWN: the mask of the ports as `slot`.
#: Fields that a type has not are zero; CLEARED has none but `type`.
EVENT = Layout(
    "event",
    [
        ("type", 1),
        ("cause", 1),
        ("partition", 1),
        ("owner", 1),
        ("model_id", 2),
        ("group", 1),
        ("private", 1),
        ("slot", 4),
        ("generation", 4),
        ("session", 4),
        ("length", 4),
        ("cycle", 8),
        ("digest", 32),
    ],
)

#: Events are numbered from 0 after a reset, modulo 2^SEQUENCE_BITS; lost ones count.
SEQUENCE_BITS = 32

#: Fields of a block in a trace record.
_OF_BLOCK = ("model_id", "group", "private", "slot", "generation", "session", "length", "digest")

_NO_EVENT = dict.fromkeys(EVENT.fields, 0)
CLEARED_EVENT = _NO_EVENT | {"type": int(EventType.CLEARED)}


def event_of(record: Mapping[str, int]) -> dict[str, int] | None:
    """The fields of EVENT that an unpacked TRACE record gives rise to, or None. No record gives rise to CLEARED."""
    moved = record["state_before"], record["state_after"]
    kind = record["kind"]
    if moved == (State.FILLING, State.SEALED):
        return _of_block(EventType.STORED, record)
    if moved == (State.SEALED, State.RETIRING):
        return _of_block(EventType.REMOVED, record) | {"cause": record["cause"]}
    if kind == Kind.POISON and record["state_before"] == State.SEALED:
        return _of_block(EventType.POISONED, record)
    if kind == Kind.RETIRE_MODEL:
        return _event(EventType.MODEL_RETIRED, record, model_id=record["model_id"], generation=record["epoch"])
    if kind == Kind.SESSION_MIGRATE and record["status"] == Status.OK:
        return _event(EventType.SESSION_MOVED, record, session=record["found_session"],
                      generation=record["found_epoch"], slot=record["ports"])  # fmt: skip
    if kind == Kind.PORT_DOWN:
        return _event(EventType.PORT_DOWN, record, slot=record["ports"])
    return None


def _event(type_: EventType, record: Mapping[str, int], **fields: int) -> dict[str, int]:
    where = {"partition": record["partition"], "owner": record["owner"], "cycle": record["cycle"]}
    return _NO_EVENT | {"type": int(type_)} | where | fields


def _of_block(type_: EventType, record: Mapping[str, int]) -> dict[str, int]:
    return _event(type_, record, **{name: record[f"block_{name}"] for name in _OF_BLOCK})
