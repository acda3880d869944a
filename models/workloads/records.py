"""What a workload is: requests with lengths, times and the ids of their full blocks."""

from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

BlockIds = npt.NDArray[np.int64]

UNKNOWN_ID = -1


class WorkloadError(ValueError):
    """A trace that cannot be read. The message names the file, the line (from 1) and the offending value."""


@dataclass(frozen=True, eq=False)
class Request:
    """One inference request.

    time_s: arrival, seconds from the start of the trace.
    input_tokens, output_tokens: lengths of the prompt and of the answer.
    block_ids: int64, the chained ids of the FULL blocks of the prompt, head first. Equal ids mean equal block and equal
        everything before it. A partial last block is never here: it cannot be sealed.
    session: the recorded session, `UNKNOWN_ID` where the trace has none.
    conversation: the session if known, else the best stand-in of the format (see `readers`). Assigns tenants.
    """

    time_s: float
    input_tokens: int
    output_tokens: int
    block_ids: BlockIds
    session: int = UNKNOWN_ID
    conversation: int = UNKNOWN_ID


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival.

    kind: the format it came from (`mooncake`, `sessions`, `requests`, `azure`, `servegen`, `generated`).
    block_tokens: tokens of one block.
    has_reuse: False where the source has no block ids, so that every id is unique and nothing can ever hit.
    """

    name: str
    kind: str
    block_tokens: int
    requests: list[Request] = field(repr=False)
    has_reuse: bool = True

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def span_s(self) -> float:
        """Seconds between the first and the last arrival; 0 for an empty trace."""
        return self.requests[-1].time_s - self.requests[0].time_s if self.requests else 0.0

    @property
    def block_count(self) -> int:
        """Block accesses of all requests together."""
        return sum(len(request.block_ids) for request in self.requests)

    @property
    def distinct_block_count(self) -> int:
        """The footprint: how many different blocks the trace touches."""
        return len(np.unique(self.all_block_ids()))

    @property
    def input_token_count(self) -> int:
        """Prompt tokens of all requests together."""
        return sum(request.input_tokens for request in self.requests)

    def all_block_ids(self) -> BlockIds:
        """The ids of all requests behind each other, head first within a request."""
        if not self.requests:
            return np.zeros(0, np.int64)
        return np.concatenate([request.block_ids for request in self.requests])


def coarsening(source_block_tokens: int, block_tokens: int) -> int:
    """How many source blocks make one block. Raises ValueError unless it is a whole number of at least 1."""
    if block_tokens < source_block_tokens or block_tokens % source_block_tokens:
        raise ValueError(f"block_tokens {block_tokens} is not a multiple of the trace's {source_block_tokens}")
    return block_tokens // source_block_tokens


def coarsen(trace: Trace, block_tokens: int) -> Trace:
    """The same trace in larger blocks: exact, because the chained id of every k-th block names the k-block group.

    The tail that does not fill a group is dropped. Raises ValueError unless `block_tokens` is a multiple of theirs.
    """
    step = coarsening(trace.block_tokens, block_tokens)
    if step == 1:
        return trace
    requests = [replace(request, block_ids=request.block_ids[step - 1 :: step].copy()) for request in trace.requests]
    return replace(trace, block_tokens=block_tokens, requests=requests)
