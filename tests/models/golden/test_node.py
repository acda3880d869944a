"""Stories of blocks on the golden node: what every party is told."""

import random

import pytest

from kvnode.models.golden import GoldenNode
from kvnode.models.golden.directory import Operation
from kvnode.models.spec.config import preset
from kvnode.models.spec.crc import crc32c
from kvnode.models.spec.enums import Kind, Opcode, State, Status
from kvnode.models.spec.messages import TraceFlag
from kvnode.models.spec.policy import AGE_ON_HIT, AGE_ON_INSERT

BEAT, BLOCK, PAYLOAD = 16, 192, 96
#: Ports 3 and 1 own partition 0 with 16 slots, ports 0 and 2 partition 1 with 8.
WRITER, MATE, FOREIGN = 3, 1, 0
SWEEPER = 4
KEY = 0xFEDCBA9876543210


def name(answer):
    return answer.status.name


@pytest.fixture
def half(node):
    """(node, grant, bytes): a block of 12 beats of which the writer has written 6."""
    granted = node.start()
    assert name(granted) == "GRANTED"
    data = node.bytes_of(PAYLOAD)
    assert name(node.write(granted, data)) == "OK"
    return node, granted, data


# Writing.


def test_block_put_in_parts_is_read_back_whole(half):
    node, granted, data = half
    more = node.bytes_of(PAYLOAD, 2)
    answer = node.write(granted, more, offset=PAYLOAD)
    assert (name(answer), answer.fields["watermark"], answer.fields["length"]) == ("OK", BLOCK, BLOCK)
    answer = node.end(granted, data + more)
    assert (name(answer), answer.fields["watermark"], answer.fields["length"]) == ("SEALED", BLOCK, BLOCK)
    assert answer.fields["crc"] == crc32c(data + more)
    answer = node.read(MATE, 0, KEY)
    assert (name(answer), answer.data, answer.fields["length"]) == ("OK", data + more, BLOCK)


def test_answer_names_the_message_and_the_node(make_node):
    node = make_node(boot_epoch=9)
    answer = node.start(tag=0x1234)
    expected = {
        "status": 3, "opcode": 4, "flags": 0, "version": 1, "tag": 0x1234, "count": 0, "boot_epoch": 9, "slot": 0,
        "generation": 0, "length": BLOCK, "watermark": 0, "crc": 0,
    }  # fmt: skip
    assert answer.fields == expected


def test_slots_are_granted_in_the_order_of_their_number_and_then_as_they_became_free(make_node):
    node = make_node(fill_rows=16, low=0)
    grants = [node.start(digest=node.key(number)) for number in range(16)]
    assert [grant.fields["slot"] for grant in grants] == list(range(16))
    for number in (5, 2, 9):
        node.by_handle(Opcode.PUT_REVOKE, grants[number], WRITER)
    again = [node.start(digest=node.key(100 + number)) for number in range(3)]
    assert [grant.fields["slot"] for grant in again] == [5, 2, 9]
    assert [grant.fields["generation"] for grant in again] == [1, 1, 1]


def test_write_elsewhere_than_at_the_watermark_is_write_order(half):
    node, granted, data = half
    for offset in (0, PAYLOAD - BEAT, PAYLOAD + BEAT):
        answer = node.write(granted, node.bytes_of(BEAT, 3), offset=offset)
        assert (name(answer), answer.fields["watermark"]) == ("WRITE_ORDER", PAYLOAD)
    assert node.read(WRITER, 0, KEY, length=PAYLOAD).data == data


def test_write_past_the_announced_length_is_write_order(node):
    granted = node.start(length=3 * BEAT)
    assert name(node.write(granted, bytes(4 * BEAT))) == "WRITE_ORDER"
    assert name(node.write(granted, bytes(3 * BEAT))) == "OK"
    assert name(node.write(granted, bytes(BEAT), offset=3 * BEAT)) == "WRITE_ORDER"


