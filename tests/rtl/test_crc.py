"""The lane and the shift unit in Amaranth's simulator, against `spec.crc` cycle by cycle; and what they refuse."""

import random

import pytest
from amaranth.sim import Simulator

from kvnode.models.spec.crc import crc32c, shift
from kvnode.models.spec.timing import CRC_LATENCY_CYCLES, CRC_SHIFT_CYCLES
from kvnode.rtl.crc import CrcLane, CrcShift

CYCLES = 120
PERIOD_S = 1e-6


def simulate(component, process):
    simulator = Simulator(component)
    simulator.add_clock(PERIOD_S)
    simulator.add_testbench(process)
    simulator.run()


def stimuli(rng, beat_bytes, started, beats):
    """(start value or None, data or None) of each cycle, with the chances of a start and of a beat."""
    for _ in range(CYCLES):
        value = rng.choice((0, rng.getrandbits(32))) if rng.random() < started else None
        yield value, rng.randbytes(beat_bytes) if rng.random() < beats else None


def expected(cycles):
    """The CRC after each cycle, by the software."""
    crc = 0
    for value, data in cycles:
        crc = crc if value is None else value
        crc = crc if data is None else crc32c(data, crc)
        yield crc


def outputs(lane, cycles, rng):
    """`crc` in every cycle, read as a register clocked by the same edge reads it."""
    found = []

    async def process(ctx):
        for value, data in cycles:
            ctx.set(lane.start, value is not None)
            ctx.set(lane.start_value, rng.getrandbits(32) if value is None else value)
            ctx.set(lane.valid, data is not None)
            ctx.set(lane.data, int.from_bytes(rng.randbytes(lane.beat_bytes) if data is None else data, "little"))
            *_, crc = await ctx.tick().sample(lane.crc)
            found.append(crc)

    simulate(lane, process)
    return found


@pytest.mark.parametrize("beat_bytes", [1, 16, 32, 64])
@pytest.mark.parametrize(
    ("started", "beats"), [(0.0, 1.0), (0.1, 1.0), (0.5, 1.0), (0.1, 0.5), (0.3, 0.2)],
    ids=["one message", "back to back", "short messages", "bubbles", "starts without a beat"],
)  # fmt: skip
def test_crc_of_everything_since_the_start_is_there_after_the_latency(beat_bytes, started, beats):
    rng = random.Random(f"{beat_bytes} {started} {beats}")
    cycles = list(stimuli(rng, beat_bytes, started, beats))
    found = outputs(CrcLane(beat_bytes), cycles, rng)
    # What is sampled at the end of cycle n is the state of cycle n.
    assert found[CRC_LATENCY_CYCLES:] == list(expected(cycles))[:-CRC_LATENCY_CYCLES]


def test_beat_before_a_start_belongs_to_the_message_before():
    cycles = [(0, b"1234"), (None, b"5678"), (0, b"abcd"), (0, None), (None, None)]
    found = outputs(CrcLane(4), cycles + [(None, None)], random.Random(1))
    assert found[2:] == [crc32c(b"1234"), crc32c(b"12345678"), crc32c(b"abcd"), 0]


def test_lane_counts_from_reset_as_if_started_with_nothing():
    found = outputs(CrcLane(3), [(None, b"123"), (None, b"456"), (None, b"789"), (None, None)] * 2, random.Random(1))
    assert found[0] == found[1] == 0
    assert found[4] == 0xE3069283


def test_continuation_of_a_stored_crc_is_the_crc_of_the_whole():
    cycles = [(crc32c(b"12345"), b"6789"), (None, None), (None, None)]
    assert outputs(CrcLane(4), cycles, random.Random(1))[-1] == 0xE3069283


def test_latencies_are_those_that_the_users_count_on():
    assert (CRC_LATENCY_CYCLES, CRC_SHIFT_CYCLES) == (2, 32)


@pytest.mark.parametrize(("beat_bytes", "beat_bits"), [(1, 1), (16, 11), (32, 7), (64, 12), (64, 31)])
def test_shift_is_right_after_the_same_time_for_every_operand(beat_bytes, beat_bits):
    unit = CrcShift(beat_bytes, beat_bits)
    rng = random.Random(f"{beat_bytes} {beat_bits}")
    most = (1 << beat_bits) - 1
    operands = [(crc, beats) for crc in (0, 1, 0xFFFFFFFF, rng.getrandbits(32)) for beats in (0, 1, most)]
    operands += [(rng.getrandbits(32), rng.randint(0, most)) for _ in range(10)]

    async def process(ctx):
        for crc, beats in operands:
            ctx.set(unit.start, 1)
            ctx.set(unit.crc, crc)
            ctx.set(unit.beats, beats)
            await ctx.tick()
            ctx.set(unit.start, 0)
            ctx.set(unit.crc, rng.getrandbits(32))
            ctx.set(unit.beats, rng.randint(0, most))
            for _ in range(CRC_SHIFT_CYCLES - 1):
                *_, done = await ctx.tick().sample(unit.done)
                assert not done
            pauses = rng.randrange(3)
            for pause in range(1 + pauses):
                *_, done, result = await ctx.tick().sample(unit.done, unit.result)
                assert (done, result) == (pause == 0, shift(crc, beats * beat_bytes))

    simulate(unit, process)


@pytest.mark.parametrize("early", [1, CRC_SHIFT_CYCLES - 1])
def test_start_before_done_abandons_what_was_under_way(early):
    unit = CrcShift(16, 5)

    async def process(ctx):
        ctx.set(unit.start, 1)
        ctx.set(unit.crc, 0x12345678)
        ctx.set(unit.beats, 9)
        await ctx.tick()
        ctx.set(unit.start, 0)
        for _ in range(early - 1):
            await ctx.tick()
        ctx.set(unit.start, 1)
        ctx.set(unit.crc, 0xCAFE)
        ctx.set(unit.beats, 21)
        dones = []
        for _ in range(CRC_SHIFT_CYCLES + 1):
            *_, done, result = await ctx.tick().sample(unit.done, unit.result)
            dones.append(done)
            ctx.set(unit.start, 0)
        assert dones == [0] * CRC_SHIFT_CYCLES + [1]
        assert result == shift(0xCAFE, 21 * 16)

    simulate(unit, process)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("make", [CrcLane, lambda beat_bytes: CrcShift(beat_bytes, 4)], ids=["lane", "shift"])
@pytest.mark.parametrize("beat_bytes", [0, -2])
def test_beat_of_no_bytes_is_refused(make, beat_bytes):
    with pytest.raises(ValueError, match=f"beat_bytes = {beat_bytes}: a beat has at least one byte"):
        make(beat_bytes)


@pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")
@pytest.mark.parametrize("beat_bits", [0, 32])
def test_number_of_beats_that_the_method_cannot_hold_is_refused(beat_bits):
    with pytest.raises(ValueError, match=f"beat_bits = {beat_bits}: a number of beats has 1 to 31 bits"):
        CrcShift(16, beat_bits)
