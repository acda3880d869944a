"""Structs of rtl.layouts as whole numbers on a pin.

Used by: benches of blocks with struct ports.
"""

from typing import Any

from amaranth.lib import data

__all__ = ["Fields"]


class Fields:
    """Packs and unpacks the fields of a struct layout; a field that is a struct itself is a whole number."""

    def __init__(self, layout: Any):
        layout = data.Layout.cast(layout)
        self.places = {name: (field.offset, (1 << field.width) - 1) for name, field in layout}

    def pack(self, **values: int) -> int:
        word = 0
        for name, value in values.items():
            offset, mask = self.places[name]
            if value & ~mask:
                raise ValueError(f"{name} = {value} does not fit in {mask.bit_length()} bits")
            word |= value << offset
        return word

    def unpack(self, word: int) -> dict[str, int]:
        return {name: word >> offset & mask for name, (offset, mask) in self.places.items()}
