"""Run engines of a port: whole runs of beats between its queues and the store, on the wheel's time."""

from amaranth.hdl import Array, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.timing import CRC_LATENCY_CYCLES, RUNS

from ..crc import CRC_BITS, CrcLane
from ..layouts import MEMBER_BITS, Shapes, index_bits
from ..ownership import By, Owned


def bank_row(config: NodeConfig, partition, slot, beat):
    """Row, the same in every bank, of a beat of a slot of `partition`, whatever is in the bits that it has not."""
    bits = index_bits(config.slots)
    if isinstance(partition, int):
        base, mask = config.slot_bases[partition], config.partitions[partition].slots - 1
    else:
        base = Array(Const(base, bits) for base in config.slot_bases)[partition]
        mask = Array(Const(p.slots - 1, bits) for p in config.partitions)[partition]
    lap_bits = index_bits(config.ports)
    row = beat[lap_bits : lap_bits + (config.bank_rows_per_block - 1).bit_length()]
    return (base | (slot & mask)) * config.bank_rows_per_block + row


def read_run_layout(shapes: Shapes) -> data.StructLayout:
    """A READ that moves: where it is in its run of `left` more beats, and how many are to go in all."""
    return data.StructLayout(
        {
            "valid": 1,
            "partition": shapes.partition_bits,
            "slot": shapes.slot_bits,
            "beat": shapes.beat_bits,
            "count": shapes.beat_bits,
            "first": shapes.beat_bits,
            "left": shapes.beat_bits,
            "run": shapes.beat_bits,
            "stride": shapes.beat_bits,
        }
    )


