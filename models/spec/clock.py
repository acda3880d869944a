"""Time as the node counts it: ticks of 2^tick_cycles_log2 cycles, in TIME_BITS that wrap around.

A tick is the same for everybody and free of anybody's doing. A deadline is the tick at which it has passed; it is
looked at often enough that half of the range is never in doubt.

Used by: sessions, golden.directory, rtl.node.directory.
"""

TIME_BITS = 16
#: Ticks of a unit in which the time to live of blocks and sessions is counted.
TTL_TICKS = 256


def tick_of(cycle: int, tick_cycles_log2: int) -> int:
    """The tick that a cycle lies in."""
    return cycle >> tick_cycles_log2 & (1 << TIME_BITS) - 1


def ttl_tick_of(cycle: int, tick_cycles_log2: int) -> int:
    """The unit of TTL_TICKS that a cycle lies in."""
    return tick_of(cycle, tick_cycles_log2 + TTL_TICKS.bit_length() - 1)


def passed(now: int, deadline: int) -> bool:
    """Whether a deadline is at or before `now`, both of TIME_BITS."""
    return (now - deadline) & (1 << TIME_BITS - 1) == 0


def after(now: int, count: int) -> int:
    """The time `count` ticks (or units) after `now`."""
    return now + count & (1 << TIME_BITS) - 1
