"""CrcLane and CrcShift on Verilator against google_crc32c: messages back to back, and parts that are joined.

The reference shares nothing with the hardware, whose constants come from `spec.crc`.
"""

from collections import deque

import google_crc32c
import pytest

from kvnode.models.spec.timing import CRC_LATENCY_CYCLES, CRC_SHIFT_CYCLES
from kvnode.rtl.crc import CrcLane, CrcShift
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.together import Together
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_crc"
#: The three widths of a beat that presets may have.
BEAT_BYTES = (16, 32, 64)
MESSAGES = 300
MAX_BEATS = 12
SHIFTS = 60
BEAT_BITS = 11
#: Chance of a cycle without a beat inside of a message and between two.
BUBBLES = {"none": 0.0, "few": 0.1, "half": 0.5}


class Sender:
    """An agent that sends messages into a lane and checks the CRC after each beat, in exactly the cycle it is due.

    A third of the messages continue a CRC; each message's `start` comes with its first beat.
    """

    def __init__(self, bench, size, bubbles):
        self.bench, self.size, self.bubbles, self.prefix = bench, size, bubbles, f"lane{size}__"
        self.messages, self.beats, self.crc = 0, 0, 0
        self.remaining = 0
        self.due = deque()
        self.sent = None
        bench.add(self)

    def sample(self):
        if self.sent is not None:
            self.due.append((self.bench.cycle + CRC_LATENCY_CYCLES, self.sent))
        if self.due and self.due[0][0] == self.bench.cycle:
            assert self.bench.get(f"{self.prefix}crc") == self.due.popleft()[1]

    def drive(self):
        rng, values, self.sent = self.bench.random, {"start": 0, "valid": 0}, None
        if rng.random() >= self.bubbles and (self.remaining or self.messages < MESSAGES):
            data = rng.randbytes(self.size)
            values = {"start": 0, "valid": 1, "data": int.from_bytes(data, "little")}
            if not self.remaining:
                self.remaining = rng.randint(1, MAX_BEATS)
                self.messages += 1
                self.crc = rng.getrandbits(32) if rng.random() < 1 / 3 else 0
                values |= {"start": 1, "start_value": self.crc}
            self.crc = self.sent = google_crc32c.extend(self.crc, data)
            self.remaining -= 1
            self.beats += 1
        self.bench.drive(**{f"{self.prefix}{name}": value for name, value in values.items()})

    @property
    def idle(self):
        return self.messages == MESSAGES and not self.remaining and not self.due and self.sent is None


@bench_test(max_cycles=4 * MESSAGES * MAX_BEATS)
async def lanes_follow_messages(dut):
    bench = Bench(dut)
    bubbles = BUBBLES[bench.parameters["bubbles"]]
    senders = [Sender(bench, size, bubbles) for size in BEAT_BYTES]
    await bench.start()
    await bench.until(lambda: all(sender.idle for sender in senders), 4 * MESSAGES * MAX_BEATS, "all messages")
    if not bubbles:
        # One beat per cycle, from the first message to the last, and then the latency.
        assert bench.cycle == max(sender.beats for sender in senders) + CRC_LATENCY_CYCLES


@bench_test(max_cycles=(SHIFTS + 1) * (CRC_SHIFT_CYCLES + 1))
async def shifts_join_parts(dut):
    bench = Bench(dut)
    await bench.start()
    for _ in range(SHIFTS):
        beats = bench.random.choice((0, 1, bench.random.randrange(1 << BEAT_BITS), (1 << BEAT_BITS) - 1))
        parts, crcs = {}, {}
        for size in BEAT_BYTES:
            first = bench.random.randbytes(bench.random.randrange(100))
            parts[size] = first, bench.random.randbytes(beats * size)
            crcs[size] = google_crc32c.value(first)
            bench.drive(**{f"shift{size}__{name}": value
                           for name, value in {"start": 1, "crc": crcs[size], "beats": beats}.items()})  # fmt: skip
        await bench.step()
        bench.drive(**{f"shift{size}__start": 0 for size in BEAT_BYTES})
        for cycle in range(1, CRC_SHIFT_CYCLES + 1):
            await bench.step()
            assert {bench.get(f"shift{size}__done") for size in BEAT_BYTES} == {cycle == CRC_SHIFT_CYCLES}
        for size, (first, second) in parts.items():
            joined = bench.get(f"shift{size}__result") ^ google_crc32c.value(second)
            assert joined == google_crc32c.value(first + second)


def lanes():
    return Together(**{f"lane{size}": CrcLane(size) for size in BEAT_BYTES})


@pytest.mark.parametrize("bubbles", BUBBLES)
def test_lane_follows_messages_of_one_beat_per_cycle(bubbles):
    assert run_bench(lanes(), MODULE, "lanes_follow_messages", parameters={"bubbles": bubbles}) == 1


def test_shift_joins_parts():
    design = Together(**{f"shift{size}": CrcShift(size, BEAT_BITS) for size in BEAT_BYTES})
    assert run_bench(design, MODULE, "shifts_join_parts") == 1
