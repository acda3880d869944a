"""A class for every refusal, with the numbers that people search for."""

import pytest

from kvnode.models.spec.enums import MOONCAKE_ERRORS, Opcode, Status
from kvnode.sw_driver import errors
from kvnode.sw_driver.errors import DeadlineExpired, KvError, PortLost, Unanswered, error_of

SUCCESSES = {Status.OK, Status.HIT, Status.GRANTED, Status.SEALED}


@pytest.mark.parametrize("status", sorted(set(Status) - SUCCESSES))
def test_every_refusal_has_a_class_of_its_own(status):
    error = error_of(status, "call")
    assert type(error) is not KvError and isinstance(error, KvError)
    assert (error.status, error.mooncake) == (status, MOONCAKE_ERRORS.get(status))
    assert str(error).startswith(f"call: {status.name}")


def test_classes_are_not_shared():
    refusals = sorted(set(Status) - SUCCESSES)
    assert len({type(error_of(status)) for status in refusals}) == len(refusals)


@pytest.mark.parametrize("status", sorted(SUCCESSES))
def test_success_is_no_error(status):
    with pytest.raises(ValueError, match=f"{status.name} is not an error"):
        error_of(status)


def test_error_carries_status_and_mooncake_number():
    error = KvError(Status.NO_SPACE, "put")
    assert (str(error), error.mooncake) == ("put: NO_SPACE (-200)", -200)
    assert KvError(Status.BUSY, "put").mooncake is None


def test_node_that_is_silent_is_a_deadline():
    unanswered, lost = Unanswered(Opcode.READ, 3, "99 cycles"), PortLost(Opcode.WRITE, 5, 2)
    assert str(unanswered) == "request 3 (READ) was not answered within 99 cycles: DEADLINE (-901)"
    assert str(lost) == "request 5 (WRITE): port 2 went down before the answer: DEADLINE (-901)"
    assert isinstance(unanswered, DeadlineExpired) and isinstance(lost, DeadlineExpired)
    assert errors.NotReady is not DeadlineExpired
