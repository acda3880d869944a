"""Lockstep on a made-up trace: it passes as it is, and any field that is changed stops it with a message."""

import re

import numpy as np
import pytest

from kvnode.models.golden import Difference, GoldenNode, Lockstep
from kvnode.models.golden.node import Operation
from kvnode.models.spec.batch import TRACE_DTYPE
from kvnode.models.spec.enums import Kind, Opcode, State, Status
from kvnode.models.spec.messages import TraceFlag
from kvnode.models.spec.policy import AGE_ON_HIT, AGE_ON_INSERT

BEAT = 16
WRITER, MATE, SWEEPER = 3, 1, 4
KEY, OTHER = 0xFEDCBA9876543210, 0x0123456789ABCDEF


@pytest.fixture
def trace(node):
    """(configuration, records) of a story with every kind of operation."""
    start = node.ask(WRITER, Opcode.PUT_START, digest=KEY, length=4 * BEAT, model_id=1, group=2, klass=1)
    handle = node.handle_of(start)
    by_handle = {"digest": handle, "model_id": 1, "group": 2}
    node.ask(WRITER, Opcode.WRITE, bytes(2 * BEAT), length=2 * BEAT, **by_handle)
    node.ask(MATE, Opcode.WRITE, bytes(2 * BEAT), offset=2 * BEAT, length=2 * BEAT, **by_handle)
    node.ask(WRITER, Opcode.READ, flags=1, length=2 * BEAT, **by_handle)
    node.ask(WRITER, Opcode.WRITE, bytes(2 * BEAT), offset=2 * BEAT, length=2 * BEAT, **by_handle)
    node.ask(WRITER, Opcode.PUT_END, **by_handle)
    node.ask(MATE, Opcode.LOOKUP, digest=KEY, model_id=1, group=2)
    node.match(MATE, 1, [KEY, OTHER], group=2)
    node.read(MATE, 1, KEY, group=2)
    node.ask(0, Opcode.PING)
    node.put(0, 0, OTHER, bytes(BEAT))
    node.drop(2, 0, OTHER)
    second = node.handle_of(node.ask(WRITER, Opcode.PUT_START, digest=OTHER, length=BEAT))
    node.ask(WRITER, Opcode.PUT_REVOKE, digest=second)
    # The clock's hand meets one block of the retired model, the patrol the other, two slots further.
    node.put(WRITER, 1, OTHER, bytes(BEAT))
    node.operate(Operation(SWEEPER, Kind.RETIRE_MODEL, 0, model_id=1))
    node.operate(Operation(SWEEPER, Kind.VISIT, 0, slot=0))
    for slot in range(3):
        node.operate(Operation(SWEEPER, Kind.PATROL, 0, slot=slot))
    node.sweep(0)
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
    assert lockstep.operations == len(trace[1]) == 33
    assert lockstep.node.partitions[0].free_count == 16


def test_story_has_every_kind_of_operation(trace):
    assert set(trace[1]["kind"].tolist()) == set(Kind)


def test_trace_may_come_in_parts(trace):
    config, records = trace
    lockstep = Lockstep(config)
    for part in np.array_split(records, 5):
        lockstep.check(part)
    assert lockstep.operations == len(records)


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
    ("kind", Kind.LOOKUP, 0, 14, "kind 14 in partition 0 does not exist"),
    ("slot", Kind.VISIT, 0, 1, "the sweeper visits slot 1, its hand is at 0"),
    ("slot", Kind.PATROL, 0, 1, "the sweeper patrols slot 1, its patrol is at 0"),
    ("slot", Kind.PATROL, 2, 0, "the sweeper patrols slot 0, its patrol is at 2"),
    ("slot", Kind.REAP, 0, 3, "the sweeper reaps slot 3, retiring are [0]"),
    ("slot", Kind.PUT_END, 0, 16, "slot 16 is outside of the partition's 16"),
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


@pytest.mark.parametrize("kind", [Kind.VISIT, Kind.PATROL, Kind.REAP, Kind.RETIRE_MODEL])
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
    assert caught(trace).reason == f"landed is 1 in RTL, 2 in golden; age is 2 in RTL, {AGE_ON_INSERT[1]} in golden"


def test_second_retirement_without_a_patrol_between_is_caught():
    node = GoldenNode("tiny")
    steps = [Operation(2, Kind.RETIRE_MODEL, 0, model_id=model) for model in (0, 1)]
    records = np.zeros(2, TRACE_DTYPE)
    for number, (record, step) in enumerate(zip(records, steps)):
        result = node.operate(step)
        record["order"], record["cycle"], record["owner"], record["kind"] = number, 10 * number, 2, Kind.RETIRE_MODEL
        record["model_id"], record["epoch"], record["free_count"] = step.model_id, result.epoch, result.free_count
    Lockstep(node.config).check(records[:1])
    with pytest.raises(Difference, match="before the patrol has made the step"):
        Lockstep(node.config).check(records)
