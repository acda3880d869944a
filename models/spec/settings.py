"""Settings of a partition that can be changed while it works: the `row` of a CONFIGURE operation.

Used by: golden.partitions, rtl.node.directory, rtl.node.management, sw_driver.
"""

import enum


class Setting(enum.IntEnum):
    """Fields of PartitionConfig, by number."""

    LOW_WATERMARK_SLOTS = 0
    HIGH_WATERMARK_SLOTS = 1
    RESERVE_SLOTS = 2
    FILL_DEADLINE_TICKS = 3
    LEASE_TICKS = 4
    BLOCK_TTL = 5
