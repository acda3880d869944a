"""Stories of settings on the golden node: quotas, watermarks and times, and the public partition."""

from dataclasses import replace

import pytest

from kvnode.models.golden.directory import Operation
from kvnode.models.spec.enums import Flag, Kind, Opcode
from kvnode.models.spec.settings import Setting

BEAT = 16
#: Ports 3 and 1 own partition 0 with 16 slots, ports 0 and 2 partition 1 with 8.
WRITER, MATE, FOREIGN = 3, 1, 0
SWEEPER, TICK_CYCLES = 4, 256


def name(answer):
    return answer.status.name


def configure(node, setting, value, partition=0):
    return node.operate(Operation(SWEEPER, Kind.CONFIGURE, partition=partition, row=setting, sequence=value))


# Quota.


def test_writer_does_not_get_the_slots_that_are_kept_back(make_node):
    node = make_node(low=0)
    configure(node, Setting.RESERVE_SLOTS, 5)
    node.put_keys(*range(11))
    answer = node.start(digest=node.key(11))
    assert (name(answer), answer.fields["slot"], answer.fields["length"]) == ("QUOTA", 0, 0)
    assert node.occupancy() == {"FREE": 5, "SEALED": 11}
    assert name(node.start(digest=node.key(3))) == "EXISTS"
    assert name(node.drop(WRITER, 0, node.key(3))) == "OK"
    node.put_keys(11)
    assert name(node.start(digest=node.key(3))) == "QUOTA"


def test_missing_fill_row_is_no_space_even_over_quota(make_node):
    node = make_node(low=0)
    configure(node, Setting.RESERVE_SLOTS, 5)
    node.put_keys(*range(9))
    for number in (20, 21):
        assert name(node.start(digest=node.key(number))) == "GRANTED"
    assert name(node.start(digest=node.key(22))) == "NO_SPACE"


def test_quota_does_not_take_what_eviction_can_make(make_node):
    node = make_node(low=4, part={"reserve_slots": 3})
    node.put_keys(*range(50))
    assert node.occupancy()["FREE"] >= 4


def test_quota_is_the_partitions_own(make_node):
    node = make_node(low=0)
    configure(node, Setting.RESERVE_SLOTS, 15)
    node.put_keys(1)
    assert name(node.start(digest=node.key(2))) == "QUOTA"
    node.put_keys(*range(8), port=FOREIGN)


# CONFIGURE.


def test_settings_begin_as_configured(make_node):
    values = {"reserve_slots": 1, "fill_deadline_ticks": 2, "lease_ticks": 3, "block_ttl": 4}
    node = make_node(low=4, part=values)
    assert node.partitions[0].settings == [4, 6, 1, 2, 3, 4]


def test_configure_answers_ok_and_changes_one_setting_of_one_partition(node):
    before = [list(part.settings) for part in node.partitions]
    for setting in Setting:
        assert configure(node, setting, 7, 1).status.name == "OK"
        before[1][setting] = 7
        assert [part.settings for part in node.partitions] == before


def test_raised_low_watermark_makes_room_at_once_and_a_lowered_one_stops_it(node):
    node.put_keys(*range(12))
    assert node.partitions[0].low is False
    configure(node, Setting.HIGH_WATERMARK_SLOTS, 10)
    configure(node, Setting.LOW_WATERMARK_SLOTS, 8)
    assert node.partitions[0].low is True
    node.sweep(0)
    assert node.occupancy() == {"FREE": 10, "SEALED": 6}
    configure(node, Setting.LOW_WATERMARK_SLOTS, 11)
    configure(node, Setting.LOW_WATERMARK_SLOTS, 0)
    assert node.partitions[0].low is False


