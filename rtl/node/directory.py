"""The directory: one pipeline, one operation per cycle, one constant latency (ARCHITECTURE sections 2, 4, 5).

Stage 0 takes the operation of the turn's owner and reads its model's epoch; 1 and 2 hash; 3 reads the index; 4 compares
tags; 5 commits the index and the free list, so a slot is granted or given back here; 6 reads the block table (and
writes the key of a granted slot); 7 compares the full key; 8 commits the block's state; 9 answers.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import SWEEPER_KINDS, Kind, State, Status
from kvnode.models.spec.messages import TraceFlag
from kvnode.models.spec.timing import STATE_COMMIT_STAGE

from ..layouts import STATUS_BITS, TRACE_STRUCT, Shapes, one_of
from ..memory import DelayLine
from ..ownership import By, Owned
from ..trace import TracePort
from .block_table import BlockTable
from .coherence import Coherence
from .fill_table import FillTable
from .index import Index, fold
from .partitions import FreeLists


class Directory(wiring.Component):
    """Index, block table, fill table, free lists and model epochs around one pipeline.

    Ports: `operation` with `digest`, `owner` and `partition` enters when `start` is high (stage 0); `result` for
    `result_owner` is there nine cycles later with `result_valid`; `retire*` reports a slot that begins to retire;
    `low` says of each partition that it is short of free slots; `ready` is low while the tables are cleared after
    reset. `trace` holds the record of the operation that is answered in this cycle.

    What happens in a cycle: the operation at stage 5 sees every insertion, removal and slot of those in front of it,
    the operation at stage 8 every state and watermark; so the pipeline is equal to executing operations one at a time
    in their order, except for fill rows, see models.spec.timing.FILL_ROW_RELEASE_CYCLES.

    Used by: node.
    """

    OWNERSHIP = (
        Owned("walk", By.PUBLIC),
        Owned("s1_*", By.TAG, "s1_head"),
        Owned("s2_*", By.TAG, "s2_head"),
        Owned("s3_*", By.TAG, "s3_head"),
        Owned("s4_*", By.TAG, "s4_head"),
        Owned("s5_*", By.TAG, "s5_head"),
        Owned("s6_*", By.TAG, "s6_head"),
        Owned("s7_*", By.TAG, "s7_head"),
        Owned("s8_*", By.TAG, "s8_head"),
        Owned("match", By.TAG, "s8_head"),
        Owned("stale", By.TAG, "s8_head"),
        Owned("retire_where", By.TAG, "s8_head"),
        Owned("chained_*", By.PORT),
        Owned("spare_*", By.NUMBER),
        Owned("evicting_*", By.NUMBER),
        Owned("result*", By.TAG, "result_owner"),
        Owned("epochs", By.ADDRESS),
        Owned("late_epochs", By.ADDRESS),
    )

    def __init__(self, config: NodeConfig, fault: str | None = None):
        self.config, self.shapes, self.fault = config, Shapes(config), fault
        shapes = self.shapes
        super().__init__(
            {
                "start": In(1),
                "owner": In(shapes.owner_bits),
                "partition": In(shapes.partition_bits),
                "operation": In(shapes.operation),
                "digest": In(config.digest_bits),
                "low": Out(len(config.partitions)),
                "ready": Out(1),
                "result_valid": Out(1),
                "result_owner": Out(shapes.owner_bits),
                "result": Out(shapes.result),
                "retire": Out(1),
                "retire_partition": Out(shapes.partition_bits),
                "retire_slot": Out(shapes.slot_bits),
                "retire_where": Out(shapes.where),
                "trace_valid": Out(1),
                "trace": Out(TRACE_STRUCT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, shapes = self.config, self.shapes
        m.submodules.index = index = Index(config, self.fault)
        m.submodules.blocks = blocks = BlockTable(config)
        m.submodules.fills = fills = FillTable(config)
        m.submodules.free = free = FreeLists(config)
        m.submodules.coherence = coherence = Coherence(config, self.fault)
        slot_bases = config.slot_bases
        row_bases = [base // config.ways for base in slot_bases]
        row_masks = [(1 << rows_log2) - 1 for rows_log2 in config.rows_log2]
        slot_masks = [partition.slots - 1 for partition in config.partitions]

        # The walk that clears the tables after reset.
        epoch_rows = len(config.partitions) << shapes.model_bits
        walk_end = max(config.slots, epoch_rows)
        walk = Signal(range(walk_end + 1))
        clearing = Signal()
        m.d.comb += [
            clearing.eq(walk != walk_end),
            self.ready.eq(~clearing),
            index.clear.eq(clearing & (walk < config.index_rows)),
            index.clear_row.eq(walk),
            blocks.clear.eq(clearing & (walk < config.slots)),
            blocks.clear_slot.eq(walk),
        ]
        m.d.sync += walk.eq(walk + clearing)

        # Operation, owner and partition of every stage.
        head = data.StructLayout({"valid": 1, "owner": shapes.owner_bits, "partition": shapes.partition_bits})
        stages = range(1, STATE_COMMIT_STAGE + 1)
        heads = {k: Signal(head, name=f"s{k}_head") for k in stages}
        ops = {k: Signal(shapes.operation, name=f"s{k}_op") for k in stages}
        epochs = {k: Signal(config.epoch_bits, name=f"s{k}_epoch") for k in stages}
        for k in stages:
            if k > 1:
                m.d.sync += [heads[k].eq(heads[k - 1]), ops[k].eq(ops[k - 1]), epochs[k].eq(epochs[k - 1])]

        # Stage 0: the model's epoch. Retiring a model is one increment, seen by the next operation.
        m.submodules.epochs = epoch_memory = memory.Memory(shape=config.epoch_bits, depth=epoch_rows, init=[])
        epoch_read, epoch_write = epoch_memory.read_port(domain="comb"), epoch_memory.write_port()
        epoch_address = Cat(self.operation.model_id, self.partition)
        retire_model = self.start & (self.operation.kind == Kind.RETIRE_MODEL)
        epoch = Signal(config.epoch_bits)
        m.d.comb += [
            epoch_read.addr.eq(epoch_address),
            epoch_write.addr.eq(Mux(clearing, walk, epoch_address)),
            epoch_write.en.eq(clearing | retire_model),
            epoch_write.data.eq(Mux(clearing, 0, epoch_read.data + 1)),
            epoch.eq(epoch_read.data + retire_model),
        ]
        m.d.sync += [
            heads[1].valid.eq(self.start),
            heads[1].owner.eq(self.owner),
            heads[1].partition.eq(self.partition),
            ops[1].eq(self.operation),
            epochs[1].eq(epoch),
        ]
        folded = Signal(64)
        m.d.sync += folded.eq(fold(self.digest))
        m.submodules.digests = digests = DelayLine(config.digest_bits, 6)
        m.d.comb += digests.input.eq(self.digest)
        s6_digest = digests.output
        s7_digest = Signal(config.digest_bits)
        m.d.sync += s7_digest.eq(s6_digest)

        # Stage 1: into the index.
        s1 = heads[1]
        m.d.comb += [
            index.s1_folded.eq(folded),
            index.s1_whitening.eq(ops[1].model_id | ops[1].group << 16 | epochs[1] << 24),
            index.s1_seed.eq(Array(p.seed for p in config.partitions)[s1.partition]),
            index.s1_base.eq(Array(row_bases)[s1.partition]),
            index.s1_mask.eq(Array(row_masks)[s1.partition]),
        ]

        # Stage 5: grant a slot, or take one back.
        s5, op5 = heads[5], ops[5]
        is_start = s5.valid & (op5.kind == Kind.PUT_START)
        grant = Signal()
        reap = Signal()
        m.d.comb += [
            free.s4_partition.eq(heads[4].partition),
            free.s5_partition.eq(s5.partition),
            fills.s5_partition.eq(s5.partition),
            grant.eq(is_start & ~index.s5_hit & index.s5_room & free.s5_any & fills.s5_room),
            reap.eq(s5.valid & (op5.kind == Kind.REAP)),
            free.pop.eq(grant),
            free.push.eq(reap),
            free.push_slot.eq(op5.slot),
            fills.take.eq(grant),
            index.insert.eq(grant),
            index.insert_slot.eq(free.s5_slot),
            index.remove.eq(reap),
            index.remove_where.eq(op5.where),
            index.remove_base.eq(Array(row_bases)[s5.partition]),
        ]
        direct5 = op5.by_handle | one_of(op5.kind, SWEEPER_KINDS)
        verdict = data.StructLayout(
            {
                "slot": shapes.slot_bits,
                "physical": blocks.address_bits,
                "reached": 1,
                "granted": 1,
                "fill_row": shapes.fill_row_bits,
                "where": shapes.where,
                "free_count": shapes.slot_bits + 1,
            }
        )
        verdicts = {k: Signal(verdict, name=f"s{k}_verdict") for k in (6, 7, 8)}
        slot5 = Mux(grant, free.s5_slot, Mux(direct5, op5.slot, index.s5_slot))
        slot5 = slot5 & Array(slot_masks)[s5.partition]
        m.d.sync += [
            verdicts[6].slot.eq(slot5),
            verdicts[6].physical.eq(Array(slot_bases)[s5.partition] | slot5),
            verdicts[6].reached.eq(op5.by_handle | index.s5_hit),
            verdicts[6].granted.eq(grant),
            verdicts[6].fill_row.eq(fills.s5_row),
            verdicts[6].where.eq(index.s5_choice),
            verdicts[7].eq(verdicts[6]),
            verdicts[7].free_count.eq(free.s6_count),
            verdicts[8].eq(verdicts[7]),
        ]

        # Stage 6: the block's rows; a granted slot gets its key here.
        v6 = verdicts[6]
        m.d.comb += [
            blocks.s6_slot.eq(v6.physical),
            blocks.s6_write_key.eq(v6.granted & heads[6].valid),
            blocks.s6_key.digest.eq(s6_digest),
            blocks.s6_key.model_id.eq(ops[6].model_id),
            blocks.s6_key.group.eq(ops[6].group),
            blocks.s6_key.epoch.eq(epochs[6]),
            blocks.s6_key.where.eq(v6.where),
        ]

        # Stage 7: the full key, and whether the block's model is still current. This copy of the epochs is written
        # where it is read, so that the sweeper's operations stay in their order.
        m.submodules.late_epochs = late_memory = memory.Memory(shape=config.epoch_bits, depth=epoch_rows, init=[])
        late_read, late_write = late_memory.read_port(domain="comb"), late_memory.write_port()
        key, state7, op7, v7 = blocks.s7_key, blocks.s7_state, ops[7], verdicts[7]
        fill_row7 = Mux(v7.granted, v7.fill_row, state7.fill_row)
        same_model = (key.model_id == op7.model_id) & (key.epoch == epochs[7])
        same_key = (key.digest == s7_digest) & (key.group == op7.group)
        same_generation = state7.generation == op7.generation
        match = Signal()
        stale = Signal()
        fill_row8 = Signal(shapes.fill_row_bits, name="s8_fill_row")
        state8 = Signal(blocks.state, name="s8_state")
        where8 = Signal(shapes.where, name="s8_where")
        m.d.comb += [
            late_read.addr.eq(Cat(key.model_id, heads[7].partition)),
            late_write.addr.eq(Mux(clearing, walk, Cat(op7.model_id, heads[7].partition))),
            late_write.data.eq(Mux(clearing, 0, epochs[7])),
            late_write.en.eq(clearing | heads[7].valid & (op7.kind == Kind.RETIRE_MODEL)),
            fills.s7_partition.eq(heads[7].partition),
            fills.s7_row.eq(fill_row7),
        ]
        m.d.sync += [
            match.eq(v7.reached & same_model & Mux(op7.by_handle, same_generation, same_key)),
            stale.eq(key.epoch != late_read.data),
            fill_row8.eq(fill_row7),
            state8.eq(state7),
            where8.eq(Mux(v7.granted, v7.where, key.where)),
        ]

        # Stage 8: decide and commit.
        s8, op8, v8 = heads[8], ops[8], verdicts[8]
        meets = s8.valid & (op8.kind != Kind.ANSWER) & (op8.kind != Kind.RETIRE_MODEL)
        swept = one_of(op8.kind, SWEEPER_KINDS)
        live = (state8.state == State.FILLING) | (state8.state == State.SEALED)
        chains = Array(Signal(name=f"chained_{port}") for port in range(config.ports))
        chained = Signal()
        present = Signal()
        touched = Signal()
        view = coherence.view
        m.d.comb += [
            present.eq(match & ~swept & ~v8.granted & (~op8.by_handle | live)),
            touched.eq(meets & (present | swept | v8.granted)),
            chained.eq(op8.chain_first | chains[s8.owner]),
            coherence.kind.eq(op8.kind),
            coherence.by_handle.eq(op8.by_handle),
            view.present.eq(present),
            view.state.eq(Mux(v8.granted, State.FREE, state8.state)),
            view.owner.eq(fills.s8_fill.writer == s8.owner),
            view.offset.eq(op8.offset),
            view.length.eq(op8.length),
            view.block_length.eq(state8.length),
            view.accepted.eq(fills.s8_fill.accepted),
            view.landed.eq(fills.s8_fill.landed),
            view.age.eq(state8.age),
            view.klass.eq(Mux(v8.granted, op8.klass, state8.klass)),
            view.room.eq(v8.granted),
            view.chained.eq(chained),
            view.whole.eq(op8.whole),
            view.stale.eq(stale),
            view.low.eq(self.low.bit_select(s8.partition, 1)),
        ]
        # Slots free or on their way to it: below the low watermark eviction begins, at the high watermark it ends.
        spares = [Signal(p.slots_log2 + 1, init=p.slots, name=f"spare_{i}") for i, p in enumerate(config.partitions)]
        evicting = [Signal(name=f"evicting_{i}") for i in range(len(config.partitions))]
        for i, partition in enumerate(config.partitions):
            fewer_than_high = spares[i] < partition.high_watermark_slots
            m.d.comb += self.low[i].eq((spares[i] < partition.low_watermark_slots) | evicting[i] & fewer_than_high)
            m.d.sync += evicting[i].eq(self.low[i])
            with m.If(s8.valid & (s8.partition == i)):
                m.d.sync += spares[i].eq(spares[i] - v8.granted + self.retire)
        with m.If(meets & (op8.kind == Kind.MATCH)):
            m.d.sync += chains[s8.owner].eq(coherence.status == Status.HIT)
        after = blocks.commit_state
        m.d.comb += [
            blocks.commit.eq(touched),
            blocks.commit_slot.eq(v8.physical),
            after.eq(state8),
            after.state.eq(coherence.state),
            after.age.eq(coherence.age),
            fills.s8_partition.eq(s8.partition),
            fills.s8_row.eq(fill_row8),
            fills.commit.eq(touched & (after.state == State.FILLING)),
            fills.s8_commit.writer.eq(fills.s8_fill.writer),
            fills.s8_commit.accepted.eq(coherence.accepted),
            fills.s8_commit.landed.eq(coherence.landed),
            fills.release.eq(touched & (view.state == State.FILLING) & (after.state != State.FILLING)),
            self.retire.eq(touched & (view.state != State.RETIRING) & (after.state == State.RETIRING)),
            self.retire_partition.eq(s8.partition),
            self.retire_slot.eq(v8.slot),
            self.retire_where.eq(where8),
        ]
        with m.If(v8.granted):
            m.d.comb += [
                after.length.eq(op8.length),
                after.klass.eq(op8.klass),
                after.fill_row.eq(fill_row8),
                fills.s8_commit.writer.eq(s8.owner),
            ]
        with m.If(op8.kind == Kind.REAP):
            m.d.comb += after.generation.eq(state8.generation + 1)

        # Stage 9: the answer, and the trace record.
        status = Signal(STATUS_BITS)
        found = touched & (v8.granted | present & (state8.state != State.RETIRING))
        whole_length = after.length - op8.offset
        m.d.comb += status.eq(Mux(meets, coherence.status, op8.status))
        run_length = Mux(op8.length == 0, whole_length, op8.length)
        is_read = op8.kind == Kind.READ
        result = self.result
        m.d.sync += [
            self.result_valid.eq(s8.valid),
            self.result_owner.eq(s8.owner),
            result.kind.eq(op8.kind),
            result.status.eq(status),
            result.opcode.eq(op8.opcode),
            result.tag.eq(op8.tag),
            result.found.eq(found),
            result.slot.eq(v8.slot),
            result.generation.eq(after.generation),
            result.offset.eq(op8.offset),
            result.length.eq(Mux(is_read, Mux(status == Status.OK, run_length, 0), after.length)),
            result.watermark.eq(
                Mux(after.state == State.SEALED, after.length, Mux(after.state == State.FILLING, coherence.landed, 0))
            ),
        ]
        m.submodules.trace_port = trace_port = TracePort()
        record, s8_digest = trace_port.record, Signal(config.digest_bits, name="s8_digest")
        flags = {
            TraceFlag.BY_HANDLE: op8.by_handle,
            TraceFlag.CHAIN_FIRST: op8.chain_first,
            TraceFlag.WHOLE: op8.whole,
            TraceFlag.PRESENT: present & meets,
        }
        m.d.sync += s8_digest.eq(s7_digest)
        m.d.comb += [
            trace_port.commit.eq(s8.valid),
            self.trace_valid.eq(trace_port.valid),
            self.trace.eq(trace_port.trace),
            record.order.eq(trace_port.order),
            record.cycle.eq(trace_port.cycle),
            record.owner.eq(s8.owner),
            record.partition.eq(s8.partition),
            record.kind.eq(op8.kind),
            record.status.eq(status),
            record.flags.eq(Cat(flags[1 << bit] for bit in range(len(flags)))),
            record.model_id.eq(op8.model_id),
            record.group.eq(op8.group),
            record.klass.eq(op8.klass),
            record.epoch.eq(Mux((op8.kind == Kind.ANSWER) | swept, 0, epochs[8])),
            record.slot.eq(op8.slot),
            record.generation.eq(op8.generation),
            record.offset.eq(op8.offset),
            record.length.eq(op8.length),
            record.digest.eq(s8_digest),
            record.free_count.eq(v8.free_count),
        ]
        with m.If(touched):
            m.d.comb += [
                record.state_before.eq(view.state),
                record.state_after.eq(after.state),
                record.age.eq(after.age),
                record.block_slot.eq(v8.slot),
                record.block_generation.eq(after.generation),
                record.block_length.eq(after.length),
            ]
        with m.If(touched & (after.state == State.FILLING)):
            m.d.comb += [record.accepted.eq(coherence.accepted), record.landed.eq(coherence.landed)]
        return m
