"""BlockTable: reads see every commit in front of them, at one operation per cycle on few slots."""

from kvnode.rtl.node.block_table import BlockTable, key_layout, state_layout
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_block_table"
CONFIG = config_of("tiny")
CYCLES = 5000


@bench_test(max_cycles=CYCLES + 100)
async def reads_see_every_earlier_commit(dut):
    bench = Bench(dut)
    rng = bench.random
    key_bits, state_bits = key_layout(CONFIG).size, state_layout(CONFIG).size
    slots = CONFIG.slots
    states, keys = [0] * slots, [None] * slots
    await bench.start(clear=1)
    for slot in range(slots):
        bench.drive(clear_slot=slot)
        await bench.step()
    bench.drive(clear=0)
    stages = [None, None, None]  # The operations at stages 6, 7 and 8: (slot, its key or None).
    hazards = 0
    for cycle in range(CYCLES):
        few = slots if cycle % 100 < 30 else 2
        slot = rng.randrange(few)
        key = rng.getrandbits(key_bits) if rng.randrange(4) == 0 else None
        stages = [(slot, key), *stages[:2]]
        bench.drive(s6_slot=slot, s6_write_key=key is not None, commit=0)
        if key is not None:
            bench.drive(s6_key=key)
        committed = None
        if stages[2] is not None:
            bench.drive(commit_slot=stages[2][0])
            if rng.randrange(4):
                committed = rng.getrandbits(state_bits)
                bench.drive(commit=1, commit_state=committed)
                states[stages[2][0]] = committed
        await bench.step()
        if stages[1] is not None:
            at, wrote = stages[1]
            assert bench.get("s7_state") == states[at], f"cycle {cycle}, slot {at}"
            if wrote is None and keys[at] is not None:
                assert bench.get("s7_key") == keys[at], f"cycle {cycle}, slot {at}"
            if wrote is not None:
                keys[at] = wrote
            hazards += stages[2] is not None and stages[2][0] == at
    assert hazards > CYCLES // 4


def test_block_table_back_to_back():
    run_bench(BlockTable(CONFIG), MODULE)
