"""The index: inserts that it refuses while every slot is taken, and the bits it costs."""

import dataclasses

import numpy as np

from kvnode.models.spec.config import NodeConfig, PartitionConfig, preset
from kvnode.models.spec.enums import Kind, Status

from ..batch import BatchBuilder
from ..keys import block_digest
from ..transports import open_transport
from ..transports.golden_parts import turn_over
from . import Bench, Progress

INSERTS, QUICK_INSERTS = 10_000_000, 100_000
RTL_INSERTS, QUICK_RTL_INSERTS = 100_000, 5_000
RTL_BATCH_BLOCKS = 4_000


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """Golden: every insert into the first partition's index, full but for the slot it takes, after a victim drawn at
    random has gone. RTL: whole PUTs into a node of one-lap blocks whose sweeper frees a slot for each."""
    config = config or preset("sim")
    bench = Bench("index", config.name)
    count = QUICK_INSERTS if quick else INSERTS
    refused = turn_over(config, count, lambda done: progress(f"golden, {done:,} of {count:,} inserts"))
    bench.add("refused_per_million", refused * 1e6 / count, "refused per million inserts", "<= 1")
    bench.add("inserts_golden", count, "inserts", ">= 10,000,000")
    count = QUICK_RTL_INSERTS if quick else RTL_INSERTS
    refused, inserts, taken = _rtl(config, count, progress)
    bench.add("refused_per_million_rtl", refused * 1e6 / inserts, "refused per million inserts")
    bench.add("inserts_rtl", inserts, "inserts", ">= 100,000")
    bench.add("slots_taken_rtl", taken, "fraction, mean over the second half")
    bench.add("index_bits_per_slot", index_bits_per_slot(config), "bits", "<= 128")
    bench.add("block_table_bits_per_slot", block_table_bits_per_slot(config), "bits")
    return bench


def index_bits_per_slot(config: NodeConfig) -> float:
    """Valid bit, tag and slot of every entry of both tables."""
    entries = 2 * config.index_rows * config.ways
    return entries * (1 + config.tag_bits + config.slot_bits) / config.slots


def block_table_bits_per_slot(config: NodeConfig) -> int:
    """State row (state, generation, length, class, age, fill row) and key row (digest, model, group, epoch, place)."""
    state = 2 + config.generation_bits + config.block_beats.bit_length() + 2 + 2 + (config.fill_rows - 1).bit_length()
    place = 1 + max(config.rows_log2) + (config.ways - 1).bit_length()
    return state + config.digest_bits + (config.models - 1).bit_length() + 8 + config.epoch_bits + place


def _rtl(config: NodeConfig, count: int, progress: Progress) -> tuple[int, int, float]:
    """(refused by the index, inserts, fraction of slots taken) on the RTL."""
    lap = config.beat_bytes * config.ports
    block_bytes = -(-lap // 32) * 32
    slots_log2 = config.partitions[0].slots_log2
    tiny = dataclasses.replace(
        config,
        name=f"{config.name}-lap",
        block_bytes=block_bytes,
        max_payload_bytes=block_bytes,
        partitions=(
            PartitionConfig(tuple(range(config.ports)), slots_log2, 8 * config.ports, config.partitions[0].seed, "all"),
        ),
        fill_rows=4 * config.ports,
    )
    progress("building the RTL")
    refused = inserts = 0
    free: list[float] = []
    with_progress = open_transport("rtl", tiny, progress=progress)
    try:
        done = 0
        while inserts < count:
            builder = BatchBuilder(tiny)
            for port in range(tiny.ports):
                numbers = range(done + port, done + RTL_BATCH_BLOCKS, tiny.ports)
                blocks = [(block_digest(0, 0, number), bytes(block_bytes)) for number in numbers]
                builder.puts(port, blocks, klass=3)
            done += RTL_BATCH_BLOCKS
            batch, payload = builder.build()
            result = with_progress.run(batch, payload)
            result.require_answers(batch)
            assert result.trace is not None
            starts = result.trace[result.trace["kind"] == Kind.PUT_START]
            crowded = (starts["status"] == Status.NO_SPACE) & (starts["free_count"] > 0)
            # The first pass over the slots meets an index that is not full yet.
            if done > 1 << slots_log2:
                inserts += int((starts["status"] == Status.GRANTED).sum() + crowded.sum())
                refused += int(crowded.sum())
                free.append(float(starts["free_count"].mean()))
            progress(f"RTL, {inserts:,} of {count:,} inserts")
    finally:
        with_progress.close()
    half = free[len(free) // 2 :]
    return refused, inserts, 1 - float(np.mean(half)) / (1 << slots_log2)