def test_write_to_a_sealed_block_is_write_once(node):
    data = node.bytes_of(BLOCK)
    node.put(WRITER, 0, KEY, data)
    granted = node.read(WRITER, 0, KEY)
    for port in (WRITER, MATE):
        assert name(node.write(granted, bytes(BEAT), port=port)) == "WRITE_ONCE"
    assert node.read(WRITER, 0, KEY).data == data


def test_start_of_a_sealed_key_exists_and_carries_its_handle(node):
    node.put(WRITER, 0, KEY, bytes(BLOCK))
    answer = node.start(port=MATE, length=BEAT)
    assert (name(answer), answer.fields["slot"], answer.fields["length"]) == ("EXISTS", 0, BLOCK)


def test_end_with_bytes_missing_is_incomplete_and_the_key_can_be_put_again(half):
    node, granted, _ = half
    answer = node.end(granted)
    assert (name(answer), answer.fields["watermark"]) == ("INCOMPLETE", 0)
    assert name(node.end(granted)) == "STALE_HANDLE"
    assert node.occupancy() == {"FREE": 16}
    data = node.bytes_of(BLOCK, 5)
    assert name(node.put(WRITER, 0, KEY, data)) == "SEALED"
    assert node.read(WRITER, 0, KEY).data == data


def test_key_of_an_incomplete_block_is_busy_until_it_is_reaped(node):
    def operate(kind, **fields):
        return node.operate(Operation(WRITER, kind, members=1, **fields))

    assert operate(Kind.PUT_START, digest=KEY, length=2, extent=2).status == Status.GRANTED
    assert operate(Kind.PUT_END, flags=TraceFlag.BY_HANDLE, slot=0).status == Status.INCOMPLETE
    assert operate(Kind.PUT_START, digest=KEY, length=2, extent=2).status == Status.BUSY
    assert operate(Kind.READ, digest=KEY, length=2).status == Status.MISS
    reaped = node.operate(Operation(SWEEPER, Kind.REAP, slot=0))
    assert (reaped.state_before, reaped.state_after, reaped.generation) == (State.RETIRING, State.FREE, 1)
    # The slot that was given back waits behind those never used.
    again = operate(Kind.PUT_START, digest=KEY, length=2, extent=2)
    assert (again.status, again.slot, again.generation) == (Status.GRANTED, 1, 0)


def test_second_port_of_the_partition_is_told_busy(half):
    node, granted, data = half
    assert name(node.start(port=MATE)) == "BUSY"
    assert name(node.write(granted, bytes(BEAT), offset=PAYLOAD, port=MATE)) == "BUSY"
    assert name(node.end(granted, port=MATE)) == "BUSY"
    assert name(node.by_handle(Opcode.PUT_REVOKE, granted, MATE)) == "BUSY"
    assert name(node.write(granted, bytes(PAYLOAD), offset=PAYLOAD)) == "OK"
    assert name(node.end(granted, data + bytes(PAYLOAD))) == "SEALED"


def test_writer_that_starts_again_is_told_busy_with_its_watermark(half):
    node, _, _ = half
    answer = node.start()
    assert (name(answer), answer.fields["watermark"], answer.fields["slot"]) == ("BUSY", PAYLOAD, 0)


def test_revoked_block_is_a_miss_at_once(half):
    node, granted, _ = half
    assert name(node.by_handle(Opcode.PUT_REVOKE, granted, WRITER)) == "OK"
    assert name(node.read(WRITER, 0, KEY)) == "MISS"
    assert name(node.write(granted, bytes(BEAT), offset=PAYLOAD)) == "STALE_HANDLE"
    assert node.occupancy() == {"FREE": 16}


def test_sealed_block_cannot_be_revoked(node):
    node.put(WRITER, 0, KEY, bytes(BEAT))
    granted = node.read(WRITER, 0, KEY)
    assert name(node.by_handle(Opcode.PUT_REVOKE, granted, WRITER)) == "WRITE_ONCE"
    assert name(node.end(granted, b"anything")) == "SEALED"
    assert name(node.read(WRITER, 0, KEY)) == "OK"


