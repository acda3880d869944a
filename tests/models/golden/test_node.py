"""Stories of blocks on the golden node: what every party is told."""

import hashlib
import random
from functools import partial

import pytest

from kvnode.models.golden import GoldenNode
from kvnode.models.golden.node import Operation
from kvnode.models.spec.config import ConfigError, preset
from kvnode.models.spec.enums import Kind, Opcode, State, Status
from kvnode.models.spec.policy import AGE_ON_HIT, AGE_ON_INSERT

BEAT, BLOCK, PAYLOAD = 16, 192, 96
#: Ports 3 and 1 own partition 0 with 16 slots, ports 0 and 2 partition 1 with 8.
WRITER, MATE, FOREIGN = 3, 1, 0
SWEEPER = 4


def key(number):
    """Digests as hashes are: no two alike in any bit."""
    return int.from_bytes(hashlib.sha256(number.to_bytes(4, "little")).digest()[:8], "little")


KEY = key(0xC0FFEE)


def keys(*numbers):
    return [key(number) for number in numbers]


def some_bytes(size, seed=1):
    return random.Random(seed).randbytes(size)


def put(node, *numbers, port=WRITER, model=0, **fields):
    """One block of a beat for each number, with bytes of its own."""
    for number in numbers:
        assert name(node.put(port, model, key(number), some_bytes(BEAT, number), **fields)) == "SEALED"


def put_and_leave(node, *numbers):
    """The same as operations of the directory alone, so that the sweeper does nothing for them."""
    for number in numbers:
        operation = partial(Operation, WRITER, partition=0, length=1, klass=1)
        start = node.operate(operation(kind=Kind.PUT_START, digest=key(number)))
        by_handle = partial(operation, by_handle=True, slot=start.slot, generation=start.generation, whole=True)
        statuses = [node.operate(by_handle(kind=kind)).status.name for kind in (Kind.WRITE, Kind.LAND, Kind.PUT_END)]
        assert (start.status.name, statuses) == ("GRANTED", ["OK", "OK", "SEALED"])


def reads(node, *numbers, port=WRITER, model=0):
    return [name(node.read(port, model, key(number))) for number in numbers]


def name(answer):
    return answer.status.name


def start(node, port=WRITER, digest=KEY, length=BLOCK, **fields):
    return node.ask(port, Opcode.PUT_START, digest=digest, length=length, **fields)


def write(node, handle, data, offset=0, port=WRITER, **fields):
    return node.ask(port, Opcode.WRITE, data, digest=handle, offset=offset, length=len(data), **fields)


def end(node, handle, port=WRITER, **fields):
    return node.ask(port, Opcode.PUT_END, digest=handle, **fields)


def occupancy(node, partition=0):
    return {state.name: count for state, count in node.partitions[partition].occupancy().items() if count}


@pytest.fixture
def half(node):
    """(node, handle, bytes): a block of 12 beats of which the writer has written 6."""
    granted = start(node)
    assert name(granted) == "GRANTED"
    data = some_bytes(PAYLOAD)
    handle = node.handle_of(granted)
    assert name(write(node, handle, data)) == "OK"
    return node, handle, data


# Writing.


def test_block_put_in_parts_is_read_back_whole(half):
    node, handle, data = half
    more = some_bytes(PAYLOAD, 2)
    answer = write(node, handle, more, offset=PAYLOAD)
    assert (name(answer), answer.fields["watermark"], answer.fields["length"]) == ("OK", BLOCK, BLOCK)
    answer = end(node, handle)
    assert (name(answer), answer.fields["watermark"], answer.fields["length"]) == ("SEALED", BLOCK, BLOCK)
    answer = node.read(MATE, 0, KEY)
    assert (name(answer), answer.data, answer.fields["length"]) == ("OK", data + more, BLOCK)


def test_answer_names_the_message_and_the_node(make_node):
    node = make_node(boot_epoch=9)
    answer = start(node, tag=0x1234)
    expected = {
        "status": 3, "opcode": 4, "flags": 0, "version": 1, "tag": 0x1234, "count": 0, "boot_epoch": 9, "slot": 0,
        "generation": 0, "length": BLOCK, "watermark": 0, "crc": 0,
    }  # fmt: skip
    assert answer.fields == expected


def test_slots_are_granted_in_the_order_of_their_number_and_then_as_they_became_free(make_node):
    node = make_node(fill_rows=16, low=0)
    grants = [start(node, digest=key(number)) for number in range(16)]
    assert [grant.fields["slot"] for grant in grants] == list(range(16))
    for number in (5, 2, 9):
        node.ask(WRITER, Opcode.PUT_REVOKE, digest=node.handle_of(grants[number]))
    again = [start(node, digest=key(100 + number)) for number in range(3)]
    assert [grant.fields["slot"] for grant in again] == [5, 2, 9]
    assert [grant.fields["generation"] for grant in again] == [1, 1, 1]


