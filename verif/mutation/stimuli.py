"""What every mutant is put through, in an order that finds most of them early.

A trial is a function of a harness that returns when all is as the golden model has it, and raises when anything is not.
Trials begin with a reset. The memories of a mutant's node are full of what the node without a mutant has left there.

Used by: campaign, verif.mutation.test_mutation.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.counters import BUCKETS, bucket_of
from kvnode.models.spec.enums import Kind, Opcode, State
from kvnode.models.spec.messages import REQUEST
from kvnode.models.spec.requests import BY_HANDLE_ONLY
from kvnode.models.spec.settings import Setting
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES, turn_wait_cycles
from kvnode.rtl.node.management import DOWN_CYCLES
from kvnode.sw_driver.batch import BatchBuilder

from ..directed import ROUNDS, Round
from ..directed.stage import addresses_of
from ..harness.harness import Access, Done, Harness, Manner, MannerlyAccess
from ..isolation import LOADS, pairs
from ..leaks import Leaks
from ..soak import play
from ..traffic import Traffic
from .follow import Follower
from .registers import RegisterCheck

__all__ = ["FAST", "STRONG", "Trial", "dirty"]

Trial = tuple[str, Callable[[Harness], None]]
#: Cycles from the last beat of a header to the first of its answer, beside those of the directory and the wait for the
#: port's turn (docs/blocks/node.md).
PORT_CYCLES = 2


CROWD = 2200


class WrongTime(AssertionError):
    """Something took another time than it must."""


class Leaked(AssertionError):
    """Something was never given back, or was done that nobody asked for."""


def dirty(harness: Harness, seed: int = 7, requests: int = 250) -> None:
    """Fill the memories, without looking."""
    harness.reset(seed % 4)
    config = harness.config
    batch, payload = Traffic(config, seed, keys=200, malformed=0).batch(requests)
    harness.run(batch, payload, max_cycles=400 * len(batch) + 200_000)


def traffic(seed: int, requests: int, registers_too: bool = True) -> Callable[[Harness], None]:
    """A round of verif.soak, and then what the registers say of it."""

    def trial(harness: Harness) -> None:
        follower = play(harness, seed, requests, Follower).check
        assert isinstance(follower, Follower)
        check = RegisterCheck(harness, follower, random.Random(seed))
        check.write(registers.PORT_DOWN_ADDRESS, 0)
        check.wait(check.round_cycles())
        check.check_settings()
        check.check_held()
        if registers_too:
            check.check_counters()
            check.check_events(20)

    return trial


def fixed_registers(harness: Harness) -> None:
    """The registers by themselves, and those that hold what is written."""
    check = _fresh(harness, 9)
    check.check_fixed()
    check.check_events()
    check.check_storage()


def commands(harness: Harness) -> None:
    """Every model retired, every slot damaged, every port down and up: once, and only if there is such a thing."""
    check = _fresh(harness, 1, traffic_seed=21)
    config, draw, lockstep = harness.config, random.Random(4), check.follower.lockstep
    count = len(config.partitions)
    targets: list[tuple[int, int, bool, tuple[int, ...]]] = []
    for number in (*range(count), count, 128):
        for model in (*range(config.models), config.models, 1 << 15):
            targets.append((registers.MODEL_RETIRE_ADDRESS, number << 16 | model, number < count
                            and model < config.models, (int(Kind.RETIRE_MODEL), number, model, 0, 0)))  # fmt: skip
        slots = config.partitions[number].slots if number < count else 4
        for slot in (*range(slots), slots, 1 << 19):
            targets.append((registers.POISON_ADDRESS, number << 20 | slot, number < count and slot < slots,
                            (int(Kind.POISON), number, 0, slot, 0)))  # fmt: skip
    for _ in range(12):
        # Nothing has such numbers; the registers show them all the same.
        targets.append((registers.MODEL_RETIRE_ADDRESS, draw.getrandbits(24) | 1 << 22, False, ()))
        targets.append((registers.POISON_ADDRESS, draw.getrandbits(28) | 1 << 26, False, ()))
    draw.shuffle(targets)
    for address, value, known, command in targets:
        seen = len(lockstep.commands)
        # The one behind it is ignored while it is busy.
        accesses: list[Access | MannerlyAccess] = [(0, address, value), (0, address, value ^ 1), (0, address)]
        twice = draw.getrandbits(1)
        run = check.access(accesses if twice else [accesses[0], accesses[2]])
        shown = int(run.registers["data"][-1])
        check.wait(check.round_cycles(2))
        done = lockstep.commands[seen:]
        if twice and known:
            if shown & ~(1 << 31) == value and done != [command] or not done or done[0] != command:
                raise Leaked(f"{value:#x} written to {address:#x} became {done}")
        elif not twice and shown & ~(1 << 31) != value:
            raise Leaked(f"{value:#x} written to {address:#x} reads {shown:#x}")
        elif not twice and done != [command] * known:
            raise Leaked(f"{value:#x} written to {address:#x} became {done}")
        if check.read(address) >> 31:
            raise Leaked(f"register {address:#x} stays busy")
        # Bytes by themselves: without any nothing happens.
        if draw.random() < 0.1:
            seen = len(lockstep.commands)
            check.write(address, 0, Manner(strobe=0))
            check.write(address, 0, Manner(strobe=8 if address == registers.MODEL_RETIRE_ADDRESS else 0))
            check.wait(check.round_cycles(2))
            if lockstep.commands[seen:]:
                raise Leaked("a write of no byte was carried out")
    for mask in [*range(1 << config.ports), (1 << config.ports) - 1]:
        seen = len(lockstep.commands)
        check.write(registers.PORT_DOWN_ADDRESS, mask | 0xFF << config.ports)
        check.wait(check.round_cycles(2))
        if check.read(registers.PORT_DOWN_ADDRESS) != mask:
            raise Leaked("the mask of ports that are down does not hold")
        expected = sorted((int(Kind.PORT_DOWN), number, 0, 0, mask & config.port_masks[number])
                          for number in range(count) if mask & config.port_masks[number])  # fmt: skip
        if sorted(lockstep.commands[seen:]) != expected:
            raise Leaked(f"ports {mask:#x} down became {lockstep.commands[seen:]}")
        check.write(registers.PORT_DOWN_ADDRESS, 0)
        check.wait(check.round_cycles(2))
        if lockstep.commands[seen + len(expected) :]:
            raise Leaked("ports that came up were taken back again")
    check.check_held()
    check.check_counters(every=True)
    check.check_events()


def drain_and_reset(harness: Harness) -> None:
    """Drain in the middle of traffic, and the request for a reset."""
    check = _fresh(harness, 2)
    config = harness.config
    for seed in range(4):
        batch, payload = Traffic(config, seed, malformed=0.05).batch(400)
        batch["patience"] = 0
        at = 200 + 97 * seed
        accesses: list[Access | MannerlyAccess] = [
            (at, registers.CONTROL_ADDRESS, registers.CONTROL_DRAIN_MASK, check.manner()),
            (at + 600, registers.STATUS_ADDRESS),
            (at + 601, registers.CONTROL_ADDRESS),
            (at + 900, registers.CONTROL_ADDRESS, 0),
            (at + 901, registers.STATUS_ADDRESS),
        ]
        run = harness.run(batch, payload, max_cycles=200_000, seed=seed, registers=accesses)
        check.follower.check(batch, payload, run)
        told = run.registers["data"].tolist()
        if told[1:3] != [registers.STATUS_DRAINED_MASK, 1] or told[4] != registers.STATUS_READY_MASK:
            raise WrongTime(f"STATUS and CONTROL of a node that drains and goes on are {told}")
        quiet = int(run.registers["accepted_cycle"][1]), int(run.registers["accepted_cycle"][3])
        by_ports = run.trace[run.trace["owner"] < config.ports]["cycle"]
        if ((by_ports > quiet[0]) & (by_ports < quiet[1])).any() or not (by_ports > quiet[1]).any():
            raise WrongTime("a drained node went on, or did not go on again")
        check.wait(3000)
    for port in range(config.ports):
        builder = BatchBuilder(config)
        builder.add(Opcode.PING, port, earliest_cycle=30)
        batch, payload = builder.build()
        run = harness.run(batch, payload, max_cycles=2000, registers=[
            (0, registers.PORT_DOWN_ADDRESS, 1 << port), (90, registers.PORT_DOWN_ADDRESS, 0)])  # fmt: skip
        check.follower.check(batch, payload, run)
        up = int(run.results["sent_cycle"][0]) - int(run.registers["accepted_cycle"][1])
        if not 0 <= up - DOWN_CYCLES - config.request_beats <= 4:
            raise WrongTime(f"port {port} came up {up} cycles after it was told to")
    before = harness.reset_requests()
    check.write(registers.CONTROL_ADDRESS, registers.CONTROL_RESET_MASK, Manner(strobe=0xE))
    check.write(registers.CONTROL_ADDRESS, 0)
    asked = harness.reset_requests() - before
    check.write(registers.CONTROL_ADDRESS, registers.CONTROL_RESET_MASK)
    check.wait(20)
    if (asked, harness.reset_requests() - before) != (0, 1) or before:
        raise WrongTime(f"the node asked {harness.reset_requests()} times for a reset, not once")
    harness.reset(3)
    run = harness.run(batch[:0], registers=[(0, registers.STATUS_ADDRESS), (0, registers.BOOT_EPOCH_ADDRESS)],
                      max_cycles=1000)  # fmt: skip
    if run.registers["data"].tolist() != [registers.STATUS_TABLES_CLEARING_MASK, 3]:
        raise WrongTime(f"STATUS and BOOT_EPOCH after a reset are {run.registers['data'].tolist()}")


def latencies(harness: Harness) -> None:
    """Every answer of an idle port in the cycle in which it must come; and the histograms exactly."""
    check = _fresh(harness, 3)
    config, draw = harness.config, random.Random(5)
    before = check.histogram()
    if before.any():
        raise WrongTime("a histogram is not empty after a reset")
    counts = np.zeros((config.ports, BUCKETS), np.int64)
    for gap, backpressure, accesses in (
        (40, 0.0, []), (0, 0.0, []), (3, 0.7, []), (0, 0.97, []),
        (900, 0.0, [(100 + 4000 * k, registers.CONTROL_ADDRESS, k % 2 ^ 1) for k in range(8)]),
        (10, 0.4, [(150 + 100 * k, registers.PORT_DOWN_ADDRESS, (1, 0, 2, 0)[k % 4]) for k in range(8)]),
    ):  # fmt: skip
        builder = BatchBuilder(config)
        for number in range(40 if gap > 99 else 120):
            port = number % config.ports if gap else draw.randrange(config.ports)
            digest = draw.getrandbits(config.digest_bits).to_bytes(32, "little")
            opcode = draw.choice((Opcode.PING, Opcode.LOOKUP, Opcode.READ, Opcode.DROP))
            builder.add(opcode, port, digest=digest, earliest_cycle=number * gap + draw.randrange(3))
        batch, payload = builder.build()
        run = harness.run(batch, payload, max_cycles=500_000, backpressure=backpressure, seed=gap, registers=accesses)
        check.follower.check(batch, payload, run)
        done = run.results["done"] == Done.ANSWERED
        taken = run.results["last_cycle"].astype(np.int64) - run.results["sent_cycle"].astype(np.int64)
        for port, cycles in zip(batch["port"][done].tolist(), taken[done].tolist()):
            counts[port, bucket_of(cycles)] += 1
        if gap == 40:
            _check_idle(config, batch, run.results)
        check.wait(20)
        if (check.histogram() != counts).any():
            raise WrongTime("a histogram does not say what was measured")


def promptness(harness: Harness) -> None:
    """After a silence nothing is held beyond its deadline, nothing waits to be reaped, and no partition is short."""
    check = _fresh(harness, 5)
    config = harness.config
    for setting, value in ((Setting.FILL_DEADLINE_TICKS, 30), (Setting.LEASE_TICKS, 40), (Setting.BLOCK_TTL, 2)):
        for address in addresses_of(config, setting.name):
            check.write(address, value)
    check.wait(check.round_cycles())
    for seed in range(3):
        batch, payload = Traffic(config, 50 + seed, malformed=0).batch(400)
        header = batch["header"]
        opens = header["opcode"] == Opcode.SESSION_OPEN
        header["ttl"][opens] = header["ttl"][opens].clip(1, 1)
        run = harness.run(batch, payload, max_cycles=400 * len(batch) + 200_000, seed=seed, backpressure=0.1)
        check.follower.check(batch, payload, run)
        check.wait((4 * 256 << config.tick_cycles_log2) + check.round_cycles(24))
        for number, part in enumerate(check.follower.lockstep.node.partitions):
            held = [block.state for block in part.blocks if block.state in (State.FILLING, State.RETIRING)]
            late = [block for block in part.blocks if block.state == State.SEALED]
            if held or part.low or len(part.leases) or any(session.open for session in part.sessions) or late:
                raise Leaked(f"after a silence partition {number} holds {held}, {len(part.leases)} leases, {late}")
        check.check_held()


def isolation(seeds: range, names: tuple[str, ...]) -> Callable[[Harness], None]:
    """A tenant's cycles beside others (verif.isolation)."""

    def trial(harness: Harness) -> None:
        for pair in pairs(harness, seeds, names=names):
            if pair.differences:
                raise WrongTime(f"beside {pair.what}: other {', '.join(pair.differences)}")

    return trial


