"""Random messages of every opcode, many of them malformed, on the golden node: nothing is lost and no byte is wrong.

A shadow keeps in plain dictionaries what the answers promise; after every message the tables are counted through. What
was done is then stepped through lockstep.
"""

import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest

from kvnode.models.golden import Answer, Lockstep
from kvnode.models.golden.directory import Operation
from kvnode.models.spec.crc import crc32c
from kvnode.models.spec.enums import Flag, Kind, Opcode, State, Status
from kvnode.models.spec.messages import HANDLE, NUMBERED, REQUEST, RESPONSE
from kvnode.models.spec.settings import Setting

BEAT, BEATS, PAYLOAD_BEATS = 16, 12, 6
SWEEPER = 4
#: Opcodes and how often they are sent.
OPCODES = {
    Opcode.PING: 1, Opcode.LOOKUP: 4, Opcode.MATCH: 5, Opcode.READ: 12, Opcode.PUT_START: 14, Opcode.WRITE: 24,
    Opcode.PUT_END: 12, Opcode.PUT_REVOKE: 1, Opcode.DROP: 2, Opcode.LEASE: 4, Opcode.RELEASE: 4,
    Opcode.RELEASE_ALL: 1, Opcode.SESSION_OPEN: 3, Opcode.SESSION_FENCE: 2, Opcode.SESSION_MIGRATE: 1,
    Opcode.SESSION_CLOSE: 1,
}  # fmt: skip
SEEDS = range(8)
MESSAGES = 1500


