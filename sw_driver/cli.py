"""The kvnode command: replay a trace, look into a waveform, elaborate a design, measure it, see how large it is."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from kvnode.models.config_yaml import load
from kvnode.models.spec.config import PRESETS, ConfigError, NodeConfig, preset
from kvnode.models.workloads import Trace, WorkloadError, find_trace, generate, read

from .errors import KvError, NodeError, TransportError
from .replay import DataMismatch, Replay
from .report import ReplayProgress, print_report
from .transports import NAMES, open_transport
from .workload import MIGRATE_PERCENT

DEFAULT_REQUESTS = 300
#: Blocks of session traces, which name every 64 tokens: in groups of eight they are as long as Mooncake's.
SESSION_BLOCK_TOKENS = 512
WAVES_FILE = "kvnode.vcd"
#: Cycles in the waveform, from when the node has cleared its tables; some 8 kB each.
WAVES_CYCLES = 4_000

#: Exit codes: the user's mistake, and a node that is wrong.
USER_ERROR, NODE_ERROR = 2, 1


class UserError(Exception):
    """Something on the command line cannot be done; the message is one line and says what can."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code. No traceback for mistakes of the user or differences of the node."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (UserError, ConfigError, WorkloadError, TransportError) as error:
        print(f"kvnode: {error}", file=sys.stderr)
        return USER_ERROR
    except FileNotFoundError as error:
        print(f"kvnode: {error.filename}: {error.strerror}", file=sys.stderr)
        return USER_ERROR
    except (AssertionError, DataMismatch, KvError, NodeError) as error:
        print("\n".join(["kvnode: the node is wrong", str(error), *getattr(error, "__notes__", [])]), file=sys.stderr)
        return NODE_ERROR
    except KeyboardInterrupt:
        print("kvnode: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvnode", description="An open KV-cache memory node.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    sim = commands.add_parser("sim", help="replay a workload on the RTL, every operation checked")
    sim.add_argument("--trace", help="a trace file, or the beginning of a name in the traces folder; default: built in")
    _replay_options(sim, default_on="rtl")

    replay = commands.add_parser("replay", help="replay a trace")
    replay.add_argument("trace", help="a trace file, or the beginning of a name in the traces folder")
    _replay_options(replay, default_on="golden")

    waves = commands.add_parser("waves", help="list the transactions in a waveform")
    waves.add_argument("file", type=Path, metavar="FILE.vcd")
    waves.add_argument("--json", action="store_true", help="the same as JSON")
    waves.set_defaults(run=_waves)

    elaborate = commands.add_parser("elaborate", help="write the Verilog of a preset and its manifest")
    elaborate.add_argument("preset", metavar="PRESET")
    elaborate.add_argument("-o", "--output", default=".", metavar="DIR")
    elaborate.set_defaults(run=_elaborate)

    bench = commands.add_parser("bench", help="measure")
    bench.add_argument("name", metavar="NAME", help="a bench, or all")
    bench.add_argument("--preset", help="configuration to measure; default: the bench's own")
    bench.add_argument("--quick", action="store_true", help="fewer repetitions: to see that it runs")
    bench.add_argument("--json", action="store_true", help="one JSON object per bench on standard output")
    bench.set_defaults(run=_bench)

    synth = commands.add_parser("synth", help="area and speed of a block on an ECP5")
    synth.add_argument("name", metavar="BLOCK", help="directory, store, node, or a part of these")
    synth.add_argument("--preset", default="sim", help=f"{', '.join(PRESETS)}; default: sim")
    synth.add_argument("--ports", type=int, metavar="N", help="another number of ports, each with its partition")
    synth.add_argument("--slots", type=int, metavar="N", help="another number of blocks, in all")
    synth.add_argument("--seeds", type=int, default=1, metavar="N", help="placements to take the median of; default: 1")
    synth.add_argument("--json", action="store_true", help="the figures as JSON on standard output")
    synth.set_defaults(run=_synth)

    soak = commands.add_parser("soak", help="random operations on the RTL, every one checked")
    soak.add_argument(
        "--ops", type=int, default=1_000_000, metavar="N", help="operations to compare; default: 1,000,000"
    )
    soak.add_argument("--seed", type=int, default=1)
    soak.add_argument("--preset", help="one configuration; default: in turns those of kvnode.sw_driver.soak")
    soak.add_argument("--first-round", type=int, default=0, metavar="R", help="go on from round R")
    soak.add_argument("--json", action="store_true", help="the figures as JSON on standard output")
    soak.set_defaults(run=_soak)
    return parser


def _replay_options(parser: argparse.ArgumentParser, default_on: str) -> None:
    parser.add_argument("--on", default=default_on, metavar="|".join(NAMES), help=f"default: {default_on}")
    parser.add_argument("--requests", type=int, metavar="N", help="only the first N requests")
    parser.add_argument("--preset", default="sim", help=f"{', '.join(PRESETS)}; default: sim")
    parser.add_argument("--config", type=Path, metavar="YAML", help="a configuration file instead of a preset")
    parser.add_argument("--block-tokens", type=int, metavar="N",
                        help="tokens of a block; default: the trace's own, 512 for sessions")  # fmt: skip
    parser.add_argument("--decode", action=argparse.BooleanOptionalAction, default=None,
                        help="store the blocks of the answers; default: only for traces without block ids")  # fmt: skip
    parser.add_argument("--put-order", choices=("tail", "head"), default="tail", help="order of a prefix's new blocks")
    parser.add_argument("--concurrency", type=int, metavar="N", help="requests at a time; default: 2 for each port")
    parser.add_argument("--sessions", action=argparse.BooleanOptionalAction, default=True,
                        help="a session for each conversation; default: where the trace recorded them")  # fmt: skip
    parser.add_argument("--migrate-percent", type=float, default=MIGRATE_PERCENT, metavar="P",
                        help=f"requests before which their session moves; default: {MIGRATE_PERCENT:g}")  # fmt: skip
    parser.add_argument("--retire-every", type=int, default=0, metavar="N", help="retire a model every N requests")
    parser.add_argument("--idle", type=float, default=0.0, metavar="P", help="probability that a port sends no beat")
    parser.add_argument("--backpressure", type=float, default=0.0, metavar="P",
                        help="probability that a port takes no beat")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--waves", action="store_true", help=f"write {WAVES_FILE}, a waveform of the --window")
    parser.add_argument("--window", metavar="FIRST:LAST",
                        help=f"cycles in the waveform; default: the first {WAVES_CYCLES} of work")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the figures as JSON on standard output")
    parser.set_defaults(run=_replay)


def _replay(options: argparse.Namespace) -> int:
    if options.on not in NAMES:
        raise UserError(f"--on {options.on!r}: there are {', '.join(NAMES)}")
    for name in ("idle", "backpressure"):
        if not 0 <= getattr(options, name) < 1:
            raise UserError(f"--{name} {getattr(options, name)}: must be from 0 to below 1")
    for name in ("requests", "concurrency", "block_tokens"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise UserError(f"--{name.replace('_', '-')} {value}: must be at least 1")
    if options.retire_every < 0:
        raise UserError(f"--retire-every {options.retire_every}: must be 0 or more")
    if not 0 <= options.migrate_percent <= 100:
        raise UserError(f"--migrate-percent {options.migrate_percent:g}: must be from 0 to 100")
    if options.seed < 0:
        raise UserError(f"--seed {options.seed}: must be 0 or more")
    config = load(options.config) if options.config else preset(options.preset)
    extra: dict[str, object] = {}
    if options.waves:
        if options.on != "rtl":
            raise UserError(f"--waves: {options.on} has no waveform; use --on rtl")
        window = _window(options.window) if options.window else (config.slots, config.slots + WAVES_CYCLES)
        extra = {"waves": WAVES_FILE, "window": window}
    trace = _trace(options)
    console = Console(stderr=True)
    with ReplayProgress(trace.block_count, console) as progress:
        transport = open_transport(options.on, config, progress=progress.stage, **extra)
        try:
            replay = Replay(
                transport,
                trace,
                idle=options.idle,
                backpressure=options.backpressure,
                seed=options.seed,
                retire_every=options.retire_every,
                wave_size=options.concurrency,
                put_order=options.put_order,
                decode=options.decode,
                sessions=options.sessions,
                migrate_percent=options.migrate_percent,
                progress=progress.wave,
            )
            report = replay.run()
        finally:
            transport.close()
    if options.json:
        print(json.dumps(report.to_dict()))
    else:
        print_report(report, _output())
    if options.waves:
        first, last = window
        console.print(f"waveform of cycles {first} to {last}: {WAVES_FILE} (kvnode waves {WAVES_FILE} lists it)")
    return 0


def _output() -> Console:
    """Standard output; in a file or a pipe, tables are as wide as a page."""
    return Console() if sys.stdout.isatty() else Console(width=120)


def _window(text: str) -> tuple[int, int]:
    first, colon, last = text.partition(":")
    if not (colon and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise UserError(f"--window {text!r}: must be FIRST:LAST, two cycles")
    return int(first), int(last)


def _trace(options: argparse.Namespace) -> Trace:
    if options.trace is None:
        if options.block_tokens is not None:
            raise UserError("--block-tokens: the built-in workload has blocks of one size; name a --trace")
        return generate(options.requests or DEFAULT_REQUESTS, seed=options.seed)
    path = Path(options.trace)
    if not path.exists():
        found = find_trace(options.trace) if options.trace else None
        if found is None:
            raise UserError(f"{options.trace}: no such file")
        path = found
    if path.is_dir():
        raise UserError(f"{path}: is a folder")
    try:
        block_tokens = options.block_tokens
        if block_tokens is None and read(path, 1).kind == "sessions":
            block_tokens = SESSION_BLOCK_TOKENS
        trace = read(path, options.requests, block_tokens=block_tokens)
    except ValueError as error:
        raise UserError(str(error)) from None
    if not len(trace):
        raise UserError(f"{path}: holds no requests")
    return trace


def _waves(options: argparse.Namespace) -> int:
    from . import waves

    if not options.file.is_file():
        raise UserError(f"{options.file}: no such file")
    transactions = waves.transactions(options.file)
    if options.json:
        print(json.dumps([item.to_dict() for item in transactions]))
    else:
        waves.print_transactions(transactions, sys.stdout)
    return 0


def _elaborate(options: argparse.Namespace) -> int:
    preset(options.preset)
    command = [sys.executable, "-m", "kvnode.rtl.elaborate", options.preset, "-o", options.output]
    return subprocess.run(command).returncode


def _bench(options: argparse.Namespace) -> int:
    from . import benches

    names = list(benches.NAMES) if options.name == "all" else [options.name]
    if options.name != "all" and options.name not in benches.NAMES:
        raise UserError(f"bench {options.name!r}: there are {', '.join(benches.NAMES)}, all")
    config: NodeConfig | None = preset(options.preset) if options.preset else None
    console = Console(stderr=True)
    for name in names:
        with console.status(f"bench {name}") as status:
            bench = benches.run(name, config, options.quick, status.update)
        if options.json:
            print(json.dumps(bench.to_dict()), flush=True)
        else:
            benches.print_bench(bench, _output())
    return 0


def _synth(options: argparse.Namespace) -> int:
    from . import benches, synth

    if options.name not in synth.NAMES:
        raise UserError(f"synth {options.name!r}: there are {', '.join(synth.NAMES)}")
    if options.seeds < 1:
        raise UserError(f"--seeds {options.seeds}: must be at least 1")
    config = preset(options.preset)
    if options.ports is not None or options.slots is not None:
        ports = config.ports if options.ports is None else options.ports
        config = synth.sized(config, ports, config.slots if options.slots is None else options.slots)
    try:
        with Console(stderr=True).status("synth") as status:
            bench = synth.run(options.name, config, options.seeds, lambda text: status.update(f"synth {text}"))
    except synth.FlowError as error:
        raise UserError(str(error)) from None
    if options.json:
        print(json.dumps(bench.to_dict()))
    else:
        benches.print_bench(bench, _output())
    return 0


def _soak(options: argparse.Namespace) -> int:
    from . import soak

    for name, least in (("ops", 1), ("seed", 0), ("first_round", 0)):
        if getattr(options, name) < least:
            raise UserError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least {least}")
    configs = [preset(options.preset)] if options.preset else None
    console = Console(stderr=True)
    with console.status("soak") as status:
        report = soak.run(
            options.ops, options.seed, configs, options.first_round, lambda text: status.update(f"soak: {text}")
        )
    if options.json:
        print(json.dumps(report.to_dict()))
    else:
        soak.print_soak(report, _output())
    return NODE_ERROR if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
