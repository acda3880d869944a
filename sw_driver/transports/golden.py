"""The golden node as a transport: exact answers at once, no clock."""

import struct
from collections import Counter
from typing import Any

import numpy as np

from kvnode.models.golden import Answer, GoldenNode
from kvnode.models.golden.directory import Operation, Result
from kvnode.models.golden.events import EventLog
from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.batch import RESULT_DTYPE
from kvnode.models.spec.causes import Cause
from kvnode.models.spec.clock import TIME_BITS, tick_of
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import KIND_OF_OPCODE, SESSION_KINDS, Kind, ResponseFlag, State, Status
from kvnode.models.spec.events import EVENT, SEQUENCE_BITS
from kvnode.models.spec.messages import NUMBERED, REQUEST, RESPONSE
from kvnode.models.spec.settings import Setting

from ..errors import RegisterError
from ..transport import (
    ANSWERED,
    SKIPPED,
    Batch,
    RawEvent,
    RunResult,
    check_batch,
    check_patterns,
    set_port_down,
)

#: Answers with these statuses carry a handle (spec.batch).
_WITH_HANDLE = frozenset((Status.GRANTED, Status.HIT, Status.OK))
#: Answers to these, being OK, carry a session.
_WITH_SESSION = frozenset(opcode for opcode, kind in KIND_OF_OPCODE.items() if kind in SESSION_KINDS)
_LEASED = int(ResponseFlag.LEASED)
#: Where a header has its session, and its handle: what is copied from answers lies together.
_SESSION_AT, _DIGEST_AT = REQUEST.fields["session_epoch"].offset_bytes, REQUEST.fields["digest"].offset_bytes
_SESSION, _HANDLE, _LEASED_HANDLE = struct.Struct("<HI"), struct.Struct("<III"), struct.Struct("<IIII")

#: Kinds of operations that give rise to an event without moving a block (spec.events).
_EVENT_KINDS = frozenset(map(int, (Kind.POISON, Kind.RETIRE_MODEL, Kind.SESSION_MIGRATE, Kind.PORT_DOWN)))
_SEALED = State.SEALED
_KINDS, _STATUSES = len(Kind), len(Status)


class _WatchedNode(GoldenNode):
    """A golden node that counts its operations, keeps its events, and knows how old its leases are.

    `counts`: operations by (partition, kind, status), in this order. `causes`: why blocks left. `granted_at`: tick of
    each lease by (partition, number).
    """

    def __init__(self, config: NodeConfig, boot_epoch: int):
        super().__init__(config, boot_epoch)
        self.counts = [0] * (len(config.partitions) * _KINDS * _STATUSES)
        self.causes = [0] * len(Cause)
        self.log = EventLog()
        self.log.cleared()
        self.granted_at: dict[tuple[int, int], int] = {}

    def operate(self, op: Operation, cycle: int | None = None) -> Result:
        result = GoldenNode.operate(self, op, cycle)
        self.counts[(op.partition * _KINDS + op.kind) * _STATUSES + result.status] += 1
        before, after = result.state_before, result.state_after
        if before is not after:
            self.causes[result.cause] += 1
            if before is _SEALED or after is _SEALED:
                self._moved(op, result)
        elif result.granted_lease:
            self.granted_at[op.partition, result.granted_lease] = self.tick
        elif op.kind in _EVENT_KINDS:
            self._note(op, result)
        return result

    @property
    def tick(self) -> int:
        return tick_of(self._cycle, self.config.tick_cycles_log2)

    def _moved(self, op: Operation, result: Result) -> None:
        """Keep the event of a block that was sealed, or was sealed until now; where there is no room only count it."""
        log = self.log
        if len(log) < log.depth:
            self._note(op, result)
        else:
            log.sequence, log.overflow = (log.sequence + 1) % (1 << SEQUENCE_BITS), True

    def _note(self, op: Operation, result: Result) -> None:
        """Keep the event of an operation, if it has one."""
        record: dict[str, int] = {
            "kind": op.kind, "status": result.status, "partition": op.partition, "owner": op.owner,
            "cycle": self._cycle, "model_id": op.model_id, "ports": op.ports, "epoch": result.epoch,
            "state_before": result.state_before, "state_after": result.state_after, "cause": result.cause,
            "found_session": result.found_session, "found_epoch": result.found_epoch,
            "block_model_id": result.model_id, "block_group": result.group, "block_private": int(result.private),
            "block_slot": result.slot, "block_generation": result.generation, "block_session": result.session,
            "block_length": result.length, "block_digest": result.digest,
        }  # fmt: skip
        self.log.record(record)

    def operations(self) -> dict[str, int]:
        """Operations since reset by the name of their kind, those there were."""
        per_kind = np.array(self.counts).reshape(-1, _KINDS, _STATUSES).sum(axis=(0, 2)).tolist()
        return {kind.name: count for kind, count in zip(Kind, per_kind) if count}


