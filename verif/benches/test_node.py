"""The whole node: random messages on all ports, every answer and byte checked, idle and backpressure swept."""

from types import SimpleNamespace

import pytest

from kvnode.models.spec.enums import Opcode, Status
from kvnode.models.spec.messages import REQUEST, RESPONSE, VERSION
from kvnode.models.spec.registers import MODEL_RETIRE_ADDRESS
from kvnode.models.spec.requests import WITH_PAYLOAD
from kvnode.rtl.elaborate import TOP
from kvnode.verif.agents.batch import BatchRun
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.port import NodePort
from kvnode.verif.agents.stream import Source, pattern
from kvnode.verif.agents.trace import TraceMonitor
from kvnode.verif.benches.configs import config_of
from kvnode.verif.checkers.messages import MessageCheck
from kvnode.verif.runner import node_verilog, run_bench
from kvnode.verif.traffic import Traffic

MODULE = "kvnode.verif.benches.test_node"
BOOT_EPOCH = 3
CYCLES_PER_REQUEST = 1000


class Retirer:
    """Now and then a register write that retires a model, or one that means nothing."""

    def __init__(self, bench, config):
        self.config, self.rng = config, bench.random
        self.source = Source(bench, "reg_", ("address", "data"), pattern("most", 9))
        bench.add(self)

    def sample(self):
        pass

    def drive(self):
        if not self.source.busy and self.rng.randrange(600) == 0:
            address = MODEL_RETIRE_ADDRESS if self.rng.randrange(4) else self.rng.getrandbits(16)
            partition, model = (
                self.rng.randrange(len(self.config.partitions) + 1),
                self.rng.randrange(self.config.models),
            )
            self.source.queue.append((address, partition << 16 | model))


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
    if given["seed"] % 2:
        Retirer(bench, config)
    assert len(bench.checkers) == 2 * config.ports + 1
    await bench.start(boot_epoch=BOOT_EPOCH)
    limit = config.slots + 2000 + CYCLES_PER_REQUEST * len(batch)
    await bench.until(lambda: run.done, limit, "every request is answered")
    for _ in range(50):
        await bench.step()
    check = MessageCheck(config, BOOT_EPOCH)
    check.check(batch, payload, SimpleNamespace(results=run.results, trace=monitor.records, payload=run.payload))
    assert check.answers_checked > len(batch) * 2 // 5
    assert check.lockstep.operations == monitor.lockstep.operations


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


@pytest.mark.parametrize("idle,backpressure,seed", [("none", "none", 1), ("half", "bursts", 2)])
def test_quad_node_answers_like_the_golden_node(idle, backpressure, seed):
    run_node("quad", idle=idle, backpressure=backpressure, seed=seed, requests=1000)


@pytest.mark.long
@pytest.mark.parametrize(
    "idle,backpressure", [("none", "none"), ("half", "half"), ("bursts", "bursts"), ("none", "most")]
)
@pytest.mark.parametrize("config,requests", [("sim", 4000), ("tiny", 20_000), ("quad_donate", 20_000)])
def test_node_answers_like_the_golden_node_for_long(config, requests, idle, backpressure):
    run_node(config, idle=idle, backpressure=backpressure, seed=11, requests=requests)


@pytest.mark.long
def test_wide_node_answers_like_the_golden_node():
    run_node("wide", idle="bursts", backpressure="half", seed=12, requests=2000)
