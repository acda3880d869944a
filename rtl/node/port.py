"""A port: takes messages apart, gives their operations to the directory in order, and answers in the same order."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import KIND_OF_OPCODE, Kind, Opcode, Status

from ..layouts import REQUEST_STRUCT, STATUS_BITS, Shapes, index_bits, one_of
from ..ownership import By, Owned
from ..stream import Queue
from .match_walk import MatchWalk
from .request_check import HANDLE_STRUCT, RequestCheck
from .responder import DEPTH, Responder
from .transfer import RUNS, ReadEngine, WriteEngine


class Port(wiring.Component):
    """Port number `port` of a node.

    `req` and `rsp` are streams of beats with `last` on the final beat of a message. `operation` and `digest` are
    offered with `valid` and taken in the port's turn with `taken`; `result` comes back with `result_valid` in the order
    of the operations. `bank` is the bank owned in this cycle. `read_*`, `data_*` and `write_*` go to the store, `holds`
    to the sweeper. `ready` is low while the directory clears its tables.

    Messages are answered in their order. Every well-formed or malformed message is answered exactly once, at its end: a
    READ with one header and its bytes, everything else with one header. Operations are issued in order: a READ while at
    most one other moves, a WRITE while at most one other is inside; PUT_END and PUT_REVOKE wait for the WRITEs to their
    slot.

    Used by: node.
    """

    OWNERSHIP = (Owned("*", By.PORT),)

    def __init__(self, config: NodeConfig, port: int):
        self.config, self.port, self.shapes = config, port, Shapes(config)
        shapes = self.shapes
        row_bits = index_bits(config.slots * config.bank_rows_per_block)
        super().__init__(
            {
                "req": In(stream.Signature(shapes.beat)),
                "rsp": Out(stream.Signature(shapes.beat)),
                "boot_epoch": In(config.boot_epoch_bits),
                "ready": In(1),
                "valid": Out(1),
                "operation": Out(shapes.operation),
                "digest": Out(config.digest_bits),
                "taken": In(1),
                "result_valid": In(1),
                "result": In(shapes.result),
                "bank": In(index_bits(config.ports)),
                "read_valid": Out(1),
                "read_row": Out(row_bits),
                "data_valid": In(1),
                "data": In(shapes.data_bits),
                "write_valid": Out(1),
                "write_row": Out(row_bits),
                "write_data": Out(shapes.data_bits),
                "holds": Out(shapes.hold).array(2 * RUNS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, shapes, req = self.config, self.shapes, self.req
        beat_bytes, data_bits = config.beat_bytes, shapes.data_bits
        beat_log2 = beat_bytes.bit_length() - 1
        slot_base = config.slot_bases[config.partition_of_port[self.port]]
        m.submodules.check = check = RequestCheck(config, self.port)
        m.submodules.reader = reader = ReadEngine(config, slot_base)
        m.submodules.writer = writer = WriteEngine(config, slot_base)
        m.submodules.payload = payload = Queue(shapes.beat, 4 * config.ports + 16)
        m.submodules.walk = walk = MatchWalk(config)
        m.submodules.responder = responder = Responder(config)

        # Requests: the header is collected beat by beat, also while the one before waits for its turn; then the body
        # goes where its opcode says.
        header_beats = config.request_beats
        message = data.StructLayout({"bits": header_beats * data_bits, "short": 1, "has_payload": 1})
        current = Signal(message)
        collected = Signal(message)
        header = data.View(REQUEST_STRUCT, current.bits[: REQUEST_STRUCT.size])
        short, has_payload = current.short, current.has_payload
        position = Signal(index_bits(header_beats))
        pending = Signal()
        full = Signal()
        in_body = Signal()
        m.d.comb += [check.header.eq(header), check.has_payload.eq(has_payload), check.boot_epoch.eq(self.boot_epoch)]
        status = Signal(STATUS_BITS)
        m.d.comb += status.eq(Mux(short, Status.BAD_REQUEST, check.status))
        good = status == Status.OK
        is_match = good & (header.opcode == Opcode.MATCH)
        is_write = good & (header.opcode == Opcode.WRITE)

        with m.If(~in_body):
            m.d.comb += req.ready.eq(self.ready & ~full)
        with m.Elif(is_match):
            m.d.comb += req.ready.eq(walk.payload.ready)
        with m.Elif(is_write):
            m.d.comb += req.ready.eq(payload.i.ready)
        with m.Else():
            m.d.comb += req.ready.eq(1)
        arrives = req.valid & req.ready
        m.d.comb += [
            payload.i.valid.eq(req.valid & in_body & is_write),
            payload.i.p.eq(req.p),
            walk.active.eq(in_body & is_match),
            walk.payload.valid.eq(req.valid & in_body & is_match),
            walk.payload.p.eq(req.p),
            walk.expected.eq(header.length[5:]),
        ]
        arriving = Signal(message)
        last_of_header = position == header_beats - 1
        m.d.comb += [
            arriving.bits.eq(collected.bits),
            arriving.short.eq(~last_of_header),
            arriving.has_payload.eq(~req.p.last),
        ]
        with m.If(position == 0):
            m.d.comb += arriving.bits.eq(req.p.data)
        with m.Else():
            m.d.comb += arriving.bits.word_select(position, data_bits).eq(req.p.data)
        complete = arrives & ~in_body & (last_of_header | req.p.last)
        with m.If(arrives & ~in_body):
            m.d.sync += [collected.eq(arriving), position.eq(Mux(complete, 0, position + 1)), full.eq(complete)]
        with m.If(arrives & in_body & req.p.last & ~is_match):
            m.d.sync += in_body.eq(0)

        # Operations, in order: a landed WRITE first, then the message at hand.
        outstanding = Signal(range(DEPTH + 1))
        in_flight = Signal(range(DEPTH + 1))
        reads = Signal(range(RUNS + 1))
        read_room = reads != RUNS
        response_room = outstanding != DEPTH
        op, handle = self.operation, data.View(HANDLE_STRUCT, header.digest)
        writes_slot = 0
        for hold in (writer.holds[i] for i in range(RUNS)):
            writes_slot |= hold.valid & (hold.slot == handle.slot[: shapes.slot_bits])
        is_end = good & one_of(header.opcode, (Opcode.PUT_END, Opcode.PUT_REVOKE))
        is_read = good & (header.opcode == Opcode.READ)
        room = response_room & (~is_read | read_room) & (~is_write | writer.room) & ~(is_end & writes_slot)
        ordinary = pending & ~is_match & room & (~in_body | is_write)
        m.d.comb += [
            self.valid.eq(writer.land_valid | ordinary | walk.ask & response_room),
            op.status.eq(status),
            op.opcode.eq(header.opcode),
            op.tag.eq(header.tag),
            op.model_id.eq(header.model_id),
            op.group.eq(header.group),
            op.klass.eq(header.klass),
            op.by_handle.eq(good & check.by_handle),
            op.offset.eq(header.offset >> beat_log2),
            op.length.eq(header.length >> beat_log2),
            op.chain_first.eq(is_match & walk.first),
        ]
        with m.If(good):
            with m.Switch(header.opcode):
                for opcode, kind in KIND_OF_OPCODE.items():
                    with m.Case(opcode):
                        m.d.comb += op.kind.eq(kind)
        with m.Else():
            m.d.comb += op.kind.eq(Kind.ANSWER)
        with m.If(is_match):
            m.d.comb += [self.digest.eq(walk.digest), op.length.eq(0)]
        with m.Elif(op.by_handle):
            m.d.comb += [op.slot.eq(handle.slot), op.generation.eq(handle.generation)]
        with m.Elif(good):
            m.d.comb += self.digest.eq(header.digest)
        with m.If(writer.land_valid):
            m.d.comb += [op.eq(writer.land), op.kind.eq(Kind.LAND), op.chain_first.eq(0), self.digest.eq(0)]
        issue = self.taken & self.valid & ~writer.land_valid
        leaves = issue & ordinary
        match_answers = Signal()
        m.d.comb += match_answers.eq(walk.over & (in_flight == 0) & response_room)
        with m.If(leaves):
            m.d.sync += pending.eq(0)
        with m.If((full | complete) & (~pending | leaves)):
            moved = Mux(full, collected.as_value(), arriving.as_value())
            m.d.sync += [
                current.eq(moved),
                pending.eq(1),
                full.eq(0),
                in_body.eq(data.View(message, moved).has_payload),
            ]
        with m.If(match_answers):
            m.d.sync += [pending.eq(0), in_body.eq(0)]
        m.d.comb += [
            writer.start.eq(leaves & is_write),
            writer.operation.eq(op),
            writer.land_taken.eq(self.taken & writer.land_valid),
            walk.taken.eq(issue & ~ordinary),
            walk.clear.eq(match_answers),
        ]

        # Results. Those of MATCH only count; a WRITE that was accepted is answered when it has landed.
        result = self.result
        comes = self.result_valid
        ok = result.status == Status.OK
        is_match_result, is_land = result.kind == Kind.MATCH, result.kind == Kind.LAND
        m.d.comb += [walk.returned.eq(comes & is_match_result), walk.hit.eq(result.status == Status.HIT)]
        reads_now = comes & (result.kind == Kind.READ)
        m.d.comb += [
            reader.start.eq(reads_now & ok),
            reader.slot.eq(result.slot),
            reader.beat.eq(result.offset),
            reader.count.eq(result.length),
            writer.verdict.eq(comes & (result.kind == Kind.WRITE)),
            writer.accepted.eq(ok),
        ]
        m.d.sync += reads.eq(reads + (leaves & is_read) - reader.done - (reads_now & ~ok))

        answer, answered = responder.answer, comes & ~is_match_result & ~is_land
        m.d.comb += [
            responder.answer_valid.eq(answered | match_answers),
            answer.status.eq(result.status),
            answer.opcode.eq(result.opcode),
            answer.tag.eq(result.tag),
            answer.write.eq(result.kind == Kind.WRITE),
            answer.waits.eq((result.kind == Kind.WRITE) & ok),
            answer.data.eq((result.kind == Kind.READ) & ok),
            responder.landed_valid.eq(comes & is_land),
            responder.landed.status.eq(result.status),
            responder.landed.found.eq(result.found),
            responder.landed.watermark.eq(result.watermark),
        ]
        with m.If(result.found):
            m.d.comb += [
                answer.slot.eq(result.slot),
                answer.generation.eq(result.generation),
                answer.length.eq(result.length),
                answer.watermark.eq(result.watermark),
            ]
        with m.If(match_answers):
            m.d.comb += [
                answer.eq(0),
                answer.status.eq(Mux(walk.hits != 0, Status.HIT, Status.MISS)),
                answer.opcode.eq(header.opcode),
                answer.tag.eq(header.tag),
                answer.count.eq(walk.hits),
            ]
            with m.If(walk.wrong):
                m.d.comb += [answer.status.eq(Status.BAD_REQUEST), answer.count.eq(0)]
        m.d.sync += [
            in_flight.eq(in_flight + leaves - answered),
            outstanding.eq(outstanding + (leaves | match_answers) - responder.left),
        ]

        # Data between store, engines and streams.
        m.d.comb += [
            responder.boot_epoch.eq(self.boot_epoch),
            responder.write_in.eq(arrives & in_body & is_write & req.p.last),
            responder.issue.eq(reader.issue),
            responder.data_valid.eq(self.data_valid),
            responder.data.eq(self.data),
            reader.credit.eq(responder.credit),
            reader.bank.eq(self.bank),
            writer.bank.eq(self.bank),
            self.read_valid.eq(reader.issue),
            self.read_row.eq(Mux(reader.issue, reader.row, 0)),
            self.write_valid.eq(writer.issue),
            self.write_row.eq(Mux(writer.issue, writer.row, 0)),
            self.write_data.eq(writer.beat_data),
        ]
        for i in range(RUNS):
            m.d.comb += [self.holds[i].eq(reader.holds[i]), self.holds[RUNS + i].eq(writer.holds[i])]
        wiring.connect(m, payload.o, writer.payload)
        wiring.connect(m, responder.rsp, wiring.flipped(self.rsp))
        return m
