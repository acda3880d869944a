"""Stories of sessions on the golden node: read-after-write, also while a session moves."""

import pytest

from kvnode.models.spec.clock import TTL_TICKS
from kvnode.models.spec.enums import Flag, Opcode
from kvnode.models.spec.sessions import WINDOW

BEAT, BLOCK = 16, 192
#: Ports 3 and 1 own partition 0 with four sessions, ports 0 and 2 partition 1 with four others.
WRITER, MATE, FOREIGN = 3, 1, 0
SESSIONS = 4
TICK_CYCLES = 256
TTL_CYCLES = TTL_TICKS * TICK_CYCLES
KEY = 0xFEDCBA9876543210


def name(answer):
    return answer.status.name


def opened(node, port=WRITER, ports=0, ttl=0):
    """The fields by which a new session is named."""
    answer = node.ask(port, Opcode.SESSION_OPEN, digest=ports, ttl=ttl)
    assert (name(answer), answer.fields["watermark"]) == ("OK", 0)
    return {"session": answer.fields["slot"], "session_epoch": answer.fields["generation"]}


def moved(node, session, port, limit=0, **fields):
    answer = node.ask(port, Opcode.SESSION_MIGRATE, sequence=limit, **session, **fields)
    assert name(answer) == "OK"
    return {"session": answer.fields["slot"], "session_epoch": answer.fields["generation"]}


def fence(node, session, sequence=0, port=WRITER, **fields):
    return node.ask(port, Opcode.SESSION_FENCE, sequence=sequence, **session, **fields)


def committed(node, session):
    return fence(node, session).fields["watermark"]


def put(node, session, sequence, port=WRITER, **fields):
    return name(node.put(port, 0, node.key(sequence), node.bytes_of(BEAT, sequence), sequence=sequence, **session))


def woken(node):
    """The ports that were woken since this was last asked."""
    mask, node.woken = node.woken, 0
    return {port for port in range(4) if mask >> port & 1}


@pytest.fixture
def session(node):
    return opened(node)


# The table.


def test_session_begins_in_epoch_0_with_nothing_committed(node):
    answer = node.ask(WRITER, Opcode.SESSION_OPEN)
    assert (name(answer), answer.fields["generation"], answer.fields["watermark"]) == ("OK", 0, 0)
    assert answer.fields["slot"] >> 31 == 1


def test_sessions_of_a_partition_are_limited_and_a_closed_one_makes_room(node):
    sessions = [opened(node) for _ in range(SESSIONS)]
    assert len({session["session"] for session in sessions}) == SESSIONS
    assert name(node.ask(MATE, Opcode.SESSION_OPEN)) == "QUOTA"
    opened(node, FOREIGN)
    assert name(node.ask(WRITER, Opcode.SESSION_CLOSE, **sessions[2])) == "OK"
    assert opened(node)["session"] not in {session["session"] for session in sessions}
    assert name(node.ask(WRITER, Opcode.SESSION_OPEN)) == "QUOTA"


@pytest.mark.parametrize("opcode", [Opcode.SESSION_FENCE, Opcode.SESSION_MIGRATE, Opcode.SESSION_CLOSE])
def test_session_that_is_closed_or_was_never_open_is_stale(node, session, opcode):
    assert name(node.ask(WRITER, Opcode.SESSION_CLOSE, **session)) == "OK"
    for number in (session["session"], session["session"] + 1):
        answer = node.ask(WRITER, opcode, session=number)
        assert (name(answer), answer.fields["slot"], answer.fields["watermark"]) == ("STALE_EPOCH", 0, 0)


def test_number_of_a_closed_session_does_not_name_the_next_one_in_its_row(node):
    sessions = [opened(node) for _ in range(SESSIONS)]
    assert name(node.ask(WRITER, Opcode.SESSION_CLOSE, **sessions[1])) == "OK"
    new = opened(node)
    assert [name(fence(node, session)) for session in (sessions[1], new)] == ["STALE_EPOCH", "OK"]
    assert put(node, sessions[1], 1) == "STALE_EPOCH"
    assert name(node.ask(WRITER, Opcode.SESSION_CLOSE, **sessions[1])) == "STALE_EPOCH"
    assert put(node, new, 1) == "SEALED"


