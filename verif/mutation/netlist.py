"""The node's netlist, the mutants of it, and one Verilog text with all of them in it.

yosys reads what Amaranth elaborated, and folds what cannot matter (constants, what nobody reads, also across the
borders of modules), so that few mutants change nothing. Then it lists mutations module by module. All are put in at
once; the input `mutsel` of the top module chooses the one that is alive, none of them if it is 0.

Used by: campaign, equivalence, verif.mutation.test_mutation.
"""

import dataclasses
import functools
import hashlib
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvnode.models.spec.config import NodeConfig

from .blocks import block_of, quotas

__all__ = ["Mutant", "Netlist", "NetlistError", "mutants_of", "netlist_of"]

SELECT, SELECT_BITS = "mutsel", 16
#: A line of a list names more mutations than are kept: those of clocks are left out (a clock is no logic of the
#: node's, and a netlist with another clock is another design).
CLOCKS = frozenset({"CLK", "clk", "WR_CLK", "RD_CLK"})
SPARE = 2

PREPARE = """\
read_rtlil source.il
read_verilog -lib ram.v
hierarchy -top {top}
proc -norom
memory_collect
opt -nodffe -nosdff
opt_hier
opt -nodffe -nosdff
wreduce
opt_hier
opt -nodffe -nosdff
opt_hier
opt -nodffe -nosdff
write_rtlil prepared.il
"""


class NetlistError(RuntimeError):
    """yosys refused something; the message is the end of its log."""


@dataclass(frozen=True)
class Mutant:
    """One mutation as `mutate` takes it. `number`: its value of `mutsel`, from 1. `lines`: where in the sources."""

    number: int
    mode: str
    module: str
    cell: str
    port: str
    bit: int
    control_bit: int
    wire: str
    lines: tuple[str, ...]

    @property
    def block(self) -> str:
        return block_of(self.module)

    @property
    def name(self) -> str:
        """What it is, without its number: it stays the same in another sample of the same netlist."""
        control = f"^{self.control_bit}" if self.control_bit >= 0 else ""
        return f"{self.module.removeprefix('kvnode_node.')} {self.cell}.{self.port}[{self.bit}{control}] {self.mode}"

    def command(self, select: bool = True, module: str = "") -> str:
        """The yosys command that puts it in (into another module of that name), alive when it is selected, or
        always."""
        parts = ["mutate", "-mode", self.mode, "-module", module or self.module, "-cell", self.cell, "-port", self.port]
        parts += ["-portbit", str(self.bit)]
        if self.control_bit >= 0:
            parts += ["-ctrlbit", str(self.control_bit)]
        if select:
            parts += ["-ctrl", SELECT, str(SELECT_BITS), str(self.number)]
        return " ".join(parts)


@dataclass(frozen=True)
class Netlist:
    """What yosys made of a node, in `folder`. `key` is a hash of it; `cells` the number of cells of each module."""

    folder: Path
    key: str
    cells: dict[str, int]

    @property
    def path(self) -> Path:
        return self.folder / "prepared.il"

    def verilog(self, mutants: Sequence[Mutant]) -> str:
        """Verilog of the node with all these mutants in it."""
        from kvnode.rtl.memory import RAM_VERILOG

        commands = (mutant.command() for mutant in mutants)
        yosys(self.folder, ["read_rtlil prepared.il", *commands, "write_verilog -noattr mutated.v"])
        return RAM_VERILOG + (self.folder / "mutated.v").read_text()


