"""A port: takes messages apart, gives their operations to the directory in order, and answers in the same order."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import KIND_OF_OPCODE, SUPPORTED_OPCODES, Flag, Kind, Opcode, Status
from kvnode.models.spec.messages import HANDLE, VERSION
from kvnode.models.spec.requests import BY_EITHER, BY_HANDLE_ONLY, WITH_PAYLOAD
from kvnode.models.spec.timing import data_fifo_depth

from ..layouts import REQUEST_STRUCT, RESPONSE_STRUCT, STATUS_BITS, Shapes, index_bits, struct
from ..ownership import By, Owned
from ..stream import Queue
from .transfer import RUNS, ReadEngine, WriteEngine

#: Answers that wait for their turn on the response stream; every operation keeps a place here before it is issued.
RESPONSE_DEPTH = 16
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

        def opcode_in(opcodes):
            return Cat(header.opcode == opcode for opcode in opcodes).any()

        beat_log2 = config.beat_bytes.bit_length() - 1
        flagged = header.flags[0]
        only, either = opcode_in(BY_HANDLE_ONLY), opcode_in(BY_EITHER)
        unused = ("member", "ttl", "deadline", "reserved", "session_epoch", "session", "sequence")
        aligned, length = header.length[:beat_log2] == 0, header.length
        digest_rest = header.digest[config.digest_bits :] if config.digest_bits < 256 else Const(0, 1)
        form = Signal()
        m.d.comb += [
            self.by_handle.eq(only | flagged),
            form.eq(
                (header.version == VERSION)
                & opcode_in(SUPPORTED_OPCODES)
                & (header.model_id < config.models)
                & (header.klass < 4)
                & ((header.flags & ~int(Flag.BY_HANDLE) & 0xFF) == 0)
                & (~flagged | only | either)
                & (Cat(header[name] for name in unused) == 0)
                & (opcode_in(WITH_PAYLOAD) == self.has_payload)
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

        # A staged beat of digests of a MATCH; in narrow ports a digest takes several beats.
        digest_beats, digests_per_beat = max(1, 32 // beat_bytes), max(1, beat_bytes // 32)
        staged = Signal(max(256, data_bits))
        staged_count = Signal(range(digests_per_beat + 1))
        staged_beats = Signal(index_bits(digest_beats))
        body_ended = Signal()
        with m.If(~in_body):
            m.d.comb += req.ready.eq(self.ready & ~full)
        with m.Elif(is_match):
            m.d.comb += req.ready.eq((staged_count == 0) & ~body_ended)
        with m.Elif(is_write):
            m.d.comb += req.ready.eq(payload.i.ready)
        with m.Else():
            m.d.comb += req.ready.eq(1)
        arrives = req.valid & req.ready
        m.d.comb += [payload.i.valid.eq(req.valid & in_body & is_write), payload.i.p.eq(req.p)]
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

        # MATCH: one digest in each turn, until one misses; the answer when all that were asked have come back.
        expected = header.length[5 : 5 + shapes.count_bits]
        arrived = Signal(shapes.count_bits + 1)
        issued = Signal(shapes.count_bits)
        returned = Signal(shapes.count_bits)
        hits = Signal(shapes.count_bits)
        missed = Signal()
        torn = Signal()
        match_answers = Signal()
        surplus = Signal()
        with m.If(arrives & in_body & is_match):
            if digest_beats > 1:
                m.d.sync += staged.eq(Cat(staged[data_bits:], req.p.data))
                m.d.sync += staged_beats.eq(staged_beats + 1)
                with m.If(staged_beats == digest_beats - 1):
                    m.d.sync += staged_count.eq(1)
                with m.Elif(req.p.last):
                    m.d.sync += torn.eq(1)
            else:
                m.d.sync += [staged.eq(req.p.data), staged_count.eq(digests_per_beat)]
            m.d.sync += body_ended.eq(req.p.last)
        m.d.comb += surplus.eq(missed | (arrived >= expected))
        ask = in_body & is_match & (staged_count != 0) & ~surplus
        take_digest = (
            (staged_count != 0) & in_body & is_match & (surplus | self.taken & self.valid & ~writer.land_valid)
        )
        with m.If(take_digest):
            m.d.sync += [staged.eq(staged >> 256), staged_count.eq(staged_count - 1)]
            with m.If(arrived != (1 << len(arrived)) - 1):
                m.d.sync += arrived.eq(arrived + 1)
            if config.digest_bits < 256:
                with m.If((staged[config.digest_bits : 256] != 0) & (arrived < expected)):
                    m.d.sync += torn.eq(1)
        # The final beat of a message may carry one digest more than announced when a beat holds two.
        padding = (digests_per_beat - 1) if digests_per_beat > 1 else 0
        wrong_count = (arrived < expected) | (arrived > expected + (expected[0] if padding else 0)) | torn

        # Operations, in order: a landed WRITE first, then the message at hand.
        outstanding = Signal(range(RESPONSE_DEPTH + 1))
        in_flight = Signal(range(RESPONSE_DEPTH + 1))
        reads = Signal(range(RUNS + 1))
        read_room = reads != RUNS
        response_room = outstanding != RESPONSE_DEPTH
        op, handle = self.operation, data.View(HANDLE_STRUCT, header.digest)
        writes_slot = 0
        for hold in (writer.holds[i] for i in range(RUNS)):
            writes_slot |= hold.valid & (hold.slot == handle.slot[: shapes.slot_bits])
        is_end = good & ((header.opcode == Opcode.PUT_END) | (header.opcode == Opcode.PUT_REVOKE))
        is_read = good & (header.opcode == Opcode.READ)
        room = response_room & (~is_read | read_room) & (~is_write | writer.room) & ~(is_end & writes_slot)
        ordinary = pending & ~is_match & room & (~in_body | is_write)
        m.d.comb += [
            self.valid.eq(writer.land_valid | ordinary | pending & ask & response_room),
            op.status.eq(status),
            op.opcode.eq(header.opcode),
            op.tag.eq(header.tag),
            op.model_id.eq(header.model_id),
            op.group.eq(header.group),
            op.klass.eq(header.klass),
            op.by_handle.eq(good & check.by_handle),
            op.offset.eq(header.offset >> beat_log2),
            op.length.eq(header.length >> beat_log2),
            op.chain_first.eq(is_match & (issued == 0)),
        ]
        with m.If(good):
            with m.Switch(header.opcode):
                for opcode, kind in KIND_OF_OPCODE.items():
                    with m.Case(opcode):
                        m.d.comb += op.kind.eq(kind)
        with m.Else():
            m.d.comb += op.kind.eq(Kind.ANSWER)
        with m.If(is_match):
            m.d.comb += [self.digest.eq(staged), op.length.eq(0)]
        with m.Elif(op.by_handle):
            m.d.comb += [op.slot.eq(handle.slot), op.generation.eq(handle.generation)]
        with m.Elif(good):
            m.d.comb += self.digest.eq(header.digest)
        with m.If(writer.land_valid):
            m.d.comb += [op.eq(writer.land), op.kind.eq(Kind.LAND), op.chain_first.eq(0), self.digest.eq(0)]
        issue = self.taken & self.valid & ~writer.land_valid
        leaves = issue & ordinary
        match_ends = body_ended & (staged_count == 0) & (returned == issued) & (in_flight == 0)
        m.d.comb += match_answers.eq(is_match & in_body & match_ends & response_room)
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
        with m.If(issue & ~ordinary):
            m.d.sync += issued.eq(issued + 1)
        with m.If(match_answers):
            m.d.sync += [pending.eq(0), in_body.eq(0), body_ended.eq(0), torn.eq(0), staged_beats.eq(0)]
            m.d.sync += [arrived.eq(0), issued.eq(0), returned.eq(0), hits.eq(0), missed.eq(0)]
        m.d.comb += [
            writer.start.eq(leaves & is_write),
            writer.operation.eq(op),
            writer.land_taken.eq(self.taken & writer.land_valid),
        ]

        # Results. Those of MATCH only count; a WRITE that was accepted is answered when it has landed.
        result = self.result
        comes = self.result_valid
        ok = result.status == Status.OK
        is_match_result, is_land = result.kind == Kind.MATCH, result.kind == Kind.LAND
        with m.If(comes & is_match_result):
            m.d.sync += returned.eq(returned + 1)
            with m.If(result.status != Status.HIT):
                m.d.sync += missed.eq(1)
            with m.Elif(~missed):
                m.d.sync += hits.eq(hits + 1)
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

        answer_layout = data.StructLayout(
            {
                "status": STATUS_BITS,
                "opcode": 8,
                "tag": 16,
                "count": shapes.count_bits,
                "slot": shapes.slot_bits,
                "generation": config.generation_bits,
                "length": shapes.beat_bits,
                "watermark": shapes.beat_bits,
                "write": 1,
                "waits": 1,
                "data": 1,
            }
        )
        landed_layout = data.StructLayout({"status": STATUS_BITS, "found": 1, "watermark": shapes.beat_bits})
        m.submodules.answers = answers = Queue(answer_layout, RESPONSE_DEPTH)
        m.submodules.landed = landed = Queue(landed_layout, RESPONSE_DEPTH)
        answer = answers.i.p
        answered = comes & ~is_match_result & ~is_land
        m.d.sync += in_flight.eq(in_flight + leaves - answered)
        m.d.comb += [
            answers.i.valid.eq(answered | match_answers),
            answer.status.eq(result.status),
            answer.opcode.eq(result.opcode),
            answer.tag.eq(result.tag),
            answer.write.eq(result.kind == Kind.WRITE),
            answer.waits.eq((result.kind == Kind.WRITE) & ok),
            answer.data.eq((result.kind == Kind.READ) & ok),
            landed.i.valid.eq(comes & is_land),
            landed.i.p.status.eq(result.status),
            landed.i.p.found.eq(result.found),
            landed.i.p.watermark.eq(result.watermark),
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
                answer.status.eq(Mux(hits != 0, Status.HIT, Status.MISS)),
                answer.opcode.eq(header.opcode),
                answer.tag.eq(header.tag),
                answer.count.eq(hits),
            ]
            with m.If(wrong_count):
                m.d.comb += [answer.status.eq(Status.BAD_REQUEST), answer.count.eq(0)]
        m.d.sync += outstanding.eq(outstanding + (leaves | match_answers) - (answers.o.valid & answers.o.ready))

        # Responses: a header, and for READ its beats from the data queue right behind it.
        m.submodules.beats = beats = Queue(data_bits, data_fifo_depth(config.ports))
        credit = Signal(range(beats.depth + 1), init=beats.depth)
        m.d.comb += [
            beats.i.valid.eq(self.data_valid),
            beats.i.p.eq(self.data),
            reader.credit.eq(credit != 0),
            reader.bank.eq(self.bank),
            writer.bank.eq(self.bank),
            self.read_valid.eq(reader.issue),
            self.read_row.eq(Mux(reader.issue, reader.row, 0)),
            self.write_valid.eq(writer.issue),
            self.write_row.eq(Mux(writer.issue, writer.row, 0)),
            self.write_data.eq(writer.beat_data),
        ]
        m.d.sync += credit.eq(credit - reader.issue + (beats.o.valid & beats.o.ready))
        wiring.connect(m, payload.o, writer.payload)
        for i in range(RUNS):
            m.d.comb += [self.holds[i].eq(reader.holds[i]), self.holds[RUNS + i].eq(writer.holds[i])]

        out = answers.o
        response = Signal(RESPONSE_STRUCT)
        rsp = self.rsp
        sending = Signal()
        # WRITE messages whose last beat is in: a refused one is not answered before.
        writes_in = Signal(range(RESPONSE_DEPTH + 1))
        write_answered = out.valid & out.ready & out.p.write
        m.d.sync += writes_in.eq(writes_in + (arrives & in_body & is_write & req.p.last) - write_answered)
        answerable = out.valid & (~out.p.write | (writes_in != 0)) & (~out.p.waits | landed.o.valid)
        remaining = Signal(shapes.beat_bits)
        found = ~out.p.waits | landed.o.p.found
        m.d.comb += [
            response.status.eq(Mux(out.p.waits, landed.o.p.status, out.p.status)),
            response.opcode.eq(out.p.opcode),
            response.version.eq(VERSION),
            response.tag.eq(out.p.tag),
            response.count.eq(out.p.count),
            response.boot_epoch.eq(self.boot_epoch),
            response.slot.eq(Mux(found, out.p.slot, 0)),
            response.generation.eq(Mux(found, out.p.generation, 0)),
            response.length.eq(Mux(found, out.p.length, 0) << beat_log2),
            response.watermark.eq(
                Mux(out.p.waits, Mux(landed.o.p.found, landed.o.p.watermark, 0), out.p.watermark) << beat_log2
            ),
        ]
        response_beats = config.response_beats
        beat_index = Signal(index_bits(response_beats))
        with m.If(~sending):
            padded = Cat(response.as_value(), Const(0, response_beats * data_bits - 256 + 1))
            final = beat_index == response_beats - 1
            m.d.comb += [
                rsp.valid.eq(answerable),
                rsp.p.last.eq(final & ~out.p.data),
            ]
            with m.If(rsp.valid):
                m.d.comb += rsp.p.data.eq(padded.word_select(beat_index, data_bits))
            with m.If(rsp.valid & rsp.ready):
                m.d.sync += beat_index.eq(beat_index + 1)
                with m.If(final):
                    m.d.comb += [out.ready.eq(1), landed.o.ready.eq(out.p.waits)]
                    m.d.sync += [beat_index.eq(0), sending.eq(out.p.data), remaining.eq(out.p.length)]
        with m.Else():
            m.d.comb += [rsp.valid.eq(beats.o.valid), rsp.p.last.eq(remaining == 1), beats.o.ready.eq(rsp.ready)]
            with m.If(rsp.valid):
                m.d.comb += rsp.p.data.eq(beats.o.p)
            with m.If(rsp.valid & rsp.ready):
                m.d.sync += remaining.eq(remaining - 1)
                with m.If(remaining == 1):
                    m.d.sync += sending.eq(0)
        return m
