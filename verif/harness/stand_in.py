"""A stand-in for the node, for tests of the harness: its ports, echoes in place of a directory, and faults on request.

A request is answered with its opcode and tag. `ttl` is the status to answer, `reserved` the fault. What arrived is told
by `count` (beats of the request), `slot` (digest bytes 0-3 plus register 0), `generation` (4-7), `watermark` (8-11) and
`crc` (exclusive or of the payload's 32-bit words). READ is followed by `length` bytes: 32-bit words that count from
`sequence`. Each request gives a trace record with its port, opcode and tag (as `slot`). Only in cycles with rsp_ready
is a request accepted, so that one output depends on an input of the same cycle.

Used by: test_harness.
"""

import enum

from amaranth.back import verilog as backend
from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Opcode
from kvnode.models.spec.layout import Layout
from kvnode.models.spec.messages import REQUEST, RESPONSE, TRACE


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


def field(layout: Layout, word, name: str):
    place = layout.fields[name]
    return word[place.offset_bits : place.offset_bits + place.size_bits]


def pack(layout: Layout, **values):
    """One word of the layout; fields not named are zero."""
    return Cat(Cat(values.get(f.name, Const(0, 1)), Const(0, 64))[: f.size_bits] if f.size_bits <= 64 else
               Const(0, f.size_bits) for f in layout.fields.values())  # fmt: skip


class StandIn(wiring.Component):
    """The ports of `kvnode_node`."""

    def __init__(self, config: NodeConfig):
        self.config = config
        bits = 8 * config.beat_bytes
        members = {
            "boot_epoch": In(config.boot_epoch_bits),
            "reg_valid": In(1),
            "reg_ready": Out(1),
            "reg_address": In(16),
            "reg_data": In(32),
            "trace_valid": Out(1),
            "trace_data": Out(8 * TRACE.size_bytes),
        }
        for p in range(config.ports):
            for kind, flow, back in (("req", In, Out), ("rsp", Out, In)):
                members |= {f"p{p}_{kind}_valid": flow(1), f"p{p}_{kind}_ready": back(1)}
                members |= {f"p{p}_{kind}_data": flow(bits), f"p{p}_{kind}_last": flow(1)}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        bias, turn, cycle, order = Signal(32), Signal(2), Signal(64), Signal(64)
        m.d.sync += [turn.eq(turn + 1), cycle.eq(cycle + 1)]
        m.d.comb += self.reg_ready.eq(turn == 3)
        with m.If(self.reg_valid & self.reg_ready & (self.reg_address == 0)):
            m.d.sync += bias.eq(self.reg_data)

        ports = range(self.config.ports)
        asks = [Signal(name=f"asks{p}") for p in ports]
        grants = [Signal(name=f"grants{p}") for p in ports]
        headers = Array(self._port(m, p, asks[p], grants[p], bias) for p in ports)
        owner = Signal(range(self.config.ports))
        for p in reversed(ports):
            with m.If(asks[p]):
                m.d.comb += owner.eq(p)
        for p in ports:
            m.d.comb += grants[p].eq(asks[p] & (owner == p))
        header = Signal(8 * REQUEST.size_bytes)
        opcode, tag = field(REQUEST, header, "opcode"), field(REQUEST, header, "tag")
        m.d.comb += [
            header.eq(headers[owner]),
            self.trace_valid.eq(Cat(asks).any()),
            self.trace_data.eq(pack(TRACE, order=order, cycle=cycle, owner=owner, kind=opcode, slot=tag)),
        ]
        with m.If(self.trace_valid):
            m.d.sync += order.eq(order + 1)
        return m

    def _port(self, m, p, ask, grant, bias):
        """One port; its header. It asks to be traced when the request is complete, and answers after that."""
        req_valid, req_ready, req_data, req_last, rsp_valid, rsp_ready, rsp_data, rsp_last = (
            getattr(self, f"p{p}_{kind}_{name}")
            for kind in ("req", "rsp")
            for name in ("valid", "ready", "data", "last")
        )
        config, beat_bits = self.config, 8 * self.config.beat_bytes
        words, beat_log2 = beat_bits // 32, exact_log2(config.beat_bytes)
        header = Signal(8 * REQUEST.size_bytes, name=f"header{p}")
        beat, beats, checksum = Signal(16, name=f"beat{p}"), Signal(16, name=f"beats{p}"), Signal(32, name=f"sum{p}")
        stalled, again = Signal(name=f"stalled{p}"), Signal(name=f"again{p}")
        h = {name: field(REQUEST, header, name) for name in REQUEST.fields}
        fault, digest = h["reserved"], h["digest"]

        response = Signal(8 * config.beat_bytes * config.response_beats, name=f"response{p}")
        is_read = h["opcode"] == Opcode.READ
        length = Mux(is_read, h["length"], 0)
        m.d.comb += response.eq(pack(
            RESPONSE, status=h["ttl"], opcode=h["opcode"], tag=h["tag"] + (fault == Fault.WRONG_TAG), count=beats,
            boot_epoch=self.boot_epoch, slot=(digest[:32] + bias)[:32], generation=digest[32:64],
            watermark=digest[64:96], length=length, crc=checksum,
        ))  # fmt: skip
        body = Cat((h["sequence"] + (beat - config.response_beats) * words + j)[:32] for j in range(words))
        final = config.response_beats + (length + config.beat_bytes - 1 >> beat_log2) - 1

        with m.FSM(name=f"port{p}"):
            with m.State("RECEIVE"):
                m.d.comb += req_ready.eq(rsp_ready)
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
                m.d.comb += ask.eq(1)
                m.d.sync += [beat.eq(0), stalled.eq(0)]
                with m.If(grant):
                    m.next = "ANSWER"
                    with m.If(fault == Fault.SILENT):
                        m.next = "RECEIVE"
            with m.State("ANSWER"):
                m.d.comb += [
                    rsp_valid.eq(~(stalled & (fault == Fault.WITHDRAW))),
                    rsp_data.eq(Mux(beat < config.response_beats, response.word_select(beat, beat_bits), body)
                                ^ (stalled & (fault == Fault.UNSTABLE))),
                    rsp_last.eq((beat == Mux(fault == Fault.SHORT, 0, final)) & (fault != Fault.LONG)),
                ]  # fmt: skip
                m.d.sync += stalled.eq(rsp_valid & ~rsp_ready)
                with m.If(rsp_valid & rsp_ready):
                    m.d.sync += beat.eq(beat + 1)
                    with m.If(beat == final):
                        m.d.sync += [beat.eq(0), checksum.eq(0), again.eq(~again & (fault == Fault.TWICE))]
                        with m.If(again | (fault != Fault.TWICE)):
                            m.next = "RECEIVE"
        return header


def verilog(config: NodeConfig, extra: str = "") -> str:
    """Verilog of the stand-in, with the lines of `extra` put into its top module."""
    text = backend.convert(StandIn(config), name="kvnode_node", strip_internal_attrs=True)
    head, _, tail = text.rpartition("endmodule")
    return f"{head}{extra}\nendmodule{tail}"
