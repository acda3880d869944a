"""What is covered and what is not: percentages by block, holes, and the reasons of those that are left out.

Used by: verif.coverage.__main__.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .data import Counts
from .plan import items, load_plan

__all__ = ["Coverage", "Exclusion", "Kind", "evaluate", "load_exclusions", "page"]

FOLDER = Path(__file__).resolve().parent
CHECKOUT = FOLDER.parents[1]
#: Percent that must be reached.
TARGETS = {"lines": 98.0, "toggles": 90.0, "items": 100.0}
Kind = str


@dataclass
class Exclusion:
    """A pattern (regular expression) for names of points that cannot be hit, and why. `used`: how many it left out.

    A line's name is `file: text of the line`, a bit's `path:name[number]`, an item's `group.name`.
    """

    kind: Kind
    pattern: str
    reason: str
    used: int = 0

    def matches(self, name: str) -> bool:
        return re.fullmatch(self.pattern, name) is not None


@dataclass
class Share:
    """Of some points: how many were hit, left out, or are holes."""

    hit: int = 0
    excluded: int = 0
    holes: list[str] = field(default_factory=list)

    @property
    def percent(self) -> float:
        wanted = self.hit + len(self.holes)
        return 100 * self.hit / wanted if wanted else 100.0


@dataclass
class Coverage:
    """`blocks`: shares by kind (lines, toggles) and source file; `items` by group; `exclusions` with their use."""

    blocks: dict[Kind, dict[str, Share]]
    exclusions: list[Exclusion]

    def total(self, kind: Kind) -> Share:
        shares = self.blocks[kind].values()
        return Share(
            sum(share.hit for share in shares),
            sum(share.excluded for share in shares),
            [hole for share in shares for hole in share.holes],
        )

    @property
    def complete(self) -> bool:
        """All targets are reached, and every exclusion leaves something out."""
        reached = all(self.total(kind).percent >= target for kind, target in TARGETS.items())
        return reached and not self.unused

    @property
    def unused(self) -> list[Exclusion]:
        """Exclusions of what has been hit, or is not there any more."""
        return [exclusion for exclusion in self.exclusions if not exclusion.used]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: percentages and holes."""
        names = {"lines": "line", "toggles": "toggle", "items": "functional"}
        return {
            names[kind]: {
                "percent": round(self.total(kind).percent, 2),
                "blocks": {
                    block: {"hit": share.hit, "excluded": share.excluded, "holes": share.holes}
                    for block, share in sorted(blocks.items())
                },
            }
            for kind, blocks in self.blocks.items()
        }


def load_exclusions(path: Path = FOLDER / "exclusions.yaml") -> list[Exclusion]:
    """The exclusions of a file: for each kind a list of {match, reason}; `match` is a pattern or a list of them."""
    found: list[Exclusion] = []
    for kind, entries in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        for entry in entries:
            patterns = entry["match"] if isinstance(entry["match"], list) else [entry["match"]]
            found.extend(Exclusion(kind, pattern, " ".join(entry["reason"].split())) for pattern in patterns)
    return found


def evaluate(counts: Counts, exclusions: Iterable[Exclusion]) -> Coverage:
    """Shares of everything that was counted. What was hit is hit, whatever an exclusion says."""
    exclusions = list(exclusions)
    points: dict[Kind, Iterator[tuple[str, str, bool]]] = {
        "lines": _lines(counts), "toggles": _toggles(counts), "items": _items(counts)
    }  # fmt: skip
    blocks: dict[Kind, dict[str, Share]] = {}
    for kind, found in points.items():
        shares: dict[str, Share] = defaultdict(Share)
        ours = [exclusion for exclusion in exclusions if exclusion.kind == kind]
        for block, name, hit in found:
            share = shares[block]
            if hit:
                share.hit += 1
            elif excluded := next((exclusion for exclusion in ours if exclusion.matches(name)), None):
                excluded.used += 1
                share.excluded += 1
            else:
                share.holes.append(name)
        blocks[kind] = dict(shares)
    return Coverage(blocks, exclusions)


def _lines(counts: Counts) -> Iterator[tuple[str, str, bool]]:
    texts: dict[str, list[str]] = {}
    for place, count in sorted(counts.lines.items(), key=lambda item: _place(item[0])):
        file, number = _place(place)
        if file not in texts:
            texts[file] = (CHECKOUT / file).read_text(encoding="utf-8").splitlines()
        yield _block(file), f"{file}: {texts[file][number - 1].strip()}", count > 0


