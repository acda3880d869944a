"""Packed little-endian layouts: named fields of whole bytes, first field at bit 0.

Used by: messages and trace (here), batch (numpy), rtl.layouts (the bridge to hardware).
"""

import struct
from dataclasses import dataclass
from typing import Any

#: Sizes that `struct` turns into numbers by itself; other fields pass as raw bytes.
_STRUCT_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


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
        sizes = {name: field.size_bytes for name, field in self.fields.items()}
        self._struct = struct.Struct("<" + "".join(_STRUCT_CODES.get(size, f"{size}s") for size in sizes.values()))
        self._raw = {name: size for name, size in sizes.items() if size not in _STRUCT_CODES}
        self._names, self._zeros = tuple(self.fields), dict.fromkeys(self.fields, 0)

    def pack(self, **values: int) -> bytes:
        """Bytes of the layout; fields not named are zero.

        Raises ValueError for an unknown field or a value that does not fit, naming both.
        """
        row: dict[str, Any] = self._zeros | values
        try:
            for name, size in self._raw.items():
                row[name] = int(row[name]).to_bytes(size, "little")
            return self._struct.pack(*row.values())
        except (struct.error, OverflowError):
            raise self._explain(values) from None

    def _explain(self, values: dict[str, int]) -> ValueError:
        """What was wrong with values that could not be packed."""
        for name, value in values.items():
            field = self.fields.get(name)
            if field is None:
                return ValueError(f"layout {self.name} has no field {name!r}; it has {', '.join(self.fields)}")
            if not 0 <= value < 1 << field.size_bits:
                return ValueError(f"{self.name}.{name} = {value} does not fit in {field.size_bytes} bytes")
        return ValueError(f"layout {self.name} cannot hold {values}")

    def unpack(self, data: bytes) -> dict[str, int]:
        """Field values of exactly `size_bytes` bytes; raises ValueError for any other length."""
        try:
            row = self._struct.unpack(data)
        except struct.error:
            raise ValueError(f"layout {self.name} takes {self.size_bytes} bytes, not {len(data)}") from None
        values: dict[str, Any] = self._zeros.copy()
        values.update(zip(self._names, row))
        for name in self._raw:
            values[name] = int.from_bytes(values[name], "little")
        return values