def test_session_is_unknown_to_the_other_partition(node, session):
    assert name(fence(node, session, port=FOREIGN)) == "STALE_EPOCH"
    other = opened(node, FOREIGN)
    assert put(node, session, 1) == "SEALED"
    assert fence(node, other, port=FOREIGN).fields["watermark"] == 0
    assert committed(node, session) == 1


@pytest.mark.parametrize("ports", [1 << FOREIGN, 1 << WRITER | 1 << FOREIGN, 1 << 9])
def test_session_for_ports_of_another_partition_is_denied(node, ports):
    assert name(node.ask(WRITER, Opcode.SESSION_OPEN, digest=ports)) == "DENIED"


def test_session_of_several_ports_is_written_by_each_of_them(node):
    session = opened(node, ports=1 << WRITER | 1 << MATE)
    assert [put(node, session, 1), put(node, session, 2, MATE)] == ["SEALED", "SEALED"]
    assert committed(node, session) == 2


def test_session_of_one_port_is_not_written_by_another_but_may_be_asked(node, session):
    assert put(node, session, 1, MATE) == "STALE_EPOCH"
    assert node.occupancy() == {"FREE": 16}
    assert put(node, session, 1) == "SEALED"
    assert name(node.read(MATE, 0, node.key(1), sequence=1, **session)) == "OK"


# Committed numbers.


def test_number_is_committed_when_it_and_all_before_it_are_sealed(node, session):
    assert [put(node, session, number) for number in (2, 4, 3)] == ["SEALED"] * 3
    assert committed(node, session) == 0
    assert put(node, session, 1) == "SEALED"
    assert committed(node, session) == 4


def test_block_without_a_number_is_not_counted(node, session):
    assert name(node.put(WRITER, 0, KEY, bytes(BEAT), **session)) == "SEALED"
    assert committed(node, session) == 0


def test_number_that_is_sealed_is_write_order(node, session):
    for number in (1, 3):
        assert put(node, session, number) == "SEALED"
    for number in (1, 3):
        assert name(node.start(digest=node.key(99), sequence=number, **session)) == "WRITE_ORDER"
    assert name(node.start(digest=node.key(99), sequence=2, **session)) == "GRANTED"


def test_number_too_far_ahead_of_the_committed_one_is_busy(node, session):
    assert put(node, session, WINDOW + 1) == "BUSY"
    assert put(node, session, WINDOW) == "SEALED"
    assert put(node, session, 1) == "SEALED"
    assert put(node, session, WINDOW + 1) == "SEALED"
    assert put(node, session, WINDOW + 2) == "BUSY"


def test_refused_start_costs_nothing(node, session):
    for sequence in (WINDOW + 1, WINDOW + 100):
        assert name(node.start(sequence=sequence, **session)) == "BUSY"
    assert node.occupancy() == {"FREE": 16}
    assert name(node.start(sequence=1, **session)) == "GRANTED"
    assert name(node.start(digest=node.key(2), sequence=2, **session)) == "GRANTED"


def test_block_that_is_there_already_counts_for_the_session_that_would_have_put_it(node, session):
    other = opened(node, MATE)
    assert put(node, session, 1) == "SEALED"
    assert name(node.read(MATE, 0, node.key(1), sequence=1, **other)) == "NOT_READY"
    answer = node.put(MATE, 0, node.key(1), bytes(BEAT), sequence=1, **other)
    assert (name(answer), woken(node)) == ("EXISTS", {MATE})
    assert committed(node, other) == 1
    assert node.read(MATE, 0, node.key(1), sequence=1, **other).data == node.bytes_of(BEAT, 1)


def test_block_without_its_session_or_in_another_is_not_joined_but_busy(node, session):
    assert name(node.start(sequence=1, **session)) == "GRANTED"
    other = opened(node, MATE)
    for fields in ({}, {"sequence": 1, **other}, {"sequence": 1, **session}):
        assert name(node.start(sequence=fields.pop("sequence", 0), **fields)) in ("BUSY", "STALE_EPOCH")
    assert committed(node, session) == 0


# Read-after-write.


