"""The sweeper: everything slow, in its own turn of the wheel (ARCHITECTURE section 8)."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Kind
from kvnode.models.spec.sessions import SEQUENCE_BITS
from kvnode.models.spec.settings import Setting
from kvnode.models.spec.timing import SWEEP_ROUND

from ..layouts import KIND_BITS, Shapes, filled
from ..ownership import By, Owned
from .partitions import RetireQueues
from .settings import settings_layout

#: Slots that one port can hold: two reads and two writes.
HOLDS_PER_PORT = 4

#: What the own turns of a partition are for, in this order for ever; in those with None it does what is urgent, and in
#: the first of them what the registers ask for.
ROUND = (None, Kind.PATROL, None, Kind.EXPIRE_FILL, None, Kind.EXPIRE_LEASE, None, Kind.EXPIRE_SESSION)
assert len(ROUND) == SWEEP_ROUND


class Sweeper(wiring.Component):
    """One operation at a time for the partition whose turn it is: in the sweeper's own turns the partitions in the
    order `config.sweep_order`, in a port's turn that the port does not use its partition, for what is urgent.

    Urgent is to reap the oldest retiring slot unless a transfer holds it, else to move the hand of the eviction clock
    if the partition is short of free slots (`low`). Its own turns go by ROUND: a look at the next slot (PATROL), at the
    next row of fills, leases and sessions, and between these what is urgent, or else another PATROL. Once in a round it
    does what the registers ask for: retire a model, take back what ports hold that went down, change a setting, mark a
    damaged block. Nothing that happens in a partition moves the turn of another.

    Ports: `next_turn` is that of the wheel; `operation` with `row`, `ports` and `value` for `partition` is offered with
    `valid` and taken with `taken`; `push*` appends a slot that began to retire; `holds` are the slots held by each
    port's transfers; `look_*` go to the directory, which answers in the next cycle. `retire_*` and `poison_*` are asked
    for with their valid until taken; a port of `ports_down` is taken back from once when its bit rises; `wanted` are
    the settings to bring in force, `settings` those in force.

    Used by: node.
    """

    OWNERSHIP = (
        Owned("hand_*", By.NUMBER),
        Owned("patrol_*", By.NUMBER),
        Owned("fill_*", By.PUBLIC),
        Owned("lease_*", By.PUBLIC),
        Owned("session_*", By.PUBLIC),
        Owned("round_*", By.PUBLIC),
        Owned("position", By.PUBLIC),
        Owned("partition", By.PUBLIC),
        Owned("own_turn", By.PUBLIC),
        Owned("were_down", By.PUBLIC),
        Owned("went_down", By.PUBLIC),
    )

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        shapes, count = self.shapes, len(config.partitions)
        partition_bits, settings = shapes.partition_bits, settings_layout(shapes)
        super().__init__(
            {
                "next_turn": In(range(config.ports + 1)),
                "valid": Out(1),
                "operation": Out(shapes.operation),
                "cargo": Out(shapes.cargo),
                "partition": Out(partition_bits, init=config.partition_of_port[0]),
                "taken": In(1),
                "low": In(count),
                "push": In(1),
                "push_partition": In(partition_bits),
                "push_slot": In(shapes.slot_bits),
                "push_where": In(shapes.where),
                "holds": In(shapes.hold).array(config.ports, HOLDS_PER_PORT),
                "look_partition": Out(partition_bits),
                "look_fill": Out(shapes.fill_row_bits),
                "look_fill_slot": In(shapes.slot_bits),
                "look_lease": Out(shapes.lease_row_bits),
                "look_lease_slot": In(shapes.slot_bits),
                "look_lease_session": In(shapes.session_bits),
                "retire_valid": In(1),
                "retire_partition": In(partition_bits),
                "retire_model": In(shapes.model_bits),
                "retire_taken": Out(1),
                "poison_valid": In(1),
                "poison_partition": In(partition_bits),
                "poison_slot": In(shapes.slot_bits),
                "poison_taken": Out(1),
                "ports_down": In(config.ports),
                "wanted": In(settings).array(count),
                "settings": In(settings).array(count),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, shapes = self.config, self.shapes
        count = len(config.partitions)
        m.submodules.queues = queues = RetireQueues(config)
        partition = self.partition
        position = Signal(range(len(config.sweep_order)))
        hands = [Signal(p.slots_log2, name=f"hand_{i}") for i, p in enumerate(config.partitions)]
        patrols = [Signal(p.slots_log2, name=f"patrol_{i}") for i, p in enumerate(config.partitions)]
        fills = [Signal(range(config.fill_rows), name=f"fill_{i}") for i in range(count)]
        leases = [Signal(range(config.leases), name=f"lease_{i}") for i in range(count)]
        sessions = [Signal(range(config.sessions), name=f"session_{i}") for i in range(count)]
        rounds = [Signal(range(len(ROUND)), name=f"round_{i}") for i in range(count)]
        kind = Signal(KIND_BITS)
        slot = Signal(shapes.slot_bits)

        own_turn = Signal()
        upcoming = Signal.like(partition)
        m.d.comb += upcoming.eq(Array([*config.partition_of_port, Array(config.sweep_order)[position]])[self.next_turn])
        m.d.sync += [partition.eq(upcoming), own_turn.eq(self.next_turn == config.ports)]

        held = 0
        for port in range(config.ports):
            for index in range(HOLDS_PER_PORT):
                hold = self.holds[port][index]
                held |= hold.valid & (hold.partition == partition) & (hold.slot == queues.item_slot)
        phase = Signal(range(len(ROUND)))
        m.d.comb += phase.eq(Array(rounds)[partition])

        # What the registers ask of this partition.
        were_down = Signal(config.ports)
        went_down = Signal(config.ports)
        goes_down = self.ports_down & ~were_down
        mine = Array(config.port_masks)[partition]
        down_ports = went_down & mine
        wanted, applied = (
            Array(group[i].as_value() for i in range(count))[partition] for group in (self.wanted, self.settings)
        )
        layout = settings_layout(shapes)
        changed, row, value = Signal(), Signal(shapes.look_bits), Signal(SEQUENCE_BITS)
        for setting in reversed(Setting):
            place = layout[setting.name.lower()]
            bits = slice(place.offset, place.offset + place.width)
            with m.If(wanted[bits] != applied[bits]):
                m.d.comb += [changed.eq(1), row.eq(setting), value.eq(wanted[bits])]
        commands = own_turn & (phase == 0)
        retires = self.retire_valid & (self.retire_partition == partition)
        poisons = self.poison_valid & (self.poison_partition == partition)
        commanded = commands & (retires | (down_ports != 0) | changed | poisons)
        took_down = Signal()
        m.d.sync += [
            were_down.eq(self.ports_down),
            went_down.eq((went_down & ~Mux(took_down, mine, 0)) | goes_down),
        ]

        low = self.low.bit_select(partition, 1)
        reap = queues.ready & ~held
        cargo_row, cargo_ports, cargo_value = Signal(shapes.look_bits), Signal(config.ports), Signal(SEQUENCE_BITS)
        operation_session = Signal(shapes.session_bits)
        m.d.comb += [
            self.valid.eq(own_turn | reap | low),
            self.operation.eq(
                filled(
                    shapes.operation,
                    kind=kind,
                    slot=slot,
                    model_id=Mux(kind == Kind.RETIRE_MODEL, self.retire_model, 0),
                    session=operation_session,
                    where=queues.item_where,
                )
            ),
            self.cargo.eq(filled(shapes.cargo, row=cargo_row, ports=cargo_ports, sequence=cargo_value)),
            self.look_partition.eq(upcoming),
            self.look_fill.eq(Array(fills)[upcoming]),
            self.look_lease.eq(Array(leases)[upcoming]),
            queues.upcoming.eq(upcoming),
            queues.partition.eq(partition),
            queues.push.eq(self.push),
            queues.push_partition.eq(self.push_partition),
            queues.push_slot.eq(self.push_slot),
            queues.push_where.eq(self.push_where),
        ]
        with m.If(self.taken & own_turn):
            m.d.sync += position.eq(position + 1)
            for i in range(count):
                with m.If(partition == i):
                    m.d.sync += rounds[i].eq(rounds[i] + 1)

        def look(hands):
            """The place of a hand, which moves on when the look is taken."""
            for i in range(count):
                with m.If(self.taken & (partition == i)):
                    m.d.sync += hands[i].eq(hands[i] + 1)
            return Array(hands)[partition]

        with m.If(commanded):
            with m.If(retires):
                m.d.comb += [kind.eq(Kind.RETIRE_MODEL), self.retire_taken.eq(self.taken)]
            with m.Elif(down_ports != 0):
                m.d.comb += [kind.eq(Kind.PORT_DOWN), cargo_ports.eq(down_ports), took_down.eq(self.taken)]
            with m.Elif(poisons):
                m.d.comb += [kind.eq(Kind.POISON), slot.eq(self.poison_slot), self.poison_taken.eq(self.taken)]
            with m.Else():
                m.d.comb += [kind.eq(Kind.CONFIGURE), cargo_row.eq(row), cargo_value.eq(value)]
        with m.Elif(own_turn & Array(what is not None for what in ROUND)[phase]):
            with m.Switch(Array(what or 0 for what in ROUND)[phase]):
                with m.Case(Kind.PATROL):
                    m.d.comb += [kind.eq(Kind.PATROL), slot.eq(look(patrols))]
                with m.Case(Kind.EXPIRE_FILL):
                    m.d.comb += [kind.eq(Kind.EXPIRE_FILL), slot.eq(self.look_fill_slot), cargo_row.eq(look(fills))]
                with m.Case(Kind.EXPIRE_LEASE):
                    m.d.comb += [
                        kind.eq(Kind.EXPIRE_LEASE),
                        slot.eq(self.look_lease_slot),
                        operation_session.eq(self.look_lease_session),
                        cargo_row.eq(look(leases)),
                    ]
                with m.Case(Kind.EXPIRE_SESSION):
                    m.d.comb += [kind.eq(Kind.EXPIRE_SESSION), cargo_row.eq(look(sessions))]
        with m.Elif(reap):
            m.d.comb += [kind.eq(Kind.REAP), slot.eq(queues.item_slot), queues.pop.eq(self.taken)]
        with m.Elif(low):
            m.d.comb += [kind.eq(Kind.VISIT), slot.eq(look(hands))]
        with m.Else():
            m.d.comb += [kind.eq(Kind.PATROL), slot.eq(look(patrols))]
        return m
