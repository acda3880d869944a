"""Blocks that several members write and several ranks read: wrong bytes, blocks that were never whole, and ranks that
disagree."""

import dataclasses

from kvnode.models.spec.config import NodeConfig, preset
from kvnode.verif.harness.harness import Harness
from kvnode.verif.members import Figures, Members, config_of

from . import Bench, Progress

PRESETS = ("sim", "wide")
ROUNDS = 100


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """Rounds of all write degrees (1, 2, 4, 8) by all read degrees, in ranges and in runs; blocks with a member missing
    or corrupt; prefixes asked for by all ports while they are written. Every message is checked in lockstep."""
    bench = Bench("members", config.name if config else ", ".join(PRESETS))
    total = Figures()
    rounds = 1 if quick else ROUNDS
    for base in [config] if config else [preset(name) for name in PRESETS]:
        node = config_of(base)

        def told(done: Figures, name: str = node.name) -> None:
            progress(f"{name}, {done.pairs:,} pairs")

        with Harness(node, progress=progress) as harness:
            figures = Members(harness).play(rounds, told)
        for item in dataclasses.fields(Figures):
            setattr(total, item.name, getattr(total, item.name) + getattr(figures, item.name))
    bench.add("pairs", total.pairs, "write degrees by read degrees by forms of READ", ">= 32")
    bench.add("wrong_bytes", total.wrong_bytes, "bytes", "0")
    bench.add("bytes", total.bytes, "bytes read")
    bench.add("reads", total.reads, "READs of ranks")
    bench.add("broken_blocks", total.broken, "blocks with a member missing or corrupt")
    bench.add("broken_blocks_read", total.broken_read, "answers that gave anything of one", "0")
    bench.add("match_pairs", total.matches, "MATCHes on two ports, one after the other")
    bench.add("match_disagreements", total.shrunk, "pairs in which the later one found less", "0")
    bench.add("operations", total.operations, "directory operations in lockstep")
    return bench
