"""Events: their 64 bytes, and which records give rise to which."""

import pytest

from kvnode.models.spec.causes import Cause
from kvnode.models.spec.enums import Kind, State, Status
from kvnode.models.spec.events import CLEARED_EVENT, EVENT, EventType, event_of
from kvnode.models.spec.messages import TRACE

#: Every field another number, so that a swapped one shows.
RECORD = {name: 100 + number for number, name in enumerate(TRACE.fields)} | {
    "kind": Kind.LOOKUP,
    "status": Status.HIT,
    "state_before": State.SEALED,
    "state_after": State.SEALED,
    "cause": Cause.TTL,
}
#: The fields that say where an event comes from.
SOURCE = {name: RECORD[name] for name in ("partition", "owner", "cycle")}
BLOCK = {name: RECORD[f"block_{name}"] for name in
         ("model_id", "group", "private", "slot", "generation", "session", "length", "digest")}  # fmt: skip


def record(kind, before=State.FREE, after=State.FREE, status=Status.OK, **fields):
    return RECORD | {"kind": kind, "state_before": before, "state_after": after, "status": status} | fields


def event(number, **fields):
    return dict.fromkeys(EVENT.fields, 0) | {"type": number} | SOURCE | fields


def test_an_event_is_64_bytes_with_every_field_aligned():
    where = {name: (field.offset_bytes, field.size_bytes) for name, field in EVENT.fields.items()}
    assert where == {
        "type": (0, 1), "cause": (1, 1), "partition": (2, 1), "owner": (3, 1), "model_id": (4, 2), "group": (6, 1),
        "private": (7, 1), "slot": (8, 4), "generation": (12, 4), "session": (16, 4), "length": (20, 4),
        "cycle": (24, 8), "digest": (32, 32),
    }  # fmt: skip
    assert EVENT.size_bytes == 64


def test_types_are_numbered_as_on_the_wire():
    assert {number.name: int(number) for number in EventType} == {
        "CLEARED": 1, "STORED": 2, "REMOVED": 3, "MODEL_RETIRED": 4, "SESSION_MOVED": 5, "PORT_DOWN": 6, "POISONED": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (record(Kind.PUT_END, State.FILLING, State.SEALED, Status.SEALED), event(2, **BLOCK)),
        (record(Kind.VISIT, State.SEALED, State.RETIRING), event(3, cause=Cause.TTL, **BLOCK)),
        (record(Kind.DROP, State.SEALED, State.RETIRING, cause=Cause.DROPPED), event(3, cause=5 + 1, **BLOCK)),
        (record(Kind.RETIRE_MODEL), event(4, model_id=RECORD["model_id"], generation=RECORD["epoch"])),
        (
            record(Kind.SESSION_MIGRATE),
            event(
                5, session=RECORD["found_session"], generation=RECORD["found_epoch"], slot=RECORD["ports"]
            ),
        ),
        (record(Kind.PORT_DOWN), event(6, slot=RECORD["ports"])),
        (record(Kind.POISON, State.SEALED, State.SEALED), event(7, **BLOCK)),
    ],
)  # fmt: skip
def test_event_has_the_fields_of_its_type(fields, expected):
    assert event_of(fields) == expected


@pytest.mark.parametrize(
    "fields",
    [
        record(Kind.LOOKUP, State.SEALED, State.SEALED, Status.HIT),
        record(Kind.PUT_START, State.FREE, State.FILLING, Status.GRANTED),
        record(Kind.PUT_END, State.FILLING, State.FILLING),
        record(Kind.PUT_REVOKE, State.FILLING, State.RETIRING),
        record(Kind.REAP, State.RETIRING, State.FREE),
        record(Kind.POISON, State.FILLING, State.FILLING),
        record(Kind.SESSION_MIGRATE, status=Status.STALE_EPOCH),
        record(Kind.SESSION_CLOSE),
        record(Kind.CONFIGURE),
    ],
)
def test_what_changes_nothing_that_can_be_found_is_no_event(fields):
    assert event_of(fields) is None


def test_every_event_fits_its_layout():
    largest = TRACE.unpack(b"\xff" * TRACE.size_bytes)
    for kind, before, after in (
        (Kind.PUT_END, State.FILLING, State.SEALED),
        (Kind.DROP, State.SEALED, State.RETIRING),
        (Kind.RETIRE_MODEL, State.FREE, State.FREE),
        (Kind.SESSION_MIGRATE, State.FREE, State.FREE),
        (Kind.PORT_DOWN, State.FREE, State.FREE),
        (Kind.POISON, State.SEALED, State.SEALED),
    ):
        values = event_of(largest | {"kind": kind, "state_before": before, "state_after": after, "status": Status.OK})
        assert EVENT.unpack(EVENT.pack(**values)) == values


def test_cleared_is_its_type_and_nothing_else():
    assert EVENT.pack(**CLEARED_EVENT) == bytes([1]) + bytes(63)
