"""Stories of blocks with several writers on the golden node."""

import pytest

from kvnode.models.spec.crc import crc32c
from kvnode.models.spec.enums import Opcode

BEAT, BLOCK = 16, 192
#: Ports 3 and 1 own partition 0; two blocks may be written there at a time.
WRITER, MATE, FOREIGN = 3, 1, 0
KEY = 0xFEDCBA9876543210


def name(answer):
    return answer.status.name


def joined(node, member, members, length, port=WRITER, **fields):
    return node.start(port, length=length, member=member, members=members, **fields)


def ended(node, granted, member, members, data, port=WRITER, **changes):
    """PUT_END of a member whose part is `data`."""
    return node.end(granted, data, port, **{"member": member, "members": members, "length": len(data)} | changes)


def port_of(member):
    return (WRITER, MATE)[member % 2]


def shares(node, members, beats):
    return [node.bytes_of(beats * BEAT, member) for member in range(members)]


@pytest.fixture
def trio(node):
    """(node, grants, shares): a block of three members of 4 beats, none of which has written."""
    grants = [joined(node, member, 3, 4 * BEAT, port_of(member)) for member in range(3)]
    assert [name(grant) for grant in grants] == ["GRANTED"] * 3
    return node, grants, shares(node, 3, 4)


# The whole of it.


@pytest.mark.parametrize(("members", "beats"), [(1, 12), (2, 5), (2, 6), (4, 3), (8, 1), (3, 4), (7, 1)])
def test_block_of_several_writers_is_the_concatenation_of_their_parts(node, members, beats):
    parts = shares(node, members, beats)
    grants = [joined(node, member, members, beats * BEAT, port_of(member)) for member in range(members)]
    assert [name(grant) for grant in grants] == ["GRANTED"] * members
    assert len({node.handle_of(grant) for grant in grants}) == 1
    # A beat of each in turn.
    for at in range(0, beats * BEAT, BEAT):
        for member, part in enumerate(parts):
            place = {"offset": member * beats * BEAT + at, "member": member}
            assert name(node.write(grants[0], part[at : at + BEAT], port=port_of(member), **place)) == "OK"
    # A single writer names no shares at the end; the last of several to end seals.
    for member in reversed(range(members)):
        if members == 1:
            answer = node.end(grants[0], parts[0])
        else:
            answer = ended(node, grants[0], member, members, parts[member], port_of(member))
        assert name(answer) == ("SEALED" if member == 0 else "OK")
    whole = b"".join(parts)
    answer = node.read(MATE, 0, KEY)
    assert (answer.data, answer.fields["length"]) == (whole, len(whole))
    assert answer.fields["crc"] == crc32c(whole)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_members_may_begin_and_end_in_any_order(node, order):
    parts = shares(node, 3, 4)
    for at, member in enumerate(order):
        granted = joined(node, member, 3, 4 * BEAT, port_of(member))
        node.fill(granted, parts[member], port_of(member), member * 4 * BEAT, member=member)
        answer = ended(node, granted, member, 3, parts[member], port_of(member))
        assert name(answer) == ("OK" if at < 2 else "SEALED")
    assert (node.read(WRITER, 0, KEY).data, answer.fields["crc"]) == (b"".join(parts), crc32c(b"".join(parts)))


def test_one_port_may_write_for_all_members(node):
    parts = shares(node, 2, 3)
    for member in range(2):
        granted = joined(node, member, 2, 3 * BEAT)
        node.fill(granted, parts[member], offset=member * 3 * BEAT, member=member)
    assert name(ended(node, granted, 1, 2, parts[1])) == "OK"
    assert name(ended(node, granted, 0, 2, parts[0])) == "SEALED"
    assert node.read(WRITER, 0, KEY).data == b"".join(parts)


# Joining.


def test_block_has_the_length_of_all_shares_from_the_first_member_on(node):
    answer = joined(node, 1, 4, 3 * BEAT)
    assert (name(answer), answer.fields["length"]) == ("GRANTED", 4 * 3 * BEAT)


@pytest.mark.parametrize(
    "other",
    [
        {"member": 1, "members": 4}, {"member": 1, "members": 3, "length": 2 * BEAT}, {"member": 0},
        {"member": 0, "port": MATE},
    ],
)  # fmt: skip
def test_member_that_speaks_of_other_shares_or_has_joined_is_busy(node, other):
    assert name(joined(node, 0, 3, 3 * BEAT)) == "GRANTED"
    assert name(joined(node, **{"member": 1, "members": 3, "length": 3 * BEAT} | other)) == "BUSY"
    assert name(joined(node, 1, 3, 3 * BEAT)) == "GRANTED"


