"""Tally, Counters, LatencyHistogram: the golden sums, also while they are read, and zero after every reset."""

from collections import Counter, deque
from itertools import product

import pytest

from kvnode.models.golden.counters import Counters as GoldenCounters
from kvnode.models.golden.counters import LatencyHistogram as GoldenHistogram
from kvnode.models.spec.counters import BUCKETS, MAX_OUTSTANDING
from kvnode.models.spec.enums import Kind, Status
from kvnode.models.spec.messages import TRACE
from kvnode.rtl.node.counters import Counters, LatencyHistogram, Tally
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.memory import WORDS, verilog_with
from kvnode.verif.agents.stream import pattern
from kvnode.verif.agents.together import Together
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_counters"
CYCLES = 2000
#: Resets of the tallies: what an earlier count has left in a row matters only until the row is used again.
PASSES = 20
SWEEP = ("none", "half", "most", "bursts")
#: Width, rows, bits of a lane: one that wraps soon, with rows that are no power of two; one without lanes.
TALLIES = {"narrow": (3, 3, 1), "plain": (5, 6, 0)}
#: Two partitions, and three, which is no power of two; one with each kind of memory.
SIZES = (("tiny", "old"), ("quad", "new"))
#: Cycles from a count, and from an answer, to those in which a reader may see it first and sees it surely.
TALLY_LAG, HISTOGRAM_LAG = 3, 6
#: A kind, a status, a partition that no node has: in the room of the next one, and past every room.
NOWHERE = ((0, 31, 0), (0, 0, 31), (0, 32, 1), (0, 1, 32), (3, 0, 0), (128, 3, 3), (1, 128, 0), (1, 0, 255))


class Reader:
    """Holds what is read to a golden model: `apply` gives the model what happened in a cycle, `value` asks it.

    The value that is read in a cycle is of the place selected two cycles before, and has what happened more than `lag`
    cycles before, perhaps also what happened `lag` cycles before.
    """

    def __init__(self, lag, apply, value):
        self._apply, self._value = apply, value
        self._happened, self._selected = deque([None] * lag), deque([None] * 2)
        self.changes = 0

    def step(self, happened, selected, read):
        """Pass a cycle in which something happened (None: nothing), a place is selected (None: none), and a value is
        read."""
        self._happened.append(happened)
        self._selected.append(selected)
        place, late = self._selected.popleft(), self._happened.popleft()
        before = 0 if place is None else self._value(place)
        if late is not None:
            self._apply(late)
        after = 0 if place is None else self._value(place)
        assert read in (before, after), f"{place}: {read} is read, {before} or {after} was counted"
        self.changes += before != after


async def reset_again(bench, dut, **values):
    """Reset a design whose memories keep what they hold."""
    bench.drive(**values)
    dut.rst.value = 1
    await bench.step()
    dut.rst.value = 0


@bench_test(max_cycles=CYCLES + 200)
async def tally_counts_modulo_its_width(dut):
    bench = Bench(dut)
    await bench.start()
    changes = 0
    for _ in range(PASSES):
        changes += await _count_from_zero(bench)
        await reset_again(bench, dut, **{f"{name}__count": 0 for name in TALLIES})
    assert changes > CYCLES // 100


