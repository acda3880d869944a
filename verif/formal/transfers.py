"""What moves beats keeps to its holds: no beat is read from or written to a slot that the engine does not hold.

The sweeper gives no slot back that is held (slots/one-place): together they say that a beat is one of the block that
was accepted.

Used by: block_claims.
"""

from collections.abc import Sequence

from amaranth.hdl import Array, Module, Signal, Value
from amaranth.lib import data

from kvnode.models.spec.timing import RUNS
from kvnode.rtl.node.transfer import ReadEngine, WriteEngine, bank_row, read_run_layout, write_run_layout

from .proof import ProofOf


class _Held(ProofOf):
    """Any transfer is held from the cycle after it was entered until the engine has done with it.

    The contract of the port (streams/port): a transfer is entered when there is a place for it, a LAND is taken when it
    is offered; a READ has beats.
    """

    def of(
        self, m: Module, engine: ReadEngine | WriteEngine, slot: Value, runs: Sequence[data.View], head: Value,
        tail: Value, ends: Sequence[Value],
    ) -> list[Signal]:  # fmt: skip
        """Checks of an engine that moves its run `head`, and puts what is entered, of `slot`, into its run `tail`;
        `ends`: which runs leave. Returns which run is the one that is watched."""
        holds = engine.holds
        of_head = data.View(holds[0].shape(), Array(hold.as_value() for hold in holds)[head])
        beat = Array(run.beat for run in runs)[head]
        row = bank_row(self.config, engine.partition, of_head.slot, beat)
        self.check("beat_is_of_a_held_slot", ~engine.issue | (of_head.valid & (engine.row == row)))
        watched = [Signal(name=f"watched_{i}") for i in range(RUNS)]
        its_slot, chosen = Signal(len(slot)), self.free("watch")
        for i, hold in enumerate(holds):
            entered = engine.start & (tail == i)
            self.assume(f"place_{i}", ~entered | ~hold.valid)
            with m.If(entered & chosen & ~watched[1 - i]):
                m.d.sync += [watched[i].eq(1), its_slot.eq(slot)]
            with m.Elif(ends[i]):
                m.d.sync += watched[i].eq(0)
            self.check(f"held_{i}", ~watched[i] | (hold.valid & (hold.slot == its_slot)))
            self.check(f"partition_{i}", hold.partition == engine.partition)
        self.help("one_is_watched", ~(watched[0] & watched[1]))
        self.cover("beat", engine.issue & Array(watched)[head])
        return watched


class Reads(_Held):
    """READs; as many beats are read as were accepted."""

    def describe(self, m: Module) -> None:
        engine = ReadEngine(self.config, 0)
        design = self.design("reader", engine)
        head, tail = design["head"], design["tail"]
        runs = [data.View(read_run_layout(engine.shapes), design[f"run_{i}"]) for i in range(RUNS)]
        self.assume("has_beats", ~engine.start | (engine.count != 0))
        watched = self.of(m, engine, engine.slot, runs, head, tail, [engine.done & (head == i) for i in range(RUNS)])
        left = [Signal(len(engine.count), name=f"left_{i}") for i in range(RUNS)]
        for i, run in enumerate(runs):
            with m.If(engine.start & (tail == i)):
                m.d.sync += left[i].eq(engine.count)
            with m.Elif(engine.issue & (head == i)):
                m.d.sync += left[i].eq(left[i] - 1)
            self.check(f"beats_{i}", ~watched[i] | (run.count == left[i]))
            self.help(f"has_beats_{i}", ~run.valid | (run.count != 0))


class Writes(_Held):
    """WRITEs, until their LAND is taken, or until they have been dropped; nothing is written before it was accepted."""

    CUT = ("lane",)

    def describe(self, m: Module) -> None:
        engine = WriteEngine(self.config, 0)
        design = self.design("writer", engine, self.CUT)
        head, tail, lander = design["head"], design["tail"], design["lander"]
        runs = [data.View(write_run_layout(engine.shapes), design[f"run_{i}"]) for i in range(RUNS)]
        self.assume("land", ~engine.land_taken | engine.land_valid)
        landing = data.View(write_run_layout(engine.shapes), design["landing"])
        leaves = engine.land_taken | (landing.valid & landing.landing & ~landing.accepted)
        ends = [leaves & (lander == i) for i in range(RUNS)]
        self.of(m, engine, engine.operation.slot, runs, head, tail, ends)
        moving = data.View(write_run_layout(engine.shapes), design["run"])
        self.check("written_when_accepted", ~engine.issue | (moving.judged & moving.accepted))
