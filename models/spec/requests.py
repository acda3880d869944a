"""What a port refuses before the directory sees it: one pure function of the header.

Used by: golden.node, rtl.node.request_check (the same rules as logic, compared in every lockstep run).
"""

import struct
from collections.abc import Callable
from operator import itemgetter
from typing import NamedTuple

from .config import NodeConfig
from .enums import Flag, Opcode, Status
from .messages import NUMBERED, VERSION

#: Opcodes that name their block by handle, always.
BY_HANDLE_ONLY = (Opcode.WRITE, Opcode.PUT_END, Opcode.PUT_REVOKE, Opcode.RELEASE)
#: Opcodes that name their block by key or, with Flag.BY_HANDLE, by handle.
BY_EITHER = (Opcode.READ, Opcode.DROP, Opcode.LEASE)
#: Opcodes that may look for a session's private key.
BY_KEY = (Opcode.LOOKUP, Opcode.MATCH, Opcode.PUT_START, *BY_EITHER)
#: Opcodes that may ask for leases beside what they do.
WITH_LEASE = (Opcode.LOOKUP, Opcode.MATCH)
#: Opcodes that are followed by payload: `length` bytes.
WITH_PAYLOAD = (Opcode.WRITE, Opcode.MATCH)
#: Opcodes that must name a session.
OF_SESSION = (Opcode.SESSION_FENCE, Opcode.SESSION_MIGRATE, Opcode.SESSION_CLOSE)
#: Opcodes whose `digest` field holds SESSION_ARGUMENTS.
WITH_PORTS = (Opcode.SESSION_OPEN, Opcode.SESSION_MIGRATE)
#: Opcodes that the ports of other partitions may use in the public one; without session and without leases.
PUBLIC_OPCODES = (Opcode.LOOKUP, Opcode.MATCH, Opcode.READ)
MAX_MEMBERS = 8

_SESSION = frozenset(("session", "session_epoch"))
_AFTER = _SESSION | {"sequence", "deadline"}
#: Which of OPTIONAL_FIELDS an opcode uses; the others must be zero.
OPTIONAL_FIELDS = ("member", "members", "ttl", "deadline", "session_epoch", "session", "sequence")
USED_FIELDS: dict[Opcode, frozenset[str]] = {opcode: frozenset() for opcode in Opcode} | {
    Opcode.LOOKUP: _AFTER,
    Opcode.MATCH: _AFTER,
    Opcode.READ: _AFTER | {"member"},
    Opcode.PUT_START: _AFTER | {"member", "members", "ttl"},
    Opcode.WRITE: frozenset(("member",)),
    Opcode.PUT_END: frozenset(("member", "members")),
    Opcode.DROP: _SESSION,
    Opcode.LEASE: _AFTER,
    Opcode.SESSION_OPEN: frozenset(("ttl",)),
    Opcode.SESSION_FENCE: _AFTER,
    Opcode.SESSION_MIGRATE: _SESSION | {"sequence"},
    Opcode.SESSION_CLOSE: _SESSION,
}

# Members of enumerations are slow to look up, and these are needed for every request.
_UNUSED = [[name for name in OPTIONAL_FIELDS if name not in USED_FIELDS[opcode]] for opcode in Opcode]
#: The values of the fields that an opcode does not use.
_UNUSED_OF: list[Callable[[dict[str, int]], tuple[int, ...]]] = [
    itemgetter(*names) if names else lambda header: () for names in _UNUSED
]
_HANDLE_ONLY, _EITHER = frozenset(map(int, BY_HANDLE_ONLY)), frozenset(map(int, BY_EITHER))
_BY_KEY, _WITH_LEASE, _WITH_PAYLOAD = (
    frozenset(map(int, BY_KEY)),
    frozenset(map(int, WITH_LEASE)),
    frozenset(map(int, WITH_PAYLOAD)),
)
_PORTS, _OF_SESSION, _PUBLIC = frozenset(map(int, WITH_PORTS)), frozenset(map(int, OF_SESSION)), PUBLIC_OPCODES
_BY_HANDLE, _LEASE, _PRIVATE = int(Flag.BY_HANDLE), int(Flag.LEASE), int(Flag.PRIVATE)
_OK, _BAD_REQUEST = Status.OK, Status.BAD_REQUEST
_MATCH, _READ, _PUT_START, _WRITE, _PUT_END = 2, 3, 4, 5, 6
_OPCODES = len(Opcode)


