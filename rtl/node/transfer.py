"""Run engines of a port: whole runs of beats between its queues and the store, on the wheel's time."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig

from ..layouts import Shapes, index_bits
from ..ownership import By, Owned

#: Runs of each direction that a port has accepted at a time: one moving, one waiting behind it.
RUNS = 2


def bank_row(config: NodeConfig, slot, beat):
    """Row, the same in every bank, of a beat of a physical slot."""
    return slot * config.bank_rows_per_block + (beat >> index_bits(config.ports))


class ReadEngine(wiring.Component):
    """Moves accepted read runs from the store to the data queue, back to back.

    Ports: `start` (with `slot`, `beat`, `count`) accepts a run, when the port has kept a place for it; `bank` is the
    bank owned in this cycle; `credit` says that the data queue has room for one more beat; `issue` and `row` go to the
    store; `done` marks the last beat of a run; `holds` are the slots of the accepted runs.

    A run waits for its first bank at most ports - 1 cycles and then issues a beat in every cycle with credit; a cycle
    without credit costs a lap of the banks. The next run is loaded in the cycle of the last beat.
    """

    OWNERSHIP = (Owned("*", By.PORT),)

    def __init__(self, config: NodeConfig, slot_base: int):
        self.config, self.slot_base, self.shapes = config, slot_base, Shapes(config)
        rows = config.slots * config.bank_rows_per_block
        beat_bits = self.shapes.beat_bits
        super().__init__(
            {
                "start": In(1),
                "slot": In(self.shapes.slot_bits),
                "beat": In(beat_bits),
                "count": In(beat_bits),
                "bank": In(index_bits(config.ports)),
                "credit": In(1),
                "issue": Out(1),
                "row": Out(index_bits(rows)),
                "done": Out(1),
                "holds": Out(self.shapes.hold).array(RUNS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        shapes = self.shapes
        run_layout = data.StructLayout(
            {"valid": 1, "slot": shapes.slot_bits, "beat": shapes.beat_bits, "count": shapes.beat_bits}
        )
        runs = [Signal(run_layout, name=f"run_{i}") for i in range(RUNS)]
        head = Signal()
        tail = Signal()
        run = Signal(run_layout)
        m.d.comb += [
            run.eq(Mux(head, runs[1].as_value(), runs[0].as_value())),
            self.issue.eq(run.valid & self.credit & (run.beat[: len(self.bank)] == self.bank)),
            self.row.eq(bank_row(self.config, self.slot_base | run.slot, run.beat)),
            self.done.eq(self.issue & (run.count == 1)),
        ]
        m.d.sync += [head.eq(head ^ self.done), tail.eq(tail ^ self.start)]
        for i in range(RUNS):
            m.d.comb += [self.holds[i].valid.eq(runs[i].valid), self.holds[i].slot.eq(runs[i].slot)]
            with m.If(self.issue & (head == i)):
                m.d.sync += [
                    runs[i].beat.eq(run.beat + 1),
                    runs[i].count.eq(run.count - 1),
                    runs[i].valid.eq(~self.done),
                ]
            with m.If(self.start & (tail == i)):
                m.d.sync += [
                    runs[i].valid.eq(1),
                    runs[i].slot.eq(self.slot),
                    runs[i].beat.eq(self.beat),
                    runs[i].count.eq(self.count),
                ]
        return m


class WriteEngine(wiring.Component):
    """Moves the payload of WRITE messages from the payload queue to the store, or drops it when the WRITE was refused.

    Ports: `start` (with `operation`) enters a WRITE whose operation is on its way through the directory, when `room`;
    `verdict` with `accepted` is the directory's answer to the oldest without one; `payload` is the queue of beats,
    `last` on the final one of each message; `bank`, `issue`, `row` and `beat_data` as in ReadEngine. `land` offers the
    LAND operation of a message whose last beat is in the store, until `land_taken`; a refused WRITE leaves without one.
    `holds` are the slots of all WRITEs inside, `land.whole` says that the payload had its announced length.

    Beats beyond the announced length are dropped; the message still ends at its `last`.
    """

    OWNERSHIP = (Owned("*", By.PORT),)

    def __init__(self, config: NodeConfig, slot_base: int):
        self.config, self.slot_base, self.shapes = config, slot_base, Shapes(config)
        rows = config.slots * config.bank_rows_per_block
        super().__init__(
            {
                "start": In(1),
                "operation": In(self.shapes.operation),
                "room": Out(1),
                "verdict": In(1),
                "accepted": In(1),
                "payload": In(stream.Signature(self.shapes.beat)),
                "bank": In(index_bits(config.ports)),
                "issue": Out(1),
                "row": Out(index_bits(rows)),
                "beat_data": Out(self.shapes.data_bits),
                "land_valid": Out(1),
                "land": Out(self.shapes.operation),
                "land_taken": In(1),
                "holds": Out(self.shapes.hold).array(RUNS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        shapes = self.shapes
        run_layout = data.StructLayout(
            {
                "valid": 1,
                "judged": 1,
                "accepted": 1,
                "landing": 1,
                "broken": 1,
                "beat": shapes.beat_bits,
                "count": shapes.beat_bits,
            }
        )
        runs = [Signal(run_layout, name=f"run_{i}") for i in range(RUNS)]
        operations = [Signal(shapes.operation, name=f"operation_{i}") for i in range(RUNS)]
        # Entered at `tail`, judged at `judge`, moved at `head`, landed at `lander`: each runs behind the one before.
        tail = Signal()
        judge = Signal()
        head = Signal()
        lander = Signal()
        run = Signal(run_layout)
        operation = Signal(shapes.operation)
        landing = Signal(run_layout)
        payload = self.payload
        m.d.comb += [
            run.eq(Array(r.as_value() for r in runs)[head]),
            operation.eq(Array(o.as_value() for o in operations)[head]),
            landing.eq(Array(r.as_value() for r in runs)[lander]),
            self.room.eq(~Array(r.valid for r in runs)[tail]),
            self.land_valid.eq(landing.valid & landing.landing & landing.accepted),
            self.land.eq(Array(o.as_value() for o in operations)[lander]),
            self.land.whole.eq(~landing.broken),
        ]
        moving = run.valid & run.judged & ~run.landing & payload.valid
        wanted = run.accepted & (run.count != 0)
        in_turn = run.beat[: len(self.bank)] == self.bank
        m.d.comb += [
            self.issue.eq(moving & wanted & in_turn),
            self.row.eq(bank_row(self.config, self.slot_base | operation.slot, run.beat)),
            self.beat_data.eq(Mux(self.issue, payload.p.data, 0)),
            payload.ready.eq(moving & (~wanted | in_turn)),
        ]
        ended = payload.valid & payload.ready & payload.p.last
        left = self.land_taken | landing.valid & landing.landing & ~landing.accepted
        m.d.sync += [
            tail.eq(tail ^ self.start),
            judge.eq(judge ^ self.verdict),
            head.eq(head ^ ended),
            lander.eq(lander ^ left),
        ]
        for i in range(RUNS):
            m.d.comb += [self.holds[i].valid.eq(runs[i].valid), self.holds[i].slot.eq(operations[i].slot)]
            with m.If(payload.valid & payload.ready & (head == i)):
                with m.If(wanted):
                    m.d.sync += [runs[i].beat.eq(run.beat + 1), runs[i].count.eq(run.count - 1)]
                with m.Else():
                    m.d.sync += runs[i].broken.eq(1)
                with m.If(payload.p.last):
                    m.d.sync += runs[i].landing.eq(1)
                    with m.If(wanted & (run.count != 1)):
                        m.d.sync += runs[i].broken.eq(1)
            with m.If(left & (lander == i)):
                m.d.sync += runs[i].valid.eq(0)
            with m.If(self.verdict & (judge == i)):
                m.d.sync += [runs[i].judged.eq(1), runs[i].accepted.eq(self.accepted)]
            with m.If(self.start & (tail == i)):
                m.d.sync += [
                    runs[i].eq(0),
                    runs[i].valid.eq(1),
                    runs[i].beat.eq(self.operation.offset),
                    runs[i].count.eq(self.operation.length),
                    operations[i].eq(self.operation),
                ]
        return m
