"""In how many cycles a request is answered, at most (ARCHITECTURE section 12: every command ends in bounded time).

Used by: verif.formal.answers, which proves it of the RTL.
"""

from dataclasses import dataclass

from .config import NodeConfig
from .messages import DIGEST_BYTES, HANDLE
from .timing import (
    ANSWERS,
    CRC_LATENCY_CYCLES,
    CRC_SHIFT_CYCLES,
    DIRECTORY_LATENCY_CYCLES,
    RUNS,
    STORE_READ_CYCLES,
    payload_fifo_depth,
)


@dataclass(frozen=True)
class Service:
    """What a request takes, at most, from when all of it is in and nothing in front of it is unanswered, while every
    beat of an answer is taken in the cycle in which it is offered. In cycles; `whole` is the sum, the others are what
    it is made of.

    `result`: from the operation's turn to its answer in the queue. `payload_beat`, `read_beat`: for each of a WRITE and
    of a READ, whatever banks they lie in. `handle`: for each of a MATCH. `landed`: from the last beat of a WRITE to the
    answer of its LAND, `landing`: the same from the answer of the WRITE. `rest`: from an answer in its queue to its
    last beat, behind a wake.
    """

    result: int
    payload_beat: int
    read_beat: int
    handle: int
    landed: int
    landing: int
    rest: int
    whole: int


def service(config: NodeConfig) -> Service:
    """The longest service on a port of a node."""
    turn = config.ports
    payload = payload_fifo_depth(config.ports)
    result = DIRECTORY_LATENCY_CYCLES + 1
    landed = CRC_LATENCY_CYCLES + turn + result
    landing = payload * config.ports + config.ports + 1 + landed
    read_beat = config.ports + STORE_READ_CYCLES - 1
    handle = max(1, HANDLE.size_bytes // config.beat_bytes) + 2
    data = (config.block_beats + 1) * read_beat
    rest = 2 * config.response_beats + max(landing, data, config.max_match_digests * handle)
    # Before its turn a CRC is moved while payloads are dropped that were refused, or a MATCH has its last beat asked.
    asked = max(1, config.beat_bytes // DIGEST_BYTES) * (turn + 2)
    waits = max(CRC_SHIFT_CYCLES + 1 + payload + RUNS, asked + 1)
    return Service(result, config.ports, read_beat, handle, landed, landing, rest, waits + turn + result + rest)


def answer_bound_cycles(config: NodeConfig) -> int:
    """Cycles from the last beat of a request to the last of its answer, at most, while the beats of answers are taken
    as they are offered. In front of it are those that the directory has been given, one of which the bytes are still
    going, and the one that waits to be given to it.
    """
    return (ANSWERS + 3) * (service(config).whole + 1)
