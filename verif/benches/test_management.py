"""Management: what registers ask for reaches its wires, and what the node says of itself can be read."""

import cocotb
import pytest
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

from kvnode.models.golden.counters import Counters, LatencyHistogram
from kvnode.models.golden.events import EventLog
from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.counters import BUCKETS, MAX_OUTSTANDING
from kvnode.models.spec.enums import Kind, State, Status
from kvnode.models.spec.events import EVENT
from kvnode.models.spec.messages import TRACE
from kvnode.models.spec.settings import Setting
from kvnode.rtl.layouts import TICK_BITS, Shapes
from kvnode.rtl.node.management import DOWN_CYCLES, Management
from kvnode.rtl.node.settings import setting_bits, settings_layout
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.agents.stream import pattern
from kvnode.verif.agents.together import Together
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_management"
BOOT_EPOCH = 5
ROUNDS = 30
#: Cycles from an access to everything that it brings about, at most.
SOON = 8


class Node:
    """The registers of a Management by name, and its wires: `get` gives them as they were in the last cycle.

    The cycles pass in a task of their own, beside the master's, so only agents read pins.
    """

    OUTPUTS = ("drain", "reset_request", "ports_down", "retire_valid", "retire_partition", "retire_model",
               "poison_valid", "poison_partition", "poison_slot")  # fmt: skip

    def __init__(self, bench, dut):
        self.bench, self.config, self._clock = bench, config_of(bench.parameters["config"]), dut.clk
        self._names = [*self.OUTPUTS, *(f"wanted__{i}" for i in range(len(self.config.partitions)))]
        self._now, self.resets = {}, 0
        #: What is taken of retirements and damaged slots, and the ports that are down, cycle by cycle.
        self.taken, self.down = [], []
        #: Places in `down` of the cycles from which on a write has acted: its answer comes with what it changes.
        self.acts, self._answers = [], 0
        #: Requests are taken in these cycles only.
        self.takes = lambda: False
        self.log, self.counters, self.histogram = EventLog(), Counters(), LatencyHistogram(self.config.ports)
        self.feeding, self.given = False, {}
        bench.add(self)
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "m__axi"), dut.clk)
        write, read = self.master.write_if, self.master.read_if
        for i, channel in enumerate((write.aw_channel, write.w_channel, write.b_channel, read.ar_channel,
                                     read.r_channel)):  # fmt: skip
            channel.set_pause_generator(iter(pattern(bench.random.choice(["half", "bursts", "alternate"]), i), None))

    async def start(self, **values):
        await self.bench.start(boot_epoch=BOOT_EPOCH, **values)

        async def cycles():
            while True:
                await self.bench.step()

        cocotb.start_soon(cycles())

    async def pass_cycles(self, count):
        """Let some cycles pass, which the other task makes."""
        for _ in range(count):
            await RisingEdge(self._clock)

    def get(self, name):
        return self._now[name]

    async def read(self, name, offset=0):
        answer = await self.master.read(getattr(registers, f"{name}_ADDRESS") + offset, 4)
        assert answer.resp == AxiResp.OKAY, name
        return int.from_bytes(answer.data, "little")

    async def write(self, name, value, offset=0):
        answer = await self.master.write(getattr(registers, f"{name}_ADDRESS") + offset, value.to_bytes(4, "little"))
        assert answer.resp == AxiResp.OKAY, name
        await self.pass_cycles(SOON)

    def sample(self):
        now = self._now = {name: self.bench.get(name) for name in self._names}
        self.resets += now["reset_request"]
        answers = self.bench.get("axi_bvalid")
        if answers > self._answers:
            self.acts.append(len(self.down))
        self._answers = answers
        self.down.append(now["ports_down"])
        for name, what in (("retire", "model"), ("poison", "slot")):
            if now[f"{name}_valid"] and self.bench.get(f"{name}_taken"):
                self.taken.append((name, now[f"{name}_partition"], now[f"{name}_{what}"]))
        given, cycle = self.given, self.bench.cycle
        if "record" in given:
            self.log.record(given["record"])
            self.counters.record(given["record"])
        for port in range(self.config.ports):
            if given.get("arrives", 0) >> port & 1:
                self.histogram.arrives(port, cycle)
            if given.get("answers", 0) >> port & 1:
                self.histogram.answers(port, cycle)

    def drive(self):
        rng, bench, taking = self.bench.random, self.bench, self.takes()
        bench.drive(retire_taken=taking, poison_taken=taking)
        self.given = {}
        if self.feeding:
            if rng.randrange(3) == 0:
                self.given["record"] = random_record(rng, self.config)
                bench.drive(trace=int.from_bytes(TRACE.pack(**self.given["record"]), "little"))
            self.given["arrives"] = self.given["answers"] = 0
            for port in range(self.config.ports):
                outstanding = self.histogram.outstanding(port)
                if outstanding < MAX_OUTSTANDING and rng.randrange(6) == 0:
                    self.given["arrives"] |= 1 << port
                if outstanding and rng.randrange(5) == 0:
                    self.given["answers"] |= 1 << port
        bench.drive(trace_valid="record" in self.given, arrives=self.given.get("arrives", 0),
                    answers=self.given.get("answers", 0))  # fmt: skip


