"""Sweeper: partitions in a fixed order and their turns by ROUND, whatever happens; holds delay the slot held.

Its own turns it always uses; those that a port leaves idle it takes for what is urgent. Commands of the registers are
carried out one in a round, in a fixed order.
"""

from collections import Counter, deque

import pytest

from kvnode.models.spec.enums import Kind
from kvnode.models.spec.settings import Setting
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.settings import setting_bits, settings_layout
from kvnode.rtl.node.sweeper import HOLDS_PER_PORT, ROUND, Sweeper
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_sweeper"
CYCLES = 24_000
#: From the operation of a CONFIGURE to the setting in force.
CONFIGURE_CYCLES = 9
LOOKS = (Kind.PATROL, Kind.EXPIRE_FILL, Kind.EXPIRE_LEASE, Kind.EXPIRE_SESSION)


class Registers:
    """What registers ask for: a model to retire, a slot to mark, ports that are down, settings that are wanted.

    The settings in force follow CONFIGURE like those of the directory. A request stands until it is taken.
    """

    def __init__(self, bench, config):
        self.bench, self.config, self.rng = bench, config, bench.random
        self.fields, self.bits = Fields(settings_layout(Shapes(config))), setting_bits(Shapes(config))
        count = len(config.partitions)
        self.retire = self.poison = None
        self.wanted = [dict.fromkeys(Setting, 0) for _ in range(count)]
        self.settings = [dict.fromkeys(Setting, 0) for _ in range(count)]
        self.coming = deque()
        self.down = 0
        #: Ports that went down and of which nobody has taken back yet; a rise is seen in the cycle after it.
        self.went_down, self.were_down = 0, 0

    def before(self, cycle):
        """Ask for something new, and drive it all."""
        rng, config = self.rng, self.config
        number = rng.randrange(len(config.partitions))
        if self.retire is None and rng.randrange(200) == 0:
            self.retire = number, rng.randrange(config.models)
        if self.poison is None and rng.randrange(60) == 0:
            self.poison = number, rng.randrange(config.partitions[number].slots)
        if rng.randrange(200) == 0:
            self.down ^= 1 << rng.randrange(config.ports)
        if rng.randrange(200) == 0:
            setting = rng.choice(list(Setting))
            self.wanted[number][setting] = rng.getrandbits(self.bits[setting])
        while self.coming and self.coming[0][0] <= cycle:
            _, number, row, value = self.coming.popleft()
            self.settings[number][row] = value
        values = {"ports_down": self.down, "retire_valid": self.retire is not None,
                  "poison_valid": self.poison is not None}  # fmt: skip
        if self.retire:
            values |= {"retire_partition": self.retire[0], "retire_model": self.retire[1]}
        if self.poison:
            values |= {"poison_partition": self.poison[0], "poison_slot": self.poison[1]}
        for name, group in (("wanted", self.wanted), ("settings", self.settings)):
            for i, settings in enumerate(group):
                word = self.fields.pack(**{setting.name.lower(): value for setting, value in settings.items()})
                values[f"{name}__{i}"] = word
        self.bench.drive(**values)

    def command(self, number):
        """The operation that a partition's turn for commands gives, or None."""
        if self.retire and self.retire[0] == number:
            return {"kind": Kind.RETIRE_MODEL, "model_id": self.retire[1]}
        ports = self.went_down & self.config.port_masks[number]
        if ports:
            return {"kind": Kind.PORT_DOWN, "ports": ports}
        if self.poison and self.poison[0] == number:
            return {"kind": Kind.POISON, "slot": self.poison[1]}
        for setting in Setting:
            if self.wanted[number][setting] != self.settings[number][setting]:
                return {"kind": Kind.CONFIGURE, "row": setting, "sequence": self.wanted[number][setting]}
        return None

    def after(self, cycle, number, command):
        """What the cycle has done: `command` was taken, if one was."""
        if command:
            kind = command["kind"]
            if kind == Kind.RETIRE_MODEL:
                self.retire = None
            elif kind == Kind.POISON:
                self.poison = None
            elif kind == Kind.PORT_DOWN:
                self.went_down &= ~self.config.port_masks[number]
            else:
                self.coming.append((cycle + CONFIGURE_CYCLES, number, command["row"], command["sequence"]))
        self.went_down |= self.down & ~self.were_down
        self.were_down = self.down


