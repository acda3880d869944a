"""What an ideal cache would make of a trace: infinite, LRU, and OPT (Belady with bypass).

Two ways of counting, always both:
  block hits   each block as it is touched, tail first within a request (the order that keeps residency prefix-closed).
  prefix hits  at the arrival of a request, the number of its leading blocks that are resident: what a MATCH answers. A
               resident block behind a missing one is useless. A request's own blocks push nothing out before they
               are counted, so a cache smaller than some requests has more prefix hits than block hits.
Token hits are prefix hits times block_tokens.

`tenants` is one size in blocks, or the list of sizes of tenants that each have a cache of their own; `partition_of`
then says which tenant each request belongs to (`assign_tenants`).
"""

import heapq
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .records import UNKNOWN_ID, Trace

Sizes = int | Sequence[int]
Partitions = Sequence[int] | npt.NDArray[np.int64]


@dataclass(frozen=True)
class Hits:
    """Counts over a whole trace; `+` adds those of different tenants."""

    request_count: int = 0
    block_count: int = 0
    input_tokens: int = 0
    block_hits: int = 0
    prefix_hits: int = 0
    token_hits: int = 0

    def __add__(self, other: "Hits") -> "Hits":
        pairs = zip(self.__dict__.values(), other.__dict__.values())
        return Hits(*(mine + theirs for mine, theirs in pairs))

    @property
    def block_hit_rate(self) -> float:
        return self.block_hits / max(1, self.block_count)

    @property
    def prefix_hit_rate(self) -> float:
        return self.prefix_hits / max(1, self.block_count)

    @property
    def token_hit_rate(self) -> float:
        """Of all prompt tokens, those in partial blocks included."""
        return self.token_hits / max(1, self.input_tokens)


def infinite_hits(trace: Trace, partition_of: Partitions | None = None) -> Hits:
    """Hits of a cache (one per tenant) that never evicts."""
    tenant_count = 1 + max((int(number) for number in partition_of), default=0) if partition_of is not None else 1
    return lru_hits(trace, [trace.block_count + 1] * tenant_count, partition_of)


def lru_hits(trace: Trace, tenants: Sizes, partition_of: Partitions | None = None) -> Hits:
    """Hits of least-recently-used caches, exact, by direct simulation (about 0.5 s per million accesses)."""
    total = Hits()
    for size, lists, tokens in _by_tenant(trace, tenants, partition_of):
        total += _lru(size, lists, tokens, trace.block_tokens)
    return total


def opt_hits(trace: Trace, tenants: Sizes, partition_of: Partitions | None = None) -> Hits:
    """Hits of Belady's caches with bypass: the bound of block hits (about 2 s per million accesses).

    Prefix hits of the same caches are reported too; they are no bound, since Belady does not look at prefixes.
    """
    total = Hits()
    for size, lists, tokens in _by_tenant(trace, tenants, partition_of):
        total += _opt(size, lists, tokens, trace.block_tokens)
    return total


def assign_tenants(trace: Trace, count: int) -> npt.NDArray[np.int64]:
    """The tenant (0 to count-1) of each request: a hash of its conversation, so that a conversation stays together.

    Requests of unknown conversation are spread one by one. Raises ValueError for a count below 1.
    """
    if count < 1:
        raise ValueError(f"tenant count {count} is not above 0")
    numbers = np.array(
        [index if r.conversation == UNKNOWN_ID else r.conversation for index, r in enumerate(trace.requests)], np.uint64
    )
    return ((_mix(numbers) >> np.uint64(33)) % np.uint64(count)).astype(np.int64)


