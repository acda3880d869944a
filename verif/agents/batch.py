"""Batches of requests on the node through cocotb: the same arrays in and out as verif.harness.

Used by: node bench, speed.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kvnode.models.spec.batch import RESPONSE_DTYPE, RESULT_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Status
from kvnode.models.spec.messages import HANDLE, REQUEST

from .port import NodePort, Request

if TYPE_CHECKING:
    from .bench import Bench

__all__ = ["BatchRun"]

#: Messages that stand ready in a port's source, so that it never waits for one.
READY = 2
WITH_HANDLE = (Status.GRANTED, Status.HIT, Status.OK)
HANDLE_BYTES = HANDLE.fields["run"].offset_bytes
DIGEST = REQUEST.fields["digest"].offset_bytes


class BatchRun:
    """An agent that sends `batch` (BATCH_DTYPE) and gathers `results` (RESULT_DTYPE) and their payloads.

    Order, `after`, `handle_from` and `earliest_cycle` mean what models.spec.batch says. `idle` and `backpressure` give
    the pattern of each port. `done` when everything is answered or skipped; cycles count from reset, as in the harness.
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
        self.results = np.zeros(len(batch), RESULT_DTYPE)
        self.data = bytearray()
        self._state = [0] * len(batch)
        self._handle: list[bytes | None] = [None] * len(batch)
        self._requests: list[deque] = [deque() for _ in range(config.ports)]
        names = ("port", "after", "handle_from", "payload_bytes", "payload_offset", "earliest_cycle")
        for index, (port, after, handle_from, size, offset, earliest) in enumerate(
            zip(*(batch[n].tolist() for n in names))
        ):
            header = batch[index]["header"].tobytes()
            self._requests[port].append(
                (index, after, handle_from, earliest, header, bytes(payload[offset : offset + size]))
            )
        self.ports = [
            NodePort(bench, config, port, idle(port), backpressure(port), self._answered)
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
        state = self._state
        for port, queue in zip(self.ports, self._requests):
            while queue and len(port.sending) < READY:
                index, after, handle_from, earliest, header, payload = queue[0]
                if (
                    earliest > self.bench.cycle - self._first_cycle
                    or after >= 0 and not state[after]
                    or handle_from >= 0 and not state[handle_from]
                ):  # fmt: skip
                    break
                queue.popleft()
                if handle_from >= 0:
                    handle = self._handle[handle_from]
                    if handle is None:
                        self._finish(index, 2)
                        continue
                    header = header[:DIGEST] + handle + header[DIGEST + HANDLE_BYTES :]
                port.send(header, payload, index)

    def _answered(self, request: Request) -> None:
        index, header = request.note, np.frombuffer(request.response, RESPONSE_DTYPE)[0]
        if header["status"] in WITH_HANDLE:
            self._handle[index] = HANDLE.pack(**{n: int(header[n]) for n in ("slot", "generation", "boot_epoch")})[
                :HANDLE_BYTES
            ]
        cycles = (request.sent_cycle - 1, request.first_cycle - 1, request.last_cycle - 1)
        self.results[index] = (1, len(request.data), len(self.data), *cycles, header)
        self.data += request.data
        self._finish(index, 1)

    def _finish(self, index: int, state: int) -> None:
        self._state[index] = state
        self.results["done"][index] = state
        self.left -= 1
