"""ReadEngine and WriteEngine: every beat of every run once, in order, in its bank's turn and never later than that."""

from collections import deque

import pytest

from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.transfer import RUNS, ReadEngine, WriteEngine
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.agents.stream import Source, pattern
from kvnode.verif.agents.together import Together
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_transfer"
CYCLES = 4000


def row_of(config, base, slot, beat):
    """Blocks lie one behind the other in every bank; beat i is in bank i mod ports."""
    return (base + slot) * (config.block_bytes // config.beat_bytes // config.ports) + beat // config.ports


def held(bench, prefix, shapes):
    fields = Fields(shapes.hold)
    holds = [fields.unpack(bench.get(f"{prefix}__holds__{i}")) for i in range(RUNS)]
    return sorted(hold["slot"] for hold in holds if hold["valid"])


@bench_test(max_cycles=CYCLES + 20)
async def reads_run_at_full_rate(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    shapes, base = Shapes(config), bench.parameters["base"]
    no_credit = pattern(bench.parameters["backpressure"], 5)
    runs = deque()  # [slot, beat, count]
    issued = busy = 0
    await bench.start()
    for cycle in range(CYCLES):
        start = None
        # Often an odd number of laps, often whole blocks back to back.
        if len(runs) < RUNS and (cycle % 400 < 200 or rng.randrange(8) == 0):
            beat = 0 if rng.getrandbits(1) else rng.randrange(config.block_beats)
            count = config.block_beats - beat if rng.getrandbits(1) else rng.randint(1, config.block_beats - beat)
            start = [rng.randrange(config.partitions[0].slots), beat, count]
            bench.drive(read__slot=start[0], read__beat=beat, read__count=count)
        credit, bank = not no_credit(), rng.randrange(config.ports) if cycle % 1000 == 500 else cycle % config.ports
        bench.drive(read__start=start is not None, read__credit=credit, read__bank=bank)
        await bench.step()
        at = f"cycle {cycle}"
        assert held(bench, "read", shapes) == sorted(run[0] for run in runs), at
        # The beat at hand moves exactly when its bank comes by and there is room for it.
        moves = bool(runs) and credit and runs[0][1] % config.ports == bank
        assert bench.get("read__issue") == moves, at
        assert bench.get("read__done") == (moves and runs[0][2] == 1), at
        busy += bool(runs) and credit
        if moves:
            assert bench.get("read__row") == row_of(config, base, *runs[0][:2]), at
            issued += 1
            runs[0][1] += 1
            runs[0][2] -= 1
            if runs[0][2] == 0:
                runs.popleft()
        if start is not None:
            runs.append(start)
    assert issued > busy // 8


@bench_test(max_cycles=CYCLES + 20)
async def writes_land_whole_or_say_so(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    shapes, base = Shapes(config), bench.parameters["base"]
    operations, beats = Fields(shapes.operation), Fields(shapes.beat)
    source = Source(bench, "write__payload__", idle=pattern(bench.parameters["idle"], 6))
    late, lands_late = pattern("half", 7), pattern(bench.parameters["backpressure"], 8)
    unjudged, inside, writes, lands = deque(), deque(), deque(), deque()
    written = landed = broken = refused = left = 0
    take = False
    await bench.start()
    for cycle in range(CYCLES):
        bench.drive(write__start=0, write__verdict=0, write__bank=cycle % config.ports, write__land_taken=take)
        start = None
        if len(inside) < RUNS and len(source.queue) < 3 * config.block_beats and rng.getrandbits(1):
            offset = rng.randrange(config.block_beats)
            length = rng.randint(1, config.block_beats - offset)
            sent = length if rng.randrange(3) else rng.randint(1, config.block_beats + 2)
            accepted = rng.randrange(4) != 0
            start = {"slot": rng.randrange(config.partitions[0].slots), "offset": offset, "length": length,
                     "tag": rng.getrandbits(16), "generation": rng.getrandbits(config.generation_bits)}  # fmt: skip
            bench.drive(write__start=1, write__operation=operations.pack(**start))
            data = [rng.getrandbits(shapes.data_bits) for _ in range(sent)]
            source.queue.extend((beats.pack(data=word, last=i == sent - 1),) for i, word in enumerate(data))
            if accepted:
                writes.extend((start["slot"], offset + i, data[i]) for i in range(min(sent, length)))
                lands.append(start | {"whole": int(sent == length)})
            broken += accepted and sent != length
            refused += not accepted
        judged = None
        if unjudged and not late():
            judged = unjudged.popleft()
            bench.drive(write__verdict=1, write__accepted=judged[1])
        await bench.step()
        at = f"cycle {cycle}"
        # A WRITE that was refused leaves by itself, any other when its land was taken.
        slots = held(bench, "write", shapes)
        while len(inside) > len(slots):
            if inside.popleft()[1]:
                assert left, at
                left -= 1
        assert slots == sorted(operation["slot"] for operation, _ in inside), at
        if start is not None:
            assert bench.get("write__room"), at
            unjudged.append((start, accepted))
            inside.append((start, accepted))
        if bench.get("write__issue"):
            slot, beat, word = writes.popleft()
            assert beat % config.ports == cycle % config.ports, at
            assert bench.get("write__row") == row_of(config, base, slot, beat), at
            assert bench.get("write__beat_data") == word, at
            written += 1
        if bench.get("write__land_valid"):
            found = operations.unpack(bench.get("write__land"))
            assert {name: found[name] for name in lands[0]} == lands[0], at
            # Its beats are in the store, and those of the one behind may be moving.
            assert len(writes) <= sum(min(land["length"], config.block_beats) for land in list(lands)[1:]), at
            if take:
                lands.popleft()
                landed, left = landed + 1, left + 1
        take = bool(bench.get("write__land_valid")) and not take and not lands_late()
    assert written > CYCLES // 10 and landed > 50 and broken > 5 and refused > 5


@pytest.mark.parametrize("config,base", [("tiny", 8), ("quad", 16)])
@pytest.mark.parametrize("idle,backpressure", [("none", "none"), ("half", "bursts")])
def test_transfers_move_every_beat_in_its_turn(config, base, idle, backpressure):
    config_, parameters = (
        config_of(config),
        {"config": config, "base": base, "idle": idle, "backpressure": backpressure},
    )
    design = Together(read=ReadEngine(config_, base), write=WriteEngine(config_, base))
    assert run_bench(design, MODULE, parameters=parameters) == 2
