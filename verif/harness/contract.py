"""What the C++ loop and its Python side agree on: outcome codes, argument structures, and the header with both.

`harness.cpp` knows the layout of no message and no structure: it includes the header made here from the numpy types
that Python uses.

Used by: build, harness.
"""

import enum

import numpy as np

from kvnode.models.spec.batch import BATCH_DTYPE, REQUEST_DTYPE, RESPONSE_DTYPE, RESULT_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Opcode, Status
from kvnode.models.spec.messages import HANDLE, TRACE

__all__ = ["Code", "Done", "OPTIONS_DTYPE", "OUTCOME_DTYPE", "REGISTER_DTYPE", "VIOLATIONS", "header"]


class Code(enum.IntEnum):
    """How an advance of the run ended."""

    #: The cycles given are used up; the run can be advanced further.
    RUNNING = 0
    #: Everything is answered, every register is written, and `min_cycles` have passed.
    COMPLETE = 1
    CYCLE_LIMIT = 2
    DATA_FULL = 3
    TRACE_FULL = 4
    #: The Verilated code itself gave up, for example because it found no stable state.
    MODEL_ERROR = 5
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


#: Statuses of answers that carry a handle (BATCH_DTYPE's `handle_from`).
WITH_HANDLE = (Status.GRANTED, Status.HIT, Status.OK)

#: `max_cycles` and `min_cycles` bound the run. `idle` and `backpressure` are probabilities in 1/65536.
OPTIONS_DTYPE = np.dtype(
    [("max_cycles", "<u8"), ("min_cycles", "<u8"), ("seed", "<u8"), ("idle", "<u4"), ("backpressure", "<u4")]
)

#: A register write: offered from `cycle` of the run on and after the writes before it; Python reads `accepted_cycle`.
REGISTER_DTYPE = np.dtype([("cycle", "<u8"), ("address", "<u4"), ("data", "<u4"), ("accepted_cycle", "<u8")])

#: Where a run stands. `request` is what an error is about, or else the first one not answered, or -1; `sent_beats` of
#: it were accepted. `cycle` counts from reset, `port` is -1 if none is concerned.
OUTCOME_DTYPE = np.dtype(
    [
        ("code", "<u4"),
        ("port", "<i4"),
        ("cycle", "<u8"),
        ("request", "<i8"),
        ("sent_beats", "<u8"),
        ("expected", "<u8"),
        ("found", "<u8"),
        ("unanswered", "<u8"),
        ("registers_written", "<u8"),
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
        "HANDLE_BYTES": HANDLE.fields["run"].offset_bytes,
        "OPCODE_READ": int(Opcode.READ),
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
        _struct("RegisterWrite", REGISTER_DTYPE),
        _struct("Outcome", OUTCOME_DTYPE),
        "\n// The part of a request that a handle is copied to, and where an answer has the parts of it.",
        "inline void copy_handle(Request& request, const Response& answer) {",
        *(
            f"    __builtin_memcpy(request.digest + {HANDLE.fields[name].offset_bytes}, &answer.{name}, "
            f"{HANDLE.fields[name].size_bytes});"
            for name in ("slot", "generation", "boot_epoch")
        ),
        "}\n\ninline bool carries_handle(uint8_t status) {",
        f"    return {' || '.join(f'status == {int(status)}' for status in WITH_HANDLE)};",
        "}\n\nstruct Pins {",
        "    uint8_t *req_valid, *req_ready, *req_data, *req_last, *rsp_valid, *rsp_ready, *rsp_data, *rsp_last;",
        "};\n\ninline void bind_pins(Vnode& node, Pins* pins) {",
        *(f"    pins[{port}] = {text};" for port, text in enumerate(pins)),
        "}",
    ]
    return "\n".join(parts) + "\n"


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