def test_write_elsewhere_than_at_the_watermark_is_write_order(half):
    node, handle, data = half
    for offset in (0, PAYLOAD - BEAT, PAYLOAD + BEAT):
        answer = write(node, handle, some_bytes(BEAT, 3), offset=offset)
        assert (name(answer), answer.fields["watermark"]) == ("WRITE_ORDER", PAYLOAD)
    assert node.read(WRITER, 0, KEY, length=PAYLOAD).data == data


def test_write_past_the_announced_length_is_write_order(node):
    handle = node.handle_of(start(node, length=3 * BEAT))
    assert name(write(node, handle, bytes(4 * BEAT))) == "WRITE_ORDER"
    assert name(write(node, handle, bytes(3 * BEAT))) == "OK"
    assert name(write(node, handle, bytes(BEAT), offset=3 * BEAT)) == "WRITE_ORDER"


def test_write_to_a_sealed_block_is_write_once(node):
    data = some_bytes(BLOCK)
    node.put(WRITER, 0, KEY, data)
    handle = node.handle_of(node.read(WRITER, 0, KEY))
    for port in (WRITER, MATE):
        assert name(write(node, handle, bytes(BEAT), port=port)) == "WRITE_ONCE"
    assert node.read(WRITER, 0, KEY).data == data


def test_start_of_a_sealed_key_exists_and_carries_its_handle(node):
    node.put(WRITER, 0, KEY, bytes(BLOCK))
    answer = start(node, port=MATE, length=BEAT)
    assert (name(answer), answer.fields["slot"], answer.fields["length"]) == ("EXISTS", 0, BLOCK)


def test_end_with_bytes_missing_is_incomplete_and_the_key_can_be_put_again(half):
    node, handle, _ = half
    answer = end(node, handle)
    assert (name(answer), answer.fields["watermark"]) == ("INCOMPLETE", 0)
    assert name(end(node, handle)) == "STALE_HANDLE"
    assert occupancy(node) == {"FREE": 16}
    data = some_bytes(BLOCK, 5)
    assert name(node.put(WRITER, 0, KEY, data)) == "SEALED"
    assert node.read(WRITER, 0, KEY).data == data


def test_key_of_an_incomplete_block_is_busy_until_it_is_reaped(node):
    operate = partial(Operation, WRITER, partition=0, digest=KEY, length=2)
    by_handle = partial(Operation, WRITER, partition=0, by_handle=True, slot=0)
    assert node.operate(operate(kind=Kind.PUT_START)).status == Status.GRANTED
    assert node.operate(by_handle(kind=Kind.PUT_END)).status == Status.INCOMPLETE
    assert node.operate(operate(kind=Kind.PUT_START)).status == Status.BUSY
    assert node.operate(operate(kind=Kind.READ)).status == Status.MISS
    reaped = node.operate(Operation(SWEEPER, Kind.REAP, 0, slot=0))
    assert (reaped.state_before, reaped.state_after, reaped.generation) == (State.RETIRING, State.FREE, 1)
    # The slot that was given back waits behind those never used.
    again = node.operate(operate(kind=Kind.PUT_START))
    assert (again.status, again.slot, again.generation) == (Status.GRANTED, 1, 0)


def test_second_port_of_the_partition_is_told_busy(half):
    node, handle, _ = half
    assert name(start(node, port=MATE)) == "BUSY"
    assert name(write(node, handle, bytes(BEAT), offset=PAYLOAD, port=MATE)) == "BUSY"
    assert name(end(node, handle, port=MATE)) == "BUSY"
    assert name(node.ask(MATE, Opcode.PUT_REVOKE, digest=handle)) == "BUSY"
    assert name(write(node, handle, bytes(PAYLOAD), offset=PAYLOAD)) == "OK"
    assert name(end(node, handle)) == "SEALED"


def test_writer_that_starts_again_is_told_busy_with_its_watermark(half):
    node, _, _ = half
    answer = start(node)
    assert (name(answer), answer.fields["watermark"], answer.fields["slot"]) == ("BUSY", PAYLOAD, 0)


def test_revoked_block_is_a_miss_at_once(half):
    node, handle, _ = half
    assert name(node.ask(WRITER, Opcode.PUT_REVOKE, digest=handle)) == "OK"
    assert name(node.read(WRITER, 0, KEY)) == "MISS"
    assert name(write(node, handle, bytes(BEAT), offset=PAYLOAD)) == "STALE_HANDLE"
    assert occupancy(node) == {"FREE": 16}


