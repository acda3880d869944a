"""Readers of the public trace formats. `read` sniffs the format by content, stops at its limit and names what is wrong.

| kind | first line | blocks | conversation |
|---|---|---|---|
| `mooncake` | `{"timestamp" ms, "input_length", "output_length", "hash_ids"}` | 512 tokens | the second id of the row |
| `sessions` | header `"format": "kv-sessions-1"`, then a session a line | header | session |
| `requests` | header `"format": "kv-requests-1"`, then a request a line | header | session, else the second id |
| `azure` | `TIMESTAMP,ContextTokens,GeneratedTokens` | none: unique ids | the request's number |
| `servegen` | `client,window_start_s,rate_rps,...` or `...,in_mean,...` | none: unique ids | client |

Why the second id: conversations share the block of the system prompt, then go apart. It may be the id of the partial
block of a short prompt, which names a conversation although it names no block. A row with one id is named by that.
"""

import csv
import gzip
import heapq
import io
import json
import zlib
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from . import servegen
from .records import UNKNOWN_ID, BlockIds, Request, Trace, WorkloadError, coarsening

MOONCAKE_BLOCK_TOKENS = 512
SESSION_INTERVAL_S = 60.0
SEED = 1

Line = tuple[int, str]


def read(
    path: str | Path,
    limit: int | None = None,
    *,
    block_tokens: int | None = None,
    session_interval_s: float = SESSION_INTERVAL_S,
    seed: int = SEED,
) -> Trace:
    """Read a trace, gzipped or plain.

    limit: stop after so many requests; no more of the file is read than they need. The result is always the beginning
        of what would be read without a limit.
    block_tokens: make blocks of so many tokens (exact, see `records.coarsen`); for traces without ids, 512 by default.
    session_interval_s, seed: `sessions` traces hold no absolute times. Session k starts an exponential gap of this mean
        after session k-1 and keeps its own timing. `servegen` draws everything from `seed`.

    Raises WorkloadError naming file, line and value for malformed input, ValueError for block_tokens that do not fit.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit {limit} is negative")
    if session_interval_s <= 0:
        raise ValueError(f"session_interval_s {session_interval_s} is not above 0")
    source = _Source(Path(path))
    try:
        with source.open() as text:
            return _read(source, text, limit, block_tokens, session_interval_s, seed)
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise WorkloadError(f"{source.path.name}: line {source.line}: cannot be decoded: {error}") from error


def _read(
    source: "_Source", text: io.TextIOBase, limit: int | None, block_tokens: int | None, interval_s: float, seed: int
) -> Trace:
    lines = source.lines(text)
    number, first = next(lines, (1, ""))
    has_reuse = True
    if first.startswith("TIMESTAMP"):
        kind, step, has_reuse = "azure", 1, False
        block_tokens = block_tokens or MOONCAKE_BLOCK_TOKENS
        requests = _azure(source, lines, first, block_tokens)
    elif first.startswith("client,"):
        kind, step, has_reuse = "servegen", 1, False
        block_tokens = block_tokens or MOONCAKE_BLOCK_TOKENS
        requests = servegen.requests(source.path, block_tokens, seed)
    else:
        head = source.json_object(number, first)
        if "timestamp" in head:
            kind, source_tokens = "mooncake", MOONCAKE_BLOCK_TOKENS
            requests = _mooncake(source, number, head, lines)
        elif head.get("format") == "kv-requests-1":
            kind, source_tokens = "requests", source.natural(number, head, "block_tokens", least=1)
            requests = _requests(source, lines, source_tokens)
        elif head.get("format") == "kv-sessions-1":
            kind, source_tokens = "sessions", source.natural(number, head, "block_tokens", least=1)
            scope = head.get("hash_id_scope")
            if scope not in ("local", "global"):
                raise source.error(number, f"hash_id_scope {scope!r} is neither 'local' nor 'global'")
            requests = _sessions(source, lines, source_tokens, scope == "local", interval_s, seed)
        else:
            raise source.error(number, f"unknown trace format, line begins {first[:60]!r}")
        block_tokens = block_tokens or source_tokens
        step = coarsening(source_tokens, block_tokens)
    if step > 1:
        requests = (_every(request, step) for request in requests)
    return Trace(source.path.name, kind, block_tokens, list(islice(requests, limit)), has_reuse)


def _every(request: Request, step: int) -> Request:
    ids = request.block_ids[step - 1 :: step].copy()
    return Request(
        request.time_s, request.input_tokens, request.output_tokens, ids, request.session, request.conversation
    )


class _Source:
    """A trace file and the line reached in it; makes the errors that name them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 1

    def open(self) -> io.TextIOBase:
        with self.path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        if packed:
            return gzip.open(self.path, "rt", encoding="utf-8-sig")
        return self.path.open(encoding="utf-8-sig")

    def lines(self, text: io.TextIOBase) -> Iterator[Line]:
        for number, line in enumerate(text, 1):
            self.line = number + 1
            if line.strip():
                yield number, line.rstrip("\r\n")

    def error(self, number: int, what: str) -> WorkloadError:
        return WorkloadError(f"{self.path.name}: line {number}: {what}")

    def json_object(self, number: int, line: str) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise self.error(number, f"not JSON ({error.msg}), line begins {line[:60]!r}") from error
        if not isinstance(value, dict):
            raise self.error(number, f"expected an object, found {line[:60]!r}")
        return value

    def natural(
        self, number: int, row: dict[str, Any] | list[Any], key: str | int, name: str = "", least: int = 0
    ) -> int:
        """An integer of at least `least` out of a row of JSON."""
        try:
            value = row[key]  # type: ignore[index]
        except (KeyError, IndexError):
            raise self.error(number, f"{name or key!r} is missing") from None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.error(number, f"{name or key} {value!r} is not a whole number of at least {least}")
        return value

    def seconds(self, number: int, value: Any, name: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise self.error(number, f"{name} {value!r} is not a time from 0 up")
        return float(value)

    def ids(self, number: int, values: Any, name: str) -> BlockIds:
        if not isinstance(values, list) or not all(type(value) is int and 0 <= value < 1 << 62 for value in values):
            wrong = values if not isinstance(values, list) else [v for v in values if type(v) is not int or v < 0][:1]
            raise self.error(number, f"{name} {str(wrong)[:60]} is not a list of whole numbers from 0 up")
        return np.array(values, np.int64)

    def expand(self, number: int, runs: Any, expected_count: int) -> BlockIds:
        """`[first, len, first, len, ...]` to the list of ids."""
        pairs = self.ids(number, runs, "block id runs")
        if len(pairs) % 2:
            raise self.error(number, f"block id runs have {len(pairs)} numbers, not pairs of first and length")
        firsts, lengths = pairs[0::2], pairs[1::2]
        total = int(lengths.sum())
        if total != expected_count:
            raise self.error(
                number, f"block id runs name {total} blocks where the input has {expected_count} full ones"
            )
        return np.repeat(firsts - np.cumsum(lengths) + lengths, lengths) + np.arange(total)


def _conversation(ids: BlockIds, session: int) -> int:
    if session != UNKNOWN_ID or not len(ids):
        return session
    return int(ids[min(1, len(ids) - 1)])


def _mooncake(source: _Source, number: int, head: dict[str, Any], lines: Iterator[Line]) -> Iterator[Request]:
    row, last_ms = head, 0.0
    while True:
        time_ms = source.seconds(number, row.get("timestamp"), "timestamp")
        if time_ms < last_ms:
            raise source.error(number, f"timestamp {time_ms:g} is before the line above it ({last_ms:g})")
        last_ms = time_ms
        input_tokens = source.natural(number, row, "input_length")
        output_tokens = source.natural(number, row, "output_length")
        ids = source.ids(number, row.get("hash_ids"), "hash_ids")
        expected_count = -(-input_tokens // MOONCAKE_BLOCK_TOKENS)
        if len(ids) != expected_count:
            raise source.error(
                number, f"{len(ids)} hash_ids for input_length {input_tokens}, expected {expected_count}"
            )
        full = ids[: input_tokens // MOONCAKE_BLOCK_TOKENS]
        yield Request(time_ms / 1000, input_tokens, output_tokens, full, UNKNOWN_ID, _conversation(ids, UNKNOWN_ID))
        number, line = next(lines, (0, ""))
        if not number:
            return
        row = source.json_object(number, line)


def _requests(source: _Source, lines: Iterator[Line], block_tokens: int) -> Iterator[Request]:
    last_us = 0
    for number, line in lines:
        row = source.json_object(number, line)
        time_us = source.natural(number, row, "t_us")
        if time_us < last_us:
            raise source.error(number, f"t_us {time_us} is before the line above it ({last_us})")
        last_us = time_us
        input_tokens = source.natural(number, row, "in")
        session = source.natural(number, row, "s", least=UNKNOWN_ID)
        ids = source.expand(number, row.get("runs"), input_tokens // block_tokens)
        output_tokens = source.natural(number, row, "out")
        yield Request(time_us / 1e6, input_tokens, output_tokens, ids, session, _conversation(ids, session))


def _sessions(
    source: _Source, lines: Iterator[Line], block_tokens: int, is_local: bool, interval_s: float, seed: int
) -> Iterator[Request]:
    """All sessions merged by time. A session is read no earlier than requests of its time are asked for."""
    rng = np.random.default_rng(seed)
    start_s, session, offset, ordinal = 0.0, 0, 0, 0
    waiting: list[tuple[float, int, Request]] = []
    for number, line in lines:
        while waiting and waiting[0][0] <= start_s:
            yield heapq.heappop(waiting)[2]
        rows = source.json_object(number, line).get("req")
        if not isinstance(rows, list):
            raise source.error(number, f"req {str(rows)[:60]} is not a list of requests")
        highest_id = 0
        for row in rows:
            if not isinstance(row, list) or len(row) < 10:
                raise source.error(number, f"req row {str(row)[:60]} does not have 10 columns")
            time_s = start_s + source.seconds(number, row[1], "t_s")
            input_tokens = source.natural(number, row, 3, "in_tokens")
            output_tokens = source.natural(number, row, 4, "out_tokens")
            ids = source.expand(number, row[9], input_tokens // block_tokens)
            if is_local and len(ids):
                highest_id = max(highest_id, int(ids.max()))
                ids += offset
            heapq.heappush(
                waiting, (time_s, ordinal, Request(time_s, input_tokens, output_tokens, ids, session, session))
            )
            ordinal += 1
        offset += highest_id + 1
        session += 1
        start_s += float(rng.exponential(interval_s))
    while waiting:
        yield heapq.heappop(waiting)[2]


def _azure(source: _Source, lines: Iterator[Line], header: str, block_tokens: int) -> Iterator[Request]:
    names = header.split(",")
    if names != ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]:
        raise source.error(1, f"unknown columns {header!r}")
    first: datetime | None = None
    last_s, next_id, index = 0.0, 0, 0
    for number, line in lines:
        fields = next(csv.reader([line]))
        try:
            stamp_text, input_text, output_text = fields
            stamp = datetime.strptime(stamp_text[:26], "%Y-%m-%d %H:%M:%S.%f")
            input_tokens, output_tokens = int(input_text), int(output_text)
        except ValueError as error:
            raise source.error(number, f"{line[:80]!r} is not a time and two token counts") from error
        first = first or stamp
        time_s = (stamp - first).total_seconds()
        if time_s < last_s or input_tokens < 0 or output_tokens < 0:
            raise source.error(number, f"{line[:80]!r} goes back in time or has negative tokens")
        last_s = time_s
        count = input_tokens // block_tokens
        yield Request(time_s, input_tokens, output_tokens, np.arange(next_id, next_id + count), UNKNOWN_ID, index)
        next_id += count
        index += 1
