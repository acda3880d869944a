"""The builder, the cycle bound and the digests, against values computed by hand."""

import hashlib

import numpy as np
import pytest

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec import crc as spec
from kvnode.models.spec.config import preset
from kvnode.models.spec.enums import Opcode, Status
from kvnode.models.spec.messages import HANDLE, REQUEST
from kvnode.models.spec.requests import Handle, check_request
from kvnode.sw_driver.batch import BatchBuilder, blank_requests
from kvnode.sw_driver.keys import block_digest, chained_digest, truncated
from kvnode.sw_driver.transport import cycle_bound

TINY, SIM = preset("tiny"), preset("sim")


def test_header_is_what_the_layout_packs():
    builder = BatchBuilder(SIM)
    builder.add(Opcode.PING, 0)
    fields = {"model_id": 3, "group": 7, "klass": 2, "member": 4, "members": 5, "ttl": 6, "deadline": 8, "offset": 32,
              "session": 9, "session_epoch": 10, "sequence": 11, "length": 4096}  # fmt: skip
    builder.add(Opcode.PUT_START, 2, digest=bytes(range(32)), lock=True, private=True, **fields)
    batch, payload = builder.build()
    expected = REQUEST.pack(opcode=Opcode.PUT_START, flags=6, version=1, tag=1, partition=2, **fields,
                            digest=int.from_bytes(bytes(range(32)), "little"))  # fmt: skip
    assert batch["header"][1].tobytes() == expected
    assert (payload, batch["port"].tolist()) == (b"", [0, 2])


def test_order_stands_beside_the_header():
    builder = BatchBuilder(SIM)
    builder.add(Opcode.PING, 0)
    builder.add(Opcode.PING, 3, after=0, handle_from=-1, session_from=0, patience=7, earliest_cycle=1 << 40)
    (plain, ordered), _ = builder.build()
    names = ("after", "handle_from", "session_from", "patience", "earliest_cycle")
    assert [int(plain[name]) for name in names] == [-1, -1, -1, 0, 0]
    assert [int(ordered[name]) for name in names] == [0, -1, 0, 7, 1 << 40]


def test_runs_and_checksum_are_in_the_handle():
    builder = BatchBuilder(SIM)
    handle = HANDLE.pack(slot=1, generation=2, boot_epoch=3, lease=4)
    builder.add(Opcode.READ, 0, digest=handle, by_handle=True, stride=64, count=5)
    builder.add(Opcode.PUT_END, 0, digest=handle, crc=0xDEADBEEF)
    header = builder.build()[0]["header"]
    assert header["flags"].tolist() == [1, 0]
    assert header["digest"][0].tobytes() == HANDLE.pack(slot=1, generation=2, boot_epoch=3, lease=4, stride=64, count=5)
    assert header["digest"][1].tobytes() == HANDLE.pack(slot=1, generation=2, boot_epoch=3, lease=4, crc=0xDEADBEEF)


def test_put_ends_with_the_checksum_and_numbers_count_the_blocks():
    builder = BatchBuilder(SIM)
    blocks = [(bytes([n]) * 32, bytes([n]) * 4096) for n in range(2)]
    places = builder.puts(0, blocks, numbers=[7, 9], session=5, ttl=3)
    header = builder.build()[0]["header"]
    for (start, _, end), (_, data), number in zip(places, blocks, (7, 9)):
        assert Handle.of(int.from_bytes(header["digest"][end].tobytes(), "little")).crc == spec.crc32c(data)
        assert (header["sequence"][start], header["session"][start], header["ttl"][start]) == (number, 5, 3)
        assert (header["length"][end], header["members"][end], header["session"][end]) == (0, 0, 0)


def test_shards_are_written_behind_each_other_over_the_ports():
    builder = BatchBuilder(TINY)
    shards = [bytes([n]) * 32 for n in range(3)]
    (members,) = builder.put_shards([1], [(bytes(32), shards)])
    batch, payload = builder.build()
    header = batch["header"]
    assert payload == b"".join(shards)
    for member, (start, (write,), end) in enumerate(members):
        assert (header["member"][start], header["members"][start], header["length"][start]) == (member, 3, 32)
        assert (header["member"][write], header["members"][write], header["offset"][write]) == (member, 0, 32 * member)
        assert (header["member"][end], header["members"][end], header["length"][end]) == (member, 3, 32)
        assert Handle.of(int.from_bytes(header["digest"][end].tobytes(), "little")).crc == spec.crc32c(shards[member])
        assert check_request(TINY, 1, 0, REQUEST.unpack(header[start].tobytes()), 0) == Status.OK


def test_no_more_shared_blocks_are_begun_than_there_are_rows():
    builder = BatchBuilder(SIM)
    blocks = [(bytes([n]) * 32, [bytes(32)] * 2) for n in range(4)]
    places = builder.put_shards([0, 3], blocks, rows=2)
    batch, _ = builder.build()
    assert batch["port"][[start for start, _, _ in places[0]]].tolist() == [0, 3]
    ends = [members[-1][2] for members in places]
    for number, members in enumerate(places):
        wanted = ends[number - 2] if number >= 2 else -1
        assert {int(batch["after"][start]) for start, _, _ in members} == {wanted}
        assert batch["after"][members[1][2]] == members[0][2]


@pytest.mark.parametrize("fields", [{"ttl": 256}, {"group": -1}, {"after": 1 << 31}, {"deadline": 1000}])
def test_value_that_does_not_fit_is_refused(fields):
    with pytest.raises(ValueError, match="PING on port 1 of 2: a field does not fit"):
        BatchBuilder(TINY).add(Opcode.PING, 1, **fields)


def test_port_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="PING on port 2 of 2"):
        BatchBuilder(TINY).add(Opcode.PING, 2)


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
    assert batch["handle_from"].tolist() == batch["session_from"].tolist() == [-1] * 3


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
    batch["patience"] = 2**32 - 1
    assert cycle_bound(SIM, batch) > 10**9 + len(batch) * (2**32 - 1)


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


def test_checksum_is_that_of_the_spec():
    data = bytes(range(256)) * 3
    assert crc32c(data) == spec.crc32c(data) == crc32c(memoryview(data)[100:], crc32c(bytearray(data[:100])))