def test_sealed_block_cannot_be_revoked(node):
    node.put(WRITER, 0, KEY, bytes(BEAT))
    handle = node.handle_of(node.read(WRITER, 0, KEY))
    assert name(node.ask(WRITER, Opcode.PUT_REVOKE, digest=handle)) == "WRITE_ONCE"
    assert name(end(node, handle)) == "SEALED"
    assert name(node.read(WRITER, 0, KEY)) == "OK"


@pytest.mark.parametrize("size", [BEAT, 5 * BEAT, 7 * BEAT])
def test_payload_of_another_length_than_announced_writes_nothing_and_can_be_sent_again(node, size):
    handle = node.handle_of(start(node, length=6 * BEAT))
    answer = node.ask(WRITER, Opcode.WRITE, bytes(size), digest=handle, length=6 * BEAT)
    assert (name(answer), answer.fields["watermark"]) == ("BAD_REQUEST", 0)
    data = some_bytes(6 * BEAT)
    assert name(write(node, handle, data)) == "OK"
    assert name(end(node, handle)) == "SEALED"
    assert node.read(MATE, 0, KEY).data == data


@pytest.mark.parametrize("size", [0, BEAT + 1, BLOCK + BEAT])
def test_block_that_is_not_whole_beats_of_a_slot_is_refused(node, size):
    assert name(node.put(WRITER, 0, KEY, bytes(size))) == "BAD_REQUEST"
    assert occupancy(node) == {"FREE": 16}


# Reading.


def test_read_past_watermark_is_not_ready(half):
    node, handle, _ = half
    for fields in ({}, {"offset": PAYLOAD, "length": BEAT}, {"offset": PAYLOAD - BEAT, "length": 2 * BEAT}):
        answer = node.read(WRITER, 0, KEY, **fields)
        assert (name(answer), answer.data, answer.fields["watermark"]) == ("NOT_READY", b"", PAYLOAD)
        assert name(node.ask(WRITER, Opcode.READ, flags=1, digest=handle, **fields)) == "NOT_READY"


def test_writer_reads_below_its_watermark(half):
    node, handle, data = half
    assert node.read(WRITER, 0, KEY, length=PAYLOAD).data == data
    assert node.read(WRITER, 0, KEY, offset=2 * BEAT, length=BEAT).data == data[2 * BEAT : 3 * BEAT]
    answer = node.ask(WRITER, Opcode.READ, flags=1, digest=handle, length=PAYLOAD)
    assert (name(answer), answer.data, answer.fields["length"]) == ("OK", data, PAYLOAD)


def test_another_reads_nothing_before_the_seal(half):
    node, _, _ = half
    assert name(node.read(MATE, 0, KEY, length=BEAT)) == "NOT_READY"
    assert name(node.ask(MATE, Opcode.LOOKUP, digest=KEY)) == "NOT_READY"
    assert node.match(MATE, 0, [KEY]).fields["count"] == 0


def test_read_takes_offset_and_length_and_length_zero_is_to_the_end(node):
    data = some_bytes(5 * BEAT)
    node.put(WRITER, 0, KEY, data)
    for offset, length in [(0, BEAT), (BEAT, 3 * BEAT), (4 * BEAT, BEAT), (0, 5 * BEAT)]:
        answer = node.read(MATE, 0, KEY, offset=offset, length=length)
        assert (answer.data, answer.fields["length"]) == (data[offset : offset + length], length)
    for offset in (0, BEAT, 4 * BEAT):
        answer = node.read(MATE, 0, KEY, offset=offset)
        assert (answer.data, answer.fields["length"]) == (data[offset:], 5 * BEAT - offset)


@pytest.mark.parametrize(("offset", "length"), [(0, 6), (4, 2), (5, 0), (5, 1), (11, 12)])
def test_read_beyond_the_block_is_malformed_and_gives_no_byte(node, offset, length):
    node.put(WRITER, 0, KEY, some_bytes(5 * BEAT))
    answer = node.read(MATE, 0, KEY, offset=offset * BEAT, length=length * BEAT)
    assert (name(answer), answer.data, answer.fields["length"]) == ("BAD_REQUEST", b"", 0)


