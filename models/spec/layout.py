"""Packed little-endian layouts: named fields of whole bytes, first field at bit 0.

Used by: messages and trace (here), batch (numpy), rtl.layouts (the bridge to hardware).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """One field of a layout: `size_bytes` bytes at `offset_bytes`, an unsigned little-endian integer."""

    name: str
    size_bytes: int
    offset_bytes: int = 0

    @property
    def offset_bits(self) -> int:
        return 8 * self.offset_bytes

    @property
    def size_bits(self) -> int:
        return 8 * self.size_bytes


class Layout:
    """A fixed message layout.

    Arguments: the layout's name and (field name, bytes) pairs in order. `fields` maps names to `Field`s,
    `size_bytes` is the total.
    """

    def __init__(self, name: str, fields: list[tuple[str, int]]):
        self.name = name
        self.fields: dict[str, Field] = {}
        offset_bytes = 0
        for field_name, size_bytes in fields:
            if field_name in self.fields:
                raise ValueError(f"layout {name}: field {field_name!r} is declared twice")
            self.fields[field_name] = Field(field_name, size_bytes, offset_bytes)
            offset_bytes += size_bytes
        self.size_bytes = offset_bytes

    def pack(self, **values: int) -> bytes:
        """Bytes of the layout; fields not named are zero.

        Raises ValueError for an unknown field or a value that does not fit, naming both.
        """
        word = 0
        for name, value in values.items():
            field = self.fields.get(name)
            if field is None:
                raise ValueError(f"layout {self.name} has no field {name!r}; it has {', '.join(self.fields)}")
            if not 0 <= value < 1 << field.size_bits:
                raise ValueError(f"{self.name}.{name} = {value} does not fit in {field.size_bytes} bytes")
            word |= int(value) << field.offset_bits
        return word.to_bytes(self.size_bytes, "little")

    def unpack(self, data: bytes) -> dict[str, int]:
        """Field values of exactly `size_bytes` bytes; raises ValueError for any other length."""
        if len(data) != self.size_bytes:
            raise ValueError(f"layout {self.name} takes {self.size_bytes} bytes, not {len(data)}")
        return {
            f.name: int.from_bytes(data[f.offset_bytes : f.offset_bytes + f.size_bytes], "little")
            for f in self.fields.values()
        }
