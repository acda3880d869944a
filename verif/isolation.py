"""One tenant's cycles beside other tenants that do their worst: the same inputs twice, and the outputs compared.

Used by: verif.test_isolation, sw_driver.benches.isolation.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Opcode, Status
from kvnode.models.spec.messages import SESSION_ARGUMENTS
from kvnode.models.spec.settings import Setting
from kvnode.models.spec.timing import turn_wait_cycles
from kvnode.sw_driver.batch import BatchBuilder

from .harness.harness import Access, Harness, RunResult
from .traffic import Traffic

TENANT = 0
#: The tenant's messages in a run and, in most, those of the others.
OURS, THEIRS = 300, 600
#: Cycles in which registers are written, and of a run beside the time to move the others' blocks.
BUSY_CYCLES, CYCLES = 16_000, 24_000

Sent = tuple[np.ndarray, bytes]
Load = tuple[Sent, list[Access]]


@dataclass
class Pair:
    """Two runs of `cycles` each with the tenant's inputs alike: what the others did in the second one, and the names of
    the outputs that differ.
    """

    what: str
    cycles: int
    differences: list[str]


# What the others do. Drain and reset are no tenant's: they are the node's (CONTROL), and stop everybody.


def _flood(config: NodeConfig, ports: list[int], seed: int) -> Load:
    return Traffic(config, seed, ports=ports, malformed=0.05).batch(THEIRS), []


def _fill_to_quota(config: NodeConfig, ports: list[int], seed: int) -> Load:
    """More blocks than there are slots, none of them ever dropped; the rest of the fill rows stay taken."""
    builder, draw = BatchBuilder(config), random.Random(seed)
    for number in range(THEIRS // 4):
        port = draw.choice(ports)
        data = draw.randbytes(config.beat_bytes)
        digest = draw.getrandbits(config.digest_bits).to_bytes(32, "little")
        start = builder.add(Opcode.PUT_START, port, digest=digest, length=len(data), klass=0)
        builder.add(Opcode.WRITE, port, handle_from=start, length=len(data), payload=data)
        if number % 16:
            builder.add(Opcode.PUT_END, port, handle_from=start, crc=crc32c(data))
    return builder.build(), []


def _malformed(config: NodeConfig, ports: list[int], seed: int) -> Load:
    return Traffic(config, seed, ports=ports, malformed=0.9).batch(THEIRS), []


def _migrate(config: NodeConfig, ports: list[int], seed: int) -> Load:
    """Sessions that move about, with questions that wait."""
    builder, draw = BatchBuilder(config), random.Random(seed)
    for _ in range(THEIRS // 12):
        port = draw.choice(ports)
        mates = config.partitions[config.partition_of_port[port]].ports
        owner = builder.add(Opcode.SESSION_OPEN, port, digest=SESSION_ARGUMENTS.pack(ports=0), ttl=1)
        for number in range(1, 5):
            mate = draw.choice(mates)
            builder.add(
                Opcode.SESSION_FENCE, port, session_from=owner, sequence=draw.randrange(2), deadline=1, patience=40
            )
            owner = builder.add(Opcode.SESSION_MIGRATE, mate, session_from=owner, sequence=number)
            port = mate
        builder.add(Opcode.SESSION_CLOSE, port, session_from=owner)
    return builder.build(), []


def _writes(config: NodeConfig, ports: list[int], seed: int, values: Callable[[random.Random, int], tuple]) -> Load:
    """Traffic, with registers written that are about the others' partitions: `values` makes (address, data)."""
    sent, _ = _flood(config, ports, seed)
    draw = random.Random(seed)
    numbers = sorted({config.partition_of_port[port] for port in ports})
    cycles = sorted(draw.randrange(BUSY_CYCLES) for _ in range(40))
    return sent, [(cycle, *values(draw, draw.choice(numbers))) for cycle in cycles]


def _retire(config: NodeConfig, ports: list[int], seed: int) -> Load:
    shift = registers.MODEL_RETIRE_PARTITION_SHIFT
    return _writes(
        config, ports, seed,
        lambda draw, number: (registers.MODEL_RETIRE_ADDRESS, number << shift | draw.randrange(config.models)),
    )  # fmt: skip


