"""FillTable: rows are granted lowest first and once, and reads see every commit in front of them."""

import pytest

from kvnode.models.spec.requests import MAX_MEMBERS
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.fill_table import FillTable, fill_layout, member_layout
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.memory import WORDS, verilog_with
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_fill_table"
CYCLES = 6000
#: Members of a block that operations mean: few, so that they meet.
MEMBERS = (0, 1, MAX_MEMBERS - 1)


class Operation:
    """One that passes stages 5 to 8. `row`: that which it has taken, or what it reads."""

    def __init__(self, rng, partition, row):
        self.partition, self.row, self.granted = partition, row, row is not None
        self.member = rng.choice(MEMBERS)

    @property
    def place(self):
        return self.partition, self.row, self.member


@bench_test(max_cycles=CYCLES + 100)
async def grants_each_row_once_and_reads_every_earlier_commit(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    count, shapes = len(config.partitions), Shapes(config)
    fill_bits, part_bits, row_bits = fill_layout(config).size, member_layout(config).size, shapes.fill_row_bits
    taken = [set() for _ in range(count)]
    slots = [{} for _ in range(count)]
    # Rows by partition and row, those of members by member too.
    fills, parts = {}, {}
    stages = [None] * 4
    full = hazards = part_hazards = looks = 0
    looked = None
    await bench.start()
    for cycle in range(CYCLES):
        partition = rng.randrange(count) if cycle % 60 < 20 else cycle // 60 % count
        rows = set(range(config.fill_rows)) - taken[partition]
        take = bool(rows) and rng.randrange(4) < (3, 1)[cycle // 200 % 2]
        slot = rng.getrandbits(shapes.slot_bits)
        stages = [Operation(rng, partition, min(rows) if take else None), *stages[:3]]
        bench.drive(s5_partition=partition, s5_slot=slot, take=take, commit=0, commit_part=0, release=0)
        s7, s8 = stages[2], stages[3]
        if s7 is not None:
            if s7.row is None:
                # Any other operation reads a row in use, most often one that the operation in front has at hand.
                same = s8 is not None and s8.partition == s7.partition
                s7.row = s8.row if same and rng.getrandbits(1) else rng.randrange(1 << row_bits)
            bench.drive(s7_partition=s7.partition, s7_row=s7.row, s7_member=s7.member)
        expected, released = {}, None
        if s8 is not None:
            row = s8.partition, s8.row
            hazards += s7 is not None and s7.place[:2] == row
            part_hazards += s7 is not None and s7.place == s8.place
            if not s8.granted:
                expected = {"s8_fill": fills.get(row), "s8_part": parts.get(s8.place)}
            bench.drive(s8_partition=s8.partition, s8_row=s8.row, s8_member=s8.member)
            live = s8.granted or s8.row in taken[s8.partition] and row in fills
            if live and (s8.granted or rng.getrandbits(1)):
                fills[row] = rng.getrandbits(fill_bits)
                bench.drive(commit=1, s8_commit=fills[row])
                if s8.granted or rng.getrandbits(1):
                    parts[s8.place] = rng.getrandbits(part_bits)
                    bench.drive(commit_part=1, s8_commit_part=parts[s8.place])
            elif live and rng.randrange(3) < (1, 3)[cycle // 200 % 2]:
                bench.drive(release=1)
                released = s8.partition, s8.row
        # The slot that a row was taken for, before and after the operation at hand: either may be read.
        number, look = rng.randrange(count), rng.randrange(config.fill_rows)
        bench.drive(look_partition=number, look_row=look)
        may_be = {slots[number][look]} if look in slots[number] else set()
        if may_be and take and (number, look) == (partition, min(rows)):
            may_be.add(slot)
        await bench.step()
        at = f"cycle {cycle}"
        assert bench.get("s5_room") == bool(rows), at
        if rows:
            assert bench.get("s5_row") == min(rows), at
        for name, value in expected.items():
            assert value is None or bench.get(name) == value, (at, name)
        assert [bench.get(f"used__{i}") for i in range(count)] == [len(some) for some in taken], at
        if looked:
            assert bench.get("look_slot") in looked, at
            looks += 1
        looked = may_be
        full += not rows
        if take:
            taken[partition].add(min(rows))
            slots[partition][min(rows)] = slot
        if released:
            taken[released[0]].remove(released[1])
            del fills[released]
    assert min(full, hazards, part_hazards) > CYCLES // 50 and looks > CYCLES // 2


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("config", ["tiny", "quad"])
def test_fill_table_back_to_back(config, words):
    run_bench(verilog_with(words, FillTable(config_of(config))), MODULE, parameters={"config": config})
