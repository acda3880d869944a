"""What people program against: put, match, read, lease and drop blocks of one tenant and model; sessions that read what
they wrote, also when they move.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, overload

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec.enums import MOONCAKE_ERRORS, Opcode, ResponseFlag, Status
from kvnode.models.spec.messages import DIGEST_BYTES, HANDLE, SESSION_ARGUMENTS
from kvnode.models.spec.requests import BY_HANDLE_ONLY, BY_KEY, MAX_MEMBERS
from kvnode.models.spec.sessions import WINDOW
from kvnode.models.spec.timing import FILL_ROW_RELEASE_CYCLES

from .batch import NORMAL_CLASS, BatchBuilder, Place
from .errors import DeadlineExpired, KvError, error_of
from .transport import RunResult, Transport, cycle_bound

#: Blocks that go into one batch; longer calls are cut into several, so that memory stays bounded.
BATCH_BLOCKS = 1024
#: How long a fence waits by default.
FENCE_CYCLES = 1 << 20
#: How often a session is asked for while the sweeper looks for a row, and the cycles between.
OPEN_TRIES, OPEN_WAIT_CYCLES = 16, 4096
#: The most that a request's `deadline` and `ttl` can say.
MAX_DEADLINE_TICKS = MAX_TTL = 255

_GOOD = frozenset((Status.OK, Status.HIT, Status.SEALED, Status.GRANTED))
#: Answers to a MATCH that say how long the prefix is; a damaged block is a miss.
_COUNTED = frozenset((Status.HIT, Status.MISS, Status.POISONED))

#: Bytes of a block, or the shards of its members.
Data = bytes | Sequence[bytes]


class BlockHandle(NamedTuple):
    """Names a block without its key, as long as it is there: afterwards, and after a reset, it is STALE_HANDLE."""

    slot: int
    generation: int
    boot_epoch: int
    lease: int = 0

    def pack(self) -> bytes:
        return HANDLE.pack(**self._asdict())


@dataclass(frozen=True)
class Reply:
    """What became of one block. `data` is there when a READ answered OK and its checksum is right, and never
    otherwise; `handle` when a lookup or a lease found the block.
    """

    status: Status
    data: bytes | None = None
    handle: BlockHandle | None = None

    @property
    def ok(self) -> bool:
        """The call did what was asked: OK, HIT, or SEALED."""
        return self.status in _GOOD

    @property
    def mooncake(self) -> int | None:
        """Mooncake Store's number for this status, where it has one; 0 for success."""
        return 0 if self.ok else MOONCAKE_ERRORS.get(self.status)

    def require(self, what: str = "request") -> "Reply":
        """This reply, or the error of its status (`errors.error_of`) if it is not `ok`."""
        if not self.ok:
            raise error_of(self.status, what)
        return self


