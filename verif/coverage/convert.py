"""Verilog that remembers: which Amaranth lines a branch has, and where every named signal was declared.

Amaranth's own back end drops the source lines of assignments. Here every branch of a process keeps the lines of the
assignments in it, and that of its condition, as the attribute `src`, which yosys writes into the Verilog in front of
the branch.

Used by: verif.coverage.measure.
"""

import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from amaranth.back import rtlil
from amaranth.back.verilog import _convert_rtlil_text
from amaranth.hdl import _ast, _ir, _nir

from kvnode.models.spec.config import NodeConfig
from kvnode.rtl.elaborate import TOP, Top, flat_ports, input_names
from kvnode.rtl.memory import RAM_VERILOG

from .tied import tied_nets

__all__ = ["Bit", "Design", "SEPARATOR", "convert", "source_of"]

#: Between the lines of one branch.
SEPARATOR = "|"
#: Of a queue in Amaranth's library: there is room, there is something.
QUEUE = ("w_rdy", "r_rdy")
#: Selectors of branches that Amaranth adds: their line is that of the register's declaration.
RESET = ("\\rst", "\\rst [0]")
OFF, ON = "/*verilator coverage_off*/", "/*verilator coverage_on*/"
#: The RAM is not ours to cover: what goes in and comes out is seen at the ports of `rtl.memory.Ram`.
RAM_OFF = f"{OFF}\n{RAM_VERILOG}{ON}\n"
MODULE = re.compile(r"module \\?(\S+?) ?\(")
WIRE = re.compile(r" +(?:(?:input|output|wire|reg|signed) +)+(?:\[[^]]*\] +)?\\?(\S+?) *(?:=.*)?;")


class Bit(NamedTuple):
    """Where one bit is seen and what it is called. `module`, `wire` and `place`: its place in the Verilog. `path`: the
    modules above it, numbers taken out, so that all ports are one; `name` with its field; `number` in that field;
    `source`: `file:line` of its declaration, below the checkout; None for a handshake of a library's queue.
    """

    module: str
    wire: str
    place: int
    path: str
    name: str
    number: int
    source: str | None


class Design(NamedTuple):
    """Verilog of a node, its bits to be watched, and how many more are tied to a constant or not ours."""

    text: str
    bits: list[Bit]
    tied: int
    library: int


