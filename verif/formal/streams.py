"""Streams: valid and payload stay until they are taken, and a queue loses, doubles and reorders nothing.

Used by: block_claims.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Flag, Kind, Opcode, Status
from kvnode.models.spec.timing import ANSWERS, DIRECTORY_LATENCY_CYCLES, RUNS
from kvnode.rtl.layouts import REQUEST_STRUCT, one_of
from kvnode.rtl.node.match_walk import MatchWalk
from kvnode.rtl.node.port import Port
from kvnode.rtl.node.responder import Responder, answer_layout
from kvnode.rtl.node.transfer import WriteEngine, write_run_layout
from kvnode.rtl.stream import Queue

from .contracts import well_formed
from .design import Design
from .proof import Proof, ProofOf

#: Cycles from the issue of a read to its beat, as the store and its port have it.
READ_CYCLES = 3


def as_bits(value) -> Value:
    """The bits of a payload, whatever its shape."""
    return value if isinstance(value, Value) else value.as_value()


class StreamProof(Proof):
    """Base of the proofs about streams."""

    def stable(self, m: Module, name: str, valid: Value, ready: Value, *payload, unless=0) -> None:
        """What is offered and not taken is offered again in the next cycle, and is the same, `unless` it is withdrawn
        then.
        """
        bits = Cat(as_bits(part) for part in payload)
        offered, before = Signal(name=f"{name}_offered"), Signal(len(bits), name=f"{name}_before")
        m.d.sync += [offered.eq(valid & ~ready), before.eq(bits)]
        self.check(f"{name}_stays", ~offered | unless | valid)
        self.check(f"{name}_is_stable", ~offered | ~valid | (bits == before))
        self.cover(f"{name}_waits", offered & valid & ready)

    def inside(self, design: Design, path: str, depth: int) -> list[Signal]:
        """What holds of a queue's pointers; its words."""
        produce, consume, level = (design[f"{path}.{name}"] for name in ("produce", "consume", "level"))
        self.help(f"{path}.range", (produce < depth) & (consume < depth) & (level <= depth))
        following = consume + level
        self.help(f"{path}.level", produce == Mux(following < depth, following, following - depth))
        return design.rows(f"{path}.storage")


class Fifo(StreamProof):
    """A queue of `depth`: an item that went in comes out, once, behind those that were in front and nobody else."""

    def __init__(self, depth: int):
        super().__init__()
        self.depth = depth

    def describe(self, m: Module) -> None:
        depth, queue = self.depth, Queue(4, self.depth)
        design = self.design("queue", queue)
        taken, given = queue.i.valid & queue.i.ready, queue.o.valid & queue.o.ready
        self.stable(m, "o", queue.o.valid, queue.o.ready, queue.o.p)
        # Any one item, and how many are in front of it.
        level, followed, item, front = Signal.like(queue.level), Signal(), Signal(4), Signal.like(queue.level)
        m.d.sync += level.eq(level + taken - given)
        leaves = followed & given & (front == 0)
        with m.If(followed):
            m.d.sync += [front.eq(front - given), followed.eq(~leaves)]
        with m.Elif(taken & self.free("follow")):
            m.d.sync += [followed.eq(1), item.eq(queue.i.p), front.eq(level - given)]
        self.check("level", queue.level == level)
        self.check("not_full", queue.i.ready == (level < depth))
        self.check("not_empty", queue.o.valid == (level != 0))
        self.check("item", ~(followed & (front == 0)) | (queue.o.p == item))
        self.check("not_lost", ~followed | (front < level))
        self.cover("full", leaves & (level == depth) & (item == 9))
        words = self.inside(design, "fifo", depth)
        place = Signal(range(2 * depth))
        m.d.comb += place.eq(design["fifo.consume"] + front)
        with m.If(design["fifo.consume"] + front >= depth):
            m.d.comb += place.eq(design["fifo.consume"] + front - depth)
        self.help("word", ~followed | (Array(words)[place] == item))


