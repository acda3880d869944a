"""Where a key lies in the index: short tag and two rows (ARCHITECTURE section 5).

The digest is folded to 64 bits, whitened with the model, its epoch and the group, spread by one linear layer and sent
through six rounds of a keyed Feistel network in the manner of the Simon cipher (Beaulieu et al. 2013): a round is one
AND and four XORs, two LUT levels in hardware. Flipping any input bit flips every output bit with a chance near one
half. The seed is secret and one per partition, so that nobody outside can aim keys at a row. The left half gives the
tag, the right half the first row; the second row is the first XOR a mix of the tag, so that equal tags which share a
row share both rows.

Used by: golden.index, rtl.node.index (the same functions on hardware values).
"""

ROUNDS = 6
#: Bits of a seed: a key of 32 bits for each round.
SEED_BITS = 32 * ROUNDS
FOLD_ROTATIONS = (0, 13, 29, 47)
SPREAD_ROTATIONS = (25, 47)
#: The rotations that are ANDed, and those that are XORed.
AND_ROTATIONS = (1, 8)
XOR_ROTATIONS = (2, 13)

_MASK64 = (1 << 64) - 1


def _rotl64(value: int, count: int) -> int:
    return ((value << count) | (value >> (64 - count))) & _MASK64


#: Bits of a session's number below the highest.
_NUMBER_BITS = 31


def whitening(model_id: int, group: int, epoch: int, session: int = 0) -> int:
    """64 bits that set models, epochs and groups apart. `session`: the number of the one that the key is private to.

    Models, groups and epochs stand from the lowest bit upwards, the session from the highest downwards.
    """
    whitened = model_id ^ group << 16 ^ epoch << 24
    if session:
        whitened ^= session >> _NUMBER_BITS << 63
        for bit in range(_NUMBER_BITS):
            whitened ^= (session >> bit & 1) << 62 - bit
    return whitened


def fold(digest: int) -> int:
    """XOR of the four 64-bit words of a digest, each rotated by its own count."""
    folded = 0
    for word, rotation in enumerate(FOLD_ROTATIONS):
        folded ^= _rotl64(digest >> 64 * word & _MASK64, rotation)
    return folded


def place(folded: int, seed: int) -> tuple[int, int]:
    """(left, right) 32-bit halves of a folded and whitened digest after the keyed rounds."""
    first, second = SPREAD_ROTATIONS
    folded ^= _rotl64(folded, first) ^ _rotl64(folded, second)
    left, right = folded >> 32, folded & 0xFFFFFFFF
    for _ in range(ROUNDS):
        # The left half twice in a row: its rotation by n is a shift by 32 - n.
        doubled = left << 32 | left
        mixed = (doubled >> 31 & doubled >> 24) ^ doubled >> 30 ^ doubled >> 19 ^ right ^ seed & 0xFFFFFFFF
        left, right = mixed & 0xFFFFFFFF, left
        seed >>= 32
    return left, right


def tag_mix(tag: int) -> int:
    """What separates the second row from the first; its low bits are used."""
    return tag ^ tag >> 11
