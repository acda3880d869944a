"""Batches of requests on the node through cocotb: the same arrays in and out as verif.harness.

Used by: node bench, speed.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kvnode.models.spec.batch import RESPONSE_DTYPE, RESULT_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import ResponseFlag, Status
from kvnode.models.spec.messages import HANDLE, REQUEST

from ..harness.contract import WITH_HANDLE, WITH_SESSION
from .port import NodePort, Request

if TYPE_CHECKING:
    from .bench import Bench

__all__ = ["BatchRun"]

#: Messages that stand ready in a port's source, so that it never waits for one.
READY = 2
ANSWERED, SKIPPED = 1, 2


@dataclass
class _Sender:
    """What a port has still to send. `patient`: the request that it may have to send again, from `deadline` on not."""

    queue: deque[int] = field(default_factory=deque)
    patient: int | None = None
    deadline: int | None = None
    refused: bool = False
    woken: bool = False
    message: tuple[bytes, bytes] = b"", b""


class BatchRun:
    """An agent that sends `batch` (BATCH_DTYPE) and gathers `results` (RESULT_DTYPE) and their payloads.

    What the fields mean models.spec.batch says. `idle` and `backpressure` give the pattern of each port. `done` when
    everything is answered or skipped; cycles count from reset, as in the harness. `wakes` counts those of each port.
    """

    def __init__(
        self,
        bench: "Bench",
        config: NodeConfig,
        batch: np.ndarray,
        payload: bytes,
        idle: Callable[[int], Callable[[], bool]] = lambda port: lambda: False,
        backpressure: Callable[[int], Callable[[], bool]] = lambda port: lambda: False,
    ):
        self.bench, self.left, self._first_cycle = bench, len(batch), bench.cycle
        self._batch, self._payload = batch, payload
        self.results = np.zeros(len(batch), RESULT_DTYPE)
        self.wakes = np.zeros(config.ports, np.uint64)
        self.data = bytearray()
        self._state = [0] * len(batch)
        self._senders = [_Sender() for _ in range(config.ports)]
        for index, port in enumerate(batch["port"].tolist()):
            self._senders[port].queue.append(index)
        self.ports = [
            NodePort(bench, config, port, idle(port), backpressure(port), self._answered, self._waker(port))
            for port in range(config.ports)
        ]
        bench.add(self)
        # This agent gives the sources their messages, so it drives before them.
        bench.agents.insert(0, bench.agents.pop())

    @property
    def done(self) -> bool:
        return self.left == 0

    def payload(self, index: int) -> bytes:
        """The bytes that followed the answer to request `index`."""
        start = int(self.results[index]["data_offset"])
        return bytes(self.data[start : start + int(self.results[index]["data_bytes"])])

    def sample(self) -> None:
        pass

    def drive(self) -> None:
        for port, sender in zip(self.ports, self._senders):
            if sender.patient is not None:
                assert sender.deadline is not None or not sender.refused
                if sender.refused and (sender.woken or self.bench.cycle >= (sender.deadline or 0)):
                    sender.refused = False
                    self._send(port, sender, sender.patient)
                continue
            while sender.queue and sender.patient is None and len(port.sending) < READY:
                index = sender.queue[0]
                row = self._batch[index]
                sources = int(row["handle_from"]), int(row["session_from"])
                if int(row["earliest_cycle"]) > self.bench.cycle - self._first_cycle or any(
                    source >= 0 and not self._state[source] for source in (int(row["after"]), *sources)
                ):
                    break
                sender.queue.popleft()
                header = self._header(row["header"].tobytes(), *sources)
                if header is None:
                    self._finish(index, SKIPPED)
                    continue
                start = int(row["payload_offset"])
                sender.message = header, bytes(self._payload[start : start + int(row["payload_bytes"])])
                if row["patience"]:
                    sender.patient, sender.deadline = index, None
                self._send(port, sender, index)

    def _send(self, port: NodePort, sender: _Sender, index: int) -> None:
        sender.woken = False
        self.results["tries"][index] += 1
        port.send(*sender.message, index)

    def _header(self, header: bytes, handle_from: int, session_from: int) -> bytes | None:
        """The header with the handle and the session of earlier answers; None if one of them gives none."""
        fields = REQUEST.unpack(header)
        if handle_from >= 0:
            given = self.results["header"][handle_from]
            if self._state[handle_from] != ANSWERED or given["status"] not in WITH_HANDLE:
                return None
            handle = HANDLE.unpack(fields["digest"].to_bytes(HANDLE.size_bytes, "little"))
            handle |= {name: int(given[name]) for name in ("slot", "generation", "boot_epoch")}
            if given["flags"] & ResponseFlag.LEASED:
                handle["lease"] = int(given["watermark"])
            fields["digest"] = int.from_bytes(HANDLE.pack(**handle), "little")
        if session_from >= 0:
            given = self.results["header"][session_from]
            if (
                self._state[session_from] != ANSWERED
                or given["status"] != Status.OK
                or given["opcode"] not in WITH_SESSION
            ):
                return None
            fields |= {"session": int(given["slot"]), "session_epoch": int(given["generation"])}
        return REQUEST.pack(**fields)

    def _waker(self, number: int) -> Callable[[int], None]:
        def woken(cycle: int) -> None:
            self.wakes[number] += 1
            self._senders[number].woken = True

        return woken

    def _answered(self, request: Request) -> None:
        index, header = request.note, np.frombuffer(request.response, RESPONSE_DTYPE)[0]
        cycles = (request.sent_cycle - 1, request.first_cycle - 1, request.last_cycle - 1)
        sender = self._senders[int(self._batch["port"][index])]
        self.results[index] = (
            ANSWERED, self.results["tries"][index], len(request.data), len(self.data), *cycles, header
        )  # fmt: skip
        if sender.patient == index:
            if sender.deadline is None:
                sender.deadline = request.sent_cycle + int(self._batch["patience"][index])
            if header["status"] == Status.NOT_READY and request.last_cycle < sender.deadline:
                sender.refused = True
                return
            sender.patient = None
        self.data += request.data
        self._finish(index, ANSWERED)

    def _finish(self, index: int, state: int) -> None:
        self._state[index] = state
        self.results["done"][index] = state
        self.left -= 1
