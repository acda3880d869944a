"""Eviction policy: a clock with a 2-bit reuse age and a 2-bit class per slot (ARCHITECTURE section 8).

Used by: golden.node, golden.policy, rtl.node.coherence (as a truth table).
"""

AGE_MAX = 3
CLASS_COUNT = 4
#: Age of a block when its slot is granted, by class.
AGE_ON_INSERT = (AGE_MAX, 1, 1, 1)
#: Age of a block when it is found or read.
AGE_ON_HIT = 3


def visit(age: int, klass: int) -> tuple[bool, int]:
    """(evict, new age) when the clock hand passes a sealed block while slots are short.

    Class 0 (system prompt) enters as old as a block that was just read, class 1 (normal) must earn it; class 2 (past
    the sliding window) and 3 (session closed) are taken at once.
    """
    if klass >= 2 or age == 0:
        return True, 0
    return False, age - 1
