"""Message and trace layouts, version 1 (ARCHITECTURE sections 9 and 15).

Sizes and offsets on the wire are bytes; `offset` and `length` count bytes of a block. Fields that the operations of
this version do not use must be sent as zero and are answered as zero.

Used by: batch, golden, rtl.layouts, sw_driver.
"""

from .layout import Layout

VERSION = 1

#: A digest on the wire, of however many bits it is in a node.
DIGEST_BYTES = 32

#: Numbers of sessions and leases on the wire: 0 is none, others have this bit, a generation, and a row below it.
NUMBERED = 1 << 31

#: 64 bytes before any payload. `digest` holds a digest, with Flag.BY_HANDLE a HANDLE, or SESSION_ARGUMENTS.
#:
#: `member` of `members` (0: one): the part of the block that is meant, the same share for each; PUT_START's `length` is
#: that of a share. `session`, `session_epoch`: the session that asks. `sequence`: the number of the block in its
#: session (PUT_START), the number up to which the present owner may still write (SESSION_MIGRATE), else the number that
#: must be committed before there is an answer. `deadline`: ticks that a fill or a lease (0: the partition's) or a wait
#: (0: any time) may take. `ttl`: in units of TTL_TICKS, how long a block (0: the partition's) or an idle session (0:
#: for ever) may stay.
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
        ("members", 1),
        ("ttl", 1),
        ("deadline", 1),
        ("session_epoch", 2),
        ("session", 4),
        ("sequence", 4),
        ("offset", 4),
        ("length", 4),
        ("digest", 32),
    ],
)

#: What a grant returns, and what the `digest` field of a by-handle request carries. `lease` is used by RELEASE.
#: READ of `count` runs of `length` bytes, `stride` bytes from one to the next; both 0: one run. `crc`: PUT_END.
HANDLE = Layout(
    "handle",
    [
        ("slot", 4),
        ("generation", 4),
        ("boot_epoch", 4),
        ("lease", 4),
        ("stride", 4),
        ("count", 4),
        ("crc", 4),
        ("zero", 4),
    ],
)

#: The `digest` field of SESSION_OPEN and SESSION_MIGRATE. `ports`: mask of the owner's ports, 0: the asking one.
SESSION_ARGUMENTS = Layout("session_arguments", [("ports", 4), ("zero", 28)])

#: 32 bytes before any payload. For READ `length` bytes of payload follow; for MATCH `count` is the number of leading
#: hits, and `length` the bytes of their handles if leases were asked for. `slot`, `generation`: the handle; answers to
#: session operations have the session and its epoch there. `watermark`: offset up to which the member's part has landed
#: (the block's length, once it is sealed); with ResponseFlag.LEASED the lease; of a session the committed number.
#: `crc`: CRC-32C of a sealed block.
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
#: `order` counts operations without a gap, `cycle` is that of the commit. Fields up to `digest` are the operation's
#: but `order`, `cycle` and `status`; `block_*`, `accepted`, `landed`, `age`, `leases` and `state_*` are the block's,
#: `granted_lease`, `session_*` and `committed` what the operation found or made, `wakes` a mask of ports.
TRACE = Layout(
    "trace",
    [
        ("order", 8),
        ("cycle", 8),
        ("owner", 1),
        ("kind", 1),
        ("status", 1),
        ("partition", 1),
        ("group", 1),
        ("klass", 1),
        ("flags", 1),
        ("member", 1),
        ("members", 1),
        ("ttl", 1),
        ("deadline", 1),
        ("ports", 1),
        ("model_id", 2),
        ("session_epoch", 2),
        ("slot", 4),
        ("generation", 4),
        ("offset", 4),
        ("length", 4),
        ("extent", 4),
        ("row", 4),
        ("session", 4),
        ("sequence", 4),
        ("lease", 4),
        ("crc", 4),
        ("part_crc", 4),
        ("digest", 32),
        ("state_before", 1),
        ("state_after", 1),
        ("age", 1),
        ("wakes", 1),
        ("cause", 1),
        ("epoch", 4),
        ("block_slot", 4),
        ("block_generation", 4),
        ("block_length", 4),
        ("block_crc", 4),
        ("block_session", 4),
        ("block_model_id", 2),
        ("block_group", 1),
        ("block_private", 1),
        ("block_digest", 32),
        ("accepted", 4),
        ("landed", 4),
        ("free_count", 4),
        ("leases", 4),
        ("granted_lease", 4),
        ("found_session", 4),
        ("found_epoch", 4),
        ("committed", 4),
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
    #: Flag.LEASE and Flag.PRIVATE of the request.
    LEASE = 16
    PRIVATE = 32
