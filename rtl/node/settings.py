"""Settings of the partitions in force, and what follows from them: how short of slots each partition is."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.sessions import SEQUENCE_BITS
from kvnode.models.spec.settings import Setting

from ..layouts import TICK_BITS, Shapes
from ..ownership import By, Owned


def setting_bits(shapes: Shapes) -> dict[Setting, int]:
    """Width of each setting of a partition."""
    slots = shapes.slot_bits + 1
    return {
        Setting.LOW_WATERMARK_SLOTS: slots,
        Setting.HIGH_WATERMARK_SLOTS: slots,
        Setting.RESERVE_SLOTS: slots,
        Setting.FILL_DEADLINE_TICKS: TICK_BITS - 1,
        Setting.LEASE_TICKS: TICK_BITS - 1,
        Setting.BLOCK_TTL: 8,
    }


def settings_layout(shapes: Shapes) -> data.StructLayout:
    """The settings of one partition."""
    return data.StructLayout({setting.name.lower(): bits for setting, bits in setting_bits(shapes).items()})


class Settings(wiring.Component):
    """Settings of every partition, as the configuration has them after reset, and changed by CONFIGURE.

    Contract: `s5_configure` with `s5_row` and `s5_value` is the CONFIGURE of `s5_partition` at stage 5; `s5_reserve`,
    the slots that `s5_partition` keeps back, follows it there, where slots are granted. `configure` with `row` and
    `value` is that of `partition` at stage 8; `setting`, all settings of `partition`, and `settings`, those of all,
    follow it there. `valid` with `granted` and `retired` says that the operation took a slot, or began to give one
    back: `low` says of each partition that it is short of slots that are free or on their way to it. That begins below
    the low watermark and ends at the high one. Everything is seen by the operation that is at the same stage in the
    next cycle.

    Used by: directory.
    """

    OWNERSHIP = (
        Owned("spare_*", By.NUMBER),
        Owned("evicting_*", By.NUMBER),
        Owned("settings_*", By.NUMBER),
        Owned("reserve_*", By.NUMBER),
    )

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        shapes, layout = self.shapes, settings_layout(self.shapes)
        count = len(config.partitions)
        super().__init__(
            {
                "s5_partition": In(shapes.partition_bits),
                "s5_configure": In(1),
                "s5_row": In(shapes.look_bits),
                "s5_value": In(SEQUENCE_BITS),
                "s5_reserve": Out(shapes.slot_bits + 1),
                "valid": In(1),
                "partition": In(shapes.partition_bits),
                "configure": In(1),
                "row": In(shapes.look_bits),
                "value": In(SEQUENCE_BITS),
                "granted": In(1),
                "retired": In(1),
                "setting": Out(layout),
                "settings": Out(layout).array(count),
                "low": Out(count),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, shapes = self.config, self.shapes
        settings, reserves = [], []
        for i, partition in enumerate(config.partitions):
            first = {setting.name.lower(): getattr(partition, setting.name.lower()) for setting in Setting}
            values = Signal(settings_layout(shapes), init=first, name=f"settings_{i}")
            reserve = Signal(shapes.slot_bits + 1, init=partition.reserve_slots, name=f"reserve_{i}")
            spare = Signal(partition.slots_log2 + 1, init=partition.slots, name=f"spare_{i}")
            evicting = Signal(name=f"evicting_{i}")
            m.d.comb += [
                self.settings[i].eq(values),
                self.low[i].eq((spare < values.low_watermark_slots) | evicting & (spare < values.high_watermark_slots)),
            ]
            m.d.sync += evicting.eq(self.low[i])
            with m.If(self.s5_configure & (self.s5_partition == i) & (self.s5_row == Setting.RESERVE_SLOTS)):
                m.d.sync += reserve.eq(self.s5_value)
            with m.If(self.valid & (self.partition == i)):
                m.d.sync += spare.eq(spare - self.granted + self.retired)
                with m.If(self.configure):
                    for setting in Setting:
                        with m.If(self.row == setting):
                            m.d.sync += values[setting.name.lower()].eq(self.value)
            settings.append(values)
            reserves.append(reserve)
        m.d.comb += [
            self.s5_reserve.eq(Array(reserves)[self.s5_partition]),
            self.setting.eq(Array(values.as_value() for values in settings)[self.partition]),
        ]
        return m
