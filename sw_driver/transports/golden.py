"""The golden node as a transport: exact answers at once, no clock."""

from collections import Counter
from typing import Any

import numpy as np

from kvnode.models.golden import GoldenNode
from kvnode.models.golden.node import Operation
from kvnode.models.spec.batch import HANDLE_DTYPE, RESULT_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import KIND_OF_OPCODE, Flag, Kind, Opcode, State, Status
from kvnode.models.spec.messages import VERSION
from kvnode.models.spec.requests import BY_HANDLE_ONLY

from ..transport import ANSWERED, SKIPPED, Batch, RunResult, check_batch, check_patterns

#: Answers with these statuses carry a handle (spec.batch).
_WITH_HANDLE = frozenset((Status.GRANTED, Status.HIT, Status.OK))
#: What a run keeps of an answer; a skipped request has none.
_KEPT = ("status", "count", "slot", "generation", "length", "watermark")
_NO_ANSWER = (0,) * len(_KEPT)
#: Fields of the request header that a well-formed message leaves at zero.
_UNUSED = ("member", "ttl", "deadline", "reserved", "session_epoch", "session", "sequence")


# Members of enumerations are slow to look up, and these are needed for every request.
_MATCH, _READ, _WRITE = Opcode.MATCH, Opcode.READ, Opcode.WRITE
_OK, _HIT, _MISS, _GRANTED = Status.OK, Status.HIT, Status.MISS, Status.GRANTED
_SEALED, _RETIRING = State.SEALED, State.RETIRING
_BY_HANDLE_ONLY = frozenset(BY_HANDLE_ONLY)
_KINDS = {int(opcode): kind for opcode, kind in KIND_OF_OPCODE.items()}


