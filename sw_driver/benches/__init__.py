"""Measurements by name, each one JSON object: {"bench", "preset", "rows": [{"metric", "value", "unit", "limit"}]}."""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from kvnode.models.spec.config import NodeConfig

NAMES = ("directory", "store", "index", "golden", "sim", "policy", "migration", "members", "isolation", "leaks")

#: Told what is being measured, for the progress line.
Progress = Callable[[str], None]


@dataclass
class Bench:
    """The figures of one bench. `limit` of a row: what the design promises, in words ("" where it promises nothing)."""

    name: str
    preset: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, metric: str, value: float, unit: str, limit: str = "") -> None:
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{metric} = {value}")
        self.rows.append({"metric": metric, "value": value, "unit": unit, "limit": limit})

    def value(self, metric: str) -> float:
        return next(row["value"] for row in self.rows if row["metric"] == metric)

    def to_dict(self) -> dict[str, Any]:
        return {"bench": self.name, "preset": self.preset, "rows": self.rows}


def run(
    name: str, config: NodeConfig | None = None, quick: bool = False, progress: Progress = lambda text: None
) -> Bench:
    """Measure. `config`: in place of the bench's own. `quick`: a short run, to see that it works; not a result."""
    module = importlib.import_module(f"{__name__}.{name}")
    bench: Bench = module.run(config, quick, lambda text: progress(f"bench {name}: {text}"))
    return bench


def print_bench(bench: Bench, console: Console) -> None:
    table = Table(title=f"bench {bench.name} ({bench.preset})", title_justify="left")
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("unit")
    table.add_column("limit")
    for row in bench.rows:
        value = row["value"]
        text = f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
        table.add_row(row["metric"], text, row["unit"], str(row["limit"]))
    console.print(table)