def test_quota_and_times_are_those_of_the_moment_of_the_request(make_node):
    node = make_node(low=0)
    configure(node, Setting.RESERVE_SLOTS, 14)
    first = node.start(digest=node.key(1), length=BEAT)
    configure(node, Setting.FILL_DEADLINE_TICKS, 10)
    second = node.start(digest=node.key(2), length=BEAT)
    assert [name(first), name(second)] == ["GRANTED", "GRANTED"]
    assert name(node.start(digest=node.key(3))) in ("QUOTA", "NO_SPACE")
    node.advance(100 * TICK_CYCLES)
    assert name(node.write(first, bytes(BEAT))) == "OK"
    assert name(node.write(second, bytes(BEAT))) == "STALE_HANDLE"
    assert name(node.end(first, bytes(BEAT))) == "SEALED"
    configure(node, Setting.LEASE_TICKS, 10)
    assert name(node.ask(MATE, Opcode.LEASE, digest=node.key(1))) == "HIT"
    node.advance(20 * TICK_CYCLES)
    assert name(node.drop(MATE, 0, node.key(1))) == "OK"
    configure(node, Setting.BLOCK_TTL, 1)
    node.put_keys(5)
    node.advance(256 * TICK_CYCLES)
    assert node.reads(5) == ["MISS"]


# The public partition.


@pytest.fixture
def public(make_node):
    """A node whose partition 1 may be read by all, with a block in it."""
    config = make_node().config
    parts = (config.partitions[0], replace(config.partitions[1], public=True))
    node = make_node(partitions=parts)
    node.put_keys(1, 2, port=FOREIGN)
    return node


def test_ports_of_others_read_the_public_partition(public):
    elsewhere = {"partition": 1}
    assert public.read(WRITER, 0, public.key(1), **elsewhere).data == public.bytes_of(BEAT, 1)
    found = public.ask(WRITER, Opcode.LOOKUP, digest=public.key(2), **elsewhere)
    assert name(found) == "HIT"
    assert public.by_handle(Opcode.READ, found, MATE, **elsewhere).data == public.bytes_of(BEAT, 2)
    assert public.match(MATE, 0, public.keys(1, 2, 3), **elsewhere).fields["count"] == 2
    assert public.reads(1) == ["MISS"]


@pytest.mark.parametrize(
    ("opcode", "fields"),
    [
        (Opcode.PUT_START, {"digest": 5, "length": BEAT}), (Opcode.DROP, {"digest": 5}), (Opcode.LEASE, {"digest": 5}),
        (Opcode.LOOKUP, {"digest": 5, "flags": int(Flag.LEASE)}), (Opcode.LOOKUP, {"digest": 5, "session": 1 << 31}),
        (Opcode.RELEASE_ALL, {}), (Opcode.RELEASE, {}), (Opcode.PUT_REVOKE, {}), (Opcode.SESSION_OPEN, {}),
        (Opcode.SESSION_CLOSE, {"session": 1 << 31}), (Opcode.PING, {}),
    ],
)  # fmt: skip
def test_ports_of_others_do_nothing_else_there(public, opcode, fields):
    before = public.occupancy(1)
    assert name(public.ask(WRITER, opcode, partition=1, **fields)) == "DENIED"
    assert public.occupancy(1) == before


def test_owners_of_the_public_partition_read_nowhere_else(public):
    public.put_keys(1)
    assert name(public.read(FOREIGN, 0, public.key(1), partition=0)) == "DENIED"


def test_ports_of_others_do_not_wait_for_a_public_block(public):
    granted = public.start(FOREIGN, public.key(9), BEAT)
    for port in (WRITER, 2):
        assert name(public.read(port, 0, public.key(9), partition=1)) == "NOT_READY"
    public.write(granted, bytes(BEAT), port=FOREIGN)
    assert name(public.end(granted, bytes(BEAT), FOREIGN)) == "SEALED"
    assert public.woken == 1 << 2


def test_handle_is_held_against_the_size_of_the_partition_that_is_named(public):
    granted = public.read(FOREIGN, 0, public.key(1))
    for slot, expected in ((0, "OK"), (7, "STALE_HANDLE"), (8, "STALE_HANDLE"), (15, "STALE_HANDLE")):
        answer = granted._replace(fields=granted.fields | {"slot": slot})
        assert name(public.by_handle(Opcode.READ, answer, WRITER, partition=1)) == expected
