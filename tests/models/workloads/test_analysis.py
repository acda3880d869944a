"""LRU and OPT against brute force on small traces, and against published figures on real ones."""

import gzip
import itertools
import json
import random
from dataclasses import replace

import numpy as np
import pytest

from kvnode.models.workloads import (
    Request,
    Trace,
    assign_tenants,
    generate,
    infinite_hits,
    lru_hits,
    opt_hits,
    read,
    sample_blocks,
)

FRACTIONS = (0.01, 0.05, 0.10, 0.25, 0.50)


def trace_of(lists, block_tokens=10):
    requests = [
        Request(float(index), block_tokens * len(ids) + 1, 1, np.array(ids, np.int64), -1, index)
        for index, ids in enumerate(lists)
    ]
    return Trace("made", "requests", block_tokens, requests)


def random_trace(seed, length=40):
    rng = random.Random(seed)
    chains = [[100 * chain + depth for depth in range(rng.randint(1, 6))] for chain in range(6)]
    return trace_of([chain[: rng.randint(1, len(chain))] for chain in rng.choices(chains, k=length)])


def lru_by_list(trace, size):
    """Block hits and prefix hits of LRU, with a plain list of blocks, the youngest last."""
    cache, block_hits, prefix_hits = [], 0, 0
    for request in trace.requests:
        ids = request.block_ids.tolist()
        prefix_hits += len(list(itertools.takewhile(cache.__contains__, ids)))
        for block in ids[::-1]:
            if block in cache:
                cache.remove(block)
                block_hits += 1
            cache.append(block)
            cache = cache[-size:]
    return block_hits, prefix_hits


def opt_by_search(trace, size):
    """The most block hits that any choice of what to keep can have."""
    accesses = [block for request in trace.requests for block in request.block_ids.tolist()[::-1]]
    best = {frozenset(): 0}
    for block in accesses:
        after = {}
        for cache, hits in best.items():
            hits += block in cache
            held = cache | {block}
            options = [held] if len(held) <= size else [held - {victim} for victim in held]
            for option in options:
                after[option] = max(after.get(option, -1), hits)
        best = after
    return max(best.values())


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize("seed", range(5))
def test_lru_equals_a_plain_list(size, seed):
    trace = random_trace(seed)
    hits = lru_hits(trace, size)
    assert (hits.block_hits, hits.prefix_hits) == lru_by_list(trace, size)
    assert (hits.request_count, hits.block_count) == (40, trace.block_count)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_opt_equals_the_best_of_all_choices(size, seed):
    trace = random_trace(seed, 12)
    assert opt_hits(trace, size).block_hits == opt_by_search(trace, size)


def test_resident_block_behind_a_missing_one_is_no_prefix_hit():
    trace = trace_of([[1, 2, 3], [7, 8], [1, 2, 3]])
    assert lru_hits(trace, 4).prefix_hits == 2  # The tail, block 3, went first.
    hits = lru_hits(trace_of([[2, 3], [1, 2, 3]]), 9)
    assert (hits.block_hits, hits.prefix_hits) == (2, 0)


def test_token_hits_are_those_of_the_leading_blocks_over_all_input_tokens():
    hits = infinite_hits(trace_of([[1, 2], [1, 2, 3]]))
    assert (hits.token_hits, hits.input_tokens) == (20, 52)
    assert hits.token_hit_rate == pytest.approx(20 / 52)
    assert hits.prefix_hit_rate == pytest.approx(2 / 5)


def test_tenants_have_caches_of_their_own_size():
    trace = trace_of([[1, 2], [1, 2], [1, 2], [1, 2]])
    hits = lru_hits(trace, [2, 1], [0, 1, 0, 1])
    assert hits.prefix_hits == 2 + 1
    assert hits.request_count == 4
    assert infinite_hits(trace, [0, 1, 0, 1]).prefix_hits == 4
    assert opt_hits(trace, [2, 1], [0, 1, 0, 1]).block_hits == 2 + 1


@pytest.mark.parametrize(
    ("tenants", "partition_of", "message"),
    [
        (0, None, r"tenant sizes \[0\] are not all above 0"),
        ([], None, r"tenant sizes \[\]"),
        ([4, 5], None, "2 tenant sizes need partition_of"),
        ([4], [0, 0], "partition_of has 2 entries for 1 requests"),
        ([4], [1], "partition 1 is not one of the 1 tenants"),
    ],
)
def test_tenants_that_cannot_be_are_refused(tenants, partition_of, message):
    with pytest.raises(ValueError, match=message):
        lru_hits(trace_of([[1]]), tenants, partition_of)


def test_tenants_hold_conversations_together_and_share_the_load():
    trace = generate(300)
    tenant_of = assign_tenants(trace, 3)
    by_session = {}
    for request, tenant in zip(trace.requests, tenant_of):
        by_session.setdefault(request.session, set()).add(int(tenant))
    assert all(len(tenants) == 1 for tenants in by_session.values())
    sessions = np.bincount([tenants.pop() for tenants in by_session.values()], minlength=3)
    assert sessions.min() > len(by_session) / 6


def test_empty_trace_has_rates_of_zero():
    hits = lru_hits(trace_of([]), 4)
    assert (hits.block_hit_rate, hits.prefix_hit_rate, hits.token_hit_rate) == (0, 0, 0)


def published(trace, one_in=1):
    """Infinite hit rate, and LRU and OPT hit rates at the fractions, as public characterisations compute them."""
    infinite = infinite_hits(trace).block_hit_rate
    sample = sample_blocks(trace, one_in)
    scale = infinite / infinite_hits(sample).block_hit_rate
    sizes = [max(1, round(sample.distinct_block_count * fraction)) for fraction in FRACTIONS]
    lru = [lru_hits(sample, size).block_hit_rate * scale for size in sizes]
    opt = [opt_hits(sample, size).block_hit_rate * scale for size in sizes]
    return infinite, lru, opt


def test_mooncake_figures_are_the_published_ones(trace_path):
    """Those figures count the partial last blocks too, which this reader drops: they are put back here."""
    path = trace_path("mooncake_conversation")
    trace = read(path)
    with gzip.open(path, "rt") as text:
        rows = [json.loads(line)["hash_ids"] for line in text]
    requests = [replace(r, block_ids=np.array(ids, np.int64)) for r, ids in zip(trace.requests, rows, strict=True)]
    infinite, lru, opt = published(replace(trace, requests=requests))
    assert infinite == pytest.approx(0.351, abs=0.002)
    assert lru == pytest.approx([0.0455, 0.142, 0.230, 0.322, 0.348], abs=0.002)
    assert opt == pytest.approx([0.208, 0.347, 0.351, 0.351, 0.351], abs=0.002)


def test_agent_figures_are_the_published_ones(trace_path):
    infinite, lru, opt = published(read(trace_path("agent_miniswe")))
    assert infinite == pytest.approx(0.935, abs=0.002)
    assert lru == pytest.approx([0.0135, 0.451, 0.565, 0.884, 0.935], abs=0.002)
    assert opt == pytest.approx([0.243, 0.652, 0.783, 0.933, 0.935], abs=0.002)


@pytest.mark.long
def test_claude_code_figures_are_the_published_ones(trace_path):
    infinite, lru, opt = published(read(trace_path("claude_code_v8_local"), block_tokens=512), one_in=4)
    assert infinite == pytest.approx(0.963, abs=0.002)
    assert lru == pytest.approx([0.325, 0.929, 0.954, 0.962, 0.962], abs=0.002)
    assert opt == pytest.approx([0.667, 0.953, 0.963, 0.963, 0.963], abs=0.002)
