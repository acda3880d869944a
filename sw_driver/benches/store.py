"""The store: payload beats per port and cycle, back to back, headers counted as loss."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from kvnode.models.golden.crc import crc32c
from kvnode.models.spec.config import NodeConfig, PartitionConfig, preset
from kvnode.models.spec.enums import Opcode, Status

from ..batch import BatchBuilder
from ..keys import block_digest
from ..transport import Batch, RunResult, Transport
from ..transports import open_transport
from . import Bench, Progress

KIB = 1024
SIZES_KIB = (2, 4, 16, 64, 256)
QUICK_SIZES_KIB = (4, 64)
#: Payload of a WRITE: this, but at most so many WRITEs to a block. Their answers wait behind the bytes of a READ, and a
#: port that holds as many answers as it can takes no more requests.
WRITE_PAYLOAD_BYTES, WRITES_PER_BLOCK = 16 * KIB, 8
#: Beats that a port moves in a measurement.
BEATS, QUICK_BEATS = 60_000, 12_000
BLOCKS_PER_PORT = 2
#: Blocks that a port has started before the one that it writes is whole.
STARTED_AHEAD = 2
READ_LIMITS = {4: ">= 0.992", 64: ">= 0.999"}
#: Beats of a run, and beats from one run to the next, of two-dimensional READs: these modulo four and eight banks tell
#: whether the next run begins at the bank that the last one ended at.
RUNS = ((8, 8), (8, 16), (8, 24), (4, 12), (4, 8), (8, 9), (8, 15), (1, 8))


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """Every figure is the worst port's, from the end of its second transfer to the end of its last but one: the steady
    state, with everything that the link carries between. Reads of all ports: of different blocks, of one block, of one
    port alone, of blocks in runs; reads and writes of all ports at once."""
    config = config or preset("sim")
    bench = Bench("store", config.name)
    beats = QUICK_BEATS if quick else BEATS
    first_beat = 0
    for size_kib in QUICK_SIZES_KIB if quick else SIZES_KIB:
        sized = variant(config, size_kib * KIB)
        progress(f"{size_kib} KiB")
        transport = open_transport("rtl", sized, progress=progress)
        try:
            blocks = _fill(transport)
            count = max(6, beats // sized.block_beats)
            limit = READ_LIMITS.get(size_kib, "")
            unit = "payload beats per port and cycle"
            cases = {"": _own(blocks), "_same_block": [[0]] * config.ports, "_one_port": _own(blocks)[:1]}
            for name, choice in cases.items():
                bench.add(f"read_{size_kib}KiB{name}", _reads(transport, choice, blocks, count), unit, limit)
            reads, writes = _both(transport, blocks, count)
            limit = ">= 0.99" if size_kib == 64 else ""
            bench.add(f"read_{size_kib}KiB_while_writing", reads, unit, limit)
            bench.add(f"write_{size_kib}KiB_while_reading", writes, unit, limit)
            if size_kib == 64:
                progress("two-dimensional reads")
                for run_beats, stride_beats in RUNS:
                    rate = _runs(transport, blocks, run_beats, stride_beats, count)
                    follows = (stride_beats - run_beats) % config.ports == 0
                    bench.add(
                        f"read_64KiB_runs_of_{run_beats}_every_{stride_beats}", rate, unit, ">= 0.99" if follows else ""
                    )
            if size_kib == 4:
                progress("first beats")
                first_beat = _first_beat(transport, blocks)
        finally:
            transport.close()
    bench.add("first_beat_cycles_max", first_beat, "cycles, request's last beat to first payload beat, idle port")
    return bench


def variant(config: NodeConfig, block_bytes: int) -> NodeConfig:
    """The same width with blocks of this size: one partition, few slots, fill rows to write back to back."""
    blocks = config.ports * (BLOCKS_PER_PORT + 8)
    slots_log2 = max((config.ways - 1).bit_length(), (2 * blocks - 1).bit_length())
    everything = PartitionConfig(
        tuple(range(config.ports)), slots_log2, low_watermark_slots=blocks, seed=config.partitions[0].seed, name="all"
    )
    return dataclasses.replace(
        config,
        name=f"{config.name}-{block_bytes // KIB}KiB",
        block_bytes=block_bytes,
        max_payload_bytes=min(block_bytes, max(WRITE_PAYLOAD_BYTES, block_bytes // WRITES_PER_BLOCK)),
        partitions=(everything,),
        fill_rows=8 * config.ports,
    )


def _own(blocks: list[bytes]) -> list[list[int]]:
    """Two blocks for every port, each its own."""
    return [[number, number + 1] for number in range(0, len(blocks), BLOCKS_PER_PORT)]


def _fill(transport: Transport) -> list[bytes]:
    config = transport.config
    digests = [block_digest(0, 0, number) for number in range(config.ports * BLOCKS_PER_PORT)]
    builder = BatchBuilder(config)
    for number, digest in enumerate(digests):
        builder.puts(number % config.ports, [(digest, digest * (config.block_bytes // 32))])
    _run(transport, builder)
    return digests


def _reads(transport: Transport, choice: list[list[int]], blocks: list[bytes], count: int) -> float:
    """Each entry of `choice` is a port's blocks, read in turns."""
    builder = BatchBuilder(transport.config)
    for number in range(count):
        for port, mine in enumerate(choice):
            builder.read(port, blocks[mine[number % len(mine)]])
    batch, result = _run(transport, builder)
    return min(_rate(transport, batch, result, port, Opcode.READ) for port in range(len(choice)))


