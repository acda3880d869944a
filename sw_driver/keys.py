"""Digests of blocks, and the bytes that stand for a block's contents in replays and tests."""

import hashlib
from collections import OrderedDict

#: Bytes of payloads kept at hand.
CACHE_LIMIT_BYTES = 64 << 20


def chained_digest(parent: bytes, tokens: bytes, extra: bytes = b"") -> bytes:
    """Content address of a full block: SHA-256 over the digest of the block before it, the tokens and what else the
    contents depend on (adapter, salt, image). Each part is led by its length, so that no two lists of parts are alike.

    The node takes any 32 bytes; this is for programs whose engine does not make them.
    """
    state = hashlib.sha256()
    for part in (parent, tokens, extra):
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


def truncated(digest: bytes, digest_bits: int) -> bytes:
    """The digest with all but its low `digest_bits` bits cleared (small configurations keep few)."""
    if digest_bits >= 256:
        return digest
    return (int.from_bytes(digest, "little") & (1 << digest_bits) - 1).to_bytes(32, "little")


def block_digest(seed: int, model_id: int, block_id: int | str, digest_bits: int = 256) -> bytes:
    """Digest of block `block_id` of a trace. Tenants do not enter: two tenants may hold equal digests."""
    text = f"{seed}/{model_id}/{block_id}".encode()
    return truncated(hashlib.sha256(text).digest(), digest_bits)


class Contents:
    """What the block of a key holds: `size_bytes` bytes drawn from the key, so that every read can be checked.

    The key here is (partition, model, how often that model was retired, digest): a block of another tenant, another
    model or an earlier version of the model has other bytes.

    Used by: workload, benches.
    """

    def __init__(self, size_bytes: int):
        self._size_bytes = size_bytes
        self._limit = max(1, CACHE_LIMIT_BYTES // size_bytes)
        self._cache: OrderedDict[tuple[int, int, int, bytes], bytes] = OrderedDict()

    def of(self, partition: int, model_id: int, version: int, digest: bytes) -> bytes:
        key = (partition, model_id, version, digest)
        data = self._cache.get(key)
        if data is None:
            prefix = f"{partition}/{model_id}/{version}/".encode()
            data = hashlib.shake_128(prefix + digest).digest(self._size_bytes)
            self._cache[key] = data
            if len(self._cache) > self._limit:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        return data
