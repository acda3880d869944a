"""The eviction clock against LRU on the Mooncake and Claude traces, at 1, 5, 10 and 25 % of the footprint."""

import statistics

from kvnode.models.spec.config import NodeConfig
from kvnode.models.workloads import coarsen, find_trace, read, traces_folder

from ..errors import TransportError
from ..transports.golden_parts import policy_rows
from . import Bench, Progress

#: Trace and the tokens of its blocks (Claude's blocks of 64 are grouped, or the study takes an hour).
TRACES = {
    "mooncake_conversation": 512,
    "claude_code_v6": 512,
    "claude_code_v8": 512,
}
QUICK_REQUESTS = 300


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """Points are hundredths of all block accesses: hits of the clock minus block hits of LRU of the same size."""
    bench = Bench("policy", config.name if config else "")
    points: list[float] = []
    for name, block_tokens in TRACES.items():
        path = find_trace(name)
        if path is None:
            raise TransportError(f"trace {name}* is not in {traces_folder()}: set KVNODE_TRACES to the folder of traces")
        progress(name)
        trace = coarsen(read(path, QUICK_REQUESTS if quick else None), block_tokens)
        for row in policy_rows(trace):
            size = f"{name}_{row.fraction:.0%}".replace("%", "pct")
            points.append(100 * (row.clock - row.lru))
            bench.add(f"{size}_clock", row.clock, "hit rate")
            bench.add(f"{size}_lru", row.lru, "hit rate")
            bench.add(f"{size}_lru_prefix", row.lru_prefix, "hit rate")
            bench.add(f"{size}_opt", row.opt, "hit rate")
    bench.add("worst_points_vs_lru", min(points), "points of hit rate", ">= -1")
    bench.add("mean_points_vs_lru", statistics.mean(points), "points of hit rate", ">= 0")
    return bench
