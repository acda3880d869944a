"""Every answer of a run against the golden node: header and bytes, message by message."""

from collections import deque
from typing import Any

import numpy as np

from kvnode.models.golden.directory import Operation, Result
from kvnode.models.golden.lockstep import Lockstep, describe
from kvnode.models.golden.node import Answer
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Kind, Opcode, Status
from kvnode.models.spec.messages import HANDLE, REQUEST, RESPONSE, TRACE, TraceFlag
from kvnode.models.spec.requests import check_request, match_digests, payload_beats

_COLUMN = {name: position for position, name in enumerate(TRACE.fields)}
_HANDLE_FIELDS = ("slot", "generation", "boot_epoch")
DONE_ANSWERED = 1


class WrongAnswer(AssertionError):
    """A port answered otherwise than the golden node, or issued another operation than the message asked for."""


class MessageCheck:
    """Follows a node over any number of runs, from reset on.

    `check(batch, payload, run)` takes what was sent and what a run of the harness gave. It steps lockstep with the
    run's trace, checks that each port issued just the operations its messages ask for, and compares every answer's
    header and payload. Raises golden.Difference or WrongAnswer naming the request.

    Used by: verif.test_lockstep.
    """

    def __init__(self, config: NodeConfig, boot_epoch: int = 0):
        self.config = config
        self.lockstep = Lockstep(config, boot_epoch)
        self.answers_checked = 0

    def check(self, batch: np.ndarray, payload: bytes, run: Any) -> None:
        node = self.lockstep.node
        sent: list[deque[_Message]] = [deque() for _ in range(self.config.ports)]
        messages = []
        for index in np.flatnonzero(run.results["done"] == DONE_ANSWERED).tolist():
            message = _Message(node, self.config, batch, payload, run, index)
            sent[message.port].append(message)
            messages.append(message)
        landing: list[deque[_Message]] = [deque() for _ in range(self.config.ports)]
        for row in run.trace.tolist():
            result = self.lockstep.step(row)
            owner = row[_COLUMN["owner"]]
            if owner >= self.config.ports:
                continue
            kind = row[_COLUMN["kind"]]
            if kind == Kind.LAND:
                if not landing[owner]:
                    raise WrongAnswer(f"port {owner} issued LAND in cycle {row[_COLUMN['cycle']]} for no WRITE")
                landing[owner].popleft().land(row, result)
                continue
            queue = sent[owner]
            while queue and queue[0].over(row):
                queue.popleft()
            if not queue:
                raise WrongAnswer(
                    f"port {owner} issued {Kind(kind).name} in cycle {row[_COLUMN['cycle']]} for no message"
                )
            message = queue[0]
            message.operation(row, result)
            if message.status == Status.OK and message.opcode == Opcode.MATCH:
                continue
            queue.popleft()
            if message.opcode == Opcode.WRITE and kind == Kind.WRITE and result.status == Status.OK:
                landing[owner].append(message)
        for message in messages:
            message.compare(run)
        self.answers_checked += len(messages)


