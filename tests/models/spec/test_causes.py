"""Causes: every transition to RETIRING has one, and every one has a transition."""

import itertools

import pytest

from kvnode.models.spec.causes import Cause, cause_of
from kvnode.models.spec.coherence import TRANSITIONS, Event
from kvnode.models.spec.enums import State

FREE, FILLING, SEALED, RETIRING = State
#: stale, session_over, poisoned, other.
SIGNS = list(itertools.product((False, True), repeat=4))
TO_RETIRING = [pair for pair, (state, _) in TRANSITIONS.items() if state == RETIRING and pair[0] != RETIRING]


def test_numbers_of_causes_are_those_of_the_trace():
    names = "NONE CAPACITY MODEL SESSION TTL POISONED DROPPED REVOKED FAILED DEADLINE PORT REFUSED".split()
    assert [cause.name for cause in Cause] == names
    assert [cause.value for cause in Cause] == list(range(12))


@pytest.mark.parametrize("pair", TO_RETIRING, ids=lambda pair: f"{pair[0].name}-{pair[1].name}")
def test_transition_to_retiring_has_a_cause_whatever_the_signs(pair):
    state, event = pair
    causes = {cause_of(event, state, *signs) for signs in SIGNS}
    assert Cause.NONE not in causes
    assert len(causes) == 1 or event == Event.EVICT, "what a port did is a cause by itself"


def test_every_cause_but_none_is_that_of_some_transition():
    causes = {cause_of(event, state, *signs) for state, event in TO_RETIRING for signs in SIGNS}
    assert causes == set(Cause) - {Cause.NONE}


@pytest.mark.parametrize(
    ("event", "state", "cause"),
    [
        ("ADMIT_REFUSED", FREE, "REFUSED"),
        ("FINISH_SHORT", FILLING, "FAILED"),
        ("FINISH_WRONG", FILLING, "FAILED"),
        ("REVOKE", FILLING, "REVOKED"),
        ("DROP", SEALED, "DROPPED"),
        ("SPOILED", SEALED, "POISONED"),
    ],
)
def test_cause_of_what_a_port_did(event, state, cause):
    assert cause_of(Event[event], state, False, False, False, False) == Cause[cause]


@pytest.mark.parametrize(
    ("state", "signs", "cause"),
    [
        (SEALED, {}, "CAPACITY"),
        (SEALED, {"stale"}, "MODEL"),
        (SEALED, {"session_over"}, "SESSION"),
        (SEALED, {"poisoned"}, "POISONED"),
        (SEALED, {"other"}, "TTL"),
        (SEALED, {"poisoned", "other"}, "POISONED"),
        (SEALED, {"session_over", "poisoned", "other"}, "SESSION"),
        (SEALED, {"stale", "session_over", "poisoned", "other"}, "MODEL"),
        (FILLING, {}, "DEADLINE"),
        (FILLING, {"other"}, "PORT"),
        (FILLING, {"stale", "other"}, "MODEL"),
        (FILLING, {"session_over", "other"}, "SESSION"),
    ],
)
def test_cause_of_what_the_sweeper_took(state, signs, cause):
    names = ("stale", "session_over", "poisoned", "other")
    assert cause_of(Event.EVICT, state, **{name: name in signs for name in names}) == Cause[cause]
