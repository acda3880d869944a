"""The golden node as a transport: exact answers at once, no clock."""

from collections import Counter
from typing import Any

import numpy as np

from kvnode.models.golden import Answer, GoldenNode
from kvnode.models.golden.directory import Operation, Result
from kvnode.models.spec.batch import RESULT_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Kind, Status
from kvnode.models.spec.messages import REQUEST, RESPONSE

from ..transport import ANSWERED, SKIPPED, Batch, RunResult, check_batch, check_patterns

#: Answers with these statuses carry a handle (spec.batch).
_WITH_HANDLE = frozenset((Status.GRANTED, Status.HIT, Status.OK))
_DIGEST_BYTE = REQUEST.fields["digest"].offset_bytes
_DIGEST_BYTES = REQUEST.fields["digest"].size_bytes


class _CountingNode(GoldenNode):
    """A golden node that counts its operations by kind."""

    def __init__(self, config: NodeConfig, boot_epoch: int):
        super().__init__(config, boot_epoch)
        self.counts = [0] * len(Kind)

    def operate(self, op: Operation, cycle: int | None = None) -> Result:
        self.counts[op.kind] += 1
        return GoldenNode.operate(self, op, cycle)


class GoldenTransport:
    """`Transport` on `GoldenNode`: every request is a message to `GoldenNode.request`, in array order; idle,
    backpressure and cycles mean nothing.

    Used by: replay --on golden, client, tests.
    """

    name = "golden"

    def __init__(self, config: NodeConfig, boot_epoch: int = 0):
        self.config, self.boot_epoch = config, boot_epoch
        self.node = _CountingNode(config, boot_epoch)
        self._requests = 0

    def __enter__(self) -> "GoldenTransport":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held open."""

    def retire_model(self, partition: int, model_id: int) -> None:
        self.node.retire_model(partition, model_id)

    def capture(self, cycle: int | None = None) -> str:
        return "The golden node has no waveform."

    def statistics(self) -> dict[str, Any]:
        occupancy: Counter[str] = Counter()
        for partition in self.node.partitions:
            occupancy.update({state.name: count for state, count in partition.occupancy().items()})
        return {
            "requests": self._requests,
            "lockstep_operations": None,
            "operations": {kind.name: self.node.counts[kind] for kind in Kind if self.node.counts[kind]},
            "occupancy": dict(occupancy),
            "free_slots": [partition.free_count for partition in self.node.partitions],
        }

    def run(
        self,
        batch: Batch,
        payload: bytes | bytearray | memoryview = b"",
        *,
        idle: float = 0.0,
        backpressure: float = 0.0,
        seed: int = 0,
        max_cycles: int | None = None,
    ) -> RunResult:
        check_batch(self.config, batch, len(payload))
        check_patterns(idle, backpressure)
        before = sum(self.node.counts)
        answers = self._answers(batch, memoryview(payload))
        self._requests += len(batch)
        data = b"".join([answer.data for answer in answers if answer is not None])
        return RunResult(_results(answers), memoryview(data), 0, sum(self.node.counts) - before)

    def _answers(self, batch: Batch, payload: memoryview) -> list[Answer | None]:
        """The node's answer to each request, None for one that was skipped."""
        node, size_bytes = self.node, REQUEST.size_bytes
        headers = batch["header"].tobytes()
        rows = zip(*(batch[name].tolist() for name in ("port", "handle_from", "payload_offset", "payload_bytes")))
        answers: list[Answer | None] = []
        for index, (port, handle_from, offset, payload_bytes) in enumerate(rows):
            header = headers[index * size_bytes : (index + 1) * size_bytes]
            if handle_from >= 0:
                source = answers[handle_from]
                if source is None or source.status not in _WITH_HANDLE:
                    answers.append(None)
                    continue
                handle = node.handle_of(source).to_bytes(_DIGEST_BYTES, "little")
                header = header[:_DIGEST_BYTE] + handle + header[_DIGEST_BYTE + _DIGEST_BYTES :]
            data = bytes(payload[offset : offset + payload_bytes]) if payload_bytes else b""
            answers.append(node.request(port, header, data))
        return answers


def _results(answers: list[Answer | None]) -> Any:
    """RESULT_DTYPE rows of the answers; data lies in the order of the answers."""
    results = np.zeros(len(answers), RESULT_DTYPE)
    answered = np.array([answer is not None for answer in answers], bool)
    results["done"] = np.where(answered, ANSWERED, SKIPPED)
    sizes = np.array([0 if answer is None else len(answer.data) for answer in answers], np.uint64)
    results["data_bytes"], results["data_offset"] = sizes, np.cumsum(sizes) - sizes
    rows = [tuple(answer.fields.values()) for answer in answers if answer is not None]
    header = results["header"]
    for name, column in zip(RESPONSE.fields, zip(*rows)):
        header[name][answered] = column
    return results
