"""The measurement of cocotb's speed measures something."""

import numpy as np

from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.verif.benches.configs import config_of
from kvnode.verif.benches.speed import cocotb_cycles_per_second
from kvnode.verif.traffic import Traffic


def test_cocotb_drives_a_batch_at_a_plausible_speed():
    config = config_of("tiny")
    batch, payload = Traffic(config, seed=1).batch(200)
    # Python costs tens of microseconds in each cycle of a node.
    assert 500 < cocotb_cycles_per_second(config, batch, payload) < 300_000


def test_a_batch_that_is_not_answered_in_time_is_measured_too():
    config = config_of("tiny")
    batch = np.zeros(1, BATCH_DTYPE)
    batch["after"] = batch["handle_from"] = -1
    batch["earliest_cycle"] = 1 << 40
    assert cocotb_cycles_per_second(config, batch, max_cycles=100) > 500
