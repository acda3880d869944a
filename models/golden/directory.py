"""The directory, untimed and exact: one operation at a time on the tables of all partitions."""

from typing import NamedTuple

from ..spec.coherence import Event, View, decide
from ..spec.config import NodeConfig
from ..spec.enums import SWEEPER_KINDS, Kind, State, Status
from .block_table import Block
from .partitions import GoldenPartition


class Operation(NamedTuple):
    """One directory operation. `owner` is a port, or the number of ports for the sweeper; offsets and lengths are
    beats.
    """

    owner: int
    kind: Kind
    partition: int
    model_id: int = 0
    group: int = 0
    klass: int = 0
    by_handle: bool = False
    slot: int = 0
    generation: int = 0
    offset: int = 0
    length: int = 0
    digest: int = 0
    chain_first: bool = False
    whole: bool = False
    status: Status = Status.OK


class Result(NamedTuple):
    """What an operation did: the fields of a trace record that are not the operation's own."""

    status: Status
    state_before: State
    state_after: State
    present: bool
    slot: int
    generation: int
    length: int
    accepted: int
    landed: int
    age: int
    free_count: int
    epoch: int


_ABSENT = View(False, State.FREE, False, 0, 0, 0, 0, 0, 0, 0, False, False, False, False, False)


#: Cycles between operations that name none: far enough apart for everything to have settled.
_OWN_PACE_CYCLES = 16

# Looked up in every operation, and members of enumerations are slow to look up (Python 3.11: 90 ns each).
_ANSWER, _MATCH, _PUT_START, _RETIRE_MODEL = Kind.ANSWER, Kind.MATCH, Kind.PUT_START, Kind.RETIRE_MODEL
_FREE, _FILLING, _SEALED, _HIT = State.FREE, State.FILLING, State.SEALED, Status.HIT