def _poison(config: NodeConfig, ports: list[int], seed: int) -> Load:
    shift = registers.POISON_PARTITION_SHIFT
    return _writes(
        config, ports, seed, lambda draw, number: (registers.POISON_ADDRESS, number << shift | draw.randrange(4))
    )


def _settings(config: NodeConfig, ports: list[int], seed: int) -> Load:
    def value(draw: random.Random, number: int) -> tuple[int, int]:
        setting = draw.choice(list(Setting))
        most = config.partitions[number].slots // 2 if "SLOTS" in setting.name else 3
        address = getattr(registers, f"PARTITION_{setting.name}_ADDRESS")
        return address + number * registers.PARTITION_STRIDE_BYTES, draw.randrange(most + 1)

    return _writes(config, ports, seed, value)


def _down(config: NodeConfig, ports: list[int], seed: int) -> Load:
    """Their ports go down and come up; at the end all are up."""
    mask = sum(1 << port for port in ports)
    sent, accesses = _writes(
        config, ports, seed, lambda draw, number: (registers.PORT_DOWN_ADDRESS, draw.getrandbits(config.ports) & mask)
    )
    return sent, [*accesses, (BUSY_CYCLES, registers.PORT_DOWN_ADDRESS, 0)]


def _idle(config: NodeConfig, ports: list[int], seed: int) -> Load:
    return (np.zeros(0, BATCH_DTYPE), b""), []


#: What the others do beside a tenant, by name; the first is what the rest is compared with.
LOADS: dict[str, Callable[[NodeConfig, list[int], int], Load]] = {
    "idle": _idle,
    "flood": _flood,
    "fill to quota": _fill_to_quota,
    "malformed messages": _malformed,
    "sessions that move": _migrate,
    "models retired": _retire,
    "settings changed": _settings,
    "ports that go down": _down,
    "damaged blocks": _poison,
}


def pairs(
    harness: Harness, seeds: range, ours: int = OURS, names: tuple[str, ...] = tuple(LOADS)[1:]
) -> Iterator[Pair]:
    """A pair for each seed and load. Every run is from reset and as long, with idle and backpressure by the seed.

    Compared are the cycles, headers and bytes of the tenant's answers, the beats and wakes of its ports, and all that
    the trace says of its partition, the sweeper's operations included.
    """
    config = harness.config
    own = config.partitions[TENANT].ports
    others = [port for port in range(config.ports) if port not in own]
    for seed in seeds:
        mine = Traffic(config, seed, ports=own).batch(ours)
        patterns = {"idle": 0.1 * (seed % 2), "backpressure": 0.2 * (seed % 3), "seed": seed}
        silence = LOADS["idle"](config, others, seed)
        # A reset leaves the content of memories: that of the first run is another than that of those behind it.
        _view(harness, mine, silence, patterns)
        alone = _view(harness, mine, silence, patterns)
        for number, name in enumerate(names):
            load = LOADS[name](config, others, 1000 * seed + number)
            beside = _view(harness, mine, load, patterns)
            yield Pair(name, run_cycles(config), [key for key, value in alone.items() if value != beside[key]])


def run_cycles(config: NodeConfig) -> int:
    """Cycles of a run, whatever is in it."""
    return CYCLES + config.slots + 2 * THEIRS * config.block_beats


def beside(ours: Sent, theirs: Sent) -> Sent:
    """One batch of two, with the second's references moved behind the first."""
    (a, a_payload), (b, b_payload) = ours, theirs
    b = b.copy()
    for name in ("handle_from", "session_from", "after"):
        b[name][b[name] >= 0] += len(a)
    b["payload_offset"] += len(a_payload)
    return np.concatenate([a, b]), a_payload + b_payload


def _view(harness: Harness, ours: Sent, load: Load, patterns: dict) -> dict[str, object]:
    """What the tenant can see of a run, and what happened in its partition."""
    theirs, accesses = load
    harness.reset(1)
    batch, payload = beside(ours, theirs)
    cycles = run_cycles(harness.config)
    run = harness.run(batch, payload, min_cycles=cycles, max_cycles=cycles, registers=accesses, **patterns)
    count, own = len(ours[0]), list(harness.config.partitions[TENANT].ports)
    view: dict[str, object] = {name: run.results[name][:count].tobytes() for name in _RESULT_COLUMNS}
    view["bytes"] = [run.payload(index) for index in range(count)]
    for name in ("request_beats", "response_beats", "wakes"):
        view[name] = getattr(run, name)[own].tolist()
    records = run.trace[run.trace["partition"] == TENANT].copy()
    records["order"] = 0
    view["trace"] = records.tobytes()
    return view