def test_bytes_of_an_earlier_block_cannot_be_read(node):
    for number in range(8):
        assert name(node.put(FOREIGN, 0, key(number), b"\xff" * BLOCK)) == "SEALED"
    node.drop(FOREIGN, 0, key(3))
    granted = start(node, port=FOREIGN, digest=key(99))
    assert (granted.fields["slot"], granted.fields["generation"]) == (3, 1)
    assert name(node.read(FOREIGN, 0, key(99), length=BEAT)) == "NOT_READY"
    write(node, node.handle_of(granted), bytes(BEAT), port=FOREIGN)
    assert node.read(FOREIGN, 0, key(99), length=BEAT).data == bytes(BEAT)
    assert name(node.read(FOREIGN, 0, key(99), length=2 * BEAT)) == "NOT_READY"


def test_keys_are_told_apart_by_digest_model_and_group(node):
    apart = [(1, 0, KEY), (1, 0, KEY ^ 1), (2, 0, KEY), (1, 255, KEY)]
    for seed, (model, group, digest) in enumerate(apart):
        assert name(node.put(WRITER, model, digest, some_bytes(BEAT, seed), group=group)) == "SEALED"
    for seed, (model, group, digest) in enumerate(apart):
        assert node.read(MATE, model, digest, group=group).data == some_bytes(BEAT, seed)
    assert name(node.read(MATE, 2, KEY ^ 1)) == "MISS"


# Looking.


def test_match_counts_the_leading_sealed_blocks(node):
    put(node, 1, 2, 3, 5)
    start(node, digest=key(4))
    for numbers, count in [
        ([1], 1), ([1, 2], 2), ([1, 2, 3], 3), ([2, 4, 5], 1), ([4, 1, 2], 0), ([1, 9, 2], 1), ([9, 1], 0),
    ]:  # fmt: skip
        answer = node.match(MATE, 0, keys(*numbers))
        assert (answer.fields["count"], name(answer)) == (count, "HIT" if count else "MISS")
        assert (answer.fields["slot"], answer.fields["length"], answer.data) == (0, 0, b"")


def test_match_may_ask_for_the_same_block_twice(node):
    put(node, 1)
    assert node.match(MATE, 0, keys(1, 1, 1)).fields["count"] == 3


def test_match_makes_young_what_it_counts_and_nothing_behind_the_first_miss(node):
    put(node, 1, 2, 3)
    node.match(MATE, 0, keys(1, 9, 2))
    new = AGE_ON_INSERT[1]
    assert [node.partitions[0].blocks[slot].age for slot in range(3)] == [AGE_ON_HIT, new, new]


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
    put(node, 1, 2)
    for digests in ([key(1) | 1 << bit, key(2)], [key(1), key(2) | 1 << bit], [key(9), key(1) | 1 << bit]):
        answer = node.match(MATE, 0, digests)
        assert (name(answer), answer.fields["count"]) == ("BAD_REQUEST", 0)
    assert [node.partitions[0].blocks[slot].age for slot in range(2)] == [AGE_ON_HIT] * 2
    assert node.match(MATE, 0, keys(1, 2)).fields["count"] == 2


@pytest.mark.parametrize("size", [31, 33, 47, 49])
def test_payload_that_is_not_whole_beats_counts_as_the_beats_it_takes(node, size):
    # A link carries beats of 16 bytes: 31 bytes take two, as announced; 33 take three.
    granted = start(node, length=2 * BEAT)
    answer = node.ask(WRITER, Opcode.WRITE, bytes(size), digest=node.handle_of(granted), length=2 * BEAT)
    assert name(answer) == ("OK" if size == 31 else "BAD_REQUEST")


def test_digest_that_ends_in_a_beat_of_few_bytes_is_looked_up_as_the_link_carries_it(node):
    node.put(WRITER, 0, KEY, bytes(BEAT))
    answer = node.ask(WRITER, Opcode.MATCH, KEY.to_bytes(32, "little")[: BEAT + 1], length=32)
    assert (name(answer), answer.fields["count"]) == ("HIT", 1)


def test_bytes_of_an_earlier_block_do_not_fill_up_a_beat(node):
    for number in range(8):
        assert name(node.put(FOREIGN, 0, key(number), b"\xff" * BEAT)) == "SEALED"
    node.drop(FOREIGN, 0, key(3))
    handle = node.handle_of(start(node, port=FOREIGN, length=BEAT))
    assert name(node.ask(FOREIGN, Opcode.WRITE, bytes(1), digest=handle, length=BEAT)) == "OK"
    assert name(end(node, handle, port=FOREIGN)) == "SEALED"
    assert node.read(FOREIGN, 0, KEY).data == bytes(BEAT)


