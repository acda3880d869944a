"""What the C++ loop and its Python side agree on: outcome codes, argument structures, and the header with both.

The C++ knows the layout of no message and no structure: it includes the header made here from the numpy types that
Python uses.

Used by: build, harness.
"""

import enum
from collections.abc import Iterable

import numpy as np

from kvnode.models.spec.batch import BATCH_DTYPE, REQUEST_DTYPE, RESPONSE_DTYPE, RESULT_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import KIND_OF_OPCODE, SESSION_KINDS, Opcode, ResponseFlag, Status
from kvnode.models.spec.messages import HANDLE, RESPONSE, TRACE

__all__ = ["ACCESS_DTYPE", "Bus", "Code", "Done", "OPTIONS_DTYPE", "OUTCOME_DTYPE", "VIOLATIONS", "header"]


class Code(enum.IntEnum):
    """How an advance of the run ended."""

    #: The cycles given are used up; the run can be advanced further.
    RUNNING = 0
    #: Everything is answered, every register access too, and `min_cycles` have passed.
    COMPLETE = 1
    CYCLE_LIMIT = 2
    DATA_FULL = 3
    TRACE_FULL = 4
    #: The Verilated code itself gave up, for example because it found no stable state.
    MODEL_ERROR = 5
    #: The register bus answered an access that was not made, or not accepted yet.
    BUS_UNASKED = 6
    # Violations of the response stream.
    WITHDRAWN = 16
    UNSTABLE = 17
    UNASKED = 18
    EARLY = 19
    SHORT = 20
    LONG = 21
    WRONG_TAG = 22


VIOLATIONS = {
    Code.WITHDRAWN: "rsp_valid fell before the beat was taken",
    Code.UNSTABLE: "rsp_data or rsp_last changed before the beat was taken",
    Code.UNASKED: "a response came, but every request sent was already answered",
    Code.EARLY: "the response came before the last beat of its request was accepted",
    Code.SHORT: "rsp_last came with beat {found}, but the message has {expected} beats",
    Code.LONG: "rsp_last did not come with beat {found}, the final one of the message",
    Code.WRONG_TAG: "the response has tag {found}, its request has tag {expected}",
}


class Done(enum.IntEnum):
    """Values of `done` in RESULT_DTYPE."""

    NO = 0
    ANSWERED = 1
    SKIPPED = 2
    LOST = 3


class Bus(enum.IntEnum):
    """AXI4-Lite's response codes."""

    OKAY = 0
    EXOKAY = 1
    SLVERR = 2
    DECERR = 3


#: Statuses of answers that carry a handle (BATCH_DTYPE's `handle_from`).
WITH_HANDLE = (Status.GRANTED, Status.HIT, Status.OK)
#: Opcodes of answers that, being OK, carry a session (BATCH_DTYPE's `session_from`).
WITH_SESSION = tuple(opcode for opcode in Opcode if KIND_OF_OPCODE[opcode] in SESSION_KINDS)

#: `max_cycles` and `min_cycles` bound the run. `idle` and `backpressure` are probabilities in 1/65536.
OPTIONS_DTYPE = np.dtype(
    [("max_cycles", "<u8"), ("min_cycles", "<u8"), ("seed", "<u8"), ("idle", "<u4"), ("backpressure", "<u4")]
)

#: One access of the register bus, offered from `cycle` of the run on and after the answer to the one before it.
#: `data` is what is written or, for Python, what was read. `accepted_cycle`: address and data were taken by then.
#: `response`: a `Bus`. `strobe`, `late`, `hold`: how it is made (harness.Manner). The cycles that Python reads count
#: from reset.
ACCESS_DTYPE = np.dtype(
    [
        ("cycle", "<u8"),
        ("address", "<u4"),
        ("data", "<u4"),
        ("is_write", "<u4"),
        ("response", "<u4"),
        ("strobe", "<u4"),
        ("late", "<i4"),
        ("hold", "<u4"),
        ("accepted_cycle", "<u8"),
        ("answered_cycle", "<u8"),
    ]
)

#: Where a run stands. `request` is what an error is about, or else the first one not answered, or -1; `sent_beats` of
#: it were accepted. `cycle` counts from reset, `port` is -1 if none is concerned. `ports_down`: a mask.
OUTCOME_DTYPE = np.dtype(
    [
        ("code", "<u4"),
        ("port", "<i4"),
        ("ports_down", "<u4"),
        ("cycle", "<u8"),
        ("request", "<i8"),
        ("sent_beats", "<u8"),
        ("expected", "<u8"),
        ("found", "<u8"),
        ("unanswered", "<u8"),
        ("registers_done", "<u8"),
        ("data_bytes", "<u8"),
    ]
)


