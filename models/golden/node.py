"""The node, untimed and exact.

Three levels of use: `put`, `match`, `read`, `retire_model` for people; `request` takes and gives the bytes of messages
as a port does; `operate` is one directory operation, which lockstep steps with the trace records of the RTL.
"""

from typing import NamedTuple

from ..spec.coherence import Event, View, decide
from ..spec.config import NodeConfig, preset
from ..spec.enums import KIND_OF_OPCODE, Flag, Kind, Opcode, State, Status
from ..spec.messages import HANDLE, REQUEST, RESPONSE, VERSION
from ..spec.requests import BY_HANDLE_ONLY, check_request
from .partitions import GoldenPartition


class Operation(NamedTuple):
    """One directory operation. `owner` is a port, or the number of ports for the sweeper; offsets and lengths are beats."""

    owner: int
    kind: Kind
    partition: int
    model_id: int = 0
    group: int = 0
    klass: int = 0
    by_handle: bool = False
    slot: int = 0
    generation: int = 0
    offset: int = 0
    length: int = 0
    digest: int = 0
    chain_first: bool = False
    whole: bool = False
    status: Status = Status.OK


class Result(NamedTuple):
    """What an operation did: the fields of a trace record that are not the operation's own."""

    status: Status
    state_before: State
    state_after: State
    present: bool
    slot: int
    generation: int
    length: int
    accepted: int
    landed: int
    age: int
    free_count: int
    epoch: int


class Answer(NamedTuple):
    """What a request got: the status, the response's fields by name, and the payload of a READ."""

    status: Status
    fields: dict[str, int]
    data: bytes


_IDLE_VIEW = View(False, State.FREE, False, 0, 0, 0, 0, 0, 0, 0, False, False, False, False, False)


