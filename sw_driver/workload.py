"""From the requests of a trace to operations of the node, closed-loop on dependencies.

A request becomes: LOOKUP of its first block, whose time is a report's lookup latency; MATCH of its floor(input / block
tokens) digests; READ of the leading hits; then PUT_START, WRITE and PUT_END of the rest, tail first (`put_order`). The
open tail of a prompt is never stored. Requests run in waves: a wave holds at most one request of a conversation, and
its reads and writes are answered before the next wave's first MATCH, so that a read never overtakes the seal that it
depends on.

Answers of the model (`decode`): where the trace names the blocks of later turns, these already are the answers' blocks,
and the next turn writes them; so decode is off by default. It is on by default for traces without block ids,
where every id is the replay's own: floor((in + out) / B) - floor(in / B) blocks, sealed after the prompt.

Where the trace recorded sessions (sub-agents are part of theirs), a conversation has one in the node, over one port:

- SESSION_OPEN comes with its first request, or ahead of it, for whoever is next: the sweeper finds one row at a time,
  so a partition opens one before the MATCHes of a wave, if need be, and one among its transfers, as far apart as it
  takes to look at every row. When few rows are left, the session that was silent for longest is closed. A request that
  got none runs without, and the conversation's next one asks again; also after a session has ended by itself.
- The request's puts name it, and the last of them, as far as the window goes, are numbered. Those before them, on the
  same port, are answered when these are.
- The next request's MATCH asks for a state after the last number, and waits for it.
- MATCH leases what it finds, and RELEASE ends each lease behind the READs by handle, as long as the partition has as
  many leases as the request has blocks. Other requests match and read by key.
- With a chance of `migrate_percent`, a conversation is on another port from a request on: SESSION_MIGRATE, with the
  last number as the limit. In every other of these (`LATE_SHARE`) the old port only then writes the last block of the
  request before, so that the MATCH of the new owner waits.
"""

import math
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Opcode, ResponseFlag, Status
from kvnode.models.spec.messages import HANDLE, SESSION_ARGUMENTS
from kvnode.models.spec.timing import SWEEP_ROUND
from kvnode.models.workloads import Hits, Trace, assign_tenants, infinite_hits, lru_hits

from .batch import DIGEST_BYTES, BatchBuilder, Place
from .client import MAX_DEADLINE_TICKS, Numbering
from .keys import Contents, block_digest
from .transport import ANSWERED, RunResult