def _runs(transport: Transport, blocks: list[bytes], run_beats: int, stride_beats: int, count: int) -> float:
    """READs of as many runs as a block has, on all ports, each of its own block."""
    config = transport.config
    beat, runs = config.beat_bytes, (config.block_beats - run_beats) // stride_beats + 1
    builder = BatchBuilder(config)
    found = [builder.add(Opcode.LOOKUP, port, digest=digest) for port, digest in enumerate(blocks[::BLOCKS_PER_PORT])]
    for _ in range(max(6, count * config.block_beats // (runs * run_beats))):
        for port, handle in enumerate(found):
            builder.add(
                Opcode.READ, port, by_handle=True, handle_from=handle, length=run_beats * beat,
                stride=stride_beats * beat, count=runs,
            )  # fmt: skip
    batch, result = _run(transport, builder)
    return min(_rate(transport, batch, result, port, Opcode.READ) for port in range(config.ports))


def _both(transport: Transport, blocks: list[bytes], count: int) -> tuple[float, float]:
    """(reads, writes) with all ports reading and writing at once."""
    config = transport.config
    builder = BatchBuilder(config)
    for port in range(config.ports):
        _mix(builder, port, blocks[port * BLOCKS_PER_PORT : (port + 1) * BLOCKS_PER_PORT], count)
    batch, result = _run(transport, builder)
    ports = range(config.ports)
    return tuple(  # type: ignore[return-value]
        min(_rate(transport, batch, result, port, opcode) for port in ports) for opcode in (Opcode.READ, Opcode.WRITE)
    )


def _mix(builder: BatchBuilder, port: int, blocks: list[bytes], count: int) -> None:
    """What one port's link carries: READs of its blocks and whole PUTs of new ones, `count` of each. Between two WRITEs
    of a block stands at most one other message, for a port collects one header while another waits for its turn.
    """
    block_bytes, step = builder.config.block_bytes, builder.config.max_payload_bytes
    content = bytes(step)
    crc = crc32c(bytes(block_bytes))
    starts: list[int] = []

    def start() -> None:
        digest = block_digest(1 + port, 0, len(starts))
        starts.append(builder.add(Opcode.PUT_START, port, digest=digest, klass=3, length=block_bytes))

    def others(number: int) -> Iterator[None]:
        """Add what goes with the WRITEs of a block, one message at a time."""
        if number:
            builder.add(Opcode.PUT_END, port, handle_from=starts[number - 1], crc=crc)
            yield
        if len(starts) < count:
            start()
            yield
        builder.read(port, blocks[number % len(blocks)])

    for _ in range(STARTED_AHEAD):
        start()
    for number in range(count):
        between = others(number)
        for offset in range(0, block_bytes, step):
            builder.add(Opcode.WRITE, port, handle_from=starts[number], offset=offset, length=step, payload=content)
            if offset + step < block_bytes:
                next(between, None)
        for _ in between:
            pass
    builder.add(Opcode.PUT_END, port, handle_from=starts[-1], crc=crc)


def _first_beat(transport: Transport, blocks: list[bytes]) -> int:
    """The longest wait for the first payload beat, over the phases of both wheels, one READ at a time and port."""
    config = transport.config
    builder = BatchBuilder(config)
    apart = config.block_beats + 40 * config.ports
    for _ in range(config.ports * (config.ports + 1)):
        for port in range(config.ports):
            builder.read(port, blocks[port * BLOCKS_PER_PORT])
    batch, payload = builder.build()
    batch["earliest_cycle"] = np.repeat(np.arange(len(batch) // config.ports) * (apart + 1), config.ports)
    result = transport.run(batch, payload)
    rows = result.results
    first_payload = rows["last_cycle"] - config.block_beats + 1
    return int((first_payload - rows["sent_cycle"]).max())


def _run(transport: Transport, builder: BatchBuilder) -> tuple[Batch, RunResult]:
    """Run, and insist that everything went well: a figure of refused requests would mean nothing."""
    batch, payload = builder.build()
    result = transport.run(batch, payload)
    result.require_answers(batch)
    status = result.results["header"]["status"]
    good = np.isin(status, (Status.OK, Status.HIT, Status.GRANTED, Status.SEALED))
    if not good.all():
        index = int(np.argmin(good))
        opcode = Opcode(int(batch["header"]["opcode"][index]))
        raise AssertionError(f"request {index} ({opcode.name}) answered {Status(int(status[index])).name}")
    return batch, result


def _rate(transport: Transport, batch: Batch, result: RunResult, port: int, opcode: Opcode) -> float:
    """Payload beats per cycle of one port's READs (as they arrive) or WRITEs (as they are accepted)."""
    which = (batch["port"] == port) & (batch["header"]["opcode"] == opcode)
    rows = result.results[which]
    if opcode == Opcode.READ:
        ends, sizes = rows["last_cycle"], rows["data_bytes"]
    else:
        ends, sizes = rows["sent_cycle"], batch["payload_bytes"][which]
        # Whole blocks, so that each block's share of PUT_START and PUT_END is counted.
        per_block = transport.config.block_bytes // transport.config.max_payload_bytes
        ends, sizes = ends[per_block - 1 :: per_block], sizes.reshape(-1, per_block).sum(axis=1)
    beats = int(sizes[2:-1].sum()) // transport.config.beat_bytes
    return beats / int(ends[-2] - ends[1])
