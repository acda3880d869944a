"""The trace port: collects the records of committed operations and steps the golden node with them.

Used by: benches of the directory and of the node, speed.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kvnode.models.golden import Lockstep
from kvnode.models.golden.directory import Result
from kvnode.models.spec.batch import TRACE_DTYPE
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.messages import TRACE

if TYPE_CHECKING:
    from .bench import Bench

__all__ = ["TraceMonitor"]


class TraceMonitor:
    """Checks every record in the cycle in which it appears; raises models.golden.Difference at the first wrong one.

    `seen` is called with each record that was right, as a dictionary of whole numbers, and what the golden node says of
    it. `lockstep` holds the golden node, `records` gives all records so far as an array of TRACE_DTYPE.
    """

    def __init__(
        self,
        bench: "Bench",
        config: NodeConfig,
        boot_epoch: int = 0,
        data: str = "trace_data",
        seen: Callable[[dict[str, Any], Result], None] | None = None,
    ):
        self.lockstep = Lockstep(config, boot_epoch)
        self._valid, self._data, self._seen = bench.pins["trace_valid"], bench.pins[data], seen
        self._records: list[bytes] = []
        bench.add(self)

    @property
    def records(self) -> np.ndarray:
        return np.frombuffer(b"".join(self._records), TRACE_DTYPE)

    def sample(self) -> None:
        if self._valid.value:
            record = self._data.value.to_bytes(TRACE.size_bytes, "little")
            (row,) = np.frombuffer(record, TRACE_DTYPE).tolist()
            result = self.lockstep.step(row)
            self._records.append(record)
            if self._seen:
                self._seen(TRACE.unpack(record), result)

    def drive(self) -> None:
        pass
