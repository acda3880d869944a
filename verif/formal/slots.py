"""Slots: each is free, in use, or on its way back, in exactly one of these; none is granted twice, none is lost.

Used by: block_claims.
"""

import enum

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Kind
from kvnode.models.spec.timing import STATE_COMMIT_STAGE
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.partitions import FreeLists
from kvnode.rtl.node.sweeper import Sweeper
from kvnode.rtl.wheel import Wheel

from .design import Design
from .proof import ProofOf

#: The stage of the directory at which slots are granted and given back.
GRANT_STAGE = 5
assert GRANT_STAGE < STATE_COMMIT_STAGE


def stage_layout(shapes: Shapes) -> data.StructLayout:
    """Whose operation is in a stage, and is it a slot on its way back?"""
    return data.StructLayout({"reap": 1, "partition": shapes.partition_bits, "slot": shapes.slot_bits})


class Is(enum.IntEnum):
    """Where a slot is: in the free list, with a block, in the queue of those that retire, or being given back."""

    FREE = 0
    USED = 1
    RETIRING = 2
    LEAVING = 3


class Places(ProofOf):
    """Base: where every slot of every partition is, as the free lists and the sweeper's queues bring it about."""

    def __init__(self, config: NodeConfig):
        super().__init__(config)
        self.states = [
            [Signal(Is, name=f"is_{p}_{s}") for s in range(partition.slots)]
            for p, partition in enumerate(config.partitions)
        ]
        self.sizes = Array(partition.slots for partition in config.partitions)

    def state_of(self, partition: Value, slot: Value) -> Value:
        """Where a slot is; of one that there is not, FREE."""
        most = 1 << Shapes(self.config).slot_bits
        return Array(Array([*group, *[Const(0, 2)] * (most - len(group))])[slot] for group in self.states)[partition]

    def of_slots(self, m: Module, free: FreeLists, sweeper: Sweeper, stages: list[data.View]) -> None:
        """What happens to slots, and what must not. `stages`: those of the directory from the first to that at which
        slots are granted, with `reap`, `partition` and `slot`.
        """
        config, at5 = self.config, stages[-1]
        reaps, slot = sweeper.taken & (sweeper.operation.kind == Kind.REAP), sweeper.operation.slot
        for p, group in enumerate(self.states):
            for s, state in enumerate(group):
                with m.If(free.pop & (free.s5_partition == p) & (free.s5_slot == s)):
                    m.d.sync += state.eq(Is.USED)
                with m.If(sweeper.push & (sweeper.push_partition == p) & (sweeper.push_slot == s)):
                    m.d.sync += state.eq(Is.RETIRING)
                with m.If(reaps & (sweeper.partition == p) & (slot == s)):
                    m.d.sync += state.eq(Is.LEAVING)
                with m.If(free.push & (free.s5_partition == p) & (free.push_slot == s)):
                    m.d.sync += state.eq(Is.FREE)

        granted = (self.state_of(free.s5_partition, free.s5_slot) == Is.FREE) & (
            free.s5_slot < self.sizes[free.s5_partition]
        )
        self.check("granted_is_free", ~free.pop | granted)
        reaped = (self.state_of(sweeper.partition, slot) == Is.RETIRING) & (slot < self.sizes[sweeper.partition])
        self.check("reaped_was_retiring", ~reaps | reaped)
        for port in range(config.ports):
            for number, hold in enumerate(sweeper.holds[port]):
                held = hold.valid & (hold.partition == sweeper.partition) & (hold.slot == slot)
                self.check(f"not_held_{port}_{number}", ~(reaps & held))
        for p, group in enumerate(self.states):
            count = sum(state == Is.FREE for state in group)
            self.check(f"count_{p}", free.counts[p] == count)
            self.check(f"any_{p}", (at5.partition != p) | (free.s5_any == (count != 0)))
            self.cover(f"all_used_{p}", Cat(state == Is.USED for state in group).all())

        # On the way back a slot is at one stage.
        for k, stage in enumerate(stages, 1):
            in_place = (self.state_of(stage.partition, stage.slot) == Is.LEAVING) & (
                stage.slot < self.sizes[stage.partition]
            )
            self.help(f"leaving_{k}", ~stage.reap | in_place)
            self.help(f"partition_{k}", stage.partition < len(config.partitions))
            for j, before in enumerate(stages[: k - 1], 1):
                same = (stage.partition == before.partition) & (stage.slot == before.slot)
                self.help(f"leaving_{j}_{k}", ~(stage.reap & before.reap & same))
        for p, group in enumerate(self.states):
            for s, state in enumerate(group):
                somewhere = Cat(k.reap & (k.partition == p) & (k.slot == s) for k in stages).any()
                self.check(f"not_lost_{p}_{s}", (state != Is.LEAVING) | somewhere)

    def of_list(self, m: Module, free: FreeLists, design: Design, at: str = "") -> None:
        """A free list holds the free slots, each once."""
        config, states = self.config, self.states
        memories = design.rows(f"{at}even"), design.rows(f"{at}odd")
        for p, base in enumerate(config.slot_bases):
            size, log2 = config.partitions[p].slots, config.partitions[p].slots_log2
            unused, head, tail, count = (design[f"{at}{name}_{p}"] for name in ("unused", "head", "tail", "free"))
            words = [memories[(base | q) & 1][(base | q) >> 1] for q in range(size)]
            length = Signal(log2 + 1, name=f"listed_{p}")
            m.d.comb += length.eq(count + unused - size)
            self.cover(f"granted_again_{p}", free.pop & (free.s5_partition == p) & (unused == size))
            self.help(f"unused_{p}", (unused <= size) & (count <= size) & (count + unused >= size))
            self.help(f"tail_{p}", tail == (head + length)[:log2])
            inside = [(Const(q, log2) - head)[:log2] < length for q in range(size)]
            for q, word in enumerate(words):
                is_free = Array(states[p])[word[:log2]] == Is.FREE
                self.help(f"listed_{p}_{q}", ~inside[q] | ((word < unused) & is_free))
                for r in range(q):
                    self.help(f"once_{p}_{r}_{q}", ~(inside[q] & inside[r]) | (word != words[r]))
            for s, state in enumerate(states[p]):
                listed = Cat(inside[q] & (word == s) for q, word in enumerate(words)).any()
                self.check(f"listed_is_free_{p}_{s}", (state == Is.FREE) == ((s >= unused) | listed))

            # What has been read for stage 5: the head and the one behind it, before the pop of the cycle before.
            at5 = free.s5_partition == p
            popped = design[f"{at}front_popped"] & (design[f"{at}front_partition"] == p)
            read_head = (head - popped)[:log2]
            self.help(f"head_odd_{p}", ~at5 | (design[f"{at}head_odd"] == read_head[0]))
            for parity in range(2):
                place = Mux(read_head[0] == parity, read_head, (read_head + 1)[:log2])
                word = Mux(design[f"{at}bypass_{parity}"], design[f"{at}bypassed_{parity}"],
                           design[f"{at}{('even', 'odd')[parity]}.ram.read_data"])  # fmt: skip
                self.help(f"read_{p}_{parity}", ~at5 | ~Array(inside)[place] | (word == Array(words)[place]))

    def of_queue(self, m: Module, sweeper: Sweeper, design: Design) -> None:
        """A queue holds the slots that retire, each once; so it never overflows."""
        config, shapes, states = self.config, Shapes(self.config), self.states
        for p, base in enumerate(config.slot_bases):
            size, log2 = config.partitions[p].slots, config.partitions[p].slots_log2
            head, tail = design[f"queues.head_{p}"], design[f"queues.tail_{p}"]
            rows = design.rows("queues.ram")[base : base + size]
            words = [row[: shapes.slot_bits] for row in rows]
            length = Signal(log2 + 1, name=f"queued_{p}")
            m.d.comb += length.eq(tail - head)
            self.check(f"queue_{p}", length <= size)
            self.cover(f"queue_is_full_{p}", length == size)
            inside = [(Const(q, log2) - head[:log2])[:log2] < length for q in range(size)]
            for q, word in enumerate(words):
                retires = Array(states[p])[word[:log2]] == Is.RETIRING
                self.help(f"queued_{p}_{q}", ~inside[q] | ((word < size) & retires))
                for r in range(q):
                    self.help(f"queued_once_{p}_{r}_{q}", ~(inside[q] & inside[r]) | (word != words[r]))
            for s, state in enumerate(states[p]):
                queued = Cat(inside[q] & (word == s) for q, word in enumerate(words)).any()
                self.check(f"queued_retires_{p}_{s}", (state == Is.RETIRING) == queued)
            oldest = design["queues.ram.ram.read_data"] == Array(rows)[head[:log2]]
            ready = design["queues.ready"] & (sweeper.partition == p)
            self.help(f"oldest_{p}", ~ready | ((length != 0) & oldest))
        self.help("swept", ~design["queues.ready"] | (sweeper.partition < len(config.partitions)))


