"""Seeded faults: a line of the RTL replaced while it is imported. A proof that does not fail then proves nothing.

Used by: suite, run.
"""

import importlib.abc
import importlib.machinery
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`old`, which stands once in the source of `module`, becomes `new`; `what` says what is wrong then."""

    what: str
    module: str
    old: str
    new: str


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, fault: Fault):
        super().__init__(name, path)
        self._fault = fault

    def get_code(self, fullname: str):
        source = self.get_data(self.path).decode()
        count = source.count(self._fault.old)
        if count != 1:
            raise ValueError(f"the fault {self._fault.what!r} replaces a text that is {count} times in {self.path}")
        return compile(source.replace(self._fault.old, self._fault.new), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, fault: Fault):
        self._fault = fault

    def find_spec(self, fullname, path, target=None):
        if fullname != self._fault.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise ValueError(f"there is no module {fullname} to put the fault {self._fault.what!r} into")
        spec.loader = _Loader(fullname, spec.origin, self._fault)
        return spec


def seed(fault: Fault) -> None:
    """From now on `fault.module` has the fault. ValueError if it was imported already, or has no such text."""
    if fault.module in sys.modules:
        raise ValueError(f"{fault.module} is imported already, it cannot be given a fault any more")
    sys.meta_path.insert(0, _Finder(fault))
