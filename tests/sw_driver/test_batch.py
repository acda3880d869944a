"""The builder, the cycle bound and the digests, against values computed by hand."""

import hashlib

import numpy as np
import pytest

from kvnode.models.spec.config import preset
from kvnode.models.spec.enums import Opcode, Status
from kvnode.models.spec.messages import REQUEST
from kvnode.sw_driver.batch import BatchBuilder, blank_requests
from kvnode.sw_driver.errors import KvError
from kvnode.sw_driver.keys import block_digest, chained_digest, truncated
from kvnode.sw_driver.transport import cycle_bound

TINY, SIM = preset("tiny"), preset("sim")


def test_header_is_what_the_layout_packs():
    builder = BatchBuilder(SIM)
    builder.add(Opcode.PING, 0)
    builder.add(Opcode.PUT_START, 2, digest=bytes(range(32)), model_id=3, group=7, klass=2, length=4096)
    batch, payload = builder.build()
    expected = REQUEST.pack(opcode=Opcode.PUT_START, version=1, klass=2, tag=1, model_id=3, group=7, partition=2,
                            length=4096, digest=int.from_bytes(bytes(range(32)), "little"))  # fmt: skip
    assert batch["header"][1].tobytes() == expected
    assert (payload, batch["port"].tolist(), batch["after"].tolist()) == (b"", [0, 2], [-1, -1])


def test_payloads_stand_behind_each_other():
    builder = BatchBuilder(SIM)
    for data in (b"a" * 32, b"", b"b" * 64):
        builder.add(Opcode.MATCH, 0, payload=data, length=len(data))
    batch, payload = builder.build()
    assert payload == b"a" * 32 + b"b" * 64
    assert batch["payload_offset"].tolist() == [0, 32, 32] and batch["payload_bytes"].tolist() == [32, 0, 64]


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        (1, "S0 W0 E0 S1 W1 E1 S2 W2 E2"),
        (2, "S0 S1 W0 E0 S2 W1 E1 W2 E2"),
        (4, "S0 S1 W0 S2 W1 E0 W2 E1 E2"),
    ],
)
def test_puts_are_interleaved_as_far_as_fill_rows_allow(rows, order):
    builder = BatchBuilder(SIM)
    places = builder.puts(0, [(bytes([n]) * 32, bytes(4096)) for n in range(3)], rows=rows)
    named = {}
    for number, (start, writes, end) in enumerate(places):
        named |= {start: f"S{number}", end: f"E{number}"} | {index: f"W{number}" for index in writes}
    assert " ".join(named[index] for index in range(len(builder))) == order


def test_block_longer_than_a_payload_is_written_in_pieces():
    builder = BatchBuilder(TINY)
    data = bytes(range(112))
    ((_, writes, _),) = builder.puts(1, [(bytes(32), data)])
    batch, payload = builder.build()
    header = batch["header"][writes]
    assert header["offset"].tolist() == [0, 64] and header["length"].tolist() == [64, 48]
    assert payload == data


def test_blank_requests_know_their_partition():
    batch = blank_requests(SIM, np.array([3, 1, 2]), Opcode.LOOKUP)
    assert batch["header"]["partition"].tolist() == [0, 1, 2]
    assert batch["handle_from"].tolist() == [-1] * 3


def test_bound_covers_every_beat_and_grows_with_idle_links():
    builder = BatchBuilder(SIM)
    builder.puts(0, [(bytes(32), bytes(4096))])
    builder.read(0, bytes(32))
    batch, _ = builder.build()
    beats = 4 * 2 + 128 + 4 * 1 + 128
    assert cycle_bound(SIM, batch) > 2 * beats
    assert cycle_bound(SIM, batch, idle=0.5) >= 2 * (cycle_bound(SIM, batch) - 1)
    batch["earliest_cycle"][-1] = 10**9
    assert cycle_bound(SIM, batch) > 10**9


def test_digest_is_sha256_of_seed_model_and_block():
    assert block_digest(1, 2, 3) == hashlib.sha256(b"1/2/3").digest()
    assert len({block_digest(seed, model, block) for seed in (0, 1) for model in (0, 1) for block in range(50)}) == 200


def test_truncated_digest_fits_the_configuration():
    digest = truncated(b"\xff" * 32, 12)
    assert digest == (0xFFF).to_bytes(32, "little")
    assert truncated(b"\xff" * 32, 256) == b"\xff" * 32


def test_chained_digest_depends_on_every_part_and_its_place():
    root = chained_digest(b"", b"tokens")
    others = [chained_digest(b"tokens", b""), chained_digest(b"", b"token", b"s"), chained_digest(root, b"tokens")]
    assert len({root, *others}) == 4


def test_errors_carry_status_and_mooncake_number():
    error = KvError(Status.NO_SPACE, "put")
    assert (str(error), error.mooncake) == ("put: NO_SPACE (-200)", -200)
    assert KvError(Status.BUSY, "put").mooncake is None
