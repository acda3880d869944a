"""Stories of slots on the golden node: who gets one, and who loses his."""

import pytest

from kvnode.models.golden.directory import Operation
from kvnode.models.spec.config import ConfigError
from kvnode.models.spec.enums import Kind, Opcode
from kvnode.models.spec.messages import TraceFlag

BEAT = 16
#: Ports 3 and 1 own partition 0 with 16 slots, ports 0 and 2 partition 1 with 8.
WRITER, FOREIGN = 3, 0
SWEEPER = 4
KEY = 0xFEDCBA9876543210


def name(answer):
    return answer.status.name


# Models.


def test_retired_model_misses_at_once_and_its_blocks_can_be_put_again(node):
    node.put_keys(0, 1, 2, 3, model=1)
    node.put_keys(9, model=2)
    granted = node.read(WRITER, 1, node.key(0))
    node.retire_model(0, 1)
    assert node.reads(0, 1, 2, 3, model=1) == ["MISS"] * 4
    assert node.match(WRITER, 1, node.keys(0, 1)).fields["count"] == 0
    assert name(node.by_handle(Opcode.READ, granted, WRITER, model_id=1)) == "STALE_HANDLE"
    assert node.reads(9, model=2) == ["OK"]
    assert name(node.put(WRITER, 1, node.key(0), node.bytes_of(BEAT, 77))) == "SEALED"
    assert node.read(WRITER, 1, node.key(0)).data == node.bytes_of(BEAT, 77)


def test_block_being_written_when_its_model_retires_is_lost_to_its_writer(node):
    granted = node.start()
    assert name(node.write(granted, bytes(BEAT))) == "OK"
    node.retire_model(0, 0)
    assert name(node.write(granted, bytes(BEAT), offset=BEAT)) == "STALE_HANDLE"
    assert name(node.end(granted)) == "STALE_HANDLE"


def test_slots_and_fill_rows_of_a_retired_model_are_free_at_once(node):
    node.put_keys(0, 1, 2, model=1)
    node.put_keys(9, model=2)
    node.start(digest=node.key(50), model_id=1)
    node.start(digest=node.key(51), model_id=1)
    assert name(node.start(digest=node.key(52), model_id=1)) == "NO_SPACE"
    hand = node.partitions[0].hand
    node.retire_model(0, 1)
    assert node.occupancy() == {"FREE": 15, "SEALED": 1}
    assert node.partitions[0].hand == hand
    assert name(node.start(digest=node.key(52), model_id=1)) == "GRANTED"
    assert name(node.start(digest=node.key(53), model_id=1)) == "GRANTED"


def patrol(node, slot):
    return node.operate(Operation(SWEEPER, Kind.PATROL, slot=slot)).state_after.name


def visit(node, slot):
    return node.operate(Operation(SWEEPER, Kind.VISIT, slot=slot)).state_after.name


def retire(node, model):
    """The register write alone, without the sweeper's round."""
    node.operate(Operation(SWEEPER, Kind.RETIRE_MODEL, model_id=model))


def test_patrol_takes_what_a_retired_model_left_whoever_wrote_it_and_lets_the_rest_be(node):
    node.put_keys(0, model=2, klass=3)
    node.put_keys(1, model=1)
    node.start(digest=node.key(2), model_id=1)
    node.start(digest=node.key(3), model_id=2)
    retire(node, 1)
    assert node.occupancy() == {"FREE": 12, "SEALED": 2, "FILLING": 2}
    assert [patrol(node, slot) for slot in range(5)] == ["SEALED", "RETIRING", "RETIRING", "FILLING", "FREE"]
    assert node.sweep(0) == 2
    assert node.occupancy() == {"FREE": 14, "SEALED": 1, "FILLING": 1}


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
    node.put_and_leave(*range(16))
    assert (node.partitions[0].free_count, node.partitions[0].low) == (0, True)
    ages = [block.age for block in node.partitions[0].blocks]
    assert [patrol(node, slot) for slot in range(16)] == ["SEALED"] * 16
    assert [block.age for block in node.partitions[0].blocks] == ages


def test_slots_of_a_retired_model_are_taken_before_any_live_block(node):
    node.put_keys(*range(4), model=2, klass=3)
    node.put_keys(*range(8), model=1)
    node.retire_model(0, 1)
    node.put_keys(*range(100, 106), model=2)
    assert node.reads(*range(4), model=2) == ["OK"] * 4


