"""What a proof is written in: free inputs, properties with names, assumptions and covers around the real RTL.

Used by: every proof, suite.
"""

from amaranth.hdl import Assert, Assume, ClockDomain, Cover, Fragment, Module, Signal, Value
from amaranth.lib import wiring

from kvnode.models.spec.config import NodeConfig

from .design import FREE, Design


class Proof:
    """Base of the formal modules. A subclass adds its designs and says what holds in `describe(m)`.

    In a proof by induction every `check` is also an assumption about the state before. One that is only there to help
    the others is a `help`; in runs from reset (`claims_only`) it is left out, so that what fails there is a claim.
    Names become parts of the module, so that a solver's report names what failed.
    """

    claims_only = False

    def __init__(self) -> None:
        self.inputs: list[Signal] = []
        self.checks: list[str] = []
        self.covers: list[str] = []
        self._m = Module()

    def free(self, name: str, width: int = 1) -> Signal:
        """A signal that is anything, anew in every cycle."""
        signal = Signal(width, name=name)
        self.inputs.append(signal)
        return signal

    def chosen(self, name: str, width: int = 1) -> Signal:
        """A register that keeps what it begins with, which is anything: what holds of it holds of every value."""
        signal = Signal(width, name=name, attrs={FREE: 1})
        self._m.d.sync += signal.eq(signal)
        return signal

    def design(
        self,
        name: str,
        component,
        cut: tuple[str, ...] = (),
        driven: tuple[str, ...] = (),
        *,
        clash: bool = False,
    ) -> Design:
        """Puts a component into the module; those of its inputs that are not `driven` by the proof are free."""
        design = Design(component, cut, self.free, clash=clash)
        self._m.submodules[name] = design.fragment
        for path, member, value in component.signature.flatten(component):
            if member.flow == wiring.In and str(path[0]) not in driven:
                place = "_".join(str(step) for step in path)
                self._m.d.comb += Value.cast(value).eq(self.free(f"{name}_{place}", Value.cast(value).shape().width))
        return design

    def check(self, name: str, condition) -> None:
        """Holds in every cycle."""
        self.checks.append(name)
        self._part(name, lambda m: m.d.comb.__iadd__(Assert(condition)))

    def help(self, name: str, condition) -> None:
        """Holds in every cycle, and says something of the inside only."""
        if not self.claims_only:
            self.check(name, condition)

    def assume(self, name: str, condition) -> None:
        """What the surroundings promise; it belongs into the claim."""
        self._part(f"assumed_{name}", lambda m: m.d.comb.__iadd__(Assume(condition)))

    def cover(self, name: str, condition) -> None:
        """Can happen: shows that what was proved is about something."""
        self.covers.append(name)
        self._part(f"cover_{name}", lambda m: m.d.comb.__iadd__(Cover(condition)))

    def first(self) -> Signal:
        """High in the first cycle."""
        later = Signal(name="later")
        self._m.d.sync += later.eq(1)
        return ~later

    def _part(self, name: str, fill) -> None:
        part = Module()
        self._m.submodules[name.replace(".", "__").replace("$", "")] = part
        fill(part)

    def describe(self, m: Module) -> None:
        """Puts designs, checks, assumptions and covers into the module `m`: every proof has its own."""
        raise NotImplementedError

    def rtlil(self) -> str:
        """The module `top` with everything free as a port."""
        from amaranth.back import rtlil

        self._m.domains.sync = sync = ClockDomain(reset_less=True)
        self.inputs.append(sync.clk)
        self.describe(self._m)
        return rtlil.convert(Fragment.get(self._m, None), name="top", ports=self.inputs)


class ProofOf(Proof):
    """Base of the proofs about a component of one configuration."""

    def __init__(self, config: NodeConfig) -> None:
        super().__init__()
        self.config = config