class _Blocks:
    """The calls on blocks, with or without a session."""

    def __init__(self, transport: Transport, partition: int, ports: Sequence[int], model_id: int, group: int):
        self.transport, self.config, self.partition = transport, transport.config, partition
        self.ports, self.model_id, self.group = tuple(ports), model_id, group

    # What a session adds.

    def _scope(self, opcode: Opcode, by_handle: bool = False) -> dict[str, Any]:
        """The fields of a request that say who asks."""
        return {}

    def _check_after(self, after: int) -> None:
        if after:
            raise ValueError(f"after = {after}: only a session has numbers")

    def _room(self) -> int:
        """Blocks that can be put in one batch."""
        return BATCH_BLOCKS

    def _numbers(self, count: int) -> list[int] | None:
        """Numbers of the blocks to be put next."""
        return None

    def _settle(self, numbers: list[int] | None, replies: list[Reply]) -> None:
        """The blocks with these numbers got these replies."""

    # The calls.

    def put(
        self,
        blocks: Iterable[tuple[bytes, Data]],
        *,
        klass: int = NORMAL_CLASS,
        ttl: int = 0,
        deadline_ticks: int = 0,
    ) -> list[Reply]:
        """Write whole blocks, (digest, data) each. SEALED: it can be read from now on; EXISTS: it could before.

        Any other status says why the block is not there (NO_SPACE, QUOTA, BUSY); nothing of it stays behind.

        Data that is a list of bytes are the shards of as many members (tensor-parallel ranks), of equal length: each
        member writes its own over a port of its own, as far as there are ports, and the block is there when all have.

        `ttl`: how long the blocks may stay, in units of 256 ticks, `deadline_ticks`: how long the writing may take;
        0: what is set for the partition.
        """
        _check_range("klass", klass, 3)
        _check_range("ttl", ttl, MAX_TTL)
        _check_range("deadline_ticks", deadline_ticks, MAX_DEADLINE_TICKS)
        replies: list[Reply] = []
        iterator = iter(blocks)
        while part := list(islice(iterator, self._room())):
            for digest, data in part:
                self._check_digest(digest)
                self._check_data(data)
            numbers = self._numbers(len(part))
            answers = [Reply(Status.DEADLINE)] * len(part)
            try:
                answers = self._put(part, numbers, klass=klass, ttl=ttl, deadline=deadline_ticks)
            finally:
                self._settle(numbers, answers)
            replies += answers
        return replies

    @overload
    def match(self, digests: Sequence[bytes], *, after: int = 0, patience_cycles: int = 0) -> int: ...

    @overload
    def match(
        self, digests: Sequence[bytes], *, lock: Literal[True], ticks: int = 0, after: int = 0, patience_cycles: int = 0
    ) -> "Leases": ...

    def match(
        self,
        digests: Sequence[bytes],
        *,
        lock: bool = False,
        ticks: int = 0,
        after: int = 0,
        patience_cycles: int = 0,
    ) -> "int | Leases":
        """How many leading blocks are there, of digests in prefix order. A hit refreshes the block's reuse age.

        `lock`: their leases instead, granted in the same operation that finds them: `len` says how many. `ticks`: how
        long they hold. `after`: an answer of a time when the session's blocks up to this number are sealed.

        NotReady: the first block is being written, or those up to `after` are not all sealed; with `patience_cycles`
        this is waited for, and then DeadlineExpired. QuotaExceeded: no lease was left.
        """
        self._check_after(after)
        _check_range("ticks", ticks, MAX_DEADLINE_TICKS)
        fields = self._waiting(after, patience_cycles) | ({"lock": True, "deadline": ticks} if lock else {})
        held: list[Reply] = []
        total = 0
        for part in _cut(digests, self.config.max_match_digests):
            for digest in part:
                self._check_digest(digest)
            builder = BatchBuilder(self.config)
            (index,) = builder.match(
                self.ports[0], part, model_id=self.model_id, group=self.group, **self._scope(Opcode.MATCH), **fields
            )
            result = self._run(builder)
            header = result.results["header"][index]
            status, count = Status(int(header["status"])), int(header["count"])
            if status not in _COUNTED and not total:
                raise error_of(_in_time(status, patience_cycles), f"match of {len(part)} digests")
            total += count
            if lock and count:
                held += [Reply(Status.HIT, None, handle) for handle in _handles(bytes(result.payload(index)))]
            if count < len(part):
                break
        return Leases(self, held, [self.ports[0]] * len(held)) if lock else total

    def lookup(self, digests: Iterable[bytes], *, after: int = 0, patience_cycles: int = 0) -> list[Reply]:
        """HIT with a handle, MISS or NOT_READY (being written) for each block by itself."""
        self._check_after(after)
        return self._simple(Opcode.LOOKUP, digests, patience_cycles, **self._waiting(after, patience_cycles))

    def read(
        self,
        blocks: Iterable[bytes | BlockHandle],
        *,
        offset: int = 0,
        length: int = 0,
        after: int = 0,
        patience_cycles: int = 0,
    ) -> list[Reply]:
        """Bytes of each block from `offset` on; `length` 0 reads to its end. Both are multiples of `beat_bytes`. Blocks
        are named by digest or by handle.

        What is read as a whole is checked against the block's checksum: CHECKSUM_MISMATCH without data.

        NOT_READY: the block is being written (what a session has written itself it may read before), or the session's
        blocks up to number `after` are not all sealed; with `patience_cycles` this is waited for, and then DEADLINE.
        """
        beat, room = self.config.beat_bytes, self.config.block_bytes
        if offset % beat or not 0 <= offset < room:
            raise ValueError(f"offset = {offset}: must be a multiple of {beat}, less than {room}")
        if length % beat or not 0 <= length <= room:
            raise ValueError(f"length = {length}: must be a multiple of {beat}, at most {room}")
        self._check_after(after)
        fields = self._waiting(after, patience_cycles)
        return self._simple(Opcode.READ, blocks, patience_cycles, offset=offset, length=length, **fields)

    def read_runs(
        self,
        blocks: Iterable[bytes | BlockHandle],
        offset: int,
        run: int,
        stride: int,
        count: int,
        *,
        after: int = 0,
        patience_cycles: int = 0,
    ) -> list[Reply]:
        """Two-dimensional read: `count` runs of `run` bytes each, `stride` bytes from the beginning of one to that of
        the next, the first at `offset`. All are multiples of `beat_bytes`; runs may overlap, but no more is read than
        a block is long. This is how one layer of one rank is taken out of a block.
        """
        beat, room = self.config.beat_bytes, self.config.block_bytes
        for name, value in (("offset", offset), ("run", run), ("stride", stride)):
            if value % beat or not 0 <= value <= room:
                raise ValueError(f"{name} = {value}: must be a multiple of {beat}, at most {room}")
        if not (run and count > 0 and run * count <= room and offset + (count - 1) * stride + run <= room):
            raise ValueError(f"{count} runs of {run} bytes, {stride} apart, from {offset} on: a block has {room} bytes")
        self._check_after(after)
        key: dict[str, Any] = {"model_id": self.model_id, "group": self.group}
        waiting = self._waiting(after, patience_cycles)
        replies: list[Reply] = []
        for part in _cut(blocks):
            builder = BatchBuilder(self.config)
            places: list[tuple[int, int]] = []
            for number, block in enumerate(part):
                port = self.ports[number % len(self.ports)]
                fields: dict[str, Any] = {"offset": offset, "length": run, "stride": stride, "count": count}
                fields |= key | self._scope(Opcode.READ, by_handle=True) | waiting
                source = -1
                if isinstance(block, BlockHandle):
                    fields["digest"] = block.pack()
                else:
                    self._check_digest(block)
                    scope = self._scope(Opcode.LOOKUP)
                    source = builder.add(Opcode.LOOKUP, port, digest=block, **key, **scope, **waiting)
                index = builder.add(Opcode.READ, port, by_handle=True, handle_from=source, **fields)
                places.append((source, index))
            result = self._run(builder)
            status = result.results["header"]["status"].tolist()
            for source, index in places:
                missed = source >= 0 and status[source] != Status.HIT
                replies.append(
                    Reply(_in_time(Status(status[source]), patience_cycles))
                    if missed
                    else self._reply(result, index, False, patience_cycles)
                )
        return replies

    def get(self, digest: bytes) -> bytes:
        """The bytes of one block; raises the error of its status when it cannot be read."""
        data = self.read([digest])[0].require(f"read of block {digest[::-1].hex()}").data
        assert data is not None
        return data

    def lease(self, blocks: Iterable[bytes | BlockHandle], *, ticks: int = 0) -> "Leases":
        """Keep each block from being evicted or dropped, for `ticks` (0: the partition's lease time) at the longest.
        To be used in a `with` statement. MISS and QUOTA are told by `replies`.
        """
        _check_range("ticks", ticks, MAX_DEADLINE_TICKS)
        blocks = list(blocks)
        replies = self._simple(Opcode.LEASE, blocks, 0, deadline=ticks)
        return Leases(self, replies, [self._port(number) for number in range(len(blocks))])

    def drop(self, blocks: Iterable[bytes | BlockHandle]) -> list[Reply]:
        """Forget sealed blocks. OK: it is gone; MISS: it was not there; BUSY: it is being written or leased."""
        return self._simple(Opcode.DROP, blocks, 0)

    # What they are made of.

    def _put(self, part: list[tuple[bytes, Data]], numbers: list[int] | None, **fields: Any) -> list[Reply]:
        """One batch of `put`."""
        builder = BatchBuilder(self.config)
        fields |= self._scope(Opcode.PUT_START) | {"model_id": self.model_id, "group": self.group}
        whole = [number for number, (_, data) in enumerate(part) if isinstance(data, (bytes, bytearray, memoryview))]
        sharded = sorted({*range(len(part))} - {*whole})
        places: list[list[Place]] = [[] for _ in part]

        def of(chosen: list[int]) -> list[int] | None:
            return None if numbers is None else [numbers[number] for number in chosen]

        for first, port in enumerate(self.ports):
            mine = whole[first :: len(self.ports)]
            blocks: list[Any] = [part[number] for number in mine]
            for number, place in zip(mine, builder.puts(port, blocks, rows=self._rows(), numbers=of(mine), **fields)):
                places[number] = [place]
        shards: list[Any] = [part[number] for number in sharded]
        for number, members in zip(sharded, builder.put_shards(self.ports, shards, numbers=of(sharded), **fields)):
            places[number] = members
        result = self._run(builder)
        status = result.results["header"]["status"].tolist()
        replies = [_put_reply(status, members) for members in places]
        self._revoke(result, [places[number] for number in sharded if replies[number].status != Status.SEALED])
        return replies

    def _rows(self) -> int:
        """Fill rows for each port. Where a turn comes again before a row that was given back can be had (two ports),
        one row less: a block that begins just behind the end of another would be refused.
        """
        rows = self.config.fill_rows // len(self.config.partitions[self.partition].ports)
        return max(1, rows - (self.config.ports + 1 < FILL_ROW_RELEASE_CYCLES))

    def _revoke(self, result: RunResult, blocks: list[list[Place]]) -> None:
        """Take back the blocks that some member began and not all have completed."""
        builder = BatchBuilder(self.config)
        for members in blocks:
            for member, (start, _, _) in enumerate(members):
                if result.results["header"]["status"][start] == Status.GRANTED:
                    port = self.ports[member % len(self.ports)]
                    digest = _handle(result, start).pack()
                    builder.add(Opcode.PUT_REVOKE, port, digest=digest, model_id=self.model_id)
        if len(builder):
            self._run(builder)

    def _simple(
        self, opcode: Opcode, blocks: Iterable[bytes | BlockHandle], patience_cycles: int, **fields: Any
    ) -> list[Reply]:
        """One request for each block."""
        replies: list[Reply] = []
        whole = opcode == Opcode.READ and not fields["offset"]
        for part in _cut(blocks):
            builder = BatchBuilder(self.config)
            for number, block in enumerate(part):
                by_handle = isinstance(block, BlockHandle)
                if not by_handle:
                    self._check_digest(block)
                builder.add(
                    opcode,
                    self._port(number),
                    digest=block.pack() if by_handle else block,
                    by_handle=by_handle,
                    model_id=self.model_id,
                    group=self.group,
                    **self._scope(opcode, by_handle),
                    **fields,
                )
            result = self._run(builder)
            replies += [self._reply(result, index, whole, patience_cycles) for index in range(len(part))]
        return replies

    def _port(self, number: int) -> int:
        """The port of a call's block of this number."""
        return self.ports[number % BATCH_BLOCKS % len(self.ports)]

    @staticmethod
    def _reply(result: RunResult, index: int, whole: bool, patience_cycles: int) -> Reply:
        """The reply of an answer; `whole`: its data begins where the block does."""
        header = result.results["header"][index]
        status = Status(int(header["status"]))
        if not (status == Status.OK and header["opcode"] == Opcode.READ):
            return Reply(
                _in_time(status, patience_cycles), None, _handle(result, index) if status == Status.HIT else None
            )
        data, crc = bytes(result.payload(index)), int(header["crc"])
        # A block that is not sealed has no checksum yet; that of one in 2^32 is 0 and is not checked.
        if whole and crc and len(data) == header["watermark"] and crc32c(data) != crc:
            return Reply(Status.CHECKSUM_MISMATCH)
        return Reply(status, data)

    def _waiting(self, after: int, patience_cycles: int) -> dict[str, Any]:
        """The fields of a request that waits."""
        if patience_cycles < 0:
            raise ValueError(f"patience_cycles = {patience_cycles}: must be 0 or more")
        fields: dict[str, Any] = {"patience": patience_cycles}
        return fields | {"sequence": after, "deadline": self._ticks(patience_cycles)} if after else fields

    def _ticks(self, cycles: int) -> int:
        return min(MAX_DEADLINE_TICKS, -(-cycles >> self.config.tick_cycles_log2))

    def _run(self, builder: BatchBuilder) -> RunResult:
        batch, payload = builder.build()
        limit = cycle_bound(self.config, batch)
        result = self.transport.run(batch, payload, max_cycles=limit)
        result.require_answers(batch, f"{limit} cycles")
        return result

    def _ask(self, opcode: Opcode, port: int, what: str, **fields: Any) -> Any:
        """One request that must be answered OK; the header of the answer."""
        builder = BatchBuilder(self.config)
        builder.add(opcode, port, **fields)
        header = self._run(builder).results["header"][0]
        if header["status"] != Status.OK:
            raise error_of(_in_time(Status(int(header["status"])), fields.get("patience", 0)), what)
        return header

    def _check_digest(self, digest: bytes) -> None:
        if len(digest) != DIGEST_BYTES:
            raise ValueError(f"digest of {len(digest)} bytes: must be {DIGEST_BYTES}")
        if self.config.digest_bits < 256 and int.from_bytes(digest, "little") >> self.config.digest_bits:
            raise ValueError(f"digest {digest[::-1].hex()}: this configuration keeps {self.config.digest_bits} bits")

    def _check_data(self, data: Data) -> None:
        shards = [data] if isinstance(data, (bytes, bytearray, memoryview)) else list(data)
        if not 0 < len(shards) <= MAX_MEMBERS:
            raise ValueError(f"{len(shards)} shards: must be 1 to {MAX_MEMBERS}")
        size, total, beat, room = len(shards[0]), sum(map(len, shards)), self.config.beat_bytes, self.config.block_bytes
        if size * len(shards) != total:
            raise ValueError(f"shards of {[len(shard) for shard in shards]} bytes: must be of equal length")
        if not 0 < total <= room or size % beat:
            raise ValueError(f"data of {total} bytes: must be a multiple of {beat} and at most {room}")


