"""Ports that die at any time, and whether everything that they held comes back.

Used by: verif.test_leaks, sw_driver.benches.leaks.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.clock import TTL_TICKS
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Opcode, State
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES, SWEEP_ROUND

from .checkers.messages import MessageCheck
from .harness.harness import Access, Done, Harness, RunResult
from .traffic import Traffic

REQUESTS = 6_000
#: Cycles between two changes of PORT_DOWN at least, and at most.
CHANGE_CYCLES = 40, 1_500
#: The longest time to live that a session gets, in units of TTL_TICKS, and the longest of the other deadlines.
SESSION_TTL, DEADLINE_TICKS = 2, 255


@dataclass
class Figures:
    """What the rounds came to. `operations`: of ports, in lockstep; `swept`: the sweeper's. `lost`: messages that were
    under way when their port died. `leaked`: slots, fill rows, leases and sessions that did not come back, and what the
    registers say otherwise than the golden model.
    """

    rounds: int = 0
    operations: int = 0
    swept: int = 0
    lost: int = 0
    deaths: int = 0
    sealed: int = 0
    leaked: int = 0
    cycles: int = 0


class Leaks:
    """Rounds of random traffic with sessions, leases and members, during which ports go down and come up.

    At the end of a round all ports are up, everybody is silent until every deadline has passed, and the registers must
    say that nothing is held: no lease, no fill row, no session, and every slot free or with a sealed block of the
    golden model. Then all models are retired, and when the patrol has been everywhere every slot must be free.
    """

    def __init__(self, harness: Harness, seed: int = 0):
        self.harness, self.config, self.random = harness, harness.config, random.Random(seed)
        self.seed = seed
        harness.reset()
        self.check = MessageCheck(self.config)
        self.figures = Figures()

    def play(self, operations: int, progress: Callable[[Figures], None] = lambda figures: None) -> Figures:
        """Rounds until the ports have made so many operations; the figures so far."""
        while self.figures.operations < operations:
            self._round()
            progress(self.figures)
        return self.figures

    def _round(self) -> None:
        draw, figures = self.random, self.figures
        traffic = Traffic(
            self.config, self.seed + figures.rounds, keys=draw.choice((4, 24, 200)), malformed=draw.choice((0, 0.05))
        )
        batch, payload = traffic.batch(REQUESTS)
        opens = batch["header"]["opcode"] == Opcode.SESSION_OPEN
        batch["header"]["ttl"][opens] = batch["header"]["ttl"][opens].clip(1, SESSION_TTL)
        accesses = self._deaths(6 * REQUESTS)
        run = self._run(
            batch, payload, accesses, idle=draw.choice((0, 0.2)), backpressure=draw.choice((0, 0.2, 0.5)),
            seed=self.seed + figures.rounds, max_cycles=400 * len(batch) + 200_000,
        )  # fmt: skip
        figures.lost += int((run.results["done"] == Done.LOST).sum())
        figures.deaths += sum(value.bit_count() for _, _, *data in accesses for value in data)
        self._wait(quiet_cycles(self.config))
        figures.leaked += self._held(retired=False)
        for number in range(len(self.config.partitions)):
            for model in range(self.config.models):
                value = number << registers.MODEL_RETIRE_PARTITION_SHIFT | model
                self._access((0, registers.MODEL_RETIRE_ADDRESS, value))
                self._wait(patrol_cycles(self.config, steps=4))
        self._wait(patrol_cycles(self.config, 2 * max(part.slots for part in self.config.partitions)))
        figures.leaked += self._held(retired=True)
        figures.rounds += 1

    def _deaths(self, cycles: int) -> list[Access]:
        """Writes of PORT_DOWN; the last one brings all ports up."""
        chosen: list[Access] = []
        at = 0
        while at < cycles:
            at += self.random.randrange(*CHANGE_CYCLES)
            chosen.append((at, registers.PORT_DOWN_ADDRESS, self.random.randrange(1 << self.config.ports)))
            at += self.random.randrange(*CHANGE_CYCLES)
            chosen.append((at, registers.PORT_DOWN_ADDRESS, 0))
        return chosen

    def _held(self, retired: bool) -> int:
        """What has not come back."""
        lost = 0
        for number, golden in enumerate(self.check.lockstep.node.partitions):
            free, *held = (self._read(number, name) for name in ("FREE_SLOTS", "FILL_ROWS_USED", "LEASES_HELD",
                                                                 "SESSIONS_OPEN"))  # fmt: skip
            sealed = 0 if retired else sum(block.state == State.SEALED for block in golden.blocks)
            self.figures.sealed += sealed
            lost += sum(held) + abs(golden.slots - free - sealed) + abs(golden.free_count - free)
        return lost

    def _read(self, partition: int, name: str) -> int:
        address = getattr(registers, f"PARTITION_{name}_ADDRESS") + partition * registers.PARTITION_STRIDE_BYTES
        return int(self._access((0, address)).registers[0]["data"])

    def _access(self, access: Access) -> RunResult:
        return self._run(np.zeros(0, BATCH_DTYPE), b"", [access], max_cycles=100_000)

    def _wait(self, cycles: int) -> None:
        self._run(np.zeros(0, BATCH_DTYPE), b"", [], max_cycles=cycles, min_cycles=cycles)

    def _run(self, batch: np.ndarray, payload: bytes, accesses: list[Access], **options) -> RunResult:
        run = self.harness.run(batch, payload, registers=accesses, **options)
        self.check.check(batch, payload, run)
        by_ports = int((run.trace["owner"] < self.config.ports).sum())
        self.figures.operations += by_ports
        self.figures.swept += len(run.trace) - by_ports
        self.figures.cycles += run.cycles
        return run


def patrol_cycles(config: NodeConfig, steps: int) -> int:
    """Cycles in which the sweeper makes so many steps of any one look in every partition, with some to spare."""
    looks = SWEEP_ROUND * config.ports * (config.ports + 1)
    return (steps + 2) * looks + 4 * DIRECTORY_LATENCY_CYCLES


def quiet_cycles(config: NodeConfig) -> int:
    """Cycles of silence after which nothing is held any more: the longest deadline and a lap of all looks."""
    tick = 1 << config.tick_cycles_log2
    own = max(max(part.fill_deadline_ticks, part.lease_ticks) for part in config.partitions)
    ticks = max(own, DEADLINE_TICKS, (SESSION_TTL + 1) * TTL_TICKS)
    rows = max(config.fill_rows, config.leases, config.sessions)
    return tick * (ticks + 1) + patrol_cycles(config, 2 * rows)