def header(config: NodeConfig) -> str:
    """Text of `node.h` for nodes with the ports of `config`, Verilated with prefix `Vnode`."""
    constants = {
        "PORTS": config.ports,
        "BEAT_BYTES": config.beat_bytes,
        "REQUEST_BEATS": config.request_beats,
        "RESPONSE_BEATS": config.response_beats,
        "TRACE_BYTES": TRACE.size_bytes,
        "STATUS_NOT_READY": int(Status.NOT_READY),
    }
    pins = [_pins(port) for port in range(config.ports)]
    parts = [
        '// Made by contract.py for one shape of node.\n#pragma once\n#include <cstdint>\n\n#include "Vnode.h"\n',
        *(f"constexpr uint64_t {name} = {value};" for name, value in constants.items()),
        _enum("Code", Code),
        _enum("Done", Done),
        _struct("Request", REQUEST_DTYPE),
        _struct("Response", RESPONSE_DTYPE),
        _struct("Batch", BATCH_DTYPE),
        _struct("Result", RESULT_DTYPE),
        _struct("Options", OPTIONS_DTYPE),
        _struct("Access", ACCESS_DTYPE),
        _struct("Outcome", OUTCOME_DTYPE),
        "\n// The parts of a request that a handle is copied to, and where an answer has them.",
        "inline void copy_handle(Request& request, const Response& answer) {",
        *(f"    {_copy_to_handle(name, name)}" for name in ("slot", "generation", "boot_epoch")),
        f"    if (answer.flags & {int(ResponseFlag.LEASED)}) {_copy_to_handle('lease', 'watermark')}",
        "}\n\ninline void copy_session(Request& request, const Response& answer) {",
        "    request.session = answer.slot;\n    request.session_epoch = answer.generation;",
        "}\n\ninline bool carries_handle(const Response& answer) {",
        f"    return {_any_of('answer.status', WITH_HANDLE)};",
        "}\n\ninline bool carries_session(const Response& answer) {",
        f"    return answer.status == {int(Status.OK)} && ({_any_of('answer.opcode', WITH_SESSION)});",
        "}\n\ninline bool carries_payload(const Response& answer) {",
        f"    return answer.opcode == {int(Opcode.READ)} ||",
        f"           (answer.opcode == {int(Opcode.MATCH)} && answer.flags & {int(ResponseFlag.LEASED)});",
        "}\n\n// Of the first beat of a message.\ninline bool is_wake(const uint8_t* beat) {",
        f"    return beat[{RESPONSE.fields['flags'].offset_bytes}] & {int(ResponseFlag.WAKE)};",
        "}\n\nstruct Pins {",
        "    uint8_t *req_valid, *req_ready, *req_data, *req_last, *rsp_valid, *rsp_ready, *rsp_data, *rsp_last;",
        "};\n\ninline void bind_pins(Vnode& node, Pins* pins) {",
        *(f"    pins[{port}] = {text};" for port, text in enumerate(pins)),
        "}",
    ]
    return "\n".join(parts) + "\n"


def _copy_to_handle(name: str, source: str) -> str:
    field = HANDLE.fields[name]
    return f"__builtin_memcpy(request.digest + {field.offset_bytes}, &answer.{source}, {field.size_bytes});"


def _any_of(what: str, values: Iterable[int]) -> str:
    return " || ".join(f"{what} == {int(value)}" for value in values)


def _pins(port: int) -> str:
    names = ("req_valid", "req_ready", "req_data", "req_last", "rsp_valid", "rsp_ready", "rsp_data", "rsp_last")
    return "{" + ", ".join(f"reinterpret_cast<uint8_t*>(&node.p{port}_{name})" for name in names) + "}"


def _enum(name: str, values: type[enum.IntEnum]) -> str:
    members = ", ".join(f"{member.name} = {int(member)}" for member in values)
    return f"\nenum {name} : uint32_t {{ {members} }};"


def _struct(name: str, dtype: np.dtype) -> str:
    lines = [f"\nstruct [[gnu::packed]] {name} {{"]
    assert dtype.names is not None
    for field in dtype.names:
        kind = dtype[field]
        if kind in (REQUEST_DTYPE, RESPONSE_DTYPE):
            lines.append(f"    {'Request' if kind == REQUEST_DTYPE else 'Response'} {field};")
        elif kind.kind == "V":
            lines.append(f"    uint8_t {field}[{kind.itemsize}];")
        else:
            lines.append(f"    {'u' if kind.kind == 'u' else ''}int{8 * kind.itemsize}_t {field};")
    return "\n".join([*lines, f"}};\nstatic_assert(sizeof({name}) == {dtype.itemsize});"])
