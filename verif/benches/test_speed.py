"""The measurement of cocotb's speed measures something."""

from kvnode.verif.benches.configs import config_of
from kvnode.verif.benches.speed import cocotb_cycles_per_second
from kvnode.verif.traffic import Traffic


def test_cocotb_drives_a_batch_at_a_plausible_speed():
    config = config_of("tiny")
    batch, payload = Traffic(config, seed=1).batch(200)
    # Python costs tens of microseconds in each cycle of a node.
    assert 500 < cocotb_cycles_per_second(config, batch, payload) < 300_000
    # One that is not answered in time is measured too.
    batch["earliest_cycle"] = 1 << 40
    assert cocotb_cycles_per_second(config, batch, max_cycles=100) > 500
