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


#: What the node of this version executes; every other opcode answers BAD_REQUEST.
SUPPORTED_OPCODES = tuple(op for op in Opcode if op <= Opcode.DROP)


class Flag(enum.IntFlag):
    """Bits of the request's `flags` byte."""

    #: The `digest` field holds a handle (slot, generation, boot_epoch) instead of a digest.
    BY_HANDLE = 1


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
    a port when the last beat of a WRITE is in the store. The rest are the sweeper's: VISIT is a step of the eviction
    clock, PATROL a look for blocks of retired models, REAP frees a slot, RETIRE_MODEL raises a model's epoch.
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
    VISIT = 10
    REAP = 11
    RETIRE_MODEL = 12
    PATROL = 13


#: Operations of the sweeper on the slot that they name.
SWEEPER_KINDS = (Kind.VISIT, Kind.REAP, Kind.PATROL)

#: The operation a port issues for a well-formed request of each opcode.
KIND_OF_OPCODE = {
    Opcode.PING: Kind.ANSWER,
    Opcode.LOOKUP: Kind.LOOKUP,
    Opcode.MATCH: Kind.MATCH,
    Opcode.READ: Kind.READ,
    Opcode.PUT_START: Kind.PUT_START,
    Opcode.WRITE: Kind.WRITE,
    Opcode.PUT_END: Kind.PUT_END,
    Opcode.PUT_REVOKE: Kind.PUT_REVOKE,
    Opcode.DROP: Kind.DROP,
}
