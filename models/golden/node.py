"""The node, untimed and exact.

Three levels of use: `put`, `match`, `read`, `retire_model` for people; `request` takes and gives the bytes of messages
as a port does; `operate` (golden.directory) is one directory operation, which lockstep steps with the trace records
of the RTL.
"""

from typing import NamedTuple

from ..spec.config import NodeConfig, preset
from ..spec.enums import KIND_OF_OPCODE, Kind, Opcode, State, Status
from ..spec.messages import HANDLE, REQUEST, RESPONSE, VERSION
from ..spec.requests import check_request, match_digests, names_handle, payload_beats, whole_beats
from .directory import GoldenDirectory, Operation, Result

_KINDS: dict[int, Kind] = {int(opcode): kind for opcode, kind in KIND_OF_OPCODE.items()}
# Members of enumerations are slow to look up, and these are needed for every request.
_PING, _MATCH, _READ, _WRITE = Opcode.PING, Opcode.MATCH, Opcode.READ, Opcode.WRITE
_OK, _HIT, _GRANTED = Status.OK, Status.HIT, Status.GRANTED
_SEALED, _RETIRING = State.SEALED, State.RETIRING


class Answer(NamedTuple):
    """What a request got: the status, the response's fields by name, and the payload of a READ."""

    status: Status
    fields: dict[str, int]
    data: bytes


