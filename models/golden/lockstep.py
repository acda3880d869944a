"""Step the golden node with the trace records of a run; any difference stops it (ARCHITECTURE section 15)."""

from collections import deque
from typing import Any, NoReturn

from ..spec.config import NodeConfig
from ..spec.enums import SWEEPER_KINDS, Kind, State, Status
from ..spec.messages import TRACE, TraceFlag
from ..spec.policy import CLASS_COUNT
from .directory import Operation, Result
from .node import GoldenNode

_NAMES = tuple(TRACE.fields)
_COMPARED = (
    ("status", "status"),
    ("state_before", "state_before"),
    ("state_after", "state_after"),
    ("block_slot", "slot"),
    ("block_generation", "generation"),
    ("block_length", "length"),
    ("accepted", "accepted"),
    ("landed", "landed"),
    ("age", "age"),
    ("free_count", "free_count"),
    ("epoch", "epoch"),
)


_SWEEPERS_OWN = (*SWEEPER_KINDS, Kind.RETIRE_MODEL)


def _name(kind: type[Kind] | type[Status] | type[State], value: int) -> str:
    """Name of a member, or the bare number where there is none: what is described may be nonsense."""
    return kind(value).name if value in kind._value2member_map_ else str(value)


#: Fields of a trace record that are the operation's, and those that are its result's.
_OF_THE_OPERATION = (
    "owner", "kind", "partition", "model_id", "group", "klass", "slot", "generation", "offset", "length", "digest",
)  # fmt: skip
_OF_THE_RESULT = ("status", "state_before", "state_after", "accepted", "landed", "age", "free_count", "epoch")


def trace_record(order: int, cycle: int, op: Operation, result: Result) -> bytes:
    """The TRACE record of an operation: what the RTL's trace port says when it does the same.

    Used by: tests that make traces without RTL.
    """
    flags = (
        op.by_handle * TraceFlag.BY_HANDLE
        | op.chain_first * TraceFlag.CHAIN_FIRST
        | op.whole * TraceFlag.WHOLE
        | result.present * TraceFlag.PRESENT
    )
    asked = {name: getattr(op, name) for name in _OF_THE_OPERATION}
    done = {name: getattr(result, name) for name in _OF_THE_RESULT}
    block = {f"block_{name}": getattr(result, name) for name in ("slot", "generation", "length")}
    return TRACE.pack(order=order, cycle=cycle, flags=flags, **asked, **done, **block)


def describe(record: dict[str, Any]) -> str:
    """One line for a trace record: what was asked, by whom, when."""
    digest = f"{int.from_bytes(record['digest'], 'little'):#x}"
    target = (
        f"handle slot {record['slot']} generation {record['generation']}"
        if record["flags"] & TraceFlag.BY_HANDLE
        else f"digest {digest}"
    )
    states = f"{_name(State, record['state_before'])} -> {_name(State, record['state_after'])}"
    return (
        f"operation {record['order']} at cycle {record['cycle']}: {_name(Kind, record['kind'])} "
        f"by owner {record['owner']} in partition {record['partition']}, "
        f"model {record['model_id']} group {record['group']}, {target}, "
        f"offset {record['offset']} length {record['length']} beats -> {_name(Status, record['status'])}, "
        f"slot {record['block_slot']} {states}"
    )


class Difference(AssertionError):
    """RTL and golden model disagree. The message names the operation, the cycle, both states and the last records."""

    def __init__(self, record: dict[str, Any], reason: str, last: list[dict[str, Any]]):
        self.record, self.reason = record, reason
        lines = [f"lockstep difference: {reason}", describe(record), "last operations:"]
        super().__init__("\n".join(lines + [f"  {describe(r)}" for r in last]))


