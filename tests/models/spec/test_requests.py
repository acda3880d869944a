"""What a port refuses by itself: every malformed kind and its status, and the order of the checks."""

import pytest

from kvnode.models.spec.config import preset
from kvnode.models.spec.enums import SUPPORTED_OPCODES, Opcode, Status
from kvnode.models.spec.messages import HANDLE, REQUEST
from kvnode.models.spec.requests import check_request

#: Port 0 owns partition 1 with 4 slots; beats of 16 bytes, blocks of 128, payloads of 64; generations of 3 bits.
CONFIG = preset("tiny")
PORT, PARTITION, BOOT_EPOCH = 0, 1, 5
BEAT, BLOCK, PAYLOAD = 16, 128, 64


def handle(slot=3, generation=7, boot_epoch=BOOT_EPOCH, **more):
    return int.from_bytes(HANDLE.pack(slot=slot, generation=generation, boot_epoch=boot_epoch, **more), "little")


#: (fields, payload bytes) of a well-formed request of every opcode.
GOOD = {
    Opcode.PING: ({}, 0),
    Opcode.LOOKUP: ({"digest": 0xFFFF, "model_id": 1, "group": 255}, 0),
    Opcode.MATCH: ({"length": PAYLOAD}, PAYLOAD),
    Opcode.READ: ({"digest": 0xFFFF, "offset": 112, "length": BLOCK}, 0),
    Opcode.PUT_START: ({"digest": 1, "length": BLOCK, "klass": 3}, 0),
    Opcode.WRITE: ({"digest": handle(), "offset": 112, "length": PAYLOAD}, PAYLOAD),
    Opcode.PUT_END: ({"digest": handle()}, 0),
    Opcode.PUT_REVOKE: ({"digest": handle(), "flags": 1}, 0),
    Opcode.DROP: ({"digest": handle(), "flags": 1}, 0),
}


def check(opcode, fields, payload_bytes, port=PORT):
    values = {"opcode": opcode, "version": 1, "partition": PARTITION, "tag": 0xABCD} | fields
    header = REQUEST.unpack(REQUEST.pack(**values))
    return check_request(CONFIG, port, BOOT_EPOCH, header, payload_bytes)


def changed(opcode, payload_bytes=None, **changes):
    fields, good_payload = GOOD[opcode]
    return check(opcode, fields | changes, good_payload if payload_bytes is None else payload_bytes)


@pytest.mark.parametrize("opcode", SUPPORTED_OPCODES)
def test_well_formed_request_is_let_pass(opcode):
    assert check(opcode, *GOOD[opcode]) == Status.OK


@pytest.mark.parametrize("opcode", [*(op for op in Opcode if op not in GOOD), 16, 255])
def test_opcode_that_is_not_executed_is_malformed(opcode):
    assert check(opcode, {}, 0) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", GOOD)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 0), ("version", 2), ("model_id", 2), ("model_id", 0xFFFF), ("klass", 4), ("klass", 255),
        ("flags", 2), ("flags", 3), ("flags", 128), ("member", 1), ("ttl", 1), ("deadline", 1), ("reserved", 128),
        ("session_epoch", 256), ("session", 1 << 31), ("sequence", 1),
    ],
)  # fmt: skip
def test_field_that_must_not_have_a_value_makes_any_request_malformed(opcode, field, value):
    assert changed(opcode, **{field: value}) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", GOOD)
def test_tag_and_group_may_be_anything(opcode):
    assert changed(opcode, tag=0xFFFF, group=255) == Status.OK


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.LOOKUP, Opcode.MATCH, Opcode.PUT_START])
def test_request_that_needs_a_key_cannot_come_by_handle(opcode):
    fields, payload_bytes = GOOD[opcode]
    assert check(opcode, fields | {"flags": 1, "digest": handle()}, payload_bytes) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.PUT_END, Opcode.PUT_REVOKE])
def test_request_that_always_comes_by_handle_may_leave_the_flag_out(opcode):
    assert changed(opcode, flags=0) == changed(opcode, flags=1) == Status.OK


@pytest.mark.parametrize("opcode", [Opcode.READ, Opcode.DROP])
def test_read_and_drop_come_by_key_or_by_handle(opcode):
    assert changed(opcode, flags=0, digest=0x1234) == changed(opcode, flags=1, digest=handle()) == Status.OK


@pytest.mark.parametrize("opcode", GOOD)
def test_payload_where_none_belongs_or_none_where_it_does_is_malformed(opcode):
    wrong = 0 if opcode in (Opcode.WRITE, Opcode.MATCH) else BEAT
    assert changed(opcode, payload_bytes=wrong) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.MATCH])
def test_payload_of_another_length_is_found_later(opcode):
    assert changed(opcode, payload_bytes=BEAT) == changed(opcode, payload_bytes=10 * PAYLOAD) == Status.OK


