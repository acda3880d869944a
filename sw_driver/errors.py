"""What can go wrong between a program and a node, as exceptions: one line each, with the numbers people search for."""

from kvnode.models.spec.enums import MOONCAKE_ERRORS, Opcode, Status


class KvError(Exception):
    """The node refused. `status` is its answer; `mooncake` the number of Mooncake Store that means the same, or None.

    Used by: client.
    """

    def __init__(self, status: Status, what: str):
        self.status, self.mooncake = status, MOONCAKE_ERRORS.get(status)
        number = f" ({self.mooncake})" if self.mooncake is not None else ""
        super().__init__(f"{what}: {status.name}{number}")


class Unanswered(KvError):
    """The node did not answer within the bound of the batch. A dead node is a miss (DEADLINE), never a wait."""

    def __init__(self, opcode: Opcode, index: int, limit: str):
        super().__init__(Status.DEADLINE, f"request {index} ({opcode.name}) was not answered within {limit}")


class NodeError(Exception):
    """The node broke the rules of its streams; the message says where, a note which waveform shows it."""


class TransportError(Exception):
    """A transport cannot be opened here; the message says what is missing and how to get it."""
