"""What Verilator counted, read from its data file and told in terms of the Amaranth sources.

Used by: verif.coverage.measure.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .convert import SEPARATOR, Bit, Design

__all__ = ["Counts", "Point", "read_counts", "read_points"]

SOURCES = re.compile(r' */\* src = "([^"]*)" \*/')
#: In Verilator's names, a character that C++ has not: its number in hexadecimal.
ESCAPE = re.compile(r"__0([0-9A-Fa-f]{2})")
TOGGLE = re.compile(r"(.+?)(?:\[(\d+)\])?:(0->1|1->0)")


@dataclass(frozen=True)
class Point:
    """A line of Verilator's data file: `kind` is line, branch or toggle; `name` what Verilator says about it."""

    kind: str
    module: str
    line: int
    name: str
    count: int


@dataclass
class Counts:
    """Counts that can be added: of Amaranth lines, of rises and falls of bits, of functional items.

    `lines`: by `file:line`. `rises`, `falls`: by `path:name[number]`, and `sources` says where each was declared.
    `queues`: falls of the ready of a queue and of its valid, by `path:name`; `items`: functional coverage, by name.
    """

    lines: Counter[str] = field(default_factory=Counter)
    rises: Counter[str] = field(default_factory=Counter)
    falls: Counter[str] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)
    items: Counter[str] = field(default_factory=Counter)
    sources: dict[str, str] = field(default_factory=dict)

    def add(self, other: "Counts") -> None:
        """Count what `other` has counted too; what nobody has hit stays in, with 0."""
        for name in ("lines", "rises", "falls", "queues", "items"):
            mine, theirs = getattr(self, name), getattr(other, name)
            for key, count in theirs.items():
                mine[key] += count
        self.sources |= other.sources

    def to_dict(self) -> dict[str, Any]:
        """For JSON; in order of names."""
        return {name: dict(sorted(getattr(self, name).items())) for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Counts":
        counts = cls(sources=dict(data["sources"]))
        for name in ("lines", "rises", "falls", "queues", "items"):
            getattr(counts, name).update(data[name])
        return counts


def read_points(path: Path) -> Iterator[Point]:
    """The points of a data file of Verilator; names beginning with `$` and its own are left out."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            if not text.startswith("C '"):
                continue
            fields, _, count = text[3:].rpartition("' ")
            found = dict(part.split("\x02", 1) for part in fields.split("\x01") if "\x02" in part)
            name = _plain(found.get("o", ""))
            if not name.startswith(("$", "\\$")):
                module = _plain(found["page"].split("/", 1)[1])
                yield Point(found["t"], module, int(found["l"]), name, int(count))


def read_counts(path: Path, design: Design) -> Counts:
    """The counts of a data file of Verilator for a design of `convert`. What was not executed is there, with 0."""
    counts, branches = Counts(), _branches(design.text)
    where: dict[tuple[str, str, int], Bit] = {(bit.module, bit.wire, bit.place): bit for bit in design.bits}
    for point in read_points(path):
        if point.kind != "toggle":
            for source in branches.get(point.line, ()):
                counts.lines[source] += point.count
        elif found := TOGGLE.fullmatch(point.name):
            bit = where.get((point.module, found[1], int(found[2] or 0)))
            if bit is None:
                continue
            name = f"{bit.path}:{bit.name}"
            if bit.source is None:
                counts.queues[name] += point.count if found[3] == "1->0" else 0
                continue
            key = f"{name}[{bit.number}]"
            counts.sources[key] = bit.source
            (counts.rises if found[3] == "0->1" else counts.falls)[key] += point.count
    return counts


def _plain(name: str) -> str:
    return ESCAPE.sub(lambda found: chr(int(found[1], 16)), name)


def _branches(text: str) -> dict[int, list[str]]:
    """By Verilog line on which a branch begins: the Amaranth lines in it."""
    branches: dict[int, list[str]] = {}
    for number, line in enumerate(text.split("\n"), 2):
        if found := SOURCES.match(line):
            branches[number] = found[1].split(SEPARATOR)
    return branches
