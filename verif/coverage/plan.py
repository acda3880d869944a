"""What the functional coverage asks for: items derived from the specification, and those of plan.yaml.

Used by: verif.coverage.collect, verif.coverage.report.
"""

import functools
import itertools
import random
from pathlib import Path
from typing import Any

import yaml

from kvnode.models.spec.causes import Cause
from kvnode.models.spec.coherence import TRANSITIONS, Event, View, classify
from kvnode.models.spec.enums import BLOCKLESS_KINDS, KIND_OF_OPCODE, SWEEPER_KINDS, Kind, Opcode, State, Status
from kvnode.models.spec.events import EventType
from kvnode.models.spec.requests import BY_EITHER, BY_HANDLE_ONLY, OF_SESSION, USED_FIELDS

__all__ = ["Item", "items", "load_plan", "statuses_of", "transition_item"]

FOLDER = Path(__file__).resolve().parent
#: A functional item is `group.name`.
Item = str
#: Views that are tried to learn which events a kind can be.
SAMPLES = 20_000


def load_plan() -> list[dict[str, Any]]:
    """The groups of plan.yaml: {group, goal, items}; an item is a name, or a name and the queue it is about."""
    return yaml.safe_load((FOLDER / "plan.yaml").read_text(encoding="utf-8"))


def transition_item(state: int, event: int) -> Item:
    return f"transition.{State(state).name}.{Event(event).name}"


@functools.cache
def items() -> dict[Item, str]:
    """Every item of the plan, and what it shows."""
    found: dict[Item, str] = {}
    for state, event in TRANSITIONS:
        found[transition_item(state, event)] = f"a block in {state.name} meets {event.name}"
    for opcode in Opcode:
        for status in sorted(statuses_of(opcode)):
            found[f"status.{opcode.name}.{status.name}"] = f"{opcode.name} is answered {status.name}"
    for kind in Kind:
        found[f"kind.{kind.name}"] = f"the directory executes {kind.name}"
    for cause in Cause:
        if cause:
            found[f"cause.{cause.name}"] = f"a block leaves for {cause.name}"
    for event_type in EventType:
        found[f"event.{event_type.name}"] = f"the event {event_type.name} is reported"
    for group in load_plan():
        for name, goal in group["items"].items():
            found[f"{group['group']}.{name}"] = goal if isinstance(goal, str) else goal["goal"]
    return found


@functools.cache
def statuses_of(opcode: Opcode) -> frozenset[Status]:
    """Every status that the specification lets an opcode be answered with."""
    kind, used = KIND_OF_OPCODE[opcode], USED_FIELDS[opcode]
    statuses = {Status.BAD_REQUEST, Status.DENIED}
    if opcode in (*BY_EITHER, *BY_HANDLE_ONLY):
        statuses.add(Status.STALE_HANDLE)
    if kind in BLOCKLESS_KINDS:
        statuses.add(Status.OK)
    else:
        kinds = (kind, Kind.LAND) if opcode == Opcode.WRITE else (kind,)
        pairs = itertools.chain.from_iterable(_pairs_of(kind) for kind in kinds)
        statuses |= {TRANSITIONS[pair][1] for pair in pairs if pair in TRANSITIONS and pair[1] != Event.REFUSE}
    if opcode == Opcode.SESSION_OPEN:
        statuses |= {Status.QUOTA, Status.BUSY}
    if "session" in used:
        statuses.add(Status.STALE_EPOCH)
        if opcode == Opcode.PUT_START:
            statuses |= {Status.WRITE_ORDER, Status.BUSY}
        elif "sequence" in used and opcode != Opcode.SESSION_MIGRATE:
            statuses.add(Status.NOT_READY)
    if opcode in (Opcode.WRITE, Opcode.PUT_END):
        statuses.add(Status.STALE_EPOCH)  # The block's own session has moved or was closed.
    assert opcode not in OF_SESSION or Status.STALE_EPOCH in statuses
    return frozenset(statuses)


@functools.cache
def _pairs_of(kind: Kind) -> frozenset[tuple[State, Event]]:
    """(state met, event) that an operation of `kind` can be for some block that it sees."""
    draw, pairs = random.Random(0), set()
    by_handle = kind in [KIND_OF_OPCODE[opcode] for opcode in BY_HANDLE_ONLY] or kind == Kind.LAND
    for _ in range(SAMPLES):
        fields: dict[str, Any] = {name: bool(draw.getrandbits(1)) for name in View._fields}
        fields |= {name: draw.randrange(4) for name in ("offset", "length", "block_length", "base", "end", "accepted",
                                                        "landed", "age", "klass")}  # fmt: skip
        fields["refused"], fields["state"] = Status.OK, State(draw.randrange(4))
        if kind not in SWEEPER_KINDS and by_handle:
            fields["present"], fields["state"] = True, draw.choice((State.FILLING, State.SEALED))
        view = View(**fields)
        reached = view.present or kind in SWEEPER_KINDS
        pairs.add((view.state if reached else State.FREE, classify(kind, view)))
    return frozenset(pairs)
