"""Sessions against what section 6 says of them: sets of sealed numbers, lists of waiters, owners one after another."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvnode.models.spec.enums import Kind, Status
from kvnode.models.spec.sessions import (
    EPOCH_BITS,
    SEQUENCE_BITS,
    WINDOW,
    Session,
    admission,
    commit,
    may_write,
    verdict,
    visibility,
    wait,
)

EPOCHS = 65536
LARGEST = (1 << 32) - 1
#: Open, at epoch 7, owned by ports 1 and 3; blocks 1 to 20, 22 and 25 are sealed; the old owner may write up to 23.
ROW = Session(open=True, generation=2, epoch=7, ports=0b1010, limit=23, committed=20, ahead=0b10010)
OWNER, OTHER_OWNER, STRANGER = 1, 3, 0


def test_sizes_are_those_of_the_message():
    assert (EPOCH_BITS, SEQUENCE_BITS, WINDOW) == (16, 32, 16)


def test_closed_row_is_all_zeroes():
    assert not any(Session())


# Who may write.


@pytest.mark.parametrize("port", [OWNER, OTHER_OWNER])
@pytest.mark.parametrize(
    ("sequence", "answer"),
    [
        (0, "OK"), (1, "WRITE_ORDER"), (20, "WRITE_ORDER"), (21, "OK"), (22, "WRITE_ORDER"), (23, "OK"), (24, "OK"),
        (25, "WRITE_ORDER"), (26, "OK"), (36, "OK"), (37, "BUSY"), (LARGEST, "BUSY"),
    ],
)  # fmt: skip
def test_owner_may_start_what_is_not_sealed_and_not_too_far_ahead(port, sequence, answer):
    assert admission(ROW, port, 7, sequence) == Status[answer]


@pytest.mark.parametrize("sequence", [0, 1, 21, 22, 37])
def test_port_that_does_not_own_the_session_is_told_that_it_has_moved(sequence):
    assert admission(ROW, STRANGER, 7, sequence) == Status.STALE_EPOCH


@pytest.mark.parametrize(
    ("sequence", "answer"),
    [(0, "STALE_EPOCH"), (20, "WRITE_ORDER"), (21, "OK"), (22, "WRITE_ORDER"), (23, "OK"), (24, "STALE_EPOCH")],
)
def test_earlier_owner_may_write_up_to_the_limit_of_the_migration(sequence, answer):
    assert admission(ROW, STRANGER, 6, sequence) == Status[answer]


def test_session_that_has_not_moved_knows_no_earlier_owner():
    row = Session(open=True, ports=2)
    assert [admission(row, 1, epoch, 1) for epoch in (0, 1, EPOCHS - 1)] == [
        Status.OK,
        Status.STALE_EPOCH,
        Status.STALE_EPOCH,
    ]


@pytest.mark.parametrize("epoch", [8, 9, 7 + 32768, 7 + 32767])
def test_epoch_that_is_still_to_come_may_not_write(epoch):
    assert not may_write(ROW, epoch, 21)
    assert admission(ROW, OWNER, epoch, 21) == Status.STALE_EPOCH


@given(st.integers(0, EPOCHS - 1), st.integers(0, EPOCHS - 1), st.integers(0, 40))
def test_epochs_wrap_and_only_the_last_is_let_finish(present, back, sequence):
    """`back` moves ago, counted without wrapping."""
    row = ROW._replace(epoch=present)
    expected = back == 0 or back == 1 and 1 <= sequence <= 23
    assert may_write(row, (present - back) % EPOCHS, sequence) == expected


def test_epoch_before_the_wrap_is_the_earlier_one():
    row = ROW._replace(epoch=0)
    assert may_write(row, 65535, 23) and not may_write(row, 65535, 24) and not may_write(row, 1, 23)


# Who may see.


@pytest.mark.parametrize(
    ("epoch", "sequence", "answer"),
    [
        (7, 0, "OK"), (7, 20, "OK"), (7, 21, "NOT_READY"), (7, 22, "NOT_READY"), (7, LARGEST, "NOT_READY"),
        (6, 0, "STALE_EPOCH"), (6, 20, "STALE_EPOCH"), (8, 20, "STALE_EPOCH"),
    ],
)  # fmt: skip
def test_answer_waits_until_the_number_is_committed(epoch, sequence, answer):
    assert visibility(ROW, epoch, sequence) == Status[answer]


QUESTIONS = [Kind.LOOKUP, Kind.MATCH, Kind.READ, Kind.LEASE, Kind.SESSION_FENCE]


@pytest.mark.parametrize("kind", QUESTIONS)
def test_question_may_come_from_any_port_of_the_partition(kind):
    for port in (OWNER, STRANGER):
        assert verdict(kind, ROW, port, 7, 20) == Status.OK
        assert verdict(kind, ROW, port, 7, 21) == Status.NOT_READY
        assert verdict(kind, ROW, port, 6, 20) == Status.STALE_EPOCH


@pytest.mark.parametrize("kind", [Kind.SESSION_MIGRATE, Kind.SESSION_CLOSE])
def test_move_and_close_wait_for_nothing(kind):
    # The number of a migration is a limit and not one to wait for.
    assert verdict(kind, ROW, STRANGER, 7, LARGEST) == Status.OK
    assert verdict(kind, ROW, OWNER, 6, 0) == Status.STALE_EPOCH


def test_drop_names_the_session_and_no_number():
    assert verdict(Kind.DROP, ROW, STRANGER, 7, 0) == Status.OK
    assert verdict(Kind.DROP, ROW, STRANGER, 6, 0) == Status.STALE_EPOCH


@given(st.integers(0, 3), st.integers(5, 9), st.integers(0, 40))
def test_start_is_the_one_operation_that_asks_for_admission(port, epoch, sequence):
    assert verdict(Kind.PUT_START, ROW, port, epoch, sequence) == admission(ROW, port, epoch, sequence)
    for kind in QUESTIONS:
        assert verdict(kind, ROW, port, epoch, sequence) == visibility(ROW, epoch, sequence)


def test_session_has_five_answers():
    statuses = {
        verdict(kind, ROW, port, epoch, sequence)
        for kind in (*QUESTIONS, Kind.PUT_START, Kind.DROP, Kind.SESSION_MIGRATE, Kind.SESSION_CLOSE)
        for port in range(4)
        for epoch in (6, 7, 8)
        for sequence in range(40)
    }
    assert statuses == {Status.OK, Status.STALE_EPOCH, Status.NOT_READY, Status.WRITE_ORDER, Status.BUSY}


# What is committed.


def row_of(sealed, base=0):
    """(committed, ahead) of a set of sealed numbers above `base`, which is committed."""
    committed = base
    while committed + 1 in sealed:
        committed += 1
    return committed, sum(1 << number - committed - 1 for number in sealed if number > committed)


@pytest.mark.parametrize(
    ("sequence", "committed", "ahead"),
    [
        (21, 22, 0b100), (23, 20, 0b10110), (24, 20, 0b11010), (36, 20, 0b1000000000010010), (0, 20, 0b10010),
        (20, 20, 0b10010), (22, 20, 0b10010), (37, 20, 0b10010), (LARGEST, 20, 0b10010),
    ],
)  # fmt: skip
def test_committed_number_passes_all_that_are_sealed(sequence, committed, ahead):
    row = commit(ROW, sequence)
    assert (row.committed, row.ahead) == (committed, ahead)
    assert row._replace(committed=20, ahead=0b10010) == ROW


def test_last_block_of_a_full_window_commits_all_of_it():
    row = Session()
    for sequence in reversed(range(1, WINDOW + 1)):
        assert row.committed == 0 and admission(row._replace(ports=1), 0, 0, sequence) == Status.OK
        row = commit(row, sequence)
    assert (row.committed, row.ahead) == (WINDOW, 0)


@settings(deadline=None)
@given(st.integers(0, LARGEST - 60), st.integers(0, 1 << 32), st.integers(1, 24))
def test_committed_number_is_that_of_the_sealed_set_in_any_order(base, seed, under_way):
    """Up to `under_way` blocks are written at a time, each asking for admission first; some are never counted."""
    rng = random.Random(seed)
    row, sealed = Session(open=True, ports=1, committed=base), set()
    waiting, writing = list(range(base + 1, base + 61)), []
    while waiting or writing:
        if waiting and len(writing) < under_way and rng.random() < 0.6:
            sequence = rng.choice(waiting[:24])
            answer = admission(row, 0, 0, sequence)
            assert answer == (Status.OK if sequence <= row.committed + WINDOW else Status.BUSY)
            if answer == Status.OK:
                waiting.remove(sequence)
                writing.append(sequence)
        elif writing:
            sequence = writing.pop(rng.randrange(len(writing)))
            if rng.random() < 0.2:
                row = commit(row, 0)
            if rng.random() < 0.1:
                # Revoked: the number has to be written anew.
                waiting.insert(0, sequence)
                continue
            row = commit(row, sequence)
            sealed.add(sequence)
            assert admission(row, 0, 0, sequence) == Status.WRITE_ORDER
        assert (row.committed, row.ahead) == row_of(sealed, base)
        assert row.ahead < 1 << WINDOW and row.ahead & 1 == 0
        assert (visibility(row, 0, row.committed), visibility(row, 0, row.committed + 1)) == (
            Status.OK,
            Status.NOT_READY,
        )
    assert (row.committed, row.ahead) == (base + 60, 0)


@given(st.lists(st.integers(0, 40), max_size=60))
def test_numbers_outside_of_the_window_change_nothing_and_none_counts_twice(numbers):
    row, sealed = Session(), set()
    for number in numbers:
        if row.committed < number <= row.committed + WINDOW:
            sealed.add(number)
        row = commit(row, number)
        assert (row.committed, row.ahead) == row_of(sealed)
        assert commit(row, number) == row


def test_largest_number_can_be_committed():
    row = commit(Session(committed=LARGEST - 2), LARGEST)
    row = commit(row, LARGEST - 1)
    assert (row.committed, row.ahead) == (LARGEST, 0)
    assert admission(row._replace(ports=1), 0, 0, LARGEST) == Status.WRITE_ORDER


def test_story_of_a_session_that_moves():
    """Port 0 has written 1 and 2 and is at 3; port 2 takes over with 3 as the last that port 0 may bring."""
    row = commit(commit(Session(open=True, ports=0b001, epoch=65535), 1), 2)
    moved = row._replace(epoch=0, ports=0b100, limit=3)
    assert admission(moved, 0, 65535, 3) == Status.OK
    assert admission(moved, 0, 65535, 4) == Status.STALE_EPOCH
    assert admission(moved, 0, 0, 4) == Status.STALE_EPOCH, "the new epoch does not make it an owner"
    assert admission(moved, 2, 0, 4) == Status.OK
    assert visibility(moved, 0, 3) == Status.NOT_READY
    assert visibility(moved, 65535, 2) == Status.STALE_EPOCH
    ahead = commit(moved, 4)
    assert ahead.committed == 2 and visibility(ahead, 0, 4) == Status.NOT_READY
    assert visibility(commit(ahead, 3), 0, 4) == Status.OK


# Who waits.


def test_first_to_wait_sets_number_and_deadline():
    row = wait(ROW._replace(wake_at=1, wait_until=999), 3, 24, 65530, 10)
    assert (row.waiters, row.wake_at, row.wait_timed, row.wait_until) == (0b1000, 24, True, 4)
    assert row._replace(waiters=0, wake_at=0, wait_timed=False, wait_until=0) == ROW


def test_wait_without_a_limit_is_not_timed():
    row = wait(ROW._replace(wait_timed=True, wait_until=5), 0, 24, 100, 0)
    assert (row.waiters, row.wake_at, row.wait_timed) == (1, 24, False)


@pytest.mark.parametrize(("ticks", "until"), [(0, 110), (5, 105), (10, 110), (20, 110)])
def test_the_earlier_deadline_and_the_smaller_number_stay(ticks, until):
    first = wait(ROW, 0, 24, 100, 10)
    assert wait(first, 2, 30, 100, ticks)[7:11] == (0b101, 24, until, True)
    assert wait(first, 2, 22, 100, ticks)[7:11] == (0b101, 22, until, True)


def test_deadline_counts_beside_one_that_waits_without():
    row = wait(wait(ROW, 0, 24, 100, 0), 2, 30, 100, 50)
    assert (row.wait_timed, row.wait_until) == (True, 150)


WAITS = st.lists(st.tuples(st.integers(0, 7), st.integers(1, LARGEST), st.integers(0, 255), st.integers(0, 255)))


@given(st.integers(0, EPOCHS - 1), WAITS)
def test_row_keeps_what_comes_first_for_all_that_wait(start, waits):
    """Time that does not wrap: deadlines are the ticks that were asked for, at most half of the range away."""
    row, now, waiting = ROW, start, []
    for port, sequence, ticks, passing in waits[:100]:
        now += passing
        row = wait(row, port, sequence, now % EPOCHS, ticks)
        waiting.append((port, sequence, now + ticks if ticks else None))
        deadlines = [until for _, _, until in waiting if until is not None]
        assert row.waiters == sum({1 << port for port, _, _ in waiting})
        assert row.wake_at == min(sequence for _, sequence, _ in waiting)
        assert row.wait_timed == bool(deadlines)
        assert not deadlines or row.wait_until == min(deadlines) % EPOCHS