class Shadow:
    """What the answers have promised, by (partition, slot, generation): the key, the bytes, whether it is sealed."""

    def __init__(self, node):
        self.node = node
        self.names, self.fills, self.sealed = {}, {}, {}
        self.committed = {}

    def note(self, partition, fields, payload, answer):
        """Check an answer and remember it; `fields` are those of the request, in the partition that it named."""
        opcode, status = fields["opcode"], answer.status
        handle = HANDLE.unpack(fields["digest"].to_bytes(32, "little"))
        by_handle = fields["flags"] & Flag.BY_HANDLE or opcode in (Opcode.WRITE, Opcode.PUT_END)
        asked = (partition, handle["slot"], handle["generation"])
        told = (partition, answer.fields["slot"], answer.fields["generation"])
        private = fields["session"] if fields["flags"] & Flag.PRIVATE else 0
        name = (fields["model_id"], fields["group"], private)
        if opcode == Opcode.PUT_START and status == Status.GRANTED:
            length = fields["length"] * (fields["members"] or 1)
            assert answer.fields["length"] == length
            assert self.names.setdefault(told, (*name, fields["digest"])) == (*name, fields["digest"])
            assert told not in self.sealed
            assert len(self.fills.setdefault(told, bytearray(length))) == length
        elif opcode == Opcode.WRITE and status == Status.OK:
            payload = (payload + bytes(-len(payload) % BEAT))[: fields["length"]]
            assert asked == told and len(payload) == fields["length"]
            self.fills[told][fields["offset"] : fields["offset"] + len(payload)] = payload
        elif opcode == Opcode.PUT_END and status == Status.SEALED and asked in self.fills:
            self.sealed[asked] = bytes(self.fills.pop(asked))
        if opcode == Opcode.READ and status == Status.OK:
            self.check_read(fields, handle if by_handle else None, told, answer)
        if status in (Status.HIT, Status.EXISTS, Status.SEALED) and opcode != Opcode.MATCH:
            block = self.sealed[told]
            assert (answer.fields["length"], answer.fields["crc"]) == (len(block), crc32c(block))
        if status in (Status.HIT, Status.EXISTS, Status.OK) and fields["digest"] and not by_handle:
            if opcode in (Opcode.LOOKUP, Opcode.READ, Opcode.LEASE, Opcode.DROP, Opcode.PUT_START):
                assert self.names[told] == (*name, fields["digest"])
        if status == Status.MISS and opcode in (Opcode.LOOKUP, Opcode.READ, Opcode.LEASE, Opcode.DROP):
            assert not self.findable(partition, *name, fields["digest"])
        if opcode == Opcode.MATCH:
            self.check_match(partition, name, payload, answer)

    def check_read(self, fields, handle, told, answer):
        block = self.sealed[told] if told in self.sealed else self.fills[told]
        offset, length = fields["offset"], fields["length"]
        if handle and handle["count"]:
            starts = [offset + number * handle["stride"] for number in range(handle["count"])]
            expected = b"".join(bytes(block[start : start + length]) for start in starts)
        else:
            expected = bytes(block[offset : offset + length if length else len(block)])
        assert (answer.data, answer.fields["length"]) == (expected, len(expected))

    def check_match(self, partition, name, payload, answer):
        digests = [int.from_bytes(payload[at : at + 32], "little") for at in range(0, len(payload), 32)]
        count = answer.fields["count"]
        if answer.status in (Status.HIT, Status.MISS):
            assert count <= len(digests) and (count > 0) == (answer.status == Status.HIT)
            assert all(self.findable(partition, *name, digest) for digest in digests[:count])
        for number in range(len(answer.data) // HANDLE.size_bytes):
            handle = HANDLE.unpack(answer.data[HANDLE.size_bytes * number :][: HANDLE.size_bytes])
            assert self.names[partition, handle["slot"], handle["generation"]] == (*name, digests[number])
            assert handle["lease"] & NUMBERED

    def findable(self, partition, model, group, private, digest):
        """Whether a sealed block has the key, as the block table says without the index."""
        part = self.node.partitions[partition]
        return any(
            block.state == State.SEALED
            and (block.digest, block.model_id, block.group, block.epoch) == (digest, model, group, part.epochs[model])
            and (block.session if block.private else 0) == private
            for block in part.blocks
        )

    def count_through(self):
        """The invariants of the tables, and every sealed byte."""
        for number, part in enumerate(self.node.partitions):
            states = Counter(block.state for block in part.blocks)
            assert states[State.FREE] == part.free_count
            assert states[State.RETIRING] == len(part.retire_queue) == len(set(part.retire_queue))
            assert len(part.index) == part.slots - part.free_count
            held = Counter(lease.slot for lease in part.leases.rows if lease is not None)
            assert {slot: block.leases for slot, block in enumerate(part.blocks) if block.leases} == held
            self.count_fills(part, states[State.FILLING])
            for slot, block in enumerate(part.blocks):
                self.check_block(part, (number, slot, block.generation), block)
            for row, session in enumerate(part.sessions):
                if session.open:
                    key = number, part.session_number(row)
                    assert session.committed >= self.committed.get(key, 0)
                    self.committed[key] = session.committed

    def count_fills(self, part, filling):
        fills = [block.fill for block in part.blocks if block.fill is not None]
        rows = {fill.row for fill in fills}
        free = {row for row in range(len(part.fills.slots)) if part.fills._free >> row & 1}
        freed = {row for _, row in part.fills._freed}
        assert len(fills) == filling == len(rows)
        assert len(rows) + len(free) + len(freed) == len(part.fills.slots) == len(rows | free | freed)
        for fill in fills:
            for member in filter(None, fill.parts):
                assert member.end - fill.extent <= member.landed <= member.accepted <= member.end
                assert fill.ports >> member.port & 1

    def check_block(self, part, block_id, block):
        assert 0 <= block.age <= 3 and (block.state == State.SEALED or not block.leases)
        if block.state == State.SEALED:
            data = self.sealed[block_id]
            assert part.store.read(block_id[1], 0, len(data)) == data
            assert (block.length * BEAT, block.crc) == (len(data), crc32c(data))
        elif block.state == State.FILLING:
            assert len(self.fills[block_id]) == block.length * BEAT
            assert block_id not in self.sealed
        if block.state in (State.SEALED, State.FILLING):
            private = block.session if block.private else 0
            assert self.names[block_id] == (block.model_id, block.group, private, block.digest)


@dataclass
class Grant:
    """A member that was told GRANTED: its port, what it asked, and the answer."""

    port: int
    fields: dict
    answer: Answer

    @property
    def member(self):
        return self.fields["member"]

    @property
    def members(self):
        return self.fields["members"] or 1

    @property
    def share(self):
        return self.fields["length"]

    @property
    def block_id(self):
        return self.fields["partition"], self.answer.fields["slot"], self.answer.fields["generation"]


class Driver:
    """Sends messages to a node; keeps what it needs to make sensible ones, and spoils some."""

    def __init__(self, node, seed):
        self.node, self.rng, self.shadow = node, random.Random(seed), Shadow(node)
        self.grants, self.found, self.sessions, self.leases = [], [], [], []
        self.statuses = Counter()

    def chance(self, percent):
        return self.rng.randrange(100) < percent

    def run(self, count):
        opcodes, weights = list(OPCODES), list(OPCODES.values())
        for _ in range(count):
            if self.chance(1):
                self.manage()
            else:
                self.send(self.rng.choices(opcodes, weights)[0])
            self.shadow.count_through()

    def send(self, opcode):
        rng, port = self.rng, self.rng.randrange(4)
        of_port = self.node.config.partition_of_port
        port, more, payload = getattr(self, opcode.name.lower(), self.bare)(port, of_port[port])
        fields = {"opcode": opcode, "version": 1, "partition": of_port[port]}
        fields |= {"model_id": int(self.chance(30)), "tag": rng.randrange(1 << 16)}
        header = bytearray(REQUEST.pack(**fields | more))
        if self.chance(5):
            header[rng.randrange(64)] ^= 1 << rng.randrange(8)
        if self.chance(3):
            payload = payload[: rng.randrange(len(payload) + 1)] + bytes(rng.choice((0, 0, 1, 16)))
        fields = REQUEST.unpack(bytes(header))
        answer = self.node.request(port, bytes(header), payload)
        assert RESPONSE.unpack(RESPONSE.pack(**answer.fields)) == answer.fields
        assert (answer.fields["opcode"], answer.fields["tag"]) == (fields["opcode"], fields["tag"])
        assert answer.status == answer.fields["status"]
        self.statuses[answer.status] += 1
        if answer.status not in (Status.BAD_REQUEST, Status.DENIED):
            self.shadow.note(fields["partition"], fields, payload, answer)
            self.keep(port, fields, answer)

    def keep(self, port, fields, answer):
        """Remember what later messages can name."""
        opcode, where = fields["opcode"], (port, fields["model_id"], answer)
        if opcode == Opcode.PUT_START and answer.status == Status.GRANTED:
            self.grants = [Grant(port, fields, answer), *self.grants[:9]]
        elif opcode == Opcode.SESSION_OPEN and answer.status == Status.OK:
            self.sessions = [(fields["partition"], answer.fields["slot"]), *self.sessions[:5]]
        elif answer.status in (Status.HIT, Status.SEALED, Status.OK) and opcode != Opcode.MATCH:
            self.found = [where, *self.found[:9]]
            if answer.fields["flags"]:
                self.leases = [where, *self.leases[:9]]

    # Fields and payload of each opcode.

    def digest(self):
        return self.node.key(self.rng.randrange(6))

    def in_session(self, partition, percent=50):
        """Fields of a session of a partition, mostly in its present epoch."""
        mine = [number for owner, number in self.sessions if owner == partition]
        if not mine or not self.chance(percent):
            return {}
        number = self.rng.choice(mine)
        part = self.node.partitions[partition]
        row = part.session_row(number)
        epoch = part.sessions[row].epoch if row is not None else 0
        return {"session": number, "session_epoch": max(0, epoch - self.chance(10))}

    def number_in(self, partition, session):
        """A number near the committed one of a session."""
        if not session or self.chance(20):
            return {}
        part = self.node.partitions[partition]
        row = part.session_row(session["session"])
        committed = part.sessions[row].committed if row is not None else 0
        return {"sequence": committed + self.rng.choice((0, 1, 1, 1, 1, 2, 3, 17))}

    def key_fields(self, partition, after=True):
        session = self.in_session(partition, 20)
        flags = int(Flag.PRIVATE) if session and self.chance(40) else 0
        more = self.number_in(partition, session) if after and self.chance(30) else {}
        return {"digest": self.digest(), "flags": flags, **session, **more}

    def bare(self, port, partition):
        return port, {}, b""

    def some_block(self):
        """(port, fields) that name a block by a handle that was told."""
        if not self.found:
            return None
        port, model, answer = self.rng.choice(self.found)
        return port, {"model_id": model, "digest": self.node.handle_of(answer), "flags": int(Flag.BY_HANDLE)}

    def lookup(self, port, partition):
        fields = self.key_fields(partition)
        if self.chance(30):
            fields["flags"] |= Flag.LEASE
        return port, fields, b""

    def match(self, port, partition):
        digests = [self.digest() for _ in range(self.rng.randrange(1, 4))]
        payload = b"".join(digest.to_bytes(32, "little") for digest in digests)
        fields = self.key_fields(partition) | {"digest": 0, "length": len(payload)}
        if self.chance(30):
            fields["flags"] |= Flag.LEASE
        return port, fields, payload

    def read(self, port, partition):
        fields = self.key_fields(partition)
        if self.grants and self.chance(15):
            grant = self.rng.choice(self.grants)
            end = self.rng.randrange(1, grant.share // BEAT + 1) * BEAT
            return grant.port, self.named(grant, offset=grant.member * grant.share, length=end, flags=1), b""
        fields |= {"offset": self.rng.choice((0, 0, 0, 1, 2)) * BEAT, "length": self.rng.choice((0, 0, 1, 2)) * BEAT}
        if self.chance(10):
            fields["partition"] = 1
        if self.chance(50) and (named := self.some_block()):
            port, fields = named[0], {**named[1], "offset": fields["offset"], "length": fields["length"]}
            if self.chance(50):
                runs = {"stride": self.rng.randrange(4) * BEAT, "count": self.rng.randrange(1, 4)}
                handle = HANDLE.unpack(fields["digest"].to_bytes(32, "little")) | runs
                fields |= {"digest": int.from_bytes(HANDLE.pack(**handle), "little"), "length": BEAT}
        return port, fields, b""

    def put_start(self, port, partition):
        fields = self.key_fields(partition, after=False)
        fields |= self.number_in(partition, fields if "session" in fields else {})
        members = self.rng.choice((0, 0, 1, 2, 3))
        share = self.rng.randrange(1, BEATS // max(1, members) + 1) * BEAT
        fields |= {"length": share, "members": members, "klass": self.rng.randrange(4)}
        fields |= {"ttl": self.rng.choice((0, 0, 1)), "deadline": self.rng.choice((0, 0, 0, 200))}
        several = [grant for grant in self.grants if grant.members > 1]
        if several and self.chance(50):
            grant = self.rng.choice(several)
            port, fields = grant.port ^ self.rng.choice((0, 2)), dict(grant.fields)
            fields["member"] = self.rng.randrange(grant.members)
        return port, {**fields, "opcode": Opcode.PUT_START}, b""

    def named(self, grant, crc=0, **fields):
        """Fields of a request by the handle of a grant."""
        digest = self.node.handle_of(grant.answer, crc=crc)
        return {"model_id": grant.fields["model_id"], "member": grant.member, "digest": digest, **fields}

    def open_parts(self, complete):
        """(grant, its part of the fill) of members whose part is all there, or not yet."""
        for grant in self.grants:
            block = self.node.partitions[grant.fields["partition"]].blocks[grant.answer.fields["slot"]]
            if block.fill is not None and block.generation == grant.answer.fields["generation"]:
                part = block.fill.parts[grant.member]
                if part is not None and (part.landed == part.end) == complete:
                    if not (complete and block.fill.done >> grant.member & 1):
                        yield grant, part

    def write(self, port, partition):
        parts = list(self.open_parts(False))
        if not parts and (not self.grants or self.chance(80)):
            return self.put_start(port, partition)
        if not parts or self.chance(5):
            grant, at = self.rng.choice(self.grants), self.rng.randrange(BEATS) * BEAT
        else:
            grant, part = self.rng.choice(parts)
            at = part.accepted * BEAT
        left = max(BEAT, (grant.member + 1) * grant.share - at)
        size = min(left, self.rng.randrange(1, PAYLOAD_BEATS + 1) * BEAT)
        return grant.port, self.named(grant, offset=at, length=size), self.rng.randbytes(size)

    def put_end(self, port, partition):
        done = list(self.open_parts(True))
        if not done or self.chance(3):
            if not self.grants or not self.chance(20):
                return self.ping_instead(port)
            grant = self.rng.choice(self.grants)
        else:
            grant, _ = self.rng.choice(done)
        data = self.shadow.fills.get(grant.block_id, b"")[grant.member * grant.share :][: grant.share]
        fields = self.named(grant, crc=crc32c(data) ^ self.chance(3))
        if grant.members > 1:
            fields |= {"members": grant.members, "length": grant.share}
        return grant.port, fields, b""

    def put_revoke(self, port, partition):
        if not self.grants:
            return self.ping_instead(port)
        grant = self.rng.choice(self.grants)
        return grant.port, self.named(grant, member=0), b""

    def drop(self, port, partition):
        if self.chance(50) and (named := self.some_block()):
            return *named, b""
        return port, self.key_fields(partition, after=False), b""

    def lease(self, port, partition):
        if self.chance(30) and (named := self.some_block()):
            return *named, b""
        return port, self.key_fields(partition) | {"deadline": self.rng.choice((0, 1, 9))}, b""

    def release(self, port, partition):
        if not self.leases:
            return self.ping_instead(port)
        port, model, answer = self.rng.choice(self.leases)
        return port, {"model_id": model, "digest": self.node.handle_of(answer)}, b""

    def session_open(self, port, partition):
        ports = self.rng.choice((0, 0, self.node.config.port_masks[partition], 5, 10))
        return port, {"digest": ports, "ttl": self.rng.choice((0, 0, 1))}, b""

    def session_fence(self, port, partition):
        session = self.in_session(partition, 100)
        return port, {**session, **self.number_in(partition, session), "deadline": self.rng.choice((0, 1))}, b""

    def session_migrate(self, port, partition):
        session = self.in_session(partition, 100)
        limit = self.number_in(partition, session)
        return port, {**session, **limit, "digest": self.rng.choice((0, 1 << port))}, b""

    def session_close(self, port, partition):
        return port, self.in_session(partition, 100), b""

    def ping_instead(self, port):
        return port, {"opcode": Opcode.PING}, b""

    # What is not asked for by messages.

    def manage(self):
        node, rng, partition = self.node, self.rng, self.rng.randrange(2)
        choice = rng.randrange(8)
        if choice == 0:
            node.retire_model(partition, rng.randrange(2))
        elif choice == 1:
            node.port_down(rng.randrange(4))
        elif choice == 2:
            node.advance(rng.choice((100, 1000, 100_000)))
        elif choice in (3, 4):
            values = {Setting.RESERVE_SLOTS: (0, 1, 12), Setting.BLOCK_TTL: (0, 1), Setting.LOW_WATERMARK_SLOTS: (0, 2)}
            row = rng.choice(list(values))
            value = rng.choice(values[row])
            node.operate(Operation(SWEEPER, Kind.CONFIGURE, partition=partition, row=row, sequence=value))
        else:
            slot = rng.randrange(node.partitions[partition].slots)
            node.operate(Operation(SWEEPER, Kind.POISON, partition=partition, slot=slot))


@pytest.fixture
def drive(make_node):
    """`drive(seed)`: a driver that has sent its messages to a node whose second partition is public."""

    def run(seed):
        parts = make_node(low=2).config.partitions
        parts = (parts[0], replace(parts[1], public=True))
        driver = Driver(make_node(boot_epoch=seed, partitions=parts, fill_rows=4, generation_bits=16), seed)
        driver.run(MESSAGES)
        return driver

    return run


@pytest.mark.parametrize("seed", SEEDS)
def test_random_messages_keep_every_table_and_byte_and_pass_lockstep(drive, seed):
    driver = drive(seed)
    assert len(driver.shadow.sealed) > 15 and driver.statuses[Status.HIT] > 20
    node = driver.node
    lockstep = Lockstep(node.config, seed)
    lockstep.check(node.records())
    assert lockstep.operations == len(node.rows)
    for ours, theirs in zip(node.partitions, lockstep.node.partitions):
        for table in ("blocks", "sessions", "settings", "epochs", "retire_queue", "low", "free_count"):
            assert getattr(ours, table) == getattr(theirs, table)
        assert ours.leases.rows == theirs.leases.rows


def test_random_messages_are_answered_in_every_way_there_is(drive):
    statuses, kinds = set(), set()
    for seed in SEEDS[:4]:
        driver = drive(seed)
        statuses |= set(driver.statuses)
        kinds |= set(driver.node.records()["kind"].tolist())
    # A deadline is reported by the driver, not by the node.
    assert statuses == set(Status) - {Status.DEADLINE}
    assert kinds == set(Kind)
