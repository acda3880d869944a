"""Sizes of the counters and of the latency histograms, and which bucket a latency falls into.

Used by: golden.counters, rtl.node.counters.
"""

#: Counters by (partition, kind, status) count modulo 2^COUNTER_BITS.
COUNTER_BITS = 64
#: Buckets of a histogram, and so bits of the longest latency that it tells apart.
BUCKETS = 32
#: Buckets count modulo 2^BUCKET_COUNT_BITS.
BUCKET_COUNT_BITS = 32
#: Messages of a port that are not answered yet, at most.
MAX_OUTSTANDING = 32


def bucket_of(cycles: int) -> int:
    """floor(log2(cycles)); less than a cycle counts as one."""
    return min(max(1, cycles).bit_length(), BUCKETS) - 1
