"""Sessions: `models.spec.sessions` on a table, one operation per cycle back to back on few rows."""

from collections import Counter

import pytest

from kvnode.models.spec.clock import TIME_BITS, after, passed
from kvnode.models.spec.enums import Kind, Status
from kvnode.models.spec.sessions import EPOCH_BITS, WINDOW, Session, commit, may_write, verdict, wait
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.sessions import Sessions
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.memory import WORDS, verilog_with
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_sessions"
CYCLES = 20_000
SESSION_KINDS = (Kind.SESSION_OPEN, Kind.SESSION_FENCE, Kind.SESSION_MIGRATE, Kind.SESSION_CLOSE)
#: Those that name a session may ask it; the others meet a block of one.
ASKING = (Kind.LOOKUP, Kind.MATCH, Kind.READ, Kind.PUT_START, Kind.DROP, Kind.LEASE, *SESSION_KINDS[1:])
NOT_ASKING = (Kind.WRITE, Kind.PUT_END, Kind.PATROL, Kind.EXPIRE_LEASE, Kind.PUT_START)
#: Inputs of stage 8 that an operation brings along.
JUDGED = ("partition", "kind", "owner", "asks", "ask_epoch", "ask_sequence", "deadline", "ttl", "ports", "fill_epoch",
          "fill_sequence")  # fmt: skip
#: What a run must meet.
WANTED = (
    *(f"PUT_START {status}" for status in ("OK", "STALE_EPOCH", "WRITE_ORDER", "BUSY")),
    *(f"READ {status}" for status in ("OK", "STALE_EPOCH", "NOT_READY")),
    *(f"SESSION_MIGRATE {status}" for status in ("OK", "STALE_EPOCH")),
    *(f"SESSION_CLOSE {status}" for status in ("OK", "STALE_EPOCH")),
    *(f"SESSION_OPEN {status}" for status in ("OK", "QUOTA", "BUSY")),
    *(f"{kind} wakes" for kind in ("PUT_START", "PUT_END", "SESSION_MIGRATE", "SESSION_CLOSE")),
    "late True", "late False", "commits in a row", "commits ahead", "offer", "idle too long", "waited too long",
)  # fmt: skip


