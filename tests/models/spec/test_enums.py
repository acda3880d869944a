"""Numbers on the wire and in the trace: written down once more, so that a change is meant."""

from kvnode.models.spec.enums import (
    BLOCKLESS_KINDS,
    KIND_OF_OPCODE,
    MOONCAKE_ERRORS,
    SESSION_KINDS,
    SWEEPER_KINDS,
    Flag,
    Kind,
    Opcode,
    ResponseFlag,
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


def test_kinds_are_the_ports_first_and_then_the_sweepers():
    of_ports = (
        "ANSWER LOOKUP MATCH READ PUT_START WRITE LAND PUT_END PUT_REVOKE DROP LEASE RELEASE RELEASE_ALL SESSION_OPEN "
        "SESSION_FENCE SESSION_MIGRATE SESSION_CLOSE"
    ).split()
    of_the_sweeper = (
        "VISIT PATROL REAP EXPIRE_FILL EXPIRE_LEASE EXPIRE_SESSION RETIRE_MODEL PORT_DOWN CONFIGURE POISON"
    ).split()
    assert [kind.name for kind in Kind] == of_ports + of_the_sweeper
    assert [kind.value for kind in Kind] == list(range(27))


def test_sweeper_names_a_slot_to_visit_to_patrol_to_reap_to_expire_and_to_poison():
    names = ["VISIT", "PATROL", "REAP", "EXPIRE_FILL", "EXPIRE_LEASE", "POISON"]
    assert [kind.name for kind in SWEEPER_KINDS] == names


def test_five_operations_work_on_a_row_of_the_session_table():
    names = ["SESSION_OPEN", "SESSION_FENCE", "SESSION_MIGRATE", "SESSION_CLOSE", "EXPIRE_SESSION"]
    assert [kind.name for kind in SESSION_KINDS] == names


def test_operations_without_a_block_are_those_on_tables_and_settings():
    others = ["ANSWER", "RELEASE_ALL", "RETIRE_MODEL", "PORT_DOWN", "CONFIGURE"]
    assert sorted(kind.name for kind in BLOCKLESS_KINDS) == sorted([*others, *(kind.name for kind in SESSION_KINDS)])
    assert len(set(BLOCKLESS_KINDS)) == len(BLOCKLESS_KINDS)


def test_operation_that_names_a_slot_meets_a_block():
    assert not set(SWEEPER_KINDS) & set(BLOCKLESS_KINDS)


def test_every_opcode_has_a_kind_of_the_same_name_but_for_ping():
    assert set(KIND_OF_OPCODE) == set(Opcode)
    assert {op.name: kind.name for op, kind in KIND_OF_OPCODE.items() if op.name != kind.name} == {"PING": "ANSWER"}


def test_no_port_can_ask_for_an_operation_of_the_sweeper_or_a_landing():
    of_the_sweeper = {kind for kind in Kind if kind >= Kind.VISIT}
    assert set(SWEEPER_KINDS) < of_the_sweeper
    assert set(Kind) - set(KIND_OF_OPCODE.values()) == {Kind.LAND, *of_the_sweeper}


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


def test_flags_of_requests_and_of_responses_are_distinct_bits():
    assert [(flag.name, flag.value) for flag in Flag] == [("BY_HANDLE", 1), ("LEASE", 2), ("PRIVATE", 4)]
    assert [(flag.name, flag.value) for flag in ResponseFlag] == [("WAKE", 1), ("LEASED", 2)]
