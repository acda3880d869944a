"""Write-once coherence against the state table of the architecture, written down here a second time as data."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvnode.models.spec.coherence import TRANSITIONS, Event, View, classify, decide
from kvnode.models.spec.enums import Kind, State, Status
from kvnode.models.spec.policy import AGE_ON_HIT, AGE_ON_INSERT

FREE, FILLING, SEALED, RETIRING = State
BLOCK_BEATS = 4

ABSENT = View(
    present=False, state=FREE, owner=False, offset=0, length=0, block_length=0, accepted=0, landed=0, age=0, klass=1,
    room=True, chained=True, whole=True, stale=False, low=False,
)  # fmt: skip
#: A block of 4 beats: 3 were accepted, 2 have landed, and the operation comes from its writer.
HALF = ABSENT._replace(present=True, state=FILLING, owner=True, block_length=BLOCK_BEATS, accepted=3, landed=2, age=1)
WHOLE = HALF._replace(accepted=BLOCK_BEATS, landed=BLOCK_BEATS)
DONE = WHOLE._replace(state=SEALED, age=1)
GOING = DONE._replace(state=RETIRING)
SWEPT = {"present": False, "room": False}

#: The rows of section 4 that need no member, checksum, deadline, lease or poison: (what happens, the view, the
#: operation, by handle, next state, answer).
ROWS = [
    ("start with room", ABSENT, Kind.PUT_START, False, FILLING, "GRANTED"),
    ("start without room", ABSENT._replace(room=False), Kind.PUT_START, False, FREE, "NO_SPACE"),
    ("start of a key being written", HALF._replace(owner=False), Kind.PUT_START, False, FILLING, "BUSY"),
    ("start of a key that the same port writes", HALF, Kind.PUT_START, False, FILLING, "BUSY"),
    ("write at the watermark", HALF._replace(offset=3, length=1), Kind.WRITE, True, FILLING, "OK"),
    ("write before it", HALF._replace(offset=2, length=1), Kind.WRITE, True, FILLING, "WRITE_ORDER"),
    ("write behind it", HALF._replace(accepted=2, offset=3, length=1), Kind.WRITE, True, FILLING, "WRITE_ORDER"),
    ("write past the end", HALF._replace(offset=3, length=2), Kind.WRITE, True, FILLING, "WRITE_ORDER"),
    ("write by another", HALF._replace(owner=False, offset=3, length=1), Kind.WRITE, True, FILLING, "BUSY"),
    ("last beat landed", HALF._replace(offset=2, length=1), Kind.LAND, True, FILLING, "OK"),
    ("read below the watermark", HALF._replace(offset=1, length=1), Kind.READ, True, FILLING, "OK"),
    ("read up to the watermark", HALF._replace(offset=0, length=2), Kind.READ, False, FILLING, "OK"),
    ("read past the watermark", HALF._replace(offset=2, length=1), Kind.READ, True, FILLING, "NOT_READY"),
    ("read across the watermark", HALF._replace(offset=1, length=2), Kind.READ, True, FILLING, "NOT_READY"),
    ("read to the end", HALF, Kind.READ, False, FILLING, "NOT_READY"),
    ("read by another", HALF._replace(owner=False, length=1), Kind.READ, False, FILLING, "NOT_READY"),
    ("look at a key being written", HALF, Kind.LOOKUP, False, FILLING, "NOT_READY"),
    ("match of a key being written", HALF, Kind.MATCH, False, FILLING, "NOT_READY"),
    ("end, complete", WHOLE, Kind.PUT_END, True, SEALED, "SEALED"),
    ("end, bytes missing", HALF, Kind.PUT_END, True, RETIRING, "INCOMPLETE"),
    ("end, bytes not landed", WHOLE._replace(landed=3), Kind.PUT_END, True, RETIRING, "INCOMPLETE"),
    ("end by another", WHOLE._replace(owner=False), Kind.PUT_END, True, FILLING, "BUSY"),
    ("revoke", HALF, Kind.PUT_REVOKE, True, RETIRING, "OK"),
    ("revoke by another", HALF._replace(owner=False), Kind.PUT_REVOKE, True, FILLING, "BUSY"),
    ("drop of a block being written", HALF, Kind.DROP, False, FILLING, "BUSY"),
    ("model of a block being written retired", HALF._replace(**SWEPT, stale=True), Kind.VISIT, False, RETIRING, "OK"),
    ("start of a sealed key", DONE, Kind.PUT_START, False, SEALED, "EXISTS"),
    ("write to a sealed block", DONE._replace(offset=0, length=1), Kind.WRITE, True, SEALED, "WRITE_ONCE"),
    ("write to a sealed block by another", DONE._replace(owner=False), Kind.WRITE, True, SEALED, "WRITE_ONCE"),
    ("read of a sealed block", DONE._replace(owner=False), Kind.READ, False, SEALED, "OK"),
    ("read of part of a sealed block", DONE._replace(offset=3, length=1), Kind.READ, True, SEALED, "OK"),
    ("read beyond a sealed block", DONE._replace(offset=3, length=2), Kind.READ, True, SEALED, "BAD_REQUEST"),
    ("read from the end of a sealed block", DONE._replace(offset=4), Kind.READ, True, SEALED, "BAD_REQUEST"),
    ("read beyond a block being written", HALF._replace(offset=3, length=2), Kind.READ, True, FILLING, "BAD_REQUEST"),
    ("look at a sealed key", DONE, Kind.LOOKUP, False, SEALED, "HIT"),
    ("match of a sealed key", DONE, Kind.MATCH, False, SEALED, "HIT"),
    ("match of a sealed key behind a miss", DONE._replace(chained=False), Kind.MATCH, False, SEALED, "MISS"),
    ("end of a sealed block", DONE, Kind.PUT_END, True, SEALED, "SEALED"),
    ("revoke of a sealed block", DONE, Kind.PUT_REVOKE, True, SEALED, "WRITE_ONCE"),
    ("drop", DONE, Kind.DROP, False, RETIRING, "OK"),
    ("model retired", DONE._replace(**SWEPT, stale=True, age=3), Kind.VISIT, False, RETIRING, "OK"),
    ("eviction", DONE._replace(**SWEPT, low=True, age=0), Kind.VISIT, False, RETIRING, "OK"),
    ("visit while slots are short", DONE._replace(**SWEPT, low=True, age=2), Kind.VISIT, False, SEALED, "OK"),
    ("visit while there are slots", DONE._replace(**SWEPT, age=0), Kind.VISIT, False, SEALED, "OK"),
    (
        "patrol of a live block while slots are short",
        DONE._replace(**SWEPT, low=True, age=0, klass=3),
        Kind.PATROL,
        False,
        SEALED,
        "OK",
    ),
    ("patrol of a block being written", HALF._replace(**SWEPT, low=True), Kind.PATROL, False, FILLING, "OK"),
    (
        "patrol of a block of a retired model",
        DONE._replace(**SWEPT, stale=True, age=3),
        Kind.PATROL,
        False,
        RETIRING,
        "OK",
    ),
    (
        "patrol of a half block of a retired model",
        HALF._replace(**SWEPT, stale=True),
        Kind.PATROL,
        False,
        RETIRING,
        "OK",
    ),
    ("patrol of a retiring block", GOING._replace(**SWEPT, stale=True), Kind.PATROL, False, RETIRING, "OK"),
    ("patrol of a free slot", ABSENT._replace(**SWEPT, stale=True), Kind.PATROL, False, FREE, "OK"),
    ("no transfer holds the slot", GOING._replace(**SWEPT), Kind.REAP, False, FREE, "OK"),
    ("start of a retiring key", GOING, Kind.PUT_START, False, RETIRING, "BUSY"),
    ("look at a retiring key", GOING, Kind.LOOKUP, False, RETIRING, "MISS"),
    ("match of a retiring key", GOING, Kind.MATCH, False, RETIRING, "MISS"),
    ("read of a retiring key", GOING, Kind.READ, False, RETIRING, "MISS"),
    ("drop of a retiring key", GOING, Kind.DROP, False, RETIRING, "MISS"),
    ("look at an absent key", ABSENT, Kind.LOOKUP, False, FREE, "MISS"),
    ("match of an absent key", ABSENT, Kind.MATCH, False, FREE, "MISS"),
    ("read of an absent key", ABSENT, Kind.READ, False, FREE, "MISS"),
    ("drop of an absent key", ABSENT, Kind.DROP, False, FREE, "MISS"),
]


@pytest.mark.parametrize(
    ("view", "kind", "by_handle", "state", "answer"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_row_of_the_state_table(view, kind, by_handle, state, answer):
    outcome = decide(kind, by_handle, view)
    assert (outcome.state, outcome.status) == (state, Status[answer])


def test_rows_above_reach_every_next_state_of_the_architecture():
    moves = {(view.state if view.present or view.state else FREE, state) for _, view, _, _, state, _ in ROWS}
    assert moves == {
        (FREE, FREE), (FREE, FILLING), (FILLING, FILLING), (FILLING, SEALED), (FILLING, RETIRING), (SEALED, SEALED),
        (SEALED, RETIRING), (RETIRING, RETIRING), (RETIRING, FREE),
    }  # fmt: skip


def test_table_allows_no_other_move():
    moves = {(before, after) for (before, _), (after, _) in TRANSITIONS.items() if before != after}
    assert moves == {(FREE, FILLING), (FILLING, SEALED), (FILLING, RETIRING), (SEALED, RETIRING), (RETIRING, FREE)}


# Every view that can be met.

ALWAYS_BY_HANDLE = {Kind.WRITE, Kind.LAND, Kind.PUT_END, Kind.PUT_REVOKE}
BY_EITHER = {Kind.READ, Kind.DROP}
OF_THE_SWEEPER = {Kind.VISIT, Kind.PATROL, Kind.REAP}
NEVER_BY_HANDLE = {Kind.LOOKUP, Kind.MATCH, Kind.PUT_START}
BITS = (False, True)
BEATS = range(4)


def reachable():
    """(kind, by handle, view) of all that can be met with blocks of up to 3 beats.

    A handle reaches a FILLING or a SEALED block, a key also a RETIRING one. A LAND meets only a block that is still
    being written: its PUT_END waits for it. The sweeper reaches slots in any state, and reaps those that are RETIRING.
    """
    levels = [(b, a, w) for b in (1, 2, 3) for a in range(b + 1) for w in range(a + 1)]
    for kind in ALWAYS_BY_HANDLE | BY_EITHER | NEVER_BY_HANDLE:
        for by_handle in BITS:
            if by_handle and kind in NEVER_BY_HANDLE or not by_handle and kind in ALWAYS_BY_HANDLE:
                continue
            for klass, room, chained in itertools.product(range(4), BITS, BITS):
                yield kind, by_handle, ABSENT._replace(klass=klass, room=room, chained=chained)
            states = [FILLING] if kind == Kind.LAND else [FILLING, SEALED] if by_handle else [FILLING, SEALED, RETIRING]
            for state, (block, accepted, landed) in itertools.product(states, levels):
                if state == SEALED and landed != block:
                    continue
                view = HALF._replace(state=state, block_length=block, accepted=accepted, landed=landed, room=False)
                for offset, length, owner, chained, whole in itertools.product(BEATS, BEATS, BITS, BITS, BITS):
                    if kind == Kind.LAND and (not length or not owner or offset + length > block):
                        continue
                    yield (
                        kind,
                        by_handle,
                        view._replace(offset=offset, length=length, owner=owner, chained=chained, whole=whole),
                    )
    for state, age, klass, stale, low in itertools.product(State, range(4), range(4), BITS, BITS):
        view = DONE._replace(**SWEPT, state=state, age=age, klass=klass, stale=stale, low=low)
        yield Kind.VISIT, False, view
        yield Kind.PATROL, False, view
        if state == RETIRING:
            yield Kind.REAP, False, view


def test_every_view_that_can_be_met_has_its_pair_in_the_table():
    met, missing = set(), set()
    for kind, by_handle, view in reachable():
        state = view.state if view.present or kind in OF_THE_SWEEPER else FREE
        if by_handle and not view.present:
            continue
        pair = state, classify(kind, view)
        met.add(pair)
        if pair not in TRANSITIONS:
            missing.add((kind, *pair))
    assert missing == set()
    assert set(TRANSITIONS) - met == set(), "pairs that nothing reaches"


def test_handle_that_reaches_nothing_is_stale_and_changes_nothing():
    for kind, by_handle, view in reachable():
        if by_handle and not view.present:
            outcome = decide(kind, by_handle, view)
            assert (outcome.event, outcome.status) == (Event.ANSWER, Status.STALE_HANDLE)
            assert (outcome.state, outcome.accepted, outcome.landed, outcome.age) == (FREE, 0, 0, 0)


def test_sealed_block_changes_nothing_but_its_age_until_it_retires():
    for kind, by_handle, view in reachable():
        if view.state == SEALED:
            outcome = decide(kind, by_handle, view)
            assert outcome.state in (SEALED, RETIRING)
            assert (outcome.accepted, outcome.landed) == (view.accepted, view.landed)


def test_retiring_block_never_comes_back():
    for kind, by_handle, view in reachable():
        if view.state == RETIRING:
            outcome = decide(kind, by_handle, view)
            assert outcome.state == (FREE if kind == Kind.REAP else RETIRING)
            assert outcome.status not in (Status.HIT, Status.EXISTS, Status.SEALED, Status.GRANTED)
            assert outcome.status != Status.OK or kind in OF_THE_SWEEPER


def test_patrol_takes_what_is_stale_and_changes_nothing_else():
    for kind, by_handle, view in reachable():
        if kind == Kind.PATROL:
            outcome = decide(kind, by_handle, view)
            taken = view.stale and view.state in (FILLING, SEALED)
            assert outcome.state == (RETIRING if taken else view.state)
            assert (outcome.age, outcome.accepted, outcome.landed) == (view.age, view.accepted, view.landed)


def test_clock_ages_and_evicts_only_while_slots_are_short():
    for kind, by_handle, view in reachable():
        if kind == Kind.VISIT and not view.stale and not view.low:
            outcome = decide(kind, by_handle, view)
            assert (outcome.event, outcome.state, outcome.age) == (Event.KEEP, view.state, view.age)


def test_only_the_writer_moves_a_block_being_written():
    for kind, by_handle, view in reachable():
        if view.present and view.state == FILLING and not view.owner:
            outcome = decide(kind, by_handle, view)
            assert (outcome.state, outcome.accepted, outcome.landed) == (FILLING, view.accepted, view.landed)


def test_landed_bytes_never_pass_the_length_and_never_decrease():
    for kind, by_handle, view in reachable():
        outcome = decide(kind, by_handle, view)
        if view.present:
            assert view.landed <= outcome.landed <= view.block_length
        if kind != Kind.LAND:
            assert outcome.accepted >= view.accepted or outcome.event == Event.ADMIT


def test_read_is_answered_with_bytes_only_where_they_have_landed():
    for kind, by_handle, view in reachable():
        if kind == Kind.READ and decide(kind, by_handle, view).status == Status.OK:
            end = view.offset + view.length if view.length else view.block_length
            assert view.offset < end <= view.landed or view.state == SEALED and end <= view.block_length


@pytest.mark.parametrize(("kind", "by_handle"), [(Kind.LOOKUP, 0), (Kind.MATCH, 0), (Kind.READ, 0), (Kind.READ, 1)])
def test_hit_gives_a_sealed_block_the_age_of_a_hit(kind, by_handle):
    ages = [decide(kind, bool(by_handle), DONE._replace(age=age)).age for age in range(4)]
    assert ages == [AGE_ON_HIT if age < AGE_ON_HIT else age for age in range(4)]


@pytest.mark.parametrize("view", [HALF, GOING])
@pytest.mark.parametrize("kind", [Kind.LOOKUP, Kind.MATCH, Kind.READ])
def test_block_that_is_not_sealed_keeps_its_age(kind, view):
    assert decide(kind, False, view._replace(age=1)).age == 1


def test_match_behind_a_miss_keeps_the_age():
    assert decide(Kind.MATCH, False, DONE._replace(age=0, chained=False)).age == 0


@pytest.mark.parametrize(("klass", "age"), list(enumerate(AGE_ON_INSERT)))
def test_granted_block_starts_empty_at_the_age_of_its_class(klass, age):
    outcome = decide(Kind.PUT_START, False, ABSENT._replace(klass=klass, accepted=3, landed=3, age=2))
    assert outcome[1:] == (FILLING, Status.GRANTED, 0, 0, age)


def test_write_announces_its_beats_and_landing_makes_them_readable():
    wrote = decide(Kind.WRITE, True, HALF._replace(accepted=2, landed=2, offset=2, length=2))
    assert (wrote.accepted, wrote.landed) == (4, 2)
    landed = decide(Kind.LAND, True, HALF._replace(accepted=4, landed=2, offset=2, length=2))
    assert (landed.accepted, landed.landed) == (4, 4)


def test_payload_of_a_wrong_length_lands_nothing_and_takes_the_watermark_back():
    outcome = decide(Kind.LAND, True, HALF._replace(offset=2, length=1, whole=False))
    assert outcome[1:5] == (FILLING, Status.BAD_REQUEST, 2, 2)


def test_write_behind_a_broken_one_lands_nothing():
    outcome = decide(Kind.LAND, True, HALF._replace(accepted=4, landed=0, offset=2, length=2))
    assert outcome[1:5] == (FILLING, Status.WRITE_ORDER, 0, 0)


@pytest.mark.parametrize("kind", [Kind.ANSWER, Kind.RETIRE_MODEL])
def test_operation_that_meets_no_block_is_refused_by_name(kind):
    with pytest.raises(ValueError, match=kind.name):
        classify(kind, ABSENT)


# Sequences.

WRITES = st.tuples(st.integers(0, 8), st.integers(1, 4), st.booleans())


@settings(deadline=None)
@given(st.integers(1, 8), st.lists(st.one_of(WRITES, st.just("land")), max_size=40))
def test_accepted_is_never_below_landed_and_landing_is_gapless(block_length, operations):
    """Up to two WRITEs of one writer are under way; they land in their order."""
    view = HALF._replace(block_length=block_length, accepted=0, landed=0)
    under_way, readable = [], 0
    for operation in [*operations, "land", "land"]:
        if operation == "land" or len(under_way) == 2:
            if not under_way:
                continue
            offset, length, whole = under_way.pop(0)
            outcome = decide(Kind.LAND, True, view._replace(offset=offset, length=length, whole=whole))
            if whole and offset == readable:
                readable += length
        else:
            offset, length, whole = operation
            outcome = decide(Kind.WRITE, True, view._replace(offset=offset, length=length))
            if outcome.status == Status.OK:
                under_way.append(operation)
        assert outcome.state == FILLING
        assert outcome.landed == readable
        assert outcome.landed <= outcome.accepted <= block_length
        view = view._replace(accepted=outcome.accepted, landed=outcome.landed)
    # Nothing is under way now, so a writer that goes on at the watermark completes the block.
    rest = view._replace(offset=view.landed, length=block_length - view.landed)
    assert view.accepted == view.landed
    assert rest.length == 0 or decide(Kind.WRITE, True, rest).status == Status.OK
