"""Responder: in every cycle the beat that has to come next, or nothing; a credit for every free place of its queue.

Wakes go between answers; the handles of a MATCH follow its header.
"""

from collections import deque
from dataclasses import dataclass

import pytest

from kvnode.models.spec.enums import ResponseFlag, Status
from kvnode.models.spec.messages import HANDLE, RESPONSE, VERSION
from kvnode.models.spec.timing import ANSWERS, data_fifo_depth
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.responder import Responder, answer_layout, landed_layout, match_handle_layout
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.agents.stream import Sink, pattern
from kvnode.verif.agents.together import Together
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_responder"
CYCLES = 6000
DRAIN_CYCLES = 20_000
HOLD_CYCLES = 400
SPELL_CYCLES = 100
CROWD_CYCLES = 150
STUCK_CYCLES = 30
#: From the issue of a beat to its data.
READ_CYCLES = 3
#: A handle is read from memory, and then it stands in its beat.
HANDLE_CYCLES = 2
#: Beats of 8, 16, 32 and 64 bytes: headers and handles of four, two and one beat, headers that do not fill their beat
#: and two handles to a beat; counts of digests that are not a power of two.
CONFIGS = {
    "beat8": config_of("quad").replace(block_bytes=480, max_payload_bytes=480),
    "beat16": config_of("tiny").replace(block_bytes=480, max_payload_bytes=480),
    "beat32": config_of("sim").replace(max_payload_bytes=480),
    "beat64": config_of("wide").replace(max_payload_bytes=448),
}
KINDS = ("plain", "refused", "accepted", "read", "match", "dropped")
#: Backpressure of the response stream, and what holds back answers, handles, ends of WRITEs, and turns of the banks.
SWEEP = [("none", "none"), ("none", "half"), ("half", "none"), ("alternate", "alternate"), ("bursts", "bursts"),
         ("most", "none"), ("half", "most")]  # fmt: skip


@dataclass
class Message:
    """One message and what is known of its answer; `landed` of a WRITE that was accepted, `handles` of a MATCH."""

    kind: str
    fields: dict[str, int]
    landed: dict[str, int] | None
    handles: list[dict[str, int]]
    is_in: bool = False
    entered_handles: int = 0


