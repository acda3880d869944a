"""What operators do: registers, the event ring, drains, ports that go down, damaged slots, models, settings.

Used by: verif.directed.
"""

from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.enums import Kind, Status
from kvnode.models.spec.settings import Setting

from ..harness.harness import Access, Harness
from .stage import Checker, Stage, addresses_of, ring_reads

#: Registers that are not written at random: the node would stand still, or lose its ports.
CAREFUL = (registers.CONTROL_ADDRESS, registers.PORT_DOWN_ADDRESS)
ADDRESSES = range(0, registers.SIZE_BYTES, 4)


def every_register(harness: Harness, checker: Checker) -> None:
    """Every address is read and written during traffic, and every counter and bucket is shown."""
    stage = Stage(harness, checker, 1, malformed=0.1)
    draw, config = stage.random, stage.config
    accesses: list[Access] = [(0, address) for address in ADDRESSES]
    accesses += [(0, draw.randrange(1 << 16)) for _ in range(200)]
    accesses += [(0, draw.randrange(0x2000, 1 << 16), draw.getrandbits(32)) for _ in range(100)]
    accesses += [(0, address, draw.getrandbits(32)) for address in (*ADDRESSES,) * 8 if address not in CAREFUL]
    accesses += [(0, address) for address in ADDRESSES]
    stage.play(1500, accesses)

    stage = Stage(harness, checker, 2)
    accesses = []
    for partition in range(len(config.partitions)):
        for kind in Kind:
            for status in Status:
                word = partition << registers.COUNTER_SELECT_PARTITION_SHIFT | kind << 8 | status
                accesses += [(0, registers.COUNTER_SELECT_ADDRESS, word), (0, registers.COUNTER_LOW_ADDRESS),
                             (0, registers.COUNTER_HIGH_ADDRESS)]  # fmt: skip
    stage.play(1500)
    for port in range(config.ports + 1):
        for bucket in range(33):
            word = port << registers.HISTOGRAM_SELECT_PORT_SHIFT | bucket
            accesses += [(0, registers.HISTOGRAM_SELECT_ADDRESS, word), (0, registers.HISTOGRAM_LOW_ADDRESS)]
    stage.play(1500, accesses)


def event_ring(harness: Harness, checker: Checker) -> None:
    """Events are left until the ring overflows, then all are taken, then each as it comes."""
    stage = Stage(harness, checker, 3, keys=200)
    config = stage.config
    start: list[Access] = [*ring_reads(1)]
    stage.play(200, start)
    commands: list[Access] = []
    for number in range(40):
        partition = number % len(config.partitions)
        commands.append((100 * number, registers.MODEL_RETIRE_ADDRESS, partition << 16 | number % config.models))
        commands.append((100 * number + 30, registers.POISON_ADDRESS, partition << 20 | number % 8))
    commands += [(5000, registers.PORT_DOWN_ADDRESS, 1), (5200, registers.PORT_DOWN_ADDRESS, 0)]
    stage.play(1000, commands + [(6000, *access[1:]) for access in ring_reads(60)])
    for _ in range(6):
        stage.play(1500)
    stage.play(10, ring_reads(300))


def drain(harness: Harness, checker: Checker) -> None:
    """Drained in the midst of traffic, looked at until it is over, and opened again; a reset is asked for."""
    stage = Stage(harness, checker, 4)
    accesses: list[Access] = []
    for start in (300, 5000, 9000):
        accesses.append((start, registers.CONTROL_ADDRESS, registers.CONTROL_DRAIN_MASK))
        accesses += [(start + 20 * look, registers.STATUS_ADDRESS) for look in range(80)]
        accesses.append((start + 1700, registers.CONTROL_ADDRESS, 0))
    accesses.append((13_000, registers.CONTROL_ADDRESS, registers.CONTROL_RESET_MASK))
    stage.play(800, accesses, backpressure=0.3)


def ports_down(harness: Harness, checker: Checker) -> None:
    """Ports go down again and again, one after the other and several at once."""
    for seed in range(5, 8):
        stage = Stage(harness, checker, seed, keys=8, malformed=0.1)
        accesses: list[Access] = []
        for at in range(0, 12_000, 500):
            accesses.append((at, registers.PORT_DOWN_ADDRESS, stage.random.randrange(1 << stage.config.ports)))
            accesses.append((at + stage.random.randrange(4, 150), registers.PORT_DOWN_ADDRESS, 0))
        stage.play(1200, accesses, backpressure=0.4, idle=0.2)


