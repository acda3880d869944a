"""`python -m kvnode.verif.formal.run`: proves, shows, and writes the table; one task in a process of its own.

    --fast       only what CI runs
    --only NAME  properties whose name begins so
    --again      also what has been settled before with the same RTL
    --task NAME KIND NUMBER   one task here (used by the others): prints a line of JSON

A settled task is kept in build/cache/formal under the hash of its netlist and method, so a run that was stopped goes
on. `KVNODE_FORMAL_VERBOSE=1` with --task shows how far an induction has come.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..toolchain import cache_dir
from . import tools
from .faults import seed
from .suite import Method, Property, properties

OUT = Path(__file__).resolve().parents[2] / "build" / "formal.json"


@dataclass(frozen=True)
class Task:
    """The proof of a property, its covers, or one of its faults."""

    name: str
    kind: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.name} {self.kind}{f' {self.number}' if self.kind == 'fault' else ''}"


def tasks(of: Property) -> list[Task]:
    """All that has to be run for a property."""
    covers = [Task(of.name, "cover")] if of.cover_depth else []
    return [Task(of.name, "proof"), *covers, *(Task(of.name, "fault", i) for i in range(len(of.faults)))]


def folder_of(task: Task) -> Path:
    return cache_dir() / "formal" / f"{task.name.replace('/', '_')}.{task.kind}{task.number}"


def settle(task: Task) -> dict[str, Any]:
    """Runs a task in this process, unless the same was settled before: a dictionary for the table."""
    of = properties()[task.name]
    if task.kind == "fault":
        seed(of.faults[task.number])
    method, depth = of.method, of.depth
    if task.kind == "fault" and of.fault_depth:
        method, depth = Method.BOUNDED, of.fault_depth
    proof = of.proof()
    proof.claims_only = method == Method.BOUNDED
    text = proof.rtlil()
    how = f"{task.kind} {method.value} {depth} {of.cover_depth} {of.engine} {tools.FLATTEN}{tools.TO_SMT2}"
    # Where a line of the RTL stands is not what is proved.
    netlist = re.sub(r"^ *attribute \\src .*\n", "", text, flags=re.MULTILINE)
    digest = hashlib.sha256(f"{how}\n{netlist}".encode()).hexdigest()
    folder = folder_of(task)
    kept = folder / "result.json"
    if kept.exists() and not os.environ.get("KVNODE_FORMAL_AGAIN"):
        before = json.loads(kept.read_text())
        if before["hash"] == digest:
            return before
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "top.il").write_text(text)
    begun = time.monotonic()
    if task.kind == "cover":
        verdict = tools.sby("cover", "smtbmc yices", of.cover_depth, folder, of.timeout)
    elif method == Method.STEP:
        tools.yosys(tools.FLATTEN + tools.TO_SMT2, folder)
        verdict = _induct(folder, task)
    else:
        mode = {Method.INDUCTION: "prove", Method.BOUNDED: "bmc"}[method]
        verdict = tools.sby(mode, of.engine, depth, folder, of.timeout)
    result = {
        "hash": digest,
        "task": str(task),
        "holds": verdict.holds,
        "failed": list(verdict.failed),
        "trace": verdict.trace,
        "checks": len(proof.checks),
        "covers": len(proof.covers),
        "seconds": round(time.monotonic() - begun, 1),
    }
    kept.write_text(json.dumps(result))
    return result


def _induct(folder: Path, task: Task) -> tools.Verdict:
    induction = tools.Induction(folder)
    failed = [] if induction.base() else ["the first state"]
    settled = 0
    for names, wrong, seconds in induction.steps():
        settled += len(names)
        if os.environ.get("KVNODE_FORMAL_VERBOSE"):
            place = f"{settled} of {len(induction.properties)}"
            print(f"{task}: {place}, {', '.join(wrong) or 'all hold'}, {seconds:.1f} s", file=sys.stderr, flush=True)
        failed += wrong
        if wrong and task.kind == "fault":
            break
    return tools.Verdict(not failed, tuple(failed))


def as_wanted(task: Task, result: dict[str, Any]) -> bool:
    """Whether a task ended as it must: proofs and covers hold, faults are found."""
    return result["holds"] != (task.kind == "fault") and "error" not in result


def _in_own_process(task: Task) -> dict[str, Any]:
    command = [sys.executable, "-m", "kvnode.verif.formal.run", "--task", task.name, task.kind, str(task.number)]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    try:
        return json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return {"holds": False, "failed": [], "seconds": 0, "error": (done.stderr or done.stdout).strip()[-300:]}


def prove(chosen: list[Property], workers: int) -> dict[Task, dict[str, Any]]:
    """Runs all tasks of some properties, `workers` at a time, with progress."""
    from rich.console import Console

    console = Console(stderr=True)
    wanted = [task for of in chosen for task in tasks(of)]
    results: dict[Task, dict[str, Any]] = {}
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(_in_own_process, task): task for task in wanted}
        for future in concurrent.futures.as_completed(running):
            task = running[future]
            results[task] = result = future.result()
            good = as_wanted(task, result)
            words = "as it must" if good else "NOT AS IT MUST"
            found = f": {', '.join(result['failed'][:3])}" if result["failed"] else ""
            console.print(f"{len(results)}/{len(wanted)} {task}: {'holds' if result['holds'] else 'fails'}{found}, "
                          f"{words}, {result['seconds']} s", highlight=False)  # fmt: skip
            if "error" in result:
                console.print(result["error"], markup=False, highlight=False)
            elif result.get("trace") and not good:
                console.print(f"  counterexample: {result['trace']}", highlight=False)
    return results


def _faults(of: Property, results: dict[Task, dict[str, Any]]) -> dict[Task, bool]:
    """Of the faults that were run, whether each was found."""
    return {task: as_wanted(task, results[task]) for task in tasks(of) if task.kind == "fault" and task in results}


def table(chosen: list[Property], results: dict[Task, dict[str, Any]]) -> str:
    """The page docs/proofs.md, of the properties whose proof is among the results; what was not run is said."""
    chosen = [of for of in chosen if Task(of.name, "proof") in results]
    lines = [
        "# Proofs",
        "",
        "Made by `make formal`, which runs them on the real RTL. What the columns mean, and what is not shown:",
        "[assurance.md](assurance.md). A fault is a line of the RTL replaced by a wrong one; the proof must fail then.",
        "",
        "| property | claim | method | engine | properties | covers reached | faults found | seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for of in chosen:
        proof = results[Task(of.name, "proof")]
        cover = results.get(Task(of.name, "cover"))
        faults = _faults(of, results)
        method = of.method.value + (f" {of.depth}" if of.method in (Method.INDUCTION, Method.BOUNDED) else "")
        reached = f"{cover['covers']} in {of.cover_depth} cycles" if cover and cover["holds"] else "NO"
        covers = reached if cover else "not run" if of.cover_depth else "-"
        seeded = f"{len(faults)}" + (f" run, {len(of.faults)} in all" if len(faults) < len(of.faults) else "")
        lines.append(
            f"| {of.name} | {of.claim} | {method} | {of.solver} | "
            f"{proof.get('checks', 0) if proof['holds'] else 'FAILS: ' + ', '.join(proof['failed'][:3])} | {covers} | "
            f"{sum(faults.values())} of {seeded} | {proof['seconds']:.0f} |"
        )
    lines += ["", "## Seeded faults", "", "| property | fault | fails first |", "|---|---|---|"]
    for of in chosen:
        for task in _faults(of, results):
            failed = results[task]["failed"]
            lines.append(f"| {of.name} | {of.faults[task.number].what} | {failed[0] if failed else '-'} |")
    return "\n".join(lines) + "\n"


def rows(chosen: list[Property], results: dict[Task, dict[str, Any]]) -> list[dict[str, Any]]:
    """The same for programs, one row for each proof. `vacuous`: a cover was not reached, or, of a property without
    covers, no fault was found (a counterexample keeps all that is assumed). `fault_found`: every one was. Both are
    None when nothing was run that can say it. `seconds` are those of the proof."""
    made = []
    for of in chosen:
        proof = results.get(Task(of.name, "proof"))
        if proof is None:
            continue
        cover = results.get(Task(of.name, "cover"))
        found = _faults(of, results).values()
        row = {
            "property": of.name,
            "method": of.method.value,
            "engine": of.solver,
            "depth": of.depth,
            "result": "error" if "error" in proof else "holds" if proof["holds"] else "fails",
            "seconds": proof["seconds"],
            "vacuous": not cover["holds"] if cover else not any(found) if found else None,
            "fault_found": all(found) if found else None,
        }
        made.append(row)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Command line; the exit code is 0 if every task ended as it must."""
    parser = argparse.ArgumentParser(prog="python -m kvnode.verif.formal.run", description=__doc__.splitlines()[0])
    parser.add_argument("--fast", action="store_true", help="only what CI runs")
    parser.add_argument("--only", default="", help="properties whose name begins so")
    parser.add_argument("--again", action="store_true", help="also what has been settled before")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1)))
    parser.add_argument("--page", type=Path, help="write the table to this file")
    parser.add_argument("--out", type=Path, default=OUT, help="write the rows to this file (default build/formal.json)")
    parser.add_argument("--task", nargs=3, metavar=("NAME", "KIND", "NUMBER"))
    options = parser.parse_args(arguments)
    if options.again:
        os.environ["KVNODE_FORMAL_AGAIN"] = "1"
    if options.task:
        name, kind, number = options.task
        result = settle(Task(name, kind, int(number)))
        print(json.dumps(result), flush=True)
        return 0
    chosen = [p for p in properties().values() if p.name.startswith(options.only) and (p.fast or not options.fast)]
    if not chosen:
        print(f"no property begins with {options.only!r}: there are {', '.join(properties())}", file=sys.stderr)
        return 2
    results = prove(chosen, options.workers)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"rows": rows(chosen, results)}, indent=1) + "\n")
    if options.page:
        options.page.write_text(table(chosen, results))
    wrong = [task for task, result in results.items() if not as_wanted(task, result)]
    print(f"{len(results)} tasks of {len(chosen)} properties, {len(wrong)} not as they must be"
          + "".join(f"\n  {task}" for task in wrong))  # fmt: skip
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
