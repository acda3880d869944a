"""Measure coverage: `python -m kvnode.verif.coverage [--fast]`.

Writes docs/coverage.md, build/coverage.json and, for each node, a file in build/coverage. The exit code is 0 when all
targets are reached.
"""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .data import Counts
from .measure import CONFIGS, measure
from .report import CHECKOUT, TARGETS, evaluate, load_exclusions, page

ROUNDS, FAST_ROUNDS = 100, 10


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m kvnode.verif.coverage", description="Coverage of the node's RTL")
    parser.add_argument("--fast", action="store_true", help="fewer random rounds; docs/coverage.md is left alone")
    parser.add_argument("--rounds", type=int, help=f"random rounds on each node (default {ROUNDS}, fast {FAST_ROUNDS})")
    parser.add_argument("--config", action="append", choices=CONFIGS, help="only this node; can be repeated")
    parser.add_argument("--out", type=Path, default=CHECKOUT / "build" / "coverage", help="folder for the JSON files")
    parser.add_argument("--again", action="store_true", help="run nothing: tell of the JSON files that are there")
    options = parser.parse_args(arguments)
    rounds = options.rounds if options.rounds is not None else FAST_ROUNDS if options.fast else ROUNDS
    configs = tuple(options.config or CONFIGS)

    options.out.mkdir(parents=True, exist_ok=True)
    if not options.again:
        for name, counts in _measure(configs, rounds).items():
            _write(options.out / f"{name}.json", {"rounds": rounds, "counts": counts.to_dict()})
    together, done = Counts(), set()
    for name in configs:
        of_one = json.loads((options.out / f"{name}.json").read_text(encoding="utf-8"))
        together.add(Counts.from_dict(of_one["counts"]))
        done.add(of_one["rounds"])
    coverage = evaluate(together, load_exclusions())
    _write(options.out.with_suffix(".json"), coverage.to_dict())
    complete = configs == CONFIGS and min(done) >= ROUNDS
    if complete:
        (CHECKOUT / "docs" / "coverage.md").write_text(page(coverage, configs, min(done)), encoding="utf-8")

    for kind, target in TARGETS.items():
        share = coverage.total(kind)
        print(f"{kind:8} {share.percent:6.2f} % of {share.hit + len(share.holes)}, {share.excluded} left out, "
              f"target {target:.0f} %")  # fmt: skip
        if kind != "toggles":
            print("".join(f"  not hit: {hole}\n" for hole in share.holes), end="")
    for exclusion in coverage.unused if complete else ():
        print(f"exclusion of {exclusion.kind} leaves nothing out: {exclusion.pattern}")
    return 0 if coverage.complete or not complete else 1


def _measure(configs: tuple[str, ...], rounds: int) -> dict[str, Counts]:
    columns = TextColumn("{task.description:40}"), BarColumn(), TextColumn("{task.percentage:3.0f} %")
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=1.0)
        found = measure(configs, rounds, progress=lambda what, done: bar.update(task, description=what, completed=done))
        bar.update(task, description="done", completed=1.0)
    return found


def _write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
