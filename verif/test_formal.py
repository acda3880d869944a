"""The proofs that take seconds, with their covers and faults; `make formal` runs all."""

import subprocess
import sys

import pytest

from kvnode.verif.formal.faults import Fault
from kvnode.verif.formal.run import as_wanted, prove, table, tasks
from kvnode.verif.formal.suite import properties

FAST = [p for p in properties().values() if p.fast]


@pytest.mark.parametrize("of", FAST, ids=lambda p: p.name)
def test_property_is_proved_and_its_faults_are_found(of):
    results = prove([of], workers=1)
    assert {str(task): result for task, result in results.items() if not as_wanted(task, result)} == {}
    assert len(results) == len(tasks(of))
    assert f"| {of.name} |" in table([of], results)


def test_every_property_has_a_fault_that_must_be_found():
    assert [p.name for p in properties().values() if not p.faults] == []


def seeded(fault: Fault) -> str:
    """What an import says in a process of its own that has a fault."""
    code = f"from kvnode.verif.formal.faults import *; seed({fault!r}); import kvnode.rtl.wheel"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr


def test_a_fault_whose_line_is_gone_is_refused():
    fault = Fault("none", "kvnode.rtl.wheel", "a line that is not there", "")
    assert "is 0 times in" in seeded(fault)
    assert seeded(Fault("one", "kvnode.rtl.wheel", "self.turn + 1", "self.turn + 2")) == ""


def test_a_fault_comes_too_late_for_an_imported_module():
    import kvnode.rtl.wheel  # noqa: F401
    from kvnode.verif.formal.faults import seed

    with pytest.raises(ValueError, match="is imported already"):
        seed(Fault("late", "kvnode.rtl.wheel", "turn", "turn"))


def test_what_is_not_there_is_named():
    from kvnode.rtl.wheel import Wheel
    from kvnode.verif.formal.design import Design

    design = Design(Wheel(2))
    with pytest.raises(KeyError, match="no signal 'tern'; it has .*turn"):
        design["tern"]
    with pytest.raises(KeyError, match="no memory"):
        design.rows("turn")