class Blocks(StreamProof, ProofOf):
    """Base of the proofs about the blocks behind a port. Each rule that the port has to keep is a `promise`: assumed of
    a block by itself, shown of the port that it is in. A block is that at the path `at` of a design.
    """

    def promise(self, name: str, condition: Value) -> None:
        self.assume(name, condition)

    def of_responder(self, m: Module, config: NodeConfig, responder: Responder, design: Design, at: str = "") -> None:
        """The response stream, and queues that never refuse what the port gives them.

        The port keeps at most ANSWERS answers and as many landings outstanding, and one message more than that whose
        body is in; a beat arrives READ_CYCLES after it was issued, which takes a credit; handles are brought or dropped
        only when none are still to go out, and an answer announces handles only if some were brought.
        """
        rsp, answer = responder.rsp, responder.answer
        self.stable(m, "rsp", rsp.valid, rsp.ready, rsp.p)
        self.check("zero", rsp.valid | (as_bits(rsp.p) == 0))

        # The answers, their landings and bodies.
        queues = ("answers", "landings", "beats")
        depths = {name: len(design.rows(f"{at}{name}.fifo.storage")) for name in queues}
        answers, landings, beats = (design[f"{at}{name}.fifo.level"] for name in queues)
        for name in queues:
            self.inside(design, f"{at}{name}.fifo", depths[name])
        self.promise("answers", ~responder.answer_valid | (answers < ANSWERS))
        self.promise("landings", ~responder.landed_valid | (landings < ANSWERS))
        self.promise("bodies", ~responder.write_in | (design[f"{at}writes_in"] <= ANSWERS))

        # The beats of reads.
        self.promise("credit", ~responder.issue | responder.credit)
        self.coming = coming = Signal(READ_CYCLES)
        m.d.sync += coming.eq(Cat(responder.issue, coming[:-1]))
        self.promise("beats", responder.data_valid == coming[-1])
        self.check("a_beat_has_room", ~responder.data_valid | (beats < depths["beats"]))
        on_their_way = sum(coming[i] for i in range(READ_CYCLES))
        self.help("credits", design[f"{at}credits"] + on_their_way + beats == depths["beats"])

        # Handles.
        in_handles, in_data, written = (design[f"{at}{name}"] for name in ("in_handles", "in_data", "written"))
        self.owed = owed = Signal()
        announced = responder.answer_valid & answer.handles
        with m.If(announced):
            m.d.sync += owed.eq(1)
        with m.Elif(in_handles & rsp.valid & rsp.ready & rsp.p.last):
            m.d.sync += owed.eq(0)
        self.promise("handles_come_when_none_are_owed", ~responder.handle_valid | ~owed)
        self.promise("handles_are_dropped_when_none_are_owed", ~responder.drop_handles | ~owed)
        self.promise("how_many", ~responder.handle_valid | (written < config.max_match_digests))
        self.promise("announced", ~announced | ((written != 0) & ~owed & ~responder.drop_handles))
        self.promise("one_kind", ~(responder.answer_valid & answer.handles & answer.data))
        self.help("owed", ~in_handles | owed)
        self.help("owed_handles", ~owed | (written != 0))
        self.help("either", ~(in_handles & in_data))
        layout, consume = answer_layout(responder.shapes), design[f"{at}answers.fifo.consume"]
        self.words = [data.View(layout, word) for word in design.rows(f"{at}answers.fifo.storage")]
        self.queued = [(place - consume)[: len(consume)] < answers for place in range(ANSWERS)]
        announces = [self.queued[i] & word.handles for i, word in enumerate(self.words)]
        for i, word in enumerate(self.words):
            alone = owed & ~in_handles & ~Cat(announces[:i]).any()
            self.help(f"announced_{i}", ~announces[i] | (alone & ~word.data))
        self.help("fetching", ~design[f"{at}fetching"] | (design[f"{at}left"] == 0))

        # A message is not interrupted: what is sent to wake goes between two of them.
        begun, woke, waking, beat = Signal(), Signal(), design[f"{at}waking"], design[f"{at}header_beat"]
        moves = rsp.valid & rsp.ready
        with m.If(moves):
            m.d.sync += begun.eq(~rsp.p.last)
        m.d.sync += woke.eq(waking)
        body = in_data | in_handles
        self.help("begun", begun == (body | (beat != 0)))
        self.help("header_first", ~body | ((beat == 0) & ~waking))
        self.help("header", beat < config.response_beats)
        self.check("not_interrupted", ~(waking & ~woke) | ~begun)
        self.cover("wake_waits", design[f"{at}wake_pending"] & begun & moves & rsp.p.last)
        self.cover("handles_last", in_handles & moves & rsp.p.last & (written == 2))
        self.cover("data_last", in_data & moves & rsp.p.last)

    def of_walk(self, m: Module, walk: MatchWalk, design: Design, at: str = "") -> None:
        """A digest is asked for until it is taken, or one in front of it has missed; never one too many.

        `expected` stays while `active`, which ends with `clear`; answers come back to what was asked.
        """
        active, expected = Signal(name="was_active"), Signal(len(walk.expected), name="was_expected")
        m.d.sync += [active.eq(walk.active & ~walk.clear), expected.eq(walk.expected)]
        issued, back, missed = (design[f"{at}{name}"] for name in ("issued", "back", "missed"))
        self.promise("active", ~active | (walk.active & (walk.expected == expected)))
        self.promise("taken", ~walk.taken | walk.ask)
        self.promise("returned", ~walk.returned | (back != issued))
        self.promise("clear", ~walk.clear | walk.over)
        self.stable(m, "ask", walk.ask, walk.taken, walk.digest, walk.first, unless=missed)
        self.check("not_too_many", ~walk.taken | (issued < walk.expected))
        self.check("not_behind_a_miss", ~walk.taken | ~missed)
        self.check("hits", walk.hits <= back)
        self.cover("whole", walk.over & ~walk.wrong & (walk.hits == 2))
        self.cover("miss", walk.over & missed & (issued != 0))
        self.help("issued", issued <= design[f"{at}arrived"])
        self.help("issued_most", ~active | (issued <= expected))
        self.help("idle", active | (issued == 0))
        self.help("back", back <= issued)

    def of_writer(self, m: Module, writer: WriteEngine, design: Design, at: str = "") -> None:
        """The LAND that is offered stays, with member and CRC, until it is taken; LANDs come in order.

        A WRITE is entered only if there is room, the directory judges each once and in order, and takes only what is
        offered.
        """
        self.runs = runs = [data.View(write_run_layout(writer.shapes), design[f"{at}run_{i}"]) for i in range(RUNS)]
        tail, judge, head, lander = (design[f"{at}{name}"] for name in ("tail", "judge", "head", "lander"))
        unjudged = [run.valid & ~run.judged for run in runs]
        self.promise("start", ~writer.start | writer.room)
        self.promise("verdict", ~writer.verdict | unjudged[0] | unjudged[1])
        self.promise("land_taken", ~writer.land_taken | writer.land_valid)
        land = (writer.land, writer.land_member, writer.land_crc)
        self.stable(m, "land", writer.land_valid, writer.land_taken, *land)
        self.cover("landing", writer.land_valid & writer.land.whole)
        self.cover("both", Cat(run.valid & run.landing for run in runs).all())

        # Each pointer stands where the runs say; what is behind it has not come as far.
        unmoved = [run.valid & ~run.landing for run in runs]
        self.help("tail", tail == lander ^ runs[0].valid ^ runs[1].valid)
        self.help("judge", judge == tail ^ unjudged[0] ^ unjudged[1])
        self.help("head", head == tail ^ unmoved[0] ^ unmoved[1])
        for i in range(RUNS):
            first, second = runs[i], runs[1 - i]
            here = lander == i
            self.help(f"oldest_{i}", ~here | first.valid | ~second.valid)
            both = here & first.valid & second.valid
            self.help(f"judged_in_order_{i}", ~both | first.judged | ~second.judged)
            self.help(f"moved_in_order_{i}", ~both | first.landing | ~second.landing)
            self.help(f"judged_{i}", ~(first.valid & first.landing) | first.judged)
            ends = [design[f"{at}ended_{k}"] & (design[f"{at}ended_number_{k}"] == i) for k in range(2)]
            self.help(f"ended_{i}", ~ends[0] | (first.valid & first.landing))
            self.help(f"ending_{i}", ~ends[1] | ~first.valid | first.landing)
            self.help(f"not_summed_{i}", ~(ends[0] | ends[1]) | ~first.valid | ~first.summed)
            self.help(f"ended_once_{i}", ~(ends[0] & ends[1]))
            self.help(f"moving_{i}", ~(first.valid & ~first.landing) | ~first.summed)