class Table:
    """The sessions of all partitions, and what an operation does to them."""

    def __init__(self, config):
        self.config, self.shapes = config, Shapes(config)
        count = len(config.partitions)
        self.rows = [[Session()] * config.sessions for _ in range(count)]
        # The row that the next SESSION_OPEN gets, if there was one since the last.
        self.offers = [0] * count
        self.seen, self.sealed = Counter(), {"commits": 0}

    def name(self, partition, row):
        """A session as the pipeline has it: a bit, the use of the row, the row."""
        generation = self.rows[partition][row].generation
        return 1 << self.shapes.session_bits - 1 | generation << self.config.session_bits | row

    def row_of(self, partition, name):
        """Row of an open session."""
        row = name & (1 << self.config.session_bits) - 1
        return row if self.rows[partition][row].open and self.name(partition, row) == name else None

    def open_count(self, partition):
        return sum(session.open for session in self.rows[partition])

    def close(self, partition, row):
        generation = self.rows[partition][row].generation + 1
        self.rows[partition][row] = Session(generation=generation % (1 << self.config.session_generation_bits))

    def operate(self, op):
        """Expected outputs at stage 8. `sealed` is then the input that counts a block, if the operation seals one."""
        partition, kind, rows = op["partition"], op["kind"], self.rows[op["partition"]]
        self.sealed = {"commits": 0}
        expected = {"wakes": 0, "number": 0, "epoch": 0, "committed": 0}
        if kind in (Kind.SESSION_OPEN, Kind.EXPIRE_SESSION):
            return expected | (self.open(op) if kind == Kind.SESSION_OPEN else self.expire(op))
        row = self.row_of(partition, op["subject"])
        refused = Status.OK
        if op["asks"]:
            refused = Status.STALE_EPOCH
            if row is not None:
                refused = verdict(kind, rows[row], op["owner"], op["ask_epoch"], op["ask_sequence"])
        late = row is None or not may_write(rows[row], op["fill_epoch"], op["fill_sequence"])
        expected |= {"alive": row is not None, "refused": refused, "late": late}
        if kind in SESSION_KINDS:
            expected["status"] = refused
        self.seen[f"{kind.name} {refused.name}" if op["asks"] else f"late {late}"] += 1
        if row is None:
            return expected
        if refused == Status.NOT_READY:
            rows[row] = wait(rows[row], op["owner"], op["ask_sequence"], op["now"], op["deadline"])
        if op["asks"] and rows[row].ttl and refused != Status.STALE_EPOCH:
            rows[row] = rows[row]._replace(until=after(op["now_ttl"], rows[row].ttl))
        if op["seals"] and refused == Status.OK:
            # A block is sealed, or was there already.
            sequence = op["ask_sequence"] if op["asks"] else op["fill_sequence"]
            self.sealed = {"commits": 1, "commit_sequence": sequence}
            before, rows[row] = rows[row], commit(rows[row], sequence)
            if before.waiters and before.wake_at <= rows[row].committed:
                expected["wakes"], rows[row] = before.waiters, self.silent(rows[row])
            self.seen["commits in a row"] += rows[row].committed - before.committed > 1
            self.seen["commits ahead"] += rows[row].ahead != 0
        session = rows[row]
        if kind == Kind.SESSION_MIGRATE and refused == Status.OK:
            expected["wakes"] = session.waiters
            rows[row] = self.silent(session)._replace(
                epoch=session.epoch + 1 & (1 << EPOCH_BITS) - 1, ports=op["ports"] or 1 << op["owner"],
                limit=op["ask_sequence"],
            )  # fmt: skip
            session = rows[row]
        elif kind == Kind.SESSION_CLOSE and refused == Status.OK:
            expected["wakes"] = session.waiters
            self.close(partition, row)
        self.seen[f"{kind.name} wakes"] += expected["wakes"] != 0
        return expected | {"number": op["subject"], "epoch": session.epoch, "committed": session.committed}

    @staticmethod
    def silent(session):
        return session._replace(waiters=0, wait_timed=False)

    def open(self, op):
        partition = op["partition"]
        row, self.offers[partition] = self.offers[partition], None
        if row is None:
            status = Status.QUOTA if self.open_count(partition) == self.config.sessions else Status.BUSY
            self.seen[f"SESSION_OPEN {status.name}"] += 1
            return {"status": status, "refused": Status.OK}
        generation = self.rows[partition][row].generation
        self.rows[partition][row] = Session(
            open=True, generation=generation, ports=op["ports"] or 1 << op["owner"], ttl=op["ttl"],
            until=after(op["now_ttl"], op["ttl"]),
        )  # fmt: skip
        self.seen["SESSION_OPEN OK"] += 1
        return {"status": Status.OK, "refused": Status.OK, "number": self.name(partition, row)}

    def expire(self, op):
        partition, row = op["partition"], op["row"]
        session = self.rows[partition][row]
        if not session.open:
            self.offers[partition] = row
            self.seen["offer"] += 1
            return {}
        report = {"number": self.name(partition, row), "epoch": session.epoch, "committed": session.committed}
        if session.ttl and passed(op["now_ttl"], session.until):
            self.close(partition, row)
            self.seen["idle too long"] += 1
            return report | {"wakes": session.waiters}
        if session.wait_timed and passed(op["now"], session.wait_until):
            self.rows[partition][row] = self.silent(session)
            self.seen["waited too long"] += session.waiters != 0
            return report | {"wakes": session.waiters}
        return report


