"""How many directory operations per second the golden node executes, with the bytes that they move."""

import time
from typing import Any

from kvnode.models.spec.config import NodeConfig, preset
from kvnode.models.workloads import generate

from ..replay import Replay
from ..transport import Batch, RunResult, Transport
from ..transports import open_transport
from . import Bench, Progress

REQUESTS, QUICK_REQUESTS = 1_000, 100
ROUNDS = 3


class _Timed:
    """A transport that adds up the processor time of its runs."""

    def __init__(self, transport: Transport):
        self._transport, self.run_s = transport, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def run(self, batch: Batch, payload: bytes = b"", **options: Any) -> RunResult:
        started = time.process_time()
        result = self._transport.run(batch, payload, **options)
        self.run_s += time.process_time() - started
        return result


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """Replays the built-in workload (MATCH, READ and whole PUTs of blocks with contents) and takes the best of 3, each
    with keys of its own.

    Timed is the transport, from messages to answers, in seconds of processor time: what else the machine does is no
    part of the figure, nor is the making of messages and the checking of contents.
    """
    config = config or preset("sim")
    bench = Bench("golden", config.name)
    trace = generate(QUICK_REQUESTS if quick else REQUESTS)
    best = messages = whole = 0.0
    for number in range(1 if quick else ROUNDS):
        progress(f"round {number + 1}")
        timed: Any = _Timed(open_transport("golden", config))
        started = time.process_time()
        report = Replay(timed, trace, seed=number).run()
        if report.operations / timed.run_s > best:
            best = report.operations / timed.run_s
            messages = sum(report.messages.values()) / timed.run_s
            whole = report.operations / (time.process_time() - started)
    bench.add("ops_per_second", best, "directory operations per second of one processor", ">= 100,000")
    bench.add("messages_per_second", messages, "messages per second of one processor")
    bench.add("replay_ops_per_second", whole, "the same with making messages and checking contents")
    return bench