def random_record(rng, config):
    """A record of a few kinds and statuses, so that they are counted more than once."""
    values = TRACE.unpack(rng.randbytes(TRACE.size_bytes))
    before, after = rng.choice(
        ((State.FREE, State.FREE), (State.FILLING, State.SEALED), (State.SEALED, State.RETIRING))
    )
    return values | {"partition": rng.randrange(len(config.partitions)), "kind": rng.choice((Kind.LOOKUP, Kind.POISON)),
                     "status": rng.choice((Status.OK, Status.BAD_REQUEST)), "state_before": before,
                     "state_after": after}  # fmt: skip


def node_of(dut):
    return Node(Bench(dut, "m__"), dut)


def field(name, word):
    return (word & getattr(registers, f"{name}_MASK")) >> getattr(registers, f"{name}_SHIFT")


def word(**fields):
    """A register's word of some fields, by their names in node_registers."""
    return sum(value << getattr(registers, f"{name}_SHIFT") for name, value in fields.items())


@bench_test(max_cycles=100_000)
async def tells_what_the_node_is_and_how_it_is(dut):
    node = node_of(dut)
    bench, config, rng = node.bench, node.config, node.bench.random
    await node.start()
    expected = {
        "CAPABILITIES_0_PORTS": config.ports, "CAPABILITIES_0_BANKS": config.ports,
        "CAPABILITIES_0_PARTITIONS": len(config.partitions), "CAPABILITIES_0_BEAT_BYTES": config.beat_bytes,
        "CAPABILITIES_1_BLOCK_BEATS": config.block_bytes // config.beat_bytes,
        "CAPABILITIES_2_MAX_PAYLOAD_BEATS": config.max_payload_bytes // config.beat_bytes,
        "CAPABILITIES_3_SESSIONS": config.sessions, "CAPABILITIES_3_LEASES": config.leases,
        "CAPABILITIES_3_TICK_CYCLES_LOG2": config.tick_cycles_log2,
        "CAPABILITIES_3_SHARING": int(config.sharing == "donate"),
    }  # fmt: skip
    for name, value in expected.items():
        assert field(name, await node.read(name[: len("CAPABILITIES_0")])) == value, name
    sizes = await node.read("CAPABILITIES_2")
    assert 1 << field("CAPABILITIES_2_MODELS_LOG2", sizes) == config.models
    assert 1 << field("CAPABILITIES_2_FILL_ROWS_LOG2", sizes) == config.fill_rows
    assert await node.read("BOOT_EPOCH") == BOOT_EPOCH
    bits = Shapes(config).slot_bits + 1
    told = {"FREE_SLOTS": ("free_counts", (1 << bits) - 1), "FILL_ROWS_USED": ("fills_used", config.fill_rows),
            "LEASES_HELD": ("lease_counts", config.leases), "SESSIONS_OPEN": ("open_counts", config.sessions),
            "OLDEST_LEASE_TICKS": ("lease_ages", (1 << TICK_BITS) - 1)}  # fmt: skip
    base = 0
    for i, part in enumerate(config.partitions):
        at = registers.PARTITION_STRIDE_BYTES * i
        constants = {"PORTS": sum(1 << port for port in part.ports), "SLOTS_LOG2": part.slots_log2, "SLOT_BASE": base,
                     "OPTIONS": int(part.public)}  # fmt: skip
        base += part.slots
        for name, value in constants.items():
            assert await node.read(f"PARTITION_{name}", at) == value, (i, name)
        for _ in range(3):
            values = {name: rng.randint(0, most) for name, (_, most) in told.items()}
            bench.drive(**{f"{told[name][0]}__{i}": value for name, value in values.items()})
            for name, value in values.items():
                assert await node.read(f"PARTITION_{name}", at) == value, (i, name)
    # There is no other partition.
    if len(config.partitions) < registers.PARTITION_COUNT:
        assert await node.read("PARTITION_PORTS", registers.PARTITION_STRIDE_BYTES * len(config.partitions)) == 0


