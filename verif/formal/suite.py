"""What is proved, how, and the faults that must make each proof fail.

Used by: run, the tests, docs/proofs.md.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from .faults import Fault
from .proof import Proof


class Method(enum.Enum):
    """How a property is shown; the value stands in the table."""

    #: For ever, every property by itself from all of them one cycle before (tools.Induction).
    STEP = "induction, k = 1"
    #: For ever, by sby with smtbmc: from all properties in `depth` cycles before.
    INDUCTION = "induction"
    #: For ever, by sby with abc's PDR, which finds its own invariants.
    PDR = "PDR"
    #: In every run of `depth` cycles from reset, by sby with smtbmc.
    BOUNDED = "bounded"


@dataclass(frozen=True)
class Property:
    """A claim about the RTL.

    `proof` makes the formal module, for which nothing of the RTL may be imported before. `depth`: of the induction, or
    the bound. `cover_depth`: cycles from reset in which every cover of the module must be reached. `faults`: each by
    itself makes the proof fail; they are looked for by `fault_method` in `fault_depth` cycles. `fast`: part of CI.
    """

    name: str
    claim: str
    proof: Callable[[], Proof]
    method: Method
    depth: int = 1
    engine: str = "smtbmc yices"
    cover_depth: int = 0
    faults: tuple[Fault, ...] = ()
    fault_method: Method | None = None
    fault_depth: int = 0
    fast: bool = True
    timeout: float = 1800


def properties() -> dict[str, Property]:
    """All of them by name, in the order of the table. The modules that declare them import no RTL themselves."""
    from . import block_claims, node_claims

    return {p.name: p for p in (*node_claims.PROPERTIES, *block_claims.PROPERTIES)}
