"""What happens in a node, as records for those who route requests: the names that consumers of vLLM's KV events know.

A consumer keeps a picture of what each node holds and asks `EventReader.poll` for what has changed since. After `Lost`
the picture is not to be trusted any more: it is to be dropped, as after `AllBlocksCleared`, and grows again from the
blocks that are stored and from lookups.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.causes import Cause
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.events import EVENT, SEQUENCE_BITS, EventType

from .transport import RawEvent, Transport

#: What vLLM calls the place where a block lies.
MEDIUM = "KVNODE"
_MODULUS = 1 << SEQUENCE_BITS


@dataclass(frozen=True)
class Event:
    """Number of the event, and when it happened (cycles since reset)."""

    sequence: int
    cycle: int


@dataclass(frozen=True)
class _OfBlock(Event):
    """`block_hashes`: the digest, as in a request. `group_idx`: its group. A `private` block is found by its session
    only: nobody else should be sent here for it.
    """

    medium: ClassVar[str] = MEDIUM
    partition: int
    model_id: int
    group_idx: int
    private: bool
    block_hashes: tuple[bytes, ...]
    slot: int
    generation: int


@dataclass(frozen=True)
class BlockStored(_OfBlock):
    """A block can be read from now on. What the node was not told is empty: the parent, the tokens and their number."""

    parent_block_hash: ClassVar[None] = None
    token_ids: ClassVar[tuple[int, ...]] = ()
    block_size: ClassVar[int] = 0
    lora_id: ClassVar[None] = None
    lora_name: ClassVar[None] = None
    size_bytes: int


@dataclass(frozen=True)
class BlockRemoved(_OfBlock):
    """A block is gone, and why."""

    reason: Cause


@dataclass(frozen=True)
class BlockPoisoned(_OfBlock):
    """The bytes of a block are damaged; it cannot be read any more, and is removed when it is next asked for."""


@dataclass(frozen=True)
class AllBlocksCleared(Event):
    """The node was reset: it holds nothing."""


@dataclass(frozen=True)
class ModelRetired(Event):
    """No block of the model that was stored before is found any more; `model_epoch` is that of those to come."""

    partition: int
    model_id: int
    model_epoch: int


@dataclass(frozen=True)
class SessionMoved(Event):
    """A session has another owner: those ports, in that epoch."""

    partition: int
    session: int
    session_epoch: int
    ports: tuple[int, ...]


@dataclass(frozen=True)
class PortDown(Event):
    """What those ports were writing is given up, and their leases end."""

    partition: int
    ports: tuple[int, ...]


@dataclass(frozen=True)
class Lost:
    """`count` events from number `sequence` on are missing (None: it is not known yet how many). Resynchronise."""

    sequence: int
    count: int | None


AnyEvent = BlockStored | BlockRemoved | BlockPoisoned | AllBlocksCleared | ModelRetired | SessionMoved | PortDown | Lost


def record_of(config: NodeConfig, raw: RawEvent) -> AnyEvent:
    """The record of one event. Raises ValueError for a type that this version does not know."""
    fields = raw.fields
    when = {"sequence": raw.sequence, "cycle": fields["cycle"]}
    kind = EventType(fields["type"])
    if kind == EventType.CLEARED:
        return AllBlocksCleared(**when)
    partition = fields["partition"]
    if kind == EventType.MODEL_RETIRED:
        return ModelRetired(**when, partition=partition, model_id=fields["model_id"], model_epoch=fields["generation"])
    if kind == EventType.SESSION_MOVED:
        ports = _ports(fields["slot"]) or (fields["owner"],)
        return SessionMoved(
            **when, partition=partition, session=fields["session"], session_epoch=fields["generation"], ports=ports
        )
    if kind == EventType.PORT_DOWN:
        return PortDown(**when, partition=partition, ports=_ports(fields["slot"]))
    block = when | {name: fields[name] for name in ("partition", "model_id", "slot", "generation")}
    rest = (fields["group"], bool(fields["private"]), (fields["digest"].to_bytes(32, "little"),))
    named = dict(zip(("group_idx", "private", "block_hashes"), rest))
    if kind == EventType.STORED:
        return BlockStored(**block, **named, size_bytes=fields["length"] * config.beat_bytes)  # type: ignore[arg-type]
    if kind == EventType.REMOVED:
        return BlockRemoved(**block, **named, reason=Cause(fields["cause"]))  # type: ignore[arg-type]
    return BlockPoisoned(**block, **named)  # type: ignore[arg-type]


def _ports(mask: int) -> tuple[int, ...]:
    return tuple(port for port in range(mask.bit_length()) if mask >> port & 1)


class EventReader:
    """Reads a node's events. One reader for a node: an event that was read is gone from the ring.

    >>> from kvnode.models.spec.config import preset
    >>> from kvnode.sw_driver.client import Client
    >>> from kvnode.sw_driver.transports import open_transport
    >>> with Client(open_transport("golden", preset("sim"))) as client:
    ...     reader = EventReader(client.transport)
    ...     replies = client.put([(bytes(32), bytes(4096))]), client.drop([bytes(32)])
    ...     for event in reader.poll():
    ...         print(event.sequence, type(event).__name__, getattr(event, "reason", Cause.NONE).name)
    0 AllBlocksCleared NONE
    1 BlockStored NONE
    2 BlockRemoved DROPPED

    Used by: programs that route requests, connectors.
    """

    def __init__(self, transport: Transport):
        self._transport = transport
        self._next = 0
        #: The events from `_next` on are missing, and that was said.
        self._announced = False

    def poll(self) -> list[AnyEvent]:
        """What has happened since the last call, in order, with a `Lost` where events are missing."""
        return self._records(self._transport.events())

    def _records(self, raw: Iterable[RawEvent]) -> list[AnyEvent]:
        records: list[AnyEvent] = []
        last, told = None, False
        for last in raw:
            missing = (last.sequence - self._next) % _MODULUS
            if missing and last.fields["type"] != EventType.CLEARED and not self._announced:
                records.append(Lost(self._next, missing))
                told = True
            self._announced = False
            records.append(record_of(self._transport.config, last))
            self._next = (last.sequence + 1) % _MODULUS
        if last is not None and last.overflow and not told:
            # The last of a full ring: those behind it are missing, and no later one has told so yet.
            records.append(Lost(self._next, None))
            self._announced = True
        return records


def drain(transport: Transport) -> list[RawEvent]:
    """Read a node's event ring by its registers until it is empty. Used by: transports that have only registers."""
    events = []
    while (status := transport.read_register(registers.EVENT_STATUS_ADDRESS)) & registers.EVENT_STATUS_VALID_MASK:
        words = [
            transport.read_register(registers.EVENT_DATA_ADDRESS + index * registers.EVENT_DATA_STRIDE_BYTES)
            for index in range(registers.EVENT_DATA_COUNT)
        ]
        data = b"".join(word.to_bytes(4, "little") for word in words)
        sequence = transport.read_register(registers.EVENT_SEQUENCE_ADDRESS)
        overflow = bool(status & registers.EVENT_STATUS_OVERFLOW_MASK)
        events.append(RawEvent(sequence, overflow, EVENT.unpack(data)))
        transport.write_register(registers.EVENT_POP_ADDRESS, registers.EVENT_POP_POP_MASK)
    return events