def ask_after(node, opcode, session, sequence, port=WRITER):
    """What an opcode answers about block 1 when `sequence` must be committed first."""
    if opcode == Opcode.MATCH:
        return name(node.match(port, 0, [node.key(1)], sequence=sequence, **session))
    digest = 0 if opcode == Opcode.SESSION_FENCE else node.key(1)
    return name(node.ask(port, opcode, digest=digest, sequence=sequence, **session))


@pytest.mark.parametrize(
    ("opcode", "good"),
    [(Opcode.LOOKUP, "HIT"), (Opcode.MATCH, "HIT"), (Opcode.READ, "OK"), (Opcode.LEASE, "HIT"),
     (Opcode.SESSION_FENCE, "OK")],
)  # fmt: skip
def test_question_is_answered_when_its_number_is_committed_and_not_before(node, session, opcode, good):
    assert put(node, session, 1) == "SEALED"
    assert ask_after(node, opcode, session, 1) == good
    assert ask_after(node, opcode, session, 2) == "NOT_READY"
    assert woken(node) == set()
    assert put(node, session, 2) == "SEALED"
    assert woken(node) == {WRITER}
    assert ask_after(node, opcode, session, 2) == good
    assert ask_after(node, opcode, session | {"session_epoch": 1}, 2) == "STALE_EPOCH"


def test_port_is_woken_at_its_number_and_not_by_one_before_it(node, session):
    assert name(fence(node, session, 3, MATE)) == "NOT_READY"
    assert [put(node, session, number) for number in (1, 3)] == ["SEALED"] * 2
    assert woken(node) == set()
    assert put(node, session, 2) == "SEALED"
    assert woken(node) == {MATE}
    assert put(node, session, 4) == "SEALED"
    assert woken(node) == set()


def test_all_that_wait_are_woken_at_the_lowest_number(node, session):
    assert name(fence(node, session, 5, MATE)) == "NOT_READY"
    assert name(fence(node, session, 1)) == "NOT_READY"
    assert put(node, session, 1) == "SEALED"
    assert woken(node) == {WRITER, MATE}
    assert name(fence(node, session, 5, MATE)) == "NOT_READY"


def test_question_that_cannot_be_answered_yet_tells_nothing_of_the_block(node, session):
    assert put(node, session, 1) == "SEALED"
    answer = node.read(WRITER, 0, node.key(1), sequence=2, **session)
    assert [answer.fields[field] for field in ("slot", "length", "watermark", "crc")] == [0, 0, 0, 0]
    assert answer.data == b""


def test_wait_ends_with_its_deadline_and_one_without_lasts(node, session):
    assert name(fence(node, session, 1, MATE)) == "NOT_READY"
    node.advance(200 * TICK_CYCLES)
    assert woken(node) == set()
    assert name(fence(node, session, 1, deadline=100)) == "NOT_READY"
    node.advance(50 * TICK_CYCLES)
    assert woken(node) == set()
    node.advance(50 * TICK_CYCLES)
    assert woken(node) == {WRITER, MATE}
    node.advance(200 * TICK_CYCLES)
    assert woken(node) == set()


def test_earliest_deadline_of_several_waits_counts(node, session):
    for port, deadline in ((MATE, 200), (WRITER, 20), (MATE, 100)):
        assert name(fence(node, session, 1, port, deadline=deadline)) == "NOT_READY"
    node.advance(20 * TICK_CYCLES)
    assert woken(node) == {WRITER, MATE}


def test_session_reads_what_its_other_port_has_written_so_far(node):
    session = opened(node, ports=1 << WRITER | 1 << MATE)
    granted = node.start(sequence=1, **session)
    data = node.bytes_of(4 * BEAT)
    node.fill(granted, data)
    assert node.read(MATE, 0, KEY, length=4 * BEAT, **session).data == data
    assert name(node.read(MATE, 0, KEY, length=5 * BEAT, **session)) == "NOT_READY"
    assert name(node.read(MATE, 0, KEY, length=4 * BEAT)) == "NOT_READY"
    assert name(node.read(MATE, 0, KEY, length=4 * BEAT, **opened(node, MATE))) == "NOT_READY"


# Waiting for a block.


