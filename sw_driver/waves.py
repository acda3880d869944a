"""The transactions in a waveform of a node: messages on its ports, found in the VCD by their handshakes."""

import io
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from kvnode.models.spec.enums import Opcode, Status
from kvnode.models.spec.messages import HANDLE, REQUEST, RESPONSE
from kvnode.models.spec.requests import BY_HANDLE_ONLY

from .errors import TransportError

TOP = "kvnode_node"
#: Nanoseconds of a cycle in the harness's waveforms: at the first all is settled, at the second the clock rises.
CYCLE_TIME = 2
COLUMNS = ("cycle", "port", "direction", "what", "tag", "block", "length", "beats")


@dataclass(frozen=True)
class Transaction:
    """One message. `cycle`: its first beat was taken. `what`: opcode of a request, status and opcode of an answer.

    `block`: the digest or handle that a request names, the slot that a response gives. `length`: bytes, from the
    header. `beats`: how many were seen; `complete` is False for one that the waveform ends in.
    """

    cycle: int
    port: int
    direction: str
    what: str
    tag: int
    block: str
    length: int
    beats: int
    complete: bool = True

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def transactions(path: Path) -> list[Transaction]:
    """All messages in the file, by the cycle of their first beat. Begin the waveform between messages: the rest of one
    that began before it is taken for a message.

    Raises TransportError for a file that is no waveform of a node.
    """
    signals = _read(path)
    found: list[Transaction] = []
    port = 0
    while f"p{port}_req_valid" in signals:
        for direction in ("req", "rsp"):
            beats = list(_beats(signals, f"p{port}_{direction}"))
            found.extend(_messages(port, direction, beats, _width_bytes(signals, f"p{port}_{direction}_data")))
        port += 1
    if not port:
        raise TransportError(f"{path}: is no waveform of {TOP}: it has no signal p0_req_valid")
    return sorted(found, key=lambda item: (item.cycle, item.port, item.direction))


def print_transactions(items: list[Transaction], out: TextIO) -> None:
    """One line each, in columns."""
    rows = [COLUMNS, *(tuple(str(getattr(item, name)) for name in COLUMNS) for item in items)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row, item in zip(rows, [None, *items]):
        text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        out.write(text + ("" if item is None or item.complete else "  (cut off)") + "\n")


def _read(path: Path) -> dict[str, Any]:
    """The top level's port signals by their plain name."""
    try:
        from vcdvcd import VCDVCD
    except ImportError as error:
        raise TransportError(f"{error}: reading waveforms needs pip install 'kvnode[sim]'") from None
    try:
        names = VCDVCD(str(path), only_sigs=True).signals
    except Exception as error:  # The parser has no exceptions of its own.
        raise TransportError(f"{path}: is not a VCD file ({type(error).__name__}: {error})") from None
    chosen: dict[str, str] = {}
    for name in names:
        parts = name.split(".")
        plain = parts[-1].split("[")[0]
        # The ports stand at the top of the hierarchy and again inside of it; the shortest name is the port's own.
        if plain.startswith("p") and ("_req_" in plain or "_rsp_" in plain):
            if plain not in chosen or len(parts) < len(chosen[plain].split(".")):
                chosen[plain] = name
    if not chosen:
        return {}
    loaded = VCDVCD(str(path), signals=list(chosen.values()), store_tvs=True)
    return {plain: loaded[name] for plain, name in chosen.items()}


def _width_bytes(signals: dict[str, Any], name: str) -> int:
    return int(signals[name].size) // 8


def _beats(signals: dict[str, Any], stream: str) -> Iterator[tuple[int, int, bool]]:
    """(cycle, data, last) of each handshake: the values that stand in a cycle before its clock edge."""
    valid, ready, last, data = (signals[f"{stream}_{name}"].tv for name in ("valid", "ready", "last", "data"))
    cursors = [_Cursor(changes) for changes in (valid, ready, data, last)]
    times = sorted({time + -time % CYCLE_TIME for changes in (valid, ready) for time, _ in changes})
    if not times:
        return
    end = max(changes[-1][0] for changes in (valid, ready, last, data) if changes)
    for number, start in enumerate(times):
        stop = times[number + 1] if number + 1 < len(times) else end + 1
        if cursors[0].at(start) != 1 or cursors[1].at(start) != 1:
            continue
        for time in range(start, stop, CYCLE_TIME):
            yield time // CYCLE_TIME, cursors[2].at(time), cursors[3].at(time) == 1


class _Cursor:
    """Value of a signal at times that only grow. Values before the first change, and undefined bits, are 0."""

    def __init__(self, changes: list[tuple[int, str]]):
        self._changes, self._next, self._value = changes, 0, 0

    def at(self, time: int) -> int:
        while self._next < len(self._changes) and self._changes[self._next][0] <= time:
            text = self._changes[self._next][1]
            self._value = int("".join(bit if bit in "01" else "0" for bit in text), 2)
            self._next += 1
        return self._value


def _messages(port: int, direction: str, beats: list[tuple[int, int, bool]], width_bytes: int) -> Iterator[Transaction]:
    layout = REQUEST if direction == "req" else RESPONSE
    message = io.BytesIO()
    first_cycle, count = 0, 0
    for cycle, data, last in beats:
        if not count:
            first_cycle = cycle
        if message.tell() < layout.size_bytes:
            message.write(data.to_bytes(width_bytes, "little"))
        count += 1
        if last:
            yield _decode(port, direction, first_cycle, message.getvalue(), count, True)
            message, count = io.BytesIO(), 0
    if count:
        yield _decode(port, direction, first_cycle, message.getvalue(), count, False)


def _decode(port: int, direction: str, cycle: int, data: bytes, beats: int, complete: bool) -> Transaction:
    layout = REQUEST if direction == "req" else RESPONSE
    fields = layout.unpack(data[: layout.size_bytes].ljust(layout.size_bytes, b"\0"))
    opcode = _name(Opcode, fields["opcode"])
    if direction == "rsp":
        block = f"slot {fields['slot']}.{fields['generation']}" if fields["length"] else ""
        what = f"{_name(Status, fields['status'])} {opcode}"
    else:
        what = opcode
        if fields["flags"] & 1 or fields["opcode"] in BY_HANDLE_ONLY:
            handle = HANDLE.unpack(fields["digest"].to_bytes(32, "little"))
            block = f"handle {handle['slot']}.{handle['generation']}"
        else:
            block = f"digest {fields['digest'] & (1 << 64) - 1:016x}" if fields["digest"] else ""
    return Transaction(cycle, port, direction, what, fields["tag"], block, fields["length"], beats, complete)


def _name(kind: Any, value: int) -> str:
    return str(kind(value).name) if value in kind._value2member_map_ else f"{kind.__name__.lower()} {value}"
