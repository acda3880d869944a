"""From the requests of a trace to operations of the node, closed-loop on dependencies.

A request becomes: LOOKUP of its first block, whose time is a report's lookup latency; MATCH of its floor(input / block
tokens) digests; READ of the leading hits; then PUT_START, WRITE and PUT_END of the rest, tail first (`put_order`). The
open tail of a prompt is never stored. Requests run in waves: a wave holds at most one request of a conversation, and
its reads and writes are answered before the next wave's first MATCH, so that a read never overtakes the seal that it
depends on.

Answers of the model (`decode`): where the trace names the blocks of later turns, these already are the answers' blocks,
and the next turn writes them; so decode is off by default. It is on by default for traces without block ids,
where every id is the replay's own: floor((in + out) / B) - floor(in / B) blocks, sealed after the prompt.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Opcode
from kvnode.models.workloads import Hits, Trace, assign_tenants, infinite_hits, lru_hits

from .batch import BatchBuilder
from .keys import Contents, block_digest

UNKNOWN_CONVERSATION = -1
#: Requests of a wave per port, and bytes of the blocks of a wave, by default.
WAVE_REQUESTS_PER_PORT = 2
WAVE_BYTES = 32 << 20
#: How many requests are looked at for a wave, in waves. More keeps the ports busier, but takes sessions out of their
#: time: at 16 waves a trace of agents needs several times the cache that it needs in the order of arrival.
LOOKAHEAD_WAVES = 2

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
class Job:
    """One request on its way: where it runs, its blocks, and what was found. `messages`: its MATCHes in the batch."""

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


class Expansion:
    """Makes jobs and batches of the requests of a trace.

    `seed` keeps the digests of two replays apart. `put_order`: "tail" writes the missing blocks from the last to the
    first, so that the eviction clock meets the tail of a prefix before its head; "head" as they are computed. `decode`:
    None for the default above.

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
    ):
        if put_order not in ("tail", "head"):
            raise ValueError(f"put_order {put_order!r}: must be 'tail' or 'head'")
        self.trace, self.config, self.put_order = trace, config, put_order
        self.decode = not trace.has_reuse if decode is None else decode
        self.placement = Placement.of(trace, config)
        self.contents = Contents(config.block_bytes)
        #: How often each (partition, model) was retired: part of what its blocks hold.
        self.versions: dict[tuple[int, int], int] = {}
        self._turn = [0] * len(config.partitions)
        self._digest = lru_cache(1 << 17)(lambda model, name: block_digest(seed, model, name, config.digest_bits))

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
        """Jobs of a wave's requests; the ports of a tenant take turns."""
        return [self._job(number) for number in wave]

    def _job(self, number: int) -> Job:
        request = self.trace.requests[number]
        partition, model_id = int(self.placement.partition[number]), int(self.placement.model[number])
        ports = self.config.partitions[partition].ports
        port = ports[self._turn[partition] % len(ports)]
        self._turn[partition] += 1
        digests = [self._digest(model_id, name) for name in request.block_ids.tolist()]
        decoded = []
        if self.decode:
            sizes = request.input_tokens, request.input_tokens + request.output_tokens
            places = range(*(size // self.trace.block_tokens for size in sizes))
            who = f"request-{number}" if request.conversation == UNKNOWN_CONVERSATION else f"{request.conversation}"
            decoded = [self._digest(model_id, f"decode/{who}/{place}") for place in places]
        return Job(number, partition, port, model_id, digests, decoded)

    def match_batch(self, jobs: list[Job]) -> BatchBuilder:
        """Phase 1: every job's first block by itself, then its prefix in as many MATCHes as it needs. No stop between
        them: `note_hits` does that.
        """
        builder = BatchBuilder(self.config)
        for job in jobs:
            for digest in job.digests[:1]:
                builder.add(Opcode.LOOKUP, job.port, digest=digest, model_id=job.model_id)
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

    def transfer_batch(self, jobs: list[Job]) -> BatchBuilder:
        """Phase 2: reads of the hits, then whole puts of the rest."""
        builder = BatchBuilder(self.config)
        for job in jobs:
            job.reads = [
                (builder.read(job.port, digest, model_id=job.model_id), digest) for digest in job.digests[: job.hits]
            ]
            missing = job.digests[job.hits :]
            if self.put_order == "tail":
                missing.reverse()
            blocks = [(digest, self.content(job, digest)) for digest in missing + job.decoded]
            builder.puts(job.port, blocks, model_id=job.model_id)
        return builder

    def content(self, job: Job, digest: bytes) -> bytes:
        """What the block of this key holds at present."""
        version = self.versions.get((job.partition, job.model_id), 0)
        return self.contents.of(job.partition, job.model_id, version, digest)

    def retired(self, partition: int, model_id: int) -> None:
        """A model was retired: from now on its blocks hold something else."""
        self.versions[partition, model_id] = self.versions.get((partition, model_id), 0) + 1
