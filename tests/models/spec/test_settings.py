"""Settings that can be changed: each is a value of a partition's configuration, and has a register."""

import pytest

from kvnode.models.spec import node_registers
from kvnode.models.spec.config import PRESETS, PartitionConfig, preset
from kvnode.models.spec.settings import Setting


def test_settings_are_numbered_from_zero_without_a_gap():
    names = "LOW_WATERMARK_SLOTS HIGH_WATERMARK_SLOTS RESERVE_SLOTS FILL_DEADLINE_TICKS LEASE_TICKS BLOCK_TTL".split()
    assert [setting.name for setting in Setting] == names
    assert [setting.value for setting in Setting] == list(range(6))


@pytest.mark.parametrize("setting", Setting)
def test_setting_has_a_value_after_reset(setting):
    for part in (part for name in PRESETS for part in preset(name).partitions):
        assert type(getattr(part, setting.name.lower())) is int


def test_values_after_reset_are_those_of_the_configuration():
    part = PartitionConfig((0,), 5, 6, 0, reserve_slots=3, fill_deadline_ticks=11, lease_ticks=12, block_ttl=13)
    assert [getattr(part, setting.name.lower()) for setting in Setting] == [6, 9, 3, 11, 12, 13]


@pytest.mark.parametrize("setting", Setting)
def test_setting_has_a_register_of_the_partition(setting):
    assert hasattr(node_registers, f"PARTITION_{setting.name}_ADDRESS")
