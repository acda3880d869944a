import numpy as np
import pytest

from kvnode.models.workloads import Request, Trace, coarsen


def trace_of(*lists, block_tokens=64):
    requests = [
        Request(float(index), block_tokens * len(ids) + 5, 1, np.array(ids, np.int64), index, index)
        for index, ids in enumerate(lists)
    ]
    return Trace("made", "requests", block_tokens, requests)


def test_counts_of_a_trace():
    trace = trace_of([1, 2, 3], [1, 2], [])
    assert (len(trace), trace.block_count, trace.distinct_block_count) == (3, 5, 3)
    assert trace.input_token_count == 64 * 5 + 15
    assert trace.span_s == 2.0


def test_empty_trace_has_no_span_and_no_blocks():
    trace = trace_of()
    assert (trace.span_s, trace.block_count, trace.distinct_block_count) == (0.0, 0, 0)


def test_coarse_blocks_are_named_by_their_last_fine_block():
    coarse = coarsen(trace_of([10, 11, 12, 13, 14, 15, 16]), 192)
    assert coarse.block_tokens == 192
    assert coarse.requests[0].block_ids.tolist() == [12, 15]
    assert coarse.requests[0].input_tokens == 64 * 7 + 5


@pytest.mark.parametrize("block_tokens", [32, 100])
def test_block_size_that_does_not_fit_is_refused(block_tokens):
    with pytest.raises(ValueError, match=f"block_tokens {block_tokens} is not a multiple of the trace's 64"):
        coarsen(trace_of([1]), block_tokens)
