"""Stories of deadlines on the golden node: nothing lasts longer than it may."""

from kvnode.models.golden.directory import Operation
from kvnode.models.spec.enums import Flag, Kind, Opcode

BEAT = 16
WRITER, MATE = 3, 1
SWEEPER = 4
#: A tick is 256 cycles, a unit of time to live 256 ticks.
TICK_CYCLES, TTL_CYCLES = 256, 65536
KEY = 0xFEDCBA9876543210


def name(answer):
    return answer.status.name


# Blocks being written.


def test_block_that_is_not_written_in_time_is_given_up(node):
    granted = node.start(length=2 * BEAT, deadline=20)
    node.advance(10 * TICK_CYCLES)
    assert name(node.write(granted, bytes(BEAT))) == "OK"
    assert name(node.read(MATE, 0, KEY)) == "NOT_READY"
    node.advance(10 * TICK_CYCLES)
    assert name(node.write(granted, bytes(BEAT), BEAT)) == "STALE_HANDLE"
    assert node.woken == 1 << WRITER | 1 << MATE
    assert name(node.read(MATE, 0, KEY)) == "MISS"
    assert node.occupancy() == {"FREE": 16}


def test_fill_that_names_no_deadline_has_that_of_the_partition(make_node):
    node = make_node(part={"fill_deadline_ticks": 300})
    granted = node.start(length=2 * BEAT)
    node.advance(250 * TICK_CYCLES)
    assert name(node.write(granted, bytes(BEAT))) == "OK"
    node.advance(50 * TICK_CYCLES)
    assert name(node.write(granted, bytes(BEAT), BEAT)) == "STALE_HANDLE"


def test_fill_without_any_deadline_lasts(make_node):
    node = make_node(part={"fill_deadline_ticks": 0})
    granted = node.start(length=BEAT)
    for _ in range(5):
        node.advance(30_000 * TICK_CYCLES)
    assert name(node.write(granted, bytes(BEAT))) == "OK"
    assert name(node.end(granted, bytes(BEAT))) == "SEALED"


def test_deadline_of_a_fill_is_that_of_the_first_member_and_ends_with_the_seal(node):
    members = {"length": BEAT, "members": 2}
    granted = node.start(member=0, deadline=100, **members)
    node.start(MATE, member=1, deadline=1, **members)
    node.advance(50 * TICK_CYCLES)
    for member, port in enumerate((WRITER, MATE)):
        assert name(node.write(granted, bytes(BEAT), member * BEAT, port, member=member)) == "OK"
        answer = node.end(granted, bytes(BEAT), port, member=member, **members)
    assert name(answer) == "SEALED"
    node.advance(500 * TICK_CYCLES)
    assert name(node.read(MATE, 0, KEY)) == "OK"


def test_deadline_passes_in_the_tick_that_it_names_and_not_before(node):
    start = {"digest": KEY, "members": 1, "length": 1, "extent": 1}
    node.operate(Operation(WRITER, Kind.PUT_START, deadline=3, **start), cycle=TICK_CYCLES - 1)
    for cycle, state in ((3 * TICK_CYCLES - 1, "FILLING"), (3 * TICK_CYCLES, "RETIRING")):
        row = node.partitions[0].fill_hand
        look = Operation(SWEEPER, Kind.EXPIRE_FILL, row=row, slot=0)
        assert node.operate(look, cycle).state_after.name == state


def test_deadline_passes_across_the_end_of_the_clock(node):
    # Ticks have 16 bits.
    wrap = TICK_CYCLES << 16
    start = {"digest": KEY, "members": 1, "length": 1, "extent": 1}
    node.operate(Operation(WRITER, Kind.PUT_START, deadline=4, **start), cycle=wrap - 2 * TICK_CYCLES)
    for cycle, state in ((wrap + 2 * TICK_CYCLES - 1, "FILLING"), (wrap + 2 * TICK_CYCLES, "RETIRING")):
        look = Operation(SWEEPER, Kind.PATROL, slot=0)
        node.partitions[0].patrol = 0
        assert node.operate(look, cycle).state_after.name == state


# Sealed blocks.


def test_block_goes_when_its_time_is_over(node):
    node.put_keys(1, ttl=2)
    node.put_keys(2)
    node.advance(TTL_CYCLES)
    assert node.reads(1, 2) == ["OK", "OK"]
    node.advance(TTL_CYCLES)
    assert node.reads(1, 2) == ["MISS", "OK"]
    assert node.occupancy() == {"FREE": 15, "SEALED": 1}


def test_block_that_names_no_time_has_that_of_the_partition(make_node):
    node = make_node(part={"block_ttl": 3})
    node.put_keys(1)
    node.put_keys(2, ttl=9)
    node.advance(2 * TTL_CYCLES)
    assert node.reads(1, 2) == ["OK", "OK"]
    node.advance(TTL_CYCLES)
    assert node.reads(1, 2) == ["MISS", "OK"]


def test_time_of_a_block_is_not_prolonged_by_reading(node):
    node.put_keys(1, ttl=2)
    for _ in range(2):
        node.advance(TTL_CYCLES)
        node.reads(1)
    assert node.reads(1) == ["MISS"]


def test_time_of_a_block_counts_from_its_start_but_never_ends_a_fill(node):
    granted = node.start(length=BEAT, ttl=1, deadline=255)
    node.write(granted, bytes(BEAT))
    node.advance(TTL_CYCLES - 20 * TICK_CYCLES)
    assert name(node.end(granted, bytes(BEAT))) == "SEALED"
    assert name(node.read(WRITER, 0, KEY)) == "OK"
    node.advance(20 * TICK_CYCLES)
    assert name(node.read(WRITER, 0, KEY)) == "MISS"


# One round is enough.


def test_all_that_hangs_on_an_idle_session_goes_with_it(node):
    answer = node.ask(WRITER, Opcode.SESSION_OPEN, ttl=1)
    session = {"session": answer.fields["slot"]}
    node.put(WRITER, 0, node.key(1), bytes(BEAT), flags=Flag.PRIVATE, **session)
    node.put_keys(2)
    assert name(node.ask(WRITER, Opcode.LEASE, digest=node.key(2), deadline=0, **session)) == "HIT"
    assert name(node.start(digest=node.key(3), sequence=1, **session)) == "GRANTED"
    node.advance(TTL_CYCLES)
    assert node.occupancy() == {"FREE": 15, "SEALED": 1}
    assert name(node.drop(WRITER, 0, node.key(2))) == "OK"


def test_block_whose_time_and_lease_are_over_together_goes(node):
    node.put_keys(1, ttl=1)
    assert name(node.ask(MATE, Opcode.LEASE, digest=node.key(1), deadline=200)) == "HIT"
    node.advance(TTL_CYCLES)
    assert node.occupancy() == {"FREE": 16}


def test_deadlines_are_looked_at_while_requests_come(node):
    node.start(length=BEAT, deadline=1)
    for _ in range(1024):
        node.ask(WRITER, Opcode.PING)
    assert node.occupancy() == {"FREE": 16}
