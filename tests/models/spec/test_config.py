"""Node configuration: presets, derived sizes worked out by hand, and errors that name key and value."""

import dataclasses
import json

import pytest

from kvnode.models.spec.config import PRESETS, ConfigError, NodeConfig, PartitionConfig, preset

TINY = preset("tiny")
KEYS = {f.name for f in dataclasses.fields(NodeConfig)}


def partition(**changes):
    return PartitionConfig(**({"ports": (0, 1), "slots_log2": 3, "low_watermark_slots": 2, "seed": 5} | changes))


@pytest.mark.parametrize("name", PRESETS)
def test_preset_survives_plain_dictionaries(name):
    data = preset(name).to_dict()
    assert NodeConfig.from_dict(json.loads(json.dumps(data))) == preset(name)


@pytest.mark.parametrize("name", PRESETS)
def test_dictionary_of_a_preset_is_complete(name):
    data = preset(name).to_dict()
    assert set(data) == KEYS
    assert all(set(part) == {f.name for f in dataclasses.fields(PartitionConfig)} for part in data["partitions"])
    assert data["name"] == name


def test_defaults_may_be_left_out_of_a_dictionary():
    data = {
        "name": "small",
        "ports": 2,
        "beat_bytes": 32,
        "block_bytes": 128,
        "max_payload_bytes": 64,
        "partitions": [{"ports": [1, 0], "slots_log2": 3, "low_watermark_slots": 1, "seed": 9}],
    }
    config = NodeConfig.from_dict(data)
    assert (config.models, config.fill_rows, config.ways, config.tag_bits) == (4, 8, 8, 32)
    assert (config.digest_bits, config.generation_bits, config.epoch_bits, config.sharing) == (256, 16, 16, "strict")
    assert (config.leases, config.sessions, config.tick_cycles_log2) == (64, 16, 8)
    assert (config.session_generation_bits, config.lease_generation_bits) == (20, 16)
    assert config.partitions == (PartitionConfig((1, 0), 3, 1, 9, ""),)
    part = config.partitions[0]
    assert (part.reserve_slots, part.fill_deadline_ticks, part.lease_ticks) == (0, 4096, 4096)
    assert (part.block_ttl, part.public) == (0, False)


def test_sizes_derived_for_tiny_are_those_worked_out_by_hand():
    # 128 byte blocks of 16 byte beats on 2 banks; partitions of 8 and 4 slots; rows of 2 ways; port 1 owns partition 0.
    assert TINY.block_beats == 8
    assert TINY.bank_rows_per_block == 4
    assert TINY.request_beats == 4
    assert TINY.response_beats == 2
    assert TINY.max_match_digests == 2
    assert TINY.slots == 12
    assert TINY.slot_bases == (0, 8)
    assert TINY.slot_bits == 3
    assert TINY.rows_log2 == (2, 1)
    assert TINY.index_rows == 6
    assert TINY.partition_of_port == (1, 0)
    # Two sessions and four leases a partition; the sweeper has a turn of each partition's for each port it owns.
    assert (TINY.session_bits, TINY.lease_bits) == (1, 2)
    assert TINY.port_masks == (0b10, 0b01)
    assert TINY.sweep_order == (1, 0)
    assert TINY.public_partition is None


def test_sizes_derived_for_sim_are_those_worked_out_by_hand():
    config = preset("sim")
    assert config.block_beats == 128
    assert config.bank_rows_per_block == 32
    assert config.request_beats == 2
    assert config.response_beats == 1
    assert config.max_match_digests == 128
    assert config.slots == 8192
    assert config.slot_bases == (0, 4096, 6144)
    assert config.slot_bits == 12
    assert config.rows_log2 == (9, 8, 8)
    assert config.index_rows == 1024
    assert config.partition_of_port == (0, 1, 2, 0)
    assert (config.session_bits, config.lease_bits) == (4, 6)
    assert config.port_masks == (0b1001, 0b0010, 0b0100)
    assert sorted(config.sweep_order) == [0, 0, 1, 2]


def test_one_session_and_one_lease_take_no_bits_of_a_row():
    config = TINY.replace(sessions=1, leases=1, session_generation_bits=31)
    assert (config.session_bits, config.lease_bits) == (0, 0)


def test_public_partition_is_found_by_its_number():
    first, second = TINY.partitions
    public = dataclasses.replace(second, public=True)
    assert TINY.replace(partitions=(first, public)).public_partition == 1
    assert TINY.replace(partitions=(dataclasses.replace(first, public=True), second)).public_partition == 0
    with pytest.raises(ConfigError, match=r"^partitions = \['a', 'b'\]: at most one can be public$"):
        TINY.replace(partitions=(dataclasses.replace(first, public=True), public))


