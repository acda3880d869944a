"""Register bank: what the description says, to an AXI4-Lite master that others wrote and to one without manners.

The model is made from the description alone. It watches the pins and tells in every cycle which answer must be offered
and what every output must be.
"""

import random
from collections import Counter, deque

import cocotb
import pytest
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiResp

from kvnode.rtl.csr.bank import BUS, OKAY, SLVERR, RegisterBank
from kvnode.rtl.csr.description import Role, load
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.stream import Sink, Source, StreamChecker, pattern
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_register_bank"
OPERATIONS = 400
TRANSFERS = 900
CHANNELS = ("aw", "w", "b", "ar", "r")
#: All that there can be, and a node with less of it: every other number is another one.
SETUPS = {
    "whole": {"counts": {}, "bits": {}},
    "part": {
        "counts": {"partition": 3, "event_data": 5},
        "bits": {
            "port_down_mask": 3,
            "poison_slot": 9,
            "poison_partition": 2,
            "model_retire_model_id": 11,
            "capabilities_0_ports": 5,
            "partition_1_low_watermark_slots_value": 10,
        },
    },
}
#: When each channel holds back: a pattern, or "last" for a ready that comes after valid.
MANNERS = {
    "back_to_back": ("none", "none", "none", "none", "none"),
    "address_long_before_data": ("none", "most", "none", "half", "half"),
    "data_long_before_address": ("most", "none", "half", "none", "half"),
    "answers_left_waiting": ("none", "none", "most", "none", "most"),
    "ready_waits_for_valid": ("none", "half", "last", "none", "last"),
    "bursts": ("bursts", "bursts", "bursts", "bursts", "bursts"),
}


def arguments(setup):
    """Arguments of the bank; each reset value is random, and the same for each caller."""
    counts, bits = SETUPS[setup]["counts"], SETUPS[setup]["bits"]
    resets = {}
    for register in load().registers:
        for field in register.fields:
            name = register.member_of(field)
            if register.index < counts.get(register.array, register.index + 1):
                if field.role == Role.STORAGE and field.reset is None:
                    resets[name] = random.Random(name).getrandbits(bits.get(name, field.bits))
    return {"counts": counts, "bits": bits, "resets": resets}


class Words:
    """The registers as words without time. `inputs(name)` gives the value of an input."""

    def __init__(self, counts, bits, resets):
        self.registers = {register.address: register for register in load().registers}
        self.counts = {name: array.count for name, array in load().arrays.items()} | counts
        self.bits, self.storage, self.outputs, self.inputs = {}, {}, [], []
        for register in self.registers.values():
            if not self.is_there(register):
                continue
            for field in register.fields:
                name = register.member_of(field)
                self.bits[name] = bits.get(name, field.bits)
                if field.role == Role.STORAGE:
                    self.storage[name] = resets[name] if field.reset is None else field.reset
                if field.role == Role.INPUT:
                    self.inputs.append(name)
                elif field.role != Role.CONSTANT:
                    self.outputs.append(name)
            if any(field.announced for field in register.fields):
                self.outputs.append(f"{register.member}_written")

    def is_there(self, register):
        return register.array is None or register.index < self.counts[register.array]

    def read(self, address, inputs):
        """(response, data)."""
        register = self.registers.get(address & ~3)
        if register is None:
            return SLVERR, 0
        word = 0
        for field in register.fields if self.is_there(register) else ():
            name = register.member_of(field)
            if field.role == Role.CONSTANT:
                word |= field.reset << field.lsb
            elif field.role == Role.INPUT:
                word |= inputs(name) << field.lsb
            elif field.role == Role.STORAGE:
                word |= self.storage[name] << field.lsb
        return OKAY, word

    def write(self, address, data, strobe, inputs):
        """(response, names of the outputs that are 1 for a cycle, whether a lock kept something out)."""
        register = self.registers.get(address & ~3)
        if register is None:
            return SLVERR, set(), False
        written = sum(0xFF << 8 * byte for byte in range(4) if strobe >> byte & 1)
        pulses, locked = set(), False
        for field in register.fields if self.is_there(register) else ():
            name = register.member_of(field)
            if field.role not in (Role.STORAGE, Role.PULSE) or not field.mask & written:
                continue
            if field.locked_by and inputs(f"{register.member}_{field.locked_by}"):
                locked = True
                continue
            if field.announced:
                pulses.add(f"{register.member}_written")
            if field.role == Role.STORAGE:
                word = (self.storage[name] << field.lsb) & ~written | data & written
                self.storage[name] = word >> field.lsb & ((1 << self.bits[name]) - 1)
            elif data & written & field.mask:
                pulses.add(name)
        return OKAY, pulses, locked


