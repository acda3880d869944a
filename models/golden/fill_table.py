"""Fill table: one row per block being written, and which rows of a partition are taken."""

from dataclasses import dataclass, field

from ..spec.requests import MAX_MEMBERS
from ..spec.timing import FILL_ROW_RELEASE_CYCLES


@dataclass(slots=True)
class Part:
    """What one member writes: its port, the watermarks and the end of its part (beats), its running CRC."""

    port: int
    accepted: int
    landed: int
    end: int
    crc: int = 0


@dataclass(slots=True)
class Fill:
    """A block being written by `members`, each a share of `extent` beats.

    `done`: mask of the members that are complete, `crc`: what they contribute to that of the block. `ports`: mask of
    the members' ports, `waiters`: of those to wake. `epoch`, `sequence`: of the block in its session. With `timed` the
    block is given up at tick `deadline`.
    """

    row: int
    extent: int
    members: int
    epoch: int
    sequence: int
    timed: bool
    deadline: int
    ports: int = 0
    waiters: int = 0
    done: int = 0
    crc: int = 0
    parts: list[Part | None] = field(default_factory=lambda: [None] * MAX_MEMBERS)


class FillTable:
    """`rows` blocks can be written at a time.

    A freed row can be granted again to operations issued FILL_ROW_RELEASE_CYCLES later: the one place where the cycle
    of an operation and not only its order matters.

    Used by: GoldenPartition.
    """

    def __init__(self, rows: int):
        self._free = (1 << rows) - 1
        self._freed: list[tuple[int, int]] = []
        #: Slot that each row was last granted for.
        self.slots = [0] * rows

    def lowest_free(self, cycle: int) -> int | None:
        """Lowest row free for an operation committed at `cycle`, or None."""
        while self._freed and self._freed[0][0] <= cycle:
            self._free |= 1 << self._freed.pop(0)[1]
        return (self._free & -self._free).bit_length() - 1 if self._free else None

    def take(self, row: int, slot: int) -> None:
        self._free &= ~(1 << row)
        self.slots[row] = slot

    def release(self, row: int, cycle: int) -> None:
        """Give a row back by an operation committed at `cycle`."""
        self._freed.append((cycle + FILL_ROW_RELEASE_CYCLES, row))
