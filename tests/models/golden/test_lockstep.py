"""Lockstep on a made-up trace: it passes as it is, and any field that is changed stops it with a message."""

import re

import numpy as np
import pytest

from kvnode.models.golden import Difference, GoldenNode, Lockstep
from kvnode.models.golden.directory import Operation
from kvnode.models.golden.lockstep import trace_record
from kvnode.models.spec.batch import TRACE_DTYPE
from kvnode.models.spec.enums import Kind, Opcode, State, Status
from kvnode.models.spec.messages import TRACE, TraceFlag
from kvnode.models.spec.policy import AGE_ON_HIT, AGE_ON_INSERT
from kvnode.models.spec.settings import Setting

BEAT = 16
WRITER, MATE, SWEEPER = 3, 1, 4
KEY, OTHER = 0xFEDCBA9876543210, 0x0123456789ABCDEF
#: Fields of a record that are compared: the status, and all behind the operation's own.
NAMES = list(TRACE.fields)
COMPARED = ["status", *NAMES[NAMES.index("digest") + 1 :]]


@pytest.fixture
def trace(node):
    """(configuration, records) of a story with every kind of operation."""
    more = {"model_id": 1, "group": 2}
    granted = node.start(digest=KEY, length=4 * BEAT, klass=1, **more)
    node.write(granted, bytes(2 * BEAT), **more)
    node.write(granted, bytes(2 * BEAT), 2 * BEAT, MATE, **more)
    node.by_handle(Opcode.READ, granted, length=2 * BEAT, **more)
    node.write(granted, bytes(2 * BEAT), 2 * BEAT, **more)
    node.end(granted, bytes(4 * BEAT), **more)
    node.ask(MATE, Opcode.LOOKUP, digest=KEY, **more)
    node.match(MATE, 1, [KEY, OTHER], group=2)
    node.read(MATE, 1, KEY, group=2)
    node.ask(0, Opcode.PING)
    node.put(0, 0, OTHER, bytes(BEAT))
    node.drop(2, 0, OTHER)
    node.by_handle(Opcode.PUT_REVOKE, node.start(digest=OTHER, length=BEAT))
    # The clock's hand meets one block of the retired model, the patrol the other, two slots further.
    node.put(WRITER, 1, OTHER, bytes(BEAT))
    node.operate(Operation(SWEEPER, Kind.RETIRE_MODEL, model_id=1))
    node.operate(Operation(SWEEPER, Kind.VISIT, slot=0))
    for slot in range(3):
        node.operate(Operation(SWEEPER, Kind.PATROL, slot=slot))
    node.sweep(0)
    # A session, two members and a lease.
    opened = node.ask(WRITER, Opcode.SESSION_OPEN)
    session = {"session": opened.fields["slot"]}
    for member in range(2):
        granted = node.start(digest=KEY, length=BEAT, member=member, members=2, sequence=1, **session)
    node.ask(MATE, Opcode.SESSION_FENCE, sequence=1, **session)
    for member in range(2):
        node.write(granted, bytes([member]) * BEAT, member * BEAT, member=member)
        node.end(granted, bytes([member]) * BEAT, member=member, members=2, length=BEAT)
    leased = node.ask(MATE, Opcode.LEASE, digest=KEY, sequence=1, **session)
    node.by_handle(Opcode.RELEASE, leased)
    node.ask(MATE, Opcode.RELEASE_ALL)
    node.ask(WRITER, Opcode.SESSION_MIGRATE, digest=1 << MATE, **session)
    node.ask(WRITER, Opcode.SESSION_CLOSE, session_epoch=1, **session)
    node.operate(Operation(SWEEPER, Kind.CONFIGURE, row=Setting.RESERVE_SLOTS, sequence=1))
    node.operate(Operation(SWEEPER, Kind.POISON, slot=node.read(WRITER, 0, KEY).fields["slot"]))
    node.port_down(MATE)
    return node.config, node.records()