class Client(_Blocks):
    """One tenant's view of a node, for one model and group.

    `partition` is the tenant, `ports` which of its ports to use (all by default; calls spread their blocks over them).
    Every call takes as many blocks as you like and returns one `Reply` per block in the order asked. Nothing is
    retried, and nothing waits unless it is told for how many cycles: a block that another writer holds is BUSY, one
    that is not there is MISS, and a node that does not answer within the cycle bound of a batch raises `Unanswered`.
    Every call ends with data, a miss or an error of `sw_driver.errors`.

    Digests are 32 bytes (`keys.chained_digest` makes them). Data is a multiple of the configuration's `beat_bytes` and
    at most `block_bytes` long. ValueError names what is out of range before anything is sent.

    >>> from kvnode.models.spec.config import preset
    >>> from kvnode.sw_driver.transports import open_transport
    >>> client = Client(open_transport("golden", preset("sim")), model_id=1)
    >>> digests = [bytes([n]) * 32 for n in range(3)]
    >>> [reply.status.name for reply in client.put(zip(digests, [b"x" * 4096] * 2))]
    ['SEALED', 'SEALED']
    >>> client.match(digests)
    2
    >>> [reply.status.name for reply in client.read(digests)]
    ['OK', 'OK', 'MISS']
    >>> client.get(digests[0]) == b"x" * 4096
    True
    >>> client.read(digests)[2].mooncake
    -704

    Two members write a block in two halves; every second run of 32 bytes is read out of the first 256:

    >>> [reply.status.name for reply in client.put([(digests[2], [bytes(range(64)) * 32, b"y" * 2048])])]
    ['SEALED']
    >>> (reply,) = client.read_runs([digests[2]], offset=0, run=32, stride=64, count=4)
    >>> reply.data == bytes(range(32)) * 4
    True

    A leased block cannot be dropped:

    >>> with client.match(digests, lock=True) as held:
    ...     len(held), client.drop(digests[:1])[0].status.name
    (3, 'BUSY')
    >>> client.drop(digests[:1])[0].status.name
    'OK'

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
        if not 0 <= model_id < config.models:
            raise ValueError(f"model_id = {model_id}: there are {config.models}")
        _check_range("group", group, 255)
        owned = config.partitions[partition].ports
        super().__init__(transport, partition, _checked_ports(transport, partition, ports) or owned, model_id, group)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the transport. Sealed blocks stay in the node."""
        self.transport.close()

    def session(self, *, ports: Sequence[int] | None = None, ttl: int = 0, private: bool = False) -> "Session":
        """A session, to be opened by a `with` statement.

        `ports`: those that it writes over (by default the client's). `ttl`: units of 256 ticks after which it is
        closed when nobody has spoken of it; 0: never. `private`: nobody else finds its blocks, and they go with it.
        """
        _check_range("ttl", ttl, MAX_TTL)
        own = _checked_ports(self.transport, self.partition, ports) or self.ports
        return Session(self, own, ttl=ttl, private=private)

    def release_all(self) -> None:
        """End every lease that was granted over the client's ports, whoever asked for it."""
        for port in self.ports:
            self._ask(Opcode.RELEASE_ALL, port, "release of all leases")

    def ping(self) -> None:
        """Come back when the node has answered on every port; raises Unanswered or KvError otherwise."""
        for port in self.ports:
            self._ask(Opcode.PING, port, "ping")

    def retire_model(self) -> None:
        """Make every block of this client's model unreachable, for all who use the partition."""
        self.transport.retire_model(self.partition, self.model_id)


