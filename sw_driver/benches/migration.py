"""Sessions that move between ports while their blocks are written: wrong reads, and how long the new owner waits."""

import numpy as np

from kvnode.models.spec.config import NodeConfig
from kvnode.verif.harness.harness import Harness
from kvnode.verif.migration import Figures, Migration, config_of

from . import Bench, Progress

PORTS = (4, 8)
MOVES, QUICK_MOVES = 50_000, 300


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """As many moves on 4 as on 8 ports, or all on a node as wide as `config`; idle and backpressure change from batch
    to batch, every message is checked in lockstep, and all bytes a second time. A wait begins with the answer to
    SESSION_MIGRATE, when the new owner's port is free; deadlines are sets with a block that its writer left or that a
    busy port delayed."""
    bench = Bench("migration", config.name if config else "sim, wide")
    total = Figures()
    moves = QUICK_MOVES if quick else MOVES
    for base in (config,) if config else PORTS:
        node = config_of(base)
        with Harness(node, progress=progress) as harness:
            name = f"{node.ports} ports"
            figures = Migration(harness).play(
                moves, lambda done, name=name: progress(f"{name}, {done.moves:,} of {moves:,} moves")
            )
        _waits(bench, figures, f"_{node.ports}_ports")
        total.add(figures)
    bench.add("moves", total.moves, "moves", ">= 100,000")
    bench.add("wrong_reads", total.wrong_reads, "READs with other bytes than were sealed", "0")
    bench.add("reads", total.reads, "READs answered with bytes")
    bench.add("incomplete_sets", total.incomplete, "questions answered before their set was whole", "0")
    bench.add("late_writes", total.late, "blocks beyond the limit, begun after the move")
    bench.add("late_writes_accepted", total.late_accepted, "of them", "0")
    bench.add("deadlines", total.deadlines, "sets that were not sealed while the reader was patient")
    bench.add("deadlines_of_sealed_sets", total.deadlines_early, "of them", "0")
    bench.add("woken", total.retried, "questions that waited to be woken")
    bench.add("operations", total.operations, "directory operations in lockstep")
    _waits(bench, total, "")
    return bench


def _waits(bench: Bench, figures: Figures, suffix: str) -> None:
    waits, unit = np.array(figures.wait_cycles), "cycles from the move's answer to the set's"
    for name, percent in (("p50", 50), ("p99", 99), ("max", 100)):
        bench.add(f"wait_cycles_{name}{suffix}", int(np.percentile(waits, percent)), unit)
