"""Numbers on the wire and in the trace: written down once more, so that a change is meant."""

from kvnode.models.spec.enums import (
    KIND_OF_OPCODE,
    MOONCAKE_ERRORS,
    SUPPORTED_OPCODES,
    SWEEPER_KINDS,
    Flag,
    Kind,
    Opcode,
    State,
    Status,
)


def test_opcodes_are_numbered_in_the_order_of_the_architecture():
    names = (
        "PING LOOKUP MATCH READ PUT_START WRITE PUT_END PUT_REVOKE DROP LEASE RELEASE RELEASE_ALL SESSION_OPEN "
        "SESSION_FENCE SESSION_MIGRATE SESSION_CLOSE"
    ).split()
    assert [op.name for op in Opcode] == names
    assert [op.value for op in Opcode] == list(range(16))


def test_statuses_are_numbered_in_the_order_of_the_architecture():
    names = (
        "OK HIT MISS GRANTED SEALED EXISTS BUSY NOT_READY NO_SPACE QUOTA WRITE_ONCE WRITE_ORDER INCOMPLETE "
        "CHECKSUM_MISMATCH STALE_HANDLE STALE_EPOCH DENIED POISONED DEADLINE BAD_REQUEST"
    ).split()
    assert [status.name for status in Status] == names
    assert [status.value for status in Status] == list(range(20))


def test_states_fit_two_bits_and_a_cleared_table_is_free():
    assert [(state.name, state.value) for state in State] == [
        ("FREE", 0),
        ("FILLING", 1),
        ("SEALED", 2),
        ("RETIRING", 3),
    ]


def test_kinds_fit_four_bits():
    names = (
        "ANSWER LOOKUP MATCH READ PUT_START WRITE LAND PUT_END PUT_REVOKE DROP VISIT REAP RETIRE_MODEL PATROL"
    ).split()
    assert [kind.name for kind in Kind] == names
    assert [kind.value for kind in Kind] == list(range(14))


def test_sweeper_names_a_slot_to_visit_to_patrol_and_to_reap():
    assert [kind.name for kind in sorted(SWEEPER_KINDS)] == ["VISIT", "REAP", "PATROL"]


def test_supported_opcodes_are_ping_to_drop_and_each_has_a_kind():
    assert [op.value for op in SUPPORTED_OPCODES] == list(range(9))
    assert set(KIND_OF_OPCODE) == set(SUPPORTED_OPCODES)


def test_opcode_and_its_kind_have_the_same_name_but_for_ping():
    assert {op.name: kind.name for op, kind in KIND_OF_OPCODE.items() if op.name != kind.name} == {"PING": "ANSWER"}


def test_no_port_can_ask_for_an_operation_of_the_sweeper_or_a_landing():
    assert not set(KIND_OF_OPCODE.values()) & {Kind.LAND, Kind.RETIRE_MODEL, *SWEEPER_KINDS}


def test_mooncake_numbers_are_those_of_the_architecture():
    assert {status.name: number for status, number in MOONCAKE_ERRORS.items()} == {
        "MISS": -704,
        "EXISTS": -705,
        "NOT_READY": -703,
        "NO_SPACE": -200,
        "CHECKSUM_MISMATCH": -801,
        "DEADLINE": -901,
        "QUOTA": -1700,
    }


def test_flag_by_handle_is_the_first_bit():
    assert [(flag.name, flag.value) for flag in Flag] == [("BY_HANDLE", 1)]
