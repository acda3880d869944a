"""The whole node: random messages on all ports, every answer and byte checked, idle and backpressure swept."""

from collections import Counter
from types import SimpleNamespace

import pytest

from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.crc import crc32c
from kvnode.models.spec.enums import Flag, Opcode, Status
from kvnode.models.spec.messages import HANDLE, REQUEST, RESPONSE, VERSION
from kvnode.models.spec.requests import WITH_PAYLOAD
from kvnode.rtl.elaborate import TOP
from kvnode.verif.agents.batch import BatchRun
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.port import NodePort
from kvnode.verif.agents.stream import Sink, Source, pattern
from kvnode.verif.agents.trace import TraceMonitor
from kvnode.verif.benches.configs import config_of
from kvnode.verif.checkers.messages import MessageCheck
from kvnode.verif.runner import node_verilog, run_bench
from kvnode.verif.traffic import Traffic

MODULE = "kvnode.verif.benches.test_node"
BOOT_EPOCH = 3
CYCLES_PER_REQUEST = 1000


class Operator:
    """Now and then a register write that retires a model, marks a slot as damaged, changes a setting, or means nothing;
    and reads of registers that are there.
    """

    def __init__(self, bench, config):
        self.bench, self.config, self.rng = bench, config, bench.random
        seldom = pattern("most", 9)
        self.address, self.data = (
            Source(bench, f"axi_{channel}", names, seldom)
            for channel, names in (("aw", ("addr", "prot")), ("w", ("data", "strb")))
        )
        self.reads = Source(bench, "axi_ar", ("addr", "prot"), seldom)
        self.responses = Sink(bench, "axi_b", ("resp",), pattern("half", 10))
        self.read_responses = Sink(bench, "axi_r", ("data", "resp"), pattern("half", 11))
        self.written = Counter()
        bench.add(self)

    def sample(self):
        pass

    def drive(self):
        if self.address.busy or self.data.busy or self.rng.randrange(300):
            return
        draw, partitions = self.rng, len(self.config.partitions)
        number = draw.randrange(partitions)
        part = self.config.partitions[number]
        setting = registers.PARTITION_STRIDE_BYTES * number
        address, data = draw.choice(
            (
                (registers.MODEL_RETIRE_ADDRESS, draw.randrange(self.config.models + 1)
                 | draw.randrange(partitions + 1) << registers.MODEL_RETIRE_PARTITION_SHIFT),
                (registers.POISON_ADDRESS, number << registers.POISON_PARTITION_SHIFT | draw.randrange(part.slots + 1)),
                # Above the reserve, so that there is always room for somebody.
                (setting + registers.PARTITION_LOW_WATERMARK_SLOTS_ADDRESS, draw.randrange(2, part.slots // 2 + 1)),
                (setting + registers.PARTITION_HIGH_WATERMARK_SLOTS_ADDRESS, draw.randrange(part.slots + 1)),
                (setting + registers.PARTITION_RESERVE_SLOTS_ADDRESS, draw.choice((0, 0, 1))),
                (setting + registers.PARTITION_FILL_DEADLINE_TICKS_ADDRESS, draw.choice((0, 500, 4096))),
                (setting + registers.PARTITION_LEASE_TICKS_ADDRESS, draw.choice((0, 20, 500))),
                (setting + registers.PARTITION_BLOCK_TTL_ADDRESS, draw.choice((0, 0, 1, 4))),
                (registers.EVENT_POP_ADDRESS, 1),
                (registers.ID_ADDRESS, draw.getrandbits(32)),
            )
        )  # fmt: skip
        self.written[address] += 1
        self.address.queue.append((address, 0))
        self.data.queue.append((data, 15))
        if not self.reads.busy:
            self.reads.queue.append((draw.choice((address, registers.EVENT_DATA_ADDRESS, registers.STATUS_ADDRESS)), 0))


@bench_test(max_cycles=20_000_000)
async def answers_like_the_golden_node(dut):
    bench = Bench(dut)
    given = bench.parameters
    config = config_of(given["config"])
    traffic = Traffic(config, given["seed"], malformed=0.1)
    batch, payload = traffic.batch(given["requests"])
    monitor = TraceMonitor(bench, config, BOOT_EPOCH)
    run = BatchRun(
        bench, config, batch, payload,
        lambda port: pattern(given["idle"], port), lambda port: pattern(given["backpressure"], 50 + port),
    )  # fmt: skip
    operator = Operator(bench, config) if given["seed"] % 2 else None
    # The messages of each port, and the channels of the registers.
    assert len(bench.checkers) == 2 * config.ports + 5
    await bench.start(boot_epoch=BOOT_EPOCH)
    limit = config.slots + 2000 + CYCLES_PER_REQUEST * len(batch)
    await bench.until(lambda: run.done, limit, "every request is answered")
    for _ in range(50):
        await bench.step()
    check = MessageCheck(config, BOOT_EPOCH)
    check.check(
        batch,
        payload,
        SimpleNamespace(results=run.results, trace=monitor.records, payload=run.payload, wakes=run.wakes),
    )
    # The others had no handle or session to go on with.
    assert check.answers_checked > len(batch) // 3
    assert check.lockstep.operations == monitor.lockstep.operations
    if operator is not None:
        assert not operator.address.busy and not operator.data.busy
        assert {response for (response,) in operator.responses.items} == {0}
        assert len(operator.responses.items) == sum(operator.written.values()) > 10
        assert {response for _, response in operator.read_responses.items} == {0}


@bench_test(max_cycles=200_000)
async def refuses_messages_of_a_wrong_length(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    TraceMonitor(bench, config, BOOT_EPOCH)
    sent = []
    for number in range(config.ports):
        port = NodePort(bench, config, number, pattern("bursts", number), pattern("bursts", 50 + number))
        for tag in range(100):
            fields = {"version": VERSION, "partition": config.partition_of_port[number], "tag": tag}
            fields["opcode"] = rng.choice([opcode for opcode in Opcode if opcode not in WITH_PAYLOAD])
            payload, beats, expected = b"", None, Status.OK
            shape = rng.randrange(3)
            if shape == 0:
                beats, expected = rng.randrange(1, config.request_beats + 1), Status.BAD_REQUEST
            elif shape == 1:
                payload, expected = rng.randbytes(rng.choice((1, 8, 100, 1000))), Status.BAD_REQUEST
            if beats == config.request_beats or shape == 2:
                fields["opcode"], expected = Opcode.PING, Status.OK
            request = port.send(REQUEST.pack(**fields), payload, beats=beats)
            answer = {"status": expected, "opcode": fields["opcode"], "tag": tag}
            sent.append((request, RESPONSE.pack(version=VERSION, boot_epoch=BOOT_EPOCH, **answer)))
    await bench.start(boot_epoch=BOOT_EPOCH)
    await bench.until(lambda: all(request.done for request, _ in sent), 100_000, "every message is answered")
    for request, answer in sent:
        assert request.response == answer, REQUEST.unpack(request.header)


@bench_test(max_cycles=20_000)
async def keeps_the_handles_of_a_match_that_waits(dut):
    """A MATCH with leases waits to be answered; then one comes whose payload is not as announced."""
    bench = Bench(dut)
    config = config_of("tiny")
    stalled = [False]
    port = NodePort(bench, config, 0, lambda: False, lambda: stalled[0])
    await bench.start(boot_epoch=BOOT_EPOCH)

    def send(opcode, payload=b"", **fields):
        own = {"version": VERSION, "partition": config.partition_of_port[0], "opcode": opcode}
        return port.send(REQUEST.pack(**(own | fields)), payload)

    async def ask(opcode, payload=b"", **fields):
        message = send(opcode, payload, **fields)
        await bench.until(lambda: message.done, 2000, "answered")
        return RESPONSE.unpack(message.response)

    digest, data = (0x1234).to_bytes(32, "little"), bytes(range(16))
    granted = await ask(Opcode.PUT_START, length=len(data), digest=0x1234)

    def handle(**fields):
        own = {"slot": granted["slot"], "generation": granted["generation"], "boot_epoch": BOOT_EPOCH}
        return int.from_bytes(HANDLE.pack(**(own | fields)), "little")

    await ask(Opcode.WRITE, data, length=len(data), digest=handle())
    assert (await ask(Opcode.PUT_END, digest=handle(crc=crc32c(data))))["status"] == Status.SEALED
    stalled[0] = True
    first = send(Opcode.MATCH, digest, length=32, flags=int(Flag.LEASE))
    payload, flags = {"too_long": (digest * 2, 0), "torn": (digest[:16], int(Flag.LEASE))}[bench.parameters["wrong"]]
    second = send(Opcode.MATCH, payload, length=32, flags=flags)
    for _ in range(200):
        await bench.step()
    stalled[0] = False
    await bench.until(lambda: first.done and second.done, 3000, "both are answered")
    kept = HANDLE.unpack(first.data[: HANDLE.size_bytes])
    assert (kept["slot"], kept["generation"]) == (granted["slot"], granted["generation"])
    assert len(first.data) == HANDLE.size_bytes and second.data == b""
    assert RESPONSE.unpack(second.response)["status"] == Status.BAD_REQUEST


@pytest.mark.parametrize("wrong", ["too_long", "torn"])
def test_a_wrong_match_takes_no_handles_of_the_one_before(wrong):
    parameters = {"wrong": wrong}
    run_bench(node_verilog(config_of("tiny")), MODULE, "keeps_the_handles_of_a_match_that_waits", parameters, top=TOP)


def test_messages_of_a_wrong_length_are_refused():
    parameters = {"config": "tiny"}
    run_bench(node_verilog(config_of("tiny")), MODULE, "refuses_messages_of_a_wrong_length", parameters, top=TOP)


def run_node(config, **parameters):
    parameters["config"] = config
    run_bench(
        node_verilog(config_of(config)), MODULE, "answers_like_the_golden_node", parameters, top=TOP, timeout_s=1200
    )


@pytest.mark.parametrize("idle,backpressure,seed", [
    ("none", "none", 1), ("none", "none", 2), ("half", "none", 3), ("none", "half", 4), ("bursts", "bursts", 5),
    ("most", "none", 6), ("none", "most", 7), ("alternate", "alternate", 8),
])  # fmt: skip
def test_tiny_node_answers_like_the_golden_node(idle, backpressure, seed):
    run_node("tiny", idle=idle, backpressure=backpressure, seed=seed, requests=1000)


@pytest.mark.parametrize("config,idle,backpressure,seed", [
    pytest.param("quad", "none", "none", 1, marks=pytest.mark.long),
    ("quad_public", "half", "bursts", 2), ("quad_public", "none", "half", 3),
])  # fmt: skip
def test_quad_node_answers_like_the_golden_node(config, idle, backpressure, seed):
    run_node(config, idle=idle, backpressure=backpressure, seed=seed, requests=1000)


@pytest.mark.long
@pytest.mark.parametrize(
    "idle,backpressure", [("none", "none"), ("half", "half"), ("bursts", "bursts"), ("none", "most")]
)
@pytest.mark.parametrize("config,requests", [("sim", 4000), ("tiny", 20_000), ("quad_public_donate", 20_000)])
def test_node_answers_like_the_golden_node_for_long(config, requests, idle, backpressure):
    run_node(config, idle=idle, backpressure=backpressure, seed=11, requests=requests)


@pytest.mark.long
def test_wide_node_answers_like_the_golden_node():
    run_node("wide", idle="bursts", backpressure="half", seed=12, requests=2000)
