"""Which mutants change nothing: a proof that the mutated and the original module are equal.

Both are cut at their registers and at the modules in them: whatever those hold or give, outputs and next states must be
the same. This is proved by SAT for the module that the mutation is in, and, where that fails, for the one around it
with the module dissolved in it. What is equal only because some state is never reached stays unproved.

Used by: verif.mutation.__main__.
"""

import hashlib
import json
import subprocess
from pathlib import Path

from .netlist import Mutant, Netlist, NetlistError, yosys

__all__ = ["Proofs"]

TIMEOUT_S = 40
#: The memory is a module with parameters, of which yosys knows the widths of its ports only as they are without.
RAM_PINS = ("write_enable", "write_address", "write_data", "read_address", "read_data")
#: The node itself is too much to dissolve a part of it in.
OUTERMOST = "kvnode_node.node"
#: What is compared of two modules `gold` and `gate`. `expose` without -dff would make outputs of all wires with a name.
MITER = (
    "select -set both gold gate", "setattr -mod -unset keep_hierarchy @both", "setundef -undriven -zero @both",
    "memory_map @both", "expose -dff -evert-dff -evert -shared @both", "delete * @both %d", "opt_clean @both",
    "miter -equiv -flatten -make_assert gold gate miter", "hierarchy -top miter", "opt -full miter",
    "sat -verify -prove-asserts miter",
)  # fmt: skip


class Proofs:
    """Proofs for the mutants of a netlist, by name, kept beside it: "equal" or why not."""

    def __init__(self, netlist: Netlist):
        self.netlist = netlist
        how = hashlib.sha256("\n".join(MITER).encode()).hexdigest()[:8]
        self.path: Path = netlist.folder / f"proofs-{how}.json"
        self.known: dict[str, str] = json.loads(self.path.read_text()) if self.path.exists() else {}

    def is_equal(self, mutant: Mutant) -> bool:
        """Whether it is proved that this mutant is none."""
        if mutant.name not in self.known:
            self.known[mutant.name] = self._prove(mutant)
            self.path.write_text(json.dumps(self.known, indent=1, sort_keys=True) + "\n")
        return self.known[mutant.name].startswith("equal")

    def _prove(self, mutant: Mutant) -> str:
        if mutant.port in RAM_PINS and mutant.cell == "ram":
            return "no proof for the pins of a memory"
        module, around, said = "", mutant.module, ""
        while module != around:
            module = around
            try:
                yosys(self.netlist.folder, _script(mutant, module), TIMEOUT_S)
                return f"equal in {module}"
            except subprocess.TimeoutExpired:
                said = f"no proof in {module} within {TIMEOUT_S} s"
            except NetlistError as error:
                said = f"differs in {module}" if "proof did fail" in str(error) else str(error)[-300:]
            outer = module.rpartition(".")[0]
            if module == mutant.module and len(outer) > len(OUTERMOST):
                around = outer
        return said


def _script(mutant: Mutant, around: str) -> list[str]:
    """A miter of the module `around` and of itself with the mutant."""
    commands = ["read_rtlil prepared.il", f"copy {around} gold"]
    if around == mutant.module:
        commands += ["copy gold gate", mutant.command(select=False, module="gate")]
    else:
        # Only the mutant's own module is dissolved; the others stay what they are, and are cut off.
        commands += [
            f"copy {mutant.module} spoiled", mutant.command(select=False, module="spoiled"), "copy gold gate",
            f"chtype -set spoiled gate/t:{mutant.module}", "setattr -mod -set keep_hierarchy 1 *",
            f"setattr -mod -unset keep_hierarchy {mutant.module} spoiled", "flatten gold gate",
        ]  # fmt: skip
    return [*commands, *MITER]