def test_retired_model_stays_retired_however_often_it_retires(node):
    node.put_keys(1, model=1)
    for _ in range(1 << node.config.epoch_bits):
        node.retire_model(0, 1)
        assert node.reads(1, model=1) == ["MISS"]


def test_one_step_of_the_patrol_for_each_retirement_is_enough(node):
    # What the RTL's sweeper does at the very least. 16 slots, and 32 epochs are the fewest that this size may have.
    with pytest.raises(ConfigError, match=r"epoch_bits = 4: must be above partitions\[0\].slots_log2 = 4"):
        node.config.replace(epoch_bits=4)
    node.put_keys(*range(14), model=1)
    for step in range(1 << node.config.epoch_bits):
        retire(node, 1)
        assert node.reads(*range(14), model=1) == ["MISS"] * 14
        patrol(node, step % 16)
    assert node.partitions[0].epochs[1] == 0
    assert node.occupancy() == {"FREE": 16}


# Room.


def test_eviction_begins_below_the_low_watermark_and_ends_at_half_as_many_slots_again(make_node):
    node = make_node(low=4)
    part = node.partitions[0]
    node.put_and_leave(*range(12))
    assert (part.free_count, part.low) == (4, False)
    node.put_and_leave(12)
    assert (part.free_count, part.low) == (3, True)
    # New blocks of the normal class have no age: each visit takes one, until six slots are free.
    assert [visit(node, slot) for slot in range(4)] == ["RETIRING", "RETIRING", "RETIRING", "SEALED"]
    assert (node.sweep(0), part.free_count, part.low) == (3, 6, False)
    node.put_and_leave(13, 14)
    assert (part.free_count, part.low) == (4, False)
    node.put_and_leave(15)
    assert (part.free_count, part.low) == (3, True)


def test_retiring_slots_count_as_room_so_that_no_more_is_evicted_than_asked_for(node):
    # Eviction of partition 0 begins below two slots and ends at three.
    part = node.partitions[0]
    node.put_and_leave(*range(16))
    assert [visit(node, slot) for slot in range(4)] == ["RETIRING", "RETIRING", "RETIRING", "SEALED"]
    assert (part.free_count, len(part.retire_queue), part.low) == (0, 3, False)
    for slot in range(2):
        node.operate(Operation(SWEEPER, Kind.REAP, slot=slot))
    assert (part.free_count, len(part.retire_queue), part.low) == (2, 1, False)
    node.put_and_leave(98)
    assert (part.free_count, len(part.retire_queue), part.low) == (1, 1, False)
    node.put_and_leave(99)
    assert (part.free_count, len(part.retire_queue), part.low) == (0, 1, True)
    node.drop(WRITER, 0, node.key(15))
    assert (part.free_count, part.low) == (3, False)


def test_eviction_keeps_free_slots_and_takes_what_was_not_read(node):
    node.put_keys(*range(14))
    assert node.occupancy() == {"FREE": 2, "SEALED": 14}
    assert node.reads(*range(7)) == ["OK"] * 7
    node.put_keys(14)
    # Below two free slots, the clock goes on until there are three.
    assert node.occupancy() == {"FREE": 3, "SEALED": 13}
    assert node.reads(*range(7)) == ["OK"] * 7
    assert node.reads(*range(7, 10)) == ["MISS", "MISS", "OK"]


def test_eviction_keeps_within_a_partition(node):
    node.put_keys(*range(6), port=FOREIGN)
    node.put_keys(*range(1000, 1100))
    assert node.occupancy(1) == {"FREE": 2, "SEALED": 6}
    assert [node.read(FOREIGN, 0, node.key(n)).data for n in range(6)] == [node.bytes_of(BEAT, n) for n in range(6)]


def test_block_past_its_window_goes_before_a_system_prompt(node):
    node.put_keys(*range(7), klass=0)
    node.put_keys(*range(7, 14), klass=2)
    node.put_keys(*range(14, 21), klass=1)
    assert node.reads(*range(7)) == ["OK"] * 7
    assert node.reads(*range(7, 14)) == ["MISS"] * 7


