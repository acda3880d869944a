"""Write-once coherence against the state table of the architecture, written down here a second time as data."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvnode.models.spec.coherence import TRANSITIONS, Event, View, classify, decide
from kvnode.models.spec.enums import BLOCKLESS_KINDS, SWEEPER_KINDS, Kind, State, Status
from kvnode.models.spec.policy import AGE_ON_HIT, AGE_ON_INSERT

FREE, FILLING, SEALED, RETIRING = State
BLOCK_BEATS = 4

ABSENT = View(klass=1, room=True, quota=True, chained=True, whole=True)
#: A block of 4 beats with one writer: 3 were accepted, 2 have landed, and the operation comes from its writer.
HALF = ABSENT._replace(
    present=True, state=FILLING, owner=True, block_length=BLOCK_BEATS, end=BLOCK_BEATS, accepted=3, landed=2,
    others_done=True, shares=True, crc_right=True, age=1,
)  # fmt: skip
WHOLE = HALF._replace(accepted=BLOCK_BEATS, landed=BLOCK_BEATS)
#: The second of two members, whose part is beats 2 and 3, of which one has landed; the first is not done.
SECOND = HALF._replace(base=2, accepted=3, landed=3, others_done=False)
SECOND_WHOLE = SECOND._replace(accepted=BLOCK_BEATS, landed=BLOCK_BEATS)
DONE = ABSENT._replace(present=True, state=SEALED, block_length=BLOCK_BEATS, age=1)
GOING = DONE._replace(state=RETIRING)
#: How the sweeper sees a slot.
SWEPT = {"present": False, "room": False, "quota": False}
MOVED = {"refused": Status.STALE_EPOCH}

#: The rows of section 4: (what happens, the view, the operation, by handle, next state, answer).
ROWS = [
    ("start with room", ABSENT, Kind.PUT_START, False, FILLING, "GRANTED"),
    ("start without room", ABSENT._replace(room=False), Kind.PUT_START, False, FREE, "NO_SPACE"),
    ("start above the quota", ABSENT._replace(quota=False), Kind.PUT_START, False, FREE, "QUOTA"),
    ("start without room or quota", ABSENT._replace(**SWEPT), Kind.PUT_START, False, FREE, "NO_SPACE"),
    ("start that the session refuses", ABSENT._replace(**MOVED), Kind.PUT_START, False, RETIRING, "STALE_EPOCH"),
    (
        "start that the session refuses, without room",
        ABSENT._replace(**SWEPT, refused=Status.WRITE_ORDER),
        Kind.PUT_START,
        False,
        FREE,
        "WRITE_ORDER",
    ),
    ("start of a key being written", HALF._replace(owner=False), Kind.PUT_START, False, FILLING, "BUSY"),
    ("start of a key that the same port writes", HALF, Kind.PUT_START, False, FILLING, "BUSY"),
    ("start by a member", HALF._replace(owner=False, joins=True), Kind.PUT_START, False, FILLING, "GRANTED"),
    (
        "start by a member that the session refuses",
        HALF._replace(joins=True, refused=Status.BUSY),
        Kind.PUT_START,
        False,
        FILLING,
        "BUSY",
    ),
    ("write at the watermark", HALF._replace(offset=3, length=1), Kind.WRITE, True, FILLING, "OK"),
    ("write before it", HALF._replace(offset=2, length=1), Kind.WRITE, True, FILLING, "WRITE_ORDER"),
    ("write behind it", HALF._replace(accepted=2, offset=3, length=1), Kind.WRITE, True, FILLING, "WRITE_ORDER"),
    ("write past the end", HALF._replace(offset=3, length=2), Kind.WRITE, True, FILLING, "WRITE_ORDER"),
    ("write by another", HALF._replace(owner=False, offset=3, length=1), Kind.WRITE, True, FILLING, "BUSY"),
    ("write into another's part", SECOND._replace(accepted=2, length=2), Kind.WRITE, True, FILLING, "WRITE_ORDER"),
    ("write past the own part", HALF._replace(end=3, offset=3, length=1), Kind.WRITE, True, FILLING, "WRITE_ORDER"),
    ("write too late", HALF._replace(late=True, offset=3, length=1), Kind.WRITE, True, FILLING, "STALE_EPOCH"),
    ("last beat landed", HALF._replace(offset=2, length=1), Kind.LAND, True, FILLING, "OK"),
    ("payload of another length", HALF._replace(whole=False, offset=2), Kind.LAND, True, FILLING, "BAD_REQUEST"),
    ("payload behind such a one", HALF._replace(landed=1, offset=2), Kind.LAND, True, FILLING, "WRITE_ORDER"),
    ("read below the watermark", HALF._replace(offset=1, length=1), Kind.READ, True, FILLING, "OK"),
    ("read up to the watermark", HALF._replace(offset=0, length=2), Kind.READ, False, FILLING, "OK"),
    ("read past the watermark", HALF._replace(offset=2, length=1), Kind.READ, True, FILLING, "NOT_READY"),
    ("read across the watermark", HALF._replace(offset=1, length=2), Kind.READ, True, FILLING, "NOT_READY"),
    ("read to the end", HALF, Kind.READ, False, FILLING, "NOT_READY"),
    ("read by another", HALF._replace(owner=False, length=1), Kind.READ, False, FILLING, "NOT_READY"),
    ("read of the own part", SECOND._replace(offset=2, length=1), Kind.READ, True, FILLING, "OK"),
    ("read of another's part", SECOND._replace(offset=1, length=1), Kind.READ, True, FILLING, "NOT_READY"),
    ("read of both parts", SECOND_WHOLE, Kind.READ, True, FILLING, "NOT_READY"),
    ("look at a key being written", HALF, Kind.LOOKUP, False, FILLING, "NOT_READY"),
    ("match of a key being written", HALF, Kind.MATCH, False, FILLING, "NOT_READY"),
    ("lease of a key being written", HALF._replace(locks=True, lockable=True), Kind.LEASE, False, FILLING, "NOT_READY"),
    ("end, complete", WHOLE, Kind.PUT_END, True, SEALED, "SEALED"),
    ("end of a member, others missing", SECOND_WHOLE, Kind.PUT_END, True, FILLING, "OK"),
    ("end of the last member", SECOND_WHOLE._replace(others_done=True), Kind.PUT_END, True, SEALED, "SEALED"),
    ("end of a member again", SECOND_WHOLE._replace(done=True), Kind.PUT_END, True, FILLING, "OK"),
    ("end with other shares", WHOLE._replace(shares=False), Kind.PUT_END, True, FILLING, "BAD_REQUEST"),
    ("end, bytes missing", HALF, Kind.PUT_END, True, RETIRING, "INCOMPLETE"),
    ("end, bytes not landed", WHOLE._replace(landed=3), Kind.PUT_END, True, RETIRING, "INCOMPLETE"),
    ("end of a member, bytes missing", SECOND, Kind.PUT_END, True, RETIRING, "INCOMPLETE"),
    ("end, CRC wrong", WHOLE._replace(crc_right=False), Kind.PUT_END, True, RETIRING, "CHECKSUM_MISMATCH"),
    (
        "end of a member, CRC wrong",
        SECOND_WHOLE._replace(crc_right=False),
        Kind.PUT_END,
        True,
        RETIRING,
        "CHECKSUM_MISMATCH",
    ),
    ("end, bytes missing and CRC wrong", HALF._replace(crc_right=False), Kind.PUT_END, True, RETIRING, "INCOMPLETE"),
    ("end by another", WHOLE._replace(owner=False), Kind.PUT_END, True, FILLING, "BUSY"),
    ("end too late", WHOLE._replace(late=True), Kind.PUT_END, True, FILLING, "STALE_EPOCH"),
    ("revoke", HALF, Kind.PUT_REVOKE, True, RETIRING, "OK"),
    ("revoke by another", HALF._replace(owner=False), Kind.PUT_REVOKE, True, FILLING, "BUSY"),
    ("drop of a block being written", HALF, Kind.DROP, False, FILLING, "BUSY"),
    ("release of a block being written", HALF, Kind.RELEASE, True, FILLING, "OK"),
    ("fill that nobody will complete", HALF._replace(**SWEPT, dead=True), Kind.EXPIRE_FILL, False, RETIRING, "OK"),
    ("fill that goes on", HALF._replace(**SWEPT), Kind.EXPIRE_FILL, False, FILLING, "OK"),
    ("fill row of a sealed block", DONE._replace(**SWEPT, dead=True), Kind.EXPIRE_FILL, False, SEALED, "OK"),
    ("model of a block being written retired", HALF._replace(**SWEPT, dead=True), Kind.VISIT, False, RETIRING, "OK"),
    ("start of a sealed key", DONE, Kind.PUT_START, False, SEALED, "EXISTS"),
    ("write to a sealed block", DONE._replace(offset=0, length=1), Kind.WRITE, True, SEALED, "WRITE_ONCE"),
    ("write to a sealed block by its writer", DONE._replace(owner=True), Kind.WRITE, True, SEALED, "WRITE_ONCE"),
    ("read of a sealed block", DONE, Kind.READ, False, SEALED, "OK"),
    ("read of part of a sealed block", DONE._replace(offset=3, length=1), Kind.READ, True, SEALED, "OK"),
    ("read beyond a sealed block", DONE._replace(offset=3, length=2), Kind.READ, True, SEALED, "BAD_REQUEST"),
    ("read from the end of a sealed block", DONE._replace(offset=4), Kind.READ, True, SEALED, "BAD_REQUEST"),
    ("read beyond a block being written", HALF._replace(offset=3, length=2), Kind.READ, True, FILLING, "BAD_REQUEST"),
    ("look at a sealed key", DONE, Kind.LOOKUP, False, SEALED, "HIT"),
    ("match of a sealed key", DONE, Kind.MATCH, False, SEALED, "HIT"),
    ("match of a sealed key behind a miss", DONE._replace(chained=False), Kind.MATCH, False, SEALED, "MISS"),
    (
        "match of a sealed key before its number is committed",
        DONE._replace(refused=Status.NOT_READY),
        Kind.MATCH,
        False,
        SEALED,
        "NOT_READY",
    ),
    ("lookup-and-lock", DONE._replace(locks=True, lockable=True), Kind.LOOKUP, False, SEALED, "HIT"),
    ("lease", DONE._replace(locks=True, lockable=True), Kind.LEASE, True, SEALED, "HIT"),
    ("lease when there are no more", DONE._replace(locks=True), Kind.LEASE, False, SEALED, "QUOTA"),
    ("release", DONE._replace(lease=True, leased=True), Kind.RELEASE, True, SEALED, "OK"),
    ("release again", DONE, Kind.RELEASE, True, SEALED, "OK"),
    ("lease that is over", DONE._replace(**SWEPT, lease=True, leased=True), Kind.EXPIRE_LEASE, False, SEALED, "OK"),
    ("lease that is not over", DONE._replace(**SWEPT, leased=True), Kind.EXPIRE_LEASE, False, SEALED, "OK"),
    ("end of a sealed block", DONE, Kind.PUT_END, True, SEALED, "SEALED"),
    ("revoke of a sealed block", DONE, Kind.PUT_REVOKE, True, SEALED, "WRITE_ONCE"),
    ("drop", DONE, Kind.DROP, False, RETIRING, "OK"),
    ("drop of a leased block", DONE._replace(leased=True), Kind.DROP, False, SEALED, "BUSY"),
    ("drop that the session refuses", DONE._replace(**MOVED), Kind.DROP, False, SEALED, "STALE_EPOCH"),
    ("bytes are damaged", DONE._replace(**SWEPT), Kind.POISON, False, SEALED, "OK"),
    ("bytes of a free slot are damaged", ABSENT._replace(**SWEPT), Kind.POISON, False, FREE, "OK"),
    ("read of a poisoned block", DONE._replace(poisoned=True), Kind.READ, False, RETIRING, "POISONED"),
    ("match of a poisoned block", DONE._replace(poisoned=True), Kind.MATCH, False, RETIRING, "POISONED"),
    ("look at a poisoned block", DONE._replace(poisoned=True), Kind.LOOKUP, False, RETIRING, "POISONED"),
    (
        "read of a poisoned block that is leased",
        DONE._replace(poisoned=True, leased=True),
        Kind.READ,
        True,
        SEALED,
        "POISONED",
    ),
    (
        "lease of a poisoned block",
        DONE._replace(poisoned=True, locks=True, lockable=True),
        Kind.LEASE,
        False,
        RETIRING,
        "POISONED",
    ),
    ("model retired", DONE._replace(**SWEPT, dead=True, age=3), Kind.VISIT, False, RETIRING, "OK"),
    ("model retired, leased", DONE._replace(**SWEPT, dead=True, leased=True), Kind.VISIT, False, SEALED, "OK"),
    ("eviction", DONE._replace(**SWEPT, low=True, age=0), Kind.VISIT, False, RETIRING, "OK"),
    ("visit of a leased block", DONE._replace(**SWEPT, low=True, age=0, leased=True), Kind.VISIT, False, SEALED, "OK"),
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
    ("patrol of a dead block", DONE._replace(**SWEPT, dead=True, age=3), Kind.PATROL, False, RETIRING, "OK"),
    ("patrol of a dead leased block", DONE._replace(**SWEPT, dead=True, leased=True), Kind.PATROL, False, SEALED, "OK"),
    ("patrol of a dead half block", HALF._replace(**SWEPT, dead=True), Kind.PATROL, False, RETIRING, "OK"),
    ("patrol of a retiring block", GOING._replace(**SWEPT, dead=True), Kind.PATROL, False, RETIRING, "OK"),
    ("patrol of a free slot", ABSENT._replace(**SWEPT, dead=True), Kind.PATROL, False, FREE, "OK"),
    ("no transfer holds the slot", GOING._replace(**SWEPT), Kind.REAP, False, FREE, "OK"),
    ("start of a retiring key", GOING, Kind.PUT_START, False, RETIRING, "BUSY"),
    ("look at a retiring key", GOING, Kind.LOOKUP, False, RETIRING, "MISS"),
    ("match of a retiring key", GOING, Kind.MATCH, False, RETIRING, "MISS"),
    ("lease of a retiring key", GOING._replace(locks=True, lockable=True), Kind.LEASE, False, RETIRING, "MISS"),
    ("read of a retiring key", GOING, Kind.READ, False, RETIRING, "MISS"),
    ("drop of a retiring key", GOING, Kind.DROP, False, RETIRING, "MISS"),
    ("look at an absent key", ABSENT, Kind.LOOKUP, False, FREE, "MISS"),
    ("match of an absent key", ABSENT, Kind.MATCH, False, FREE, "MISS"),
    ("lease of an absent key", ABSENT._replace(locks=True, lockable=True), Kind.LEASE, False, FREE, "MISS"),
    ("read of an absent key", ABSENT, Kind.READ, False, FREE, "MISS"),
    ("read of an absent key too early", ABSENT._replace(refused=Status.NOT_READY), Kind.READ, False, FREE, "NOT_READY"),
    ("drop of an absent key", ABSENT, Kind.DROP, False, FREE, "MISS"),
]


@pytest.mark.parametrize(
    ("view", "kind", "by_handle", "state", "answer"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_row_of_the_state_table(view, kind, by_handle, state, answer):
    outcome = decide(kind, by_handle, view)
    assert (outcome.state, outcome.status) == (state, Status[answer])


MOVES = {
    (FREE, FILLING),
    (FREE, RETIRING),
    (FILLING, SEALED),
    (FILLING, RETIRING),
    (SEALED, RETIRING),
    (RETIRING, FREE),
}


def test_rows_above_reach_every_next_state_of_the_architecture():
    moves = {(view.state, state) for _, view, _, _, state, _ in ROWS}
    assert moves == MOVES | {(state, state) for state in State}


def test_table_allows_no_other_move():
    # From FREE to RETIRING goes what was granted before the session refused it.
    assert {(before, after) for (before, _), (after, _) in TRANSITIONS.items() if before != after} == MOVES
    assert [pair for pair, (after, _) in TRANSITIONS.items() if pair[0] == FREE and after == RETIRING] == [
        (FREE, Event.ADMIT_REFUSED)
    ]


def test_nothing_leads_back_to_writing_and_one_event_seals():
    assert {pair for pair, (after, _) in TRANSITIONS.items() if after == FILLING and pair[0] != FILLING} == {
        (FREE, Event.ADMIT)
    }
    assert {pair for pair, (after, _) in TRANSITIONS.items() if after == SEALED and pair[0] != SEALED} == {
        (FILLING, Event.FINISH)
    }


# Every view that can be met.

ALWAYS_BY_HANDLE = {Kind.WRITE, Kind.LAND, Kind.PUT_END, Kind.PUT_REVOKE, Kind.RELEASE}
BY_EITHER = {Kind.READ, Kind.DROP, Kind.LEASE}
NEVER_BY_HANDLE = {Kind.LOOKUP, Kind.MATCH, Kind.PUT_START}
OF_PORTS = ALWAYS_BY_HANDLE | BY_EITHER | NEVER_BY_HANDLE
WITH_SESSION = BY_EITHER | NEVER_BY_HANDLE
BITS = (False, True)
BEATS = range(4)

#: What decides, apart from presence and state, which event an operation is.
ASKED = {
    Kind.LOOKUP: {"locks", "lockable", "leased", "poisoned", "refused"},
    Kind.MATCH: {"locks", "lockable", "leased", "poisoned", "refused", "chained"},
    Kind.LEASE: {"locks", "lockable", "leased", "poisoned", "refused"},
    Kind.READ: {"owner", "offset", "length", "block_length", "base", "landed", "leased", "poisoned", "refused"},
    Kind.PUT_START: {"room", "quota", "joins", "leased", "poisoned", "refused"},
    Kind.WRITE: {"owner", "late", "offset", "length", "accepted", "end"},
    Kind.LAND: {"whole", "offset", "landed"},
    Kind.PUT_END: {"owner", "late", "shares", "done", "landed", "end", "crc_right", "others_done"},
    Kind.PUT_REVOKE: {"owner"},
    Kind.DROP: {"leased", "refused"},
    Kind.RELEASE: {"lease"},
    Kind.VISIT: {"low", "dead", "leased", "age", "klass"},
    Kind.PATROL: {"dead", "leased"},
    Kind.REAP: set(),
    Kind.EXPIRE_FILL: {"dead"},
    Kind.EXPIRE_LEASE: {"lease"},
    Kind.POISON: set(),
}
FLAGS = [name for name, value in View()._asdict().items() if type(value) is bool and name != "present"]


def handles(kind):
    """Whether an operation of this kind can come by key, by handle."""
    return [by_handle for by_handle in BITS if kind not in (NEVER_BY_HANDLE if by_handle else ALWAYS_BY_HANDLE)]


def states_of(kind, by_handle):
    """States in which a block can be reached: a handle reaches a FILLING or a SEALED one, a key also a RETIRING one.

    A LAND meets only a block that is still being written: what leaves waits for it. The sweeper reaps what is RETIRING.
    """
    if kind == Kind.LAND:
        return [FILLING]
    if kind in SWEEPER_KINDS:
        return [RETIRING] if kind == Kind.REAP else list(State)
    return [FILLING, SEALED] if by_handle else [FILLING, SEALED, RETIRING]


def possible(kind, view):
    """Only sealed blocks have leases or poison, no lease is held of a block without, parts are done when all landed."""
    sealed, filling = view.state == SEALED, view.state == FILLING
    return (
        (sealed or not (view.leased or view.poisoned))
        and (view.leased or not view.lease)
        and (filling or not (view.owner or view.joins or view.late or view.done))
        and (not view.done or view.landed == view.end)
        and not (view.joins and view.owner)
        and (kind != Kind.LEASE or view.locks)
        and (view.refused == Status.OK or kind in WITH_SESSION)
        and (kind != Kind.LAND or (view.length and view.base <= view.offset and view.offset + view.length <= view.end))
    )


#: (block's beats, base, end) of a member's part: alone, the first and the second of two.
PARTS = [(1, 0, 1), (2, 0, 2), (3, 0, 3), (2, 0, 1), (2, 1, 2), (4, 0, 2), (4, 2, 4)]


def reachable():
    """(kind, by handle, view) of all that can be met with blocks of up to 4 beats, as far as it is asked for."""
    for kind, asked in ASKED.items():
        flags = [name for name in FLAGS if name in asked or name == "leased" and "lease" in asked]
        refusals = (Status.OK, Status.STALE_EPOCH, Status.NOT_READY) if kind in WITH_SESSION else (Status.OK,)
        offsets = BEATS if "offset" in asked else (0,)
        lengths = BEATS if "length" in asked or kind == Kind.LAND else (0,)
        ages = itertools.product(range(4), range(4)) if "age" in asked or kind == Kind.PUT_START else ((1, 1),)
        shapes = list(itertools.product(refusals, offsets, lengths, ages, itertools.product(BITS, repeat=len(flags))))
        for by_handle in handles(kind) if kind in OF_PORTS else (False,):
            for state in ([] if kind in SWEEPER_KINDS else [FREE]) + states_of(kind, by_handle):
                present = kind in OF_PORTS and state != FREE
                parts = [(0, 0, 0, 0, 0)] if state == FREE else [(b, 0, 0, 0, 0) for b in (1, 2, 3)]
                if state == FILLING:
                    parts = [
                        (*part, a, w)
                        for part in PARTS
                        for a in range(part[1], part[2] + 1)
                        for w in range(part[1], a + 1)
                    ]
                for part, (refused, offset, length, (age, klass), bits) in itertools.product(parts, shapes):
                    block, base, end, accepted, landed = part
                    view = View(
                        present=present, state=state, offset=offset, length=length, block_length=block, base=base,
                        end=end, accepted=accepted, landed=landed, age=age, klass=klass, refused=refused,
                        **dict(zip(flags, bits)),
                    )  # fmt: skip
                    if possible(kind, view):
                        yield kind, by_handle, view


REACHABLE = list(reachable())
STALE_HANDLES = [(k, h, v) for k, h, v in REACHABLE if h and not v.present and v.refused == Status.OK]
MET = [(k, h, v, decide(k, h, v)) for k, h, v in REACHABLE]
IN_PLACE = ("accepted", "landed", "age")


def kept(view, outcome):
    """Nothing of the block has changed."""
    return all(getattr(outcome, name) == getattr(view, name) for name in ("state", *IN_PLACE))


def test_every_kind_meets_a_block_or_none():
    assert set(ASKED) == OF_PORTS | set(SWEEPER_KINDS)
    assert set(ASKED) | set(BLOCKLESS_KINDS) == set(Kind) and not set(ASKED) & set(BLOCKLESS_KINDS)


def test_every_view_that_can_be_met_has_its_pair_in_the_table():
    met, missing = set(), set()
    for kind, by_handle, view in REACHABLE:
        if by_handle and not view.present and view.refused == Status.OK and kind != Kind.RELEASE:
            continue
        pair = view.state, classify(kind, view)
        met.add(pair)
        if pair not in TRANSITIONS:
            missing.add((kind, *pair))
    assert missing == set()
    assert set(TRANSITIONS) - met == set(), "pairs that nothing reaches"


@st.composite
def any_view(draw):
    """(kind, by handle, view) of random fields that keep the rules of what can be reached."""
    kind = draw(st.sampled_from(list(ASKED)))
    by_handle = kind in OF_PORTS and draw(st.sampled_from(handles(kind)))
    states = states_of(kind, by_handle) + ([FREE] if kind in OF_PORTS else [])
    state = draw(st.sampled_from(states))
    part = draw(st.tuples(*[st.integers(0, 8)] * 5))
    base, landed, accepted, end, block = sorted(part)
    fields = {name: draw(st.booleans()) for name in FLAGS} | {
        "present": kind in OF_PORTS and state != FREE, "state": state, "offset": draw(st.integers(0, 9)),
        "length": draw(st.integers(0, 9)), "block_length": block, "base": base, "end": end, "accepted": accepted,
        "landed": landed, "age": draw(st.integers(0, 3)), "klass": draw(st.integers(0, 3)),
        "refused": draw(st.sampled_from(Status)) if kind in WITH_SESSION else Status.OK,
    }  # fmt: skip
    if state != SEALED:
        fields |= {"leased": False, "poisoned": False}
    if state != FILLING:
        fields |= dict.fromkeys(("owner", "joins", "late", "done"), False)
    fields["lease"] &= fields["leased"]
    fields["done"] &= landed == end
    fields["joins"] &= not fields["owner"]
    fields["locks"] |= kind == Kind.LEASE
    return kind, by_handle, View(**fields)


@settings(deadline=None, max_examples=500)
@given(any_view())
def test_no_view_of_random_fields_is_without_an_answer(drawn):
    kind, by_handle, view = drawn
    outcome = decide(kind, by_handle, view)
    assert outcome.status in Status and outcome.state in State
    assert view.refused == Status.OK or outcome.status == view.refused


@settings(deadline=None, max_examples=500)
@given(any_view(), any_view())
def test_nothing_else_than_what_is_asked_decides(drawn, other):
    kind, _, view = drawn
    changes = other[2]._asdict()
    for name in {"present", "state", "refused"} | ASKED[kind]:
        del changes[name]
    assert classify(kind, view._replace(**changes)) == classify(kind, view)


def test_handle_that_reaches_nothing_is_stale_and_changes_nothing():
    assert {kind for kind, _, _ in STALE_HANDLES} == (ALWAYS_BY_HANDLE | BY_EITHER) - {Kind.LAND}
    # What is not there any more has been released: the table says the same.
    assert TRANSITIONS[FREE, Event.UNLOCK_AGAIN] == (FREE, Status.OK)
    for kind, by_handle, view in STALE_HANDLES:
        outcome = decide(kind, by_handle, view)
        assert outcome.status == (Status.OK if kind == Kind.RELEASE else Status.STALE_HANDLE)
        assert outcome.event == Event.ANSWER and outcome.state == FREE and kept(view, outcome)


def test_what_the_session_refuses_is_answered_with_its_status_and_changes_nothing():
    refused = [item for item in MET if item[2].refused != Status.OK]
    assert {kind for kind, _, _, _ in refused} == WITH_SESSION
    for kind, _, view, outcome in refused:
        assert outcome.status == view.refused
        # A slot that an earlier stage has granted must be taken back.
        granted = kind == Kind.PUT_START and not view.present and view.room and view.quota
        assert outcome.event == (Event.ADMIT_REFUSED if granted else Event.REFUSE)
        assert kept(view._replace(state=RETIRING) if granted else view, outcome)


def test_late_writer_is_refused_and_changes_nothing():
    for _, _, view, outcome in MET:
        if view.late:
            assert outcome.status == Status.STALE_EPOCH and kept(view, outcome)


REFUSALS = {
    "MISS", "EXISTS", "BUSY", "NOT_READY", "NO_SPACE", "QUOTA", "WRITE_ONCE", "WRITE_ORDER", "STALE_HANDLE",
    "STALE_EPOCH", "BAD_REQUEST",
}  # fmt: skip
#: These say no and take the block with them.
FAILURES = {"INCOMPLETE", "CHECKSUM_MISMATCH", "POISONED"}


def test_refusals_change_nothing():
    seen = set()
    for kind, _, view, outcome in MET:
        seen.add(outcome.status.name)
        if outcome.status.name in REFUSALS and kind != Kind.LAND and outcome.event != Event.ADMIT_REFUSED:
            assert kept(view, outcome)
        elif outcome.status.name in FAILURES:
            assert outcome.state == (SEALED if outcome.event == Event.SPOILED_HELD else RETIRING)
    assert seen == REFUSALS | FAILURES | {"OK", "HIT", "GRANTED", "SEALED"}


def test_sealed_block_changes_nothing_but_its_age_until_it_retires():
    for _, _, view, outcome in MET:
        if view.state == SEALED:
            assert outcome.state in (SEALED, RETIRING)
            assert (outcome.accepted, outcome.landed) == (view.accepted, view.landed)


def test_block_is_sealed_only_when_all_members_are_done_and_their_bytes_are_right():
    sealed = [item for item in MET if item[3].state == SEALED and item[2].state != SEALED]
    assert sealed
    for kind, by_handle, view, outcome in sealed:
        assert (kind, by_handle, view.state, outcome.status) == (Kind.PUT_END, True, FILLING, Status.SEALED)
        assert view.owner and view.shares and view.others_done and view.landed == view.end and view.crc_right
        assert not view.late and not view.done


def test_leased_block_leaves_in_no_way():
    for _, _, view, outcome in MET:
        if view.leased:
            assert outcome.state == SEALED


def test_lease_is_granted_with_a_hit_and_only_of_a_sound_sealed_block():
    for kind, _, view, outcome in MET:
        if outcome.event == Event.LOCK:
            assert kind in (Kind.LOOKUP, Kind.MATCH, Kind.LEASE) and outcome.status == Status.HIT
            assert view.state == SEALED and view.locks and view.lockable and not view.poisoned
        elif view.locks:
            assert outcome.status != Status.HIT, "found without the lease that was asked for"


def test_damaged_bytes_are_given_to_nobody():
    for kind, _, view, outcome in MET:
        if view.poisoned and kind in OF_PORTS:
            assert outcome.status not in (Status.OK, Status.HIT)


def test_retiring_block_never_comes_back():
    for kind, _, view, outcome in MET:
        if view.state == RETIRING:
            assert outcome.state == (FREE if kind == Kind.REAP else RETIRING)
            assert outcome.status not in (Status.HIT, Status.EXISTS, Status.SEALED, Status.GRANTED)
            assert outcome.status != Status.OK or kind in SWEEPER_KINDS


def test_patrol_takes_what_is_dead_and_not_leased_and_changes_nothing_else():
    for kind, _, view, outcome in MET:
        if kind == Kind.PATROL:
            taken = view.dead and view.state in (FILLING, SEALED) and not view.leased
            assert kept(view._replace(state=RETIRING if taken else view.state), outcome)


def test_deadline_takes_only_what_is_being_written():
    for kind, _, view, outcome in MET:
        if kind == Kind.EXPIRE_FILL:
            taken = view.dead and view.state == FILLING
            assert kept(view._replace(state=RETIRING if taken else view.state), outcome)


def test_end_of_a_lease_and_poison_leave_the_block_as_it_is():
    for kind, _, view, outcome in MET:
        if kind in (Kind.RELEASE, Kind.EXPIRE_LEASE, Kind.POISON):
            assert kept(view, outcome)


def test_lease_ends_where_it_is_held_and_nowhere_else():
    ends = {Kind.RELEASE: Event.UNLOCK, Kind.EXPIRE_LEASE: Event.EXPIRE_LEASE}
    for kind, _, view, outcome in MET:
        assert (outcome.event in ends.values()) == (kind in ends and view.lease)
        assert not view.lease or outcome.event == ends[kind]


def test_clock_ages_and_evicts_only_while_slots_are_short():
    for kind, _, view, outcome in MET:
        if kind == Kind.VISIT and not view.dead and not view.low:
            assert outcome.event == Event.KEEP and kept(view, outcome)


def test_only_its_writer_a_member_that_joins_or_the_sweeper_moves_a_block_being_written():
    for kind, _, view, outcome in MET:
        if view.state == FILLING and not view.owner and kind in OF_PORTS - {Kind.LAND}:
            assert kept(view, outcome) or outcome.event == Event.JOIN


def test_landed_bytes_never_pass_the_part_and_never_decrease():
    for kind, _, view, outcome in MET:
        if view.present and outcome.event != Event.JOIN:
            assert view.landed <= outcome.landed <= max(view.end, view.landed)
        if kind != Kind.LAND:
            assert outcome.accepted >= view.accepted or outcome.event in (Event.ADMIT, Event.JOIN)


def test_read_is_answered_with_bytes_only_where_they_have_landed():
    for kind, _, view, outcome in MET:
        if kind == Kind.READ and outcome.status == Status.OK:
            end = view.offset + view.length if view.length else view.block_length
            assert view.offset < end <= view.block_length
            assert view.state == SEALED or view.base <= view.offset and end <= view.landed and view.owner


@pytest.mark.parametrize("locks", BITS)
@pytest.mark.parametrize(
    ("kind", "by_handle"), [(Kind.LOOKUP, 0), (Kind.MATCH, 0), (Kind.READ, 0), (Kind.READ, 1), (Kind.LEASE, 1)]
)
def test_hit_gives_a_sealed_block_the_age_of_a_hit(kind, by_handle, locks):
    view = DONE._replace(locks=locks, lockable=True)
    ages = [decide(kind, bool(by_handle), view._replace(age=age)).age for age in range(4)]
    assert ages == [AGE_ON_HIT if age < AGE_ON_HIT else age for age in range(4)]


@pytest.mark.parametrize("view", [HALF, GOING])
@pytest.mark.parametrize("kind", [Kind.LOOKUP, Kind.MATCH, Kind.READ, Kind.LEASE])
def test_block_that_is_not_sealed_keeps_its_age(kind, view):
    assert decide(kind, False, view._replace(age=1)).age == 1


def test_match_behind_a_miss_and_lease_that_is_not_granted_keep_the_age():
    assert decide(Kind.MATCH, False, DONE._replace(age=0, chained=False)).age == 0
    assert decide(Kind.LEASE, False, DONE._replace(age=0, locks=True)).age == 0


@pytest.mark.parametrize(("klass", "age"), list(enumerate(AGE_ON_INSERT)))
def test_granted_block_starts_empty_at_the_age_of_its_class(klass, age):
    outcome = decide(Kind.PUT_START, False, ABSENT._replace(klass=klass, accepted=3, landed=3, age=2))
    assert outcome[1:] == (FILLING, Status.GRANTED, 0, 0, age)


@pytest.mark.parametrize("view", [ABSENT, HALF._replace(owner=False, joins=True, end=0, accepted=0, landed=0)])
def test_member_starts_empty_where_its_part_begins(view):
    outcome = decide(Kind.PUT_START, False, view._replace(offset=6))
    assert outcome[1:5] == (FILLING, Status.GRANTED, 6, 6)


def test_member_that_joins_keeps_the_age_of_the_block():
    assert decide(Kind.PUT_START, False, HALF._replace(joins=True, klass=0, age=1)).age == 1


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


@pytest.mark.parametrize("kind", BLOCKLESS_KINDS)
def test_operation_that_meets_no_block_is_refused_by_name(kind):
    with pytest.raises(ValueError, match=kind.name):
        classify(kind, ABSENT)


# Sequences.

WRITES = st.tuples(st.integers(0, 8), st.integers(1, 4), st.booleans())


@settings(deadline=None)
@given(st.integers(0, 8), st.integers(1, 8), st.lists(st.one_of(WRITES, st.just("land")), max_size=40))
def test_accepted_is_never_below_landed_and_landing_is_gapless(base, extent, operations):
    """Up to two WRITEs of one member are under way; they land in their order. Its part begins at `base`."""
    end = base + extent
    view = HALF._replace(block_length=end + 3, base=base, end=end, accepted=base, landed=base)
    under_way, readable = [], base
    for operation in [*operations, "land", "land"]:
        if operation == "land" or len(under_way) == 2:
            if not under_way:
                continue
            offset, length, whole = under_way.pop(0)
            outcome = decide(Kind.LAND, True, view._replace(offset=offset, length=length, whole=whole))
            if whole and offset == readable:
                readable += length
        else:
            offset, length, whole = base + operation[0], *operation[1:]
            outcome = decide(Kind.WRITE, True, view._replace(offset=offset, length=length))
            if outcome.status == Status.OK:
                under_way.append((offset, length, whole))
        assert outcome.state == FILLING
        assert outcome.landed == readable
        assert base <= outcome.landed <= outcome.accepted <= end
        view = view._replace(accepted=outcome.accepted, landed=outcome.landed)
    # Nothing is under way now, so a writer that goes on at the watermark completes its part.
    rest = view._replace(offset=view.landed, length=end - view.landed)
    assert view.accepted == view.landed
    assert rest.length == 0 or decide(Kind.WRITE, True, rest).status == Status.OK


@settings(deadline=None)
@given(st.integers(1, 8), st.data())
def test_block_is_sealed_by_the_last_of_its_members_in_any_order(members, data):
    """Every member joins, writes its beat and ends, some of them twice; `steps` is the order of all that."""
    steps = data.draw(st.permutations([member for member in range(members) for _ in range(4)]))
    joined, landed, done, granted = set(), set(), set(), False
    block = ABSENT._replace(block_length=members)
    for member in steps:
        view = block._replace(
            present=granted, state=FILLING if granted else FREE, offset=member, length=1, owner=member in joined,
            joins=granted and member not in joined, base=member, end=member + 1, accepted=member + (member in landed),
            landed=member + (member in landed), done=member in done, shares=True, crc_right=True,
            others_done=done | {member} == set(range(members)),
        )  # fmt: skip
        if member not in joined:
            outcome = decide(Kind.PUT_START, False, view)
            assert (outcome.status, outcome.accepted, outcome.landed) == (Status.GRANTED, member, member)
            joined.add(member)
            granted = True
        elif member not in landed:
            assert decide(Kind.WRITE, True, view).accepted == decide(Kind.LAND, True, view).landed == member + 1
            landed.add(member)
        else:
            outcome = decide(Kind.PUT_END, True, view)
            last = len(done) == members - 1 and member not in done
            assert (outcome.state, outcome.status) == ((SEALED, Status.SEALED) if last else (FILLING, Status.OK))
            done.add(member)
            if last:
                return
    pytest.fail("never sealed")