def leaks(harness: Harness) -> None:
    """Ports that die (verif.leaks)."""
    figures = Leaks(harness, 3).play(1)
    if figures.leaked:
        raise Leaked(f"{figures.leaked} slots, rows, leases or sessions did not come back")


def crowded(harness: Harness) -> None:
    """More events than the ring has room for, and thousands of one kind."""
    follower = Follower(harness.config, 2)
    harness.reset(2)
    check = RegisterCheck(harness, follower, random.Random(3))
    builder = BatchBuilder(harness.config)
    for number in range(180):
        port = number % harness.config.ports
        builder.puts(port, [((number * 77).to_bytes(32, "little"), bytes(harness.config.beat_bytes))], rows=1)
    batch, payload = builder.build()
    follower.check(batch, payload, harness.run(batch, payload, max_cycles=500_000))
    if not follower.lockstep.events.overflow:
        raise AssertionError("the ring was never full")
    check.check_events(50)
    check.check_events(300)
    # Enough of one kind to fill many bits of a count.
    builder, port = BatchBuilder(harness.config), harness.config.ports - 1
    for _ in range(CROWD):
        builder.add(Opcode.PING, port)
    batch, payload = builder.build()
    before = check.histogram()
    run = harness.run(batch, payload, max_cycles=500_000)
    follower.check(batch, payload, run)
    check.check_counters()
    taken = run.results["last_cycle"].astype(np.int64) - run.results["sent_cycle"].astype(np.int64)
    for cycles in taken.tolist():
        before[port, bucket_of(cycles)] += 1
    if (check.histogram() != before).any():
        raise WrongTime("a histogram does not say what was measured")