def follow(trace):
    config, records = trace
    lockstep = Lockstep(config)
    lockstep.check(records)
    return lockstep


def caught(trace):
    with pytest.raises(Difference) as error:
        follow(trace)
    return error.value


def first(records, kind, nth=0):
    return int(np.flatnonzero(records["kind"] == kind)[nth])


def test_operations_of_a_golden_node_pass(trace):
    lockstep = follow(trace)
    assert lockstep.operations == len(trace[1])
    assert lockstep.node.partitions[0].free_count == 15


def test_story_has_every_kind_of_operation(trace):
    assert set(trace[1]["kind"].tolist()) == set(Kind)


def test_chain_of_a_match_begins_at_its_first_digest(node):
    node.put_keys(1, 2, 3)
    for _ in range(2):
        node.match(MATE, 0, node.keys(1, 2, 3))
    records = node.records()
    flags = records["flags"][records["kind"] == Kind.MATCH]
    assert (flags & TraceFlag.CHAIN_FIRST).tolist() == [TraceFlag.CHAIN_FIRST, 0, 0] * 2


def test_trace_may_come_in_parts(trace):
    config, records = trace
    lockstep = Lockstep(config)
    for part in np.array_split(records, 5):
        lockstep.check(part)
    assert lockstep.operations == len(records)


@pytest.mark.parametrize("field", COMPARED)
def test_result_of_any_kind_that_is_another_in_any_field_is_caught_and_named(trace, field):
    config, records = trace
    for kind in Kind:
        if (field, kind) == ("status", Kind.ANSWER):
            # The port's own: it is both asked for and answered.
            continue
        at = first(records, kind)
        changed = records[: at + 1].copy()
        value = int.from_bytes(bytes(changed[field][at].tobytes()), "little") ^ 1
        changed[field][at] = np.frombuffer(
            value.to_bytes(TRACE.fields[field].size_bytes, "little"), TRACE_DTYPE[field]
        )[0]
        error = caught((config, changed))
        assert error.record["order"] == at
        assert re.match(rf"{field} is .* in RTL, .* in golden$", error.reason)


#: Field, the operation whose record is changed (the nth of a kind), and what the message must say of it.
RESULTS = [
    ("status", Kind.LOOKUP, 0, Status.MISS, "status is <Status.MISS: 2> in RTL, <Status.HIT: 1> in golden"),
    ("status", Kind.WRITE, 1, Status.OK, "status is <Status.OK: 0> in RTL, <Status.BUSY: 6> in golden"),
    ("state_before", Kind.PUT_END, 0, State.SEALED, "state_before is <State.SEALED: 2> in RTL, <State.FILLING: 1> in"),
    ("state_after", Kind.PUT_END, 0, State.FILLING, "state_after is <State.FILLING: 1> in RTL, <State.SEALED: 2> in"),
    ("state_after", Kind.VISIT, 0, State.SEALED, "state_after is <State.SEALED: 2> in RTL, <State.RETIRING: 3> in"),
    ("state_after", Kind.PATROL, 1, State.RETIRING, "state_after is <State.RETIRING: 3> in RTL, <State.FREE: 0> in"),
    ("state_after", Kind.PATROL, 2, State.SEALED, "state_after is <State.SEALED: 2> in RTL, <State.RETIRING: 3> in"),
    ("state_after", Kind.REAP, 1, State.RETIRING, "state_after is <State.RETIRING: 3> in RTL, <State.FREE: 0> in"),
    ("block_slot", Kind.PUT_START, 0, 1, "block_slot is 1 in RTL, 0 in golden"),
    ("block_generation", Kind.REAP, 0, 0, "block_generation is 0 in RTL, 1 in golden"),
    ("block_length", Kind.LOOKUP, 0, 3, "block_length is 3 in RTL, 4 in golden"),
    ("accepted", Kind.WRITE, 0, 1, "accepted is 1 in RTL, 2 in golden"),
    ("landed", Kind.LAND, 1, 5, "landed is 5 in RTL, 4 in golden"),
    ("age", Kind.READ, 1, AGE_ON_HIT ^ 1, f"age is {AGE_ON_HIT ^ 1} in RTL, {AGE_ON_HIT} in golden"),
    ("free_count", Kind.PUT_START, 1, 8, "free_count is 8 in RTL, 7 in golden"),
    ("free_count", Kind.ANSWER, 0, 7, "free_count is 7 in RTL, 8 in golden"),
    ("wakes", Kind.PUT_END, 4, 0, "wakes is 0 in RTL, 2 in golden"),
    ("cause", Kind.PUT_REVOKE, 0, 1, "cause is <Cause.CAPACITY: 1> in RTL, <Cause.REVOKED: 7> in golden"),
    ("committed", Kind.PUT_END, 4, 0, "committed is 0 in RTL, 1 in golden"),
    ("found_epoch", Kind.SESSION_MIGRATE, 0, 0, "found_epoch is 0 in RTL, 1 in golden"),
    ("granted_lease", Kind.LEASE, 0, 0, f"granted_lease is 0 in RTL, {1 << 31} in golden"),
    ("epoch", Kind.RETIRE_MODEL, 0, 2, "epoch is 2 in RTL, 1 in golden"),
    ("epoch", Kind.LOOKUP, 0, 1, "epoch is 1 in RTL, 0 in golden"),
]


