"""What a port refuses by itself: every rule broken one at a time, its status, and the order of the checks."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnode.models.spec.config import PRESETS, preset
from kvnode.models.spec.enums import Flag, Opcode, Status
from kvnode.models.spec.messages import HANDLE, REQUEST, SESSION_ARGUMENTS
from kvnode.models.spec.requests import (
    MAX_MEMBERS,
    OPTIONAL_FIELDS,
    USED_FIELDS,
    Handle,
    check_request,
    match_digests,
    names_handle,
    payload_beats,
    span_bytes,
    whole_beats,
)

#: Port 0 owns partition 1 with 4 slots, port 1 partition 0 with 8; beats of 16 bytes, blocks of 128, payloads of 64;
#: generations of 3 bits; two sessions with generations of 4 bits.
CONFIG = preset("tiny")
PORT, PARTITION, BOOT_EPOCH = 0, 1, 5
BEAT, BLOCK, PAYLOAD = 16, 128, 64
#: The last of 32 numbers.
SESSION = 1 << 31 | 31


def handle(slot=3, generation=7, boot_epoch=BOOT_EPOCH, **more):
    return int.from_bytes(HANDLE.pack(slot=slot, generation=generation, boot_epoch=boot_epoch, **more), "little")


def arguments(**fields):
    return int.from_bytes(SESSION_ARGUMENTS.pack(**fields), "little")


OF_SESSION = {"session": SESSION, "session_epoch": 0xFFFF}
AFTER = OF_SESSION | {"sequence": 0xFFFFFFFF, "deadline": 255}
#: (fields, payload bytes) of a well-formed request of every opcode, with all that it needs and no more.
GOOD = {
    Opcode.PING: ({}, 0),
    Opcode.LOOKUP: ({"digest": 0xFFFF, "model_id": 1, "group": 255}, 0),
    Opcode.MATCH: ({"length": PAYLOAD}, PAYLOAD),
    Opcode.READ: ({"digest": 0xFFFF, "offset": 112, "length": BLOCK}, 0),
    Opcode.PUT_START: ({"digest": 1, "length": BLOCK, "klass": 3}, 0),
    Opcode.WRITE: ({"digest": handle(), "offset": 112, "length": PAYLOAD}, PAYLOAD),
    Opcode.PUT_END: ({"digest": handle(crc=0xFFFFFFFF)}, 0),
    Opcode.PUT_REVOKE: ({"digest": handle(), "flags": 1}, 0),
    Opcode.DROP: ({"digest": handle(), "flags": 1}, 0),
    Opcode.LEASE: ({"digest": 0xFFFF}, 0),
    Opcode.RELEASE: ({"digest": handle(lease=0xFFFFFFFF)}, 0),
    Opcode.RELEASE_ALL: ({}, 0),
    Opcode.SESSION_OPEN: ({"digest": arguments(ports=1)}, 0),
    Opcode.SESSION_FENCE: (OF_SESSION, 0),
    Opcode.SESSION_MIGRATE: (OF_SESSION | {"digest": arguments()}, 0),
    Opcode.SESSION_CLOSE: (OF_SESSION, 0),
}
#: What each may name besides, at the largest values: a field that is not here must be zero.
OPTIONAL = {
    Opcode.PING: {},
    Opcode.LOOKUP: AFTER,
    Opcode.MATCH: AFTER,
    Opcode.READ: AFTER | {"member": 7},
    Opcode.PUT_START: AFTER | {"member": 7, "members": 8, "ttl": 255, "length": BEAT},
    Opcode.WRITE: {"member": 7},
    Opcode.PUT_END: {"member": 7, "members": 8, "length": BEAT},
    Opcode.PUT_REVOKE: {},
    Opcode.DROP: OF_SESSION,
    Opcode.LEASE: AFTER,
    Opcode.RELEASE: {},
    Opcode.RELEASE_ALL: {},
    Opcode.SESSION_OPEN: {"ttl": 255},
    Opcode.SESSION_FENCE: AFTER,
    Opcode.SESSION_MIGRATE: OF_SESSION | {"sequence": 0xFFFFFFFF},
    Opcode.SESSION_CLOSE: OF_SESSION,
}
ALWAYS_BY_HANDLE = [Opcode.WRITE, Opcode.PUT_END, Opcode.PUT_REVOKE, Opcode.RELEASE]
EITHER = [Opcode.READ, Opcode.DROP, Opcode.LEASE]
BY_KEY = [Opcode.LOOKUP, Opcode.MATCH, Opcode.PUT_START, *EITHER]
NEED_SESSION = [Opcode.SESSION_FENCE, Opcode.SESSION_MIGRATE, Opcode.SESSION_CLOSE]


def check(opcode, fields, payload_bytes, port=PORT, config=CONFIG):
    values = {"opcode": opcode, "version": 1, "partition": PARTITION, "tag": 0xABCD} | fields
    header = REQUEST.unpack(REQUEST.pack(**values))
    return check_request(config, port, BOOT_EPOCH, header, payload_bytes)


def changed(opcode, payload_bytes=None, **changes):
    fields, good_payload = GOOD[opcode]
    return check(opcode, fields | changes, good_payload if payload_bytes is None else payload_bytes)


def by_key(opcode, **changes):
    """The request with a key in place of what it names."""
    return changed(opcode, **{"digest": 0 if opcode == Opcode.MATCH else 0x1234, "flags": 0} | changes)


@pytest.mark.parametrize("opcode", Opcode)
def test_well_formed_request_is_let_pass(opcode):
    assert check(opcode, *GOOD[opcode]) == Status.OK


@pytest.mark.parametrize("opcode", Opcode)
def test_request_with_all_that_it_may_name_is_let_pass(opcode):
    assert changed(opcode, **OPTIONAL[opcode]) == Status.OK


@pytest.mark.parametrize("opcode", [16, 17, 128, 255])
def test_opcode_that_there_is_not_is_malformed(opcode):
    assert check(opcode, {}, 0) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", Opcode)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 0), ("version", 2), ("model_id", 2), ("model_id", 0xFFFF), ("klass", 4), ("klass", 255),
        ("flags", 8), ("flags", 9), ("flags", 128), ("member", 8), ("member", 255),
    ],
)  # fmt: skip
def test_field_that_must_not_have_a_value_makes_any_request_malformed(opcode, field, value):
    assert changed(opcode, **{field: value}) == Status.BAD_REQUEST


def test_fields_that_an_opcode_uses_are_those_of_the_table():
    for opcode in Opcode:
        assert USED_FIELDS[opcode] == set(OPTIONAL[opcode]) & set(OPTIONAL_FIELDS), opcode.name


@pytest.mark.parametrize("field", ["member", "members", "ttl", "deadline", "session_epoch", "session", "sequence"])
@pytest.mark.parametrize("opcode", Opcode)
def test_optional_field_that_an_opcode_does_not_use_must_be_zero(opcode, field):
    assert field in OPTIONAL_FIELDS
    used, value = field in OPTIONAL[opcode], SESSION if field == "session" else 1
    named = changed(opcode, **{field: value} | OPTIONAL[opcode])
    assert named == (Status.OK if used else Status.BAD_REQUEST)


@pytest.mark.parametrize("opcode", Opcode)
def test_tag_and_group_may_be_anything(opcode):
    assert changed(opcode, tag=0xFFFF, group=255) == Status.OK


@pytest.mark.parametrize("opcode", Opcode)
def test_payload_where_none_belongs_or_none_where_it_does_is_malformed(opcode):
    wrong = 0 if opcode in (Opcode.WRITE, Opcode.MATCH) else BEAT
    assert changed(opcode, payload_bytes=wrong) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", [Opcode.WRITE, Opcode.MATCH])
def test_payload_of_another_length_is_found_later(opcode):
    assert changed(opcode, payload_bytes=BEAT) == changed(opcode, payload_bytes=10 * PAYLOAD) == Status.OK


# Sessions.


@pytest.mark.parametrize("opcode", [opcode for opcode in Opcode if "session" in OPTIONAL[opcode]])
@pytest.mark.parametrize(
    ("session", "status"),
    [
        (1 << 31, "OK"), (1 << 31 | 1, "OK"), (1 << 31 | 31, "OK"), (1 << 31 | 32, "BAD_REQUEST"), (31, "BAD_REQUEST"),
        (1, "BAD_REQUEST"), (0xFFFFFFFF, "BAD_REQUEST"), (3 << 30, "BAD_REQUEST"),
    ],
)  # fmt: skip
def test_session_is_a_number_that_the_node_can_have_given(opcode, session, status):
    # One bit of a row and four of a generation.
    assert changed(opcode, session=session) == Status[status]


@pytest.mark.parametrize("name", PRESETS)
def test_every_number_of_a_session_of_every_preset_can_be_named(name):
    config = preset(name)
    bits = config.session_bits + config.session_generation_bits
    for number in [0, 1, config.sessions, (1 << bits) - 1, *(1 << bit for bit in range(bits))]:
        fields = {"session": 1 << 31 | number, "partition": config.partition_of_port[0]}
        assert check(Opcode.SESSION_CLOSE, fields, 0, port=0, config=config) == Status.OK
    for number in (1 << bit for bit in range(bits, 31)):
        fields = {"session": 1 << 31 | number, "partition": config.partition_of_port[0]}
        assert check(Opcode.SESSION_CLOSE, fields, 0, port=0, config=config) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", NEED_SESSION)
def test_operation_on_a_session_names_one(opcode):
    assert changed(opcode, session=0) == changed(opcode, session=0, session_epoch=0) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", [opcode for opcode in Opcode if "session" in OPTIONAL[opcode]])
@pytest.mark.parametrize("field", ["session_epoch", "sequence"])
def test_epoch_or_number_without_a_session_is_malformed(opcode, field):
    assert changed(opcode, **{"session": 0, "session_epoch": 0, field: 1}) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", [Opcode.LOOKUP, Opcode.MATCH, Opcode.READ, Opcode.PUT_START, Opcode.LEASE])
def test_deadline_needs_no_session(opcode):
    assert changed(opcode, deadline=255) == Status.OK


@pytest.mark.parametrize("opcode", [Opcode.SESSION_OPEN, Opcode.SESSION_MIGRATE])
@pytest.mark.parametrize(
    ("port", "ports", "status"),
    [
        (0, 0, "OK"), (0, 0b01, "OK"), (0, 0b10, "DENIED"), (0, 0b11, "DENIED"), (0, 0b100, "DENIED"),
        (0, 1 << 31, "DENIED"), (1, 0b10, "OK"), (1, 0b01, "DENIED"),
    ],
)  # fmt: skip
def test_session_is_owned_by_ports_of_its_partition(opcode, port, ports, status):
    fields = GOOD[opcode][0] | {"digest": arguments(ports=ports), "partition": 1 - port}
    assert check(opcode, fields, 0, port=port) == Status[status]


def test_session_may_be_owned_by_several_ports_of_a_partition():
    # Ports 0 and 3 of sim own partition 0.
    for ports, status in ((0b1001, "OK"), (0b1000, "OK"), (0b1011, "DENIED")):
        fields = {"digest": arguments(ports=ports), "partition": 0}
        assert check(Opcode.SESSION_OPEN, fields, 0, port=3, config=preset("sim")) == Status[status]


@pytest.mark.parametrize("opcode", [Opcode.SESSION_OPEN, Opcode.SESSION_MIGRATE])
def test_arguments_of_a_session_end_with_zeroes(opcode):
    for bit in (0, 1, 28 * 8 - 1):
        assert changed(opcode, digest=arguments(zero=1 << bit)) == Status.BAD_REQUEST


@pytest.mark.parametrize(
    "opcode", [Opcode.PING, Opcode.RELEASE_ALL, Opcode.SESSION_FENCE, Opcode.SESSION_CLOSE, Opcode.MATCH]
)
def test_digest_that_means_nothing_is_malformed(opcode):
    assert changed(opcode, digest=1) == changed(opcode, digest=1 << 255) == Status.BAD_REQUEST


# Flags.


@pytest.mark.parametrize("opcode", Opcode)
def test_flag_by_handle_belongs_to_what_can_name_a_handle(opcode):
    status = Status.OK if opcode in ALWAYS_BY_HANDLE + EITHER else Status.BAD_REQUEST
    assert changed(opcode, flags=Flag.BY_HANDLE, digest=handle()) == status


@pytest.mark.parametrize("opcode", ALWAYS_BY_HANDLE)
def test_request_that_always_comes_by_handle_may_leave_the_flag_out(opcode):
    assert changed(opcode, flags=0) == changed(opcode, flags=1) == Status.OK


@pytest.mark.parametrize("opcode", EITHER)
def test_read_drop_and_lease_come_by_key_or_by_handle(opcode):
    assert changed(opcode, flags=0, digest=0x1234) == changed(opcode, flags=1, digest=handle()) == Status.OK


def test_names_handle_tells_what_the_digest_holds():
    named = {
        (opcode, flags) for opcode in Opcode for flags in (0, 1) if names_handle({"opcode": opcode, "flags": flags})
    }
    assert named == {(opcode, 0) for opcode in ALWAYS_BY_HANDLE} | {(opcode, 1) for opcode in Opcode}


@pytest.mark.parametrize("opcode", Opcode)
def test_leases_are_asked_for_by_lookup_and_match_alone(opcode):
    asked = changed(opcode, flags=GOOD[opcode][0].get("flags", 0) | Flag.LEASE)
    assert asked == (Status.OK if opcode in (Opcode.LOOKUP, Opcode.MATCH) else Status.BAD_REQUEST)


@pytest.mark.parametrize("opcode", Opcode)
def test_key_can_be_private_where_there_is_a_key_and_a_session(opcode):
    named = changed(opcode, **OPTIONAL[opcode] | {"flags": Flag.PRIVATE})
    if opcode not in BY_KEY:
        assert named == Status.BAD_REQUEST
        return
    assert by_key(opcode, flags=Flag.PRIVATE, **OF_SESSION) == Status.OK
    assert by_key(opcode, flags=Flag.PRIVATE) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", EITHER)
def test_private_key_and_handle_exclude_each_other(opcode):
    flags = Flag.PRIVATE | Flag.BY_HANDLE
    assert changed(opcode, digest=handle(), flags=flags, **OF_SESSION) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", [Opcode.LOOKUP, Opcode.MATCH])
def test_lease_of_a_private_block_can_be_asked_for(opcode):
    assert changed(opcode, flags=Flag.PRIVATE | Flag.LEASE, **OF_SESSION) == Status.OK


# Keys and handles.


@pytest.mark.parametrize("opcode", [opcode for opcode in BY_KEY if opcode != Opcode.MATCH])
def test_digest_of_more_bits_than_configured_is_malformed(opcode):
    assert by_key(opcode, digest=0xFFFF) == Status.OK
    assert by_key(opcode, digest=0x10000) == by_key(opcode, digest=1 << 255) == Status.BAD_REQUEST


def test_fields_of_a_handle_lie_in_the_digest_in_their_order():
    values = dict(zip(HANDLE.fields, range(0xFFFFFFF0, 0xFFFFFFF8)))
    assert Handle.of(int.from_bytes(HANDLE.pack(**values), "little"))._asdict() == values


@pytest.mark.parametrize("field", ["stride", "count", "crc", "zero"])
@pytest.mark.parametrize("opcode", [*ALWAYS_BY_HANDLE, Opcode.DROP, Opcode.LEASE])
def test_handle_with_parts_that_the_opcode_does_not_use_is_malformed(opcode, field):
    used = (opcode, field) == (Opcode.PUT_END, "crc")
    assert changed(opcode, flags=1, digest=handle(**{field: 1})) == (Status.OK if used else Status.BAD_REQUEST)


@pytest.mark.parametrize("field", ["crc", "zero"])
def test_read_by_handle_has_no_crc(field):
    assert changed(Opcode.READ, flags=1, digest=handle(**{field: 1})) == Status.BAD_REQUEST


@pytest.mark.parametrize("opcode", ALWAYS_BY_HANDLE + EITHER)
def test_handle_may_carry_the_lease_that_came_with_it(opcode):
    assert changed(opcode, flags=1, digest=handle(lease=1 << 31 | 5)) == Status.OK


@pytest.mark.parametrize("opcode", ALWAYS_BY_HANDLE + EITHER)
@pytest.mark.parametrize(
    "wrong",
    [
        {"slot": 4}, {"slot": 1 << 31}, {"generation": 8}, {"generation": 1 << 31}, {"boot_epoch": 4},
        {"boot_epoch": BOOT_EPOCH + 16},
    ],
)  # fmt: skip
def test_handle_that_the_node_cannot_have_given_is_stale(opcode, wrong):
    assert changed(opcode, flags=1, digest=handle(**wrong)) == Status.STALE_HANDLE


def test_slots_are_counted_in_the_partition_of_the_port():
    fields = {"digest": handle(slot=7), "partition": 0}
    assert check(Opcode.PUT_END, fields, 0, port=1) == Status.OK
    assert check(Opcode.PUT_END, fields | {"partition": 1}, 0, port=0) == Status.STALE_HANDLE


# Offsets and lengths.

WITHOUT_EXTENT = [
    opcode
    for opcode in Opcode
    if opcode not in (Opcode.MATCH, Opcode.READ, Opcode.PUT_START, Opcode.WRITE, Opcode.PUT_END)
]


@pytest.mark.parametrize("opcode", [*WITHOUT_EXTENT, Opcode.PUT_END])
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


# Shares.


@pytest.mark.parametrize(
    ("member", "members", "length", "status"),
    [
        (0, 0, 128, "OK"), (0, 1, 128, "OK"), (1, 0, 128, "BAD_REQUEST"), (1, 1, 128, "BAD_REQUEST"),
        (0, 2, 64, "OK"), (1, 2, 64, "OK"), (2, 2, 64, "BAD_REQUEST"), (0, 2, 80, "BAD_REQUEST"),
        (0, 2, 128, "BAD_REQUEST"), (2, 3, 32, "OK"), (2, 3, 48, "BAD_REQUEST"), (2, 3, 40, "BAD_REQUEST"),
        (7, 8, 16, "OK"), (7, 8, 32, "BAD_REQUEST"), (8, 8, 16, "BAD_REQUEST"), (7, 8, 0, "BAD_REQUEST"),
        (0, 9, 16, "BAD_REQUEST"), (0, 255, 16, "BAD_REQUEST"), (0, 2, 0xFFFFFFF0, "BAD_REQUEST"),
    ],
)  # fmt: skip
def test_shares_of_all_members_fit_a_block(member, members, length, status):
    fields = {"member": member, "members": members, "length": length}
    assert changed(Opcode.PUT_START, **fields) == Status[status]
    if members > 1:
        assert changed(Opcode.PUT_END, **fields) == Status[status]


@pytest.mark.parametrize(
    ("member", "members", "length", "status"),
    [
        (0, 0, 0, "OK"), (0, 1, 0, "OK"), (1, 0, 0, "BAD_REQUEST"), (0, 0, 16, "BAD_REQUEST"),
        (0, 1, 128, "BAD_REQUEST"), (0, 2, 0, "BAD_REQUEST"), (1, 2, 64, "OK"),
    ],
)  # fmt: skip
def test_end_of_a_block_with_one_writer_names_no_share(member, members, length, status):
    assert changed(Opcode.PUT_END, member=member, members=members, length=length) == Status[status]


def test_there_are_at_most_eight_members_however_large_the_block():
    config = preset("sim")
    fields = {"digest": 1, "length": 32, "partition": 0}
    for members, status in ((8, "OK"), (9, "BAD_REQUEST")):
        assert check(Opcode.PUT_START, fields | {"members": members}, 0, config=config) == Status[status]
    assert MAX_MEMBERS == 8


# Runs.


@pytest.mark.parametrize(
    ("length", "stride", "count", "status"),
    [
        (0, 0, 0, "OK"), (16, 0, 0, "OK"), (16, 16, 0, "BAD_REQUEST"), (16, 0, 1, "OK"), (128, 128, 1, "OK"),
        (16, 144, 1, "BAD_REQUEST"), (16, 32, 2, "OK"), (32, 48, 3, "OK"), (16, 16, 8, "OK"),
        (16, 16, 9, "BAD_REQUEST"), (16, 0, 8, "OK"), (16, 0, 9, "BAD_REQUEST"),
        (64, 64, 2, "OK"), (64, 80, 2, "BAD_REQUEST"), (64, 0, 2, "OK"),
        (64, 0, 3, "BAD_REQUEST"), (16, 112, 2, "OK"), (16, 128, 2, "BAD_REQUEST"), (16, 8, 2, "BAD_REQUEST"),
        (24, 32, 2, "BAD_REQUEST"), (0, 16, 2, "BAD_REQUEST"), (0, 0, 1, "BAD_REQUEST"), (144, 0, 1, "BAD_REQUEST"),
        (16, 0xFFFFFFF0, 2, "BAD_REQUEST"), (16, 16, 0xFFFFFFFF, "BAD_REQUEST"), (16, 0, 0xFFFFFFFF, "BAD_REQUEST"),
    ],
)  # fmt: skip
def test_runs_of_a_read_lie_inside_a_block(length, stride, count, status):
    digest = handle(stride=stride, count=count)
    assert changed(Opcode.READ, flags=1, offset=0, length=length, digest=digest) == Status[status]
    # Whether they pass the end of this block is known where its length is.
    assert changed(Opcode.READ, flags=1, offset=112, length=length, digest=digest) == Status[status]


@given(st.integers(0, 10), st.integers(0, 10), st.integers(0, 10))
def test_runs_are_let_pass_exactly_when_a_block_can_hold_them(beats, stride, count):
    status = changed(
        Opcode.READ, flags=1, offset=0, length=BEAT * beats, digest=handle(stride=BEAT * stride, count=count)
    )
    runs = [range(n * stride, n * stride + beats) for n in range(count)]
    if count:
        good = beats > 0 and stride <= 8 and count * beats <= 8 and all(run.stop <= 8 for run in runs)
    else:
        good = stride == 0 and beats <= 8
    assert status == (Status.OK if good else Status.BAD_REQUEST)
    if good and count:
        span = span_bytes({"length": BEAT * beats}, Handle(0, 0, 0, 0, BEAT * stride, count, 0, 0))
        assert span == BEAT * max(run.stop for run in runs)


# Partitions.


@pytest.mark.parametrize("opcode", Opcode)
def test_foreign_partition_is_denied(opcode):
    assert changed(opcode, partition=0) == changed(opcode, partition=255) == Status.DENIED


def test_port_and_not_the_message_decides_the_partition():
    assert check(Opcode.PING, {"partition": 0}, 0, port=1) == Status.OK
    assert check(Opcode.PING, {"partition": 1}, 0, port=1) == Status.DENIED


#: Partition 0, that of port 1, can be read by port 0.
WITH_PUBLIC = CONFIG.replace(partitions=(dataclasses.replace(CONFIG.partitions[0], public=True), CONFIG.partitions[1]))


def elsewhere(opcode, **changes):
    fields, payload_bytes = GOOD[opcode]
    return check(opcode, fields | {"partition": 0} | changes, payload_bytes, config=WITH_PUBLIC)


@pytest.mark.parametrize("opcode", Opcode)
def test_public_partition_is_for_others_to_look_up_and_to_read(opcode):
    allowed = opcode in (Opcode.LOOKUP, Opcode.MATCH, Opcode.READ)
    assert elsewhere(opcode) == (Status.OK if allowed else Status.DENIED)


@pytest.mark.parametrize("opcode", [Opcode.LOOKUP, Opcode.MATCH, Opcode.READ])
def test_public_partition_has_no_sessions_and_no_leases_for_others(opcode):
    assert elsewhere(opcode, **OF_SESSION) == Status.DENIED
    assert elsewhere(opcode, flags=Flag.PRIVATE, **OF_SESSION) == Status.DENIED
    if opcode != Opcode.READ:
        assert elsewhere(opcode, flags=Flag.LEASE) == Status.DENIED


def test_public_partition_is_read_by_handle_in_its_own_slots():
    # 8 slots there, 4 in the partition of the port.
    assert elsewhere(Opcode.READ, flags=1, digest=handle(slot=7)) == Status.OK
    assert elsewhere(Opcode.READ, flags=1, digest=handle(slot=8)) == Status.STALE_HANDLE
    assert elsewhere(Opcode.READ, flags=1, digest=handle(slot=7), partition=1) == Status.STALE_HANDLE


@pytest.mark.parametrize("opcode", Opcode)
def test_public_partition_takes_nothing_from_its_own_ports_and_gives_them_nothing(opcode):
    fields, payload_bytes = GOOD[opcode]
    own = arguments(ports=0b10) if opcode == Opcode.SESSION_OPEN else fields.get("digest", 0)
    assert check(opcode, fields | {"partition": 0, "digest": own}, payload_bytes, 1, WITH_PUBLIC) == Status.OK
    assert check(opcode, fields | {"partition": 1, "digest": own}, payload_bytes, 1, WITH_PUBLIC) == Status.DENIED


@pytest.mark.parametrize("partition", [2, 255])
def test_partition_that_there_is_not_is_not_public(partition):
    for config in (CONFIG, WITH_PUBLIC):
        assert check(Opcode.LOOKUP, {"partition": partition}, 0, config=config) == Status.DENIED


# The order of the checks.


@pytest.mark.parametrize("opcode", ALWAYS_BY_HANDLE + EITHER)
def test_form_comes_before_partition_and_partition_before_handle(opcode):
    stale = {"flags": 1, "digest": handle(boot_epoch=0)}
    assert changed(opcode, **stale, partition=0, version=2) == Status.BAD_REQUEST
    assert changed(opcode, **stale, partition=0) == Status.DENIED
    assert changed(opcode, **stale) == Status.STALE_HANDLE


@pytest.mark.parametrize("opcode", [Opcode.SESSION_OPEN, Opcode.SESSION_MIGRATE])
def test_form_comes_before_the_ports_of_a_session(opcode):
    assert changed(opcode, digest=arguments(ports=0b10, zero=1)) == Status.BAD_REQUEST
    assert changed(opcode, digest=arguments(ports=0b10)) == Status.DENIED


@given(st.binary(min_size=64, max_size=64), st.integers(0, 3), st.sampled_from(["tiny", "sim", "wide"]))
def test_no_header_however_wrong_is_without_an_answer(data, payload_beat_count, name):
    config = preset(name)
    for head in (data, data[:2] + b"\1" + data[3:], bytes([data[0] % 16, data[1] % 8, 1, data[3] % 4]) + data[4:]):
        status = check_request(config, 0, BOOT_EPOCH, REQUEST.unpack(head), payload_beat_count * config.beat_bytes)
        assert status in (Status.OK, Status.BAD_REQUEST, Status.DENIED, Status.STALE_HANDLE)


# Payloads.


@pytest.mark.parametrize(("size", "beats"), [(0, 0), (1, 1), (15, 1), (16, 1), (17, 2), (64, 4)])
def test_payload_takes_whole_beats(size, beats):
    assert payload_beats(CONFIG, size) == beats
    carried = whole_beats(CONFIG, b"\xff" * size)
    assert carried == b"\xff" * size + bytes(BEAT * beats - size)


def words(*digests):
    return b"".join(digest.to_bytes(32, "little") for digest in digests)


@pytest.mark.parametrize(
    ("length", "payload", "digests", "whole"),
    [
        (64, words(1, 0xFFFF), [1, 0xFFFF], True),
        (32, words(7), [7], True),
        (64, words(7), [7], False),
        (32, words(7, 8), [7], False),
        (64, words(7) + b"\x08", [7], False),
        (64, words(7, 8)[:49], [7, 8], True),
        (64, b"", [], False),
        (64, words(0x10001, 2), [1, 2], False),
        (64, words(1, 1 << 255), [1, 0], False),
    ],
)
def test_match_looks_up_the_digests_that_came(length, payload, digests, whole):
    assert match_digests(CONFIG, length, payload) == (digests, whole)
