"""Liveness with a bound: a port answers every message that it has taken, and how long that takes at most.

The proof is a ranking: for the oldest message that is in whole, the state of the port says how many cycles its answer
takes at most, and that number falls in every cycle. It is written down once for each place in which the message can be:
not yet given to the directory, in it, its answer in the queue (perhaps behind the landing of its payload), its bytes or
handles on their way.

Used by: block_claims.
"""

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data

from kvnode.models.spec.bounds import answer_bound_cycles, service
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Kind, Opcode, Status
from kvnode.models.spec.timing import (
    ANSWERS,
    CRC_LATENCY_CYCLES,
    CRC_SHIFT_CYCLES,
    DIRECTORY_LATENCY_CYCLES,
    RUNS,
    payload_fifo_depth,
)
from kvnode.rtl.layouts import REQUEST_STRUCT, Shapes, one_of
from kvnode.rtl.node.port import read_shape_layout
from kvnode.rtl.node.request_check import HANDLE_STRUCT, Products
from kvnode.rtl.node.transfer import read_run_layout

from .design import FREE
from .streams import READ_CYCLES, Ports


def total(values) -> Value:
    """The sum of some values."""
    result = 0
    for value in values:
        result = result + value
    return result


def is_answered(kind: Value) -> Value:
    """Whether an operation of this kind is answered by itself: MATCHes are together, and a LAND with its WRITE."""
    return ~one_of(kind, (Kind.MATCH, Kind.LAND))


