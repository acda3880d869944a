"""Sessions that move from port to port with their blocks on the way, and what whoever reads them gets.

Used by: verif.test_migration, sw_driver.benches.migration.
"""

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec.config import NodeConfig, PartitionConfig, preset
from kvnode.models.spec.enums import Opcode, Status
from kvnode.models.spec.messages import SESSION_ARGUMENTS
from kvnode.models.spec.timing import SWEEP_ROUND
from kvnode.sw_driver.batch import BatchBuilder

from .checkers.messages import MessageCheck
from .harness.harness import Done, Harness, RunResult

#: (idle, backpressure), batch after batch.
PATTERNS = ((0.0, 0.0), (0.2, 0.0), (0.0, 0.3), (0.2, 0.5))
#: Sessions that move about in a batch, and moves of one at most.
SESSIONS, MOVES = 16, 16
#: Cycles between two SESSION_OPENs: the sweeper finds a row for the next one.
OPEN_CYCLES = 160
#: Cycles beside the sweeper's rounds in which a block is taken back.
SETTLE_CYCLES = 300
#: Cycles for which a reader asks again, and ticks after which a block that its writer left is taken back.
PATIENCE_CYCLES, ABANDONED_TICKS = 6_000, 40
#: Chances: a writer leaves its last block, a block beyond the limit races with the move (both are a session's last
#: move); a block beyond the limit comes after it; the session moves on without waiting for the reader; its keys are its
#: own.
ABANDONED, RACING, LATE, HASTY, PRIVATE = 0.02, 0.1, 0.3, 0.05, 0.5


