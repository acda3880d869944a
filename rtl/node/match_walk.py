"""The digests of a MATCH on their way to the directory: one in each turn, until one misses."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Status
from kvnode.models.spec.messages import DIGEST_BYTES

from ..layouts import STATUS_BITS, Shapes, index_bits
from ..ownership import By, Owned


class MatchWalk(wiring.Component):
    """Takes the payload of one MATCH at a time.

    Ports: while `active`, `payload` is the message's payload and `expected` the number of digests announced. `ask`
    offers `digest` for a lookup (`first` for the first of the message) until `taken`; `returned` with `status` gives
    the answers in their order, and `counts` says that this one is a leading hit. `over` says that the payload has ended
    and every lookup has come back: then `hits` is the number of leading hits, `first_status` the first answer, and
    `wrong` says that the payload is not as announced. `clear` makes ready for the next message.

    A digest behind a miss, or beyond those announced, is dropped unasked. In narrow ports a digest takes several beats;
    in wide ones a beat holds two, and the last may be padding.

    Used by: Port.
    """

    OWNERSHIP = (Owned("*", By.PORT),)

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        count_bits = self.shapes.count_bits
        super().__init__(
            {
                "active": In(1),
                "payload": In(stream.Signature(self.shapes.beat)),
                "expected": In(count_bits),
                "ask": Out(1),
                "digest": Out(config.digest_bits),
                "first": Out(1),
                "taken": In(1),
                "returned": In(1),
                "status": In(STATUS_BITS),
                "counts": Out(1),
                "over": Out(1),
                "first_status": Out(STATUS_BITS),
                "hits": Out(count_bits),
                "wrong": Out(1),
                "clear": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, count_bits, data_bits = self.config, self.shapes.count_bits, self.shapes.data_bits
        payload, digest_bits = self.payload, 8 * DIGEST_BYTES
        beats_per_digest = max(1, DIGEST_BYTES // config.beat_bytes)
        digests_per_beat = max(1, config.beat_bytes // DIGEST_BYTES)

        # A staged beat; in narrow ports, the beats of one digest.
        staged = Signal(max(digest_bits, data_bits))
        staged_count = Signal(range(digests_per_beat + 1))
        staged_beats = Signal(index_bits(beats_per_digest))
        ended = Signal()
        torn = Signal()
        arrives = payload.valid & payload.ready
        m.d.comb += payload.ready.eq(self.active & (staged_count == 0) & ~ended)
        with m.If(arrives):
            m.d.sync += ended.eq(payload.p.last)
            if beats_per_digest == 1:
                m.d.sync += [staged.eq(payload.p.data), staged_count.eq(digests_per_beat)]
            else:
                m.d.sync += [staged.eq(Cat(staged[data_bits:], payload.p.data)), staged_beats.eq(staged_beats + 1)]
                with m.If(staged_beats == beats_per_digest - 1):
                    m.d.sync += staged_count.eq(1)
                with m.Elif(payload.p.last):
                    m.d.sync += torn.eq(1)

        arrived = Signal(count_bits + 1)
        issued = Signal(count_bits)
        back = Signal(count_bits)
        missed = Signal()
        surplus = missed | (arrived >= self.expected)
        here = self.active & (staged_count != 0)
        m.d.comb += [
            self.ask.eq(here & ~surplus),
            self.digest.eq(staged),
            self.first.eq(issued == 0),
            self.over.eq(self.active & ended & (staged_count == 0) & (back == issued)),
        ]
        m.d.sync += [issued.eq(issued + self.taken), back.eq(back + self.returned)]
        with m.If(self.taken | here & surplus):
            m.d.sync += [staged.eq(staged >> digest_bits), staged_count.eq(staged_count - 1)]
            with m.If(~arrived.all()):
                m.d.sync += arrived.eq(arrived + 1)
            if config.digest_bits < digest_bits:
                with m.If((staged[config.digest_bits : digest_bits] != 0) & (arrived < self.expected)):
                    m.d.sync += torn.eq(1)
        hit = self.status == Status.HIT
        m.d.comb += self.counts.eq(self.returned & hit & ~missed)
        with m.If(self.returned & ~hit):
            m.d.sync += missed.eq(1)
        with m.If(self.returned & (back == 0)):
            m.d.sync += self.first_status.eq(self.status)
        m.d.sync += self.hits.eq(self.hits + self.counts)

        padding = digests_per_beat - 1
        m.d.comb += self.wrong.eq((arrived < self.expected) | (arrived > self.expected + padding) | torn)
        with m.If(self.clear):
            m.d.sync += [staged_count.eq(0), staged_beats.eq(0), ended.eq(0), torn.eq(0), missed.eq(0)]
            m.d.sync += [arrived.eq(0), issued.eq(0), back.eq(0), self.hits.eq(0)]
        return m