class ReadEngine(wiring.Component):
    """Moves accepted reads from the store to the data queue, back to back.

    Ports: `start` accepts a read of `count` beats of `partition`'s `slot` from `beat` on, in runs of `run` beats whose
    first beats are `stride` apart, when the port has kept a place for it; `bank` is the bank owned in this cycle;
    `credit` says that the data queue has room for one more beat; `issue` and `row` go to the store; `done` marks the
    last beat of a read; `holds` are the slots of the accepted reads.

    A run waits for its first bank at most ports - 1 cycles and then issues a beat in every cycle with credit; a cycle
    without credit costs a lap of the banks. The next run or read is loaded in the cycle of the last beat: when the
    stride is that of the run modulo the number of banks, the runs of a read follow each other without a gap.
    """

    OWNERSHIP = (Owned("*", By.PORT),)

    def __init__(self, config: NodeConfig, partition: int):
        self.config, self.partition, self.shapes = config, partition, Shapes(config)
        rows = config.slots * config.bank_rows_per_block
        beat_bits = self.shapes.beat_bits
        super().__init__(
            {
                "start": In(1),
                "from_partition": In(self.shapes.partition_bits),
                "slot": In(self.shapes.slot_bits),
                "beat": In(beat_bits),
                "count": In(beat_bits),
                "run": In(beat_bits),
                "stride": In(beat_bits),
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
        beat_bits = shapes.beat_bits
        run_layout = read_run_layout(shapes)
        runs = [Signal(run_layout, name=f"run_{i}") for i in range(RUNS)]
        head = Signal()
        tail = Signal()
        run = Signal(run_layout)

        def source(run):
            """Only with a public partition can a port read from another than its own."""
            return self.partition if self.config.public_partition is None else run.partition

        m.d.comb += [
            run.eq(Mux(head, runs[1].as_value(), runs[0].as_value())),
            self.issue.eq(run.valid & self.credit & (run.beat[: len(self.bank)] == self.bank)),
            self.row.eq(bank_row(self.config, source(run), run.slot, run.beat)),
            self.done.eq(self.issue & (run.count == 1)),
        ]
        m.d.sync += [head.eq(head ^ self.done), tail.eq(tail ^ self.start)]
        following = Signal(beat_bits)
        m.d.comb += following.eq(run.first + run.stride)
        for i in range(RUNS):
            m.d.comb += [
                self.holds[i].valid.eq(runs[i].valid),
                self.holds[i].partition.eq(source(runs[i])),
                self.holds[i].slot.eq(runs[i].slot),
            ]
            with m.If(self.issue & (head == i)):
                m.d.sync += [
                    runs[i].beat.eq(run.beat + 1),
                    runs[i].left.eq(run.left - 1),
                    runs[i].count.eq(run.count - 1),
                    runs[i].valid.eq(~self.done),
                ]
                with m.If(run.left == 1):
                    m.d.sync += [
                        runs[i].beat.eq(following),
                        runs[i].first.eq(following),
                        runs[i].left.eq(run.run),
                    ]
            with m.If(self.start & (tail == i)):
                m.d.sync += [
                    runs[i].valid.eq(1),
                    runs[i].partition.eq(self.from_partition),
                    runs[i].slot.eq(self.slot),
                    runs[i].beat.eq(self.beat),
                    runs[i].count.eq(self.count),
                    runs[i].first.eq(self.beat),
                    runs[i].left.eq(self.run),
                    runs[i].run.eq(self.run),
                    runs[i].stride.eq(self.stride),
                ]
        return m


def write_run_layout(shapes: Shapes) -> data.StructLayout:
    """A WRITE on its way: how far it has come, and where it goes on."""
    return data.StructLayout(
        {
            "valid": 1,
            "judged": 1,
            "accepted": 1,
            "fresh": 1,
            "begun": 1,
            "landing": 1,
            "summed": 1,
            "broken": 1,
            "member": MEMBER_BITS,
            "beat": shapes.beat_bits,
            "count": shapes.beat_bits,
            "crc": CRC_BITS,
        }
    )


class WriteEngine(wiring.Component):
    """Moves the payload of WRITE messages from the payload queue to the store, or drops it when the WRITE was refused.

    Ports: `start` (with `operation` and `member`) enters a WRITE whose operation is on its way through the directory,
    when `room`; `verdict` with `accepted` is the directory's answer to the oldest without one; `payload` is the queue
    of beats, `last` on the final one of each message; `bank`, `issue`, `row` and `beat_data` as in ReadEngine. `land`
    offers the LAND operation of a message whose last beat is in the store, until `land_taken`; a refused WRITE leaves
    without one. `holds` are the slots of all WRITEs inside, `land.whole` says that the payload had its announced
    length.

    `land_crc` is the CRC of the member's part with this WRITE: it goes on from `part_crc`, which comes with the verdict
    and is that of what has landed, if the verdict is `fresh`. If it is not, the WRITE that has still to land is the one
    in front, and the CRC goes on from its.

    Beats beyond the announced length are dropped; the message still ends at its `last`. Latency from the last beat to
    the offer: CRC_LATENCY_CYCLES more than the beat itself takes.
    """

    OWNERSHIP = (Owned("*", By.PORT),)

    def __init__(self, config: NodeConfig, partition: int):
        self.config, self.partition, self.shapes = config, partition, Shapes(config)
        rows = config.slots * config.bank_rows_per_block
        super().__init__(
            {
                "start": In(1),
                "operation": In(self.shapes.operation),
                "member": In(MEMBER_BITS),
                "room": Out(1),
                "verdict": In(1),
                "accepted": In(1),
                "fresh": In(1),
                "part_crc": In(CRC_BITS),
                "payload": In(stream.Signature(self.shapes.beat)),
                "bank": In(index_bits(config.ports)),
                "issue": Out(1),
                "row": Out(index_bits(rows)),
                "beat_data": Out(self.shapes.data_bits),
                "land_valid": Out(1),
                "land": Out(self.shapes.operation),
                "land_member": Out(MEMBER_BITS),
                "land_crc": Out(CRC_BITS),
                "land_taken": In(1),
                "holds": Out(self.shapes.hold).array(RUNS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        shapes = self.shapes
        runs = [Signal(write_run_layout(shapes), name=f"run_{i}") for i in range(RUNS)]
        operations = [Signal(shapes.operation, name=f"operation_{i}") for i in range(RUNS)]
        # Entered at `tail`, judged at `judge`, moved at `head`, landed at `lander`: each runs behind the one before.
        tail = Signal()
        judge = Signal()
        head = Signal()
        lander = Signal()
        run = Signal(write_run_layout(shapes))
        operation = Signal(shapes.operation)
        landing = Signal(write_run_layout(shapes))
        payload = self.payload
        m.d.comb += [
            run.eq(Array(r.as_value() for r in runs)[head]),
            operation.eq(Array(o.as_value() for o in operations)[head]),
            landing.eq(Array(r.as_value() for r in runs)[lander]),
            self.room.eq(~Array(r.valid for r in runs)[tail]),
            self.land_valid.eq(landing.valid & landing.landing & landing.accepted & landing.summed),
            self.land.eq(Array(o.as_value() for o in operations)[lander]),
            self.land.whole.eq(~landing.broken),
            self.land_member.eq(landing.member),
            self.land_crc.eq(landing.crc),
        ]
        moving = run.valid & run.judged & ~run.landing & payload.valid
        wanted = run.accepted & (run.count != 0)
        in_turn = run.beat[: len(self.bank)] == self.bank
        m.d.comb += [
            self.issue.eq(moving & wanted & in_turn),
            self.row.eq(bank_row(self.config, self.partition, operation.slot, run.beat)),
            self.beat_data.eq(Mux(self.issue, payload.p.data, 0)),
            payload.ready.eq(moving & (~wanted | in_turn)),
        ]
        ended = payload.valid & payload.ready & payload.p.last
        left = self.land_taken | landing.valid & landing.landing & ~landing.accepted
        m.submodules.lane = lane = CrcLane(self.config.beat_bytes)
        m.d.comb += [
            lane.start.eq(self.issue & ~run.begun & run.fresh),
            lane.start_value.eq(run.crc),
            lane.valid.eq(self.issue),
            lane.data.eq(self.beat_data),
        ]
        # A message that has ended, and which, until its CRC is there.
        sums = [(ended, head)]
        for i in range(CRC_LATENCY_CYCLES):
            ending, number = Signal(name=f"ended_{i}"), Signal(name=f"ended_number_{i}")
            m.d.sync += [ending.eq(sums[-1][0]), number.eq(sums[-1][1])]
            sums.append((ending, number))
        m.d.sync += [
            tail.eq(tail ^ self.start),
            judge.eq(judge ^ self.verdict),
            head.eq(head ^ ended),
            lander.eq(lander ^ left),
        ]
        for i in range(RUNS):
            m.d.comb += [
                self.holds[i].valid.eq(runs[i].valid),
                self.holds[i].partition.eq(self.partition),
                self.holds[i].slot.eq(operations[i].slot),
            ]
            with m.If(sums[-1][0] & (sums[-1][1] == i)):
                m.d.sync += [runs[i].summed.eq(1), runs[i].crc.eq(lane.crc)]
            with m.If(self.issue & (head == i)):
                m.d.sync += runs[i].begun.eq(1)
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
                m.d.sync += [
                    runs[i].judged.eq(1),
                    runs[i].accepted.eq(self.accepted),
                    runs[i].fresh.eq(self.fresh),
                    runs[i].crc.eq(self.part_crc),
                ]
            with m.If(self.start & (tail == i)):
                m.d.sync += [
                    runs[i].eq(0),
                    runs[i].valid.eq(1),
                    runs[i].member.eq(self.member),
                    runs[i].beat.eq(self.operation.offset),
                    runs[i].count.eq(self.operation.length),
                    operations[i].eq(self.operation),
                ]
        return m
