"""Seeded random traffic for a node: well-formed, wrong in time, and malformed messages on all ports at once.

Used by: verif.test_lockstep, verif.test_isolation.
"""

import random

import numpy as np

from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Flag, Opcode
from kvnode.models.spec.messages import HANDLE, REQUEST, VERSION


class Traffic:
    """Random batches on few keys, so that operations meet.

    `keys`: distinct digests per partition. `malformed`: share of messages with something wrong in the header or with a
    payload of another length than announced. `ports`: those that send (default all).
    """

    def __init__(self, config: NodeConfig, seed: int, *, keys: int = 24, malformed: float = 0.1, ports=None):
        self.config, self.random = config, random.Random(seed)
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
            (self._put, 5), (self._broken_put, 3), (self._lookup, 6), (self._match, 4), (self._read, 8),
            (self._drop, 2), (self._ping, 1), (self._guess, 2),
        )  # fmt: skip
        pick = [action for action, weight in actions for _ in range(weight)]
        while len(self._rows) < requests:
            self.random.choice(pick)(self.random.choice(self.ports))
        return np.array(self._rows, BATCH_DTYPE), b"".join(self._payload)

    # One message.

    def _send(self, port: int, opcode: int, payload: bytes = b"", handle_from: int = -1, /, **fields: int) -> int:
        draw = self.random
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
                len(payload),
                self._payload_size,
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
            fields[draw.choice(("offset", "length"))] = draw.choice(
                (1, 31, self.config.block_bytes, (1 << 32) - 1, draw.getrandbits(32))
            )
        elif what == 2:
            fields["partition"] = draw.randrange(256)
        elif what == 3:
            name = draw.choice(("version", "flags", "klass", "member", "ttl", "deadline", "reserved"))
            fields[name] = draw.randrange(256)
        elif what == 4:
            name = draw.choice(("model_id", "session_epoch"))
            fields[name] = draw.getrandbits(16)
        elif what == 5:
            fields["digest"] = draw.getrandbits(256)
        elif what == 6:
            handle = HANDLE.pack(
                slot=draw.getrandbits(32), generation=draw.getrandbits(32), boot_epoch=draw.getrandbits(8)
            )
            fields["digest"], fields["flags"] = int.from_bytes(handle, "little"), int(Flag.BY_HANDLE)
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

    def _mate(self, port: int) -> int:
        """A port of the same partition, mostly `port` itself."""
        mates = [p for p in self.config.partitions[self.config.partition_of_port[port]].ports if p in self.ports]
        return port if self.random.random() < 0.8 else self.random.choice(mates)

    def _writes(self, start: int, port: int, model: dict[str, int], length: int, until: int) -> None:
        step, offset = self.config.max_payload_bytes, 0
        while offset < until:
            size = min(
                self.random.choice((step, step, self.config.beat_bytes * self.random.randrange(1, 5))),
                step,
                length - offset,
            )
            begin = self.random.randrange(len(self.payload) - size + 1)
            self._send(
                port, Opcode.WRITE, self.payload[begin : begin + size], start, offset=offset, length=size, **model
            )
            offset += size
            if self.random.random() < 0.05:
                self._send(port, Opcode.READ, b"", start, flags=Flag.BY_HANDLE, length=offset, **model)

    # Actions.

    def _put(self, port: int) -> None:
        model, length = self._model(), self._length()
        start = self._send(
            port, Opcode.PUT_START, digest=self._key(port), length=length, klass=self.random.randrange(4), **model
        )
        self._writes(start, port, model, length, length)
        self._send(port, Opcode.PUT_END, b"", start, **model)
        if self.random.random() < 0.5:
            self._send(port, Opcode.READ, b"", start, flags=Flag.BY_HANDLE, **model)

    def _broken_put(self, port: int) -> None:
        model, length, draw = self._model(), self._length(), self.random
        start = self._send(port, Opcode.PUT_START, digest=self._key(port), length=length, **model)
        self._writes(start, self._mate(port), model, length, length // 2)
        size = min(self.config.beat_bytes, length)
        what = draw.randrange(6)
        if what == 0:
            self._send(self._mate(port), Opcode.PUT_END, b"", start, **model)
        elif what == 1:
            self._send(self._mate(port), Opcode.PUT_REVOKE, b"", start, **model)
        elif what == 2:
            offset = self.config.beat_bytes * draw.randrange(self.config.block_beats)
            self._send(self._mate(port), Opcode.WRITE, self.payload[:size], start, offset=offset, length=size, **model)
            self._send(port, Opcode.PUT_REVOKE, b"", start, **model)
        elif what == 3:
            self._send(port, Opcode.DROP, b"", start, flags=Flag.BY_HANDLE, **model)
            self._send(port, Opcode.PUT_END, b"", start, **model)
        elif what == 4:
            self._send(port, Opcode.PUT_END, b"", start, **model)
            self._send(port, Opcode.PUT_END, b"", start, **model)

    def _lookup(self, port: int) -> None:
        for _ in range(self.random.choice((1, 1, 4))):
            self._send(port, Opcode.LOOKUP, digest=self._key(port), **self._model())

    def _match(self, port: int) -> None:
        count = self.random.randrange(1, min(12, self.config.max_match_digests) + 1)
        payload = b"".join(self._key(port).to_bytes(32, "little") for _ in range(count))
        self._send(port, Opcode.MATCH, payload, length=len(payload), **self._model())

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
        handle = HANDLE.pack(slot=self.random.randrange(8), generation=self.random.randrange(3))
        digest = int.from_bytes(handle, "little")
        opcode = self.random.choice((Opcode.READ, Opcode.DROP, Opcode.PUT_END, Opcode.PUT_REVOKE))
        flags = int(Flag.BY_HANDLE)
        self._send(port, opcode, digest=digest, flags=flags, **self._model())