def convert(config: NodeConfig) -> Design:
    """Verilog of the node, as `kvnode.rtl.elaborate` has it but with sources; Verilator counts only the bits watched.

    Every bit that something drives is watched once, under the name that it has where it is driven.
    """
    top = Top(config)
    inputs = input_names(config)
    ports = {
        name: (getattr(top, name), _ir.PortDirection.Input if name in inputs else _ir.PortDirection.Output)
        for name in flat_ports(config)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        netlist = _ir.build_netlist(_ir.Fragment.get(top, None), ports=ports, name=TOP)
    builder, checker, names = rtlil.Design(), rtlil.EmptyModuleChecker(netlist), _ast.SignalDict()
    for index, module in enumerate(netlist.modules):
        if not checker.is_empty(index):
            made = builder.module(".".join(module.name), src_loc=module.src_loc)
            if index == 0:
                made.attribute("top", 1)
            _Emitter(made, netlist, module, names, empty_checker=checker).emit()
    bits, tied, library = _bits(netlist)
    watched = {(bit.module, bit.wire) for bit in bits}
    return Design(RAM_OFF + "\n".join(_watch(_convert_rtlil_text(str(builder)), watched)), bits, tied, library)


def source_of(place: Any) -> str | None:
    """`file:line` below the checkout of a place that Amaranth remembers, None for its own library."""
    if place is None:
        return None
    path, line = place
    _, found, below = str(path).replace("\\", "/").rpartition("/rtl/")
    return f"rtl/{below}:{line}" if found and "amaranth" not in str(path) else None


def _bits(netlist: _nir.Netlist) -> tuple[list[Bit], int, int]:
    """(bits to be watched, bits tied to a constant, bits of Amaranth's library)."""
    bits: list[Bit] = []
    seen: set[_nir.Net] = set()
    constant = tied_nets(netlist)
    tied: set[_nir.Net] = set()
    library = 0
    for at_home in (True, False):
        for index, module in enumerate(netlist.modules):
            path = re.sub(r"\d+", "", ".".join(module.name[2:]))
            for signal, name in module.signal_names.items():
                if name.startswith("$"):
                    continue
                source = source_of(signal.src_loc) or source_of(module.src_loc)
                for parts, value in _leaves(netlist.signal_fields[signal]):
                    for number, net in enumerate(value):
                        if net.is_const or net in constant:
                            tied.add(net)
                        elif net not in seen and (not at_home or net.is_cell and net.cell and
                                                  netlist.cells[net.cell].module_idx == index):  # fmt: skip
                            seen.add(net)
                            ours = source is not None and signal.name not in ("clk", "rst")
                            if not ours and signal.name not in QUEUE:
                                library += 1
                            else:
                                bits.append(Bit(".".join(module.name), name + parts, number, path,
                                                signal.name + parts, number, source))  # fmt: skip
    return bits, len(tied), library


def _leaves(fields: Any) -> Iterator[tuple[str, _nir.Value]]:
    inner = {path[:-1] for path in fields if path}
    for path, field in fields.items():
        if path not in inner:
            yield "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path), field.value


def _watch(text: str, watched: set[tuple[str, str]]) -> Iterator[str]:
    """The lines of a Verilog text, with counting switched off for the wires that are not watched."""
    module = ""
    for line in text.split("\n"):
        if found := MODULE.match(line):
            module = found[1]
        wire = WIRE.match(line)
        yield line if not wire or (module, wire[1]) in watched else f"{OFF} {line} {ON}"


class _Emitter(rtlil.ModuleEmitter):
    def emit_assignment_list(self, cell_idx: int, cell: _nir.AssignmentList) -> None:
        plain: Any = self.__dict__["builder"]
        self.__dict__["builder"] = _Recorder(plain, self.netlist, cell)
        super().emit_assignment_list(cell_idx, cell)
        self.__dict__["builder"] = plain


class _Recorder:
    """A module's builder whose next process keeps the sources of its assignments."""

    def __init__(self, module: Any, netlist: _nir.Netlist, cell: _nir.AssignmentList):
        self._module, self._netlist, self._cell = module, netlist, cell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def process(self, **arguments: Any) -> "_Branch":
        process = self._module.process(**arguments)
        # The first assignment of a process is the default, which belongs to no branch.
        branch = _Branch((), iter([(), *map(self._sources, self._cell.assignments)]))
        process.contents = branch.contents
        return branch

    def _sources(self, assignment: _nir.Assignment) -> tuple[Any, ...]:
        """Where an assignment stands, and the condition right above it; that of a last, else branch is not known."""
        if not assignment.cond.is_cell:
            return (assignment.src_loc,)
        chosen = self._netlist.cells[assignment.cond.cell]
        if not isinstance(chosen, _nir.PriorityMatch):
            return (assignment.src_loc,)
        condition = chosen.inputs[assignment.cond.bit]
        if not condition.is_cell:
            return (assignment.src_loc,)
        return assignment.src_loc, self._netlist.cells[condition.cell].src_loc


class _Switch(rtlil.Switch):
    """A constant bit beside the selector: else yosys would write `if` and `else`, without any attributes."""

    def __init__(self, sel: str, sources: Iterator[Any]):
        super().__init__(f"{{ {sel} 1'0 }}")
        self._sources, self._is_reset = sources, sel in RESET

    def case(self, patterns: Any) -> "_Branch":
        branch = _Branch([f"{pattern}0" for pattern in patterns], self._sources, self._is_reset)
        if patterns:
            self.cases.append(branch)
        return branch

    def default(self) -> "_Branch":
        branch = _Branch((), self._sources)
        self.cases.append(branch)
        return branch


class _Branch(rtlil.Case):
    def __init__(self, patterns: Any, sources: Iterator[Any], is_reset: bool = False):
        super().__init__(patterns)
        self._sources, self._is_reset = sources, is_reset
        self._lines: list[str] = []

    def assign(self, lhs: str, rhs: str) -> None:
        for source in next(self._sources):
            line = source_of(source)
            if line is not None and line not in self._lines and not self._is_reset:
                self._lines.append(line)
        super().assign(lhs, rhs)

    def switch(self, sel: str) -> _Switch:
        switch = _Switch(sel, self._sources)
        self.contents.append(switch)
        return switch

    def emit(self, line: Any) -> None:
        if self._lines:
            line(f'attribute \\src "{SEPARATOR.join(self._lines)}"')
        super().emit(line)