class Lockstep:
    """A golden node that follows a run.

    `check(records)` steps it with an array of TRACE_DTYPE in commit order; raises Difference at the first record that
    the golden node would not have made. `operations` counts the records checked.

    Used by: verif, sw_driver.transports.rtl.
    """

    def __init__(self, config: NodeConfig, boot_epoch: int = 0):
        self.node = GoldenNode(config, boot_epoch)
        self.operations = 0
        self._last: deque[tuple[Any, ...]] = deque(maxlen=8)
        self._cycle = -1
        #: Partitions that owe a step of their patrol: an epoch must not return before the patrol was everywhere.
        self._owed: set[int] = set()

    def check(self, records: Any) -> None:
        """Step the golden node with records (TRACE_DTYPE) in commit order."""
        for row in records.tolist():
            self.step(row)

    def step(self, row: tuple[Any, ...]) -> Result:
        """Step it with one record, given as a tuple in the layout's order; returns what the operation did."""
        (
            order, cycle, owner, kind, status, _, _, partition, group, klass, flags, _, model_id, _,
            slot, generation, offset, length, *_, digest,
        ) = row  # fmt: skip
        if order != self.operations:
            self._fail(row, f"order {order} follows {self.operations - 1}: records were lost")
        if cycle <= self._cycle:
            self._fail(row, f"cycle {cycle} follows cycle {self._cycle}")
        if kind not in Kind._value2member_map_ or partition >= len(self.node.partitions):
            self._fail(row, f"kind {kind} in partition {partition} does not exist")
        ports = self.node.config.ports
        if owner < ports and self.node.config.partition_of_port[owner] != partition:
            self._fail(row, f"port {owner} does not own partition {partition}")
        if (owner == ports) != (kind in _SWEEPERS_OWN) or owner > ports:
            self._fail(row, f"{Kind(kind).name} cannot come from owner {owner}")
        if model_id >= self.node.config.models or klass >= CLASS_COUNT or status not in Status._value2member_map_:
            self._fail(row, f"model {model_id}, class {klass} or status {status} does not exist")
        part = self.node.partitions[partition]
        if kind == Kind.VISIT and slot != part.hand:
            self._fail(row, f"the sweeper visits slot {slot}, its hand is at {part.hand}")
        if kind == Kind.PATROL and slot != part.patrol:
            self._fail(row, f"the sweeper patrols slot {slot}, its patrol is at {part.patrol}")
        if kind == Kind.RETIRE_MODEL and partition in self._owed:
            self._fail(row, "a second model is retired before the patrol has made the step that the first one owes")
        if kind == Kind.RETIRE_MODEL:
            self._owed.add(partition)
        elif kind == Kind.PATROL:
            self._owed.discard(partition)
        if kind == Kind.REAP and (not part.retire_queue or slot != part.retire_queue[0]):
            self._fail(row, f"the sweeper reaps slot {slot}, retiring are {list(part.retire_queue)[:4]}")
        if slot >= part.slots:
            self._fail(row, f"slot {slot} is outside of the partition's {part.slots}")
        operation = Operation(
            owner,
            Kind(kind),
            partition,
            model_id,
            group,
            klass,
            bool(flags & TraceFlag.BY_HANDLE),
            slot,
            generation,
            offset,
            length,
            int.from_bytes(digest, "little"),
            bool(flags & TraceFlag.CHAIN_FIRST),
            bool(flags & TraceFlag.WHOLE),
            Status(status) if kind == Kind.ANSWER else Status.OK,
        )
        try:
            result = self.node.operate(operation, cycle)
        except KeyError as error:
            self._fail(row, f"the state table has no {error}")
        if (
            result.status, result.state_before, result.state_after, result.epoch, result.slot, result.generation,
            result.length, result.accepted, result.landed, result.free_count, result.age, result.present,
        ) != (
            status, row[5], row[6], row[13], row[18], row[19], row[20], row[21], row[22], row[23], row[11],
            bool(flags & TraceFlag.PRESENT),
        ):  # fmt: skip
            self._fail(row, self._explain(row, result))
        self._last.append(row)
        self.operations += 1
        self._cycle = cycle
        return result

    def _explain(self, row: tuple[Any, ...], result: Result) -> str:
        record = dict(zip(_NAMES, row, strict=True))
        names: dict[str, Any] = {"status": Status, "state_before": State, "state_after": State}
        parts = []
        for field, attribute in _COMPARED:
            ours, theirs = getattr(result, attribute), record[field]
            if ours != theirs:
                show = names.get(field, int)
                if theirs not in getattr(show, "_value2member_map_", (theirs,)):
                    show = int
                parts.append(f"{field} is {show(theirs)!r} in RTL, {show(ours)!r} in golden")
        if result.present != bool(record["flags"] & TraceFlag.PRESENT):
            parts.append(f"present is {not result.present} in RTL, {result.present} in golden")
        return "; ".join(parts)

    def _fail(self, row: tuple[Any, ...], reason: str) -> NoReturn:
        raise Difference(
            dict(zip(_NAMES, row, strict=True)), reason, [dict(zip(_NAMES, r, strict=True)) for r in self._last]
        )