_RESULT_COLUMNS = ("done", "tries", "sent_cycle", "first_cycle", "last_cycle", "header")


# What an answer's time tells.

#: Questions that must not tell from a miss, by name.
QUESTIONS = ("miss", "denied", "other_model", "old_epoch", "other_partition", "other_session")
ROUNDS = 8


def latencies(harness: Harness, opcode: Opcode = Opcode.LOOKUP) -> dict[str, set[int]]:
    """Cycles from a question's last beat to its answer's first, by what was asked, all at one phase of the wheel.

    The keys asked for are: none's; another partition's, asked there (DENIED); one of another model; one of a model that
    was retired, before the patrol comes by; one that only another partition has; a private one of another session.
    """
    config = harness.config
    port, other = config.partitions[0].ports[0], config.partitions[1].ports[0]
    harness.reset()
    harness.idle(config.slots + 100)

    def key(number: int) -> bytes:
        return (number * 0x9E3779B1 % (1 << config.digest_bits)).to_bytes(32, "little")

    builder, beat = BatchBuilder(config), config.beat_bytes
    opened = builder.add(Opcode.SESSION_OPEN, port, digest=SESSION_ARGUMENTS.pack(ports=0))
    builder.puts(port, [(key(1), bytes(beat))], model_id=1, rows=1)
    builder.puts(port, [(key(2), bytes(beat))], model_id=0, rows=1)
    builder.puts(other, [(key(3), bytes(beat))], rows=1)
    builder.puts(port, [(key(4), bytes(beat))], model_id=1, rows=1, session_from=opened, private=True)
    batch, payload = builder.build()
    run = harness.run(batch, payload, max_cycles=100_000)
    _require(run, batch, (Status.OK, Status.GRANTED, Status.SEALED))
    harness.write_register(registers.MODEL_RETIRE_ADDRESS, TENANT << registers.MODEL_RETIRE_PARTITION_SHIFT)
    harness.idle(8 * config.ports * (config.ports + 1))

    builder = BatchBuilder(config)
    asked: list[str] = []
    fields: dict[str, dict] = {
        "miss": {"digest": key(5), "model_id": 1},
        "denied": {"digest": key(3), "model_id": 0},
        "other_model": {"digest": key(1), "model_id": 0},
        "old_epoch": {"digest": key(2), "model_id": 0},
        "other_partition": {"digest": key(3), "model_id": 1},
        "other_session": {"digest": key(4), "model_id": 1},
    }
    order = list(QUESTIONS) * ROUNDS
    random.Random(1).shuffle(order)
    for name in order:
        builder.add(opcode, port, **fields[name])
        asked.append(name)
    batch, payload = builder.build()
    denied = [index for index, name in enumerate(asked) if name == "denied"]
    batch["header"]["partition"][denied] = config.partition_of_port[other]
    wheel = config.ports + 1
    # The request's last beat comes at one phase: nothing else is on the port.
    batch["earliest_cycle"] = turn_wait_cycles(harness.cycle, port, config.ports) + wheel * 12 * np.arange(len(batch))
    run = harness.run(batch, payload, max_cycles=1_000_000)
    _require(run, batch, (Status.MISS, Status.DENIED))
    taken: dict[str, set[int]] = {name: set() for name in QUESTIONS}
    for name, result in zip(asked, run.results):
        expected = Status.DENIED if name == "denied" else Status.MISS
        if result["header"]["status"] != expected:
            raise AssertionError(f"{name} was answered {Status(result['header']['status']).name}")
        taken[name].add(int(result["first_cycle"]) - int(result["sent_cycle"]))
    return taken


def _require(run: RunResult, batch: np.ndarray, statuses: tuple[Status, ...]) -> None:
    status = run.results["header"]["status"]
    wrong = np.flatnonzero(~np.isin(status, statuses))
    if len(wrong):
        index = int(wrong[0])
        raise AssertionError(f"request {index} of {len(batch)} was answered {Status(status[index]).name}")