class _Message:
    """One request that was answered, and what the golden node answers."""

    def __init__(self, node: Any, config: NodeConfig, batch: np.ndarray, payload: bytes, run: Any, index: int):
        row = batch[index]
        self.node, self.config, self.index, self.port = node, config, index, int(row["port"])
        self.fields = REQUEST.unpack(row["header"].tobytes())
        if row["handle_from"] >= 0:
            granted = run.results["header"][row["handle_from"]]
            digest = bytearray(self.fields["digest"].to_bytes(32, "little"))
            digest[:12] = HANDLE.pack(**{name: int(granted[name]) for name in _HANDLE_FIELDS})[:12]
            self.fields["digest"] = int.from_bytes(digest, "little")
        offset = int(row["payload_offset"])
        self.payload = bytes(payload[offset : offset + int(row["payload_bytes"])])
        self.opcode = self.fields["opcode"]
        self.status = check_request(config, self.port, node.boot_epoch, self.fields, len(self.payload))
        self.answer: Answer | None = None
        self._row: tuple[Any, ...] | None = None
        self._count, self._asked, self._missed = 0, 0, False
        self._digests, self._whole = match_digests(config, self.fields["length"], self.payload)

    def __str__(self) -> str:
        where = "" if self._row is None else f", {describe(dict(zip(TRACE.fields, self._row, strict=True)))}"
        return f"request {self.index} on port {self.port} ({self.fields}){where}"

    def over(self, row: tuple[Any, ...]) -> bool:
        """A MATCH ends when another operation comes on its port, or the first of another MATCH."""
        if self.status != Status.OK or self.opcode != Opcode.MATCH:
            return False
        if self._asked == 0 and min(len(self.payload), self.fields["length"]) >= 32:
            return False
        return row[_COLUMN["kind"]] != Kind.MATCH or bool(row[_COLUMN["flags"]] & TraceFlag.CHAIN_FIRST)

    def operation(self, row: tuple[Any, ...], result: Result) -> None:
        """Take one operation of the trace as this message's."""
        self._row = row
        if self.status != Status.OK or self.opcode == Opcode.PING:
            got = (row[_COLUMN["kind"]], row[_COLUMN["status"]])
            if got != (Kind.ANSWER, self.status):
                raise WrongAnswer(f"{self}: should be answered {self.status.name}, not {Kind(got[0]).name} {got[1]}")
            self.answer = self.node.answer(self.fields, self.status)
            return
        if self.opcode == Opcode.MATCH:
            digest = self._digests[self._asked] if self._asked < len(self._digests) else 0
            expected = Operation(
                self.port,
                Kind.MATCH,
                row[_COLUMN["partition"]],
                self.fields["model_id"],
                self.fields["group"],
                digest=digest,
                chain_first=self._asked == 0,
            )
            self._asked += 1
            self._missed |= result.status != Status.HIT
            self._count += not self._missed
        else:
            expected = self.node.operation_of(self.port, self.fields)
            length, data = self.node.transfer(expected.partition, self.fields, result, self.payload)
            self.finish(result, length, data)
        self._compare_operation(row, expected)

    def land(self, row: tuple[Any, ...], result: Result) -> None:
        """Take the LAND behind this WRITE."""
        self._row = row
        size = payload_beats(self.config, len(self.payload))
        whole = size == payload_beats(self.config, self.fields["length"])
        expected = self.node.operation_of(self.port, self.fields)
        self._compare_operation(row, expected._replace(kind=Kind.LAND, whole=whole))
        self.finish(result, result.length * self.config.beat_bytes, b"")

    def _compare_operation(self, row: tuple[Any, ...], expected: Operation) -> None:
        names = ("kind", "partition", "model_id", "group", "slot", "generation", "offset", "length")
        wrong = [name for name in names if row[_COLUMN[name]] != getattr(expected, name)]
        if bool(row[_COLUMN["flags"]] & TraceFlag.WHOLE) != expected.whole:
            wrong.append("whole")
        if int.from_bytes(row[_COLUMN["digest"]], "little") != expected.digest:
            wrong.append("digest")
        if wrong:
            raise WrongAnswer(f"{self}: the port issued another {wrong[0]} than {expected}")

    def finish(self, result: Result, length: int, data: bytes) -> None:
        self.answer = self.node.answer(self.fields, result.status, result, length, data)

    def compare(self, run: Any) -> None:
        if self.status == Status.OK and self.opcode == Opcode.MATCH:
            asked = len(self._digests)
            if self._asked > asked or not self._missed and self._asked < asked:
                raise WrongAnswer(f"{self}: looked up {self._asked} of {asked} digests")
            status = Status.BAD_REQUEST if not self._whole else Status.HIT if self._count else Status.MISS
            self.answer = self.node.answer(self.fields, status, count=self._count if self._whole else 0)
        if self.answer is None:
            raise WrongAnswer(f"{self}: was answered without an operation")
        header = RESPONSE.unpack(run.results["header"][self.index].tobytes())
        if header != self.answer.fields:
            wrong = {n: (header[n], v) for n, v in self.answer.fields.items() if header[n] != v}
            raise WrongAnswer(f"{self}: the answer's (RTL, golden) differ: {wrong}")
        if run.payload(self.index) != self.answer.data:
            raise WrongAnswer(f"{self}: the bytes differ from what was written")