def waiting(node):
    """The grant of a block that MATE waits for."""
    granted = node.start(length=2 * BEAT)
    assert name(node.write(granted, bytes(BEAT))) == "OK"
    assert name(node.read(MATE, 0, KEY)) == "NOT_READY"
    assert woken(node) == set()
    return granted


def test_port_that_waits_for_a_block_is_woken_when_it_is_sealed(node):
    granted = waiting(node)
    assert name(node.write(granted, bytes(BEAT), BEAT)) == "OK"
    assert woken(node) == set()
    assert name(node.end(granted, bytes(2 * BEAT))) == "SEALED"
    assert woken(node) == {MATE}
    assert name(node.read(MATE, 0, KEY)) == "OK"


def test_port_that_waits_for_a_block_is_woken_when_it_fails(node):
    assert (name(node.end(waiting(node))), woken(node)) == ("INCOMPLETE", {MATE})
    granted = waiting(node)
    node.write(granted, bytes(BEAT), BEAT)
    assert (name(node.end(granted, b"other")), woken(node)) == ("CHECKSUM_MISMATCH", {MATE})
    assert name(node.by_handle(Opcode.PUT_REVOKE, waiting(node))) == "OK"
    assert woken(node) == {MATE}
    assert name(node.read(MATE, 0, KEY)) == "MISS"


def test_writer_and_waiter_are_woken_when_the_sweeper_takes_the_block(node):
    waiting(node)
    node.retire_model(0, 0)
    assert woken(node) == {WRITER, MATE}


@pytest.mark.parametrize("opcode", [Opcode.LOOKUP, Opcode.MATCH, Opcode.LEASE])
def test_whoever_looks_for_a_block_being_written_is_woken_too(node, opcode):
    granted = node.start(length=BEAT)
    answer = node.match(MATE, 0, [KEY]) if opcode == Opcode.MATCH else node.ask(MATE, opcode, digest=KEY)
    assert name(answer) == "NOT_READY"
    node.write(granted, bytes(BEAT))
    assert (name(node.end(granted, bytes(BEAT))), woken(node)) == ("SEALED", {MATE})


# Moving.


def test_moved_session_has_the_next_epoch_and_another_owner(node, session):
    assert put(node, session, 1) == "SEALED"
    new = moved(node, session, MATE)
    assert new == {"session": session["session"], "session_epoch": 1}
    assert put(node, session, 2) == "STALE_EPOCH"
    assert put(node, new, 2) == "STALE_EPOCH"
    assert put(node, new, 2, MATE) == "SEALED"
    assert committed(node, new) == 2
    assert name(fence(node, session)) == "STALE_EPOCH"


def test_session_can_be_moved_to_ports_that_are_named(node, session):
    new = moved(node, session, WRITER, digest=1 << MATE)
    assert put(node, new, 1) == "STALE_EPOCH"
    assert put(node, new, 1, MATE) == "SEALED"


def test_old_owner_may_still_write_up_to_the_limit(node, session):
    new = moved(node, session, MATE, limit=2)
    assert [put(node, session, number) for number in (1, 2, 3)] == ["SEALED", "SEALED", "STALE_EPOCH"]
    assert name(node.put(WRITER, 0, KEY, bytes(BEAT), **session)) == "STALE_EPOCH"
    assert committed(node, new) == 2
    assert put(node, new, 3, MATE) == "SEALED"


def test_new_owner_sees_every_block_that_the_old_one_wrote_or_waits(node, session):
    granted = node.start(length=BEAT, sequence=1, **session)
    new = moved(node, session, MATE, limit=1)
    assert name(node.read(MATE, 0, KEY, sequence=1, **new)) == "NOT_READY"
    data = node.bytes_of(BEAT)
    assert name(node.write(granted, data)) == "OK"
    assert woken(node) == set()
    assert name(node.end(granted, data)) == "SEALED"
    assert woken(node) == {MATE}
    assert node.read(MATE, 0, KEY, sequence=1, **new).data == data


def test_block_beyond_the_limit_is_refused_from_the_move_on_and_taken_back(node, session):
    granted = node.start(length=2 * BEAT, sequence=2, **session)
    assert name(node.write(granted, bytes(BEAT))) == "OK"
    moved(node, session, MATE, limit=1)
    assert name(node.write(granted, bytes(BEAT), BEAT)) == "STALE_EPOCH"
    assert name(node.end(granted, bytes(BEAT))) == "STALE_EPOCH"
    assert node.occupancy() == {"FREE": 15, "FILLING": 1}
    node.advance(0)
    assert node.occupancy() == {"FREE": 16}
    assert name(node.write(granted, bytes(BEAT), BEAT)) == "STALE_HANDLE"


