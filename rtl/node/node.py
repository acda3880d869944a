"""The node: ports, directory, sweeper and store around the wheel."""

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig

from ..layouts import TRACE_STRUCT, Shapes, index_bits
from ..wheel import Wheel
from .directory import Directory
from .port import Port
from .store import Store
from .sweeper import Sweeper

#: A state transition, a bit of the index compare, the watermark, the rotator's index.
FAULTS = ("transition", "index_compare", "watermark", "rotator")


class Node(wiring.Component):
    """A whole node of one configuration.

    `req` and `rsp` are the message streams of the ports (layouts in models.spec.messages); `register_*` is the plain
    register write port; `boot_epoch` must stand still from reset on; `trace` is the debug port of committed operations,
    never visible to a tenant. In `strict` sharing a directory turn is its owner's, or goes to the sweeper for something
    urgent in the owner's partition; in `donate` an idle turn goes before that to the next port that has an operation.

    `fault` names one of FAULTS; tests seed them to show that lockstep finds them, nobody else does.
    Used by: elaborate.
    """

    def __init__(self, config: NodeConfig, *, fault: str | None = None):
        if fault is not None and fault not in FAULTS:
            raise ValueError(f"fault {fault!r}: there are {', '.join(FAULTS)}")
        self.config, self.shapes, self.fault = config, Shapes(config), fault
        beats = stream.Signature(self.shapes.beat)
        super().__init__(
            {
                "boot_epoch": In(config.boot_epoch_bits),
                "req": In(beats).array(config.ports),
                "rsp": Out(beats).array(config.ports),
                "register_valid": In(1),
                "register_ready": Out(1),
                "register_address": In(16),
                "register_data": In(32),
                "trace_valid": Out(1),
                "trace": Out(TRACE_STRUCT),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, shapes = self.config, self.shapes
        count = config.ports
        m.submodules.wheel = wheel = Wheel(count)
        m.submodules.directory = directory = Directory(config, self.fault)
        m.submodules.store = store = Store(config, self.fault)
        m.submodules.sweeper = sweeper = Sweeper(config)
        ports = [Port(config, number) for number in range(count)]
        m.d.comb += store.rotation.eq(wheel.rotation)
        for number, port in enumerate(ports):
            m.submodules[f"port{number}"] = port
            wiring.connect(m, wiring.flipped(self.req[number]), port.req)
            wiring.connect(m, port.rsp, wiring.flipped(self.rsp[number]))
            comes = directory.result_valid & (directory.result_owner == number)
            bank = Signal(index_bits(count), name=f"bank_of_port{number}")
            m.d.comb += [
                port.boot_epoch.eq(self.boot_epoch),
                port.ready.eq(directory.ready),
                port.result_valid.eq(comes),
                port.result.eq(Mux(comes, directory.result.as_value(), 0)),
                bank.eq(wheel.rotation + number),
                port.bank.eq(bank),
                store.read_valid[number].eq(port.read_valid),
                store.read_row[number].eq(port.read_row),
                port.data_valid.eq(store.data_valid[number]),
                port.data.eq(store.read_data[number]),
                store.write_valid[number].eq(port.write_valid),
                store.write_row[number].eq(port.write_row),
                store.write_data[number].eq(port.write_data),
            ]
            for index, hold in enumerate(port.holds):
                m.d.comb += sweeper.holds[number][index].eq(hold)

        # Whose operation starts in this cycle.
        chosen = Signal(shapes.owner_bits)
        m.d.comb += chosen.eq(wheel.turn)
        valids = Array([port.valid for port in ports] + [sweeper.valid])
        idle = ~valids[wheel.turn]
        with m.If(idle & sweeper.valid):
            m.d.comb += chosen.eq(count)
        if config.sharing == "donate":
            with m.If(idle):
                with m.Switch(wheel.turn):
                    for turn in range(count):
                        with m.Case(turn):
                            for step in reversed(range(1, count)):
                                with m.If(ports[(turn + step) % count].valid):
                                    m.d.comb += chosen.eq((turn + step) % count)
        start = Signal()
        m.d.comb += [
            start.eq(directory.ready & valids[chosen]),
            directory.start.eq(start),
            directory.owner.eq(chosen),
            directory.operation.eq(
                Array([p.operation.as_value() for p in ports] + [sweeper.operation.as_value()])[chosen]
            ),
            directory.digest.eq(Array([p.digest for p in ports] + [Const(0, config.digest_bits)])[chosen]),
            directory.partition.eq(Array([*config.partition_of_port, sweeper.partition])[chosen]),
            sweeper.next_turn.eq(wheel.next_turn),
            sweeper.taken.eq(start & (chosen == count)),
            sweeper.low.eq(directory.low),
            sweeper.push.eq(directory.retire),
            sweeper.push_partition.eq(directory.retire_partition),
            sweeper.push_slot.eq(directory.retire_slot),
            sweeper.push_where.eq(directory.retire_where),
            sweeper.register_valid.eq(self.register_valid),
            self.register_ready.eq(sweeper.register_ready),
            sweeper.register_address.eq(self.register_address),
            sweeper.register_data.eq(self.register_data),
            self.trace_valid.eq(directory.trace_valid),
            self.trace.eq(directory.trace),
        ]
        for number, port in enumerate(ports):
            m.d.comb += port.taken.eq(start & (chosen == number))
        return m
