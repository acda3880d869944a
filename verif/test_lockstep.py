"""Random traffic on the Verilated node: every operation, every answer and every byte against the golden node."""

import dataclasses

import pytest

from kvnode.models.golden import Difference
from kvnode.models.spec.config import preset
from kvnode.rtl.node.node import FAULTS
from kvnode.verif.benches.configs import config_of
from kvnode.verif.checkers.messages import WrongAnswer
from kvnode.verif.harness.harness import Harness
from kvnode.verif.soak import play


@pytest.mark.parametrize("sharing", ["strict", "donate"])
def test_a_hundred_thousand_random_messages_hang_nothing_and_change_nothing_they_should_not(sharing):
    answers = lost = 0
    with Harness(preset("tiny").replace(sharing=sharing)) as harness:
        seed = 0
        while answers < 100_000:
            played = play(harness, seed, 2000)
            answers, lost, seed = answers + played.answers, lost + played.lost, seed + 1
    assert answers >= 100_000 and lost > 0


def test_random_traffic_on_the_sim_preset():
    with Harness(preset("sim")) as harness:
        assert sum(play(harness, seed, 2000).answers for seed in range(4)) > 8000


def test_random_traffic_with_a_public_partition():
    config = config_of("quad")
    public, *others = config.partitions
    with Harness(config.replace(partitions=(dataclasses.replace(public, public=True), *others))) as harness:
        assert sum(play(harness, seed, 1000).answers for seed in range(6)) > 8000


@pytest.mark.long
def test_random_traffic_on_the_wide_preset():
    with Harness(preset("wide")) as harness:
        assert sum(play(harness, seed, 3000).answers for seed in range(8)) > 24_000


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_named(fault):
    with Harness(preset("tiny"), fault=fault, optimise=False) as harness:
        with pytest.raises((Difference, WrongAnswer)) as caught:
            for seed in range(5):
                play(harness, seed, 500)
    named = {
        "transition": "state_after is <State.FILLING: 1> in RTL, <State.SEALED: 2> in golden",
        "index_compare": " in RTL, ",
        "watermark": "landed is ",
        "rotator": "the bytes differ from what was written",
    }
    message = str(caught.value)
    assert named[fault] in message
    assert " at cycle " in message and " by owner " in message and "digest " in message or "handle slot" in message
