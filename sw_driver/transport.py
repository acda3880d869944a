"""The one interface between software and a node, whatever the node is made of (ARCHITECTURE section 17)."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Opcode
from kvnode.models.spec.node_registers import PORT_DOWN_ADDRESS
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES

from .errors import PortLost, Unanswered

Batch = npt.NDArray[np.void]
Results = npt.NDArray[np.void]

#: `done` of a result.
NOT_ANSWERED, ANSWERED, SKIPPED, LOST = 0, 1, 2, 3

#: Cycles allowed for one request beyond its beats and its turns: a trip through the node, generously.
REQUEST_SLACK_CYCLES = 16 * DIRECTORY_LATENCY_CYCLES
#: Cycles allowed for a run as a whole: the sweeper may have to free a slot first.
RUN_SLACK_CYCLES = 20_000


@dataclass(frozen=True)
class RunResult:
    """What a batch came to.

    `results`: one RESULT_DTYPE row per request. `data`: the payloads of the answers, found by `data_offset` and
    `data_bytes`. `cycles`: length of the run, 0 where the transport has no clock. `operation_count`: directory
    operations committed during the run, those of the sweeper included. `trace`: their TRACE_DTYPE records, or None
    where the transport makes none.
    """

    results: Results
    data: memoryview
    cycles: int
    operation_count: int
    trace: npt.NDArray[np.void] | None = field(default=None, repr=False)

    def payload(self, index: int) -> memoryview:
        """Payload of the answer to request `index`; empty when it has none."""
        row = self.results[index]
        offset = int(row["data_offset"])
        return self.data[offset : offset + int(row["data_bytes"])]

    def require_answers(self, batch: Batch, limit: str = "the limit of the run") -> None:
        """Raise Unanswered for the first request that the run ended without answering, else PortLost for the first one
        whose port went down before.
        """
        done = self.results["done"]
        for wanted in (NOT_ANSWERED, LOST):
            found = np.flatnonzero(done == wanted)
            if len(found):
                index = int(found[0])
                number = int(batch["header"]["opcode"][index])
                opcode = Opcode(number) if number in Opcode._value2member_map_ else Opcode.PING
                if wanted == LOST:
                    raise PortLost(opcode, index, int(batch["port"][index]))
                raise Unanswered(opcode, index, limit)


class RawEvent(NamedTuple):
    """An event as the node's ring shows it: its number, whether events were lost since the ring was last empty, and
    the fields of spec.events.EVENT.
    """

    sequence: int
    overflow: bool
    fields: dict[str, int]


class Transport(Protocol):
    """A node that answers batches.

    `run` takes a BATCH_DTYPE array and the bytes that its payload offsets point into, and returns when every request is
    answered, skipped or lost, or after `max_cycles` (by default `cycle_bound`): it never hangs. Requests of one port
    are executed and answered in array order; between ports only `after`, `handle_from` and `session_from` order them.
    A `LOST` request is one of a port that was down. A node that is drained answers nothing. `idle` and
    `backpressure` are the probabilities, from 0 to below 1, that a port offers no beat and takes no beat in a cycle,
    drawn from `seed`. State is kept from run to run. `wait` lets time pass in which no port says anything.

    `read_register` and `write_register` reach the management registers (spec.node_registers): byte addresses, 32-bit
    values; RegisterError where no register stands. What a write asks for is in effect before the next run. `events`
    removes and returns what is in the node's event ring, in order (sw_driver.events makes records of it). `port_down`
    says that what is behind a port was lost, or is back; `retire_model` makes every block of a model unreachable: both
    are a register write. After a reset, also one by register, `boot_epoch` is another. `statistics` are totals
    since reset by name; "lockstep_operations" is the number of directory operations that were compared with the golden
    model, or None. `capture` keeps what is needed to see what happened before `cycle` (by default the present) and
    returns a sentence that says where it is.

    Implemented by: transports.golden, transports.rtl. Used by: client, replay, benches.
    """

    name: str
    config: NodeConfig
    boot_epoch: int

    def run(
        self,
        batch: Batch,
        payload: bytes | bytearray | memoryview = b"",
        *,
        idle: float = 0.0,
        backpressure: float = 0.0,
        seed: int = 0,
        max_cycles: int | None = None,
    ) -> RunResult: ...

    def wait(self, cycles: int) -> None: ...

    def read_register(self, address: int) -> int: ...

    def write_register(self, address: int, data: int) -> None: ...

    def events(self) -> list[RawEvent]: ...

    def port_down(self, port: int, down: bool = True) -> None: ...

    def retire_model(self, partition: int, model_id: int) -> None: ...

    def statistics(self) -> dict[str, Any]: ...

    def capture(self, cycle: int | None = None) -> str: ...

    def close(self) -> None: ...


def cycle_bound(config: NodeConfig, batch: Batch, idle: float = 0.0, backpressure: float = 0.0) -> int:
    """Cycles within which any node of `config` has answered the batch: its requests one after the other, doubled, and
    all the patience that they have.
    """
    header = batch["header"]
    opcode = header["opcode"]
    beats = np.full(len(batch), config.request_beats + config.response_beats, np.int64)
    beats += -(-batch["payload_bytes"].astype(np.int64) // config.beat_bytes)
    reads = opcode == Opcode.READ
    beats[reads] += config.block_beats + config.ports
    digests = batch["payload_bytes"].astype(np.int64) // 32
    turns = np.where(opcode == Opcode.MATCH, digests, 2) * (config.ports + 1)
    patience = int(batch["patience"].astype(np.int64).sum())
    busy = int((beats + turns).sum()) * 2 + REQUEST_SLACK_CYCLES * len(batch) + RUN_SLACK_CYCLES
    earliest = int(batch["earliest_cycle"].max()) if len(batch) else 0
    return earliest + patience + int(busy / ((1 - idle) * (1 - backpressure)))


def check_batch(config: NodeConfig, batch: Batch, payload_bytes: int) -> None:
    """Raise ValueError for a batch that means nothing: an unknown port, an order or a payload that does not exist."""
    if not len(batch):
        return
    numbers = np.arange(len(batch))
    for name in ("after", "handle_from", "session_from"):
        wrong = np.flatnonzero((batch[name] >= numbers) | (batch[name] < -1))
        if len(wrong):
            index = int(wrong[0])
            raise ValueError(f"request {index}: {name} = {int(batch[name][index])} is not an earlier request")
    wrong = np.flatnonzero(batch["port"] >= config.ports)
    if len(wrong):
        index = int(wrong[0])
        raise ValueError(f"request {index}: port {int(batch['port'][index])} of {config.ports}")
    ends = batch["payload_offset"] + batch["payload_bytes"]
    wrong = np.flatnonzero((batch["payload_bytes"] > 0) & (ends > payload_bytes))
    if len(wrong):
        index = int(wrong[0])
        raise ValueError(f"request {index}: its payload ends at byte {int(ends[index])} of {payload_bytes}")


def set_port_down(transport: Transport, port: int, down: bool) -> None:
    """`Transport.port_down` by the register. Used by: transports."""
    if not 0 <= port < transport.config.ports:
        raise ValueError(f"port {port} of {transport.config.ports}")
    mask = transport.read_register(PORT_DOWN_ADDRESS)
    transport.write_register(PORT_DOWN_ADDRESS, mask | 1 << port if down else mask & ~(1 << port))


def check_patterns(idle: float, backpressure: float) -> None:
    """Raise ValueError for a probability with which nothing would ever move."""
    for name, value in (("idle", idle), ("backpressure", backpressure)):
        if not 0 <= value < 1:
            raise ValueError(f"{name} = {value!r}: must be from 0 to below 1")
