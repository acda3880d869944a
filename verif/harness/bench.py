"""Harnesses around the stand-in, and batches for it. Used by: the tests of the harness."""

import functools

import numpy as np

from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.config import preset

from . import stand_in
from .harness import Harness

LIMIT_CYCLES = 2000
BOOT_EPOCH = 5
#: In the stand-in's top module: a write of register 0xDEAD ends in the model's own error.
BOOBY_TRAP = 'always @(posedge clk) if (axi_awvalid && axi_awaddr == 16\'hDEAD) $fatal(1, "the trap was sprung");'

BATCH_FIELDS = BATCH_DTYPE.names or ()

CONFIGS = {
    "narrow": preset("tiny").replace(beat_bytes=8),
    "tiny": preset("tiny"),
    "sim": preset("sim"),
    "wide": preset("wide"),
}


@functools.cache
def _verilog(name: str) -> str:
    return stand_in.verilog(CONFIGS[name], BOOBY_TRAP)


def open_harness(name: str = "tiny", waves=None, **options) -> Harness:
    harness = Harness(CONFIGS[name], text=_verilog(name), waves=waves, optimise=False, **options)
    harness.reset(BOOT_EPOCH)
    return harness


def batch_of(*requests: dict) -> np.ndarray:
    """A batch of requests given as the fields that matter; a tag that is not given is the index plus 100."""
    batch = np.zeros(len(requests), BATCH_DTYPE)
    batch["after"] = batch["handle_from"] = batch["session_from"] = -1
    for index, request in enumerate(requests):
        batch[index]["header"]["tag"] = index + 100
        for name, value in request.items():
            if name == "digest":
                value = np.void(value.ljust(32, b"\0"))
            (batch[index] if name in BATCH_FIELDS else batch[index]["header"])[name] = value
    return batch


def read_bytes(first_word: int, length: int) -> bytes:
    """The payload with which the stand-in answers a READ of `sequence` first_word."""
    return b"".join(word.to_bytes(4, "little") for word in range(first_word, first_word + length // 4))


def words_xor(data: bytes) -> int:
    value = 0
    for place in range(0, len(data), 4):
        value ^= int.from_bytes(data[place : place + 4].ljust(4, b"\0"), "little")
    return value
