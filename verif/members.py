"""Blocks that several members write and other ranks read: any write degree against any read degree.

Used by: verif.test_members, sw_driver.benches.members.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec.config import NodeConfig, PartitionConfig, preset
from kvnode.models.spec.enums import Opcode, Status
from kvnode.models.spec.requests import MAX_MEMBERS
from kvnode.sw_driver.batch import BatchBuilder

from .checkers.messages import MessageCheck
from .harness.harness import Done, Harness, RunResult

DEGREES = (1, 2, 4, 8)
#: (idle, backpressure), batch after batch.
PATTERNS = ((0.0, 0.0), (0.2, 0.0), (0.0, 0.3), (0.2, 0.5))
#: Ticks after which a block with a missing member is taken back.
MISSING_TICKS = 20
#: Blocks of a prefix, and questions after it from each port while it is written.
PREFIX, QUESTIONS = 4, 12
#: Questions come at random in so many cycles per block.
CYCLES_PER_BLOCK = 300


def config_of(base: NodeConfig | None = None) -> NodeConfig:
    """One partition that owns all ports, as wide as `base` (default: sim), with blocks of two laps and at least two
    beats for each of MAX_MEMBERS."""
    base = base or preset("sim")
    beats = 2 * max(base.ports, MAX_MEMBERS)
    block_bytes = beats * base.beat_bytes
    everything = PartitionConfig(
        tuple(range(base.ports)), slots_log2=8, low_watermark_slots=32, seed=base.partitions[0].seed, name="all"
    )
    return base.replace(
        name=f"members-{base.ports}", block_bytes=block_bytes, max_payload_bytes=max(block_bytes // 4, 32 * PREFIX),
        partitions=(everything,), fill_rows=4 * base.ports, tick_cycles_log2=4, ways=8, epoch_bits=16,
        session_generation_bits=20, tag_bits=32, digest_bits=256, generation_bits=16,
    )  # fmt: skip


@dataclass
class Figures:
    """`pairs`: (write degree, read degree, form of the read) that all ranks read in; `reads` their READs, `wrong_reads`
    those that did not give their bytes, `wrong_bytes` how many bytes. `broken`: blocks with a member missing or
    corrupt; `broken_read`: answers that gave anything of one. `matches`: pairs of MATCHes on two ports, one surely
    after the other; `shrunk`: those in which the later one found less.
    """

    pairs: int = 0
    reads: int = 0
    bytes: int = 0
    wrong_reads: int = 0
    wrong_bytes: int = 0
    broken: int = 0
    broken_read: int = 0
    matches: int = 0
    shrunk: int = 0
    operations: int = 0


class Members:
    """Rounds on one node, from reset on, every message checked against the golden node.

    The bytes of a READ are compared a second time, with numpy: a block is `block_beats` rows of a beat, or a square of
    beats of which a rank reads some columns.
    """

    def __init__(self, harness: Harness, seed: int = 0, check: bool = True):
        self.harness, self.config = harness, harness.config
        self.random = random.Random(seed)
        self.seed = seed
        harness.reset()
        self.check = MessageCheck(self.config) if check else None
        self.figures = Figures()
        self._runs = self._digests = 0

    def play(self, rounds: int, progress: Callable[[Figures], None] = lambda figures: None) -> Figures:
        """Each round: all pairs of degrees, broken blocks, and a prefix that is asked for while it is written."""
        for _ in range(rounds):
            for write in DEGREES:
                for read in DEGREES:
                    self._pair(write, read)
            for write in DEGREES:
                for how in ("missing", "corrupt"):
                    if how == "corrupt" or write > 1:
                        self._broken(write, how)
            for write in DEGREES:
                self._prefix(write)
            progress(self.figures)
        return self.figures

    # Write with one degree, read with another.

    def _pair(self, write: int, read: int) -> None:
        config, builder = self.config, BatchBuilder(self.config)
        beats, beat = config.block_beats, config.beat_bytes
        block = np.frombuffer(self.random.randbytes(config.block_bytes), np.uint8)
        digest, ports = self._digest(), self._ports(write)
        last = self._write(builder, digest, block, write, ports)
        readers = self._ports(read)
        # Ranges: the rank's rows. Runs: its columns of the square.
        side = next(columns for columns in (16, 8) if beats % columns == 0)
        square = block.reshape(beats // side, side, beat)
        asked: list[tuple[int, np.ndarray]] = []
        for rank, port in enumerate(readers):
            share = config.block_bytes // read
            index = builder.read(port, digest, offset=rank * share, length=share, after=last)
            asked.append((index, block.reshape(read, share)[rank]))
            found = builder.add(Opcode.LOOKUP, port, digest=digest, after=last)
            width = side // read
            index = builder.add(
                Opcode.READ, port, by_handle=True, handle_from=found, offset=rank * width * beat, length=width * beat,
                stride=side * beat, count=beats // side,
            )  # fmt: skip
            asked.append((index, square[:, rank * width : (rank + 1) * width]))
        run = self._run(builder)
        # Not before every rank has its answer.
        drop = BatchBuilder(config)
        drop.add(Opcode.DROP, readers[-1], digest=digest)
        self._run(drop)
        figures = self.figures
        figures.pairs += 2
        for index, expected in asked:
            wrong = wrong_bytes(run, index, expected)
            figures.reads += 1
            figures.bytes += expected.size
            figures.wrong_reads += wrong > 0
            figures.wrong_bytes += wrong

    def _write(
        self, builder: BatchBuilder, digest: bytes, block: np.ndarray, degree: int, ports: list[int], spoil: int = -1,
        missing: int = -1, deadline: int = 0, earliest_cycle: int = 0,
    ) -> int:  # fmt: skip
        """All members of a block in any order, each on its port; the index of the last PUT_END, which waits for the
        others. `spoil` sends another CRC, `missing` none of the bytes."""
        share, step = len(block) // degree, self.config.max_payload_bytes
        order = list(range(degree))
        self.random.shuffle(order)
        last = -1
        for member in order:
            if member == missing:
                continue
            port, data = ports[member], block[member * share : (member + 1) * share].tobytes()
            start = builder.add(
                Opcode.PUT_START, port, digest=digest, member=member, members=degree, length=share, klass=0,
                deadline=deadline, earliest_cycle=earliest_cycle,
            )  # fmt: skip
            for offset in range(0, share, step):
                part = data[offset : offset + step]
                builder.add(
                    Opcode.WRITE, port, handle_from=start, member=member, offset=member * share + offset,
                    length=len(part), payload=part,
                )  # fmt: skip
            shares: dict[str, Any] = {"members": degree, "length": share} if degree > 1 else {}
            crc = crc32c(data) ^ (member == spoil)
            last = builder.add(Opcode.PUT_END, port, handle_from=start, member=member, crc=crc, after=last, **shares)
        return last

    # Blocks that never become whole.

    def _broken(self, write: int, how: str) -> None:
        """All ports ask for it while it is written, while it waits for what is missing, and when it was taken back."""
        builder, config = BatchBuilder(self.config), self.config
        block = np.frombuffer(self.random.randbytes(config.block_bytes), np.uint8)
        digest, member = self._digest(), self.random.randrange(write)
        missing, spoil = (member, -1) if how == "missing" else (-1, member)
        self._write(
            builder, digest, block, write, self._ports(write), spoil=spoil, missing=missing, deadline=MISSING_TICKS
        )
        asked = []
        for _ in range(QUESTIONS):
            for port in range(config.ports):
                at = self.random.randrange(4 * CYCLES_PER_BLOCK)
                if self.random.getrandbits(1):
                    asked.append(builder.read(port, digest, earliest_cycle=at))
                else:
                    asked.append(builder.add(Opcode.MATCH, port, length=32, payload=digest, earliest_cycle=at))
        run = self._run(builder)
        self.figures.broken += 1
        for index in asked:
            header = run.results["header"][index]
            self.figures.broken_read += bool(
                run.results["done"][index] != Done.ANSWERED
                or header["status"] not in (Status.MISS, Status.NOT_READY)
                or header["count"]
                or run.results["data_bytes"][index]
            )

    # A prefix that grows.

    def _prefix(self, write: int) -> None:
        """What one port has found, every other port finds from then on."""
        builder, config = BatchBuilder(self.config), self.config
        digests = [self._digest() for _ in range(PREFIX)]
        ports = self._ports(write)
        cycles = PREFIX * CYCLES_PER_BLOCK
        questions = sorted(
            (self.random.randrange(cycles), port) for port in range(config.ports) for _ in range(QUESTIONS)
        )
        asked: list[int] = []

        def ask(until: int) -> None:
            while questions and questions[0][0] < until:
                at, port = questions.pop(0)
                asked.extend(builder.match(port, digests, earliest_cycle=at))

        for number, digest in enumerate(digests):
            ask(number * CYCLES_PER_BLOCK)
            block = np.frombuffer(self.random.randbytes(config.block_bytes), np.uint8)
            self._write(builder, digest, block, write, ports, earliest_cycle=number * CYCLES_PER_BLOCK)
        ask(cycles)
        last = [builder.match(port, digests, earliest_cycle=4 * cycles)[0] for port in range(config.ports)]
        for digest in digests:
            builder.add(Opcode.DROP, 0, digest=digest, earliest_cycle=6 * cycles, after=max(last))
        batch, _ = builder.build()
        run = self._run(builder)
        matches, shrunk = disagreements(batch, run, asked + last)
        self.figures.matches += matches
        self.figures.shrunk += shrunk

    def _digest(self) -> bytes:
        self._digests += 1
        return self._digests.to_bytes(4, "little") + self.random.randbytes(28)

    def _ports(self, degree: int) -> list[int]:
        """A port for each rank: as many as there are, the rest shares them."""
        ports = list(range(self.config.ports))
        self.random.shuffle(ports)
        used = self.random.randrange(1, len(ports) + 1) if self.random.getrandbits(1) else len(ports)
        return [ports[rank % used] for rank in range(degree)]

    def _run(self, builder: BatchBuilder) -> RunResult:
        batch, payload = builder.build()
        idle, backpressure = PATTERNS[self._runs % len(PATTERNS)]
        self._runs += 1
        run = self.harness.run(
            batch, payload, max_cycles=2_000 * len(batch) + 100_000, idle=idle, backpressure=backpressure,
            seed=self.seed + self._runs,
        )  # fmt: skip
        if self.check is not None:
            self.check.check(batch, payload, run)
        self.figures.operations += len(run.trace)
        return run


def wrong_bytes(run: RunResult, index: int, expected: np.ndarray) -> int:
    """Bytes of `expected` that the READ did not give, and bytes that it gave beyond."""
    got = np.frombuffer(run.payload(index), np.uint8)
    wanted = np.ascontiguousarray(expected).reshape(-1)
    common = min(len(got), len(wanted))
    return int((got[:common] != wanted[:common]).sum()) + abs(len(got) - len(wanted))


def disagreements(batch: np.ndarray, run: RunResult, asked: list[int]) -> tuple[int, int]:
    """(pairs of MATCHes of the same prefix on different ports, the later one begun after the earlier one was answered;
    pairs in which the later one found less).

    A request begins in its earliest cycle at the earliest, and not before the one in front of it was sent.
    """
    results = run.results
    sent: dict[int, int] = {}
    begin = np.zeros(len(batch), np.int64)
    for index in range(len(batch)):
        port = int(batch["port"][index])
        begin[index] = max(run.first_cycle + int(batch["earliest_cycle"][index]), sent.get(port, -1) + 1)
        if results["tries"][index]:
            sent[port] = int(results["sent_cycle"][index])
    rows = np.array(asked)
    end, start = results["last_cycle"][rows].astype(np.int64), begin[rows]
    count, port = results["header"]["count"][rows].astype(np.int64), batch["port"][rows].astype(np.int64)
    later = (start[None, :] > end[:, None]) & (port[None, :] != port[:, None])
    return int(later.sum()), int((later & (count[None, :] < count[:, None])).sum())
