"""Leases: the golden lease table, and what is taken back in two laps, one operation per cycle on few rows."""

from collections import Counter

import pytest

from kvnode.models.golden.leases import LeaseTable
from kvnode.models.spec.clock import TIME_BITS, after, passed
from kvnode.models.spec.enums import Kind
from kvnode.models.spec.messages import NUMBERED
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.leases import Leases
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.memory import WORDS, verilog_with
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_leases"
CYCLES = 20_000
LOCKING = (Kind.LOOKUP, Kind.MATCH, Kind.LEASE)
#: Slots and sessions that operations mean: few, so that they meet.
SLOTS, SESSIONS = 3, 2
#: Inputs of stage 8 that an operation brings along.
JUDGED = ("partition", "kind", "owner", "slot", "number", "session", "session_dead", "timed", "until",
          "take_back_ports", "leases_only")  # fmt: skip
#: What a run must meet, beside every row taken.
WANTED = ("grant", "no lease left", "port being taken back from", "held", "not held", "another slot", "stale number",
          "over by time", "over by session", "over by port", "not over", "laps ended", "revoked", "oldest")  # fmt: skip


class Partition:
    """The leases of one partition, and what is left of laps; `looks` at its ports' leases and fills are counted."""

    def __init__(self, config):
        self.config = config
        self.table = LeaseTable(config.leases, config.lease_bits, config.lease_generation_bits)
        self.since = [0] * config.leases
        self.releasing, self.revoking = Counter(), Counter()
        self.hand = self.fill_hand = self.lap = self.oldest = 0

    def over(self, op, seen):
        """Whether the lease in the row of an EXPIRE_LEASE is to end."""
        lease = self.table.rows[op["row"]]
        if lease is None or lease.slot != op["slot"]:
            return False
        reasons = {
            "over by time": lease.timed and passed(op["now"], lease.until),
            "over by port": self.releasing[lease.port] > 0,
            "over by session": op["session_dead"] and op["session"] == lease.session,
        }
        seen.update(name for name, reason in reasons.items() if reason)
        seen["not over"] += not any(reasons.values())
        return any(reasons.values())

    def look(self, op):
        """An EXPIRE_LEASE has seen its row."""
        row = op["row"]
        held = self.table.rows[row] is not None
        age = op["now"] - self.since[row] & (1 << TIME_BITS) - 1 if held else 0
        self.lap = age if row == 0 else max(self.lap, age)
        if row == self.config.leases - 1:
            self.oldest = self.lap


def count_down(ports, seen, name):
    for port in ports:
        if ports[port]:
            ports[port] -= 1
            seen[name] += ports[port] == 0


def operate(part, op, seen):
    """(outputs expected at stage 8, inputs that act on them); the partition is then as the operation leaves it."""
    table, kind, owner = part.table, op["kind"], op["owner"]
    acts = {"grant": 0, "end": 0, "take_back": 0}
    expected = {}
    if kind in LOCKING:
        free = table.any_free and not part.releasing[owner]
        expected["any_free"] = free
        seen["no lease left"] += not table.any_free
        seen["port being taken back from"] += table.any_free and part.releasing[owner] > 0
        if free and op["wanted"]:
            number = table.grant(op["slot"], owner, op["session"], bool(op["timed"]), op["until"])
            part.since[number & (1 << part.config.lease_bits) - 1] = op["now"]
            expected["granted"], acts["grant"] = number, 1
            seen["grant"] += 1
    elif kind == Kind.RELEASE:
        row = table.find(op["number"], op["slot"])
        expected["held"] = row is not None
        seen["held" if row is not None else "not held"] += 1
        lease = table.rows[op["number"] & part.config.leases - 1]
        if row is None and lease is not None and op["number"] & NUMBERED:
            seen["another slot" if lease.slot != op["slot"] else "stale number"] += 1
        if row is not None and op["wanted"]:
            table.end(row)
            acts["end"] = 1
    elif kind == Kind.EXPIRE_LEASE:
        over = part.over(op, seen)
        expected["over"] = over
        part.look(op)
        count_down(part.releasing, seen, "laps ended")
        if over and op["wanted"]:
            table.end(op["row"])
            acts["end"] = 1
    elif kind == Kind.EXPIRE_FILL:
        count_down(part.revoking, seen, "revoked")
    elif kind in (Kind.RELEASE_ALL, Kind.PORT_DOWN):
        acts["take_back"] = 1
        for port in range(part.config.ports):
            if op["take_back_ports"] >> port & 1:
                part.releasing[port] = 2 * part.config.leases
                if not op["leases_only"]:
                    part.revoking[port] = 2 * part.config.fill_rows
    return expected, acts


