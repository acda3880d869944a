"""`kvnode synth`: the area and the speed of a block on an ECP5, as a bench.

Used by: cli.
"""

from kvnode.fpga import synth
from kvnode.fpga.flow import FlowError
from kvnode.models.spec.config import NodeConfig

from .benches import Bench, Progress

__all__ = ["NAMES", "FlowError", "run", "sized"]

NAMES = tuple(synth.BLOCKS)
sized = synth.sized


def run(name: str, config: NodeConfig, seeds: int, progress: Progress = lambda text: None) -> Bench:
    """One row for each figure; `fmax_mhz` is the median of placements with as many seeds.

    Raises FlowError when a tool refuses.
    """
    area, speeds = synth.measure(name, config, tuple(range(1, seeds + 1)), lambda text: progress(f"{name}: {text}"))
    bench = Bench(f"synth {name}", config.name)
    fastest = sorted(speed.fmax_mhz for speed in speeds)
    bench.add("fmax_mhz", fastest[len(fastest) // 2], "MHz, median of the seeds", f">= {synth.TARGET_MHZ:g}")
    if seeds > 1:
        bench.add("fmax_spread_mhz", fastest[-1] - fastest[0], "MHz")
    for what in ("lut", "ff", "bram"):
        bench.add(what, getattr(area, what), {"lut": "LUT4", "ff": "flip-flops", "bram": "DP16KD"}[what])
    bench.add("latency_cycles", synth.BLOCKS[name].latency_cycles, "cycles, constant")
    bench.add("synthesis_seconds", area.seconds, "s")
    bench.add("placement_seconds", sum(speed.seconds for speed in speeds), "s")
    return bench