async def _count_from_zero(bench):
    """Returns how often the value read was in doubt."""
    first = bench.random.randrange(100)
    idle = {name: pattern(bench.parameters["idle"], seed) for seed, name in enumerate(TALLIES)}
    readers = {}
    for name, (width, _, _) in TALLIES.items():
        sums = Counter()
        readers[name] = Reader(
            TALLY_LAG,
            lambda place, sums=sums: sums.update((place,)),
            lambda place, sums=sums, width=width: sums[place] % (1 << width),
        )
    for cycle in range(CYCLES // PASSES):
        given = {}
        for name, (_, rows, lane_bits) in TALLIES.items():
            places = rows << lane_bits
            # Few places at a time, so that the same one comes again at every distance.
            hot = (first + cycle // 40 * 5 + bench.random.randrange(3)) % places
            select = hot if bench.random.randrange(2) else bench.random.randrange(places)
            count, shown = not idle[name](), bench.random.randrange(8) != 0
            given[name] = hot if count else None, select if shown else None
            bench.drive(
                **{
                    f"{name}__count": count,
                    f"{name}__address": hot,
                    f"{name}__select_valid": shown,
                    f"{name}__select": select,
                }
            )
        await bench.step()
        for name, reader in readers.items():
            reader.step(*given[name], bench.get(f"{name}__value"))
    return sum(reader.changes for reader in readers.values())


@bench_test(max_cycles=2 * CYCLES + 8000)
async def counters_equal_the_golden_ones(dut):
    bench = Bench(dut, "counters__")
    config = config_of(bench.parameters["config"])
    partitions = range(len(config.partitions))
    await bench.start()
    for _ in range(2):
        golden = GoldenCounters()
        reader = Reader(TALLY_LAG, golden.record, lambda place, golden=golden: golden.value(*place))
        idle = pattern(bench.parameters["idle"], 7)
        places = list(product(partitions, Kind, Status))

        async def cycle(record, place, reader=reader):
            bench.drive(trace_valid=record is not None)
            if record is not None:
                bench.drive(trace=int.from_bytes(TRACE.pack(**record), "little"))
            bench.drive(**dict(zip(("select_partition", "select_kind", "select_status"), place)))
            await bench.step()
            reader.step(record, place, bench.get("value"))

        for number in range(CYCLES):
            if number % 50 == 0:
                few = [bench.random.choice(places) for _ in range(3)]
                few.append((few[0][0], few[0][1], few[0][2] ^ 1))  # In the same row of the memory.
            record = TRACE.unpack(bench.random.randbytes(TRACE.size_bytes))
            record |= dict(zip(("partition", "kind", "status"), map(int, bench.random.choice(few))))
            select = bench.random.choice([*few, bench.random.choice(places), bench.random.choice(NOWHERE)])
            await cycle(None if idle() else record, tuple(map(int, select)))
        for place in [*places, *NOWHERE, (0, 0, 0), (0, 0, 0)]:
            await cycle(None, tuple(map(int, place)))
        assert reader.changes > CYCLES // 200
        await reset_again(bench, dut, trace_valid=0)


@bench_test(max_cycles=3 * CYCLES + 8000)
async def histogram_equals_the_golden_one(dut):
    bench = Bench(dut)
    ports = config_of(bench.parameters["config"]).ports
    await bench.start()
    for _ in range(2):
        golden = GoldenHistogram(ports)
        reader = Reader(HISTOGRAM_LAG, _apply(golden), lambda place, golden=golden: _value(golden, ports, place))
        idle = [pattern(bench.parameters["idle"], port) for port in range(ports)]
        slow = [pattern("bursts", 20 + port) for port in range(ports)]
        outstanding, most = [0] * ports, 0

        async def cycle(number, arrives, answers, place, down=0, reader=reader):
            bench.drive(arrives=arrives, answers=answers, down=down, select_port=place[0], select_bucket=place[1])
            await bench.step()
            reader.step((number, arrives, answers, down), place, bench.get("value"))

        for number in range(CYCLES):
            arrives = answers = 0
            # All but stopped for a while, so that messages gather and latencies grow.
            stopped = number // 300 % 2
            # Now and then a port goes down for some cycles, and what it has not answered is lost.
            down = 1 << number // 450 % ports if number % 450 < 3 else 0
            for port in range(ports):
                if down >> port & 1:
                    outstanding[port] = 0
                    continue
                if outstanding[port] < MAX_OUTSTANDING and not idle[port]():
                    arrives |= 1 << port
                    outstanding[port] += 1
                most = max(most, outstanding[port])
                if outstanding[port] and not slow[port]() and not (stopped and bench.random.randrange(40 << port)):
                    answers |= 1 << port
                    outstanding[port] -= 1
            place = bench.random.randrange(ports + 1), bench.random.randrange(10)
            await cycle(number, arrives, answers, place, down)
        assert reader.changes > CYCLES // 400
        if bench.parameters["idle"] == "none":
            assert most == MAX_OUTSTANDING
        for place in [*product(range(ports), range(BUCKETS)), (ports, 0), (0, BUCKETS), (0, 255), (0, 0), (0, 0)]:
            await cycle(0, 0, 0, place)
        counts = [[golden.value(port, bucket) for bucket in range(BUCKETS)] for port in range(ports)]
        assert all(sum(count > 0 for count in row) > 4 for row in counts)
        await reset_again(bench, dut, arrives=0, answers=0, down=0)


def _apply(golden):
    def apply(happened):
        number, arrives, answers, down = happened
        for port in range(arrives.bit_length()):
            if arrives >> port & 1:
                golden.arrives(port, number)
        for port in range(answers.bit_length()):
            if answers >> port & 1:
                golden.answers(port, number)
        for port in range(down.bit_length()):
            if down >> port & 1:
                golden.down(port)

    return apply


def _value(golden, ports, place):
    port, bucket = place
    return golden.value(port, bucket) if port < ports and bucket < BUCKETS else 0


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("idle", SWEEP)
def test_tally_counts_modulo_its_width(idle, words):
    design = Together(**{name: Tally(*sizes) for name, sizes in TALLIES.items()})
    run_bench(verilog_with(words, design), MODULE, "tally_counts_modulo_its_width", {"idle": idle})


@pytest.mark.parametrize("idle", SWEEP)
@pytest.mark.parametrize("config,words", SIZES)
def test_counters_equal_the_golden_ones(config, words, idle):
    # Not alone: a port `trace` of the top module is a name that Verilator's C++ has already.
    design = Together(counters=Counters(config_of(config)))
    parameters = {"config": config, "idle": idle}
    run_bench(verilog_with(words, design), MODULE, "counters_equal_the_golden_ones", parameters)


@pytest.mark.parametrize("idle", SWEEP)
@pytest.mark.parametrize("config,words", SIZES)
def test_histogram_equals_the_golden_one(config, words, idle):
    parameters = {"config": config, "idle": idle}
    design = verilog_with(words, LatencyHistogram(config_of(config)))
    run_bench(design, MODULE, "histogram_equals_the_golden_one", parameters)