class Answers(Ports):
    """Port `port` while its answers are taken as they come.

    The contract of the node, beside that of Ports: what a port offers is taken in its turn at the latest; turns and
    banks go round; a READ that is accepted has a block's beats at most, and one at least.
    """

    CUT = ("writer.lane",)
    DRIVEN = (*Ports.DRIVEN, "bank", "rsp")

    def __init__(self, config: NodeConfig, port: int):
        super().__init__(config, port)
        self.shapes, self.service = Shapes(config), service(config)
        self.known = False

    def number(self, m: Module, name: str, value: Value, width: int = 16) -> Signal:
        """A value with a name, as a number of cycles, beats or messages."""
        signal = Signal(width, name=name)
        m.d.comb += signal.eq(value)
        return signal

    def check(self, name: str, condition: Value) -> None:
        """What `Ports` shows is known here."""
        (super().check if self.known else self.assume)(name, condition)

    def cover(self, name: str, condition: Value) -> None:
        """`Ports` has its own."""
        if self.known:
            super().cover(name, condition)

    def describe(self, m: Module) -> None:
        super().describe(m)
        self.known = True
        config, port, of, bound = self.config, self.rtl, self.inner, self.service
        m.d.comb += port.rsp.ready.eq(1)

        # The node around it.
        turn, bank = Signal(range(config.ports + 1), attrs={FREE: 1}), Signal(len(port.bank), attrs={FREE: 1})
        m.d.sync += [turn.eq(Mux(turn == config.ports, 0, turn + 1)), bank.eq(bank + 1)]
        m.d.comb += port.bank.eq(bank)
        self.assume("turn", turn <= config.ports)
        self.assume("taken_in_turn", ~(port.valid & (turn == self.port)) | port.taken)
        self.turn_wait = Mux(turn > self.port, self.port + config.ports + 1 - turn, self.port - turn)
        result, ok = port.result, port.result.status == Status.OK
        fits = result.found & (result.length != 0) & (result.length <= config.block_beats)
        self.assume("read", ~(port.result_valid & (result.kind == Kind.READ) & ok) | fits)

        self.header = header = data.View(REQUEST_STRUCT, of["current"][: REQUEST_STRUCT.size])
        good = of["status"] == Status.OK
        self.is_match, self.is_write = good & (header.opcode == Opcode.MATCH), good & (header.opcode == Opcode.WRITE)
        self.pending, self.in_body, full = of["pending"], of["in_body"], of["full"]
        self.help("full_behind", ~full | self.pending)
        # A WRITE that has been given to the directory before all of it was in.
        self.open_write = self.in_body & ~self.pending
        self.level, self.consume = (of[f"responder.answers.fifo.{name}"] for name in ("level", "consume"))
        self.front = Array(self.words)[self.consume]
        self.of_reads(m, good)
        self.of_payload(m)

        # The oldest message, and what it takes.
        in_data, in_handles = of["responder.in_data"], of["responder.in_handles"]
        body, outstanding = in_data | in_handles, of["outstanding"]
        match_is_in = self.is_match & of["walk.ended"]
        at_hand = self.pending & (~self.in_body | match_is_in)
        behind = full & ~of["collected"][-1]
        whole = self.number(m, "whole", body + outstanding - self.open_write + at_hand + behind, 8)
        self.help("open_write", ~self.open_write | ((outstanding != 0) & self.is_write))
        last = Array(self.words)[(self.consume + self.level - 1)[: len(self.consume)]]
        open_run = Array(self.runs)[~of["writer.tail"]]
        judged = open_run.judged & (open_run.accepted == last.waits)
        self.help("open_write_is_judged", ~self.open_write | (of["in_flight"] != 0) | judged)
        youngest = last.write
        for stage in reversed(self.stages):
            youngest = Mux(stage.valid & is_answered(stage.kind), stage.kind == Kind.WRITE, youngest)
        self.help("open_write_is_youngest", ~self.open_write | youngest)
        self.help("ended", ~of["walk.ended"] | (self.in_body & self.is_match))
        rank = Signal(16)
        with m.If(in_data):
            m.d.comb += rank.eq(self.data_rank())
        with m.Elif(in_handles):
            m.d.comb += rank.eq(self.handles_rank())
        with m.Elif(self.level != 0):
            m.d.comb += rank.eq(self.queued_rank())
        with m.Elif(outstanding != 0):
            age = self.oldest(is_answered)
            m.d.comb += rank.eq(DIRECTORY_LATENCY_CYCLES + 1 - age + bound.rest)
        with m.Elif(self.is_match):
            m.d.comb += rank.eq(self.match_rank())
        with m.Else():
            m.d.comb += rank.eq(self.waiting_rank(good))

        rsp, waking = port.rsp, of["responder.waking"]
        answered = self.number(m, "answered", rsp.valid & rsp.ready & rsp.p.last & ~waking, 1)
        taken = Signal(16)
        m.d.sync += taken.eq(Mux(answered | (whole == 0), 0, taken + 1))
        self.help("rank", (whole == 0) | ((rank != 0) & (taken + rank <= bound.whole)))
        self.check("service", taken <= bound.whole)

        # Any one message, from its last beat to that of its answer: those in front of it are served one by one.
        bound_cycles, most_in_front = answer_bound_cycles(config), ANSWERS + 3
        followed, cycles, left = Signal(), Signal(24), Signal(8)
        before = Signal(8)
        m.d.sync += before.eq(whole - answered)
        comes_in = whole > before
        with m.If(followed):
            m.d.sync += [cycles.eq(cycles + 1), left.eq(left - answered), followed.eq(~(answered & (left == 1)))]
        with m.Elif(comes_in & self.free("follow")):
            m.d.sync += [cycles.eq(1), left.eq(whole - answered), followed.eq(~(answered & (whole == 1)))]
        self.check("one_at_a_time", whole <= before + 1)
        self.help("most_in_front", whole <= most_in_front)
        self.help("left", ~followed | ((left != 0) & (left <= whole)))
        done = (most_in_front - left) * (bound.whole + 1)
        self.help("so_far", ~followed | (cycles <= done + taken))
        self.check("answered_in_time", ~followed | (cycles <= bound_cycles))
        self.cover("answered_behind_others", followed & answered & (left == 1) & (cycles > 20))
        self.cover("read_answered", answered & in_data & followed)
        self.cover("write_answered", answered & self.front.waits & followed & (left == 1))
        self.cover("match_answered", answered & in_handles)

    def oldest(self, wanted) -> Value:
        """In which cycle the operation is that has been longest in the directory, of the kinds that are `wanted`."""
        age = Value.cast(1)
        for number, stage in enumerate(self.stages, 1):
            age = Mux(stage.valid & wanted(stage.kind), number, age)
        return age

    def youngest(self, wanted) -> Value:
        """The same of the one that is there for the shortest time; one past the last if there is none."""
        age = Value.cast(len(self.stages) + 1)
        for number, stage in reversed(list(enumerate(self.stages, 1))):
            age = Mux(stage.valid & wanted(stage.kind), number, age)
        return age

    def of_reads(self, m: Module, good: Value) -> None:
        """The beats that are announced in answers are those that are there, on their way, and still to be read."""
        of, block_beats = self.inner, self.config.block_beats
        self.reads = [data.View(read_run_layout(self.shapes), of[f"reader.run_{i}"]) for i in range(RUNS)]
        for i, run in enumerate(self.reads):
            shape = data.View(read_shape_layout(self.shapes), of[f"read_shape_{i}"])
            self.help(f"read_shape_{i}", ~shape.runs | ((shape.total != 0) & (shape.total <= block_beats)))
            self.help(f"read_count_{i}", ~run.valid | (run.count != 0))
        for i, word in enumerate(self.words):
            announced = (word.length != 0) & (word.length <= block_beats)
            self.help(f"read_length_{i}", ~(self.queued[i] & word.data) | announced)
        in_data, remaining = of["responder.in_data"], of["responder.remaining"]
        self.help("remaining", ~in_data | ((remaining != 0) & (remaining <= block_beats)))
        coming = total(self.coming[i] for i in range(READ_CYCLES))
        to_read = total(Mux(run.valid, run.count, 0) for run in self.reads)
        # Beats announced and delivered so far, and how many were announced when an answer came.
        announced, delivered = Signal(16), Signal(16)
        marks = [Signal(16, name=f"mark_{i}") for i in range(ANSWERS)]
        responder, rsp = of.parts["responder"].component, self.rtl.rsp
        produce = of["responder.answers.fifo.produce"]
        m.d.sync += delivered.eq(delivered + (in_data & rsp.valid & rsp.ready))
        with m.If(responder.answer_valid):
            m.d.sync += announced.eq(announced + Mux(responder.answer.data, responder.answer.length, 0))
            for i, mark in enumerate(marks):
                with m.If(produce == i):
                    m.d.sync += mark.eq(announced)
        owed = self.number(m, "beats_owed", announced - delivered)
        going = Mux(in_data, remaining, 0)
        self.help("beats", owed == of["responder.beats.fifo.level"] + coming + to_read)
        self.help("beats_going", ~in_data | (owed >= remaining))
        self.help("beats_all", (self.level != 0) | (owed == going))
        for i, (queued, word, mark) in enumerate(zip(self.queued, self.words, marks)):
            length, following = Mux(word.data, word.length, 0), (i + 1) % ANSWERS
            place = self.number(m, f"answer_place_{i}", (i - self.consume)[: len(self.consume)], 8)
            since = self.number(m, f"since_{i}", announced - mark)
            self.help(f"mark_first_{i}", ~queued | (place != 0) | (mark == (delivered + going)[:16]))
            after = Mux(self.queued[following] & (place + 1 < self.level), marks[following], announced)
            self.help(f"mark_next_{i}", ~queued | (after == (mark + length)[:16]))
            self.help(f"mark_{i}", ~queued | ((since >= length) & (since <= (self.level - place) * block_beats)))
        handle, product = data.View(HANDLE_STRUCT, self.header.digest), data.View(Products(self.config), of["product"])
        runs = good & (self.header.opcode == Opcode.READ) & of["check.by_handle"] & (handle.count != 0)
        self.help("total", ~(self.pending & runs) | (product.total != 0))

    def of_payload(self, m: Module) -> None:
        """The queue of payload holds the beats of the WRITEs in their order, and the last one of each that is in."""
        of, payload = self.inner, self.inner.parts["payload"].component
        depth = payload_fifo_depth(self.config.ports)
        words = self.inside(of, "payload.fifo", depth)
        consume, level = of["payload.fifo.consume"], of["payload.fifo.level"]
        tail, head, lander = (of[f"writer.{name}"] for name in ("tail", "head", "lander"))
        valid = [run.valid & ~run.landing for run in self.runs]
        # How many are of each run, and of the message at hand.
        held, waiting = [Signal(8, name=f"held_{i}") for i in range(RUNS)], Signal(8)
        enters = self.number(m, "enters", payload.i.valid & payload.i.ready, 1)
        leaves = self.number(m, "leaves", payload.o.valid & payload.o.ready, 1)
        started = self.number(m, "started", of.parts["writer"].component.start, 1)
        m.d.sync += waiting.eq(Mux(started | ~self.pending, 0, waiting + enters))
        for i in range(RUNS):
            with m.If(started & (tail == i)):
                m.d.sync += held[i].eq(waiting + enters)
            with m.Else():
                gets = enters & ~self.pending & (tail != i)
                m.d.sync += held[i].eq(held[i] + gets - (leaves & (head == i)))
        self.help("held_in_all", total(held) + waiting == level)
        self.help("waiting", (self.pending & self.is_write) | (waiting == 0))
        is_in = []
        for i in range(RUNS):
            is_in.append(~(self.open_write & (tail != i)))
            self.help(f"held_{i}", valid[i] | (held[i] == 0))
            self.help(f"last_{i}", ~valid[i] | ~is_in[i] | (held[i] != 0))
        self.help("last_at_hand", ~(self.pending & self.is_write) | self.in_body | (waiting != 0))
        open_run = Array(run.valid for run in self.runs)[~tail] & ~Array(run.landing for run in self.runs)[~tail]
        self.help("open_run", ~self.open_write | open_run)
        # Where the last ones are.
        first, second = Array(held)[head], Array(held)[~head]
        ends = [
            (self.number(m, "end_0", first, 8), Array(is_in)[head] & (first != 0)),
            (self.number(m, "end_1", first + second, 8), Array(is_in)[~head] & (second != 0)),
            (self.number(m, "end_2", first + second + waiting, 8), ~self.in_body & (waiting != 0)),
        ]
        for i, word in enumerate(words):
            place = self.number(m, f"place_{i}", Mux(consume > i, i + depth - consume, i - consume), 8)
            is_last = total((end == place + 1) & there for end, there in ends) != 0
            self.help(f"is_last_{i}", (place >= level) | (word[-1] == is_last))
        self.held, self.lander, self.head = held, lander, head

    def data_rank(self) -> Value:
        """Beats to go, and when the next one is there."""
        of, bound, bank = self.inner, self.service, self.rtl.bank
        run = Mux(of["reader.head"], self.reads[1].as_value(), self.reads[0].as_value())
        beat = data.View(read_run_layout(self.shapes), run).beat[: len(bank)]
        following = (beat - bank)[: len(bank)] + READ_CYCLES + 1
        for i in range(READ_CYCLES):
            following = Mux(self.coming[i], READ_CYCLES - i, following)
        following = Mux(of["responder.beats.fifo.level"] != 0, 0, following)
        return of["responder.remaining"] * bound.read_beat + following

    def handles_rank(self) -> Value:
        """Handles that are still to be fetched, and the beats of the one that is."""
        of, bound = self.inner, self.service
        in_handles, fetching, left = (of[f"responder.{name}"] for name in ("in_handles", "fetching", "left"))
        written, taken = of["responder.written"], of["responder.taken"]
        self.help("no_handles", in_handles | ((taken == 0) & (left == 0) & ~fetching))
        announced = total(queued & word.handles for queued, word in zip(self.queued, self.words)) != 0
        self.help("owed_and_announced", ~self.owed | in_handles | announced)
        self.help("handles_left", ~in_handles | (taken < written) | ((taken == written) & (left != 0)))
        to_fetch = written - taken
        return (to_fetch * bound.handle + left)[:15] - fetching

    def queued_rank(self) -> Value:
        """An answer, behind a wake perhaps and behind its landing, and then its body."""
        of, bound, header_beats = self.inner, self.service, self.config.response_beats
        front, beat, waking = self.front, of["responder.header_beat"], of["responder.waking"]
        of_data = (front.length + 1) * bound.read_beat
        of_handles = of["responder.written"] * bound.handle
        follows = Mux(front.data, of_data, Mux(front.handles, of_handles, 0))
        lacks = front.waits & (of["responder.landings.fifo.level"] == 0)
        header = header_beats - beat + Mux(waking, header_beats, 0)
        return follows + Mux(lacks, 2 * header_beats + self.landing_rank(), header)

    def landing_rank(self) -> Value:
        """The WRITE in front goes into the store, perhaps behind one that was refused, or its LAND is inside."""
        bound, bank, config = self.service, self.rtl.bank, self.config
        of = self.inner
        times, refused = [], []
        for i, run in enumerate(self.runs):
            summing, is_summing = Value.cast(bound.landed), 0
            for k in range(CRC_LATENCY_CYCLES):
                ended = of[f"writer.ended_{k}"] & (of[f"writer.ended_number_{k}"] == i)
                summing, is_summing = Mux(ended, bound.landed - k, summing), is_summing | ended
            waits = Mux(run.count != 0, (run.beat[: len(bank)] - bank)[: len(bank)], 0)
            waits = Mux(self.head == i, waits, config.ports)
            moving = self.held[i] * bound.payload_beat + waits + bound.landed
            summed = self.turn_wait + bound.result
            times.append(Mux(run.landing, Mux(run.summed, summed, summing), moving))
            refused.append(self.dropping(i))
            other = self.runs[1 - i]
            leaving = (self.lander == i) & run.valid & run.landing & ~run.accepted
            self.help(f"refused_leaves_{i}", ~leaving | ~(other.valid & other.landing))
            self.help(f"summing_{i}", ~(run.valid & run.landing) | run.summed | is_summing)
        first, second = self.lander, ~self.lander
        accepted = Array(run.accepted for run in self.runs)[first]
        behind = Array(refused)[first] + Array(times)[second]
        age = self.oldest(lambda kind: kind == Kind.LAND)
        inside = total(stage.valid & (stage.kind == Kind.LAND) for stage in self.stages) != 0
        return Mux(inside, DIRECTORY_LATENCY_CYCLES + 1 - age, Mux(accepted, Array(times)[first], behind))

    def dropping(self, i: int) -> Value:
        """Until run `i`, which was refused, is gone."""
        run = self.runs[i]
        return Mux(run.valid, Mux(run.landing, 1, self.held[i] + 1), 0)

    def match_rank(self) -> Value:
        """Digests that are still to be asked for, and the answers to those that were."""
        of, bound, config = self.inner, self.service, self.config
        after = 1 + bound.rest
        staged = of["walk.staged_count"]
        inside = DIRECTORY_LATENCY_CYCLES + 1 - self.youngest(lambda kind: kind == Kind.MATCH)
        asking = staged * (config.ports + 2) + self.turn_wait + bound.result + after
        return Mux(staged != 0, asking, inside + after)

    def waiting_rank(self, good: Value) -> Value:
        """The CRC of a part is moved, refused payloads go, its turn comes."""
        of, bound, opcode = self.inner, self.service, self.header.opcode
        steps, shifting, shifted = of["shift.steps"], of["shifting"], of["shifted"]
        needs_shift = good & (opcode == Opcode.PUT_END) & (self.header.members > 1)
        self.help("shifting", ~shifting | (self.pending & needs_shift & ~shifted & ((steps != 0) ^ of["shift.done"])))
        self.help("not_shifting", shifting | ((steps == 0) & ~of["shift.done"]))
        shift = Mux(shifting, Mux(steps != 0, steps + 1, 1), CRC_SHIFT_CYCLES + 1)
        shift = Mux(needs_shift & ~shifted, shift, 0)
        blocked = (self.is_write & ~of["writer.room"]) | (good & one_of(opcode, (Opcode.PUT_END, Opcode.PUT_REVOKE)))
        drops = Mux(blocked, total(self.dropping(i) for i in range(RUNS)), 0)
        turn = Mux((shift == 0) & (drops == 0), self.turn_wait, self.config.ports)
        return shift + drops + turn + bound.result + bound.rest
