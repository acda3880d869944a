"""Walks all mutants of a netlist through the stimuli, and keeps what became of each.

Used by: verif.mutation.__main__, verif.mutation.test_mutation.
"""

import dataclasses
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from kvnode.models.spec.config import NodeConfig

from ..harness.harness import Harness
from .equivalence import Proofs
from .netlist import Mutant, Netlist
from .stimuli import FAST, STRONG, Trial, dirty

__all__ = ["Campaign", "Verdict", "try_mutant"]

#: No mutant is killed by chance of the machine: a process that ends by itself is one that the model has broken.
CRASHED = "the process of the simulation ended"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: the trial that killed it and how; or that it is proved to change nothing; or through
    how many trials it has lived."""

    killed_by: str = ""
    how: str = ""
    equal: bool = False
    trials: int = 0
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        return bool(self.killed_by)

    def is_final(self, trials: int) -> bool:
        return self.killed or self.equal or self.trials >= trials


def try_mutant(
    config: NodeConfig, text: str, number: int, trials: Sequence[Trial], *, optimise: bool = True
) -> Verdict:
    """Put one mutant (0: none) through the trials until one kills it, on a node of its own."""
    start = time.monotonic()
    with Harness(config, text=text, optimise=optimise) as harness:
        harness.mutant(0)
        dirty(harness)
        harness.mutant(number)
        for place, (name, trial) in enumerate(trials):
            try:
                trial(harness)
            except Exception as error:  # Whatever goes wrong, the mutant has shown.
                how = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                return Verdict(name, how, trials=place, seconds=round(time.monotonic() - start, 2))
    return Verdict(trials=len(trials), seconds=round(time.monotonic() - start, 2))


class Campaign:
    """The mutants of a netlist and their verdicts, kept in `folder`/results.json after each.

    `text`: the Verilog with all mutants in it. A verdict of fewer trials than are asked for is made again.
    """

    def __init__(self, config: NodeConfig, netlist: Netlist, mutants: Sequence[Mutant], name: str):
        self.config, self.netlist, self.mutants = config, netlist, mutants
        self.path: Path = netlist.folder / f"results-{name}.json"
        self.text = netlist.verilog(mutants)
        self.verdicts: dict[int, Verdict] = {}
        if self.path.exists():
            rows = json.loads(self.path.read_text())
            self.verdicts = {int(number): Verdict(**row) for number, row in rows.items()}

    def build(self, progress: Callable[[str], None] = lambda stage: None) -> None:
        """Make the simulator."""
        Harness(self.config, text=self.text, progress=progress).close()

    def walk(
        self, first: Sequence[Trial] = FAST, then: Sequence[Trial] = STRONG, *, proofs: Proofs | None = None
    ) -> Iterator[Mutant]:
        """Mutants in an order of chance, that one stopped early has something of every block; each when its verdict is
        there; those that have one already come at once.

        What lives through the `first` trials is tried to be proved equal, and if it is not goes on to those that come
        `then`.
        """
        trials = (*first, *then)
        self._pool = _pool(self.config, self.text, trials)
        try:
            for mutant in random.Random(0).sample(self.mutants, len(self.mutants)):
                verdict = self.verdicts.get(mutant.number, Verdict())
                for until in (len(first), len(trials)):
                    if not verdict.is_final(until):
                        verdict = self._try(mutant.number, verdict.trials, until)
                    if proofs is not None and not verdict.is_final(len(trials)):
                        verdict = dataclasses.replace(verdict, equal=proofs.is_equal(mutant))
                if verdict != self.verdicts.get(mutant.number):
                    self.verdicts[mutant.number] = verdict
                    self._save()
                yield mutant
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _try(self, number: int, lived: int, until: int) -> Verdict:
        try:
            return self._pool.submit(_work, number, lived, until).result()
        except BrokenProcessPool:
            assert _job is not None
            self._pool = _pool(*_job)
            return Verdict("crash", CRASHED)

    def _save(self) -> None:
        rows = {str(number): dataclasses.asdict(verdict) for number, verdict in sorted(self.verdicts.items())}
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(rows, indent=1) + "\n")
        draft.rename(self.path)


_job: tuple[NodeConfig, str, Sequence[Trial]] | None = None


def _pool(config: NodeConfig, text: str, trials: Sequence[Trial]) -> ProcessPoolExecutor:
    """One process, so that a model that ends its process ends no more than that."""
    global _job
    _job = config, text, trials  # Inherited by the process: trials are closures.
    return ProcessPoolExecutor(1, mp_context=get_context("fork"))


def _work(number: int, lived: int, until: int) -> Verdict:
    """The trials from `lived` on."""
    assert _job is not None
    config, text, trials = _job
    verdict = try_mutant(config, text, number, trials[lived:until])
    return dataclasses.replace(verdict, trials=verdict.trials + lived)
