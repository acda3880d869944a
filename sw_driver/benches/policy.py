"""The eviction clock against LRU on the Mooncake and Claude traces, at 1, 5, 10 and 25 % of the footprint."""

import statistics

from kvnode.models.spec.config import NodeConfig
from kvnode.models.workloads import find_trace, read, traces_folder

from ..errors import TransportError
from ..transports.golden_parts import policy_rows
from . import Bench, Progress

#: Trace and the tokens of its blocks: one size for all, Claude's 64 in groups of eight (exact: `workloads.coarsen`).
TRACES = {
    "mooncake_conversation": 512,
    "claude_code_v6": 512,
    "claude_code_v8": 512,
}
QUICK_REQUESTS = 300


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """Points are hundredths of all block accesses: prefix hits of the clock minus block hits of LRU of the same size.

    `*_vs_lru_prefix` is the harder comparison of prefix hits on both sides: where requests are as large as the
    cache, LRU is counted before a request pushes out its own prefix.
    """
    bench = Bench("policy", config.name if config else "none")
    points: dict[str, list[float]] = {"lru": [], "lru_prefix": []}
    for name, block_tokens in TRACES.items():
        path = find_trace(name)
        if path is None:
            raise TransportError(f"trace {name}* is not in {traces_folder()}: set KVNODE_TRACES to their folder")
        progress(name)
        trace = read(path, QUICK_REQUESTS if quick else None, block_tokens=block_tokens)
        for row in policy_rows(trace):
            size = f"{name}_{row.fraction:.0%}".replace("%", "pct")
            points["lru"].append(100 * (row.clock - row.lru))
            points["lru_prefix"].append(100 * (row.clock - row.lru_prefix))
            bench.add(f"{size}_clock", row.clock, "hit rate")
            bench.add(f"{size}_lru", row.lru, "hit rate")
            bench.add(f"{size}_lru_prefix", row.lru_prefix, "hit rate")
            bench.add(f"{size}_opt", row.opt, "hit rate")
    for name, limits in (("lru", (">= -1", ">= 0")), ("lru_prefix", ("", ""))):
        bench.add(f"worst_points_vs_{name}", min(points[name]), "points of hit rate", limits[0])
        bench.add(f"mean_points_vs_{name}", statistics.mean(points[name]), "points of hit rate", limits[1])
    return bench
