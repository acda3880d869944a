"""No answer takes longer than models.spec.bounds says, while answers are taken as they come: measured on whole nodes.

verif.formal.answers proves it of a port.
"""

import numpy as np
import pytest

from kvnode.models.spec.bounds import answer_bound_cycles
from kvnode.models.spec.config import NodeConfig
from kvnode.sw_driver.batch import BatchBuilder

from .benches.configs import config_of
from .harness.harness import Done, Harness
from .traffic import Traffic


def random_batch(config: NodeConfig):
    batch, payload = Traffic(config, 3, malformed=0.05).batch(1500)
    batch["patience"] = 0
    return batch, payload


def long_reads(config: NodeConfig):
    """On every port a block, and then so many READs of it that its queues are full."""
    builder = BatchBuilder(config)
    for port in range(config.ports):
        digest = (port + 1).to_bytes(32, "little")
        end = builder.puts(port, [(digest, bytes(config.block_bytes))])[0][2]
        for _ in range(60):
            builder.read(port, digest, after=end)
    return builder.build()


@pytest.mark.parametrize("name", ["tiny", pytest.param("quad", marks=pytest.mark.long)])
def test_no_answer_takes_longer_than_the_bound(name):
    config = config_of(name)
    bound = answer_bound_cycles(config)
    with Harness(config) as harness:
        for number, make in enumerate((random_batch, long_reads)):
            harness.reset(number)
            batch, payload = make(config)
            run = harness.run(batch, payload, max_cycles=400 * len(batch) + 200_000)
            answered = run.results["done"] == Done.ANSWERED
            cycles = run.results["last_cycle"].astype(np.int64) - run.results["sent_cycle"].astype(np.int64)
            assert answered.sum() > len(batch) // 3
            assert cycles[answered].max() <= bound
