"""Random traffic on the Verilated node: every operation, every answer and every byte against the golden node."""

import random

import pytest

from kvnode.models.golden import Difference
from kvnode.models.spec.config import preset
from kvnode.rtl.node.node import FAULTS
from kvnode.verif.checkers.messages import MessageCheck, WrongAnswer
from kvnode.verif.harness.harness import Harness
from kvnode.verif.traffic import Traffic

RUNS_PER_SEED = 2


def play(harness, seed, requests):
    """One seed: two runs from reset, random idle and backpressure, models retired in between; returns the check."""
    config, draw = harness.config, random.Random(seed)
    boot_epoch = draw.randrange(4)
    harness.reset(boot_epoch)
    check = MessageCheck(config, boot_epoch)
    traffic = Traffic(config, seed, keys=draw.choice((4, 24, 200)), malformed=draw.choice((0, 0.05, 0.3)))
    for _ in range(RUNS_PER_SEED):
        batch, payload = traffic.batch(requests)
        retire = sorted(
            (draw.randrange(4 * requests), 0, draw.randrange(len(config.partitions) + 1) << 16 | draw.randrange(3))
            for _ in range(3)
        )
        run = harness.run(
            batch,
            payload,
            max_cycles=400 * len(batch) + 100_000,
            idle=draw.choice((0, 0.2)),
            backpressure=draw.choice((0, 0.2, 0.5)),
            seed=seed,
            registers=retire,
        )
        check.check(batch, payload, run)
    return check


@pytest.mark.parametrize("sharing", ["strict", "donate"])
def test_a_hundred_thousand_random_messages_hang_nothing_and_change_nothing_they_should_not(sharing):
    answers = 0
    with Harness(preset("tiny").replace(sharing=sharing)) as harness:
        seed = 0
        while answers < 100_000:
            answers += play(harness, seed, 2000).answers_checked
            seed += 1
    assert answers >= 100_000


def test_random_traffic_on_the_sim_preset():
    with Harness(preset("sim")) as harness:
        assert sum(play(harness, seed, 2000).answers_checked for seed in range(4)) > 8000


@pytest.mark.long
def test_random_traffic_on_the_wide_preset():
    with Harness(preset("wide")) as harness:
        assert sum(play(harness, seed, 3000).answers_checked for seed in range(8)) > 24_000


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
