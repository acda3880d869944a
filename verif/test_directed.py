"""The directed rounds on nodes that differ in everything."""

import pytest

from kvnode.models.spec.config import preset

from .benches.configs import config_of
from .checkers.messages import MessageCheck
from .directed import ROUNDS
from .harness.harness import Harness

#: Half a million cycles each.
LONG = ("long_time", "moving_session")


@pytest.fixture(scope="module")
def tiny():
    with Harness(preset("tiny")) as harness:
        yield harness


@pytest.mark.parametrize("name", [name for name in ROUNDS if name not in LONG])
def test_directed_round_is_answered_as_by_the_golden_node(tiny, name):
    ROUNDS[name](tiny, MessageCheck)
    assert tiny.cycle > 500


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_long_directed_round_is_answered_as_by_the_golden_node(tiny, name):
    ROUNDS[name](tiny, MessageCheck)
    assert tiny.cycle > 1 << 17


@pytest.mark.long
@pytest.mark.parametrize("config", ["tiny_donate", "quad", "quad_public"])
def test_all_directed_rounds_on_other_nodes(config):
    with Harness(config_of(config)) as harness:
        for play in ROUNDS.values():
            play(harness, MessageCheck)
            assert harness.cycle > 0
