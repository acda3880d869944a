"""How fast cocotb drives the node: the same batches as the harness takes, with the agents of every bench and lockstep.

Used by: `kvnode bench sim`, for the ratio of the harness to cocotb.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np

from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.rtl.elaborate import TOP
from kvnode.verif.agents.batch import BatchRun
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.trace import TraceMonitor
from kvnode.verif.runner import node_verilog, run_bench

__all__ = ["cocotb_cycles_per_second"]

MODULE = "kvnode.verif.benches.speed"
#: Cycles in which the directory has surely cleared its tables are at most slots and this.
AFTER_RESET_CYCLES = 100


def cocotb_cycles_per_second(
    config: NodeConfig, batch: np.ndarray, payload: np.ndarray | bytes = b"", *, max_cycles: int = 20_000
) -> float:
    """Simulated cycles per second of wall clock, while `batch` (BATCH_DTYPE, with or without dependencies) is answered.

    Agents on every port, the stream checkers, and the golden node in lockstep take part in every cycle, and nothing
    holds back. Only the loop of the simulation counts: not the build, nor the start of the simulator, nor the cycles in
    which the node clears its tables. Stops after `max_cycles` if not everything is answered by then. A record that
    differs from the golden node, or a stream that breaks a law, raises BenchFailure.
    """
    with tempfile.TemporaryDirectory(prefix="kvnode-speed-") as name:
        folder = Path(name)
        np.save(folder / "batch.npy", np.asarray(batch, BATCH_DTYPE), allow_pickle=False)
        (folder / "payload.bin").write_bytes(bytes(payload))
        parameters = {"config": config.to_dict(), "folder": name, "max_cycles": max_cycles}
        run_bench(node_verilog(config), MODULE, "drives_a_batch", parameters, top=TOP, timeout_s=3600)
        measured = json.loads((folder / "measured.json").read_text())
    return measured["cycles"] / measured["seconds"]


@bench_test(max_cycles=100_000_000)
async def drives_a_batch(dut):
    bench = Bench(dut)
    config, folder = NodeConfig.from_dict(bench.parameters["config"]), Path(bench.parameters["folder"])
    batch = np.load(folder / "batch.npy", allow_pickle=False)
    payload = (folder / "payload.bin").read_bytes()
    TraceMonitor(bench, config)
    await bench.start()
    await bench.until(lambda: bench.get("p0_req_ready"), config.slots + AFTER_RESET_CYCLES, "the node takes requests")
    run = BatchRun(bench, config, batch, payload)
    first, last = bench.cycle, bench.cycle + bench.parameters["max_cycles"]
    started = time.perf_counter()
    while not run.done and bench.cycle < last:
        await bench.step()
    seconds = time.perf_counter() - started
    (folder / "measured.json").write_text(json.dumps({"cycles": bench.cycle - first, "seconds": seconds}))
