"""What a port refuses before the directory sees it: one pure function of the header.

Used by: golden.node, rtl.node.port (the same rules as logic, compared in every lockstep run).
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


def check_request(config: NodeConfig, port: int, boot_epoch: int, header: dict[str, int], payload_bytes: int) -> Status:
    """OK, or the status that a message gets without a look at any table.

    `header` is an unpacked REQUEST, `payload_bytes` what followed it (payloads are counted in whole beats). The checks
    are made in this order: form (BAD_REQUEST), partition (DENIED), handle (STALE_HANDLE). For WRITE and MATCH a payload
    of another length than announced is found at its end; such a message answers BAD_REQUEST as well (WRITE: after the
    operations WRITE and LAND; MATCH: after its digests were looked up), so only the presence of payload counts here.
    """
    status = _check_form(config, header, payload_bytes)
    if status != Status.OK:
        return status
    if header["partition"] != config.partition_of_port[port]:
        return Status.DENIED
    opcode = header["opcode"]
    if opcode in BY_HANDLE_ONLY or header["flags"] & Flag.BY_HANDLE:
        handle = header["digest"]
        slot, generation, epoch = handle & 0xFFFFFFFF, handle >> 32 & 0xFFFFFFFF, handle >> 64 & 0xFFFFFFFF
        partition = config.partitions[config.partition_of_port[port]]
        if epoch != boot_epoch or slot >= partition.slots or generation >> config.generation_bits:
            return Status.STALE_HANDLE
    return Status.OK


def _check_form(config: NodeConfig, header: dict[str, int], payload_bytes: int) -> Status:
    opcode, flags = header["opcode"], header["flags"]
    offset, length, beat = header["offset"], header["length"], config.beat_bytes
    by_handle = opcode in BY_HANDLE_ONLY or bool(flags & Flag.BY_HANDLE)
    good = (
        header["version"] == VERSION
        and opcode in SUPPORTED_OPCODES
        and header["model_id"] < config.models
        and header["klass"] < 4
        and flags in (0, Flag.BY_HANDLE)
        and (flags == 0 or opcode in BY_EITHER + BY_HANDLE_ONLY)
        and all(
            header[name] == 0
            for name in ("member", "ttl", "deadline", "reserved", "session_epoch", "session", "sequence")
        )
        and (opcode in WITH_PAYLOAD) == (payload_bytes > 0)
        and offset % beat == 0
        and offset < config.block_bytes
        and (header["digest"] >> 96 if by_handle else header["digest"] >> config.digest_bits) == 0
    )
    if not good:
        return Status.BAD_REQUEST
    if opcode == Opcode.MATCH:
        good = offset == 0 and length % 32 == 0 and 0 < length <= config.max_payload_bytes and header["digest"] == 0
    elif opcode == Opcode.PUT_START:
        good = offset == 0 and length % beat == 0 and 0 < length <= config.block_bytes
    elif opcode == Opcode.WRITE:
        good = length % beat == 0 and 0 < length <= config.max_payload_bytes
    elif opcode == Opcode.READ:
        good = length % beat == 0 and length <= config.block_bytes
    else:
        good = offset == 0 and length == 0
    return Status.OK if good else Status.BAD_REQUEST


def payload_beats(config: NodeConfig, size_bytes: int) -> int:
    """Beats that a payload takes on the link; its length is checked in these."""
    return -(-size_bytes // config.beat_bytes)


def match_digests(config: NodeConfig, length: int, payload: bytes) -> tuple[list[int], bool]:
    """(digests that a well-formed MATCH of `length` bytes looks up, whether its payload is as announced).

    A digest of more than `digest_bits` bits is looked up without the rest, and spoils the answer as a payload of
    another length does.
    """
    end = min(len(payload), length) // 32 * 32
    words = [int.from_bytes(payload[at : at + 32], "little") for at in range(0, end, 32)]
    whole = payload_beats(config, len(payload)) == payload_beats(config, length)
    mask = (1 << config.digest_bits) - 1
    return [word & mask for word in words], whole and all(word <= mask for word in words)
