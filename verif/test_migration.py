"""Sessions that move: the new owner gets every byte that the old one wrote, or is told that it will not."""

import numpy as np
import pytest

from kvnode.models.golden import Difference
from kvnode.models.spec.enums import Opcode, Status
from kvnode.sw_driver.batch import BatchBuilder
from kvnode.verif.checkers.messages import WrongAnswer
from kvnode.verif.harness.harness import Harness
from kvnode.verif.migration import Migration, _Notes, audit, config_of


def assert_nothing_is_wrong(figures):
    assert figures.wrong_reads == figures.incomplete == figures.late_accepted == figures.deadlines_early == 0
    assert figures.reads > figures.moves and figures.late > figures.moves // 10 and figures.retried > 0
    assert figures.deadlines < figures.moves // 5


def test_no_reader_of_a_moved_session_gets_wrong_bytes():
    with Harness(config_of(4)) as harness:
        figures = Migration(harness, seed=1).play(400)
    assert_nothing_is_wrong(figures)
    # A move and a question are two turns at least, and a wait ends with the patience of the one who waits.
    waits = np.array(figures.wait_cycles)
    assert waits.min() >= 2 * 5 and np.median(waits) < 200


@pytest.mark.long
@pytest.mark.parametrize("ports", [4, 8])
def test_ten_thousand_moves(ports):
    with Harness(config_of(ports)) as harness:
        assert_nothing_is_wrong(Migration(harness, seed=2).play(10_000))


def test_the_audit_counts_a_read_with_one_wrong_byte():
    with Harness(config_of(4)) as harness:
        moves = Migration(harness, seed=3, check=False)
        builder, notes = BatchBuilder(moves.config), _Notes()
        moves._batch(builder, notes)
        batch, payload = builder.build()
        run = harness.run(batch, payload, max_cycles=1_000_000)
    good = audit(batch, notes, run)
    assert good.wrong_reads == 0
    # Of READs that were answered, every one in its own bytes.
    read = batch["header"]["opcode"] == Opcode.READ
    read &= (run.results["done"] == 1) & (run.results["header"]["status"] == Status.OK)
    for index in np.flatnonzero(read)[::7]:
        run.data[run.results["data_offset"][index]] ^= 1
    assert audit(batch, notes, run).wrong_reads == len(np.flatnonzero(read)[::7])


@pytest.mark.long
def test_bytes_of_a_faulty_rotator_are_found_without_the_golden_model():
    with Harness(config_of(4), fault="rotator", optimise=False) as harness:
        assert Migration(harness, seed=4, check=False).play(100).wrong_reads > 0
        with pytest.raises((Difference, WrongAnswer)):
            Migration(harness, seed=4).play(100)
