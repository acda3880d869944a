"""A seeded generator of our own, in Mooncake's terms: chat and agent conversations that share system prompts.

What is modelled (the defaults are those of `Parameters`):
  sessions    start with Gamma gaps of mean `session_gap_s` and coefficient of variation `burst_cv` (1 is Poisson). Each
              is an agent's with probability `agent_share`, else a chat; it talks for a geometric number of turns.
  prompts     begin with one of `system_prompts` system prompts of the kind, taken with Zipf weights; then a log-normal
              (long-tailed) first question; each later turn repeats everything before it, the answers included, and
              adds a log-normal new part. A prompt never exceeds `input_tokens_most`; the session ends there.
  times       the next turn follows the answer (`decode_tokens_per_s`) after an exponential pause.

With the defaults, 300 requests are some 150 sessions over 100 to 220 s. Over the first 60 seeds they touch 3,500 to
6,300 distinct blocks (4,800 on average); an infinite cache hits 45 to 70 % of the blocks (56 %); the median prompt is
10 to 18 thousand tokens, the 99th percentile 50 to 120 thousand; 40 to 67 % of the distinct blocks are used once.
`tests/models/workloads/test_generator.py` holds these.
"""

import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .records import Request, Trace


@dataclass(frozen=True)
class Talk:
    """One kind of conversation. Token counts are medians of log-normal lengths, `_sigma` their log deviation."""

    system_tokens: int
    first_tokens: int
    first_sigma: float
    turn_tokens: int
    turn_sigma: float
    output_tokens: int
    output_sigma: float
    turns_mean: float
    pause_s: float


CHAT = Talk(1_100, 8_000, 1.05, 900, 1.0, 320, 0.8, 2.5, 45.0)
AGENT = Talk(6_300, 9_000, 0.7, 1_600, 1.1, 220, 0.9, 12.0, 6.0)


@dataclass(frozen=True)
class Parameters:
    """What `generate` draws from. Raises ValueError naming the value that cannot be."""

    chat: Talk = CHAT
    agent: Talk = AGENT
    agent_share: float = 0.10
    system_prompts: int = 3
    session_gap_s: float = 1.0
    burst_cv: float = 2.0
    decode_tokens_per_s: float = 58.0
    input_tokens_most: int = 120_000
    block_tokens: int = 512

    def __post_init__(self) -> None:
        if not 0 <= self.agent_share <= 1:
            raise ValueError(f"agent_share {self.agent_share} is not between 0 and 1")
        for name in ("system_prompts", "session_gap_s", "burst_cv", "decode_tokens_per_s", "block_tokens"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} {getattr(self, name)} is not above 0")
        longest = max(self.chat.system_tokens, self.agent.system_tokens)
        if self.input_tokens_most <= longest:
            raise ValueError(f"input_tokens_most {self.input_tokens_most} has no room for {longest} system tokens")


def generate(requests: int = 300, seed: int = 1, parameters: Parameters | None = None) -> Trace:
    """The first so many requests of an endless workload, in order of arrival, at whole milliseconds.

    The same arguments give the same trace, and fewer requests give its beginning. `session` is known.
    """
    if requests < 0:
        raise ValueError(f"requests {requests} is negative")
    parameters = parameters or Parameters()
    rng = np.random.default_rng(seed)
    system_ids: dict[tuple[bool, int], list[int]] = {}
    done: list[Request] = []
    waiting: list[tuple[float, int, Request]] = []
    start_s, session, next_id, ordinal = 0.0, 0, 0, 0
    gap_shape = 1 / parameters.burst_cv**2
    while len(done) < requests:
        is_agent = bool(rng.random() < parameters.agent_share)
        talk = parameters.agent if is_agent else parameters.chat
        prompt = _zipf(rng, parameters.system_prompts)
        if (is_agent, prompt) not in system_ids:
            count = talk.system_tokens // parameters.block_tokens
            system_ids[is_agent, prompt] = list(range(next_id, next_id + count))
            next_id += count
        stream = list(system_ids[is_agent, prompt])
        for time_s, input_tokens, output_tokens in _turns(rng, talk, parameters, start_s):
            count = input_tokens // parameters.block_tokens
            fresh = max(0, count - len(stream))
            stream.extend(range(next_id, next_id + fresh))
            next_id += fresh
            request = Request(time_s, input_tokens, output_tokens, np.array(stream[:count], np.int64), session, session)
            heapq.heappush(waiting, (time_s, ordinal, request))
            ordinal += 1
        session += 1
        start_s += float(rng.gamma(gap_shape)) / gap_shape * parameters.session_gap_s
        while waiting and waiting[0][0] < round(start_s, 3) and len(done) < requests:
            done.append(heapq.heappop(waiting)[2])
    return Trace(f"generated-{seed}", "generated", parameters.block_tokens, done)


def _turns(
    rng: np.random.Generator, talk: Talk, parameters: Parameters, start_s: float
) -> Iterator[tuple[float, int, int]]:
    """(time in s, input tokens, output tokens) of each turn of one session."""
    time_s = start_s
    input_tokens = talk.system_tokens + _log_normal(rng, talk.first_tokens, talk.first_sigma)
    input_tokens = min(input_tokens, parameters.input_tokens_most)
    for _ in range(int(rng.geometric(1 / talk.turns_mean))):
        if input_tokens > parameters.input_tokens_most:
            return
        output_tokens = _log_normal(rng, talk.output_tokens, talk.output_sigma)
        yield round(time_s, 3), input_tokens, output_tokens
        time_s += output_tokens / parameters.decode_tokens_per_s + float(rng.exponential(talk.pause_s))
        input_tokens += output_tokens + _log_normal(rng, talk.turn_tokens, talk.turn_sigma)


def _log_normal(rng: np.random.Generator, median: int, sigma: float) -> int:
    return max(1, round(median * float(np.exp(sigma * rng.standard_normal()))))


def _zipf(rng: np.random.Generator, count: int) -> int:
    weights = 1 / np.arange(1, count + 1)
    return int(rng.choice(count, p=weights / weights.sum()))


def write_mooncake(trace: Trace, path: str | Path) -> None:
    """Write a trace of 512-token blocks in Mooncake's format; `read` gives the same requests back.

    The partial last block of a prompt, which Mooncake's rows name too, gets an id of its own. Sessions are not part of
    the format, and times are rounded to milliseconds. Raises ValueError for other block sizes or incomplete ids.
    """
    if trace.block_tokens != 512:
        raise ValueError(f"block_tokens {trace.block_tokens} cannot be written: Mooncake's blocks are 512 tokens")
    ids = trace.all_block_ids()
    partial_id = int(ids.max()) + 1 if len(ids) else 0
    with Path(path).open("w", encoding="utf-8") as out:
        for request in trace.requests:
            full_count, rest_tokens = divmod(request.input_tokens, 512)
            if len(request.block_ids) != full_count:
                raise ValueError(f"{len(request.block_ids)} block ids for input_tokens {request.input_tokens}")
            hash_ids = request.block_ids.tolist()
            if rest_tokens:
                hash_ids.append(partial_id)
                partial_id += 1
            row = {
                "timestamp": round(request.time_s * 1000),
                "input_length": request.input_tokens,
                "output_length": request.output_tokens,
                "hash_ids": hash_ids,
            }
            out.write(json.dumps(row) + "\n")