def occupancy(harness: Harness) -> None:
    """What the partitions hold, read again and again while it changes."""
    check = _fresh(harness, 6)
    for seed in range(2):
        batch, payload = Traffic(harness.config, 60 + seed, malformed=0).batch(1000)
        accesses = check.held_accesses(tuple(range(0, 8000, 90)))
        run = harness.run(batch, payload, max_cycles=400 * len(batch), seed=seed, registers=accesses)
        check.follower.check(batch, payload, run)
        check.check_held(run)


def slow_ports(harness: Harness) -> None:
    """Beats that come, and are taken, far apart: a body long after its header, answers that pile up."""
    check = _fresh(harness, 11)
    for seed, (idle, backpressure) in enumerate(((0.9, 0.0), (0.0, 0.9), (0.97, 0.5), (0.6, 0.97))):
        batch, payload = Traffic(harness.config, 110 + seed, malformed=0.1).batch(160)
        run = harness.run(batch, payload, max_cycles=3000 * len(batch), idle=idle, backpressure=backpressure,
                          seed=seed)  # fmt: skip
        check.follower.check(batch, payload, run)


def leased_matches(harness: Harness) -> None:
    """MATCHes that are answered with handles, of all lengths, at any pace, now and then cut off by a port that dies."""
    check = _fresh(harness, 14)
    config, draw = harness.config, random.Random(15)
    most = min(config.max_match_digests, min(part.slots for part in config.partitions) // 2)
    for seed in range(4):
        builder = BatchBuilder(config)
        for _ in range(8):
            digests = [draw.getrandbits(config.digest_bits).to_bytes(32, "little") for _ in range(most)]
            for port in range(config.ports):
                data = draw.randbytes(config.beat_bytes * draw.randrange(1, 4))
                end = builder.puts(port, [(digest, data) for digest in digests], rows=1)[-1][2]
                for _ in range(6):
                    asked = digests[: draw.randrange(1, most + 1)] + [bytes(31) + b"\1"] * draw.getrandbits(1)
                    asked = asked[: config.max_match_digests]
                    builder.add(Opcode.MATCH, port, lock=True, length=32 * len(asked), payload=b"".join(asked),
                                after=end)  # fmt: skip
                    builder.add(Opcode.LOOKUP, port, digest=draw.choice(digests))
                builder.add(Opcode.RELEASE_ALL, port)
                for digest in digests:
                    builder.add(Opcode.DROP, port, digest=digest)
        batch, payload = builder.build()
        accesses = [(at, registers.PORT_DOWN_ADDRESS, draw.randrange(1 << config.ports) * (seed % 2) * (at // 300 % 2))
                    for at in range(300, 3000, 300)]  # fmt: skip
        run = harness.run(batch, payload, max_cycles=2000 * len(batch), seed=seed, backpressure=0.3 * seed,
                          registers=[*accesses, (3100, registers.PORT_DOWN_ADDRESS, 0)])  # fmt: skip
        check.follower.check(batch, payload, run)


def flipped_bits(harness: Harness) -> None:
    """Messages of every opcode in which one bit is wrong, each bit of the header and of a MATCH's digests in turn."""
    check = _fresh(harness, 12)
    config, draw = harness.config, random.Random(13)
    data = draw.randbytes(config.beat_bytes)
    for port in range(config.ports):
        builder, flips = BatchBuilder(config), []
        digest = (1234 + port).to_bytes(32, "little")
        start, _, end = builder.puts(port, [(digest, data)], rows=1)[0]
        opened = builder.add(Opcode.SESSION_OPEN, port)
        for opcode in Opcode:
            handles = {"handle_from": start} if opcode in BY_HANDLE_ONLY else {"digest": digest}
            if opcode in (Opcode.PING, Opcode.RELEASE_ALL, Opcode.SESSION_OPEN, Opcode.SESSION_MIGRATE):
                handles = {"digest": bytes(32)}
            fields: dict[str, Any] = {"after": end, **handles}
            if opcode in (Opcode.WRITE, Opcode.MATCH):
                payload = data if opcode == Opcode.WRITE else digest
                fields |= {"length": len(payload), "payload": payload}
            elif opcode == Opcode.PUT_START:
                fields["length"] = len(data)
            elif opcode in (Opcode.SESSION_FENCE, Opcode.SESSION_CLOSE, Opcode.SESSION_MIGRATE):
                fields = {"after": end, "session_from": opened}
            flips += [(builder.add(opcode, port, **fields), bit) for bit in range(8 * REQUEST.size_bytes)]
        for bit in range(256):
            torn = (int.from_bytes(digest, "little") ^ 1 << bit).to_bytes(32, "little")
            builder.add(Opcode.MATCH, port, length=64, payload=draw.choice((torn + digest, digest + torn)))
        batch, payload = builder.build()
        headers = np.ascontiguousarray(batch["header"]).view(np.uint8).reshape(len(batch), -1)
        for index, bit in flips:
            headers[index, bit // 8] ^= 1 << bit % 8
        batch["header"] = headers.view(batch["header"].dtype).reshape(-1)
        run = harness.run(batch, payload, max_cycles=400 * len(batch))
        check.follower.check(batch, payload, run)


def full_house(harness: Harness) -> None:
    """All rows of fills, leases and sessions taken, for a long time; then their ports die."""
    check = _fresh(harness, 7)
    config = harness.config
    for leases in range(1, config.leases + 1):
        builder = BatchBuilder(config)
        for port in range(config.ports):
            data, digest = bytes([port + 1]) * config.beat_bytes, (77 + port + leases).to_bytes(32, "little")
            end = builder.puts(port, [(digest, data)], rows=1)[0][2]
            for _ in range(leases + leases // config.leases):
                builder.add(Opcode.LOOKUP, port, digest=digest, lock=True, after=end)
            for number in range(leases % (config.sessions + 2)):
                builder.add(Opcode.SESSION_OPEN, port, earliest_cycle=400 * (number + 1))
            for number in range(leases % (config.fill_rows + 2)):
                builder.add(Opcode.PUT_START, port, digest=(500 + number).to_bytes(32, "little"), length=len(data))
        batch, payload = builder.build()
        run = harness.run(batch, payload, max_cycles=100_000)
        check.follower.check(batch, payload, run)
        check.check_held()
        for cycles in (1_500, 9_000)[: 1 + leases // 4]:
            check.wait(cycles)
            check.check_held()
        if any(len(part.leases) < leases for part in check.follower.lockstep.node.partitions):
            raise AssertionError("there are fewer leases than there should be")
        check.write(registers.PORT_DOWN_ADDRESS, (1 << config.ports) - 1)
        check.wait(check.round_cycles(2 * config.leases + 4))
        check.check_held()
        for part in check.follower.lockstep.node.partitions:
            if len(part.leases) or any(block.state == State.FILLING for block in part.blocks):
                raise Leaked("what a port held that died was not taken back")
        check.write(registers.PORT_DOWN_ADDRESS, 0)
        check.wait(check.round_cycles())


def settings(harness: Harness) -> None:
    """Settings that change all the time, to anything; and that are brought in force once."""
    check = _fresh(harness, 10)
    config, draw, lockstep = harness.config, random.Random(9), check.follower.lockstep
    for seed in range(4):
        accesses: list[Access | MannerlyAccess] = []
        for at in range(50, 5000, 50):
            number, setting = draw.randrange(len(config.partitions)), draw.choice(list(Setting))
            address = getattr(registers, f"PARTITION_{setting.name}_ADDRESS")
            address += number * registers.PARTITION_STRIDE_BYTES
            of_slots = setting.name.endswith("_SLOTS")
            most = config.partitions[number].slots if of_slots else 1 << draw.randrange(1, 16)
            accesses.append((at, address, draw.randrange(most + 1), check.manner()))
        batch, payload = Traffic(config, 90 + seed, malformed=0).batch(700)
        run = harness.run(batch, payload, max_cycles=400 * len(batch) + 200_000, seed=seed, registers=accesses)
        check.follower.check(batch, payload, run)
        check.wait(check.round_cycles(8))
        check.check_settings()
        seen = len(lockstep.commands)
        check.wait(check.round_cycles())
        if lockstep.commands[seen:]:
            raise Leaked(f"without a write the sweeper does {lockstep.commands[seen:]}")
    for value in ((1 << 32) - 1, 0):
        for setting in Setting:
            for address in addresses_of(config, setting.name):
                check.write(address, value)
        check.wait(check.round_cycles(8))
        check.check_settings()


def long_session(harness: Harness, numbers: int = 530) -> None:
    """A session with many blocks: its numbers grow, and are asked for."""
    check = _fresh(harness, 8)
    config, draw = harness.config, random.Random(6)
    builder = BatchBuilder(config)
    data = draw.randbytes(config.beat_bytes)
    for port in range(config.ports):
        owner, end = builder.add(Opcode.SESSION_OPEN, port), -1
        for number in range(1, numbers):
            digest = (number * 0x9E37 % (1 << config.digest_bits)).to_bytes(32, "little")
            start = builder.add(Opcode.PUT_START, port, session_from=owner, sequence=number, digest=digest,
                                length=len(data), klass=0, after=end, earliest_cycle=70 * number)  # fmt: skip
            builder.add(Opcode.WRITE, port, handle_from=start, length=len(data), payload=data)
            end = builder.add(Opcode.PUT_END, port, handle_from=start, crc=crc32c(data))
            builder.add(Opcode.DROP, port, digest=digest)
            if number % 8 == 0:
                # A block without a number: of the session, but nothing waits for it.
                start = builder.add(Opcode.PUT_START, port, session_from=owner, digest=digest, length=len(data))
                builder.add(Opcode.PUT_REVOKE, port, handle_from=start)
            if number % 16 == 0:
                builder.add(Opcode.SESSION_FENCE, port, session_from=owner, sequence=number + draw.randrange(2))
            if number % 100 == 0:
                owner = builder.add(Opcode.SESSION_MIGRATE, port, session_from=owner, sequence=number, after=end)
    batch, payload = builder.build()
    run = harness.run(batch, payload, max_cycles=400 * len(batch))
    check.follower.check(batch, payload, run)
    if not (run.results["header"]["watermark"] > numbers - 20).any():
        raise Leaked("the session did not come on")


def directed(play: Round) -> Callable[[Harness], None]:
    """A round of verif.directed."""

    def trial(harness: Harness) -> None:
        play(harness, Follower)

    return trial


def _fresh(harness: Harness, boot_epoch: int, traffic_seed: int | None = None) -> RegisterCheck:
    """Reset, clear, perhaps some traffic; the registers from then on."""
    harness.reset(boot_epoch)
    follower = Follower(harness.config, boot_epoch)
    check = RegisterCheck(harness, follower, random.Random(boot_epoch))
    check.wait(100)
    if traffic_seed is not None:
        batch, payload = Traffic(harness.config, traffic_seed, malformed=0).batch(200)
        run = harness.run(batch, payload, max_cycles=200_000)
        follower.check(batch, payload, run)
    return check


def _check_idle(config: NodeConfig, batch: np.ndarray, results: np.ndarray) -> None:
    times = results["sent_cycle"].tolist(), results["first_cycle"].tolist()
    for port, sent, first in zip(batch["port"].tolist(), *times):
        wait = turn_wait_cycles(sent + 1, port, config.ports)
        if first - sent != DIRECTORY_LATENCY_CYCLES + PORT_CYCLES + wait:
            raise WrongTime(f"an answer on idle port {port} took {first - sent} cycles, its turn was {wait} away")


#: Kill most; each is short.
FAST: tuple[Trial, ...] = (
    ("traffic 0", traffic(0, 120, registers_too=False)),
    ("traffic 1", traffic(1, 500)),
    ("fixed registers", fixed_registers),
    ("latencies", latencies),
    ("drain and reset", drain_and_reset),
    ("settings", settings),
    ("commands", commands),
)
#: For those that are left, and are not proved to change nothing.
STRONG: tuple[Trial, ...] = (
    ("promptness", promptness),
    ("leased matches", leased_matches),
    ("flipped bits", flipped_bits),
    ("full house", full_house),
    ("slow ports", slow_ports),
    ("occupancy", occupancy),
    ("crowded", crowded),
    ("traffic 2", traffic(2, 1500)),
    *((f"directed: {name.replace('_', ' ')}", directed(play)) for name, play in ROUNDS.items()),
    ("long session", long_session),
    ("traffic 3", traffic(3, 2000)),
    ("leaks", leaks),
    ("isolation", isolation(range(2), tuple(LOADS)[1:])),
    *((f"traffic {seed}", traffic(seed, 3000)) for seed in range(4, 13)),
)
