"""Stories of leases on the golden node: what is found can be kept until it was read."""

import pytest

from kvnode.models.golden.directory import Operation
from kvnode.models.spec.enums import Flag, Kind, Opcode, ResponseFlag
from kvnode.models.spec.messages import HANDLE, NUMBERED

BEAT = 16
#: Ports 3 and 1 own partition 0 with 16 slots and 8 leases.
WRITER, MATE, FOREIGN = 3, 1, 0
SWEEPER, LEASES, TICK_CYCLES = 4, 8, 256
LOCK = {"flags": int(Flag.LEASE)}


def name(answer):
    return answer.status.name


def lease(node, number=1, port=MATE, **fields):
    """The answer to a LEASE of a key that is there."""
    answer = node.ask(port, Opcode.LEASE, digest=node.key(number), **fields)
    assert (name(answer), answer.fields["flags"]) == ("HIT", ResponseFlag.LEASED)
    return answer


def drop(node, number=1):
    return name(node.drop(WRITER, 0, node.key(number)))


def held(node, partition=0):
    return len(node.partitions[partition].leases)


@pytest.fixture
def kept(node):
    """A node with four sealed blocks, numbers 1 to 4."""
    node.put_keys(1, 2, 3, 4)
    return node


# Granting.


@pytest.mark.parametrize("how", ["LEASE", "LEASE by handle", "LOOKUP"])
def test_lease_comes_with_the_handle_that_it_was_asked_for(kept, how):
    if how == "LOOKUP":
        answer = kept.ask(MATE, Opcode.LOOKUP, digest=kept.key(1), **LOCK)
    elif how == "LEASE":
        answer = kept.ask(MATE, Opcode.LEASE, digest=kept.key(1))
    else:
        answer = kept.by_handle(Opcode.LEASE, kept.ask(MATE, Opcode.LOOKUP, digest=kept.key(1)), MATE)
    assert (name(answer), answer.fields["flags"], answer.fields["length"]) == ("HIT", ResponseFlag.LEASED, BEAT)
    assert answer.fields["watermark"] & NUMBERED
    assert held(kept) == 1
    assert kept.by_handle(Opcode.READ, answer, MATE).data == kept.bytes_of(BEAT, 1)
    assert drop(kept) == "BUSY"
    assert name(kept.by_handle(Opcode.RELEASE, answer, MATE)) == "OK"
    assert drop(kept) == "OK"


def test_answer_without_a_lease_has_the_watermark_and_no_flag(kept):
    answer = kept.ask(MATE, Opcode.LOOKUP, digest=kept.key(1))
    assert (answer.fields["flags"], answer.fields["watermark"], held(kept)) == (0, BEAT, 0)


def test_every_lease_of_a_block_counts(kept):
    answers = [lease(kept), lease(kept), lease(kept, port=WRITER)]
    assert len({answer.fields["watermark"] for answer in answers}) == 3
    for answer in answers:
        assert drop(kept) == "BUSY"
        assert name(kept.by_handle(Opcode.RELEASE, answer)) == "OK"
    assert drop(kept) == "OK"


@pytest.mark.parametrize("opcode", [Opcode.LEASE, Opcode.LOOKUP])
def test_absent_block_and_one_being_written_give_no_lease(kept, opcode):
    fields = LOCK if opcode == Opcode.LOOKUP else {}
    kept.start(digest=kept.key(9))
    assert name(kept.ask(MATE, opcode, digest=kept.key(9), **fields)) == "NOT_READY"
    assert name(kept.ask(MATE, opcode, digest=kept.key(8), **fields)) == "MISS"
    assert held(kept) == 0


def test_stale_handle_gives_no_lease(kept):
    answer = kept.read(MATE, 0, kept.key(1))
    assert drop(kept) == "OK"
    assert name(kept.by_handle(Opcode.LEASE, answer)) == "STALE_HANDLE"


def test_no_lease_is_left_when_all_are_held(kept):
    answers = [lease(kept, 1 + number % 4) for number in range(LEASES)]
    answer = kept.ask(MATE, Opcode.LEASE, digest=kept.key(1))
    assert (name(answer), answer.fields["flags"]) == ("QUOTA", 0)
    assert name(kept.ask(MATE, Opcode.LOOKUP, digest=kept.key(1), **LOCK)) == "QUOTA"
    assert name(kept.ask(MATE, Opcode.LOOKUP, digest=kept.key(1))) == "HIT"
    kept.put_keys(1, port=FOREIGN)
    assert name(kept.ask(FOREIGN, Opcode.LEASE, digest=kept.key(1))) == "HIT"
    assert name(kept.by_handle(Opcode.RELEASE, answers[5])) == "OK"
    again = lease(kept)
    assert again.fields["watermark"] not in {answer.fields["watermark"] for answer in answers}


