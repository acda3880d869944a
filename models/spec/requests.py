"""What a port refuses before the directory sees it: one pure function of the header.

Used by: golden.node, rtl.node.request_check (the same rules as logic, compared in every lockstep run).
"""

from .config import NodeConfig
from .enums import SUPPORTED_OPCODES, Flag, Opcode, Status
from .messages import VERSION

#: Opcodes that name their block by handle, always.
BY_HANDLE_ONLY = (Opcode.WRITE, Opcode.PUT_END, Opcode.PUT_REVOKE)
#: Opcodes that name their block by key or, with Flag.BY_HANDLE, by handle.
BY_EITHER = (Opcode.READ, Opcode.DROP)
#: Opcodes that are followed by payload: `length` bytes.
WITH_PAYLOAD = (Opcode.WRITE, Opcode.MATCH)
#: Fields that no operation of this version uses.
UNUSED_FIELDS = ("member", "ttl", "deadline", "reserved", "session_epoch", "session", "sequence")

_WITH_HANDLE = frozenset(BY_HANDLE_ONLY + BY_EITHER)
# Members of enumerations are slow to look up, and these are needed for every request.
_HANDLE_FLAG = int(Flag.BY_HANDLE)
_OK, _BAD_REQUEST = Status.OK, Status.BAD_REQUEST
_MATCH, _READ, _PUT_START, _WRITE = Opcode.MATCH, Opcode.READ, Opcode.PUT_START, Opcode.WRITE


def names_handle(header: dict[str, int]) -> bool:
    """Whether the `digest` field of a well-formed request holds a handle."""
    return header["flags"] == _HANDLE_FLAG or header["opcode"] in BY_HANDLE_ONLY


def check_request(config: NodeConfig, port: int, boot_epoch: int, header: dict[str, int], payload_bytes: int) -> Status:
    """OK, or the status that a message gets without a look at any table.

    `header` is an unpacked REQUEST, `payload_bytes` what followed it (payloads are counted in whole beats). The checks
    are made in this order: form (BAD_REQUEST), partition (DENIED), handle (STALE_HANDLE). For WRITE and MATCH a payload
    of another length than announced is found at its end; such a message answers BAD_REQUEST as well (WRITE: after the
    operations WRITE and LAND; MATCH: after its digests were looked up), so only the presence of payload counts here.
    """
    by_handle = names_handle(header)
    if not _well_formed(config, header, payload_bytes, by_handle):
        return _BAD_REQUEST
    number = header["partition"]
    if number >= len(config.partitions) or port not in config.partitions[number].ports:
        return Status.DENIED
    if by_handle:
        handle = header["digest"]
        slot, generation, epoch = handle & 0xFFFFFFFF, handle >> 32 & 0xFFFFFFFF, handle >> 64
        slots = config.partitions[number].slots
        if epoch != boot_epoch or slot >= slots or generation >> config.generation_bits:
            return Status.STALE_HANDLE
    return _OK


def _well_formed(config: NodeConfig, header: dict[str, int], payload_bytes: int, by_handle: bool) -> bool:
    opcode, flags, digest = header["opcode"], header["flags"], header["digest"]
    offset, length, beat = header["offset"], header["length"], config.beat_bytes
    good = (
        header["version"] == VERSION
        and opcode in SUPPORTED_OPCODES
        and header["model_id"] < config.models
        and header["klass"] < 4
        and (flags == 0 or flags == _HANDLE_FLAG and opcode in _WITH_HANDLE)
        and not any(map(header.__getitem__, UNUSED_FIELDS))
        and (opcode in WITH_PAYLOAD) == (payload_bytes > 0)
        and offset % beat == 0
        and offset < config.block_bytes
        and digest >> (96 if by_handle else config.digest_bits) == 0
    )
    if not good:
        return False
    if opcode == _READ:
        return length % beat == 0 and length <= config.block_bytes
    if opcode == _WRITE:
        return length % beat == 0 and 0 < length <= config.max_payload_bytes
    if opcode == _PUT_START:
        return offset == 0 and length % beat == 0 and 0 < length <= config.block_bytes
    if opcode == _MATCH:
        return offset == 0 and length % 32 == 0 and 0 < length <= config.max_payload_bytes and digest == 0
    return offset == 0 and length == 0


def payload_beats(config: NodeConfig, size_bytes: int) -> int:
    """Beats that a payload takes on the link; its length is checked in these."""
    return -(-size_bytes // config.beat_bytes)


def whole_beats(config: NodeConfig, payload: bytes) -> bytes:
    """The payload as a link carries it: its last beat filled up with zeroes."""
    return payload + bytes(-len(payload) % config.beat_bytes)


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