class Responses(Blocks):
    """The response stream of a Responder by itself."""

    def describe(self, m: Module) -> None:
        responder = Responder(self.config)
        design = self.design("responder", responder, driven=("boot_epoch",), clash=True)
        m.d.comb += responder.boot_epoch.eq(self.chosen("boot", len(responder.boot_epoch)))
        self.of_responder(m, self.config, responder, design)


class Asks(Blocks):
    """The questions of a MatchWalk by itself."""

    def describe(self, m: Module) -> None:
        walk = MatchWalk(self.config)
        self.of_walk(m, walk, self.design("walk", walk))


class Landings(Blocks):
    """The LANDs of a WriteEngine by itself."""

    def describe(self, m: Module) -> None:
        writer = WriteEngine(self.config, 0)
        self.of_writer(m, writer, self.design("writer", writer))


class Ports(Blocks):
    """Port `port` and all its blocks, with free messages: it keeps what they want to be promised.

    The contract of the node: what is taken is offered; the result of an operation comes DIRECTORY_LATENCY_CYCLES after
    it was taken; beats of the store come READ_CYCLES after they were asked for. What the results say is free.
    """

    CUT: tuple[str, ...] = ("shift", "writer.lane")
    DRIVEN: tuple[str, ...] = ("boot_epoch", "result_valid", "data_valid")

    def __init__(self, config: NodeConfig, port: int):
        super().__init__(config)
        self.port = port

    def promise(self, name: str, condition: Value) -> None:
        self.check(f"promise_{name}", condition)

    def describe(self, m: Module) -> None:
        self.rtl = port = Port(self.config, self.port)
        self.inner = design = self.design("port", port, self.CUT, self.DRIVEN, clash=True)
        m.d.comb += port.boot_epoch.eq(self.chosen("boot", len(port.boot_epoch)))
        self.assume("taken", ~port.taken | port.valid)
        responder, writer, walk = (design.parts[name].component for name in ("responder", "writer", "walk"))
        reads = Signal(READ_CYCLES)
        m.d.sync += reads.eq(Cat(port.read_valid, reads[:-1]))
        m.d.comb += port.data_valid.eq(reads[-1])

        # What is in the directory.
        entering = data.StructLayout({"valid": 1, "kind": len(port.operation.kind)})
        self.stages = stages = [Signal(entering, name=f"stage_{k}") for k in range(1, DIRECTORY_LATENCY_CYCLES + 1)]
        m.d.sync += [stages[0].valid.eq(port.taken), stages[0].kind.eq(port.operation.kind)]
        m.d.sync += [later.eq(earlier) for earlier, later in zip(stages, stages[1:])]
        m.d.comb += port.result_valid.eq(stages[-1].valid)
        self.assume("kind", port.result.kind == stages[-1].kind)

        def inside(*kinds: Kind, but: bool = False) -> Value:
            return sum(stage.valid & (one_of(stage.kind, kinds) ^ but) for stage in stages)

        self.of_responder(m, self.config, responder, design, "responder.")
        self.of_walk(m, walk, design, "walk.")
        self.of_writer(m, writer, design, "writer.")

        self.help("reads_and_beats", reads == self.coming)

        # What is counted.
        answers, landings = design["responder.answers.fifo.level"], design["responder.landings.fifo.level"]
        outstanding, in_flight = design["outstanding"], design["in_flight"]
        self.check("outstanding", outstanding <= ANSWERS)
        self.help("in_flight", in_flight == inside(Kind.MATCH, Kind.LAND, but=True))
        self.help("answers_and_flights", outstanding == in_flight + answers)
        waiting = sum(queued & word.waits for queued, word in zip(self.queued, self.words))
        accepted = sum(run.valid & run.judged & run.accepted for run in self.runs)
        self.help("landings_and_writes", waiting == landings + inside(Kind.LAND) + accepted)
        self.help("unjudged", inside(Kind.WRITE) == sum(run.valid & ~run.judged for run in self.runs))

        # Reads: a run for each.
        reader = design.parts["reader"].component
        runs = [design[f"reader.run_{i}"][0] for i in range(RUNS)]
        tail, head = design["reader.tail"], design["reader.head"]
        self.check("read_has_a_run", ~reader.start | ~Array(runs)[tail])
        self.help("reads", design["reads"] == inside(Kind.READ) + runs[0] + runs[1])
        self.help("reads_most", design["reads"] <= RUNS)
        self.help("reader_tail", tail == head ^ runs[0] ^ runs[1])
        self.help("reader_head", ~(runs[0] ^ runs[1]) | Array(runs)[head])

        # The message at hand.
        header = data.View(REQUEST_STRUCT, design["current"][: REQUEST_STRUCT.size])
        good = design["status"] == Status.OK
        pending, in_body, full = design["pending"], design["in_body"], design["full"]
        is_match, is_write = good & (header.opcode == Opcode.MATCH), good & (header.opcode == Opcode.WRITE)
        self.help("collected_behind", ~full | ~in_body)
        self.help("match_is_in", ~pending | ~is_match | in_body)
        self.help("match_is_pending", ~(in_body & is_match) | pending)
        writes = sum(queued & word.write for queued, word in zip(self.queued, self.words))
        early, late = is_write & pending & ~in_body, is_write & ~pending & in_body
        self.help("bodies", design["responder.writes_in"] + late == inside(Kind.WRITE) + writes + early)

        # What the directory wants to be promised.
        operation = port.operation
        fits = well_formed(self.config, Const(self.port, 8), operation)
        self.check("operation", ~port.valid | fits)
        self.check("of_partition", ~port.valid | (port.partition < len(self.config.partitions)))
        self.check("close", ~port.valid | (operation.kind != Kind.SESSION_CLOSE) | (port.cargo.sequence == 0))
        for i, run in enumerate(self.runs):
            stored = data.View(port.shapes.operation, design[f"writer.operation_{i}"])
            self.help(f"write_{i}", ~run.valid | (stored.by_handle & ~stored.session[-1]))

        # A MATCH and its handles.
        issued, back = design["walk.issued"], design["walk.back"]
        self.help("matches", issued == back + inside(Kind.MATCH))
        locks = header.flags & int(Flag.LEASE)
        leases = is_match & in_body & (locks != 0) & (issued != 0)
        written = design["responder.written"]
        self.help("own_handles", ~leases | (~self.owed & (written == walk.hits)))
        self.help("no_own_handles", leases | self.owed | (written == 0))
        self.help("first_hits", (issued != 0) | (walk.hits == 0))
        self.help("most", ~(is_match & in_body) | (walk.expected <= self.config.max_match_digests))
