"""CRC-32C of whole blocks: at the speed of C where google_crc32c is installed, else by `spec.crc`; the same numbers."""

from ..spec import crc as spec


def _pure(crc: int, data: bytes) -> int:
    return spec.crc32c(data, crc)


try:
    from google_crc32c import extend as _extend
except ImportError:
    _extend = _pure


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """Standard CRC of some bytes, or of what had the standard CRC `crc` (32 bits) with those bytes behind it.

    Used by: golden.node, benches.
    """
    return _extend(crc, data if isinstance(data, bytes) else bytes(data))