def test_lookup_of_a_sealed_block_gives_a_handle_that_reads_it(node):
    data = some_bytes(BLOCK)
    node.put(WRITER, 0, KEY, data)
    answer = node.ask(MATE, Opcode.LOOKUP, digest=KEY)
    assert (name(answer), answer.fields["length"], answer.fields["watermark"]) == ("HIT", BLOCK, BLOCK)
    assert node.ask(MATE, Opcode.READ, flags=1, digest=node.handle_of(answer)).data == data


def test_ping_is_answered_with_its_tag(node):
    answer = node.ask(WRITER, Opcode.PING, tag=77)
    assert (name(answer), answer.fields["tag"], answer.fields["opcode"]) == ("OK", 77, 0)


# Partitions.


def test_foreign_partition_is_denied(node):
    node.put(WRITER, 0, KEY, bytes(BEAT))
    assert name(node.ask(FOREIGN, Opcode.READ, partition=0, digest=KEY)) == "DENIED"
    assert name(node.ask(WRITER, Opcode.PUT_START, partition=1, digest=1, length=BEAT)) == "DENIED"


def test_partitions_share_no_key(node):
    node.put(WRITER, 0, KEY, some_bytes(BEAT, 1))
    assert name(node.read(FOREIGN, 0, KEY)) == "MISS"
    assert name(node.put(FOREIGN, 0, KEY, some_bytes(BEAT, 2))) == "SEALED"
    assert node.read(WRITER, 0, KEY).data == some_bytes(BEAT, 1)
    assert node.read(FOREIGN, 0, KEY).data == some_bytes(BEAT, 2)


def test_handle_of_another_partition_reaches_only_the_own_slot_of_that_number(node):
    node.put(WRITER, 0, KEY, some_bytes(BEAT, 1))
    handle = node.handle_of(node.read(WRITER, 0, KEY))
    assert name(node.ask(FOREIGN, Opcode.READ, flags=1, digest=handle)) == "STALE_HANDLE"
    assert name(node.put(FOREIGN, 0, key(5), some_bytes(BEAT, 2))) == "SEALED"
    assert node.ask(FOREIGN, Opcode.READ, flags=1, digest=handle).data == some_bytes(BEAT, 2)


def test_model_retired_in_one_partition_stays_in_the_other(node):
    node.put(WRITER, 1, KEY, bytes(BEAT))
    node.put(FOREIGN, 1, KEY, bytes(BEAT))
    node.retire_model(0, 1)
    assert name(node.read(WRITER, 1, KEY)) == "MISS"
    assert name(node.read(FOREIGN, 1, KEY)) == "OK"


# Handles.


def test_dropped_block_is_a_miss_and_its_handle_stale(node):
    node.put(WRITER, 0, KEY, bytes(BEAT))
    handle = node.handle_of(node.read(WRITER, 0, KEY))
    assert name(node.drop(MATE, 0, KEY)) == "OK"
    assert name(node.drop(MATE, 0, KEY)) == "MISS"
    assert name(node.read(WRITER, 0, KEY)) == "MISS"
    assert name(node.ask(WRITER, Opcode.READ, flags=1, digest=handle)) == "STALE_HANDLE"
    assert name(node.ask(WRITER, Opcode.DROP, flags=1, digest=handle)) == "STALE_HANDLE"
    assert occupancy(node) == {"FREE": 16}


def test_block_being_written_cannot_be_dropped(half):
    node, handle, _ = half
    assert name(node.drop(WRITER, 0, KEY)) == "BUSY"
    assert name(node.ask(MATE, Opcode.DROP, flags=1, digest=handle)) == "BUSY"


def test_handle_is_stale_after_its_slot_was_used_again(node):
    first = start(node)
    old = node.handle_of(first)
    node.ask(WRITER, Opcode.PUT_REVOKE, digest=old)
    for number in range(100, 200):
        granted = start(node, digest=key(number))
        if granted.fields["slot"] == first.fields["slot"]:
            break
        node.ask(WRITER, Opcode.PUT_REVOKE, digest=node.handle_of(granted))
    assert (granted.fields["slot"], granted.fields["generation"]) == (0, 1)
    assert name(write(node, old, bytes(BEAT))) == "STALE_HANDLE"
    assert name(write(node, node.handle_of(granted), bytes(BEAT))) == "OK"


def test_handle_from_before_a_reset_is_stale(make_node):
    handles = []
    for boot_epoch in (1, 2):
        node = make_node(boot_epoch=boot_epoch)
        handles.append(node.handle_of(start(node)))
    assert name(write(node, handles[0], bytes(BEAT))) == "STALE_HANDLE"
    assert name(write(node, handles[1], bytes(BEAT))) == "OK"


