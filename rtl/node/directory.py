"""The directory: one pipeline, one operation per cycle, one constant latency (ARCHITECTURE sections 2, 4, 5).

Stage 0 takes the operation of the turn's owner and reads its model's epoch; 1 and 2 hash; 3 reads the index; 4 compares
tags; 5 commits the index and the free list, so a slot is granted or given back here; 6 reads the block table (and
writes the key of a granted slot); 7 compares the full key and reads the rows of fill, member, session and lease; 8
judges and commits them all; 9 answers.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.causes import Cause
from kvnode.models.spec.clock import TTL_TICKS
from kvnode.models.spec.coherence import Event
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import BLOCKLESS_KINDS, SESSION_KINDS, SWEEPER_KINDS, Kind, State, Status
from kvnode.models.spec.messages import TraceFlag
from kvnode.models.spec.requests import MAX_MEMBERS
from kvnode.models.spec.timing import STATE_COMMIT_STAGE

from ..layouts import CAUSE_BITS, STATUS_BITS, TICK_BITS, TRACE_STRUCT, Shapes, index_bits, one_of
from ..memory import DelayLine
from ..ownership import By, Owned
from ..trace import TracePort
from .block_table import BlockTable
from .coherence import Coherence
from .fill_table import FillTable
from .index import Index, fold
from .leases import Leases
from .partitions import FreeLists
from .sessions import Sessions, is_session_kind, passed
from .settings import Settings, settings_layout

#: Cycles that digest and cargo travel beside the pipeline: what goes in with stage 0 comes out at stage 5.
DELAY_CYCLES = 5


def head_layout(shapes: Shapes) -> data.StructLayout:
    """Whose operation stands in a stage."""
    return data.StructLayout({"valid": 1, "owner": shapes.owner_bits, "partition": shapes.partition_bits})


def verdict_layout(shapes: Shapes) -> data.StructLayout:
    """What stage 5 has found and granted, beside the operation from stage 6 on."""
    return data.StructLayout(
        {
            "slot": shapes.slot_bits,
            "physical": index_bits(shapes.config.slots),
            "reached": 1,
            "room": 1,
            "granted": 1,
            "fill_row": shapes.fill_row_bits,
            "where": shapes.where,
            "free_count": shapes.slot_bits + 1,
        }
    )


class Directory(wiring.Component):
    """Index, block table, fill table, sessions, leases, free lists and model epochs around one pipeline.

    Ports: `operation` with `cargo`, `digest`, `owner` and `partition` enters when `start` is high (stage 0); `result`
    for `result_owner` is there nine cycles later with `result_valid`, and with it `wakes`, the ports to be woken;
    `retire*` reports a slot that begins to retire; `low` says of each partition that it is short of free slots;
    `settings` are those in force; `look_*` are what the sweeper's next looks are about (fill_table, leases); `ready` is
    low while the tables are cleared after reset. `trace` holds the record of the operation that is answered in this
    cycle. `free_counts`, `fills_used`, `lease_counts`, `lease_ages` and `open_counts` are for the register bank.

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
        Owned("chained_*", By.PORT),
        Owned("result*", By.TAG, "result_owner"),
        Owned("wakes*", By.TAG, "result_owner"),
        Owned("epochs", By.ADDRESS),
        Owned("late_epochs", By.ADDRESS),
    )

    def __init__(self, config: NodeConfig, fault: str | None = None):
        self.config, self.shapes, self.fault = config, Shapes(config), fault
        shapes = self.shapes
        self.epoch_rows = len(config.partitions) << shapes.model_bits
        self.session_rows = len(config.partitions) << shapes.session_row_bits
        #: Cycles after reset in which the tables are cleared, a row of each at a time.
        self.clear_cycles = max(config.slots, self.epoch_rows, self.session_rows)
        super().__init__(
            {
                "start": In(1),
                "owner": In(shapes.owner_bits),
                "partition": In(shapes.partition_bits),
                "operation": In(shapes.operation),
                "cargo": In(shapes.cargo),
                "digest": In(config.digest_bits),
                "low": Out(len(config.partitions)),
                "settings": Out(settings_layout(shapes)).array(len(config.partitions)),
                "look_partition": In(shapes.partition_bits),
                "look_fill": In(shapes.fill_row_bits),
                "look_fill_slot": Out(shapes.slot_bits),
                "look_lease": In(shapes.lease_row_bits),
                "look_lease_slot": Out(shapes.slot_bits),
                "look_lease_session": Out(shapes.session_bits),
                "free_counts": Out(shapes.slot_bits + 1).array(len(config.partitions)),
                "fills_used": Out(range(config.fill_rows + 1)).array(len(config.partitions)),
                "lease_counts": Out(range(config.leases + 1)).array(len(config.partitions)),
                "lease_ages": Out(TICK_BITS).array(len(config.partitions)),
                "open_counts": Out(range(config.sessions + 1)).array(len(config.partitions)),
                "wakes": Out(config.ports),
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
        m.submodules.settings = settings = Settings(config)
        m.submodules.sessions = sessions = Sessions(config)
        m.submodules.leases = leases = Leases(config)
        m.submodules.trace_port = trace_port = TracePort()
        m.submodules.coherence = coherence = Coherence(config, self.fault)
        slot_bases = config.slot_bases
        row_bases = [base // config.ways for base in slot_bases]
        row_masks = [(1 << rows_log2) - 1 for rows_log2 in config.rows_log2]
        slot_masks = [partition.slots - 1 for partition in config.partitions]

        # The walk that clears the tables after reset.
        walk_end = self.clear_cycles
        walk = Signal(range(walk_end + 1))
        clearing = Signal()
        m.d.comb += [
            clearing.eq(walk != walk_end),
            self.ready.eq(~clearing),
            index.clear.eq(clearing & (walk < config.index_rows)),
            index.clear_row.eq(walk),
            blocks.clear.eq(clearing & (walk < config.slots)),
            blocks.clear_slot.eq(walk),
            sessions.clear.eq(clearing & (walk < self.session_rows)),
            sessions.clear_row.eq(walk),
        ]
        m.d.sync += walk.eq(walk + clearing)

        # Operation, owner and partition of every stage.
        stages = range(1, STATE_COMMIT_STAGE + 1)
        heads = {k: Signal(head_layout(shapes), name=f"s{k}_head") for k in stages}
        ops = {k: Signal(shapes.operation, name=f"s{k}_op") for k in stages}
        epochs = {k: Signal(config.epoch_bits, name=f"s{k}_epoch") for k in stages}
        for k in stages:
            if k > 1:
                m.d.sync += [heads[k].eq(heads[k - 1]), ops[k].eq(ops[k - 1]), epochs[k].eq(epochs[k - 1])]

        # Stage 0: the model's epoch. Retiring a model is one increment, seen by the next operation.
        m.submodules.epochs = epoch_memory = memory.Memory(shape=config.epoch_bits, depth=self.epoch_rows, init=[])
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
        folded = Signal(64, name="s1_folded")
        m.d.sync += folded.eq(fold(self.digest))
        m.submodules.beside = beside = DelayLine(config.digest_bits + shapes.cargo.size, DELAY_CYCLES)
        m.d.comb += beside.input.eq(Cat(self.digest, self.cargo))
        s6_digest, s7_digest, s8_digest = (Signal(config.digest_bits, name=f"s{k}_digest") for k in (6, 7, 8))
        cargo5, cargo6, cargo7, cargo8 = (Signal(shapes.cargo, name=f"s{k}_cargo") for k in (5, 6, 7, 8))
        m.d.comb += cargo5.eq(beside.output[config.digest_bits :])
        m.d.sync += [
            s6_digest.eq(beside.output[: config.digest_bits]),
            s7_digest.eq(s6_digest),
            s8_digest.eq(s7_digest),
            cargo6.eq(cargo5),
            cargo7.eq(cargo6),
            cargo8.eq(cargo7),
        ]

        # Stage 1: into the index.
        s1 = heads[1]
        number1 = shapes.number_of_session(ops[1].session)
        m.d.comb += [
            index.s1_folded.eq(folded),
            index.s1_whitening.eq(
                (ops[1].model_id | ops[1].group << 16 | epochs[1] << 24)
                ^ Mux(ops[1].private, Cat(Const(0, 32), number1[30::-1], number1[31]), 0)
            ),
            index.s1_seed.eq(Array(p.seed for p in config.partitions)[s1.partition]),
            index.s1_base.eq(Array(row_bases)[s1.partition]),
            index.s1_mask.eq(Array(row_masks)[s1.partition]),
        ]

        # Stage 5: grant a slot, or take one back.
        s5, op5 = heads[5], ops[5]
        is_start = s5.valid & (op5.kind == Kind.PUT_START)
        room5 = Signal()
        grant = Signal()
        reap = Signal()
        m.d.comb += [
            free.s4_partition.eq(heads[4].partition),
            free.s5_partition.eq(s5.partition),
            settings.s5_partition.eq(s5.partition),
            settings.s5_configure.eq(s5.valid & (op5.kind == Kind.CONFIGURE)),
            settings.s5_row.eq(cargo5.row),
            settings.s5_value.eq(cargo5.sequence),
            fills.s5_partition.eq(s5.partition),
            room5.eq(is_start & ~index.s5_hit & index.s5_room & free.s5_any & fills.s5_room),
            grant.eq(room5 & (free.s5_count > settings.s5_reserve)),
            reap.eq(s5.valid & (op5.kind == Kind.REAP)),
            free.pop.eq(grant),
            free.push.eq(reap),
            free.push_slot.eq(op5.slot),
            fills.take.eq(grant),
            fills.s5_slot.eq(free.s5_slot),
            index.insert.eq(grant),
            index.insert_slot.eq(free.s5_slot),
            index.remove.eq(reap),
            index.remove_where.table.eq(op5.where.table),
            index.remove_where.row.eq(op5.where.row & Array(row_masks)[s5.partition]),
            index.remove_where.way.eq(op5.where.way),
            index.remove_base.eq(Array(row_bases)[s5.partition]),
        ]
        direct5 = op5.by_handle | one_of(op5.kind, SWEEPER_KINDS)
        verdicts = {k: Signal(verdict_layout(shapes), name=f"s{k}_verdict") for k in (6, 7, 8)}
        slot5 = Mux(grant, free.s5_slot, Mux(direct5, op5.slot, index.s5_slot))
        slot5 = slot5 & Array(slot_masks)[s5.partition]
        m.d.sync += [
            verdicts[6].slot.eq(slot5),
            verdicts[6].physical.eq(Array(slot_bases)[s5.partition] | slot5),
            verdicts[6].reached.eq(op5.by_handle | index.s5_hit),
            verdicts[6].room.eq(room5),
            verdicts[6].granted.eq(grant),
            verdicts[6].fill_row.eq(fills.s5_row),
            verdicts[6].where.eq(index.s5_choice),
            verdicts[6].free_count.eq(0),
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
            blocks.s6_key.session.eq(ops[6].session),
            blocks.s6_key.private.eq(ops[6].private),
            blocks.s6_key.where.eq(v6.where),
        ]

        # Stage 7: the full key, and whether the block's model is still current. This copy of the epochs is written
        # where it is read, so that the sweeper's operations stay in their order.
        m.submodules.late_epochs = late_memory = memory.Memory(shape=config.epoch_bits, depth=self.epoch_rows, init=[])
        late_read, late_write = late_memory.read_port(domain="comb"), late_memory.write_port()
        key, state7, op7, v7 = blocks.s7_key, blocks.s7_state, ops[7], verdicts[7]
        fill_row7 = Mux(v7.granted, v7.fill_row, state7.fill_row)
        same_model = (key.model_id == op7.model_id) & (key.epoch == epochs[7])
        same_session = ~op7.private | (key.session == op7.session)
        same_key = (key.digest == s7_digest) & (key.group == op7.group) & (key.private == op7.private) & same_session
        same_generation = (state7.generation == op7.generation) & (same_model | (op7.kind == Kind.RELEASE))
        # The session that is asked, or else that of the block.
        subject7 = Mux(op7.session[-1] | v7.granted, op7.session, key.session)
        match = Signal(name="s8_match")
        stale = Signal(name="s8_stale")
        fill_row8 = Signal(shapes.fill_row_bits, name="s8_fill_row")
        state8 = Signal(blocks.state, name="s8_state")
        key8 = Signal(blocks.key, name="s8_key")
        m.d.comb += [
            late_read.addr.eq(Cat(key.model_id, heads[7].partition)),
            late_write.addr.eq(Mux(clearing, walk, Cat(op7.model_id, heads[7].partition))),
            late_write.data.eq(Mux(clearing, 0, epochs[7])),
            late_write.en.eq(clearing | heads[7].valid & (op7.kind == Kind.RETIRE_MODEL)),
            fills.s7_partition.eq(heads[7].partition),
            fills.s7_row.eq(fill_row7),
            fills.s7_member.eq(cargo7.member),
            sessions.s7_partition.eq(heads[7].partition),
            sessions.s7_kind.eq(op7.kind),
            sessions.s7_row.eq(cargo7.row),
            sessions.s7_subject.eq(subject7),
            leases.s7_partition.eq(heads[7].partition),
            leases.s7_kind.eq(op7.kind),
            leases.s7_number.eq(cargo7.lease),
            leases.s7_row.eq(cargo7.row),
        ]
        m.d.sync += [
            match.eq(v7.reached & Mux(op7.by_handle, same_generation, same_model & same_key)),
            stale.eq(key.epoch != late_read.data),
            fill_row8.eq(fill_row7),
            state8.eq(state7),
            key8.eq(key),
        ]
        # A granted slot has the key of its operation.
        with m.If(v7.granted):
            m.d.sync += [
                key8.digest.eq(s7_digest),
                key8.model_id.eq(op7.model_id),
                key8.group.eq(op7.group),
                key8.epoch.eq(epochs[7]),
                key8.session.eq(op7.session),
                key8.private.eq(op7.private),
                key8.where.eq(v7.where),
            ]

        # Stage 8: what the operation sees.
        s8, op8, v8 = heads[8], ops[8], verdicts[8]
        meets = s8.valid & ~one_of(op8.kind, BLOCKLESS_KINDS)
        swept = one_of(op8.kind, SWEEPER_KINDS)
        filling8, sealed8 = state8.state == State.FILLING, state8.state == State.SEALED
        chains = Array(Signal(name=f"chained_{port}") for port in range(config.ports))
        chained = Signal()
        reaches = Signal()
        present = Signal()
        touched = Signal()
        known = Signal()
        fill, member = fills.s8_fill, fills.s8_part
        own = (1 << s8.owner)[: config.ports]
        now, now_ttl = Signal(TICK_BITS), Signal(TICK_BITS)
        ttl_shift = config.tick_cycles_log2 + TTL_TICKS.bit_length() - 1
        asks = op8.session[-1] & (s8.owner != config.ports)
        m.d.comb += [
            now.eq(trace_port.cycle >> config.tick_cycles_log2),
            now_ttl.eq(trace_port.cycle >> ttl_shift),
            reaches.eq(
                ~key8.private
                | ~op8.by_handle
                | (op8.kind == Kind.RELEASE)
                | (sessions.alive & (~op8.session[-1] | (op8.session == key8.session)))
            ),
            present.eq(match & reaches & ~swept & ~v8.granted & (~op8.by_handle | filling8 | sealed8)),
            touched.eq(meets & (present | swept | v8.granted)),
            known.eq(touched & (v8.granted | (state8.state != State.FREE))),
            chained.eq(op8.chain_first | chains[s8.owner]),
        ]
        joined = filling8 & fill.joined.bit_select(cargo8.member, 1) & ~v8.granted
        same_shares = (cargo8.members == fill.members) & (cargo8.extent == fill.extent)
        all_members = Array(((1 << count) - 1) & 0xFF for count in range(1 << len(fill.members)))[fill.members]
        one_member = (1 << cargo8.member)[:MAX_MEMBERS]
        late = key8.session[-1] & sessions.late
        local = Array(config.port_masks)[s8.partition]
        port_down = (fill.ports & leases.revoking & local).any()
        overdue = fill.timed & passed(now, fill.deadline)
        ttl_over = state8.timed & passed(now_ttl, state8.until)
        session_over = Mux(filling8, late, key8.private & ~sessions.alive)
        view = coherence.view
        m.d.comb += [
            coherence.kind.eq(op8.kind),
            coherence.by_handle.eq(op8.by_handle),
            view.present.eq(present),
            view.state.eq(Mux(v8.granted, State.FREE, state8.state)),
            view.owner.eq(
                Mux(
                    op8.kind == Kind.PUT_REVOKE,
                    (fill.ports & own).any(),
                    (joined & (member.port == s8.owner))
                    | ((op8.kind == Kind.READ) & op8.session[-1] & (op8.session == key8.session)),
                )
            ),
            view.joins.eq(
                ~joined
                & same_shares
                & (op8.session == key8.session)
                & (cargo8.session_epoch == fill.epoch)
                & (cargo8.sequence == fill.sequence)
            ),
            view.offset.eq(op8.offset),
            view.length.eq(op8.length),
            view.block_length.eq(state8.length),
            view.done.eq(fill.done.bit_select(cargo8.member, 1)),
            view.others_done.eq((fill.done | one_member) == all_members),
            view.shares.eq(same_shares | ((cargo8.members == 1) & (fill.members == 1))),
            view.age.eq(Mux(v8.granted, 0, state8.age)),
            view.klass.eq(Mux(v8.granted, op8.klass, state8.klass)),
            view.room.eq(v8.room),
            view.quota.eq(v8.granted),
            view.refused.eq(sessions.refused),
            view.late.eq(late),
            view.chained.eq(chained),
            view.whole.eq(op8.whole),
            view.locks.eq(op8.locks | (op8.kind == Kind.LEASE)),
            view.lockable.eq(leases.any_free),
            view.lease.eq(Mux(op8.kind == Kind.EXPIRE_LEASE, leases.over, leases.held)),
            view.leased.eq(state8.leases != 0),
            view.dead.eq(stale | session_over | Mux(filling8, port_down | overdue, state8.poisoned | ttl_over)),
            view.poisoned.eq(state8.poisoned),
            view.low.eq(self.low.bit_select(s8.partition, 1)),
        ]
        with m.If(joined):
            m.d.comb += [
                view.base.eq(member.end - fill.extent),
                view.end.eq(member.end),
                view.accepted.eq(member.accepted),
                view.landed.eq(member.landed),
                view.crc_right.eq(member.crc == cargo8.crc),
            ]

        setting = settings.setting
        m.d.comb += [
            settings.valid.eq(s8.valid),
            settings.partition.eq(s8.partition),
            settings.configure.eq(op8.kind == Kind.CONFIGURE),
            settings.row.eq(cargo8.row),
            settings.value.eq(cargo8.sequence),
            settings.granted.eq(v8.granted),
            settings.retired.eq(self.retire),
            self.low.eq(settings.low),
        ]
        for i in range(len(config.partitions)):
            m.d.comb += [
                self.settings[i].eq(settings.settings[i]),
                self.free_counts[i].eq(free.counts[i]),
                self.fills_used[i].eq(fills.used[i]),
                self.lease_counts[i].eq(leases.counts[i]),
                self.lease_ages[i].eq(leases.oldest[i]),
                self.open_counts[i].eq(sessions.open_counts[i]),
            ]
        with m.If(meets & (op8.kind == Kind.MATCH)):
            m.d.sync += chains[s8.owner].eq(coherence.status == Status.HIT)

        # What becomes of the block, its fill and its member.
        event = coherence.event
        joins = event == Event.JOIN
        finishes = filling8 & present & ((event == Event.FINISH) | (event == Event.FINISH_MEMBER))
        seals = filling8 & present & (coherence.state == State.SEALED)
        waits = present & filling8 & (coherence.status == Status.NOT_READY) & (event != Event.REFUSE)
        locked = present & (event == Event.LOCK)
        unlocked = touched & ((event == Event.UNLOCK) | (event == Event.EXPIRE_LEASE))
        ttl = Mux(cargo8.ttl == 0, setting.block_ttl, cargo8.ttl)
        fill_ticks = Mux(cargo8.deadline == 0, setting.fill_deadline_ticks, cargo8.deadline)
        lease_ticks = Mux(cargo8.deadline == 0, setting.lease_ticks, cargo8.deadline)
        block_crc = fill.crc ^ cargo8.part_crc
        after, fill_after, member_after = blocks.commit_state, fills.s8_commit, fills.s8_commit_part
        m.d.comb += [
            blocks.commit.eq(touched),
            blocks.commit_slot.eq(v8.physical),
            after.eq(state8),
            after.state.eq(coherence.state),
            after.age.eq(coherence.age),
            after.leases.eq(state8.leases + locked - unlocked),
            fills.s8_partition.eq(s8.partition),
            fills.s8_row.eq(fill_row8),
            fills.s8_member.eq(cargo8.member),
            fills.commit.eq(touched & (after.state == State.FILLING)),
            fills.commit_part.eq(touched & (after.state == State.FILLING) & (joined | joins | v8.granted)),
            fills.release.eq(touched & (filling8 | v8.granted) & (after.state != State.FILLING)),
            fill_after.eq(fill),
            fill_after.joined.eq(fill.joined | Mux(joins, one_member, 0)),
            fill_after.ports.eq(fill.ports | Mux(joins, own, 0)),
            fill_after.waiters.eq(fill.waiters | Mux(waits, own & local, 0)),
            fill_after.done.eq(fill.done | Mux(finishes, one_member, 0)),
            fill_after.crc.eq(Mux(finishes, block_crc, fill.crc)),
            member_after.port.eq(member.port),
            member_after.end.eq(member.end),
            member_after.crc.eq(Mux(event == Event.LAND, cargo8.crc, member.crc)),
            member_after.accepted.eq(coherence.accepted),
            member_after.landed.eq(coherence.landed),
            self.retire.eq(touched & (view.state != State.RETIRING) & (after.state == State.RETIRING)),
            self.retire_partition.eq(s8.partition),
            self.retire_slot.eq(v8.slot),
            self.retire_where.eq(key8.where),
        ]
        with m.If(seals):
            m.d.comb += after.crc.eq(block_crc)
        with m.If(event == Event.SPOIL):
            m.d.comb += after.poisoned.eq(1)
        with m.If(v8.granted | joins):
            m.d.comb += [
                member_after.port.eq(s8.owner),
                member_after.end.eq(op8.offset + cargo8.extent),
                member_after.crc.eq(0),
            ]
        with m.If(v8.granted):
            m.d.comb += [
                after.length.eq(op8.length),
                after.klass.eq(op8.klass),
                after.fill_row.eq(fill_row8),
                after.crc.eq(0),
                after.leases.eq(0),
                after.timed.eq(ttl != 0),
                after.until.eq(now_ttl + ttl),
                after.poisoned.eq(0),
                fill_after.extent.eq(cargo8.extent),
                fill_after.members.eq(cargo8.members),
                fill_after.joined.eq(one_member),
                fill_after.done.eq(0),
                fill_after.ports.eq(own),
                fill_after.waiters.eq(0),
                fill_after.epoch.eq(cargo8.session_epoch),
                fill_after.sequence.eq(cargo8.sequence),
                fill_after.timed.eq(fill_ticks != 0),
                fill_after.deadline.eq(now + fill_ticks),
                fill_after.crc.eq(0),
            ]
        with m.If(op8.kind == Kind.REAP):
            m.d.comb += after.generation.eq(state8.generation + 1)

        # Sessions and leases.
        takes_back = (op8.kind == Kind.RELEASE_ALL) | (op8.kind == Kind.PORT_DOWN)
        m.d.comb += [
            sessions.valid.eq(s8.valid),
            sessions.partition.eq(s8.partition),
            sessions.kind.eq(op8.kind),
            sessions.owner.eq(s8.owner),
            sessions.asks.eq(asks),
            sessions.ask_epoch.eq(cargo8.session_epoch),
            sessions.ask_sequence.eq(cargo8.sequence),
            sessions.deadline.eq(cargo8.deadline),
            sessions.ttl.eq(cargo8.ttl),
            sessions.ports.eq(cargo8.ports),
            sessions.fill_epoch.eq(fill.epoch),
            sessions.fill_sequence.eq(fill.sequence),
            sessions.commits.eq(
                s8.valid & Mux(asks, present & (coherence.status == Status.EXISTS), seals & key8.session[-1])
            ),
            sessions.commit_sequence.eq(Mux(asks, cargo8.sequence, fill.sequence)),
            sessions.now.eq(now),
            sessions.now_ttl.eq(now_ttl),
            leases.valid.eq(s8.valid),
            leases.partition.eq(s8.partition),
            leases.kind.eq(op8.kind),
            leases.owner.eq(s8.owner),
            leases.slot.eq(v8.slot),
            leases.number.eq(cargo8.lease),
            leases.session.eq(op8.session),
            leases.session_dead.eq(op8.session[-1] & ~sessions.alive),
            leases.timed.eq(lease_ticks != 0),
            leases.until.eq(now + lease_ticks),
            leases.now.eq(now),
            leases.grant.eq(s8.valid & locked),
            leases.end.eq(unlocked),
            leases.take_back.eq(s8.valid & takes_back),
            leases.take_back_ports.eq(Mux(op8.kind == Kind.PORT_DOWN, cargo8.ports, own)),
            leases.leases_only.eq(op8.kind == Kind.RELEASE_ALL),
            fills.look_partition.eq(self.look_partition),
            fills.look_row.eq(self.look_fill),
            self.look_fill_slot.eq(fills.look_slot),
            leases.look_partition.eq(self.look_partition),
            leases.look_row.eq(self.look_lease),
            self.look_lease_slot.eq(leases.look_slot),
            self.look_lease_session.eq(leases.look_session),
        ]

        # Who is told: those that wait for the block when it is sealed; when it is given up its other writers as well.
        wakes = Signal(config.ports)
        given_up = touched & filling8 & (after.state == State.RETIRING) & ~v8.granted
        with m.If(s8.valid):
            m.d.comb += wakes.eq(
                local
                & (
                    sessions.wakes
                    | Mux((touched & seals) | given_up, fill.waiters, 0)
                    | Mux(given_up, fill.ports & ~own, 0)
                )
            )
        cause = Signal(CAUSE_BITS)
        with m.If(self.retire):
            with m.Switch(event):
                with m.Case(Event.ADMIT_REFUSED):
                    m.d.comb += cause.eq(Cause.REFUSED)
                with m.Case(Event.FINISH_SHORT, Event.FINISH_WRONG):
                    m.d.comb += cause.eq(Cause.FAILED)
                with m.Case(Event.REVOKE):
                    m.d.comb += cause.eq(Cause.REVOKED)
                with m.Case(Event.DROP):
                    m.d.comb += cause.eq(Cause.DROPPED)
                with m.Case(Event.SPOILED):
                    m.d.comb += cause.eq(Cause.POISONED)
                with m.Default():
                    filling_cause = Mux(port_down, Cause.PORT, Cause.DEADLINE)
                    sealed_cause = Mux(state8.poisoned, Cause.POISONED, Mux(ttl_over, Cause.TTL, Cause.CAPACITY))
                    m.d.comb += cause.eq(
                        Mux(
                            stale,
                            Cause.MODEL,
                            Mux(session_over, Cause.SESSION, Mux(filling8, filling_cause, sealed_cause)),
                        )
                    )

        # Stage 9: the answer, and the trace record.
        status = Signal(STATUS_BITS)
        by_session = is_session_kind(op8.kind)
        with m.If(meets):
            m.d.comb += status.eq(coherence.status)
        with m.Elif(by_session):
            m.d.comb += status.eq(sessions.status)
        with m.Elif(op8.kind == Kind.ANSWER):
            m.d.comb += status.eq(op8.status)
        refused = sessions.refused != Status.OK
        found = touched & ~refused & (v8.granted | present & (state8.state != State.RETIRING))
        after_sealed, after_filling = after.state == State.SEALED, after.state == State.FILLING
        whole_length = after.length - op8.offset
        run_length = Mux(op8.length == 0, whole_length, op8.length)
        is_read = op8.kind == Kind.READ
        number = shapes.number_of_session(sessions.number)
        result = self.result
        m.d.sync += [
            self.result_valid.eq(s8.valid),
            self.result_owner.eq(s8.owner),
            self.wakes.eq(wakes),
            result.kind.eq(op8.kind),
            result.status.eq(status),
            result.opcode.eq(op8.opcode),
            result.tag.eq(op8.tag),
            result.found.eq(found),
            result.slot.eq(v8.slot),
            result.generation.eq(after.generation),
            result.offset.eq(op8.offset),
            result.length.eq(Mux(is_read, Mux(status == Status.OK, run_length, 0), after.length)),
            result.watermark.eq(Mux(after_sealed, after.length, Mux(after_filling, coherence.landed, 0))),
            result.fresh.eq(view.accepted == view.landed),
            result.locked.eq(locked & meets),
            result.number.eq(Mux(by_session, number, leases.granted)),
            result.epoch.eq(sessions.epoch),
            result.word.eq(
                Mux(
                    by_session,
                    sessions.committed,
                    Mux(after_sealed, after.crc, Mux(op8.kind == Kind.WRITE, member.crc, 0)),
                )
            ),
        ]
        record = trace_port.record
        flags = {
            TraceFlag.BY_HANDLE: op8.by_handle,
            TraceFlag.CHAIN_FIRST: op8.chain_first,
            TraceFlag.WHOLE: op8.whole,
            TraceFlag.PRESENT: present & meets,
            TraceFlag.LEASE: op8.locks,
            TraceFlag.PRIVATE: op8.private,
        }
        no_epoch = swept | one_of(op8.kind, [kind for kind in BLOCKLESS_KINDS if kind != Kind.RETIRE_MODEL])
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
            record.epoch.eq(Mux(no_epoch, 0, epochs[8])),
            record.slot.eq(op8.slot),
            record.generation.eq(op8.generation),
            record.offset.eq(op8.offset),
            record.length.eq(op8.length),
            record.session.eq(shapes.number_of_session(op8.session)),
            record.digest.eq(s8_digest),
            record.free_count.eq(v8.free_count),
            record.wakes.eq(wakes),
            record.cause.eq(cause),
            record.granted_lease.eq(Mux(locked & meets, leases.granted, 0)),
        ]
        m.d.comb += [getattr(record, name).eq(getattr(cargo8, name)) for name, _ in shapes.cargo]
        with m.If(sessions.number[-1] & (one_of(op8.kind, SESSION_KINDS) | asks | known)):
            m.d.comb += [
                record.found_session.eq(number),
                record.found_epoch.eq(sessions.epoch),
                record.committed.eq(sessions.committed),
            ]
        with m.If(touched):
            m.d.comb += [
                record.state_before.eq(view.state),
                record.state_after.eq(after.state),
                record.age.eq(after.age),
                record.block_slot.eq(v8.slot),
                record.block_generation.eq(after.generation),
                record.block_length.eq(after.length),
                record.block_crc.eq(after.crc),
            ]
        with m.If(known):
            m.d.comb += [
                record.block_session.eq(shapes.number_of_session(key8.session)),
                record.block_model_id.eq(key8.model_id),
                record.block_group.eq(key8.group),
                record.block_private.eq(key8.private),
                record.block_digest.eq(key8.digest),
                record.leases.eq(after.leases),
            ]
        with m.If(touched & after_filling & (joined | joins | v8.granted)):
            m.d.comb += [record.accepted.eq(coherence.accepted), record.landed.eq(coherence.landed)]
        return m
