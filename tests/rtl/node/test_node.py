"""The node's constructor: its faults and its ports."""

import pytest

from kvnode.models.spec.config import preset
from kvnode.rtl.node.node import FAULTS, Node

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")


def test_unknown_fault_is_refused_naming_those_there_are():
    with pytest.raises(ValueError) as caught:
        Node(preset("tiny"), fault="gravity")
    assert str(caught.value) == "fault 'gravity': there are transition, index_compare, watermark, rotator"


def test_every_seeded_fault_is_accepted():
    assert [Node(preset("tiny"), fault=fault).fault for fault in FAULTS] == list(FAULTS)


@pytest.mark.parametrize(("name", "ports", "beat_bits"), [("tiny", 2, 128), ("sim", 4, 256), ("wide", 8, 512)])
def test_streams_of_every_port_are_a_beat_and_a_last_wide(name, ports, beat_bits):
    node = Node(preset(name))
    assert len(node.req) == len(node.rsp) == ports
    assert [len(port.p.data) for port in [*node.req, *node.rsp]] == [beat_bits] * 2 * ports
    assert [len(port.p.last) for port in [*node.req, *node.rsp]] == [1] * 2 * ports