def test_block_without_a_number_does_not_outlive_a_move(node, session):
    granted = node.start(length=BEAT, **session)
    moved(node, session, WRITER, limit=9)
    assert name(node.write(granted, bytes(BEAT))) == "STALE_EPOCH"


def test_owner_of_the_move_before_the_last_may_not_finish(node, session):
    # Its limit was another one: with that of the last move it could write what it was never allowed to.
    granted = [node.start(digest=node.key(n), length=BEAT, sequence=n, **session) for n in (1, 2)]
    second = moved(node, session, MATE, limit=1)
    assert name(node.write(granted[1], bytes(BEAT))) == "STALE_EPOCH"
    third = moved(node, second, WRITER, limit=9)
    assert [name(node.write(one, bytes(BEAT))) for one in granted] == ["STALE_EPOCH"] * 2
    assert name(node.start(digest=node.key(3), length=BEAT, sequence=2, **session)) == "STALE_EPOCH"
    assert committed(node, third) == 0


def test_move_wakes_who_waits_and_needs_the_present_epoch(node, session):
    assert name(fence(node, session, 1)) == "NOT_READY"
    new = moved(node, session, MATE)
    assert woken(node) == {WRITER}
    answer = node.ask(WRITER, Opcode.SESSION_MIGRATE, **session)
    assert name(answer) == "STALE_EPOCH"
    assert name(node.ask(WRITER, Opcode.SESSION_CLOSE, **session)) == "STALE_EPOCH"
    assert name(fence(node, new, port=MATE)) == "OK"


# Closing.


def test_close_gives_back_leases_and_blocks_being_written_and_leaves_what_is_sealed(node, session):
    assert put(node, session, 1) == "SEALED"
    granted = node.start(length=BEAT, sequence=2, **session)
    assert name(node.ask(WRITER, Opcode.LEASE, digest=node.key(1), **session)) == "HIT"
    answer = node.ask(WRITER, Opcode.SESSION_CLOSE, **session)
    assert (name(answer), answer.fields["watermark"]) == ("OK", 1)
    assert name(node.write(granted, bytes(BEAT))) == "STALE_EPOCH"
    node.advance(0)
    assert node.occupancy() == {"FREE": 15, "SEALED": 1}
    assert name(node.drop(WRITER, 0, node.key(1))) == "OK"


def test_close_wakes_who_waits_for_a_number(node, session):
    assert name(fence(node, session, 1, MATE)) == "NOT_READY"
    assert name(node.ask(WRITER, Opcode.SESSION_CLOSE, **session)) == "OK"
    assert woken(node) == {MATE}
    assert name(fence(node, session, 1, MATE)) == "STALE_EPOCH"


def test_idle_session_ends_after_its_time_and_one_in_use_does_not(node):
    used, idle, endless = opened(node, ttl=3), opened(node, ttl=3), opened(node)
    for _ in range(3):
        node.advance(2 * TTL_CYCLES)
        assert name(fence(node, used)) == "OK"
    assert [name(fence(node, one)) for one in (idle, endless)] == ["STALE_EPOCH", "OK"]
    node.advance(3 * TTL_CYCLES)
    assert [name(fence(node, one)) for one in (used, endless)] == ["STALE_EPOCH", "OK"]


def test_stale_question_does_not_keep_a_session_alive(node):
    session = opened(node, ttl=2)
    for _ in range(2):
        node.advance(TTL_CYCLES)
        assert name(fence(node, session | {"session_epoch": 7})) == "STALE_EPOCH"
    assert name(fence(node, session)) == "STALE_EPOCH"


def test_end_of_an_idle_session_wakes_who_waits(node):
    session = opened(node, ttl=1)
    assert name(fence(node, session, 1, MATE)) == "NOT_READY"
    node.advance(TTL_CYCLES)
    assert woken(node) == {MATE}