@pytest.mark.parametrize(("field", "kind", "nth", "value", "message"), RESULTS)
def test_changed_result_is_caught_and_explained(trace, field, kind, nth, value, message):
    records = trace[1]
    at = first(records, kind, nth)
    assert records[at][field] != value
    records[field][at] = value
    error = caught(trace)
    assert error.record["order"] == at
    assert message in error.reason and message in str(error)
    assert " in RTL, " not in error.reason.replace(message, "")[:-1] or field == "epoch"


@pytest.mark.parametrize("kind", [Kind.LOOKUP, Kind.MATCH, Kind.READ, Kind.WRITE, Kind.LAND, Kind.PUT_END, Kind.DROP])
def test_presence_that_is_denied_is_caught(trace, kind):
    records = trace[1]
    records["flags"][first(records, kind)] ^= TraceFlag.PRESENT
    assert caught(trace).reason == "present is False in RTL, True in golden"


#: Inputs of an operation: a record that claims another one does not fit what the block did.
INPUTS = [
    ("digest", Kind.LOOKUP, 0, np.frombuffer(bytes(32), "V32")[0]),
    ("group", Kind.LOOKUP, 0, 3),
    ("model_id", Kind.LOOKUP, 0, 2),
    ("model_id", Kind.PUT_END, 0, 0),
    ("klass", Kind.PUT_START, 0, 0),
    ("length", Kind.PUT_START, 0, 5),
    ("owner", Kind.WRITE, 0, MATE),
    ("generation", Kind.WRITE, 0, 1),
    ("slot", Kind.WRITE, 0, 5),
    ("offset", Kind.WRITE, 0, 1),
    ("length", Kind.WRITE, 0, 1),
    ("length", Kind.LAND, 0, 1),
    ("offset", Kind.LAND, 0, 1),
    ("offset", Kind.READ, 1, 4),
    ("crc", Kind.PUT_END, 0, 1),
    ("part_crc", Kind.PUT_END, 0, 1),
    ("members", Kind.PUT_END, 3, 3),
    ("extent", Kind.PUT_END, 3, 2),
    ("member", Kind.PUT_END, 3, 1),
    ("session", Kind.SESSION_FENCE, 0, 1 << 31 | 1),
    ("session_epoch", Kind.SESSION_CLOSE, 0, 0),
    ("sequence", Kind.LEASE, 0, 2),
    ("lease", Kind.RELEASE, 0, 0),
    ("kind", Kind.LOOKUP, 0, Kind.PUT_START),
    ("kind", Kind.PUT_REVOKE, 0, Kind.DROP),
    ("kind", Kind.DROP, 0, Kind.READ),
]


