"""Ports that die at random: leases, rows of blocks being written, slots and sessions that do not come back."""

import dataclasses

from kvnode.models.spec.config import NodeConfig
from kvnode.verif.benches.configs import config_of
from kvnode.verif.harness.harness import Harness
from kvnode.verif.leaks import Figures, Leaks

from . import Bench, Progress

CONFIGS = ("tiny", "quad_donate")
OPERATIONS, QUICK_OPERATIONS = 1_000_000, 8_000


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """Rounds of random traffic in lockstep, an equal share on each node; operations are those of ports. After each
    round all ports are up and silent until all deadlines have passed, and the registers tell what is still held."""
    bench = Bench("leaks", config.name if config else ", ".join(CONFIGS))
    total = Figures()
    configs = [config] if config else [config_of(name) for name in CONFIGS]
    share = (QUICK_OPERATIONS if quick else OPERATIONS) // len(configs)
    for node in configs:

        def told(done: Figures, name: str = node.name) -> None:
            progress(f"{name}, {done.operations:,} of {share:,} operations")

        with Harness(node, progress=progress) as harness:
            figures = Leaks(harness).play(share, told)
        for item in dataclasses.fields(Figures):
            setattr(total, item.name, getattr(total, item.name) + getattr(figures, item.name))
    bench.add("operations", total.operations, "operations of ports, in lockstep", ">= 1,000,000")
    bench.add("leaked", total.leaked, "leases, fill rows, slots and sessions", "0")
    bench.add("deaths", total.deaths, "times that a port went down")
    bench.add("messages_lost", total.lost, "messages under way when their port went down")
    bench.add("rounds", total.rounds, "rounds")
    bench.add("sealed_blocks_kept", total.sealed, "blocks, over the ends of all rounds")
    bench.add("sweeper_operations", total.swept, "operations of the sweeper, in lockstep")
    bench.add("cycles", total.cycles, "cycles")
    return bench
