"""Whatever a port held when it died comes back."""

import pytest

from kvnode.verif.benches.configs import config_of
from kvnode.verif.harness.harness import Harness
from kvnode.verif.leaks import Leaks


def assert_nothing_leaks(figures, operations):
    assert figures.leaked == 0
    assert figures.operations >= operations and figures.deaths > 10 and figures.lost > 10 and figures.sealed > 0


def test_nothing_that_a_dead_port_held_is_lost():
    with Harness(config_of("tiny")) as harness:
        assert_nothing_leaks(Leaks(harness, seed=1).play(8_000), 8_000)


@pytest.mark.long
@pytest.mark.parametrize("name", ["tiny_donate", "quad", "quad_public"])
def test_nothing_is_lost_in_a_hundred_thousand_operations(name):
    with Harness(config_of(name)) as harness:
        assert_nothing_leaks(Leaks(harness, seed=2).play(100_000), 100_000)


def test_what_is_held_while_ports_are_busy_is_seen_in_the_registers():
    with Harness(config_of("tiny")) as harness:
        leaks = Leaks(harness, seed=3)
        leaks._wait = lambda cycles: None  # type: ignore[method-assign]
        leaks.play(3_000)
    assert leaks.figures.leaked > 0
