"""How many directory operations per second the golden node executes, bytes moved and checked."""

import time

from kvnode.models.spec.config import NodeConfig, preset
from kvnode.models.workloads import generate

from ..replay import Replay
from ..transports import open_transport
from . import Bench, Progress

REQUESTS, QUICK_REQUESTS = 1_000, 100
ROUNDS = 3


def run(config: NodeConfig | None, quick: bool, progress: Progress) -> Bench:
    """Replays the built-in workload (MATCH, READ and whole PUTs of blocks with contents) and takes the best of 3.

    Timed is the transport, from messages to answers; making messages and checking contents is not part of it.
    """
    config = config or preset("sim")
    bench = Bench("golden", config.name)
    trace = generate(QUICK_REQUESTS if quick else REQUESTS)
    best = messages = 0.0
    for number in range(1 if quick else ROUNDS):
        progress(f"round {number + 1}")
        started = time.perf_counter()
        report = Replay(open_transport("golden", config), trace).run()
        if report.operations / report.run_s > best:
            best = report.operations / report.run_s
            messages = sum(report.messages.values()) / report.run_s
            whole = report.operations / (time.perf_counter() - started)
    bench.add("ops_per_second", best, "directory operations/s", ">= 100,000")
    bench.add("messages_per_second", messages, "messages/s")
    bench.add("replay_ops_per_second", whole, "directory operations/s, with the making and checking of contents")
    return bench
