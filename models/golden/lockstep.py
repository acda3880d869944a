"""Step the golden node with the trace records of a run; any difference stops it (ARCHITECTURE section 15)."""

import enum
from collections import deque
from typing import Any, NoReturn

from ..spec.causes import Cause
from ..spec.config import NodeConfig
from ..spec.enums import KIND_OF_OPCODE, SWEEPER_KINDS, Kind, State, Status
from ..spec.messages import TRACE, TraceFlag
from ..spec.policy import CLASS_COUNT
from ..spec.requests import MAX_MEMBERS, PUBLIC_OPCODES
from ..spec.settings import Setting
from .directory import Operation, Result
from .node import GoldenNode

_NAMES = tuple(TRACE.fields)
_COLUMN = {name: position for position, name in enumerate(_NAMES)}
#: Where an operation's own fields lie in a record, and those of its result (but the status).
_ASKED = slice(_COLUMN["owner"], _COLUMN["digest"])
_DONE = slice(_COLUMN["state_before"], None)
_COMPARED = ("status", *_NAMES[_DONE])
_FLAGS, _DIGEST, _STATUS, _BLOCK_DIGEST = (_COLUMN[name] for name in ("flags", "digest", "status", "block_digest"))
#: Result names its block's fields without the prefix.
_ATTRIBUTES = tuple(name.removeprefix("block_") for name in _COMPARED)
_KEPT = len(_COMPARED)
_BLOCK_DIGEST_KEPT = _COMPARED.index("block_digest")

_SWEEPERS_OWN = (
    *SWEEPER_KINDS, Kind.RETIRE_MODEL, Kind.EXPIRE_SESSION, Kind.PORT_DOWN, Kind.CONFIGURE,
)  # fmt: skip
_PUBLIC_KINDS = frozenset(int(KIND_OF_OPCODE[opcode]) for opcode in PUBLIC_OPCODES) | {int(Kind.ANSWER)}
_PRESENT = TraceFlag.PRESENT


def _name(kind: type[enum.IntEnum], value: int) -> str:
    """Name of a member, or the bare number where there is none: what is described may be nonsense."""
    return kind(value).name if value in kind._value2member_map_ else str(value)


def trace_record(order: int, cycle: int, op: Operation, result: Result) -> bytes:
    """The TRACE record of an operation: what the RTL's trace port says when it does the same.

    Used by: tests that make traces without RTL.
    """
    record: dict[str, int] = op._asdict()
    record |= {name: int(getattr(result, attribute)) for name, attribute in zip(_COMPARED, _ATTRIBUTES)}
    record["flags"] = op.flags | (_PRESENT if result.present else 0)
    return TRACE.pack(order=order, cycle=cycle, **record)


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
        order, cycle = row[0], row[1]
        op = Operation._make((*row[_ASKED], int.from_bytes(row[_DIGEST], "little")))
        if op.flags & _PRESENT:
            op = op._replace(flags=op.flags & ~_PRESENT)
        if order != self.operations:
            self._fail(row, f"order {order} follows {self.operations - 1}: records were lost")
        if cycle <= self._cycle:
            self._fail(row, f"cycle {cycle} follows cycle {self._cycle}")
        self._check_possible(row, op)
        try:
            result = self.node.operate(op, cycle)
        except (KeyError, AssertionError) as error:
            self._fail(row, f"the golden model cannot follow: {error!r}")
        theirs = (row[_STATUS], *row[_DONE])
        ours = result[:_KEPT]
        if (
            ours[:_BLOCK_DIGEST_KEPT] != theirs[:_BLOCK_DIGEST_KEPT]
            or ours[_BLOCK_DIGEST_KEPT + 1 :] != theirs[_BLOCK_DIGEST_KEPT + 1 :]
            or result.digest != int.from_bytes(row[_BLOCK_DIGEST], "little")
            or result.present != (row[_FLAGS] & _PRESENT != 0)
        ):
            self._fail(row, self._explain(row, result))
        self._last.append(row)
        self.operations += 1
        self._cycle = cycle
        return result

    def _check_possible(self, row: tuple[Any, ...], op: Operation) -> None:
        """Whether a node may make this operation at all, and the sweeper this one now."""
        owner, kind, slot, config = op.owner, op.kind, op.slot, self.node.config
        ports = config.ports
        if kind not in Kind._value2member_map_ or op.partition >= len(self.node.partitions):
            self._fail(row, f"kind {kind} in partition {op.partition} does not exist")
        if owner < ports and config.partition_of_port[owner] != op.partition:
            if op.partition != config.public_partition or kind not in _PUBLIC_KINDS or op.session:
                self._fail(row, f"port {owner} does not own partition {op.partition}")
        if owner > ports or (owner == ports) != (kind in _SWEEPERS_OWN):
            self._fail(row, f"{Kind(kind).name} cannot come from owner {owner}")
        if op.model_id >= config.models or op.klass >= CLASS_COUNT or op.status not in Status._value2member_map_:
            self._fail(row, f"model {op.model_id}, class {op.klass} or status {op.status} does not exist")
        part = self.node.partitions[op.partition]
        if slot >= part.slots or op.member >= MAX_MEMBERS:
            self._fail(
                row, f"slot {slot} is outside of the partition's {part.slots}, or member {op.member} of {MAX_MEMBERS}"
            )
        if owner < ports:
            return
        for looks, name, place, hand in (
            (Kind.VISIT, "slot", slot, part.hand),
            (Kind.PATROL, "slot", slot, part.patrol),
            (Kind.EXPIRE_FILL, "fill row", op.row, part.fill_hand),
            (Kind.EXPIRE_LEASE, "lease row", op.row, part.lease_hand),
            (Kind.EXPIRE_SESSION, "session row", op.row, part.session_hand),
        ):
            if kind == looks and place != hand:
                self._fail(row, f"the sweeper looks ({looks.name}) at {name} {place}, its hand is at {hand}")
        if kind == Kind.RETIRE_MODEL and op.partition in self._owed:
            self._fail(row, "a second model is retired before the patrol has made the step that the first one owes")
        if kind == Kind.RETIRE_MODEL:
            self._owed.add(op.partition)
        elif kind == Kind.PATROL:
            self._owed.discard(op.partition)
        if kind == Kind.REAP and (not part.retire_queue or slot != part.retire_queue[0]):
            self._fail(row, f"the sweeper reaps slot {slot}, retiring are {list(part.retire_queue)[:4]}")
        if kind == Kind.CONFIGURE and op.row >= len(Setting):
            self._fail(row, f"there is no setting {op.row}")

    def _explain(self, row: tuple[Any, ...], result: Result) -> str:
        record = dict(zip(_NAMES, row, strict=True))
        record["block_digest"] = int.from_bytes(record["block_digest"], "little")
        names: dict[str, Any] = {"status": Status, "state_before": State, "state_after": State, "cause": Cause}
        parts = []
        for field, attribute in zip(_COMPARED, _ATTRIBUTES):
            ours, theirs = getattr(result, attribute), record[field]
            if ours != theirs:
                show = names.get(field, int)
                if theirs not in getattr(show, "_value2member_map_", (theirs,)):
                    show = int
                parts.append(f"{field} is {show(theirs)!r} in RTL, {show(ours)!r} in golden")
        if result.present != bool(record["flags"] & _PRESENT):
            parts.append(f"present is {not result.present} in RTL, {result.present} in golden")
        return "; ".join(parts)

    def _fail(self, row: tuple[Any, ...], reason: str) -> NoReturn:
        raise Difference(
            dict(zip(_NAMES, row, strict=True)), reason, [dict(zip(_NAMES, r, strict=True)) for r in self._last]
        )
