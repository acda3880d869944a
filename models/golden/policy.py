"""The eviction clock on block ids alone: what the sweeper's policy is worth, without the rest of the node.

The policy itself (ages, classes, `visit`) is `spec.policy`; the golden node, the RTL and this simulator share it.
Here it runs at some million accesses a second, so that whole public traces can be swept (`policy_study`).
"""

from collections import deque
from collections.abc import Sequence

from ..spec.policy import AGE_MAX, AGE_ON_INSERT, CLASS_COUNT, age_on_hit, visit

NORMAL_CLASS = 1


class ClockPolicy:
    """One partition of `slots` slots, each with a 2-bit age and a 2-bit class.

    slots: at least 1.
    low_watermark: while fewer slots are free after an insertion, the hand moves on. 0 evicts only for a block that
        finds no free slot. Below `slots`.
    head_first: the order in which the missing blocks of a request are inserted. Tail first is the better: slots
        are taken in the hand's order, so the clock meets the tail of a prefix before its head, and what is left of it
        can still be matched.

    An access is a MATCH of the whole list, a READ of the leading hits (both give them `age_on_hit`; twice is the same
    as once) and a PUT_START of every other block: EXISTS and no new age where it is resident, else an insertion into
    the slot that has been free longest. Every slot is given up within `AGE_MAX + 1` visits without a hit, so the hand
    always ends.

    Leases, fills and refused inserts are not modelled: the golden node has them.

    Used by: policy_study, and whoever wants to try a policy on a trace.
    """

    def __init__(self, slots: int, *, low_watermark: int = 0, head_first: bool = False) -> None:
        if slots < 1:
            raise ValueError(f"slots {slots} is not above 0")
        if not 0 <= low_watermark < slots:
            raise ValueError(f"low_watermark {low_watermark} is not from 0 to below {slots} slots")
        self.slots, self.low_watermark, self.head_first = slots, low_watermark, head_first
        self.hand = 0
        self.block_count = 0
        self.prefix_hits = 0
        self.resident_hits = 0
        self.visit_count = 0
        self.eviction_count = 0
        self._slot_of: dict[int, int] = {}
        self._block_in: list[int | None] = [None] * slots
        self._state = bytearray(slots)  # class * 4 + age of every slot.
        self._free = deque(range(slots))
        # What a visit makes of the state: the next state, or -1 to evict.
        self._visited = [
            -1 if evict else klass * 4 + age
            for klass in range(CLASS_COUNT)
            for evict, age in (visit(age, klass) for age in range(AGE_MAX + 1))
        ]
        self._hit = bytes(klass * 4 + age_on_hit(age) for klass in range(CLASS_COUNT) for age in range(AGE_MAX + 1))

    def __contains__(self, block: int) -> bool:
        return block in self._slot_of

    def __len__(self) -> int:
        return len(self._slot_of)

    @property
    def free_count(self) -> int:
        return len(self._free)

    def age_of(self, block: int) -> int:
        """The age of a resident block. Raises KeyError for any other."""
        return self._state[self._slot_of[block]] % 4

    def set_class(self, block: int, klass: int) -> None:
        """Give a resident block another class. Raises KeyError where it is not resident."""
        slot = self._slot_of[block]
        self._state[slot] = _checked(klass) * 4 + self._state[slot] % 4

    def access(self, block_ids: Sequence[int], klass: int = NORMAL_CLASS) -> int:
        """One request, ids head first, none twice; returns its prefix hits. New blocks get the class."""
        place = self._slot_of.get
        places = [place(block) for block in block_ids]
        count = len(places)
        hits = places.index(None) if None in places else count
        state, hit = self._state, self._hit
        for slot in places[:hits]:
            state[slot] = hit[state[slot]]  # type: ignore[index]
        self.block_count += count
        self.prefix_hits += hits
        self.resident_hits += count - places.count(None)
        if hits < count:
            missing = block_ids[hits:]
            self._insert(missing if self.head_first else missing[::-1], _checked(klass) * 4 + AGE_ON_INSERT[klass])
        return hits

    def step(self) -> None:
        """The hand visits the slot it points to, and moves on."""
        slot = self.hand
        self.hand = slot + 1 if slot + 1 < self.slots else 0
        self.visit_count += 1
        block = self._block_in[slot]
        if block is None:
            return
        after = self._visited[self._state[slot]]
        if after >= 0:
            self._state[slot] = after
            return
        del self._slot_of[block]
        self._block_in[slot] = None
        self._free.append(slot)
        self.eviction_count += 1

    def _insert(self, blocks: Sequence[int], new_state: int) -> None:
        slot_of, free, step = self._slot_of, self._free, self.step
        for block in blocks:
            if block in slot_of:
                continue
            while not free:
                step()
            slot = free.popleft()
            slot_of[block] = slot
            self._block_in[slot] = block
            self._state[slot] = new_state
            while len(free) < self.low_watermark:
                step()


def _checked(klass: int) -> int:
    if not 0 <= klass < CLASS_COUNT:
        raise ValueError(f"class {klass} is not one of 0..{CLASS_COUNT - 1}")
    return klass
