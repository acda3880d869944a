"""Lease table of a partition: who keeps which block from being evicted, and until when."""

from typing import NamedTuple

from ..spec.messages import NUMBERED


class Lease(NamedTuple):
    """`generation` tells the uses of a row apart. `until`: tick at which it ends, if it is `timed`."""

    generation: int
    slot: int
    port: int
    session: int
    timed: bool
    until: int


class LeaseTable:
    """`1 << row_bits` rows at most; the lowest free one is granted.

    Used by: GoldenPartition.
    """

    def __init__(self, rows: int, row_bits: int, generation_bits: int):
        self._row_bits, self._generation_mask = row_bits, (1 << generation_bits) - 1
        self._free = (1 << rows) - 1
        self._granted = 0
        self.rows: list[Lease | None] = [None] * rows
        self._last = [(0, 0)] * rows

    @property
    def any_free(self) -> bool:
        return self._free != 0

    def grant(self, slot: int, port: int, session: int, timed: bool, until: int) -> int:
        """Number of a new lease; the caller has checked `any_free`."""
        row = (self._free & -self._free).bit_length() - 1
        self._free &= ~(1 << row)
        generation = self._granted & self._generation_mask
        self._granted += 1
        self._last[row] = slot, session
        self.rows[row] = Lease(generation, slot, port, session, timed, until)
        return NUMBERED | generation << self._row_bits | row

    def find(self, number: int, slot: int) -> int | None:
        """Row of a lease of this number on this slot, if it is held."""
        row, generation = number & (1 << self._row_bits) - 1, (number & ~NUMBERED) >> self._row_bits
        if not number & NUMBERED or row >= len(self.rows):
            return None
        lease = self.rows[row]
        return row if lease is not None and lease.generation == generation and lease.slot == slot else None

    def last(self, row: int) -> tuple[int, int]:
        """(slot, session) of the lease that a row was last granted for."""
        return self._last[row]

    def end(self, row: int) -> None:
        self.rows[row] = None
        self._free |= 1 << row

    def __len__(self) -> int:
        return len(self.rows) - self._free.bit_count()