def test_numbers_of_sessions_return_only_after_all_generations(node):
    seen = []
    for _ in range(3 * SESSIONS):
        session = opened(node)
        seen.append(session["session"])
        assert name(node.ask(WRITER, Opcode.SESSION_CLOSE, **session)) == "OK"
    assert len(set(seen)) == len(seen)


# Private keys.

PRIVATE = {"flags": int(Flag.PRIVATE)}


def test_private_block_is_found_by_its_session_alone(node, session):
    other = opened(node, MATE)
    assert name(node.put(WRITER, 0, KEY, b"p" * BEAT, **session, **PRIVATE)) == "SEALED"
    assert node.read(WRITER, 0, KEY, **session, **PRIVATE).data == b"p" * BEAT
    for fields in ({}, session, other, other | PRIVATE):
        assert name(node.read(MATE, 0, KEY, **fields)) == "MISS"
        assert name(node.ask(MATE, Opcode.LOOKUP, digest=KEY, **fields)) == "MISS"
        assert name(node.match(MATE, 0, [KEY], **fields)) == "MISS"
        assert name(node.ask(MATE, Opcode.LEASE, digest=KEY, **fields)) == "MISS"
        assert name(node.ask(MATE, Opcode.DROP, digest=KEY, **fields)) == "MISS"
    assert name(node.match(MATE, 0, [KEY], **session, **PRIVATE)) == "HIT"


def test_same_digest_may_be_private_to_several_and_common_to_the_rest(node, session):
    asked = [opened(node) | PRIVATE, opened(node) | PRIVATE, {}]
    for number, fields in enumerate(asked):
        assert name(node.put(WRITER, 0, KEY, bytes([number]) * BEAT, **fields)) == "SEALED"
    assert [node.read(WRITER, 0, KEY, **fields).data[0] for fields in asked] == [0, 1, 2]
    assert node.occupancy() == {"FREE": 13, "SEALED": 3}


def test_same_digest_may_be_private_to_the_first_session_and_common(node, session):
    assert name(node.put(WRITER, 0, KEY, bytes(BEAT))) == "SEALED"
    assert name(node.put(WRITER, 0, KEY, bytes(BEAT), **session, **PRIVATE)) == "SEALED"


def test_handle_of_a_private_block_reaches_it_for_its_session_and_for_nobody_named(node, session):
    other = opened(node)
    granted = node.put(WRITER, 0, KEY, b"p" * BEAT, **session, **PRIVATE)
    assert name(granted) == "SEALED"
    for fields, expected in ((session, "OK"), ({}, "OK"), (other, "STALE_HANDLE")):
        assert name(node.by_handle(Opcode.READ, granted, **fields)) == expected
    assert name(node.by_handle(Opcode.DROP, granted, **other)) == "STALE_HANDLE"
    assert name(node.by_handle(Opcode.DROP, granted, **session)) == "OK"


def test_private_block_goes_with_its_session(node, session):
    granted = node.put(WRITER, 0, KEY, b"p" * BEAT, **session, **PRIVATE)
    assert put(node, session, 1) == "SEALED"
    assert name(node.ask(WRITER, Opcode.SESSION_CLOSE, **session)) == "OK"
    assert name(node.by_handle(Opcode.READ, granted)) == "STALE_HANDLE"
    assert name(node.read(WRITER, 0, KEY, **session, **PRIVATE)) == "STALE_EPOCH"
    assert name(node.read(WRITER, 0, KEY, **opened(node), **PRIVATE)) == "MISS"
    node.advance(0)
    assert node.occupancy() == {"FREE": 15, "SEALED": 1}
    assert node.reads(1) == ["OK"]


def test_private_block_moves_with_its_session(node, session):
    assert name(node.put(WRITER, 0, KEY, b"p" * BEAT, **session, **PRIVATE)) == "SEALED"
    new = moved(node, session, MATE)
    assert node.read(MATE, 0, KEY, **new, **PRIVATE).data == b"p" * BEAT
    assert name(node.read(WRITER, 0, KEY, **session, **PRIVATE)) == "STALE_EPOCH"


def test_private_key_needs_a_session(node):
    assert name(node.put(WRITER, 0, KEY, bytes(BEAT), **PRIVATE)) == "BAD_REQUEST"
