"""The Verilated RTL as a transport: every committed operation is compared with the golden model, always."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kvnode.models.golden import Difference, Lockstep
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.node_registers import (
    CONTROL_ADDRESS,
    CONTROL_RESET_MASK,
    EVENT_POP_ADDRESS,
    MODEL_RETIRE_ADDRESS,
    MODEL_RETIRE_PARTITION_SHIFT,
)
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES, SWEEP_ROUND
from kvnode.verif.harness.build import BuildError
from kvnode.verif.harness.harness import Harness, HarnessError, HarnessStall, RunError

from ..errors import NodeError, RegisterError, TransportError
from ..events import drain
from ..transport import Batch, RawEvent, RunResult, check_batch, check_patterns, cycle_bound, set_port_down

#: Bytes of batches kept, so that the way to a difference can be repeated with waves.
HISTORY_LIMIT_BYTES = 512 << 20
#: Cycles shown before and after a difference.
WAVES_BEFORE_CYCLES, WAVES_AFTER_CYCLES = 2_000, 100

__all__ = ["BuildError", "RtlTransport"]

#: What was done to a node, so that it can be done again.
Step = Callable[[Harness], Any]


class RtlTransport:
    """`Transport` on a Verilated node. Lockstep: a run whose trace the golden node does not follow raises Difference.

    Then, and when a response stream breaks its rules (NodeError), the batches since reset are run again on a node with
    waves, and the cycles around the error are written to a file, which a note of the exception names. Beyond 512 MiB of
    batches the note says which cycles to ask for instead (`waves`, `window`).

    `waves`: write cycles `window` (first, last) of the whole run to this VCD file; slower. `fault`,
    `optimise`: of tests, which do not run for long.
    `progress` is told the stages of building the model, which takes half a minute the first time and is then cached.

    After a run that did not end, the node is stuck: later runs raise TransportError, until `reset`.

    Used by: sim, replay, benches, client.
    """

    name = "rtl"

    def __init__(
        self,
        config: NodeConfig,
        *,
        boot_epoch: int = 0,
        progress: Callable[[str], None] = lambda stage: None,
        waves: str | Path | None = None,
        window: tuple[int, int] | None = None,
        fault: str | None = None,
        optimise: bool = True,
        lockstep: bool = True,
        history_limit_bytes: int = HISTORY_LIMIT_BYTES,
    ):
        self.config, self._fault, self._optimise = config, fault, optimise
        self.harness = Harness(config, fault, waves=True if waves else None, optimise=optimise, progress=progress)
        if waves:
            self.harness.waves(waves, *(window or (0, 1 << 62)))
        self._with_lockstep, self._history_limit_bytes = lockstep, history_limit_bytes
        self.reset(boot_epoch)

    def reset(self, boot_epoch: int = 0) -> None:
        """Forget everything: the node, its golden model, totals, and what a stuck run left behind."""
        self.harness.reset(boot_epoch)
        self.boot_epoch = boot_epoch
        self.lockstep = Lockstep(self.config, boot_epoch) if self._with_lockstep else None
        self._history: list[Step] | None = []
        self._history_bytes = self._requests = 0
        self._stuck = False

    def __enter__(self) -> "RtlTransport":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.harness.close()
        self._history = None

    def run(
        self,
        batch: Batch,
        payload: bytes | bytearray | memoryview = b"",
        *,
        idle: float = 0.0,
        backpressure: float = 0.0,
        seed: int = 0,
        max_cycles: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> RunResult:
        """As in Transport; `progress` is called now and then with the cycles of this run."""
        check_batch(self.config, batch, len(payload))
        check_patterns(idle, backpressure)
        if self._stuck:
            raise TransportError("the node did not answer an earlier run; reset it")
        if max_cycles is None:
            max_cycles = cycle_bound(self.config, batch, idle, backpressure)
        options: dict[str, Any] = {"max_cycles": max_cycles, "idle": idle, "backpressure": backpressure, "seed": seed}
        payload_array = np.frombuffer(payload, np.uint8)
        self._remember(lambda harness: harness.run(batch, payload_array, **options), batch.nbytes + len(payload))
        try:
            result = self.harness.run(batch, payload_array, progress=progress, **options)
        except HarnessStall as stall:
            self._stuck, result = True, stall.result
        except RunError as error:
            self._stuck = True
            self._check(error.result.trace)
            wrong = NodeError(str(error))
            wrong.add_note(self.capture())
            raise wrong from error
        self._check(result.trace)
        self._requests += len(batch)
        return RunResult(result.results, result.data.data, result.cycles, len(result.trace), result.trace)

    def wait(self, cycles: int) -> None:
        """Let so many cycles pass."""
        self._do(lambda harness: harness.idle(cycles))

    def read_register(self, address: int) -> int:
        return int(self._access(address, lambda harness: harness.read_register(address)))

    def write_register(self, address: int, data: int) -> None:
        """Ends when the sweeper has had the time to carry it out. A write that asks for a reset is carried out as
        whoever drives the node would: with the next boot_epoch.
        """
        self._access(address, lambda harness: harness.write_register(address, data))
        if address != EVENT_POP_ADDRESS:
            self.wait(SWEEP_ROUND * self.config.ports * (self.config.ports + 1) + 2 * DIRECTORY_LATENCY_CYCLES)
        if address == CONTROL_ADDRESS and data & CONTROL_RESET_MASK:
            self.reset((self.boot_epoch + 1) % (1 << self.config.boot_epoch_bits))

    def events(self) -> list[RawEvent]:
        return drain(self)

    def port_down(self, port: int, down: bool = True) -> None:
        set_port_down(self, port, down)

    def retire_model(self, partition: int, model_id: int) -> None:
        self.write_register(MODEL_RETIRE_ADDRESS, partition << MODEL_RETIRE_PARTITION_SHIFT | model_id)

    def statistics(self) -> dict[str, Any]:
        request_beats, response_beats = self.harness.counters()
        return {
            "requests": self._requests,
            "cycles": self.harness.cycle,
            "lockstep_operations": self.lockstep.operations if self.lockstep else None,
            "request_beats": [int(count) for count in request_beats],
            "response_beats": [int(count) for count in response_beats],
        }

    def capture(self, cycle: int | None = None) -> str:
        """Write a waveform of the cycles before `cycle` (by default the present), by running everything since reset
        again; returns a sentence that says where it is."""
        cycle = self.harness.cycle if cycle is None else cycle
        first, last = max(0, cycle - WAVES_BEFORE_CYCLES), cycle + WAVES_AFTER_CYCLES
        if self._history is None:
            return f"too much was run to repeat it: run again with --waves --window {first}:{last}"
        path = Path(tempfile.mkdtemp(prefix="kvnode-")) / "difference.vcd"
        with Harness(self.config, self._fault, waves=True, optimise=self._optimise) as harness:
            harness.waves(path, first, last)
            harness.reset(self.boot_epoch)
            try:
                for step in self._history:
                    step(harness)
                harness.idle(max(0, last - harness.cycle))
            except HarnessError:
                pass  # The run that is being looked at.
        return f"waveform of cycles {first} to {last}: {path}"

    def _check(self, trace: Any) -> None:
        if self.lockstep is None:
            return
        try:
            self.lockstep.check(trace)
        except Difference as difference:
            self._stuck = True
            difference.add_note(self.capture(difference.record["cycle"]))
            raise

    def _access(self, address: int, step: Step) -> Any:
        try:
            return self._do(step)
        except RunError:
            self._stuck = True
            raise
        except HarnessError:
            raise RegisterError(f"no register stands at {address:#06x}") from None

    def _do(self, step: Step) -> Any:
        """Something that is no batch, remembered, its trace checked with that of the next run."""
        if self._stuck:
            raise TransportError("the node did not answer an earlier run; reset it")
        self._remember(step, 64)
        return step(self.harness)

    def _remember(self, step: Step, size_bytes: int) -> None:
        self._history_bytes += size_bytes
        if self._history_bytes > self._history_limit_bytes:
            self._history = None
        if self._history is not None:
            self._history.append(step)


def cocotb_cycles_per_second(config: NodeConfig, batch: Batch, payload: bytes) -> float:
    """Cycles per second of the same batch driven by cocotb. Used by: benches.sim."""
    try:
        from kvnode.verif.benches.speed import cocotb_cycles_per_second as measure
    except ImportError as error:
        raise TransportError(f"{error}: the comparison with cocotb needs pip install 'kvnode[sim]'") from None
    return float(measure(config, batch, payload))