def reads_cut_off(harness: Harness, checker: Checker) -> None:
    """Ports go down with the bytes of READs in their queues, and are asked for others when they are up again."""
    for seed in range(47, 50):
        stage = Stage(harness, checker, seed)
        config = stage.config
        builder, keys = stage.builder(), {}
        for port in range(config.ports):
            keys[port] = stage.key(), stage.key()
            for key in keys[port]:
                stage.put(builder, port, key)
        stage.finish(builder, min_cycles=1000)
        for turn in range(4):
            builder = stage.builder()
            for port in range(config.ports):
                for number in range(3):
                    builder.read(port, keys[port][number % 2])
                builder.read(port, keys[port][1], earliest_cycle=600)
            mask = (1 << config.ports) - 1
            downs = [(60 + 20 * turn, registers.PORT_DOWN_ADDRESS, mask), (200, registers.PORT_DOWN_ADDRESS, 0)]
            stage.finish(builder, downs, backpressure=0.9)


def poison(harness: Harness, checker: Checker) -> None:
    """Slots are found damaged all the time, leased ones too, and the commands are looked at while they wait."""
    for seed in range(8, 11):
        stage = Stage(harness, checker, seed, keys=4)
        draw, config = stage.random, stage.config
        accesses: list[Access] = []
        for at in range(0, 24_000, 80):
            number = draw.randrange(len(config.partitions))
            slot = draw.randrange(config.partitions[number].slots)
            accesses += [(at, registers.POISON_ADDRESS, number << registers.POISON_PARTITION_SHIFT | slot),
                         (at, registers.POISON_ADDRESS)]  # fmt: skip
        stage.play(1500, accesses)
        # From a reset, that all rows of blocks being written are free.
        stage = Stage(harness, checker, seed + 33)
        builder = stage.builder()
        for _ in range(12):
            for part in config.partitions:
                key = stage.key()
                stage.put(builder, part.ports[0], key)
                for _ in range(10):
                    builder.match(part.ports[0], [key])
        stage.finish(builder, [(access[0] // 2, *access[1:]) for access in accesses if len(access) == 3])
        # Every slot is damaged; then a prefix begins with such a block.
        builder, damage = stage.builder(), []
        for number, part in enumerate(config.partitions):
            key = stage.key()
            stage.put(builder, part.ports[0], key)
            first = number << registers.POISON_PARTITION_SHIFT
            damage += [(3000 + 100 * slot, registers.POISON_ADDRESS, first | slot) for slot in range(part.slots)]
            builder.match(part.ports[0], [key], earliest_cycle=4000 + 100 * part.slots)
        stage.finish(builder, damage)


def retired_models(harness: Harness, checker: Checker) -> None:
    """Models are retired until their epochs have gone round, with two commands at a time."""
    stage = Stage(harness, checker, 11)
    config = stage.config
    accesses: list[Access] = []
    laps = (2 << config.epoch_bits) * config.models * len(config.partitions)
    for number in range(laps):
        model, partition = number % config.models, number // config.models % len(config.partitions)
        word = partition << registers.MODEL_RETIRE_PARTITION_SHIFT | model
        accesses += [(180 * number, registers.MODEL_RETIRE_ADDRESS, word),
                     (180 * number, registers.MODEL_RETIRE_ADDRESS)]  # fmt: skip
    stage.play(1500, accesses, idle=0.3)


def settings(harness: Harness, checker: Checker) -> None:
    """Settings take every value that they can have, also those that leave nothing to do."""
    stage = Stage(harness, checker, 12, keys=60)
    draw = stage.random
    accesses: list[Access] = []
    names = [setting.name for setting in Setting]
    for at in range(0, 9000, 30):
        address = draw.choice(addresses_of(stage.config, draw.choice(names)))
        accesses.append((at, address, draw.getrandbits(draw.choice((2, 4, 32)))))
    stage.play(1500, accesses)
    # Everything at once, from all ones to nothing and back: a full reserve, deadlines that never come.
    for value in ((1 << 32) - 1, 0, 0x5555_5555, 0xAAAA_AAAA, 0):
        writes: list[Access] = [(0, address, value) for name in names for address in addresses_of(stage.config, name)]
        stage.play(100, writes, min_cycles=1500)
