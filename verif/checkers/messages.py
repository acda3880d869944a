"""Every answer of a run against the golden node: header and bytes, message by message."""

from collections import deque
from typing import Any

import numpy as np

from kvnode.models.golden.directory import Operation, Result
from kvnode.models.golden.lockstep import Lockstep, describe
from kvnode.models.golden.node import Answer, GoldenNode
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Kind, Opcode, ResponseFlag, Status
from kvnode.models.spec.messages import HANDLE, REQUEST, RESPONSE, TRACE, TraceFlag
from kvnode.models.spec.requests import check_request, match_digests
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES

_COLUMN = {name: position for position, name in enumerate(TRACE.fields)}
_CYCLE, _OWNER, _KIND, _FLAGS, _WAKES = (_COLUMN[name] for name in ("cycle", "owner", "kind", "flags", "wakes"))
_ASKED = slice(_COLUMN["owner"], _COLUMN["digest"])
DONE_ANSWERED, DONE_LOST = 1, 3


class WrongAnswer(AssertionError):
    """A port answered otherwise than the golden node, or issued another operation than the message asked for."""


class MessageCheck:
    """Follows a node over any number of runs, from reset on.

    `check(batch, payload, run)` takes what was sent and what a run of the harness gave. It steps lockstep with the
    run's trace, checks that each port issued just the operations its messages ask for, and compares every answer's
    header and payload. Of messages that were lost with their port the operations are checked as far as they went.
    Raises golden.Difference or WrongAnswer naming the request.

    Used by: verif.test_lockstep.
    """

    def __init__(self, config: NodeConfig, boot_epoch: int = 0):
        self.config = config
        self.lockstep = Lockstep(config, boot_epoch)
        self.answers_checked = 0
        self._wakes = np.zeros(config.ports, np.int64)

    def check(self, batch: np.ndarray, payload: bytes, run: Any) -> None:
        node, ports = self.lockstep.node, self.config.ports
        sent: list[deque[_Message]] = [deque() for _ in range(ports)]
        messages = []
        for index in np.flatnonzero(run.results["tries"]).tolist():
            message = _Message(node, self.config, batch, payload, run, index)
            sent[message.port].append(message)
            messages.append(message)
        landing: list[deque[_Message]] = [deque() for _ in range(ports)]
        for row in run.trace.tolist():
            owner = row[_OWNER]
            if owner >= ports:
                self._woken(self.lockstep.step(row))
                continue
            cycle, kind = row[_CYCLE], row[_KIND]
            queue = landing[owner] if kind == Kind.LAND else sent[owner]
            while queue and queue[0].over(row):
                queue.popleft()
            if not queue:
                what = "WRITE" if kind == Kind.LAND else "message"
                raise WrongAnswer(f"port {owner} issued {Kind(kind).name} in cycle {cycle} for no {what}")
            message = queue[0]
            if message.operation(row, self.lockstep.step):
                queue.popleft()
            if message.lands and kind == Kind.WRITE:
                landing[owner].append(message)
            self._woken(message.result)
        for message in messages:
            if message.lost_cycle is None:
                message.compare(run)
                self.answers_checked += 1
        self._wakes -= run.wakes.astype(np.int64)
        if (self._wakes < 0).any():
            raise WrongAnswer(f"more wakes came to the ports than there were reasons: {self._wakes.tolist()}")

    def _woken(self, result: Result | None) -> None:
        if result is not None and result.wakes:
            for port in range(self.config.ports):
                self._wakes[port] += result.wakes >> port & 1


