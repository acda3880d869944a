"""What a port refuses before the directory sees it: `models.spec.requests.check_request` as logic."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import SUPPORTED_OPCODES, Flag, Opcode, Status
from kvnode.models.spec.messages import HANDLE, VERSION
from kvnode.models.spec.requests import BY_EITHER, BY_HANDLE_ONLY, WITH_PAYLOAD

from ..layouts import REQUEST_STRUCT, STATUS_BITS, one_of, struct

HANDLE_STRUCT = struct(HANDLE)


class RequestCheck(wiring.Component):
    """`models.spec.requests.check_request` as logic: `status` of a header, `by_handle` whether it names its block by
    handle.

    Used by: Port.
    """

    def __init__(self, config: NodeConfig, port: int):
        self.config, self.port = config, port
        super().__init__(
            {
                "header": In(REQUEST_STRUCT),
                "has_payload": In(1),
                "boot_epoch": In(config.boot_epoch_bits),
                "status": Out(STATUS_BITS),
                "by_handle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, header = self.config, self.header
        partition_number = config.partition_of_port[self.port]
        partition = config.partitions[partition_number]

        beat_log2 = config.beat_bytes.bit_length() - 1
        flagged = header.flags[0]
        only, either = one_of(header.opcode, BY_HANDLE_ONLY), one_of(header.opcode, BY_EITHER)
        unused = ("member", "ttl", "deadline", "reserved", "session_epoch", "session", "sequence")
        aligned, length = header.length[:beat_log2] == 0, header.length
        digest_rest = header.digest[config.digest_bits :] if config.digest_bits < 256 else Const(0, 1)
        form = Signal()
        m.d.comb += [
            self.by_handle.eq(only | flagged),
            form.eq(
                (header.version == VERSION)
                & one_of(header.opcode, SUPPORTED_OPCODES)
                & (header.model_id < config.models)
                & (header.klass < 4)
                & ((header.flags & ~int(Flag.BY_HANDLE) & 0xFF) == 0)
                & (~flagged | only | either)
                & (Cat(header[name] for name in unused) == 0)
                & (one_of(header.opcode, WITH_PAYLOAD) == self.has_payload)
                & (header.offset[:beat_log2] == 0)
                & (header.offset < config.block_bytes)
                & (Mux(self.by_handle, header.digest[96:], digest_rest) == 0)
            ),
        ]
        at_start, fits = header.offset == 0, length <= config.block_bytes
        payload_fits = (length != 0) & (length <= config.max_payload_bytes)
        shape = Signal()
        with m.Switch(header.opcode):
            with m.Case(Opcode.MATCH):
                m.d.comb += shape.eq(at_start & (length[:5] == 0) & payload_fits & (header.digest == 0))
            with m.Case(Opcode.PUT_START):
                m.d.comb += shape.eq(at_start & aligned & (length != 0) & fits)
            with m.Case(Opcode.WRITE):
                m.d.comb += shape.eq(aligned & payload_fits)
            with m.Case(Opcode.READ):
                m.d.comb += shape.eq(aligned & fits)
            with m.Default():
                m.d.comb += shape.eq(at_start & (length == 0))
        handle = data.View(HANDLE_STRUCT, header.digest)
        valid_handle = (
            (handle.boot_epoch == self.boot_epoch)
            & (handle.slot < partition.slots)
            & ((handle.generation >> config.generation_bits) == 0)
        )
        with m.If(~(form & shape)):
            m.d.comb += self.status.eq(Status.BAD_REQUEST)
        with m.Elif(header.partition != partition_number):
            m.d.comb += self.status.eq(Status.DENIED)
        with m.Elif(self.by_handle & ~valid_handle):
            m.d.comb += self.status.eq(Status.STALE_HANDLE)
        return m