class GoldenNode(GoldenDirectory):
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
        super().__init__(preset(config) if isinstance(config, str) else config)
        self.boot_epoch = boot_epoch
        self._partition_of_port = self.config.partition_of_port
        self._blank_response = dict.fromkeys(RESPONSE.fields, 0) | {"version": VERSION, "boot_epoch": boot_epoch}

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

    def read(
        self, port: int, model_id: int, digest: int, *, group: int = 0, offset: int = 0, length: int = 0
    ) -> Answer:
        """Bytes of a block; `length` 0 reads to its end."""
        return self._ask(
            port, b"", opcode=Opcode.READ, model_id=model_id, group=group, digest=digest, offset=offset, length=length
        )

    def drop(self, port: int, model_id: int, digest: int, *, group: int = 0) -> Answer:
        """Forget a sealed block."""
        return self._ask(port, b"", opcode=Opcode.DROP, model_id=model_id, group=group, digest=digest)

    def retire_model(self, partition: int, model_id: int) -> None:
        """Make every block of a model unreachable, in one write whatever it holds; the sweeper takes their slots."""
        sweeper, part = self.config.ports, self.partitions[partition]
        self.operate(Operation(sweeper, Kind.RETIRE_MODEL, partition, model_id=model_id))
        for _ in range(part.slots):
            self.operate(Operation(sweeper, Kind.PATROL, partition, slot=part.patrol))
        self.sweep(partition)

    def handle_of(self, answer: Answer) -> int:
        """The handle an answer carries, as the `digest` field of a by-handle request."""
        fields = answer.fields
        handle = HANDLE.pack(slot=fields["slot"], generation=fields["generation"], boot_epoch=fields["boot_epoch"])
        return int.from_bytes(handle, "little")

    def _ask(self, port: int, payload: bytes, **fields: int) -> Answer:
        partition = self._partition_of_port[port]
        header = REQUEST.pack(version=VERSION, partition=partition, **fields)
        return self.request(port, header, payload)

    # As a port does.

    def request(self, port: int, header: bytes, payload: bytes = b"") -> Answer:
        """Answer one message: a 64-byte header and its payload. The sweeper then works until it has nothing to do."""
        fields = REQUEST.unpack(header)
        status = check_request(self.config, port, self.boot_epoch, fields, len(payload))
        opcode = fields["opcode"]
        partition = self._partition_of_port[port]
        if status != _OK or opcode == _PING:
            self.operate(Operation(port, Kind.ANSWER, partition, status=status))
            return self.answer(fields, status)
        if opcode == _MATCH:
            return self._match(port, partition, fields, payload)
        operation = self.operation_of(port, fields)
        result = self.operate(operation)
        length, data = self.transfer(partition, fields, result, payload)
        if opcode == _WRITE and result.status == _OK:
            whole = payload_beats(self.config, len(payload)) == payload_beats(self.config, fields["length"])
            result = self.operate(operation._replace(kind=Kind.LAND, whole=whole))
        self.sweep(partition)
        return self.answer(fields, result.status, result, length, data)

    def transfer(self, partition: int, fields: dict[str, int], result: Result, payload: bytes) -> tuple[int, bytes]:
        """Move the bytes of an accepted WRITE or READ; returns the `length` and the data of the answer."""
        store, opcode, offset = self.partitions[partition].store, fields["opcode"], fields["offset"]
        length = result.length * self.config.beat_bytes
        if opcode == _READ:
            if result.status != _OK:
                return 0, b""
            length = fields["length"] or length - offset
            return length, store.read(result.slot, offset, length)
        if opcode == _WRITE and result.status == _OK:
            store.write(result.slot, offset, whole_beats(self.config, payload)[: fields["length"]])
        return length, b""

    def operation_of(self, port: int, fields: dict[str, int]) -> Operation:
        """The directory operation of a well-formed request other than MATCH."""
        by_handle, digest, beat_bytes = names_handle(fields), fields["digest"], self.config.beat_bytes
        return Operation(
            port,
            _KINDS[fields["opcode"]],
            self._partition_of_port[port],
            fields["model_id"],
            fields["group"],
            fields["klass"],
            by_handle,
            digest & 0xFFFFFFFF if by_handle else 0,
            digest >> 32 & 0xFFFFFFFF if by_handle else 0,
            fields["offset"] // beat_bytes,
            fields["length"] // beat_bytes,
            0 if by_handle else digest,
        )

    def _match(self, port: int, partition: int, fields: dict[str, int], payload: bytes) -> Answer:
        digests, whole = match_digests(self.config, fields["length"], payload)
        model_id, group, count = fields["model_id"], fields["group"], 0
        kind = Kind.MATCH
        for digest in digests:
            operation = Operation(port, kind, partition, model_id, group, digest=digest, chain_first=count == 0)
            if self.operate(operation).status != _HIT:
                break
            count += 1
        if not whole:
            return self.answer(fields, Status.BAD_REQUEST)
        return self.answer(fields, _HIT if count else Status.MISS, count=count)

    def answer(
        self,
        fields: dict[str, int],
        status: Status,
        result: Result | None = None,
        length: int = 0,
        data: bytes = b"",
        count: int = 0,
    ) -> Answer:
        """The answer to a request (`fields`): `result` is its operation's, `length` and `data` are bytes, `count` is
        MATCH's.
        """
        answer = self._blank_response.copy()
        answer["status"], answer["opcode"], answer["tag"], answer["count"] = (
            status,
            fields["opcode"],
            fields["tag"],
            count,
        )
        if result is not None and (result.present and result.state_before != _RETIRING or status == _GRANTED):
            sealed = result.state_after == _SEALED
            answer["slot"], answer["generation"], answer["length"] = result.slot, result.generation, length
            answer["watermark"] = (result.length if sealed else result.landed) * self.config.beat_bytes
        return Answer(status, answer, data)

    def sweep(self, partition: int) -> int:
        """Let the sweeper work in a partition until there are slots enough (the high watermark); returns its
        operations.

        Ends after four rounds of the clock at the latest: by then every age has run out.
        """
        part, sweeper, steps = self.partitions[partition], self.config.ports, 0
        while part.retire_queue or part.low and steps < 4 * part.slots:
            if part.retire_queue:
                self.operate(Operation(sweeper, Kind.REAP, partition, slot=part.retire_queue[0]))
            else:
                self.operate(Operation(sweeper, Kind.VISIT, partition, slot=part.hand))
            steps += 1
        return steps
