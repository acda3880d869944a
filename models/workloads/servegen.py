"""ServeGen's per-client rates and lengths turned into requests. There are no block ids: nothing is ever reused.

A pair of files is read: `<name>_rates_<day>.csv[.gz]` and `<name>_lengths_<day>.csv[.gz]`; either may be named.

What is drawn, all from one seed:
  arrivals  per client and 600 s window, a Poisson count of mean `rate_rps * 600`; gaps are Gamma distributed with the
            row's coefficient of variation (`iat_cv`, at most 10) and stretched to fill the window, so the rate is
            the file's and bursts are as long as the recorded gaps vary. The fitted distribution of the row is not used:
            its mean is not the row's rate in many rows.
  lengths   per request, log-normal pieces through the recorded p50, p95 and p99 of the client's 6 h window (the nearest
            one that has any); the lower half mirrors p50..p95. At most 4 times p99. Input and output are independent.
A client without recorded lengths (15 of 101 in m-large, 5 of 29 in m-small) is left out.

A whole day is 20 to 90 million requests: give `read` a limit.
"""

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .records import UNKNOWN_ID, Request, WorkloadError

WINDOW_S = 600
LARGEST_IAT_CV = 10.0
Z_P95, Z_P99 = 1.6449, 2.3263
RATE_COLUMNS = ("client", "window_start_s", "rate_rps", "iat_cv")
LENGTH_COLUMNS = ("client", "window_start_s", "in_p50", "in_p95", "in_p99", "out_p50", "out_p95", "out_p99")

Quantiles = tuple[float, float, float]
Lengths = dict[int, list[tuple[float, Quantiles, Quantiles]]]
Floats = npt.NDArray[np.float64]


def requests(path: Path, block_tokens: int, seed: int) -> Iterator[Request]:
    """Requests in order of arrival, window by window. Used by `readers.read` only."""
    rates_path, lengths_path = _pair(path)
    lengths: Lengths = {}
    for line, row in _rows(lengths_path, LENGTH_COLUMNS):
        if row[2] and row[5]:
            values = _numbers(lengths_path, line, row)
            lengths.setdefault(int(values[0]), []).append(
                (values[1], (values[2], values[3], values[4]), (values[5], values[6], values[7]))
            )
    windows: dict[float, list[tuple[int, float, float]]] = {}
    for line, row in _rows(rates_path, RATE_COLUMNS):
        client, start_s, rate_rps, iat_cv = _numbers(rates_path, line, row)
        if int(client) in lengths and rate_rps > 0:
            windows.setdefault(start_s, []).append((int(client), rate_rps, iat_cv))
    rng = np.random.default_rng(seed)
    first_s, next_id = min(windows, default=0.0), 0
    for start_s in sorted(windows):
        times, clients, inputs, outputs = [], [], [], []
        for client, rate_rps, iat_cv in windows[start_s]:
            _, input_q, output_q = min(lengths[client], key=lambda row: abs(row[0] + 10_800 - start_s))
            arrivals = _arrivals(rng, rate_rps, iat_cv)
            times.append(start_s - first_s + arrivals)
            clients.append(np.full(len(arrivals), client))
            inputs.append(_lengths(rng, input_q, len(arrivals)))
            outputs.append(_lengths(rng, output_q, len(arrivals)))
        time, client_of, input_, output = (np.concatenate(part) for part in (times, clients, inputs, outputs))
        for index in np.argsort(time, kind="stable"):
            count = int(input_[index]) // block_tokens
            ids = np.arange(next_id, next_id + count)
            next_id += count
            yield Request(
                float(time[index]), int(input_[index]), int(output[index]), ids, UNKNOWN_ID, int(client_of[index])
            )


def _pair(path: Path) -> tuple[Path, Path]:
    rates = path.with_name(path.name.replace("_lengths_", "_rates_"))
    lengths = path.with_name(path.name.replace("_rates_", "_lengths_"))
    if rates == lengths:
        raise WorkloadError(f"{path.name}: line 1: the file name has neither '_rates_' nor '_lengths_'")
    for needed in (rates, lengths):
        if not needed.exists():
            raise WorkloadError(f"{path.name}: line 1: its other half {needed.name!r} is missing")
    return rates, lengths


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """(line, the named columns) of every row of a csv."""
    opener = gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="")
    with opener as text:
        reader = csv.reader(text)
        header = next(reader, [])
        missing = [name for name in columns if name not in header]
        if missing:
            raise WorkloadError(f"{path.name}: line 1: column {missing[0]!r} is missing")
        places = [header.index(name) for name in columns]
        for row in reader:
            if len(row) != len(header):
                raise WorkloadError(f"{path.name}: line {reader.line_num}: {len(row)} columns, expected {len(header)}")
            yield reader.line_num, [row[place] for place in places]


def _numbers(path: Path, line: int, row: list[str]) -> list[float]:
    numbers = []
    for text in row:
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            raise WorkloadError(f"{path.name}: line {line}: {text!r} is not a number from 0 up")
        numbers.append(number)
    return numbers


def _arrivals(rng: np.random.Generator, rate_rps: float, iat_cv: float) -> Floats:
    """Arrival times within one window, in order."""
    count = int(rng.poisson(rate_rps * WINDOW_S))
    cv = min(max(iat_cv, 0.01), LARGEST_IAT_CV)
    gaps = rng.gamma(1 / cv**2, size=count + 1)
    total = float(gaps.sum())
    if total <= 0:
        return np.sort(rng.uniform(0, WINDOW_S, count))
    return np.cumsum(gaps[:count]) / total * WINDOW_S


def _lengths(rng: np.random.Generator, quantiles: Quantiles, count: int) -> npt.NDArray[np.int64]:
    """Lengths in tokens whose p50, p95 and p99 are the given ones."""
    p50, p95, p99 = (max(1.0, value) for value in quantiles)
    middle, high, tail = np.log(p50), np.log(max(p50, p95)), np.log(max(p50, p95, p99))
    z = rng.standard_normal(count)
    body = middle + (high - middle) * z / Z_P95
    end = high + (tail - high) * (z - Z_P95) / (Z_P99 - Z_P95)
    logs = np.where(z <= Z_P95, body, end)
    return np.maximum(1, np.rint(np.exp(np.minimum(logs, tail + np.log(4))))).astype(np.int64)
