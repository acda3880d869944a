"""The RTL's next-state logic is the function of the specification: for all inputs, not for those that a test found.

`models.spec.coherence.outcome_of` is Python. It is run here on symbols, once for every way through it: whenever it asks
whether something holds, it is told one answer, and the question becomes a part of the path's condition. What it returns
at the end of a path is compared with what `rtl.node.coherence` says under that condition; the conditions of all paths
together are all inputs.

Used by: node_claims.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data

from kvnode.models.spec.coherence import View, outcome_of
from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import BLOCKLESS_KINDS, SWEEPER_KINDS, Kind, State
from kvnode.rtl.node.coherence import Coherence

from .proof import ProofOf


class Path:
    """One way through a function: the answers to its questions, `answers` first, then always no."""

    def __init__(self, answers: list[bool]):
        self.answers, self.asked = answers, 0
        self.conditions: list[Value] = []

    def ask(self, condition: Value) -> bool:
        if self.asked == len(self.answers):
            self.answers.append(False)
        answer = self.answers[self.asked]
        self.asked += 1
        self.conditions.append(condition if answer else ~condition)
        return answer


class Symbol:
    """An unsigned number of hardware that a Python function computes with."""

    def __init__(self, path: Path, value: Value):
        self.path, self.value = path, value

    def _with(self, other: Any, operate: Callable[[Value, Value], Value]) -> "Symbol":
        value = other.value if isinstance(other, Symbol) else Const(int(other))
        return Symbol(self.path, operate(self.value, value))

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b)

    def __eq__(self, other):
        return bool(self._with(other, lambda a, b: a == b))

    def __ne__(self, other):
        return bool(self._with(other, lambda a, b: a != b))

    def __lt__(self, other):
        return bool(self._with(other, lambda a, b: a < b))

    def __le__(self, other):
        return bool(self._with(other, lambda a, b: a <= b))

    def __gt__(self, other):
        return bool(self._with(other, lambda a, b: a > b))

    def __ge__(self, other):
        return bool(self._with(other, lambda a, b: a >= b))

    def __bool__(self) -> bool:
        return self.path.ask(self.value.any())

    def __index__(self) -> int:
        """A table is looked up: one path for each value."""
        for value in range((1 << len(self.value)) - 1):
            if self == value:
                return value
        return (1 << len(self.value)) - 1


def paths(function: Callable[[Path], Any]) -> Iterator[tuple[list[Value], Any]]:
    """(conditions, result) of every way through `function`. Its result is None where it raises KeyError."""
    answers: list[bool] = []
    while True:
        path = Path(answers)
        try:
            result = function(path)
        except KeyError:
            result = None
        del answers[path.asked :]
        yield path.conditions, result
        while answers and answers[-1]:
            answers.pop()
        if not answers:
            return
        answers[-1] = True


class Equivalence(ProofOf):
    """All outputs of Coherence equal the outcome of the specification.

    Two things are assumed: a watermark and a length fit in the block together (no sum overflows its field), and an
    operation is one for which the table has an entry; `directory/transitions` shows that no other occurs in the node.
    """

    def __init__(self, config: NodeConfig):
        super().__init__(config)
        self.paths = 0

    def describe(self, m: Module) -> None:
        coherence = Coherence(self.config)
        self.design("coherence", coherence, driven=("kind", "by_handle", "view"))
        kind, by_handle = self.free("kind", len(coherence.kind)), self.free("by_handle")
        layout = data.Layout.cast(coherence.view.shape())
        view = data.View(layout, self.free("view", layout.size))
        m.d.comb += [coherence.kind.eq(kind), coherence.by_handle.eq(by_handle), coherence.view.eq(view)]
        self.assume("landed_fits", view.landed + view.length < 1 << len(view.landed))
        self.assume("accepted_fits", view.accepted + view.length < 1 << len(view.accepted))
        names = ("event", "state", "status", "accepted", "landed", "age")
        outputs = [getattr(coherence, name) for name in names]

        for number in Kind:
            if number in BLOCKLESS_KINDS:
                continue
            right: dict[str, list[Value]] = {name: [] for name in names}
            impossible: list[Value] = []
            covered: list[Value] = []
            for state, handle in itertools.product(State, (False, True)):
                here = (kind == number) & (view.state == state) & (by_handle == handle)
                run = functools.partial(self._run, kind=number, by_handle=handle, state=state, view=view)
                for conditions, outcome in paths(run):
                    taken = Signal(name=f"path_{self.paths}")
                    self.paths += 1
                    m.d.comb += taken.eq(Cat(here, *conditions).all())
                    if outcome is None:
                        impossible.append(taken)
                        continue
                    covered.append(taken)
                    for name, output, wanted in zip(names, outputs, outcome, strict=True):
                        if name == "state" and state == outcome[1] and number not in SWEEPER_KINDS:
                            # Of a block that is not there the RTL says FREE; the directory commits nothing.
                            right[name].append(~(taken & view.present) | (output == outcome[1]))
                            continue
                        value = wanted.value if isinstance(wanted, Symbol) else Const(int(wanted), len(output))
                        right[name].append(~taken | (output == value))
            word = number.name.lower()
            self.assume(f"{word}_is_in_the_table", ~Cat(impossible).any())
            for name in names:
                self.check(f"{word}_{name}", Cat(right[name]).all())
            self.check(f"{word}_all", (kind != number) | Cat(covered).any())
            self.cover(word, Cat(covered).any())

    @staticmethod
    def _run(path: Path, kind: Kind, by_handle: bool, state: State, view: data.View) -> tuple:
        values: dict[str, Any] = {name: Symbol(path, Value.cast(view[name])) for name in View._fields}
        values["state"] = state
        return outcome_of(kind, by_handle, View(**values))
