"""Messages of all shapes: junk, crowds, uneven payloads, runs, odd keys, ports that are not the owner's, shares.

Used by: verif.directed.
"""

from typing import Any

import numpy as np

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec.enums import Opcode
from kvnode.models.spec.messages import HANDLE, NUMBERED
from kvnode.models.spec.requests import MAX_MEMBERS

from ..harness.harness import Harness
from .stage import Checker, Stage, ring_reads


def junk(harness: Harness, checker: Checker) -> None:
    """Headers with random bytes in random places."""
    for seed in range(13, 17):
        stage = Stage(harness, checker, seed, malformed=0.2)
        batch, payload = stage.traffic.batch(2000)
        spoiled = np.random.default_rng(seed).random(len(batch)) < 0.4
        headers = np.ascontiguousarray(batch["header"])
        raw = headers.view(np.uint8).reshape(len(batch), -1)
        for row in np.flatnonzero(spoiled).tolist():
            for _ in range(stage.random.choice((1, 1, 2, 8, 64))):
                place = stage.random.randrange(raw.shape[1])
                raw[row, place] = stage.random.getrandbits(8)
        batch["header"] = headers
        stage.run(batch, payload, backpressure=0.1)


def crowded_answers(harness: Harness, checker: Checker) -> None:
    """Answers are hardly ever taken, so that every queue in front of them is full."""
    for seed, backpressure in ((17, 0.95), (18, 0.8), (19, 0.98)):
        stage = Stage(harness, checker, seed, keys=6)
        stage.play(400, backpressure=backpressure)
    for port in range(stage.config.ports):
        builder = stage.builder()
        for _ in range(100):
            builder.add(Opcode.PING, port)
        stage.finish(builder)
    stage = Stage(harness, checker, 20)
    builder = stage.builder()
    for port in range(stage.config.ports):
        key = stage.key()
        stage.put(builder, port, key)
        for _ in range(40):
            builder.add(Opcode.PING, port)
        for _ in range(6):
            stage.put(builder, port, stage.key())
            builder.read(port, key)
    stage.finish(builder, backpressure=0.97)

    # One beat at a time into two blocks; then no room for an answer, and a payload that does not end.
    stage = Stage(harness, checker, 28)
    config = stage.config
    for _ in range(4):
        builder = stage.builder()
        for port in range(config.ports):
            starts = [builder.add(Opcode.PUT_START, port, digest=stage.key(), length=config.block_bytes)
                      for _ in range(2)]  # fmt: skip
            builder.add(Opcode.PING, port, after=starts[-1])
            for start in starts:
                for offset in range(0, config.block_bytes, config.beat_bytes):
                    beat = stage.random.randbytes(config.beat_bytes)
                    builder.add(Opcode.WRITE, port, handle_from=start, offset=offset, length=len(beat), payload=beat)
            for start in starts:
                for _ in range(20):
                    builder.add(Opcode.PING, port)
                builder.add(Opcode.WRITE, port, handle_from=start, length=config.beat_bytes,
                            payload=stage.random.randbytes(80 * config.beat_bytes))  # fmt: skip
            for start in starts:
                builder.add(Opcode.PUT_REVOKE, port, handle_from=start)
        stage.finish(builder, backpressure=0.98)


