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
)
from kvnode.models.spec.messages import HANDLE, REQUEST, RESPONSE, TRACE, VERSION, TraceFlag

#: Offset and size of every field, written down once more: a change of the wire must be meant.
ON_THE_WIRE = {
    "request": {
        "opcode": (0, 1), "flags": (1, 1), "version": (2, 1), "klass": (3, 1), "tag": (4, 2), "model_id": (6, 2),
        "group": (8, 1), "partition": (9, 1), "member": (10, 1), "ttl": (11, 1), "deadline": (12, 1),
        "reserved": (13, 1), "session_epoch": (14, 2), "session": (16, 4), "sequence": (20, 4), "offset": (24, 4),
        "length": (28, 4), "digest": (32, 32),
    },
    "handle": {
        "slot": (0, 4), "generation": (4, 4), "boot_epoch": (8, 4), "run": (12, 4), "stride": (16, 4), "crc": (20, 4),
        "zero": (24, 8),
    },
    "response": {
        "status": (0, 1), "opcode": (1, 1), "flags": (2, 1), "version": (3, 1), "tag": (4, 2), "count": (6, 2),
        "boot_epoch": (8, 4), "slot": (12, 4), "generation": (16, 4), "length": (20, 4), "watermark": (24, 4),
        "crc": (28, 4),
    },
    "trace": {
        "order": (0, 8), "cycle": (8, 8), "owner": (16, 1), "kind": (17, 1), "status": (18, 1), "state_before": (19, 1),
        "state_after": (20, 1), "partition": (21, 1), "group": (22, 1), "klass": (23, 1), "flags": (24, 1),
        "age": (25, 1), "model_id": (26, 2), "epoch": (28, 4), "slot": (32, 4), "generation": (36, 4),
        "offset": (40, 4), "length": (44, 4), "block_slot": (48, 4), "block_generation": (52, 4),
        "block_length": (56, 4), "accepted": (60, 4), "landed": (64, 4), "free_count": (68, 4), "digest": (72, 32),
    },
}  # fmt: skip
SIZES = {"request": 64, "handle": 32, "response": 32, "trace": 104}
LAYOUTS = {layout.name: layout for layout in (REQUEST, HANDLE, RESPONSE, TRACE)}
DTYPES = {"request": REQUEST_DTYPE, "handle": HANDLE_DTYPE, "response": RESPONSE_DTYPE, "trace": TRACE_DTYPE}


def random_values(layout, rng):
    return {name: rng.getrandbits(field.size_bits) for name, field in layout.fields.items()}


@pytest.mark.parametrize("name", LAYOUTS)
def test_offset_and_size_of_every_field_are_those_of_version_one(name):
    layout = LAYOUTS[name]
    assert {f.name: (f.offset_bytes, f.size_bytes) for f in layout.fields.values()} == ON_THE_WIRE[name]
    assert layout.size_bytes == SIZES[name]


def test_version_is_one():
    assert VERSION == 1


def test_handle_takes_the_place_of_the_digest():
    assert HANDLE.size_bytes == REQUEST.fields["digest"].size_bytes


def test_request_written_by_hand():
    packed = REQUEST.pack(
        opcode=3, flags=1, version=1, klass=2, tag=0xBEEF, model_id=0x0102, group=9, partition=4, offset=0x100,
        length=0x2000, digest=0x1F00000002,
    )  # fmt: skip
    start = bytes.fromhex("03 01 01 02 ef be 02 01 09 04 0000 00 00 0000 00000000 00000000 00010000 00200000")
    assert packed == start + bytes.fromhex("02 00 00 00 1f") + bytes(27)


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
        if size == 32:
            array[field] = np.array([row[field].to_bytes(32, "little") for row in rows], "V32")
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
        assert [int.from_bytes(v, "little") for v in read] == expected if size == 32 else read == expected


def test_batches_and_results_have_no_hidden_gaps():
    # 4 + 4 + 4 + 4 + 8 + 8 bytes before the request; 4 + 4 + 8 + 8 + 8 + 8 before the response.
    assert (BATCH_DTYPE.itemsize, BATCH_DTYPE.fields["header"][1]) == (96, 32)
    assert (RESULT_DTYPE.itemsize, RESULT_DTYPE.fields["header"][1]) == (72, 40)


def test_trace_flags_are_four_distinct_bits():
    bits = [TraceFlag.BY_HANDLE, TraceFlag.CHAIN_FIRST, TraceFlag.WHOLE, TraceFlag.PRESENT]
    assert bits == [1, 2, 4, 8]
