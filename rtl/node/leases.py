"""Lease table: who keeps which block from being evicted, and until when."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Kind

from ..layouts import KIND_BITS, NUMBER_BITS, TICK_BITS, Shapes
from ..memory import ForwardedRam, Ram
from ..ownership import By, Owned
from .sessions import passed


def lease_layout(config: NodeConfig) -> data.StructLayout:
    """golden.leases.Lease in hardware; `since`: the tick at which it was granted."""
    shapes = Shapes(config)
    return data.StructLayout(
        {
            "generation": config.lease_generation_bits,
            "slot": shapes.slot_bits,
            "port": shapes.port_bits,
            "session": shapes.session_bits,
            "timed": 1,
            "until": TICK_BITS,
            "since": TICK_BITS,
        }
    )


class Leases(wiring.Component):
    """Rows of all partitions, `config.leases` each: read at stage 7, granted and ended at stage 8.

    Contract, for one operation per cycle. Stage 7: RELEASE reads the row of `s7_number`, EXPIRE_LEASE the row
    `s7_row`. Stage 8: `any_free` says that the partition has a lease left for the port `owner`, that it is not being
    taken back from; `grant` grants it (`slot`, `session`, `timed`, `until`), and `granted` is its number. `held` says
    that the lease `number` is held on `slot`; `over` that the one in the row of EXPIRE_LEASE is held on `slot` and to
    end, with `session_dead` saying that the session which the operation names is closed. `end` ends that lease.
    `look_slot` and `look_session` are those that the row `look_row` of `look_partition`, both of the cycle before, was
    last granted for. `take_back` begins to end the leases, and to revoke the fills, of the ports `take_back_ports`
    (only the leases with `leases_only`): all that the sweeper then looks at in two laps. `revoking`: ports of which
    fills are being revoked.

    Used by: directory.
    """

    OWNERSHIP = (
        Owned("taken_*", By.NUMBER),
        Owned("granted_*", By.NUMBER),
        Owned("oldest_*", By.NUMBER),
        Owned("lap_*", By.NUMBER),
        Owned("releasing_*", By.PORT),
        Owned("revoking_*", By.PORT),
        Owned("s8_*", By.TAG, "s8_head"),
        Owned("rows.forward", By.TAG, "s8_head"),
        Owned("rows.forwarded", By.TAG, "s8_head", when="rows.forward"),
        Owned("rows.ram", By.ADDRESS),
        Owned("looks", By.ADDRESS),
    )

    def __init__(self, config: NodeConfig):
        self.config, self.shapes = config, Shapes(config)
        self.row = lease_layout(config)
        shapes = self.shapes
        count = len(config.partitions)
        super().__init__(
            {
                "s7_partition": In(shapes.partition_bits),
                "s7_kind": In(KIND_BITS),
                "s7_number": In(NUMBER_BITS),
                "s7_row": In(shapes.look_bits),
                "valid": In(1),
                "partition": In(shapes.partition_bits),
                "kind": In(KIND_BITS),
                "owner": In(shapes.owner_bits),
                "slot": In(shapes.slot_bits),
                "number": In(NUMBER_BITS),
                "session": In(shapes.session_bits),
                "session_dead": In(1),
                "timed": In(1),
                "until": In(TICK_BITS),
                "now": In(TICK_BITS),
                "any_free": Out(1),
                "grant": In(1),
                "granted": Out(NUMBER_BITS),
                "held": Out(1),
                "over": Out(1),
                "end": In(1),
                "take_back": In(1),
                "take_back_ports": In(config.ports),
                "leases_only": In(1),
                "revoking": Out(config.ports),
                "look_partition": In(shapes.partition_bits),
                "look_row": In(shapes.lease_row_bits),
                "look_slot": Out(shapes.slot_bits),
                "look_session": Out(shapes.session_bits),
                "counts": Out(range(config.leases + 1)).array(count),
                "oldest": Out(TICK_BITS).array(count),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, shapes = self.config, self.shapes
        count, row_bits = len(config.partitions), shapes.lease_row_bits
        m.submodules.rows = rows = ForwardedRam(self.row, count << row_bits)
        m.submodules.looks = looks = Ram(shapes.slot_bits + shapes.session_bits, count << row_bits)
        taken = [Signal(config.leases, name=f"taken_{i}") for i in range(count)]
        grants = [Signal(config.lease_generation_bits, name=f"granted_{i}") for i in range(count)]
        releasing = [Signal(range(2 * config.leases + 1), name=f"releasing_{p}") for p in range(config.ports)]
        revoking = [Signal(range(2 * config.fill_rows + 1), name=f"revoking_{p}") for p in range(config.ports)]

        row7 = Signal(row_bits)
        expires7 = self.s7_kind == Kind.EXPIRE_LEASE
        m.d.comb += [
            row7.eq(Mux(expires7, self.s7_row, self.s7_number[: config.lease_bits])),
            rows.read_address.eq(Cat(row7, self.s7_partition)),
        ]
        row8 = Signal(row_bits, name="s8_row")
        m.d.sync += row8.eq(row7)

        here = Signal(config.leases)
        free_row = Signal(row_bits)
        generation = Signal(config.lease_generation_bits)
        m.d.comb += [here.eq(Array(taken)[self.partition]), generation.eq(Array(grants)[self.partition])]
        for row in reversed(range(config.leases)):
            with m.If(~here[row]):
                m.d.comb += free_row.eq(row)
        lease = rows.read
        is_taken = here.bit_select(row8, 1)
        same_slot = lease.slot == self.slot
        number_bits = config.lease_generation_bits + config.lease_bits
        released_by = Signal()
        m.d.comb += [
            self.any_free.eq(~here.all() & (Array([*releasing, Const(0, 1)])[self.owner] == 0)),
            self.granted.eq(
                Cat(free_row[: config.lease_bits], generation, Const(0, NUMBER_BITS - 1 - number_bits), Const(1, 1))
            ),
            self.held.eq(
                is_taken & same_slot & self.number[-1] & (lease.generation == self.number[config.lease_bits : -1])
            ),
            released_by.eq(
                Array(
                    (releasing[port] != 0) & (self.partition == owner)
                    for port, owner in enumerate(config.partition_of_port)
                )[lease.port]
            ),
            self.over.eq(
                is_taken & same_slot
                & ((lease.timed & passed(self.now, lease.until)) | released_by
                   | (self.session_dead & (self.session == lease.session)))
            ),
            rows.commit.eq(self.grant),
            rows.commit_address.eq(Cat(free_row, self.partition)),
            rows.value.generation.eq(generation),
            rows.value.slot.eq(self.slot),
            rows.value.port.eq(self.owner),
            rows.value.session.eq(self.session),
            rows.value.timed.eq(self.timed),
            rows.value.until.eq(self.until),
            rows.value.since.eq(self.now),
            looks.write_enable.eq(self.grant),
            looks.write_address.eq(rows.commit_address),
            looks.write_data.eq(Cat(self.slot, self.session)),
            looks.read_address.eq(Cat(self.look_row, self.look_partition)),
            Cat(self.look_slot, self.look_session).eq(looks.read_data),
        ]  # fmt: skip
        expires = self.valid & (self.kind == Kind.EXPIRE_LEASE)
        expires_fill = self.valid & (self.kind == Kind.EXPIRE_FILL)
        age = Signal(TICK_BITS)
        m.d.comb += age.eq(Mux(is_taken, self.now - lease.since, 0))
        for i in range(count):
            mine = self.partition == i
            oldest, lap = Signal(TICK_BITS, name=f"oldest_{i}"), Signal(TICK_BITS, name=f"lap_{i}")
            m.d.comb += [
                self.counts[i].eq(sum(taken[i][row] for row in range(config.leases))),
                self.oldest[i].eq(oldest),
            ]
            with m.If(self.grant & mine):
                m.d.sync += [taken[i].bit_select(free_row, 1).eq(1), grants[i].eq(generation + 1)]
            with m.If(self.end & mine):
                m.d.sync += taken[i].bit_select(row8, 1).eq(0)
            with m.If(expires & mine):
                oldest_yet = Mux((row8 != 0) & (lap > age), lap, age)
                m.d.sync += lap.eq(oldest_yet)
                with m.If(row8 == config.leases - 1):
                    m.d.sync += oldest.eq(oldest_yet)
        for port, owner in enumerate(config.partition_of_port):
            mine = self.partition == owner
            m.d.comb += self.revoking[port].eq(revoking[port] != 0)
            with m.If(expires & mine & (releasing[port] != 0)):
                m.d.sync += releasing[port].eq(releasing[port] - 1)
            with m.If(expires_fill & mine & (revoking[port] != 0)):
                m.d.sync += revoking[port].eq(revoking[port] - 1)
            with m.If(self.take_back & mine & self.take_back_ports[port]):
                m.d.sync += releasing[port].eq(2 * config.leases)
                with m.If(~self.leases_only):
                    m.d.sync += revoking[port].eq(2 * config.fill_rows)
        return m
