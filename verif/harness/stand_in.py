"""A stand-in for the node, for tests of the harness: its ports, echoes in place of a directory, and faults on request.

A request is answered with its opcode and tag. `ttl` is the status to answer, after the first `member` sendings were
answered NOT_READY; `deadline` are the flags to answer, `members` is the fault. What arrived is told by `count` (beats
of the request), `slot` (digest bytes 0-3 plus the register BIAS), `generation` (4-7), `watermark` (8-11) and `crc`
(exclusive or of the payload's 32-bit words), and by the trace record that each request gives, with its port, opcode,
tag (as `slot`), session and digest. READ, and MATCH with ResponseFlag.LEASED, are followed by `length` bytes: 32-bit
words that count from `sequence`. `group` is a mask of ports that get a wake when the request is traced: between the
requests and the answers of a port, and before the answer that is next. A fault of the message breaks the wake instead
if there is one. Only in cycles with rsp_ready is a request accepted, so that one output depends on an input of the same
cycle.

The register DOWN is a mask of ports held in reset: what they answered is cut off, and requests are swallowed. A write
of TWICE is answered twice; other addresses than these (Register) are answered SLVERR.

Used by: test_harness.
"""

import enum

from amaranth.back import verilog as backend
from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Opcode, ResponseFlag, Status
from kvnode.models.spec.layout import Layout
from kvnode.models.spec.messages import REQUEST, RESPONSE, TRACE
from kvnode.rtl.csr.bank import BUS

from .contract import Bus

#: What a wake says in the fields that nobody may look at.
WAKE_TAG = 0xABCD


class Fault(enum.IntEnum):
    NONE = 0
    WITHDRAW = 1
    UNSTABLE = 2
    SHORT = 3
    LONG = 4
    WRONG_TAG = 5
    SILENT = 6
    TWICE = 7
    EARLY = 8


class Register(enum.IntEnum):
    BIAS = 0
    DOWN = 4
    TWICE = 8


def field(layout: Layout, word, name: str):
    place = layout.fields[name]
    return word[place.offset_bits : place.offset_bits + place.size_bits]


def pack(layout: Layout, **values):
    """One word of the layout; fields not named are zero."""
    word = []
    for f in layout.fields.values():
        value = values.get(f.name, 0)
        value = Const(value, f.size_bits) if isinstance(value, int) else value
        word.append(Cat(value, Const(0, f.size_bits))[: f.size_bits])
    return Cat(word)


