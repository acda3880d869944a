"""Directory: random operations, one in every cycle, with bursts on one key, in lockstep with the golden node."""

from collections import deque

import pytest

from kvnode.models.spec.causes import Cause
from kvnode.models.spec.enums import SESSION_KINDS, Kind, State, Status
from kvnode.models.spec.messages import NUMBERED
from kvnode.models.spec.requests import MAX_MEMBERS
from kvnode.models.spec.sessions import WINDOW
from kvnode.models.spec.settings import Setting
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.directory import Directory
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.agents.together import Together
from kvnode.verif.agents.trace import TraceMonitor
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_directory"
#: Every so often the pipeline runs empty, for so many cycles, and what the register bank sees is compared.
PERIOD_CYCLES = 1000
EMPTY_CYCLES = 20
ASKED = (
    (Kind.PUT_START, 6), (Kind.WRITE, 10), (Kind.PUT_END, 5), (Kind.READ, 4), (Kind.LOOKUP, 3), (Kind.MATCH, 4),
    (Kind.LEASE, 2), (Kind.RELEASE, 3), (Kind.PUT_REVOKE, 1), (Kind.DROP, 1), (Kind.ANSWER, 1), (Kind.SESSION_OPEN, 2),
    (Kind.SESSION_FENCE, 2), (Kind.SESSION_MIGRATE, 1), (Kind.SESSION_CLOSE, 1),
)  # fmt: skip
KINDS = [kind for kind, weight in ASKED for _ in range(weight)]
SWEPT = (Kind.VISIT, Kind.VISIT, Kind.PATROL, Kind.EXPIRE_FILL, Kind.EXPIRE_LEASE, Kind.EXPIRE_SESSION)
#: One in so many of the sweeper's operations is a command.
COMMANDS = {Kind.RETIRE_MODEL: 150, Kind.PORT_DOWN: 250, Kind.CONFIGURE: 60, Kind.POISON: 25}
TICKS = (0, 0, 0, 1, 5, 30)
#: Answers of ports and directory that a run must meet.
WANTED = {
    "LOOKUP": "HIT MISS NOT_READY QUOTA POISONED STALE_EPOCH",
    "MATCH": "HIT MISS NOT_READY QUOTA POISONED STALE_EPOCH",
    "LEASE": "HIT MISS NOT_READY QUOTA POISONED STALE_EPOCH STALE_HANDLE",
    "RELEASE": "OK",
    "RELEASE_ALL": "OK",
    "READ": "OK MISS NOT_READY BAD_REQUEST STALE_HANDLE STALE_EPOCH POISONED",
    "PUT_START": "GRANTED EXISTS BUSY NO_SPACE QUOTA STALE_EPOCH WRITE_ORDER POISONED",
    "WRITE": "OK BUSY WRITE_ORDER WRITE_ONCE STALE_HANDLE STALE_EPOCH",
    "LAND": "OK WRITE_ORDER BAD_REQUEST STALE_HANDLE",
    "PUT_END": "SEALED OK BUSY BAD_REQUEST INCOMPLETE CHECKSUM_MISMATCH STALE_HANDLE STALE_EPOCH",
    "PUT_REVOKE": "OK BUSY WRITE_ONCE STALE_HANDLE",
    "DROP": "OK MISS BUSY STALE_HANDLE",
    "SESSION_OPEN": "OK QUOTA BUSY",
    "SESSION_FENCE": "OK NOT_READY STALE_EPOCH",
    "SESSION_MIGRATE": "OK STALE_EPOCH",
    "SESSION_CLOSE": "OK STALE_EPOCH",
    **{kind: "OK" for kind in ("VISIT", "PATROL", "REAP", "EXPIRE_FILL", "EXPIRE_LEASE", "EXPIRE_SESSION", "POISON",
                               "RETIRE_MODEL", "PORT_DOWN", "CONFIGURE")},
}  # fmt: skip


