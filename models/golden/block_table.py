"""One row per slot of a partition: state, generation, key, length, age, class, leases and CRC."""

from dataclasses import dataclass

from ..spec.enums import State
from .fill_table import Fill


@dataclass(slots=True)
class Block:
    """Row of the block table. `length` is in beats; `where` is the index entry's place.

    `session`: the one that the block was begun in, or 0; `private`: only that session finds it. `leases`: how many
    there are. `timed`: the block goes when `until` (a unit of TTL_TICKS) has come. `fill` is there in state FILLING.
    """

    state: State = State.FREE
    generation: int = 0
    digest: int = 0
    model_id: int = 0
    group: int = 0
    epoch: int = 0
    session: int = 0
    private: bool = False
    length: int = 0
    crc: int = 0
    klass: int = 0
    age: int = 0
    leases: int = 0
    timed: bool = False
    until: int = 0
    poisoned: bool = False
    pair: tuple[int, int] = (0, 0)
    where: tuple[int, int, int] = (0, 0, 0)
    fill: Fill | None = None