class Numbering:
    """The numbers of a session's blocks, from 1 on. A block that is not sealed leaves a gap, which the next one fills.

    `last`: the last number in use. `committed`: the number up to which all blocks were sealed when last heard of.

    >>> numbering = Numbering()
    >>> numbering.settle(numbering.take(3), [Status.SEALED, Status.BUSY, Status.EXISTS])
    >>> numbering.last, numbering.committed, numbering.room
    (3, 1, 15)
    >>> numbering.take(2)
    [2, 4]

    Used by: Session, workload.
    """

    def __init__(self, last: int = 0):
        self.last = self.committed = last
        self._gaps: list[int] = []

    @property
    def has_gaps(self) -> bool:
        return bool(self._gaps)

    @property
    def room(self) -> int:
        """As many as stay in the window when the first of them is the last to be sealed."""
        first = min(self._gaps, default=self.last + 1)
        return max(1, first + WINDOW - 1 - self.last + len(self._gaps))

    def take(self, count: int) -> list[int]:
        """Numbers of the blocks to be put next."""
        numbers = self._gaps[:count]
        following = range(self.last + 1, self.last + 1 + count - len(numbers))
        self._gaps = self._gaps[count:]
        self.last += len(following)
        return [*numbers, *following]

    def settle(self, numbers: Sequence[int], statuses: Sequence[int]) -> None:
        """What became of the blocks with these numbers."""
        # WRITE_ORDER: the number is in use, by a block whose answer was lost.
        used = (Status.SEALED, Status.EXISTS, Status.WRITE_ORDER)
        failed = [number for number, status in zip(numbers, statuses) if status not in used]
        self._gaps = sorted(self._gaps + failed)
        while self._gaps and self._gaps[-1] == self.last:
            self.last = self._gaps.pop() - 1
        self.committed = max(self.committed, min(self._gaps, default=self.last + 1) - 1)


