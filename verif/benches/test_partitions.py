"""FreeLists and RetireQueues against double-ended queues, with all partitions mixed in every cycle."""

from collections import deque

import pytest

from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.partitions import FreeLists, RetireQueues
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.together import Together
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_partitions"
CYCLES = 6000


@bench_test(max_cycles=CYCLES + 20)
async def free_lists_are_queues(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    parts = config.partitions
    free = [deque(range(part.slots)) for part in parts]
    held = [[] for _ in parts]
    emptied = [0] * len(parts)
    await bench.start()
    partition, expected_after, both = 0, None, 0
    for cycle in range(CYCLES):
        following = rng.randrange(len(parts)) if cycle % 50 < 25 else cycle // 50 % len(parts)
        pop_weight, push_weight = ((9, 2), (2, 9), (9, 9))[cycle // 150 % 3]
        before = len(free[partition])
        first = free[partition][0] if before else None
        pop = bool(before) and rng.randrange(10) < pop_weight
        push = bool(held[partition]) and rng.randrange(10) < push_weight
        slot = held[partition].pop(rng.randrange(len(held[partition]))) if push else 0
        bench.drive(
            free__s4_partition=following, free__s5_partition=partition, free__pop=pop, free__push=push,
            free__push_slot=slot,
        )  # fmt: skip
        await bench.step()
        at = f"cycle {cycle}, partition {partition}"
        assert bench.get("free__s5_any") == (before > 0), at
        assert bench.get("free__s5_count") == before, at
        assert [bench.get(f"free__counts__{i}") for i in range(len(parts))] == [len(slots) for slots in free], at
        if before:
            assert bench.get("free__s5_slot") == first, at
        if expected_after is not None:
            assert bench.get("free__s6_count") == expected_after, at
        if pop:
            held[partition].append(free[partition].popleft())
        if push:
            free[partition].append(slot)
        both += pop and push
        expected_after = len(free[partition])
        emptied[partition] += expected_after == 0
        partition = following
    assert min(emptied) > 10 and both > 100


@bench_test(max_cycles=CYCLES + 20)
async def retire_queues_are_queues(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    parts, where_bits = config.partitions, Shapes(config).where.size
    queues = [deque() for _ in parts]
    inside = [set() for _ in parts]
    await bench.start()
    partition, ready, popped, after_pop = 0, False, 0, 0
    for cycle in range(CYCLES):
        upcoming = rng.randrange(len(parts)) if cycle % 60 < 40 else partition
        number = rng.randrange(len(parts))
        outside = sorted(set(range(parts[number].slots)) - inside[number])
        push = None
        if outside and rng.randrange(10) < (8, 2)[cycle // 200 % 2]:
            push = rng.choice(outside), rng.getrandbits(where_bits)
            bench.drive(retire__push_partition=number, retire__push_slot=push[0], retire__push_where=push[1])
        pop = ready and rng.randrange(4) > 0
        bench.drive(
            retire__upcoming=upcoming, retire__partition=partition, retire__pop=pop, retire__push=push is not None
        )
        await bench.step()
        at = f"cycle {cycle}, partition {partition}"
        assert bench.get("retire__ready") == ready, at
        if ready:
            assert (bench.get("retire__item_slot"), bench.get("retire__item_where")) == queues[partition][0], at
        # What was in at the start of this cycle is ready in the next, but for the one behind an item that leaves.
        ready = bool(queues[upcoming]) and not (pop and partition == upcoming)
        after_pop += pop and partition == upcoming and len(queues[upcoming]) > 1
        if pop:
            inside[partition].remove(queues[partition].popleft()[0])
            popped += 1
        if push:
            queues[number].append(push)
            inside[number].add(push[0])
        partition = upcoming
    assert popped > CYCLES // 10 and after_pop > CYCLES // 100


@pytest.mark.parametrize("config", ["tiny", "quad"])
def test_free_lists_and_retire_queues(config):
    design = Together(free=FreeLists(config_of(config)), retire=RetireQueues(config_of(config)))
    assert run_bench(design, MODULE, parameters={"config": config}) == 2
