"""Bits that nothing can move: a netlist's nets that always have one value, whatever its inputs do.

A register that is only ever given its reset value, a field of a struct that nobody sets, what is behind them in queues
and memories. Used by: verif.coverage.convert.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from amaranth.hdl import _nir

__all__ = ["tied_nets"]

#: Lattice of a net: not known yet (None), 0, 1, or MOVES.
MOVES = 2
#: The RAM of rtl.memory, by its module's name; it begins with zeros.
RAM = "kvnode_ram"


def tied_nets(netlist: _nir.Netlist) -> set[_nir.Net]:
    """Every net of the netlist that cannot change."""
    values: dict[_nir.Net, int] = {}
    writers, readers = _memories(netlist)
    users: dict[_nir.Net, set[int]] = defaultdict(set)
    for index, cell in enumerate(netlist.cells):
        for net in cell.input_nets():
            if not net.is_const:
                users[net].add(index)
                if isinstance(cell, _nir.SyncWritePort):
                    users[net].update(readers[cell.memory])
    pending, waiting = deque(range(len(netlist.cells))), set(range(len(netlist.cells)))
    while pending:
        index = pending.popleft()
        waiting.discard(index)
        for net, value in _outputs(netlist, index, values, writers):
            if value is not None and values.get(net) != value:
                values[net] = value
                for user in users[net] - waiting:
                    pending.append(user)
                    waiting.add(user)
    return {net for net, value in values.items() if value != MOVES}


def _memories(netlist: _nir.Netlist) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    writers, readers = defaultdict(list), defaultdict(list)
    for index, cell in enumerate(netlist.cells):
        if isinstance(cell, _nir.SyncWritePort):
            writers[cell.memory].append(index)
        elif isinstance(cell, (_nir.AsyncReadPort, _nir.SyncReadPort)):
            readers[cell.memory].append(index)
    return writers, readers


def _join(values: Iterable[int | None]) -> int | None:
    known = {value for value in values if value is not None}
    return known.pop() if len(known) == 1 else MOVES if known else None


def _outputs(
    netlist: _nir.Netlist, index: int, values: dict[_nir.Net, int], writers: dict[int, list[int]]
) -> list[tuple[_nir.Net, int | None]]:
    """What the outputs of a cell can be, by what its inputs can be."""
    cell = netlist.cells[index]

    def of(net: _nir.Net) -> int | None:
        return net.const if net.is_const else values.get(net)

    def out(bit: int) -> _nir.Net:
        return _nir.Net.from_cell(index, bit)

    if isinstance(cell, _nir.AssignmentList):
        found = [{of(net)} for net in cell.default]
        for assignment in cell.assignments:
            for bit, net in enumerate(assignment.value, assignment.start):
                found[bit].add(of(net))
        return [(out(bit), _join(choices)) for bit, choices in enumerate(found)]
    if isinstance(cell, _nir.FlipFlop):
        return [(out(bit), _join((cell.init >> bit & 1, of(net)))) for bit, net in enumerate(cell.data)]
    if isinstance(cell, _nir.Operator):
        return [(out(bit), value) for bit, value in enumerate(_operator(cell, of))]
    if isinstance(cell, (_nir.AsyncReadPort, _nir.SyncReadPort)):
        words = [netlist.cells[writer].data for writer in writers[cell.memory]]
        return [(out(bit), _join((0, *(of(word[bit]) for word in words)))) for bit in range(cell.width)]
    if isinstance(cell, _nir.Instance) and cell.type == RAM:
        start, width = cell.ports_o["read_data"]
        word = cell.ports_i["write_data"]
        return [(out(start + bit), _join((0, of(word[bit])))) for bit in range(width)]
    return [(net, MOVES) for net in cell.output_nets(index)]


def _operator(cell: _nir.Operator, of: Callable[[_nir.Net], int | None]) -> list[int | None]:
    inputs = [[of(net) for net in value] for value in cell.inputs]
    match cell.operator:
        case "~":
            return [bit if bit in (None, MOVES) else 1 - bit for bit in inputs[0]]
        case "&" | "|":
            wins = 0 if cell.operator == "&" else 1
            return [_gate(pair, wins) for pair in zip(*inputs)]
        case "m":
            return [_join(pair) for pair in zip(*inputs[1:])]
        case "b" | "r|":
            return [_gate(inputs[0], 1)]
        case "r&":
            return [_gate(inputs[0], 0)]
        case "u>>" | "<<" if all(net.is_const for net in cell.inputs[1]):
            places = sum(net.const << bit for bit, net in enumerate(cell.inputs[1]))
            zeros: list[int | None] = [0] * places
            moved = inputs[0] + zeros if cell.operator == "u>>" else zeros + inputs[0]
            return moved[places:] if cell.operator == "u>>" else moved[: cell.width]
        case _:
            if any(bit is None for value in inputs for bit in value):
                return [None] * cell.width
            return [MOVES] * cell.width


def _gate(bits: Iterable[int | None], wins: int) -> int | None:
    """AND (`wins` 0) or OR (`wins` 1) of bits."""
    bits = list(bits)
    if wins in bits:
        return wins
    return MOVES if MOVES in bits else None if None in bits else 1 - wins