@bench_test(max_cycles=CYCLES + 20)
async def one_step_in_each_turn(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    shapes, parts = Shapes(config), config.partitions
    operations, cargos, holds = Fields(shapes.operation), Fields(shapes.cargo), Fields(shapes.hold)
    registers = Registers(bench, config)
    queues, inside = [deque() for _ in parts], [set() for _ in parts]
    sizes = {Kind.EXPIRE_FILL: config.fill_rows, Kind.EXPIRE_LEASE: config.leases, Kind.EXPIRE_SESSION: config.sessions}
    hands = {kind: [0] * len(parts) for kind in (Kind.VISIT, *LOOKS)}
    rounds = [0] * len(parts)
    held = [[None] * HOLDS_PER_PORT for _ in range(config.ports)]
    turns, popped, counts = 0, [-2] * len(parts), Counter()
    in_turn = [Counter() for _ in parts]
    await bench.start()
    for cycle in range(CYCLES):
        turn = cycle % (config.ports + 1)
        own = turn == config.ports
        owner = config.partition_of_port[turns % config.ports if own else turn]
        low = rng.getrandbits(len(parts)) if cycle % 400 < 200 else 0
        # What the directory's tables say of the rows at hand.
        looked = {f"look_{name}": rng.getrandbits(bits) for name, bits in (
            ("fill_slot", shapes.slot_bits), ("lease_slot", shapes.slot_bits), ("lease_session", shapes.session_bits),
        )}  # fmt: skip
        bench.drive(push=0, low=low, next_turn=(cycle + 1) % (config.ports + 1), **looked)
        registers.before(cycle)
        number = rng.randrange(len(parts))
        push = None
        outside = sorted(set(range(parts[number].slots)) - inside[number])
        if outside and rng.randrange(20) < (4, 1, 0)[cycle // 500 % 3]:
            push = rng.choice(outside), rng.getrandbits(shapes.where.size)
            bench.drive(push=1, push_partition=number, push_slot=push[0], push_where=push[1])
        for port, place in ((port, place) for port in range(config.ports) for place in range(HOLDS_PER_PORT)):
            if rng.randrange(30) == 0:
                # Half of them hold what is to be reaped next in their own partition, if anything; some in another.
                where = rng.choice((config.partition_of_port[port],) * 3 + tuple(range(len(parts))))
                queue = queues[where]
                slot = queue[0][0] if queue and rng.getrandbits(1) else rng.randrange(1 << shapes.slot_bits)
                held[port][place] = (where, slot) if rng.randrange(3) else None
                valid = held[port][place] is not None
                bench.drive(**{f"holds__{port}__{place}": holds.pack(valid=valid, partition=where, slot=slot)})
        queue = queues[owner]
        mine = {hold[1] for port in held for hold in port if hold is not None and hold[0] == owner}
        # An item is there in the second cycle after it was put in, and in the second after the one before it left.
        ready = bool(queue) and cycle - queue[0][2] >= 2 and popped[owner] != cycle - 1
        phase = rounds[owner]
        command = registers.command(owner) if own and phase == 0 and cycle > 0 else None
        look = ROUND[phase] if own else None
        if command:
            expected = dict(command)
        elif look:
            expected = {"kind": look, "row" if look in sizes else "slot": hands[look][owner]}
            if look == Kind.EXPIRE_FILL:
                expected["slot"] = looked["look_fill_slot"]
            elif look == Kind.EXPIRE_LEASE:
                expected |= {"slot": looked["look_lease_slot"], "session": looked["look_lease_session"]}
        elif ready and queue[0][0] not in mine:
            expected = {"kind": Kind.REAP, "slot": queue[0][0], "where": queue[0][1]}
        else:
            kind = Kind.VISIT if low >> owner & 1 else Kind.PATROL
            expected = {"kind": kind, "slot": hands[kind][owner]}
            counts["delayed"] += ready
        valid = own or expected["kind"] in (Kind.REAP, Kind.VISIT)
        taken = cycle > 0 and valid and (own or rng.getrandbits(1) == 1)
        bench.drive(taken=taken)
        await bench.step()
        at = f"cycle {cycle}, partition {owner}"
        if cycle > 0:
            assert bench.get("partition") == owner, at
            assert bench.get("valid") == valid, at
            for name, kind in (("retire", Kind.RETIRE_MODEL), ("poison", Kind.POISON)):
                assert bench.get(f"{name}_taken") == (taken and expected["kind"] == kind), at
        following = (turn + 1) % (config.ports + 1)
        upcoming = config.partition_of_port[turns % config.ports if following == config.ports else following]
        after = {kind: [*hand] for kind, hand in hands.items()}
        if valid and cycle > 0:
            found = cargos.unpack(bench.get("cargo")) | operations.unpack(bench.get("operation"))
            found = {name: found[name] for name in expected}
            assert found == expected, f"{at}: {found}, expected {expected}"
        counts["idle"] += not valid
        if taken:
            kind = expected["kind"]
            counts[kind.name] += 1
            counts["urgent"] += not own
            if kind == Kind.REAP:
                inside[owner].remove(queue.popleft()[0])
                popped[owner] = cycle
            elif kind in hands:
                after[kind][owner] = (hands[kind][owner] + 1) % sizes.get(kind, parts[owner].slots)
        if cycle > 0:
            assert bench.get("look_partition") == upcoming, at
            assert bench.get("look_fill") == hands[Kind.EXPIRE_FILL][upcoming], at
            assert bench.get("look_lease") == hands[Kind.EXPIRE_LEASE][upcoming], at
        hands = after
        registers.after(cycle, owner, command if taken else None)
        if own:
            in_turn[owner][look or "urgent"] += 1
            rounds[owner] = (phase + 1) % len(ROUND)
            turns += 1
        if push:
            queues[bench.get("push_partition")].append((*push, cycle))
            inside[bench.get("push_partition")].add(push[0])
    wanted = ("VISIT", "REAP", *(kind.name for kind in LOOKS), "RETIRE_MODEL", "PORT_DOWN", "CONFIGURE", "POISON",
              "delayed", "urgent", "idle")  # fmt: skip
    assert all(counts[name] > 10 for name in wanted), counts
    # However much or little there was to do, the turns came round alike.
    assert turns == CYCLES // (config.ports + 1)
    for number in range(len(parts)):
        shares = Counter(look or "urgent" for look in ROUND)
        laps = sum(in_turn[number].values()) // len(ROUND)
        assert all(0 <= in_turn[number][look] - laps * share <= share for look, share in shares.items())


@pytest.mark.parametrize("config", ["tiny", "quad_public"])
def test_sweeper_takes_one_step_in_each_turn(config):
    run_bench(Sweeper(config_of(config)), MODULE, parameters={"config": config})
