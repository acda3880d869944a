"""docs/mutation.md and build/mutate.json: what became of the mutants, by block, and why those that are left live.

Used by: verif.mutation.__main__, verif.mutation.test_mutation.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .campaign import Verdict
from .netlist import Mutant

__all__ = ["Reason", "fate", "load_reasons", "markdown", "score", "summary"]

SURVIVORS = Path(__file__).parent / "survivors.yaml"
#: What a reason can say: nobody can see the change in any configuration; or in this one; or not before more has
#: happened than can be simulated; or the tests should see it.
KINDS = ("unobservable", "configuration", "reach", "gap")


@dataclass(frozen=True)
class Reason:
    """Why a mutant lives, read out of the RTL. `kind`: one of KINDS."""

    mutant: str
    block: str
    line: str
    kind: str
    why: str

    @property
    def excuses(self) -> bool:
        return self.kind != "gap"


def load_reasons(path: Path = SURVIVORS) -> dict[str, Reason]:
    """By the name of the mutant. Raises ValueError for an entry that is incomplete, twice there, or of no kind."""
    reasons: dict[str, Reason] = {}
    for row in yaml.safe_load(path.read_text(encoding="utf-8")) or []:
        if set(row) != {"mutant", "block", "line", "kind", "why"} or row["kind"] not in KINDS:
            raise ValueError(f"{path.name}: {row}: needs mutant, block, line, why and a kind: {', '.join(KINDS)}")
        if row["mutant"] in reasons:
            raise ValueError(f"{path.name}: {row['mutant']} is there twice")
        reasons[row["mutant"]] = Reason(**row)
    return reasons


def fate(mutant: Mutant, verdict: Verdict, reasons: Mapping[str, Reason]) -> str:
    """killed, equal, excused or left."""
    if verdict.killed:
        return "killed"
    if verdict.equal:
        return "equal"
    return "excused" if mutant.name in reasons and reasons[mutant.name].excuses else "left"


def score(counts: Mapping[str, int]) -> float:
    """Share of the mutants that change something which are killed."""
    live = counts.get("killed", 0) + counts.get("left", 0)
    return counts.get("killed", 0) / live if live else 1.0


def _fates(
    mutants: Sequence[Mutant], verdicts: Mapping[int, Verdict], reasons: Mapping[str, Reason]
) -> tuple[dict[int, str], dict[str, Counter[str]]]:
    """The fate of each mutant that has been tried, and how many of each block came to which."""
    fates: dict[int, str] = {}
    blocks: dict[str, Counter[str]] = {}
    for mutant in mutants:
        if mutant.number in verdicts:
            fates[mutant.number] = what = fate(mutant, verdicts[mutant.number], reasons)
            blocks.setdefault(mutant.block, Counter())[what] += 1
    return fates, blocks


def summary(
    mutants: Sequence[Mutant], verdicts: Mapping[int, Verdict], reasons: Mapping[str, Reason]
) -> dict[str, Any]:
    """The same for programs: of all and of each block the mutants, those killed, those that are proved to change
    nothing (`equivalent`), those that live (`survived`: with a reason that excuses them, `excused`, or without,
    `left`), and the score."""

    def row(counts: Counter[str]) -> dict[str, Any]:
        return {
            "mutants": sum(counts.values()),
            "killed": counts["killed"],
            "survived": counts["excused"] + counts["left"],
            "equivalent": counts["equal"],
            "excused": counts["excused"],
            "left": counts["left"],
            "score": round(score(counts), 4),
        }

    _, blocks = _fates(mutants, verdicts, reasons)
    return row(sum(blocks.values(), Counter())) | {"blocks": {name: row(of) for name, of in sorted(blocks.items())}}


def markdown(
    mutants: Sequence[Mutant], verdicts: Mapping[int, Verdict], reasons: Mapping[str, Reason], command: str, source: str
) -> str:
    """The page. It is the same for the same arguments."""
    tried = [mutant for mutant in mutants if mutant.number in verdicts]
    fates, blocks = _fates(mutants, verdicts, reasons)
    total = sum(blocks.values(), Counter[str]())
    unproved = total["killed"] / max(1, len(tried) - total["equal"])
    lines = [
        "# Mutants",
        "",
        "A mutant is the node with one small fault in its netlist: a bit of a cell's port that is inverted, stuck, or",
        "inverted when another bit says so. It is killed when the checked traffic shows any difference: an operation",
        "that the golden model would not have made, a wrong answer or byte, a register that says something else, an",
        "answer that does not come or comes in another cycle than it must. *Equal* were proved to change nothing.",
        "*Excused* live, and the RTL says why: nobody can see what they change, in any configuration or in this one or",
        "not before more has happened than can be simulated; the reasons are below. The score is the share of killed",
        "ones among the killed and the left.",
        "",
        f"Made by `{command}` from {source}.",
        "",
        f"**{len(tried)} mutants, {total['killed']} killed, {total['equal']} equal, {total['excused']} excused, "
        f"{total['left']} left: {score(total):.1%}**, or {unproved:.1%} when only a proof excuses.",
        "",
        "| block | mutants | killed | equal | excused | left | score |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {block} | {sum(counts.values())} | {counts['killed']} | {counts['equal']} | {counts['excused']} | "
        f"{counts['left']} | {score(counts):.1%} |"
        for block, counts in sorted(blocks.items())
    ]
    lines += ["", "## What kills", "", "| trial | kills |", "|---|---|"]
    kills = Counter(verdicts[mutant.number].killed_by for mutant in tried if fates[mutant.number] == "killed")
    lines += [f"| {name} | {count} |" for name, count in sorted(kills.items(), key=lambda pair: (-pair[1], pair[0]))]
    for what, heading in (("left", "Left"), ("excused", "Excused")):
        rows = [mutant for mutant in tried if fates[mutant.number] == what]
        if rows:
            lines += ["", f"## {heading}", "", "| block | mutant | line | why it lives |", "|---|---|---|---|"]
        for mutant in sorted(rows, key=lambda row: (row.block, row.name)):
            reason = reasons.get(mutant.name)
            why = f"{reason.kind}: {reason.why}".replace("|", "or") if reason else "not looked at yet"
            line = ", ".join(mutant.lines) or "?"
            lines.append(f"| {mutant.block} | `{mutant.name}` | {line} | {why} |")
    return "\n".join(lines) + "\n"
