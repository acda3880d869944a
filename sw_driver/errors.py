"""What can go wrong between a program and a node, as exceptions: one line each, with the numbers people search for."""

from kvnode.models.spec.enums import MOONCAKE_ERRORS, Opcode, Status


class KvError(Exception):
    """The node refused. `status` is its answer; `mooncake` the number of Mooncake Store that means the same, or None.

    One class for each status that is not a success (`error_of` finds it), so that a program catches what it can act on.

    Used by: client.
    """

    def __init__(self, status: Status, what: str):
        self.status, self.mooncake = status, MOONCAKE_ERRORS.get(status)
        number = f" ({self.mooncake})" if self.mooncake is not None else ""
        super().__init__(f"{what}: {status.name}{number}")


class Miss(KvError):
    """The block is not there: compute it."""


class AlreadyExists(KvError):
    """The block is there already, and keeps the bytes that it has."""


class Busy(KvError):
    """Another writer holds the block, leases keep it, or its entry is being taken out: ask again later."""


class NotReady(KvError):
    """The block is being written, or the session's blocks up to the number asked for are not all sealed."""


class NoSpace(KvError):
    """No slot, no index entry or no fill row is free at the moment."""


class QuotaExceeded(KvError):
    """The partition has given all it may: the slots above its reserve, its leases or its sessions."""


class WriteOnce(KvError):
    """A sealed block cannot be written or revoked."""


class WriteOrder(KvError):
    """Bytes did not come in order, or a block of that number is sealed in the session already."""


class Incomplete(KvError):
    """The block was ended before all its bytes had come; it is gone."""


class ChecksumMismatch(KvError):
    """The bytes are not those that were sent: found by the node at the end of a put, or by the client after a read."""


class StaleHandle(KvError):
    """The handle is from before a reset, or its slot holds another block by now."""


class StaleEpoch(KvError):
    """The session has moved or is closed."""


class Denied(KvError):
    """The port may not use that partition or those ports."""


class Poisoned(KvError):
    """The bytes in the node are damaged: a miss."""


class DeadlineExpired(KvError):
    """What was waited for did not come in time."""

    def __init__(self, status: Status, what: str):
        super().__init__(Status.DEADLINE, what)


class BadRequest(KvError):
    """The message means nothing to the node: bytes beyond the block, or members that do not fit it."""


class Unanswered(DeadlineExpired):
    """The node did not answer within the bound of the batch. A dead node is a miss (DEADLINE), never a wait."""

    def __init__(self, opcode: Opcode, index: int, limit: str):
        super().__init__(Status.DEADLINE, f"request {index} ({opcode.name}) was not answered within {limit}")


class PortLost(DeadlineExpired):
    """The port went down before the node answered: whether the request was executed is not known."""

    def __init__(self, opcode: Opcode, index: int, port: int):
        super().__init__(Status.DEADLINE, f"request {index} ({opcode.name}): port {port} went down before the answer")


_CLASSES: dict[Status, type[KvError]] = {
    Status.MISS: Miss,
    Status.EXISTS: AlreadyExists,
    Status.BUSY: Busy,
    Status.NOT_READY: NotReady,
    Status.NO_SPACE: NoSpace,
    Status.QUOTA: QuotaExceeded,
    Status.WRITE_ONCE: WriteOnce,
    Status.WRITE_ORDER: WriteOrder,
    Status.INCOMPLETE: Incomplete,
    Status.CHECKSUM_MISMATCH: ChecksumMismatch,
    Status.STALE_HANDLE: StaleHandle,
    Status.STALE_EPOCH: StaleEpoch,
    Status.DENIED: Denied,
    Status.POISONED: Poisoned,
    Status.DEADLINE: DeadlineExpired,
    Status.BAD_REQUEST: BadRequest,
}


def error_of(status: Status, what: str = "request") -> KvError:
    """The error of a status, to be raised; ValueError for one that is a success.

    >>> error_of(Status.MISS, "read of block 7")
    Miss('read of block 7: MISS (-704)')
    """
    if status not in _CLASSES:
        raise ValueError(f"{status.name} is not an error")
    return _CLASSES[status](status, what)


class NodeError(Exception):
    """The node broke the rules of its streams; the message says where, a note which waveform shows it."""


class TransportError(Exception):
    """A transport cannot be opened here; the message says what is missing and how to get it."""


class RegisterError(Exception):
    """No register stands at an address (SLVERR on the bus)."""
