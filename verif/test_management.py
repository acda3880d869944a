"""What the registers do to a whole node: drain at any moment, latencies after a port was down, what is told of it."""

import numpy as np
import pytest

from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.config import preset
from kvnode.models.spec.counters import BUCKETS
from kvnode.models.spec.enums import Opcode
from kvnode.sw_driver.batch import BatchBuilder
from kvnode.verif.harness.harness import Harness

CONFIG = preset("tiny")


@pytest.fixture(scope="module")
def harness():
    with Harness(CONFIG, optimise=False) as harness:
        yield harness


def pings(count, gap=0):
    builder = BatchBuilder(CONFIG)
    for number in range(count):
        builder.add(Opcode.PING, number % CONFIG.ports, earliest_cycle=number * gap)
    return builder.build()[0]


def test_drain_at_any_moment_ends_with_what_was_begun_and_loses_nothing(harness):
    # Headers take several beats: a drain may come when a header is half in.
    assert CONFIG.request_beats > 1
    seen = set()
    for cycle in range(30, 70):
        harness.reset(1)
        harness.idle(40)
        accesses = [
            (cycle, registers.CONTROL_ADDRESS, registers.CONTROL_DRAIN_MASK),
            (cycle + 300, registers.STATUS_ADDRESS),
            (cycle + 301, registers.CONTROL_ADDRESS, 0),
        ]
        run = harness.run(pings(40), max_cycles=5_000, registers=accesses)
        assert run.registers[1]["data"] & registers.STATUS_DRAINED_MASK
        assert (run.results["done"] == 1).all()
        seen.add(int((run.results["last_cycle"] < run.registers[1]["accepted_cycle"]).sum()))
    assert len(seen) > 1 and max(seen) < 40


def buckets(harness, port):
    counts = []
    for bucket in range(BUCKETS):
        select = bucket << registers.HISTOGRAM_SELECT_BUCKET_SHIFT | port << registers.HISTOGRAM_SELECT_PORT_SHIFT
        harness.write_register(registers.HISTOGRAM_SELECT_ADDRESS, select)
        counts.append(harness.read_register(registers.HISTOGRAM_LOW_ADDRESS))
    return np.array(counts)


def test_latencies_of_a_port_that_was_down_are_those_of_its_own_messages(harness):
    harness.reset(1)
    harness.idle(40)
    down = registers.PORT_DOWN_ADDRESS
    run = harness.run(pings(60), max_cycles=9_000, registers=[(40, down, 1), (200, down, 0)])
    lost = run.results["done"] == 3
    assert lost.any()
    before = buckets(harness, 0)
    assert before.sum() == int((run.results["done"][::2] == 1).sum())
    run = harness.run(pings(8, gap=500), max_cycles=9_000)
    now = buckets(harness, 0) - before
    latencies = (run.results["first_cycle"] - run.results["sent_cycle"])[::2]
    assert now.sum() == 4 and set(np.flatnonzero(now)) <= {int(latencies.min()).bit_length() - 1, 3, 4}
