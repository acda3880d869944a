"""Sweeper: partitions in a fixed order whatever happens; holds delay the reaping of the slot held and nothing else.

Its own turns it always uses; those that a port leaves idle it takes for what is urgent.
"""

from collections import deque

import pytest

from kvnode.models.spec.enums import Kind
from kvnode.models.spec.registers import MODEL_RETIRE_ADDRESS
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.sweeper import HOLDS_PER_PORT, Sweeper
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.agents.stream import Source, pattern
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_sweeper"
CYCLES = 12_000


@bench_test(max_cycles=CYCLES + 20)
async def one_step_in_each_turn(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    shapes, parts = Shapes(config), config.partitions
    operations, holds = Fields(shapes.operation), Fields(shapes.hold)
    accepted = []
    registers = Source(
        bench, "register_", ("address", "data"), pattern("most", 3), lambda item, cycle: accepted.append(item)
    )
    queues, inside, owes = [deque() for _ in parts], [set() for _ in parts], [False] * len(parts)
    hands = {kind: [0] * len(parts) for kind in (Kind.VISIT, Kind.PATROL)}
    held = [[None] * HOLDS_PER_PORT for _ in range(config.ports)]
    pending, turns, popped = None, 0, [-2] * len(parts)
    counts = dict.fromkeys(
        ("VISIT", "PATROL", "REAP", "RETIRE_MODEL", "delayed", "owed", "ignored", "urgent", "idle"), 0
    )
    await bench.start()
    for cycle in range(CYCLES):
        turn = cycle % (config.ports + 1)
        own = turn == config.ports
        owner = config.partition_of_port[turns % config.ports if own else turn]
        low = rng.getrandbits(len(parts)) if cycle % 400 < 200 else 0
        bench.drive(push=0, low=low, next_turn=(cycle + 1) % (config.ports + 1))
        number = rng.randrange(len(parts))
        push = None
        outside = sorted(set(range(parts[number].slots)) - inside[number])
        if outside and rng.randrange(20) < (4, 1, 0)[cycle // 500 % 3]:
            push = rng.choice(outside), rng.getrandbits(shapes.where.size)
            bench.drive(push=1, push_partition=number, push_slot=push[0], push_where=push[1])
        for port, place in ((port, place) for port in range(config.ports) for place in range(HOLDS_PER_PORT)):
            if rng.randrange(30) == 0:
                # Half of them hold what is to be reaped next in their own partition, if anything.
                queue = queues[config.partition_of_port[port]]
                slot = queue[0][0] if queue and rng.getrandbits(1) else rng.randrange(1 << shapes.slot_bits)
                held[port][place] = slot if rng.randrange(3) else None
                valid = held[port][place] is not None
                bench.drive(**{f"holds__{port}__{place}": holds.pack(valid=valid, slot=slot)})
        if not registers.busy and rng.randrange(30) == 0:
            address = MODEL_RETIRE_ADDRESS if rng.randrange(5) else rng.randrange(1 << 16)
            registers.queue.append((address, rng.randrange(len(parts) + 1) << 16 | rng.randrange(config.models + 1)))
        queue = queues[owner]
        mine = {slot for port, slots in enumerate(held) for slot in slots if config.partition_of_port[port] == owner}
        # An item is there in the second cycle after it was put in, and in the second after the one before it left.
        ready = bool(queue) and cycle - queue[0][2] >= 2 and popped[owner] != cycle - 1
        owed = own and owes[owner]
        if own and pending and pending[0] == owner and not owed:
            expected = {"kind": Kind.RETIRE_MODEL, "model_id": pending[1]}
        elif ready and queue[0][0] not in mine and not owed:
            expected = {"kind": Kind.REAP, "slot": queue[0][0], "where": queue[0][1]}
        else:
            # The step of the patrol that a retired model costs comes before everything else.
            kind = Kind.VISIT if low >> owner & 1 and not owed else Kind.PATROL
            expected = {"kind": kind, "slot": hands[kind][owner]}
            counts["delayed"] += ready
            counts["owed"] += owed
        valid = own or expected["kind"] in (Kind.REAP, Kind.VISIT)
        taken = cycle > 0 and valid and (own or rng.getrandbits(1) == 1)
        bench.drive(taken=taken)
        await bench.step()
        at = f"cycle {cycle}"
        if cycle > 0:
            assert bench.get("partition") == owner, at
            assert bench.get("valid") == valid, at
        if valid and cycle > 0:
            operation = operations.unpack(bench.get("operation"))
            found = {name: operation[name] for name in expected}
            assert found == expected, f"{at}, partition {owner}: {found}, expected {expected}"
        counts["idle"] += not valid
        if taken:
            kind = expected["kind"]
            counts[kind.name] += 1
            counts["urgent"] += not own
            if kind == Kind.RETIRE_MODEL:
                pending = None
            elif kind == Kind.REAP:
                inside[owner].remove(queue.popleft()[0])
                popped[owner] = cycle
            else:
                hands[kind][owner] = (hands[kind][owner] + 1) % parts[owner].slots
            if own:
                turns, owes[owner] = turns + 1, kind == Kind.RETIRE_MODEL
        if accepted:
            address, data = accepted.pop()
            if address == MODEL_RETIRE_ADDRESS and data >> 16 < len(parts) and data & 0xFFFF < config.models:
                pending = data >> 16, data & 0xFFFF
            else:
                counts["ignored"] += 1
        if push:
            queues[bench.get("push_partition")].append((*push, cycle))
            inside[bench.get("push_partition")].add(push[0])
    assert all(count > 10 for count in counts.values()), counts
    # However much or little there was to do, the turns came round alike.
    assert turns == CYCLES // (config.ports + 1)


@pytest.mark.parametrize("config", ["tiny", "quad"])
def test_sweeper_takes_one_step_in_each_turn(config):
    run_bench(Sweeper(config_of(config)), MODULE, parameters={"config": config})