def test_messages_shorter_than_a_beat_take_a_whole_one():
    assert (preset("wide").request_beats, preset("wide").response_beats) == (1, 1)


def test_tiny_is_asymmetric():
    assert TINY.partitions[0].slots != TINY.partitions[1].slots
    assert TINY.partition_of_port != tuple(range(TINY.ports))
    assert len({TINY.tag_bits, TINY.epoch_bits, TINY.digest_bits}) == 3
    assert len({TINY.session_bits, TINY.lease_bits, TINY.slot_bits}) == 3
    assert len({TINY.leases, TINY.sessions, TINY.partitions[0].slots}) == 3


@pytest.mark.parametrize("name", PRESETS)
def test_every_partition_is_aligned_to_its_own_size(name):
    config = preset(name)
    assert all(base % part.slots == 0 for base, part in zip(config.slot_bases, config.partitions))
    assert [part.slots for part in config.partitions] == sorted((p.slots for p in config.partitions), reverse=True)


@pytest.mark.parametrize("name", PRESETS)
def test_no_two_partitions_of_a_preset_share_a_seed(name):
    seeds = [part.seed for part in preset(name).partitions]
    assert len(set(seeds)) == len(seeds)


#: What is changed in tiny, and the key and value that the message must name.
IMPOSSIBLE = [
    ({"ports": 3}, "ports", "3"),
    ({"ports": 0}, "ports", "0"),
    ({"ports": -2}, "ports", "-2"),
    ({"ports": 1}, "ports", "1"),
    ({"beat_bytes": 24}, "beat_bytes", "24"),
    ({"beat_bytes": 4}, "beat_bytes", "4"),
    ({"beat_bytes": 128}, "beat_bytes", "128"),
    ({"models": 3}, "models", "3"),
    ({"models": 512}, "models", "512"),
    ({"fill_rows": 6}, "fill_rows", "6"),
    ({"fill_rows": 512}, "fill_rows", "512"),
    ({"leases": 0}, "leases", "0"),
    ({"leases": 3}, "leases", "3"),
    ({"leases": 512}, "leases", "512"),
    ({"sessions": 0}, "sessions", "0"),
    ({"sessions": 6}, "sessions", "6"),
    ({"sessions": 2048}, "sessions", "2048"),
    ({"session_generation_bits": 0}, "session_generation_bits", "0"),
    ({"session_generation_bits": 32}, "session_generation_bits", "32"),
    ({"session_generation_bits": 31}, "session_generation_bits", "31"),
    ({"session_generation_bits": 2}, "session_generation_bits", "2"),
    ({"lease_generation_bits": 0}, "lease_generation_bits", "0"),
    ({"lease_generation_bits": 24}, "lease_generation_bits", "24"),
    ({"tick_cycles_log2": -1}, "tick_cycles_log2", "-1"),
    ({"tick_cycles_log2": 32}, "tick_cycles_log2", "32"),
    ({"ways": 3}, "ways", "3"),
    ({"ways": 1}, "ways", "1"),
    ({"ways": 32}, "ways", "32"),
    ({"tag_bits": 1}, "tag_bits", "1"),
    ({"tag_bits": 33}, "tag_bits", "33"),
    ({"digest_bits": 0}, "digest_bits", "0"),
    ({"digest_bits": 257}, "digest_bits", "257"),
    ({"generation_bits": 0}, "generation_bits", "0"),
    ({"generation_bits": 33}, "generation_bits", "33"),
    ({"epoch_bits": 33}, "epoch_bits", "33"),
    ({"epoch_bits": 0}, "epoch_bits", "0"),
    ({"epoch_bits": 3}, "epoch_bits", "3"),
    ({"partitions": (partition(slots_log2=4),)}, "epoch_bits", "4"),
    ({"boot_epoch_bits": 0}, "boot_epoch_bits", "0"),
    ({"sharing": "loose"}, "sharing", "'loose'"),
    ({"block_bytes": 48}, "block_bytes", "48"),
    ({"block_bytes": 0}, "block_bytes", "0"),
    ({"block_bytes": -32}, "block_bytes", "-32"),
    ({"max_payload_bytes": 48}, "max_payload_bytes", "48"),
    ({"max_payload_bytes": 160}, "max_payload_bytes", "160"),
    ({"max_payload_bytes": 0}, "max_payload_bytes", "0"),
    ({"partitions": ()}, "partitions", "()"),
    ({"partitions": (partition(ports=(0,)),)}, "partitions", "[(0,)]"),
    ({"partitions": (partition(ports=(0, 1, 1)),)}, "partitions", "[(0, 1, 1)]"),
    ({"partitions": (partition(ports=(0, 2)),)}, "partitions", "[(0, 2)]"),
    ({"partitions": (partition(slots_log2=0),)}, "partitions[0].slots_log2", "0"),
    ({"partitions": (partition(slots_log2=-1),)}, "partitions[0].slots_log2", "-1"),
    ({"partitions": (partition(slots_log2=33),)}, "partitions[0].slots_log2", "33"),
    ({"partitions": (partition(low_watermark_slots=9),)}, "partitions[0].low_watermark_slots", "9"),
    ({"partitions": (partition(low_watermark_slots=5),)}, "partitions[0].low_watermark_slots", "5"),
    ({"partitions": (partition(low_watermark_slots=-1),)}, "partitions[0].low_watermark_slots", "-1"),
    ({"partitions": (partition(reserve_slots=-1),)}, "partitions[0].reserve_slots", "-1"),
    ({"partitions": (partition(low_watermark_slots=4, reserve_slots=4),)}, "partitions[0].reserve_slots", "4"),
    ({"partitions": (partition(fill_deadline_ticks=-1),)}, "partitions[0].fill_deadline_ticks", "-1"),
    ({"partitions": (partition(fill_deadline_ticks=32768),)}, "partitions[0].fill_deadline_ticks", "32768"),
    ({"partitions": (partition(lease_ticks=-1),)}, "partitions[0].lease_ticks", "-1"),
    ({"partitions": (partition(lease_ticks=32768),)}, "partitions[0].lease_ticks", "32768"),
    ({"partitions": (partition(block_ttl=-1),)}, "partitions[0].block_ttl", "-1"),
    ({"partitions": (partition(block_ttl=256),)}, "partitions[0].block_ttl", "256"),
    ({"partitions": (partition(seed=1 << 192),)}, "partitions[0].seed", str(1 << 192)),
    ({"partitions": (partition(seed=-1),)}, "partitions[0].seed", "-1"),
]


