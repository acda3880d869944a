"""Batches of requests on the RTL: a Verilated node and the C++ loop that drives it, seen from numpy.

Used by: the lockstep and performance benches, sw_driver.transports.
"""

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from kvnode.models.spec.batch import BATCH_DTYPE, HANDLE_DTYPE, RESULT_DTYPE, TRACE_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Flag, Opcode

from . import build
from .contract import ACCESS_DTYPE, OPTIONS_DTYPE, OUTCOME_DTYPE, VIOLATIONS, Bus, Code, Done

__all__ = ["Access", "Bus", "Done", "Harness", "HarnessError", "HarnessStall", "Manner", "MannerlyAccess",
           "RunError", "RunResult", "StreamViolation"]  # fmt: skip



class Manner(NamedTuple):
    """How a register is accessed: the bytes that are written; cycles by which the data comes later than the address
    (negative: the address later); cycles for which the answer is not taken, while it must stand still."""

    strobe: int = 0xF
    late: int = 0
    hold: int = 0


#: An access of the register bus: (cycle, address) reads, (cycle, address, data) writes.
Access = tuple[int, int] | tuple[int, int, int]
#: One made otherwise than at once; of a read the data is None.
MannerlyAccess = tuple[int, int, int | None, Manner]


#: Cycles between two looks at the keyboard and calls of `progress`.
SLICE_CYCLES = 50_000
REGISTER_LIMIT_CYCLES = 100_000
PROBABILITY_ONE = 1 << 16
REGISTER_ADDRESS_BITS, REGISTER_BITS = 16, 32


@dataclass
class RunResult:
    """What a run gave.

    `results`: RESULT_DTYPE, one per request. `data`: bytes that `data_offset` of the results points into. `trace`:
    TRACE_DTYPE, all records since the last run or `take_trace`. The run took the `cycles` from `first_cycle` (counted
    from reset) on; `request_beats` and `response_beats` of each port moved in it, and `wakes` came. `registers`:
    ACCESS_DTYPE, the register accesses that were answered, with what was read (`data`), the `response` (a `Bus`), and
    the cycles from reset in which they were accepted and answered.
    """

    results: np.ndarray
    data: np.ndarray
    trace: np.ndarray
    first_cycle: int
    cycles: int
    request_beats: np.ndarray
    response_beats: np.ndarray
    wakes: np.ndarray
    registers: np.ndarray = field(default_factory=lambda: np.zeros(0, ACCESS_DTYPE))

    def payload(self, index: int) -> bytes:
        """The bytes that followed the response to request `index`."""
        result = self.results[index]
        start = int(result["data_offset"])
        return self.data[start : start + int(result["data_bytes"])].tobytes()


class HarnessError(RuntimeError):
    """Something was asked of the harness that it cannot do now; the message says what to do first."""


class RunError(HarnessError):
    """A run that ended before its time. `result` is what there was until then; the node must be reset."""

    def __init__(self, message: str, result: RunResult):
        super().__init__(message)
        self.result = result


class HarnessStall(RunError):
    """`max_cycles` passed. `request` is the first one not answered, or -1 if only a register access was left."""

    def __init__(self, message: str, result: RunResult, request: int, port: int, opcode: int, tag: int, cycle: int):
        super().__init__(message, result)
        self.request, self.port, self.opcode, self.tag, self.cycle = request, port, opcode, tag, cycle


class StreamViolation(RunError):
    """A response stream broke its rules on `port` in `cycle`. `request`: the one being answered, or -1 (a wake)."""

    def __init__(self, message: str, result: RunResult, code: Code, request: int, port: int, cycle: int):
        super().__init__(message, result)
        self.code, self.request, self.port, self.cycle = code, request, port, cycle