@pytest.mark.parametrize("opcode", [Opcode.LOOKUP, Opcode.READ, Opcode.PUT_START])
def test_digest_of_more_bits_than_configured_is_malformed(opcode):
    assert changed(opcode, digest=0xFFFF) == Status.OK
    assert changed(opcode, digest=0x10000) == changed(opcode, digest=1 << 255) == Status.BAD_REQUEST


@pytest.mark.parametrize("field", ["run", "stride", "crc", "zero"])
@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.PUT_END, Opcode.PUT_REVOKE, Opcode.DROP])
def test_handle_with_bytes_that_are_not_its_own_is_malformed(opcode, field):
    assert changed(opcode, digest=handle(**{field: 1})) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.LOOKUP, Opcode.PUT_END, Opcode.PUT_REVOKE, Opcode.DROP])
@pytest.mark.parametrize("field", ["offset", "length"])
def test_offset_or_length_that_means_nothing_is_malformed(opcode, field):
    assert changed(opcode, **{field: BEAT}) == Status.BAD_REQUEST


@pytest.mark.parametrize(
    ("opcode", "length", "status"),
    [
        (Opcode.MATCH, 0, "BAD_REQUEST"), (Opcode.MATCH, 16, "BAD_REQUEST"), (Opcode.MATCH, 32, "OK"),
        (Opcode.MATCH, 33, "BAD_REQUEST"), (Opcode.MATCH, 64, "OK"), (Opcode.MATCH, 96, "BAD_REQUEST"),
        (Opcode.PUT_START, 0, "BAD_REQUEST"), (Opcode.PUT_START, 16, "OK"), (Opcode.PUT_START, 24, "BAD_REQUEST"),
        (Opcode.PUT_START, 128, "OK"), (Opcode.PUT_START, 144, "BAD_REQUEST"),
        (Opcode.PUT_START, 0xFFFFFFF0, "BAD_REQUEST"),
        (Opcode.WRITE, 0, "BAD_REQUEST"), (Opcode.WRITE, 16, "OK"), (Opcode.WRITE, 17, "BAD_REQUEST"),
        (Opcode.WRITE, 64, "OK"), (Opcode.WRITE, 80, "BAD_REQUEST"),
        (Opcode.READ, 0, "OK"), (Opcode.READ, 8, "BAD_REQUEST"), (Opcode.READ, 16, "OK"), (Opcode.READ, 128, "OK"),
        (Opcode.READ, 144, "BAD_REQUEST"),
    ],
)  # fmt: skip
def test_length_has_to_fit_the_request(opcode, length, status):
    assert changed(opcode, length=length) == Status[status]


@pytest.mark.parametrize("opcode", [Opcode.READ, Opcode.WRITE])
@pytest.mark.parametrize(("offset", "status"), [(0, "OK"), (8, "BAD_REQUEST"), (112, "OK"), (128, "BAD_REQUEST")])
def test_offset_is_whole_beats_inside_a_block(opcode, offset, status):
    assert changed(opcode, offset=offset) == Status[status]


@pytest.mark.parametrize("opcode", [Opcode.MATCH, Opcode.PUT_START])
def test_offset_of_a_match_or_a_start_is_malformed(opcode):
    assert changed(opcode, offset=BEAT) == Status.BAD_REQUEST


def test_digest_in_the_header_of_a_match_is_malformed():
    assert changed(Opcode.MATCH, digest=1) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", GOOD)
def test_foreign_partition_is_denied(opcode):
    assert changed(opcode, partition=0) == changed(opcode, partition=255) == Status.DENIED


def test_port_and_not_the_message_decides_the_partition():
    assert check(Opcode.PING, {"partition": 0}, 0, port=1) == Status.OK
    assert check(Opcode.PING, {"partition": 1}, 0, port=1) == Status.DENIED


BY_HANDLE = [op for op, (fields, _) in GOOD.items() if fields.get("digest", 0) >= 1 << 64]


@pytest.mark.parametrize("opcode", BY_HANDLE)
@pytest.mark.parametrize(
    "wrong", [{"slot": 4}, {"slot": 1 << 31}, {"generation": 8}, {"boot_epoch": 4}, {"boot_epoch": BOOT_EPOCH + 16}]
)
def test_handle_that_the_node_cannot_have_given_is_stale(opcode, wrong):
    assert changed(opcode, digest=handle(**wrong)) == Status.STALE_HANDLE


def test_slots_are_counted_in_the_partition_of_the_port():
    fields = {"digest": handle(slot=7), "partition": 0}
    assert check(Opcode.PUT_END, fields, 0, port=1) == Status.OK
    assert check(Opcode.PUT_END, fields | {"partition": 1}, 0, port=0) == Status.STALE_HANDLE


def test_form_comes_before_partition_and_partition_before_handle():
    stale = handle(boot_epoch=0)
    assert changed(Opcode.WRITE, digest=stale, partition=0, length=17) == Status.BAD_REQUEST
    assert changed(Opcode.WRITE, digest=stale, partition=0) == Status.DENIED
    assert changed(Opcode.WRITE, digest=stale) == Status.STALE_HANDLE