class GoldenTransport:
    """`Transport` on `GoldenNode`: every request is a message to `GoldenNode.request`, in array order; idle,
    backpressure and cycles mean nothing. Time passes with every operation and in `wait`. `patience` means nothing
    either: a request is asked once, because what it would wait for can only come behind it.

    Requests of a port that is down, those of a node that is drained, and all that wait for these are not answered.

    Used by: replay --on golden, client, tests.
    """

    name = "golden"

    def __init__(self, config: NodeConfig, boot_epoch: int = 0):
        self.config = config
        self.reset(boot_epoch)

    def reset(self, boot_epoch: int = 0) -> None:
        """Forget everything."""
        self.boot_epoch = boot_epoch
        self.node = _WatchedNode(self.config, boot_epoch)
        self.registers = _Registers(self)
        self._requests = 0

    def __enter__(self) -> "GoldenTransport":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held open."""

    def wait(self, cycles: int) -> None:
        if cycles < 0:
            raise ValueError(f"cycles = {cycles}: must be 0 or more")
        self.node.advance(cycles)

    def read_register(self, address: int) -> int:
        return self.registers.read(address)

    def write_register(self, address: int, data: int) -> None:
        self.registers.write(address, data)

    def events(self) -> list[RawEvent]:
        log, events = self.node.log, []
        while (shown := log.shown) is not None:
            events.append(RawEvent(shown.sequence, log.overflow, shown.event))
            log.pop()
        return events

    def port_down(self, port: int, down: bool = True) -> None:
        set_port_down(self, port, down)

    def retire_model(self, partition: int, model_id: int) -> None:
        self.node.retire_model(partition, model_id)

    def capture(self, cycle: int | None = None) -> str:
        return "The golden node has no waveform."

    def statistics(self) -> dict[str, Any]:
        occupancy: Counter[str] = Counter()
        for partition in self.node.partitions:
            occupancy.update({state.name: count for state, count in partition.occupancy().items()})
        return {
            "requests": self._requests,
            "lockstep_operations": None,
            "operations": self.node.operations(),
            "causes": {cause.name: count for cause, count in zip(Cause, self.node.causes) if cause and count},
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
        before = sum(self.node.counts)
        refused = self.registers.refused_ports
        sent = _sent(batch, refused) if refused else None
        answers = self._answers(batch if sent is None else _only(batch, sent), memoryview(payload))
        results = _results(answers)
        if sent is not None:
            every = np.zeros(len(batch), RESULT_DTYPE)
            every[sent] = results
            results = every
        self._requests += len(answers)
        data = b"".join([answer.data for answer in answers if answer is not None])
        return RunResult(results, memoryview(data), 0, sum(self.node.counts) - before)

    def _answers(self, batch: Batch, payload: memoryview) -> list[Answer | None]:
        """The node's answer to each request, None for one that was skipped."""
        node, size_bytes = self.node, REQUEST.size_bytes
        headers = batch["header"].tobytes()
        columns = ("port", "handle_from", "session_from", "payload_offset", "payload_bytes")
        rows = zip(*(batch[name].tolist() for name in columns))
        answers: list[Answer | None] = []
        for index, (port, handle_from, session_from, offset, payload_bytes) in enumerate(rows):
            header = headers[index * size_bytes : (index + 1) * size_bytes]
            if handle_from >= 0 or session_from >= 0:
                handle = answers[handle_from] if handle_from >= 0 else None
                session = answers[session_from] if session_from >= 0 else None
                no_handle = handle_from >= 0 and (handle is None or handle.status not in _WITH_HANDLE)
                if no_handle or session_from >= 0 and not _carries_session(session):
                    answers.append(None)
                    continue
                header = self._complete(header, handle, session)
            data = bytes(payload[offset : offset + payload_bytes]) if payload_bytes else b""
            answers.append(node.request(port, header, data))
        return answers

    def _complete(self, header: bytes, handle: Answer | None, session: Answer | None) -> bytes:
        """A header with the handle of one answer and the session of another."""
        completed = bytearray(header)
        if handle is not None:
            given = handle.fields
            parts = given["slot"], given["generation"], given["boot_epoch"]
            if given["flags"] & _LEASED:
                _LEASED_HANDLE.pack_into(completed, _DIGEST_AT, *parts, given["watermark"])
            else:
                _HANDLE.pack_into(completed, _DIGEST_AT, *parts)
        if session is not None:
            _SESSION.pack_into(completed, _SESSION_AT, session.fields["generation"], session.fields["slot"])
        return bytes(completed)


