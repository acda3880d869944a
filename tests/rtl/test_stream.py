"""What the queue refuses before there is hardware."""

import pytest
from amaranth.lib import data

from kvnode.rtl.stream import Queue

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


@pytest.mark.parametrize("depth", [0, -1])
def test_queue_without_a_place_is_refused(depth):
    with pytest.raises(ValueError, match=f"depth = {depth}: a queue has at least one place"):
        Queue(8, depth)


@pytest.mark.parametrize(("depth", "bits"), [(1, 1), (2, 2), (3, 2), (4, 3), (16, 5)])
def test_level_counts_up_to_the_depth(depth, bits):
    assert len(Queue(8, depth).level) == bits


def test_queue_carries_structs_and_plain_bits():
    pair = data.StructLayout({"data": 5, "last": 1})
    assert Queue(pair, 2).i.p.shape() == pair
    assert len(Queue(6, 2).i.p) == 6