class _Message:
    """One request that was sent, and what the golden node answers. `lost_cycle`: when its port went down."""

    def __init__(self, node: GoldenNode, config: NodeConfig, batch: np.ndarray, payload: bytes, run: Any, index: int):
        row, outcome = batch[index], run.results[index]
        self.node, self.config, self.index, self.port = node, config, index, int(row["port"])
        self.fields = REQUEST.unpack(row["header"].tobytes())
        if row["handle_from"] >= 0:
            granted = run.results["header"][row["handle_from"]]
            handle = HANDLE.unpack(self.fields["digest"].to_bytes(32, "little"))
            handle |= {name: int(granted[name]) for name in ("slot", "generation", "boot_epoch")}
            if granted["flags"] & ResponseFlag.LEASED:
                handle["lease"] = int(granted["watermark"])
            self.fields["digest"] = int.from_bytes(HANDLE.pack(**handle), "little")
        if row["session_from"] >= 0:
            opened = run.results["header"][row["session_from"]]
            self.fields |= {"session": int(opened["slot"]), "session_epoch": int(opened["generation"])}
        offset = int(row["payload_offset"])
        self.payload = bytes(payload[offset : offset + int(row["payload_bytes"])])
        self.opcode = self.fields["opcode"]
        self.status = check_request(config, self.port, node.boot_epoch, self.fields, len(self.payload))
        self.lost_cycle = int(outcome["last_cycle"]) if outcome["done"] == DONE_LOST else None
        self.tries = int(outcome["tries"])
        self.answer: Answer | None = None
        self.result: Result | None = None
        #: An accepted WRITE, whose LAND will come.
        self.lands = False
        self._row: tuple[Any, ...] | None = None
        self._digests, self._whole = match_digests(config, self.fields["length"], self.payload)
        self._asked, self._first = 0, Status.OK
        self._hits: list[Result] = []
        self._is_match = self.status == Status.OK and self.opcode == Opcode.MATCH
        if self.status == Status.OK and self.opcode != Opcode.PING:
            self._expected = node.operation_of(self.port, self.fields)
        else:
            self._expected = Operation(self.port, Kind.ANSWER)

    def __str__(self) -> str:
        where = "" if self._row is None else f", {describe(dict(zip(TRACE.fields, self._row, strict=True)))}"
        return f"request {self.index} on port {self.port} ({self.fields}){where}"

    def over(self, row: tuple[Any, ...]) -> bool:
        """The next operation of the port is not this message's any more.

        A MATCH ends when another operation comes on its port, or the first of another MATCH; a lost message when
        nothing of it can be on its way.
        """
        if self.lost_cycle is not None and row[_CYCLE] > self.lost_cycle + DIRECTORY_LATENCY_CYCLES + 1:
            return True
        if not self._is_match or self._asked == 0 and self._digests:
            return False
        begins = row[_KIND] != Kind.MATCH or bool(row[_FLAGS] & TraceFlag.CHAIN_FIRST)
        return begins and (self.tries <= 1 or row[_KIND] != Kind.MATCH)

    def operation(self, row: tuple[Any, ...], step: Any) -> bool:
        """Take one operation of the trace as this message's; whether nothing but a LAND can follow."""
        self._row = row
        if self.lands:
            expected = self.node.landing_of(self._expected, self.fields, self.payload)
            self.result = step(row)
            self._compare_operation(row, expected, () if self.result.status == Status.OK else ("crc",))
            self.lands = False
            self._finish(self.result, self.result.length * self.config.beat_bytes, b"")
            return True
        self.result = result = step(row)
        if self.status != Status.OK or self.opcode == Opcode.PING:
            got = (row[_KIND], result.status)
            if got != (Kind.ANSWER, self.status):
                raise WrongAnswer(f"{self}: should be answered {self.status.name}, not {Kind(got[0]).name} {got[1]}")
            self.answer = self.node.answer(self.fields, self.status)
            return True
        if self.opcode == Opcode.MATCH:
            self._match(row, result)
            return False
        self._compare_operation(row, self._expected)
        length, data = self.node.transfer(self._expected.partition, self.fields, result, self.payload)
        self._finish(result, length, data)
        self.lands = self.opcode == Opcode.WRITE and result.status == Status.OK
        self.tries -= 1
        if self.tries and self.lost_cycle is None and result.status != Status.NOT_READY:
            raise WrongAnswer(f"{self}: was asked again, but the answer is {result.status.name}")
        return not self.tries

    def _match(self, row: tuple[Any, ...], result: Result) -> None:
        if row[_FLAGS] & TraceFlag.CHAIN_FIRST and self._asked:
            self.tries -= 1
            if self._first != Status.NOT_READY:
                raise WrongAnswer(f"{self}: was asked again, but the answer is {self._first.name}")
            self._asked, self._hits, self._first = 0, [], Status.OK
        digest = self._digests[self._asked] if self._asked < len(self._digests) else 0
        flags = self._expected.flags if self._asked else self._expected.flags | TraceFlag.CHAIN_FIRST
        self._compare_operation(row, self._expected._replace(digest=digest, flags=flags))
        if self._asked == 0 and result.status != Status.HIT:
            self._first = result.status
        if result.status == Status.HIT and len(self._hits) == self._asked:
            self._hits.append(result)
        self._asked += 1

    def _compare_operation(self, row: tuple[Any, ...], expected: Operation, but: tuple[str, ...] = ()) -> None:
        done = Operation._make((*row[_ASKED], int.from_bytes(row[_COLUMN["digest"]], "little")))
        done = done._replace(flags=done.flags & ~TraceFlag.PRESENT, status=expected.status)
        if done != expected:
            wrong = [n for n, a, b in zip(Operation._fields, done, expected) if a != b and n not in but]
            if wrong:
                raise WrongAnswer(f"{self}: the port issued another {wrong[0]} than {expected}")

    def _finish(self, result: Result, length: int, data: bytes) -> None:
        self.answer = self.node.answer(self.fields, result.status, result, length, data)

    def compare(self, run: Any) -> None:
        if self._is_match:
            asked = len(self._digests)
            if self._asked > asked or len(self._hits) == self._asked < asked:
                raise WrongAnswer(f"{self}: looked up {self._asked} of {asked} digests")
            self.answer = self.node.match_answer(self.fields, self._first, self._hits, self._whole)
        if self.answer is None or self.lands:
            raise WrongAnswer(f"{self}: was answered without an operation")
        header = RESPONSE.unpack(run.results["header"][self.index].tobytes())
        if header != self.answer.fields:
            wrong = {n: (header[n], v) for n, v in self.answer.fields.items() if header[n] != v}
            raise WrongAnswer(f"{self}: the answer's (RTL, golden) differ: {wrong}")
        if run.payload(self.index) != self.answer.data:
            raise WrongAnswer(f"{self}: the bytes differ from what was written")
