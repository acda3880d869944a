"""MatchWalk: every digest in its order up to the first miss and none behind it, whatever payload a MATCH has."""

from collections import deque

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.enums import Status
from kvnode.models.spec.requests import match_digests, payload_beats
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.match_walk import MatchWalk
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.agents.stream import Source, pattern
from kvnode.verif.agents.together import Together
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_match_walk"
CYCLES = 10_000
#: Four, two and one beat to a digest, and two digests to a beat; counts that reach the last number of their bits.
CONFIGS = {
    "beat8": config_of("quad").replace(block_bytes=480, max_payload_bytes=480),
    "beat16": config_of("tiny").replace(block_bytes=480, max_payload_bytes=480),
    "beat32": config_of("sim").replace(max_payload_bytes=480),
    "beat64": config_of("wide").replace(max_payload_bytes=448),
    "beat64_cut": config_of("wide").replace(max_payload_bytes=192, digest_bits=200),
}
RELATIONS = ("exact", "exact", "exact", "short", "long", "far")
#: A walk that neither waits for a turn, nor for a beat, nor for an answer is over after this many cycles.
QUIET_CYCLES = 3
#: What a lookup may be answered if it is no hit.
NO_HIT = (Status.MISS, Status.MISS, Status.NOT_READY, Status.QUOTA, Status.POISONED, Status.STALE_EPOCH)
SWEEP = [("none", "none"), ("half", "none"), ("none", "most"), ("alternate", "half"), ("bursts", "bursts")]


class Turns(wiring.Component):
    """A MatchWalk between the gates of its port: in a `turn` what it asks is taken, with `room` its end is cleared."""

    GATED = ("taken", "clear")

    def __init__(self, config):
        self.walk = MatchWalk(config)
        self.through = {name: m for name, m in self.walk.signature.members.items() if name not in self.GATED}
        super().__init__(self.through | {"turn": In(1), "room": In(1)} | {name: Out(1) for name in self.GATED})

    def elaborate(self, platform):
        m = Module()
        m.submodules.walk = walk = self.walk
        for name, member in self.through.items():
            outer, inner = getattr(self, name), getattr(walk, name)
            if not member.is_port:
                wiring.connect(m, wiring.flipped(outer), inner)
            elif member.flow == In:
                m.d.comb += inner.eq(outer)
            else:
                m.d.comb += outer.eq(inner)
        m.d.comb += [
            self.taken.eq(walk.ask & self.turn),
            self.clear.eq(walk.over & self.room),
            walk.taken.eq(self.taken),
            walk.clear.eq(self.clear),
        ]
        return m