class GoldenDirectory:
    """The tables of a node of `config`, as they are after reset, and `operate`.

    Used by: GoldenNode, Lockstep.
    """

    def __init__(self, config: NodeConfig):
        self.config = config
        self.partitions = [GoldenPartition(config, number) for number in range(len(config.partitions))]
        self._chained = [False] * config.ports
        self._cycle = 0

    def operate(self, op: Operation, cycle: int | None = None) -> Result:
        """Execute one operation and return what it did. `cycle`: that of its commit, if a run has one."""
        if cycle is None:
            cycle = self._cycle = self._cycle + _OWN_PACE_CYCLES
        part, kind = self.partitions[op.partition], op.kind
        if kind == _ANSWER:
            return self._no_block(part, op.status, 0)
        if kind == _RETIRE_MODEL:
            epoch = part.epochs[op.model_id] = (part.epochs[op.model_id] + 1) % (1 << self.config.epoch_bits)
            return self._no_block(part, Status.OK, epoch)
        if kind in SWEEPER_KINDS:
            return self._sweep(part, op, cycle)
        epoch = part.epochs[op.model_id]
        if op.by_handle:
            slot: int | None = op.slot
            block = part.blocks[op.slot]
            present = (
                block.generation == op.generation
                and (block.state == _FILLING or block.state == _SEALED)
                and block.model_id == op.model_id
                and block.epoch == epoch
            )
        else:
            pair = part.index.place(op.digest, op.model_id, op.group, epoch)
            slot = part.index.find(pair)
            if slot is None and kind == _PUT_START:
                return self._start(part, op, pair, epoch, cycle)
            block = part.blocks[slot or 0]
            present = (
                slot is not None
                and block.digest == op.digest
                and block.model_id == op.model_id
                and block.group == op.group
                and block.epoch == epoch
            )
        chained = kind == _MATCH and (op.chain_first or self._chained[op.owner])
        view = self._view(op, block, chained) if present else _ABSENT._replace(chained=chained)
        outcome = decide(kind, op.by_handle, view)
        if kind == _MATCH:
            self._chained[op.owner] = outcome.status == _HIT
        if not present:
            return self._no_block(part, outcome.status, epoch)
        before = block.state
        block.accepted, block.landed, block.age = outcome.accepted, outcome.landed, outcome.age
        if outcome.state != before:
            self._move(part, slot or 0, block, outcome.state, cycle)
        return self._result(part, outcome.status, before, True, slot or 0, block, epoch)

    def _start(self, part: GoldenPartition, op: Operation, pair: tuple[int, int], epoch: int, cycle: int) -> Result:
        """PUT_START of a key whose tag is not in its candidate pair."""
        where = part.index.choose(pair)
        fill_row = part.fills.lowest_free(cycle)
        room = where is not None and fill_row is not None and part.free_count > 0
        outcome = decide(op.kind, False, _ABSENT._replace(room=room, klass=op.klass))
        if where is None or fill_row is None or outcome.event != Event.ADMIT:
            return self._no_block(part, outcome.status, epoch)
        slot = part.pop_free()
        part.update_low()
        part.index.insert(pair, where, slot)
        part.fills.take(fill_row)
        block = part.blocks[slot]
        block.state, block.digest, block.model_id, block.group = outcome.state, op.digest, op.model_id, op.group
        block.epoch, block.length, block.klass, block.age = epoch, op.length, op.klass, outcome.age
        block.pair, block.where, block.fill_row, block.writer = pair, where, fill_row, op.owner
        block.accepted, block.landed = outcome.accepted, outcome.landed
        return self._result(part, outcome.status, _FREE, False, slot, block, epoch)

    def _sweep(self, part: GoldenPartition, op: Operation, cycle: int) -> Result:
        block = part.blocks[op.slot]
        before = block.state
        view = _ABSENT._replace(state=before, age=block.age, klass=block.klass, stale=part.stale(block), low=part.low)
        outcome = decide(op.kind, False, view)
        block.age = outcome.age
        if op.kind == Kind.VISIT:
            part.hand = (op.slot + 1) % part.slots
        elif op.kind == Kind.PATROL:
            part.patrol = (op.slot + 1) % part.slots
        else:
            part.retire_queue.remove(op.slot)
            part.index.remove(block.pair, block.where)
            part.push_free(op.slot)
            block.generation = (block.generation + 1) % (1 << self.config.generation_bits)
        self._move(part, op.slot, block, outcome.state, cycle)
        return self._result(part, outcome.status, before, False, op.slot, block, 0)

    @staticmethod
    def _move(part: GoldenPartition, slot: int, block: Block, state: State, cycle: int) -> None:
        """Bring a block into a state, with what leaving and entering states means for the tables around it."""
        if state == block.state:
            return
        if block.state == _FILLING:
            part.fills.release(block.fill_row, cycle)
        if state == State.RETIRING:
            part.retire_queue.append(slot)
            part.update_low()
        block.state = state

    @staticmethod
    def _view(op: Operation, block: Block, chained: bool) -> View:
        return View(
            True,
            block.state,
            block.writer == op.owner,
            op.offset,
            op.length,
            block.length,
            block.accepted,
            block.landed,
            block.age,
            block.klass,
            False,
            chained,
            op.whole,
            False,
            False,
        )

    @staticmethod
    def _no_block(part: GoldenPartition, status: Status, epoch: int) -> Result:
        return Result(status, _FREE, _FREE, False, 0, 0, 0, 0, 0, 0, part.free_count, epoch)

    @staticmethod
    def _result(
        part: GoldenPartition, status: Status, before: State, present: bool, slot: int, block: Block, epoch: int
    ) -> Result:
        filling = block.state == _FILLING
        return Result(
            status,
            before,
            block.state,
            present,
            slot,
            block.generation,
            block.length,
            block.accepted if filling else 0,
            block.landed if filling else 0,
            block.age,
            part.free_count,
            epoch,
        )
