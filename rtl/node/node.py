"""The node: ports, directory, sweeper, store and registers around the wheel."""

from amaranth.hdl import Array, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig

from ..csr.bank import BUS
from ..layouts import TRACE_STRUCT, Shapes, index_bits
from ..wheel import Wheel
from .directory import Directory
from .management import Management
from .port import Port
from .store import Store
from .sweeper import Sweeper

#: A state transition, a bit of the index compare, the watermark, the rotator's index.
FAULTS = ("transition", "index_compare", "watermark", "rotator")


class Node(wiring.Component):
    """A whole node of one configuration.

    `req` and `rsp` are the message streams of the ports (layouts in models.spec.messages); `axi_*` is the AXI4-Lite
    port of the registers (rtl/csr/node.rdl); `boot_epoch` must stand still from reset on; `reset_request` asks whoever
    drives the reset for one, with another boot_epoch. A port of `ports_down` is held in reset. `trace` is the debug
    port of committed operations, never visible to a tenant. In `strict` sharing a directory turn is its owner's, or
    goes to the sweeper for something urgent in the owner's partition; in `donate` an idle turn goes before that to the
    next port that has an operation.

    `fault` names one of FAULTS; tests seed them to show that lockstep finds them, nobody else does.
    Used by: elaborate.
    """

    def __init__(self, config: NodeConfig, *, fault: str | None = None):
        if fault is not None and fault not in FAULTS:
            raise ValueError(f"fault {fault!r}: there are {', '.join(FAULTS)}")
        self.config, self.shapes, self.fault = config, Shapes(config), fault
        beats = stream.Signature(self.shapes.beat)
        super().__init__(
            {f"axi_{name}": (Out if driven else In)(width) for name, width, driven in BUS}
            | {
                "boot_epoch": In(config.boot_epoch_bits),
                "req": In(beats).array(config.ports),
                "rsp": Out(beats).array(config.ports),
                "ports_down": Out(config.ports),
                "reset_request": Out(1),
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
        m.submodules.management = management = Management(config)
        ports = [Port(config, number) for number in range(count)]
        m.d.comb += store.rotation.eq(wheel.rotation)
        for number, port in enumerate(ports):
            down = management.ports_down[number]
            m.submodules[f"port{number}"] = ResetInserter(down)(port)
            comes = directory.result_valid & (directory.result_owner == number) & ~down
            req, rsp = self.req[number], self.rsp[number]
            bank = Signal(index_bits(count), name=f"bank_of_port{number}")
            m.d.comb += [
                port.req.valid.eq(req.valid & ~down),
                port.req.p.eq(req.p),
                req.ready.eq(port.req.ready & ~down),
                rsp.valid.eq(port.rsp.valid & ~down),
                rsp.p.eq(Mux(down, 0, port.rsp.p.as_value())),
                port.rsp.ready.eq(rsp.ready & ~down),
                port.boot_epoch.eq(self.boot_epoch),
                port.ready.eq(directory.ready & ~management.drain),
                port.result_valid.eq(comes),
                port.result.eq(Mux(comes, directory.result.as_value(), 0)),
                port.wake.eq(directory.wakes[number] & ~down),
                bank.eq(wheel.rotation + number),
                port.bank.eq(bank),
                store.read_valid[number].eq(port.read_valid & ~down),
                store.read_row[number].eq(Mux(down, 0, port.read_row)),
                port.data_valid.eq(store.data_valid[number] & ~down),
                port.data.eq(store.read_data[number]),
                store.write_valid[number].eq(port.write_valid & ~down),
                store.write_row[number].eq(Mux(down, 0, port.write_row)),
                store.write_data[number].eq(Mux(down, 0, port.write_data)),
                management.ports_idle[number].eq(port.idle),
                management.arrives[number].eq(port.arrives & ~down),
                management.answers[number].eq(port.answers & ~down),
            ]
            for index, hold in enumerate(port.holds):
                m.d.comb += sweeper.holds[number][index].eq(hold)

        # Whose operation starts in this cycle.
        chosen = Signal(shapes.owner_bits)
        m.d.comb += chosen.eq(wheel.turn)
        valids = Array([port.valid & ~management.ports_down[i] for i, port in enumerate(ports)] + [sweeper.valid])
        idle = ~valids[wheel.turn]
        with m.If(idle & sweeper.valid):
            m.d.comb += chosen.eq(count)
        if config.sharing == "donate":
            with m.If(idle):
                with m.Switch(wheel.turn):
                    for turn in range(count):
                        with m.Case(turn):
                            for step in reversed(range(1, count)):
                                with m.If(valids[(turn + step) % count]):
                                    m.d.comb += chosen.eq((turn + step) % count)
        start = Signal()
        m.d.comb += [
            start.eq(directory.ready & valids[chosen]),
            directory.start.eq(start),
            directory.owner.eq(chosen),
            directory.operation.eq(
                Array([p.operation.as_value() for p in ports] + [sweeper.operation.as_value()])[chosen]
            ),
            directory.cargo.eq(Array([p.cargo.as_value() for p in ports] + [sweeper.cargo.as_value()])[chosen]),
            directory.digest.eq(Array([p.digest for p in ports] + [Const(0, config.digest_bits)])[chosen]),
            directory.partition.eq(Array([*(p.partition for p in ports), sweeper.partition])[chosen]),
            directory.look_partition.eq(sweeper.look_partition),
            directory.look_fill.eq(sweeper.look_fill),
            directory.look_lease.eq(sweeper.look_lease),
            sweeper.look_fill_slot.eq(directory.look_fill_slot),
            sweeper.look_lease_slot.eq(directory.look_lease_slot),
            sweeper.look_lease_session.eq(directory.look_lease_session),
            sweeper.next_turn.eq(wheel.next_turn),
            sweeper.taken.eq(start & (chosen == count)),
            sweeper.low.eq(directory.low),
            sweeper.push.eq(directory.retire),
            sweeper.push_partition.eq(directory.retire_partition),
            sweeper.push_slot.eq(directory.retire_slot),
            sweeper.push_where.eq(directory.retire_where),
            sweeper.ports_down.eq(management.ports_down),
            self.ports_down.eq(management.ports_down),
            self.reset_request.eq(management.reset_request),
            self.trace_valid.eq(directory.trace_valid),
            self.trace.eq(directory.trace),
            management.trace_valid.eq(directory.trace_valid),
            management.trace.eq(directory.trace),
            management.boot_epoch.eq(self.boot_epoch),
            management.ready.eq(directory.ready),
        ]
        for name in ("retire", "poison"):
            for part in ("valid", "partition", "model" if name == "retire" else "slot"):
                m.d.comb += getattr(sweeper, f"{name}_{part}").eq(getattr(management, f"{name}_{part}"))
            m.d.comb += getattr(management, f"{name}_taken").eq(getattr(sweeper, f"{name}_taken"))
        for i in range(len(config.partitions)):
            m.d.comb += [sweeper.wanted[i].eq(management.wanted[i]), sweeper.settings[i].eq(directory.settings[i])]
            for name in ("free_counts", "fills_used", "lease_counts", "lease_ages", "open_counts"):
                m.d.comb += getattr(management, name)[i].eq(getattr(directory, name)[i])
        for name, _, driven in BUS:
            inside, outside = getattr(management, f"axi_{name}"), getattr(self, f"axi_{name}")
            m.d.comb += outside.eq(inside) if driven else inside.eq(outside)
        for number, port in enumerate(ports):
            m.d.comb += port.taken.eq(start & (chosen == number))
        return m
