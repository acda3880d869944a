"""Isolation as a test: one tenant's cycles do not depend on another tenant's traffic (the proof is a later step)."""

import numpy as np
import pytest

from kvnode.models.spec.config import preset
from kvnode.verif.harness.harness import Harness
from kvnode.verif.traffic import Traffic

TENANT = 0


def beside(ours, theirs):
    """One batch of two: (batch, payload) pairs, with the second's references moved behind the first."""
    (a, a_payload), (b, b_payload) = ours, theirs
    b = b.copy()
    for name in ("handle_from", "after"):
        b[name][b[name] >= 0] += len(a)
    b["payload_offset"] += len(a_payload)
    return np.concatenate([a, b]), a_payload + b_payload


def tenant_cycles(harness, ours, theirs, **patterns):
    """What the tenant can see: when each of its messages was accepted and answered, and with what."""
    harness.reset(1)
    batch, payload = beside(ours, theirs)
    run = harness.run(batch, payload, max_cycles=1_000_000, **patterns)
    results = run.results[: len(ours[0])]
    seen = [results[name].tobytes() for name in ("done", "sent_cycle", "first_cycle", "last_cycle", "header")]
    return seen, [run.payload(index) for index in range(len(ours[0]))]


def views(sharing, name, seeds):
    config = preset(name).replace(sharing=sharing)
    part = config.partitions[TENANT]
    others = [port for port in range(config.ports) if port not in part.ports]
    with Harness(config) as harness:
        for seed in range(seeds):
            ours = Traffic(config, seed, ports=part.ports).batch(400)
            silence = Traffic(config, seed, ports=others).batch(0)
            patterns = {"idle": 0.1 * (seed % 2), "backpressure": 0.2 * (seed % 3), "seed": seed}
            alone = tenant_cycles(harness, ours, silence, **patterns)
            for other in range(3):
                noise = Traffic(config, 1000 * seed + other, ports=others).batch(800)
                yield alone == tenant_cycles(harness, ours, noise, **patterns)


@pytest.mark.parametrize("name", ["tiny", "sim"])
def test_a_tenant_sees_the_same_cycles_whatever_the_others_do(name):
    assert all(views("strict", name, seeds=6))


def test_with_donated_turns_a_tenant_sees_the_others():
    assert not all(views("donate", "tiny", seeds=2))
