"""Functional coverage of a run: what of the plan its trace, its messages and its register accesses show.

Used by: verif.coverage.measure.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from kvnode.models.golden import directory as golden_directory
from kvnode.models.golden.directory import Result
from kvnode.models.golden.lockstep import Lockstep
from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.batch import HANDLE_DTYPE
from kvnode.models.spec.causes import Cause
from kvnode.models.spec.clock import tick_of
from kvnode.models.spec.coherence import Event, View
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import SESSION_KINDS, SWEEPER_KINDS, Flag, Kind, Opcode, ResponseFlag, State, Status
from kvnode.models.spec.events import RING_DEPTH, EventType
from kvnode.models.spec.messages import NUMBERED, TRACE
from kvnode.models.spec.requests import PUBLIC_OPCODES

from ..checkers.messages import DONE_ANSWERED, DONE_LOST, MessageCheck
from ..harness.contract import Bus
from .plan import Item, transition_item

__all__ = ["WatchedCheck"]

_COLUMN = {name: position for position, name in enumerate(TRACE.fields)}
_CYCLE, _KIND, _PARTITION, _SLOT, _ROW = (_COLUMN[name] for name in ("cycle", "kind", "partition", "slot", "row"))
#: Cycles after which a fill row that was given back is surely free.
_SETTLED_CYCLES = 64


class WatchedCheck(MessageCheck):
    """A MessageCheck that counts in `hits` what it sees of the plan."""

    def __init__(self, config: NodeConfig, boot_epoch: int, hits: Counter[Item]):
        super().__init__(config, boot_epoch)
        self.hits = hits
        self.lockstep = _WatchedLockstep(config, boot_epoch, hits)

    def check(self, batch: np.ndarray, payload: bytes, run: Any) -> None:
        with _events_counted(self.hits):
            super().check(batch, payload, run)
        self._messages(batch, run)
        self._registers(run.registers)
        self.hits["port.woken"] += int(run.wakes.sum())

    def _messages(self, batch: np.ndarray, run: Any) -> None:
        hits, config = self.hits, self.config
        asked, told = batch["header"], run.results["header"]
        answered = run.results["done"] == DONE_ANSWERED
        opcode, status = asked["opcode"], told["status"]
        known = answered & (opcode < len(Opcode))
        pairs, counts = np.unique(np.stack([opcode[known], status[known]]), axis=1, return_counts=True)
        for (op, what), count in zip(pairs.T.tolist(), counts.tolist()):
            hits[f"status.{Opcode(op).name}.{Status(what).name}"] += count
        ok = answered & np.isin(status, (Status.OK, Status.HIT))
        own = np.array(config.partition_of_port)[batch["port"]]
        start = answered & (opcode == Opcode.PUT_START) & (status == Status.GRANTED)
        write = answered & (opcode == Opcode.WRITE) & (batch["payload_bytes"] > 0)
        match = answered & (opcode == Opcode.MATCH) & (status == Status.HIT)
        runs = np.ascontiguousarray(asked["digest"]).view(HANDLE_DTYPE)["count"] > 1
        by_handle = asked["flags"] & Flag.BY_HANDLE != 0
        again = answered & (run.results["tries"] > 1) & (status != Status.NOT_READY)
        for item, shown in {
            "port.lost": run.results["done"] == DONE_LOST,
            "port.asked_again": again,
            "port.public_hit": ok & (own != asked["partition"]) & np.isin(opcode, PUBLIC_OPCODES),
            "message.members_2": start & (asked["members"] == 2),
            "message.members_8": start & (asked["members"] == 8),
            "message.runs": ok & (opcode == Opcode.READ) & by_handle & runs,
            "message.match_full": match & (told["count"] == config.max_match_digests),
            "message.match_leased": match & (told["flags"] & ResponseFlag.LEASED != 0),
            "message.short_payload": write & (batch["payload_bytes"] < asked["length"]),
            "message.long_payload": write & (batch["payload_bytes"] > asked["length"]),
        }.items():
            hits[item] += int(shown.sum())

    def _registers(self, accesses: np.ndarray) -> None:
        hits = self.hits
        for access in accesses:
            address, value, written = int(access["address"]), int(access["data"]), bool(access["is_write"])
            if access["response"] != Bus.OKAY:
                hits["register.refused"] += 1
                continue
            hits["register.written" if written else "register.read"] += 1
            if written:
                if address == registers.CONTROL_ADDRESS and value & registers.CONTROL_RESET_MASK:
                    hits["register.reset"] += 1
                hits["ring.popped"] += address == registers.EVENT_POP_ADDRESS and value & 1
            elif address == registers.EVENT_STATUS_ADDRESS:
                shown = value & registers.EVENT_STATUS_VALID_MASK
                hits["ring.shown" if shown else "ring.empty"] += 1
                hits["ring.overflow"] += bool(value & registers.EVENT_STATUS_OVERFLOW_MASK)
            elif address == registers.EVENT_LEVEL_ADDRESS:
                hits["ring.full"] += value >= RING_DEPTH
            elif address == registers.EVENT_DATA_ADDRESS and value & 0xFF in EventType._value2member_map_:
                hits[f"event.{EventType(value & 0xFF).name}"] += 1
            elif address == registers.STATUS_ADDRESS:
                hits["register.drain"] += bool(value & registers.STATUS_DRAINED_MASK)
            elif address in (registers.MODEL_RETIRE_ADDRESS, registers.POISON_ADDRESS):
                hits["register.busy"] += value >> registers.POISON_BUSY_SHIFT & 1


@contextlib.contextmanager
def _events_counted(hits: Counter[Item]) -> Iterator[None]:
    """While it lasts, every block that the golden directory's operations meet is counted with its event."""
    plain = golden_directory.outcome_of

    def counted(kind: Kind, by_handle: bool, v: View) -> tuple[Event, State, Status, int, int, int]:
        outcome = plain(kind, by_handle, v)
        if outcome[0] != Event.ANSWER:
            reached = v.present or kind in SWEEPER_KINDS
            hits[transition_item(v.state if reached else State.FREE, outcome[0])] += 1
        return outcome

    golden_directory.outcome_of = counted
    try:
        yield
    finally:
        golden_directory.outcome_of = plain


