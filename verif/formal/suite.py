"""What is proved, how, and the faults that must make each proof fail.

Used by: run, the tests, docs/proofs.md.
"""

import enum
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .faults import Fault
from .proof import Proof


class Method(enum.Enum):
    """How a property is shown; the value stands in the table."""

    #: For ever, every property by itself from all of them one cycle before (tools.Induction).
    STEP = "induction, k = 1"
    #: For ever, by sby with smtbmc: from all properties in `depth` cycles before.
    INDUCTION = "induction"
    #: In every run of `depth` cycles from reset, by sby with smtbmc.
    BOUNDED = "bounded"


@dataclass(frozen=True)
class Property:
    """A claim about the RTL.

    `proof` makes the formal module, for which nothing of the RTL may be imported before. `depth`: of the induction, or
    the bound. `cover_depth`: cycles from reset in which every cover of the module must be reached. `faults`: each by
    itself makes the proof fail; with `fault_depth` it must show in a run of so many cycles from reset, without the
    method of the proof itself will do. `fast`: part of CI.
    """

    name: str
    claim: str
    proof: Callable[[], Proof]
    method: Method
    depth: int = 1
    engine: str = "smtbmc yices"
    cover_depth: int = 0
    faults: tuple[Fault, ...] = ()
    fault_depth: int = 0
    fast: bool = True
    timeout: float = 1800

    @property
    def solver(self) -> str:
        """What is run: tools.Induction has its own."""
        return "yices" if self.method == Method.STEP else self.engine


def proof_of(module: str, name: str, *arguments: Any, **sizes: Any) -> Callable[[], Proof]:
    """Makes the proof `name` of a module of this folder, about the preset tiny with other `sizes`."""

    def make() -> Proof:
        from kvnode.models.spec.config import preset

        kind = getattr(importlib.import_module(f".{module}", __package__), name)
        return kind(preset("tiny").replace(**sizes), *arguments)

    return make


def properties() -> dict[str, Property]:
    """All of them by name, in the order of the table. The modules that declare them import no RTL themselves."""
    from . import block_claims, node_claims

    return {p.name: p for p in (*node_claims.PROPERTIES, *block_claims.PROPERTIES)}
