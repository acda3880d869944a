"""The directory: operations per cycle, and whether the time of a lookup tells hit from miss."""

import numpy as np

from kvnode.models.spec.config import NodeConfig, preset
from kvnode.models.spec.enums import Kind, Opcode, Status

from ..batch import BatchBuilder, blank_requests, digest_array
from ..keys import block_digest
from ..transport import Batch, Transport
from ..transports import open_transport
from . import Bench, Progress

LOOKUPS, QUICK_LOOKUPS = 120_000, 4_000
#: Blocks put before the lookups, per partition.
STORED = 256
#: A lookup of the latency measurement is alone at its port: one every so many turns of the wheel.
WHEELS_BETWEEN = 8


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """Saturation with LOOKUPs on all ports (a port can send one in three cycles, more than the directory can start), in
    the middle half of the run, the sweeper's turns included; then long MATCHes on all ports; then single lookups at one
    fixed phase of the wheel, hits and misses mixed at random."""
    config = config or preset("sim")
    bench = Bench("directory", config.name)
    count = QUICK_LOOKUPS if quick else LOOKUPS
    for sharing, metric in (("donate", "ops_per_cycle_donate"), ("strict", "turns_used_strict")):
        progress(f"saturation, {sharing}")
        with_sharing = config.replace(sharing=sharing)
        transport = open_transport("rtl", with_sharing, progress=progress)
        try:
            digests = _store(transport)
            bench.add(metric, _saturated(transport, digests, count), "operations per cycle", "1")
            if sharing == "strict":
                progress("digests of MATCH")
                bench.add("match_digests_per_turn", _match(transport, count), "digests per own turn, worst port", "1")
                progress(f"latency of {count:,} lookups")
                latency, hits = _latency(transport, digests, count)
        finally:
            transport.close()
    spread = int(latency.max() - latency.min())
    bench.add("lookup_latency_cycles", int(np.median(latency)), "cycles, request's last beat to answer", "constant")
    bench.add("lookup_latency_spread_cycles", spread, "cycles", "0")
    bench.add("lookups_measured", len(latency), "lookups", ">= 100,000")
    bench.add("lookups_hit", hits / len(latency), "fraction")
    return bench


def _store(transport: Transport) -> list[bytes]:
    """Seal one-beat blocks in every partition; their digests."""
    config = transport.config
    count = min(STORED, *(part.slots - part.low_watermark_slots - 1 for part in config.partitions))
    digests = [block_digest(0, 0, number, config.digest_bits) for number in range(count)]
    builder = BatchBuilder(config)
    for partition in config.partitions:
        builder.puts(partition.ports[0], [(digest, bytes(config.beat_bytes)) for digest in digests])
    batch, payload = builder.build()
    transport.run(batch, payload)
    return digests


def _saturated(transport: Transport, digests: list[bytes], count: int) -> float:
    """Operations per cycle with every port full of LOOKUPs."""
    batch = _lookups(transport, digests, count)
    result = transport.run(batch)
    result.require_answers(batch)
    assert result.trace is not None
    cycles = result.trace["cycle"].astype(np.int64)
    quarter = int(cycles[-1] - cycles[0]) // 4
    first, last = int(cycles[0]) + quarter, int(cycles[0]) + 3 * quarter
    return int(((cycles >= first) & (cycles < last)).sum()) / (last - first)


def _match(transport: Transport, count: int) -> float:
    """Digests that a port looks up per turn of its own, inside MATCHes as long as they can be, all of them hits: the
    mean over the steady state, from the second digest of each MATCH on, of the worst port."""
    config = transport.config
    long = config.max_match_digests
    digests = [block_digest(0, 0, number % STORED, config.digest_bits) for number in range(long)]
    builder = BatchBuilder(config)
    for _ in range(max(2, count // (config.ports * long))):
        for port in range(config.ports):
            builder.match(port, digests)
    batch, payload = builder.build()
    result = transport.run(batch, payload)
    result.require_answers(batch)
    found = result.results["header"]["count"]
    if not (found == long).all():
        raise AssertionError(f"a MATCH of {long} stored blocks found {found.min()}")
    assert result.trace is not None
    rates = []
    for port in range(config.ports):
        own = result.trace[(result.trace["owner"] == port) & (result.trace["kind"] == Kind.MATCH)]
        cycles = own["cycle"].astype(np.int64).reshape(-1, long)
        turns = (cycles[:, -1] - cycles[:, 0]).sum() / (config.ports + 1)
        rates.append(len(cycles) * (long - 1) / turns)
    return float(min(rates))


def _lookups(transport: Transport, digests: list[bytes], count: int) -> Batch:
    """LOOKUPs of stored and of other blocks at random, the ports in turns."""
    config = transport.config
    ports = np.tile(np.arange(config.ports), count // config.ports)
    batch: Batch = blank_requests(config, ports, Opcode.LOOKUP)
    misses = [block_digest(1, 0, number, config.digest_bits) for number in range(len(digests))]
    batch["header"]["digest"] = np.random.default_rng(1).choice(digest_array(digests + misses), len(batch))
    return batch


def _latency(transport: Transport, digests: list[bytes], count: int) -> tuple[np.ndarray, int]:
    """Cycles from a lookup's last beat to its answer, over all ports, and how many were hits."""
    config = transport.config
    batch = _lookups(transport, digests, count)
    # Each port begins to send in its own turn, so that all wait equally long for the directory.
    wheel = config.ports + 1
    number = np.arange(len(batch)) // config.ports + 1
    first = -transport.statistics()["cycles"] % wheel
    batch["earliest_cycle"] = first + number * WHEELS_BETWEEN * wheel + batch["port"]
    result = transport.run(batch)
    result.require_answers(batch)
    rows = result.results
    hits = int((rows["header"]["status"] == Status.HIT).sum())
    return (rows["first_cycle"] - rows["sent_cycle"]).astype(np.int64), hits
