"""Eviction policy: a clock with a 2-bit reuse age and a 2-bit class per slot (ARCHITECTURE section 8).

Used by: golden.node, golden.policy, rtl.node.coherence (as a truth table).
"""

AGE_MAX = 3
CLASS_COUNT = 4
#: Age of a block when its slot is granted, by class.
AGE_ON_INSERT = (AGE_MAX, 0, 0, 0)
#: Age of a block when it is found or read.
AGE_ON_HIT = 2


def age_on_hit(age: int) -> int:
    """Age of a sealed block after a LOOKUP, a MATCH or a READ found it; never less than before."""
    return max(age, AGE_ON_HIT)


def visit(age: int, klass: int) -> tuple[bool, int]:
    """(evict, new age) when the clock hand passes a sealed block while slots are short.

    Class 0 (system prompt) enters with more than a read gives, class 1 (normal) must earn its stay by being read; class
    2 (past the sliding window) and 3 (session closed) are taken at once. That a new block has no age of its own keeps
    the hand supplied with victims when all blocks are new: docs/decisions/0002.
    """
    if klass >= 2 or age == 0:
        return True, 0
    return False, age - 1