def test_handle_with_another_model_is_stale(half):
    node, handle, _ = half
    assert name(write(node, handle, bytes(BEAT), offset=PAYLOAD, model_id=1)) == "STALE_HANDLE"


def test_made_up_handles_reach_nothing(node, handle_with):
    granted = start(node)
    for changes in ({"slot": 1}, {"slot": 15}, {"generation": 1}, {"generation": 7}):
        assert name(write(node, handle_with(granted, **changes), bytes(BEAT))) == "STALE_HANDLE"


# Models.


def test_retired_model_misses_at_once_and_its_blocks_can_be_put_again(node):
    put(node, 0, 1, 2, 3, model=1)
    put(node, 9, model=2)
    handle = node.handle_of(node.read(WRITER, 1, key(0)))
    node.retire_model(0, 1)
    assert reads(node, 0, 1, 2, 3, model=1) == ["MISS"] * 4
    assert node.match(WRITER, 1, keys(0, 1)).fields["count"] == 0
    assert name(node.ask(WRITER, Opcode.READ, flags=1, digest=handle, model_id=1)) == "STALE_HANDLE"
    assert reads(node, 9, model=2) == ["OK"]
    assert name(node.put(WRITER, 1, key(0), some_bytes(BEAT, 77))) == "SEALED"
    assert node.read(WRITER, 1, key(0)).data == some_bytes(BEAT, 77)


def test_block_being_written_when_its_model_retires_is_lost_to_its_writer(half):
    node, handle, _ = half
    node.retire_model(0, 0)
    assert name(write(node, handle, bytes(BEAT), offset=PAYLOAD)) == "STALE_HANDLE"
    assert name(end(node, handle)) == "STALE_HANDLE"


def test_slots_and_fill_rows_of_a_retired_model_are_free_at_once(node):
    put(node, 0, 1, 2, model=1)
    put(node, 9, model=2)
    start(node, digest=key(50), model_id=1)
    start(node, digest=key(51), model_id=1)
    assert name(start(node, digest=key(52), model_id=1)) == "NO_SPACE"
    hand = node.partitions[0].hand
    node.retire_model(0, 1)
    assert occupancy(node) == {"FREE": 15, "SEALED": 1}
    assert node.partitions[0].hand == hand
    assert name(start(node, digest=key(52), model_id=1)) == "GRANTED"
    assert name(start(node, digest=key(53), model_id=1)) == "GRANTED"


def patrol(node, slot):
    return node.operate(Operation(SWEEPER, Kind.PATROL, 0, slot=slot)).state_after.name


def visit(node, slot):
    return node.operate(Operation(SWEEPER, Kind.VISIT, 0, slot=slot)).state_after.name


def retire(node, model):
    """The register write alone, without the sweeper's round."""
    node.operate(Operation(SWEEPER, Kind.RETIRE_MODEL, 0, model_id=model))


def test_patrol_takes_what_a_retired_model_left_whoever_wrote_it_and_lets_the_rest_be(node):
    put(node, 0, model=2, klass=3)
    put(node, 1, model=1)
    start(node, digest=key(2), model_id=1)
    start(node, digest=key(3), model_id=2)
    retire(node, 1)
    assert occupancy(node) == {"FREE": 12, "SEALED": 2, "FILLING": 2}
    assert [patrol(node, slot) for slot in range(5)] == ["SEALED", "RETIRING", "RETIRING", "FILLING", "FREE"]
    assert node.sweep(0) == 2
    assert occupancy(node) == {"FREE": 14, "SEALED": 1, "FILLING": 1}


def test_patrol_and_clock_each_have_a_position_of_their_own_and_go_round(node):
    part = node.partitions[0]
    visit(node, 0)
    assert (part.hand, part.patrol) == (1, 0)
    for slot in range(15):
        patrol(node, slot)
    assert (part.hand, part.patrol) == (1, 15)
    patrol(node, 15)
    assert (part.hand, part.patrol) == (1, 0)


def test_patrol_ages_nothing_and_evicts_nothing_however_short_slots_are(node):
    put_and_leave(node, *range(16))
    assert (node.partitions[0].free_count, node.partitions[0].low) == (0, True)
    ages = [block.age for block in node.partitions[0].blocks]
    assert [patrol(node, slot) for slot in range(16)] == ["SEALED"] * 16
    assert [block.age for block in node.partitions[0].blocks] == ages


def test_slots_of_a_retired_model_are_taken_before_any_live_block(node):
    put(node, *range(4), model=2, klass=3)
    put(node, *range(8), model=1)
    node.retire_model(0, 1)
    put(node, *range(100, 106), model=2)
    assert reads(node, *range(4), model=2) == ["OK"] * 4