def test_partition_that_keeps_no_slot_free_refuses_and_never_evicts(node):
    node.put_keys(*range(8), port=FOREIGN)
    assert name(node.start(port=FOREIGN, digest=node.key(8))) == "NO_SPACE"
    assert node.reads(*range(8), port=FOREIGN) == ["OK"] * 8


def test_no_space_when_every_slot_is_being_written(make_node):
    node = make_node(fill_rows=16)
    grants = [node.start(port=FOREIGN, digest=node.key(number)) for number in range(8)]
    assert [name(grant) for grant in grants] == ["GRANTED"] * 8
    answer = node.start(port=FOREIGN, digest=node.key(8))
    assert (name(answer), answer.fields["slot"], answer.fields["length"]) == ("NO_SPACE", 0, 0)
    assert name(node.by_handle(Opcode.PUT_REVOKE, grants[3], FOREIGN)) == "OK"
    assert node.start(port=FOREIGN, digest=node.key(8)).fields["slot"] == 3


def test_no_space_when_every_fill_row_is_taken(node):
    granted = node.start(digest=node.key(1), length=BEAT)
    assert name(node.start(digest=node.key(2))) == "GRANTED"
    assert name(node.start(digest=node.key(3))) == "NO_SPACE"
    assert name(node.start(digest=node.key(1))) == "BUSY"
    assert name(node.start(port=FOREIGN, digest=node.key(3))) == "GRANTED"
    node.write(granted, bytes(BEAT))
    assert name(node.end(granted, bytes(BEAT))) == "SEALED"
    assert name(node.start(digest=node.key(3))) == "GRANTED"


def test_fill_row_is_granted_again_from_the_fourth_cycle_on(make_node):
    node = make_node(fill_rows=1)

    def operate(kind, cycle, digest=0, slot=0):
        flags = TraceFlag.BY_HANDLE if kind != Kind.PUT_START else 0
        fields = {"digest": digest, "flags": flags, "slot": slot, "members": 1, "length": 1, "extent": 1}
        return node.operate(Operation(WRITER, kind, **fields), cycle).status.name

    assert operate(Kind.PUT_START, 10, digest=1) == "GRANTED"
    assert operate(Kind.PUT_REVOKE, 20) == "OK"
    assert [operate(Kind.PUT_START, cycle, digest=cycle) for cycle in (21, 22, 23)] == ["NO_SPACE"] * 3
    assert operate(Kind.PUT_START, 24, digest=24) == "GRANTED"


def place_of(node, digest, partition=0):
    return node.partitions[partition].index.place(digest, 0, 0, 0)


def test_key_whose_tag_stands_in_its_pair_is_refused_until_that_one_goes(make_node):
    node = make_node(tag_bits=2)
    twin = next(node.key(n) for n in range(10_000) if place_of(node, node.key(n)) == place_of(node, KEY))
    node.put(WRITER, 0, KEY, node.bytes_of(BEAT))
    assert name(node.start(digest=twin)) == "NO_SPACE"
    assert name(node.read(WRITER, 0, twin)) == "MISS"
    assert name(node.ask(WRITER, Opcode.LOOKUP, digest=twin)) == "MISS"
    assert name(node.drop(WRITER, 0, twin)) == "MISS"
    assert node.read(WRITER, 0, KEY).data == node.bytes_of(BEAT)
    node.drop(WRITER, 0, KEY)
    assert name(node.start(digest=twin)) == "GRANTED"


def test_key_whose_pair_is_full_is_refused(make_node):
    # Partition 1 has 8 slots in 4 rows of 2 ways of each table; 4 keys with one pair of rows fill it.
    node = make_node(ways=2)
    pairs = {}
    for number in range(3000):
        row, tag = place_of(node, node.key(number), 1)
        pairs.setdefault((row, (row ^ tag ^ tag >> 11) & 3), {})[tag] = node.key(number)
    together = list(pairs[1, 2].values())[:5]
    assert [name(node.put(FOREIGN, 0, digest, bytes(BEAT))) for digest in together] == ["SEALED"] * 4 + ["NO_SPACE"]


def test_sweep_ends_when_nothing_can_be_evicted(make_node):
    node = make_node(fill_rows=16)
    for number in range(16):
        assert name(node.start(digest=node.key(number))) == "GRANTED"
    assert node.sweep(0) == 4 * 16
    assert node.occupancy() == {"FILLING": 16}
