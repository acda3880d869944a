"""Batches of requests, made quickly: every request is packed once, as the row of the array that it becomes."""

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Flag, Opcode
from kvnode.models.spec.messages import DIGEST_BYTES, VERSION
from kvnode.models.spec.requests import BY_HANDLE_ONLY

from .transport import Batch

_NO_DIGEST = bytes(DIGEST_BYTES)

#: Class of a block of no special kind.
NORMAL_CLASS = 1


def _format(dtype: np.dtype) -> str:
    """The same record for `struct`, which packs one row many times faster than numpy."""
    codes = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i4": "i", "V32": "32s"}
    assert dtype.names is not None
    return "".join(
        codes[dtype[name].str[1:]] if dtype[name].names is None else _format(dtype[name]) for name in dtype.names
    )


_ROW = struct.Struct("<" + _format(BATCH_DTYPE))
assert _ROW.size == BATCH_DTYPE.itemsize
#: The fields of a HANDLE that a request has beside those of an answer: stride, count, crc, zero.
_OWN_PART = struct.Struct("<IIII")
_ANSWERED_BYTES = DIGEST_BYTES - _OWN_PART.size
_BY_HANDLE, _LEASE, _PRIVATE = int(Flag.BY_HANDLE), int(Flag.LEASE), int(Flag.PRIVATE)

#: Indices of a block's PUT_START, WRITEs and PUT_END in a batch.
Place = tuple[int, list[int], int]


