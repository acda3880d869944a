"""Runs that are counted: a node built with coverage, random and directed rounds on it, and the counts of all of them.

Used by: verif.coverage.__main__, tests.
"""

import functools
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from kvnode.models.spec.config import NodeConfig, preset

from .. import soak
from ..benches.configs import config_of
from ..directed import ROUNDS
from ..harness.harness import Harness
from .collect import WatchedCheck
from .convert import convert
from .data import Counts, read_counts

__all__ = ["CONFIGS", "NodeCoverage", "coverage_config", "measure"]

#: Small nodes, different in everything: narrow and wide ports, partitions, sharing, a public partition, ticks, keys.
CONFIGS = ("tiny", "tiny_wide", "quad_public")
#: A beat holds two digests, which have all their bits; a tick is a cycle; idle turns are donated.
WIDE = preset("tiny").replace(
    name="tiny_wide", beat_bytes=64, block_bytes=1024, max_payload_bytes=256, digest_bits=256, tag_bits=32, leases=16,
    tick_cycles_log2=0, sharing="donate",
)  # fmt: skip
REQUESTS = 400

#: Told what is being done, and how much of it is done, from 0 to 1.
Progress = Callable[[str, float], None]


def coverage_config(name: str) -> NodeConfig:
    """A node of CONFIGS, or any that the benches know by name."""
    return WIDE if name == WIDE.name else config_of(name)


class NodeCoverage:
    """A node of one configuration that counts. `play` and `direct` run rounds on it, `counts` tells of all of them.

    Every round is checked against the golden model, message by message.
    """

    def __init__(self, config: NodeConfig, *, optimise: bool = True, progress: Callable[[str], None] = lambda _: None):
        self.config = config
        self.hits: Counter[str] = Counter()
        self._design = convert(config)
        self.tied, self.library = self._design.tied, self._design.library
        self._harness = Harness(config, text=self._design.text, coverage=True, optimise=optimise, progress=progress)

    def __enter__(self) -> "NodeCoverage":
        return self

    def __exit__(self, *_: object) -> None:
        self._harness.close()

    def check(self, config: NodeConfig, boot_epoch: int) -> WatchedCheck:
        """A checker that counts for this node."""
        return WatchedCheck(config, boot_epoch, self.hits)

    def play(self, seed: int, requests: int = REQUESTS) -> None:
        """A round of the soak."""
        soak.play(self._harness, seed, requests, checker=self.check)

    def direct(self, name: str) -> None:
        """A directed round of `verif.directed.ROUNDS`."""
        ROUNDS[name](self._harness, self.check)

    def counts(self) -> Counts:
        """What was counted until now."""
        with tempfile.TemporaryDirectory(prefix="kvnode-coverage-") as folder:
            path = Path(folder) / "coverage.dat"
            self._harness.coverage(path)
            counts = read_counts(path, self._design)
        counts.items.update(self.hits)
        return counts


def measure(
    names: Sequence[str] = CONFIGS,
    rounds: int = 100,
    *,
    directed: Sequence[str] = tuple(ROUNDS),
    progress: Progress = lambda what, done: None,
) -> dict[str, Counts]:
    """The counts of each configuration after `rounds` rounds of the soak and the directed rounds."""
    found = {}
    for number, name in enumerate(names):

        def told(what: str, done: float, name: str = name, number: int = number) -> None:
            progress(f"{name}: {what}", (number + done) / len(names))

        with NodeCoverage(coverage_config(name), progress=functools.partial(told, done=0.0)) as node:
            for index, seed in enumerate(range(rounds)):
                told(f"random round {seed}", 0.8 * index / rounds)
                node.play(seed)
            for index, what in enumerate(directed):
                told(what, 0.8 + 0.2 * index / len(directed))
                node.direct(what)
            found[name] = node.counts()
    return found