class Traffic:
    """Operations such as ports and sweeper would give: any mix, but a LAND only after its WRITE, and so on.

    It looks at the golden node to meet blocks more often than by chance; that lags the pipeline by its length.
    """

    def __init__(self, config, rng, golden):
        self.config, self.rng, self.golden = config, rng, golden
        self.keys = [
            [
                (rng.getrandbits(config.digest_bits), rng.randrange(config.models), rng.randrange(2))
                for _ in range(part.slots * 2)
            ]
            for part in config.partitions
        ]
        count = len(config.partitions)
        self.hands = {kind: [0] * count for kind in SWEPT}
        self.retiring = [deque() for _ in config.partitions]
        #: What the tables of fills and leases last said about the rows at hand.
        self.looks = {Kind.EXPIRE_FILL: [(0, 0)] * count, Kind.EXPIRE_LEASE: [(0, 0)] * count}
        #: Partitions that owe a step of their patrol.
        self.owed = set()
        #: For each port its WRITEs: on the way, and accepted but not landed.
        self.asked = [deque() for _ in range(config.ports)]
        self.accepted = [deque() for _ in range(config.ports)]
        self.burst = 0, None

    def commit(self, record):
        """A WRITE was answered."""
        if record["kind"] == Kind.WRITE:
            operation = self.asked[record["owner"]].popleft()
            if record["status"] == Status.OK:
                self.accepted[record["owner"]].append(operation)

    def written_slots(self, port):
        return {operation["slot"] for operation in (*self.asked[port], *self.accepted[port])}

    def next(self, cycle):
        """(owner, partition, fields of operation and cargo, digest) or None for a bubble."""
        rng, config = self.rng, self.config
        if cycle % PERIOD_CYCLES < EMPTY_CYCLES:
            return None
        if self.burst[0] == 0 and rng.randrange(30) == 0:
            number = rng.randrange(len(config.partitions))
            self.burst = rng.randint(5, 25), (number, rng.choice(self.keys[number]))
        owner = rng.randrange(config.ports + 1)
        if self.burst[0]:
            self.burst = self.burst[0] - 1, self.burst[1]
            if rng.randrange(5):
                owner = rng.choice(config.partitions[self.burst[1][0]].ports)
        if cycle % PERIOD_CYCLES < 100 and rng.getrandbits(1):
            return None
        return self.sweep() if owner == config.ports else self.ask(owner)

    # The sweeper.

    def sweep(self):
        rng, config = self.rng, self.config
        number = rng.randrange(len(config.partitions))
        part = config.partitions[number]
        for kind, often in COMMANDS.items():
            if rng.randrange(often) == 0 and (kind != Kind.RETIRE_MODEL or number not in self.owed):
                return config.ports, number, {"kind": kind} | self.command(kind, number), 0
        retiring = self.retiring[number]
        if retiring and not any(retiring[0][0] in self.written_slots(port) for port in part.ports):
            slot, where = retiring.popleft()
            return config.ports, number, {"kind": Kind.REAP, "slot": slot, "where": where}, 0
        kind = rng.choice(SWEPT)
        place = self.hands[kind][number]
        sizes = {Kind.EXPIRE_FILL: config.fill_rows, Kind.EXPIRE_LEASE: config.leases,
                 Kind.EXPIRE_SESSION: config.sessions}  # fmt: skip
        self.hands[kind][number] = (place + 1) % sizes.get(kind, part.slots)
        operation = {"kind": kind, "row" if kind in sizes else "slot": place}
        if kind in self.looks:
            operation["slot"], operation["session"] = self.looks[kind][number]
        elif kind == Kind.PATROL:
            self.owed.discard(number)
        return config.ports, number, operation, 0

    def command(self, kind, number):
        rng, config, part = self.rng, self.config, self.config.partitions[number]
        if kind == Kind.RETIRE_MODEL:
            self.owed.add(number)
            return {"model_id": rng.randrange(config.models)}
        if kind == Kind.PORT_DOWN:
            return {"ports": config.port_masks[number] & rng.getrandbits(config.ports)}
        if kind == Kind.POISON:
            blocks = self.golden.partitions[number].blocks
            sealed = [slot for slot, block in enumerate(blocks) if block.state == State.SEALED]
            if not sealed or rng.randrange(4) == 0:
                return {"slot": rng.randrange(part.slots)}
            # It is asked for before the patrol comes by.
            slot = rng.choice(sealed)
            block = blocks[slot]
            self.burst = rng.randint(5, 25), (number, (block.digest, block.model_id, block.group))
            return {"slot": slot}
        row = rng.choice(list(Setting))
        values = {
            Setting.LOW_WATERMARK_SLOTS: (0, 1, part.low_watermark_slots, part.slots // 2),
            Setting.HIGH_WATERMARK_SLOTS: (part.slots // 2, part.slots, rng.randrange(part.slots + 1)),
            Setting.RESERVE_SLOTS: (0, 1, part.slots // 2),
            Setting.FILL_DEADLINE_TICKS: (0, 20, 100, (1 << 15) - 1),
            Setting.LEASE_TICKS: (0, 10, 100, (1 << 15) - 1),
            Setting.BLOCK_TTL: (0, 0, 1, 2),
        }
        return {"row": row, "sequence": rng.choice(values[row])}

    # The ports.

    def ask(self, port):
        rng, config = self.rng, self.config
        number = config.partition_of_port[port]
        if self.accepted[port] and rng.getrandbits(1):
            lands = self.accepted[port].popleft()
            landing = {"kind": Kind.LAND, "members": 1, "whole": rng.randrange(4) != 0, "crc": rng.getrandbits(32)}
            return port, number, lands | landing, 0
        kind = rng.choice(KINDS)
        if kind in (Kind.PUT_REVOKE, Kind.DROP) and rng.getrandbits(1):
            kind = Kind.READ
        if rng.randrange(150) == 0:
            kind = Kind.RELEASE_ALL
        foreign = False
        public = config.public_partition
        if public is not None and kind in (Kind.LOOKUP, Kind.MATCH, Kind.READ) and rng.randrange(5) == 0:
            foreign, number = number != public, public
        operation = {"kind": kind, "tag": rng.getrandbits(16), "opcode": rng.randrange(16)}
        if kind == Kind.ANSWER:
            return port, number, operation | {"status": rng.choice((Status.OK, Status.BAD_REQUEST, Status.DENIED))}, 0
        if kind in (*SESSION_KINDS, Kind.RELEASE_ALL):
            return port, number, operation | self.session_operation(kind, number), 0
        digest, model, group = (
            self.burst[1][1] if self.burst[0] and self.burst[1][0] == number else rng.choice(self.keys[number])
        )
        if kind in (Kind.WRITE, Kind.PUT_END, Kind.PUT_REVOKE, Kind.RELEASE):
            by_handle, session = True, {}
        else:
            by_handle = kind in (Kind.READ, Kind.DROP, Kind.LEASE) and rng.getrandbits(1)
            session = {} if foreign or rng.randrange(3) else self.session(number, kind != Kind.DROP)
        operation |= {"model_id": model, "group": group} | session
        if by_handle:
            digest, slot = 0, self.slot_for(kind, port, number)
            block = self.golden.partitions[number].blocks[slot]
            generation = block.generation + (rng.randrange(12) == 0) & (1 << config.generation_bits) - 1
            operation |= {"by_handle": 1, "slot": slot, "generation": generation}
            if rng.randrange(20):
                operation["model_id"] = block.model_id
            if kind in (Kind.WRITE, Kind.PUT_END, Kind.PUT_REVOKE):
                more = self.transfer(kind, port, block, slot)
                if more is None:
                    return None
                operation |= more
            elif kind == Kind.RELEASE:
                operation["lease"] = self.lease_on(number, slot)
        elif session:
            operation["private"] = int(rng.randrange(3) == 0)
        if kind == Kind.PUT_START:
            digest = self.start(operation, number, digest)
        elif kind == Kind.READ:
            beats = config.block_beats
            operation |= {
                "offset": rng.choice((0, rng.randrange(beats))),
                "length": rng.choice((0, 1, rng.randint(0, beats))),
                "member": rng.choice((0, 0, rng.randrange(MAX_MEMBERS))),
            }
        elif kind in (Kind.LOOKUP, Kind.MATCH) and not foreign:
            operation["locks"] = int(rng.randrange(3) == 0)
        if kind == Kind.MATCH:
            operation["chain_first"] = rng.randrange(3) == 0
        if kind in (Kind.LOOKUP, Kind.MATCH, Kind.LEASE, Kind.READ) and not foreign:
            operation["deadline"] = rng.choice(TICKS)
        if kind == Kind.WRITE:
            self.asked[port].append(operation)
        return port, number, operation, digest

    def session(self, number, numbered):
        """Fields that name a session, mostly one that is open."""
        rng, config, part = self.rng, self.config, self.golden.partitions[number]
        row = rng.randrange(config.sessions)
        session = part.sessions[row]
        name = part.session_number(row)
        if rng.randrange(12) == 0:
            name = NUMBERED | rng.getrandbits(config.session_bits + config.session_generation_bits)
        epoch = session.epoch + rng.choice((0, 0, 0, 0, 0, 0, 1, -1)) & 0xFFFF
        fields = {"session": name, "session_epoch": epoch}
        if numbered:
            near = session.committed + rng.choice((0, 1, 1, 2, 3, rng.randint(-2, WINDOW + 2)))
            fields["sequence"] = rng.choice((0, max(0, near), max(0, near)))
        return fields

    def session_operation(self, kind, number):
        rng, config = self.rng, self.config
        ports = rng.choice((0, config.port_masks[number] & rng.getrandbits(config.ports)))
        if kind == Kind.RELEASE_ALL:
            return {}
        if kind == Kind.SESSION_OPEN:
            return {"ttl": rng.choice((0, 1, 1, 2)), "ports": ports}
        fields = self.session(number, kind != Kind.SESSION_CLOSE)
        if kind == Kind.SESSION_FENCE:
            fields["deadline"] = rng.choice(TICKS)
        elif kind == Kind.SESSION_MIGRATE:
            fields["ports"] = ports
        return fields

    def slot_for(self, kind, port, number):
        """A slot that an operation may mean."""
        rng, part = self.rng, self.golden.partitions[number]
        if kind == Kind.RELEASE:
            held = [lease.slot for lease in part.leases.rows if lease is not None]
            return rng.choice(held) if held and rng.randrange(8) else rng.randrange(part.slots)
        if kind == Kind.LEASE:
            sealed = [slot for slot, block in enumerate(part.blocks) if block.state == State.SEALED]
            return rng.choice(sealed) if sealed and rng.randrange(8) else rng.randrange(part.slots)
        own = [slot for slot, block in enumerate(part.blocks)
               if block.fill is not None and (block.fill.ports >> port & 1 or rng.randrange(5) == 0)]  # fmt: skip
        return rng.choice(own) if own and rng.randrange(8) else rng.randrange(part.slots)

    def lease_on(self, number, slot):
        rng, config = self.rng, self.config
        rows = enumerate(self.golden.partitions[number].leases.rows)
        held = [lease.generation << config.lease_bits | row for row, lease in rows if lease and lease.slot == slot]
        guess = rng.getrandbits(config.lease_bits + config.lease_generation_bits)
        return NUMBERED | (rng.choice(held) if held and rng.randrange(8) else guess)

    def start(self, operation, number, digest):
        """The rest of a PUT_START: a block of its own, or a share of one that is being written; returns the digest."""
        rng, config = self.rng, self.config
        members = rng.choice((1, 1, 1, 2, 2, 4))
        extent = rng.randint(1, config.block_beats // members)
        member = rng.randrange(members)
        shared = [block for block in self.golden.partitions[number].blocks if block.fill and block.fill.members > 1]
        if shared and rng.getrandbits(1):
            block = rng.choice(shared)
            fill, digest = block.fill, block.digest
            missing = [place for place in range(fill.members) if fill.parts[place] is None]
            member, members, extent = rng.choice(missing or [0]), fill.members, fill.extent
            joining = {"model_id": block.model_id, "group": block.group, "private": int(block.private),
                       "session": block.session, "session_epoch": fill.epoch, "sequence": fill.sequence}  # fmt: skip
            if rng.randrange(8) == 0:
                joining.pop(rng.choice(("session_epoch", "sequence")))
            operation |= joining
        operation |= {
            "klass": rng.randrange(4), "member": member, "members": members, "extent": extent,
            "offset": member * extent, "length": members * extent, "ttl": rng.choice((0, 0, 1, 2)),
            "deadline": rng.choice((0, 0, 2, 30, 200)),
        }  # fmt: skip
        return digest

    def transfer(self, kind, port, block, slot):
        """The rest of a WRITE, PUT_END or PUT_REVOKE; None if its port would not issue it now."""
        rng, config, fill = self.rng, self.config, block.fill
        parts = [] if fill is None else [member for member, part in enumerate(fill.parts) if part is not None]
        mine = [member for member in parts if fill.parts[member].port == port]
        member = rng.choice(mine) if mine and rng.randrange(10) else rng.choice((0, 0, rng.randrange(MAX_MEMBERS)))
        part = fill.parts[member] if fill else None
        if kind == Kind.WRITE:
            if len(self.asked[port]) + len(self.accepted[port]) >= 2:
                return None
            most = config.max_payload_bytes // config.beat_bytes
            offset, length = rng.randrange(config.block_beats), rng.randint(1, most)
            if part is not None and rng.randrange(8):
                coming = (asked["length"] for asked in self.asked[port]
                          if (asked["slot"], asked["member"]) == (slot, member))  # fmt: skip
                offset = part.accepted + sum(coming)
                if offset >= part.end:
                    return None
                length = rng.choice((min(part.end - offset, most), min(part.end - offset, most), 1, length))
            return {"member": member, "offset": min(offset, config.block_beats - 1), "length": length}
        if slot in self.written_slots(port):
            return None
        if kind == Kind.PUT_REVOKE:
            return {}
        if part is not None and part.landed != part.end and rng.randrange(6):
            return None
        crc = part.crc if part and rng.randrange(10) else rng.getrandbits(32)
        members = fill.members if fill and rng.randrange(12) else rng.choice((1, 2))
        extent = fill.extent if fill and rng.randrange(20) else rng.randint(1, config.block_beats)
        shares = {"members": members, "member": member, "extent": extent} if members > 1 else {"members": 1}
        return {"crc": crc, "part_crc": rng.getrandbits(32)} | shares


def expected_result(config, record, golden, part):
    """Fields of the answer that matter, from what the golden directory says of an operation; `part` is behind it."""
    kind, status = record["kind"], record["status"]
    expected = {"kind": kind, "status": status}
    if kind in SESSION_KINDS and kind != Kind.EXPIRE_SESSION:
        number = golden.found_session
        inner = number & (1 << config.session_bits + config.session_generation_bits) - 1
        return expected | {"number": number and NUMBERED | inner, "epoch": golden.found_epoch,
                           "word": golden.committed, "found": 0, "locked": 0}  # fmt: skip
    expected |= {"found": int(golden.found), "locked": int(golden.granted_lease != 0)}
    if golden.granted_lease:
        expected["number"] = golden.granted_lease
    if golden.found:
        sealed = golden.state_after == State.SEALED
        length, watermark = golden.length, golden.length if sealed else golden.landed
        if kind == Kind.READ:
            # The bytes that follow.
            length = status == Status.OK and (record["length"] or length - record["offset"])
            expected["offset"] = record["offset"]
        expected |= {"slot": golden.slot, "generation": golden.generation, "length": length, "watermark": watermark,
                     "word": golden.crc if sealed else 0}  # fmt: skip
        if kind == Kind.WRITE and not sealed:
            del expected["word"]
            if status == Status.OK:
                expected["fresh"] = golden.accepted - record["length"] == golden.landed
                expected["word"] = part.blocks[golden.slot].fill.parts[record["member"]].crc
    return expected


def inner_session(shapes, number):
    """The number of a session as the pipeline has it: the bit that says that there is one right above the rest."""
    return number & (1 << shapes.session_bits - 1) - 1 | number >> 31 << shapes.session_bits - 1


def outer_session(shapes, session):
    return session & (1 << shapes.session_bits - 1) - 1 | session >> shapes.session_bits - 1 << 31


def check_registers(bench, config, golden):
    """What the register bank is told while nothing is on its way."""
    for i, part in enumerate(golden.partitions):
        sizes = {"free_counts": part.free_count, "lease_counts": len(part.leases),
                 "fills_used": sum(block.fill is not None for block in part.blocks),
                 "open_counts": sum(session.open for session in part.sessions)}  # fmt: skip
        assert {name: bench.get(f"{name}__{i}") for name in sizes} == sizes, f"partition {i}"
        found = Fields(Directory(config).signature.members["settings"].shape).unpack(bench.get(f"settings__{i}"))
        assert found == {setting.name.lower(): part.settings[setting] for setting in Setting}


@bench_test(max_cycles=2_000_000)
async def one_operation_per_cycle_in_lockstep(dut):
    bench = Bench(dut, "d__")
    config, cycles = config_of(bench.parameters["config"]), bench.parameters["cycles"]
    shapes, rng = Shapes(config), bench.random
    operations, cargos, results = Fields(shapes.operation), Fields(shapes.cargo), Fields(shapes.result)
    answers = []
    monitor = TraceMonitor(bench, config, data="trace", seen=lambda record, result: answers.append((record, result)))
    golden = monitor.lockstep.node
    traffic = Traffic(config, rng, golden)
    await bench.start()
    await bench.until(lambda: bench.get("ready"), config.slots + config.index_rows + 10, "the tables are cleared")
    pipeline = deque([None] * DIRECTORY_LATENCY_CYCLES)
    seen, reached, causes, woken = set(), set(), set(), 0
    looked = None
    for cycle in range(cycles):
        operation = traffic.next(cycle)
        bench.drive(start=operation is not None)
        if operation is not None:
            owner, partition, fields, digest = operation
            inner = fields | {"session": inner_session(shapes, fields.get("session", 0))}
            bench.drive(
                owner=owner, partition=partition, digest=digest,
                operation=operations.pack(**{name: v for name, v in inner.items() if name in operations.places}),
                cargo=cargos.pack(**{name: v for name, v in inner.items() if name in cargos.places}),
            )  # fmt: skip
        looks = rng.randrange(len(config.partitions))
        fill_row, lease_row = (traffic.hands[kind][looks] for kind in (Kind.EXPIRE_FILL, Kind.EXPIRE_LEASE))
        bench.drive(look_partition=looks, look_fill=fill_row, look_lease=lease_row)
        pipeline.append(operation)
        await bench.step()
        if looked is not None:
            number = outer_session(shapes, bench.get("look_lease_session"))
            traffic.looks[Kind.EXPIRE_FILL][looked] = bench.get("look_fill_slot"), 0
            slot = bench.get("look_lease_slot") % config.partitions[looked].slots
            traffic.looks[Kind.EXPIRE_LEASE][looked] = slot, number
        looked = looks
        if bench.get("retire"):
            entry = bench.get("retire_slot"), bench.get("retire_where")
            traffic.retiring[bench.get("retire_partition")].append(entry)
        low = [bench.get("low") >> number & 1 for number in range(len(config.partitions))]
        assert low == [part.low for part in golden.partitions], f"cycle {cycle}"
        answered = pipeline.popleft()
        assert bench.get("result_valid") == (answered is not None), f"cycle {cycle}"
        assert len(answers) == (answered is not None), f"cycle {cycle}"
        if answered is not None:
            record, outcome = answers.pop()
            owner, partition, fields, digest = answered
            assert bench.get("result_owner") == owner == record["owner"] and record["partition"] == partition
            assert record["digest"] == digest
            assert not {name: record[name] for name in fields if record.get(name, fields[name]) != fields[name] and
                        (name != "status" or fields["kind"] == Kind.ANSWER)}, f"cycle {cycle}"  # fmt: skip
            result = results.unpack(bench.get("result"))
            expected = expected_result(config, record, outcome, golden.partitions[partition])
            expected |= {name: fields[name] for name in ("tag", "opcode") if name in fields}
            different = {name: (result[name], value) for name, value in expected.items() if result[name] != value}
            assert not different, f"cycle {cycle}: (found, expected) {different} for {record}"
            assert bench.get("wakes") == record["wakes"], f"cycle {cycle}"
            traffic.commit(record)
            seen.add((Kind(record["kind"]).name, Status(record["status"]).name))
            reached.add((State(record["state_before"]).name, State(record["state_after"]).name))
            causes.add(Cause(record["cause"]))
            woken += record["wakes"] != 0
        if cycle % PERIOD_CYCLES == EMPTY_CYCLES - 1:
            check_registers(bench, config, golden)
    assert monitor.lockstep.operations > cycles * 2 // 3
    wanted = {(kind, status) for kind, statuses in WANTED.items() for status in statuses.split()}
    if all(len(part.ports) == 1 for part in config.partitions):
        wanted.remove(("PUT_REVOKE", "BUSY"))
    assert wanted <= seen, f"never seen: {sorted(wanted - seen)}"
    assert {("FREE", "FILLING"), ("FILLING", "SEALED"), ("SEALED", "RETIRING"), ("RETIRING", "FREE"),
            ("FREE", "RETIRING"), ("FILLING", "RETIRING")} <= reached  # fmt: skip
    assert causes == set(Cause), f"never seen: {set(Cause) - causes}"
    assert woken > cycles // 200


@pytest.mark.parametrize("config,seed,cycles", [
    ("tiny", 1, 60_000), ("quad_public", 2, 60_000),
    *(pytest.param(name, seed, 200_000, marks=pytest.mark.long) for name in ("tiny", "quad", "quad_public")
      for seed in (3, 4)),
])  # fmt: skip
def test_directory_is_the_golden_node_at_one_operation_per_cycle(config, seed, cycles):
    parameters = {"config": config, "seed": seed, "cycles": cycles}
    # Behind a prefix, because a C++ model has a method called trace.
    run_bench(Together(d=Directory(config_of(config))), MODULE, parameters=parameters, timeout_s=1200)
