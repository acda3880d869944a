"""A port: takes messages apart, gives their operations to the directory in order, and answers in the same order."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import KIND_OF_OPCODE, Flag, Kind, Opcode, Status
from kvnode.models.spec.requests import WITH_PORTS
from kvnode.models.spec.timing import ANSWERS, RUNS, payload_fifo_depth

from ..crc import CrcShift
from ..layouts import MEMBERS_BITS, REQUEST_STRUCT, STATUS_BITS, Shapes, index_bits, one_of
from ..ownership import By, Owned
from ..stream import Queue
from .match_walk import MatchWalk
from .request_check import HANDLE_STRUCT, Products, RequestCheck, products
from .responder import Responder
from .sessions import is_session_kind
from .transfer import ReadEngine, WriteEngine


def read_shape_layout(shapes: Shapes) -> data.StructLayout:
    """What a READ in the directory wants: how its bytes lie, and how many they are."""
    return data.StructLayout(
        {"runs": 1, "partition": shapes.partition_bits, "run": shapes.beat_bits, "stride": shapes.beat_bits,
         "total": shapes.beat_bits}
    )  # fmt: skip


class Port(wiring.Component):
    """Port number `port` of a node.

    `req` and `rsp` are streams of beats with `last` on the final beat of a message. `operation` with `cargo` and
    `digest` on `partition` is offered with `valid` and taken in the port's turn with `taken`; `result` comes back with
    `result_valid` in the order of the operations, `wake` with whatever operation brings it about. `bank` is the bank
    owned in this cycle. `read_*`, `data_*` and `write_*` go to the store, `holds` to the sweeper. With `ready` low no
    message is begun. `idle`: nothing that was begun is left. `arrives` and `answers` mark the last beats of a header
    and of an answer's header.

    Messages are answered in their order. Every well-formed or malformed message is answered exactly once, at its end: a
    READ with one header and its bytes, everything else with one header. Operations are issued in order: a READ while at
    most one other moves, a WRITE while at most one other is inside; PUT_END and PUT_REVOKE wait for the WRITEs to their
    slot, a MATCH with leases for the handles of the one before to have left. A PUT_END of a block with several members
    is issued CRC_SHIFT_CYCLES + 1 later than others: so long it takes to move its CRC to where the part lies in the
    block.

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
                "cargo": Out(shapes.cargo),
                "partition": Out(shapes.partition_bits),
                "digest": Out(config.digest_bits),
                "taken": In(1),
                "result_valid": In(1),
                "result": In(shapes.result),
                "wake": In(1),
                "idle": Out(1),
                "arrives": Out(1),
                "answers": Out(1),
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
        own = config.partition_of_port[self.port]
        m.submodules.check = check = RequestCheck(config, self.port)
        m.submodules.reader = reader = ReadEngine(config, own)
        m.submodules.writer = writer = WriteEngine(config, own)
        m.submodules.payload = payload = Queue(shapes.beat, payload_fifo_depth(config.ports))
        m.submodules.walk = walk = MatchWalk(config)
        m.submodules.responder = responder = Responder(config)
        m.submodules.shift = shift = CrcShift(beat_bytes, shapes.beat_bits)

        # Requests: the header is collected beat by beat, also while the one before waits for its turn; then the body
        # goes where its opcode says.
        header_beats = config.request_beats
        message = data.StructLayout({"bits": header_beats * data_bits, "short": 1, "has_payload": 1})
        current = Signal(message)
        collected = Signal(message)
        header = data.View(REQUEST_STRUCT, current.bits[: REQUEST_STRUCT.size])
        short, has_payload = current.short, current.has_payload
        product = Signal(Products(config))
        position = Signal(index_bits(header_beats))
        pending = Signal()
        full = Signal()
        in_body = Signal()
        m.d.comb += [
            check.header.eq(header),
            check.products.eq(product),
            check.has_payload.eq(has_payload),
            check.boot_epoch.eq(self.boot_epoch),
        ]
        status = Signal(STATUS_BITS)
        m.d.comb += status.eq(Mux(short, Status.BAD_REQUEST, check.status))
        good = status == Status.OK
        is_match = good & (header.opcode == Opcode.MATCH)
        is_write = good & (header.opcode == Opcode.WRITE)
        by_handle = good & check.by_handle
        locks = (header.flags & int(Flag.LEASE)) != 0

        with m.If(~in_body):
            m.d.comb += req.ready.eq((self.ready | (position != 0)) & ~full)
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
        outstanding = Signal(range(ANSWERS + 1))
        in_flight = Signal(range(ANSWERS + 1))
        reads = Signal(range(RUNS + 1))
        read_room = reads != RUNS
        response_room = outstanding != ANSWERS
        op, handle = self.operation, data.View(HANDLE_STRUCT, header.digest)
        writes_slot = 0
        for hold in (writer.holds[i] for i in range(RUNS)):
            writes_slot |= hold.valid & (hold.slot == handle.slot[: shapes.slot_bits])
        is_put_end = good & (header.opcode == Opcode.PUT_END)
        members = Signal(MEMBERS_BITS)
        m.d.comb += members.eq(Mux(header.members == 0, 1, header.members))
        shifted = Signal()
        needs_shift = is_put_end & (members != 1)
        is_end = good & one_of(header.opcode, (Opcode.PUT_END, Opcode.PUT_REVOKE))
        is_read = good & (header.opcode == Opcode.READ)
        room = response_room & (~is_read | read_room) & (~is_write | writer.room) & ~(is_end & writes_slot)
        ordinary = pending & ~is_match & room & (~in_body | is_write) & (~needs_shift | shifted)
        may_ask = response_room & (~locks | ~walk.first | responder.handles_idle)
        cargo = self.cargo
        m.d.comb += [
            self.valid.eq(writer.land_valid | ordinary | walk.ask & may_ask),
            op.status.eq(status),
            op.opcode.eq(header.opcode),
            op.tag.eq(header.tag),
            op.model_id.eq(header.model_id),
            op.group.eq(header.group),
            op.klass.eq(header.klass),
            op.by_handle.eq(by_handle),
            op.offset.eq(header.offset >> beat_log2),
            op.length.eq(header.length >> beat_log2),
            op.chain_first.eq(is_match & walk.first),
            self.partition.eq(own),
            shift.crc.eq(handle.crc),
            shift.beats.eq(product.behind),
        ]
        with m.If(good):
            m.d.comb += [
                self.partition.eq(header.partition),
                op.locks.eq(locks),
                op.private.eq((header.flags & int(Flag.PRIVATE)) != 0),
                op.session.eq(shapes.session_of_number(header.session)),
                cargo.member.eq(header.member),
                cargo.members.eq(members),
                cargo.ttl.eq(header.ttl),
                cargo.deadline.eq(header.deadline),
                cargo.session_epoch.eq(header.session_epoch),
                cargo.sequence.eq(header.sequence),
            ]
            with m.Switch(header.opcode):
                for opcode, kind in KIND_OF_OPCODE.items():
                    with m.Case(opcode):
                        m.d.comb += op.kind.eq(kind)
        with m.Else():
            m.d.comb += op.kind.eq(Kind.ANSWER)
        with m.If(is_match):
            m.d.comb += [self.digest.eq(walk.digest), op.length.eq(0)]
        with m.Elif(by_handle):
            m.d.comb += [
                op.slot.eq(handle.slot),
                op.generation.eq(handle.generation),
                cargo.lease.eq(handle.lease),
                cargo.crc.eq(handle.crc),
            ]
        with m.Elif(good & one_of(header.opcode, WITH_PORTS)):
            m.d.comb += cargo.ports.eq(header.digest)
        with m.Elif(good):
            m.d.comb += self.digest.eq(header.digest)
        # The share of a member: where it lies in the block.
        share = (header.length >> beat_log2)[: shapes.beat_bits]
        with m.If(good & (header.opcode == Opcode.PUT_START)):
            m.d.comb += [
                cargo.extent.eq(share),
                op.offset.eq(product.before),
                op.length.eq(product.total),
            ]
        with m.If(is_put_end):
            m.d.comb += [
                cargo.extent.eq(share),
                op.length.eq(0),
                cargo.part_crc.eq(Mux(needs_shift, shift.result, handle.crc)),
            ]
        with m.If(is_read & by_handle & (handle.count != 0)):
            m.d.comb += op.length.eq(product.span)
        with m.If(writer.land_valid):
            m.d.comb += [
                op.eq(writer.land),
                op.kind.eq(Kind.LAND),
                op.chain_first.eq(0),
                self.digest.eq(0),
                self.partition.eq(own),
                cargo.eq(0),
                cargo.member.eq(writer.land_member),
                cargo.members.eq(1),
                cargo.crc.eq(writer.land_crc),
            ]
        issue = self.taken & self.valid & ~writer.land_valid
        leaves = issue & ordinary
        match_answers = Signal()
        m.d.comb += match_answers.eq(walk.over & (in_flight == 0) & response_room)
        moved = Signal(message)
        moved_products = Signal(Products(config))
        m.d.comb += moved.eq(Mux(full, collected.as_value(), arriving.as_value()))
        products(m, config, data.View(REQUEST_STRUCT, moved.bits[: REQUEST_STRUCT.size]), moved_products)
        shifting = Signal()
        m.d.comb += shift.start.eq(pending & needs_shift & ~shifting & ~shifted)
        with m.If(shift.start):
            m.d.sync += shifting.eq(1)
        with m.If(shift.done):
            m.d.sync += [shifting.eq(0), shifted.eq(1)]
        with m.If(leaves):
            m.d.sync += pending.eq(0)
        with m.If((full | complete) & (~pending | leaves)):
            m.d.sync += [
                current.eq(moved),
                product.eq(moved_products),
                pending.eq(1),
                shifted.eq(0),
                full.eq(0),
                in_body.eq(moved.has_payload),
            ]
        with m.If(match_answers):
            m.d.sync += [pending.eq(0), in_body.eq(0)]
        m.d.comb += [
            writer.start.eq(leaves & is_write),
            writer.operation.eq(op),
            writer.member.eq(header.member),
            writer.land_taken.eq(self.taken & writer.land_valid),
            walk.taken.eq(issue & ~ordinary),
            walk.clear.eq(match_answers),
        ]

        shape = read_shape_layout(shapes)
        read_shapes = [Signal(shape, name=f"read_shape_{i}") for i in range(RUNS)]
        asked_read, answered_read = Signal(), Signal()
        for i in range(RUNS):
            with m.If(leaves & is_read & (asked_read == i)):
                m.d.sync += [
                    read_shapes[i].runs.eq(by_handle & (handle.count != 0)),
                    read_shapes[i].partition.eq(header.partition),
                    read_shapes[i].run.eq(share),
                    read_shapes[i].stride.eq(handle.stride >> beat_log2),
                    read_shapes[i].total.eq(product.total),
                ]

        # Results. Those of MATCH only count; a WRITE that was accepted is answered when it has landed.
        result = self.result
        comes = self.result_valid
        ok = result.status == Status.OK
        is_match_result, is_land = result.kind == Kind.MATCH, result.kind == Kind.LAND
        is_write_result, is_read_result = result.kind == Kind.WRITE, result.kind == Kind.READ
        m.d.comb += [walk.returned.eq(comes & is_match_result), walk.status.eq(result.status)]
        reads_now = comes & is_read_result
        wanted = Signal(shape)
        read_length = Signal(shapes.beat_bits)
        m.d.comb += [
            wanted.eq(Mux(answered_read, read_shapes[1].as_value(), read_shapes[0].as_value())),
            read_length.eq(Mux(wanted.runs & ok, wanted.total, result.length)),
            reader.start.eq(reads_now & ok),
            reader.from_partition.eq(wanted.partition),
            reader.slot.eq(result.slot),
            reader.beat.eq(result.offset),
            reader.count.eq(read_length),
            reader.run.eq(Mux(wanted.runs, wanted.run, read_length)),
            reader.stride.eq(wanted.stride),
            writer.verdict.eq(comes & is_write_result),
            writer.accepted.eq(ok),
            writer.fresh.eq(result.fresh),
            writer.part_crc.eq(result.word),
        ]
        m.d.sync += [
            reads.eq(reads + (leaves & is_read) - reader.done - (reads_now & ~ok)),
            asked_read.eq(asked_read ^ (leaves & is_read)),
            answered_read.eq(answered_read ^ reads_now),
        ]

        answer, answered = responder.answer, comes & ~is_match_result & ~is_land
        by_session = is_session_kind(result.kind)
        m.d.comb += [
            responder.answer_valid.eq(answered | match_answers),
            answer.status.eq(result.status),
            answer.opcode.eq(result.opcode),
            answer.tag.eq(result.tag),
            answer.write.eq(is_write_result),
            answer.waits.eq(is_write_result & ok),
            answer.data.eq(is_read_result & ok),
            responder.landed_valid.eq(comes & is_land),
            responder.landed.status.eq(result.status),
            responder.landed.found.eq(result.found),
            responder.landed.watermark.eq(result.watermark),
            responder.wake.eq(self.wake),
            responder.handle_valid.eq(walk.counts & locks),
            responder.drop_handles.eq(match_answers & walk.wrong & locks & ~walk.first),
            responder.handle.slot.eq(result.slot),
            responder.handle.generation.eq(result.generation),
            responder.handle.lease.eq(result.number),
        ]
        with m.If(by_session):
            m.d.comb += [
                answer.slot.eq(result.number),
                answer.generation.eq(result.epoch),
                answer.watermark.eq(result.word),
            ]
        with m.Elif(result.found):
            m.d.comb += [
                answer.slot.eq(result.slot),
                answer.generation.eq(result.generation),
                answer.length.eq(Mux(is_read_result, read_length, result.length)),
                answer.watermark.eq(Mux(result.locked, result.number, result.watermark << beat_log2)),
                answer.leased.eq(result.locked),
            ]
            with m.If(~is_write_result | (result.status == Status.WRITE_ONCE)):
                m.d.comb += answer.crc.eq(result.word)
        with m.If(match_answers):
            m.d.comb += [
                answer.eq(0),
                answer.status.eq(Mux(walk.hits != 0, Status.HIT, walk.first_status)),
                answer.opcode.eq(header.opcode),
                answer.tag.eq(header.tag),
                answer.count.eq(walk.hits),
                answer.leased.eq(locks & (walk.hits != 0)),
                answer.handles.eq(locks & (walk.hits != 0)),
            ]
            with m.If(walk.wrong):
                m.d.comb += [
                    answer.status.eq(Status.BAD_REQUEST), answer.count.eq(0), answer.leased.eq(0), answer.handles.eq(0),
                ]  # fmt: skip
        m.d.sync += [
            in_flight.eq(in_flight + leaves - answered),
            outstanding.eq(outstanding + (leaves | match_answers) - responder.left),
        ]
        m.d.comb += [
            self.idle.eq(~pending & ~full & ~in_body & (position == 0) & (outstanding == 0)),
            self.arrives.eq(complete),
            self.answers.eq(responder.left),
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
