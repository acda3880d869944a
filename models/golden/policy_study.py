"""The eviction clock against LRU and OPT on a trace, at sizes that are fractions of its footprint.

Used by: tests, the policy bench, the command line.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvnode.models.workloads import Trace, lru_hits, opt_hits

from .policy import ClockPolicy

FRACTIONS = (0.01, 0.05, 0.10, 0.25)
LOW_WATERMARK_FRACTION = 0.02
LEAST_LOW_WATERMARK = 8


@dataclass(frozen=True)
class Row:
    """Hit rates at one size, of all block accesses of the trace.

    fraction, slots: the size, of the trace's distinct blocks and in blocks.
    low_watermark: free slots that the clock keeps, and therefore cannot use.
    clock: prefix hits of the clock (a resident block behind a missing one is no hit).
    clock_resident: the same with plain residency, for comparison.
    lru: block hits of LRU, tail first, as public characterisations count them: while the request pushes blocks out.
    lru_prefix: prefix hits of the same cache, counted before the request pushes anything out, as the clock's are. The
        harder yardstick: the two differ where requests are not small against the cache.
    opt: block hits of Belady with bypass; None where it was not asked for.
    """

    fraction: float
    slots: int
    low_watermark: int
    clock: float
    clock_resident: float
    lru: float
    lru_prefix: float
    opt: float | None


def low_watermark_of(slots: int) -> int:
    """Free slots that eviction keeps ahead of the writers: 2 %, at least 8, and less than half of a tiny partition."""
    return min(max(LEAST_LOW_WATERMARK, int(slots * LOW_WATERMARK_FRACTION)), (slots - 1) // 2)


def compare(
    trace: Trace,
    fractions: Sequence[float] = FRACTIONS,
    *,
    low_watermark: int | None = None,
    head_first: bool = False,
    with_opt: bool = True,
) -> list[Row]:
    """A row for each fraction of the distinct blocks; `low_watermark` in slots, by default `low_watermark_of` them.

    About 2 s per million accesses and size, most of it OPT. Raises ValueError for a fraction outside (0, 1].
    """
    footprint = trace.distinct_block_count
    lists = [request.block_ids.tolist() for request in trace.requests]
    rows = []
    for fraction in fractions:
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction {fraction} is not above 0 and at most 1")
        slots = max(1, round(footprint * fraction))
        low = low_watermark_of(slots) if low_watermark is None else low_watermark
        clock = ClockPolicy(slots, low_watermark=low, head_first=head_first)
        for ids in lists:
            clock.access(ids)
        count = max(1, clock.block_count)
        lru = lru_hits(trace, slots)
        opt = opt_hits(trace, slots).block_hit_rate if with_opt else None
        rows.append(
            Row(
                fraction,
                slots,
                low,
                clock.prefix_hits / count,
                clock.resident_hits / count,
                lru.block_hit_rate,
                lru.prefix_hit_rate,
                opt,
            )
        )
    return rows


def markdown(name: str, rows: Sequence[Row]) -> str:
    """The rows as a table for reports."""
    lines = [
        f"| {name} | slots | kept free | clock | clock, resident | LRU | LRU, prefix | OPT |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        opt = "" if row.opt is None else f"{row.opt:.4f}"
        lines.append(
            f"| {row.fraction:.0%} | {row.slots} | {row.low_watermark} | {row.clock:.4f} | {row.clock_resident:.4f} | "
            f"{row.lru:.4f} | {row.lru_prefix:.4f} | {opt} |"
        )
    return "\n".join(lines) + "\n"
