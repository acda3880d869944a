"""CRC-32C, the Castagnoli checksum, and its arithmetic (Castagnoli et al. 1993; RFC 3720 appendix B.4).

A CRC is a polynomial over GF(2) modulo P = x^32 + ... + 1 in 32 bits, *reflected*: bit 31 is the coefficient of x^0,
bit 0 that of x^31. Data come byte by byte, in each byte the lowest bit first. A *register* is that residue as it is; a
*standard* CRC is the register that began at all ones, inverted at the end. All functions take and give 32-bit values.

Every step here is linear over GF(2): f(a ^ b) = f(a) ^ f(b). So hardware for one of them is, for each bit of the
result, the XOR of the input bits whose basis vectors the function maps to a value with that bit.

Used by: golden.crc, rtl.crc (its constants).
"""

#: P without x^32, reflected.
POLYNOMIAL = 0x82F63B78
ALL_ONES = 0xFFFFFFFF
#: The polynomial x^8: what one byte multiplies by.
X8 = 1 << 31 - 8


def _times_x(residue: int) -> int:
    return residue >> 1 ^ (POLYNOMIAL if residue & 1 else 0)


def _byte_step(register: int) -> int:
    for _ in range(8):
        register = _times_x(register)
    return register


_TABLE = tuple(_byte_step(byte) for byte in range(256))


def advance(register: int, data: bytes | bytearray | memoryview) -> int:
    """The register after some bytes: register * x^(8n) + data * x^32 modulo P, linear in the register and the data
    together.
    """
    for byte in data:
        register = register >> 8 ^ _TABLE[(register ^ byte) & 0xFF]
    return register


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Standard CRC of some bytes, or of what had the standard CRC `crc` with those bytes behind it, as zlib.crc32 does.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return advance(crc ^ ALL_ONES, data) ^ ALL_ONES


def multiply(a: int, b: int) -> int:
    """Product of two residues: a * b modulo P."""
    product = 0
    for bit in reversed(range(32)):
        if a >> bit & 1:
            product ^= b
        b = _times_x(b)
    return product


def shift(crc: int, size_bytes: int) -> int:
    """crc * x^(8 * size_bytes) modulo P, in O(log size_bytes) products; a register so many zero bytes later.

    Raises ValueError for a negative size.
    """
    if size_bytes < 0:
        raise ValueError(f"size_bytes = {size_bytes}: a size is not negative")
    power = X8
    while size_bytes:
        if size_bytes & 1:
            crc = multiply(crc, power)
        power = multiply(power, power)
        size_bytes >>= 1
    return crc


def combine(first: int, second: int, second_bytes: int) -> int:
    """Standard CRC of a concatenation from those of its two parts, as zlib's crc32_combine.

    With A and B the parts and ~ the inversion, crc(AB) = ~advance(~crc(A), B) = shift(crc(A)) ^ shift(ones) ^
    ~advance(0, B) = shift(crc(A)) ^ crc(B): the inversions cancel, so that no register is needed.
    """
    return shift(first, second_bytes) ^ second
