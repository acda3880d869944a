"""A golden node that also keeps what the registers tell of, events, counters, occupancy, and how the sweeper goes.

Used by: stimuli, registers.
"""

from collections import Counter
from typing import Any

from kvnode.models.golden.directory import Result
from kvnode.models.golden.events import EventLog
from kvnode.models.golden.lockstep import Lockstep
from kvnode.models.spec.clock import TIME_BITS, tick_of
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Kind, State
from kvnode.models.spec.messages import NUMBERED, TRACE
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES, SWEEP_ROUND

from ..checkers.messages import MessageCheck

_NAMES = tuple(TRACE.fields)
_COLUMN = {name: position for position, name in enumerate(_NAMES)}
_KIND, _PARTITION, _STATUS = _COLUMN["kind"], _COLUMN["partition"], _COLUMN["status"]
_BEFORE, _AFTER = _COLUMN["state_before"], _COLUMN["state_after"]
_EVENTFUL = frozenset({int(Kind.RETIRE_MODEL), int(Kind.SESSION_MIGRATE), int(Kind.PORT_DOWN), int(Kind.POISON)})
_LOOKS = frozenset(map(int, (Kind.PATROL, Kind.EXPIRE_FILL, Kind.EXPIRE_LEASE, Kind.EXPIRE_SESSION)))
_COMMANDS = frozenset(map(int, (Kind.RETIRE_MODEL, Kind.PORT_DOWN, Kind.POISON, Kind.CONFIGURE)))
#: What the registers show of a partition, by the names of the registers.
HELD = ("FREE_SLOTS", "FILL_ROWS_USED", "LEASES_HELD", "OLDEST_LEASE_TICKS", "SESSIONS_OPEN")


#: Cycles from the one in which the sweeper learns what a row was granted for until its look at it is committed.
LOOK_CYCLES = 2 * DIRECTORY_LATENCY_CYCLES


class Sluggish(AssertionError):
    """The sweeper did not do what it does in every round, or not in time."""


class Followed(Lockstep):
    """Lockstep that keeps the rest in step too. `commands`: (kind, partition, model, slot, ports) of the operations
    that the registers ask for. `held`: (cycle, HELD of every partition) whenever one of them may have changed."""

    def __init__(self, config: NodeConfig, boot_epoch: int):
        super().__init__(config, boot_epoch)
        self.events = EventLog()
        self.events.cleared()
        self.counts: Counter[tuple[int, int, int]] = Counter()
        self.commands: list[tuple[int, ...]] = []
        self._granted: dict[tuple[int, int], int] = {}
        count = len(config.partitions)
        self._lap, self._oldest = [0] * count, [0] * count
        self._looked: dict[tuple[int, int], int] = {}
        self._fills = [list(part.fills.slots) for part in self.node.partitions]
        #: What a row of fills or leases was granted for, the last two times: (cycle, slot, session).
        self._grants: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
        #: The longest that the sweeper was seen to take between two looks of a kind in a partition.
        self.slowest = 0
        self.held: list[tuple[int, list[tuple[int, ...]]]] = []
        self._note(0)

    def step(self, row: tuple[Any, ...]) -> Result:
        kind, number, cycle = row[_KIND], row[_PARTITION], row[1]
        ages = kind == Kind.EXPIRE_LEASE and self._ages(row)
        result = super().step(row)
        self.counts[number, kind, row[_STATUS]] += 1
        before, after = row[_BEFORE], row[_AFTER]
        if before != after or kind in _EVENTFUL:
            record = dict(zip(_NAMES, row, strict=True))
            record["block_digest"] = int.from_bytes(record["block_digest"], "little")
            self.events.record(record)
        if kind in _COMMANDS:
            self.commands.append(
                (kind, number, row[_COLUMN["model_id"]], row[_COLUMN["slot"]], row[_COLUMN["ports"]])
            )
        if kind in _LOOKS:
            self._look(kind, number, cycle)
            self._check_target(row)
        elif kind == Kind.PUT_START:
            for place, slot in enumerate(self.node.partitions[number].fills.slots):
                if slot != self._fills[number][place]:
                    self._fills[number][place] = slot
                    self._grant((int(Kind.EXPIRE_FILL), number, place), cycle, slot, 0)
        if result.granted_lease:
            lease = (result.granted_lease & ~NUMBERED) & (1 << self.node.config.lease_bits) - 1
            self._granted[number, lease] = tick_of(cycle, self.node.config.tick_cycles_log2)
            self._grant((int(Kind.EXPIRE_LEASE), number, lease), cycle,
                        *self.node.partitions[number].leases.last(lease))  # fmt: skip
        if ages or kind == Kind.EXPIRE_SESSION or kind not in _LOOKS or before != after:
            self._note(cycle)
        return result

    def _grant(self, place: tuple[int, int, int], cycle: int, slot: int, session: int) -> None:
        known = self._grants.setdefault(place, [])
        if not known or known[-1][1:] != (slot, session):
            self._grants[place] = [*known[-1:], (cycle, slot, session)]

    def _check_target(self, row: tuple[Any, ...]) -> None:
        """A look at a row names what the row was granted for when the look began."""
        kind, cycle = row[_KIND], row[1]
        known = self._grants.get((kind, row[_PARTITION], row[_COLUMN["row"]]))
        if not known or len(known) < 2 and cycle - known[0][0] < LOOK_CYCLES:
            return
        possible = {grant[1:] for grant in (known if cycle - known[-1][0] < LOOK_CYCLES else known[-1:])}
        target = row[_COLUMN["slot"]], row[_COLUMN["session"]]
        if target not in possible:
            raise Sluggish(f"{Kind(kind).name} in cycle {cycle} looks at slot and session {target}, not {possible}")

    def _ages(self, row: tuple[Any, ...]) -> bool:
        number, lease, cycle = row[_PARTITION], row[_COLUMN["row"]], row[1]
        config = self.node.config
        if number >= len(config.partitions) or lease >= config.leases:
            return False
        taken = self.node.partitions[number].leases.rows[lease] is not None
        now = tick_of(cycle, config.tick_cycles_log2)
        age = now - self._granted.get((number, lease), now) & (1 << TIME_BITS) - 1 if taken else 0
        self._lap[number] = max(self._lap[number], age) if lease else age
        if lease == config.leases - 1:
            self._oldest[number] = self._lap[number]
        return True

    def _look(self, kind: int, number: int, cycle: int) -> None:
        last = self._looked.get((number, kind))
        self._looked[number, kind] = cycle
        if last is not None:
            self.slowest = max(self.slowest, cycle - last)
            config = self.node.config
            most = (SWEEP_ROUND + 1) * len(config.sweep_order) * (config.ports + 1)
            if cycle - last > most:
                raise Sluggish(f"{Kind(kind).name} of partition {number} came {cycle - last} cycles after the last")

    def _note(self, cycle: int) -> None:
        now: list[tuple[int, ...]] = [
            (part.free_count, sum(block.state == State.FILLING for block in part.blocks), len(part.leases),
             self._oldest[number], sum(session.open for session in part.sessions))
            for number, part in enumerate(self.node.partitions)
        ]  # fmt: skip
        if not self.held or self.held[-1][1] != now:
            self.held.append((cycle, now))


class Follower(MessageCheck):
    """MessageCheck whose lockstep keeps what the registers tell."""

    lockstep: Followed

    def __init__(self, config: NodeConfig, boot_epoch: int):
        super().__init__(config, boot_epoch)
        self.lockstep = Followed(config, boot_epoch)
