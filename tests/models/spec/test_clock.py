"""Time that wraps around, against time that does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnode.models.spec.clock import TIME_BITS, TTL_TICKS, after, passed, tick_of, ttl_tick_of

RANGE = 65536
TIMES = st.integers(0, RANGE - 1)


def test_time_has_sixteen_bits_and_a_unit_256_ticks():
    assert (TIME_BITS, TTL_TICKS) == (16, 256)


@pytest.mark.parametrize(
    ("cycle", "tick_cycles_log2", "tick"),
    [(0, 3, 0), (7, 3, 0), (8, 3, 1), (524287, 3, 65535), (524288, 3, 0), (524296, 3, 1), (65537, 0, 1)],
)
def test_tick_is_counted_in_whole_powers_of_two_cycles_and_wraps(cycle, tick_cycles_log2, tick):
    assert tick_of(cycle, tick_cycles_log2) == tick


@given(st.integers(0, 1 << 64), st.integers(0, 32))
def test_unit_of_ttl_is_256_ticks(cycle, tick_cycles_log2):
    assert tick_of(cycle, tick_cycles_log2) == cycle // 2**tick_cycles_log2 % RANGE
    assert ttl_tick_of(cycle, tick_cycles_log2) == cycle // 2**tick_cycles_log2 // 256 % RANGE


def test_deadline_has_passed_at_its_own_tick_and_not_one_before():
    assert [passed(now, 100) for now in (98, 99, 100, 101)] == [False, False, True, True]


def test_deadline_across_the_end_of_the_range():
    deadline = after(65530, 10)
    assert deadline == 4
    assert [passed(now, deadline) for now in (65530, 65535, 0, 3, 4, 5)] == [False] * 4 + [True] * 2


def test_half_of_the_range_is_the_furthest_that_can_be_told():
    assert passed(32767, 0) and not passed(32768, 0)
    assert not passed(0, 32767) and not passed(0, 32768) and passed(0, 32769)


@given(st.integers(0, 1 << 40), st.integers(0, 32767), st.integers(0, 32767))
def test_deadline_looked_at_within_half_the_range_has_passed_when_its_time_has_come(start, count, later):
    deadline = after(start % RANGE, count)
    assert passed((start + count + later) % RANGE, deadline)
    assert not later or not passed((start + count - later) % RANGE, deadline)


@given(TIMES, TIMES, TIMES)
def test_time_after_some_ticks_does_not_depend_on_how_they_are_added(now, first, second):
    assert after(after(now, first), second) == after(now, (first + second) % RANGE)
    assert 0 <= after(now, first) < RANGE


@given(TIMES)
def test_deadline_of_no_ticks_has_passed_at_once(now):
    assert passed(now, after(now, 0))