def test_member_of_another_session_epoch_or_number_is_busy(node):
    answer = node.ask(WRITER, Opcode.SESSION_OPEN, digest=1 << WRITER | 1 << MATE)
    session = {"session": answer.fields["slot"]}
    assert name(joined(node, 0, 2, BEAT, sequence=2, **session)) == "GRANTED"
    for fields in ({}, {"sequence": 1, **session}, {"sequence": 0, **session}):
        assert name(joined(node, 1, 2, BEAT, MATE, **fields)) == "BUSY"
    assert name(joined(node, 1, 2, BEAT, MATE, sequence=2, **session)) == "GRANTED"


@pytest.mark.parametrize(
    "fields",
    [
        {"member": 2, "members": 2}, {"member": 8, "members": 8}, {"members": 9}, {"members": 8, "length": 2 * BEAT},
        {"member": 1, "members": 0}, {"members": 2, "length": BEAT + 1},
    ],
)  # fmt: skip
def test_shares_that_do_not_fit_a_block_are_malformed(node, fields):
    assert name(joined(node, **{"member": 0, "members": 2, "length": BEAT} | fields)) == "BAD_REQUEST"


def test_block_that_is_sealed_exists_for_every_member(node):
    assert name(node.put(WRITER, 0, KEY, bytes(BLOCK))) == "SEALED"
    assert [name(joined(node, member, 4, 3 * BEAT, MATE)) for member in range(4)] == ["EXISTS"] * 4


# Writing and reading.


def test_member_writes_from_the_start_of_its_part_to_its_end(trio):
    node, grants, parts = trio
    write = {"port": MATE, "member": 1}
    for offset in (0, 3 * BEAT, 5 * BEAT, 8 * BEAT):
        assert name(node.write(grants[1], bytes(BEAT), offset, **write)) == "WRITE_ORDER"
    assert name(node.write(grants[1], bytes(5 * BEAT), 4 * BEAT, **write)) == "WRITE_ORDER"
    assert name(node.write(grants[1], parts[1], 4 * BEAT, **write)) == "OK"
    assert name(node.write(grants[1], bytes(BEAT), 8 * BEAT, **write)) == "WRITE_ORDER"


def test_member_writes_its_part_from_its_own_port_only(trio):
    node, grants, _ = trio
    assert name(node.write(grants[1], bytes(BEAT), 4 * BEAT, WRITER, member=1)) == "BUSY"
    assert name(node.write(grants[1], bytes(BEAT), 4 * BEAT, MATE, member=5)) == "BUSY"
    assert name(ended(node, grants[1], 1, 3, bytes(4 * BEAT), WRITER)) == "BUSY"


def test_member_reads_what_it_has_written_and_nothing_of_the_others(trio):
    node, grants, parts = trio
    for member, offset in ((0, 0), (1, 4 * BEAT)):
        written = parts[member][: 2 * BEAT]
        assert name(node.write(grants[0], written, offset, port_of(member), member=member)) == "OK"
    read = {"port": MATE, "model_id": 0, "digest": KEY, "member": 1}
    answer = node.read(offset=4 * BEAT, length=2 * BEAT, **read)
    assert (answer.data, answer.fields["watermark"]) == (parts[1][: 2 * BEAT], 6 * BEAT)
    assert node.read(offset=5 * BEAT, length=BEAT, **read).data == parts[1][BEAT : 2 * BEAT]
    for offset, length in ((4, 3), (0, 1), (3, 2), (0, 6), (6, 1), (8, 1)):
        assert name(node.read(offset=offset * BEAT, length=length * BEAT, **read)) == "NOT_READY"
    # Its part is another's under another port, and for a member that has not joined.
    assert name(node.read(WRITER, 0, KEY, offset=4 * BEAT, length=BEAT, member=1)) == "NOT_READY"
    assert name(node.read(MATE, 0, KEY, offset=0, length=BEAT, member=7)) == "NOT_READY"


def test_block_is_not_found_until_all_its_members_are_done(trio):
    node, grants, parts = trio
    for member, part in enumerate(parts):
        assert name(node.match(FOREIGN, 0, [KEY])) == "MISS"
        assert name(node.match(MATE, 0, [KEY])) == "NOT_READY"
        node.fill(grants[0], part, port_of(member), member * 4 * BEAT, member=member)
        ended(node, grants[0], member, 3, part, port_of(member))
    assert name(node.match(MATE, 0, [KEY])) == "HIT"


# Ending.


