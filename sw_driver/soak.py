"""Random operations on the RTL for as long as you like, in rounds that can be repeated one by one.

Used by: cli.
"""

import functools
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from kvnode.models.spec.config import NodeConfig
from kvnode.verif.benches.configs import config_of
from kvnode.verif.harness.harness import Harness, RunError
from kvnode.verif.soak import play

#: Nodes in turns, round after round.
NODES = ("tiny", "tiny_donate", "quad", "sim")
REQUESTS = 1_500

#: Told what is going on, for the progress line.
Progress = Callable[[str], None]


@dataclass
class Failure:
    """A round that ended in a difference from the golden model, or (`hang`) in something that the harness could not
    follow. `command` repeats it.
    """

    round: int
    preset: str
    hang: bool
    message: str
    command: str


@dataclass
class Soak:
    """What was done. `operations`: directory operations compared, `answers`: messages compared, `lost`: messages that
    were under way when their port went down. `next_round` is the `first_round` to go on with.
    """

    seed: int
    first_round: int
    next_round: int
    operations: int = 0
    answers: int = 0
    lost: int = 0
    cycles: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        return self.next_round - self.first_round

    @property
    def differences(self) -> int:
        return sum(not failure.hang for failure in self.failures)

    @property
    def hangs(self) -> int:
        return sum(failure.hang for failure in self.failures)

    def to_dict(self) -> dict[str, Any]:
        counts = ("operations", "differences", "hangs", "rounds", "next_round", "first_round", "seed", "answers",
                  "lost", "cycles")  # fmt: skip
        return {name: getattr(self, name) for name in counts} | {"failures": [vars(item) for item in self.failures]}


def run(
    operations: int, seed: int = 1, configs: Sequence[NodeConfig] | None = None, first_round: int = 0,
    progress: Progress = lambda text: None, **harness: Any,
) -> Soak:  # fmt: skip
    """Rounds from `first_round` on until so many operations were compared, or something was wrong. Round r is the same
    whatever was played before it. `configs`: in turns, in place of NODES; `harness`: options of the harness.

    A KeyboardInterrupt ends it after the last whole round.
    """
    chosen = list(configs) if configs else [config_of(name) for name in NODES]
    report = Soak(seed, first_round, first_round)
    nodes: dict[int, Harness] = {}
    try:
        while report.operations < operations and not report.failures:
            number = report.next_round
            turn = number % len(chosen)
            config = chosen[turn]
            done = f"round {number}, {config.name} {config.sharing}; {report.operations:,} of {operations:,} operations"
            if turn not in nodes:
                nodes[turn] = Harness(config, progress=functools.partial(_told, progress, done), **harness)
            progress(done)
            _round(report, nodes[turn], number, config.name if configs else "")
    except KeyboardInterrupt:
        progress("interrupted")
    finally:
        for node in nodes.values():
            node.close()
    return report


def round_seed(seed: int, number: int) -> int:
    """Of a round: far from that of every other."""
    return int.from_bytes(hashlib.sha256(f"{seed} {number}".encode()).digest()[:6], "little")


def _told(progress: Callable[[str], None], done: str, stage: str) -> None:
    progress(f"{done}, {stage}")


def _round(report: Soak, harness: Harness, number: int, preset: str) -> None:
    config = harness.config
    try:
        done = play(harness, round_seed(report.seed, number), REQUESTS)
    # Of golden.Difference and checkers.messages.WrongAnswer.
    except (AssertionError, RunError) as error:
        choice = f" --preset {preset}" if preset else ""
        command = f"kvnode soak --ops 1 --seed {report.seed} --first-round {number}{choice}"
        message = f"{type(error).__name__}: {error}"
        report.failures.append(Failure(number, config.name, isinstance(error, RunError), message, command))
    else:
        report.operations += done.operations
        report.answers += done.answers
        report.lost += done.lost
        report.cycles += done.cycles
        report.next_round = number + 1


def print_soak(report: Soak, console: Console) -> None:
    console.print(
        f"{report.operations:,} operations and {report.answers:,} answers compared in {report.rounds} rounds of "
        f"{report.cycles:,} cycles: {report.differences} differences, {report.hangs} hangs; "
        f"next round {report.next_round}",
        highlight=False,
    )
    for failure in report.failures:
        console.print(f"round {failure.round} on {failure.preset}: {failure.message}", highlight=False, markup=False)
        console.print(f"again: {failure.command}", highlight=False, markup=False)
