"""What people program against: put, match, read, drop blocks of one tenant and model; retire a model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kvnode.models.spec.enums import MOONCAKE_ERRORS, Opcode, Status

from .batch import DIGEST_BYTES, NORMAL_CLASS, BatchBuilder
from .errors import KvError
from .transport import RunResult, Transport, cycle_bound

#: Blocks that go into one batch; longer calls are cut into several, so that memory stays bounded.
BATCH_BLOCKS = 1024

_GOOD = frozenset((Status.OK, Status.HIT, Status.SEALED, Status.GRANTED))


@dataclass(frozen=True)
class Reply:
    """What became of one block. `data` is there when a READ answered OK, and never otherwise."""

    status: Status
    data: bytes | None = None

    @property
    def ok(self) -> bool:
        """The call did what was asked: OK, HIT, or SEALED."""
        return self.status in _GOOD

    @property
    def mooncake(self) -> int | None:
        """Mooncake Store's number for this status, where it has one; 0 for success."""
        return 0 if self.ok else MOONCAKE_ERRORS.get(self.status)

    def require(self, what: str = "request") -> "Reply":
        """This reply, or KvError if it is not `ok`."""
        if not self.ok:
            raise KvError(self.status, what)
        return self


class Client:
    """One tenant's view of a node, for one model and group.

    `partition` is the tenant, `ports` which of its ports to use (all by default; calls spread their blocks over them).
    Every call takes as many blocks as you like and returns one `Reply` per block in the order asked. Nothing is
    retried and nothing waits: a block that another writer holds is BUSY, one that is not there is MISS, and a node that
    does not answer within the cycle bound of a batch raises `Unanswered`.

    Digests are 32 bytes (`keys.chained_digest` makes them). Data is a multiple of the configuration's `beat_bytes` and
    at most `block_bytes` long. ValueError names what is out of range before anything is sent.

    >>> from kvnode.models.spec.config import preset
    >>> from kvnode.sw_driver.transports import open_transport
    >>> with Client(open_transport("golden", preset("sim")), model_id=1) as client:
    ...     digests = [bytes([n]) * 32 for n in range(3)]
    ...     [reply.status.name for reply in client.put(zip(digests, [b"x" * 4096] * 2))]
    ...     client.match(digests)
    ...     [reply.status.name for reply in client.read(digests)]
    ...     client.get(digests[0]) == b"x" * 4096
    ['SEALED', 'SEALED']
    2
    ['OK', 'OK', 'MISS']
    True

    Used by: programs, connectors, tests.
    """

    def __init__(
        self,
        transport: Transport,
        partition: int = 0,
        *,
        ports: Sequence[int] | None = None,
        model_id: int = 0,
        group: int = 0,
    ):
        config = transport.config
        if not 0 <= partition < len(config.partitions):
            raise ValueError(f"partition = {partition}: there are {len(config.partitions)}")
        owned = config.partitions[partition].ports
        if not 0 <= model_id < config.models:
            raise ValueError(f"model_id = {model_id}: there are {config.models}")
        if not 0 <= group < 256:
            raise ValueError(f"group = {group}: must be 0 to 255")
        for port in ports or ():
            if port not in owned:
                raise ValueError(f"port {port} does not belong to partition {partition}, which owns {list(owned)}")
        self.transport, self.config, self.partition = transport, config, partition
        self.ports = tuple(ports) if ports else owned
        self.model_id, self.group = model_id, group

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the transport. Sealed blocks stay in the node."""
        self.transport.close()

    def put(self, blocks: Iterable[tuple[bytes, bytes]], *, klass: int = NORMAL_CLASS) -> list[Reply]:
        """Write whole blocks, (digest, data) each. SEALED: it can be read from now on; EXISTS: it could before.

        Any other status says why the block is not there (NO_SPACE, BUSY); nothing of it stays behind.
        """
        if not 0 <= klass < 4:
            raise ValueError(f"klass = {klass}: must be 0 to 3")
        replies: list[Reply] = []
        for part in _cut(blocks):
            for digest, data in part:
                self._check_digest(digest)
                if not 0 < len(data) <= self.config.block_bytes or len(data) % self.config.beat_bytes:
                    raise ValueError(
                        f"data of {len(data)} bytes: must be a multiple of {self.config.beat_bytes} and at most "
                        f"{self.config.block_bytes}"
                    )
            builder = BatchBuilder(self.config)
            places: list[tuple[int, list[int], int]] = [(0, [], 0)] * len(part)
            for first, port in enumerate(self.ports):
                mine = slice(first, None, len(self.ports))
                places[mine] = builder.puts(
                    port, part[mine], model_id=self.model_id, group=self.group, klass=klass
                )
            result = self._run(builder)
            status = result.results["header"]["status"].tolist()
            for start, writes, end in places:
                failed = [status[index] for index in writes if status[index] != Status.OK]
                if status[start] != Status.GRANTED:
                    replies.append(Reply(Status(status[start])))
                elif failed and status[end] != Status.SEALED:
                    replies.append(Reply(Status(failed[0])))
                else:
                    replies.append(Reply(Status(status[end])))
        return replies

    def match(self, digests: Sequence[bytes]) -> int:
        """How many leading blocks are there, of digests in prefix order. A hit refreshes the block's reuse age."""
        total = 0
        for part in _cut(digests, self.config.max_match_digests):
            for digest in part:
                self._check_digest(digest)
            builder = BatchBuilder(self.config)
            (index,) = builder.match(self.ports[0], part, model_id=self.model_id, group=self.group)
            header = self._run(builder).results["header"][index]
            status = Status(int(header["status"]))
            if status not in (Status.HIT, Status.MISS):
                raise KvError(status, f"match of {len(part)} digests")
            total += int(header["count"])
            if int(header["count"]) < len(part):
                break
        return total

    def lookup(self, digests: Iterable[bytes]) -> list[Reply]:
        """HIT, MISS or NOT_READY (being written) for each block by itself."""
        return self._simple(Opcode.LOOKUP, digests)

    def read(self, digests: Iterable[bytes], *, offset: int = 0, length: int = 0) -> list[Reply]:
        """Bytes of each block from `offset` on; `length` 0 reads to its end. Both are multiples of `beat_bytes`."""
        beat, room = self.config.beat_bytes, self.config.block_bytes
        if offset % beat or not 0 <= offset < room:
            raise ValueError(f"offset = {offset}: must be a multiple of {beat} below {room}")
        if length % beat or not 0 <= length <= room:
            raise ValueError(f"length = {length}: must be a multiple of {beat} and at most {room}")
        return self._simple(Opcode.READ, digests, offset=offset, length=length)

    def get(self, digest: bytes) -> bytes:
        """The bytes of one block; raises KvError when it cannot be read."""
        data = self.read([digest])[0].require(f"read of block {digest[::-1].hex()}").data
        assert data is not None
        return data

    def drop(self, digests: Iterable[bytes]) -> list[Reply]:
        """Forget sealed blocks. OK: it is gone; MISS: it was not there; BUSY: it is being written."""
        return self._simple(Opcode.DROP, digests)

    def ping(self) -> None:
        """Come back when the node has answered on every port; raises Unanswered or KvError otherwise."""
        builder = BatchBuilder(self.config)
        for port in self.ports:
            builder.add(Opcode.PING, port)
        for status in self._run(builder).results["header"]["status"].tolist():
            if status != Status.OK:
                raise KvError(Status(status), "ping")

    def retire_model(self) -> None:
        """Make every block of this client's model unreachable, for all who use the partition."""
        self.transport.retire_model(self.partition, self.model_id)

    def _simple(self, opcode: Opcode, digests: Iterable[bytes], **fields: Any) -> list[Reply]:
        replies: list[Reply] = []
        for part in _cut(digests):
            builder = BatchBuilder(self.config)
            for number, digest in enumerate(part):
                self._check_digest(digest)
                port = self.ports[number % len(self.ports)]
                builder.add(opcode, port, digest=digest, model_id=self.model_id, group=self.group, **fields)
            result = self._run(builder)
            for index, status in enumerate(result.results["header"]["status"].tolist()):
                wanted = opcode == Opcode.READ and status == Status.OK
                replies.append(Reply(Status(status), bytes(result.payload(index)) if wanted else None))
        return replies

    def _run(self, builder: BatchBuilder) -> RunResult:
        batch, payload = builder.build()
        limit = cycle_bound(self.config, batch)
        result = self.transport.run(batch, payload, max_cycles=limit)
        result.require_answers(batch, f"{limit} cycles")
        return result

    def _check_digest(self, digest: bytes) -> None:
        if len(digest) != DIGEST_BYTES:
            raise ValueError(f"digest of {len(digest)} bytes: must be {DIGEST_BYTES}")
        if self.config.digest_bits < 256 and int.from_bytes(digest, "little") >> self.config.digest_bits:
            raise ValueError(f"digest {digest[::-1].hex()}: this configuration keeps {self.config.digest_bits} bits")


def _cut(items: Iterable[Any], size: int = BATCH_BLOCKS) -> Iterator[list[Any]]:
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part
