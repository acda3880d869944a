"""Coherence: the combinational block against `models.spec.coherence.decide`, every kind, state and condition."""

import itertools

from kvnode.models.spec.coherence import TRANSITIONS, Event, View, decide
from kvnode.models.spec.enums import BLOCKLESS_KINDS, SWEEPER_KINDS, Kind, State, Status
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
RANDOM_VIEWS = 30_000
#: What sessions answer.
REFUSALS = (Status.STALE_EPOCH, Status.NOT_READY, Status.WRITE_ORDER, Status.BUSY)

#: Beside presence, state and a refusal: what a kind looks at, and the values that are tried in every combination.
FIND = {"locks": BITS, "lockable": BITS, "leased": BITS, "poisoned": BITS}
CONDITIONS = {
    Kind.LOOKUP: FIND | {"age": AGES},
    Kind.MATCH: FIND | {"chained": BITS},
    Kind.LEASE: FIND,
    Kind.READ: {"owner": BITS, "offset": BEATS, "length": BEATS, "block_length": range(1, 4), "base": BEATS[:2],
                "landed": BEATS, "poisoned": BITS, "leased": BITS},
    Kind.PUT_START: {"joins": BITS, "room": BITS, "quota": BITS, "klass": AGES, "offset": BEATS, "poisoned": BITS,
                     "leased": BITS},
    Kind.WRITE: {"owner": BITS, "late": BITS, "offset": BEATS, "length": (1, 2), "end": range(1, 5), "accepted": BEATS},
    Kind.LAND: {"offset": BEATS, "length": (1, 2), "accepted": range(4), "landed": BEATS, "whole": BITS},
    Kind.PUT_END: {"owner": BITS, "late": BITS, "shares": BITS, "done": BITS, "end": BEATS, "landed": BEATS,
                   "crc_right": BITS, "others_done": BITS},
    Kind.PUT_REVOKE: {"owner": BITS},
    Kind.DROP: {"leased": BITS},
    Kind.RELEASE: {"lease": BITS},
    Kind.VISIT: {"dead": BITS, "leased": BITS, "low": BITS, "age": AGES, "klass": AGES},
    Kind.PATROL: {"dead": BITS, "leased": BITS, "low": BITS, "age": AGES, "klass": (0, 3)},
    Kind.EXPIRE_FILL: {"dead": BITS, "leased": BITS},
    Kind.EXPIRE_LEASE: {"lease": BITS, "leased": BITS},
    Kind.POISON: {"poisoned": BITS},
    Kind.REAP: {},
}  # fmt: skip
BEAT_FIELDS = ("offset", "length", "block_length", "base", "end", "accepted", "landed")
LIMITS = {**dict.fromkeys(BEAT_FIELDS, CONFIG.block_beats), "state": max(State), "age": 3, "klass": 3}


def random_view(rng):
    view = {name: rng.randint(0, LIMITS.get(name, 1)) for name in View._fields}
    view["landed"] = min(view["landed"], CONFIG.block_beats - view["length"])
    view["refused"] = rng.choice((Status.OK, Status.OK, *REFUSALS))
    return view


def cases(rng):
    """(kind, by_handle, view): what a kind does not look at is drawn at random."""
    for kind, conditions in CONDITIONS.items():
        for values in itertools.product(BITS, State, BITS, *conditions.values()):
            for by_handle in BITS:
                known = dict(zip(("present", "state", "refused", *conditions), values))
                known["refused"] = rng.choice(REFUSALS) if known["refused"] else Status.OK
                yield kind, by_handle, random_view(rng) | known
    for _ in range(RANDOM_VIEWS):
        yield rng.choice(list(CONDITIONS)), rng.getrandbits(1), random_view(rng)


@bench_test(max_cycles=1_000_000)
async def equals_the_table(dut):
    bench, fields = Bench(dut), Fields(view_layout(CONFIG))
    await bench.start()
    assert set(CONDITIONS) == set(Kind) - set(BLOCKLESS_KINDS)
    seen, events, count = set(), set(), 0
    for kind, by_handle, values in cases(bench.random):
        if kind in SWEEPER_KINDS:
            values["refused"] = Status.OK  # The sweeper asks no session.
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
        events.add(expected.event)
        count += 1
    missing = {pair for pair in TRANSITIONS if pair not in seen}
    assert not missing, f"never tried: {missing}"
    assert events == set(Event), f"never tried: {set(Event) - events}"
    assert count > 40_000


def test_decisions_equal_the_table_for_every_kind_state_and_condition():
    run_bench(Coherence(CONFIG), MODULE)
