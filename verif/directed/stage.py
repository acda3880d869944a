"""What directed rounds stand on: a node after reset with its checker, and sequences that several of them send.

Used by: the other files here.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Opcode
from kvnode.sw_driver.batch import BatchBuilder

from ..checkers.messages import MessageCheck
from ..harness.harness import Access, Harness, RunResult
from ..traffic import Traffic

__all__ = ["Checker", "Round", "Stage", "addresses_of", "ring_reads"]

Checker = Callable[[NodeConfig, int], MessageCheck]
Round = Callable[[Harness, Checker], None]


class Stage:
    """A node after reset, its checker, and random traffic for it."""

    def __init__(self, harness: Harness, checker: Checker, seed: int, keys: int = 24, malformed: float = 0.0):
        self.harness, self.config, self.random = harness, harness.config, random.Random(seed)
        self.seed = seed
        self.boot_epoch = self.random.getrandbits(self.config.boot_epoch_bits)
        harness.reset(self.boot_epoch)
        self.check = checker(self.config, self.boot_epoch)
        self.traffic = Traffic(self.config, seed, keys=keys, malformed=malformed)

    def run(self, batch: np.ndarray, payload: bytes, accesses: Sequence[Access] = (), **how: Any) -> RunResult:
        ordered = sorted(accesses, key=lambda access: access[0])
        last = ordered[-1][0] if ordered else 0
        limit = 400 * len(batch) + 300_000 + last + 40 * len(ordered) + how.get("min_cycles", 0)
        run = self.harness.run(batch, payload, max_cycles=limit, seed=self.seed, registers=ordered, **how)
        self.check.check(batch, payload, run)
        return run

    def play(self, requests: int, accesses: Sequence[Access] = (), **how: Any) -> None:
        self.run(*self.traffic.batch(requests), accesses, **how)

    def builder(self) -> BatchBuilder:
        return BatchBuilder(self.config)

    def finish(self, builder: BatchBuilder, accesses: Sequence[Access] = (), **how: Any) -> RunResult:
        return self.run(*builder.build(), accesses, **how)

    def key(self) -> bytes:
        return self.random.getrandbits(self.config.digest_bits).to_bytes(32, "little")

    def put(self, builder: BatchBuilder, port: int, digest: bytes, **fields: Any) -> int:
        """A whole block, with whatever PUT_START takes; the index of its PUT_START."""
        config = self.config
        data = self.random.randbytes(config.block_bytes)
        start = builder.add(Opcode.PUT_START, port, digest=digest, length=len(data), **fields)
        about = {name: fields[name] for name in ("model_id", "group", "klass") if name in fields}
        for offset in range(0, len(data), config.max_payload_bytes):
            part = data[offset : offset + config.max_payload_bytes]
            builder.add(Opcode.WRITE, port, handle_from=start, offset=offset, length=len(part), payload=part, **about)
        builder.add(Opcode.PUT_END, port, handle_from=start, crc=crc32c(data), **about)
        return start


def ring_reads(times: int) -> list[Access]:
    """Look at the event ring and take an event out, so many times."""
    look: list[Access] = [(0, registers.EVENT_STATUS_ADDRESS), (0, registers.EVENT_LEVEL_ADDRESS)]
    look.append((0, registers.EVENT_SEQUENCE_ADDRESS))
    data = range(registers.EVENT_DATA_COUNT)
    look.extend((0, registers.EVENT_DATA_ADDRESS + registers.EVENT_DATA_STRIDE_BYTES * word) for word in data)
    return [*look, (0, registers.EVENT_POP_ADDRESS, 1)] * times


def addresses_of(config: NodeConfig, name: str) -> list[int]:
    address = getattr(registers, f"PARTITION_{name}_ADDRESS")
    return [address + registers.PARTITION_STRIDE_BYTES * number for number in range(len(config.partitions))]