@pytest.mark.parametrize("size", [BEAT, 5 * BEAT, 7 * BEAT])
def test_payload_of_another_length_than_announced_writes_nothing_and_can_be_sent_again(node, size):
    granted = node.start(length=6 * BEAT)
    answer = node.ask(WRITER, Opcode.WRITE, bytes(size), digest=node.handle_of(granted), length=6 * BEAT)
    assert (name(answer), answer.fields["watermark"]) == ("BAD_REQUEST", 0)
    data = node.bytes_of(6 * BEAT)
    assert name(node.write(granted, data)) == "OK"
    assert name(node.end(granted, data)) == "SEALED"
    assert node.read(MATE, 0, KEY).data == data


@pytest.mark.parametrize("size", [0, BEAT + 1, BLOCK + BEAT])
def test_block_that_is_not_whole_beats_of_a_slot_is_refused(node, size):
    assert name(node.put(WRITER, 0, KEY, bytes(size))) == "BAD_REQUEST"
    assert node.occupancy() == {"FREE": 16}


# Reading.


def test_read_past_watermark_is_not_ready(half):
    node, granted, _ = half
    for fields in ({}, {"offset": PAYLOAD, "length": BEAT}, {"offset": PAYLOAD - BEAT, "length": 2 * BEAT}):
        answer = node.read(WRITER, 0, KEY, **fields)
        assert (name(answer), answer.data, answer.fields["watermark"]) == ("NOT_READY", b"", PAYLOAD)
        assert name(node.by_handle(Opcode.READ, granted, WRITER, **fields)) == "NOT_READY"


def test_writer_reads_below_its_watermark(half):
    node, granted, data = half
    assert node.read(WRITER, 0, KEY, length=PAYLOAD).data == data
    assert node.read(WRITER, 0, KEY, offset=2 * BEAT, length=BEAT).data == data[2 * BEAT : 3 * BEAT]
    answer = node.by_handle(Opcode.READ, granted, WRITER, length=PAYLOAD)
    assert (name(answer), answer.data, answer.fields["length"]) == ("OK", data, PAYLOAD)


def test_another_reads_nothing_before_the_seal(half):
    node, _, _ = half
    assert name(node.read(MATE, 0, KEY, length=BEAT)) == "NOT_READY"
    assert name(node.ask(MATE, Opcode.LOOKUP, digest=KEY)) == "NOT_READY"
    assert node.match(MATE, 0, [KEY]).fields["count"] == 0


def test_read_takes_offset_and_length_and_length_zero_is_to_the_end(node):
    data = node.bytes_of(5 * BEAT)
    node.put(WRITER, 0, KEY, data)
    for offset, length in [(0, BEAT), (BEAT, 3 * BEAT), (4 * BEAT, BEAT), (0, 5 * BEAT)]:
        answer = node.read(MATE, 0, KEY, offset=offset, length=length)
        assert (answer.data, answer.fields["length"]) == (data[offset : offset + length], length)
    for offset in (0, BEAT, 4 * BEAT):
        answer = node.read(MATE, 0, KEY, offset=offset)
        assert (answer.data, answer.fields["length"]) == (data[offset:], 5 * BEAT - offset)


@pytest.mark.parametrize(("offset", "length"), [(0, 6), (4, 2), (5, 0), (5, 1), (11, 12)])
def test_read_beyond_the_block_is_malformed_and_gives_no_byte(node, offset, length):
    node.put(WRITER, 0, KEY, node.bytes_of(5 * BEAT))
    answer = node.read(MATE, 0, KEY, offset=offset * BEAT, length=length * BEAT)
    assert (name(answer), answer.data, answer.fields["length"]) == ("BAD_REQUEST", b"", 0)


