"""Coherence: the combinational block against `models.spec.coherence.decide`, every kind, state and condition."""

import itertools

from kvnode.models.spec.coherence import TRANSITIONS, View, decide
from kvnode.models.spec.enums import SWEEPER_KINDS, Kind, State
from kvnode.rtl.node.coherence import Coherence, view_layout
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_coherence"
CONFIG = config_of("tiny")
BEATS = range(3)
BITS = range(2)
AGES = range(4)
RANDOM_VIEWS = 15_000

#: What each kind looks at beside presence, state and owner, and the values that are tried in every combination.
CONDITIONS = {
    Kind.LOOKUP: {"age": AGES},
    Kind.MATCH: {"chained": BITS, "age": AGES},
    Kind.READ: {"offset": BEATS, "length": BEATS, "block_length": range(1, 4), "landed": BEATS, "age": (1, 3)},
    Kind.PUT_START: {"room": BITS, "klass": AGES},
    Kind.WRITE: {"offset": BEATS, "length": (1, 2), "block_length": range(1, 5), "accepted": BEATS},
    Kind.LAND: {"offset": BEATS, "length": (1, 2), "accepted": range(4), "landed": BEATS, "whole": BITS},
    Kind.PUT_END: {"block_length": range(1, 4), "landed": range(4)},
    Kind.PUT_REVOKE: {},
    Kind.DROP: {},
    Kind.VISIT: {"stale": BITS, "low": BITS, "age": AGES, "klass": AGES},
    Kind.PATROL: {"stale": BITS, "low": BITS, "age": AGES, "klass": (0, 3)},
    Kind.REAP: {},
}
LIMITS = {**{name: CONFIG.block_beats for name in ("offset", "length", "block_length", "accepted", "landed")},
          "state": 3, "age": 3, "klass": 3}  # fmt: skip


def random_view(rng):
    view = {name: rng.randint(0, LIMITS.get(name, 1)) for name in View._fields}
    view["landed"] = min(view["landed"], CONFIG.block_beats - view["length"])
    return view


def cases(rng):
    """(kind, by_handle, view): what a kind does not look at is drawn at random."""
    for kind, conditions in CONDITIONS.items():
        names = ["present", "state", "owner", *conditions]
        for values in itertools.product(BITS, range(4), BITS, *conditions.values()):
            for by_handle in BITS:
                yield kind, by_handle, random_view(rng) | dict(zip(names, values))
    for _ in range(RANDOM_VIEWS):
        yield rng.choice(list(CONDITIONS)), rng.getrandbits(1), random_view(rng)


@bench_test(max_cycles=1_000_000)
async def equals_the_table(dut):
    bench, fields = Bench(dut), Fields(view_layout(CONFIG))
    await bench.start()
    seen, count = set(), 0
    for kind, by_handle, values in cases(bench.random):
        view = View(**values)._replace(state=State(values["state"]))
        try:
            expected = decide(kind, bool(by_handle), view)
        except KeyError:
            continue  # A pair that cannot occur.
        if expected.accepted >> 4 or expected.landed >> 4:
            continue  # Neither can more beats than a block has.
        bench.drive(kind=kind, by_handle=by_handle, view=fields.pack(**values))
        await bench.settle()
        met = view.state if view.present or kind in SWEEPER_KINDS else State.FREE
        found = {name: bench.get(name) for name in expected._fields}
        if met != view.state:
            del found["state"]  # Nobody writes the state of a block that was not reached.
        different = {name: value for name, value in found.items() if value != getattr(expected, name)}
        assert not different, f"{kind.name} by_handle={by_handle} {view}: {different}, expected {expected}"
        seen.add((met, expected.event))
        count += 1
    missing = {pair for pair in TRANSITIONS if pair not in seen}
    assert not missing, f"never tried: {missing}"
    assert count > 20_000


def test_decisions_equal_the_table_for_every_kind_state_and_condition():
    run_bench(Coherence(CONFIG), MODULE)