def names_handle(header: dict[str, int]) -> bool:
    """Whether the `digest` field of a well-formed request holds a handle."""
    return bool(header["flags"] & _BY_HANDLE) or header["opcode"] in _HANDLE_ONLY


_WORDS = struct.Struct("<8I")
#: Makes a Handle of all its fields in order, in half the time of its constructor.
_new = tuple.__new__


class Handle(NamedTuple):
    """The fields of a HANDLE in the `digest` field of a request."""

    slot: int
    generation: int
    boot_epoch: int
    lease: int
    stride: int
    count: int  # type: ignore[assignment]  # That of a tuple is not missed.
    crc: int
    zero: int

    @classmethod
    def of(cls, digest: int) -> "Handle":
        return _new(cls, _WORDS.unpack(digest.to_bytes(32, "little")))


def handle_in(header: dict[str, int]) -> Handle | None:
    """The handle that the `digest` field of a request holds, if `names_handle`."""
    if header["flags"] & _BY_HANDLE or header["opcode"] in _HANDLE_ONLY:
        return Handle.of(header["digest"])
    return None


def check_request(config: NodeConfig, port: int, boot_epoch: int, header: dict[str, int], payload_bytes: int) -> Status:
    """OK, or the status that a message gets without a look at any table.

    `header` is an unpacked REQUEST, `payload_bytes` what followed it (payloads are counted in whole beats). The checks
    are made in this order: form (BAD_REQUEST), partition and ports (DENIED), handle (STALE_HANDLE). For WRITE and MATCH
    a payload of another length than announced is found at its end; such a message answers BAD_REQUEST as well (WRITE:
    after the operations WRITE and LAND; MATCH: after its digests were looked up), so only the presence of payload
    counts here.
    """
    handle = handle_in(header)
    if not _well_formed(config, header, payload_bytes, handle):
        return _BAD_REQUEST
    number, own = header["partition"], config.partition_of_port[port]
    if number != own and not _may_read_elsewhere(config, header):
        return Status.DENIED
    if header["opcode"] in _PORTS and header["digest"] & ~config.port_masks[own]:
        return Status.DENIED
    if handle is not None and (
        handle.boot_epoch != boot_epoch
        or handle.slot >= config.partitions[number].slots
        or handle.generation >> config.generation_bits
    ):
        return Status.STALE_HANDLE
    return _OK


def _may_read_elsewhere(config: NodeConfig, header: dict[str, int]) -> bool:
    return (
        header["partition"] == config.public_partition
        and header["opcode"] in _PUBLIC
        and not header["session"]
        and not header["flags"] & _LEASE
    )


def _well_formed(config: NodeConfig, header: dict[str, int], payload_bytes: int, handle: Handle | None) -> bool:
    """`handle`: what the `digest` field holds, if it holds a handle."""
    opcode, flags, digest, session = header["opcode"], header["flags"], header["digest"], header["session"]
    offset, length, beat = header["offset"], header["length"], config.beat_bytes
    good = (
        opcode < _OPCODES
        and header["version"] == VERSION
        and header["model_id"] < config.models
        and header["klass"] < 4
        and not any(_UNUSED_OF[opcode](header))
        and (opcode in _WITH_PAYLOAD) == (payload_bytes > 0)
        and offset % beat == 0
        and offset < config.block_bytes
        and header["member"] < MAX_MEMBERS
    )
    if not good or flags and not _flags_allowed(opcode, flags, session):
        return False
    if session:
        if not session & NUMBERED or (session & ~NUMBERED) >> config.session_bits + config.session_generation_bits:
            return False
    elif opcode in _OF_SESSION or header["session_epoch"] or header["sequence"]:
        return False
    if handle is not None:
        if not _handle_well_formed(config, header, handle):
            return False
    elif digest >> (32 if opcode in _PORTS else config.digest_bits):
        return False
    if opcode == _READ:
        return length % beat == 0 and length <= config.block_bytes
    if opcode == _WRITE:
        return length % beat == 0 and 0 < length <= config.max_payload_bytes
    if opcode == _PUT_START or opcode == _PUT_END:
        return offset == 0 and _shares_fit(config, header)
    if opcode == _MATCH:
        return offset == 0 and length % 32 == 0 and 0 < length <= config.max_payload_bytes and digest == 0
    holds = opcode in _BY_KEY or handle is not None or opcode in _PORTS
    return offset == 0 and length == 0 and (holds or digest == 0)