def test_bytes_of_an_earlier_block_cannot_be_read(node):
    for number in range(8):
        assert name(node.put(FOREIGN, 0, node.key(number), b"\xff" * BLOCK)) == "SEALED"
    node.drop(FOREIGN, 0, node.key(3))
    granted = node.start(port=FOREIGN, digest=node.key(99))
    assert (granted.fields["slot"], granted.fields["generation"]) == (3, 1)
    assert name(node.read(FOREIGN, 0, node.key(99), length=BEAT)) == "NOT_READY"
    node.write(granted, bytes(BEAT), port=FOREIGN)
    assert node.read(FOREIGN, 0, node.key(99), length=BEAT).data == bytes(BEAT)
    assert name(node.read(FOREIGN, 0, node.key(99), length=2 * BEAT)) == "NOT_READY"


def test_keys_are_told_apart_by_digest_model_and_group(node):
    apart = [(1, 0, KEY), (1, 0, KEY ^ 1), (2, 0, KEY), (1, 255, KEY)]
    for seed, (model, group, digest) in enumerate(apart):
        assert name(node.put(WRITER, model, digest, node.bytes_of(BEAT, seed), group=group)) == "SEALED"
    for seed, (model, group, digest) in enumerate(apart):
        assert node.read(MATE, model, digest, group=group).data == node.bytes_of(BEAT, seed)
    assert name(node.read(MATE, 2, KEY ^ 1)) == "MISS"


# Looking.


def test_match_counts_the_leading_sealed_blocks(node):
    node.put_keys(1, 2, 3, 5)
    node.start(digest=node.key(4))
    for numbers, count in [
        ([1], 1), ([1, 2], 2), ([1, 2, 3], 3), ([2, 4, 5], 1), ([1, 9, 2], 1), ([9, 1], 0),
    ]:  # fmt: skip
        answer = node.match(MATE, 0, node.keys(*numbers))
        assert (answer.fields["count"], name(answer)) == (count, "HIT" if count else "MISS")
        assert (answer.fields["slot"], answer.fields["length"], answer.data) == (0, 0, b"")


def test_match_that_begins_at_a_block_being_written_is_not_ready(node):
    node.put_keys(1)
    node.start(digest=node.key(4))
    answer = node.match(MATE, 0, node.keys(4, 1))
    assert (name(answer), answer.fields["count"]) == ("NOT_READY", 0)


def test_match_may_ask_for_the_same_block_twice(node):
    node.put_keys(1)
    assert node.match(MATE, 0, node.keys(1, 1, 1)).fields["count"] == 3


def test_match_makes_young_what_it_counts_and_nothing_behind_the_first_miss(node):
    node.put_keys(1, 2, 3)
    node.match(MATE, 0, node.keys(1, 9, 2))
    new = AGE_ON_INSERT[1]
    assert node.ages(3) == [AGE_ON_HIT, new, new]


@pytest.mark.parametrize(("length", "size"), [(64, 32), (64, 48), (32, 64), (96, 16), (32, 4096)])
def test_match_with_another_payload_than_announced_is_malformed(node, length, size):
    node.put(WRITER, 0, 0, bytes(BEAT))
    answer = node.ask(WRITER, Opcode.MATCH, bytes(size), length=length)
    assert (name(answer), answer.fields["count"]) == ("BAD_REQUEST", 0)


def test_part_of_a_digest_is_not_looked_up(node):
    # Half a digest arrives, and it happens to be the start of a key that is there.
    node.put(WRITER, 0, KEY, bytes(BEAT))
    before = node.partitions[0].blocks[0].age
    answer = node.ask(WRITER, Opcode.MATCH, KEY.to_bytes(16, "little"), length=32)
    assert name(answer) == "BAD_REQUEST"
    assert node.partitions[0].blocks[0].age == before


@pytest.mark.parametrize("bit", [64, 255])
def test_digest_of_more_bits_than_configured_spoils_the_match_that_looks_it_up_without_them(node, bit):
    # The same as a port does: it hands on digest_bits (64 here) of each digest in the payload.
    node.put_keys(1, 2)
    for digests in (
        [node.key(1) | 1 << bit, node.key(2)],
        [node.key(1), node.key(2) | 1 << bit],
        [node.key(9), node.key(1) | 1 << bit],
    ):
        answer = node.match(MATE, 0, digests)
        assert (name(answer), answer.fields["count"]) == ("BAD_REQUEST", 0)
    assert node.ages(2) == [AGE_ON_HIT] * 2
    assert node.match(MATE, 0, node.keys(1, 2)).fields["count"] == 2


