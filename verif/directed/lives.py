"""The lives of blocks, leases and sessions, up to their last moments and over the ends of their numbers.

Used by: verif.directed.
"""

from typing import Any

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.enums import Opcode
from kvnode.models.spec.messages import HANDLE, NUMBERED, SESSION_ARGUMENTS
from kvnode.models.spec.sessions import WINDOW

from ..harness.harness import Access, Harness
from .stage import Checker, Stage, addresses_of, ring_reads

#: A quarter of the time in which ticks of eight cycles go round.
LAP_CYCLES = 1 << 17


def drop_storm(harness: Harness, checker: Checker) -> None:
    """All blocks of a partition are dropped at once, and asked for in all ways before they are gone."""
    stage = Stage(harness, checker, 21)
    config = stage.config
    for turn in range(12):
        builder = stage.builder()
        for part in config.partitions:
            port, keys = part.ports[0], [stage.key() for _ in range(max(2, part.slots // 2))]
            opened = builder.add(Opcode.SESSION_OPEN, port)
            number = builder.add(Opcode.SESSION_MIGRATE, port, session_from=opened)
            last = [stage.put(builder, port, key) for key in keys][-1]
            for mate in part.ports:
                begin = builder.add(Opcode.PING, mate, after=len(builder) - 1)
                for key in keys if mate == port else reversed(keys):
                    builder.add(Opcode.DROP, mate, digest=key, after=max(begin, last))
                    ask = turn % 6
                    if ask == 0:
                        builder.add(Opcode.DROP, mate, digest=key)
                    elif ask == 1:
                        builder.read(mate, key)
                    elif ask == 2:
                        builder.match(mate, [stage.key(), key][: config.max_match_digests])
                    elif ask == 3:
                        builder.add(Opcode.LOOKUP, mate, digest=key, session_from=opened)
                    elif ask == 4:
                        builder.match(mate, [key, key][: config.max_match_digests])
                    else:
                        builder.add(Opcode.PUT_START, mate, digest=key, length=config.block_bytes)
            builder.add(Opcode.SESSION_CLOSE, port, session_from=number)
        stage.finish(builder)


def leases(harness: Harness, checker: Checker) -> None:
    """Leases are asked for until there are none, by each opcode, released, and asked for again."""
    stage = Stage(harness, checker, 22)
    config = stage.config
    slots: list[Access] = []
    for number, part in enumerate(config.partitions):
        shift = registers.POISON_PARTITION_SHIFT
        slots += [(4000 + 100 * slot, registers.POISON_ADDRESS, number << shift | slot) for slot in range(part.slots)]
    for turn in range(12):
        builder = stage.builder()
        for part in config.partitions:
            port, keys = part.ports[0], [stage.key() for _ in range(2)]
            starts = [stage.put(builder, port, key) for key in keys]
            held = []
            for count in range(config.leases + 1):
                opcode = (Opcode.LOOKUP, Opcode.LEASE)[(count + turn) % 2]
                held.append(builder.add(opcode, port, digest=keys[count % 2], lock=opcode == Opcode.LOOKUP))
            builder.match(port, keys, lock=True)
            builder.add(Opcode.LOOKUP, port, digest=keys[0], lock=True)
            builder.add(Opcode.LEASE, port, digest=keys[0])
            builder.add(Opcode.DROP, port, digest=keys[0])
            builder.add(Opcode.PUT_REVOKE, port, handle_from=starts[0])
            for opcode in (Opcode.LOOKUP, Opcode.READ, Opcode.LEASE, Opcode.PUT_START):
                length = config.block_bytes if opcode == Opcode.PUT_START else 0
                builder.add(opcode, port, digest=keys[0], length=length, earliest_cycle=9000 if turn % 3 == 0 else 0)
            for found in held[:: 1 + turn % 2]:
                builder.add(Opcode.RELEASE, part.ports[-1], handle_from=found)
            filling = builder.add(Opcode.PUT_START, port, digest=stage.key(), length=config.block_bytes)
            builder.add(Opcode.RELEASE, port, handle_from=filling)
            builder.add(Opcode.PUT_REVOKE, port, handle_from=filling)
            builder.add(Opcode.RELEASE_ALL, port)
            if turn % 3 == 1:
                for key in keys:
                    builder.add(Opcode.PUT_START, port, digest=key, length=config.block_bytes, earliest_cycle=9000)
                    builder.match(port, [keys[1]], earliest_cycle=9000)
        stage.finish(builder, slots if turn % 3 < 2 else ())
        stage.play(20, min_cycles=2000)


def sessions(harness: Harness, checker: Checker) -> None:
    """Sessions are opened until there are none; blocks of theirs come late, twice, and after the session has moved."""
    stage = Stage(harness, checker, 23)
    config = stage.config
    for turn in range(40):
        builder = stage.builder()
        for part in config.partitions:
            port, mate = part.ports[0], part.ports[-1]
            length = config.block_bytes
            # With time in between the sweeper finds a row for each; without it finds none.
            pause = 400 if turn % 4 else 0
            opened = [
                builder.add(Opcode.SESSION_OPEN, port, earliest_cycle=pause * count)
                for count in range(config.sessions + 1)
            ]
            first = opened[0]
            elsewhere = SESSION_ARGUMENTS.pack(ports=~sum(1 << number for number in part.ports) & 0xFF)
            builder.add(Opcode.SESSION_MIGRATE, port, session_from=first, digest=elsewhere)
            sequence = 1 + turn % 3
            stage_key = stage.key()
            data = stage.random.randbytes(length)[: config.max_payload_bytes]
            start = builder.add(
                Opcode.PUT_START, port, digest=stage_key, length=len(data), session_from=first, sequence=sequence
            )
            builder.add(Opcode.WRITE, port, handle_from=start, length=len(data), payload=data)
            if turn % 2:
                builder.add(Opcode.PUT_END, port, handle_from=start, crc=crc32c(data))
                builder.add(Opcode.PUT_START, port, digest=stage_key, length=length, session_from=first, sequence=1)
                builder.add(Opcode.PUT_START, port, digest=stage.key(), length=length, session_from=first, sequence=1)
                builder.add(Opcode.PUT_START, port, digest=stage.key(), length=length, session_from=first,
                            sequence=stage.random.getrandbits(32) | 99)  # fmt: skip
            moved = builder.add(Opcode.SESSION_MIGRATE, port, session_from=first, sequence=turn % 5 // 3)
            if turn % 4 == 2:
                builder.add(Opcode.SESSION_CLOSE, port, session_from=moved)
            builder.add(Opcode.WRITE, port, handle_from=start, offset=0, length=len(data), payload=data)
            builder.add(Opcode.PUT_END, port, handle_from=start, crc=crc32c(data))
            for opcode in (Opcode.DROP, Opcode.LEASE, Opcode.LOOKUP, Opcode.READ):
                builder.add(opcode, mate, digest=stage_key, session_from=first)
            for asker in opened[1:]:
                builder.add(Opcode.LEASE, port, digest=stage_key, session_from=asker)
            for opcode in (Opcode.SESSION_FENCE, Opcode.LOOKUP):
                builder.add(
                    opcode, mate, digest=stage_key if opcode == Opcode.LOOKUP else bytes(32), session_from=moved,
                    sequence=(1 << turn % 32) | 1, deadline=1 + turn,
                )  # fmt: skip
            for number in opened if turn % 3 else opened[::-1]:
                builder.add(Opcode.SESSION_CLOSE, port, session_from=moved if number == first else number)
        stage.finish(builder)
    # Numbers ahead of the committed one, in an order that commits many at once.
    for numbers in ((*range(16, 0, -1), *range(18, 33), 17), (*range(9, 0, -1), *range(14, 9, -1)), range(1, 80)):
        builder = stage.builder()
        for part in config.partitions:
            port = part.ports[0]
            session = builder.add(Opcode.SESSION_OPEN, port, earliest_cycle=500)
            for sequence in numbers:
                stage.put(builder, port, stage.key(), session_from=session, sequence=sequence)
            builder.add(Opcode.SESSION_FENCE, port, session_from=session, sequence=max(numbers))
            builder.add(Opcode.SESSION_CLOSE, port, session_from=session)
        stage.finish(builder)


def moving_session(harness: Harness, checker: Checker) -> None:
    """A session moves until its epoch has gone round."""
    stage = Stage(harness, checker, 24)
    builder = stage.builder()
    port = stage.config.partitions[0].ports[0]
    builder.add(Opcode.SESSION_OPEN, port)
    stage.finish(builder)
    number = NUMBERED  # The first session after a reset: row 0, generation 0.
    for lap in range(0, 1 << 16, 1 << 12):
        builder = stage.builder()
        for epoch in range(lap, lap + (1 << 12)):
            about: dict[str, Any] = {"session": number, "session_epoch": epoch}
            if stage.random.random() < 0.01:
                stage.put(builder, port, stage.key(), **about)
            builder.add(Opcode.SESSION_MIGRATE, port, sequence=epoch * 0x10001, **about)
        stage.finish(builder, ring_reads(300))
    builder = stage.builder()
    builder.add(Opcode.SESSION_FENCE, port, session=number, session_epoch=0)
    stage.finish(builder)


def numbers_ahead(harness: Harness, checker: Checker) -> None:
    """Blocks of a session are sealed in any order within its window, and asked for again before their turn."""
    stage = Stage(harness, checker, 38)
    config, draw = stage.config, stage.random
    data = draw.randbytes(config.beat_bytes)
    ports = [part.ports[0] for part in config.partitions]
    for _ in range(4):
        builder, time = stage.builder(), 0
        opened = {port: builder.add(Opcode.SESSION_OPEN, port) for port in ports}
        for first in range(1, 4 * WINDOW, WINDOW):
            numbers = list(range(first, first + WINDOW))
            draw.shuffle(numbers)
            for number in [*numbers, numbers[0]]:
                time += 300
                asked = draw.randrange(first, first + WINDOW)
                for port in ports:
                    about: dict[str, Any] = {"session_from": opened[port], "earliest_cycle": time}
                    key = stage.key()
                    start = builder.add(Opcode.PUT_START, port, digest=key, length=len(data), sequence=number, **about)
                    builder.add(Opcode.WRITE, port, handle_from=start, length=len(data), payload=data)
                    builder.add(Opcode.PUT_END, port, handle_from=start, crc=crc32c(data))
                    builder.add(Opcode.DROP, port, digest=key)
                    builder.add(Opcode.SESSION_FENCE, port, sequence=asked, **about)
                    again = builder.add(Opcode.PUT_START, port, digest=key, length=len(data), sequence=asked, **about)
                    builder.add(Opcode.PUT_REVOKE, port, handle_from=again)
        for port in ports:
            builder.add(Opcode.SESSION_CLOSE, port, session_from=opened[port], earliest_cycle=time + 300)
        stage.finish(builder, min_cycles=time + 4000)


def deadlines(harness: Harness, checker: Checker) -> None:
    """The partition's deadlines of leases and of blocks that are being written, one long and one short, every bit."""
    stage = Stage(harness, checker, 39)
    config = stage.config
    names = ("FILL_DEADLINE_TICKS", "LEASE_TICKS")
    for bit in range(3, 12):
        for name in names:
            builder = stage.builder()
            for part in config.partitions:
                port, key = part.ports[0], stage.key()
                stage.put(builder, port, key, deadline=255)
                builder.add(Opcode.LOOKUP, port, digest=key, lock=True, earliest_cycle=2000)
                builder.add(Opcode.PUT_START, port, digest=stage.key(), length=config.beat_bytes, earliest_cycle=2000)
            writes: list[Access] = []
            for other in names:
                ticks = (1 << bit if other == name else 0) + 4
                writes += [(0, address, ticks) for address in addresses_of(config, other)]
            stage.finish(builder, writes, min_cycles=4000 + ((2 << bit) << config.tick_cycles_log2))


def slots_that_are_read(harness: Harness, checker: Checker) -> None:
    """Blocks are dropped while READs of them wait for room, and their slots are written again at once, by a client that
    guesses handles."""
    for seed in range(40, 46):
        stage = Stage(harness, checker, seed)
        config, draw = stage.config, stage.random
        size = min(config.max_payload_bytes, config.block_bytes)
        builder, last = stage.builder(), {}
        for part in config.partitions:
            for _ in range(min(part.slots - part.low_watermark_slots, 8)):
                key = stage.key()
                last[part.ports[-1]] = key, stage.put(builder, part.ports[0], key)
        granted = stage.finish(builder, min_cycles=4000).results["header"]
        builder = stage.builder()
        for port, (key, start) in last.items():
            for _ in range(2):
                builder.read(port, key)
            builder.add(Opcode.DROP, port, digest=key, earliest_cycle=100)
            for _ in range(2):
                builder.add(Opcode.PUT_START, port, digest=stage.key(), length=config.block_bytes, earliest_cycle=300)
            generation = int(granted["generation"][start]) + 1
            guess = HANDLE.pack(slot=int(granted["slot"][start]), generation=generation, boot_epoch=stage.boot_epoch)
            for offset in range(0, config.block_bytes, size):
                builder.add(Opcode.WRITE, port, digest=guess, offset=offset, length=size,
                            payload=draw.randbytes(size), earliest_cycle=400)  # fmt: skip
        stage.finish(builder, backpressure=0.99)


def long_time(harness: Harness, checker: Checker) -> None:
    """Leases, blocks being written and idle sessions with all deadlines, and then nothing until the ticks go round."""
    stage = Stage(harness, checker, 27)
    config = stage.config
    for lap in range(5):
        builder = stage.builder()
        for part in config.partitions:
            port, key = part.ports[0], stage.key()
            stage.put(builder, port, key, ttl=(255, 1, 3, 0, 129)[lap])
            builder.add(Opcode.LOOKUP, port, digest=key, lock=True, deadline=(255, 0, 7, 128, 1)[lap])
            opened = builder.add(Opcode.SESSION_OPEN, port, ttl=(255, 1, 3, 0, 128)[lap])
            builder.add(Opcode.SESSION_FENCE, port, session_from=opened, sequence=1 << 31, deadline=255 - 50 * lap)
            builder.add(Opcode.PUT_START, port, digest=stage.key(), length=config.block_bytes, deadline=255 - 50 * lap)
        last = (1 << 16) - 1
        writes: list[Access] = [(0, address, last >> 1) for address in addresses_of(config, "LEASE_TICKS")]
        stage.finish(builder, writes, min_cycles=LAP_CYCLES)
