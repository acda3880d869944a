"""CRC-32C: published vectors, long division of polynomials as an independent reference, and the laws of `shift`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnode.models.spec.crc import ALL_ONES, POLYNOMIAL, X8, advance, combine, crc32c, multiply, shift

CRCS = st.integers(0, ALL_ONES)
DATA = st.binary(max_size=80)
#: Of the terms of P, 0x11EDC6F41 in RFC 3720.
EXPONENTS = (32, 28, 27, 26, 25, 23, 22, 20, 19, 18, 14, 13, 11, 10, 9, 8, 6, 0)
P = sum(1 << exponent for exponent in EXPONENTS)


def reflected(value):
    return int(f"{value:032b}"[::-1], 2)


def remainder(value):
    """Of a polynomial whose bit n is the coefficient of x^n, after the division by P."""
    while value.bit_length() > 32:
        value ^= P << value.bit_length() - 33
    return value


def by_division(data):
    """The definition: the message with the first 32 bits inverted, times x^32, modulo P, inverted."""
    bits = "".join(f"{byte:08b}"[::-1] for byte in data)
    message = int(bits + "0" * 32, 2) ^ ALL_ONES << len(bits)
    return reflected(remainder(message)) ^ ALL_ONES


def product(a, b):
    """Of two polynomials without reduction."""
    return 0 if not a else (b if a & 1 else 0) ^ product(a >> 1, b << 1)


# "123456789" is the check value of every catalogue; the others are those of RFC 3720, appendix B.4.
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
    ],
)
def test_published_vectors(data, expected):
    assert crc32c(data) == expected


def test_polynomial_is_castagnolis_in_reflection():
    assert POLYNOMIAL == reflected(P & ALL_ONES)
    assert X8 == reflected(1 << 8)


@given(st.binary(max_size=40))
def test_crc_is_the_remainder_of_a_division(data):
    assert crc32c(data) == by_division(data)


@given(DATA, DATA)
def test_crc_of_the_first_part_continues_to_that_of_the_whole(first, second):
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_bytes_will_do(kind):
    assert crc32c(kind(b"123456789")) == 0xE3069283


@given(CRCS, CRCS, st.binary(min_size=8, max_size=8), st.binary(min_size=8, max_size=8))
def test_register_step_is_linear_in_register_and_data(a, b, first, second):
    both = bytes(x ^ y for x, y in zip(first, second))
    assert advance(a ^ b, both) == advance(a, first) ^ advance(b, second)


@given(CRCS, CRCS)
def test_product_is_the_remainder_of_the_plain_product(a, b):
    assert multiply(a, b) == reflected(remainder(product(reflected(a), reflected(b))))


@given(CRCS)
def test_squaring_31_times_changes_nothing(crc):
    squared = crc
    for _ in range(31):
        squared = multiply(squared, squared)
    assert squared == crc


@given(CRCS, st.integers(0, 300))
def test_shift_is_the_register_step_over_zeros(crc, size_bytes):
    assert shift(crc, size_bytes) == advance(crc, bytes(size_bytes))


@given(CRCS, st.integers(0, 1 << 70), st.integers(0, 1 << 70))
def test_shifts_add_up_however_long(crc, first, second):
    assert shift(shift(crc, first), second) == shift(crc, first + second)


def test_shift_back_is_refused():
    with pytest.raises(ValueError, match="size_bytes = -1: a size is not negative"):
        shift(1, -1)


@given(DATA, DATA)
def test_combination_of_two_crcs_is_that_of_the_concatenation(first, second):
    assert combine(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@given(DATA, DATA, DATA)
def test_combination_may_be_made_from_either_end(a, b, c):
    of_a, of_b, of_c = crc32c(a), crc32c(b), crc32c(c)
    from_the_left = combine(combine(of_a, of_b, len(b)), of_c, len(c))
    assert from_the_left == combine(of_a, combine(of_b, of_c, len(c)), len(b) + len(c)) == crc32c(a + b + c)