def uneven_payloads(harness: Harness, checker: Checker) -> None:
    """WRITEs with more beats than they announce, also more than are kept, or fewer, into two blocks at a time; between
    them, WRITEs that are as they should be."""
    for seed, (idle, backpressure) in enumerate(((0.0, 0.0), (0.3, 0.0), (0.0, 0.9), (0.4, 0.95)), 33):
        stage = Stage(harness, checker, seed)
        draw, config = stage.random, stage.config
        beat, block = config.beat_bytes, min(config.block_beats, 16)
        most = min(config.max_payload_bytes // beat, block)
        builder = stage.builder()
        for port in list(range(config.ports)) * 12:
            starts = [builder.add(Opcode.PUT_START, port, digest=stage.key(), length=block * beat) for _ in range(2)]
            place = 0
            while place < block:
                announced = min(draw.randrange(1, most + 1), block - place)
                for start in starts:
                    sent = draw.choice((announced, announced, announced, draw.randrange(2 * most), 48))
                    builder.add(Opcode.WRITE, port, handle_from=start, offset=place * beat, length=announced * beat,
                                payload=draw.randbytes(sent * beat))  # fmt: skip
                place += announced
            for start in starts:
                builder.add(Opcode.READ, port, handle_from=start, by_handle=True, length=beat)
                builder.add(Opcode.PUT_REVOKE, port, handle_from=start)
            data = draw.randbytes(block * beat)
            end = builder.puts(port, [(stage.key(), data)])[-1][0]
            builder.add(Opcode.READ, port, handle_from=end, by_handle=True)
        stage.finish(builder, idle=idle, backpressure=backpressure)


def strided_reads(harness: Harness, checker: Checker) -> None:
    """READs of runs with all that can be said of them: how long, how far apart, how many, from where."""
    stage = Stage(harness, checker, 37)
    config = stage.config
    beat, block = config.beat_bytes, min(config.block_beats, 8)
    for turn in range(2):
        builder = stage.builder()
        for port in range(config.ports):
            start = stage.put(builder, port, stage.key())
            end = len(builder) - 1
            for run in range(1, block + 1):
                for stride in range(run, block + 1):
                    for count in range(1, (block - run) // stride + 2):
                        last = block - run - stride * (count - 1)
                        builder.add(Opcode.READ, port, handle_from=start, by_handle=True, length=run * beat,
                                    stride=stride * beat, count=count, offset=stage.random.randrange(last + 1) * beat,
                                    after=end)  # fmt: skip
        stage.finish(builder, backpressure=0.6 * turn)


def odd_keys(harness: Harness, checker: Checker) -> None:
    """Keys, groups, handles and leases of which every bit is used, and digests that are too long or torn."""
    for seed in range(29, 32):
        stage = Stage(harness, checker, seed)
        draw, config = stage.random, stage.config
        builder = stage.builder()
        for _ in range(60):
            port = draw.randrange(config.ports)
            part = config.partitions[config.partition_of_port[port]]
            key = stage.key()
            about: dict[str, Any] = {"group": draw.getrandbits(8), "model_id": draw.randrange(config.models)}
            stage.put(builder, port, key, klass=draw.randrange(4), **about)
            builder.read(port, key, **about)
            locked = builder.add(Opcode.LOOKUP, port, digest=key, lock=True, deadline=draw.getrandbits(8), **about)
            handle = HANDLE.pack(
                slot=draw.randrange(part.slots), generation=draw.getrandbits(config.generation_bits),
                boot_epoch=stage.boot_epoch, lease=draw.getrandbits(32), stride=draw.getrandbits(32),
                count=draw.getrandbits(32), crc=draw.getrandbits(32),
            )  # fmt: skip
            for opcode in (Opcode.RELEASE, Opcode.DROP, Opcode.READ, Opcode.PUT_REVOKE, Opcode.PUT_END):
                one_use = {
                    Opcode.RELEASE: ("lease",), Opcode.READ: ("stride", "count"), Opcode.PUT_END: ("crc",)
                }.get(opcode, ())  # fmt: skip
                fields = HANDLE.unpack(handle)
                kept = {name: fields[name] for name in ("slot", "generation", "boot_epoch", *one_use)}
                builder.add(opcode, port, digest=HANDLE.pack(**kept), by_handle=True, model_id=about["model_id"])
            builder.add(Opcode.RELEASE, port, handle_from=locked, model_id=about["model_id"])
            digests = key + draw.randbytes(32) + key
            for size in (96, 32, 64):
                payload = digests[:size][: config.max_payload_bytes // 32 * 32]
                builder.add(Opcode.MATCH, port, length=len(payload), payload=payload, **about)
            for size in range(config.beat_bytes, 64, config.beat_bytes):
                builder.add(Opcode.MATCH, port, length=32, payload=digests[:size], **about)
            for lock in (False, True, True):
                builder.match(port, [key] * config.max_match_digests, lock=lock, **about)
            builder.add(Opcode.RELEASE_ALL, port)
            much = max(2 * 32 * config.max_match_digests + 64, config.beat_bytes)
            builder.add(Opcode.MATCH, port, length=32 * config.max_match_digests, payload=draw.randbytes(much), **about)
        stage.finish(builder, ring_reads(200))


def foreign_ports(harness: Harness, checker: Checker) -> None:
    """Ports of the same partition and of others touch what is not theirs; the public partition is read by all."""
    stage = Stage(harness, checker, 25)
    config = stage.config
    public = 0 if config.public_partition is None else config.public_partition
    for _ in range(4):
        builder = stage.builder()
        elsewhere = []
        for number, part in enumerate(config.partitions):
            port, mate, key = part.ports[0], part.ports[-1], stage.key()
            sealed = stage.put(builder, port, key)
            builder.add(Opcode.PUT_REVOKE, mate, handle_from=sealed)
            start = builder.add(Opcode.PUT_START, port, digest=stage.key(), length=config.block_bytes)
            data = stage.random.randbytes(config.beat_bytes)
            builder.add(Opcode.WRITE, mate, handle_from=start, length=len(data), payload=data)
            builder.add(Opcode.PUT_END, mate, handle_from=start, crc=1)
            builder.add(Opcode.PUT_REVOKE, mate, handle_from=start)
            builder.add(Opcode.PUT_REVOKE, port, handle_from=start)
            if number == public:
                seen, end = key, len(builder) - 1
        for port in range(config.ports):
            for opcode in Opcode:
                payload = b"" if opcode not in (Opcode.MATCH, Opcode.WRITE) else seen
                length = len(payload) if payload else config.block_bytes if opcode == Opcode.PUT_START else 0
                digest = bytes(32) if opcode in (Opcode.MATCH, *list(Opcode)[11:], Opcode.PING) else seen
                session = NUMBERED if opcode >= Opcode.SESSION_FENCE else 0
                elsewhere.append(builder.add(opcode, port, digest=digest, length=length, payload=payload, after=end,
                                             session=session))  # fmt: skip
        batch, payload = builder.build()
        batch["header"]["partition"][elsewhere] = public
        stage.run(batch, payload)
    # Every port sends everything to every partition.
    for seed in range(3):
        batch, payload = stage.traffic.batch(1000)
        chosen = np.random.default_rng(seed)
        turned = chosen.random(len(batch)) < 0.3
        batch["header"]["partition"][turned] = chosen.integers(0, len(config.partitions), turned.sum())
        stage.run(batch, payload)


def members(harness: Harness, checker: Checker) -> None:
    """Blocks of all numbers of members, ended in all orders."""
    stage = Stage(harness, checker, 26)
    config = stage.config
    for turn in range(16):
        builder = stage.builder()
        for part in config.partitions:
            count = 1 + turn % MAX_MEMBERS
            share = config.beat_bytes * (config.block_beats // count)
            if not share:
                continue
            key, order = stage.key(), list(range(count))
            stage.random.shuffle(order)
            for place, member in enumerate(order):
                port, data = part.ports[place % len(part.ports)], stage.random.randbytes(share)
                about: dict[str, Any] = {"member": member, "members": count}
                start = builder.add(Opcode.PUT_START, port, digest=key, length=share, **about)
                for offset in range(0, share, config.max_payload_bytes):
                    bit = data[offset : offset + config.max_payload_bytes]
                    builder.add(Opcode.WRITE, port, handle_from=start, member=member, offset=member * share + offset,
                                length=len(bit), payload=bit)  # fmt: skip
                builder.add(Opcode.PUT_END, port, handle_from=start, crc=crc32c(data),
                            **(about | {"length": share} if count > 1 else {}))  # fmt: skip
            for port in part.ports:
                builder.read(port, key)
        stage.finish(builder)
