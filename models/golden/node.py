"""The node, untimed and exact.

Three levels of use: `put`, `match`, `read`, `retire_model` and so on for people; `request` takes and gives the bytes of
messages as a port does; `operate` (golden.directory) is one directory operation, which lockstep steps with the trace
records of the RTL.
"""

from typing import NamedTuple

from ..spec.config import NodeConfig, preset
from ..spec.crc import shift
from ..spec.enums import KIND_OF_OPCODE, SESSION_KINDS, Flag, Kind, Opcode, ResponseFlag, State, Status
from ..spec.messages import HANDLE, REQUEST, RESPONSE, VERSION, TraceFlag
from ..spec.requests import (
    WITH_PORTS,
    check_request,
    handle_in,
    match_digests,
    payload_beats,
    span_bytes,
    whole_beats,
)
from .crc import crc32c
from .directory import GoldenDirectory, Operation, Result

_KINDS = {int(opcode): int(kind) for opcode, kind in KIND_OF_OPCODE.items()}
# Members of enumerations are slow to look up and to compare, and these are needed for every request.
_PING, _MATCH, _READ, _WRITE = int(Opcode.PING), int(Opcode.MATCH), int(Opcode.READ), int(Opcode.WRITE)
_PUT_START, _PUT_END, _SESSION_OPEN = int(Opcode.PUT_START), int(Opcode.PUT_END), int(Opcode.SESSION_OPEN)
_OK, _HIT = Status.OK, Status.HIT
_LAND, _VISIT, _PATROL, _REAP = int(Kind.LAND), int(Kind.VISIT), int(Kind.PATROL), int(Kind.REAP)
_EXPIRE_FILL, _EXPIRE_LEASE, _EXPIRE_SESSION = map(int, (Kind.EXPIRE_FILL, Kind.EXPIRE_LEASE, Kind.EXPIRE_SESSION))
_SEALED = State.SEALED
_OF_SESSIONS = frozenset(int(kind) for kind in SESSION_KINDS)
_WITH_PORTS = frozenset(map(int, WITH_PORTS))
_LEASED = ResponseFlag.LEASED
_FLAG_LEASE, _FLAG_PRIVATE = int(Flag.LEASE), int(Flag.PRIVATE)
_BY_HANDLE, _WHOLE = TraceFlag.BY_HANDLE, TraceFlag.WHOLE
#: Makes an Operation or an Answer of all its fields in order, in half the time of its constructor.
_new = tuple.__new__

#: Where an operation has what its LAND changes; its digest is the last.
_FLAGS, _CRC = Operation._fields.index("flags"), Operation._fields.index("crc")

