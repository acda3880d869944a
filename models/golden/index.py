"""Two-choice bucketed index of one partition: which slot a key's tag points at (ARCHITECTURE section 5)."""

from functools import lru_cache

from ..spec.hashing import fold, place, tag_mix, whitening

#: Keys whose place is kept at hand: a key is asked for, then read or put, and asked for again.
_KEPT_PLACES = 1 << 16


@lru_cache(_KEPT_PLACES)
def _halves(digest: int, model_id: int, group: int, epoch: int, session: int, seed: int) -> tuple[int, int]:
    return place(fold(digest) ^ whitening(model_id, group, epoch, session), seed)


class Index:
    """Two tables of `1 << rows_log2` rows with `ways` entries each; no two equal tags in one candidate pair.

    A pair of rows is named by its row in the first table and the tag, so the entries are kept by that pair and only the
    occupancy of the rows is kept by position. Rows are relative to the partition.

    Used by: GoldenPartition, `kvnode bench index`.
    """

    def __init__(self, rows_log2: int, ways: int, tag_bits: int, seed: int):
        self.rows_log2, self.ways, self.tag_bits, self.seed = rows_log2, ways, tag_bits, seed
        self._row_mask = (1 << rows_log2) - 1
        self._tag_mask = (1 << tag_bits) - 1
        self._full = (1 << ways) - 1
        self._slots: dict[tuple[int, int], int] = {}
        self._valid = [0] * (1 << rows_log2), [0] * (1 << rows_log2)

    def place(self, digest: int, model_id: int, group: int, epoch: int, session: int = 0) -> tuple[int, int]:
        """(first row, tag) of a key: the name of its candidate pair. `session`: that of a private key."""
        left, right = _halves(digest, model_id, group, epoch, session, self.seed)
        return right & self._row_mask, left & self._tag_mask

    def find(self, pair: tuple[int, int]) -> int | None:
        """Slot of the one entry with this tag in the pair, or None."""
        return self._slots.get(pair)

    def choose(self, pair: tuple[int, int]) -> tuple[int, int, int] | None:
        """(table, row, way) for a new entry: lowest free way of the emptier row, the first table on a tie; None if
        full.
        """
        row0 = pair[0]
        row1 = row0 ^ tag_mix(pair[1]) & self._row_mask
        valid0, valid1 = self._valid[0][row0], self._valid[1][row1]
        if valid0.bit_count() <= valid1.bit_count():
            table, row, valid = 0, row0, valid0
        else:
            table, row, valid = 1, row1, valid1
        if valid == self._full:
            return None
        return table, row, (~valid & valid + 1).bit_length() - 1

    def insert(self, pair: tuple[int, int], where: tuple[int, int, int], slot: int) -> None:
        """Enter a slot at a place given by `choose`; the pair must hold no entry with this tag."""
        table, row, way = where
        self._valid[table][row] |= 1 << way
        self._slots[pair] = slot

    def remove(self, pair: tuple[int, int], where: tuple[int, int, int]) -> None:
        """Take an entry out by its stored place."""
        table, row, way = where
        self._valid[table][row] &= ~(1 << way)
        del self._slots[pair]

    def __len__(self) -> int:
        return len(self._slots)