def random_operation(rng, config, table, cycle):
    count = len(config.partitions)
    partition = rng.randrange(count) if cycle % 60 < 30 else cycle // 60 % count
    kind = rng.choice((*ASKING, *NOT_ASKING, Kind.SESSION_OPEN, Kind.SESSION_OPEN, *[Kind.EXPIRE_SESSION] * 3))
    if kind in (Kind.SESSION_CLOSE, Kind.SESSION_MIGRATE) and rng.randrange(3):
        kind = Kind.PUT_START
    row = rng.randrange(config.sessions)
    session = table.rows[partition][row]
    subject = table.name(partition, row)
    chance = rng.randrange(16)
    if chance == 0:
        subject = rng.getrandbits(table.shapes.session_bits)
    elif chance == 1:
        subject &= (1 << table.shapes.session_bits - 1) - 1
    named = subject >> table.shapes.session_bits - 1
    asks = kind in ASKING and kind not in (Kind.SESSION_OPEN, Kind.EXPIRE_SESSION) and named
    asks = asks and (kind in SESSION_KINDS or kind not in NOT_ASKING or rng.randrange(4) > 0)
    if kind in SESSION_KINDS[1:] and not asks:
        kind = Kind.PATROL
    epochs = (0, 0, 0, 0, 0, -1, 1, 1 << EPOCH_BITS - 1, rng.randint(-3, 3))
    steps = (1, 1, 2, 2, 3, 0, -1, WINDOW, WINDOW + 1, rng.randint(-3, WINDOW + 3))

    def epoch():
        return session.epoch + rng.choice(epochs) & (1 << EPOCH_BITS) - 1

    def sequence():
        return max(0, session.committed + rng.choice(steps)) if rng.randrange(8) else 0

    ports = config.port_masks[partition]
    return {
        "partition": partition, "kind": kind, "row": row, "subject": subject, "asks": int(bool(asks)),
        "owner": rng.choice([port for port in range(config.ports) if ports >> port & 1]),
        "ask_epoch": epoch(), "ask_sequence": 0 if kind in (Kind.SESSION_CLOSE, Kind.DROP) else sequence(),
        "deadline": rng.choice((0, 1, 3, 20, 255)),
        "ttl": rng.choice((0, 1, 2, 255)), "ports": rng.choice((0, ports & rng.getrandbits(config.ports))),
        "fill_epoch": epoch(), "fill_sequence": sequence(),
        "seals": kind in (Kind.PUT_START, Kind.PUT_END) and (asks or kind == Kind.PUT_END) and rng.randrange(4) > 0,
    }  # fmt: skip


@bench_test(max_cycles=CYCLES + 200)
async def operations_act_in_their_order(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    table, shapes = Table(config), Shapes(config)
    await bench.start(clear=1)
    for row in range(len(config.partitions) << shapes.session_row_bits):
        bench.drive(clear_row=row)
        await bench.step()
    bench.drive(clear=0)
    # The clocks stand just before they wrap around.
    now, now_ttl = (1 << TIME_BITS) - 300, (1 << TIME_BITS) - 20
    previous, full = None, 0
    for cycle in range(CYCLES):
        op = random_operation(rng, config, table, cycle) if rng.randrange(12) else None
        now = now + rng.choice((0, 0, 0, 1, 2)) & (1 << TIME_BITS) - 1
        now_ttl = now_ttl + (rng.randrange(40) == 0) & (1 << TIME_BITS) - 1
        counts = [table.open_count(partition) for partition in range(len(config.partitions))]
        full += config.sessions in counts
        bench.drive(valid=previous is not None, now=now, now_ttl=now_ttl)
        if op is not None:
            bench.drive(s7_partition=op["partition"], s7_kind=op["kind"], s7_row=op["row"], s7_subject=op["subject"])
        expected = {}
        if previous is not None:
            expected = table.operate(previous | {"now": now, "now_ttl": now_ttl})
            bench.drive(**{name: previous[name] for name in JUDGED}, **table.sealed)
        await bench.step()
        at = f"cycle {cycle}"
        assert [bench.get(f"open_counts__{partition}") for partition in range(len(counts))] == counts, at
        found = {name: bench.get(name) for name in expected}
        assert found == expected, f"{at}: {found}, expected {expected}, {previous}"
        previous = op
    assert full > CYCLES // 50
    missing = [name for name in WANTED if table.seen[name] < 10]
    assert not missing, (missing, table.seen)


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("config", ["tiny", "quad"])
def test_sessions_are_the_table_of_the_spec(config, words):
    run_bench(verilog_with(words, Sessions(config_of(config))), MODULE, parameters={"config": config})
