"""EventRing: the same as the golden log in every cycle, at depths of which each is a corner."""

import pytest

from kvnode.models.golden.events import EventLog
from kvnode.models.spec.enums import Kind, State, Status
from kvnode.models.spec.events import EVENT, EventType, event_of
from kvnode.models.spec.messages import TRACE
from kvnode.rtl.node.events import EventRing
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.memory import WORDS, verilog_with
from kvnode.verif.agents.stream import pattern
from kvnode.verif.agents.together import Together
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_events"
CYCLES = 1500
#: The smallest, one that fills and empties often, and the node's.
DEPTHS = (2, 8, 256)
#: When no record comes, and when nothing is removed.
SWEEP = [
    ("none", "none"),
    ("none", "half"),
    ("none", "most"),
    ("half", "none"),
    ("most", "none"),
    ("most", "half"),
    ("bursts", "bursts"),
    ("alternate", "alternate"),
]
#: Kinds that give rise to events, and one that does not.
KINDS = (Kind.RETIRE_MODEL, Kind.SESSION_MIGRATE, Kind.PORT_DOWN, Kind.POISON, Kind.LOOKUP)
MOVES = (
    (State.FREE, State.FREE),
    (State.FREE, State.FREE),
    (State.FILLING, State.SEALED),
    (State.SEALED, State.RETIRING),
    (State.SEALED, State.SEALED),
    (State.FILLING, State.RETIRING),
    (State.RETIRING, State.FREE),
)


def random_record(random, moves=MOVES):
    """A record with other numbers in all fields, one in five of which gives rise to no event at least."""
    values = TRACE.unpack(random.randbytes(TRACE.size_bytes))
    before, after = random.choice(moves)
    status = random.choice((Status.OK, Status.OK, Status.STALE_EPOCH))
    return values | {"kind": random.choice(KINDS), "status": status, "state_before": before, "state_after": after}


def word(layout, values):
    return int.from_bytes(layout.pack(**values), "little")


class Expected:
    """An agent that holds the ring whose pins begin with `prefix` to a golden log, in every cycle."""

    def __init__(self, bench, prefix, depth):
        self.prefix, self.log = prefix, EventLog(depth)
        self.pins = {name: bench.pins[f"{prefix}__{name}"] for name in
                     ("trace_valid", "cleared", "pop", "level", "sequence", "valid", "overflow", "data")}  # fmt: skip
        self.valid, self.record = False, {}
        self.removed, self.types, self.fullest, self.overflows = 0, set(), 0, 0
        bench.add(self)

    def sample(self):
        pins, log = self.pins, self.log
        assert pins["level"].value == len(log)
        assert pins["valid"].value == self.valid
        assert pins["overflow"].value == log.overflow
        if self.valid:
            assert pins["sequence"].value == log.shown.sequence
            assert pins["data"].value == word(EVENT, log.shown.event)
            if pins["pop"].value:
                self.types.add(log.pop().event["type"])
                self.removed += 1
        self.valid = len(log) > 0
        if pins["cleared"].value:
            log.cleared()
        elif pins["trace_valid"].value:
            log.record(self.record)
        self.fullest = max(self.fullest, len(log))
        self.overflows += log.overflow

    def drive(self):
        pass


@bench_test(max_cycles=CYCLES + 600)
async def equals_the_golden_log(dut):
    bench = Bench(dut)
    rings = {f"ring{depth}": Expected(bench, f"ring{depth}", depth) for depth in DEPTHS}
    no_record = {name: pattern(bench.parameters["idle"], seed) for seed, name in enumerate(rings)}
    no_pop = {name: pattern(bench.parameters["backpressure"], 50 + seed) for seed, name in enumerate(rings)}
    await bench.start()
    for cycle in range(CYCLES):
        for name, ring in rings.items():
            ring.record = random_record(bench.random)
            # The first event, and others at any time.
            cleared = cycle == 3 or bench.random.randrange(50) == 0
            bench.drive(
                **{
                    f"{name}__trace": word(TRACE, ring.record),
                    f"{name}__trace_valid": cycle > 3 and not cleared and not no_record[name](),
                    f"{name}__cleared": cleared and cycle >= 3,
                    f"{name}__pop": not no_pop[name](),
                }
            )
        await bench.step()
    for name in rings:
        bench.drive(**{f"{name}__trace_valid": 0, f"{name}__cleared": 0, f"{name}__pop": 1})
    for _ in range(max(DEPTHS) + 10):
        await bench.step()
    for ring in rings.values():
        assert len(ring.log) == 0 and not ring.log.overflow
        assert ring.types == set(EventType)
        assert ring.removed > CYCLES // 20
    if bench.parameters["backpressure"] == "most" and bench.parameters["idle"] == "none":
        assert all(ring.fullest == ring.log.depth and ring.overflows for ring in rings.values())


@bench_test(max_cycles=100)
async def events_are_removed_one_per_cycle(dut):
    bench = Bench(dut)
    ring = Expected(bench, "ring8", 8)
    await bench.start()
    for cycle in range(8):
        ring.record = {**dict.fromkeys(TRACE.fields, 0), "kind": Kind.PORT_DOWN, "ports": cycle}
        bench.drive(ring8__trace_valid=1, ring8__trace=word(TRACE, ring.record))
        await bench.step()
    bench.drive(ring8__trace_valid=0)
    await bench.step()
    bench.drive(ring8__pop=1)
    shown = []
    for _ in range(9):
        await bench.step()
        shown.append((bench.get("ring8__valid"), bench.get("ring8__sequence")))
    assert shown[:8] == [(1, number) for number in range(8)]
    assert shown[8][0] == 0


@bench_test(max_cycles=100)
async def an_event_is_shown_two_cycles_after_its_record(dut):
    bench = Bench(dut)
    await bench.start()
    assert event_of({**dict.fromkeys(TRACE.fields, 0), "kind": Kind.PORT_DOWN}) is not None
    bench.drive(ring8__trace_valid=1, ring8__trace=word(TRACE, {"kind": Kind.PORT_DOWN}), ring8__pop=0)
    waves = []
    for _ in range(4):
        await bench.step()
        waves.append((bench.get("ring8__level"), bench.get("ring8__valid")))
        bench.drive(ring8__trace_valid=0)
    assert waves == [(0, 0), (1, 0), (1, 1), (1, 1)]


def rings(words="old"):
    return verilog_with(words, Together(**{f"ring{depth}": EventRing(depth) for depth in DEPTHS}))


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("idle,backpressure", SWEEP)
def test_ring_equals_the_golden_log(idle, backpressure, words):
    run_bench(rings(words), MODULE, "equals_the_golden_log", {"idle": idle, "backpressure": backpressure})


def test_ring_shows_events_in_time():
    run_bench(rings(), MODULE, ["events_are_removed_one_per_cycle", "an_event_is_shown_two_cycles_after_its_record"])