@pytest.mark.parametrize("size", [31, 33, 47, 49])
def test_payload_that_is_not_whole_beats_counts_as_the_beats_it_takes(node, size):
    # A link carries beats of 16 bytes: 31 bytes take two, as announced; 33 take three.
    granted = node.start(length=2 * BEAT)
    answer = node.ask(WRITER, Opcode.WRITE, bytes(size), digest=node.handle_of(granted), length=2 * BEAT)
    assert name(answer) == ("OK" if size == 31 else "BAD_REQUEST")


def test_digest_that_ends_in_a_beat_of_few_bytes_is_looked_up_as_the_link_carries_it(node):
    node.put(WRITER, 0, KEY, bytes(BEAT))
    answer = node.ask(WRITER, Opcode.MATCH, KEY.to_bytes(32, "little")[: BEAT + 1], length=32)
    assert (name(answer), answer.fields["count"]) == ("HIT", 1)


def test_bytes_of_an_earlier_block_do_not_fill_up_a_beat(node):
    for number in range(8):
        assert name(node.put(FOREIGN, 0, node.key(number), b"\xff" * BEAT)) == "SEALED"
    node.drop(FOREIGN, 0, node.key(3))
    granted = node.start(port=FOREIGN, length=BEAT)
    assert name(node.ask(FOREIGN, Opcode.WRITE, bytes(1), digest=node.handle_of(granted), length=BEAT)) == "OK"
    assert name(node.end(granted, bytes(BEAT), port=FOREIGN)) == "SEALED"
    assert node.read(FOREIGN, 0, KEY).data == bytes(BEAT)


def test_lookup_of_a_sealed_block_gives_a_handle_that_reads_it(node):
    data = node.bytes_of(BLOCK)
    node.put(WRITER, 0, KEY, data)
    answer = node.ask(MATE, Opcode.LOOKUP, digest=KEY)
    assert (name(answer), answer.fields["length"], answer.fields["watermark"]) == ("HIT", BLOCK, BLOCK)
    assert node.by_handle(Opcode.READ, answer, MATE).data == data


def test_ping_is_answered_with_its_tag(node):
    answer = node.ask(WRITER, Opcode.PING, tag=77)
    assert (name(answer), answer.fields["tag"], answer.fields["opcode"]) == ("OK", 77, 0)


# Partitions.


def test_foreign_partition_is_denied(node):
    node.put(WRITER, 0, KEY, bytes(BEAT))
    assert name(node.ask(FOREIGN, Opcode.READ, partition=0, digest=KEY)) == "DENIED"
    assert name(node.ask(WRITER, Opcode.PUT_START, partition=1, digest=1, length=BEAT)) == "DENIED"


def test_partitions_share_no_key(node):
    node.put(WRITER, 0, KEY, node.bytes_of(BEAT, 1))
    assert name(node.read(FOREIGN, 0, KEY)) == "MISS"
    assert name(node.put(FOREIGN, 0, KEY, node.bytes_of(BEAT, 2))) == "SEALED"
    assert node.read(WRITER, 0, KEY).data == node.bytes_of(BEAT, 1)
    assert node.read(FOREIGN, 0, KEY).data == node.bytes_of(BEAT, 2)


def test_handle_of_another_partition_reaches_only_the_own_slot_of_that_number(node):
    node.put(WRITER, 0, KEY, node.bytes_of(BEAT, 1))
    granted = node.read(WRITER, 0, KEY)
    assert name(node.by_handle(Opcode.READ, granted, FOREIGN)) == "STALE_HANDLE"
    assert name(node.put(FOREIGN, 0, node.key(5), node.bytes_of(BEAT, 2))) == "SEALED"
    assert node.by_handle(Opcode.READ, granted, FOREIGN).data == node.bytes_of(BEAT, 2)


