"""The sweeper: everything slow, in its own turn of the wheel (ARCHITECTURE section 8)."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Kind
from kvnode.models.spec.registers import MODEL_RETIRE_ADDRESS

from ..layouts import KIND_BITS, Shapes, filled
from ..ownership import By, Owned
from .partitions import RetireQueues

#: Slots that one port can hold: two reads and two writes.
HOLDS_PER_PORT = 4


class Sweeper(wiring.Component):
    """One operation at a time for the partition whose turn it is: in the sweeper's own turns the partitions in the
    order `config.sweep_order`, in a port's turn that the port does not use its partition, for what is urgent.

    It reaps the oldest retiring slot unless a transfer holds it, else moves the hand of the eviction clock if the
    partition is short of free slots (`low`). In its own turns it first of all retires a model if a register write asks
    for it, and when nothing is urgent it patrols for blocks of retired models. Nothing that happens in a partition
    moves the turn of another.

    Ports: `next_turn` is that of the wheel; `operation` for `partition` is offered with `valid` and taken with `taken`;
    `push*` appends a slot that began to retire; `holds` are the slots held by each port's transfers; `register_*` is
    the plain register write port, which accepts one MODEL_RETIRE at a time and ignores unknown addresses, partitions
    and models.

    Used by: node.
    """

    OWNERSHIP = (
        Owned("hand_*", By.NUMBER),
        Owned("patrol_*", By.NUMBER),
        Owned("owes", By.NUMBER),
        Owned("position", By.PUBLIC),
        Owned("partition", By.PUBLIC),
        Owned("own_turn", By.PUBLIC),
        Owned("pending*", By.MANAGEMENT),
    )

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        partition_bits = self.shapes.partition_bits
        super().__init__(
            {
                "next_turn": In(range(config.ports + 1)),
                "valid": Out(1),
                "operation": Out(self.shapes.operation),
                "partition": Out(partition_bits),
                "taken": In(1),
                "low": In(len(config.partitions)),
                "push": In(1),
                "push_partition": In(partition_bits),
                "push_slot": In(self.shapes.slot_bits),
                "push_where": In(self.shapes.where),
                "holds": In(self.shapes.hold).array(config.ports, HOLDS_PER_PORT),
                "register_valid": In(1),
                "register_ready": Out(1),
                "register_address": In(16),
                "register_data": In(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        count = len(config.partitions)
        m.submodules.queues = queues = RetireQueues(config)
        hands = [Signal(p.slots_log2, name=f"hand_{i}") for i, p in enumerate(config.partitions)]
        partition = self.partition
        position = Signal(range(len(config.sweep_order)))
        patrols = [Signal(p.slots_log2, name=f"patrol_{i}") for i, p in enumerate(config.partitions)]
        kind = Signal(KIND_BITS)
        slot = Signal(self.shapes.slot_bits)

        pending = Signal()
        pending_partition = Signal.like(partition)
        pending_model = Signal(self.shapes.model_bits)
        known = (
            (self.register_address == MODEL_RETIRE_ADDRESS)
            & (self.register_data[16:] < count)
            & (self.register_data[:16] < config.models)
        )
        m.d.comb += self.register_ready.eq(~pending)
        with m.If(self.register_valid & ~pending):
            m.d.sync += [
                pending.eq(known),
                pending_partition.eq(self.register_data[16:]),
                pending_model.eq(self.register_data[:16]),
            ]

        held = Signal(count)
        for port, owner in enumerate(config.partition_of_port):
            for index in range(HOLDS_PER_PORT):
                hold = self.holds[port][index]
                with m.If(hold.valid & (hold.slot == queues.item_slot)):
                    m.d.comb += held[owner].eq(1)

        own_turn = Signal()
        upcoming = Signal.like(partition)
        m.d.comb += upcoming.eq(Array([*config.partition_of_port, Array(config.sweep_order)[position]])[self.next_turn])
        m.d.sync += [partition.eq(upcoming), own_turn.eq(self.next_turn == config.ports)]

        # A partition that retired a model owes a step of its patrol. So an epoch cannot come round to its number again
        # before the patrol has been everywhere (the configuration asks for epochs enough).
        owes = Signal(count)
        patrol_first = own_turn & owes.bit_select(partition, 1)
        retire_model = own_turn & pending & (pending_partition == partition) & ~patrol_first
        reap = queues.ready & ~held.bit_select(partition, 1) & ~patrol_first
        low = self.low.bit_select(partition, 1)
        m.d.comb += [
            self.valid.eq(own_turn | reap | low),
            self.operation.eq(
                filled(self.shapes.operation, kind=kind, slot=slot, model_id=pending_model, where=queues.item_where)
            ),
            queues.upcoming.eq(upcoming),
            queues.partition.eq(partition),
            queues.push.eq(self.push),
            queues.push_partition.eq(self.push_partition),
            queues.push_slot.eq(self.push_slot),
            queues.push_where.eq(self.push_where),
        ]
        with m.If(self.taken & own_turn):
            m.d.sync += [position.eq(position + 1), owes.bit_select(partition, 1).eq(retire_model)]
        with m.If(retire_model):
            m.d.comb += kind.eq(Kind.RETIRE_MODEL)
            with m.If(self.taken):
                m.d.sync += pending.eq(0)
        with m.Elif(reap):
            m.d.comb += [kind.eq(Kind.REAP), slot.eq(queues.item_slot), queues.pop.eq(self.taken)]
        visit = low & ~patrol_first
        for moves, name, places in ((visit, Kind.VISIT, hands), (~visit, Kind.PATROL, patrols)):
            with m.If(~retire_model & ~reap & moves):
                m.d.comb += [kind.eq(name), slot.eq(Array(places)[partition])]
                for i in range(count):
                    with m.If(self.taken & (partition == i)):
                        m.d.sync += places[i].eq(places[i] + 1)
        return m