class Session(_Blocks):
    """A conversation that reads what it wrote: its blocks are numbered from 1 in the order of `put`, and every question
    may ask for an answer of a time when those up to a number are sealed (`after`).

    A block that is not sealed leaves a gap, which the next `put` fills: `sequence` is the last number in use,
    `committed` the one up to which all were sealed when last heard of. `number` and `epoch` are what a process needs
    that takes the session over: `Session(client, ports, number=..., epoch=..., sequence=...)`.

    >>> from kvnode.models.spec.config import preset
    >>> from kvnode.sw_driver.transports import open_transport
    >>> client = Client(open_transport("golden", preset("sim")))
    >>> digests = [bytes([n]) * 32 for n in range(2)]
    >>> with client.session(ports=[0]) as session:
    ...     session.put([(digests[0], b"x" * 4096)])[0].status.name
    ...     session.fence()
    ...     with session.migrate([3]) as moved:
    ...         moved.put([(digests[1], b"y" * 4096)])[0].status.name
    ...         moved.match(digests, after=2)
    ...     session.put([(bytes(31) + b"z", b"z" * 4096)])[0].status.name
    'SEALED'
    1
    'SEALED'
    2
    'STALE_EPOCH'

    Used by: programs, connectors, tests.
    """

    def __init__(
        self,
        client: _Blocks,
        ports: Sequence[int],
        *,
        ttl: int = 0,
        private: bool = False,
        number: int = 0,
        epoch: int = 0,
        sequence: int = 0,
    ):
        super().__init__(client.transport, client.partition, ports, client.model_id, client.group)
        self.private, self.number, self.epoch = private, number, epoch
        self.numbering = Numbering(sequence)
        self._ttl = ttl
        self._moved = False

    @property
    def sequence(self) -> int:
        return self.numbering.last

    @property
    def committed(self) -> int:
        return self.numbering.committed

    def __enter__(self) -> "Session":
        if not self.number:
            self.open()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if not self._moved:
            _quietly(self.close, kind is not None)

    def open(self) -> None:
        """Begin; QuotaExceeded when the partition has no session left."""
        mask = SESSION_ARGUMENTS.pack(ports=_mask(self.ports))
        for tries in range(OPEN_TRIES):
            try:
                header = self._ask(Opcode.SESSION_OPEN, self.ports[0], "open", digest=mask, ttl=self._ttl)
                break
            except KvError as error:
                # The sweeper has not found a free row yet.
                if error.status != Status.BUSY or tries == OPEN_TRIES - 1:
                    raise
                self.transport.wait(OPEN_WAIT_CYCLES)
        self.number, self.epoch = int(header["slot"]), int(header["generation"])
        self.numbering, self._moved = Numbering(), False

    def close(self) -> None:
        """End the session: its leases and its unsealed blocks go, its private ones too. Closing twice is no error."""
        number, self.number = self.number, 0
        if number:
            try:
                fields = {"session": number, "session_epoch": self.epoch}
                self._ask(Opcode.SESSION_CLOSE, self.ports[0], "close", **fields)
            except KvError as error:
                if error.status != Status.STALE_EPOCH:
                    raise

    def fence(self, number: int | None = None, deadline_cycles: int = FENCE_CYCLES) -> int:
        """Come back when the blocks up to `number` (by default all that were put) are sealed; the number up to which
        they are. DeadlineExpired when they are not in time, StaleEpoch when the session has moved.
        """
        number = self.sequence if number is None else number
        if deadline_cycles < 0:
            raise ValueError(f"deadline_cycles = {deadline_cycles}: must be 0 or more")
        builder = BatchBuilder(self.config)
        builder.add(
            Opcode.SESSION_FENCE,
            self.ports[0],
            sequence=number,
            deadline=self._ticks(deadline_cycles),
            patience=deadline_cycles,
            **self._identity(),
        )
        header = self._run(builder).results["header"][0]
        status = Status(int(header["status"]))
        if status != Status.STALE_EPOCH:
            self.numbering.committed = int(header["watermark"])
        if status == Status.NOT_READY:
            raise DeadlineExpired(status, f"fence up to block {number}, {self.committed} are sealed")
        if status != Status.OK:
            raise error_of(status, f"fence up to block {number}")
        return self.committed

    def migrate(self, to_ports: Sequence[int], limit: int | None = None) -> "Session":
        """Give the session to other ports; the session as its new owner has it.

        What this one still writes is accepted up to number `limit` (by default the last one in use), and everything
        later is STALE_EPOCH. The new owner goes on from there; what it asks with `after=limit` sees every block of
        this one, or is told that one is missing.
        """
        limit = self.sequence if limit is None else limit
        ports = _checked_ports(self.transport, self.partition, to_ports)
        if not ports:
            raise ValueError("to_ports is empty: a session needs a port")
        header = self._ask(
            Opcode.SESSION_MIGRATE,
            self.ports[0],
            "migrate",
            digest=SESSION_ARGUMENTS.pack(ports=_mask(ports)),
            sequence=limit,
            **self._identity(),
        )
        self._moved = True
        epoch = int(header["generation"])
        return Session(self, ports, private=self.private, number=self.number, epoch=epoch, sequence=limit)

    def _identity(self) -> dict[str, Any]:
        if not self.number:
            raise error_of(Status.STALE_EPOCH, "a session that is not open")
        return {"session": self.number, "session_epoch": self.epoch}

    def _scope(self, opcode: Opcode, by_handle: bool = False) -> dict[str, Any]:
        if opcode in BY_HANDLE_ONLY:
            return {}
        private = self.private and not by_handle and opcode in BY_KEY
        return self._identity() | {"private": private}

    def _check_after(self, after: int) -> None:
        _check_range("after", after, (1 << 32) - 1)

    def _room(self) -> int:
        return self.numbering.room

    def _numbers(self, count: int) -> list[int] | None:
        return self.numbering.take(count)

    def _settle(self, numbers: list[int] | None, replies: list[Reply]) -> None:
        assert numbers is not None
        self.numbering.settle(numbers, [reply.status for reply in replies])


