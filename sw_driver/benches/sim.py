"""How many cycles per second the RTL replays, and how many times as many that is as the same traffic from cocotb."""

import time

from kvnode.models.spec.config import NodeConfig, preset
from kvnode.models.workloads import generate

from ..replay import Replay
from ..transports import open_transport
from ..workload import Expansion
from . import Bench, Progress

REQUESTS, QUICK_REQUESTS = 300, 30
#: Requests of the batch that both the harness and cocotb run.
SHARED_REQUESTS = 4


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """The built-in workload in lockstep; then one batch of it on the harness, in lockstep too, and on cocotb."""
    config = config or preset("sim")
    bench = Bench("sim", config.name)
    trace = generate(QUICK_REQUESTS if quick else REQUESTS)
    transport = open_transport("rtl", config, progress=progress)
    try:
        progress("replay")
        report = Replay(transport, trace, sessions=False).run()
    finally:
        transport.close()
    bench.add("cycles_per_second", report.cycles / report.run_s, "cycles/s, in lockstep")
    bench.add("operations_per_second", report.operations / report.run_s, "directory operations/s, in lockstep")
    expansion = Expansion(trace, config, sessions=False)
    jobs = expansion.jobs(range(SHARED_REQUESTS))
    batch, payload = expansion.transfer_batch(jobs).build()
    transport = open_transport("rtl", config, progress=progress)
    try:
        started = time.perf_counter()
        result = transport.run(batch, payload)
        ours = result.cycles / (time.perf_counter() - started)
    finally:
        transport.close()
    from ..transports.rtl import cocotb_cycles_per_second

    progress("cocotb")
    theirs = cocotb_cycles_per_second(config, batch, payload)
    bench.add("cocotb_cycles_per_second", theirs, "cycles/s")
    bench.add("ratio_to_cocotb", ours / theirs, "times", ">= 10")
    return bench