def _toggles(counts: Counts) -> Iterator[tuple[str, str, bool]]:
    for key, source in sorted(counts.sources.items(), key=lambda item: _bit_order(item[0])):
        yield _block(source.partition(":")[0]), key, counts.rises[key] > 0 and counts.falls[key] > 0


def _items(counts: Counts) -> Iterator[tuple[str, str, bool]]:
    queues = {
        f"{group['group']}.{name}": goal["falls"]
        for group in load_plan()
        for name, goal in group["items"].items()
        if not isinstance(goal, str)
    }
    for name in items():
        count = counts.queues[queues[name]] if name in queues else counts.items[name]
        yield name.partition(".")[0], name, count > 0


def _place(place: str) -> tuple[str, int]:
    file, _, number = place.partition(":")
    return file, int(number)


def _bit_order(key: str) -> tuple[str, int]:
    name, _, number = key.rpartition("[")
    return name, int(number.rstrip("]"))


def _block(file: str) -> str:
    return file.removeprefix("rtl/").removesuffix(".py")


# The page.

HEAD = """\
# Coverage

What the runs of `make coverage` have executed, moved and seen: {rounds} random rounds and the rounds of
[verif/directed](../verif/directed/__init__.py) on each of {configs}, every message checked
against the golden model. Made by `python -m kvnode.verif.coverage`; what is counted stands in
[its package](../verif/coverage/__init__.py), the nodes in [measure.py](../verif/coverage/measure.py), what may be left
out and why in [exclusions.yaml](../verif/coverage/exclusions.yaml).

| | covered | of | left out | target |
|---|---:|---:|---:|---:|
"""


def page(coverage: Coverage, configs: Iterable[str], rounds: int) -> str:
    """The text of docs/coverage.md."""
    text = HEAD.format(configs=", ".join(f"`{name}`" for name in configs), rounds=rounds)
    names = {"lines": "lines in branches", "toggles": "bits that rise and fall", "items": "functional items"}
    for kind, title in names.items():
        share = coverage.total(kind)
        of = share.hit + len(share.holes)
        text += f"| {title} | {share.percent:.2f} % | {of} | {share.excluded} | {TARGETS[kind]:.0f} % |\n"
    text += "\n## Blocks\n\n| block | lines | of | bits | of | left out |\n|---|---:|---:|---:|---:|---:|\n"
    lines, toggles = coverage.blocks["lines"], coverage.blocks["toggles"]
    for block in sorted(set(lines) | set(toggles)):
        line, bits = lines.get(block, Share()), toggles.get(block, Share())
        cells = [
            f"{share.percent:.2f} % | {share.hit + len(share.holes)}" if share.hit or share.holes else "| "
            for share in (line, bits)
        ]
        text += f"| {block} | {' | '.join(cells)} | {line.excluded + bits.excluded} |\n"
    text += "\n## Functional items\n\n| group | hit | of | left out |\n|---|---:|---:|---:|\n"
    for group, share in coverage.blocks["items"].items():
        text += f"| {group} | {share.hit} | {share.hit + len(share.holes)} | {share.excluded} |\n"
    text += "\n## Holes\n\n" + ("".join(_holes(coverage)) or "None.\n")
    text += "\n## Left out\n\n| what | points | reason |\n|---|---:|---|\n"
    reasons: dict[tuple[Kind, str], Counter[str]] = defaultdict(Counter)
    for exclusion in coverage.exclusions:
        reasons[exclusion.kind, exclusion.reason]["points"] += exclusion.used
    for (kind, reason), used in reasons.items():
        text += f"| {kind} | {used['points']} | {reason} |\n"
    return text


def _holes(coverage: Coverage) -> Iterator[str]:
    for kind in ("lines", "items"):
        for hole in coverage.total(kind).holes:
            yield f"- {kind[:-1]} `{hole}`\n"
    bits: dict[str, list[int]] = defaultdict(list)
    for hole in coverage.total("toggles").holes:
        name, number = _bit_order(hole)
        bits[name].append(number)
    for name, numbers in bits.items():
        yield f"- bits `{name}` {_ranges(numbers)}\n"


def _ranges(numbers: list[int]) -> str:
    """`0-3, 7`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
