"""Random sequences of requests on the golden node against plain dictionaries."""

import hashlib
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvnode.models.golden import Answer
from kvnode.models.golden.directory import Operation
from kvnode.models.spec.enums import Kind, Opcode

BEAT, BLOCK_BEATS, PAYLOAD_BEATS, FILL_ROWS = 16, 12, 6, 2
PARTITION_OF_PORT = (1, 0, 1, 0)
SLOTS = (16, 8)
SWEEPER = 4

PORTS = st.integers(0, 3)
MODELS = st.integers(0, 1)
NUMBERS = st.integers(0, 5)


def digest_of(number):
    """Six keys that never crowd each other: hashed, and the tags are 24 bits wide."""
    return int.from_bytes(hashlib.sha256(bytes([number])).digest()[:8], "little")


@dataclass
class Block:
    """What the reference knows of a block: who writes it, how long it will be, and its bytes so far."""

    writer: int
    beats: int
    granted: Answer
    sealed: bool = False
    data: bytearray = field(default_factory=bytearray)


class NodeMachine(RuleBasedStateMachine):
    """`blocks` holds what can be found, by (partition, model, digest).

    `stale` is what retired models left behind in each partition: by slot that the patrol has not met since, whether it
    holds a fill row. `patrol` is where that stands.
    """

    make = None

    @initialize()
    def start(self):
        self.node = type(self).make(low=0)
        self.blocks = {}
        self.stale = [{}, {}]
        self.patrol = [0, 0]

    def block(self, port, model, number):
        return self.blocks.get((PARTITION_OF_PORT[port], model, digest_of(number)))

    def left(self, partition):
        """Slots and fill rows that are lost to stale blocks."""
        return len(self.stale[partition]), sum(self.stale[partition].values())

    def in_partition(self, partition, sealed=None):
        return sum(key[0] == partition and sealed in (None, b.sealed) for key, b in self.blocks.items())

    @rule(port=PORTS, model=MODELS, number=NUMBERS, beats=st.integers(1, BLOCK_BEATS))
    def put_start(self, port, model, number, beats):
        partition, block = PARTITION_OF_PORT[port], self.block(port, model, number)
        slots, rows = self.left(partition)
        used, filling = slots + self.in_partition(partition), rows + self.in_partition(partition, False)
        if block is not None:
            expected = "EXISTS" if block.sealed else "BUSY"
        else:
            expected = "NO_SPACE" if used == SLOTS[partition] or filling == FILL_ROWS else "GRANTED"
        answer = self.node.start(port, digest_of(number), beats * BEAT, model_id=model)
        assert answer.status.name == expected
        if expected == "GRANTED":
            self.blocks[partition, model, digest_of(number)] = Block(port, beats, answer)

    @rule(port=PORTS, model=MODELS, number=NUMBERS, start=st.integers(-1, 1), beats=st.integers(1, PAYLOAD_BEATS),
          surplus=st.sampled_from([0, 0, 0, -1, 1]), fill=st.integers(0, 255))  # fmt: skip
    def write(self, port, model, number, start, beats, surplus, fill):
        block = self.block(port, model, number)
        if block is None or beats + surplus == 0:
            return
        offset = len(block.data) + start * BEAT
        if not 0 <= offset < BLOCK_BEATS * BEAT:
            return
        data = bytes([fill]) * (beats * BEAT)
        if block.sealed:
            expected = "WRITE_ONCE"
        elif block.writer != port:
            expected = "BUSY"
        elif start or len(block.data) + len(data) > block.beats * BEAT:
            expected = "WRITE_ORDER"
        else:
            expected = "BAD_REQUEST" if surplus else "OK"
        payload = bytes([fill]) * ((beats + surplus) * BEAT)
        answer = self.node.write(block.granted, payload, offset, port, model_id=model, length=len(data))
        assert answer.status.name == expected
        if expected == "OK":
            block.data += data

    @rule(port=PORTS, model=MODELS, number=NUMBERS, surplus=st.sampled_from([b"", b"", b"", b"?"]))
    def put_end(self, port, model, number, surplus):
        block = self.block(port, model, number)
        if block is None:
            return
        status = self.node.end(block.granted, bytes(block.data) + surplus, port, model_id=model).status.name
        if block.sealed:
            assert status == "SEALED"
        elif block.writer != port:
            assert status == "BUSY"
        elif len(block.data) == block.beats * BEAT and not surplus:
            assert status == "SEALED"
            block.sealed = True
        else:
            assert status == ("INCOMPLETE" if len(block.data) < block.beats * BEAT else "CHECKSUM_MISMATCH")
            del self.blocks[PARTITION_OF_PORT[port], model, digest_of(number)]

    @rule(port=PORTS, model=MODELS, number=NUMBERS)
    def revoke(self, port, model, number):
        block = self.block(port, model, number)
        if block is None:
            return
        status = self.node.by_handle(Opcode.PUT_REVOKE, block.granted, port, model_id=model).status.name
        assert status == ("WRITE_ONCE" if block.sealed else "OK" if block.writer == port else "BUSY")
        if status == "OK":
            del self.blocks[PARTITION_OF_PORT[port], model, digest_of(number)]

    @rule(port=PORTS, model=MODELS, number=NUMBERS, seed=st.integers(0, 255))
    def put(self, port, model, number, seed):
        """A whole block in one go, if its key is free and there is room."""
        partition = PARTITION_OF_PORT[port]
        before = self.block(port, model, number)
        slots, rows = self.left(partition)
        data = hashlib.shake_128(bytes([seed])).digest((1 + seed % BLOCK_BEATS) * BEAT)
        answer = self.node.put(port, model, digest_of(number), data)
        if before is not None:
            assert answer.status.name == ("EXISTS" if before.sealed else "BUSY")
        elif slots + self.in_partition(partition) == SLOTS[partition]:
            assert answer.status.name == "NO_SPACE"
        elif rows + self.in_partition(partition, False) == FILL_ROWS:
            assert answer.status.name == "NO_SPACE"
        else:
            assert answer.status.name == "SEALED"
            self.blocks[partition, model, digest_of(number)] = Block(
                port, len(data) // BEAT, answer, True, bytearray(data)
            )

    @rule(port=PORTS, model=MODELS, number=NUMBERS, offset=st.integers(0, BLOCK_BEATS - 1),
          beats=st.integers(0, BLOCK_BEATS), by_handle=st.booleans())  # fmt: skip
    def read(self, port, model, number, offset, beats, by_handle):
        block = self.block(port, model, number)
        where = {"offset": offset * BEAT, "length": beats * BEAT, "model_id": model}
        if by_handle and block is not None:
            answer = self.node.by_handle(Opcode.READ, block.granted, port, **where)
        else:
            answer = self.node.ask(port, Opcode.READ, digest=digest_of(number), **where)
        status = answer.status.name
        if block is None:
            assert (status, answer.data) == ("MISS", b"")
            return
        last = offset + beats if beats else block.beats
        if last > block.beats or offset >= block.beats:
            expected = "BAD_REQUEST"
        elif block.sealed or block.writer == port and last * BEAT <= len(block.data):
            expected = "OK"
        else:
            expected = "NOT_READY"
        assert status == expected
        assert answer.data == (bytes(block.data[offset * BEAT : last * BEAT]) if status == "OK" else b"")
        assert answer.fields["watermark"] == len(block.data)

    @rule(port=PORTS, model=MODELS, numbers=st.lists(NUMBERS, min_size=1, max_size=3))
    def match(self, port, model, numbers):
        count = 0
        for number in numbers:
            block = self.block(port, model, number)
            if block is None or not block.sealed:
                break
            count += 1
        answer = self.node.match(port, model, [digest_of(number) for number in numbers])
        expected = "HIT" if count else "MISS" if self.block(port, model, numbers[0]) is None else "NOT_READY"
        assert (answer.fields["count"], answer.status.name) == (count, expected)

    @rule(port=PORTS, model=MODELS, number=NUMBERS)
    def lookup(self, port, model, number):
        block = self.block(port, model, number)
        answer = self.node.ask(port, Opcode.LOOKUP, digest=digest_of(number), model_id=model)
        assert answer.status.name == ("MISS" if block is None else "HIT" if block.sealed else "NOT_READY")
        if block is not None:
            assert self.node.handle_of(answer) == self.node.handle_of(block.granted)

    @rule(port=PORTS, model=MODELS, number=NUMBERS, by_handle=st.booleans())
    def drop(self, port, model, number, by_handle):
        block = self.block(port, model, number)
        if by_handle and block is not None:
            answer = self.node.by_handle(Opcode.DROP, block.granted, port, model_id=model)
        else:
            answer = self.node.ask(port, Opcode.DROP, digest=digest_of(number), model_id=model)
        status = answer.status.name
        assert status == ("MISS" if block is None else "OK" if block.sealed else "BUSY")
        if status == "OK":
            del self.blocks[PARTITION_OF_PORT[port], model, digest_of(number)]

    def forget(self, partition, model):
        """Take a retired model's blocks out of the reference; returns them."""
        gone = [self.blocks.pop(key) for key in list(self.blocks) if key[:2] == (partition, model)]
        for block in gone:
            assert self.node.end(block.granted, port=block.writer, model_id=model).status.name == "STALE_HANDLE"
        return gone

    @rule(partition=st.integers(0, 1), model=MODELS)
    def retire(self, partition, model):
        """As a library user does: every slot of the model, and all that was left behind before, is free at once."""
        self.node.retire_model(partition, model)
        self.stale[partition] = {}
        self.forget(partition, model)

    @rule(partition=st.integers(0, 1), model=MODELS)
    def retire_by_register(self, partition, model):
        """As the node does: the epoch, and the one step of the patrol that is owed for it."""
        self.node.operate(Operation(SWEEPER, Kind.RETIRE_MODEL, partition=partition, model_id=model))
        for block in self.forget(partition, model):
            self.stale[partition][block.granted.fields["slot"]] = not block.sealed
        self.steps_of_the_patrol(partition, 1)

    @precondition(lambda self: any(self.stale))
    @rule(partition=st.integers(0, 1), count=st.integers(1, 20))
    def patrol_goes_on(self, partition, count):
        self.steps_of_the_patrol(partition, count)

    def steps_of_the_patrol(self, partition, count):
        for _ in range(count):
            slot = self.patrol[partition]
            result = self.node.operate(Operation(SWEEPER, Kind.PATROL, partition=partition, slot=slot))
            assert (result.state_after != result.state_before) == (slot in self.stale[partition])
            self.stale[partition].pop(slot, None)
            self.patrol[partition] = (slot + 1) % SLOTS[partition]
        self.node.sweep(partition)

    @invariant()
    def occupancy_is_what_the_reference_counts(self):
        for partition, part in enumerate(self.node.partitions):
            counts = {state.name: count for state, count in part.occupancy().items()}
            slots, rows = self.left(partition)
            assert (part.hand, part.patrol) == (0, self.patrol[partition])
            assert counts["SEALED"] == self.in_partition(partition, True) + slots - rows
            assert counts["FILLING"] == self.in_partition(partition, False) + rows
            assert counts["FREE"] == part.free_count == SLOTS[partition] - self.in_partition(partition) - slots
            assert len(part.index) == SLOTS[partition] - part.free_count


@pytest.fixture(autouse=True)
def _node_of_the_stories(make_node):
    NodeMachine.make = staticmethod(make_node)


class TestNodeEqualsPlainDictionaries(NodeMachine.TestCase):
    settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