class Answers:
    """An agent that is the port around the responder `name`, and knows what must come out of it in every cycle."""

    PINS = ("answer_valid", "answer", "left", "landed_valid", "landed", "write_in", "issue", "credit", "data_valid",
            "data", "wake", "handle_valid", "handle", "drop_handles", "handles_idle", "rsp__valid", "rsp__ready",
            "rsp__payload")  # fmt: skip

    def __init__(self, bench, name, number):
        self.bench, self.name, self.config, self.rng = bench, name, CONFIGS[name], bench.random
        self.shapes, self.places = Shapes(self.config), data_fifo_depth(self.config.ports)
        self.pins = {pin: bench.pins[f"{name}__{pin}"] for pin in self.PINS}
        self.answers, self.landings = Fields(answer_layout(self.shapes)), Fields(landed_layout(self.shapes))
        self.handles, self.beats = Fields(match_handle_layout(self.shapes)), Fields(self.shapes.beat)
        pace, backpressure = bench.parameters["pace"], pattern(bench.parameters["backpressure"], 10 * number)
        self.no_answer, self.no_landing, self.not_in, self.no_bank, self.no_handle = (
            pattern(pace, 10 * number + i) for i in range(1, 6)
        )
        self.hold = False
        Sink(bench, f"{name}__rsp__", backpressure=lambda: self.hold or backpressure())
        self.boot_epoch = bench.random.getrandbits(self.config.boot_epoch_bits)
        bench.pins[f"{name}__boot_epoch"].drive(self.boot_epoch)
        # Messages whose answer, last beat, LAND and first beats are still to come; what was driven for this cycle.
        self.unanswered, self.unwritten, self.unlanded, self.unread = deque(), deque(), deque(), deque()
        self.answer = self.landing = self.word = self.handle = None
        self.write_in = self.issue = self.wake = False
        self.coming = deque([None] * READ_CYCLES)
        # What stands in the responder.
        self.entered, self.landed, self.words = deque(), deque(), deque()
        self.writes_in = self.position = self.remaining = 0
        # Handles kept, their beats still to come, and the cycles in which none was there.
        self.kept, self.handle_beats, self.handle_gap = [], deque(), 0
        self.wake_pending = self.waking = False
        self.credits = self.places
        self.planned = self.left = 0
        self.planning = True
        self.spell = self.spell_cycles = self.stuck_cycles = 0
        self.seen = dict.fromkeys(
            ("plain", "refused", "landed", "lost", "read", "match", "dropped", "full", "no credit", "no end", "no land",
             "wake", "wake waits", "wake yields"), 0
        )  # fmt: skip
        bench.add(self)

    def plan(self, kind=None, length=None):
        """The next message: its answer's fields are any numbers, but for a READ's length and a MATCH's count."""
        rng = self.rng
        kind = kind or rng.choice(KINDS)
        fields = {name: rng.randint(0, mask) for name, (_, mask) in self.answers.places.items()}
        fields |= {"write": int(kind in ("refused", "accepted")), "waits": int(kind == "accepted"),
                   "data": int(kind == "read"), "handles": int(kind == "match"),
                   "status": rng.choice(list(Status))}  # fmt: skip
        landed, handles = None, []
        if kind in ("match", "dropped"):
            fields["count"] = rng.randint(1, rng.choice((2, 2, 2, self.config.max_match_digests)))
            handles = [{name: rng.randint(0, mask) for name, (_, mask) in self.handles.places.items()}
                       for _ in range(fields["count"])]  # fmt: skip
        if kind == "read":
            most = self.config.block_beats if rng.randrange(8) == 0 else 4
            fields["length"] = length or rng.randint(1, most)
        if kind == "accepted":
            landed = {"status": rng.choice(list(Status)), "found": rng.getrandbits(1),
                      "watermark": rng.randint(0, self.landings.places["watermark"][1])}  # fmt: skip
        message = Message(kind, fields, landed, handles)
        self.unanswered.append(message)
        if fields["write"]:
            self.unwritten.append(message)
        self.planned += 1

    @property
    def busy(self):
        return self.left < self.planned or self.remaining > 0 or self.waking or self.wake_pending or self.kept

    def header(self, message):
        """The beats of the header that answers a message."""
        fields, size = dict(message.fields), self.config.beat_bytes
        if message.landed is not None:
            fields |= {"status": message.landed["status"], "watermark": message.landed["watermark"] * size}
            if not message.landed["found"]:
                fields |= dict.fromkeys(("slot", "generation", "length", "watermark"), 0)
        response = RESPONSE.pack(
            status=fields["status"], opcode=fields["opcode"], version=VERSION, tag=fields["tag"], count=fields["count"],
            boot_epoch=self.boot_epoch, slot=fields["slot"], generation=fields["generation"], crc=fields["crc"],
            length=fields["count"] * HANDLE.size_bytes if fields["handles"] else fields["length"] * size,
            watermark=fields["watermark"], flags=ResponseFlag.LEASED if fields["leased"] else 0,
        )  # fmt: skip
        return self.words_of(response)

    def words_of(self, data):
        """Bytes as beats, the last one filled up with zeroes."""
        size = self.config.beat_bytes
        return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]

    def wake_header(self):
        return self.words_of(RESPONSE.pack(flags=ResponseFlag.WAKE, version=VERSION, boot_epoch=self.boot_epoch))

    def handle_payload(self):
        """The beats that follow the answer to a MATCH; in front of each, the handles that are read for it."""
        packed = [HANDLE.pack(**handle, boot_epoch=self.boot_epoch) for handle in self.kept]
        words = self.words_of(b"".join(packed))
        per_beat, per_handle = max(1, self.config.beat_bytes // 32), max(1, 32 // self.config.beat_bytes)
        fetched = [min(per_beat, len(packed) - i * per_beat) if per_beat > 1 else int(i % per_handle == 0)
                   for i in range(len(words))]  # fmt: skip
        return deque(zip(words, fetched))

    def answers_now(self):
        """Whether there is an answer in front that lacks nothing."""
        if not self.entered:
            return False
        message = self.entered[0]
        return not (message.fields["write"] and not self.writes_in or message.landed is not None and not self.landed)

    def beat(self):
        """(data, last) of the beat that must stand on the response stream now, or None."""
        if self.remaining:
            return (self.words[0], int(self.remaining == 1)) if self.words else None
        if self.handle_beats:
            word, fetched = self.handle_beats[0]
            there = self.handle_gap == HANDLE_CYCLES * fetched
            return (word, int(len(self.handle_beats) == 1)) if there else None
        if self.waking:
            return self.wake_header()[self.position], int(self.position == self.config.response_beats - 1)
        if not self.entered:
            return None
        message = self.entered[0]
        if not self.answers_now():
            lacks_end = message.fields["write"] and not self.writes_in
            self.seen["no end" if lacks_end else "no land"] += 1
            self.stuck_cycles += self.spell == (2 if lacks_end else 0)
            return None
        header = self.header(message)
        follows = message.fields["data"] or message.fields["handles"]
        return header[self.position], int(self.position == len(header) - 1 and not follows)

    def sample(self):
        pins, at = self.pins, f"{self.name}, cycle {self.bench.cycle}"
        beat, found = self.beat(), self.beats.unpack(pins["rsp__payload"].value)
        assert pins["rsp__valid"].value == (beat is not None), at
        if beat is None:
            assert found["data"] == 0, at
        else:
            assert (found["data"], found["last"]) == beat, at
        assert pins["credit"].value == (self.credits > 0), at
        assert pins["handles_idle"].value == (not self.kept), at
        moves = beat is not None and pins["rsp__ready"].value
        in_payload = self.remaining or self.handle_beats
        ends_header = moves and not in_payload and self.position == self.config.response_beats - 1
        assert pins["left"].value == (ends_header and not self.waking), at
        between = moves and beat[1] if beat is not None else not in_payload and self.position == 0
        yields = bool(between and self.waking and self.answers_now())
        self.handle_gap += bool(self.handle_beats) and beat is None
        if ends_header and self.waking:
            self.position, self.waking = 0, False
            self.seen["wake"] += 1
        elif ends_header:
            self._leave()
        elif moves and self.remaining:
            self.words.popleft()
            self.credits += 1
            self.remaining -= 1
        elif moves and self.handle_beats:
            self.handle_beats.popleft()
            self.handle_gap = 0
            if not self.handle_beats:
                self.kept.clear()
        elif moves:
            self.position += 1
        # A wake goes when no message is under way and, behind another wake, no answer can; several that wait are one.
        wanted, goes = self.wake_pending or self.wake, between and not yields
        self.wake_pending = wanted and not goes
        self.waking |= bool(wanted and goes)
        self.seen["wake yields"] += wanted and yields
        self.seen["wake waits"] += self.wake_pending
        # What was driven for this cycle stands there in the next.
        if self.answer:
            self.entered.append(self.answer)
            if self.answer.landed is not None:
                self.unlanded.append(self.answer)
            if self.answer.fields["data"]:
                self.unread.extend([None] * self.answer.fields["length"])
            if self.answer.kind == "dropped":
                self.kept.clear()
                self.seen["dropped"] += 1
        if self.handle:
            self.kept.append(self.handle)
        if self.landing:
            self.landed.append(self.landing)
        self.writes_in += self.write_in
        self.credits -= self.issue
        if self.word is not None:
            self.words.append(self.word)
        assert len(self.words) <= self.places, at
        self.seen["full"] += len(self.entered) == ANSWERS
        self.seen["no credit"] += self.credits == 0

    def _leave(self):
        message = self.entered.popleft()
        self.position = 0
        self.left += 1
        if message.fields["write"]:
            assert message.is_in
            self.writes_in -= 1
        if message.landed is not None:
            self.landed.popleft()
            self.seen["landed" if message.landed["found"] else "lost"] += 1
        elif message.fields["data"]:
            self.remaining = message.fields["length"]
            self.seen["read"] += 1
        elif message.fields["handles"]:
            assert len(self.kept) == message.fields["count"]
            self.handle_beats = self.handle_payload()
            self.seen["match"] += 1
        else:
            self.seen["refused" if message.fields["write"] else "plain"] += 1

    def _spell(self):
        """In turns no LAND comes, then all does, then no end of a WRITE, until the responder has waited for it."""
        self.spell_cycles += 1
        if self.spell % 2 and self.spell_cycles > SPELL_CYCLES or self.stuck_cycles > STUCK_CYCLES:
            self.spell, self.spell_cycles, self.stuck_cycles = (self.spell + 1) % 4, 0, 0
        return (self.spell if self.planning else 1) != 0, (self.spell if self.planning else 1) != 2

    def drive(self):
        rng, pins = self.rng, self.pins
        # Behind the answers that a port keeps places for stands one message more, with all its beats in.
        while self.planning and self.planned <= self.left + ANSWERS:
            self.plan()
        self.answer = self.landing = self.handle = None
        lands_come, ends_come = self._spell()
        if self.unlanded and self.unlanded[0].is_in and lands_come and not self.no_landing():
            self.landing = self.unlanded.popleft()
        self.write_in = bool(self.unwritten) and ends_come and not self.not_in()
        if self.write_in:
            self.unwritten.popleft().is_in = True
        first = self.unanswered[0] if self.unanswered else None
        if first and first.entered_handles < len(first.handles):
            # None is looked up before those of the MATCH in front have left.
            if (first.entered_handles or not self.kept) and not self.no_handle():
                self.handle = first.handles[first.entered_handles]
                first.entered_handles += 1
        elif first and len(self.entered) < ANSWERS and not self.no_answer():
            self.answer = self.unanswered.popleft()
        # Now and then so many that an answer would never have its turn.
        self.wake = self.planning and rng.randrange(2 if self.bench.cycle // CROWD_CYCLES % 8 == 3 else 30) == 0
        self.issue = bool(self.unread) and self.credits > 0 and not self.no_bank()
        if self.issue:
            self.unread.popleft()
        self.coming.append(rng.getrandbits(self.shapes.data_bits) if self.issue else None)
        self.word = self.coming.popleft()
        for name, value, fields, size in (
            ("answer", self.answer and self.answer.fields, self.answers, answer_layout(self.shapes).size),
            ("landed", self.landing and self.landing.landed, self.landings, landed_layout(self.shapes).size),
            ("handle", self.handle, self.handles, match_handle_layout(self.shapes).size),
        ):
            pins[f"{name}_valid"].drive(value is not None)
            pins[name].drive(rng.getrandbits(size) if value is None else fields.pack(**value))
        pins["drop_handles"].drive(self.answer is not None and self.answer.kind == "dropped")
        pins["wake"].drive(self.wake)
        pins["write_in"].drive(self.write_in)
        pins["issue"].drive(self.issue)
        pins["data_valid"].drive(self.word is not None)
        pins["data"].drive(rng.getrandbits(self.shapes.data_bits) if self.word is None else self.word)


async def hold(bench):
    for _ in range(HOLD_CYCLES):
        await bench.step()


async def drain(bench, everything):
    await bench.until(lambda: not any(answers.busy for answers in everything), DRAIN_CYCLES, "the last answer")
    assert all(answers.credits == answers.places and not answers.words for answers in everything)


@bench_test(max_cycles=CYCLES + 3 * DRAIN_CYCLES + 2 * HOLD_CYCLES + 20)
async def answers_in_order_and_nothing_else(dut):
    bench = Bench(dut)
    everything = [Answers(bench, name, number) for number, name in enumerate(CONFIGS)]
    assert len(bench.checkers) == len(everything)
    await bench.start()
    for _ in range(CYCLES):
        await bench.step()
    for answers in everything:
        answers.planning = False
    await drain(bench, everything)
    for answers in everything:
        # All credits are back: as many beats as there are places are asked for while none can leave.
        answers.hold = True
        answers.plan("read", answers.config.block_beats)
    await hold(bench)
    for answers in everything:
        assert len(answers.words) == answers.places and not answers.credits and answers.unread, answers.name
        answers.hold = False
    await drain(bench, everything)
    for answers in everything:
        # Nothing but refused WRITEs, every one of them in, also the one that has no place yet.
        answers.hold = True
        for _ in range(ANSWERS + 1):
            answers.plan("refused")
    await hold(bench)
    for answers in everything:
        assert answers.writes_in == len(answers.entered) + 1 == ANSWERS + 1, answers.name
        answers.hold = False
    await drain(bench, everything)
    fewest = 3 if "most" in (bench.parameters["pace"], bench.parameters["backpressure"]) else 8
    for answers in everything:
        assert min(answers.seen.values()) >= fewest, (answers.name, repr(answers.seen))


@pytest.mark.parametrize("backpressure,pace", SWEEP)
def test_answers_come_in_order_with_their_bytes(backpressure, pace):
    design = Together(**{name: Responder(config) for name, config in CONFIGS.items()})
    assert run_bench(design, MODULE, parameters={"backpressure": backpressure, "pace": pace}) == 1