def random_operation(rng, config, partitions, cycle):
    count = len(config.partitions)
    number = rng.randrange(count) if cycle % 60 < 30 else cycle // 60 % count
    part, settings = partitions[number], config.partitions[number]
    kind = rng.choice((*LOCKING, Kind.LEASE, *[Kind.RELEASE] * 3, *[Kind.EXPIRE_LEASE] * 4, *[Kind.EXPIRE_FILL] * 2,
                       Kind.PATROL))  # fmt: skip
    if rng.randrange(100) == 0:
        kind = rng.choice((Kind.RELEASE_ALL, Kind.PORT_DOWN))
    owner, shapes = rng.choice(settings.ports), Shapes(config)
    held = [(row, lease) for row, lease in enumerate(part.table.rows) if lease is not None]
    name = rng.getrandbits(config.lease_generation_bits + config.lease_bits) | NUMBERED
    slot, session = rng.randrange(min(SLOTS, settings.slots)), rng.randrange(SESSIONS) | 1 << shapes.session_bits - 1
    if kind == Kind.RELEASE and held and rng.randrange(4):
        row, lease = rng.choice(held)
        name = NUMBERED | lease.generation << config.lease_bits | row
        slot = lease.slot if rng.randrange(6) else slot
    if rng.randrange(20) == 0:
        name &= NUMBERED - 1
    op = {"partition": number, "kind": kind, "row": 0, "owner": owner, "slot": slot, "number": name, "session": session,
          "wanted": rng.randrange(8) > 0}  # fmt: skip
    if kind == Kind.EXPIRE_LEASE:
        op["row"], part.hand = part.hand, (part.hand + 1) % config.leases
        if rng.randrange(6):
            op["slot"], op["session"] = part.table.last(op["row"])
    elif kind == Kind.EXPIRE_FILL:
        op["row"], part.fill_hand = part.fill_hand, (part.fill_hand + 1) % config.fill_rows
    if kind in (Kind.EXPIRE_LEASE, Kind.EXPIRE_FILL, Kind.PATROL, Kind.PORT_DOWN):
        op["owner"] = config.ports
    op["session_dead"] = int(op["session"] != 0 and rng.randrange(4) == 0)
    own = 1 << owner if kind == Kind.RELEASE_ALL else config.port_masks[number] & rng.getrandbits(config.ports)
    op["take_back_ports"], op["leases_only"] = own, int(kind == Kind.RELEASE_ALL)
    op["timed"], op["ticks"] = rng.choice(((0, 0), (1, 1), (1, 10), (1, 100), (1, (1 << 15) - 1)))
    return op


@bench_test(max_cycles=CYCLES + 20)
async def operations_act_in_their_order(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    partitions = [Partition(config) for _ in config.partitions]
    granted = [set() for _ in partitions]
    seen, full, now = Counter(), [0] * len(partitions), (1 << TIME_BITS) - 300
    previous = looks = None
    await bench.start()
    for cycle in range(CYCLES):
        op = random_operation(rng, config, partitions, cycle) if rng.randrange(12) else None
        now = now + rng.choice((0, 0, 0, 1, 3)) & (1 << TIME_BITS) - 1
        shown = {}
        for i, part in enumerate(partitions):
            shown |= {f"counts__{i}": len(part.table), f"oldest__{i}": part.oldest}
            full[i] += not part.table.any_free
            seen["oldest"] += part.oldest > 0
        shown["revoking"] = sum(1 << port for part in partitions for port, left in part.revoking.items() if left)
        bench.drive(valid=previous is not None, now=now, grant=0, end=0, take_back=0)
        if op is not None:
            bench.drive(s7_partition=op["partition"], s7_kind=op["kind"], s7_number=op["number"], s7_row=op["row"])
        # What the row was granted for, before and after the operation at hand: either may be read.
        look, number = rng.randrange(config.leases), rng.randrange(len(partitions))
        bench.drive(look_partition=number, look_row=look)
        may_be = {partitions[number].table.last(look)} if look in granted[number] else set()
        if previous is not None:
            previous |= {"now": now, "until": after(now, previous["ticks"])}
            part = partitions[previous["partition"]]
            expected, acts = operate(part, previous, seen)
            bench.drive(**{name: previous[name] for name in JUDGED}, **acts)
            shown |= expected
            if acts["grant"]:
                granted[previous["partition"]].add(expected["granted"] & config.leases - 1)
        may_be |= {partitions[number].table.last(look)} if may_be else set()
        await bench.step()
        found = {name: bench.get(name) for name in shown}
        assert found == shown, f"cycle {cycle}: {found}, expected {shown}, {previous}"
        if looks:
            assert (bench.get("look_slot"), bench.get("look_session")) in looks, f"cycle {cycle}"
        looks, previous = may_be, op
    assert min(full) > CYCLES // 100 and all(len(rows) == config.leases for rows in granted)
    missing = [name for name in WANTED if seen[name] < 10]
    assert not missing, (missing, seen)


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("config", ["tiny", "quad"])
def test_leases_are_the_golden_table_and_taken_back_in_two_laps(config, words):
    run_bench(verilog_with(words, Leases(config_of(config))), MODULE, parameters={"config": config})
