"""Block table: one key row and one state row per slot, read at stage 6, state committed at stage 8."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for

from kvnode.models.spec.config import NodeConfig

from ..layouts import AGE_BITS, CLASS_BITS, CRC_BITS, STATE_BITS, TICK_BITS, Shapes, index_bits
from ..memory import Ram
from ..ownership import By, Owned


def state_layout(config: NodeConfig) -> data.StructLayout:
    """The state row: what changes while a block lives. Narrow, because it is forwarded."""
    shapes = Shapes(config)
    return data.StructLayout(
        {
            "state": STATE_BITS,
            "generation": config.generation_bits,
            "length": shapes.beat_bits,
            "klass": CLASS_BITS,
            "age": AGE_BITS,
            "fill_row": shapes.fill_row_bits,
            "crc": CRC_BITS,
            "leases": bits_for(config.leases),
            "timed": 1,
            "until": TICK_BITS,
            "poisoned": 1,
        }
    )


def key_layout(config: NodeConfig) -> data.StructLayout:
    """The key row: written once by the operation that grants the slot."""
    shapes = Shapes(config)
    return data.StructLayout(
        {
            "digest": config.digest_bits,
            "model_id": shapes.model_bits,
            "group": 8,
            "epoch": config.epoch_bits,
            "session": shapes.session_bits,
            "private": 1,
            "where": shapes.where,
        }
    )


class BlockTable(wiring.Component):
    """Stages 6 to 8 of the directory. Addresses are physical slots.

    Contract: the operation at stage 6 either reads the key row of `s6_slot` or, with `s6_write_key`, writes it; the key
    is at `s7_key` a cycle later. The state row of the same slot is at `s7_state`, with every earlier commit in it:
    commits (`commit` with `commit_slot`, `commit_state`, at stage 8) of the two operations in front are forwarded.
    `clear` sets the state row `clear_slot` to FREE, generation 0.

    Used by: directory.
    """

    OWNERSHIP = (
        Owned("s7_slot", By.TAG, "s7_head"),
        Owned("previous*", By.ADDRESS),
        Owned("keys", By.ADDRESS),
        Owned("states", By.ADDRESS),
    )

    def __init__(self, config: NodeConfig):
        self.config = config
        self.state, self.key = state_layout(config), key_layout(config)
        self.address_bits = index_bits(config.slots)
        super().__init__(
            {
                "s6_slot": In(self.address_bits),
                "s6_write_key": In(1),
                "s6_key": In(self.key),
                "s7_key": Out(self.key),
                "s7_state": Out(self.state),
                "commit": In(1),
                "commit_slot": In(self.address_bits),
                "commit_state": In(self.state),
                "clear": In(1),
                "clear_slot": In(self.address_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.keys = keys = Ram(self.key.size, self.config.slots)
        m.submodules.states = states = Ram(self.state.size, self.config.slots)
        m.d.comb += [
            keys.read_address.eq(self.s6_slot),
            keys.write_address.eq(self.s6_slot),
            keys.write_enable.eq(self.s6_write_key),
            keys.write_data.eq(self.s6_key),
            self.s7_key.eq(keys.read_data),
            states.read_address.eq(self.s6_slot),
            states.write_enable.eq(self.commit | self.clear),
            states.write_address.eq(self.commit_slot),
            states.write_data.eq(self.commit_state),
        ]
        with m.If(self.clear):
            m.d.comb += [states.write_address.eq(self.clear_slot), states.write_data.eq(0)]

        s7_slot = Signal(self.address_bits)
        previous = Signal()
        previous_slot = Signal(self.address_bits)
        previous_state = Signal(self.state)
        m.d.sync += [
            s7_slot.eq(self.s6_slot),
            previous.eq(self.commit),
            previous_slot.eq(self.commit_slot),
            previous_state.eq(self.commit_state),
        ]
        m.d.comb += self.s7_state.eq(states.read_data)
        with m.If(previous & (previous_slot == s7_slot)):
            m.d.comb += self.s7_state.eq(previous_state)
        with m.If(self.commit & (self.commit_slot == s7_slot)):
            m.d.comb += self.s7_state.eq(self.commit_state)
        return m
