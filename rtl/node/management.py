"""What operators see: the register bank, the event ring, counters and histograms (ARCHITECTURE section 14)."""

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.settings import Setting

from ..csr.bank import BUS, RegisterBank
from ..csr.description import NODE, load
from ..layouts import TICK_BITS, TRACE_STRUCT, Shapes
from ..ownership import By, Owned
from .counters import Counters, LatencyHistogram
from .events import EventRing
from .settings import setting_bits, settings_layout

#: Cycles for which a port is held in reset at least: all that it had under way has come back and been ignored.
DOWN_CYCLES = 32


class Management(wiring.Component):
    """Registers of the node on AXI4-Lite (`axi_*`, rtl/csr/node.rdl), and what stands behind them.

    Ports: the requests of the registers go to the sweeper (`retire_*`, `poison_*`, `wanted`), to the ports
    (`ports_down`: those held in reset, at least DOWN_CYCLES; `drain`) and out of the node (`reset_request`, a pulse);
    what the node is and holds comes in. Unknown partitions, models and slots are ignored. `trace`, `arrives` and
    `answers` feed events, counters and histograms.

    Used by: node.
    """

    OWNERSHIP = (Owned("*", By.PUBLIC),)

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        shapes, count = self.shapes, len(config.partitions)
        members = {f"axi_{name}": (Out if driven else In)(width) for name, width, driven in BUS}
        super().__init__(
            members
            | {
                "boot_epoch": In(config.boot_epoch_bits),
                "ready": In(1),
                "ports_idle": In(config.ports),
                "drain": Out(1),
                "reset_request": Out(1),
                "ports_down": Out(config.ports),
                "retire_valid": Out(1),
                "retire_partition": Out(shapes.partition_bits),
                "retire_model": Out(shapes.model_bits),
                "retire_taken": In(1),
                "poison_valid": Out(1),
                "poison_partition": Out(shapes.partition_bits),
                "poison_slot": Out(shapes.slot_bits),
                "poison_taken": In(1),
                "wanted": Out(settings_layout(shapes)).array(count),
                "free_counts": In(shapes.slot_bits + 1).array(count),
                "fills_used": In(range(config.fill_rows + 1)).array(count),
                "lease_counts": In(range(config.leases + 1)).array(count),
                "lease_ages": In(TICK_BITS).array(count),
                "open_counts": In(range(config.sessions + 1)).array(count),
                "trace_valid": In(1),
                "trace": In(TRACE_STRUCT),
                "arrives": In(config.ports),
                "answers": In(config.ports),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, shapes = self.config, self.shapes
        partitions = config.partitions
        widths = {f"{setting.name.lower()}_value": bits for setting, bits in setting_bits(shapes).items()}
        m.submodules.bank = bank = RegisterBank(
            load(NODE),
            counts={"partition": len(partitions)},
            resets={
                f"partition_{i}_{setting.name.lower()}_value": getattr(partition, setting.name.lower())
                for i, partition in enumerate(partitions)
                for setting in Setting
            },
            bits={"port_down_mask": config.ports}
            | {f"partition_{i}_{name}": bits for i in range(len(partitions)) for name, bits in widths.items()},
        )
        for name, _, driven in BUS:
            inside, outside = getattr(bank, name), getattr(self, f"axi_{name}")
            m.d.comb += outside.eq(inside) if driven else inside.eq(outside)

        # What the node is, and how it is.
        log2 = {name: getattr(config, name).bit_length() - 1 for name in ("models", "fill_rows")}
        drained = Signal()
        m.d.comb += [
            bank.capabilities_0_ports.eq(config.ports),
            bank.capabilities_0_partitions.eq(len(partitions)),
            bank.capabilities_0_beat_bytes.eq(config.beat_bytes),
            bank.capabilities_0_banks.eq(config.ports),
            bank.capabilities_1_block_beats.eq(config.block_beats),
            bank.capabilities_2_max_payload_beats.eq(config.max_payload_bytes // config.beat_bytes),
            bank.capabilities_2_models_log2.eq(log2["models"]),
            bank.capabilities_2_fill_rows_log2.eq(log2["fill_rows"]),
            bank.capabilities_3_sessions.eq(config.sessions),
            bank.capabilities_3_leases.eq(config.leases),
            bank.capabilities_3_tick_cycles_log2.eq(config.tick_cycles_log2),
            bank.capabilities_3_sharing.eq(config.sharing == "donate"),
            bank.boot_epoch_value.eq(self.boot_epoch),
            drained.eq(self.drain & self.ports_idle.all()),
            bank.status_ready.eq(self.ready & ~self.drain),
            bank.status_drained.eq(drained),
            bank.status_tables_clearing.eq(~self.ready),
            self.drain.eq(bank.control_drain),
            self.reset_request.eq(bank.control_reset),
        ]
        for i, partition in enumerate(partitions):
            m.d.comb += [
                getattr(bank, f"partition_{i}_{name}").eq(value)
                for name, value in (
                    ("ports_mask", config.port_masks[i]),
                    ("slots_log2_value", partition.slots_log2),
                    ("slot_base_value", config.slot_bases[i]),
                    ("options_public", partition.public),
                    ("free_slots_value", self.free_counts[i]),
                    ("fill_rows_used_value", self.fills_used[i]),
                    ("leases_held_value", self.lease_counts[i]),
                    ("oldest_lease_ticks_value", self.lease_ages[i]),
                    ("sessions_open_value", self.open_counts[i]),
                )
            ]
            m.d.comb += [
                self.wanted[i][setting.name.lower()].eq(getattr(bank, f"partition_{i}_{setting.name.lower()}_value"))
                for setting in Setting
            ]

        # What the registers ask for, until the sweeper has taken it.
        retire, poison = Signal(name="retire_pending"), Signal(name="poison_pending")
        retire_known = (bank.model_retire_partition < len(partitions)) & (bank.model_retire_model_id < config.models)
        slots = Array(partition.slots for partition in partitions)[bank.poison_partition]
        poison_known = (bank.poison_partition < len(partitions)) & (bank.poison_slot < slots)
        m.d.sync += [
            retire.eq((retire & ~self.retire_taken) | (bank.model_retire_written & retire_known)),
            poison.eq((poison & ~self.poison_taken) | (bank.poison_written & poison_known)),
        ]
        m.d.comb += [
            bank.model_retire_busy.eq(retire),
            bank.poison_busy.eq(poison),
            self.retire_valid.eq(retire),
            self.retire_partition.eq(bank.model_retire_partition),
            self.retire_model.eq(bank.model_retire_model_id),
            self.poison_valid.eq(poison),
            self.poison_partition.eq(bank.poison_partition),
            self.poison_slot.eq(bank.poison_slot),
        ]
        for port in range(config.ports):
            left = Signal(range(DOWN_CYCLES + 1), name=f"down_left_{port}")
            wanted = bank.port_down_mask[port]
            m.d.comb += self.ports_down[port].eq(left != 0)
            with m.If(wanted):
                m.d.sync += left.eq(DOWN_CYCLES)
            with m.Elif(left != 0):
                m.d.sync += left.eq(left - 1)

        # Events, counters, histograms.
        m.submodules.events = events = EventRing()
        m.submodules.counters = counters = Counters(config)
        m.submodules.histogram = histogram = LatencyHistogram(config)
        was_ready = Signal()
        m.d.sync += was_ready.eq(self.ready)
        m.d.comb += [
            events.trace_valid.eq(self.trace_valid),
            events.trace.eq(self.trace),
            events.cleared.eq(self.ready & ~was_ready),
            events.pop.eq(bank.event_pop_pop),
            bank.event_level_value.eq(events.level),
            bank.event_sequence_value.eq(events.sequence),
            bank.event_status_valid.eq(events.valid),
            bank.event_status_overflow.eq(events.overflow),
            Cat(getattr(bank, f"event_data_{i}_value") for i in range(16)).eq(Mux(events.valid, events.data, 0)),
            counters.trace_valid.eq(self.trace_valid),
            counters.trace.eq(self.trace),
            counters.select_partition.eq(bank.counter_select_partition),
            counters.select_kind.eq(bank.counter_select_kind),
            counters.select_status.eq(bank.counter_select_status),
            Cat(bank.counter_low_value, bank.counter_high_value).eq(counters.value),
            histogram.arrives.eq(self.arrives),
            histogram.answers.eq(self.answers),
            histogram.down.eq(self.ports_down),
            histogram.select_port.eq(bank.histogram_select_port),
            histogram.select_bucket.eq(bank.histogram_select_bucket),
            bank.histogram_low_value.eq(histogram.value),
        ]
        return m
