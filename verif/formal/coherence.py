"""The directory's promises about a block: its states, its sealing, what may be read of it.

Index, free lists, sessions, leases and settings are cut out: whatever they say, it holds. What is left is the pipeline,
the block table, the fill table and the decision.

Used by: node_claims.
"""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import data

from kvnode.models.spec.coherence import TRANSITIONS, Event
from kvnode.models.spec.enums import SWEEPER_KINDS, Kind, State, Status
from kvnode.models.spec.requests import MAX_MEMBERS
from kvnode.rtl.layouts import Shapes, index_bits, one_of
from kvnode.rtl.node.block_table import state_layout
from kvnode.rtl.node.directory import Directory, head_layout, verdict_layout
from kvnode.rtl.node.fill_table import fill_layout, member_layout

from .proof import ProofOf

CUT = ("index", "free", "sessions", "leases", "settings", "trace_port")


class Blocks(ProofOf):
    """Every slot of every partition, from one cycle to the next.

    Assumed of what is cut, and of the sweeper: a slot that is granted is FREE, and what the index finds is not; only
    slots that retire are reaped; slot numbers are those of the partition's slots; the sweeper's operations are by no
    handle; sessions refuse those who ask alone; no operation starts while the tables are cleared.
    """

    def describe(self, m: Module) -> None:
        config, shapes = self.config, Shapes(self.config)
        directory = Directory(config)
        design = self.design("directory", directory, CUT)
        row, filling_row, member_row = state_layout(config), fill_layout(config), member_layout(config)
        heads = [data.View(head_layout(shapes), design[f"s{stage}_head"]) for stage in range(1, 9)]
        s8 = heads[7]
        op, cargo = data.View(shapes.operation, design["s8_op"]), data.View(shapes.cargo, design["s8_cargo"])
        slots = [data.View(row, signal) for signal in design.rows("blocks.states")]
        words = Array(slot.as_value() for slot in slots)
        seen = data.View(row, design["s8_state"])
        after = data.View(row, design["commit_state"])
        verdicts = {k: data.View(verdict_layout(shapes), design[f"s{k}_verdict"]) for k in (6, 7, 8)}
        physical, granted = verdicts[8].physical, s8.valid & verdicts[8].granted
        event, touched, clearing = design["coherence.event"], design["touched"], ~directory.ready
        now = data.View(row, words[physical])
        self.assume("granted_is_free", ~granted | (now.state == State.FREE))
        self.assume("granted_by_put_start", ~granted | (op.kind == Kind.PUT_START))
        self.assume("reaped_retires", ~(s8.valid & (op.kind == Kind.REAP)) | (now.state == State.RETIRING))
        for k in (6, 7, 8):
            self.assume(f"slot_of_stage_{k}", verdicts[k].physical < config.slots)
        self.assume("nothing_starts_while_clearing", directory.ready | ~directory.start)


        # An operation sees what the one in front of it has left.
        for stage, what in enumerate(heads, 1):
            self.check(f"nothing_at_stage_{stage}_while_clearing", ~clearing | ~what.valid)
            self.check(f"partition_at_stage_{stage}", ~what.valid | (what.partition < len(config.partitions)))
            its = data.View(shapes.operation, design[f"s{stage}_op"])
            self.check(f"swept_at_stage_{stage}", ~what.valid | self.is_swept(its, what.owner))
        self.assume("swept", ~directory.start | self.is_swept(directory.operation, directory.owner))
        by_key = s8.valid & ~op.by_handle & ~granted & verdicts[8].reached & ~one_of(op.kind, SWEEPER_KINDS)
        self.assume("found_is_not_free", ~by_key | (now.state != State.FREE))
        asks = op.session[-1] & (s8.owner != config.ports)
        self.assume("refused_if_asked", (design["sessions.refused"] == Status.OK) | asks)
        self.assume("partition", ~directory.start | (directory.partition < len(config.partitions)))
        self.check("state_at_stage_8", ~s8.valid | (words[physical] == seen.as_value()))
        slot7, previous = design["blocks.s7_slot"], design["blocks.previous"]
        self.check("slot_at_stage_7", slot7 == verdicts[7].physical)
        read7 = design["blocks.states.ram.read_data"]
        forwarded = Mux(previous & (design["blocks.previous_slot"] == slot7), design["blocks.previous_state"], read7)
        self.check("state_at_stage_7", clearing | ~heads[6].valid | (forwarded == words[slot7]))

        # Any slot: how its row changes.
        lives = Signal()
        m.d.sync += lives.eq(~clearing)
        before = [Signal(row, name=f"before_{i}") for i in range(config.slots)]
        m.d.sync += [b.eq(slot) for b, slot in zip(before, slots, strict=True)]
        moves = sorted({(state, after) for (state, _), (after, _) in TRANSITIONS.items() if state != after})
        for i, slot in enumerate(slots):
            was = before[i]
            allowed = Cat((was.state == one) & (slot.state == two) for one, two in moves).any()
            self.check(f"moves_{i}", ~lives | (slot.state == was.state) | allowed)
            reaped = (was.state == State.RETIRING) & (slot.state == State.FREE)
            step = (was.generation + 1)[: len(slot.generation)]
            self.check(f"generation_{i}", ~lives | (slot.generation == Mux(reaped, step, was.generation)))
            kept = (slot.length == was.length) & (slot.crc == was.crc) & (slot.klass == was.klass)
            sealed = (was.state == State.SEALED) | ((was.state == State.RETIRING) & ~reaped)
            self.check(f"sealed_{i}", ~lives | ~sealed | kept)

        # The walk after reset leaves everything free behind it.
        walk = design["walk"]
        for i, slot in enumerate(slots):
            self.check(f"cleared_{i}", ~clearing | (walk <= i) | (slot.state == State.FREE))
        # A row of the fill table belongs to one block at most.
        for partition in range(len(config.partitions)):
            base, count = config.slot_bases[partition], config.partitions[partition].slots
            taken = design[f"fills.taken_{partition}"]
            self.check(f"nothing_taken_{partition}", ~clearing | (taken == 0))
            for number in range(config.fill_rows):
                ours = slots[base : base + count]
                holders = [(slot.state == State.FILLING) & (slot.fill_row == number) for slot in ours]
                holders += [
                    heads[k - 1].valid & verdicts[k].granted & (heads[k - 1].partition == partition)
                    & (verdicts[k].fill_row == number)
                    for k in (6, 7, 8)
                ]  # fmt: skip
                total = sum(holders[1:], start=holders[0])
                self.check(f"fill_row_{partition}_{number}", clearing | (total == taken[number]))
        self.check("fill_row_at_stage_8", ~s8.valid | (design["s8_fill_row"] == self.fill_row(verdicts[8], seen)))
        for k in (6, 7, 8):
            own = Array(config.slot_bases)[heads[k - 1].partition]
            last = Array(b + p.slots for b, p in zip(config.slot_bases, config.partitions))[heads[k - 1].partition]
            self.assume(
                f"slot_of_partition_{k}",
                ~heads[k - 1].valid | ((verdicts[k].physical >= own) & (verdicts[k].physical < last)),
            )  # fmt: skip
        fill_address = Cat(design["s8_fill_row"], s8.partition)
        fills = Array(design.rows("fills.rows.ram"))
        fill = data.View(filling_row, design["fills.s8_fill"])
        self.check("fill_at_stage_8", ~s8.valid | (fill.as_value() == fills[fill_address]))

        # One slot, any: which of its members have been shown to be whole.
        chosen = self.chosen("chosen", index_bits(config.slots))
        self.assume("chosen", chosen < config.slots)
        whole = Signal(MAX_MEMBERS)
        member = data.View(member_row, design["fills.s8_part"])
        here = touched & (physical == chosen)
        finishes = (event == Event.FINISH) | (event == Event.FINISH_MEMBER)
        landed = (member.landed == member.end) & (member.crc == cargo.crc) & fill.joined.bit_select(cargo.member, 1)
        with m.If(here & granted):
            m.d.sync += whole.eq(0)
        with m.Elif(here & finishes & landed):
            m.d.sync += whole.bit_select(cargo.member, 1).eq(1)
        mine = data.View(row, words[chosen])
        partition = Signal(shapes.partition_bits)
        m.d.comb += partition.eq(sum((chosen >= base) for base in config.slot_bases[1:]))
        my_fill = data.View(filling_row, fills[Cat(mine.fill_row, partition)])
        self.check("done_is_whole", clearing | (mine.state != State.FILLING) | ((my_fill.done & ~whole) == 0))
        everyone = Array(((1 << n) - 1) & 0xFF for n in range(1 << len(fill.members)))[fill.members]
        seals = here & (seen.state == State.FILLING) & (after.state == State.SEALED)
        missing = everyone & ~(whole | (1 << cargo.member)[:MAX_MEMBERS])
        self.check("sealed_when_all_are_whole", ~seals | (landed & (missing == 0)))

        # READ: nothing at or past the watermark, and of the generation that was asked for.
        result = data.View(shapes.result, design["result"])
        reads = s8.valid & (op.kind == Kind.READ) & (design["status"] == Status.OK)
        end = Mux(op.length == 0, after.length, op.offset + op.length)
        limit = Mux(seen.state == State.SEALED, seen.length, member.landed)
        self.check("read_below_the_watermark", ~reads | ((op.offset < end) & (end <= limit)))
        self.check("read_of_its_generation", ~(reads & op.by_handle) | (seen.generation == op.generation))
        self.check(
            "match_of_its_generation",
            ~(s8.valid & design["s8_match"] & op.by_handle) | (seen.generation == op.generation) | granted,
        )  # fmt: skip
        self.cover("sealed", seals)
        self.cover("read_of_a_block_being_written", reads & (seen.state == State.FILLING))
        self.cover("read_of_a_sealed_block", reads & (seen.state == State.SEALED))
        self.cover("answered", directory.result_valid & (result.status == Status.OK) & (result.kind == Kind.READ))

    def is_swept(self, operation, owner):
        """That an operation of the sweeper's kinds is the sweeper's, and by no handle."""
        return ~one_of(operation.kind, SWEEPER_KINDS) | ((owner == self.config.ports) & ~operation.by_handle)

    def fill_row(self, verdict, seen):
        """The row of the fill table that an operation at stage 8 looks at."""
        return Mux(verdict.granted, verdict.fill_row, seen.fill_row)
