"""A golden node that writes down what it does, and the small configuration that the stories are told on."""

from dataclasses import replace

import numpy as np
import pytest

from kvnode.models.golden import GoldenNode
from kvnode.models.golden.lockstep import trace_record
from kvnode.models.spec.batch import TRACE_DTYPE
from kvnode.models.spec.config import NodeConfig, PartitionConfig
from kvnode.models.spec.messages import HANDLE, REQUEST

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
    ways=4,
    tag_bits=24,
    digest_bits=64,
    generation_bits=3,
    epoch_bits=5,
    boot_epoch_bits=6,
)


class Node(GoldenNode):
    """Adds `ask`, which packs a request, and `records`: one TRACE record for every operation."""

    def __init__(self, config=PAIR, boot_epoch=0):
        super().__init__(config, boot_epoch)
        self.rows = []

    def ask(self, port, opcode, payload=b"", **fields):
        values = {"version": 1, "partition": self.config.partition_of_port[port], "opcode": opcode}
        return self.request(port, REQUEST.pack(**(values | fields)), payload)

    def operate(self, op, cycle=None):
        result = super().operate(op, cycle)
        self.rows.append(trace_record(len(self.rows), 16 * len(self.rows) + 16, op, result))
        return result

    def records(self):
        return np.frombuffer(b"".join(self.rows), TRACE_DTYPE).copy()


@pytest.fixture
def node():
    """A node as it is after reset."""
    return Node()


@pytest.fixture
def make_node():
    """`make_node(**changes)`: the same with a changed configuration; `low` is the watermark of all its partitions."""

    def make(boot_epoch=0, low=None, **changes):
        if low is not None:
            changes["partitions"] = tuple(replace(part, low_watermark_slots=low) for part in PAIR.partitions)
        return Node(PAIR.replace(**changes), boot_epoch)

    return make


@pytest.fixture
def handle_with():
    """`handle_with(answer, **changes)`: the handle of an answer, with fields changed, as a digest field."""

    def handle(answer, **changes):
        fields = {name: answer.fields[name] for name in ("slot", "generation", "boot_epoch")} | changes
        return int.from_bytes(HANDLE.pack(**fields), "little")

    return handle