class StandIn(wiring.Component):
    """The ports of `kvnode_node`."""

    def __init__(self, config: NodeConfig):
        self.config = config
        bits = 8 * config.beat_bytes
        members = {
            "boot_epoch": In(config.boot_epoch_bits),
            "ports_down": Out(config.ports),
            "trace_valid": Out(1),
            "trace_data": Out(8 * TRACE.size_bytes),
        }
        members |= {f"axi_{name}": (Out if driven else In)(width) for name, width, driven in BUS}
        for p in range(config.ports):
            for kind, flow, back in (("req", In, Out), ("rsp", Out, In)):
                members |= {f"p{p}_{kind}_valid": flow(1), f"p{p}_{kind}_ready": back(1)}
                members |= {f"p{p}_{kind}_data": flow(bits), f"p{p}_{kind}_last": flow(1)}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        bias, cycle, order = Signal(32), Signal(64), Signal(64)
        m.d.sync += cycle.eq(cycle + 1)
        self._registers(m, bias)

        ports = range(self.config.ports)
        asks = [Signal(name=f"asks{p}") for p in ports]
        grants = [Signal(name=f"grants{p}") for p in ports]
        woken = [Signal(name=f"woken{p}") for p in ports]
        headers = Array(self._port(m, p, asks[p], grants[p], woken[p], bias) for p in ports)
        owner = Signal(range(self.config.ports))
        for p in reversed(ports):
            with m.If(asks[p]):
                m.d.comb += owner.eq(p)
        header = Signal(8 * REQUEST.size_bytes)
        told = {name: field(REQUEST, header, name) for name in ("session", "session_epoch", "digest")}
        opcode, tag = field(REQUEST, header, "opcode"), field(REQUEST, header, "tag")
        m.d.comb += [
            header.eq(headers[owner]),
            self.trace_valid.eq(Cat(asks).any()),
            self.trace_data.eq(pack(TRACE, order=order, cycle=cycle, owner=owner, kind=opcode, slot=tag, **told)),
        ]
        for p in ports:
            m.d.comb += grants[p].eq(asks[p] & (owner == p))
            m.d.comb += woken[p].eq(self.trace_valid & field(REQUEST, header, "group")[p])
        with m.If(self.trace_valid):
            m.d.sync += order.eq(order + 1)
        return m

    def _registers(self, m, bias):
        """Each channel has its turn in one of four cycles, so that address and data are taken in any order."""
        turn = Signal(2)
        address, data, address_held, data_held, again = Signal(16), Signal(32), Signal(), Signal(), Signal()
        m.d.sync += turn.eq(turn + 1)
        m.d.comb += [
            self.axi_awready.eq(~address_held & (turn == 3)),
            self.axi_wready.eq(~data_held & (turn == 1)),
            self.axi_arready.eq(turn == 2),
        ]
        with m.If(self.axi_awvalid & self.axi_awready):
            m.d.sync += [address.eq(self.axi_awaddr), address_held.eq(1)]
        with m.If(self.axi_wvalid & self.axi_wready):
            m.d.sync += [data.eq(self.axi_wdata), data_held.eq(self.axi_wstrb.all())]
        with m.If(self.axi_bvalid & self.axi_bready):
            m.d.sync += [self.axi_bvalid.eq(again), again.eq(0)]
        with m.If(address_held & data_held):
            m.d.sync += [address_held.eq(0), data_held.eq(0), self.axi_bvalid.eq(1), self.axi_bresp.eq(Bus.OKAY)]
            with m.Switch(address):
                with m.Case(Register.BIAS):
                    m.d.sync += bias.eq(data)
                with m.Case(Register.DOWN):
                    m.d.sync += self.ports_down.eq(data)
                with m.Case(Register.TWICE):
                    m.d.sync += again.eq(1)
                with m.Default():
                    m.d.sync += self.axi_bresp.eq(Bus.SLVERR)
        with m.If(self.axi_rvalid & self.axi_rready):
            m.d.sync += self.axi_rvalid.eq(0)
        with m.If(self.axi_arvalid & self.axi_arready):
            m.d.sync += [self.axi_rvalid.eq(1), self.axi_rresp.eq(Bus.OKAY), self.axi_rdata.eq(0)]
            with m.Switch(self.axi_araddr):
                with m.Case(Register.BIAS):
                    m.d.sync += self.axi_rdata.eq(bias)
                with m.Case(Register.DOWN):
                    m.d.sync += self.axi_rdata.eq(self.ports_down)
                with m.Default():
                    m.d.sync += self.axi_rresp.eq(Bus.SLVERR)

    def _port(self, parent, p, ask, grant, woken, bias):
        """One port; its header. It asks to be traced when the request is complete, and answers after that."""
        m = Module()
        parent.submodules[f"port{p}"] = ResetInserter(self.ports_down[p])(m)
        req_valid, req_ready, req_data, req_last, rsp_valid, rsp_ready, rsp_data, rsp_last = (
            getattr(self, f"p{p}_{kind}_{name}")
            for kind in ("req", "rsp")
            for name in ("valid", "ready", "data", "last")
        )
        config, beat_bits = self.config, 8 * self.config.beat_bytes
        words, beat_log2 = beat_bits // 32, exact_log2(config.beat_bytes)
        header = Signal(8 * REQUEST.size_bytes, name=f"header{p}")
        beat, beats, checksum = Signal(16, name=f"beat{p}"), Signal(16, name=f"beats{p}"), Signal(32, name=f"sum{p}")
        stalled, again, refusals = Signal(name=f"stalled{p}"), Signal(name=f"again{p}"), Signal(8, name=f"refusals{p}")
        h = {name: field(REQUEST, header, name) for name in REQUEST.fields}
        fault, digest = h["members"], h["digest"]

        def message(name, **values):
            word = Signal(8 * config.beat_bytes * config.response_beats, name=f"{name}{p}")
            m.d.comb += word.eq(pack(RESPONSE, **values))
            return word

        refused = refusals < h["member"]
        leased_match = (h["opcode"] == Opcode.MATCH) & (h["deadline"] & ResponseFlag.LEASED).any()
        length = Mux(((h["opcode"] == Opcode.READ) | leased_match) & ~refused, h["length"], 0)
        response = message(
            "response", status=Mux(refused, Status.NOT_READY, h["ttl"]), opcode=h["opcode"], flags=h["deadline"],
            tag=h["tag"] + (fault == Fault.WRONG_TAG), count=beats, boot_epoch=self.boot_epoch,
            slot=(digest[:32] + bias)[:32], generation=digest[32:64], watermark=digest[64:96], length=length,
            crc=checksum,
        )  # fmt: skip
        body = Cat((h["sequence"] + (beat - config.response_beats) * words + j)[:32] for j in range(words))
        final = config.response_beats + (length + config.beat_bytes - 1 >> beat_log2) - 1

        def offer(data, beat, final):
            m.d.comb += [
                rsp_valid.eq(~(stalled & (fault == Fault.WITHDRAW))),
                rsp_data.eq(data ^ (stalled & (fault == Fault.UNSTABLE))),
                rsp_last.eq((beat == Mux(fault == Fault.SHORT, 0, final)) & (fault != Fault.LONG)),
            ]

        between, waking, wakes = Signal(name=f"between{p}"), Signal(name=f"waking{p}"), Signal(8, name=f"wakes{p}")
        wake_beat, wake_ends = Signal(2, name=f"wake_beat{p}"), Signal(name=f"wake_ends{p}")
        wake = message("wake", status=Status.BUSY, opcode=Opcode.READ, flags=ResponseFlag.WAKE, tag=WAKE_TAG,
                       length=4096)  # fmt: skip
        m.d.sync += [stalled.eq(rsp_valid & ~rsp_ready), wakes.eq(wakes + woken - wake_ends)]

        with m.FSM(name=f"port{p}"):
            with m.State("RECEIVE"):
                m.d.comb += [between.eq(fault != Fault.EARLY), req_ready.eq(rsp_ready)]
                m.d.comb += rsp_valid.eq((fault == Fault.EARLY) & (beat == config.request_beats))
                with m.If(req_valid & req_ready):
                    m.d.sync += beat.eq(beat + 1)
                    with m.If(beat < config.request_beats):
                        m.d.sync += header.word_select(beat, beat_bits).eq(req_data)
                    with m.Else():
                        mixed = checksum
                        for j in range(words):
                            mixed = mixed ^ req_data.word_select(j, 32)
                        m.d.sync += checksum.eq(mixed)
                    with m.If(req_last):
                        m.d.sync += beats.eq(beat + 1)
                        m.next = "TRACE"
            with m.State("TRACE"):
                m.d.comb += [between.eq(1), ask.eq(1)]
                m.d.sync += beat.eq(0)
                with m.If(grant):
                    m.next = "ANSWER"
                    with m.If(woken):
                        m.next = "WAKE"
                    with m.If(fault == Fault.SILENT):
                        m.next = "RECEIVE"
            with m.State("WAKE"):
                m.d.comb += between.eq(1)
                with m.If(wake_ends):
                    m.next = "ANSWER"
            with m.State("ANSWER"):
                with m.If(~waking):
                    word = Mux(beat < config.response_beats, response.word_select(beat, beat_bits), body)
                    offer(word, beat, final)
                    with m.If(rsp_valid & rsp_ready):
                        m.d.sync += beat.eq(beat + 1)
                        with m.If(beat == final):
                            m.d.sync += [beat.eq(0), checksum.eq(0), again.eq(~again & (fault == Fault.TWICE))]
                            m.d.sync += refusals.eq(Mux(refused, refusals + 1, 0))
                            with m.If(again | (fault != Fault.TWICE)):
                                m.next = "RECEIVE"
        with m.If(waking | between & wakes.any()):
            offer(wake.word_select(wake_beat, beat_bits), wake_beat, config.response_beats - 1)
            m.d.sync += waking.eq(1)
            with m.If(rsp_valid & rsp_ready):
                m.d.sync += wake_beat.eq(wake_beat + 1)
                with m.If(wake_beat == config.response_beats - 1):
                    m.d.comb += wake_ends.eq(1)
                    m.d.sync += [waking.eq(0), wake_beat.eq(0)]
        return header


def verilog(config: NodeConfig, extra: str = "") -> str:
    """Verilog of the stand-in, with the lines of `extra` put into its top module."""
    text = backend.convert(StandIn(config), name="kvnode_node", strip_internal_attrs=True)
    before, top, after = text.partition("module kvnode_node(")
    head, end, tail = after.partition("endmodule")
    return f"{before}{top}{head}{extra}\n{end}{tail}"
