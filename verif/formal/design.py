"""The elaborated RTL with everything in it within reach of a property.

Amaranth keeps the inside of a component to itself. A proof by induction speaks of it: of the rows of a table, of what
stands in a stage. So a component is elaborated here into its tree of fragments, every memory becomes an array of
registers (which also gives rows that a property can name), and all signals are indexed by their path. The logic itself
is not touched.

Used by: every proof, verif.coverage.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from amaranth.asserts import AnySeq
from amaranth.hdl import Fragment, Instance, Module, Signal, Value
from amaranth.hdl._ast import Assign
from amaranth.hdl._mem import MemoryInstance
from amaranth.hdl._xfrm import StatementTransformer, ValueTransformer
from amaranth.lib.wiring import Out

#: Marks registers whose first value is anything: memories and their output registers (see tools.CLEAR_INITS).
FREE = "kvnode_free"


@dataclass
class Part:
    """A fragment of the design: its path, the component it came from (None: a helper of Amaranth's), its signals."""

    path: str
    component: Any
    registers: dict[str, Signal] = field(default_factory=dict)
    wires: dict[str, Signal] = field(default_factory=dict)
    rows: list[Signal] = field(default_factory=list)


class _Substitute(ValueTransformer, StatementTransformer):
    def __init__(self, others: Mapping[int, Signal]):
        self._others = others

    def on_Signal(self, value):
        return self._others.get(id(value), value)

    def on_Assign(self, stmt):
        return Assign(stmt.lhs, self.on_value(stmt.rhs))


class Design:
    """A component, elaborated: put `fragment` into a module, and name its signals.

    `design["directory.s8_head"]` is a register or a wire; `rows("directory.blocks.states")` are the words of a memory,
    in order. Raises KeyError naming what there is near by.

    The parts at the paths `cut` are left out: what they drive comes from `free`, which makes an input of a name and a
    width; `cut_inputs` has what they are driven with, `cut_outputs` what they drive. With `clash` a read of
    rtl.memory's `Ram` gets anything at all if its address is written in the same cycle; without, the old word.
    """

    def __init__(
        self,
        component,
        cut: tuple[str, ...] = (),
        free: Callable[[str, int], Signal] | None = None,
        *,
        clash: bool = False,
    ):
        self.fragment = Fragment.get(component, None)
        self.parts: dict[str, Part] = {}
        self.cut_inputs: dict[str, dict[str, Value]] = {}
        self.cut_outputs: dict[str, dict[str, Value]] = {}
        self._cut, self._clash = cut, clash
        self._free = free or (lambda name, width: Signal(width, name=name))
        self._walk(self.fragment, "")

    def __getitem__(self, path: str) -> Signal:
        place, _, name = path.rpartition(".")
        part = self.parts.get(place)
        if part is None:
            raise KeyError(f"there is no part {place!r} in the design")
        found = part.registers.get(name, part.wires.get(name))
        if found is None:
            raise KeyError(f"{place!r} has no signal {name!r}; it has {', '.join(sorted(part.registers | part.wires))}")
        return found

    def rows(self, path: str) -> list[Signal]:
        """The words of the memory at `path`."""
        for place in (path, f"{path}.ram"):
            if place in self.parts and self.parts[place].rows:
                return self.parts[place].rows
        there = ", ".join(p for p, q in self.parts.items() if q.rows)
        raise KeyError(f"there is no memory {path!r}; there are {there}")

    def registers(self) -> Iterator[tuple[Part, str, Signal]]:
        """Every register of the design, the words of memories among them (`row_0`, `row_1`, ...)."""
        for part in self.parts.values():
            for name, signal in part.registers.items():
                yield part, name, signal

    def read_instead(self, others: Mapping[int, Signal]) -> None:
        """From now on the logic reads `others[id(signal)]` where it read `signal`; what is written stays."""
        substitute = _Substitute(others)

        def walk(fragment: Fragment) -> None:
            for domain, statements in fragment.statements.items():
                fragment.statements[domain] = substitute.on_statements(statements)
            for child, _, _ in fragment.subfragments:
                walk(child)

        walk(self.fragment)

    def _anything(self, fragment: Fragment, path: str) -> Module:
        m = Module()
        component = next(o for o in fragment.origins or () if hasattr(o, "signature"))
        inputs = self.cut_inputs[path] = {}
        outputs = self.cut_outputs[path] = {}
        for steps, member, value in component.signature.flatten(component):
            name, value = "_".join(str(step) for step in steps), Value.cast(value)
            (outputs if member.flow == Out else inputs)[name] = value
            if member.flow == Out:
                m.d.comb += value.eq(self._free(f"{path}.{name}".replace(".", "_"), len(value)))
        return m

    def _walk(self, fragment: Fragment, path: str) -> None:
        component = next((o for o in fragment.origins or () if hasattr(o, "OWNERSHIP")), None)
        part = self.parts[path] = Part(path, component)
        for index, (child, name, source) in enumerate(fragment.subfragments):
            inner = f"{path}.{name}" if path else str(name)
            registers: tuple[Module, list[Signal]] | None = None
            if inner in self._cut:
                registers = self._anything(child, inner), []
            elif isinstance(child, MemoryInstance):
                registers = _memory(child)
            elif isinstance(child, Instance):
                if child.type != "kvnode_ram":
                    raise ValueError(f"{inner} is an instance of {child.type}, of which nothing is known")
                registers = _ram(child, self._clash)
            if registers is None:
                self._walk(child, inner)
                continue
            module, rows = registers
            replaced = Fragment.get(module, None)
            fragment.subfragments[index] = (replaced, name, source)
            self._walk(replaced, inner)
            self.parts[inner].rows = rows
        for domain, statements in fragment.statements.items():
            names = part.wires if domain == "comb" else part.registers
            for statement in statements:
                for signal in statement._lhs_signals():
                    name, number = signal.name, 0
                    while names.get(name, signal) is not signal:
                        number += 1
                        name = f"{signal.name}${number}"
                    names[name] = signal


def _rows(width: int, depth: int) -> list[Signal]:
    return [Signal(width, name=f"row_{i}") for i in range(depth)]


def _select(m: Module, rows: list[Signal], address: Value, name: str) -> Signal:
    """The addressed row; of an address that no row has, anything at all."""
    word = Signal(len(rows[0]), name=name)
    with m.Switch(address):
        for i, row in enumerate(rows):
            with m.Case(i):
                m.d.comb += word.eq(row)
        if len(rows) < 1 << len(address):
            with m.Default():
                m.d.comb += word.eq(AnySeq(len(word)))
    return word


def _ram(instance: Instance, clash: bool) -> tuple[Module, list[Signal]]:
    """rtl.memory's Verilog as registers."""
    ports = {name: value for name, (value, _) in instance.ports.items()}
    m = Module()
    rows = _rows(instance.parameters["WIDTH"], instance.parameters["DEPTH"])
    read = ports["read_data"]
    for signal in [*rows, read]:
        signal.attrs[FREE] = 1
    for i, row in enumerate(rows):
        with m.If(ports["write_enable"] & (ports["write_address"] == i)):
            m.d.sync += row.eq(ports["write_data"])
    m.d.sync += read.eq(_select(m, rows, ports["read_address"], "addressed"))
    if clash:
        with m.If(ports["write_enable"] & (ports["write_address"] == ports["read_address"])):
            m.d.sync += read.eq(AnySeq(len(read)))
    return m, rows


def _memory(memory: MemoryInstance) -> tuple[Module, list[Signal]]:
    """Amaranth's memory as registers, with the initial contents that it is given."""
    m = Module()
    data = memory._data
    width = Value.cast(memory._read_ports[0]._data).shape().width
    rows = [Signal(width, name=f"row_{i}", init=int(data.init[i]) if isinstance(data.init[i], int) else 0)
            for i in range(data.depth)]  # fmt: skip
    for port in memory._write_ports:
        if len(port._en) != 1:
            raise ValueError("a memory with partial writes: nothing in the node has one")
        for i, row in enumerate(rows):
            with m.If(port._en & (port._addr == i)):
                m.d[port._domain] += row.eq(port._data)
    for number, port in enumerate(memory._read_ports):
        word = _select(m, rows, port._addr, f"addressed_{number}")
        if port._domain == "comb":
            m.d.comb += port._data.eq(word)
            continue
        for index in port._transparent_for:
            write = memory._write_ports[index]
            with m.If(write._en & (write._addr == port._addr)):
                m.d.comb += word.eq(write._data)
        with m.If(port._en):
            m.d[port._domain] += port._data.eq(word)
    return m, rows