class Slots(Places):
    """FreeLists and the Sweeper with its queues, and between them five stages of a directory.

    The contract of the directory: it takes what the sweeper offers, or not; the operation at stage 5 takes a free slot
    only if there is one, and gives one back if it is the sweeper's REAP; what begins to retire is a slot in use.
    """

    def describe(self, m: Module) -> None:
        config, shapes = self.config, Shapes(self.config)
        free, sweeper, wheel = FreeLists(config), Sweeper(config), Wheel(config.ports)
        self.design("wheel", wheel)
        queues = self.design("sweeper", sweeper, driven=("next_turn",), clash=True)
        driven = ("s4_partition", "s5_partition", "push", "push_slot")
        lists = self.design("free", free, driven=driven, clash=True)
        m.d.comb += sweeper.next_turn.eq(wheel.next_turn)

        # The stages in front of the free lists: whose operation, and is it a slot on its way back?
        other = self.free("partition", shapes.partition_bits)
        self.assume("taken", ~sweeper.taken | sweeper.valid)
        self.assume("partition", other < len(config.partitions))
        stages = [Signal(stage_layout(shapes), name=f"stage_{k}") for k in range(1, GRANT_STAGE + 1)]
        m.d.sync += [
            stages[0].reap.eq(sweeper.taken & (sweeper.operation.kind == Kind.REAP)),
            stages[0].partition.eq(Mux(sweeper.taken, sweeper.partition, other)),
            stages[0].slot.eq(sweeper.operation.slot),
        ]
        m.d.sync += [later.eq(earlier) for earlier, later in zip(stages, stages[1:])]
        m.d.comb += [
            free.s4_partition.eq(stages[-2].partition),
            free.s5_partition.eq(stages[-1].partition),
            free.push.eq(stages[-1].reap),
            free.push_slot.eq(stages[-1].slot),
        ]
        self.assume("pop", ~free.pop | (free.s5_any & ~stages[-1].reap))
        retires = self.state_of(sweeper.push_partition, sweeper.push_slot) == Is.USED
        there_is = (sweeper.push_partition < len(config.partitions)) & (
            sweeper.push_slot < self.sizes[sweeper.push_partition]
        )
        self.assume("retires", ~sweeper.push | (retires & there_is))
        self.of_slots(m, free, sweeper, stages)
        self.of_list(m, free, lists)
        self.of_queue(m, sweeper, queues)