@pytest.mark.parametrize(("changes", "key", "value"), IMPOSSIBLE, ids=lambda item: str(item)[:40])
def test_impossible_value_is_refused_naming_key_and_value(changes, key, value):
    with pytest.raises(ConfigError) as caught:
        TINY.replace(**changes)
    rules = ("must ", "at least one is needed", "with those of 2 sessions must ")
    assert str(caught.value).startswith(tuple(f"{key} = {value}: {rule}" for rule in rules))


#: The smallest and the largest value that tiny can have.
LIMITS = {
    "models": (1, 256), "fill_rows": (1, 256), "leases": (1, 256), "sessions": (1, 1024), "ways": (2, 4),
    "tag_bits": (2, 32), "generation_bits": (1, 32), "epoch_bits": (4, 32), "session_generation_bits": (3, 30),
    "lease_generation_bits": (1, 23), "tick_cycles_log2": (0, 31),
}  # fmt: skip


@pytest.mark.parametrize("key", LIMITS)
def test_limits_themselves_are_allowed(key):
    for value in LIMITS[key]:
        assert getattr(TINY.replace(**{key: value}), key) == value


@pytest.mark.parametrize(
    ("key", "largest"),
    [("reserve_slots", 3), ("fill_deadline_ticks", 32767), ("lease_ticks", 32767), ("block_ttl", 255)],
)
def test_limits_of_a_partition_are_allowed(key, largest):
    for value in (0, largest):
        part = partition(**{"low_watermark_slots": 4, key: value})
        assert getattr(TINY.replace(partitions=(part,)).partitions[0], key) == value


def test_seed_has_a_key_of_32_bits_for_each_of_six_rounds():
    largest = (1 << 6 * 32) - 1
    assert TINY.replace(partitions=(partition(seed=largest),)).partitions[0].seed == largest
    with pytest.raises(ConfigError, match="must have at most 192 bits"):
        TINY.replace(partitions=(partition(seed=largest + 1),))


def test_eviction_ends_at_half_as_many_slots_again_as_where_it_begins():
    begins_and_ends = [(0, 0), (1, 1), (2, 3), (3, 4), (4, 6)]
    assert [(low, partition(low_watermark_slots=low).high_watermark_slots) for low in range(5)] == begins_and_ends
    # Half of the slots is the most for it to begin, so that its end is inside of the partition.
    largest = TINY.replace(partitions=(partition(low_watermark_slots=4),)).partitions[0]
    assert largest.high_watermark_slots == 6 < largest.slots == 8


def test_epochs_are_more_than_the_slots_of_every_partition():
    # tiny has 8 slots and 4. The patrol meets one slot for each epoch that goes by, and must be round before the last.
    assert TINY.replace(epoch_bits=4).epoch_bits == 4
    with pytest.raises(ConfigError, match=r"^epoch_bits = 3: must be above partitions\[0\].slots_log2 = 3$"):
        TINY.replace(epoch_bits=3)
    assert all(1 << preset(name).epoch_bits > part.slots for name in PRESETS for part in preset(name).partitions)