@pytest.mark.parametrize(("field", "kind", "nth", "value"), INPUTS)
def test_operation_that_claims_another_input_is_caught(trace, field, kind, nth, value):
    records = trace[1]
    at = first(records, kind, nth)
    records[field][at] = value
    assert caught(trace).record["order"] == at


@pytest.mark.parametrize(
    ("flag", "kind"),
    [(TraceFlag.CHAIN_FIRST, Kind.MATCH), (TraceFlag.WHOLE, Kind.LAND)],
)
def test_operation_that_claims_another_flag_is_caught(trace, flag, kind):
    records = trace[1]
    records["flags"][first(records, kind)] ^= flag
    assert caught(trace).record["order"] == first(records, kind)


STRUCTURE = [
    ("owner", Kind.LOOKUP, 0, 0, "port 0 does not own partition 0"),
    ("partition", Kind.LOOKUP, 0, 1, "port 1 does not own partition 1"),
    ("partition", Kind.LOOKUP, 0, 2, "kind 1 in partition 2 does not exist"),
    ("kind", Kind.LOOKUP, 0, 27, "kind 27 in partition 0 does not exist"),
    ("slot", Kind.VISIT, 0, 1, "the sweeper looks (VISIT) at slot 1, its hand is at 0"),
    ("slot", Kind.PATROL, 0, 1, "the sweeper looks (PATROL) at slot 1, its hand is at 0"),
    ("slot", Kind.PATROL, 2, 0, "the sweeper looks (PATROL) at slot 0, its hand is at 2"),
    ("slot", Kind.REAP, 0, 3, "the sweeper reaps slot 3, retiring are [0]"),
    ("slot", Kind.PUT_END, 0, 16, "slot 16 is outside of the partition's 16, or member 0 of 8"),
    ("member", Kind.PUT_END, 0, 8, "slot 0 is outside of the partition's 16, or member 8 of 8"),
    ("row", Kind.EXPIRE_FILL, 0, 1, "the sweeper looks (EXPIRE_FILL) at fill row 1, its hand is at 0"),
    ("row", Kind.EXPIRE_LEASE, 0, 7, "the sweeper looks (EXPIRE_LEASE) at lease row 7, its hand is at 0"),
    ("row", Kind.EXPIRE_SESSION, 0, 3, "the sweeper looks (EXPIRE_SESSION) at session row 3, its hand is at 0"),
    ("row", Kind.CONFIGURE, 0, 6, "there is no setting 6"),
    ("order", Kind.LOOKUP, 0, 99, "order 99 follows 7: records were lost"),
    ("order", Kind.LOOKUP, 0, 7, "order 7 follows 7: records were lost"),
    ("cycle", Kind.LOOKUP, 0, 128, "cycle 128 follows cycle 128"),
]


@pytest.mark.parametrize(("field", "kind", "nth", "value", "reason"), STRUCTURE)
def test_record_that_cannot_stand_here_is_caught(trace, field, kind, nth, value, reason):
    records = trace[1]
    records[field][first(records, kind, nth)] = value
    assert caught(trace).reason == reason


@pytest.mark.parametrize(("field", "value"), [("owner", SWEEPER), ("owner", 200)])
def test_operation_of_a_port_does_not_come_from_the_sweeper(trace, field, value):
    records = trace[1]
    at = first(records, Kind.LOOKUP)
    records[field][at] = value
    error = caught(trace)
    assert (error.record["order"], error.reason) == (at, f"LOOKUP cannot come from owner {value}")


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind >= Kind.VISIT])
def test_operation_of_the_sweeper_does_not_come_from_a_port(trace, kind):
    records = trace[1]
    at = first(records, kind, -1)
    records["owner"][at] = WRITER
    error = caught(trace)
    assert (error.record["order"], error.reason) == (at, f"{kind.name} cannot come from owner {WRITER}")


