"""CRC-32C in hardware: a lane that takes a beat per cycle, and a unit that moves a CRC past any number of beats.

Both are the arithmetic of `models.spec.crc`, on standard CRCs: crc(AB) = shift(crc(A), |B|) ^ crc(B) needs no inversion
of a register. Every function that is built here is linear over GF(2), and its gates come from running it on the basis.
"""

from collections.abc import Callable

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.crc import advance, crc32c, multiply, shift
from kvnode.models.spec.timing import CRC_SHIFT_CYCLES

from .ownership import By, Owned

CRC_BITS = 32
#: Squaring so many times is the identity: P is x + 1 times an irreducible polynomial of degree 31.
SQUARINGS = CRC_SHIFT_CYCLES - 1


def linear(m: Module, name: str, function: Callable[[int], int], value) -> Signal:
    """A signal called `name` that is a linear function of a hardware value: one XOR tree for each of its 32 bits.

    The bits are picked, not masked: Verilator runs that four times as fast.
    """
    images = [function(1 << position) for position in range(len(value))]
    result = Signal(CRC_BITS, name=name)
    for bit in range(CRC_BITS):
        m.d.comb += result[bit].eq(
            Cat(value[position] for position, image in enumerate(images) if image >> bit & 1).xor()
        )
    return result


def _check_beat(beat_bytes: int) -> None:
    if beat_bytes < 1:
        raise ValueError(f"beat_bytes = {beat_bytes}: a beat has at least one byte")


class CrcLane(wiring.Component):
    """Running CRC of beats of `beat_bytes` bytes; byte i of a beat is at bit 8i of `data`.

    `valid` says that `data` is the next beat. `start` begins anew with `start_value`, the standard CRC of what comes
    before (0 for nothing); a beat in the same cycle is the first after it, and without one `crc` becomes `start_value`.
    `crc` is the standard CRC of everything since the latest start, that included.

    Latency: CRC_LATENCY_CYCLES, for a beat and for a start; then `crc` stays until the next of either has come as far.
    Throughput: one beat per cycle, also from one message to the next: the CRC of a message whose successor starts right
    behind it is there for one cycle. After reset: as if started with 0.

    Raises ValueError for a beat of no bytes.
    Used by: transfer.
    """

    OWNERSHIP = (Owned("*", By.PORT),)

    def __init__(self, beat_bytes: int):
        _check_beat(beat_bytes)
        self.beat_bytes = beat_bytes
        super().__init__(
            {
                "start": In(1),
                "start_value": In(CRC_BITS),
                "valid": In(1),
                "data": In(8 * beat_bytes),
                "crc": Out(CRC_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size = self.beat_bytes
        # The CRC of a beat is linear in it but for the CRC of a beat of zeros.
        beat_terms = linear(m, "beat_terms", lambda beat: advance(0, beat.to_bytes(size, "little")), self.data)
        beat_crc = Signal(CRC_BITS)
        beat_valid = Signal()
        started = Signal()
        started_value = Signal(CRC_BITS)
        m.d.sync += [
            beat_crc.eq(beat_terms ^ crc32c(bytes(size))),
            beat_valid.eq(self.valid),
            started.eq(self.start),
            started_value.eq(self.start_value),
        ]

        before = Signal(CRC_BITS)
        m.d.comb += before.eq(Mux(started, started_value, self.crc))
        before_shifted = linear(m, "before_shifted", lambda crc: shift(crc, size), before)
        m.d.sync += self.crc.eq(Mux(beat_valid, before_shifted ^ beat_crc, before))
        return m


class CrcShift(wiring.Component):
    """`result` is shift(`crc`, `beats` * beat_bytes): what the CRC of the part before gives to that of a concatenation.

    `start` takes `crc` and `beats`; `done` is high CRC_SHIFT_CYCLES later for one cycle, and `result` is right from
    then until the next start. That number is the same for every `crc`, `beats` and configuration, so that timing tells
    nothing. A start before `done` abandons what was under way, whose `done` never comes. Throughput: one in
    CRC_SHIFT_CYCLES.

    Method: with f = x^(8 * beat_bytes), the binary powering r <- r^2 * f^(bit of `beats`), from the highest bit on,
    which begins with r = crc in place of 1. It leaves crc^(2^n) * f^beats after n steps, and with n = SQUARINGS the
    first factor is `crc` again: no product of two variables is ever needed.

    Raises ValueError for a beat of no bytes, and for `beat_bits`, the width of `beats`, outside of 1 to SQUARINGS.
    Used by: port.
    """

    OWNERSHIP = (Owned("*", By.PORT),)

    def __init__(self, beat_bytes: int, beat_bits: int):
        _check_beat(beat_bytes)
        if not 1 <= beat_bits <= SQUARINGS:
            raise ValueError(f"beat_bits = {beat_bits}: a number of beats has 1 to {SQUARINGS} bits")
        self.beat_bytes, self.beat_bits = beat_bytes, beat_bits
        super().__init__(
            {
                "start": In(1),
                "crc": In(CRC_BITS),
                "beats": In(beat_bits),
                "done": Out(1),
                "result": Out(CRC_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size = self.beat_bytes
        squared = linear(m, "squared", lambda r: multiply(r, r), self.result)
        squared_shifted = linear(m, "squared_shifted", lambda r: shift(multiply(r, r), size), self.result)
        bits = Signal(SQUARINGS)
        steps = Signal(range(SQUARINGS + 1))
        m.d.sync += self.done.eq((steps == 1) & ~self.start)
        with m.If(self.start):
            m.d.sync += [self.result.eq(self.crc), bits.eq(self.beats), steps.eq(SQUARINGS)]
        with m.Elif(steps != 0):
            m.d.sync += [
                self.result.eq(Mux(bits[-1], squared_shifted, squared)),
                bits.eq(bits << 1),
                steps.eq(steps - 1),
            ]
        return m