def test_numbers_of_sessions_are_more_than_the_slots_of_every_partition():
    # As for epochs: the patrol is round before the number of a closed session returns. tiny has one bit of a row.
    assert TINY.replace(session_generation_bits=3).session_generation_bits == 3
    with pytest.raises(ConfigError) as caught:
        TINY.replace(session_generation_bits=2)
    assert str(caught.value) == (
        "session_generation_bits = 2: with those of 2 sessions must be above partitions[0].slots_log2 = 3"
    )
    for config in map(preset, PRESETS):
        numbers = config.sessions << config.session_generation_bits
        assert all(numbers > part.slots for part in config.partitions)


def test_number_of_a_session_has_at_most_31_bits():
    assert TINY.replace(sessions=1024, session_generation_bits=21).session_bits == 10
    with pytest.raises(ConfigError) as caught:
        TINY.replace(sessions=1024, session_generation_bits=22)
    assert str(caught.value) == "session_generation_bits = 22: with those of 1024 sessions must be at most 31"


def test_partitions_must_stand_in_order_of_falling_size():
    small, large = partition(ports=(0,), slots_log2=2), partition(ports=(1,), slots_log2=3)
    assert TINY.replace(partitions=(large, small)).slot_bases == (0, 8)
    with pytest.raises(ConfigError, match=r"partitions\[1\].slots_log2 = 3: partitions must stand in order of falling"):
        TINY.replace(partitions=(small, large))


def test_largest_match_fits_the_count_of_the_response():
    # `count` of a response has two bytes: 65535 digests of 32 bytes.
    assert TINY.replace(block_bytes=1 << 22, max_payload_bytes=65535 * 32).max_match_digests == 65535
    with pytest.raises(ConfigError, match="max_payload_bytes = 2097152: "):
        TINY.replace(block_bytes=1 << 22, max_payload_bytes=65536 * 32)


def test_largest_block_fits_the_length_of_a_message():
    # `length` has four bytes.
    with pytest.raises(ConfigError, match="block_bytes = 4294967296: "):
        TINY.replace(block_bytes=1 << 32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(wings=2), "configuration has no key 'wings'; it has name, ports, beat_bytes"),
        (lambda d: d.pop("ports"), "configuration lacks 'ports'"),
        (lambda d: d.pop("name"), "configuration lacks 'name'"),
        (lambda d: d.update(ways="8"), "configuration.ways = '8': must be a whole number"),
        (lambda d: d.update(ways=2.0), "configuration.ways = 2.0: must be a whole number"),
        (lambda d: d.update(ways=True), "configuration.ways = True: must be a whole number"),
        (lambda d: d.update(name=3), "configuration.name = 3: must be a string"),
        (lambda d: d.update(partitions={}), "partitions = {}: must be a list"),
        (lambda d: d.update(partitions=[7]), "partitions[0] = 7: must be a mapping"),
        (lambda d: d["partitions"][1].update(slot=2), "partitions[1] has no key 'slot'; it has ports, slots_log2"),
        (lambda d: d["partitions"][1].pop("seed"), "partitions[1] lacks 'seed'"),
        (lambda d: d["partitions"][0].update(ports=1), "partitions[0].ports = 1: must be a list of port numbers"),
        (lambda d: d["partitions"][0].update(ports=["1"]), "partitions[0].ports = ['1']: must be a list of port"),
        (lambda d: d["partitions"][1].update(public=1), "partitions[1].public = 1: must be true or false"),
        (lambda d: d["partitions"][1].update(public="yes"), "partitions[1].public = 'yes': must be true or false"),
        (lambda d: d["partitions"][1].update(lease_ticks=True), "partitions[1].lease_ticks = True: must be a whole"),
        (lambda d: d.update(sessions="2"), "configuration.sessions = '2': must be a whole number"),
        (lambda d: d["partitions"][0].update(seed="x"), "partitions[0].seed = 'x': must be a whole number"),
    ],
)
def test_wrong_dictionary_is_refused_naming_the_key(change, message):
    data = TINY.to_dict()
    change(data)
    with pytest.raises(ConfigError) as caught:
        NodeConfig.from_dict(data)
    assert str(caught.value).startswith(message)


def test_something_else_than_a_dictionary_is_refused():
    with pytest.raises(ConfigError, match=r"configuration = \[\]: must be a mapping"):
        NodeConfig.from_dict([])


def test_unknown_key_of_a_replacement_is_named():
    with pytest.raises(ConfigError, match="configuration has no key 'wings'"):
        TINY.replace(wings=2)


def test_unknown_preset_names_those_there_are():
    with pytest.raises(ConfigError, match="preset 'huge': there are tiny, sim, wide"):
        preset("huge")


def test_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.ports = 4
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.partitions[0].seed = 1
