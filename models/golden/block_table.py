"""One row per slot of a partition: state, generation, key, length, age and class."""

from dataclasses import dataclass

from ..spec.enums import State


@dataclass(slots=True)
class Block:
    """Row of the block table. `length`, `accepted` and `landed` are beats; `where` is the index entry's place.

    The writing columns (`fill_row`, `writer`, `accepted`, `landed`) mean something in state FILLING only; hardware
    keeps them in the fill table.
    """

    state: State = State.FREE
    generation: int = 0
    digest: int = 0
    model_id: int = 0
    group: int = 0
    epoch: int = 0
    length: int = 0
    klass: int = 0
    age: int = 0
    pair: tuple[int, int] = (0, 0)
    where: tuple[int, int, int] = (0, 0, 0)
    fill_row: int = 0
    writer: int = 0
    accepted: int = 0
    landed: int = 0
