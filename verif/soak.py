"""Random operations of all kinds on the RTL, for as long as you like, every one of them checked.

Used by: verif.test_lockstep, sw_driver.soak.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.settings import Setting

from .checkers.messages import MessageCheck
from .harness.harness import Access, Harness
from .traffic import Traffic

RUNS_PER_ROUND = 2
#: Cycles for which a port stays down at least, and at most.
DOWN_CYCLES = 40, 600


@dataclass(frozen=True)
class Round:
    """What a round came to: operations compared, answers compared, messages lost with their ports, cycles; and what
    has checked it.
    """

    operations: int
    answers: int
    lost: int
    cycles: int
    check: MessageCheck = field(compare=False, repr=False)


def play(
    harness: Harness,
    seed: int,
    requests: int,
    checker: Callable[[NodeConfig, int], MessageCheck] = MessageCheck,
) -> Round:
    """One round from reset: random traffic, malformed messages among it, idle and backpressure, and in some rounds
    models that are retired, ports that go down, settings that change and slots that are found damaged.

    Raises golden.Difference or checkers.messages.WrongAnswer at the first thing that is not as in the golden model,
    and the errors of the harness when something hangs. `checker` makes what checks the answers, the round's `check`.
    """
    config, draw = harness.config, random.Random(seed)
    boot_epoch = draw.randrange(4)
    harness.reset(boot_epoch)
    check = checker(config, boot_epoch)
    traffic = Traffic(config, seed, keys=draw.choice((4, 24, 200)), malformed=draw.choice((0, 0.05, 0.3)))
    answers = lost = cycles = 0
    for _ in range(RUNS_PER_ROUND):
        batch, payload = traffic.batch(requests)
        run = harness.run(
            batch,
            payload,
            max_cycles=400 * len(batch) + 200_000,
            idle=draw.choice((0, 0.2)),
            backpressure=draw.choice((0, 0.2, 0.5)),
            seed=seed,
            registers=_accesses(config, draw, 5 * requests),
        )
        check.check(batch, payload, run)
        answers += int((run.results["done"] == 1).sum())
        lost += int((run.results["done"] == 3).sum())
        cycles += run.cycles
    return Round(check.lockstep.operations, answers, lost, cycles, check)


def _accesses(config: NodeConfig, draw: random.Random, cycles: int) -> list[Access]:
    """Register accesses in order of their cycles, which lie below `cycles`."""
    chosen: list[Access] = []
    partitions = len(config.partitions)
    if draw.random() < 0.5:
        for _ in range(3):
            value = draw.randrange(partitions + 1) << registers.MODEL_RETIRE_PARTITION_SHIFT | draw.randrange(3)
            chosen.append((draw.randrange(cycles), registers.MODEL_RETIRE_ADDRESS, value))
    if draw.random() < 0.3:
        for _ in range(20):
            value = draw.randrange(partitions + 1) << registers.POISON_PARTITION_SHIFT | draw.randrange(8)
            chosen.append((draw.randrange(cycles), registers.POISON_ADDRESS, value))
    if draw.random() < 0.3:
        for _ in range(4):
            chosen.append((draw.randrange(cycles), *_setting(config, draw)))
    if draw.random() < 0.3:
        at = draw.randrange(cycles)
        chosen.append((at, registers.PORT_DOWN_ADDRESS, draw.randrange(1 << config.ports)))
        chosen.append((at + draw.randrange(*DOWN_CYCLES), registers.PORT_DOWN_ADDRESS, 0))
    if draw.random() < 0.2:
        chosen.extend((draw.randrange(cycles), draw.randrange(1 << 16)) for _ in range(5))
    return sorted(chosen, key=lambda access: access[0])


def _setting(config: NodeConfig, draw: random.Random) -> tuple[int, int]:
    """(address, value) of a setting that leaves something to do."""
    number = draw.randrange(len(config.partitions))
    slots, setting = config.partitions[number].slots, draw.choice(list(Setting))
    most = {
        Setting.LOW_WATERMARK_SLOTS: slots // 2,
        Setting.HIGH_WATERMARK_SLOTS: slots,
        Setting.RESERVE_SLOTS: slots // 4,
        Setting.BLOCK_TTL: 3,
    }.get(setting, 50)
    address = getattr(registers, f"PARTITION_{setting.name}_ADDRESS") + number * registers.PARTITION_STRIDE_BYTES
    return address, draw.randrange(most + 1)