def sample_blocks(trace: Trace, one_in: int) -> Trace:
    """The trace with one block in so many, chosen by a hash of the id (SHARDS).

    Hit rates at sizes divided by `one_in` estimate those of the whole trace. Prefix hits mean nothing in a sample.
    """
    if one_in < 1:
        raise ValueError(f"one_in {one_in} is not above 0")
    requests = []
    for request in trace.requests:
        kept = (_mix(request.block_ids.astype(np.uint64)) >> np.uint64(40)) % np.uint64(one_in) == 0
        requests.append(replace(request, block_ids=request.block_ids[kept]))
    return replace(trace, requests=requests)


def _mix(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    return numbers * np.uint64(0x9E3779B97F4A7C15)


def _by_tenant(trace: Trace, tenants: Sizes, partition_of: Partitions | None) -> list[tuple[int, list[list[int]], int]]:
    """(size, block ids of each request, input tokens) of every tenant."""
    sizes = [tenants] if isinstance(tenants, int) else [int(size) for size in tenants]
    if any(size < 1 for size in sizes) or not sizes:
        raise ValueError(f"tenant sizes {sizes} are not all above 0")
    if partition_of is None:
        if len(sizes) != 1:
            raise ValueError(f"{len(sizes)} tenant sizes need partition_of")
        partition_of = [0] * len(trace)
    if len(partition_of) != len(trace):
        raise ValueError(f"partition_of has {len(partition_of)} entries for {len(trace)} requests")
    lists: list[list[list[int]]] = [[] for _ in sizes]
    tokens = [0] * len(sizes)
    for number, request in zip(partition_of, trace.requests):
        if not 0 <= number < len(sizes):
            raise ValueError(f"partition {number} is not one of the {len(sizes)} tenants")
        lists[number].append(request.block_ids.tolist())
        tokens[number] += request.input_tokens
    return list(zip(sizes, lists, tokens))


def _lru(size: int, lists: list[list[int]], input_tokens: int, block_tokens: int) -> Hits:
    cache: OrderedDict[int, None] = OrderedDict()
    touch, drop = cache.move_to_end, cache.popitem
    block_hits = prefix_hits = block_count = free_count = 0
    free_count = size
    for ids in lists:
        block_count += len(ids)
        prefix_hits += leading(ids, cache)
        for block in reversed(ids):
            if block in cache:
                touch(block)
                block_hits += 1
            else:
                if free_count:
                    free_count -= 1
                else:
                    drop(last=False)
                cache[block] = None
    return Hits(len(lists), block_count, input_tokens, block_hits, prefix_hits, prefix_hits * block_tokens)


def _opt(size: int, lists: list[list[int]], input_tokens: int, block_tokens: int) -> Hits:
    accesses = np.array([block for ids in lists for block in reversed(ids)], np.int64)
    count = len(accesses)
    order = np.argsort(accesses, kind="stable")
    again = np.flatnonzero(accesses[order][1:] == accesses[order][:-1])
    next_use = np.full(count, count, np.int64)
    next_use[order[again]] = order[again + 1]
    nexts = next_use.tolist()
    cache: dict[int, int] = {}  # Block to its next use.
    farthest: list[int] = []  # Heap of minus next uses; stale where no resident block has that next use.
    owner = accesses.tolist()  # The access at a next use names the block that is due there.
    push, pop = heapq.heappush, heapq.heappop
    block_hits = prefix_hits = place = 0
    for ids in lists:
        prefix_hits += leading(ids, cache)
        for block in reversed(ids):
            if block in cache:
                block_hits += 1
            due = nexts[place]
            place += 1
            if due == count:
                cache.pop(block, None)
                continue
            cache[block] = due
            push(farthest, -due)
            while len(cache) > size:
                due = -pop(farthest)
                if cache.get(owner[due]) == due:
                    del cache[owner[due]]
    return Hits(len(lists), count, input_tokens, block_hits, prefix_hits, prefix_hits * block_tokens)


def leading(ids: Sequence[int], resident: "dict[int, int] | OrderedDict[int, None]") -> int:
    """How many leading blocks are resident."""
    for count, block in enumerate(ids):
        if block not in resident:
            return count
    return len(ids)
