"""What a node counts: operations by partition, kind and status, and the latencies of every port's messages."""

from collections import Counter, deque
from collections.abc import Mapping

from ..spec.counters import BUCKET_COUNT_BITS, BUCKETS, COUNTER_BITS, MAX_OUTSTANDING, bucket_of


class Counters:
    """Committed operations by (partition, kind, status), modulo 2^64. `counts` holds those that are not 0.

    Used by: benches of rtl.node.counters, sw_driver.transports.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[int, int, int]] = Counter()

    def record(self, record: Mapping[str, int]) -> None:
        """An operation was committed: an unpacked TRACE record."""
        self.counts[record["partition"], record["kind"], record["status"]] += 1

    def value(self, partition: int, kind: int, status: int) -> int:
        return self.counts.get((partition, kind, status), 0) % (1 << COUNTER_BITS)


class LatencyHistogram:
    """Messages of every port by floor(log2(cycles)), from their last header beat to that of their answer's.

    A port answers in order; at most MAX_OUTSTANDING of its messages are not answered yet. An answer in the cycle of
    the arrival counts as one cycle.

    Used by: benches of rtl.node.counters, models.cycle.
    """

    def __init__(self, ports: int):
        self._arrived: list[deque[int]] = [deque() for _ in range(ports)]
        self._counts = [[0] * BUCKETS for _ in range(ports)]

    def outstanding(self, port: int) -> int:
        return len(self._arrived[port])

    def arrives(self, port: int, cycle: int) -> None:
        if len(self._arrived[port]) == MAX_OUTSTANDING:
            raise ValueError(f"port {port}: more than {MAX_OUTSTANDING} messages are not answered")
        self._arrived[port].append(cycle)

    def answers(self, port: int, cycle: int) -> None:
        if not self._arrived[port]:
            raise ValueError(f"port {port}: an answer in cycle {cycle} to no message")
        self._counts[port][bucket_of(cycle - self._arrived[port].popleft())] += 1

    def down(self, port: int) -> None:
        """The messages of a port without an answer are lost."""
        self._arrived[port].clear()

    def value(self, port: int, bucket: int) -> int:
        return self._counts[port][bucket] % (1 << BUCKET_COUNT_BITS)