class Harness:
    """One node. It must be reset before its first run, and after a run that ended in an error.

    `fault`: a fault of `kvnode.rtl.elaborate` to put in. `waves`: a path; everything from reset on is written to it as
    VCD, unless `waves()` chooses other cycles. True builds a node that can write waves but does not until told so.
    `text`: Verilog with the node's ports, in place of the node. `coverage`: see `coverage()`. `trace_limit` bounds the
    records kept until they are taken. `optimise` and `progress` are those of `build.build`.

    Runs are deterministic: the same resets, runs and options give the same cycles. So to see the cycles before an
    error, repeat the sequence in a harness with waves, with the window set.
    """

    def __init__(
        self,
        config: NodeConfig,
        fault: str | None = None,
        waves: str | PathLike | bool | None = None,
        *,
        text: str | None = None,
        optimise: bool = True,
        coverage: bool = False,
        trace_limit: int = 4_000_000,
        progress: build.Progress = lambda stage: None,
    ):
        self._node: int | None = None
        self.config = config
        self._has_waves = bool(waves)
        path = build.build(
            config, fault, self._has_waves, optimise, text=text, coverage=coverage, progress=progress
        )
        self._library = _load(str(path))
        self._node = self._library.harness_open(trace_limit)
        self._cycle = 0
        self._usable = False
        self._kept_trace: list[np.ndarray] = []
        if waves and waves is not True:
            self.waves(waves)

    def __enter__(self) -> "Harness":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Free the node and finish its waves; it can be called again."""
        if self._node is not None:
            self._library.harness_close(self._node)
            self._node = None

    @property
    def cycle(self) -> int:
        """Cycles since reset."""
        return self._cycle

    def reset(self, boot_epoch: int = 0, cycles: int = 4) -> None:
        """Hold `rst` for `cycles`; the cycle after them is cycle 0. Counters restart, traces not taken are dropped.

        Memories without a reset keep their content.
        """
        if boot_epoch >> self.config.boot_epoch_bits:
            raise ValueError(f"boot_epoch = {boot_epoch} does not fit in {self.config.boot_epoch_bits} bits")
        if cycles < 1:
            raise ValueError(f"cycles = {cycles}: reset needs at least one")
        self._library.harness_reset(self._open_node(), boot_epoch, cycles)
        self._cycle = 0
        self._kept_trace = []
        self._usable = True

    def run(
        self,
        batch: np.ndarray,
        payload: np.ndarray | bytes = b"",
        *,
        max_cycles: int,
        idle: float = 0.0,
        backpressure: float = 0.0,
        seed: int = 0,
        registers: Iterable[Access | MannerlyAccess] = (),
        min_cycles: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> RunResult:
        """Send `batch` (BATCH_DTYPE), collect all answers.

        A request that waits for an answer is offered at the earliest in the cycle after its last beat was taken. When
        its time, `after`, `handle_from` and `session_from` are all fulfilled and there is no handle or no session, it
        is skipped, in no time; the header of its result stays zero.

        Nothing follows a request with `patience` on its port before its last answer. A wake counts for it that was
        taken after the first beat of its last sending was accepted, also before the answer. The time runs from the
        cycle in which its last beat was first accepted. If the run ends before, its result tells of the last NOT_READY.

        While the bit of a port in ports_down is 1, nothing is offered there, and what comes is not looked at. When it
        rises, all requests of the port of which a beat was accepted and that are not answered are lost, in that cycle
        (`last_cycle`); the headers of their results stay zero. `tries` counts first beats accepted, so it is 0 for a
        request that is skipped, and never for one that is lost.

        `idle` and `backpressure` are the probabilities per port and cycle that no new beat is offered and that
        rsp_ready is low: bits 0-15 and 16-31 of mix(seed ^ mix(cycle * ports + port)), with splitmix64 as mix and
        cycles counted from reset, are less than 65536 times the probability. `registers`: reads (cycle, address) and
        writes (cycle, address, data), in order, each offered from its cycle of the run on when the one before is
        answered. The run ends when all requests and accesses are answered and `min_cycles` have passed; a wake under
        way then belongs to the next run. `progress` is called now and then with the cycles run.

        Raises `HarnessStall` after `max_cycles`, `StreamViolation` for a response that breaks the rules, `RunError`
        when a buffer is full or the register bus answers unasked, and ValueError for a batch that means nothing.
        """
        node = self._open_node()
        if not self._usable:
            raise HarnessError("the node must be reset before this run")
        batch = np.ascontiguousarray(batch)
        payload = np.frombuffer(payload, np.uint8) if isinstance(payload, bytes) else np.ascontiguousarray(payload)
        self._check(batch, payload)
        options = np.zeros((), OPTIONS_DTYPE)
        options["max_cycles"], options["min_cycles"], options["seed"] = max_cycles, min_cycles, seed
        for name, probability in (("idle", idle), ("backpressure", backpressure)):
            if not 0 <= probability <= 1:
                raise ValueError(f"{name} = {probability} is not a probability")
            options[name] = round(probability * PROBABILITY_ONE)
        accesses = _accesses(registers)
        results = np.zeros(len(batch), RESULT_DTYPE)
        data = np.empty(self._room(batch), np.uint8)
        before = self._counters()
        first_cycle = self._cycle

        self._usable = False  # Until it has ended well; an interrupt leaves requests behind.
        self._library.harness_start(
            node, len(batch), batch.ctypes.data, payload.ctypes.data, results.ctypes.data, data.ctypes.data, len(data),
            len(accesses), accesses.ctypes.data, options.ctypes.data,
        )  # fmt: skip
        passed = 0
        while (code := self._library.harness_advance(node, SLICE_CYCLES)) == Code.RUNNING:
            passed += SLICE_CYCLES
            if progress is not None:
                progress(passed)
        outcome = np.zeros((), OUTCOME_DTYPE)
        self._library.harness_report(node, outcome.ctypes.data)
        self._cycle = self._library.harness_cycle(node)
        request_beats, response_beats, wakes = self._counters() - before
        result = RunResult(
            results, data[: int(outcome["data_bytes"])], self.take_trace(), first_cycle, self._cycle - first_cycle,
            request_beats, response_beats, wakes, accesses[: int(outcome["registers_done"])],
        )  # fmt: skip
        if code != Code.COMPLETE:
            raise self._error(Code(code), outcome, batch, accesses, result, max_cycles)
        self._usable = True
        return result

    def write_register(self, address: int, data: int, max_cycles: int = REGISTER_LIMIT_CYCLES) -> int:
        """Write one register; the cycle in which the node accepted it. It ends when the node has answered.

        Trace records wait for the next run. Raises `HarnessError` when the answer is not OKAY, and `HarnessStall` when
        there is none within `max_cycles`.
        """
        return int(self._access((0, address, data), max_cycles)["accepted_cycle"])

    def read_register(self, address: int, max_cycles: int = REGISTER_LIMIT_CYCLES) -> int:
        """Read one register. Trace records and errors are those of `write_register`."""
        return int(self._access((0, address), max_cycles)["data"])

    def _access(self, access: Access, max_cycles: int) -> np.void:
        result = self.run(np.zeros(0, BATCH_DTYPE), max_cycles=max_cycles, registers=[access])
        self._kept_trace.append(result.trace)
        row = result.registers[0]
        if row["response"] != Bus.OKAY:
            raise HarnessError(f"{_access_name(row)} was answered {Bus(row['response']).name}")
        return row

    def idle(self, cycles: int) -> None:
        """Let `cycles` pass. Their trace records wait for the next run."""
        if cycles > 0:
            result = self.run(np.zeros(0, BATCH_DTYPE), max_cycles=cycles, min_cycles=cycles)
            self._kept_trace.append(result.trace)

    def take_trace(self) -> np.ndarray:
        """The records (TRACE_DTYPE) since they were last taken, by this or by a run."""
        records = ctypes.c_void_p()
        count = self._library.harness_trace(self._open_node(), ctypes.byref(records))
        new = np.empty(count, TRACE_DTYPE)
        if count:
            ctypes.memmove(new.ctypes.data, records, new.nbytes)
        self._library.harness_clear_trace(self._open_node())
        kept, self._kept_trace = self._kept_trace, []
        return np.concatenate([*kept, new]) if kept else new

    def counters(self) -> tuple[np.ndarray, np.ndarray]:
        """Request beats accepted and response beats taken since reset, by port."""
        request_beats, response_beats, _ = self._counters()
        return request_beats, response_beats

    def wakes(self) -> np.ndarray:
        """Wakes taken since reset, by port. Their beats count as response beats."""
        return self._counters()[2]

    def reset_requests(self) -> int:
        """Cycles since reset in which the node asked for a reset."""
        return int(self._library.harness_reset_requests(self._open_node()))

    def mutant(self, number: int) -> None:
        """Let this mutant live from now on, 0: none. Raises `HarnessError` for a node that was built without."""
        if not self._library.harness_mutant(self._open_node(), number):
            raise HarnessError("this node has no mutants in it: give the harness the text of verif.mutation")

    def _counters(self) -> np.ndarray:
        counts = np.zeros((3, self.config.ports), np.uint64)
        self._library.harness_counters(self._open_node(), *(row.ctypes.data for row in counts))
        return counts

    def waves(self, path: str | PathLike, first_cycle: int = 0, last_cycle: int = (1 << 64) - 1) -> None:
        """Write the cycles from `first_cycle` to `last_cycle`, counted from reset, to a new VCD file.

        Cycle c is at 2c ns, when its inputs and what follows from them are settled; the clock rises at 2c + 1 ns. The
        file is complete when the window is over, the harness is closed or another window is set.
        """
        if not self._has_waves:
            raise HarnessError("this harness was built without waves: give it waves=True or a path")
        self._library.harness_waves(self._open_node(), str(path).encode(), first_cycle, last_cycle)

    def coverage(self, path: str | PathLike) -> None:
        """Write Verilator's counts of lines and toggles, of all cycles since the node was made, resets included.

        Used by: verif.coverage.
        """
        if not self._library.harness_coverage(self._open_node(), str(path).encode()):
            raise HarnessError("this harness was built without coverage: give it coverage=True")

    def _open_node(self) -> int:
        if self._node is None:
            raise HarnessError("the harness is closed")
        return self._node

    def _check(self, batch: np.ndarray, payload: np.ndarray) -> None:
        """Raise ValueError for a batch that the C++ loop must not see."""
        if batch.dtype != BATCH_DTYPE or batch.ndim != 1:
            raise ValueError(f"a batch is a row of BATCH_DTYPE, not {batch.dtype} of shape {batch.shape}")
        if payload.dtype != np.uint8 or payload.ndim != 1:
            raise ValueError(f"a payload is a row of bytes, not {payload.dtype} of shape {payload.shape}")
        index = np.arange(len(batch))
        ends = batch["payload_offset"] + batch["payload_bytes"]
        inside = (ends <= len(payload)) & (ends >= batch["payload_offset"]) | (batch["payload_bytes"] == 0)
        rules = (
            ("port", batch["port"] < self.config.ports, f"there are {self.config.ports} ports"),
            ("after", batch["after"] < index, "only an earlier request can be waited for"),
            ("handle_from", batch["handle_from"] < index, "only an earlier request can give its handle"),
            ("session_from", batch["session_from"] < index, "only an earlier request can give its session"),
            ("payload_offset", inside,
             f"with payload_bytes it ends behind the payload of {len(payload)} bytes"),
        )  # fmt: skip
        for name, good, rule in rules:
            if not good.all():
                worst = int(np.argmin(good))
                raise ValueError(f"batch[{worst}].{name} = {batch[name][worst]}: {rule}")

    def _room(self, batch: np.ndarray) -> int:
        """Bytes that the answers can have at most: what each READ asks for, or the block if it asks for all of it, and
        the handles of each MATCH that asks for leases.
        """
        header = batch["header"]
        reads = header[header["opcode"] == Opcode.READ]
        runs = np.ascontiguousarray(reads["digest"]).view(HANDLE_DTYPE)["count"].astype(np.uint64)
        runs[(reads["flags"] & Flag.BY_HANDLE == 0) | (runs == 0)] = 1
        asked = runs * reads["length"]
        asked[(asked == 0) | (asked > self.config.block_bytes)] = self.config.block_bytes
        leased = (header["opcode"] == Opcode.MATCH) & (header["flags"] & Flag.LEASE != 0)
        handles = np.minimum(header["length"][leased], self.config.max_payload_bytes)
        return int(asked.sum()) + int(handles.sum())

    def _error(
        self,
        code: Code,
        outcome: np.ndarray,
        batch: np.ndarray,
        accesses: np.ndarray,
        result: RunResult,
        max_cycles: int,
    ) -> RunError:
        index, port, cycle = int(outcome["request"]), int(outcome["port"]), int(outcome["cycle"])
        opcode, tag = (int(batch[index]["header"][name]) for name in ("opcode", "tag")) if index >= 0 else (-1, -1)
        name = Opcode(opcode).name if opcode in list(Opcode) else f"opcode {opcode}"
        who = f"request {index} ({name}, tag {tag}, port {port})"
        if code == Code.CYCLE_LIMIT:
            if index < 0 and len(result.registers) < len(accesses):
                what = f"{_access_name(accesses[len(result.registers)])} was not answered"
            elif index < 0:
                what = "min_cycles have not passed"
            else:
                what = f"{who} {self._progress_of(outcome, batch[index], result.results[index])}"
            left = f"{int(outcome['unanswered'])} of {len(batch)} requests are unanswered"
            message = f"no end after {max_cycles} cycles, in cycle {cycle}: {what}; {left}"
            return HarnessStall(message, result, index, port, opcode, tag, cycle)
        if code in VIOLATIONS:
            rule = VIOLATIONS[code].format(expected=int(outcome["expected"]), found=int(outcome["found"]))
            about = f", {who}" if index >= 0 else ""
            return StreamViolation(f"port {port}, cycle {cycle}{about}: {rule}", result, code, index, port, cycle)
        if code == Code.DATA_FULL:
            what = "the answers have more bytes than the READs and MATCHes of the batch ask for"
        elif code == Code.TRACE_FULL:
            what = f"{len(result.trace)} trace records, as many as trace_limit allows"
        elif code == Code.BUS_UNASKED:
            what = "the register bus answered an access that was not made, or not accepted yet, or changed its answer"
        else:
            what = self._library.harness_message(self._open_node()).decode()
        return RunError(f"cycle {cycle}: {what}", result)

    def _progress_of(self, outcome: np.ndarray, request: np.void, result: np.void) -> str:
        """How far an unanswered request has come."""
        beats = self.config.request_beats + -(-int(request["payload_bytes"]) // self.config.beat_bytes)
        sent_beats = int(outcome["sent_beats"])
        down = ", and its port is down" if int(outcome["ports_down"]) >> int(request["port"]) & 1 else ""
        if sent_beats < beats:
            again = " again" if result["last_cycle"] else ""
            return f"is not sent{again}: {sent_beats} of its {beats} beats were accepted{down}"
        if result["last_cycle"] > result["sent_cycle"]:
            return f"was answered NOT_READY in cycle {result['last_cycle']} and waits to be woken"
        return f"was sent in cycle {result['sent_cycle']} and is not answered"


def _accesses(registers: Iterable[Access | MannerlyAccess]) -> np.ndarray:
    """ACCESS_DTYPE of the accesses; ValueError for what does not fit on the bus."""
    rows = []
    for index, access in enumerate(registers):
        rest: tuple[Any, ...] = access[2:]
        cycle, address, data = access[0], access[1], rest[0] if rest else None
        manner = rest[1] if len(rest) > 1 else Manner()
        for name, value, bits in (
            ("address", address, REGISTER_ADDRESS_BITS),
            ("data", data or 0, REGISTER_BITS),
            ("strobe", manner.strobe, REGISTER_BITS // 8),
        ):
            if not 0 <= value < 1 << bits:
                raise ValueError(f"registers[{index}]: {name} = {value:#x} does not fit in {bits} bits")
        rows.append((cycle, address, data or 0, data is not None, 0, *manner, 0, 0))
    return np.array(rows, ACCESS_DTYPE)


def _access_name(row: np.void) -> str:
    return f"the {'write' if row['is_write'] else 'read'} of register {row['address']:#x}"


def _load(path: str) -> ctypes.CDLL:
    library = ctypes.CDLL(path)
    node, array, u32, u64 = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
    signatures = {
        "open": (node, [u64]),
        "close": (None, [node]),
        "reset": (None, [node, u32, u32]),
        "start": (None, [node, u32, array, array, array, array, u64, u32, array, array]),
        "advance": (u32, [node, u64]),
        "report": (None, [node, array]),
        "cycle": (u64, [node]),
        "message": (ctypes.c_char_p, [node]),
        "trace": (u64, [node, array]),
        "clear_trace": (None, [node]),
        "counters": (None, [node, array, array, array]),
        "reset_requests": (u64, [node]),
        "mutant": (ctypes.c_bool, [node, u32]),
        "waves": (ctypes.c_bool, [node, ctypes.c_char_p, u64, u64]),
        "coverage": (ctypes.c_bool, [node, ctypes.c_char_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"harness_{name}")
        function.restype, function.argtypes = result, arguments
    return library
