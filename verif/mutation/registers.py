"""What the registers of a node must say after a run, out of the golden model that followed it.

Used by: stimuli.
"""

import itertools
import random
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from kvnode.models.spec import node_registers as registers
from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.counters import BUCKETS
from kvnode.models.spec.enums import Kind, Status
from kvnode.models.spec.events import EVENT
from kvnode.models.spec.settings import Setting
from kvnode.rtl.csr.description import NODE, load

from ..harness.harness import Access, Bus, Harness, Manner, MannerlyAccess, RunResult
from .follow import HELD, Follower

#: Cycles by which what a register says may lag behind the trace, or run ahead of it.
SLACK_CYCLES = 12
MAX_CYCLES = 2_000_000
EVENT_WORDS = EVENT.size_bytes // 4
#: Like addresses of registers but for one of the high bits.
ALIASES = tuple(at | 1 << bit for bit in range(13, 16) for at in (0x000, 0x024, 0x080, 0x100, 0x1010, 0x1390))


class WrongRegister(AssertionError):
    """A register does not say what it must."""


class RegisterCheck:
    """Accesses to the registers of a node whose operations `follower` goes along with.

    `draw`: makes the manner of the accesses; every answer is waited for, its response code checked.
    """

    def __init__(self, harness: Harness, follower: Follower, draw: random.Random):
        self.harness, self.follower, self.draw = harness, follower, draw
        self.config = harness.config
        self.boot_epoch = follower.lockstep.node.boot_epoch
        #: What was written to each setting, masked, by address.
        self.selects: dict[int, int] = {}

    # Access.

    def access(self, accesses: Sequence[Access | MannerlyAccess], min_cycles: int = 0) -> RunResult:
        """Make accesses without any messages, and follow the trace."""
        nothing = np.zeros(0, BATCH_DTYPE)
        run = self.harness.run(nothing, registers=accesses, max_cycles=MAX_CYCLES, min_cycles=min_cycles)
        self.follower.check(nothing, b"", run)
        return run

    def wait(self, cycles: int) -> None:
        self.access([], cycles)

    def read(self, address: int) -> int:
        return self.reads([address])[0]

    def reads(self, addresses: list[int]) -> list[int]:
        run = self.access([(0, address) for address in addresses])
        _require_okay(run)
        return [int(value) for value in run.registers["data"]]

    def write(self, address: int, data: int, manner: Manner | None = None) -> None:
        _require_okay(self.access([(0, address, data, manner or Manner())]))

    def manner(self) -> Manner:
        draw = self.draw
        return Manner(0xF, draw.choice((0, 0, 1, 3, -1, -2)), draw.choice((0, 0, 1, 5)))

    # What is fixed.

    def check_fixed(self) -> None:
        """Identity, capabilities, partitions, and that no other address answers."""
        config = self.config
        expected = {
            registers.ID_ADDRESS: 0x4B564E44,
            registers.CAPABILITIES_0_ADDRESS: config.ports
            | len(config.partitions) << 8
            | config.beat_bytes << 16
            | config.ports << 24,
            registers.CAPABILITIES_1_ADDRESS: config.block_beats,
            registers.CAPABILITIES_2_ADDRESS: config.max_payload_bytes // config.beat_bytes
            | (config.models.bit_length() - 1) << 20
            | (config.fill_rows.bit_length() - 1) << 24,
            registers.CAPABILITIES_3_ADDRESS: config.sessions
            | config.leases << 12
            | config.tick_cycles_log2 << 24
            | (config.sharing == "donate") << 31,
            registers.BOOT_EPOCH_ADDRESS: self.boot_epoch,
            registers.STATUS_ADDRESS: registers.STATUS_READY_MASK,
            registers.EVENT_POP_ADDRESS: 0,
            registers.CONTROL_ADDRESS: 0,
            registers.VERSION_ADDRESS: 1 << 16,
        }
        for number in range(registers.PARTITION_COUNT):
            base = number * registers.PARTITION_STRIDE_BYTES
            there = number < len(config.partitions)
            part = config.partitions[number] if there else None
            expected |= {
                registers.PARTITION_PORTS_ADDRESS + base: config.port_masks[number] if there else 0,
                registers.PARTITION_SLOTS_LOG2_ADDRESS + base: part.slots_log2 if part else 0,
                registers.PARTITION_SLOT_BASE_ADDRESS + base: config.slot_bases[number] if there else 0,
                registers.PARTITION_OPTIONS_ADDRESS + base: int(part.public) if part else 0,
            }
            if not there:
                expected |= {getattr(registers, f"PARTITION_{name}_ADDRESS") + base: 0
                             for name in (*HELD, *(setting.name for setting in Setting))}  # fmt: skip
        self._compare("is fixed", expected)
        # A write to what can only be read changes nothing.
        fixed = [a for a in expected if a not in (registers.CONTROL_ADDRESS, registers.EVENT_POP_ADDRESS)]
        _require_okay(self.access([(0, address, 0xFFFFFFFF, self.manner()) for address in fixed]))
        self._compare("is fixed, and was written", expected)
        known = {register.address for register in load(NODE).registers}
        nowhere = [at for at in (*range(0, 0x1480, 4), *ALIASES) if at not in known]
        for accesses in ([(0, at, None, self.manner()) for at in nowhere],
                         [(0, at, 0xFFFFFFFF, self.manner()) for at in nowhere]):  # fmt: skip
            run = self.access(accesses)
            if (run.registers["response"] != Bus.SLVERR).any() or run.registers["data"][:1] not in (0, 0xFFFFFFFF):
                raise WrongRegister(f"an address without a register answered {run.registers['response'].tolist()}")
            if not accesses[0][2] and run.registers["data"].any():
                raise WrongRegister("an address without a register reads something")
        self._compare("is fixed, and nothing near it was written", expected)
        self.check_settings()

    def check_storage(self) -> None:
        """Bytes of what holds its value, in any order of address and data, one after the other."""
        config, draw = self.config, self.draw
        masks = {registers.COUNTER_SELECT_ADDRESS: 0xFFFFFF, registers.HISTOGRAM_SELECT_ADDRESS: 0xFFFF}
        slot_bits = max(part.slots_log2 for part in config.partitions) + 1
        bits = {Setting.FILL_DEADLINE_TICKS: 15, Setting.LEASE_TICKS: 15, Setting.BLOCK_TTL: 8}
        for number in range(len(config.partitions)):
            for setting in Setting:
                masks[_setting(setting, number)] = (1 << bits.get(setting, slot_bits)) - 1
        addresses = list(masks)
        values = dict(zip(addresses, self.reads(addresses)))
        before = dict(values)
        accesses: list[Access | MannerlyAccess] = []
        expected = []
        for _ in range(150):
            address = draw.choice(addresses)
            strobe, data = draw.choice((1, 2, 4, 8, 15, draw.randrange(16))), draw.getrandbits(32)
            bytes_ = sum(0xFF << 8 * byte for byte in range(4) if strobe >> byte & 1)
            values[address] = (values[address] & ~bytes_ | data & bytes_) & masks[address]
            accesses += [(0, address, data, self.manner()._replace(strobe=strobe)), (0, address, None, self.manner())]
            expected.append(values[address])
        run = self.access(accesses)
        _require_okay(run)
        got = run.registers["data"][1::2].tolist()
        if got != expected:
            place = next(i for i, pair in enumerate(zip(got, expected)) if pair[0] != pair[1])
            raise WrongRegister(f"access {accesses[2 * place]} left {got[place]:#x}, not {expected[place]:#x}")
        self._compare("was written", values)
        _require_okay(self.access([(0, address, value) for address, value in before.items()]))
        self.wait(self.round_cycles(2 * len(Setting)))
        self.check_settings()

    # What the golden model knows.

    def check_settings(self) -> None:
        """The registers hold the settings that are in force."""
        parts = self.follower.lockstep.node.partitions
        self._compare("is the setting in force", {
            _setting(setting, number): part.settings[setting]
            for number, part in enumerate(parts) for setting in Setting
        })  # fmt: skip

    def held_accesses(self, cycles: tuple[int, ...] = (0,)) -> list[Access]:
        """Reads of what every partition holds, from each of these cycles on."""
        names = list(itertools.product(range(len(self.config.partitions)), HELD))
        return [
            (cycle, getattr(registers, f"PARTITION_{name}_ADDRESS") + number * registers.PARTITION_STRIDE_BYTES)
            for cycle in cycles for number, name in names
        ]  # fmt: skip

    def check_held(self, run: RunResult | None = None) -> None:
        """Free slots, fills, leases, sessions: at some moment near the read what the golden model has. `run`: one that
        made `held_accesses` and was followed."""
        run = run or self.access(self.held_accesses())
        _require_okay(run)
        held = self.follower.lockstep.held
        moments = [cycle for cycle, _ in held]
        names = list(itertools.product(range(len(self.config.partitions)), range(len(HELD))))
        for (number, name), access in zip(itertools.cycle(names), run.registers):
            first = bisect_right(moments, int(access["accepted_cycle"]) - SLACK_CYCLES) - 1
            last = bisect_right(moments, int(access["answered_cycle"]) + SLACK_CYCLES)
            possible = {values[number][name] for _, values in held[max(0, first) : last]}
            if int(access["data"]) not in possible:
                raise WrongRegister(f"{HELD[name]} of partition {number} is {access['data']}, golden {possible}")

    def check_counters(self, every: bool = False) -> None:
        """The counters that are not 0 and some others; or every one, those of no status, kind or partition too."""
        counts = self.follower.lockstep.counts
        numbers = [*range(len(self.config.partitions)), 2, 3, 128]
        kinds = [*map(int, Kind), 32, 64, 128, 33]
        statuses = [*map(int, Status), 32, 64, 128]
        places = list(itertools.product(numbers, kinds, statuses))
        if not every:
            places = [*counts, *self.draw.sample(places, 60)]
        before = dict(counts)
        accesses: list[Access | MannerlyAccess] = []
        for number, kind, status in places:
            select = status | kind << 8 | number << 16
            accesses += [(0, registers.COUNTER_SELECT_ADDRESS, select), (0, registers.COUNTER_LOW_ADDRESS),
                         (0, registers.COUNTER_HIGH_ADDRESS)]  # fmt: skip
        run = self.access(accesses)
        _require_okay(run)
        low, high = run.registers["data"][1::3].tolist(), run.registers["data"][2::3].tolist()
        for place, value in zip(places, (a | b << 32 for a, b in zip(low, high))):
            if not before.get(place, 0) <= value <= counts.get(place, 0):
                raise WrongRegister(f"the counter of {place} is {value}, golden {before.get(place)} to {counts[place]}")

    def histogram(self) -> np.ndarray:
        """Counts by port and bucket; buckets and ports that do not exist are checked to be empty."""
        ports, buckets = [*range(self.config.ports), self.config.ports, 128], [*range(BUCKETS), 32, 64, 128]
        accesses: list[Access | MannerlyAccess] = []
        for port, bucket in itertools.product(ports, buckets):
            accesses += [(0, registers.HISTOGRAM_SELECT_ADDRESS, bucket | port << 8),
                         (0, registers.HISTOGRAM_LOW_ADDRESS)]  # fmt: skip
        run = self.access(accesses)
        _require_okay(run)
        counts = run.registers["data"][1::2].reshape(len(ports), len(buckets)).astype(np.int64)
        if counts[self.config.ports :].any() or counts[:, BUCKETS:].any():
            raise WrongRegister("a histogram counts at a port or in a bucket that does not exist")
        return counts[: self.config.ports, :BUCKETS]

    def check_events(self, limit: int = 300) -> None:
        """The ring's level, its events in order, and whether some were lost; it is emptied up to `limit` events."""
        log = self.follower.lockstep.events
        self.wait(SLACK_CYCLES)
        self.write(registers.EVENT_POP_ADDRESS, 0xFFFFFFFE)
        self.write(registers.EVENT_POP_ADDRESS, 1, Manner(strobe=0xE))
        for _ in range(limit):
            shown, before, overflow = log.shown, len(log), log.overflow
            values = self.reads([
                registers.EVENT_LEVEL_ADDRESS, registers.EVENT_STATUS_ADDRESS, registers.EVENT_SEQUENCE_ADDRESS,
                *(registers.EVENT_DATA_ADDRESS + 4 * word for word in range(EVENT_WORDS)),
            ])  # fmt: skip
            level, status, sequence, words = values[0], values[1], values[2], values[3:]
            data = b"".join(word.to_bytes(4, "little") for word in words)
            expected: dict[str, Any] = dict.fromkeys(EVENT.fields, 0) if shown is None else dict(shown.event)
            got: dict[str, Any] = EVENT.unpack(data)
            if not before <= level <= len(log) or bool(status & 2) not in (overflow, log.overflow):
                raise WrongRegister(f"the ring has level {level}, status {status}; golden {before}, {overflow}")
            if shown is not log.shown:
                continue  # It came while the registers were read.
            if (status & 1) != (shown is not None) or got != expected:
                raise WrongRegister(f"the event shown is {got}, golden {expected}")
            self.write(registers.EVENT_POP_ADDRESS, 1)
            if shown is None:
                return
            if sequence != shown.sequence:
                raise WrongRegister(f"event {sequence} is shown, golden {shown.sequence}")
            log.pop()

    def round_cycles(self, rounds: int = 4) -> int:
        """In which the sweeper goes round so often."""
        return 8 * rounds * len(self.config.sweep_order) * (self.config.ports + 1) + 40

    def _compare(self, what: str, expected: dict[int, int]) -> None:
        for (address, value), got in zip(expected.items(), self.reads(list(expected))):
            if got != value:
                raise WrongRegister(f"register {address:#x} reads {got:#x}, but {value:#x} {what}")


def _setting(setting: Setting, number: int) -> int:
    address = getattr(registers, f"PARTITION_{setting.name}_ADDRESS")
    return int(address) + number * registers.PARTITION_STRIDE_BYTES


def _require_okay(run: RunResult) -> None:
    if (run.registers["response"] != Bus.OKAY).any():
        raise WrongRegister("an access to a register was not answered OKAY")
