"""Register bank: the hardware of a register description, behind an AXI4-Lite port."""

from collections.abc import Mapping

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..ownership import By, Owned
from .description import ADDRESS_BITS, REGISTER_BITS, REGISTER_BYTES, Description, Field, Register, Role

OKAY = 0
SLVERR = 2

#: The port, as flat members: (name, bits, whether the bank drives it).
BUS = (
    ("awvalid", 1, False),
    ("awready", 1, True),
    ("awaddr", ADDRESS_BITS, False),
    ("awprot", 3, False),
    ("wvalid", 1, False),
    ("wready", 1, True),
    ("wdata", REGISTER_BITS, False),
    ("wstrb", REGISTER_BYTES, False),
    ("bvalid", 1, True),
    ("bready", 1, False),
    ("bresp", 2, True),
    ("arvalid", 1, False),
    ("arready", 1, True),
    ("araddr", ADDRESS_BITS, False),
    ("arprot", 3, False),
    ("rvalid", 1, True),
    ("rready", 1, False),
    ("rdata", REGISTER_BITS, True),
    ("rresp", 2, True),
)


class RegisterBank(wiring.Component):
    """The registers of a description, for one AXI4-Lite master.

    Arguments, all by member name (below) and all checked (ValueError naming the key and the value):
    `counts`: how many elements of an array are there, by the array's name; without an entry all. An element that is
    not there has no members: it reads 0 and ignores writes. `bits`: how many low bits of a field are there; the others
    read 0 and ignore writes. `resets`: the reset value of each storage field to which the description gives none.

    Ports: the bus as AXI names it (`awvalid` ... `rresp`), and for each field but constants a member
    `<register>_<field>`, with the index in the middle for an array: `control_drain`, `event_data_15_value`,
    `partition_0_low_watermark_slots_value`. Storage is an output; a pulse is an output that is 1 for one cycle; an
    input is an input. A register of which a field is announced (swmod) has the output `<register>_written`, which is 1
    for one cycle when a byte of such a field is written.

    Bus: the address and the data of a write may come in any order, also long apart. The two lowest bits of an address
    are ignored. Only the bytes whose strobe is set are written. An address at which the description has no register
    is answered SLVERR, reads 0 and changes nothing. A write to fields that cannot be written is answered OKAY and
    changes nothing, as is one to a field whose lock (swwel) is 1 at the time. `awprot` and `arprot` are ignored. No
    output of the bus depends on an input of the same cycle.

    Latency: the second of address and data taken in cycle t, the outputs have the new value, pulses are 1 and the
    answer is offered in t + 2. The address of a read taken in t, inputs and storage are looked at in t + 1 and the
    answer is offered in t + 2. When the answer before is taken after t, that cycle counts as t. Throughput: a write
    and a read every two cycles. Reads and writes do not wait for each other; a read that looks in the last cycle
    before an output changes gives the old value. So a master that waits for the answer of a write before it reads
    sees an input that follows an output by up to two cycles. A lock that rises the cycle after `written` locks out the
    next write.

    Used by: management.
    """

    OWNERSHIP = (Owned("rdata", By.MANAGEMENT), Owned("*", By.PUBLIC))

    def __init__(
        self,
        description: Description,
        *,
        resets: Mapping[str, int] | None = None,
        counts: Mapping[str, int] | None = None,
        bits: Mapping[str, int] | None = None,
    ):
        self.description = description
        self._counts = {name: array.count for name, array in description.arrays.items()}
        for name, count in (counts or {}).items():
            if name not in self._counts:
                raise ValueError(f"counts: the description has no array {name!r}; it has {', '.join(self._counts)}")
            if not 0 <= count <= self._counts[name]:
                raise ValueError(f"counts: {name} = {count}: must be 0 to {self._counts[name]}")
            self._counts[name] = count
        fields = {r.member_of(f): f for r in description.registers if self._is_there(r) for f in r.fields}
        self._bits = {name: field.bits for name, field in fields.items()}
        for name, count in (bits or {}).items():
            if name not in fields or fields[name].role == Role.CONSTANT:
                raise ValueError(f"bits: there is no field {name!r} whose width could be set")
            if not 1 <= count <= fields[name].bits:
                raise ValueError(f"bits: {name} = {count}: must be 1 to {fields[name].bits}")
            self._bits[name] = count
        open_resets = {name for name, field in fields.items() if field.role == Role.STORAGE and field.reset is None}
        self._resets = {name: field.reset for name, field in fields.items() if field.reset is not None}
        for name, value in (resets or {}).items():
            if name not in open_resets:
                raise ValueError(f"resets: there is no field {name!r} that takes a reset value")
            self._resets[name] = value
        if missing := sorted(open_resets - self._resets.keys()):
            raise ValueError(f"resets: the reset value of {missing[0]!r} is missing")
        for name, value in self._resets.items():
            if not 0 <= value < 1 << self._bits[name]:
                raise ValueError(f"resets: {name} = {value}: does not fit in {self._bits[name]} bits")
        members = {name: (Out if driven else In)(width) for name, width, driven in BUS}
        members |= self._signals(fields) | {name: Out(1) for name in self._written_names()}
        super().__init__(members)

    def _is_there(self, register: Register) -> bool:
        return register.array is None or register.index < self._counts[register.array]

    def _signals(self, fields: Mapping[str, Field]) -> dict[str, wiring.Member]:
        made = {}
        for name, field in fields.items():
            if field.role == Role.INPUT:
                made[name] = In(self._bits[name])
            elif field.role != Role.CONSTANT:
                made[name] = Out(self._bits[name], init=self._resets[name])
        return made

    def _written_names(self) -> list[str]:
        return [f"{r.member}_written" for r in self.description.registers if r.announced and self._is_there(r)]

    def elaborate(self, platform):
        m = Module()
        self._elaborate_writes(m)
        self._elaborate_reads(m)
        return m

    def _elaborate_writes(self, m):
        address_held, data_held = Signal(), Signal()
        word, data, strobe = Signal(ADDRESS_BITS - 2), Signal(REGISTER_BITS), Signal(REGISTER_BYTES)
        m.d.comb += [self.awready.eq(~address_held), self.wready.eq(~data_held)]
        with m.If(self.awvalid & self.awready):
            m.d.sync += [address_held.eq(1), word.eq(self.awaddr[2:])]
        with m.If(self.wvalid & self.wready):
            m.d.sync += [data_held.eq(1), data.eq(self.wdata), strobe.eq(self.wstrb)]
        with m.If(self.bready):
            m.d.sync += self.bvalid.eq(0)
        for register, field in self._fields(Role.PULSE):
            m.d.sync += self._member(register, field).eq(0)
        m.d.sync += [getattr(self, name).eq(0) for name in self._written_names()]
        with m.If(address_held & data_held & ~self.bvalid):
            m.d.sync += [address_held.eq(0), data_held.eq(0), self.bvalid.eq(1), self.bresp.eq(OKAY)]
            with m.Switch(word):
                for register in self.description.registers:
                    if self._is_there(register) and register.writable:
                        with m.Case(register.address // REGISTER_BYTES):
                            self._write(m, register, data, strobe)
                still = [r for r in self.description.registers if not (self._is_there(r) and r.writable)]
                if still:
                    with m.Case(*(register.address // REGISTER_BYTES for register in still)):
                        pass
                with m.Default():
                    m.d.sync += self.bresp.eq(SLVERR)

    def _write(self, m, register, data, strobe):
        for field in register.fields:
            if field.role not in (Role.STORAGE, Role.PULSE):
                continue
            signal = self._member(register, field)
            lock = Const(0) if field.locked_by is None else getattr(self, f"{register.member}_{field.locked_by}")
            for byte in range(REGISTER_BYTES):
                low, high = max(8 * byte, field.lsb), min(8 * byte + 8, field.lsb + len(signal))
                if low < high:
                    with m.If(strobe[byte] & ~lock):
                        m.d.sync += signal[low - field.lsb : high - field.lsb].eq(data[low:high])
                if field.announced and low < min(8 * byte + 8, field.lsb + field.bits):
                    with m.If(strobe[byte] & ~lock):
                        m.d.sync += getattr(self, f"{register.member}_written").eq(1)

    def _elaborate_reads(self, m):
        address_held, word = Signal(), Signal(ADDRESS_BITS - 2)
        m.d.comb += self.arready.eq(~address_held)
        with m.If(self.arvalid & self.arready):
            m.d.sync += [address_held.eq(1), word.eq(self.araddr[2:])]
        with m.If(self.rready):
            m.d.sync += self.rvalid.eq(0)
        with m.If(address_held & ~self.rvalid):
            m.d.sync += [address_held.eq(0), self.rvalid.eq(1), self.rresp.eq(OKAY), self.rdata.eq(0)]
            with m.Switch(word):
                empty = []
                for register in self.description.registers:
                    value = self._value(register)
                    if value is None:
                        empty.append(register.address // REGISTER_BYTES)
                    else:
                        with m.Case(register.address // REGISTER_BYTES):
                            m.d.sync += self.rdata.eq(value)
                if empty:
                    with m.Case(*empty):
                        pass
                with m.Default():
                    m.d.sync += self.rresp.eq(SLVERR)

    def _value(self, register):
        """What a read of the register gives; None for a register in which there is nothing to read."""
        parts, position = [], 0
        if self._is_there(register):
            for field in sorted(register.fields, key=lambda field: field.lsb):
                if field.role != Role.PULSE:
                    constant = field.role == Role.CONSTANT
                    value = Const(field.reset, field.bits) if constant else self._member(register, field)
                    parts += [Const(0, field.lsb - position), value]
                    position = field.lsb + len(value)
        return Cat(parts) if parts else None

    def _member(self, register, field):
        return getattr(self, register.member_of(field))

    def _fields(self, role):
        return [(r, f) for r in self.description.registers if self._is_there(r) for f in r.fields if f.role == role]
