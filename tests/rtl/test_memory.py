"""What the memories refuse before there is hardware."""

import pytest

from kvnode.rtl.memory import DelayLine, ForwardedRam, Ram

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


@pytest.mark.parametrize("cycles", [1, 0, -3])
def test_delay_line_of_less_than_two_cycles_is_refused(cycles):
    with pytest.raises(ValueError, match=f"cycles = {cycles}: a delay line has at least 2"):
        DelayLine(8, cycles)


def test_delay_line_of_two_cycles_is_the_shortest():
    assert DelayLine(8, 2).cycles == 2


@pytest.mark.parametrize(("depth", "bits"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10)])
def test_addresses_reach_every_word(depth, bits):
    ram = Ram(7, depth)
    assert len(ram.read_address) == len(ram.write_address) == bits
    assert len(ram.read_data) == len(ram.write_data) == 7


@pytest.mark.parametrize(("depth", "bits"), [(1, 1), (2, 1), (3, 2), (1024, 10)])
def test_rows_of_a_pipeline_are_all_reached(depth, bits):
    rows = ForwardedRam(7, depth)
    assert len(rows.read_address) == len(rows.commit_address) == bits
    assert len(rows.read) == len(rows.value) == 7