class BatchBuilder:
    """Collects requests and their payload; `build` turns them into the arrays that `Transport.run` takes.

    `add` returns the request's index in the batch, for `after`, `handle_from` and `session_from` of later ones. The
    partition of a header is that of its port, the tag the index modulo 2^16; both, as everything, can be changed in
    the built array.

    >>> from kvnode.models.spec.config import preset
    >>> builder = BatchBuilder(preset("tiny"))
    >>> ((start, writes, end),) = builder.puts(1, [(bytes(32), bytes(128))])
    >>> (start, writes, end), len(builder)
    ((0, [1, 2], 3), 4)
    >>> batch, payload = builder.build()
    >>> batch["handle_from"].tolist(), len(payload)
    ([-1, 0, 0, 0], 128)

    Used by: client, workload, benches, tests.
    """

    def __init__(self, config: NodeConfig):
        self.config = config
        self._partition_of_port = config.partition_of_port
        self._rows = bytearray()
        self._count = 0
        self._payloads: list[bytes] = []
        self._payload_bytes = 0

    def __len__(self) -> int:
        return self._count

    def add(
        self,
        opcode: Opcode,
        port: int,
        *,
        digest: bytes = _NO_DIGEST,
        model_id: int = 0,
        group: int = 0,
        klass: int = 0,
        member: int = 0,
        members: int = 0,
        ttl: int = 0,
        deadline: int = 0,
        session: int = 0,
        session_epoch: int = 0,
        sequence: int = 0,
        offset: int = 0,
        length: int = 0,
        stride: int = 0,
        count: int = 0,
        crc: int = 0,
        payload: bytes = b"",
        by_handle: bool = False,
        lock: bool = False,
        private: bool = False,
        after: int = -1,
        handle_from: int = -1,
        session_from: int = -1,
        patience: int = 0,
        earliest_cycle: int = 0,
    ) -> int:
        """One request; the fields are those of spec.messages.REQUEST and spec.batch.BATCH_DTYPE. Sizes and offsets are
        bytes.

        `digest`: 32 bytes, least significant first, or a packed HANDLE. `stride`, `count`, `crc` go into the handle,
        also into one that comes from an answer (`handle_from`). `by_handle`: the digest is a handle (opcodes that
        always take one need no saying). `lock`, `private`: Flag.LEASE and Flag.PRIVATE.

        Raises ValueError for a port that does not exist or a value that does not fit its field.
        """
        flags = 0
        if by_handle and opcode not in BY_HANDLE_ONLY:
            flags = _BY_HANDLE
        if lock:
            flags |= _LEASE
        if private:
            flags |= _PRIVATE
        if stride or count or crc:
            digest = digest[:_ANSWERED_BYTES] + _OWN_PART.pack(stride, count, crc, 0)
        index, size_bytes = self._count, len(payload)
        try:
            self._rows += _ROW.pack(
                port, after, handle_from, session_from, size_bytes, self._payload_bytes, patience, earliest_cycle,
                opcode, flags, VERSION, klass, index & 0xFFFF, model_id, group, self._partition_of_port[port],
                member, members, ttl, deadline, session_epoch, session, sequence, offset, length, digest,
            )  # fmt: skip
        except (struct.error, IndexError):
            raise ValueError(f"{opcode.name} on port {port} of {self.config.ports}: a field does not fit") from None
        if size_bytes:
            self._payloads.append(payload)
            self._payload_bytes += size_bytes
        self._count = index + 1
        return index

    def match(self, port: int, digests: Sequence[bytes], **fields: Any) -> list[int]:
        """MATCH of a prefix, in as many messages as it needs; the indices of the messages. `fields` as in `add`."""
        step = self.config.max_match_digests
        indices = []
        for first in range(0, len(digests), step):
            payload = b"".join(digests[first : first + step])
            indices.append(self.add(Opcode.MATCH, port, length=len(payload), payload=payload, **fields))
        return indices

    def read(self, port: int, digest: bytes, **fields: Any) -> int:
        """READ of a whole block by its key. `fields` as in `add`."""
        return self.add(Opcode.READ, port, digest=digest, **fields)

    def puts(
        self,
        port: int,
        blocks: Iterable[tuple[bytes, bytes]],
        *,
        model_id: int = 0,
        group: int = 0,
        klass: int = NORMAL_CLASS,
        rows: int | None = None,
        numbers: Sequence[int] | None = None,
        **fields: Any,
    ) -> list[Place]:
        """PUT_START, WRITEs and PUT_END of whole blocks, (digest, data) each; per block the indices of the three.

        With `rows` fill rows for this port (by default its share of the partition's) the messages are interleaved so
        that the link never waits: a block's PUT_START goes ahead of the WRITEs before it, and its PUT_END behind the
        WRITEs after it, when its last beat has surely landed. One row: one block after the other.

        `numbers`: the blocks' numbers in their session. `fields`: what else each PUT_START has, as in `add`.
        """
        if rows is None:
            partition = self.config.partitions[self.config.partition_of_port[port]]
            rows = max(1, self.config.fill_rows // len(partition.ports))
        ahead, behind = (1, 1) if rows >= 4 else (1, 0) if rows >= 2 else (0, 0)
        blocks = list(blocks)
        starts: list[int] = []
        writes: list[list[int]] = []
        ends: list[int] = []
        add = self.add

        def start() -> None:
            number = len(starts)
            if numbers is not None:
                fields["sequence"] = numbers[number]
            digest, data = blocks[number]
            starts.append(
                add(Opcode.PUT_START, port, digest=digest, model_id=model_id, group=group, klass=klass,
                    length=len(data), **fields)
            )  # fmt: skip

        def end() -> None:
            number = len(ends)
            crc = crc32c(blocks[number][1])
            ends.append(add(Opcode.PUT_END, port, model_id=model_id, group=group, crc=crc, handle_from=starts[number]))

        for number, (_, data) in enumerate(blocks):
            while len(starts) <= min(number + ahead, len(blocks) - 1):
                start()
            writes.append(self._writes(port, data, 0, starts[number], model_id, group, 0))
            if number >= behind:
                end()
        while len(ends) < len(blocks):
            end()
        return list(zip(starts, writes, ends))

    def put_shards(
        self,
        ports: Sequence[int],
        blocks: Iterable[tuple[bytes, Sequence[bytes]]],
        *,
        model_id: int = 0,
        group: int = 0,
        klass: int = NORMAL_CLASS,
        rows: int | None = None,
        numbers: Sequence[int] | None = None,
        **fields: Any,
    ) -> list[list[Place]]:
        """The same for blocks that several members write: (digest, one shard for each member), the shards of a block
        of equal length. Member i writes its shard on port `ports[i]`, beginning again from the first. Per block, the
        indices for each of its members.

        At most `rows` blocks (by default 2, as far as there are fill rows) are begun before the first of them is
        complete, however far one port is ahead of another.
        """
        rows = min(2, self.config.fill_rows) if rows is None else rows
        places: list[list[Place]] = []
        for number, (digest, shards) in enumerate(blocks):
            if numbers is not None:
                fields["sequence"] = numbers[number]
            # The last member's PUT_END goes when all others were answered: it stands for the whole block.
            after = places[number - rows][-1][2] if number >= rows else -1
            members, length = len(shards), len(shards[0])
            own: list[Place] = []
            previous = -1
            for member, shard in enumerate(shards):
                port = ports[member % len(ports)]
                start = self.add(
                    Opcode.PUT_START, port, digest=digest, model_id=model_id, group=group, klass=klass, member=member,
                    members=members, length=length, after=after, **fields,
                )  # fmt: skip
                writes = self._writes(port, shard, member * length, start, model_id, group, member)
                share: dict[str, Any] = {"members": members, "length": length} if members > 1 else {}
                previous = self.add(
                    Opcode.PUT_END, port, model_id=model_id, group=group, member=member, crc=crc32c(shard),
                    handle_from=start, after=previous, **share,
                )  # fmt: skip
                own.append((start, writes, previous))
            places.append(own)
        return places

    def _writes(
        self, port: int, data: bytes, base: int, start: int, model_id: int, group: int, member: int
    ) -> list[int]:
        """WRITEs of a member's bytes, which begin at byte `base` of the block."""
        step, size_bytes = self.config.max_payload_bytes, len(data)
        return [
            self.add(
                Opcode.WRITE, port, handle_from=start, model_id=model_id, group=group, member=member,
                offset=base + offset, length=min(step, size_bytes - offset), payload=data[offset : offset + step],
            )
            for offset in range(0, size_bytes, step)
        ]  # fmt: skip

    def build(self) -> tuple[Batch, bytes]:
        """The batch and its payload bytes. The builder can go on from there."""
        return np.frombuffer(bytearray(self._rows), BATCH_DTYPE), b"".join(self._payloads)


def digest_array(digests: list[bytes]) -> Any:
    """Digests as the type of the header's `digest` field."""
    return np.frombuffer(b"".join(digests), f"V{DIGEST_BYTES}")


def blank_requests(config: NodeConfig, ports: Any, opcode: Opcode) -> Batch:
    """A batch of one opcode, one request per entry of `ports`, the rest zero: for batches made of whole columns."""
    ports = np.asarray(ports)
    batch = np.zeros(len(ports), BATCH_DTYPE)
    batch["port"] = ports
    batch["after"] = batch["handle_from"] = batch["session_from"] = -1
    header = batch["header"]
    header["opcode"], header["version"] = opcode, VERSION
    header["tag"] = np.arange(len(batch)) & 0xFFFF
    header["partition"] = np.array(config.partition_of_port)[ports]
    return batch
