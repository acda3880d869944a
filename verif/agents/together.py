"""Several components side by side in one design, so that one build serves them all.

Used by: benches of small blocks.
"""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

__all__ = ["Together"]


class Together(wiring.Component):
    """The ports of component `x` are those of `Together(x=...)` with `x__` in front."""

    def __init__(self, **components: wiring.Component):
        self.components = components
        super().__init__({name: Out(component.signature) for name, component in components.items()})

    def elaborate(self, platform):
        m = Module()
        for name, component in self.components.items():
            m.submodules[name] = component
            wiring.connect(m, wiring.flipped(getattr(self, name)), component)
        return m
