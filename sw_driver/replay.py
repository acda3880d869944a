"""Replay a trace on a node: run its waves, check every byte, and account for everything."""

import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvnode.models.spec.causes import Cause
from kvnode.models.spec.enums import Opcode, Status
from kvnode.models.workloads import Trace

from .errors import Unanswered
from .transport import SKIPPED, Batch, RunResult, Transport
from .workload import Expansion, Job, reference_hits

#: Called after each wave with (blocks done, report so far).
Progress = Callable[[int, "Report"], None]


class DataMismatch(Exception):
    """A READ answered OK with bytes that are not the block's; the message names request, port, key and cycles."""


@dataclass
class Report:
    """Figures of a replay. Counts of messages by (opcode, status), blocks and tokens; times in cycles and seconds.

    `latency`: cycles from a message's last beat to its answer's first, of LOOKUPs and of READs that gave data.
    `waits`: cycles from when a MATCH was first told NOT_READY to its answer, its own work included; `waited_out`: those
    that were not woken in time. `causes`: blocks that left, by name of Cause. `session_counts`: `Expansion.counts`.
    """

    trace: str
    kind: str
    preset: str
    on: str
    requests: int = 0
    input_tokens: int = 0
    block_tokens: int = 0
    messages: Counter[tuple[str, str]] = field(default_factory=Counter)
    blocks_asked: int = 0
    blocks_matched: int = 0
    blocks_read: int = 0
    bytes_checked: int = 0
    read_beats: int = 0
    write_beats: int = 0
    cycles: int = 0
    operations: int = 0
    lockstep_operations: int | None = None
    models_retired: int = 0
    session_counts: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    waits: list[int] = field(default_factory=list, repr=False)
    waited_out: int = 0
    wall_s: float = 0.0
    run_s: float = 0.0
    ports: int = 1
    infinite: dict[str, float] = field(default_factory=dict)
    lru: dict[str, float] = field(default_factory=dict)
    latency: dict[str, list[Any]] = field(default_factory=lambda: {"lookup": [], "first_beat": []}, repr=False)

    @property
    def block_hit_rate(self) -> float:
        """Blocks that were matched as part of a prefix and then read, of all blocks asked for."""
        return self.blocks_read / max(1, self.blocks_asked)

    @property
    def token_hit_rate(self) -> float:
        return self.blocks_read * self.block_tokens / max(1, self.input_tokens)

    def latency_cycles(self, name: str) -> dict[str, float] | None:
        """Minimum, median, 99th percentile and maximum; None without a clock or without such messages."""
        parts = [part for part in self.latency[name] if len(part)]
        if not parts or not self.cycles:
            return None
        values = np.concatenate(parts)
        return {
            "min": int(values.min()),
            "median": float(np.median(values)),
            "p99": float(np.percentile(values, 99)),
            "max": int(values.max()),
        }

    @property
    def sessions(self) -> dict[str, int]:
        """What became of sessions: "refused" were SESSION_OPENs; "late" migrations had a block still to be written;
        "without" were requests of recorded sessions that ran in none.
        """
        count, own = self.messages, self.session_counts
        return {
            "opened": count["SESSION_OPEN", "OK"],
            "refused": count["SESSION_OPEN", "BUSY"] + count["SESSION_OPEN", "QUOTA"],
            "closed": count["SESSION_CLOSE", "OK"],
            "expired": own["expired"] + count["SESSION_CLOSE", "STALE_EPOCH"],
            "without": own["without"],
            "migrated": count["SESSION_MIGRATE", "OK"],
            "late": own["late"],
        }

    @property
    def leases(self) -> dict[str, int]:
        """Leases; "ended" before they were released, "refused" were MATCHes."""
        count = self.messages
        return {
            "granted": self.session_counts["leased"],
            "released": count["RELEASE", "OK"],
            "ended": count["RELEASE", "STALE_HANDLE"],
            "refused": count["MATCH", "QUOTA"],
        }

    def blocks_left(self, unsealed: bool) -> dict[str, int]:
        """Blocks that left by cause: for causes that only unsealed blocks have, or the others."""
        return {
            cause.name: self.causes[cause.name]
            for cause in Cause
            if self.causes[cause.name] and (cause >= Cause.REVOKED) == unsealed
        }

    def wait_cycles(self) -> dict[str, float] | None:
        """Median, 99th percentile and maximum; None where nothing waited."""
        if not self.waits:
            return None
        median, p99 = np.percentile(self.waits, [50, 99]).tolist()
        return {"median": median, "p99": p99, "max": max(self.waits)}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data: what `--json` prints."""
        operations: dict[str, dict[str, int]] = {}
        for (opcode, status), count in sorted(self.messages.items()):
            operations.setdefault(opcode, {})[status] = count
        port_cycles = max(1, self.cycles * self.ports)
        clocked = self.cycles > 0
        return {
            "trace": self.trace,
            "kind": self.kind,
            "preset": self.preset,
            "on": self.on,
            "requests": self.requests,
            "operations": operations,
            "blocks": {"asked": self.blocks_asked, "matched": self.blocks_matched, "read": self.blocks_read},
            "hit_rate": {
                "block": self.block_hit_rate,
                "token": self.token_hit_rate,
                "infinite": self.infinite,
                "lru": self.lru,
            },
            "cycles": self.cycles,
            "beats": {"read": self.read_beats, "written": self.write_beats},
            "bandwidth_percent": {
                "read": 100 * self.read_beats / port_cycles if clocked else None,
                "write": 100 * self.write_beats / port_cycles if clocked else None,
            },
            "latency_cycles": {name: self.latency_cycles(name) for name in self.latency},
            "cycles_per_second": self.cycles / self.run_s if clocked and self.run_s else None,
            "operations_per_second": self.operations / self.run_s if self.run_s else None,
            "directory_operations": self.operations,
            "lockstep": {"operations": self.lockstep_operations, "differences": 0},
            "bytes_checked": self.bytes_checked,
            "byte_errors": 0,
            "models_retired": self.models_retired,
            "sessions": self.sessions,
            "leases": self.leases,
            "waits": {"count": len(self.waits), "waited_out": self.waited_out, "cycles": self.wait_cycles()},
            "evictions": self.blocks_left(unsealed=False),
            "revocations": self.blocks_left(unsealed=True),
            "peak_memory_bytes": peak_memory_bytes(),
            "wall_s": self.wall_s,
        }


class Replay:
    """One trace on one transport.

    `idle`, `backpressure`, `seed`: as in Transport.run; each run gets a seed of its own. `retire_every`: after so many
    requests the next (partition, model) in turn is retired; 0 never. `expansion`: options of `Expansion`.

    `run` returns the Report. It raises DataMismatch at the first wrong byte, what the transport raises (a lockstep
    Difference), or Unanswered; the report so far is in `report`.

    Used by: the sim and replay commands, tests.
    """

    def __init__(
        self,
        transport: Transport,
        trace: Trace,
        *,
        idle: float = 0.0,
        backpressure: float = 0.0,
        seed: int = 0,
        retire_every: int = 0,
        wave_size: int | None = None,
        progress: Progress = lambda blocks, report: None,
        **expansion: Any,
    ):
        if retire_every < 0:
            raise ValueError(f"retire_every = {retire_every}: must be 0 or more")
        config = transport.config
        self.transport, self.trace, self.progress = transport, trace, progress
        self.idle, self.backpressure, self.seed = idle, backpressure, seed
        self.retire_every, self.wave_size = retire_every, wave_size
        self.expansion = Expansion(trace, config, seed=seed, **expansion)
        self.report = Report(
            trace.name, trace.kind, config.name, transport.name, ports=config.ports, block_tokens=trace.block_tokens
        )
        self._runs = 0

    def run(self) -> Report:
        report, started = self.report, time.perf_counter()
        before = self._causes()
        retire_at = self.retire_every
        for wave in self.expansion.waves(self.wave_size):
            self._wave(self.expansion.jobs(wave))
            report.requests += len(wave)
            report.input_tokens += sum(self.trace.requests[number].input_tokens for number in wave)
            report.wall_s = time.perf_counter() - started
            self.progress(report.blocks_asked, report)
            while retire_at and report.requests >= retire_at:
                retire_at += self.retire_every
                self._retire_next()
        closing = self.expansion.close_batch()
        if len(closing):
            self._run(*closing.build())
        report.session_counts = self.expansion.counts
        report.causes.update(self._causes() - before)
        infinite, lru = reference_hits(self.trace, self.transport.config, self.expansion.placement)
        for name, hits in (("infinite", infinite), ("lru", lru)):
            setattr(report, name, {"block": hits.prefix_hit_rate, "token": hits.token_hit_rate})
        report.lockstep_operations = self.transport.statistics().get("lockstep_operations")
        report.wall_s = time.perf_counter() - started
        return report

    def _wave(self, jobs: list[Job]) -> None:
        report = self.report
        batch, payload = self.expansion.match_batch(jobs).build()
        result = self._run(batch, payload)
        self._note_latency("lookup", result, batch["header"]["opcode"] == Opcode.LOOKUP)
        self._note_waits(jobs, result)
        again = self.expansion.note_matches(jobs, result)
        if again:
            batch, payload = self.expansion.ask_again(again).build()
            self.expansion.note_hits(again, self._run(batch, payload).results["header"]["count"].tolist())
        report.blocks_asked += sum(len(job.digests) for job in jobs)
        report.blocks_matched += sum(job.hits for job in jobs)
        batch, payload = self.expansion.transfer_batch(jobs).build()
        result = self._run(batch, payload)
        self.expansion.note_puts(jobs, result)
        header = result.results["header"]
        good = header["status"] == Status.OK
        reads = (batch["header"]["opcode"] == Opcode.READ) & good
        self._note_latency("first_beat", result, reads)
        report.read_beats += int(result.results["data_bytes"].sum()) // self.transport.config.beat_bytes
        self._check(jobs, result, reads)

    def _note_waits(self, jobs: list[Job], result: RunResult) -> None:
        """How long MATCHes that had to ask more than once have waited, from the first refusal on (its directory
        operation; `sent_cycle` is that of the last try).
        """
        trace = result.trace
        for job in jobs:
            if job.talk is None or not (job.messages and job.after):
                continue
            row = result.results[job.messages[0]]
            self.report.waited_out += int(row["header"]["status"]) == Status.NOT_READY
            if row["tries"] < 2 or trace is None:
                continue
            refused = (trace["owner"] == job.port) & (trace["status"] == Status.NOT_READY)
            cycles = trace["cycle"][refused & (trace["session"] == job.talk.number)]
            self.report.waits.append(int(row["first_cycle"]) - int(cycles[0]))

    def _causes(self) -> Counter[str]:
        """Causes that a transport without a trace has counted since reset."""
        return Counter(self.transport.statistics().get("causes", {}))

    def _check(self, jobs: list[Job], result: RunResult, reads: Any) -> None:
        wanted = reads.tolist()
        offsets, sizes = result.results["data_offset"].tolist(), result.results["data_bytes"].tolist()
        for job in jobs:
            for index, digest in job.reads:
                if not wanted[index]:
                    continue
                expected = self.expansion.content(job, digest)
                found = result.data[offsets[index] : offsets[index] + sizes[index]]
                if found != expected:
                    raise DataMismatch(self._explain(job, digest, result, index, bytes(found), expected))
                self.report.blocks_read += 1
                self.report.bytes_checked += len(expected)

    def _explain(self, job: Job, digest: bytes, result: RunResult, index: int, found: bytes, expected: bytes) -> str:
        first = next((at for at, (a, b) in enumerate(zip(found, expected)) if a != b), min(len(found), len(expected)))
        row = result.results[index]
        return (
            f"request {job.number}, port {job.port}: READ of block {digest[::-1].hex()} (partition {job.partition}, "
            f"model {job.model_id}, slot {int(row['header']['slot'])}) answered OK with {len(found)} bytes in cycles "
            f"{int(row['first_cycle'])} to {int(row['last_cycle'])}; byte {first} is the first that "
            f"differs. {self.transport.capture(int(row['last_cycle']))}"
        )

    def _run(self, batch: Batch, payload: bytes) -> RunResult:
        self._runs += 1
        started = time.perf_counter()
        result = self.transport.run(
            batch, payload, idle=self.idle, backpressure=self.backpressure, seed=(self.seed << 20) + self._runs
        )
        report = self.report
        report.run_s += time.perf_counter() - started
        try:
            result.require_answers(batch)
        except Unanswered as error:
            error.add_note(self.transport.capture())
            raise
        report.cycles += result.cycles
        report.operations += result.operation_count
        if result.trace is not None:
            causes, counts = np.unique(result.trace["cause"], return_counts=True)
            report.causes.update(
                {Cause(cause).name: count for cause, count in zip(causes.tolist(), counts.tolist()) if cause}
            )
        status = np.where(result.results["done"] == SKIPPED, 255, result.results["header"]["status"].astype(np.int64))
        written = (batch["header"]["opcode"] == Opcode.WRITE) & (status == Status.OK)
        report.write_beats += int(batch["payload_bytes"][written].sum()) // self.transport.config.beat_bytes
        pairs, counts = np.unique(batch["header"]["opcode"].astype(np.int64) << 8 | status, return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist()):
            name = "SKIPPED" if pair & 255 == 255 else Status(pair & 255).name
            report.messages[Opcode(pair >> 8).name, name] += count
        return result

    def _note_latency(self, name: str, result: RunResult, which: Any) -> None:
        if result.cycles:
            rows = result.results[which]
            self.report.latency[name].append((rows["first_cycle"] - rows["sent_cycle"]).astype(np.uint32))

    def _retire_next(self) -> None:
        config = self.transport.config
        number = self.report.models_retired % (len(config.partitions) * config.models)
        partition, model_id = number % len(config.partitions), number // len(config.partitions)
        self.transport.retire_model(partition, model_id)
        self.expansion.retired(partition, model_id)
        self.report.models_retired += 1


def peak_memory_bytes() -> int:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