def _carries_session(answer: Answer | None) -> bool:
    return answer is not None and answer.status == Status.OK and answer.fields["opcode"] in _WITH_SESSION


def _results(answers: list[Answer | None]) -> Any:
    """RESULT_DTYPE rows of the answers; data lies in the order of the answers."""
    results = np.zeros(len(answers), RESULT_DTYPE)
    answered = np.array([answer is not None for answer in answers], bool)
    results["done"], results["tries"] = np.where(answered, ANSWERED, SKIPPED), answered
    sizes = np.array([0 if answer is None else len(answer.data) for answer in answers], np.uint64)
    results["data_bytes"], results["data_offset"] = sizes, np.cumsum(sizes) - sizes
    rows = [tuple(answer.fields.values()) for answer in answers if answer is not None]
    header = results["header"]
    for name, column in zip(RESPONSE.fields, zip(*rows)):
        header[name][answered] = column
    return results


def _sent(batch: Batch, refused: int) -> Any:
    """Indices of the requests that a node with some `refused` ports (a mask) takes: not those behind a port's first
    that it does not take, and not those that wait for such a one.
    """
    stuck = [bool(refused >> port & 1) for port in range(64)]
    waiting: list[bool] = []
    rows = zip(*(batch[name].tolist() for name in ("port", "after", "handle_from", "session_from")))
    for port, *sources in rows:
        stuck[port] = stuck[port] or any(source >= 0 and waiting[source] for source in sources)
        waiting.append(stuck[port])
    return np.flatnonzero(~np.array(waiting, bool))


def _only(batch: Batch, indices: Any) -> Batch:
    """Some requests of a batch as a batch; they wait for none of the others."""
    part = batch[indices]
    place = np.full(len(batch), -1)
    place[indices] = np.arange(len(indices))
    for name in ("after", "handle_from", "session_from"):
        part[name] = np.where(part[name] >= 0, place[part[name]], -1)
    return part


#: What a partition's registers hold by the offset of the register from the first one.
_OF_PARTITION = {
    getattr(registers, f"PARTITION_{name}_ADDRESS") - registers.PARTITION_PORTS_ADDRESS: name
    for name in (
        "PORTS", "SLOTS_LOG2", "SLOT_BASE", *(setting.name for setting in Setting), "OPTIONS", "FREE_SLOTS",
        "FILL_ROWS_USED", "LEASES_HELD", "OLDEST_LEASE_TICKS", "SESSIONS_OPEN",
    )
}  # fmt: skip


def _field(name: str, value: int) -> int:
    """A value where a field of a register has it; bits that it has not are lost."""
    mask, shift = getattr(registers, f"{name}_MASK"), getattr(registers, f"{name}_SHIFT")
    return int(value << shift & mask)


def _value(name: str, word: int) -> int:
    """The value of a field of a register."""
    return int((word & getattr(registers, f"{name}_MASK")) >> getattr(registers, f"{name}_SHIFT"))


