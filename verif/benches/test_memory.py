"""Ram, ForwardedRam and DelayLine against lists and against the inputs of earlier cycles."""

import pytest
from amaranth.lib import data

from kvnode.rtl.memory import DelayLine, ForwardedRam, Ram
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.memory import WORDS, verilog_with
from kvnode.verif.agents.together import Together
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_memory"
CYCLES = 2000
WIDTH, DEPTH = 11, 5
#: The shortest, an odd one, and one more than the directory's.
DELAYS = (2, 3, 6)


@bench_test(max_cycles=CYCLES + 20)
async def reads_what_was_written(dut):
    bench = Bench(dut)
    words, expected, collisions = {}, None, 0
    await bench.start()
    for _ in range(CYCLES):
        enable, address, data, read = (bench.random.randrange(n) for n in (2, DEPTH, 1 << WIDTH, DEPTH))
        bench.drive(ram__write_enable=enable, ram__write_address=address, ram__write_data=data, ram__read_address=read)
        await bench.step()
        if expected:
            assert bench.get("ram__read_data") in expected
        before = words.get(read)
        if enable:
            words[address] = data
        after = words.get(read)
        # While it is being written, the old word may come or the new one.
        expected = {before, after} if before is not None and after is not None else None
        collisions += enable and read == address
    assert collisions > CYCLES // 20


@bench_test(max_cycles=CYCLES + 20)
async def reads_see_the_commit_of_their_cycle(dut):
    bench = Bench(dut)
    rows, expected, collisions = {}, None, 0
    await bench.start()
    for cycle in range(CYCLES):
        commit, address, value, read = (bench.random.randrange(n) for n in (2, DEPTH, 1 << WIDTH, DEPTH))
        bench.drive(rows__commit=commit, rows__commit_address=address, rows__value=value, rows__read_address=read)
        await bench.step()
        if expected is not None:
            assert bench.get("rows__read") == expected, f"cycle {cycle}"
        if commit:
            rows[address] = value
        expected = rows.get(read)
        collisions += commit and read == address
    assert collisions > CYCLES // 20


@bench_test(max_cycles=CYCLES + 20)
async def output_is_the_input_of_so_many_cycles_ago(dut):
    bench = Bench(dut)
    inputs = []
    await bench.start()
    for cycle in range(CYCLES):
        inputs.append(bench.random.getrandbits(WIDTH))
        bench.drive(**{f"delay{n}__input": inputs[-1] for n in DELAYS})
        await bench.step()
        for n in DELAYS:
            if cycle >= n:
                assert bench.get(f"delay{n}__output") == inputs[cycle - n]


@pytest.mark.parametrize("words", WORDS)
def test_memories_and_delay_line(words):
    row = data.StructLayout({"low": 3, "high": WIDTH - 3})
    delays = {f"delay{n}": DelayLine(WIDTH, n) for n in DELAYS}
    design = Together(ram=Ram(WIDTH, DEPTH), rows=ForwardedRam(row, DEPTH), **delays)
    assert run_bench(verilog_with(words, design), MODULE) == 3
