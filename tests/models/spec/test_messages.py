"""Messages on the wire, version 1: every offset as a constant, in bytes and in numpy."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnode.models.spec.batch import (
    BATCH_DTYPE,
    HANDLE_DTYPE,
    REQUEST_DTYPE,
    RESPONSE_DTYPE,
    RESULT_DTYPE,
    TRACE_DTYPE,
    dtype_of,
)
from kvnode.models.spec.config import PRESETS
from kvnode.models.spec.enums import Kind, Opcode, Status
from kvnode.models.spec.messages import (
    HANDLE,
    NUMBERED,
    REQUEST,
    RESPONSE,
    SESSION_ARGUMENTS,
    TRACE,
    VERSION,
    TraceFlag,
)

#: Offset and size of every field, written down once more: a change of the wire must be meant.
ON_THE_WIRE = {
    "request": {
        "opcode": (0, 1), "flags": (1, 1), "version": (2, 1), "klass": (3, 1), "tag": (4, 2), "model_id": (6, 2),
        "group": (8, 1), "partition": (9, 1), "member": (10, 1), "members": (11, 1), "ttl": (12, 1),
        "deadline": (13, 1), "session_epoch": (14, 2), "session": (16, 4), "sequence": (20, 4), "offset": (24, 4),
        "length": (28, 4), "digest": (32, 32),
    },
    "handle": {
        "slot": (0, 4), "generation": (4, 4), "boot_epoch": (8, 4), "lease": (12, 4), "stride": (16, 4),
        "count": (20, 4), "crc": (24, 4), "zero": (28, 4),
    },
    "session_arguments": {"ports": (0, 4), "zero": (4, 28)},
    "response": {
        "status": (0, 1), "opcode": (1, 1), "flags": (2, 1), "version": (3, 1), "tag": (4, 2), "count": (6, 2),
        "boot_epoch": (8, 4), "slot": (12, 4), "generation": (16, 4), "length": (20, 4), "watermark": (24, 4),
        "crc": (28, 4),
    },
    "trace": {
        "order": (0, 8), "cycle": (8, 8), "owner": (16, 1), "kind": (17, 1), "status": (18, 1), "partition": (19, 1),
        "group": (20, 1), "klass": (21, 1), "flags": (22, 1), "member": (23, 1), "members": (24, 1), "ttl": (25, 1),
        "deadline": (26, 1), "ports": (27, 1), "model_id": (28, 2), "session_epoch": (30, 2), "slot": (32, 4),
        "generation": (36, 4), "offset": (40, 4), "length": (44, 4), "extent": (48, 4), "row": (52, 4),
        "session": (56, 4), "sequence": (60, 4), "lease": (64, 4), "crc": (68, 4), "part_crc": (72, 4),
        "digest": (76, 32), "state_before": (108, 1), "state_after": (109, 1), "age": (110, 1), "wakes": (111, 1),
        "cause": (112, 1), "epoch": (113, 4), "block_slot": (117, 4), "block_generation": (121, 4),
        "block_length": (125, 4), "block_crc": (129, 4), "block_session": (133, 4), "block_model_id": (137, 2),
        "block_group": (139, 1), "block_private": (140, 1), "block_digest": (141, 32), "accepted": (173, 4),
        "landed": (177, 4), "free_count": (181, 4), "leases": (185, 4), "granted_lease": (189, 4),
        "found_session": (193, 4), "found_epoch": (197, 4), "committed": (201, 4),
    },
}  # fmt: skip
SIZES = {"request": 64, "handle": 32, "session_arguments": 32, "response": 32, "trace": 205}
LAYOUTS = {layout.name: layout for layout in (REQUEST, HANDLE, SESSION_ARGUMENTS, RESPONSE, TRACE)}
DTYPES = {
    "request": REQUEST_DTYPE, "handle": HANDLE_DTYPE, "session_arguments": dtype_of(SESSION_ARGUMENTS),
    "response": RESPONSE_DTYPE, "trace": TRACE_DTYPE,
}  # fmt: skip


def random_values(layout, rng):
    return {name: rng.getrandbits(field.size_bits) for name, field in layout.fields.items()}


@pytest.mark.parametrize("name", LAYOUTS)
def test_offset_and_size_of_every_field_are_those_of_version_one(name):
    layout = LAYOUTS[name]
    assert {f.name: (f.offset_bytes, f.size_bytes) for f in layout.fields.values()} == ON_THE_WIRE[name]
    assert layout.size_bytes == SIZES[name]


def test_version_is_one():
    assert VERSION == 1


@pytest.mark.parametrize("layout", [HANDLE, SESSION_ARGUMENTS], ids=lambda layout: layout.name)
def test_what_takes_the_place_of_the_digest_has_its_size(layout):
    assert layout.size_bytes == REQUEST.fields["digest"].size_bytes


def test_numbers_of_sessions_and_leases_of_every_preset_fit_below_the_bit_that_marks_them():
    assert NUMBERED == 0x80000000
    for config in PRESETS.values():
        sessions = config.sessions << config.session_generation_bits
        leases = config.leases << config.lease_generation_bits
        assert sessions <= NUMBERED and leases <= NUMBERED


def test_request_takes_every_opcode_and_a_record_every_kind_and_status():
    for layout, field, numbers in ((REQUEST, "opcode", Opcode), (TRACE, "kind", Kind), (TRACE, "status", Status)):
        for number in numbers:
            assert layout.unpack(layout.pack(**{field: number}))[field] == number


def test_request_written_by_hand():
    packed = REQUEST.pack(
        opcode=3, flags=1, version=1, klass=2, tag=0xBEEF, model_id=0x0102, group=9, partition=4, member=5, members=6,
        ttl=7, deadline=8, session_epoch=0x0A0B, session=0x80000001, sequence=0x0C0D0E0F, offset=0x100, length=0x2000,
        digest=0x1F00000002,
    )  # fmt: skip
    start = bytes.fromhex("03 01 01 02 efbe 0201 09 04 05 06 07 08 0b0a 01000080 0f0e0d0c 00010000 00200000")
    assert packed == start + bytes.fromhex("02 00 00 00 1f") + bytes(27)


def test_handle_and_arguments_written_by_hand():
    handle = HANDLE.pack(slot=1, generation=2, boot_epoch=3, lease=0x80000004, stride=5, count=6, crc=7)
    assert handle == bytes.fromhex("01000000 02000000 03000000 04000080 05000000 06000000 07000000 00000000")
    assert SESSION_ARGUMENTS.pack(ports=0x81) == b"\x81" + bytes(31)


@pytest.mark.parametrize("name", LAYOUTS)
@given(seed=st.integers(0, 1 << 32))
def test_packed_fields_lie_at_their_offsets_and_come_back(name, seed):
    layout = LAYOUTS[name]
    values = random_values(layout, random.Random(seed))
    packed = layout.pack(**values)
    assert len(packed) == SIZES[name]
    for field, (offset, size) in ON_THE_WIRE[name].items():
        assert packed[offset : offset + size] == values[field].to_bytes(size, "little")
    assert layout.unpack(packed) == values


@pytest.mark.parametrize("name", LAYOUTS)
def test_value_too_large_for_a_field_is_named(name):
    for field, (_, size) in ON_THE_WIRE[name].items():
        with pytest.raises(ValueError, match=f"{name}.{field} = {256**size} does not fit in {size} bytes"):
            LAYOUTS[name].pack(**{field: 256**size})


@pytest.mark.parametrize("name", LAYOUTS)
def test_numpy_type_has_the_fields_at_the_same_bytes(name):
    dtype = DTYPES[name]
    assert dtype.itemsize == SIZES[name]
    assert {f: (dtype.fields[f][1], dtype.fields[f][0].itemsize) for f in dtype.names} == ON_THE_WIRE[name]


@pytest.mark.parametrize("name", LAYOUTS)
def test_array_filled_in_numpy_equals_packed_messages(name):
    layout, dtype, rng = LAYOUTS[name], DTYPES[name], random.Random(name)
    rows = [random_values(layout, rng) for _ in range(50)]
    array = np.zeros(len(rows), dtype)
    for field, (_, size) in ON_THE_WIRE[name].items():
        if size > 8:
            array[field] = np.array([row[field].to_bytes(size, "little") for row in rows], f"V{size}")
        else:
            array[field] = [row[field] for row in rows]
    assert array.tobytes() == b"".join(layout.pack(**row) for row in rows)


@pytest.mark.parametrize("name", LAYOUTS)
def test_packed_messages_are_read_in_numpy(name):
    layout, rng = LAYOUTS[name], random.Random(name)
    rows = [random_values(layout, rng) for _ in range(50)]
    array = np.frombuffer(b"".join(layout.pack(**row) for row in rows), DTYPES[name])
    for field, (_, size) in ON_THE_WIRE[name].items():
        read = array[field].tolist()
        expected = [row[field] for row in rows]
        assert [int.from_bytes(v, "little") for v in read] == expected if size > 8 else read == expected


def test_batches_and_results_have_no_hidden_gaps():
    # 4 + 4 + 4 + 4 + 4 + 8 + 4 + 8 bytes before the request; 4 + 4 + 4 + 8 + 8 + 8 + 8 before the response.
    assert (BATCH_DTYPE.itemsize, BATCH_DTYPE.fields["header"][1]) == (104, 40)
    assert (RESULT_DTYPE.itemsize, RESULT_DTYPE.fields["header"][1]) == (76, 44)


def test_trace_flags_are_six_distinct_bits():
    flags = ["BY_HANDLE", "CHAIN_FIRST", "WHOLE", "PRESENT", "LEASE", "PRIVATE"]
    assert [getattr(TraceFlag, flag) for flag in flags] == [1, 2, 4, 8, 16, 32]
