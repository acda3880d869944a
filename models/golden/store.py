"""The bytes of a partition's slots."""


class Store:
    """`slots` slots of `block_bytes` bytes. Offsets and sizes are bytes; the caller has checked them.

    Used by: GoldenNode.
    """

    def __init__(self, slots: int, block_bytes: int):
        self._block_bytes = block_bytes
        self._slots: list[bytearray | None] = [None] * slots

    def write(self, slot: int, offset_bytes: int, data: bytes) -> None:
        block = self._slots[slot]
        if block is None:
            block = self._slots[slot] = bytearray(self._block_bytes)
        block[offset_bytes : offset_bytes + len(data)] = data

    def read(self, slot: int, offset_bytes: int, length_bytes: int) -> bytes:
        block = self._slots[slot]
        if block is None:
            return bytes(length_bytes)
        return bytes(block[offset_bytes : offset_bytes + length_bytes])