#: What only a broken node, or a broken harness, can send; it must be told from a bug of the checker.
NONSENSE = [
    ("status", Kind.LOOKUP, 0, 31),
    ("status", Kind.ANSWER, 0, 31),
    ("state_after", Kind.PUT_END, 0, 7),
    ("model_id", Kind.LOOKUP, 0, 200),
    ("klass", Kind.PUT_START, 0, 7),
    ("kind", Kind.PUT_START, 0, Kind.WRITE),
    ("kind", Kind.PUT_END, 0, Kind.REAP),
    ("kind", Kind.DROP, 0, Kind.LAND),
    ("flags", Kind.WRITE, 0, 0),
]


@pytest.mark.parametrize(("field", "kind", "nth", "value"), NONSENSE)
def test_nonsense_is_a_difference_and_not_an_error_of_the_checker(trace, field, kind, nth, value):
    records = trace[1]
    at = first(records, kind, nth)
    records[field][at] = value
    assert caught(trace).record["order"] == at


def test_lost_record_is_caught(trace):
    config, records = trace
    for at in (0, 9, len(records) - 2):
        error = caught((config, np.delete(records, at)))
        assert error.reason == f"order {at + 1} follows {at - 1}: records were lost"


def test_lost_record_is_caught_between_two_batches(trace):
    config, records = trace
    lockstep = Lockstep(config)
    lockstep.check(records[:5])
    with pytest.raises(Difference, match="order 6 follows 4: records were lost"):
        lockstep.check(records[6:])


def test_message_names_operation_key_cycle_states_and_the_last_operations(trace):
    records = trace[1]
    at = first(records, Kind.LOOKUP)
    records["state_after"][at] = State.RETIRING
    lines = str(caught(trace)).splitlines()
    assert lines[0] == ("lockstep difference: state_after is <State.RETIRING: 3> in RTL, <State.SEALED: 2> in golden")
    assert lines[1] == (
        f"operation {at} at cycle {16 * at + 16}: LOOKUP by owner 1 in partition 0, model 1 group 2, "
        f"digest {KEY:#x}, offset 0 length 0 beats -> HIT, slot 0 SEALED -> RETIRING"
    )
    assert lines[2] == "last operations:"
    orders = [int(re.match(r"  operation (\d+) at cycle ", line)[1]) for line in lines[3:]]
    assert orders == list(range(at - 8, at))
    assert "PUT_END by owner 3" in lines[-1] and "handle slot 0 generation 0" in lines[-1]
    assert "-> SEALED, slot 0 FILLING -> SEALED" in lines[-1]


def test_first_operation_has_none_before_it(trace):
    trace[1]["status"][0] = Status.EXISTS
    assert str(caught(trace)).splitlines()[2:] == ["last operations:"]


def test_several_differences_are_all_named(trace):
    records = trace[1]
    at = first(records, Kind.LAND)
    records["landed"][at], records["age"][at] = 1, 2
    assert caught(trace).reason == f"age is 2 in RTL, {AGE_ON_INSERT[1]} in golden; landed is 1 in RTL, 2 in golden"


def test_second_retirement_without_a_patrol_between_is_caught():
    node = GoldenNode("tiny")
    steps = [Operation(2, Kind.RETIRE_MODEL, model_id=model) for model in (0, 1)]
    rows = [trace_record(order, 10 * order, step, node.operate(step)) for order, step in enumerate(steps)]
    records = np.frombuffer(b"".join(rows), TRACE_DTYPE)
    Lockstep(node.config).check(records[:1])
    with pytest.raises(Difference, match="before the patrol has made the step"):
        Lockstep(node.config).check(records)