@bench_test(max_cycles=100_000)
async def drains_and_resets(dut):
    node = node_of(dut)
    bench, every = node.bench, (1 << node.config.ports) - 1
    await node.start()
    for ready, drain, idle in ((0, 0, 0), (0, 0, every), (1, 0, every), (1, 0, 0), (1, 1, 0), (1, 1, every - 1),
                               (1, 1, every), (1, 0, every)):  # fmt: skip
        bench.drive(ready=ready, ports_idle=idle)
        await node.write("CONTROL", word(CONTROL_DRAIN=drain))
        assert node.get("drain") == drain
        status = await node.read("STATUS")
        assert field("STATUS_READY", status) == (ready and not drain)
        assert field("STATUS_DRAINED", status) == (drain and idle == every)
        assert field("STATUS_TABLES_CLEARING", status) == (not ready)
    assert node.resets == 0
    for count in range(1, 4):
        await node.write("CONTROL", word(CONTROL_RESET=1, CONTROL_DRAIN=count & 1))
        assert node.resets == count
        assert node.get("drain") == count & 1
        assert await node.read("CONTROL") == count & 1


@bench_test(max_cycles=200_000)
async def asks_until_it_is_taken(dut):
    node = node_of(dut)
    config, rng = node.config, node.bench.random
    await node.start()
    partitions, ignored, expected = len(config.partitions), 0, []
    for _ in range(ROUNDS):
        for name, number in (("retire", rng.randrange(partitions + 1)), ("poison", rng.randrange(partitions + 1))):
            known = number < partitions
            if name == "retire":
                register, what = "MODEL_RETIRE", rng.randrange(config.models + 1)
                known = known and what < config.models
                value = word(MODEL_RETIRE_MODEL_ID=what, MODEL_RETIRE_PARTITION=number)
            else:
                register = "POISON"
                what = rng.randrange((config.partitions[number].slots if known else 1) + 1)
                known = known and what < config.partitions[number].slots
                value = word(POISON_SLOT=what, POISON_PARTITION=number)
            await node.write(register, value)
            assert node.get(f"{name}_valid") == known
            assert field(f"{register}_BUSY", await node.read(register)) == known
            if not known:
                ignored += 1
                continue
            # Another one is not accepted before this one was taken.
            other = value ^ 1
            await node.write(register, other)
            assert await node.read(register) & ~getattr(registers, f"{register}_BUSY_MASK") == value
            assert node.get(f"{name}_partition") == number and node.get(f"{name}_valid")
            expected.append((name, number, what))
        assert sorted(node.taken) == []
        node.takes = pattern("most", rng.randrange(1000))
        await node.pass_cycles(150)
        node.takes = lambda: False
        await node.pass_cycles(2)
        assert sorted(node.taken) == sorted(expected)
        assert not node.get("retire_valid") and not node.get("poison_valid")
        assert field("POISON_BUSY", await node.read("POISON")) == 0
        node.taken.clear()
        expected.clear()
    assert ROUNDS // 4 < ignored < 2 * ROUNDS


