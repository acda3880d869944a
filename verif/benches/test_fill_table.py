"""FillTable: rows are granted lowest first and once, and reads see every commit in front of them."""

import pytest

from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.fill_table import FillTable, fill_layout
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_fill_table"
CYCLES = 5000


@bench_test(max_cycles=CYCLES + 100)
async def grants_each_row_once_and_reads_every_earlier_commit(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    count, fill_bits, row_bits = len(config.partitions), fill_layout(config).size, Shapes(config).fill_row_bits
    taken = [set() for _ in range(count)]
    content = [{} for _ in range(count)]
    # Operations at stages 5 to 8: [partition, its row or None, whether the row was granted here].
    stages = [None] * 4
    full = hazards = 0
    await bench.start()
    for cycle in range(CYCLES):
        partition = rng.randrange(count) if cycle % 60 < 20 else cycle // 60 % count
        rows = set(range(config.fill_rows)) - taken[partition]
        take = bool(rows) and rng.randrange(4) < (3, 1)[cycle // 200 % 2]
        stages = [[partition, min(rows) if take else None, take], *stages[:3]]
        bench.drive(s5_partition=partition, take=take, commit=0, release=0)
        s7, s8 = stages[2], stages[3]
        if s7 is not None:
            if s7[1] is None:
                # Any other operation reads a row in use, most often one that the operation in front has at hand.
                same = s8 is not None and s8[0] == s7[0] and s8[1] is not None
                s7[1] = s8[1] if same and rng.getrandbits(1) else rng.randrange(1 << row_bits)
            bench.drive(s7_partition=s7[0], s7_row=s7[1])
        expected, released = None, None
        if s8 is not None:
            number, row, granted = s8
            hazards += s7 is not None and s7[:2] == s8[:2]
            expected = None if granted else content[number].get(row)
            bench.drive(s8_partition=number, s8_row=row)
            live = granted or row in taken[number] and row in content[number]
            if live and (granted or rng.getrandbits(1)):
                word = rng.getrandbits(fill_bits)
                content[number][row] = word
                bench.drive(commit=1, s8_commit=word)
            elif live and rng.randrange(3) < (1, 3)[cycle // 200 % 2]:
                bench.drive(release=1)
                released = number, row
        await bench.step()
        at = f"cycle {cycle}"
        assert bench.get("s5_room") == bool(rows), at
        if rows:
            assert bench.get("s5_row") == min(rows), at
        if expected is not None:
            assert bench.get("s8_fill") == expected, at
        full += not rows
        if take:
            taken[partition].add(min(rows))
        if released:
            number, row = released
            taken[number].remove(row)
            del content[number][row]
    assert full > CYCLES // 50 and hazards > CYCLES // 50


@pytest.mark.parametrize("config", ["tiny", "quad"])
def test_fill_table_back_to_back(config):
    run_bench(FillTable(config_of(config)), MODULE, parameters={"config": config})
