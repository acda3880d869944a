"""Which rows of a partition's fill table are taken."""

from ..spec.timing import FILL_ROW_RELEASE_CYCLES


class FillTable:
    """`rows` blocks can be written at a time.

    A freed row can be granted again to operations issued FILL_ROW_RELEASE_CYCLES later: the one place where the cycle
    of an operation and not only its order matters.

    Used by: GoldenPartition.
    """

    def __init__(self, rows: int):
        self._free = (1 << rows) - 1
        self._freed: list[tuple[int, int]] = []

    def lowest_free(self, cycle: int) -> int | None:
        """Lowest row free for an operation committed at `cycle`, or None."""
        while self._freed and self._freed[0][0] <= cycle:
            self._free |= 1 << self._freed.pop(0)[1]
        return (self._free & -self._free).bit_length() - 1 if self._free else None

    def take(self, row: int) -> None:
        self._free &= ~(1 << row)

    def release(self, row: int, cycle: int) -> None:
        """Give a row back by an operation committed at `cycle`."""
        self._freed.append((cycle + FILL_ROW_RELEASE_CYCLES, row))
