"""Message and trace layouts, version 1 (ARCHITECTURE sections 9 and 15).

Sizes and offsets on the wire are bytes; `offset` and `length` count bytes of a block. Fields that the operations of
this version do not use must be sent as zero and are answered as zero.

Used by: batch, golden, rtl.layouts, sw_driver.
"""

from .layout import Layout

VERSION = 1

#: 64 bytes before any payload. `digest` holds a digest, or with Flag.BY_HANDLE the fields of HANDLE from its first
#: byte.
REQUEST = Layout(
    "request",
    [
        ("opcode", 1),
        ("flags", 1),
        ("version", 1),
        ("klass", 1),
        ("tag", 2),
        ("model_id", 2),
        ("group", 1),
        ("partition", 1),
        ("member", 1),
        ("ttl", 1),
        ("deadline", 1),
        ("reserved", 1),
        ("session_epoch", 2),
        ("session", 4),
        ("sequence", 4),
        ("offset", 4),
        ("length", 4),
        ("digest", 32),
    ],
)

#: What a grant returns, and what the `digest` field of a by-handle request carries.
HANDLE = Layout(
    "handle",
    [("slot", 4), ("generation", 4), ("boot_epoch", 4), ("run", 4), ("stride", 4), ("crc", 4), ("zero", 8)],
)

#: 32 bytes before any payload. For READ `length` bytes of payload follow; for MATCH `count` is the number of leading
#: hits.
RESPONSE = Layout(
    "response",
    [
        ("status", 1),
        ("opcode", 1),
        ("flags", 1),
        ("version", 1),
        ("tag", 2),
        ("count", 2),
        ("boot_epoch", 4),
        ("slot", 4),
        ("generation", 4),
        ("length", 4),
        ("watermark", 4),
        ("crc", 4),
    ],
)

#: One committed directory operation (never visible to a tenant). Offsets, lengths and watermarks are beats.
#: `order` counts operations without a gap, `cycle` is that of the commit. `offset`, `length`, `digest`, `slot` and
#: `generation` are the operation's; `block_*`, `accepted`, `landed`, `age` and `state_*` are the block's.
TRACE = Layout(
    "trace",
    [
        ("order", 8),
        ("cycle", 8),
        ("owner", 1),
        ("kind", 1),
        ("status", 1),
        ("state_before", 1),
        ("state_after", 1),
        ("partition", 1),
        ("group", 1),
        ("klass", 1),
        ("flags", 1),
        ("age", 1),
        ("model_id", 2),
        ("epoch", 4),
        ("slot", 4),
        ("generation", 4),
        ("offset", 4),
        ("length", 4),
        ("block_slot", 4),
        ("block_generation", 4),
        ("block_length", 4),
        ("accepted", 4),
        ("landed", 4),
        ("free_count", 4),
        ("digest", 32),
    ],
)


class TraceFlag:
    """Bits of the trace record's `flags`: inputs of the operation, and whether it found its block."""

    BY_HANDLE = 1
    #: First digest of a MATCH: the chain of leading hits starts anew.
    CHAIN_FIRST = 2
    #: LAND: the payload had exactly the announced length.
    WHOLE = 4
    #: The block addressed by key or handle exists.
    PRESENT = 8