#: Requests between two laps of the sweeper's looks at deadlines.
_LAP_REQUESTS = 1024


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
        self._requests = 0
        self._blank_response = dict.fromkeys(RESPONSE.fields, 0) | {"version": VERSION, "boot_epoch": boot_epoch}

    # For people.

    def put(
        self, port: int, model_id: int, digest: int, data: bytes, *, group: int = 0, klass: int = 1, **more: int
    ) -> Answer:
        """Write a whole block. `data`: a multiple of beat_bytes, at most block_bytes. Ends SEALED, or says why not.

        `more`: other fields of PUT_START (session, session_epoch, sequence, ttl, deadline, flags).
        """
        key = {"model_id": model_id, "group": group}
        answer = self.ask(port, Opcode.PUT_START, digest=digest, length=len(data), klass=klass, **key, **more)
        if answer.status != Status.GRANTED:
            return answer
        for offset in range(0, len(data), self.config.max_payload_bytes):
            part = data[offset : offset + self.config.max_payload_bytes]
            self.ask(port, Opcode.WRITE, part, digest=self.handle_of(answer), offset=offset, length=len(part), **key)
        return self.ask(port, Opcode.PUT_END, digest=self.handle_of(answer, crc=crc32c(data)), **key)

    def match(self, port: int, model_id: int, digests: list[int], *, group: int = 0, **more: int) -> Answer:
        """Number of leading digests whose blocks are sealed, in `fields["count"]`."""
        payload = b"".join(digest.to_bytes(32, "little") for digest in digests)
        return self.ask(port, Opcode.MATCH, payload, model_id=model_id, group=group, length=len(payload), **more)

    def read(
        self, port: int, model_id: int, digest: int, *, group: int = 0, offset: int = 0, length: int = 0, **more: int
    ) -> Answer:
        """Bytes of a block; `length` 0 reads to its end."""
        return self.ask(
            port, Opcode.READ, model_id=model_id, group=group, digest=digest, offset=offset, length=length, **more
        )

    def drop(self, port: int, model_id: int, digest: int, *, group: int = 0) -> Answer:
        """Forget a sealed block."""
        return self.ask(port, Opcode.DROP, model_id=model_id, group=group, digest=digest)

    def retire_model(self, partition: int, model_id: int) -> None:
        """Make every block of a model unreachable, in one write whatever it holds; the sweeper takes their slots."""
        part = self.partitions[partition]
        self.operate(Operation(self.config.ports, Kind.RETIRE_MODEL, partition=partition, model_id=model_id))
        for _ in range(part.slots):
            self._look(_PATROL, partition, part.patrol)
        self.sweep(partition)

    def advance(self, cycles: int) -> None:
        """Let time pass, and then, in no time, let the sweeper look at every deadline."""
        self._cycle += cycles
        pace, self._pace_cycles = self._pace_cycles, 0
        for number, part in enumerate(self.partitions):
            self._lap(number)
            for _ in range(part.slots):
                self._look(_PATROL, number, part.patrol)
            self.sweep(number)
        self._pace_cycles = pace

    def handle_of(self, answer: Answer, **more: int) -> int:
        """The handle an answer carries, as the `digest` field of a by-handle request; `more`: other fields of it."""
        fields = answer.fields
        if fields["flags"] & _LEASED:
            more = {"lease": fields["watermark"], **more}
        handle = HANDLE.pack(
            slot=fields["slot"], generation=fields["generation"], boot_epoch=fields["boot_epoch"], **more
        )
        return int.from_bytes(handle, "little")

    def ask(self, port: int, opcode: Opcode, payload: bytes = b"", /, **fields: int) -> Answer:
        """Answer a message given by its fields; those of version and partition are filled in."""
        fields = {"version": VERSION, "partition": self._partition_of_port[port], **fields}
        return self.request(port, REQUEST.pack(opcode=opcode, **fields), payload)

    # As a port does.

    def request(self, port: int, header: bytes, payload: bytes = b"") -> Answer:
        """Answer one message: a 64-byte header and its payload. The sweeper then works until it has nothing to do."""
        fields = REQUEST.unpack(header)
        status = check_request(self.config, port, self.boot_epoch, fields, len(payload))
        opcode = fields["opcode"]
        self._requests += 1
        if self._requests % _LAP_REQUESTS == 0:
            for number in range(len(self.partitions)):
                self._lap(number)
                self.sweep(number)
        if status is not _OK or opcode == _PING:
            self.operate(Operation(port, Kind.ANSWER, partition=self._partition_of_port[port], status=status))
            return self.answer(fields, status)
        partition = fields["partition"]
        if opcode == _MATCH:
            answer = self._match(port, fields, payload)
            self.sweep(partition)
            return answer
        if opcode == _SESSION_OPEN:
            self._offer_session(partition)
        operation = self.operation_of(port, fields)
        result = self.operate(operation)
        length, data = self.transfer(partition, fields, result, payload)
        if opcode == _WRITE and result.status is _OK:
            result = self.operate(self.landing_of(operation, fields, payload))
        part = self.partitions[partition]
        if part.retire_queue or part.low or part.releasing:
            self.sweep(partition)
        return self.answer(fields, result.status, result, length, data)

    def landing_of(self, operation: Operation, fields: dict[str, int], payload: bytes) -> Operation:
        """The LAND of an accepted WRITE, with the CRC of its member's part so far."""
        length = fields["length"]
        whole = payload_beats(self.config, len(payload)) == payload_beats(self.config, length)
        fill = self.partitions[operation.partition].blocks[operation.slot].fill
        member = fill.parts[operation.member] if fill is not None else None
        crc = crc32c(whole_beats(self.config, payload)[:length], member.crc if member is not None else 0)
        flags = operation.flags | _WHOLE if whole else operation.flags
        if operation.lease:
            operation = operation._replace(lease=0)
        before, between, behind = operation[2:_FLAGS], operation[_FLAGS + 1 : _CRC], operation[_CRC + 1 :]
        return _new(Operation, (operation.owner, _LAND, *before, flags, *between, crc, *behind))

    def transfer(self, partition: int, fields: dict[str, int], result: Result, payload: bytes) -> tuple[int, bytes]:
        """Move the bytes of an accepted WRITE or READ; returns the `length` and the data of the answer."""
        opcode, length = fields["opcode"], result.length * self.config.beat_bytes
        if opcode == _READ:
            if result.status is not _OK:
                return 0, b""
            store, offset = self.partitions[partition].store, fields["offset"]
            handle = handle_in(fields)
            if handle is not None and handle.count:
                run = fields["length"]
                offsets = (
                    range(offset, offset + handle.count * handle.stride, handle.stride)
                    if handle.stride
                    else [offset] * handle.count
                )
                data = b"".join([store.read(result.slot, at, run) for at in offsets])
                return len(data), data
            length = fields["length"] or length - offset
            return length, store.read(result.slot, offset, length)
        if opcode == _WRITE and result.status is _OK:
            written = whole_beats(self.config, payload)[: fields["length"]]
            self.partitions[partition].store.write(result.slot, fields["offset"], written)
        return length, b""

    def operation_of(self, port: int, fields: dict[str, int]) -> Operation:
        """The directory operation of a well-formed request; for MATCH without its digest."""
        opcode, digest, beat_bytes = fields["opcode"], fields["digest"], self.config.beat_bytes
        offset, length, extent = fields["offset"] // beat_bytes, fields["length"] // beat_bytes, 0
        member, members, flags = fields["member"], fields["members"] or 1, fields["flags"]
        traced = 0
        if flags:
            traced = TraceFlag.LEASE if flags & _FLAG_LEASE else 0
            traced |= TraceFlag.PRIVATE if flags & _FLAG_PRIVATE else 0
        slot = generation = lease = crc = part_crc = ports = 0
        handle = handle_in(fields)
        if handle is not None:
            slot, generation, lease, crc = handle.slot, handle.generation, handle.lease, handle.crc
            traced, digest = traced | _BY_HANDLE, 0
            if opcode == _READ and handle.count:
                length = span_bytes(fields, handle) // beat_bytes
        elif opcode in _WITH_PORTS:
            ports, digest = digest, 0
        if opcode == _PUT_START:
            extent, offset, length = length, member * length, members * length
        elif opcode == _PUT_END:
            extent, length = length, 0
            part_crc = shift(crc, (members - 1 - member) * extent * beat_bytes) if members > 1 else crc
        elif opcode == _MATCH:
            length = 0
        return _new(Operation, (
            port, _KINDS[opcode], 0, fields["partition"], fields["group"], fields["klass"], traced, member, members,
            fields["ttl"], fields["deadline"], ports, fields["model_id"], fields["session_epoch"], slot, generation,
            offset, length, extent, 0, fields["session"], fields["sequence"], lease, crc, part_crc, digest,
        ))  # fmt: skip

    def _match(self, port: int, fields: dict[str, int], payload: bytes) -> Answer:
        digests, whole = match_digests(self.config, fields["length"], payload)
        operation, first = self.operation_of(port, fields), _OK
        hits: list[Result] = []
        asked = operation._replace(flags=operation.flags | TraceFlag.CHAIN_FIRST)[:-1]
        for digest in digests:
            result = self.operate(_new(Operation, (*asked, digest)))
            if result.status is not _HIT:
                first = first if hits else result.status
                break
            hits.append(result)
            asked = operation[:-1]
        return self.match_answer(fields, first, hits, whole)

    def match_answer(self, fields: dict[str, int], first: Status, hits: list[Result], whole: bool) -> Answer:
        """The answer to a MATCH: `first` is the status of its first digest if that missed, `hits` the results of the
        leading hits; `whole`: its payload was as announced.
        """
        if not whole:
            return self.answer(fields, Status.BAD_REQUEST)
        answer = self.answer(fields, _HIT if hits else first, count=len(hits))
        if not fields["flags"] & _FLAG_LEASE or not hits:
            return answer
        data = b"".join(
            HANDLE.pack(slot=hit.slot, generation=hit.generation, boot_epoch=self.boot_epoch, lease=hit.granted_lease)
            for hit in hits
        )
        answer.fields["flags"], answer.fields["length"] = int(_LEASED), len(data)
        return answer._replace(data=data)

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
        answer["status"], answer["opcode"], answer["tag"] = int(status), fields["opcode"], fields["tag"]
        if count:
            answer["count"] = count
        if result is not None and result.found:
            sealed = result.state_after is _SEALED
            answer["slot"], answer["generation"], answer["length"] = result.slot, result.generation, length
            answer["watermark"] = (result.length if sealed else result.landed) * self.config.beat_bytes
            answer["crc"] = result.crc if sealed else 0
            if result.granted_lease:
                answer["flags"], answer["watermark"] = int(_LEASED), result.granted_lease
        elif result is not None and _KINDS[fields["opcode"]] in _OF_SESSIONS:
            answer["slot"], answer["generation"] = result.found_session, result.found_epoch
            answer["watermark"] = result.committed
        return _new(Answer, (status, answer, data))

    # The sweeper.

    def _offer_session(self, partition: int) -> None:
        """Let the sweeper find a row for the next session, if there is one."""
        part = self.partitions[partition]
        for _ in range(self.config.sessions):
            if part.offer is not None:
                break
            self._look(_EXPIRE_SESSION, partition, row=part.session_hand)

    def _look(self, kind: int, partition: int, slot: int = 0, row: int = 0, session: int = 0) -> None:
        """One step of the sweeper."""
        self.operate(_new(Operation, (
            self.config.ports, kind, 0, partition, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, slot, 0, 0, 0, 0, row, session, 0, 0,
            0, 0, 0,
        )))  # fmt: skip

    def _lap(self, partition: int) -> None:
        """One look at every session, and then at every fill and every lease; two at what is being taken back."""
        part, config = self.partitions[partition], self.config
        for _ in range(config.sessions):
            self._look(_EXPIRE_SESSION, partition, row=part.session_hand)
        for _ in range(config.fill_rows * (2 if part.revoking else 1)):
            row = part.fill_hand
            self._look(_EXPIRE_FILL, partition, part.fills.slots[row], row)
        for _ in range(config.leases * (2 if part.releasing else 1)):
            row = part.lease_hand
            slot, session = part.leases.last(row)
            self._look(_EXPIRE_LEASE, partition, slot, row, session)

    def port_down(self, port: int) -> None:
        """Take back what a port holds: blocks that it was writing, and its leases."""
        partition = self._partition_of_port[port]
        self.operate(Operation(self.config.ports, Kind.PORT_DOWN, partition=partition, ports=1 << port))
        self._lap(partition)
        self.sweep(partition)

    def sweep(self, partition: int) -> int:
        """Let the sweeper work in a partition until there are slots enough (the high watermark); returns its
        operations.

        Ends after four rounds of the clock at the latest: by then every age has run out.
        """
        part, steps = self.partitions[partition], 0
        while part.retire_queue or part.low and steps < 4 * part.slots:
            if part.retire_queue:
                self._look(_REAP, partition, part.retire_queue[0])
            else:
                self._look(_VISIT, partition, part.hand)
            steps += 1
        if part.releasing:
            self._lap(partition)
        return steps