class Leases:
    """Leases of blocks, released at the end of a `with` statement or by `release`, once.

    `replies`: one for each block that was asked for, or for each leading hit of a match; HIT with a handle where the
    lease is held. `len`: how many are.
    """

    def __init__(self, blocks: _Blocks, replies: list[Reply], ports: list[int]):
        self._blocks, self.replies = blocks, replies
        self._held = [(port, reply.handle) for port, reply in zip(ports, replies) if reply.handle is not None]
        self._count = len(self._held)

    def __len__(self) -> int:
        return self._count

    def __enter__(self) -> "Leases":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        _quietly(self.release, kind is not None)

    @property
    def handles(self) -> list[BlockHandle]:
        """Of the blocks that were leased, in the order asked."""
        return [reply.handle for reply in self.replies if reply.handle is not None]

    def read(self, **where: Any) -> list[Reply]:
        """The leased blocks' bytes, as `Client.read` gives them."""
        return self._blocks.read(self.handles, **where)

    def release(self) -> None:
        """End the leases that are held; those that have ended are no error."""
        held, self._held = self._held, []
        builder = BatchBuilder(self._blocks.config)
        for port, handle in held:
            builder.add(Opcode.RELEASE, port, digest=handle.pack())
        if not len(builder):
            return
        for status in self._blocks._run(builder).results["header"]["status"].tolist():
            if status not in (Status.OK, Status.STALE_HANDLE):
                raise error_of(Status(status), "release of a lease")