class Reference:
    """An agent that knows the answer and the outputs of every cycle. `seen` counts what has happened."""

    def __init__(self, bench, words):
        self.bench, self.words, self.seen = bench, words, Counter()
        self.addresses, self.data, self.reads = deque(), deque(), deque()
        self.answer = self.read_answer = None
        self.pulses = set()
        self.first, self.last = {}, {}
        bench.add(self)

    @property
    def waiting(self):
        return bool(self.addresses or self.data or self.reads or self.answer or self.read_answer)

    def sample(self):
        get, seen = self.bench.get, self.seen
        at = f"cycle {self.bench.cycle}"
        assert get("bvalid") == (self.answer is not None), at
        assert get("rvalid") == (self.read_answer is not None), at
        if self.answer:
            assert get("bresp") == self.answer[0], at
        if self.read_answer:
            assert (get("rresp"), get("rdata")) == self.read_answer, at
        for name in self.words.outputs:
            expected = self.words.storage[name] if name in self.words.storage else name in self.pulses
            assert get(name) == expected, f"{at}: {name}"
        seen.update(f"1 on {name}" for name in self.pulses)
        self.pulses = set()
        answer, read_answer = self.answer, self.read_answer
        if self.reads and not read_answer:
            read_answer = self.words.read(self.reads.popleft(), get)
            seen[f"read answered {read_answer[0]}"] += 1
        if self.addresses and self.data and not answer:
            seen["write and read act together"] += read_answer is not self.read_answer
            response, self.pulses, locked = self.words.write(self.addresses.popleft(), *self.data.popleft(), get)
            answer = (response,)
            seen[f"write answered {response}"] += 1
            seen["locked"] += locked
        if self._passes("b"):
            answer = None
        if self._passes("r"):
            read_answer = None
        self.answer, self.read_answer = answer, read_answer
        if self._passes("aw"):
            seen["data first"] += len(self.data) > len(self.addresses)
            self.addresses.append(get("awaddr"))
        if self._passes("w"):
            seen["address first"] += len(self.addresses) > len(self.data) + self._passes("aw")
            self.data.append((get("wdata"), get("wstrb")))
        if self._passes("ar"):
            self.reads.append(get("araddr"))
        for channel in CHANNELS:
            if self._passes(channel):
                seen[channel] += 1
                self.first.setdefault(channel, self.bench.cycle)
                self.last[channel] = self.bench.cycle

    def _passes(self, channel):
        return self.bench.get(f"{channel}valid") & self.bench.get(f"{channel}ready")

    def drive(self):
        pass


class ChannelChecker(StreamChecker):
    """The stream laws on a channel, whose names also begin those of fields."""

    def __init__(self, bench, channel):
        super().__init__(bench, channel)
        names = {name for name, *_ in BUS}
        self._payload = [(name, pin) for name, pin in self._payload if name in names]


def bench_of(dut):
    """(bench, reference); every channel is checked."""
    bench = Bench(dut)
    bench.checkers = [ChannelChecker(bench, channel) for channel in CHANNELS]
    return bench, Reference(bench, Words(**arguments(bench.parameters["setup"])))


def random_inputs(bench, words, names):
    values = {name: bench.random.getrandbits(words.bits[name]) for name in names}
    bench.drive(**values)
    return values


@bench_test(max_cycles=60_000)
async def serves_the_master_of_others(dut):
    bench, reference = bench_of(dut)
    words, rng = Words(**arguments(bench.parameters["setup"])), bench.random
    await bench.start()
    inputs = random_inputs(bench, words, words.inputs)
    master = AxiLiteMaster(AxiLiteBus.from_entity(dut), dut.clk)
    write, read = master.write_if, master.read_if
    for channel in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel):
        channel.set_pause_generator(iter(pattern(rng.choice(["half", "bursts", "alternate"]), rng.random()), None))

    async def cycles():
        while True:
            await bench.step()

    cocotb.start_soon(cycles())

    def answer_to(address, length):
        """(worst response, bytes) of a read."""
        answers = [words.read(word, inputs.get) for word in range(address & ~3, address + length, 4)]
        data = b"".join(data.to_bytes(4, "little") for _, data in answers)
        return max(response for response, _ in answers), data[address & 3 :][:length]

    async def check_read(address, length):
        answer = await master.read(address, length)
        assert (answer.resp, answer.data) == answer_to(address, length), f"{length} bytes at {address:#x}"

    for address in words.registers:
        await check_read(address, 4)
    ends = [min(words.registers), load().size_bytes - 4, load().size_bytes, 0x0FFC, 0x8000, 0xFFFC]
    for address in (*ends, *(rng.randrange(1 << 16) & ~3 for _ in range(40))):
        await check_read(address, 4)
        for data in (rng.randbytes(4), bytes(4)):
            expected, *_ = words.write(address, int.from_bytes(data, "little"), 0xF, inputs.get)
            assert (await master.write(address, data)).resp == expected, f"{address:#x}"
    addresses = list(words.registers)
    for _ in range(OPERATIONS):
        address, length = rng.choice(addresses) + rng.randrange(4), rng.choice((1, 2, 3, 4, 4, 8, 13))
        if rng.getrandbits(1):
            inputs |= random_inputs(bench, words, rng.sample(words.inputs, 5))
            inputs |= random_inputs(bench, words, ["poison_busy", "model_retire_busy"])
        data, worst = rng.randbytes(length), OKAY
        for word in range(address & ~3, address + length, 4):
            part = {at - word: data[at - address] for at in range(word, word + 4) if 0 <= at - address < length}
            value, strobe = sum(byte << 8 * at for at, byte in part.items()), sum(1 << at for at in part)
            worst = max(worst, words.write(word, value, strobe, inputs.get)[0])
        assert (await master.write(address, data)).resp == worst, f"{length} bytes at {address:#x}"
        await check_read(address, length)
    for address in addresses:
        await check_read(address, 4)
    assert words.storage == reference.words.storage
    assert AxiResp.SLVERR == SLVERR and reference.seen[f"write answered {SLVERR}"] > 10
    assert reference.seen["locked"] > 3 and not reference.waiting


