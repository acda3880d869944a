"""Seeded random traffic for a node: well-formed, wrong in time, and malformed messages on all ports at once.

Used by: verif.test_lockstep, verif.test_isolation.
"""

import random

import numpy as np

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Flag, Opcode
from kvnode.models.spec.messages import HANDLE, NUMBERED, REQUEST, VERSION


def _handle(**fields: int) -> int:
    """A handle as the `digest` field has it."""
    return int.from_bytes(HANDLE.pack(**fields), "little")


def _some(**fields: int) -> dict[str, int]:
    """Those fields that are not zero."""
    return {name: value for name, value in fields.items() if value}


class Traffic:
    """Random batches on few keys, so that operations meet.

    `keys`: distinct digests per partition. `malformed`: share of messages with something wrong in the header or with a
    payload of another length than announced. `ports`: those that send (default all).
    """

    def __init__(self, config: NodeConfig, seed: int, *, keys: int = 24, malformed: float = 0.1, ports=None):
        self.config, self.random = config, random.Random(seed)
        # By itself, so that what it adds moves nothing else of a seed.
        self._torn = random.Random(~seed)
        self.malformed = malformed
        self.ports = list(range(config.ports)) if ports is None else list(ports)
        bits = config.digest_bits
        self.keys = [[self.random.getrandbits(bits) for _ in range(keys)] for _ in config.partitions]
        self.payload = self.random.randbytes(max(config.block_bytes, 32 * config.max_match_digests) * 2)
        self._rows: list[tuple] = []
        self._payload: list[bytes] = []
        self._payload_size = 0

    def batch(self, requests: int) -> tuple[np.ndarray, bytes]:
        """At least `requests` messages: (BATCH_DTYPE array, payload bytes)."""
        self._rows, self._payload, self._payload_size = [], [], 0
        actions = (
            (self._put, 5), (self._broken_put, 3), (self._members, 3), (self._lookup, 6), (self._match, 4),
            (self._read, 6), (self._runs, 2), (self._drop, 2), (self._ping, 1), (self._guess, 2), (self._lease, 3),
            (self._session, 3), (self._abandoned, 1), (self._foreign, 1),
        )  # fmt: skip
        pick = [action for action, weight in actions for _ in range(weight)]
        while len(self._rows) < requests:
            self.random.choice(pick)(self.random.choice(self.ports))
        return np.array(self._rows, BATCH_DTYPE), b"".join(self._payload)

    # One message.

    def _send(
        self,
        port: int,
        opcode: int,
        payload: bytes = b"",
        handle_from: int = -1,
        session_from: int = -1,
        /,
        **fields: int,
    ) -> int:
        draw, patience = self.random, fields.pop("patience", 0)
        if draw.random() < self.malformed:
            fields, opcode, payload = self._spoil(port, opcode, payload, fields)
        values = {"version": VERSION, "partition": self.config.partition_of_port[port], "tag": draw.getrandbits(16)}
        header = bytearray(REQUEST.pack(**(values | fields | {"opcode": opcode})))
        earliest = draw.choice((0, 0, 0, draw.randrange(200)))
        self._rows.append(
            (
                port,
                -1,
                handle_from,
                session_from,
                len(payload),
                self._payload_size,
                patience,
                earliest,
                np.frombuffer(header, BATCH_DTYPE["header"])[0],
            )
        )
        self._payload.append(payload)
        self._payload_size += len(payload)
        return len(self._rows) - 1

    def _spoil(self, port: int, opcode: int, payload: bytes, fields: dict[str, int]):
        draw, fields = self.random, dict(fields)
        what = draw.randrange(9)
        if what == 0:
            opcode = draw.randrange(256)
        elif what == 1:
            name = draw.choice(("offset", "length"))
            fields[name] = draw.choice((1, 31, self.config.block_bytes, (1 << 32) - 1, draw.getrandbits(32)))
            if self._torn.getrandbits(1):
                fields[name] = 1 << self._torn.randrange(32)
        elif what == 2:
            fields["partition"] = draw.randrange(256)
        elif what == 3:
            name = draw.choice(("version", "flags", "klass", "member", "ttl", "deadline", "members"))
            fields[name] = draw.randrange(256)
        elif what == 4:
            name = draw.choice(("model_id", "session_epoch", "session", "sequence"))
            fields[name] = draw.getrandbits(16)
        elif what == 5:
            fields["digest"] = draw.getrandbits(256)
            if self._torn.getrandbits(1):
                fields["digest"] = 1 << self._torn.randrange(256)
        elif what == 6:
            name = draw.choice(("slot", "generation", "boot_epoch", "lease", "stride", "count", "crc", "zero"))
            fields["digest"], fields["flags"] = _handle(**{name: draw.getrandbits(32)}), int(Flag.BY_HANDLE)
        elif what == 7:
            beat = self.config.beat_bytes
            payload = (
                payload[: draw.randrange(0, len(payload) + 1, beat)]
                if payload
                else draw.randbytes(beat * draw.randrange(1, 5))
            )
        else:
            payload += draw.randbytes(self.config.beat_bytes * draw.randrange(1, 5))
        return fields, opcode, payload

    # What messages are made of.

    def _model(self) -> dict[str, int]:
        return {
            "model_id": self.random.randrange(min(2, self.config.models)),
            "group": self.random.choice((0, 0, 0, 7)),
        }

    def _key(self, port: int) -> int:
        return self.random.choice(self.keys[self.config.partition_of_port[port]])

    def _length(self) -> int:
        beats = self.config.block_beats
        return self.config.beat_bytes * self.random.choice((beats, beats, self.random.randrange(1, beats + 1)))

    def _mate(self, port: int, same: float = 0.8) -> int:
        """A port of the same partition, `port` itself with the chance `same`."""
        mates = [p for p in self.config.partitions[self.config.partition_of_port[port]].ports if p in self.ports]
        return port if self.random.random() < same else self.random.choice(mates)

    def _writes(
        self, start: int, port: int, model: dict[str, int], length: int, until: int, member: int = 0, base: int = 0
    ) -> int:
        """WRITEs of `length` bytes from `base` on, up to `until` of them; the CRC of their bytes."""
        step, offset, crc = self.config.max_payload_bytes, 0, 0
        while offset < until:
            size = min(
                self.random.choice((step, step, self.config.beat_bytes * self.random.randrange(1, 5))),
                step,
                length - offset,
            )
            begin = self.random.randrange(len(self.payload) - size + 1)
            data = self.payload[begin : begin + size]
            crc = crc32c(data, crc)
            self._send(
                port, Opcode.WRITE, data, start, offset=base + offset, length=size, **model, **_some(member=member)
            )
            offset += size
            if self.random.random() < 0.05:
                self._send(
                    port, Opcode.READ, b"", start, flags=Flag.BY_HANDLE, offset=base, length=offset, **model,
                    **_some(member=member),
                )  # fmt: skip
        return crc

    def _end(self, port: int, start: int, model: dict[str, int], crc: int, **fields: int) -> int:
        """PUT_END, now and then with another CRC."""
        wrong = self.random.choice((1, 1 << 31)) if self.random.random() < 0.05 else 0
        return self._send(port, Opcode.PUT_END, b"", start, digest=_handle(crc=crc ^ wrong), **model, **fields)

    # Actions.

    def _put(self, port: int, session_from: int = -1, **more: int) -> None:
        model, length = self._model(), self._length()
        model_of_handle = {"model_id": model["model_id"]}
        if self.random.random() < 0.1:
            more = {"ttl": self.random.choice((1, 2)), **more}
        start = self._send(
            port, Opcode.PUT_START, b"", -1, session_from, digest=self._key(port), length=length,
            klass=self.random.randrange(4), **model, **more,
        )  # fmt: skip
        crc = self._writes(start, port, model_of_handle, length, length)
        self._end(port, start, model_of_handle, crc)
        if self.random.random() < 0.1:
            self._end(self._mate(port), start, model_of_handle, crc)
            self._writes(start, self._mate(port), model_of_handle, length, 1)
        if self.random.random() < 0.5:
            self._send(port, Opcode.READ, b"", start, flags=Flag.BY_HANDLE, **model)

    def _broken_put(self, port: int) -> None:
        model, length, draw = self._model(), self._length(), self.random
        start = self._send(port, Opcode.PUT_START, digest=self._key(port), length=length, **model)
        crc = self._writes(start, self._mate(port), model, length, length // 2)
        size = min(self.config.beat_bytes, length)
        what = draw.randrange(6)
        if what == 0:
            self._end(self._mate(port), start, model, crc)
        elif what == 1:
            self._send(self._mate(port), Opcode.PUT_REVOKE, b"", start, **model)
        elif what == 2:
            offset = self.config.beat_bytes * draw.randrange(self.config.block_beats)
            self._send(self._mate(port), Opcode.WRITE, self.payload[:size], start, offset=offset, length=size, **model)
            self._send(port, Opcode.PUT_REVOKE, b"", start, **model)
        elif what == 3:
            self._send(port, Opcode.DROP, b"", start, flags=Flag.BY_HANDLE, **model)
            self._end(port, start, model, crc)
        elif what == 4:
            self._end(port, start, model, crc)
            self._end(port, start, model, crc)

    def _abandoned(self, port: int) -> None:
        """A writer that goes away: the deadline takes the block back."""
        model, length = self._model(), self._length()
        deadline = self.random.choice((1, 4))
        start = self._send(port, Opcode.PUT_START, digest=self._key(port), length=length, deadline=deadline, **model)
        if self.random.getrandbits(1):
            self._writes(start, port, model, length, length // 2)

    def _members(self, port: int) -> None:
        """A block in shares, from several ports; mostly all of them come, in any order."""
        draw, model, key = self.random, self._model(), self._key(port)
        members = draw.choice([count for count in (2, 3, 4, 8) if count <= self.config.block_beats])
        share = self.config.beat_bytes * draw.randrange(1, self.config.block_beats // members + 1)
        order = list(range(members))
        draw.shuffle(order)
        if draw.random() < 0.2:
            order.pop()
        if draw.random() < 0.1:
            order.append(draw.randrange(members))
        for member in order:
            mate = self._mate(port, 0.5)
            shares = {"member": member, "members": members, "length": share}
            if draw.random() < 0.05:
                shares[draw.choice(("members", "length"))] = draw.randrange(1, 9)
            start = self._send(mate, Opcode.PUT_START, digest=key, **shares, **model)
            crc = self._writes(start, mate, model, share, share, member, member * share)
            for _ in range(draw.choice((1, 1, 1, 1, 2))):
                wrong = draw.choice(({"members": members % 8 + 1}, {"length": share + self.config.beat_bytes}))
                self._end(self._mate(mate, 0.9), start, model, crc, **shares | (wrong if draw.random() < 0.05 else {}))

    def _session(self, port: int) -> None:
        """The life of a session: blocks with numbers, fences, reads after them, and moves."""
        draw, mate = self.random, self._mate(port, 0.3)
        private = {"flags": Flag.PRIVATE} if draw.random() < 0.3 else {}
        mask = draw.choice((0, 0, 1 << port, self.config.port_masks[self.config.partition_of_port[port]]))
        opened = self._send(port, Opcode.SESSION_OPEN, digest=mask, ttl=draw.choice((0, 1, 1, 2)))
        numbers = list(range(1, draw.randrange(2, 5)))
        if draw.random() < 0.3:
            draw.shuffle(numbers)
        if draw.random() < 0.1:
            numbers.append(draw.randrange(1, 40))
        patience = draw.choice((0, 0, 2_000))
        where, owner = port, opened
        for number in numbers:
            if draw.random() < 0.3:
                limit = number if draw.getrandbits(1) else max(0, number - 1)
                moved = self._send(
                    where, Opcode.SESSION_MIGRATE, b"", -1, owner, digest=draw.choice((0, 1 << mate)), sequence=limit
                )
                if draw.random() < 0.8:
                    owner = moved
                if draw.getrandbits(1):
                    where = mate
            self._put(where, owner if draw.random() < 0.9 else opened, sequence=number, **private)
            asks = draw.choice(("fence", "read", "match", "lookup", "none"))
            after = {"sequence": number, "deadline": draw.choice((0, 0, 3)), "patience": patience}
            asking = draw.choice((port, mate))
            if asks == "fence":
                self._send(asking, Opcode.SESSION_FENCE, b"", -1, owner, **after)
            elif asks == "match":
                self._match(asking, owner, **after, **private)
            elif asks in ("read", "lookup"):
                opcode = Opcode.READ if asks == "read" else Opcode.LOOKUP
                self._send(asking, opcode, b"", -1, owner, digest=self._key(port), **after, **private, **self._model())
        if draw.random() < 0.7:
            self._send(draw.choice((port, mate)), Opcode.SESSION_CLOSE, b"", -1, owner)
        if draw.random() < 0.3:
            guess = NUMBERED | draw.randrange(4) << self.config.session_bits | draw.randrange(self.config.sessions)
            self._send(port, draw.choice((Opcode.SESSION_CLOSE, Opcode.SESSION_FENCE)), session=guess)

    def _lease(self, port: int) -> None:
        """A block that is held for a while: locked, read, released; also twice, or by somebody else, or never."""
        draw, model, deadline = self.random, self._model(), self.random.choice((0, 1, 30))
        how = draw.randrange(4)
        if how == 0:
            self._match(port, flags=Flag.LEASE, deadline=deadline)
            return
        if how == 1:
            self._send(port, Opcode.RELEASE_ALL)
            return
        if how == 2:
            found = self._send(port, Opcode.LEASE, digest=self._key(port), deadline=deadline, **model)
        else:
            found = self._send(
                port, Opcode.LOOKUP, digest=self._key(port), flags=Flag.LEASE, deadline=deadline, **model
            )
        for _ in range(draw.randrange(3)):
            self._send(self._mate(port), Opcode.READ, b"", found, flags=Flag.BY_HANDLE, **model)
        for _ in range(draw.choice((0, 1, 1, 2))):
            self._send(self._mate(port), Opcode.RELEASE, b"", found, **model)
        if draw.random() < 0.2:
            self._send(port, Opcode.RELEASE, b"", found, digest=_handle(lease=NUMBERED | draw.randrange(8)), **model)

    def _runs(self, port: int) -> None:
        """A two-dimensional READ."""
        draw, beat, beats, model = self.random, self.config.beat_bytes, self.config.block_beats, self._model()
        found = self._send(port, Opcode.LOOKUP, digest=self._key(port), **model)
        for _ in range(draw.randrange(1, 4)):
            count = draw.randrange(1, beats + 1)
            run = draw.randrange(1, max(1, beats // count) + 1)
            most = (beats - run) // (count - 1) if count > 1 else beats
            stride = draw.choice((most, draw.randrange(most + 1), run))
            offset = draw.choice((0, 0, draw.randrange(beats)))
            digest = _handle(stride=stride * beat, count=count)
            self._send(
                self._mate(port), Opcode.READ, b"", found, digest=digest, flags=Flag.BY_HANDLE, offset=offset * beat,
                length=run * beat, **model,
            )  # fmt: skip

    def _foreign(self, port: int) -> None:
        """In another partition, where only a public one answers."""
        partition = self.random.randrange(len(self.config.partitions))
        opcode = self.random.choice((Opcode.LOOKUP, Opcode.READ, Opcode.DROP, Opcode.PUT_START))
        fields = {"length": self._length()} if opcode == Opcode.PUT_START else {}
        digest = self.random.choice(self.keys[partition])
        self._send(port, opcode, digest=digest, partition=partition, **fields, **self._model())

    def _lookup(self, port: int) -> None:
        for _ in range(self.random.choice((1, 1, 4))):
            self._send(port, Opcode.LOOKUP, digest=self._key(port), **self._model())

    def _match(self, port: int, session_from: int = -1, **more: int) -> None:
        count = self.random.randrange(1, min(12, self.config.max_match_digests) + 1)
        keys = [self._key(port) for _ in range(count)]
        if self.config.digest_bits < 256 and self._torn.random() < self.malformed:
            # A digest of more bits than there are.
            keys[self._torn.randrange(count)] |= 1 << self._torn.randrange(self.config.digest_bits, 256)
        payload = b"".join(key.to_bytes(32, "little") for key in keys)
        self._send(port, Opcode.MATCH, payload, -1, session_from, length=len(payload), **self._model(), **more)

    def _read(self, port: int) -> None:
        beats, beat, draw = self.config.block_beats, self.config.beat_bytes, self.random
        where = draw.choice(((0, 0), (0, 0), (draw.randrange(beats), draw.randrange(beats + 1))))
        fields = {"offset": where[0] * beat, "length": where[1] * beat, **self._model()}
        if draw.random() < 0.3:
            found = self._send(port, Opcode.LOOKUP, digest=self._key(port), **self._model())
            self._send(self._mate(port), Opcode.READ, b"", found, flags=Flag.BY_HANDLE, **fields)
        else:
            self._send(port, Opcode.READ, digest=self._key(port), **fields)

    def _drop(self, port: int) -> None:
        self._send(port, Opcode.DROP, digest=self._key(port), **self._model())

    def _ping(self, port: int) -> None:
        self._send(port, Opcode.PING)

    def _guess(self, port: int) -> None:
        """A handle that nobody gave, near those that are in use."""
        digest = _handle(slot=self.random.randrange(8), generation=self.random.randrange(3))
        opcode = self.random.choice(
            (Opcode.READ, Opcode.DROP, Opcode.PUT_END, Opcode.PUT_REVOKE, Opcode.LEASE, Opcode.RELEASE)
        )
        flags = int(Flag.BY_HANDLE)
        self._send(port, opcode, digest=digest, flags=flags, **self._model())
