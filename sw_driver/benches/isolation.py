"""One tenant's outputs beside others that do their worst, cycle by cycle, and what the time of an answer tells."""

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Opcode
from kvnode.verif.benches.configs import config_of
from kvnode.verif.harness.harness import Harness
from kvnode.verif.isolation import QUESTIONS, latencies, pairs

from . import Bench, Progress

CONFIGS = ("tiny", "quad", "sim")
SEEDS, QUICK_SEEDS = 4, 1


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """Pairs of runs with the first partition's inputs alike, the others idle in one and in the other as
    verif.isolation.LOADS says. Then the latency of what must not be told from a miss, less that of a miss: LOOKUP, READ
    and LEASE at one phase of the wheel."""
    bench = Bench("isolation", config.name if config else ", ".join(CONFIGS))
    nodes = [config] if config else [config_of(name) for name in CONFIGS]
    figures = {"strict": [0, 0], "donate": [0, 0]}
    cycles = 0
    apart: dict[str, int] = dict.fromkeys(QUESTIONS, 0)
    for sharing in figures:
        seeds = QUICK_SEEDS if quick or sharing == "donate" else SEEDS
        for node in nodes:
            progress(f"{node.name}, {sharing}")
            with Harness(node.replace(sharing=sharing), progress=progress) as harness:
                for pair in pairs(harness, range(seeds)):
                    figures[sharing][0] += 1
                    figures[sharing][1] += bool(pair.differences)
                    cycles += 2 * pair.cycles if sharing == "strict" else 0
                if sharing == "strict":
                    for opcode in (Opcode.LOOKUP, Opcode.READ, Opcode.LEASE):
                        taken = latencies(harness, opcode)
                        miss = min(taken["miss"])
                        for name, values in taken.items():
                            apart[name] = max(apart[name], *(abs(value - miss) for value in values))
    bench.add("cycles", cycles, "cycles of both runs of all pairs, strict", ">= 1,000,000")
    bench.add("pairs", figures["strict"][0], "pairs of runs, strict", ">= 20")
    bench.add("differences_strict", figures["strict"][1], "pairs in which any output differs", "0")
    bench.add("pairs_donate", figures["donate"][0], "pairs of runs, donate")
    bench.add("differences_donate", figures["donate"][1], "of them", ">= 1")
    bench.add("miss_latency_spread", apart.pop("miss"), "cycles", "0")
    for name, value in apart.items():
        bench.add(f"{name}_latency_minus_miss", value, "cycles", "0")
    return bench