# MATCH.


def match(node, *numbers, **fields):
    return node.match(MATE, 0, node.keys(*numbers), **LOCK | fields)


def handles(answer):
    size = HANDLE.size_bytes
    return [HANDLE.unpack(answer.data[at : at + size]) for at in range(0, len(answer.data), size)]


def test_match_leases_each_leading_block_and_names_their_handles(kept):
    answer = match(kept, 2, 1, 9)
    assert (name(answer), answer.fields["count"], answer.fields["flags"]) == ("HIT", 2, ResponseFlag.LEASED)
    assert answer.fields["length"] == len(answer.data) == 2 * HANDLE.size_bytes
    assert [drop(kept, number) for number in (1, 2, 3)] == ["BUSY", "BUSY", "OK"]
    for number, handle in zip((2, 1), handles(answer)):
        digest = int.from_bytes(HANDLE.pack(**handle), "little")
        assert kept.ask(MATE, Opcode.READ, flags=1, digest=digest).data == kept.bytes_of(BEAT, number)
        assert name(kept.ask(MATE, Opcode.RELEASE, digest=digest)) == "OK"
    assert held(kept) == 0


def test_match_leases_nothing_behind_its_first_miss(kept):
    assert (match(kept, 9, 1).data, held(kept)) == (b"", 0)
    assert match(kept, 1, 9, 2).fields["count"] == 1
    assert held(kept) == 1


def test_match_ends_where_the_leases_do(kept):
    for _ in range(LEASES - 2):
        lease(kept, 4)
    answer = match(kept, 1, 2, 3)
    assert (name(answer), answer.fields["count"], len(answer.data)) == ("HIT", 2, 2 * HANDLE.size_bytes)
    answer = match(kept, 1, 2)
    assert (name(answer), answer.fields["count"], answer.fields["flags"], answer.data) == ("QUOTA", 0, 0, b"")
    assert kept.match(MATE, 0, kept.keys(1, 2, 3)).fields["count"] == 3


def test_match_without_leases_has_no_payload(kept):
    answer = kept.match(MATE, 0, kept.keys(1, 2))
    assert (answer.fields["count"], answer.fields["flags"], answer.data) == (2, 0, b"")


# Keeping.


def test_leased_block_is_not_evicted_and_the_rest_is(kept):
    lease(kept, 2)
    kept.put_keys(*range(100, 140))
    assert kept.reads(1, 2, 3, 4) == ["MISS", "OK", "MISS", "MISS"]


def test_leased_block_outlives_its_time_and_its_model_until_it_is_released(node):
    node.put_keys(1, ttl=1)
    node.put_keys(2, model=1)
    answers = [lease(node), lease(node, 2, model_id=1)]
    node.retire_model(0, 1)
    node.advance(256 * TICK_CYCLES)
    assert node.occupancy() == {"FREE": 14, "SEALED": 2}
    # Nobody finds the block of the retired model, but its lease can be given back.
    assert name(node.read(MATE, 1, node.key(2))) == "MISS"
    for answer in answers:
        assert name(node.by_handle(Opcode.RELEASE, answer)) == "OK"
    node.advance(0)
    assert node.occupancy() == {"FREE": 16}


# Releasing.


def test_release_of_what_is_not_held_is_ok_and_changes_nothing(kept):
    answer, other = lease(kept), lease(kept, 2)
    for _ in range(3):
        assert name(kept.by_handle(Opcode.RELEASE, answer)) == "OK"
        assert held(kept) == 1
    # A lease counts on its own block, under its own number.
    for lease_number in (0, 1, other.fields["watermark"], answer.fields["watermark"] & ~NUMBERED, 0xFFFFFFFF):
        handle = kept.handle_of(answer, lease=lease_number)
        assert name(kept.ask(MATE, Opcode.RELEASE, digest=handle)) == "OK"
        assert held(kept) == 1
    assert (drop(kept), drop(kept, 2)) == ("OK", "BUSY")


def test_release_of_a_lease_whose_row_was_granted_again_does_nothing(kept):
    old = lease(kept)
    assert name(kept.by_handle(Opcode.RELEASE, old)) == "OK"
    new = lease(kept)
    assert name(kept.by_handle(Opcode.RELEASE, old)) == "OK"
    assert (drop(kept), held(kept)) == ("BUSY", 1)
    assert name(kept.by_handle(Opcode.RELEASE, new)) == "OK"
    assert drop(kept) == "OK"