UNKNOWN_CONVERSATION = -1
#: In the place of a status, of a request that was not sent.
NO_STATUS = 255
#: Requests of a wave per port, and bytes of the blocks of a wave, by default.
WAVE_REQUESTS_PER_PORT = 2
WAVE_BYTES = 32 << 20
#: How many requests are looked at for a wave, in waves. More keeps the ports busier, but takes sessions out of their
#: time: at 16 waves a trace of agents needs several times the cache that it needs in the order of arrival.
LOOKAHEAD_WAVES = 2
#: Requests of a conversation before which it moves, in percent, by default (assumed; no trace records it).
MIGRATE_PERCENT = 2.0
#: Which stream of random numbers the moves are drawn from.
MOVES_STREAM = 11
#: Moves during which the last block is still being written.
LATE_SHARE = 0.5
#: Rows of the session table that are left to the sweeper, so that one is free when it is needed.
SPARE_ROWS = 2
#: How long a session may be silent, in units of 256 ticks.
SESSION_TTL = 64
#: How long a MATCH waits for the blocks before it.
PATIENCE_CYCLES = 1 << 14

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Placement:
    """Which partition and model each request of a trace belongs to; both follow from its conversation.

    Tenants get conversations in proportion to their slots. Used by: Replay, `reference_hits`.
    """

    partition: IntArray
    model: IntArray

    @classmethod
    def of(cls, trace: Trace, config: NodeConfig) -> "Placement":
        slots = [partition.slots for partition in config.partitions]
        unit = math.gcd(*slots)
        share = np.cumsum([count // unit for count in slots])
        number = assign_tenants(trace, int(share[-1]) * config.models)
        partition = np.searchsorted(share, number // config.models, side="right")
        return cls(partition.astype(np.int64), number % config.models)


def reference_hits(trace: Trace, config: NodeConfig, placement: Placement) -> tuple[Hits, Hits]:
    """(infinite cache, LRU) on the same trace with the same tenants, models and sizes in blocks."""
    everything, numbers = np.unique(trace.all_block_ids(), return_inverse=True)
    ends = np.cumsum([len(request.block_ids) for request in trace.requests]).astype(np.int64)
    parts = np.split(numbers, ends[:-1]) if len(ends) else []
    requests = [
        replace(request, block_ids=ids + int(model) * len(everything))
        for request, ids, model in zip(trace.requests, parts, placement.model)
    ]
    split = replace(trace, requests=requests)
    sizes = [partition.slots for partition in config.partitions]
    generous = [split.block_count + 1] * len(sizes)
    infinite = lru_hits(split, generous, placement.partition) if len(sizes) > 1 else infinite_hits(split)
    return infinite, lru_hits(split, sizes, placement.partition)


def waves(
    conversations: Sequence[int], blocks: Sequence[int], size: int, block_limit: int, lookahead: int | None = None
) -> Iterator[list[int]]:
    """Numbers of requests in waves: each at most `size` requests, and no two of one conversation.

    Requests of a conversation keep their order; otherwise a request is put off only behind `lookahead` others. A wave
    is closed once it has `block_limit` blocks. Requests of unknown conversation (-1) depend on nobody.
    """
    lookahead = size * LOOKAHEAD_WAVES if lookahead is None else lookahead
    waiting: deque[int] = deque()
    following = iter(range(len(conversations)))
    while True:
        while len(waiting) < lookahead and (number := next(following, None)) is not None:
            waiting.append(number)
        if not waiting:
            return
        wave: list[int] = []
        put_off: list[int] = []
        taken: set[int] = set()
        block_count = 0
        while waiting and len(wave) < size and (not wave or block_count < block_limit):
            number = waiting.popleft()
            conversation = conversations[number]
            if conversation in taken:
                put_off.append(number)
                continue
            if conversation != UNKNOWN_CONVERSATION:
                taken.add(conversation)
            wave.append(number)
            block_count += blocks[number]
        waiting.extendleft(reversed(put_off))
        yield wave


@dataclass
class Talk:
    """The session of a conversation: its number and epoch in the node, the port that owns it, its blocks' numbers.

    `late`: a block that is numbered and not written yet.
    """

    conversation: int
    partition: int
    model_id: int
    port: int
    number: int = 0
    epoch: int = 0
    numbering: Numbering = field(default_factory=Numbering)
    late: tuple[bytes, int] | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """The fields of a request that say who asks."""
        return {"session": self.number, "session_epoch": self.epoch}

    @property
    def after(self) -> int:
        """The number up to which all blocks are sealed, or will be with the late one."""
        return self.numbering.committed if self.numbering.has_gaps else self.numbering.last


@dataclass
class Job:
    """One request on its way: where it runs, its blocks, and what was found. `messages`: its MATCHes in the batch.

    `opening`, `moving`: index of its SESSION_OPEN and SESSION_MIGRATE, or -1. `after`: the number that it waits for.
    `locks`: its MATCHes ask for leases, and it reads by their handles.
    """

    number: int
    partition: int
    port: int
    model_id: int
    digests: list[bytes]
    decoded: list[bytes] = field(default_factory=list)
    messages: list[int] = field(default_factory=list)
    hits: int = 0
    #: (index in the batch, digest) of its reads.
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    talk: Talk | None = None
    opening: int = -1
    moving: int = -1
    after: int = 0
    locks: bool = False
    #: Packed handles of what it has leased, those of its leading hits first.
    leased: list[bytes] = field(default_factory=list)
    #: Where its numbered puts are in the batch, and the numbers; those in its session without a number have 0.
    places: list[Place] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


class Expansion:
    """Makes jobs and batches of the requests of a trace, and takes in what they were answered.

    `seed` keeps the digests of two replays apart. `put_order`: "tail" writes the missing blocks from the last to the
    first, so that the eviction clock meets the tail of a prefix before its head; "head" as they are computed. `decode`:
    None for the default above. `sessions`: False replays a trace that recorded sessions as if it had none.

    `counts`: sessions that ended by themselves ("expired"), requests of recorded sessions that ran without one
    ("without"), blocks that were written late ("late"), leases ("leased").

    Used by: Replay, tests.
    """

    def __init__(
        self,
        trace: Trace,
        config: NodeConfig,
        *,
        seed: int = 0,
        put_order: str = "tail",
        decode: bool | None = None,
        sessions: bool = True,
        migrate_percent: float = MIGRATE_PERCENT,
    ):
        if put_order not in ("tail", "head"):
            raise ValueError(f"put_order {put_order!r}: must be 'tail' or 'head'")
        if not 0 <= migrate_percent <= 100:
            raise ValueError(f"migrate_percent = {migrate_percent}: must be from 0 to 100")
        self.trace, self.config, self.put_order = trace, config, put_order
        self.decode = not trace.has_reuse if decode is None else decode
        self.sessions = sessions
        self.placement = Placement.of(trace, config)
        self.contents = Contents(config.block_bytes)
        #: How often each (partition, model) was retired: part of what its blocks hold.
        self.versions: dict[tuple[int, int], int] = {}
        self.counts: Counter[str] = Counter()
        #: Sessions by conversation, the one that was silent for longest first; those that nobody has yet by partition.
        self.talks: dict[int, Talk] = {}
        self._spare: list[list[Talk]] = [[] for _ in config.partitions]
        #: When each partition opened one last, and the present, in cycles since reset.
        self._opened_cycle = [-self._row_cycles(number) for number in range(len(config.partitions))]
        self._cycle = 0
        #: What the batch on its way opens, (its index, session), and writes late.
        self._opening: list[tuple[int, Talk]] = []
        self._late: list[tuple[Talk, Place, int]] = []
        self._turn = [0] * len(config.partitions)
        self._digest = lru_cache(1 << 17)(lambda model, name: block_digest(seed, model, name, config.digest_bits))
        self._moves, self._moves_late = self._plan_moves(seed, migrate_percent)

    def _plan_moves(self, seed: int, percent: float) -> tuple[set[int], set[int]]:
        """Requests before which their conversation moves, and those after which it does with a block on the way."""
        chances = np.random.default_rng([seed, MOVES_STREAM]).random((len(self.trace), 2))
        moves: set[int] = set()
        late: set[int] = set()
        last: dict[int, int] = {}
        for number, (request, (move, share)) in enumerate(zip(self.trace.requests, chances.tolist())):
            before = last.get(request.conversation)
            last[request.conversation] = number
            if before is not None and 100 * move < percent:
                moves.add(number)
                if share < LATE_SHARE:
                    late.add(before)
        return moves, late

    def waves(self, size: int | None = None) -> Iterator[list[int]]:
        """The trace in waves of at most `size` requests (by default 2 for each port)."""
        requests = self.trace.requests
        return waves(
            [request.conversation for request in requests],
            [len(request.block_ids) for request in requests],
            size or WAVE_REQUESTS_PER_PORT * self.config.ports,
            max(1, WAVE_BYTES // self.config.block_bytes),
        )

    def jobs(self, wave: Sequence[int]) -> list[Job]:
        """Jobs of a wave's requests. Sessions stay on their ports; otherwise the ports of a tenant take turns."""
        return [self._job(number) for number in wave]

    def _job(self, number: int) -> Job:
        request = self.trace.requests[number]
        partition, model_id = int(self.placement.partition[number]), int(self.placement.model[number])
        talk = self.talks.get(request.conversation) if self._in_session(number) else None
        port = self._next_port(partition) if talk is None else talk.port
        digests = [self._digest(model_id, name) for name in request.block_ids.tolist()]
        decoded = []
        if self.decode:
            sizes = request.input_tokens, request.input_tokens + request.output_tokens
            places = range(*(size // self.trace.block_tokens for size in sizes))
            who = f"request-{number}" if request.conversation == UNKNOWN_CONVERSATION else f"{request.conversation}"
            decoded = [self._digest(model_id, f"decode/{who}/{place}") for place in places]
        return Job(number, partition, port, model_id, digests, decoded, talk=talk)

    def _in_session(self, number: int) -> bool:
        return self.sessions and self.trace.requests[number].session != UNKNOWN_CONVERSATION

    def _next_port(self, partition: int, other_than: int = -1) -> int:
        """The port whose turn it is; another one if there is one."""
        ports = self.config.partitions[partition].ports
        for _ in ports:
            port = ports[self._turn[partition] % len(ports)]
            self._turn[partition] += 1
            if port != other_than:
                break
        return port

    # Phase 1.

    def match_batch(self, jobs: list[Job]) -> BatchBuilder:
        """Phase 1: what sessions need; then every job's first block by itself, and its prefix in as many MATCHes as it
        takes. No stop between them: `note_hits` does that.
        """
        builder = BatchBuilder(self.config)
        self._begin_sessions(builder, jobs)
        leases = [self.config.leases] * len(self.config.partitions)
        # Those that moved come first: they are to meet the block that is on its way.
        for job in sorted(jobs, key=lambda job: job.moving < 0):
            for digest in job.digests[:1]:
                builder.add(Opcode.LOOKUP, job.port, digest=digest, model_id=job.model_id)
            job.locks = self._in_session(job.number) and len(job.digests) <= leases[job.partition]
            leases[job.partition] -= len(job.digests) if job.locks else 0
            fields: dict[str, Any] = {"model_id": job.model_id, "lock": job.locks, "session_from": job.moving}
            if job.talk is not None and job.moving < 0:
                fields |= job.talk.identity
            job.messages = self._match(builder, job, fields)
        for job in jobs:
            if job.talk is None and self._in_session(job.number):
                job.opening = self._open_for(builder, job, jobs)
        return builder

    def _match(self, builder: BatchBuilder, job: Job, fields: dict[str, Any]) -> list[int]:
        """The MATCHes of a job: the first waits for what those behind it find then."""
        if job.talk is None or not job.after:
            return builder.match(job.port, job.digests, **fields)
        step = self.config.max_match_digests
        ticks = min(MAX_DEADLINE_TICKS, -(-PATIENCE_CYCLES >> self.config.tick_cycles_log2))
        waits = {"sequence": job.after, "patience": PATIENCE_CYCLES, "deadline": 0 if job.locks else ticks}
        first = builder.match(job.port, job.digests[:step], **fields, **waits)
        return first + builder.match(job.port, job.digests[step:], **fields)

    def _begin_sessions(self, builder: BatchBuilder, jobs: list[Job]) -> None:
        """Moves, late blocks and new sessions of a wave."""
        self._late, self._opening = [], []
        for job in jobs:
            if job.talk is not None:
                self.talks[job.talk.conversation] = self.talks.pop(job.talk.conversation)
        for job in jobs:
            if job.talk is not None:
                self._move(builder, job, job.talk)
                job.after = job.talk.after
            elif self._in_session(job.number) and self._spare[job.partition]:
                self._take_spare(job)

    def _take_spare(self, job: Job) -> None:
        """A session that was opened ahead is that of the job's conversation."""
        talk = self._spare[job.partition].pop(0)
        talk.conversation, talk.model_id = self.trace.requests[job.number].conversation, job.model_id
        job.talk = self.talks[talk.conversation] = talk
        job.port = talk.port

    def _open_for(self, builder: BatchBuilder, job: Job, jobs: list[Job]) -> int:
        """Index of the message that opens a session for the job's conversation, or -1."""
        if any(talk.partition == job.partition for _, talk in self._opening):
            return -1
        talk = Talk(self.trace.requests[job.number].conversation, job.partition, job.model_id, job.port)
        return self._open(builder, talk, jobs)

    def _move(self, builder: BatchBuilder, job: Job, talk: Talk) -> None:
        if job.number in self._moves:
            job.port = self._next_port(talk.partition, other_than=talk.port)
            ports = SESSION_ARGUMENTS.pack(ports=1 << job.port)
            job.moving = builder.add(
                Opcode.SESSION_MIGRATE, talk.port, digest=ports, sequence=talk.numbering.last, **talk.identity
            )
        self._write_late(builder, talk)

    def _write_late(self, builder: BatchBuilder, talk: Talk) -> None:
        """The port that owned the session writes its last block."""
        if talk.late is None:
            return
        (digest, number), talk.late = talk.late, None
        block = digest, self._content(talk.partition, talk.model_id, digest)
        (place,) = builder.puts(talk.port, [block], model_id=talk.model_id, numbers=[number], **talk.identity)
        self._late.append((talk, place, number))
        self.counts["late"] += 1

    def _open(self, builder: BatchBuilder, talk: Talk, jobs: list[Job]) -> int:
        """Index of the message that opens a session, if need be in the place of one that is not at work; or -1."""
        mine = [other for other in self.talks.values() if other.partition == talk.partition]
        if len(mine) + len(self._spare[talk.partition]) >= max(1, self.config.sessions - SPARE_ROWS):
            working = {id(job.talk) for job in jobs}
            silent = next((other for other in mine if id(other) not in working), None)
            if silent is None:
                return -1
            self._write_late(builder, silent)
            builder.add(Opcode.SESSION_CLOSE, silent.port, **silent.identity)
            del self.talks[silent.conversation]
        earliest = max(0, self._opened_cycle[talk.partition] + self._row_cycles(talk.partition) - self._cycle)
        index = builder.add(Opcode.SESSION_OPEN, talk.port, ttl=SESSION_TTL, earliest_cycle=earliest)
        self._opening.append((index, talk))
        return index

    def _row_cycles(self, partition: int) -> int:
        """Cycles within which the sweeper has looked at every row of a partition's session table."""
        config = self.config
        turns = config.sessions * SWEEP_ROUND * config.ports // len(config.partitions[partition].ports)
        return turns * (config.ports + 1)

    def note_matches(self, jobs: list[Job], result: RunResult) -> list[Job]:
        """Take what phase 1 was answered. The jobs that have to ask again (`ask_again`): their session has ended, or no
        lease was left.
        """
        header, status = result.results["header"], self._statuses(result)
        opened = dict(self._note_opened(result))
        self._note_late(status)
        again = []
        for job in jobs:
            if job.opening in opened:
                talk = job.talk = opened[job.opening]
                self.talks[talk.conversation] = talk
            elif job.moving >= 0 and status[job.moving] == Status.OK:
                assert job.talk is not None
                job.talk.epoch, job.talk.port = int(header["generation"][job.moving]), job.port
            elif job.moving >= 0:
                self._lose(job)
            if job.locks:
                self._note_leases(job, result)
            first = status[job.messages[0]] if job.messages else Status.MISS
            if first in (Status.STALE_EPOCH, NO_STATUS):
                self._lose(job)
            if first in (Status.STALE_EPOCH, NO_STATUS, Status.QUOTA):
                job.locks = False
                again.append(job)
            self.counts["without"] += job.talk is None and self._in_session(job.number)
        self.note_hits(jobs, header["count"].tolist())
        return again

    @staticmethod
    def _statuses(result: RunResult) -> list[int]:
        done, header = result.results["done"], result.results["header"]
        return np.where(done == ANSWERED, header["status"], NO_STATUS).tolist()

    def _note_opened(self, result: RunResult) -> Iterator[tuple[int, Talk]]:
        """The sessions that were opened, by index of the message."""
        opening, self._opening = self._opening, []
        self._cycle = int(result.results["last_cycle"].max(initial=0))
        for index, talk in opening:
            row = result.results[index]
            self._opened_cycle[talk.partition] = int(row["last_cycle"])
            if row["done"] == ANSWERED and row["header"]["status"] == Status.OK:
                talk.number, talk.epoch = int(row["header"]["slot"]), int(row["header"]["generation"])
                yield index, talk

    def _note_late(self, status: Sequence[int]) -> None:
        late, self._late = self._late, []
        for talk, place, number in late:
            self._settle(talk, status, [place], [number])

    def _note_leases(self, job: Job, result: RunResult) -> None:
        for index in job.messages:
            if result.results["header"]["flags"][index] & ResponseFlag.LEASED:
                data = bytes(result.payload(index))
                job.leased += [data[at : at + DIGEST_BYTES] for at in range(0, len(data), HANDLE.size_bytes)]
        self.counts["leased"] += len(job.leased)

    def ask_again(self, jobs: list[Job]) -> BatchBuilder:
        """The MATCHes of jobs that have no session or no lease any more; `note_hits` takes the counts."""
        builder = BatchBuilder(self.config)
        for job in jobs:
            job.messages = builder.match(job.port, job.digests, model_id=job.model_id)
        return builder

    def note_hits(self, jobs: list[Job], counts: Sequence[int]) -> None:
        """Take the counts of the MATCH answers: a later message counts only when all before it were hits throughout."""
        step = self.config.max_match_digests
        for job in jobs:
            job.hits = 0
            for number, index in enumerate(job.messages):
                asked = min(step, len(job.digests) - number * step)
                job.hits += counts[index]
                if counts[index] < asked:
                    break

    def _lose(self, job: Job) -> None:
        """The node knows the job's session no more."""
        if job.talk is not None and self.talks.pop(job.talk.conversation, None) is not None:
            self.counts["expired"] += 1
        job.talk = None

    # Phase 2.

    def transfer_batch(self, jobs: list[Job]) -> BatchBuilder:
        """Phase 2: reads of the hits, releases of what was leased, then whole puts of the rest."""
        builder = BatchBuilder(self.config)
        ahead = {job.partition for job in jobs} if any(self._in_session(job.number) for job in jobs) else set()
        for job in jobs:
            names = job.leased if job.locks else job.digests
            job.reads = [
                (builder.read(job.port, name, model_id=job.model_id, by_handle=job.locks), digest)
                for name, digest in zip(names[: job.hits], job.digests)
            ]
            for handle in job.leased:
                builder.add(Opcode.RELEASE, job.port, digest=handle)
            missing = job.digests[job.hits :]
            if self.put_order == "tail":
                missing.reverse()
            self._put(builder, job, missing + job.decoded)
            if job.partition in ahead:
                ahead.discard(job.partition)
                self._open_ahead(builder, job.partition, jobs)
        return builder

    def _open_ahead(self, builder: BatchBuilder, partition: int, jobs: list[Job]) -> None:
        """A session for the next conversation that begins; one for each port is enough."""
        if len(self._spare[partition]) < len(self.config.partitions[partition].ports):
            self._open(builder, Talk(UNKNOWN_CONVERSATION, partition, 0, self._next_port(partition)), jobs)

    def _put(self, builder: BatchBuilder, job: Job, digests: list[bytes]) -> None:
        talk, fields = job.talk, {"model_id": job.model_id}
        if talk is not None:
            numbered = talk.numbering.take(min(len(digests), talk.numbering.room)) if digests else []
            job.numbers = [0] * (len(digests) - len(numbered)) + numbered
            fields |= talk.identity
            if digests and job.number in self._moves_late:
                talk.late = digests.pop(), job.numbers.pop()
        blocks = [(digest, self.content(job, digest)) for digest in digests]
        job.places = builder.puts(job.port, blocks, numbers=None if talk is None else job.numbers, **fields)

    def note_puts(self, jobs: list[Job], result: RunResult) -> None:
        """Take what phase 2 was answered: which numbers are sealed."""
        status = self._statuses(result)
        for _, talk in self._note_opened(result):
            self._spare[talk.partition].append(talk)
        self._note_late(status)
        for job in jobs:
            if job.talk is None:
                continue
            self._settle(job.talk, status, job.places, job.numbers)
            if any(status[start] == Status.STALE_EPOCH for start, _, _ in job.places):
                self._lose(job)

    @staticmethod
    def _settle(talk: Talk, status: Sequence[int], places: Sequence[Place], numbers: Sequence[int]) -> None:
        numbered = [(number, start, end) for number, (start, _, end) in zip(numbers, places) if number]
        outcomes = [Status.SEALED if status[end] == Status.SEALED else status[start] for _, start, end in numbered]
        talk.numbering.settle([number for number, _, _ in numbered], outcomes)

    def close_batch(self) -> BatchBuilder:
        """After the last wave: the sessions end."""
        builder = BatchBuilder(self.config)
        for talk in [*self.talks.values(), *chain(*self._spare)]:
            builder.add(Opcode.SESSION_CLOSE, talk.port, **talk.identity)
        self.talks.clear()
        for spare in self._spare:
            spare.clear()
        return builder

    # Contents.

    def content(self, job: Job, digest: bytes) -> bytes:
        """What the block of this key holds at present."""
        return self._content(job.partition, job.model_id, digest)

    def _content(self, partition: int, model_id: int, digest: bytes) -> bytes:
        return self.contents.of(partition, model_id, self.versions.get((partition, model_id), 0), digest)

    def retired(self, partition: int, model_id: int) -> None:
        """A model was retired: from now on its blocks hold something else."""
        self.versions[partition, model_id] = self.versions.get((partition, model_id), 0) + 1
