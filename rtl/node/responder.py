"""The response stream of a port: answers in the order of the messages, and the bytes of reads behind their headers."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.messages import VERSION
from kvnode.models.spec.timing import data_fifo_depth

from ..layouts import RESPONSE_STRUCT, STATUS_BITS, Shapes, index_bits
from ..ownership import By, Owned
from ..stream import Queue

#: Answers that wait for their turn on the response stream; the port keeps a place for each before it issues the
#: operation.
DEPTH = 16


def answer_layout(shapes: Shapes) -> data.StructLayout:
    """An answer in beats. `write`: to a WRITE; `waits`: for its LAND, whose answer replaces this one's status; `data`:
    a read.
    """
    return data.StructLayout(
        {
            "status": STATUS_BITS,
            "opcode": 8,
            "tag": 16,
            "count": shapes.count_bits,
            "slot": shapes.slot_bits,
            "generation": shapes.config.generation_bits,
            "length": shapes.beat_bits,
            "watermark": shapes.beat_bits,
            "write": 1,
            "waits": 1,
            "data": 1,
        }
    )


def landed_layout(shapes: Shapes) -> data.StructLayout:
    """The answer of a LAND."""
    return data.StructLayout({"status": STATUS_BITS, "found": 1, "watermark": shapes.beat_bits})


class Responder(wiring.Component):
    """Queues answers and sends each as a header, a READ's `length` beats right behind it.

    Ports: `answer` and `landed` are entered with their valids and never refused: the port keeps at most DEPTH answers
    outstanding. `left` marks an answer that goes out. `write_in` marks a WRITE message whose last beat is in: a refused
    WRITE is not answered before. `issue` takes a credit for a beat that the store was asked for, `credit` says that
    there is one; `data_valid`, `data` bring the beat. `rsp` is the response stream.

    Used by: Port.
    """

    OWNERSHIP = (Owned("*", By.PORT),)

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        super().__init__(
            {
                "boot_epoch": In(config.boot_epoch_bits),
                "answer_valid": In(1),
                "answer": In(answer_layout(self.shapes)),
                "left": Out(1),
                "landed_valid": In(1),
                "landed": In(landed_layout(self.shapes)),
                "write_in": In(1),
                "issue": In(1),
                "credit": Out(1),
                "data_valid": In(1),
                "data": In(self.shapes.data_bits),
                "rsp": Out(stream.Signature(self.shapes.beat)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, shapes, rsp = self.config, self.shapes, self.rsp
        data_bits, beat_log2 = shapes.data_bits, config.beat_bytes.bit_length() - 1
        m.submodules.answers = answers = Queue(answer_layout(shapes), DEPTH)
        m.submodules.landings = landings = Queue(landed_layout(shapes), DEPTH)
        m.submodules.beats = beats = Queue(data_bits, data_fifo_depth(config.ports))
        credits = Signal(range(beats.depth + 1), init=beats.depth)
        # Those answered later, and one whose body came in before there was a place for its answer.
        writes_in = Signal(range(DEPTH + 2))
        out, land = answers.o, landings.o
        m.d.comb += [
            answers.i.valid.eq(self.answer_valid),
            answers.i.p.eq(self.answer),
            landings.i.valid.eq(self.landed_valid),
            landings.i.p.eq(self.landed),
            beats.i.valid.eq(self.data_valid),
            beats.i.p.eq(self.data),
            self.credit.eq(credits != 0),
            self.left.eq(out.valid & out.ready),
        ]
        m.d.sync += [
            credits.eq(credits - self.issue + (beats.o.valid & beats.o.ready)),
            writes_in.eq(writes_in + self.write_in - (self.left & out.p.write)),
        ]

        response = Signal(RESPONSE_STRUCT)
        found = ~out.p.waits | land.p.found
        watermark = Mux(out.p.waits, land.p.watermark, out.p.watermark)
        m.d.comb += [
            response.status.eq(Mux(out.p.waits, land.p.status, out.p.status)),
            response.opcode.eq(out.p.opcode),
            response.version.eq(VERSION),
            response.tag.eq(out.p.tag),
            response.count.eq(out.p.count),
            response.boot_epoch.eq(self.boot_epoch),
            response.slot.eq(Mux(found, out.p.slot, 0)),
            response.generation.eq(Mux(found, out.p.generation, 0)),
            response.length.eq(Mux(found, out.p.length, 0) << beat_log2),
            response.watermark.eq(Mux(found, watermark, 0) << beat_log2),
        ]

        # A header, and the beats of a read from their queue. What is not valid is zero: rule 4 of the isolation proofs.
        header_beats = config.response_beats
        header_beat = Signal(index_bits(header_beats))
        in_data = Signal()
        remaining = Signal(shapes.beat_bits)
        padded = Cat(response.as_value(), Const(0, header_beats * data_bits - RESPONSE_STRUCT.size + 1))
        with m.If(in_data):
            m.d.comb += [
                rsp.valid.eq(beats.o.valid),
                rsp.p.last.eq(rsp.valid & (remaining == 1)),
                beats.o.ready.eq(rsp.ready),
            ]
            with m.If(rsp.valid):
                m.d.comb += rsp.p.data.eq(beats.o.p)
            with m.If(rsp.valid & rsp.ready):
                m.d.sync += [remaining.eq(remaining - 1), in_data.eq(remaining != 1)]
        with m.Else():
            final = header_beat == header_beats - 1
            ready_to_go = (~out.p.write | (writes_in != 0)) & (~out.p.waits | land.valid)
            m.d.comb += [rsp.valid.eq(out.valid & ready_to_go), rsp.p.last.eq(rsp.valid & final & ~out.p.data)]
            with m.If(rsp.valid):
                m.d.comb += rsp.p.data.eq(padded.word_select(header_beat, data_bits))
            with m.If(rsp.valid & rsp.ready):
                m.d.sync += header_beat.eq(Mux(final, 0, header_beat + 1))
                with m.If(final):
                    m.d.comb += [out.ready.eq(1), land.ready.eq(out.p.waits)]
                    m.d.sync += [in_data.eq(out.p.data), remaining.eq(out.p.length)]
        return m