class _Seen:
    """What was seen of a partition: blocks being written, the last numbers given, and which tables were not empty."""

    def __init__(self, config: NodeConfig):
        self.filling, self.last_release, self.lease_generation = 0, -_SETTLED_CYCLES, -1
        self.session_generation = [-1] * config.sessions
        self.was_low = False
        self.used: set[str] = set()


class _WatchedLockstep(Lockstep):
    def __init__(self, config: NodeConfig, boot_epoch: int, hits: Counter[Item]):
        super().__init__(config, boot_epoch)
        self._hits, self._config = hits, config
        self._seen = [_Seen(config) for _ in config.partitions]
        self._tick = 0

    def step(self, row: tuple[Any, ...]) -> Result:
        result = super().step(row)
        hits, kind, number = self._hits, Kind(row[_KIND]), row[_PARTITION]
        part, seen = self.node.partitions[number], self._seen[number]
        hits[f"kind.{kind.name}"] += 1
        if result.cause:
            hits[f"cause.{Cause(result.cause).name}"] += 1
        tick = tick_of(row[_CYCLE], self._config.tick_cycles_log2)
        hits["wrap.tick"] += tick < self._tick
        self._tick = tick
        if result.state_before != result.state_after:
            if result.state_after == State.FILLING:
                seen.filling += 1
                hits["wrap.slot_reused"] += result.generation > 0
            elif result.state_before == State.FILLING:
                seen.filling -= 1
                seen.last_release = row[_CYCLE]
        self._hands(row, kind, result, part)
        self._numbers(kind, result, seen)
        self._levels(row, kind, result, part, seen)
        return result

    def _hands(self, row: tuple[Any, ...], kind: Kind, result: Result, part: Any) -> None:
        config = self._config
        for name, moved, place, count in (
            ("visit_hand", Kind.VISIT, row[_SLOT], part.slots),
            ("patrol_hand", Kind.PATROL, row[_SLOT], part.slots),
            ("fill_hand", Kind.EXPIRE_FILL, row[_ROW], config.fill_rows),
            ("lease_hand", Kind.EXPIRE_LEASE, row[_ROW], config.leases),
            ("session_hand", Kind.EXPIRE_SESSION, row[_ROW], config.sessions),
        ):
            self._hits[f"wrap.{name}"] += kind == moved and place == count - 1
        self._hits["wrap.slot_generation"] += kind == Kind.REAP and result.generation == 0
        self._hits["wrap.model_epoch"] += kind == Kind.RETIRE_MODEL and result.epoch == 0

    def _numbers(self, kind: Kind, result: Result, seen: _Seen) -> None:
        config = self._config
        if result.granted_lease:
            generation = (result.granted_lease & ~NUMBERED) >> config.lease_bits
            self._hits["wrap.lease_generation"] += generation < seen.lease_generation
            seen.lease_generation = generation
        if kind == Kind.SESSION_OPEN and result.status == Status.OK:
            number = result.found_session & ~NUMBERED
            place, generation = number & config.sessions - 1, number >> config.session_bits
            self._hits["wrap.session_generation"] += generation < seen.session_generation[place]
            seen.session_generation[place] = generation

    def _levels(self, row: tuple[Any, ...], kind: Kind, result: Result, part: Any, seen: _Seen) -> None:
        hits, config, waiting = self._hits, self._config, len(part.retire_queue)
        levels = [
            ("free_list", part.slots - part.free_count, part.slots, "free_list_empty", "free_list_full"),
            ("fill_rows", seen.filling, config.fill_rows, "fill_rows_full", "fill_rows_empty"),
            ("leases", len(part.leases), config.leases, "leases_full", "leases_empty"),
            ("retire_queue", waiting, part.slots // 2, "retire_queue_long", "retire_queue_empty"),
        ]
        if kind in SESSION_KINDS:
            held = sum(session.open for session in part.sessions)
            levels.append(("sessions", held, config.sessions, "sessions_full", "sessions_empty"))
        for table, used, most, full, empty in levels:
            if used:
                seen.used.add(table)
            hits[f"level.{full}"] += used >= most
            hits[f"level.{empty}"] += not used and table in seen.used
        hits["level.retire_queue_waits"] += waiting > 0
        hits["level.low"] += part.low
        hits["level.low_over"] += seen.was_low and not part.low
        seen.was_low = part.low
        if kind == Kind.PUT_START:
            room = part.free_count > 0 and seen.filling < config.fill_rows
            settled = row[_CYCLE] - seen.last_release > _SETTLED_CYCLES
            hits["level.index_rows_full"] += result.status == Status.NO_SPACE and room and settled
            hits["level.reserve_kept"] += result.status == Status.QUOTA and part.free_count > 0
        hits["level.sessions_no_offer"] += kind == Kind.SESSION_OPEN and result.status == Status.BUSY