class _Registers:
    """The management registers of a golden node: what rtl/csr/node.rdl says of them.

    `refused_ports`: mask of the ports whose requests are not taken: down, or all while the node is drained.
    """

    def __init__(self, transport: GoldenTransport):
        self._transport, self._node, self._config = transport, transport.node, transport.config
        self._down = self._drain = 0
        #: Registers that are only remembered, by address: what selects, and what shows the last write.
        self._kept = dict.fromkeys(
            (registers.COUNTER_SELECT_ADDRESS, registers.HISTOGRAM_SELECT_ADDRESS, registers.MODEL_RETIRE_ADDRESS,
             registers.POISON_ADDRESS), 0,
        )  # fmt: skip

    @property
    def refused_ports(self) -> int:
        return (1 << self._config.ports) - 1 if self._drain else self._down

    def read(self, address: int) -> int:
        address &= ~3
        place = self._place(address)
        if place is not None:
            return self._read_partition(*place)
        if address in self._kept:
            return self._kept[address]
        event = (address - registers.EVENT_DATA_ADDRESS) // registers.EVENT_DATA_STRIDE_BYTES
        if 0 <= event < registers.EVENT_DATA_COUNT:
            shown = self._node.log.shown
            data = EVENT.pack(**shown.event) if shown is not None else bytes(EVENT.size_bytes)
            return int.from_bytes(data[4 * event : 4 * event + 4], "little")
        values = self._values()
        if address not in values:
            raise RegisterError(f"no register stands at {address:#06x}")
        return values[address]

    def _values(self) -> dict[int, int]:
        """The registers of the node as a whole."""
        config, log = self._config, self._node.log
        bits = int.bit_length
        log2 = config.tick_cycles_log2
        counter = self._counter()
        return {
            registers.ID_ADDRESS: registers.ID_VALUE_RESET,
            registers.VERSION_ADDRESS: _field("VERSION_PATCH", registers.VERSION_PATCH_RESET)
            | _field("VERSION_MINOR", registers.VERSION_MINOR_RESET)
            | _field("VERSION_MAJOR", registers.VERSION_MAJOR_RESET),
            registers.CAPABILITIES_0_ADDRESS: _field("CAPABILITIES_0_PORTS", config.ports)
            | _field("CAPABILITIES_0_PARTITIONS", len(config.partitions))
            | _field("CAPABILITIES_0_BEAT_BYTES", config.beat_bytes)
            | _field("CAPABILITIES_0_BANKS", config.ports),
            registers.CAPABILITIES_1_ADDRESS: config.block_beats,
            registers.CAPABILITIES_2_ADDRESS: _field(
                "CAPABILITIES_2_MAX_PAYLOAD_BEATS", config.max_payload_bytes // config.beat_bytes
            )
            | _field("CAPABILITIES_2_MODELS_LOG2", bits(config.models) - 1)
            | _field("CAPABILITIES_2_FILL_ROWS_LOG2", bits(config.fill_rows) - 1),
            registers.CAPABILITIES_3_ADDRESS: _field("CAPABILITIES_3_SESSIONS", config.sessions)
            | _field("CAPABILITIES_3_LEASES", config.leases)
            | _field("CAPABILITIES_3_TICK_CYCLES_LOG2", log2)
            | _field("CAPABILITIES_3_SHARING", int(config.sharing == "donate")),
            registers.BOOT_EPOCH_ADDRESS: self._node.boot_epoch,
            registers.CONTROL_ADDRESS: _field("CONTROL_DRAIN", self._drain),
            registers.STATUS_ADDRESS: _field("STATUS_READY", int(not self._drain))
            | _field("STATUS_DRAINED", self._drain),
            registers.PORT_DOWN_ADDRESS: self._down,
            registers.EVENT_LEVEL_ADDRESS: len(log),
            registers.EVENT_SEQUENCE_ADDRESS: log.shown.sequence if log.shown is not None else 0,
            registers.EVENT_STATUS_ADDRESS: _field("EVENT_STATUS_VALID", int(log.shown is not None))
            | _field("EVENT_STATUS_OVERFLOW", int(log.overflow)),
            registers.EVENT_POP_ADDRESS: 0,
            registers.COUNTER_LOW_ADDRESS: counter & 0xFFFFFFFF,
            registers.COUNTER_HIGH_ADDRESS: counter >> 32,
            registers.HISTOGRAM_LOW_ADDRESS: 0,
        }

    def _counter(self) -> int:
        word = self._kept[registers.COUNTER_SELECT_ADDRESS]
        partition, kind, status = (_value(f"COUNTER_SELECT_{name}", word) for name in ("PARTITION", "KIND", "STATUS"))
        if partition >= len(self._config.partitions) or kind >= _KINDS or status >= _STATUSES:
            return 0
        return self._node.counts[(partition * _KINDS + kind) * _STATUSES + status]

    @staticmethod
    def _place(address: int) -> tuple[int, str] | None:
        """(partition, name) of a register of a partition."""
        number, offset = divmod(address - registers.PARTITION_PORTS_ADDRESS, registers.PARTITION_STRIDE_BYTES)
        if not 0 <= number < registers.PARTITION_COUNT:
            return None
        if offset not in _OF_PARTITION:
            raise RegisterError(f"no register stands at {address:#06x}")
        return number, _OF_PARTITION[offset]

    def _read_partition(self, number: int, name: str) -> int:
        config = self._config
        if number >= len(config.partitions):
            return 0
        own, part = config.partitions[number], self._node.partitions[number]
        if name in Setting.__members__:
            return part.settings[Setting[name]]
        if name == "OLDEST_LEASE_TICKS":
            return self._oldest_lease_ticks(number)
        return {
            "PORTS": config.port_masks[number],
            "SLOTS_LOG2": own.slots_log2,
            "SLOT_BASE": config.slot_bases[number],
            "OPTIONS": _field("PARTITION_OPTIONS_PUBLIC", int(own.public)),
            "FREE_SLOTS": part.free_count,
            "FILL_ROWS_USED": part.occupancy()[State.FILLING],
            "LEASES_HELD": len(part.leases),
            "SESSIONS_OPEN": sum(session.open for session in part.sessions),
        }[name]

    def _oldest_lease_ticks(self, number: int) -> int:
        node, bits = self._node, self._config.lease_bits
        held = {
            NUMBERED | lease.generation << bits | row
            for row, lease in enumerate(node.partitions[number].leases.rows)
            if lease is not None
        }
        times = node.granted_at
        for key in [key for key in times if key[0] == number and key[1] not in held]:
            del times[key]
        ages = [
            node.tick - tick & (1 << TIME_BITS) - 1 for (partition, _), tick in times.items() if partition == number
        ]
        return max(ages, default=0)

    def write(self, address: int, data: int) -> None:
        if not 0 <= data < 1 << 32:
            raise ValueError(f"data = {data:#x}: a register has 32 bits")
        address &= ~3
        place = self._place(address)
        if place is not None:
            self._configure(*place, data)
        elif address == registers.CONTROL_ADDRESS:
            self._drain = _value("CONTROL_DRAIN", data)
            if _value("CONTROL_RESET", data):
                self._transport.reset((self._node.boot_epoch + 1) % (1 << self._config.boot_epoch_bits))
        elif address == registers.PORT_DOWN_ADDRESS:
            mask = _value("PORT_DOWN_MASK", data) & (1 << self._config.ports) - 1
            newly, self._down = mask & ~self._down, mask
            for port in range(self._config.ports):
                if newly >> port & 1:
                    self._node.port_down(port)
        elif address == registers.EVENT_POP_ADDRESS:
            if _value("EVENT_POP_POP", data):
                self._node.log.pop()
        elif address in self._kept:
            self._keep(address, data)
        else:
            self.read(address)

    def _keep(self, address: int, data: int) -> None:
        name, fields = {
            registers.COUNTER_SELECT_ADDRESS: ("COUNTER_SELECT", ("PARTITION", "KIND", "STATUS")),
            registers.HISTOGRAM_SELECT_ADDRESS: ("HISTOGRAM_SELECT", ("PORT", "BUCKET")),
            registers.MODEL_RETIRE_ADDRESS: ("MODEL_RETIRE", ("PARTITION", "MODEL_ID")),
            registers.POISON_ADDRESS: ("POISON", ("PARTITION", "SLOT")),
        }[address]
        partition, number = (_value(f"{name}_{field}", data) for field in fields[:2])
        self._kept[address] = sum(_field(f"{name}_{field}", _value(f"{name}_{field}", data)) for field in fields)
        config = self._config
        if partition >= len(config.partitions):
            return
        if address == registers.MODEL_RETIRE_ADDRESS and number < config.models:
            self._node.retire_model(partition, number)
        if address == registers.POISON_ADDRESS and number < config.partitions[partition].slots:
            self._node.operate(Operation(config.ports, Kind.POISON, partition=partition, slot=number))

    def _configure(self, number: int, name: str, data: int) -> None:
        if name not in Setting.__members__ or number >= len(self._config.partitions):
            return
        value = _value(f"PARTITION_{name}_VALUE", data)
        self._node.operate(
            Operation(self._config.ports, Kind.CONFIGURE, partition=number, row=Setting[name], sequence=value)
        )
        self._node.sweep(number)
