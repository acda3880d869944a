"""The frame of every bench: one clock, pins as whole numbers, agents that sample together and then drive together.

In each cycle everything is sampled first, with the values that the design's registers see at the edge, and then driven.
So no agent can see what another one drives in the same step, and a transfer is seen exactly when it happens.

Used by: every bench.
"""

import json
import os
import random
from collections.abc import Callable
from typing import Any, Protocol

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer

from ..runner import PARAMETERS_VARIABLE, PORTS_VARIABLE
from .stream import StreamChecker

__all__ = ["Agent", "Bench", "Pin", "bench_test", "parameters"]

PERIOD_NS = 2
RESET_CYCLES = 3


def parameters() -> dict[str, Any]:
    """The parameters given to `run_bench`."""
    return json.loads(os.environ.get(PARAMETERS_VARIABLE, "{}"))


def bench_test(max_cycles: int) -> Callable[[Callable], Any]:
    """A cocotb test that fails when it takes more than `max_cycles`: no test is without a limit."""
    return cocotb.test(timeout_time=PERIOD_NS * max_cycles, timeout_unit="ns")


class Agent(Protocol):
    """Something that takes part in every cycle of a bench."""

    def sample(self) -> None:
        """Look at pins, and drive nothing."""

    def drive(self) -> None:
        """Drive pins for the next cycle."""


class Pin:
    """A port of the design as a whole number. A read costs once a cycle, a write only when it changes something."""

    def __init__(self, bench: "Bench", handle: Any):
        self._bench, self._handle = bench, handle
        self._wide = len(handle) > 1
        self._read_at, self._read = -1, 0
        self._driven: int | None = None

    @property
    def value(self) -> int:
        """What the design sees at the edge of this cycle."""
        if self._read_at != self._bench.cycle:
            value = self._handle.value
            self._read = value.to_unsigned() if self._wide else int(value)
            self._read_at = self._bench.cycle
        return self._read

    def drive(self, value: int) -> None:
        """Set from now on."""
        if value != self._driven:
            self._handle.value = value
            self._driven = value


class Bench:
    """A design under test.

    `pins`: its ports by name, without `prefix`. `cycle`: cycles since reset. `random`: seeded with the parameter
    `seed`. Every stream among the ports (names that end in `valid` and `ready` with one prefix) is watched by a
    StreamChecker from reset on.

    `add` makes an agent take part; `step` passes a cycle; `start` must be awaited before.
    """

    def __init__(self, dut: Any, prefix: str = ""):
        self.parameters = parameters()
        self.random = random.Random(self.parameters.get("seed", 1))
        self.cycle = 0
        handles = {name: getattr(dut, name) for name in json.loads(os.environ[PORTS_VARIABLE])}
        self.clock, self._reset = handles.pop("clk", None), handles.pop("rst", None)
        self.pins = {name.removeprefix(prefix): Pin(self, handle) for name, handle in handles.items()}
        self.agents: list[Agent] = []
        self.checkers = [StreamChecker(self, name[: -len("valid")]) for name in self.pins if self._is_stream(name)]

    def _is_stream(self, name: str) -> bool:
        return name.endswith("valid") and f"{name[: -len('valid')]}ready" in self.pins

    async def start(self, **values: int) -> None:
        """Start the clock and reset the design with the inputs `values`; every other input is 0 until driven."""
        self.drive(**values)
        if self.clock is None:
            return
        self._reset.value = 1
        Clock(self.clock, PERIOD_NS, unit="ns").start()
        for _ in range(RESET_CYCLES):
            await RisingEdge(self.clock)
        self._reset.value = 0
        self.cycle = 0
        for agent in self.agents:
            agent.drive()

    def add(self, agent: Any) -> Any:
        self.agents.append(agent)
        return agent

    def drive(self, **values: int) -> None:
        for name, value in values.items():
            self.pins[name].drive(value)

    def get(self, name: str) -> int:
        return self.pins[name].value

    async def step(self) -> None:
        """Pass one cycle: what is driven now acts in it, and is sampled at its end with what the design answers."""
        self.cycle += 1
        await RisingEdge(self.clock)
        for checker in self.checkers:
            checker.sample()
        for agent in self.agents:
            agent.sample()
        for agent in self.agents:
            agent.drive()

    async def settle(self) -> None:
        """For a design without a clock: let it answer what is driven."""
        self.cycle += 1
        await Timer(PERIOD_NS, "ns")

    async def until(self, condition: Callable[[], object], max_cycles: int, what: str) -> None:
        """Pass cycles until the condition holds; AssertionError naming `what` after `max_cycles`."""
        for _ in range(max_cycles):
            if condition():
                return
            await self.step()
        raise AssertionError(f"{what}: not within {max_cycles} cycles")