def test_retired_model_stays_retired_however_often_it_retires(node):
    put(node, 1, model=1)
    for _ in range(1 << node.config.epoch_bits):
        node.retire_model(0, 1)
        assert reads(node, 1, model=1) == ["MISS"]


def test_one_step_of_the_patrol_for_each_retirement_is_enough(node):
    # What the RTL's sweeper does at the very least. 16 slots, and 32 epochs are the fewest that this size may have.
    with pytest.raises(ConfigError, match=r"epoch_bits = 4: must be above partitions\[0\].slots_log2 = 4"):
        node.config.replace(epoch_bits=4)
    put(node, *range(14), model=1)
    for step in range(1 << node.config.epoch_bits):
        retire(node, 1)
        assert reads(node, *range(14), model=1) == ["MISS"] * 14
        patrol(node, step % 16)
    assert node.partitions[0].epochs[1] == 0
    assert occupancy(node) == {"FREE": 16}


# Room.


def test_eviction_begins_below_the_low_watermark_and_ends_at_half_as_many_slots_again(make_node):
    node = make_node(low=4)
    part = node.partitions[0]
    put_and_leave(node, *range(12))
    assert (part.free_count, part.low) == (4, False)
    put_and_leave(node, 12)
    assert (part.free_count, part.low) == (3, True)
    # New blocks of the normal class have no age: each visit takes one, until six slots are free.
    assert [visit(node, slot) for slot in range(4)] == ["RETIRING", "RETIRING", "RETIRING", "SEALED"]
    assert (node.sweep(0), part.free_count, part.low) == (3, 6, False)
    put_and_leave(node, 13, 14)
    assert (part.free_count, part.low) == (4, False)
    put_and_leave(node, 15)
    assert (part.free_count, part.low) == (3, True)


def test_retiring_slots_count_as_room_so_that_no_more_is_evicted_than_asked_for(node):
    # Eviction of partition 0 begins below two slots and ends at three.
    part = node.partitions[0]
    put_and_leave(node, *range(16))
    assert [visit(node, slot) for slot in range(4)] == ["RETIRING", "RETIRING", "RETIRING", "SEALED"]
    assert (part.free_count, len(part.retire_queue), part.low) == (0, 3, False)
    for slot in range(2):
        node.operate(Operation(SWEEPER, Kind.REAP, 0, slot=slot))
    assert (part.free_count, len(part.retire_queue), part.low) == (2, 1, False)
    put_and_leave(node, 98)
    assert (part.free_count, len(part.retire_queue), part.low) == (1, 1, False)
    put_and_leave(node, 99)
    assert (part.free_count, len(part.retire_queue), part.low) == (0, 1, True)
    node.drop(WRITER, 0, key(15))
    assert (part.free_count, part.low) == (3, False)


def test_eviction_keeps_free_slots_and_takes_what_was_not_read(node):
    put(node, *range(14))
    assert occupancy(node) == {"FREE": 2, "SEALED": 14}
    assert reads(node, *range(7)) == ["OK"] * 7
    put(node, 14)
    # Below two free slots, the clock goes on until there are three.
    assert occupancy(node) == {"FREE": 3, "SEALED": 13}
    assert reads(node, *range(7)) == ["OK"] * 7
    assert reads(node, *range(7, 10)) == ["MISS", "MISS", "OK"]


def test_eviction_keeps_within_a_partition(node):
    put(node, *range(6), port=FOREIGN)
    put(node, *range(1000, 1100))
    assert occupancy(node, 1) == {"FREE": 2, "SEALED": 6}
    assert [node.read(FOREIGN, 0, key(n)).data for n in range(6)] == [some_bytes(BEAT, n) for n in range(6)]


def test_block_past_its_window_goes_before_a_system_prompt(node):
    put(node, *range(7), klass=0)
    put(node, *range(7, 14), klass=2)
    put(node, *range(14, 21), klass=1)
    assert reads(node, *range(7)) == ["OK"] * 7
    assert reads(node, *range(7, 14)) == ["MISS"] * 7


def test_partition_that_keeps_no_slot_free_refuses_and_never_evicts(node):
    put(node, *range(8), port=FOREIGN)
    assert name(start(node, port=FOREIGN, digest=key(8))) == "NO_SPACE"
    assert reads(node, *range(8), port=FOREIGN) == ["OK"] * 8


