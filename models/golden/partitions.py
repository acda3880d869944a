"""Everything one tenant owns: index, block table, free list, fill rows, leases, sessions, models, sweeper hands."""

from collections import deque

from ..spec.config import NodeConfig
from ..spec.enums import State
from ..spec.messages import NUMBERED
from ..spec.sessions import Session
from ..spec.settings import Setting
from .block_table import Block
from .fill_table import FillTable
from .index import Index
from .leases import LeaseTable
from .store import Store

# Members of enumerations are slow to look up.
_LOW, _HIGH = int(Setting.LOW_WATERMARK_SLOTS), int(Setting.HIGH_WATERMARK_SLOTS)


class GoldenPartition:
    """State of partition number `number`; slot numbers are relative to it.

    Slots are granted in order of their number until each was used once, then in the order they became free.

    Used by: GoldenNode.
    """

    def __init__(self, config: NodeConfig, number: int):
        part = config.partitions[number]
        self.number, self.slots = number, part.slots
        self.settings = [getattr(part, setting.name.lower()) for setting in Setting]
        self.index = Index(config.rows_log2[number], config.ways, config.tag_bits, part.seed)
        self.blocks = [Block() for _ in range(part.slots)]
        self.fills = FillTable(config.fill_rows)
        self.leases = LeaseTable(config.leases, config.lease_bits, config.lease_generation_bits)
        self.sessions = [Session()] * config.sessions
        #: The numbers of those that are open, by row; (number, epoch, committed number) of each, by number.
        self._open_sessions = [0] * config.sessions
        self.session_reports: dict[int, tuple[int, int, int]] = {}
        self._session_bits, self._session_row_mask = config.session_bits, config.sessions - 1
        #: Row of the session table that the next SESSION_OPEN gets, if the sweeper has found one since the last.
        self.offer: int | None = 0
        #: Ports of which all leases, or all blocks being written, are being taken back, and the looks still to be made.
        self.releasing: dict[int, int] = {}
        self.revoking: dict[int, int] = {}
        self.store = Store(part.slots, config.block_bytes)
        self.epochs = [0] * config.models
        self.retire_queue: deque[int] = deque()
        #: Short of slots that are free or on their way to it: the sweeper ages and evicts.
        self.low = False
        self.hand = 0
        self.patrol = 0
        self.fill_hand = self.lease_hand = self.session_hand = 0
        #: Slots that can be granted.
        self.free_count = part.slots
        self._unused = 0
        self._freed: deque[int] = deque()

    def update_low(self) -> None:
        """Called whenever a slot was granted or began to retire: `low` begins below the low watermark, ends at the
        high.
        """
        spare = self.free_count + len(self.retire_queue)
        self.low = spare < self.settings[_LOW] or self.low and spare < self.settings[_HIGH]

    def session_number(self, row: int) -> int:
        """The number by which the present use of a row is known."""
        return NUMBERED | self.sessions[row].generation << self._session_bits | row

    def session_of(self, number: int) -> Session | None:
        """An open session, None if it is closed or was never open."""
        row = number & self._session_row_mask
        return self.sessions[row] if self._open_sessions[row] == number else None

    def session_row(self, number: int) -> int | None:
        """Its row."""
        row = number & self._session_row_mask
        return row if self._open_sessions[row] == number else None

    def set_session(self, row: int, session: Session) -> None:
        """Change a row of `sessions`: the only way to do so."""
        if session is self.sessions[row]:
            return
        self.session_reports.pop(self._open_sessions[row], None)
        self.sessions[row] = session
        number = self._open_sessions[row] = self.session_number(row) if session.open else 0
        if number:
            self.session_reports[number] = number, session.epoch, session.committed

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
