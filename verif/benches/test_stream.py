"""Queue: the same as an ideal queue in every cycle, at sizes of which each is a corner."""

from collections import deque

import pytest

from kvnode.rtl.stream import Queue
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.stream import Sink, Source, pattern
from kvnode.verif.agents.together import Together
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_stream"
CYCLES = 1500
#: One place (no pointer), a power of two, and neither.
DEPTHS = (1, 4, 5)
BITS = 9
SWEEP = [
    ("none", "none"),
    ("none", "half"),
    ("half", "none"),
    ("half", "alternate"),
    ("bursts", "bursts"),
    ("most", "most"),
]


class Ideal:
    """An agent that is an ideal queue of `depth` places, compared with the one whose pins begin with `prefix`."""

    def __init__(self, bench, prefix, depth):
        self.depth, self.items = depth, deque()
        self.pins = {name: bench.pins[f"{prefix}__{name}"] for name in
                     ("i__valid", "i__ready", "i__payload", "o__valid", "o__ready", "o__payload", "level")}  # fmt: skip
        self.passed = 0
        bench.add(self)

    def sample(self):
        pins = {name: pin.value for name, pin in self.pins.items()}
        assert pins["level"] == len(self.items)
        assert pins["i__ready"] == (len(self.items) < self.depth)
        assert pins["o__valid"] == (len(self.items) > 0)
        if self.items:
            assert pins["o__payload"] == self.items[0]
        if pins["o__valid"] and pins["o__ready"]:
            self.items.popleft()
            self.passed += 1
        if pins["i__valid"] and pins["i__ready"]:
            self.items.append(pins["i__payload"])

    def drive(self):
        pass


@bench_test(max_cycles=CYCLES + 20)
async def equals_an_ideal_queue(dut):
    bench = Bench(dut)
    ideals = []
    for depth in DEPTHS:
        source = Source(bench, f"q{depth}__i__", idle=pattern(bench.parameters["idle"], depth))
        source.queue.extend((bench.random.getrandbits(BITS),) for _ in range(CYCLES))
        Sink(bench, f"q{depth}__o__", backpressure=pattern(bench.parameters["backpressure"], 100 + depth))
        ideals.append(Ideal(bench, f"q{depth}", depth))
    assert len(bench.checkers) == 2 * len(DEPTHS)
    await bench.start()
    for _ in range(CYCLES):
        await bench.step()
    assert all(ideal.passed > CYCLES // 20 for ideal in ideals)
    if bench.parameters["idle"] == bench.parameters["backpressure"] == "none":
        # One item per cycle with two places; with one place every other cycle.
        assert [ideal.passed for ideal in ideals] == [CYCLES // 2, CYCLES - 1, CYCLES - 1]


@pytest.mark.parametrize("idle,backpressure", SWEEP)
def test_queue_equals_an_ideal_queue(idle, backpressure):
    design = Together(**{f"q{depth}": Queue(BITS, depth) for depth in DEPTHS})
    run_bench(design, MODULE, parameters={"idle": idle, "backpressure": backpressure})