def test_no_space_when_every_slot_is_being_written(make_node):
    node = make_node(fill_rows=16)
    grants = [start(node, port=FOREIGN, digest=key(number)) for number in range(8)]
    assert [name(grant) for grant in grants] == ["GRANTED"] * 8
    answer = start(node, port=FOREIGN, digest=key(8))
    assert (name(answer), answer.fields["slot"], answer.fields["length"]) == ("NO_SPACE", 0, 0)
    assert name(node.ask(FOREIGN, Opcode.PUT_REVOKE, digest=node.handle_of(grants[3]))) == "OK"
    assert start(node, port=FOREIGN, digest=key(8)).fields["slot"] == 3


def test_no_space_when_every_fill_row_is_taken(node):
    handle = node.handle_of(start(node, digest=key(1), length=BEAT))
    assert name(start(node, digest=key(2))) == "GRANTED"
    assert name(start(node, digest=key(3))) == "NO_SPACE"
    assert name(start(node, digest=key(1))) == "BUSY"
    assert name(start(node, port=FOREIGN, digest=key(3))) == "GRANTED"
    write(node, handle, bytes(BEAT))
    assert name(end(node, handle)) == "SEALED"
    assert name(start(node, digest=key(3))) == "GRANTED"


def test_fill_row_is_granted_again_from_the_fourth_cycle_on(make_node):
    node = make_node(fill_rows=1)

    def operate(kind, cycle, digest=0, slot=0):
        return node.operate(
            Operation(WRITER, kind, 0, digest=digest, by_handle=kind != Kind.PUT_START, slot=slot, length=1), cycle
        ).status.name

    assert operate(Kind.PUT_START, 10, digest=1) == "GRANTED"
    assert operate(Kind.PUT_REVOKE, 20) == "OK"
    assert [operate(Kind.PUT_START, cycle, digest=cycle) for cycle in (21, 22, 23)] == ["NO_SPACE"] * 3
    assert operate(Kind.PUT_START, 24, digest=24) == "GRANTED"


def place_of(node, digest, partition=0):
    return node.partitions[partition].index.place(digest, 0, 0, 0)


def test_key_whose_tag_stands_in_its_pair_is_refused_until_that_one_goes(make_node):
    node = make_node(tag_bits=2)
    twin = next(key(n) for n in range(10_000) if place_of(node, key(n)) == place_of(node, KEY))
    node.put(WRITER, 0, KEY, some_bytes(BEAT))
    assert name(start(node, digest=twin)) == "NO_SPACE"
    assert name(node.read(WRITER, 0, twin)) == "MISS"
    assert name(node.ask(WRITER, Opcode.LOOKUP, digest=twin)) == "MISS"
    assert name(node.drop(WRITER, 0, twin)) == "MISS"
    assert node.read(WRITER, 0, KEY).data == some_bytes(BEAT)
    node.drop(WRITER, 0, KEY)
    assert name(start(node, digest=twin)) == "GRANTED"


def test_key_whose_pair_is_full_is_refused(make_node):
    # Partition 1 has 8 slots in 4 rows of 2 ways of each table; 4 keys with one pair of rows fill it.
    node = make_node(ways=2)
    pairs = {}
    for number in range(3000):
        row, tag = place_of(node, key(number), 1)
        pairs.setdefault((row, (row ^ tag ^ tag >> 11) & 3), {})[tag] = key(number)
    together = list(pairs[1, 2].values())[:5]
    assert [name(node.put(FOREIGN, 0, digest, bytes(BEAT))) for digest in together] == ["SEALED"] * 4 + ["NO_SPACE"]


# Nothing malformed changes anything.


def state_of(node):
    return [
        (part.blocks, part.free_count, len(part.index), part.hand, part.patrol, part.low, part.epochs)
        for part in node.partitions
    ]


def test_malformed_requests_change_nothing(half):
    node, handle, _ = half
    before = repr(state_of(node))
    rng = random.Random(3)
    for _ in range(300):
        header = bytearray(rng.randbytes(64))
        header[0] = rng.choice((*range(9), rng.randrange(256)))
        answer = node.request(rng.randrange(4), bytes(header), rng.randbytes(rng.choice((0, 16, 32))))
        assert name(answer) == "BAD_REQUEST"
    assert name(write(node, handle, bytes(BEAT), offset=PAYLOAD, session=1)) == "BAD_REQUEST"
    assert repr(state_of(node)) == before


def test_node_takes_the_name_of_a_preset():
    assert GoldenNode("tiny").config == preset("tiny")
    assert GoldenNode().config == preset("sim")


def test_sweep_ends_when_nothing_can_be_evicted(make_node):
    node = make_node(fill_rows=16)
    for number in range(16):
        assert name(start(node, digest=key(number))) == "GRANTED"
    assert node.sweep(0) == 4 * 16
    assert occupancy(node) == {"FILLING": 16}