@bench_test(max_cycles=100_000)
async def holds_ports_down_long_enough(dut):
    node = node_of(dut)
    config, rng = node.config, node.bench.random
    await node.start()
    for _ in range(ROUNDS // 3):
        mask, longer = rng.randrange(1, 1 << config.ports), rng.choice((0, 0, 100))
        node.down.clear()
        node.acts.clear()
        await node.write("PORT_DOWN", mask)
        assert node.down[-1] == mask
        await node.pass_cycles(longer)
        await node.write("PORT_DOWN", 0)
        await node.pass_cycles(DOWN_CYCLES + SOON)
        # All of them for one time and no other port, from behind the first write to DOWN_CYCLES behind the second.
        first, second = node.acts
        held = [i for i, value in enumerate(node.down) if value]
        assert {node.down[i] for i in held} == {mask}
        assert held == list(range(first + 1, second + DOWN_CYCLES))
    # A port that goes down anew before the time is over stays down.
    await node.write("PORT_DOWN", 1)
    await node.write("PORT_DOWN", 0)
    await node.write("PORT_DOWN", 1)
    node.down.clear()
    await node.pass_cycles(2 * DOWN_CYCLES)
    assert set(node.down) == {1}


@bench_test(max_cycles=100_000)
async def wants_the_settings_that_were_written(dut):
    node = node_of(dut)
    config, rng = node.config, node.bench.random
    bits, fields = setting_bits(Shapes(config)), Fields(settings_layout(Shapes(config)))
    wanted = [{setting: getattr(part, setting.name.lower()) for setting in Setting} for part in config.partitions]
    await node.start()
    await node.pass_cycles(2)

    def check():
        for i, settings in enumerate(wanted):
            found = fields.unpack(node.get(f"wanted__{i}"))
            assert found == {setting.name.lower(): value for setting, value in settings.items()}, f"partition {i}"

    check()
    for _ in range(2 * ROUNDS):
        i, setting = rng.randrange(len(wanted)), rng.choice(list(Setting))
        value = rng.choice((0, rng.getrandbits(bits[setting]), (1 << bits[setting]) - 1, rng.getrandbits(32)))
        name, at = f"PARTITION_{setting.name}", registers.PARTITION_STRIDE_BYTES * i
        await node.write(name, value, at)
        # What has no place in the setting is not there.
        wanted[i][setting] = value & (1 << bits[setting]) - 1
        check()
        assert await node.read(name, at) == wanted[i][setting]


@bench_test(max_cycles=400_000)
async def shows_events_counts_and_latencies(dut):
    node = node_of(dut)
    bench, config = node.bench, node.config
    await node.start()
    await node.pass_cycles(5)
    # The tables are clear: the first event.
    bench.drive(ready=1)
    node.log.cleared()
    await node.pass_cycles(5)
    for cycles in (40, 1500, 100):
        node.feeding = True
        await node.pass_cycles(cycles)
        node.feeding = False
        await node.pass_cycles(SOON)
        assert await node.read("EVENT_LEVEL") == len(node.log)
        full = node.log.overflow
        for _ in range(min(12, len(node.log))):
            status = await node.read("EVENT_STATUS")
            assert field("EVENT_STATUS_VALID", status) == (len(node.log) > 0)
            assert field("EVENT_STATUS_OVERFLOW", status) == node.log.overflow
            assert await node.read("EVENT_SEQUENCE") == node.log.shown.sequence
            words = [await node.read("EVENT_DATA", 4 * i) for i in range(EVENT.size_bytes // 4)]
            assert b"".join(w.to_bytes(4, "little") for w in words) == EVENT.pack(**node.log.shown.event)
            await node.write("EVENT_POP", 1)
            node.log.pop()
        assert full == (cycles == 1500)
        while len(node.log):
            await node.write("EVENT_POP", 1)
            node.log.pop()
        assert await node.read("EVENT_LEVEL") == 0 and await node.read("EVENT_STATUS") == 0
        assert await node.read("EVENT_DATA") == 0
    for place in sorted(node.counters.counts) + [(0, Kind.MATCH, 0), (len(config.partitions), Kind.LOOKUP, 0)]:
        names = ("COUNTER_SELECT_PARTITION", "COUNTER_SELECT_KIND", "COUNTER_SELECT_STATUS")
        await node.write("COUNTER_SELECT", word(**dict(zip(names, map(int, place)))))
        value = await node.read("COUNTER_LOW") | await node.read("COUNTER_HIGH") << 32
        assert value == node.counters.value(*map(int, place)), place
    counted = 0
    for port in range(config.ports):
        for bucket in range(BUCKETS):
            await node.write("HISTOGRAM_SELECT", word(HISTOGRAM_SELECT_PORT=port, HISTOGRAM_SELECT_BUCKET=bucket))
            value = await node.read("HISTOGRAM_LOW")
            assert value == node.histogram.value(port, bucket), (port, bucket)
            counted += value
    assert counted > 100 and len(node.counters.counts) == 4 * len(config.partitions)


@pytest.mark.parametrize("config", ["tiny", "quad_public_donate"])
def test_registers_reach_their_wires(config):
    # Behind a prefix, because a C++ model has a method called trace.
    run_bench(Together(m=Management(config_of(config))), MODULE, parameters={"config": config})
