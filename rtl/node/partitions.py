"""What each partition owns outright: its free list of slots, and its queue of those that retire."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig

from ..layouts import Shapes, index_bits
from ..memory import Ram
from ..ownership import By, Owned


class FreeLists(wiring.Component):
    """Free slots of every partition: those never used in order of their number, then those given back, oldest first.

    Contract, for one operation per cycle: `s5_any` says that `s5_partition` has a free slot, `s5_count` how many, and
    `s5_slot` is the next;
    `pop` takes it, `push` gives `push_slot` back; both are seen by the operation that is at stage 5 in the next cycle.
    `s4_partition` is the partition that is at stage 5 a cycle later. `s6_count` is the number of free slots after
    the operation.

    Given-back slots lie in two memories, even and odd positions, so that the head and the one behind it are read at
    once and the choice between them can wait for the operation in front.

    Used by: directory.
    """

    OWNERSHIP = (
        Owned("unused_*", By.NUMBER),
        Owned("head_odd", By.TAG, "s5_head"),
        Owned("head_[0-9]*", By.NUMBER),
        Owned("tail_*", By.NUMBER),
        Owned("free_*", By.NUMBER),
        Owned("bypass_*", By.TAG, "s5_head"),
        Owned("bypassed_0", By.TAG, "s5_head", when="bypass_0"),
        Owned("bypassed_1", By.TAG, "s5_head", when="bypass_1"),
        Owned("front_*", By.TAG, "s6_head"),
        Owned("s6_count", By.TAG, "s6_head"),
        Owned("even", By.ADDRESS),
        Owned("odd", By.ADDRESS),
    )

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        partition_bits, slot_bits = self.shapes.partition_bits, self.shapes.slot_bits
        super().__init__(
            {
                "s4_partition": In(partition_bits),
                "s5_partition": In(partition_bits),
                "s5_any": Out(1),
                "s5_count": Out(slot_bits + 1),
                "s5_slot": Out(slot_bits),
                "s6_count": Out(slot_bits + 1),
                "counts": Out(slot_bits + 1).array(len(config.partitions)),
                "pop": In(1),
                "push": In(1),
                "push_slot": In(slot_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        count = len(config.partitions)
        slot_bits = self.shapes.slot_bits
        address_bits = index_bits(config.slots)
        unused = [Signal(p.slots_log2 + 1, name=f"unused_{i}") for i, p in enumerate(config.partitions)]
        heads = [Signal(p.slots_log2, name=f"head_{i}") for i, p in enumerate(config.partitions)]
        tails = [Signal(p.slots_log2, name=f"tail_{i}") for i, p in enumerate(config.partitions)]
        free = [Signal(slot_bits + 1, init=p.slots, name=f"free_{i}") for i, p in enumerate(config.partitions)]
        nexts = [Signal(p.slots_log2, name=f"next_{i}") for i, p in enumerate(config.partitions)]
        for i in range(count):
            m.d.comb += nexts[i].eq(heads[i] + 1)
        bases = config.slot_bases

        # Stage 4: present the head and the position behind it, one in each memory.
        rams = [Ram(slot_bits, max(2, config.slots // 2)) for _ in range(2)]
        m.submodules.even, m.submodules.odd = rams
        head = Signal(address_bits)
        following = Signal(address_bits)
        m.d.comb += [
            head.eq(Array(bases[i] | heads[i] for i in range(count))[self.s4_partition]),
            following.eq(Array(bases[i] | nexts[i] for i in range(count))[self.s4_partition]),
        ]
        presented = [Mux(head[0], following, head)[1:], Mux(head[0], head, following)[1:]]
        tail = Signal(address_bits)
        m.d.comb += tail.eq(Array(bases[i] | tails[i] for i in range(count))[self.s5_partition])
        read = []
        for parity, ram in enumerate(rams):
            bypass = Signal(name=f"bypass_{parity}")
            bypassed = Signal(slot_bits, name=f"bypassed_{parity}")
            written = self.push & (tail[0] == parity)
            m.d.comb += [
                ram.read_address.eq(presented[parity]),
                ram.write_address.eq(tail[1:]),
                ram.write_data.eq(self.push_slot),
                ram.write_enable.eq(written),
            ]
            m.d.sync += [bypass.eq(written & (tail[1:] == presented[parity])), bypassed.eq(self.push_slot)]
            read.append(Mux(bypass, bypassed, ram.read_data))

        # Stage 5: the operation in front may have taken the head.
        head_odd = Signal()
        front_popped = Signal()
        front_partition = Signal.like(self.s5_partition)
        first = Mux(head_odd ^ (front_popped & (front_partition == self.s5_partition)), read[1], read[0])
        unused_left = Signal()
        unused_slot = Signal(slot_bits)
        free_count = Signal(slot_bits + 1)
        m.d.comb += [
            unused_left.eq(Array(~unused[i][-1] for i in range(count))[self.s5_partition]),
            unused_slot.eq(Array(unused[i][:-1] for i in range(count))[self.s5_partition]),
            free_count.eq(Array(free)[self.s5_partition]),
            self.s5_any.eq(free_count != 0),
            self.s5_count.eq(free_count),
            self.s5_slot.eq(Mux(unused_left, unused_slot, first)),
        ]
        pop_list = self.pop & ~unused_left
        m.d.sync += [
            head_odd.eq(head[0]),
            front_popped.eq(pop_list),
            front_partition.eq(self.s5_partition),
            self.s6_count.eq(free_count - self.pop + self.push),
        ]
        for i in range(count):
            m.d.comb += self.counts[i].eq(free[i])
            with m.If(self.s5_partition == i):
                m.d.sync += [
                    unused[i].eq(unused[i] + (self.pop & unused_left)),
                    heads[i].eq(heads[i] + pop_list),
                    tails[i].eq(tails[i] + self.push),
                    free[i].eq(free[i] - self.pop + self.push),
                ]
        return m


class RetireQueues(wiring.Component):
    """Retiring slots of every partition with the places of their index entries, first in first out.

    Contract: `push` appends (`push_slot`, `push_where`) to `push_partition`. `ready` says that `item_slot`,
    `item_where` are the oldest of `partition`, which was `upcoming` in the cycle before; `pop` removes it, and the next
    of the same partition is ready two cycles later.

    Used by: sweeper.
    """

    OWNERSHIP = (
        Owned("head_*", By.NUMBER),
        Owned("tail_*", By.NUMBER),
        Owned("ready", By.TAG, "sweeper.partition"),
        Owned("ram", By.ADDRESS),
    )

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        partition_bits, slot_bits = self.shapes.partition_bits, self.shapes.slot_bits
        super().__init__(
            {
                "push": In(1),
                "push_partition": In(partition_bits),
                "push_slot": In(slot_bits),
                "push_where": In(self.shapes.where),
                "upcoming": In(partition_bits),
                "partition": In(partition_bits),
                "ready": Out(1),
                "item_slot": Out(slot_bits),
                "item_where": Out(self.shapes.where),
                "pop": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        count = len(config.partitions)
        bases = config.slot_bases
        heads = [Signal(p.slots_log2 + 1, name=f"head_{i}") for i, p in enumerate(config.partitions)]
        tails = [Signal(p.slots_log2 + 1, name=f"tail_{i}") for i, p in enumerate(config.partitions)]
        m.submodules.ram = ram = Ram(self.shapes.slot_bits + self.shapes.where.size, config.slots)
        m.d.comb += [
            ram.read_address.eq(Array(bases[i] | heads[i][:-1] for i in range(count))[self.upcoming]),
            ram.write_address.eq(Array(bases[i] | tails[i][:-1] for i in range(count))[self.push_partition]),
            ram.write_enable.eq(self.push),
            ram.write_data.eq(Cat(self.push_slot, self.push_where)),
            Cat(self.item_slot, self.item_where).eq(ram.read_data),
        ]
        occupied = Array(heads[i] != tails[i] for i in range(count))[self.upcoming]
        m.d.sync += self.ready.eq(occupied & ~(self.pop & (self.partition == self.upcoming)))
        for i in range(count):
            with m.If(self.push & (self.push_partition == i)):
                m.d.sync += tails[i].eq(tails[i] + 1)
            with m.If(self.pop & (self.partition == i)):
                m.d.sync += heads[i].eq(heads[i] + 1)
        return m
