"""What a port refuses before the directory sees it: `models.spec.requests.check_request` as logic."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Flag, Opcode, Status
from kvnode.models.spec.messages import HANDLE, VERSION
from kvnode.models.spec.requests import (
    BY_EITHER,
    BY_HANDLE_ONLY,
    BY_KEY,
    MAX_MEMBERS,
    OF_SESSION,
    OPTIONAL_FIELDS,
    PUBLIC_OPCODES,
    USED_FIELDS,
    WITH_LEASE,
    WITH_PAYLOAD,
    WITH_PORTS,
)

from ..layouts import MEMBERS_BITS, REQUEST_STRUCT, STATUS_BITS, Shapes, one_of, struct

HANDLE_STRUCT = struct(HANDLE)


class Products(data.StructLayout):
    """Products of a header's fields in beats, made while it arrives.

    `total`: of its shares, or of the runs of a READ; `span`: of such a READ from its first to its last beat; `before`
    and `behind`: of the shares before and behind the member's.
    """

    def __init__(self, config: NodeConfig):
        beat_bits = Shapes(config).beat_bits
        wide = 2 * beat_bits + 1
        super().__init__({"total": wide, "span": wide, "before": beat_bits + 4, "behind": beat_bits + 4})


def products(m: Module, config: NodeConfig, header, result) -> None:
    """Make `result`, Products(config), of a header. What the products leave out, RequestCheck looks at by itself."""
    beat_bits, beat_log2 = Shapes(config).beat_bits, config.beat_bytes.bit_length() - 1
    handle = data.View(HANDLE_STRUCT, header.digest)
    share = header.length[beat_log2:][:beat_bits]
    stride = handle.stride[beat_log2:][:beat_bits]
    count = handle.count[:beat_bits]
    member = header.member[:3]
    members = Signal(MEMBERS_BITS, name="product_members")
    factor = Signal(beat_bits, name="product_factor")
    m.d.comb += [
        members.eq(Mux(header.members == 0, 1, header.members)),
        factor.eq(Mux(header.opcode == Opcode.READ, count, members)),
        result.total.eq(share * factor),
        result.span.eq((count - 1)[:beat_bits] * stride + share),
        result.before.eq(share * member),
        result.behind.eq(share * (members - 1 - member)[:3]),
    ]


class RequestCheck(wiring.Component):
    """`models.spec.requests.check_request` as logic: `status` of a header, `by_handle` whether it names its block by
    handle. `products` are those of the same header.

    Used by: Port.
    """

    def __init__(self, config: NodeConfig, port: int):
        self.config, self.port = config, port
        super().__init__(
            {
                "header": In(REQUEST_STRUCT),
                "products": In(Products(config)),
                "has_payload": In(1),
                "boot_epoch": In(config.boot_epoch_bits),
                "status": Out(STATUS_BITS),
                "by_handle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, header, products = self.config, self.header, self.products
        own = config.partition_of_port[self.port]
        opcode, flags, session = header.opcode, header.flags, header.session
        by_handle_flag, lease_flag, private_flag = (
            (flags & int(flag)) != 0 for flag in (Flag.BY_HANDLE, Flag.LEASE, Flag.PRIVATE)
        )
        only, either = one_of(opcode, BY_HANDLE_ONLY), one_of(opcode, BY_EITHER)
        m.d.comb += self.by_handle.eq(only | by_handle_flag)

        beat_log2 = config.beat_bytes.bit_length() - 1
        aligned, length, at_start = header.length[:beat_log2] == 0, header.length, header.offset == 0
        number_bits = config.session_bits + config.session_generation_bits
        digest_rest = header.digest[config.digest_bits :] if config.digest_bits < 256 else Const(0, 1)
        handle = data.View(HANDLE_STRUCT, header.digest)
        with_ports = one_of(opcode, WITH_PORTS)

        used = Signal()
        m.d.comb += used.eq(1)
        with m.Switch(opcode):
            for code in Opcode:
                rest = [name for name in OPTIONAL_FIELDS if name not in USED_FIELDS[code]]
                with m.Case(code):
                    m.d.comb += used.eq(Cat(header[name] for name in rest) == 0)
        form = Signal()
        m.d.comb += form.eq(
            (header.version == VERSION)
            & one_of(opcode, list(Opcode))
            & (header.model_id < config.models)
            & (header.klass < 4)
            & used
            & (one_of(opcode, WITH_PAYLOAD) == self.has_payload)
            & (header.offset[:beat_log2] == 0)
            & (header.offset < config.block_bytes)
            & (header.member < MAX_MEMBERS)
        )
        flagged = Signal()
        m.d.comb += flagged.eq(
            ((flags & ~int(Flag.BY_HANDLE | Flag.LEASE | Flag.PRIVATE) & 0xFF) == 0)
            & (~by_handle_flag | (~private_flag & (only | either)))
            & (~lease_flag | one_of(opcode, WITH_LEASE))
            & (~private_flag | (one_of(opcode, BY_KEY) & (session != 0)))
        )
        sessions = Signal()
        m.d.comb += sessions.eq(
            Mux(
                session != 0,
                session[-1] & (session[number_bits:-1] == 0),
                ~one_of(opcode, OF_SESSION) & (header.session_epoch == 0) & (header.sequence == 0),
            )
        )

        # The `digest` field: a handle, with parts that only some opcodes use, a mask of ports, or a digest.
        runs = (
            (handle.stride[:beat_log2] == 0)
            & (length != 0)
            & (length <= config.block_bytes)
            & (handle.count <= config.block_beats)
            & (handle.stride <= config.block_bytes)
            & (products.total <= config.block_beats)
            & (products.span <= config.block_beats)
        )
        one_run = (handle.stride == 0) & (handle.count == 0)
        fits_handle = (
            (handle.zero == 0)
            & ((handle.crc == 0) | (opcode == Opcode.PUT_END))
            & Mux((opcode == Opcode.READ) & (handle.count != 0), runs, one_run)
        )
        digest = Signal()
        m.d.comb += digest.eq(
            Mux(self.by_handle, fits_handle, Mux(with_ports, header.digest[32:] == 0, digest_rest == 0))
        )

        payload_fits = (length != 0) & (length <= config.max_payload_bytes)
        shares = (
            aligned
            & (length != 0)
            & (length <= config.block_bytes)
            & (header.members <= MAX_MEMBERS)
            & (header.member < Mux(header.members == 0, 1, header.members))
            & (products.total <= config.block_beats)
        )
        shape = Signal()
        with m.Switch(opcode):
            with m.Case(Opcode.READ):
                m.d.comb += shape.eq(aligned & (length <= config.block_bytes))
            with m.Case(Opcode.WRITE):
                m.d.comb += shape.eq(aligned & payload_fits)
            with m.Case(Opcode.PUT_START):
                m.d.comb += shape.eq(at_start & shares)
            with m.Case(Opcode.PUT_END):
                alone = (length == 0) & (header.member == 0)
                m.d.comb += shape.eq(at_start & Mux(header.members <= 1, alone, shares))
            with m.Case(Opcode.MATCH):
                m.d.comb += shape.eq(at_start & (length[:5] == 0) & payload_fits & (header.digest == 0))
            with m.Default():
                no_digest = header.digest == 0
                m.d.comb += shape.eq(
                    at_start & (length == 0) & (no_digest | one_of(opcode, BY_KEY) | self.by_handle | with_ports)
                )

        denied = Signal()
        m.d.comb += denied.eq(header.partition != own)
        slots = Array(partition.slots for partition in config.partitions)[header.partition]
        if config.public_partition is not None:
            readable = (
                (header.partition == config.public_partition)
                & one_of(opcode, PUBLIC_OPCODES)
                & (session == 0)
                & ~lease_flag
            )
            with m.If(readable):
                m.d.comb += denied.eq(0)
        else:
            slots = config.partitions[own].slots
        valid_handle = (
            (handle.boot_epoch == self.boot_epoch)
            & (handle.slot < slots)
            & (handle.generation[config.generation_bits :] == 0)
        )
        with m.If(~(form & flagged & sessions & digest & shape)):
            m.d.comb += self.status.eq(Status.BAD_REQUEST)
        with m.Elif(denied | with_ports & ((header.digest[:32] & ~config.port_masks[own]) != 0)):
            m.d.comb += self.status.eq(Status.DENIED)
        with m.Elif(self.by_handle & ~valid_handle):
            m.d.comb += self.status.eq(Status.STALE_HANDLE)
        return m
