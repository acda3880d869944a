"""Blocks of several members: any write degree against any read degree, and nothing of a block that is not whole."""

import numpy as np
import pytest

from kvnode.models.spec.batch import BATCH_DTYPE, RESULT_DTYPE
from kvnode.models.spec.config import preset
from kvnode.verif.harness.harness import Harness, RunResult
from kvnode.verif.members import DEGREES, Members, config_of, disagreements, wrong_bytes


def assert_nothing_is_wrong(figures, rounds):
    assert figures.wrong_bytes == figures.wrong_reads == figures.broken_read == figures.shrunk == 0
    assert figures.pairs == rounds * 2 * len(DEGREES) ** 2
    assert figures.broken == rounds * (2 * len(DEGREES) - 1) and figures.matches > 1000 * rounds


def test_every_rank_reads_what_other_ranks_wrote():
    with Harness(config_of()) as harness:
        assert_nothing_is_wrong(Members(harness, seed=1).play(2), 2)


@pytest.mark.long
@pytest.mark.parametrize("name", ["sim", "wide"])
def test_a_hundred_rounds_of_members(name):
    with Harness(config_of(preset(name))) as harness:
        assert_nothing_is_wrong(Members(harness, seed=2).play(100), 100)


@pytest.mark.long
def test_bytes_of_a_faulty_rotator_are_found_without_the_golden_model():
    with Harness(config_of(), fault="rotator", optimise=False) as harness:
        assert Members(harness, seed=1, check=False).play(1).wrong_bytes > 0


def some_run(rows, data=b""):
    """A run with these (sent, last, count) of MATCHes, or (data offset, data bytes) of READs."""
    results = np.zeros(len(rows), RESULT_DTYPE)
    results["tries"] = 1
    nothing = np.zeros(0)
    for result, row in zip(results, rows):
        if len(row) == 2:
            result["data_offset"], result["data_bytes"] = row
        else:
            result["sent_cycle"], result["last_cycle"], result["header"]["count"] = row
    return RunResult(results, np.frombuffer(data, np.uint8), nothing, 0, 0, nothing, nothing, nothing)


def test_wrong_bytes_are_those_that_differ_and_those_that_lack():
    run = some_run([(0, 4), (4, 3)], b"abcdabc")
    expected = np.frombuffer(b"abXdY", np.uint8)
    assert wrong_bytes(run, 0, expected[:4]) == 1
    assert wrong_bytes(run, 1, expected) == 1 + 2


def test_a_count_that_shrinks_on_another_port_is_a_disagreement():
    batch = np.zeros(4, BATCH_DTYPE)
    batch["port"] = [0, 1, 0, 1]
    # Port 1's second question begins after port 0's first was answered in cycle 20, and finds less.
    batch["earliest_cycle"] = [0, 0, 15, 30]
    run = some_run([(10, 20, 3), (12, 22, 2), (25, 40, 3), (31, 45, 2)])
    assert disagreements(batch, run, [0, 1, 2, 3]) == (1, 1)
    batch["earliest_cycle"][3] = 19
    run = some_run([(10, 20, 3), (12, 22, 2), (25, 40, 3), (31, 45, 2)])
    assert disagreements(batch, run, [0, 1, 2, 3]) == (0, 0)
