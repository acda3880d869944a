"""How the figures of a replay are shown: a progress bar while it runs and a table at the end."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from .replay import Report


class ReplayProgress:
    """A progress bar with stage, rate and time left, on the error stream. Used by: cli.

    `stage` names what is going on before the replay; `wave` is a `replay.Progress`.
    """

    def __init__(self, block_count: int, console: Console):
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            MofNCompleteColumn(),
            TextColumn("blocks  {task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("opening", total=None, rate="")
        self._block_count = block_count

    def __enter__(self) -> "ReplayProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def stage(self, name: str) -> None:
        self._bar.update(self._task, description=f"building the model: {name}", total=None)

    def wave(self, blocks: int, report: Report) -> None:
        rate = f"{report.operations / max(report.run_s, 1e-9):,.0f} operations/s"
        if report.cycles:
            rate = f"{report.cycles / max(report.run_s, 1e-9):,.0f} cycles/s"
        self._bar.update(
            self._task, description="replaying", total=max(1, self._block_count), completed=blocks, rate=rate
        )


#: Below the table, where there are latencies.
LATENCY_NOTE = (
    "Latency: from the last beat of a LOOKUP (of a READ) to the first beat of its answer, with all ports at work; "
    "an answer also waits for the bytes of those before it."
)


def print_report(report: Report, console: Console) -> None:
    """The final tables: operations, then figures."""
    data = report.to_dict()
    console.print(f"{data['trace']} on {data['on']} ({data['preset']})", highlight=False)
    console.print(_operations(data))
    console.print(_figures(data))
    if data["latency_cycles"]["lookup"]:
        console.print(LATENCY_NOTE, highlight=False)


def _operations(data: dict[str, Any]) -> Table:
    table = Table()
    table.add_column("operation")
    table.add_column("status")
    table.add_column("count", justify="right")
    for opcode, statuses in data["operations"].items():
        for number, (status, count) in enumerate(statuses.items()):
            table.add_row(opcode if number == 0 else "", status, f"{count:,}")
    return table


def _figures(data: dict[str, Any]) -> Table:
    table = Table(show_header=False)
    table.add_column("figure")
    table.add_column("value", justify="right")
    rate, blocks = data["hit_rate"], data["blocks"]
    table.add_row("requests", f"{data['requests']:,}")
    counts = " / ".join(f"{blocks[name]:,}" for name in ("asked", "matched", "read"))
    table.add_row("blocks asked / matched / read", counts)
    for kind in ("block", "token"):
        table.add_row(
            f"{kind} hit rate (infinite cache, LRU)",
            f"{rate[kind]:.2%} ({rate['infinite'].get(kind, 0):.2%}, {rate['lru'].get(kind, 0):.2%})",
        )
    if data["models_retired"]:
        table.add_row("models retired (not in the two figures beside)", f"{data['models_retired']:,}")
    _add_sessions(table, data)
    for name, title in (("evictions", "blocks evicted"), ("revocations", "blocks revoked before they were sealed")):
        if data[name]:
            table.add_row(title, ", ".join(f"{cause} {count:,}" for cause, count in data[name].items()))
    table.add_row("beats read / written", f"{data['beats']['read']:,} / {data['beats']['written']:,}")
    if data["cycles"]:
        bandwidth = data["bandwidth_percent"]
        percent = f"{bandwidth['read']:.1f} / {bandwidth['write']:.1f}"
        table.add_row("cycles", f"{data['cycles']:,}")
        table.add_row("bandwidth, % of the port limit, read / write", percent)
        titles = {"lookup": "lookup latency", "first_beat": "first-beat latency"}
        for name, title in titles.items():
            latency = data["latency_cycles"][name]
            if latency:
                text = " / ".join(f"{latency[key]:,.0f}" for key in ("min", "median", "p99", "max"))
                table.add_row(f"{title}, min / median / p99 / max", f"{text} cycles")
        table.add_row("simulated cycles per second", f"{data['cycles_per_second']:,.0f}")
    table.add_row("directory operations per second", f"{data['operations_per_second'] or 0:,.0f}")
    checked = data["lockstep"]["operations"]
    if checked is not None:
        table.add_row("operations checked in lockstep", f"{checked:,}, {data['lockstep']['differences']} differences")
    table.add_row("bytes read and checked", f"{data['bytes_checked']:,}, {data['byte_errors']} wrong")
    table.add_row("peak memory", f"{data['peak_memory_bytes'] / 2**20:,.0f} MiB")
    table.add_row("time", f"{data['wall_s']:.1f} s")
    return table


def _add_sessions(table: Table, data: dict[str, Any]) -> None:
    """Rows of sessions and leases, for a trace that recorded sessions."""
    sessions, leases, waits = data["sessions"], data["leases"], data["waits"]
    if not sessions["opened"] + sessions["without"]:
        return

    def counts(of: dict[str, float], *names: str) -> tuple[str, str]:
        return " / ".join(names), " / ".join(f"{of[name]:,.0f}" for name in names)

    names, values = counts(sessions, "opened", "closed", "expired", "refused")
    table.add_row(f"sessions {names}", values)
    table.add_row("requests without a session", f"{sessions['without']:,}")
    table.add_row("migrations (with a block on its way)", f"{sessions['migrated']:,} ({sessions['late']:,})")
    table.add_row("waits (in vain)", f"{waits['count']:,} ({waits['waited_out']:,})")
    if waits["cycles"]:
        names, values = counts(waits["cycles"], "median", "p99", "max")
        table.add_row(f"wait, {names}", f"{values} cycles")
    names, values = counts(leases, "granted", "released", "ended", "refused")
    table.add_row(f"leases {names}", values)
