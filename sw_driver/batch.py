"""Batches of requests, made quickly: rows in plain Python, columns in numpy."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Flag, Opcode
from kvnode.models.spec.messages import VERSION
from kvnode.models.spec.requests import BY_HANDLE_ONLY

from .transport import Batch

DIGEST_BYTES = 32
_NO_DIGEST = bytes(DIGEST_BYTES)
_COLUMNS = ("port", "after", "handle_from", "payload_bytes", "earliest_cycle")
_HEADER_COLUMNS = ("opcode", "flags", "klass", "model_id", "group", "offset", "length")

#: Class of a block of no special kind.
NORMAL_CLASS = 1


class BatchBuilder:
    """Collects requests and their payload; `build` turns them into the arrays that `Transport.run` takes.

    `add` returns the request's index in the batch, for `after` and `handle_from` of later ones. The partition of a
    header is that of its port, the tag the index modulo 2^16; both, as everything, can be changed in the built array.

    Used by: client, workload, benches, tests.
    """

    def __init__(self, config: NodeConfig):
        self.config = config
        self._rows: list[tuple[Any, ...]] = []
        self._digests: list[bytes] = []
        self._payloads: list[bytes] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        opcode: Opcode,
        port: int,
        *,
        digest: bytes = _NO_DIGEST,
        model_id: int = 0,
        group: int = 0,
        klass: int = 0,
        offset: int = 0,
        length: int = 0,
        payload: bytes = b"",
        by_handle: bool = False,
        after: int = -1,
        handle_from: int = -1,
        earliest_cycle: int = 0,
    ) -> int:
        """One request. `digest`: 32 bytes, least significant first, or a packed handle. Sizes and offsets are bytes."""
        flags = Flag.BY_HANDLE if by_handle and opcode not in BY_HANDLE_ONLY else 0
        order = (port, after, handle_from, len(payload), earliest_cycle)
        self._rows.append((*order, opcode, flags, klass, model_id, group, offset, length))
        self._digests.append(digest)
        self._payloads.append(payload)
        return len(self._rows) - 1

    def match(self, port: int, digests: list[bytes], *, model_id: int = 0, group: int = 0) -> list[int]:
        """MATCH of a prefix, in as many messages as it needs; the indices of the messages."""
        step = self.config.max_match_digests
        indices = []
        for first in range(0, len(digests), step):
            payload = b"".join(digests[first : first + step])
            indices.append(
                self.add(Opcode.MATCH, port, model_id=model_id, group=group, length=len(payload), payload=payload)
            )
        return indices

    def read(self, port: int, digest: bytes, *, model_id: int = 0, group: int = 0) -> int:
        """READ of a whole block by its key."""
        return self.add(Opcode.READ, port, digest=digest, model_id=model_id, group=group)

    def puts(
        self,
        port: int,
        blocks: Iterable[tuple[bytes, bytes]],
        *,
        model_id: int = 0,
        group: int = 0,
        klass: int = NORMAL_CLASS,
        rows: int | None = None,
    ) -> list[tuple[int, list[int], int]]:
        """PUT_START, WRITEs and PUT_END of whole blocks, (digest, data) each; per block the indices of the three.

        With `rows` fill rows for this port (by default its share of the partition's) the messages are interleaved so
        that the link never waits: a block's PUT_START goes ahead of the WRITEs before it, and its PUT_END behind the
        WRITEs after it, when its last beat has surely landed. One row: one block after the other.
        """
        if rows is None:
            partition = self.config.partitions[self.config.partition_of_port[port]]
            rows = max(1, self.config.fill_rows // len(partition.ports))
        ahead, behind = (1, 1) if rows >= 4 else (1, 0) if rows >= 2 else (0, 0)
        key: dict[str, Any] = {"model_id": model_id, "group": group}
        blocks = list(blocks)
        starts: list[int] = []
        writes: list[list[int]] = []
        ends: list[int] = []

        def start(number: int) -> None:
            digest, data = blocks[number]
            starts.append(self.add(Opcode.PUT_START, port, digest=digest, length=len(data), klass=klass, **key))

        def end() -> None:
            ends.append(self.add(Opcode.PUT_END, port, handle_from=starts[len(ends)], **key))

        step = self.config.max_payload_bytes
        for number, (_, data) in enumerate(blocks):
            while len(starts) <= min(number + ahead, len(blocks) - 1):
                start(len(starts))
            writes.append(
                [
                    self.add(
                        Opcode.WRITE,
                        port,
                        handle_from=starts[number],
                        offset=offset,
                        length=min(step, len(data) - offset),
                        payload=data[offset : offset + step],
                        **key,
                    )
                    for offset in range(0, len(data), step)
                ]
            )
            if number >= behind:
                end()
        while len(ends) < len(blocks):
            end()
        return list(zip(starts, writes, ends))

    def build(self) -> tuple[Batch, bytes]:
        """The batch and its payload bytes. The builder can go on from there."""
        batch = np.zeros(len(self._rows), BATCH_DTYPE)
        if not self._rows:
            return batch, b""
        columns = [np.array(column) for column in zip(*self._rows)]
        for name, column in zip(_COLUMNS, columns):
            batch[name] = column
        header = batch["header"]
        for name, column in zip(_HEADER_COLUMNS, columns[len(_COLUMNS) :]):
            header[name] = column
        header["version"] = VERSION
        header["tag"] = np.arange(len(batch)) & 0xFFFF
        header["partition"] = np.array(self.config.partition_of_port)[batch["port"]]
        header["digest"] = digest_array(self._digests)
        lengths = batch["payload_bytes"].astype(np.uint64)
        batch["payload_offset"] = np.cumsum(lengths) - lengths
        return batch, b"".join(self._payloads)


def digest_array(digests: list[bytes]) -> Any:
    """Digests as the type of the header's `digest` field."""
    return np.frombuffer(b"".join(digests), f"V{DIGEST_BYTES}")


def blank_requests(config: NodeConfig, ports: Any, opcode: Opcode) -> Batch:
    """A batch of one opcode, one request per entry of `ports`, the rest zero: for batches made of whole columns."""
    ports = np.asarray(ports)
    batch = np.zeros(len(ports), BATCH_DTYPE)
    batch["port"], batch["after"], batch["handle_from"] = ports, -1, -1
    header = batch["header"]
    header["opcode"], header["version"] = opcode, VERSION
    header["tag"] = np.arange(len(batch)) & 0xFFFF
    header["partition"] = np.array(config.partition_of_port)[ports]
    return batch