def yosys(folder: Path, commands: Iterable[str], timeout_s: float = 600) -> str:
    """Run yosys commands in a folder; what it wrote to its log. Raises NetlistError, and TimeoutExpired."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        script, log = Path(name) / "script.ys", Path(name) / "log.txt"
        script.write_text("\n".join(commands) + "\n")
        command = [sys.executable, "-m", "kvnode.verif.formal.yosys", "-ql", str(log), str(script)]
        done = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=timeout_s)
        text = log.read_text(errors="replace") if log.exists() else ""
    if done.returncode:
        raise NetlistError("\n".join([*text.splitlines()[-20:], done.stdout.strip(), done.stderr.strip()]))
    return text


def netlist_of(config: NodeConfig, root: Path) -> Netlist:
    """The netlist of a node, made in a folder below `root` named by its key, once."""
    from kvnode.rtl.elaborate import TOP
    from kvnode.rtl.memory import RAM_VERILOG

    text = _rtlil(config)
    script = PREPARE.format(top=TOP)
    key = hashlib.sha256("\0".join([text, RAM_VERILOG, script]).encode()).hexdigest()[:16]
    folder = root.resolve() / key
    if not (folder / "prepared.il").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "source.il").write_text(text)
        (folder / "ram.v").write_text(RAM_VERILOG)
        yosys(folder, script.splitlines())
    return Netlist(folder, key, _cells((folder / "prepared.il").read_text()))


def mutants_of(netlist: Netlist, count: int, seed: int) -> list[Mutant]:
    """At least `count` mutants over all blocks, the same ones for the same netlist and seed."""
    path = netlist.folder / f"mutants-{count}-{seed}.json"
    if not path.exists():
        wanted = quotas(netlist.cells, count)
        lists = {module: f"list-{number}" for number, module in enumerate(wanted)}
        commands = ["read_rtlil prepared.il"] + [
            f"mutate -list {SPARE * wanted[module] + 8} -seed {seed} -module {module} -o {name}"
            for module, name in lists.items()
        ]
        yosys(netlist.folder, commands)
        rows: list[dict[str, object]] = []
        draw = random.Random(seed)
        for module, name in lists.items():
            found = [_parse(line) for line in (netlist.folder / name).read_text().splitlines()]
            (netlist.folder / name).unlink()
            found = [row for row in found if row["port"] not in CLOCKS]
            for place in sorted(draw.sample(range(len(found)), min(wanted[module], len(found)))):
                rows.append({"number": len(rows) + 1} | found[place])
        path.write_text(json.dumps(rows, indent=1) + "\n")
    return [Mutant(**{**row, "lines": tuple(row["lines"])}) for row in json.loads(path.read_text())]


def as_dict(mutant: Mutant) -> dict[str, object]:
    return dataclasses.asdict(mutant) | {"block": mutant.block, "name": mutant.name}


@functools.cache
def _rtlil(config: NodeConfig) -> str:
    """What Amaranth elaborated, the sources named without the folders in which they lie here."""
    import amaranth
    from amaranth.back import rtlil

    from kvnode.rtl import elaborate

    text = rtlil.convert(elaborate.Top(config), name=elaborate.TOP, emit_src=True)
    # The library first: its environment can lie inside of the checkout.
    for module in (amaranth, elaborate):
        text = re.sub(rf"(?<=[\"|]){re.escape(str(Path(str(module.__file__)).parents[1]))}/", "", text)
    return text


def _cells(text: str) -> dict[str, int]:
    cells: dict[str, int] = {}
    module = ""
    for line in text.splitlines():
        if line.startswith("module "):
            module = line.split()[1].removeprefix("\\")
            cells[module] = 0
        elif line.startswith("  cell "):
            cells[module] += 1
    return {name: count for name, count in cells.items() if count and name != "kvnode_ram" and "." in name}


def _parse(line: str) -> dict[str, object]:
    words = shlex.split(line, posix=False)
    options: dict[str, list[str]] = {}
    for name, value in zip(words, words[1:]):
        if name.startswith("-"):
            options.setdefault(name, []).append(value)

    def one(name: str, default: str = "") -> str:
        return options.get(name, [default])[0]

    return {
        "mode": one("-mode"), "module": one("-module"), "cell": one("-cell"), "port": one("-port"),
        "bit": int(one("-portbit", "-1")), "control_bit": int(one("-ctrlbit", "-1")), "wire": one("-wire"),
        "lines": sorted({part for value in options.get("-src", []) for part in value.split("|")}),
    }  # fmt: skip
