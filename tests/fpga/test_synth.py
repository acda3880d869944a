"""What `kvnode synth` makes out of a block before and after the tools; verif/test_synth.py runs them."""

import pytest
from amaranth.hdl import Fragment

from kvnode.fpga import synth
from kvnode.models.spec.config import ConfigError, preset


def test_a_configuration_has_as_many_ports_and_slots_as_are_asked_for():
    config = synth.sized(preset("sim"), 4, 4096)
    assert (config.ports, config.slots, config.digest_bits) == (4, 4096, 256)
    assert tuple(config.partition_of_port) == (0, 1, 2, 3)
    assert "4x4096" in config.name


@pytest.mark.parametrize(("ports", "slots"), [(3, 4096), (4, 5000), (4, 2), (0, 4096), (4, -4)])
def test_what_no_node_can_have_is_refused(ports, slots):
    with pytest.raises(ConfigError):
        synth.sized(preset("sim"), ports, slots)


@pytest.mark.parametrize("name", synth.BLOCKS)
def test_every_block_can_be_made(name):
    block = synth.BLOCKS[name].make(preset("tiny"))
    assert block.signature.members and Fragment.get(block, None)