def addresses_of(rng, words):
    """Every kind of address, and often enough the same ones that reads and writes meet."""
    hot = [
        register.address for register in words.registers.values() if register.announced or "control" in register.name
    ]
    storage = [register.address for register in words.registers.values() if register.writable]
    every = list(words.registers)
    while True:
        base = rng.choice((hot, hot, storage, storage, every, range(0, load().size_bytes + 64, 4), range(1 << 16)))
        yield rng.choice(base) & ~3 | rng.randrange(4)


def held_back(bench, channel, name, seed):
    if name == "last":
        return lambda: not bench.get(f"{channel}valid")
    return pattern(name, seed)


@bench_test(max_cycles=TRANSFERS * 12 + 500)
async def answers_a_master_without_manners(dut):
    bench, reference = bench_of(dut)
    words, rng, manners = reference.words, bench.random, MANNERS[bench.parameters["manners"]]
    payloads = {
        "aw": ("addr", "prot"),
        "w": ("data", "strb"),
        "b": ("resp",),
        "ar": ("addr", "prot"),
        "r": ("data", "resp"),
    }
    ends = {}
    for seed, (channel, name) in enumerate(zip(CHANNELS, manners)):
        kind = Sink if channel in ("b", "r") else Source
        ends[channel] = kind(bench, channel, payloads[channel], held_back(bench, channel, name, seed))
    addresses = addresses_of(rng, words)
    for _ in range(TRANSFERS):
        ends["aw"].queue.append((next(addresses), rng.randrange(8)))
        ends["w"].queue.append(
            (rng.choice((rng.getrandbits(32), 0, 0xFFFFFFFF)), rng.choice((0, 15, rng.randrange(16))))
        )
        ends["ar"].queue.append((next(addresses), rng.randrange(8)))
    await bench.start()
    while reference.waiting or any(ends[channel].busy for channel in ("aw", "w", "ar")):
        random_inputs(bench, words, [*rng.sample(words.inputs, 3), rng.choice(("poison_busy", "model_retire_busy"))])
        await bench.step()
    for _ in range(50):
        await bench.step()  # No second answer comes.
    seen = reference.seen
    assert [checker.transfers for checker in bench.checkers] == [seen[channel] for channel in CHANNELS]
    assert {seen[channel] for channel in CHANNELS} == {len(ends["b"].items), len(ends["r"].items)} == {TRANSFERS}
    often = [f"{kind} answered {response}" for kind in ("read", "write") for response in (OKAY, SLVERR)]
    often += ["1 on control_reset", "1 on poison_written", "1 on model_retire_written", "locked"]
    often += ["write and read act together"]
    assert all(seen[name] >= 10 for name in often), seen
    if manners == MANNERS["back_to_back"]:
        # The first answer is taken two cycles after its address, and then one every two cycles.
        assert (
            reference.last["b"] - reference.first["aw"] == reference.last["r"] - reference.first["ar"] == 2 * TRANSFERS
        )
    if "most" in manners[:2]:
        assert seen["address first" if manners[1] == "most" else "data first"] > TRANSFERS // 2, seen


@pytest.fixture(scope="module", params=SETUPS)
def setup(request):
    return request.param


def test_registers_serve_the_master_of_others(setup):
    run_bench(RegisterBank(load(), **arguments(setup)), MODULE, "serves_the_master_of_others", {"setup": setup})


@pytest.mark.parametrize("manners", MANNERS)
def test_registers_answer_a_master_without_manners(setup, manners):
    run_bench(
        RegisterBank(load(), **arguments(setup)),
        MODULE,
        "answers_a_master_without_manners",
        {"setup": setup, "manners": manners},
    )