class GoldenTransport:
    """`Transport` on `GoldenNode`. Requests are executed in array order; idle, backpressure and cycles mean nothing.

    Plain requests are taken to the directory directly; whatever may be malformed goes through `GoldenNode.request`,
    which answers every message there is. Both give the same answers (tests/sw_driver/test_golden_transport.py).

    Used by: replay --on golden, client, tests.
    """

    name = "golden"

    def __init__(self, config: NodeConfig, boot_epoch: int = 0):
        self.config, self.boot_epoch = config, boot_epoch
        self.node = GoldenNode(config, boot_epoch)
        self._operations: Counter[str] = Counter()
        self._requests = 0

    def __enter__(self) -> "GoldenTransport":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held open."""

    def retire_model(self, partition: int, model_id: int) -> None:
        self.node.retire_model(partition, model_id)
        self._operations["RETIRE_MODEL"] += 1
        self._operations["swept"] += self.node.sweep(partition)

    def capture(self, cycle: int | None = None) -> str:
        return "The golden node has no waveform."

    def statistics(self) -> dict[str, Any]:
        occupancy: Counter[str] = Counter()
        for partition in self.node.partitions:
            occupancy.update({state.name: count for state, count in partition.occupancy().items()})
        return {
            "requests": self._requests,
            "lockstep_operations": None,
            "operations": dict(self._operations),
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
        run = _Run(self.node, batch, memoryview(payload))
        results = run.execute()
        self._requests += len(batch)
        self._operations.update(run.operations)
        return RunResult(results, memoryview(run.data), 0, sum(run.operations.values()))


class _Run:
    """One batch on its way through the node."""

    def __init__(self, node: GoldenNode, batch: Batch, payload: memoryview):
        self.node, self.batch, self.payload = node, batch, payload
        self.beat_bytes, self.partition_of_port = node.config.beat_bytes, node.config.partition_of_port
        self.data = bytearray()
        self.counts = [0] * len(Opcode)
        self.landed = self.swept = self.messages = 0

    @property
    def operations(self) -> Counter[str]:
        """Operations by kind; `message` are requests that took the long way, one each."""
        counts = Counter({Opcode(opcode).name: count for opcode, count in enumerate(self.counts) if count})
        for name, count in (("LAND", self.landed), ("swept", self.swept), ("message", self.messages)):
            if count:
                counts[name] = count
        return counts

    def execute(self) -> Any:
        batch = self.batch
        header = batch["header"]
        plain = _plain(self.node.config, self.node.boot_epoch, batch).tolist()
        digests = header["digest"].tobytes()
        rows = zip(
            batch["port"].tolist(), batch["handle_from"].tolist(), batch["payload_bytes"].tolist(),
            batch["payload_offset"].tolist(), header["opcode"].tolist(), header["flags"].tolist(),
            header["klass"].tolist(), header["model_id"].tolist(), header["group"].tolist(),
            header["offset"].tolist(), header["length"].tolist(),
        )  # fmt: skip
        opcodes, tags = header["opcode"].tolist(), header["tag"].tolist()
        answers: list[tuple[int, ...] | None] = []
        data_sizes, data_offsets = [], []
        for index, row in enumerate(rows):
            handle_from = row[1]
            handle = None
            if handle_from >= 0:
                source = answers[handle_from]
                if source is None or source[0] not in _WITH_HANDLE:
                    answers.append(None)
                    data_sizes.append(0)
                    data_offsets.append(0)
                    continue
                handle = source
            before = len(self.data)
            if plain[index]:
                answer = self._direct(row, digests[32 * index : 32 * index + 32], handle)
            else:
                answer = self._message(index, row, handle)
            answers.append(answer)
            data_offsets.append(before)
            data_sizes.append(len(self.data) - before)
        results = np.zeros(len(batch), RESULT_DTYPE)
        results["done"] = [SKIPPED if answer is None else ANSWERED for answer in answers]
        results["data_bytes"], results["data_offset"] = data_sizes, data_offsets
        columns = list(zip(*(answer or _NO_ANSWER for answer in answers))) or [()] * len(_KEPT)
        answered = results["done"] == ANSWERED
        out = results["header"]
        for name, column in zip(_KEPT, columns):
            out[name] = column
        for name, values in (("opcode", opcodes), ("tag", tags)):
            out[name] = np.where(answered, np.array(values, np.int64), 0)
        out["version"] = np.where(answered, VERSION, 0)
        out["boot_epoch"] = np.where(answered, self.node.boot_epoch, 0)
        return results

    def _direct(self, row: tuple[int, ...], digest: bytes, handle: tuple[int, ...] | None) -> tuple[int, ...]:
        """The kept part of the answer to a well-formed request."""
        port, _, payload_bytes, payload_offset, opcode, flags, klass, model_id, group, offset, length = row
        node, beat_bytes = self.node, self.beat_bytes
        partition = self.partition_of_port[port]
        if opcode == _MATCH:
            count = 0
            for at in range(payload_offset, payload_offset + payload_bytes, 32):
                key = int.from_bytes(self.payload[at : at + 32], "little")
                first = at == payload_offset
                operation = Operation(port, Kind.MATCH, partition, model_id, group, digest=key, chain_first=first)
                self.counts[_MATCH] += 1
                if node.operate(operation).status != _HIT:
                    break
                count += 1
            return (_HIT if count else _MISS), count, 0, 0, 0, 0
        by_handle = flags != 0 or opcode in _BY_HANDLE_ONLY
        slot = generation = key = 0
        if not by_handle:
            key = int.from_bytes(digest, "little")
        elif handle is not None:
            slot, generation = handle[2], handle[3]
        else:
            slot, generation = int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")
        operation = Operation(
            port, _KINDS[opcode], partition, model_id, group, klass, by_handle, slot, generation,
            offset // beat_bytes, length // beat_bytes, key,
        )  # fmt: skip
        result = node.operate(operation)
        self.counts[opcode] += 1
        part = node.partitions[partition]
        status = result.status
        answer_length = result.length * beat_bytes
        if opcode == _READ:
            if status == _OK:
                answer_length = length or answer_length - offset
                self.data += part.store.read(result.slot, offset, answer_length)
            else:
                answer_length = 0
        elif opcode == _WRITE and status == _OK:
            part.store.write(slot, offset, bytes(self.payload[payload_offset : payload_offset + payload_bytes]))
            result = node.operate(operation._replace(kind=Kind.LAND, whole=True))
            status = result.status
            self.landed += 1
        self.swept += node.sweep(partition)
        if not (result.present and result.state_before != _RETIRING or status == _GRANTED):
            return status, 0, 0, 0, 0, 0
        end = result.length if result.state_after == _SEALED else result.landed
        return status, 0, result.slot, result.generation, answer_length, end * beat_bytes

    def _message(self, index: int, row: tuple[int, ...], handle: tuple[int, ...] | None) -> tuple[int, ...]:
        """The same of any request, through the bytes of its message."""
        record = self.batch["header"][index : index + 1].copy()
        if handle is not None:
            field = np.frombuffer(record["digest"].tobytes(), HANDLE_DTYPE).copy()
            field["slot"], field["generation"], field["boot_epoch"] = handle[2], handle[3], self.node.boot_epoch
            record["digest"] = np.frombuffer(field.tobytes(), "V32")
        payload = bytes(self.payload[row[3] : row[3] + row[2]])
        answer = self.node.request(row[0], record.tobytes(), payload)
        self.data += answer.data
        self.messages += 1
        fields = answer.fields
        return tuple(fields[name] for name in _KEPT)


def _plain(config: NodeConfig, boot_epoch: int, batch: Batch) -> Any:
    """Which requests are well-formed beyond doubt: a quick vectorised subset of what `spec.requests` lets pass."""
    header = batch["header"]
    opcode, flags = header["opcode"], header["flags"]
    offset, length = header["offset"].astype(np.int64), header["length"].astype(np.int64)
    payload = batch["payload_bytes"].astype(np.int64)
    beat, room = config.beat_bytes, config.block_bytes
    digest = header["digest"].tobytes()
    words = np.frombuffer(digest, "<u4").reshape(-1, 8)
    by_flag = flags == Flag.BY_HANDLE
    always = (opcode == Opcode.WRITE) | (opcode == Opcode.PUT_END) | (opcode == Opcode.PUT_REVOKE)
    by_handle = always | by_flag
    slots = np.array([part.slots for part in config.partitions])[np.array(config.partition_of_port)[batch["port"]]]
    written = (batch["handle_from"] >= 0) | (
        (words[:, 0] < slots) & (words[:, 1] >> min(config.generation_bits, 31) == 0) & (words[:, 2] == boot_epoch)
    )
    named = (words[:, 3:] == 0).all(axis=1) & written
    key_good = _high_bits_clear(words, config.digest_bits)
    good = (
        (header["version"] == VERSION)
        & (opcode >= Opcode.LOOKUP)
        & (opcode <= Opcode.DROP)
        & (header["model_id"] < config.models)
        & (header["klass"] < 4)
        & ((flags == 0) | by_flag & (always | (opcode == Opcode.READ) | (opcode == Opcode.DROP)))
        & (header["partition"] == np.array(config.partition_of_port)[batch["port"]])
        & np.where(by_handle, named, key_good)
        & ((batch["handle_from"] < 0) | by_handle)
    )
    for name in _UNUSED:
        good &= header[name] == 0
    whole = (length % beat == 0) & (offset % beat == 0) & (offset < room)
    sizes = np.select(
        [opcode == Opcode.MATCH, opcode == Opcode.WRITE, opcode == Opcode.READ, opcode == Opcode.PUT_START],
        [
            (length % 32 == 0) & (length > 0) & (length <= config.max_payload_bytes) & (payload == length)
            & (offset == 0) & (words == 0).all(axis=1),
            whole & (length > 0) & (length <= config.max_payload_bytes) & (payload == length),
            whole & (length <= room) & (payload == 0),
            whole & (length > 0) & (length <= room) & (offset == 0) & (payload == 0),
        ],
        (length == 0) & (offset == 0) & (payload == 0),
    )  # fmt: skip
    return good & sizes


def _high_bits_clear(words: Any, digest_bits: int) -> Any:
    whole, rest = divmod(digest_bits, 32)
    clear = (words[:, whole + (1 if rest else 0) :] == 0).all(axis=1)
    if rest:
        clear &= words[:, whole] >> rest == 0
    return clear
