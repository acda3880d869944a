"""The wheel: the only arbiter in the node (ARCHITECTURE section 2)."""

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from .layouts import index_bits
from .ownership import By, Owned


class Wheel(wiring.Component):
    """Two counters from reset on: `turn` modulo ports + 1 (port p's directory turn, the last is the sweeper's) and
    `rotation` modulo ports (port p owns bank `(p + rotation) mod ports`). `next_turn` is the turn of the next cycle.

    Used by: node.
    """

    OWNERSHIP = (
        Owned("turn", By.PUBLIC),
        Owned("rotation", By.PUBLIC),
    )

    def __init__(self, ports: int):
        self.ports = ports
        super().__init__(
            {"turn": Out(range(ports + 1)), "next_turn": Out(range(ports + 1)), "rotation": Out(index_bits(ports))}
        )

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.next_turn.eq(Mux(self.turn == self.ports, 0, self.turn + 1))
        m.d.sync += [self.rotation.eq(self.rotation + 1), self.turn.eq(self.next_turn)]
        return m