def test_model_retired_in_one_partition_stays_in_the_other(node):
    node.put(WRITER, 1, KEY, bytes(BEAT))
    node.put(FOREIGN, 1, KEY, bytes(BEAT))
    node.retire_model(0, 1)
    assert name(node.read(WRITER, 1, KEY)) == "MISS"
    assert name(node.read(FOREIGN, 1, KEY)) == "OK"


# Handles.


def test_dropped_block_is_a_miss_and_its_handle_stale(node):
    node.put(WRITER, 0, KEY, bytes(BEAT))
    granted = node.read(WRITER, 0, KEY)
    assert name(node.drop(MATE, 0, KEY)) == "OK"
    assert name(node.drop(MATE, 0, KEY)) == "MISS"
    assert name(node.read(WRITER, 0, KEY)) == "MISS"
    assert name(node.by_handle(Opcode.READ, granted, WRITER)) == "STALE_HANDLE"
    assert name(node.by_handle(Opcode.DROP, granted, WRITER)) == "STALE_HANDLE"
    assert node.occupancy() == {"FREE": 16}


def test_block_being_written_cannot_be_dropped(half):
    node, granted, _ = half
    assert name(node.drop(WRITER, 0, KEY)) == "BUSY"
    assert name(node.by_handle(Opcode.DROP, granted, MATE)) == "BUSY"


def test_handle_is_stale_after_its_slot_was_used_again(node):
    first = node.start()
    node.by_handle(Opcode.PUT_REVOKE, first)
    for number in range(100, 200):
        granted = node.start(digest=node.key(number))
        if granted.fields["slot"] == first.fields["slot"]:
            break
        node.by_handle(Opcode.PUT_REVOKE, granted, WRITER)
    assert (granted.fields["slot"], granted.fields["generation"]) == (0, 1)
    assert name(node.write(first, bytes(BEAT))) == "STALE_HANDLE"
    assert name(node.write(granted, bytes(BEAT))) == "OK"


def test_handle_from_before_a_reset_is_stale(make_node):
    grants = []
    for boot_epoch in (1, 2):
        node = make_node(boot_epoch=boot_epoch)
        grants.append(node.start())
    assert name(node.write(grants[0], bytes(BEAT))) == "STALE_HANDLE"
    assert name(node.write(grants[1], bytes(BEAT))) == "OK"


def test_handle_with_another_model_is_stale(half):
    node, granted, _ = half
    assert name(node.write(granted, bytes(BEAT), offset=PAYLOAD, model_id=1)) == "STALE_HANDLE"


def test_made_up_handles_reach_nothing(node):
    granted = node.start()
    for changes in ({"slot": 1}, {"slot": 15}, {"generation": 1}, {"generation": 7}):
        assert name(node.write(granted._replace(fields=granted.fields | changes), bytes(BEAT))) == "STALE_HANDLE"


# Nothing malformed changes anything.


def state_of(node):
    return [
        (
            part.blocks,
            part.free_count,
            len(part.index),
            part.hand,
            part.patrol,
            part.low,
            part.epochs,
            part.sessions,
            part.leases.rows,
            part.settings,
        )
        for part in node.partitions
    ]


def test_malformed_requests_change_nothing(half):
    node, granted, _ = half
    before = repr(state_of(node))
    rng = random.Random(3)
    for _ in range(300):
        header = bytearray(rng.randbytes(64))
        header[0] = rng.choice((*range(16), rng.randrange(256)))
        answer = node.request(rng.randrange(4), bytes(header), rng.randbytes(rng.choice((0, 16, 32))))
        assert name(answer) == "BAD_REQUEST"
    assert name(node.write(granted, bytes(BEAT), offset=PAYLOAD, session=1)) == "BAD_REQUEST"
    assert repr(state_of(node)) == before


def test_node_takes_the_name_of_a_preset():
    assert GoldenNode("tiny").config == preset("tiny")
    assert GoldenNode().config == preset("sim")
