"""Where a key lies in the index: short tag and two rows (ARCHITECTURE section 5).

The digest is folded to 64 bits, whitened with the model, its epoch and the group, and sent through four rounds of a
keyed Feistel network (the round function of the Simon cipher, Beaulieu et al. 2013: one AND and three rotations, two
LUT levels in hardware). The seed is secret and one per partition, so that nobody outside can aim keys at a row. The
left half gives the tag, the right half the first row; the second row is the first XOR a mix of the tag, so that equal
tags which share a row share both rows.

Used by: golden.index, rtl.node.index (the same functions on hardware values).
"""

ROUNDS = 4
MASK64 = (1 << 64) - 1
FOLD_ROTATIONS = (0, 13, 29, 47)


def _rotl64(value: int, count: int) -> int:
    return ((value << count) | (value >> (64 - count))) & MASK64


def whitening(model_id: int, group: int, epoch: int) -> int:
    """64 bits that set models, epochs and groups apart."""
    return model_id | group << 16 | epoch << 24


def fold(digest: int) -> int:
    """XOR of the four 64-bit words of a digest, each rotated by its own count."""
    return (
        (digest & MASK64)
        ^ _rotl64(digest >> 64 & MASK64, 13)
        ^ _rotl64(digest >> 128 & MASK64, 29)
        ^ _rotl64(digest >> 192, 47)
    )


def place(folded: int, seed: int) -> tuple[int, int]:
    """(left, right) 32-bit halves after the keyed rounds; `seed` has 128 bits, 32 for each round."""
    left, right = folded >> 32, folded & 0xFFFFFFFF
    for _ in range(ROUNDS):
        doubled = left << 32 | left
        left, right = (
            right ^ (doubled >> 31 & doubled >> 24 ^ doubled >> 30) & 0xFFFFFFFF ^ seed & 0xFFFFFFFF,
            left,
        )
        seed >>= 32
    return left, right


def tag_mix(tag: int) -> int:
    """What separates the second row from the first; its low bits are used."""
    return tag ^ tag >> 11
