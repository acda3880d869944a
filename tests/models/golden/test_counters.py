"""Counters and histograms: small sums worked out by hand."""

import pytest

from kvnode.models.golden.counters import Counters, LatencyHistogram
from kvnode.models.spec.counters import MAX_OUTSTANDING, bucket_of
from kvnode.models.spec.enums import Kind, Status


def test_records_are_counted_by_partition_kind_and_status():
    counters = Counters()
    for partition, kind, status in ((0, Kind.READ, Status.OK),) * 3 + ((1, Kind.READ, Status.MISS),):
        counters.record({"partition": partition, "kind": kind, "status": status})
    assert counters.value(0, Kind.READ, Status.OK) == 3
    assert counters.value(1, Kind.READ, Status.MISS) == 1
    assert counters.value(1, Kind.READ, Status.OK) == counters.value(7, 200, 200) == 0
    assert sum(counters.counts.values()) == 4


@pytest.mark.parametrize(
    ("cycles", "bucket"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (1023, 9), (1024, 10), ((1 << 32) - 1, 31)]
)
def test_bucket_is_the_logarithm_rounded_down(cycles, bucket):
    assert bucket_of(cycles) == bucket


def test_answers_belong_to_messages_of_their_port_in_order():
    histogram = LatencyHistogram(2)
    histogram.arrives(0, 10)
    histogram.arrives(1, 11)
    histogram.arrives(0, 12)
    histogram.answers(0, 18)
    histogram.answers(1, 12)
    histogram.answers(0, 19)
    assert [histogram.value(0, bucket) for bucket in range(4)] == [0, 0, 1, 1]
    assert [histogram.value(1, bucket) for bucket in range(4)] == [1, 0, 0, 0]
    assert histogram.outstanding(0) == histogram.outstanding(1) == 0


def test_answer_to_no_message_and_one_message_too_many_are_refused():
    histogram = LatencyHistogram(1)
    with pytest.raises(ValueError, match="port 0: an answer in cycle 5 to no message"):
        histogram.answers(0, 5)
    for cycle in range(MAX_OUTSTANDING):
        histogram.arrives(0, cycle)
    with pytest.raises(ValueError, match="port 0: more than 32 messages are not answered"):
        histogram.arrives(0, 40)
