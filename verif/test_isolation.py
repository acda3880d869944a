"""Isolation as a test: one tenant's outputs do not depend on what other tenants do (the proof is a later step)."""

import pytest

from kvnode.models.spec.enums import Opcode
from kvnode.verif.benches.configs import config_of
from kvnode.verif.harness.harness import Harness
from kvnode.verif.isolation import LOADS, QUESTIONS, latencies, pairs


def differences(name, seeds, **options):
    """(load, names of the outputs that differ) of every pair."""
    with Harness(config_of(name)) as harness:
        return [(pair.what, pair.differences) for pair in pairs(harness, range(seeds), **options)]


@pytest.mark.parametrize(("name", "seeds"), [("tiny", 6), pytest.param("quad", 3, marks=pytest.mark.long)])
def test_a_tenant_sees_the_same_cycles_whatever_the_others_do(name, seeds):
    found = differences(name, seeds)
    assert found == [(load, []) for _ in range(seeds) for load in list(LOADS)[1:]]


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny", "quad", "sim"])
def test_a_tenant_sees_the_same_cycles_with_more_seeds(name):
    assert all(outputs == [] for _, outputs in differences(name, 12))


def test_with_donated_turns_a_tenant_sees_the_others():
    found = differences("tiny_donate", 1)
    assert all("first_cycle" in outputs for load, outputs in found if load == "flood")


@pytest.mark.parametrize("name", ["tiny", "quad", "sim"])
@pytest.mark.parametrize("opcode", [Opcode.LOOKUP, Opcode.READ, Opcode.LEASE])
def test_what_is_denied_or_of_another_takes_the_time_of_a_miss(name, opcode):
    with Harness(config_of(name)) as harness:
        taken = latencies(harness, opcode)
    assert len(taken["miss"]) == 1
    assert taken == dict.fromkeys(QUESTIONS, taken["miss"])
