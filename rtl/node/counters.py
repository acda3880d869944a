"""What a node counts: operations by partition, kind and status, and latencies (ARCHITECTURE section 14).

Everything is zero from reset on, without a walk: a row of counts has a bit that says whether it was ever written.
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.counters import BUCKET_COUNT_BITS, BUCKETS, COUNTER_BITS, MAX_OUTSTANDING

from ..layouts import KIND_BITS, STATUS_BITS, TRACE_STRUCT, index_bits
from ..memory import Ram
from ..ownership import By, Owned

#: Counts in a row of the counters: the low bits of the status.
LANE_BITS = 3


class Tally(wiring.Component):
    """Counts of `width` bits, modulo 2^width, in memory: `rows` rows of `1 << lane_bits`, zero from reset on.

    Contract: `count` adds one to that at `address` (lane, then row above it). `value` is the count at `select` of two
    cycles before, 0 if `select_valid` was not set then; it has every `count` up to two cycles before the selection,
    and perhaps that of one more. Throughput: one count per cycle, to any address.

    The counts are kept twice, so that reading never waits for counting. The first count in a row writes the whole row.

    Used by: Counters, LatencyHistogram.
    """

    OWNERSHIP = (Owned("*", By.MANAGEMENT),)

    def __init__(self, width: int, rows: int, lane_bits: int = 0):
        self.width, self.rows, self.lane_bits = width, rows, lane_bits
        address_bits = lane_bits + index_bits(rows)
        super().__init__(
            {
                "count": In(1),
                "address": In(address_bits),
                "select_valid": In(1),
                "select": In(address_bits),
                "value": Out(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = 1 << self.lane_bits
        counted = [Ram(self.width, self.rows) for _ in range(lanes)]
        shown = [Ram(self.width, self.rows) for _ in range(lanes)]
        for lane in range(lanes):
            m.submodules[f"counted_{lane}"] = counted[lane]
            m.submodules[f"shown_{lane}"] = shown[lane]
        used = Signal(self.rows)
        row = self.address[self.lane_bits :]
        select_row = self.select[self.lane_bits :]

        def is_in(address, lane):
            return address[: self.lane_bits] == lane if self.lane_bits else Const(1)

        def in_lane(address, memories):
            return reduce(or_, (Mux(is_in(address, lane), ram.read_data, 0) for lane, ram in enumerate(memories)))

        # The count to be written in this cycle, of the address that was counted in the one before.
        writes, fresh, repeated, blank = Signal(), Signal(), Signal(), Signal()
        address = Signal.like(self.address)
        before, count = Signal(self.width), Signal(self.width)
        written_row = address[self.lane_bits :]
        read = in_lane(address, counted)
        m.d.comb += count.eq(Mux(repeated, before, Mux(blank, 0, read)) + 1)
        unused = ~used.bit_select(row, 1)
        m.d.sync += [
            writes.eq(self.count),
            address.eq(self.address),
            fresh.eq(self.count & unused),
            # What is read while it is being written is not relied on.
            repeated.eq(writes & (address == self.address)),
            blank.eq(unused | fresh & (written_row == row)),
            before.eq(count),
            used.eq(used | self.count << row),
        ]
        for lane in range(lanes):
            mine = is_in(address, lane)
            for ram in (counted[lane], shown[lane]):
                m.d.comb += [
                    ram.write_enable.eq(writes & (mine | fresh)),
                    ram.write_address.eq(written_row),
                    ram.write_data.eq(Mux(mine, count, 0)),
                ]
            m.d.comb += [counted[lane].read_address.eq(row), shown[lane].read_address.eq(select_row)]

        selected = Signal.like(self.select)
        any_there = Signal()
        m.d.sync += [
            selected.eq(self.select),
            any_there.eq(self.select_valid & used.bit_select(select_row, 1) & ~(fresh & (written_row == select_row))),
            self.value.eq(Mux(any_there, in_lane(selected, shown), 0)),
        ]
        return m


class Counters(wiring.Component):
    """Trace records by (partition, kind, status), 64 bits each.

    Contract: `trace_valid` says that `trace` is the record of an operation committed. `value` is the counter at
    `select_partition`, `select_kind`, `select_status` of two cycles before, with every record up to two cycles before
    the selection; 0 where there is no such counter. Zero from reset on. Throughput: one record per cycle.

    Used by: node, beside the register bank.
    """

    OWNERSHIP = (Owned("*", By.MANAGEMENT),)

    def __init__(self, config: NodeConfig):
        self.config = config
        super().__init__(
            {
                "trace_valid": In(1),
                "trace": In(TRACE_STRUCT),
                "select_partition": In(8),
                "select_kind": In(8),
                "select_status": In(8),
                "value": Out(COUNTER_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        partitions = len(self.config.partitions)
        rows = partitions << KIND_BITS + STATUS_BITS - LANE_BITS
        m.submodules.tally = tally = Tally(COUNTER_BITS, rows, LANE_BITS)
        partition_bits = len(tally.address) - KIND_BITS - STATUS_BITS

        def place(partition, kind, status):
            return Cat(status[:STATUS_BITS], kind[:KIND_BITS], partition[:partition_bits])

        m.d.comb += [
            tally.count.eq(self.trace_valid),
            tally.address.eq(place(self.trace.partition, self.trace.kind, self.trace.status)),
            tally.select.eq(place(self.select_partition, self.select_kind, self.select_status)),
            tally.select_valid.eq(
                (self.select_partition < partitions)
                & (self.select_kind[KIND_BITS:] == 0)
                & (self.select_status[STATUS_BITS:] == 0)
            ),
            self.value.eq(tally.value),
        ]
        return m


class LatencyHistogram(wiring.Component):
    """Messages of every port by floor(log2(cycles)), 32-bit counts modulo 2^32.

    Contract: bit p of `arrives` says that the last header beat of a message was accepted at port p, bit p of `answers`
    that the last beat of an answer's header was sent there, which belongs to the oldest message of the port without
    one; bit p of `down` that the messages of the port without an answer are lost. There are at most MAX_OUTSTANDING of
    those, and never an answer without one. An answer in the cycle of the arrival counts as one cycle; latencies are
    less than 2^32 cycles. `value` is the count of `select_bucket` of `select_port` of two cycles before, with every
    answer up to five cycles before the selection; 0 where there is no such port or bucket. Zero from reset on.
    Throughput: one message and one answer per port and cycle.

    Used by: node, beside the register bank.
    """

    OWNERSHIP = (Owned("*", By.MANAGEMENT),)

    def __init__(self, config: NodeConfig):
        self.config = config
        ports = config.ports
        super().__init__(
            {
                "arrives": In(ports),
                "answers": In(ports),
                "down": In(ports),
                "select_port": In(8),
                "select_bucket": In(8),
                "value": Out(BUCKET_COUNT_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        now = Signal(BUCKETS)
        # An arrival must not be overwritten while it is read, a cycle after its place could be had.
        places = 2 * MAX_OUTSTANDING
        m.d.sync += now.eq(now + 1)
        values = []
        for port in range(self.config.ports):
            m.submodules[f"arrivals_{port}"] = arrivals = Ram(BUCKETS, places)
            m.submodules[f"tally_{port}"] = tally = Tally(BUCKET_COUNT_BITS, BUCKETS)
            tail = Signal(index_bits(places), name=f"tail_{port}")
            head = Signal(index_bits(places), name=f"head_{port}")
            asked, read, counted = (Signal(name=f"{name}_{port}") for name in ("asked", "read", "counted"))
            cycles = Signal(BUCKETS, name=f"cycles_{port}")
            bucket = Signal(index_bits(BUCKETS), name=f"bucket_{port}")
            m.d.comb += [
                arrivals.write_enable.eq(self.arrives[port]),
                arrivals.write_address.eq(tail),
                # The arrival is read a cycle after the answer, and subtracted two cycles after it.
                arrivals.write_data.eq(now + 2),
                arrivals.read_address.eq(head),
                cycles.eq(now - arrivals.read_data),
                tally.count.eq(counted),
                tally.address.eq(bucket),
                tally.select.eq(self.select_bucket[: len(bucket)]),
                tally.select_valid.eq((self.select_port == port) & (self.select_bucket < BUCKETS)),
            ]
            m.d.sync += [
                tail.eq(tail + self.arrives[port]),
                asked.eq(self.answers[port]),
                head.eq(head + asked),
                read.eq(asked),
                counted.eq(read),
                bucket.eq(floor_log2(cycles)),
            ]
            with m.If(self.down[port]):
                m.d.sync += [tail.eq(0), head.eq(0), asked.eq(0)]
            values.append(tally.value)
        m.d.comb += self.value.eq(reduce(or_, values))
        return m


def floor_log2(value):
    """Number of the highest bit that is set in a value of 2^n bits, n > 0; 0 if none is."""
    if len(value) == 2:
        return value[1]
    low, high = value[: len(value) // 2], value[len(value) // 2 :]
    return Cat(Mux(high.any(), floor_log2(high), floor_log2(low)), high.any())