def _quietly(end: Callable[[], None], failing: bool) -> None:
    """Call `end`; while another exception is on its way its own errors are not told."""
    try:
        end()
    except KvError:
        if not failing:
            raise


def _handle(result: RunResult, index: int) -> BlockHandle:
    """The handle that an answer carries."""
    header = result.results["header"][index]
    lease = int(header["watermark"]) if header["flags"] & ResponseFlag.LEASED else 0
    return BlockHandle(int(header["slot"]), int(header["generation"]), int(header["boot_epoch"]), lease)


def _handles(payload: bytes) -> Iterator[BlockHandle]:
    """The handles behind the answer to a MATCH."""
    for first in range(0, len(payload), HANDLE.size_bytes):
        fields = HANDLE.unpack(payload[first : first + HANDLE.size_bytes])
        yield BlockHandle(*(fields[name] for name in BlockHandle._fields))


def _put_reply(status: Sequence[int], members: list[Place]) -> Reply:
    """What became of a block, by the `status` of every message: the first refusal of any member, else SEALED."""
    ends = [status[end] for _, _, end in members]
    refused = [status[start] for start, _, _ in members if status[start] != Status.GRANTED]
    if refused:
        return Reply(Status(refused[0]))
    if Status.SEALED in ends:
        return Reply(Status.SEALED)
    failed = [status[index] for _, writes, _ in members for index in writes if status[index] != Status.OK]
    return Reply(Status((failed or [end for end in ends if end != Status.OK] or [Status.INCOMPLETE])[0]))


def _in_time(status: Status, patience_cycles: int) -> Status:
    """NOT_READY after a wait is DEADLINE."""
    return Status.DEADLINE if status == Status.NOT_READY and patience_cycles else status


def _mask(ports: Sequence[int]) -> int:
    return sum(1 << port for port in set(ports))


def _checked_ports(transport: Transport, partition: int, ports: Sequence[int] | None) -> tuple[int, ...]:
    owned = transport.config.partitions[partition].ports
    for port in ports or ():
        if port not in owned:
            raise ValueError(f"port {port} does not belong to partition {partition}, which owns {list(owned)}")
    return tuple(ports or ())


def _check_range(name: str, value: int, last: int) -> None:
    if not 0 <= value <= last:
        raise ValueError(f"{name} = {value}: must be 0 to {last}")


def _cut(items: Iterable[Any], size: int = BATCH_BLOCKS) -> Iterator[list[Any]]:
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part