def _flags_allowed(opcode: int, flags: int, session: int) -> bool:
    """BY_HANDLE and PRIVATE exclude each other; PRIVATE needs a session."""
    if flags & ~(_BY_HANDLE | _LEASE | _PRIVATE):
        return False
    if flags & _BY_HANDLE and (flags & _PRIVATE or opcode not in _EITHER and opcode not in _HANDLE_ONLY):
        return False
    if flags & _LEASE and opcode not in _WITH_LEASE:
        return False
    return not flags & _PRIVATE or opcode in _BY_KEY and session != 0


def _shares_fit(config: NodeConfig, header: dict[str, int]) -> bool:
    """PUT_START and PUT_END: `members` shares of `length` bytes. PUT_END of a block with one writer names none."""
    members, length = header["members"] or 1, header["length"]
    if header["opcode"] == _PUT_END and members == 1:
        return length == 0 and header["member"] == 0
    return (
        length % config.beat_bytes == 0
        and length > 0
        and members <= MAX_MEMBERS
        and header["member"] < members
        and length * members <= config.block_bytes
    )


def _handle_well_formed(config: NodeConfig, header: dict[str, int], handle: Handle) -> bool:
    """The parts of a handle that only some opcodes use; READ in runs: all of them inside a block."""
    opcode = header["opcode"]
    if handle.zero or handle.crc and opcode != _PUT_END:
        return False
    if opcode != _READ:
        return handle.stride == 0 and handle.count == 0
    if handle.count == 0:
        return handle.stride == 0
    return (
        handle.stride % config.beat_bytes == 0
        and 0 < header["length"] <= config.block_bytes
        and handle.count <= config.block_beats
        and handle.stride <= config.block_bytes
        and header["length"] * handle.count <= config.block_bytes
        and span_bytes(header, handle) <= config.block_bytes
    )


def span_bytes(header: dict[str, int], handle: Handle) -> int:
    """Bytes from the first to the last byte of a READ in runs."""
    return (handle.count - 1) * handle.stride + header["length"]


def payload_beats(config: NodeConfig, size_bytes: int) -> int:
    """Beats that a payload takes on the link; its length is checked in these."""
    return -(-size_bytes // config.beat_bytes)


def whole_beats(config: NodeConfig, payload: bytes) -> bytes:
    """The payload as a link carries it: its last beat filled up with zeroes."""
    missing = -len(payload) % config.beat_bytes
    return payload + bytes(missing) if missing else payload


def match_digests(config: NodeConfig, length: int, payload: bytes) -> tuple[list[int], bool]:
    """(digests that a well-formed MATCH of `length` bytes looks up, whether its payload is as announced).

    A digest of more than `digest_bits` bits is looked up without the rest, and spoils the answer as a payload of
    another length does.
    """
    payload = whole_beats(config, payload)
    end = min(len(payload), length) // 32 * 32
    words = [int.from_bytes(payload[at : at + 32], "little") for at in range(0, end, 32)]
    whole = payload_beats(config, len(payload)) == payload_beats(config, length)
    mask = (1 << config.digest_bits) - 1
    return [word & mask for word in words], whole and all(word <= mask for word in words)
