"""ReadEngine and WriteEngine: every beat of every run once, in order, in its bank's turn and never later than that."""

from collections import Counter, deque

import google_crc32c
import pytest

from kvnode.models.spec.timing import CRC_LATENCY_CYCLES, RUNS
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.transfer import ReadEngine, WriteEngine
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.agents.stream import Source, pattern
from kvnode.verif.agents.together import Together
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_transfer"
CYCLES = 6000


def row_of(config, partition, slot, beat):
    """Blocks lie one behind the other in every bank; beat i is in bank i mod ports."""
    block = sum(part.slots for part in config.partitions[:partition]) + slot
    return block * (config.block_bytes // config.beat_bytes // config.ports) + beat // config.ports


def held(bench, prefix, shapes):
    fields = Fields(shapes.hold)
    holds = [fields.unpack(bench.get(f"{prefix}__holds__{i}")) for i in range(RUNS)]
    return sorted((hold["partition"], hold["slot"]) for hold in holds if hold["valid"])


class Read:
    """A read: where it is, and the beats that are still to come. `steady`: its runs follow each other without a gap."""

    def __init__(self, rng, config, partitions):
        self.partition = rng.choice(partitions)
        self.slot = rng.randrange(config.partitions[self.partition].slots)
        beats = config.block_beats
        if rng.getrandbits(1):
            # Often an odd number of laps, often whole blocks back to back.
            self.first = 0 if rng.getrandbits(1) else rng.randrange(beats)
            self.run = beats - self.first if rng.getrandbits(1) else rng.randint(1, beats - self.first)
            count, self.stride = 1, rng.randrange(beats)
        else:
            count = rng.randint(1, beats)
            self.run = rng.choice((1, rng.randint(1, beats // count)))
            most = (beats - self.run) // (count - 1) if count > 1 else beats
            strides = range(most + 1)
            steady = [stride for stride in strides if (stride - self.run) % config.ports == 0]
            self.stride = rng.choice(steady) if steady and rng.getrandbits(1) else rng.choice(strides)
            self.first = rng.randrange(beats - (count - 1) * self.stride - self.run + 1)
        self.steady = count == 1 or (self.stride - self.run) % config.ports == 0
        starts = [self.first + i * self.stride for i in range(count)]
        self.beats = deque(start + i for start in starts for i in range(self.run))
        self.count, self.runs, self.begun_cycle = len(self.beats), count, None

    def pins(self):
        return {"from_partition": self.partition, "slot": self.slot, "beat": self.first, "count": self.count,
                "run": self.run, "stride": self.stride}  # fmt: skip


@bench_test(max_cycles=CYCLES + 20)
async def reads_run_at_full_rate(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    shapes, own = Shapes(config), bench.parameters["partition"]
    partitions = sorted({own, own if config.public_partition is None else config.public_partition})
    no_credit = pattern(bench.parameters["backpressure"], 5)
    reads, seen = deque(), Counter()
    await bench.start()
    for cycle in range(CYCLES):
        start = None
        if len(reads) < RUNS and (cycle % 400 < 200 or rng.randrange(8) == 0):
            start = Read(rng, config, partitions)
            bench.drive(**{f"read__{name}": value for name, value in start.pins().items()})
        shifts = cycle % 1000 == 500
        credit, bank = not no_credit(), rng.randrange(config.ports) if shifts else cycle % config.ports
        bench.drive(read__start=start is not None, read__credit=credit, read__bank=bank)
        await bench.step()
        at = f"cycle {cycle}"
        assert held(bench, "read", shapes) == sorted((read.partition, read.slot) for read in reads), at
        # The beat at hand moves exactly when its bank comes by and there is room for it.
        read = reads[0] if reads else None
        moves = read is not None and credit and read.beats[0] % config.ports == bank
        assert bench.get("read__issue") == moves, at
        assert bench.get("read__done") == (moves and len(read.beats) == 1), at
        seen["busy"] += read is not None and credit
        if moves:
            assert bench.get("read__row") == row_of(config, read.partition, read.slot, read.beats.popleft()), at
            seen["issued"] += 1
            if read.begun_cycle is None:
                read.begun_cycle = cycle
            if not read.beats:
                seen["runs"] += read.runs > 1
                seen["elsewhere"] += read.partition != own
                cycles = cycle + 1 - read.begun_cycle
                whole = not any(at % 1000 == 500 for at in range(read.begun_cycle, cycle + 1))
                if bench.parameters["backpressure"] == "none" and whole:
                    # Else there is a gap somewhere: behind some run the bank of the next has just gone by.
                    assert (cycles == read.count) == read.steady, (at, vars(read))
                    seen["steady runs"] += read.steady and read.runs > 1
                reads.popleft()
        if start is not None:
            reads.append(start)
    assert seen["issued"] > seen["busy"] // 8 and seen["runs"] > 50
    assert (seen["elsewhere"] > 50) == (len(partitions) > 1)
    assert seen["steady runs"] > 20 or bench.parameters["backpressure"] != "none"


class Write:
    """A WRITE: its operation and member, its payload, whether it is accepted, and its CRC once it has moved."""

    def __init__(self, rng, config, shapes, partition):
        self.member, self.accepted = rng.randrange(8), rng.randrange(4) != 0
        offset = rng.randrange(config.block_beats)
        length = rng.randint(1, config.block_beats - offset)
        sent = length if rng.randrange(3) else rng.randint(1, config.block_beats + 2)
        self.operation = {"slot": rng.randrange(config.partitions[partition].slots), "offset": offset, "length": length,
                          "tag": rng.getrandbits(16), "generation": rng.getrandbits(config.generation_bits),
                          "whole": rng.getrandbits(1)}  # fmt: skip
        self.data = [rng.randbytes(config.beat_bytes) for _ in range(sent)]
        self.stored = self.data[:length]
        self.whole = int(sent == length)
        self.ended_cycle = None
        self.crc = 0


@bench_test(max_cycles=CYCLES + 20)
async def writes_land_whole_or_say_so(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    shapes, own = Shapes(config), bench.parameters["partition"]
    operations, beats = Fields(shapes.operation), Fields(shapes.beat)
    sent = deque()

    def accepted(item, cycle):
        if beats.unpack(item[0])["last"]:
            sent.popleft().ended_cycle = cycle

    source = Source(bench, "write__payload__", idle=pattern(bench.parameters["idle"], 6), accepted=accepted)
    late, lands_late = pattern("half", 7), pattern(bench.parameters["backpressure"], 8)
    unjudged, inside, writes, lands = deque(), deque(), deque(), deque()
    seen, crc, left, ready_cycle = Counter(), None, 0, 0
    take = False
    await bench.start()
    for cycle in range(CYCLES):
        bench.drive(write__start=0, write__verdict=0, write__bank=cycle % config.ports, write__land_taken=take)
        start = None
        if len(inside) < RUNS and len(source.queue) < 3 * config.block_beats and rng.getrandbits(1):
            start = Write(rng, config, shapes, own)
            bench.drive(write__start=1, write__operation=operations.pack(**start.operation), write__member=start.member)
            words = [int.from_bytes(data, "little") for data in start.data]
            source.queue.extend((beats.pack(data=word, last=i == len(words) - 1),) for i, word in enumerate(words))
            sent.append(start)
            if start.accepted:
                place = start.operation["slot"], start.operation["offset"]
                writes.extend((place[0], place[1] + i, word) for i, word in enumerate(words[: len(start.stored)]))
                lands.append(start)
                seen["broken"] += not start.whole
            else:
                seen["refused"] += 1
        if unjudged and not late():
            judged = unjudged.popleft()
            fresh, part_crc = crc is None or rng.getrandbits(1), rng.getrandbits(32)
            bench.drive(write__verdict=1, write__accepted=judged.accepted, write__fresh=fresh, write__part_crc=part_crc)
            if judged.accepted:
                # That of the WRITE in front, if that has still to land.
                crc = google_crc32c.extend(part_crc if fresh else crc, b"".join(judged.stored))
                judged.crc = crc
                seen["fresh" if fresh else "goes on"] += 1
        await bench.step()
        at = f"cycle {cycle}"
        # A WRITE that was refused leaves by itself, any other when its land was taken.
        slots = held(bench, "write", shapes)
        while len(inside) > len(slots):
            if inside.popleft().accepted:
                assert left, at
                left -= 1
        assert slots == sorted((own, write.operation["slot"]) for write in inside), at
        if start is not None:
            assert bench.get("write__room"), at
            unjudged.append(start)
            inside.append(start)
        if bench.get("write__issue"):
            slot, beat, word = writes.popleft()
            assert beat % config.ports == cycle % config.ports, at
            assert bench.get("write__row") == row_of(config, own, slot, beat), at
            assert bench.get("write__beat_data") == word, at
            seen["written"] += 1
        else:
            assert bench.get("write__beat_data") == 0, at
        # In its turn, a message is offered when it has ended and its CRC is there.
        land = lands[0] if lands and inside and inside[0] is lands[0] else None
        ended = land is not None and land.ended_cycle is not None
        # The bench counts one cycle more.
        offered = ended and cycle >= max(land.ended_cycle + CRC_LATENCY_CYCLES, ready_cycle)
        assert bench.get("write__land_valid") == offered, at
        if offered:
            found = operations.unpack(bench.get("write__land"))
            expected = land.operation | {"whole": land.whole}
            assert {name: found[name] for name in expected} == expected, at
            assert bench.get("write__land_member") == land.member, at
            assert bench.get("write__land_crc") == land.crc, at
            # Its beats are in the store, and those of the one behind may be moving.
            assert len(writes) <= sum(len(write.stored) for write in list(lands)[1:]), at
            if take:
                lands.popleft()
                ready_cycle = cycle + 1
                seen["landed"] += 1
                left += 1
        take = bool(offered) and not take and not lands_late()
    assert seen["written"] > CYCLES // 10 and seen["landed"] > 50 and seen["broken"] > 5 and seen["refused"] > 5
    assert min(seen["fresh"], seen["goes on"]) > 20, seen


@pytest.mark.parametrize("config,partition", [("tiny", 1), ("quad", 1), ("quad_public", 2)])
@pytest.mark.parametrize("idle,backpressure", [("none", "none"), ("half", "bursts")])
def test_transfers_move_every_beat_in_its_turn(config, partition, idle, backpressure):
    parameters = {"config": config, "partition": partition, "idle": idle, "backpressure": backpressure}
    design = Together(read=ReadEngine(config_of(config), partition), write=WriteEngine(config_of(config), partition))
    assert run_bench(design, MODULE, parameters=parameters) == 2
