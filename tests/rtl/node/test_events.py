"""What the event ring refuses before there is hardware."""

import pytest

from kvnode.rtl.node.events import EVENT_STRUCT, EventRing

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


@pytest.mark.parametrize("depth", [-2, 0, 1, 12])
def test_depth_that_is_no_power_of_two_is_refused(depth):
    with pytest.raises(ValueError, match=f"depth = {depth}: must be a power of two, at least 2"):
        EventRing(depth)


def test_ring_counts_up_to_its_depth_and_shows_whole_events():
    ring = EventRing(8)
    assert (ring.level.shape().width, len(ring.sequence), len(ring.data)) == (4, 32, EVENT_STRUCT.size)
