"""Packed layouts: bytes worked out by hand, round trips, and errors that name field and value."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnode.models.spec.layout import Layout

MIXED = Layout("mixed", [("low", 1), ("middle", 3), ("high", 2)])


def test_first_field_is_at_bit_zero_and_bytes_are_little_endian():
    assert MIXED.pack(low=0x01, middle=0x040302, high=0x0605) == bytes([1, 2, 3, 4, 5, 6])


def test_offsets_and_sizes_follow_the_order_of_declaration():
    where = {name: (f.offset_bytes, f.size_bytes, f.offset_bits, f.size_bits) for name, f in MIXED.fields.items()}
    assert where == {"low": (0, 1, 0, 8), "middle": (1, 3, 8, 24), "high": (4, 2, 32, 16)}
    assert MIXED.size_bytes == 6


def test_fields_that_are_not_named_are_zero():
    assert MIXED.pack(high=1) == bytes([0, 0, 0, 0, 1, 0])
    assert MIXED.pack() == bytes(6)


@given(st.data())
def test_unpack_gives_back_what_was_packed(data):
    sizes = data.draw(st.lists(st.integers(1, 33), min_size=1, max_size=8))
    layout = Layout("drawn", [(f"f{index}", size) for index, size in enumerate(sizes)])
    values = {f"f{index}": data.draw(st.integers(0, 256**size - 1)) for index, size in enumerate(sizes)}
    packed = layout.pack(**values)
    assert packed == b"".join(values[f"f{index}"].to_bytes(size, "little") for index, size in enumerate(sizes))
    assert layout.unpack(packed) == values


def test_field_declared_twice_is_refused():
    with pytest.raises(ValueError, match="layout mixed: field 'a' is declared twice"):
        Layout("mixed", [("a", 1), ("b", 2), ("a", 1)])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"low": 256}, "mixed.low = 256 does not fit in 1 bytes"),
        ({"middle": 1 << 24}, "mixed.middle = 16777216 does not fit in 3 bytes"),
        ({"high": -1}, "mixed.high = -1 does not fit in 2 bytes"),
        ({"hihg": 1}, "layout mixed has no field 'hihg'; it has low, middle, high"),
    ],
)
def test_value_that_cannot_be_packed_is_named(values, message):
    with pytest.raises(ValueError) as caught:
        MIXED.pack(**values)
    assert str(caught.value) == message


@pytest.mark.parametrize("size", [0, 5, 7])
def test_data_of_another_size_is_refused(size):
    with pytest.raises(ValueError, match=f"layout mixed takes 6 bytes, not {size}"):
        MIXED.unpack(bytes(size))
