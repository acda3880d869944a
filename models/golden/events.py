"""The event ring of a node: the newest events are lost when nobody removes the old ones."""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from ..spec.events import CLEARED_EVENT, RING_DEPTH, SEQUENCE_BITS, event_of


class NumberedEvent(NamedTuple):
    """An event as the fields of spec.events.EVENT, and its number."""

    sequence: int
    event: dict[str, int]


class EventLog:
    """Room for `depth` events. `cleared` and `record` add, `pop` removes the oldest, which is `shown`.

    `sequence` is the number of the next event; lost ones count. `overflow`: events were lost since the ring was last
    empty.

    Used by: benches of rtl.node.events, sw_driver.transports.
    """

    def __init__(self, depth: int = RING_DEPTH):
        if depth < 1:
            raise ValueError(f"depth = {depth}: an event log has room for at least 1")
        self.depth = depth
        self.sequence = 0
        self.overflow = False
        self._events: deque[NumberedEvent] = deque()

    def __len__(self) -> int:
        return len(self._events)

    @property
    def shown(self) -> NumberedEvent | None:
        return self._events[0] if self._events else None

    def cleared(self) -> None:
        """The tables were cleared after a reset."""
        self._add(CLEARED_EVENT)

    def record(self, record: Mapping[str, int]) -> None:
        """An operation was committed: an unpacked TRACE record."""
        event = event_of(record)
        if event is not None:
            self._add(event)

    def pop(self) -> NumberedEvent | None:
        """Remove the oldest event and return it; None, and nothing happens, if there is none."""
        if not self._events:
            return None
        if len(self._events) == 1:
            self.overflow = False
        return self._events.popleft()

    def _add(self, event: Mapping[str, int]) -> None:
        if len(self._events) == self.depth:
            self.overflow = True
        else:
            self._events.append(NumberedEvent(self.sequence, dict(event)))
        self.sequence = (self.sequence + 1) % (1 << SEQUENCE_BITS)
