"""The event log: order, numbers, and what is lost."""

import pytest

from kvnode.models.golden.events import EventLog
from kvnode.models.spec.enums import Kind, State
from kvnode.models.spec.events import EventType
from kvnode.models.spec.messages import TRACE

NOTHING = dict.fromkeys(TRACE.fields, 0)


def down(mask):
    return NOTHING | {"kind": Kind.PORT_DOWN, "ports": mask}


def test_a_new_log_shows_nothing_and_a_pop_does_nothing():
    log = EventLog(depth=2)
    assert (len(log), log.shown, log.pop(), log.sequence, log.overflow) == (0, None, None, 0, False)


def test_the_oldest_event_is_shown_and_cleared_is_number_zero():
    log = EventLog()
    log.cleared()
    log.record(down(3))
    assert (log.shown.sequence, log.shown.event["type"]) == (0, EventType.CLEARED)
    assert log.pop().sequence == 0
    assert (log.shown.sequence, log.shown.event["type"], log.shown.event["slot"]) == (1, EventType.PORT_DOWN, 3)


def test_record_without_an_event_is_not_counted():
    log = EventLog()
    log.record(NOTHING | {"kind": Kind.LOOKUP, "state_before": State.SEALED, "state_after": State.SEALED})
    assert (len(log), log.sequence) == (0, 0)


def test_events_that_find_no_room_are_lost_but_counted():
    log = EventLog(depth=2)
    for mask in (1, 2, 3, 4):
        log.record(down(mask))
    assert (len(log), log.overflow, log.sequence) == (2, True, 4)
    assert log.pop().event["slot"] == 1
    log.record(down(5))
    assert log.overflow
    assert [(e.sequence, e.event["slot"]) for e in (log.pop(), log.pop())] == [(1, 2), (4, 5)]


def test_overflow_stands_until_the_last_event_is_removed():
    log = EventLog(depth=2)
    for mask in (1, 2, 3):
        log.record(down(mask))
    log.pop()
    assert log.overflow
    log.pop()
    assert not log.overflow


def test_numbers_wrap_after_32_bits():
    log = EventLog()
    log.sequence = (1 << 32) - 1
    log.cleared()
    log.cleared()
    assert [log.pop().sequence, log.pop().sequence] == [(1 << 32) - 1, 0]


def test_log_without_room_is_refused():
    with pytest.raises(ValueError, match="depth = 0: an event log has room for at least 1"):
        EventLog(0)