def config_of(base: NodeConfig | int) -> NodeConfig:
    """Small blocks in one partition that owns all ports, as wide as `base`: a node, or that of so many ports."""
    if isinstance(base, int):
        base = preset({4: "sim", 8: "wide"}[base])
    lap = base.ports * base.beat_bytes
    block_bytes = lap * max(1, -(-256 // lap))
    everything = PartitionConfig(
        tuple(range(base.ports)), slots_log2=10, low_watermark_slots=64, seed=base.partitions[0].seed, name="all"
    )
    return base.replace(
        name=f"migration-{base.ports}", block_bytes=block_bytes, max_payload_bytes=max(block_bytes // 2, 64),
        partitions=(everything,), fill_rows=2 * SESSIONS, sessions=2 * SESSIONS, tick_cycles_log2=4, ways=8,
        epoch_bits=16, session_generation_bits=20, tag_bits=32, digest_bits=256, generation_bits=16, models=4,
    )  # fmt: skip


@dataclass
class Figures:
    """What the moves came to.

    `reads`: READs answered with bytes. `wrong_reads`: those whose bytes are not all those of the one block that was
    sealed under their key. `incomplete`: questions that were answered although a block of the set was missing. `late`:
    blocks beyond the limit, begun after the move; `late_accepted`: those of them that were not refused as STALE_EPOCH,
    however often the session has moved since. `deadlines`: sets that did not come while the reader was patient,
    `deadlines_early` though all of them was sealed. `wait_cycles`: of the others, how long. `retried`: questions that
    were asked again.
    """

    moves: int = 0
    reads: int = 0
    wrong_reads: int = 0
    incomplete: int = 0
    late: int = 0
    late_accepted: int = 0
    deadlines: int = 0
    deadlines_early: int = 0
    retried: int = 0
    cycles: int = 0
    operations: int = 0
    wait_cycles: list[int] = field(default_factory=list)

    def add(self, other: "Figures") -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))


#: A session and a block's number in it.
Key = tuple[int, int]
#: Adds a message to the batch.
Message = Callable[[], None]


@dataclass
class _Notes:
    """What a batch's requests are for: their indices, with what is known about them."""

    moves: list[int] = field(default_factory=list)
    #: (PUT_END, key, bytes).
    puts: list[tuple[int, Key, bytes]] = field(default_factory=list)
    #: The bytes that a port began to write, by port and key.
    begun: dict[tuple[int, Key], list[bytes]] = field(default_factory=dict)
    #: (READ, key); (READ without a session, key).
    reads: list[tuple[int, Key]] = field(default_factory=list)
    peeks: list[tuple[int, Key]] = field(default_factory=list)
    #: (question with `after`, digests that a MATCH has, else 0, session).
    asks: list[tuple[int, int, int]] = field(default_factory=list)
    #: (DROP, session).
    drops: list[tuple[int, int]] = field(default_factory=list)
    #: (move, first question behind it, number that must be committed, session).
    firsts: list[tuple[int, int, int, int]] = field(default_factory=list)
    #: Requests that must be refused as STALE_EPOCH if the move behind which they are sent was made.
    stale: list[tuple[int, int]] = field(default_factory=list)


class Migration:
    """Random moves on one node, from reset on, every message checked against the golden node.

    `play(moves)` goes on until at least so many were made. Bytes are compared a second time, with what was written and
    by what was answered alone: a READ must give all bytes of the block whose PUT_END was answered SEALED.

    The wait of a set begins when the new owner has the answer to its SESSION_MIGRATE and its port is free for the first
    question with `after`, and ends with the last beat of the last answer to that question. RESULT_DTYPE tells when the
    last try was sent, so the beginning is taken from the request before it on the port.
    """

    def __init__(self, harness: Harness, seed: int = 0, check: bool = True):
        self.harness, self.config = harness, harness.config
        self.random = random.Random(seed)
        self.seed = seed
        harness.reset()
        harness.idle(self.config.slots + 100)
        self.check = MessageCheck(self.config) if check else None
        self._batches = self._sessions = 0

    def play(self, moves: int, progress=lambda figures: None) -> Figures:
        total = Figures()
        while total.moves < moves:
            builder, notes = BatchBuilder(self.config), _Notes()
            self._batch(builder, notes)
            batch, payload = builder.build()
            idle, backpressure = PATTERNS[self._batches % len(PATTERNS)]
            run = self.harness.run(
                batch, payload, max_cycles=2_000 * len(batch) + 1_000_000, idle=idle, backpressure=backpressure,
                seed=self.seed + self._batches,
            )  # fmt: skip
            if self.check is not None:
                self.check.check(batch, payload, run)
            self._batches += 1
            total.add(audit(batch, notes, run))
            progress(total)
        return total

    # What is sent.

    def _batch(self, builder: BatchBuilder, notes: _Notes) -> None:
        ports = [self.random.randrange(self.config.ports) for _ in range(SESSIONS)]
        lives = []
        for number, port in enumerate(ports):
            owners = SESSION_ARGUMENTS.pack(ports=self.random.choice((0, 1 << port, (1 << self.config.ports) - 1)))
            opened = builder.add(Opcode.SESSION_OPEN, port, digest=owners, earliest_cycle=number * OPEN_CYCLES)
            self._sessions += 1
            lives.append(self._life(builder, notes, self._sessions, port, opened))
        # Requests that a question waits for stand before it in the batch, so no port waits for itself.
        while lives:
            life = self.random.choice(lives)
            if next(life, None) is None:
                lives.remove(life)

    def _life(self, builder: BatchBuilder, notes: _Notes, name: int, port: int, owner: int) -> Iterator[bool]:
        """A session from its opening on; others get their turn at each yield."""
        draw = self.random
        private = draw.random() < PRIVATE
        life = _Life(self, builder, notes, name, private)
        asked = -1
        for _ in range(draw.randrange(1, MOVES + 1)):
            new = draw.choice([other for other in range(self.config.ports) if other != port])
            abandoned = draw.random() < ABANDONED
            count = draw.randrange(1, 4)
            last = life.last + count
            moved = -1
            back = list(life.write_back(port, owner, count, abandoned))
            move_at = draw.randrange(len(back) + 1)
            for position, message in enumerate([*back, None]):
                if position == move_at:
                    moved = life.move(new, owner, last, -1 if draw.random() < HASTY else asked)
                    yield True
                if message is not None:
                    message()
                    yield True
            raced = not abandoned and draw.random() < RACING
            if raced:
                for message in life.put(port, owner, last + 1):
                    message()
                    yield True
            if draw.random() < LATE:
                late = builder.add(
                    Opcode.PUT_START, port, digest=life.digest(last + 2), length=self.config.beat_bytes, klass=0,
                    session_from=owner, sequence=last + 2, private=private, after=moved, deadline=ABANDONED_TICKS,
                )  # fmt: skip
                notes.stale.append((moved, late))
            if draw.random() < 0.1:
                notes.stale.append((moved, life.read(port, owner, last, last, after=moved)))
            yield True
            for position, asked in enumerate(life.asks(new, moved, last, count)):
                if position == 0:
                    notes.firsts.append((moved, asked, last, name))
                yield True
            if draw.random() < 0.2:
                life.read(draw.randrange(self.config.ports), moved, last, last, patience=PATIENCE_CYCLES, asked=True)
            if not private and draw.random() < 0.3:
                life.peek(draw.randrange(self.config.ports), draw.randrange(1, last + 1))
            yield True
            life.last, port, owner = last, new, moved
            if abandoned or raced:
                # The new owner writes what the old one has not, or not in time.
                number = last if abandoned else last + 1
                life.settle(port, owner, number)
                for message in life.put(port, owner, number):
                    message()
                    yield True
                life.read(port, owner, number, number, patience=PATIENCE_CYCLES)
                life.last = number
                break
        yield True
        if not private:
            for number in range(1, life.last + 1):
                if draw.random() < 0.8:
                    notes.drops.append((builder.add(Opcode.DROP, port, digest=life.digest(number)), name))
                    yield True
        builder.add(Opcode.SESSION_CLOSE, port, session_from=owner)


class _Life:
    """The messages of one session. `last`: the highest number of a block that was to be written."""

    def __init__(self, migration: Migration, builder: BatchBuilder, notes: _Notes, name: int, private: bool):
        self.config, self.random = migration.config, migration.random
        self.builder, self.notes, self.name, self.private = builder, notes, name, private
        self.last = 0

    def digest(self, number: int) -> bytes:
        """All sessions have the same private keys."""
        return number.to_bytes(4, "little") + (0 if self.private else self.name).to_bytes(28, "little")

    def move(self, port: int, owner: int, limit: int, after: int) -> int:
        moved = self.builder.add(
            Opcode.SESSION_MIGRATE, port, digest=SESSION_ARGUMENTS.pack(ports=self.random.choice((0, 1 << port))),
            session_from=owner, sequence=limit, after=after,
        )  # fmt: skip
        self.notes.moves.append(moved)
        return moved

    def settle(self, port: int, owner: int, number: int) -> None:
        """Wait until an old owner's block is sealed or the sweeper has taken it back."""
        rounds = 2 * SWEEP_ROUND * self.config.fill_rows * (self.config.ports + 1)
        self.builder.add(
            Opcode.SESSION_FENCE, port, session_from=owner, sequence=number, patience=rounds + SETTLE_CYCLES
        )

    def write_back(self, port: int, owner: int, count: int, abandoned: bool) -> Iterator[Message]:
        """Messages of the next `count` blocks, each to be called; numbers come out of order now and then."""
        numbers = list(range(self.last + 1, self.last + count + 1))
        if self.random.random() < 0.2:
            self.random.shuffle(numbers)
        for number in numbers:
            yield from self.put(port, owner, number, abandoned=abandoned and number == self.last + count)

    def put(self, port: int, owner: int, number: int, abandoned: bool = False) -> Iterator[Message]:
        """The messages of one block, each to be called in its turn. Its bytes are like no others'."""
        beat, beats, step = self.config.beat_bytes, self.config.block_beats, self.config.max_payload_bytes
        size = beat * self.random.choice((beats, beats, self.random.randrange(1, beats + 1)))
        data = self.random.randbytes(size)
        self.notes.begun.setdefault((port, (self.name, number)), []).append(data)
        add, start = self.builder.add, -1

        def begin() -> None:
            nonlocal start
            start = add(
                Opcode.PUT_START, port, digest=self.digest(number), klass=0, length=size, session_from=owner,
                sequence=number, private=self.private, deadline=ABANDONED_TICKS if abandoned else 0,
            )  # fmt: skip

        def write(offset: int) -> None:
            part = data[offset : offset + step]
            add(Opcode.WRITE, port, handle_from=start, offset=offset, length=len(part), payload=part)

        def end() -> None:
            put = add(Opcode.PUT_END, port, handle_from=start, crc=crc32c(data))
            self.notes.puts.append((put, (self.name, number), data))

        yield begin
        for offset in range(0, size, step):
            yield functools.partial(write, offset)
        if not abandoned:
            yield end

    def asks(self, port: int, owner: int, last: int, count: int) -> Iterator[int]:
        """The new owner's questions: whether the set is there, and all of its bytes."""
        numbers = list(range(last - count + 1, last + 1))
        how = self.random.choice(("match", "read", "fence"))
        if how == "match":
            digests = [self.digest(number) for number in numbers[: self.config.max_match_digests]]
            (ask,) = self.builder.match(
                port, digests, session_from=owner, sequence=last, patience=PATIENCE_CYCLES, private=self.private
            )
            self.notes.asks.append((ask, len(digests), self.name))
            yield ask
        elif how == "fence":
            ask = self.builder.add(
                Opcode.SESSION_FENCE, port, session_from=owner, sequence=last, patience=PATIENCE_CYCLES
            )
            self.notes.asks.append((ask, 0, self.name))
            yield ask
        for number in numbers:
            yield self.read(port, owner, number, last, patience=PATIENCE_CYCLES, asked=True)

    def read(self, port: int, owner: int, number: int, last: int, patience=0, after=-1, asked=False) -> int:
        read = self.builder.read(
            port, self.digest(number), session_from=owner, sequence=last, patience=patience, after=after,
            private=self.private,
        )  # fmt: skip
        self.notes.reads.append((read, (self.name, number)))
        if asked:
            self.notes.asks.append((read, 0, self.name))
        return read

    def peek(self, port: int, number: int) -> None:
        """A READ without a session, whatever state the block is in."""
        self.notes.peeks.append((self.builder.read(port, self.digest(number)), (self.name, number)))


#: Answers to a question with `after` that say that there is none.
UNANSWERED = (Status.NOT_READY, Status.STALE_EPOCH)
NEVER = 1 << 63


def audit(batch: np.ndarray, notes: _Notes, run: RunResult) -> Figures:
    """What a batch came to, by its answers alone."""
    results, status = run.results, run.results["header"]["status"]
    answered = results["done"] == Done.ANSWERED
    figures = Figures(cycles=run.cycles, operations=len(run.trace))
    figures.moves = sum(1 for move in notes.moves if answered[move] and status[move] == Status.OK)
    sealed: dict[Key, list[bytes]] = {}
    seal_cycle: dict[Key, int] = {}
    for put, key, data in notes.puts:
        if answered[put] and status[put] == Status.SEALED:
            sealed.setdefault(key, []).append(data)
            seal_cycle[key] = int(results["last_cycle"][put])
    for read, key in notes.reads:
        if answered[read] and status[read] == Status.OK:
            figures.reads += 1
            figures.wrong_reads += [run.payload(read)] != sealed.get(key)
    for read, key in notes.peeks:
        if answered[read] and status[read] == Status.OK:
            figures.reads += 1
            # A port may read what it is writing itself.
            own = notes.begun.get((int(batch["port"][read]), key), [])
            figures.wrong_reads += run.payload(read) not in sealed.get(key, []) + own
    # When the session was told to move on.
    left = {
        int(batch["session_from"][move]): int(results["sent_cycle"][move])
        for move in notes.moves
        if answered[move] and status[move] == Status.OK
    }
    dropped: dict[int, int] = {}
    for drop, name in reversed(notes.drops):
        dropped[name] = int(results["sent_cycle"][drop])
    for ask, digests, name in notes.asks:
        if answered[ask] and status[ask] not in UNANSWERED:
            whole = status[ask] in (Status.OK, Status.HIT) and results["header"]["count"][ask] == digests
            # A MATCH that the next move overtakes ends there.
            cut = left.get(int(batch["session_from"][ask]), NEVER) < results["last_cycle"][ask]
            late = dropped.get(name, NEVER) < results["last_cycle"][ask]
            figures.incomplete += not (whole or digests and cut or late)
            figures.retried += int(results["tries"][ask] > 1)
    for move, late in notes.stale:
        if answered[late] and status[move] == Status.OK:
            figures.late += 1
            figures.late_accepted += int(status[late] != Status.STALE_EPOCH)
    free = _free_cycles(batch, results)
    for move, ask, last, name in notes.firsts:
        if not answered[ask] or status[ask] == Status.STALE_EPOCH:
            continue
        if status[ask] == Status.NOT_READY:
            asked = int(results["sent_cycle"][ask])
            figures.deadlines += 1
            figures.deadlines_early += all(
                seal_cycle.get((name, number), asked) < asked for number in range(1, last + 1)
            )
        else:
            begin = max(int(results["last_cycle"][move]), int(free[ask]))
            figures.wait_cycles.append(int(results["last_cycle"][ask]) - begin)
    return figures


def _free_cycles(batch: np.ndarray, results: np.ndarray) -> np.ndarray:
    """When each request's port was done with sending the one before it, and had its last answer if that was patient."""
    free = np.zeros(len(batch), np.uint64)
    for port in np.unique(batch["port"]):
        own = np.flatnonzero((batch["port"] == port) & (results["tries"] > 0))
        done = np.where(batch["patience"][own] > 0, results["last_cycle"][own], results["sent_cycle"][own])
        free[own[1:]] = done[:-1]
    return free