def filled(trio, *members):
    node, grants, parts = trio
    for member in members:
        node.fill(grants[0], parts[member], port_of(member), member * 4 * BEAT, member=member)


def test_end_that_is_sent_again_is_ok_and_counts_once(trio):
    node, grants, parts = trio
    filled(trio, 0, 1, 2)
    for _ in range(3):
        assert name(ended(node, grants[0], 0, 3, parts[0])) == "OK"
    assert name(ended(node, grants[0], 1, 3, parts[1], MATE)) == "OK"
    answer = ended(node, grants[0], 2, 3, parts[2])
    assert (name(answer), answer.fields["crc"]) == ("SEALED", crc32c(b"".join(parts)))
    assert name(ended(node, grants[0], 2, 3, parts[2])) == "SEALED"


@pytest.mark.parametrize(("members", "length"), [(2, 4 * BEAT), (3, 3 * BEAT), (0, 0)])
def test_end_that_speaks_of_other_shares_is_malformed_and_harms_nothing(trio, members, length):
    node, grants, parts = trio
    filled(trio, 0, 1, 2)
    assert name(ended(node, grants[0], 0, members, parts[0], length=length)) == "BAD_REQUEST"
    statuses = [name(ended(node, grants[0], member, 3, parts[member], port_of(member))) for member in range(3)]
    assert statuses == ["OK", "OK", "SEALED"]


def test_end_of_a_part_with_bytes_missing_ends_the_block_for_all(trio):
    node, grants, parts = trio
    filled(trio, 0)
    assert name(ended(node, grants[0], 0, 3, parts[0])) == "OK"
    assert name(ended(node, grants[0], 1, 3, parts[1], MATE)) == "INCOMPLETE"
    assert node.woken == 1 << WRITER
    assert name(ended(node, grants[0], 2, 3, parts[2])) == "STALE_HANDLE"
    assert node.occupancy() == {"FREE": 16}


@pytest.mark.parametrize("wrong", [b"", b"\x00"])
def test_end_with_another_checksum_or_none_ends_the_block_for_all(trio, wrong):
    node, grants, parts = trio
    filled(trio, 0, 1, 2)
    assert name(ended(node, grants[0], 0, 3, parts[0])) == "OK"
    answer = ended(node, grants[0], 1, 3, wrong, MATE, length=4 * BEAT)
    assert (name(answer), node.woken) == ("CHECKSUM_MISMATCH", 1 << WRITER)
    assert name(node.read(WRITER, 0, KEY)) == "MISS"
    assert node.occupancy() == {"FREE": 16}


def test_swapped_parts_are_not_taken_for_each_other(trio):
    node, grants, parts = trio
    filled(trio, 0, 1)
    assert name(ended(node, grants[0], 0, 3, parts[1])) == "CHECKSUM_MISMATCH"


def test_checksum_is_over_all_payloads_of_a_part_and_not_over_broken_ones(node):
    data = node.bytes_of(5 * BEAT)
    granted = node.start(length=5 * BEAT)
    node.fill(granted, data[: 2 * BEAT])
    assert name(node.write(granted, bytes(BEAT), 2 * BEAT, length=3 * BEAT)) == "BAD_REQUEST"
    node.fill(granted, data[2 * BEAT :], offset=2 * BEAT)
    answer = node.end(granted, data)
    assert (name(answer), answer.fields["crc"]) == ("SEALED", crc32c(data))


@pytest.mark.parametrize("port", [WRITER, MATE])
def test_any_member_revokes_the_block_of_all(trio, port):
    node, grants, _ = trio
    assert name(node.by_handle(Opcode.PUT_REVOKE, grants[0], port)) == "OK"
    assert node.woken == (1 << WRITER | 1 << MATE) & ~(1 << port)
    assert node.occupancy() == {"FREE": 16}


def test_port_that_is_no_member_cannot_revoke(node):
    granted = joined(node, 0, 2, BEAT)
    assert name(node.by_handle(Opcode.PUT_REVOKE, granted, MATE)) == "BUSY"
    joined(node, 1, 2, BEAT, MATE)
    assert name(node.by_handle(Opcode.PUT_REVOKE, granted, MATE)) == "OK"


def test_block_of_several_takes_one_slot_and_one_fill_row(node):
    for number in range(2):
        for member in range(4):
            assert name(joined(node, member, 4, BEAT, port_of(member), digest=node.key(number))) == "GRANTED"
    assert node.occupancy() == {"FREE": 14, "FILLING": 2}
    assert name(joined(node, 0, 4, BEAT, digest=node.key(2))) == "NO_SPACE"