class Walked:
    """An agent that sends MATCH payloads to the walk `name`, answers its lookups, and checks every cycle of it."""

    PINS = ("active", "expected", "ask", "digest", "first", "turn", "taken", "returned", "status", "counts", "over",
            "first_status", "hits", "wrong", "room", "clear")  # fmt: skip

    def __init__(self, bench, name, number):
        self.bench, self.name, self.config, self.rng = bench, name, CONFIGS[name], bench.random
        self.pins = {pin: bench.pins[f"{name}__{pin}"] for pin in self.PINS}
        self.beats = Fields(Shapes(self.config).beat)
        self.no_turn = pattern(bench.parameters["turns"], 10 + number)
        idle = pattern(bench.parameters["idle"], 20 + number)
        self.source = Source(bench, f"{name}__payload__", idle=idle, accepted=self._accepted)
        bench.add(self)
        self.seen = {}
        self.messages = deque()
        self.active, self.gap = False, 0
        self._next()

    def _count(self, what):
        self.seen[what] = self.seen.get(what, 0) + 1

    def _message(self):
        """A payload, with what it must come to by the way in which it was made; its beats go to the source."""
        config, rng = self.config, self.rng
        beat, bits = config.beat_bytes, config.digest_bits
        count = rng.choice((1, config.max_match_digests, rng.randint(1, config.max_match_digests)))
        announced = -(-32 * count // beat)
        relation = rng.choice(RELATIONS)
        if relation == "short" and announced == 1:
            relation = "exact"
        beats = {
            "exact": announced,
            "short": rng.randint(1, max(1, announced - 1)),
            "long": announced + rng.randint(1, 4),
            "far": announced + payload_beats(config, 32 * 3 * config.max_match_digests),
        }[relation]
        size = beats * beat
        # Behind the announced digests there may be anything, also in the padding of an exact payload.
        words = [rng.getrandbits(bits if at < count else 256) for at in range(size // 32)]
        spoiled = bits < 256 and rng.randrange(4) == 0
        if spoiled and words:
            words[rng.randrange(min(count, len(words)))] |= 1 << rng.randrange(bits, 256)
        payload = b"".join(word.to_bytes(32, "little") for word in words) + rng.randbytes(size % 32)
        digests = [word % (1 << bits) for word in words[:count]]
        wrong = relation != "exact" or spoiled
        assert match_digests(config, 32 * count, payload) == (digests, not wrong)
        self._count(relation)
        if spoiled and relation == "exact":
            self._count("spoiled")
        if size % 32:
            self._count("torn")
        if relation == "exact" and 32 * count % beat:
            self._count("padded")
        parts = [payload[at : at + beat] for at in range(0, size, beat)]
        self.source.queue.extend(
            (self.beats.pack(data=int.from_bytes(part, "little"), last=i == len(parts) - 1),)
            for i, part in enumerate(parts)
        )
        return count, digests, wrong, len(parts)

    def _next(self):
        # The beats of the next message already stand at the walk while it is busy with this one.
        while len(self.messages) < 2:
            self.messages.append(self._message())
        self.count, self.digests, self.wrong, self.beats_left = self.messages.popleft()
        self.hit_share = self.rng.choice((0.5, 0.9, 1, 1))
        self.asked = self.back = self.leading = self.quiet = 0
        self.ended_cycle = None
        self.missed = self.standing = False
        self.coming = deque()  # (cycle, status) of the answers to come.
        self.first_status = None
        self.returned = None
        self.active, self.gap = False, self.rng.randrange(3)

    def _accepted(self, item, cycle):
        assert self.active and self.beats_left, f"{self.name}, cycle {cycle}: a beat of the next message"
        self.beats_left -= 1
        self.quiet = 0
        if self.beats_left == 0:
            self.ended_cycle = cycle

    def sample(self):
        cycle, pins = self.bench.cycle, self.pins
        at = f"{self.name}, cycle {cycle}"
        ask, taken, over = (pins[name].value for name in ("ask", "taken", "over"))
        if not self.active:
            assert not ask and not over, at
            return
        if ask:
            assert not self.missed, f"{at}: asked behind a miss"
            assert self.asked < len(self.digests), f"{at}: asked for more than was announced"
            assert pins["digest"].value == self.digests[self.asked], f"{at}: digest {self.asked}"
            assert pins["first"].value == (self.asked == 0), at
        assert ask or not self.standing, f"{at}: withdrawn"
        ended = self.ended_cycle is not None and self.ended_cycle < cycle
        complete = self.missed or self.asked == len(self.digests)
        if over:
            assert ended and complete and not self.coming and self.returned is None, f"{at}: over too early"
            assert pins["hits"].value == self.leading, at
            assert pins["wrong"].value == self.wrong, at
            if self.first_status is not None:
                assert pins["first_status"].value == self.first_status, at
        waits = ask or self.coming or self.returned is not None or self.ended_cycle is None
        self.quiet = 0 if waits else self.quiet + 1
        assert over or self.quiet <= QUIET_CYCLES, f"{at}: not over"
        if taken:
            status = Status.HIT if self.rng.random() < self.hit_share else self.rng.choice(NO_HIT)
            self.coming.append((cycle + DIRECTORY_LATENCY_CYCLES, status))
            self.asked += 1
        hit = self.returned == Status.HIT
        assert pins["counts"].value == (hit and not self.missed), at
        if self.returned is not None:
            if self.back == 0:
                self.first_status = self.returned
            self.back += 1
            self.leading += hit and not self.missed
            self.missed |= not hit
        self.standing = bool(ask and not taken and not self.missed)
        if pins["clear"].value:
            self._done(at)

    def _done(self, at):
        assert self.asked == self.back, at
        if self.missed:
            # What was on its way when the first miss came back, one lookup in a cycle.
            behind = self.asked - self.leading - 1
            assert 0 <= behind <= DIRECTORY_LATENCY_CYCLES, at
            self._count("missed")
            if behind:
                self._count("behind")
            if self.asked < len(self.digests):
                self._count("unasked")
        else:
            assert self.leading == len(self.digests), at
            self._count("all hit")
        self._count("messages")
        self._next()

    def drive(self):
        rng, pins = self.rng, self.pins
        pins["turn"].drive(not self.no_turn())
        pins["room"].drive(rng.randrange(3) != 0)
        self.returned = None
        if self.coming and self.coming[0][0] == self.bench.cycle + 1:
            self.returned = self.coming.popleft()[1]
        pins["returned"].drive(self.returned is not None)
        pins["status"].drive(rng.choice(list(Status)) if self.returned is None else self.returned)
        self.active = self.gap == 0
        self.gap -= not self.active
        pins["active"].drive(self.active)
        pins["expected"].drive(self.count if self.active else rng.getrandbits(1))


@bench_test(max_cycles=CYCLES + 20)
async def asks_up_to_the_first_miss(dut):
    bench = Bench(dut)
    walks = [Walked(bench, name, number) for number, name in enumerate(CONFIGS)]
    assert len(bench.checkers) == len(walks)
    await bench.start()
    for _ in range(CYCLES):
        await bench.step()
    for walk in walks:
        config = walk.config
        wanted = {"exact", "short", "long", "far", "missed", "all hit", "behind"}
        wanted |= {"unasked"} if config.max_match_digests > DIRECTORY_LATENCY_CYCLES else set()
        wanted |= {"torn"} if config.beat_bytes < 32 else {"padded"} if config.beat_bytes > 32 else set()
        wanted |= {"spoiled"} if config.digest_bits < 256 else set()
        assert wanted <= set(walk.seen), (walk.name, walk.seen)
        assert walk.seen["messages"] > 20, (walk.name, walk.seen)


@pytest.mark.parametrize("idle,turns", SWEEP)
def test_digests_are_asked_in_order_up_to_the_first_miss(idle, turns):
    design = Together(**{name: Turns(config) for name, config in CONFIGS.items()})
    assert run_bench(design, MODULE, parameters={"idle": idle, "turns": turns}) == 1
