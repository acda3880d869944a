"""Streams: a source, a sink, and the one checker of the stream laws. Idle and backpressure are patterns of both.

Used by: agents.bench (which puts a checker on every stream), every bench with streams, agents.port.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .bench import Bench

__all__ = ["Sink", "Source", "StreamChecker", "StreamViolation", "pattern"]


def pattern(name: str, seed: int) -> Callable[[], bool]:
    """A function that says in each cycle whether to hold back.

    `name`: "none", "half" and "most" (at random, with that probability), "bursts" (runs of random length of both
    kinds), "alternate".
    """
    rng = random.Random(seed)
    if name == "none":
        return lambda: False
    if name == "half":
        return lambda: rng.getrandbits(1) == 1
    if name == "most":
        return lambda: rng.getrandbits(3) != 0
    if name == "alternate":
        state = [False]

        def alternate() -> bool:
            state[0] = not state[0]
            return state[0]

        return alternate
    if name == "bursts":
        run = [0, False]

        def bursts() -> bool:
            if run[0] == 0:
                run[0], run[1] = rng.randrange(1, 40), not run[1]
            run[0] -= 1
            return bool(run[1])

        return bursts
    raise ValueError(f"pattern {name!r}: there are none, half, most, bursts, alternate")


class StreamViolation(AssertionError):
    """A stream broke a law; the message names the stream, the cycle and the law."""


class StreamChecker:
    """Watches the stream whose pins begin with `prefix`: valid is never withdrawn, the payload stands until taken.

    Every pin with the prefix that is neither valid nor ready is payload. `transfers` counts.
    """

    def __init__(self, bench: "Bench", prefix: str):
        self.bench, self.prefix = bench, prefix
        self._valid, self._ready = bench.pins[f"{prefix}valid"], bench.pins[f"{prefix}ready"]
        self._payload = [
            (name, pin)
            for name, pin in bench.pins.items()
            if name.startswith(prefix) and pin not in (self._valid, self._ready)
        ]
        self._waiting: list[int] | None = None
        self.transfers = 0

    def sample(self) -> None:
        if not self._valid.value:
            if self._waiting is not None:
                self._fail("valid was withdrawn before the item was taken")
            return
        payload = [pin.value for _, pin in self._payload]
        if self._waiting is not None and payload != self._waiting:
            changed = [name for (name, _), now, was in zip(self._payload, payload, self._waiting) if now != was]
            self._fail(f"{', '.join(changed)} changed before the item was taken")
        if self._ready.value:
            self._waiting = None
            self.transfers += 1
        else:
            self._waiting = payload

    def _fail(self, law: str) -> None:
        raise StreamViolation(f"stream {self.prefix.rstrip('_')} in cycle {self.bench.cycle}: {law}")


class Source:
    """Puts items into an input stream, each a tuple of the values of the payload pins `payload`.

    `idle`: pattern of cycles in which no new item is offered. `queue`: what is still to be sent. `accepted` is called
    with each item and the cycle in which it was taken.
    """

    def __init__(
        self,
        bench: "Bench",
        prefix: str,
        payload: Iterable[str] = ("payload",),
        idle: Callable[[], bool] = lambda: False,
        accepted: Callable[[tuple[int, ...], int], None] = lambda item, cycle: None,
    ):
        self.bench, self.idle, self.accepted = bench, idle, accepted
        self._valid, self._ready = bench.pins[f"{prefix}valid"], bench.pins[f"{prefix}ready"]
        self._payload = [bench.pins[f"{prefix}{name}"] for name in payload]
        self.queue: deque[tuple[int, ...]] = deque()
        self._offered: tuple[int, ...] | None = None
        bench.add(self)

    @property
    def busy(self) -> bool:
        return bool(self.queue) or self._offered is not None

    def sample(self) -> None:
        if self._offered is not None and self._ready.value:
            item, self._offered = self._offered, None
            self.accepted(item, self.bench.cycle)

    def drive(self) -> None:
        if self._offered is None:
            if self.idle() or not self.queue:
                self._valid.drive(0)
                return
            self._offered = self.queue.popleft()
            for pin, value in zip(self._payload, self._offered):
                pin.drive(value)
        self._valid.drive(1)


class Sink:
    """Takes the items of an output stream: `take` is called with each one and its cycle, or they gather in `items`.

    `backpressure`: pattern of cycles in which ready is low.
    """

    def __init__(
        self,
        bench: "Bench",
        prefix: str,
        payload: Iterable[str] = ("payload",),
        backpressure: Callable[[], bool] = lambda: False,
        take: Callable[[tuple[int, ...], int], None] | None = None,
    ):
        self.bench, self.backpressure = bench, backpressure
        self._valid, self._ready = bench.pins[f"{prefix}valid"], bench.pins[f"{prefix}ready"]
        self._payload = [bench.pins[f"{prefix}{name}"] for name in payload]
        self.items: list[tuple[int, ...]] = []
        self._take = take or (lambda item, cycle: self.items.append(item))
        self._is_ready = False
        bench.add(self)

    def sample(self) -> None:
        if self._is_ready and self._valid.value:
            self._take(tuple(pin.value for pin in self._payload), self.bench.cycle)

    def drive(self) -> None:
        self._is_ready = not self.backpressure()
        self._ready.drive(int(self._is_ready))
