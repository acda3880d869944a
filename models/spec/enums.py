"""Opcodes, statuses, block states and directory operations: every number that two parts of kvnode must agree on.

Used by: everything.
"""

import enum


class Opcode(enum.IntEnum):
    """First byte of a request header (ARCHITECTURE section 9)."""

    PING = 0
    LOOKUP = 1
    MATCH = 2
    READ = 3
    PUT_START = 4
    WRITE = 5
    PUT_END = 6
    PUT_REVOKE = 7
    DROP = 8
    LEASE = 9
    RELEASE = 10
    RELEASE_ALL = 11
    SESSION_OPEN = 12
    SESSION_FENCE = 13
    SESSION_MIGRATE = 14
    SESSION_CLOSE = 15


class Flag(enum.IntFlag):
    """Bits of the request's `flags` byte."""

    #: The `digest` field holds a HANDLE instead of a digest.
    BY_HANDLE = 1
    #: LOOKUP, MATCH: lock what is found, in the same operation.
    LEASE = 2
    #: The key is one of the session's own: no other session finds the block, and it goes when the session is closed.
    PRIVATE = 4


class ResponseFlag(enum.IntFlag):
    """Bits of the response's `flags` byte."""

    #: Not an answer: something that this port waits for has happened (NOT_READY); ask again.
    WAKE = 1
    #: `watermark` holds the lease that was granted; behind a MATCH, each digest's handle follows as payload.
    LEASED = 2


class Status(enum.IntEnum):
    """First byte of a response header. Success and refusal alike are explicit; nothing is ever answered by silence."""

    OK = 0
    HIT = 1
    MISS = 2
    GRANTED = 3
    SEALED = 4
    EXISTS = 5
    BUSY = 6
    NOT_READY = 7
    NO_SPACE = 8
    QUOTA = 9
    WRITE_ONCE = 10
    WRITE_ORDER = 11
    INCOMPLETE = 12
    CHECKSUM_MISMATCH = 13
    STALE_HANDLE = 14
    STALE_EPOCH = 15
    DENIED = 16
    POISONED = 17
    DEADLINE = 18
    BAD_REQUEST = 19


#: The error numbers of Mooncake Store that mean the same thing, reported beside a status by the driver.
MOONCAKE_ERRORS = {
    Status.MISS: -704,
    Status.EXISTS: -705,
    Status.NOT_READY: -703,
    Status.NO_SPACE: -200,
    Status.CHECKSUM_MISMATCH: -801,
    Status.DEADLINE: -901,
    Status.QUOTA: -1700,
}


class State(enum.IntEnum):
    """State of a slot in the block table."""

    FREE = 0
    FILLING = 1
    SEALED = 2
    RETIRING = 3


class Kind(enum.IntEnum):
    """Operation of the directory pipeline; also the `kind` of a trace record.

    ANSWER changes nothing and answers the status the port decided on (a ping, or a refused message). LAND is issued by
    a port when the last beat of a WRITE is in the store. The rest from VISIT on are the sweeper's: VISIT is a step of
    the eviction clock, PATROL a look for blocks that nobody can find any more, REAP frees a slot, RETIRE_MODEL raises a
    model's epoch, PORT_DOWN begins to take back what a port holds, CONFIGURE changes a setting, POISON marks a block
    whose bytes are damaged, the EXPIRE_* look at one row each.
    """

    ANSWER = 0
    LOOKUP = 1
    MATCH = 2
    READ = 3
    PUT_START = 4
    WRITE = 5
    LAND = 6
    PUT_END = 7
    PUT_REVOKE = 8
    DROP = 9
    LEASE = 10
    RELEASE = 11
    RELEASE_ALL = 12
    SESSION_OPEN = 13
    SESSION_FENCE = 14
    SESSION_MIGRATE = 15
    SESSION_CLOSE = 16
    VISIT = 17
    PATROL = 18
    REAP = 19
    EXPIRE_FILL = 20
    EXPIRE_LEASE = 21
    EXPIRE_SESSION = 22
    RETIRE_MODEL = 23
    PORT_DOWN = 24
    CONFIGURE = 25
    POISON = 26


#: The sweeper's operations on the slot that they name.
SWEEPER_KINDS = (Kind.VISIT, Kind.PATROL, Kind.REAP, Kind.EXPIRE_FILL, Kind.EXPIRE_LEASE, Kind.POISON)
#: Operations on a row of the session table.
SESSION_KINDS = (Kind.SESSION_OPEN, Kind.SESSION_FENCE, Kind.SESSION_MIGRATE, Kind.SESSION_CLOSE, Kind.EXPIRE_SESSION)
#: Operations that meet no block.
BLOCKLESS_KINDS = (Kind.ANSWER, Kind.RELEASE_ALL, *SESSION_KINDS, Kind.RETIRE_MODEL, Kind.PORT_DOWN, Kind.CONFIGURE)

#: The operation a port issues for a well-formed request of each opcode.
KIND_OF_OPCODE = {opcode: Kind.ANSWER if opcode == Opcode.PING else Kind[opcode.name] for opcode in Opcode}
