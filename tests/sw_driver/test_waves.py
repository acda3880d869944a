"""Transactions found in a waveform, in one that is written here beat by beat."""

import io
import json

import pytest

from kvnode.models.spec.enums import Flag, Opcode, Status
from kvnode.models.spec.messages import HANDLE, REQUEST, RESPONSE, VERSION
from kvnode.sw_driver import cli, waves
from kvnode.sw_driver.errors import TransportError

pytest.importorskip("vcdvcd")
WIDTH_BYTES = 32


def vcd(path, cycles, ports=2):
    """Write a waveform: per cycle a dict of port signal to value; signals not named keep their value."""
    names = [f"p{port}_{side}_{part}" for port in range(ports) for side in ("req", "rsp")
             for part in ("valid", "ready", "last", "data")]  # fmt: skip
    out = io.StringIO()
    out.write("$timescale 1ns $end\n$scope module kvnode_node $end\n")
    for number, name in enumerate(names):
        bits = 8 * WIDTH_BYTES if name.endswith("data") else 1
        size = f" [{bits - 1}:0]" if bits > 1 else ""
        out.write(f"$var wire {bits} s{number} {name}{size} $end\n")
    out.write("$upscope $end\n$enddefinitions $end\n")
    for cycle, values in enumerate(cycles):
        # Outputs change after the clock edge, inputs at the beginning of the cycle.
        for side, time in (("rsp", 2 * cycle - 1), ("req", 2 * cycle)):
            out.write(f"#{max(0, time)}\n")
            for name, value in values.items():
                if f"_{side}_" in name:
                    text = f"b{value:b} " if name.endswith("data") else f"{value}"
                    out.write(f"{text}s{names.index(name)}\n")
    out.write(f"#{2 * len(cycles)}\n")
    path.write_text(out.getvalue())
    return path


def beats(stream, message):
    """Cycles that move a message on a stream, and one in which it rests."""
    parts = [message[at : at + WIDTH_BYTES] for at in range(0, len(message), WIDTH_BYTES)]
    moving = [
        {f"{stream}_valid": 1, f"{stream}_ready": 1, f"{stream}_last": int(number == len(parts) - 1),
         f"{stream}_data": int.from_bytes(part, "little")}
        for number, part in enumerate(parts)
    ]  # fmt: skip
    return [*moving, {f"{stream}_valid": 0}]


def request(**fields):
    return REQUEST.pack(version=VERSION, **fields)


def test_request_and_response_are_listed_with_their_cycles(tmp_path):
    cycles = [
        *beats("p1_req", request(opcode=Opcode.READ, tag=7, digest=0xABC, length=64)),
        *beats("p1_rsp", RESPONSE.pack(status=Status.OK, opcode=Opcode.READ, tag=7, slot=5, generation=2, length=64)
               + bytes(64)),
    ]  # fmt: skip
    first, second = waves.transactions(vcd(tmp_path / "a.vcd", cycles))
    assert first == waves.Transaction(0, 1, "req", "READ", 7, "digest 0000000000000abc", 64, 2)
    assert second == waves.Transaction(3, 1, "rsp", "OK READ", 7, "slot 5.2", 64, 3)


def test_messages_back_to_back_are_apart(tmp_path):
    ping = request(opcode=Opcode.PING, tag=1)
    cycles = beats("p0_req", ping)[:-1] + beats("p0_req", request(opcode=Opcode.PING, tag=2))
    assert [(item.cycle, item.tag) for item in waves.transactions(vcd(tmp_path / "a.vcd", cycles))] == [(0, 1), (2, 2)]


def test_beat_that_is_not_taken_counts_once(tmp_path):
    first, second, rest = beats("p0_req", request(opcode=Opcode.PING, tag=9))
    held = first | {"p0_req_ready": 0}
    (item,) = waves.transactions(vcd(tmp_path / "a.vcd", [held, held, {"p0_req_ready": 1}, second, rest]))
    assert (item.cycle, item.beats, item.tag) == (2, 2, 9)


def test_handles_are_shown_as_slot_and_generation(tmp_path):
    handle = int.from_bytes(HANDLE.pack(slot=12, generation=3, boot_epoch=1), "little")
    cycles = beats("p0_req", request(opcode=Opcode.PUT_END, digest=handle))
    cycles += beats("p0_req", request(opcode=Opcode.READ, flags=int(Flag.BY_HANDLE), digest=handle))
    items = waves.transactions(vcd(tmp_path / "a.vcd", cycles))
    assert [item.block for item in items] == ["handle 12.3"] * 2


def test_message_that_the_waveform_ends_in_is_marked(tmp_path):
    cycles = beats("p0_req", request(opcode=Opcode.PING))[:1]
    (item,) = waves.transactions(vcd(tmp_path / "a.vcd", [*cycles, {"p0_req_ready": 0}]))
    assert not item.complete


def test_command_lists_columns_and_json(tmp_path, capsys):
    path = vcd(tmp_path / "a.vcd", beats("p0_req", request(opcode=Opcode.DROP, tag=3, digest=1)))
    assert cli.main(["waves", str(path)]) == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == list(waves.COLUMNS)
    assert line.split() == ["0", "0", "req", "DROP", "3", "digest", "0000000000000001", "0", "2"]
    assert cli.main(["waves", str(path), "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)
    assert (item["what"], item["tag"]) == ("DROP", 3)


@pytest.mark.parametrize("text", ["", "not a waveform\n", "$enddefinitions $end\n#0\n"])
def test_other_files_are_refused_by_name(tmp_path, text):
    (tmp_path / "b.vcd").write_text(text)
    with pytest.raises(TransportError, match="b.vcd: is "):
        waves.transactions(tmp_path / "b.vcd")
