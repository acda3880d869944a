"""Why blocks leave the golden node: the cause in the record of each departure, and damaged bytes."""

import pytest

from kvnode.models.golden.directory import Operation
from kvnode.models.spec.causes import Cause
from kvnode.models.spec.enums import Flag, Kind, Opcode

BEAT = 16
WRITER, MATE = 3, 1
SWEEPER, TTL_CYCLES = 4, 65536
KEY = 0xFEDCBA9876543210


def name(answer):
    return answer.status.name


def causes(node):
    """(kind, cause) of every record that has a cause."""
    records = node.records()
    gone = records[records["cause"] > 0]
    assert ((gone["state_after"] == 3) & (gone["state_before"] != 3)).all()
    assert (records["cause"][(records["state_after"] == 3) & (records["state_before"] != 3)] > 0).all()
    return [(Kind(kind).name, Cause(cause).name) for kind, cause in zip(gone["kind"], gone["cause"])]


def poison(node, slot=0):
    return node.operate(Operation(SWEEPER, Kind.POISON, slot=slot))


def session_of(node, **fields):
    return {"session": node.ask(WRITER, Opcode.SESSION_OPEN, **fields).fields["slot"]}


# Sealed blocks.


def test_dropped(node):
    node.put_keys(1)
    node.drop(MATE, 0, node.key(1))
    assert causes(node) == [("DROP", "DROPPED")]


def test_capacity(node):
    node.put_keys(*range(15))
    assert causes(node) == [("VISIT", "CAPACITY")] * 2


def test_model_of_sealed_and_unsealed_blocks(node):
    node.put_keys(1)
    node.start(digest=node.key(2))
    node.retire_model(0, 0)
    assert causes(node) == [("PATROL", "MODEL")] * 2


def test_session_of_a_private_block(node):
    session = session_of(node)
    node.put(WRITER, 0, KEY, bytes(BEAT), flags=int(Flag.PRIVATE), **session)
    node.ask(WRITER, Opcode.SESSION_CLOSE, **session)
    node.advance(0)
    assert causes(node) == [("PATROL", "SESSION")]


def test_time_to_live(node):
    node.put_keys(1, ttl=1)
    node.advance(TTL_CYCLES)
    assert causes(node) == [("PATROL", "TTL")]


def test_clock_that_meets_a_block_nobody_finds_says_why(node):
    node.put_keys(1)
    node.operate(Operation(SWEEPER, Kind.RETIRE_MODEL))
    node.operate(Operation(SWEEPER, Kind.VISIT, slot=0))
    assert causes(node) == [("VISIT", "MODEL")]


# Blocks being written.


def test_revoked(node):
    node.by_handle(Opcode.PUT_REVOKE, node.start())
    assert causes(node) == [("PUT_REVOKE", "REVOKED")]


def test_failed(node):
    node.end(node.start())
    granted = node.start(length=BEAT)
    node.write(granted, bytes(BEAT))
    node.end(granted, b"other")
    assert causes(node) == [("PUT_END", "FAILED")] * 2


def test_deadline(node):
    node.start(deadline=1)
    node.advance(1000)
    assert [cause for _, cause in causes(node)] == ["DEADLINE"]


def test_port(node):
    node.start(MATE)
    node.port_down(MATE)
    assert causes(node) == [("EXPIRE_FILL", "PORT")]


def test_session_that_closed_or_moved(node):
    for opcode in (Opcode.SESSION_MIGRATE, Opcode.SESSION_CLOSE):
        session = session_of(node)
        node.start(sequence=1, **session)
        node.ask(WRITER, opcode, **session)
        node.advance(0)
    assert [cause for _, cause in causes(node)] == ["SESSION"] * 2


def test_refused(node):
    node.start(sequence=17, **session_of(node))
    assert causes(node) == [("PUT_START", "REFUSED")]


# Damaged bytes.


@pytest.mark.parametrize("opcode", [Opcode.READ, Opcode.LOOKUP, Opcode.MATCH, Opcode.LEASE])
def test_damaged_block_is_told_once_and_then_a_miss(node, opcode):
    node.put_keys(1)
    result = poison(node)
    assert (result.state_before.name, result.state_after.name) == ("SEALED", "SEALED")
    asked = [
        node.match(MATE, 0, [node.key(1)]) if opcode == Opcode.MATCH else node.ask(MATE, opcode, digest=node.key(1))
        for _ in range(2)
    ]
    assert [name(answer) for answer in asked] == ["POISONED", "MISS"]
    assert [answer.data for answer in asked] == [b"", b""]
    assert causes(node) == [(opcode.name, "POISONED")]
    assert node.occupancy() == {"FREE": 16}


def test_slot_of_a_block_that_a_match_found_damaged_is_free_at_once(node):
    node.put_keys(1, 2)
    poison(node, 1)
    answer = node.match(MATE, 0, node.keys(1, 2))
    assert (name(answer), answer.fields["count"]) == ("HIT", 1)
    assert node.occupancy() == {"FREE": 15, "SEALED": 1}


def test_damaged_block_behind_a_miss_of_the_same_match_stays(node):
    node.put_keys(1)
    poison(node)
    assert name(node.match(MATE, 0, node.keys(9, 1))) == "MISS"
    assert node.occupancy() == {"FREE": 15, "SEALED": 1}


def test_damaged_block_that_is_leased_stays_until_it_is_released(node):
    node.put_keys(1)
    leased = node.ask(MATE, Opcode.LEASE, digest=node.key(1))
    poison(node)
    for _ in range(2):
        assert name(node.by_handle(Opcode.READ, leased)) == "POISONED"
        assert name(node.ask(MATE, Opcode.LEASE, digest=node.key(1))) == "POISONED"
    node.advance(0)
    assert node.occupancy() == {"FREE": 15, "SEALED": 1}
    assert name(node.by_handle(Opcode.RELEASE, leased)) == "OK"
    node.advance(0)
    assert causes(node) == [("PATROL", "POISONED")]


def test_damage_concerns_sealed_blocks_alone_and_ends_with_them(node):
    granted = node.start(length=BEAT)
    poison(node)
    node.write(granted, bytes(BEAT))
    assert name(node.end(granted, bytes(BEAT))) == "SEALED"
    assert name(node.read(MATE, 0, KEY)) == "OK"
    poison(node)
    node.drop(MATE, 0, KEY)
    poison(node)
    node.put_keys(*range(40))
    assert set(node.reads(*range(40))) == {"OK", "MISS"}


def test_damaged_block_can_be_put_again_after_it_was_told(node):
    node.put_keys(1)
    poison(node)
    assert node.reads(1) == ["POISONED"]
    node.put_keys(1)
    assert node.reads(1) == ["OK"]
