"""Settings: changed by CONFIGURE at two stages, and how short of slots each partition is, against plain sums."""

import pytest

from kvnode.models.spec.settings import Setting
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.settings import Settings, setting_bits, settings_layout
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_settings"
CYCLES = 6000
#: From stage 5 to stage 8.
STAGES = 3


class Partition:
    """The settings of a partition, the slots that are free or on their way to it, and whether they are too few."""

    def __init__(self, part):
        self.settings = {setting: getattr(part, setting.name.lower()) for setting in Setting}
        self.slots = self.spare = part.slots
        self.reserve = part.reserve_slots
        self.low = False

    def judge(self):
        low, high = self.settings[Setting.LOW_WATERMARK_SLOTS], self.settings[Setting.HIGH_WATERMARK_SLOTS]
        self.low = self.spare < low or self.low and self.spare < high


def random_operation(rng, config, bits, partitions, cycle):
    """(partition, setting and value of a CONFIGURE or None, slots taken, slots that begin to be given back)."""
    number = rng.randrange(len(partitions))
    part = partitions[number]
    if rng.randrange(12) == 0:
        setting = rng.choice(list(Setting))
        top = part.slots if bits[setting] == Shapes(config).slot_bits + 1 else (1 << bits[setting]) - 1
        return number, (setting, rng.randint(0, top)), 0, 0
    takes, gives = ((6, 2), (2, 6), (5, 5))[cycle // 100 % 3]
    return number, None, int(rng.randrange(8) < takes), int(rng.randrange(8) < gives)


@bench_test(max_cycles=CYCLES + 20)
async def follow_configure_and_slots(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    bits, fields = setting_bits(Shapes(config)), Fields(settings_layout(Shapes(config)))
    partitions = [Partition(part) for part in config.partitions]
    stages = [None] * (STAGES + 1)
    changes, lows = 0, [0] * len(partitions)
    await bench.start()
    for cycle in range(CYCLES):
        op = random_operation(rng, config, bits, partitions, cycle) if rng.randrange(8) else None
        stages = [op, *stages[:STAGES]]
        expected = {"low": sum(part.low << i for i, part in enumerate(partitions))}
        for i, part in enumerate(partitions):
            packed = fields.pack(**{setting.name.lower(): value for setting, value in part.settings.items()})
            expected[f"settings__{i}"] = packed
            lows[i] += part.low
        bench.drive(s5_configure=0, configure=0, valid=stages[-1] is not None)
        if op is not None:
            number, change, *_ = op
            expected["s5_reserve"] = partitions[number].reserve
            bench.drive(s5_partition=number)
            if change:
                bench.drive(s5_configure=1, s5_row=change[0], s5_value=change[1])
                if change[0] == Setting.RESERVE_SLOTS:
                    partitions[number].reserve = change[1]
        if stages[-1] is not None:
            number, change, granted, retired = stages[-1]
            part = partitions[number]
            granted, retired = granted and part.spare > 0, retired and part.spare - granted < part.slots
            expected["setting"] = expected[f"settings__{number}"]
            bench.drive(partition=number, granted=granted, retired=retired)
            part.spare += retired - granted
            if change:
                bench.drive(configure=1, row=change[0], value=change[1])
                part.settings[change[0]] = change[1]
                changes += 1
            part.judge()
        await bench.step()
        found = {name: bench.get(name) for name in expected}
        assert found == expected, f"cycle {cycle}: {found}, expected {expected}"
    assert changes > CYCLES // 40
    assert all(CYCLES // 20 < count < CYCLES * 19 // 20 for count in lows), lows


@pytest.mark.parametrize("config", ["tiny", "quad"])
def test_settings_follow_configure_and_low_follows_slots(config):
    run_bench(Settings(config_of(config)), MODULE, parameters={"config": config})