class GoldenNode:
    """A node of one configuration (or the name of a preset), as it is after reset.

    >>> node = GoldenNode("tiny")
    >>> node.put(port=0, model_id=1, digest=0xBEEF, data=bytes(range(48))).status.name
    'SEALED'
    >>> node.put(port=0, model_id=1, digest=0xBEEF, data=bytes(48)).status.name
    'EXISTS'
    >>> node.match(port=0, model_id=1, digests=[0xBEEF, 0xF00D]).fields["count"]
    1
    >>> node.read(port=0, model_id=1, digest=0xBEEF).data == bytes(range(48))
    True
    >>> node.read(port=1, model_id=1, digest=0xBEEF).status.name
    'MISS'
    >>> node.retire_model(partition=1, model_id=1)
    >>> node.match(port=0, model_id=1, digests=[0xBEEF]).status.name
    'MISS'

    Used by: library users, Lockstep, sw_driver.transports.golden.
    """

    def __init__(self, config: NodeConfig | str = "sim", boot_epoch: int = 0):
        self.config = preset(config) if isinstance(config, str) else config
        self.boot_epoch = boot_epoch
        self.partitions = [GoldenPartition(self.config, number) for number in range(len(self.config.partitions))]
        self._chained = [False] * self.config.ports
        self._cycle = 0

    # For people.

    def put(self, port: int, model_id: int, digest: int, data: bytes, *, group: int = 0, klass: int = 1) -> Answer:
        """Write a whole block. `data`: a multiple of beat_bytes, at most block_bytes. Ends SEALED, or says why not."""
        key = {"model_id": model_id, "group": group}
        answer = self._ask(port, b"", opcode=Opcode.PUT_START, digest=digest, length=len(data), klass=klass, **key)
        if answer.status != Status.GRANTED:
            return answer
        handle = self.handle_of(answer)
        for offset in range(0, len(data), self.config.max_payload_bytes):
            part = data[offset : offset + self.config.max_payload_bytes]
            self._ask(port, part, opcode=Opcode.WRITE, digest=handle, offset=offset, length=len(part), **key)
        return self._ask(port, b"", opcode=Opcode.PUT_END, digest=handle, **key)

    def match(self, port: int, model_id: int, digests: list[int], *, group: int = 0) -> Answer:
        """Number of leading digests whose blocks are sealed, in `fields["count"]`."""
        payload = b"".join(digest.to_bytes(32, "little") for digest in digests)
        return self._ask(port, payload, opcode=Opcode.MATCH, model_id=model_id, group=group, length=len(payload))

    def read(self, port: int, model_id: int, digest: int, *, group: int = 0, offset: int = 0, length: int = 0) -> Answer:
        """Bytes of a block; `length` 0 reads to its end."""
        return self._ask(
            port, b"", opcode=Opcode.READ, model_id=model_id, group=group, digest=digest, offset=offset, length=length
        )

    def drop(self, port: int, model_id: int, digest: int, *, group: int = 0) -> Answer:
        """Forget a sealed block."""
        return self._ask(port, b"", opcode=Opcode.DROP, model_id=model_id, group=group, digest=digest)

    def retire_model(self, partition: int, model_id: int) -> None:
        """Make every block of a model unreachable; the sweeper takes their slots first. One write, whatever it holds."""
        self.operate(Operation(self.config.ports, Kind.RETIRE_MODEL, partition, model_id=model_id))

    def handle_of(self, answer: Answer) -> int:
        """The handle an answer carries, as the `digest` field of a by-handle request."""
        fields = {name: answer.fields[name] for name in ("slot", "generation", "boot_epoch")}
        return int.from_bytes(HANDLE.pack(**fields), "little")

    def _ask(self, port: int, payload: bytes, **fields: int) -> Answer:
        partition = self.config.partition_of_port[port]
        header = REQUEST.pack(version=VERSION, partition=partition, **fields)
        return self.request(port, header, payload)

    # As a port does.

    def request(self, port: int, header: bytes, payload: bytes = b"") -> Answer:
        """Answer one message: a 64-byte header and its payload. The sweeper then works until it has nothing to do."""
        fields = REQUEST.unpack(header)
        status = check_request(self.config, port, self.boot_epoch, fields, len(payload))
        opcode = fields["opcode"]
        partition = self.config.partition_of_port[port]
        if status != Status.OK or opcode == Opcode.PING:
            self.operate(Operation(port, Kind.ANSWER, partition, status=status))
            return self.answer(fields, status)
        if opcode == Opcode.MATCH:
            return self._match(port, partition, fields, payload)
        operation = self.operation_of(port, fields)
        result = self.operate(operation)
        length, data = self.transfer(partition, fields, result, payload)
        if opcode == Opcode.WRITE and result.status == Status.OK:
            whole = self.beats(len(payload)) == self.beats(fields["length"])
            result = self.operate(operation._replace(kind=Kind.LAND, whole=whole))
        self.sweep(partition)
        return self.answer(fields, result.status, result, length, data)

    def transfer(
        self, partition: int, fields: dict[str, int], result: Result, payload: bytes
    ) -> tuple[int, bytes]:
        """Move the bytes of an accepted WRITE or READ; returns the `length` and the data of the answer."""
        store, length, offset = self.partitions[partition].store, result.length * self.config.beat_bytes, fields["offset"]
        if fields["opcode"] == Opcode.READ:
            if result.status != Status.OK:
                return 0, b""
            length = fields["length"] or length - offset
            return length, store.read(result.slot, offset, length)
        if fields["opcode"] == Opcode.WRITE and result.status == Status.OK:
            store.write(result.slot, offset, payload[: fields["length"]])
        return length, b""

    def operation_of(self, port: int, fields: dict[str, int]) -> Operation:
        """The directory operation of a well-formed request other than MATCH."""
        by_handle = fields["opcode"] in BY_HANDLE_ONLY or bool(fields["flags"] & Flag.BY_HANDLE)
        digest = fields["digest"]
        return Operation(
            owner=port,
            kind=KIND_OF_OPCODE[Opcode(fields["opcode"])],
            partition=self.config.partition_of_port[port],
            model_id=fields["model_id"],
            group=fields["group"],
            klass=fields["klass"],
            by_handle=by_handle,
            slot=digest & 0xFFFFFFFF if by_handle else 0,
            generation=digest >> 32 & 0xFFFFFFFF if by_handle else 0,
            offset=fields["offset"] // self.config.beat_bytes,
            length=fields["length"] // self.config.beat_bytes,
            digest=0 if by_handle else digest,
        )

    def beats(self, size_bytes: int) -> int:
        """Beats that a payload takes on the link; its length is checked in these."""
        return -(-size_bytes // self.config.beat_bytes)

    def _match(self, port: int, partition: int, fields: dict[str, int], payload: bytes) -> Answer:
        count = 0
        for position in range(0, min(len(payload), fields["length"]), 32):
            digest = int.from_bytes(payload[position : position + 32], "little")
            operation = Operation(
                port, Kind.MATCH, partition, fields["model_id"], fields["group"], digest=digest, chain_first=position == 0
            )
            if self.operate(operation).status != Status.HIT:
                break
            count += 1
        if self.beats(len(payload)) != self.beats(fields["length"]):
            return self.answer(fields, Status.BAD_REQUEST)
        return self.answer(fields, Status.HIT if count else Status.MISS, count=count)

    def answer(
        self,
        fields: dict[str, int],
        status: Status,
        result: Result | None = None,
        length: int = 0,
        data: bytes = b"",
        count: int = 0,
    ) -> Answer:
        """The answer to a request (`fields`): `result` is its operation's, `length` and `data` are bytes, `count` is MATCH's."""
        answer = dict.fromkeys(RESPONSE.fields, 0)
        answer.update(
            status=status,
            opcode=fields["opcode"],
            version=VERSION,
            tag=fields["tag"],
            count=count,
            boot_epoch=self.boot_epoch,
        )
        if result is not None and (result.present and result.state_before != State.RETIRING or status == Status.GRANTED):
            sealed = result.state_after == State.SEALED
            answer.update(
                slot=result.slot,
                generation=result.generation,
                length=length,
                watermark=(result.length if sealed else result.landed) * self.config.beat_bytes,
            )
        return Answer(status, answer, data)

    def sweep(self, partition: int) -> int:
        """Let the sweeper work in a partition until slots are above the low watermark; returns its operations.

        Ends after four rounds of the clock at the latest: by then every age has run out.
        """
        part, sweeper = self.partitions[partition], self.config.ports
        steps = 0
        while part.retire_queue or part.low and steps < 4 * part.slots:
            if part.retire_queue:
                self.operate(Operation(sweeper, Kind.REAP, partition, slot=part.retire_queue[0]))
            else:
                self.operate(Operation(sweeper, Kind.VISIT, partition, slot=part.hand))
            steps += 1
        return steps

    # One directory operation.

    def operate(self, op: Operation, cycle: int | None = None) -> Result:
        """Execute one operation and return what it did; `cycle` is that of its commit (by default far from the last)."""
        if cycle is None:
            cycle = self._cycle = self._cycle + 16
        part = self.partitions[op.partition]
        kind = op.kind
        if kind == Kind.ANSWER:
            return Result(op.status, State.FREE, State.FREE, False, 0, 0, 0, 0, 0, 0, part.free_count, 0)
        if kind == Kind.RETIRE_MODEL:
            epoch = part.epochs[op.model_id] = (part.epochs[op.model_id] + 1) % (1 << self.config.epoch_bits)
            return Result(Status.OK, State.FREE, State.FREE, False, 0, 0, 0, 0, 0, 0, part.free_count, epoch)
        if kind in (Kind.VISIT, Kind.REAP):
            return self._sweeper_step(part, op, cycle)
        epoch = part.epochs[op.model_id]
        by_handle = op.by_handle
        pair = None
        where = fill_row = None
        if by_handle:
            slot = op.slot
            block = part.blocks[slot]
            present = (
                block.generation == op.generation
                and (block.state == State.FILLING or block.state == State.SEALED)
                and block.model_id == op.model_id
                and block.epoch == epoch
            )
        else:
            pair = part.index.place(op.digest, op.model_id, op.group, epoch)
            found = part.index.find(pair)
            slot = found if found is not None else 0
            block = part.blocks[slot]
            present = (
                found is not None
                and block.digest == op.digest
                and block.model_id == op.model_id
                and block.group == op.group
                and block.epoch == epoch
            )
            if kind == Kind.PUT_START and found is None and part.free_count:
                where = part.index.choose(pair)
                if where is not None:
                    fill_row = part.fills.lowest_free(cycle)
        room = fill_row is not None
        state = block.state
        if present:
            view = self._view(op, block, state)
        else:
            view = _IDLE_VIEW._replace(room=room, klass=op.klass, chained=kind == Kind.MATCH and self._chain(op))
        outcome = decide(kind, by_handle, view)
        if kind == Kind.MATCH:
            self._chained[op.owner] = outcome.status == Status.HIT
        if outcome.event == Event.ADMIT:
            slot = part.pop_free()
            block = part.blocks[slot]
            part.index.insert(pair, where, slot)
            part.fills.take(fill_row)
            block.state, block.digest, block.model_id, block.group = State.FILLING, op.digest, op.model_id, op.group
            block.epoch, block.length, block.klass, block.age = epoch, op.length, op.klass, outcome.age
            block.pair, block.where, block.fill_row, block.writer = pair, where, fill_row, op.owner
            block.accepted = block.landed = 0
            return self._result(part, outcome.status, State.FREE, False, slot, block, epoch)
        if not present:
            return Result(outcome.status, State.FREE, State.FREE, False, 0, 0, 0, 0, 0, 0, part.free_count, epoch)
        block.accepted, block.landed, block.age = outcome.accepted, outcome.landed, outcome.age
        if outcome.state != state:
            self._move(part, slot, block, outcome.state, cycle)
        return self._result(part, outcome.status, state, True, slot, block, epoch)

    def _chain(self, op: Operation) -> bool:
        return op.chain_first or self._chained[op.owner]

    def _view(self, op: Operation, block, state: State) -> View:
        return View(
            True,
            state,
            block.writer == op.owner,
            op.offset,
            op.length,
            block.length,
            block.accepted,
            block.landed,
            block.age,
            block.klass,
            False,
            op.kind == Kind.MATCH and self._chain(op),
            op.whole,
            False,
            False,
        )

    def _move(self, part: GoldenPartition, slot: int, block, state: State, cycle: int) -> None:
        if block.state == State.FILLING:
            part.fills.release(block.fill_row, cycle)
        if state == State.RETIRING:
            part.retire_queue.append(slot)
        block.state = state

    def _sweeper_step(self, part: GoldenPartition, op: Operation, cycle: int) -> Result:
        block = part.blocks[op.slot]
        state = block.state
        view = _IDLE_VIEW._replace(state=state, age=block.age, klass=block.klass, stale=part.stale(block), low=part.low)
        outcome = decide(op.kind, False, view)
        if op.kind == Kind.VISIT:
            part.hand = (op.slot + 1) % part.slots
            block.age = outcome.age
            if outcome.state != state:
                self._move(part, op.slot, block, outcome.state, cycle)
        else:
            part.retire_queue.remove(op.slot)
            part.index.remove(block.pair, block.where)
            part.push_free(op.slot)
            block.state = State.FREE
            block.generation = (block.generation + 1) % (1 << self.config.generation_bits)
        return self._result(part, outcome.status, state, False, op.slot, block, 0)

    def _result(self, part: GoldenPartition, status: Status, before: State, present: bool, slot: int, block, epoch: int) -> Result:
        filling = block.state == State.FILLING
        return Result(
            status,
            before,
            block.state,
            present,
            slot,
            block.generation,
            block.length,
            block.accepted if filling else 0,
            block.landed if filling else 0,
            block.age,
            part.free_count,
            epoch,
        )

