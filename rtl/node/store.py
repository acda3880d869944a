"""The store: N banks, two barrel rotators, no arbiter (ARCHITECTURE section 2)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import NodeConfig

from ..layouts import index_bits
from ..memory import Ram
from ..ownership import By, Owned


def rotate(values, count, back=False):
    """Values in a new order, a log shifter of 2:1 stages: `result[b] = values[(b - count) mod N]`, `back` undoes it."""
    for bit in range(len(count)):
        step = -(1 << bit) if back else 1 << bit
        values = [
            Mux(count[bit], values[(position - step) % len(values)], values[position])
            for position in range(len(values))
        ]
    return values


class Store(wiring.Component):
    """Beat i of a block lies in bank `i mod N`; in a cycle port p owns bank `(p + rotation) mod N` for one read and one
    write.

    Contract: the caller issues a read or a write only for the bank it owns in that cycle. Latency: `read_data` is there
    three cycles after `read_valid`, with `data_valid`; a write can be read by a read issued in the next cycle.
    Throughput: one read and one write per port and cycle. `read_row` and `write_row` are rows of the bank.

    `fault` is for tests: "rotator" turns the data's way back one position too far.
    Used by: node.
    """

    OWNERSHIP = (
        Owned("turn", By.PUBLIC),
        Owned("bank_turn", By.PUBLIC),
        Owned("bank_*_[0-9]*", By.LANE),
        Owned("valid_*", By.PORT),
        Owned("data_valid*", By.PORT),
        Owned("read_data*", By.PORT),
        Owned("bank[0-9]*", By.ADDRESS),
    )

    def __init__(self, config: NodeConfig, fault: str | None = None):
        self.config, self.fault = config, fault
        self.rows = config.slots * config.bank_rows_per_block
        ports, row_bits, data_bits = config.ports, index_bits(self.rows), 8 * config.beat_bytes
        super().__init__(
            {
                "rotation": In(index_bits(ports)),
                "read_valid": In(1).array(ports),
                "read_row": In(row_bits).array(ports),
                "data_valid": Out(1).array(ports),
                "read_data": Out(data_bits).array(ports),
                "write_valid": In(1).array(ports),
                "write_row": In(row_bits).array(ports),
                "write_data": In(data_bits).array(ports),
            }
        )

    def elaborate(self, platform):
        m = Module()
        ports = range(self.config.ports)
        turn = Signal.like(self.rotation)
        bank_turn = Signal.like(self.rotation)
        m.d.sync += [turn.eq(self.rotation), bank_turn.eq(turn + (self.fault == "rotator"))]

        def registered(values, name):
            result = []
            for position, value in enumerate(values):
                signal = Signal(len(value), name=f"{name}_{position}")
                m.d.sync += signal.eq(value)
                result.append(signal)
            return result

        # Addresses and data travel to the banks. A read needs no enable there: valid waits beside the port.
        read_rows = registered(rotate(list(self.read_row), self.rotation), "bank_read_row")
        write_rows = registered(rotate(list(self.write_row), self.rotation), "bank_write_row")
        write_datas = registered(rotate(list(self.write_data), self.rotation), "bank_write_data")
        write_valids = registered(rotate(list(self.write_valid), self.rotation), "bank_write_valid")
        data = []
        for bank in ports:
            m.submodules[f"bank{bank}"] = ram = Ram(8 * self.config.beat_bytes, self.rows)
            m.d.comb += [
                ram.read_address.eq(read_rows[bank]),
                ram.write_address.eq(write_rows[bank]),
                ram.write_data.eq(write_datas[bank]),
                ram.write_enable.eq(write_valids[bank]),
            ]
            data.append(ram.read_data)

        # And back to the ports, each behind its own valid.
        valid_at_bank = registered(list(self.read_valid), "valid_at_bank")
        valid_read = registered(valid_at_bank, "valid_read")
        for port, value in enumerate(rotate(data, bank_turn, back=True)):
            m.d.sync += [
                self.data_valid[port].eq(valid_read[port]),
                self.read_data[port].eq(Mux(valid_read[port], value, 0)),
            ]
        return m
