"""A golden node that writes down what it does, and the small configuration that the stories are told on."""

import hashlib
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from kvnode.models.golden import GoldenNode
from kvnode.models.golden.directory import Operation
from kvnode.models.golden.lockstep import trace_record
from kvnode.models.spec.batch import TRACE_DTYPE
from kvnode.models.spec.config import NodeConfig, PartitionConfig
from kvnode.models.spec.crc import crc32c
from kvnode.models.spec.enums import Kind, Opcode
from kvnode.models.spec.messages import TraceFlag

#: Two partitions of two ports each; blocks of 12 beats in payloads of at most 6; two blocks may be written at a time.
PAIR = NodeConfig(
    name="pair",
    ports=4,
    beat_bytes=16,
    block_bytes=192,
    max_payload_bytes=96,
    partitions=(
        PartitionConfig(ports=(3, 1), slots_log2=4, low_watermark_slots=2, seed=0x0F1E2D3C4B5A69788796A5B4C3D2E1F0),
        PartitionConfig(ports=(0, 2), slots_log2=3, low_watermark_slots=0, seed=0x123456789ABCDEF00FEDCBA987654321),
    ),
    models=4,
    fill_rows=2,
    leases=8,
    sessions=4,
    ways=4,
    tag_bits=24,
    digest_bits=64,
    generation_bits=3,
    epoch_bits=5,
    boot_epoch_bits=6,
    session_generation_bits=5,
    lease_generation_bits=4,
)

#: Ports 3 and 1 own partition 0 with 16 slots, ports 0 and 2 partition 1 with 8.
WRITER = 3
KEY = 0xFEDCBA9876543210


class Node(GoldenNode):
    """Adds the words that the stories are told in, and `records`: one TRACE record for every operation."""

    def __init__(self, config=PAIR, boot_epoch=0):
        super().__init__(config, boot_epoch)
        self.rows = []

    def operate(self, op, cycle=None):
        # Records have a cycle each, also where time stands still.
        if cycle is None and not self._pace_cycles:
            cycle = self._cycle + 1
        result = super().operate(op, cycle)
        self.rows.append(trace_record(len(self.rows), self._cycle, op, result))
        return result

    def records(self):
        return np.frombuffer(b"".join(self.rows), TRACE_DTYPE).copy()

    @staticmethod
    def key(number):
        """Digests as hashes are: no two alike in any bit."""
        return int.from_bytes(hashlib.sha256(number.to_bytes(4, "little")).digest()[:8], "little")

    @staticmethod
    def bytes_of(size, seed=1):
        return random.Random(seed).randbytes(size)

    def start(self, port=WRITER, digest=KEY, length=192, **fields):
        return self.ask(port, Opcode.PUT_START, digest=digest, length=length, **fields)

    def write(self, granted, data, offset=0, port=WRITER, **fields):
        """WRITE with the handle of an answer."""
        where = {"digest": self.handle_of(granted), "offset": offset}
        return self.ask(port, Opcode.WRITE, data, **{"length": len(data)} | where | fields)

    def end(self, granted, data=b"", port=WRITER, **fields):
        """PUT_END with the CRC of some bytes."""
        return self.ask(port, Opcode.PUT_END, digest=self.handle_of(granted, crc=crc32c(data)), **fields)

    def by_handle(self, opcode, answer, port=WRITER, **fields):
        """A request with the handle of an answer in place of a digest."""
        flag = 1 if opcode in (Opcode.READ, Opcode.DROP, Opcode.LEASE) else 0
        return self.ask(port, opcode, digest=self.handle_of(answer), **{"flags": flag} | fields)

    def fill(self, granted, data, port=WRITER, offset=0, **fields):
        """Write some bytes in payloads of at most 6 beats; the last answer."""
        step = self.config.max_payload_bytes
        for at in range(0, len(data), step):
            answer = self.write(granted, data[at : at + step], offset + at, port, **fields)
            assert answer.status.name == "OK"
        return answer

    def keys(self, *numbers):
        return [self.key(number) for number in numbers]

    def put_keys(self, *numbers, port=WRITER, model=0, **fields):
        """One block of a beat for each number, with bytes of its own."""
        for number in numbers:
            answer = self.put(port, model, self.key(number), self.bytes_of(16, number), **fields)
            assert answer.status.name == "SEALED"

    def put_and_leave(self, *numbers):
        """The same as operations of the directory alone, so that the sweeper does nothing for them."""
        for number in numbers:
            ask = partial(Operation, WRITER, partition=0, members=1, klass=1)
            granted = self.operate(ask(kind=Kind.PUT_START, digest=self.key(number), length=1, extent=1))
            flags, crc = TraceFlag.BY_HANDLE | TraceFlag.WHOLE, crc32c(bytes(16))
            ask = partial(ask, flags=flags, slot=granted.slot, generation=granted.generation, crc=crc, part_crc=crc)
            kinds = Kind.WRITE, Kind.LAND, Kind.PUT_END
            statuses = [self.operate(ask(kind=kind, length=kind != Kind.PUT_END)).status.name for kind in kinds]
            assert (granted.status.name, statuses) == ("GRANTED", ["OK", "OK", "SEALED"])

    def reads(self, *numbers, port=WRITER, model=0):
        return [self.read(port, model, self.key(number)).status.name for number in numbers]

    def occupancy(self, partition=0):
        return {state.name: count for state, count in self.partitions[partition].occupancy().items() if count}

    def ages(self, count, partition=0):
        return [block.age for block in self.partitions[partition].blocks[:count]]


@pytest.fixture
def node():
    """A node as it is after reset."""
    return Node()


@pytest.fixture
def make_node():
    """`make_node(**changes)`: the same with a changed configuration. `low` is the watermark of all its partitions,
    `part` are other changes of them all.
    """

    def make(boot_epoch=0, low=None, part=None, **changes):
        of_parts = (part or {}) | ({} if low is None else {"low_watermark_slots": low})
        partitions = tuple(replace(one, **of_parts) for one in PAIR.partitions)
        return Node(PAIR.replace(**{"partitions": partitions} | changes), boot_epoch)

    return make
