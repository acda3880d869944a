"""The response stream of a port: answers in the order of the messages, and the bytes of reads behind their headers."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import ResponseFlag
from kvnode.models.spec.messages import HANDLE, VERSION
from kvnode.models.spec.timing import ANSWERS, data_fifo_depth

from ..layouts import CRC_BITS, NUMBER_BITS, RESPONSE_STRUCT, STATUS_BITS, Shapes, index_bits, struct
from ..memory import Ram
from ..ownership import By, Owned
from ..stream import Queue


def answer_layout(shapes: Shapes) -> data.StructLayout:
    """An answer; `length` in beats, the rest as on the wire. `write`: to a WRITE; `waits`: for its LAND, whose answer
    replaces this one's status; `data`: a read; `handles`: a MATCH whose `count` handles follow.
    """
    return data.StructLayout(
        {
            "status": STATUS_BITS,
            "opcode": 8,
            "tag": 16,
            "count": shapes.count_bits,
            "slot": 32,
            "generation": 32,
            "length": shapes.beat_bits,
            "watermark": 32,
            "crc": CRC_BITS,
            "leased": 1,
            "write": 1,
            "waits": 1,
            "data": 1,
            "handles": 1,
        }
    )


def landed_layout(shapes: Shapes) -> data.StructLayout:
    """The answer of a LAND."""
    return data.StructLayout({"status": STATUS_BITS, "found": 1, "watermark": shapes.beat_bits})


def match_handle_layout(shapes: Shapes) -> data.StructLayout:
    """What is kept of a handle for the answer of a MATCH with leases."""
    return data.StructLayout(
        {"slot": shapes.slot_bits, "generation": shapes.config.generation_bits, "lease": NUMBER_BITS}
    )


class Responder(wiring.Component):
    """Queues answers and sends each as a header, a READ's `length` beats right behind it.

    Ports: `answer` and `landed` are entered with their valids and never refused: the port keeps at most ANSWERS answers
    outstanding. `left` marks an answer that goes out. `write_in` marks a WRITE message whose last beat is in: a refused
    WRITE is not answered before. `issue` takes a credit for a beat that the store was asked for, `credit` says that
    there is one; `data_valid`, `data` bring the beat. `rsp` is the response stream.

    `wake` asks for a message with ResponseFlag.WAKE, which goes out between two answers, as an answer that is ready
    goes between two of these. `handle` with `handle_valid` is one of the handles of the next MATCH whose answer says
    `handles`; `drop_handles` forgets them; `handles_idle` says that none is kept.

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
                "wake": In(1),
                "handle_valid": In(1),
                "handle": In(match_handle_layout(self.shapes)),
                "drop_handles": In(1),
                "handles_idle": Out(1),
                "rsp": Out(stream.Signature(self.shapes.beat)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, shapes, rsp = self.config, self.shapes, self.rsp
        data_bits, beat_log2 = shapes.data_bits, config.beat_bytes.bit_length() - 1
        m.submodules.answers = answers = Queue(answer_layout(shapes), ANSWERS)
        m.submodules.landings = landings = Queue(landed_layout(shapes), ANSWERS)
        m.submodules.beats = beats = Queue(data_bits, data_fifo_depth(config.ports))
        credits = Signal(range(beats.depth + 1), init=beats.depth)
        # Those answered later, and one whose body came in before there was a place for its answer.
        writes_in = Signal(range(ANSWERS + 2))
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
        watermark = Mux(out.p.waits, land.p.watermark << beat_log2, out.p.watermark)
        handle_bytes = out.p.count * HANDLE.size_bytes
        m.d.comb += [
            response.status.eq(Mux(out.p.waits, land.p.status, out.p.status)),
            response.opcode.eq(out.p.opcode),
            response.flags.eq(Mux(out.p.leased, ResponseFlag.LEASED, 0)),
            response.version.eq(VERSION),
            response.tag.eq(out.p.tag),
            response.count.eq(out.p.count),
            response.boot_epoch.eq(self.boot_epoch),
            response.slot.eq(Mux(found, out.p.slot, 0)),
            response.generation.eq(Mux(found, out.p.generation, 0)),
            response.length.eq(Mux(out.p.handles, handle_bytes, Mux(found, out.p.length, 0) << beat_log2)),
            response.watermark.eq(Mux(found, watermark, 0)),
            response.crc.eq(out.p.crc),
        ]
        # A message of its own for those that wait: whatever it was, ask again.
        woken = Signal(RESPONSE_STRUCT)
        m.d.comb += [
            woken.flags.eq(ResponseFlag.WAKE), woken.version.eq(VERSION), woken.boot_epoch.eq(self.boot_epoch),
        ]  # fmt: skip
        wake_pending = Signal()
        waking = Signal()

        # A header, and behind it the beats of a read from their queue, or handles. What is not valid is zero: rule 4
        # of the isolation proofs.
        header_beats = config.response_beats
        header_beat = Signal(index_bits(header_beats))
        in_data = Signal()
        in_handles = Signal()
        remaining = Signal(shapes.beat_bits)
        chosen = Mux(waking, woken.as_value(), response.as_value())
        padded = Cat(chosen, Const(0, header_beats * data_bits - RESPONSE_STRUCT.size + 1))
        handle_beat = self._handles(m, in_handles)
        moves = rsp.valid & rsp.ready
        answers_now = out.valid & (~out.p.write | (writes_in != 0)) & (~out.p.waits | land.valid)
        with m.If(in_data):
            m.d.comb += [
                rsp.valid.eq(beats.o.valid),
                rsp.p.last.eq(rsp.valid & (remaining == 1)),
                beats.o.ready.eq(rsp.ready),
            ]
            with m.If(rsp.valid):
                m.d.comb += rsp.p.data.eq(beats.o.p)
            with m.If(moves):
                m.d.sync += [remaining.eq(remaining - 1), in_data.eq(remaining != 1)]
        with m.Elif(in_handles):
            m.d.comb += [rsp.valid.eq(handle_beat.valid), rsp.p.last.eq(rsp.valid & handle_beat.last)]
            with m.If(rsp.valid):
                m.d.comb += rsp.p.data.eq(handle_beat.data)
            m.d.comb += handle_beat.ready.eq(rsp.ready)
            with m.If(moves & rsp.p.last):
                m.d.sync += in_handles.eq(0)
        with m.Else():
            final = header_beat == header_beats - 1
            follows = ~waking & (out.p.data | out.p.handles)
            m.d.comb += [
                rsp.valid.eq(waking | answers_now),
                rsp.p.last.eq(rsp.valid & final & ~follows),
            ]
            with m.If(rsp.valid):
                m.d.comb += rsp.p.data.eq(padded.word_select(header_beat, data_bits))
            with m.If(moves):
                m.d.sync += header_beat.eq(Mux(final, 0, header_beat + 1))
                with m.If(final & waking):
                    m.d.sync += waking.eq(0)
                with m.Elif(final):
                    m.d.comb += [out.ready.eq(1), land.ready.eq(out.p.waits)]
                    m.d.sync += [
                        in_data.eq(out.p.data),
                        in_handles.eq(out.p.handles),
                        remaining.eq(out.p.length),
                    ]
        # Between two messages: nothing is offered, or the last beat of one goes. An answer goes between two wakes.
        between = Mux(rsp.valid, rsp.ready & rsp.p.last, ~in_data & ~in_handles & (header_beat == 0))
        begins_wake = (wake_pending | self.wake) & between & ~(waking & answers_now)
        m.d.sync += wake_pending.eq((wake_pending | self.wake) & ~begins_wake)
        with m.If(begins_wake):
            m.d.sync += waking.eq(1)
        return m

    def _handles(self, m, wanted):
        """The handles of a MATCH from their memory, as beats; a struct with valid, ready, last, data."""
        config, shapes = self.config, self.shapes
        data_bits, handle_bits = shapes.data_bits, 8 * HANDLE.size_bytes
        layout = match_handle_layout(shapes)
        depth = config.max_match_digests
        m.submodules.handles = ram = Ram(layout.size, depth)
        written = Signal(range(depth + 1))
        taken = Signal(range(depth + 1))
        m.d.comb += [
            self.handles_idle.eq(written == 0),
            ram.write_enable.eq(self.handle_valid),
            ram.write_address.eq(written),
            ram.write_data.eq(self.handle),
            ram.read_address.eq(taken),
        ]
        kept = data.View(layout, ram.read_data)
        handle = Signal(struct(HANDLE))
        m.d.comb += [
            handle.slot.eq(kept.slot),
            handle.generation.eq(kept.generation),
            handle.boot_epoch.eq(self.boot_epoch),
            handle.lease.eq(kept.lease),
        ]
        per_beat, beats = max(1, data_bits // handle_bits), max(1, handle_bits // data_bits)
        staged = Signal(max(data_bits, handle_bits))
        filled = Signal(range(per_beat + 1))
        left = Signal(range(beats + 1))
        fetching = Signal()
        beat = Signal(data.StructLayout({"valid": 1, "ready": 1, "last": 1, "data": data_bits}))
        over = taken == written
        m.d.comb += [
            beat.valid.eq(wanted & (left != 0)),
            beat.last.eq(over & (left == 1)),
            beat.data.eq(staged),
        ]
        # One handle at a time: address, word, and its place in the beat.
        with m.If(wanted & (left == 0) & ~fetching):
            m.d.sync += fetching.eq(1)
        with m.If(fetching):
            m.d.sync += [fetching.eq(0), taken.eq(taken + 1), filled.eq(filled + 1)]
            if per_beat > 1:
                m.d.sync += staged.word_select(filled, handle_bits).eq(handle)
            else:
                m.d.sync += staged.eq(handle)
            with m.If((filled == per_beat - 1) | (taken + 1 == written)):
                m.d.sync += [left.eq(beats), filled.eq(0)]
        with m.If(beat.valid & beat.ready):
            m.d.sync += [left.eq(left - 1), staged.eq(staged >> data_bits)]
            with m.If(beat.last):
                m.d.sync += [written.eq(0), taken.eq(0)]
        with m.If(self.handle_valid):
            m.d.sync += written.eq(written + 1)
        with m.If(self.drop_handles):
            m.d.sync += written.eq(0)
        return beat
