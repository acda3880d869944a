"""Everything one tenant owns: index, block table, free list, fill rows, models, sweeper hand."""

from collections import deque

from ..spec.config import NodeConfig
from ..spec.enums import State
from .block_table import Block
from .fill_table import FillTable
from .index import Index
from .store import Store


class GoldenPartition:
    """State of partition number `number`; slot numbers are relative to it.

    Slots are granted in order of their number until each was used once, then in the order they became free.

    Used by: GoldenNode.
    """

    def __init__(self, config: NodeConfig, number: int):
        part = config.partitions[number]
        self.number, self.slots, self.low_watermark_slots = number, part.slots, part.low_watermark_slots
        self.high_watermark_slots = part.high_watermark_slots
        self.index = Index(config.rows_log2[number], config.ways, config.tag_bits, part.seed)
        self.blocks = [Block() for _ in range(part.slots)]
        self.fills = FillTable(config.fill_rows)
        self.store = Store(part.slots, config.block_bytes)
        self.epochs = [0] * config.models
        self.retire_queue: deque[int] = deque()
        #: Short of slots that are free or on their way to it: the sweeper ages and evicts.
        self.low = False
        self.hand = 0
        self.patrol = 0
        #: Slots that can be granted.
        self.free_count = part.slots
        self._unused = 0
        self._freed: deque[int] = deque()

    def update_low(self) -> None:
        """Called whenever a slot was granted or began to retire: `low` begins below the low watermark, ends at the
        high.
        """
        spare = self.free_count + len(self.retire_queue)
        self.low = spare < self.low_watermark_slots or self.low and spare < self.high_watermark_slots

    def pop_free(self) -> int:
        """Next slot to be granted; the caller has checked `free_count`."""
        self.free_count -= 1
        if self._unused < self.slots:
            self._unused += 1
            return self._unused - 1
        return self._freed.popleft()

    def push_free(self, slot: int) -> None:
        self.free_count += 1
        self._freed.append(slot)

    def stale(self, block: Block) -> bool:
        """The block belongs to an epoch of its model that has been retired."""
        return block.epoch != self.epochs[block.model_id]

    def occupancy(self) -> dict[State, int]:
        """Number of slots in each state."""
        counts = dict.fromkeys(State, 0)
        for block in self.blocks:
            counts[block.state] += 1
        return counts
