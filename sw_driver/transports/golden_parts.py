"""Parts of the golden model on their own, for the benches that measure them."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from kvnode.models.golden.index import Index
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.hashing import place, whitening
from kvnode.models.workloads import Trace

CHUNK = 200_000


def turn_over(config: NodeConfig, count: int, progress: Callable[[int], None] = lambda done: None) -> int:
    """Insert `count` random keys into the first partition's index while every slot is taken; how many it refused.

    Each insert follows the removal of a random entry, after a refusal of none: the slot is still free. Refused is a
    pair without a free way in its emptier row, or one that holds the tag already. The keys are drawn after the
    fold of the digest, which is uniform for uniform digests; rows and tags are `spec.hashing.place` of them.

    Used by: benches.index.
    """
    part = config.partitions[0]
    index = Index(config.rows_log2[0], config.ways, config.tag_bits, part.seed)
    row_mask, tag_mask = (1 << index.rows_log2) - 1, (1 << config.tag_bits) - 1
    rng = np.random.default_rng(1)
    held: list[Any] = [None] * part.slots
    find, choose, insert, remove = index.find, index.choose, index.insert, index.remove
    filling, slot, refused, inserts, free = part.slots, 0, 0, 0, True
    while inserts < count:
        keys = rng.integers(0, 1 << 64, CHUNK, np.uint64, endpoint=False) ^ np.uint64(whitening(0, 0, 0))
        # The function of whole numbers does for arrays of 64-bit ones.
        left, right = cast(Callable[..., tuple[Any, Any]], place)(keys, part.seed)
        victims = rng.integers(0, part.slots, CHUNK).tolist()
        for pair, victim in zip(zip((right & row_mask).tolist(), (left & tag_mask).tolist()), victims):
            if filling:
                slot = part.slots - filling
            else:
                if not free:
                    slot = victim
                    remove(*held[slot])
                inserts += 1
            where = choose(pair) if find(pair) is None else None
            if where is None:
                refused += not filling
                free = True
                if not filling and inserts == count:
                    break
                continue
            insert(pair, where, slot)
            held[slot] = pair, where
            free = False
            filling -= filling > 0
            if inserts == count:
                break
        progress(inserts)
    assert len(index) >= part.slots - 1
    return refused


def policy_rows(trace: Trace) -> list[Any]:
    """The eviction clock against LRU and OPT on a trace (`golden.policy_study.compare`). Used by: benches.policy."""
    from kvnode.models.golden.policy_study import compare

    return compare(trace)