def test_release_all_gives_back_what_the_port_holds_and_nothing_else(kept):
    for number in (1, 1, 2):
        lease(kept, number)
    lease(kept, 3, WRITER)
    assert name(kept.ask(MATE, Opcode.RELEASE_ALL)) == "OK"
    assert held(kept) == 1
    assert [drop(kept, number) for number in (1, 2, 3)] == ["OK", "OK", "BUSY"]
    assert name(kept.ask(MATE, Opcode.LEASE, digest=kept.key(4))) == "HIT"


def test_port_gets_no_lease_while_its_leases_are_being_taken_back(kept):
    kept.operate(Operation(MATE, Kind.RELEASE_ALL))
    where = {"digest": kept.key(1), "members": 1}
    assert kept.operate(Operation(MATE, Kind.LEASE, **where)).status.name == "QUOTA"
    assert kept.operate(Operation(WRITER, Kind.LEASE, **where)).status.name == "HIT"
    # Two looks at every row.
    for look in range(2 * LEASES):
        assert (MATE in kept.partitions[0].releasing) is True
        kept.operate(Operation(SWEEPER, Kind.EXPIRE_LEASE, row=look % LEASES, slot=15))
    assert kept.operate(Operation(MATE, Kind.LEASE, **where)).status.name == "HIT"
    assert held(kept) == 2


def test_port_that_goes_down_loses_its_leases_and_what_it_writes(kept):
    lease(kept)
    lease(kept, 2, WRITER)
    granted = kept.start(MATE, kept.key(9))
    other = kept.start(WRITER, kept.key(10), BEAT)
    kept.port_down(MATE)
    assert (held(kept), drop(kept), drop(kept, 2)) == (1, "OK", "BUSY")
    assert name(kept.write(granted, bytes(BEAT), port=MATE)) == "STALE_HANDLE"
    assert name(kept.write(other, bytes(BEAT))) == "OK"
    assert name(kept.ask(MATE, Opcode.LEASE, digest=kept.key(3))) == "HIT"


def test_block_of_several_ports_is_lost_with_one_of_them(kept):
    members = {"length": BEAT, "members": 2}
    granted = kept.start(WRITER, kept.key(9), member=0, **members)
    assert name(kept.start(MATE, kept.key(9), member=1, **members)) == "GRANTED"
    kept.woken = 0
    kept.port_down(MATE)
    assert name(kept.write(granted, bytes(BEAT))) == "STALE_HANDLE"
    assert kept.woken == 1 << WRITER | 1 << MATE


# Ending.


def test_lease_ends_at_its_deadline(kept):
    lease(kept, 1, deadline=20)
    lease(kept, 2, deadline=200)
    kept.advance(10 * TICK_CYCLES)
    assert (drop(kept), held(kept)) == ("BUSY", 2)
    kept.advance(10 * TICK_CYCLES)
    assert (drop(kept), drop(kept, 2), held(kept)) == ("OK", "BUSY", 1)
    kept.advance(200 * TICK_CYCLES)
    assert drop(kept, 2) == "OK"


def test_lease_that_names_no_deadline_has_that_of_the_partition(make_node):
    node = make_node(part={"lease_ticks": 300})
    node.put_keys(1)
    lease(node)
    node.advance(250 * TICK_CYCLES)
    assert drop(node) == "BUSY"
    node.advance(50 * TICK_CYCLES)
    assert drop(node) == "OK"


def test_lease_without_any_deadline_lasts(make_node):
    node = make_node(part={"lease_ticks": 0})
    node.put_keys(1)
    answer = lease(node)
    for _ in range(5):
        node.advance(30_000 * TICK_CYCLES)
    assert drop(node) == "BUSY"
    assert name(node.by_handle(Opcode.RELEASE, answer)) == "OK"


def test_leases_of_a_session_end_with_it_and_those_of_others_do_not(kept):
    sessions = [kept.ask(MATE, Opcode.SESSION_OPEN).fields["slot"] for _ in range(2)]
    for number, fields in enumerate(({"session": sessions[0]}, {"session": sessions[1]}, {}), 1):
        lease(kept, number, **fields)
    assert name(kept.ask(MATE, Opcode.SESSION_CLOSE, session=sessions[0])) == "OK"
    kept.advance(0)
    assert [drop(kept, number) for number in (1, 2, 3)] == ["OK", "BUSY", "BUSY"]


def test_lease_of_a_session_that_moves_stays(kept):
    session = kept.ask(MATE, Opcode.SESSION_OPEN).fields["slot"]
    answer = lease(kept, session=session)
    assert name(kept.ask(MATE, Opcode.SESSION_MIGRATE, session=session, digest=1 << WRITER)) == "OK"
    kept.advance(0)
    assert drop(kept) == "BUSY"
    assert name(kept.by_handle(Opcode.RELEASE, answer, WRITER)) == "OK"
    assert drop(kept) == "OK"
