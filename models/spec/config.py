"""Node configuration: frozen, strict data with presets and derived sizes.

Everything that is sized in the models, the RTL and the benches is sized from here. Unknown keys and impossible values
raise ConfigError naming the key and the value.

Used by: everything.
"""

import dataclasses
import functools
import hashlib
from dataclasses import dataclass, field
from typing import Any

from .clock import TIME_BITS, TTL_TICKS
from .hashing import SEED_BITS
from .messages import REQUEST
from .timing import SWEEP_ROUND


class ConfigError(ValueError):
    """A configuration that cannot be built; the message names the key and the value."""


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _check(condition: bool, key: str, value: object, rule: str) -> None:
    if not condition:
        raise ConfigError(f"{key} = {value!r}: {rule}")


@dataclass(frozen=True)
class PartitionConfig:
    """One tenant: the ports it owns, its slots (a power of two), and the settings that it has after reset.

    `low_watermark_slots`: eviction begins when fewer slots than this are free or retiring, and ends at
    `high_watermark_slots`. `seed`: SEED_BITS secret bits that place keys in the index. `reserve_slots`: slots that no
    writer gets (the answer is QUOTA). `fill_deadline_ticks`, `lease_ticks`: for requests that name no deadline.
    `block_ttl`: in units of TTL_TICKS, for blocks that name none; 0: none. `public`: the ports of other partitions may
    read here.
    """

    ports: tuple[int, ...]
    slots_log2: int
    low_watermark_slots: int
    seed: int
    name: str = ""
    reserve_slots: int = 0
    fill_deadline_ticks: int = 4096
    lease_ticks: int = 4096
    block_ttl: int = 0
    public: bool = False

    @property
    def slots(self) -> int:
        return 1 << self.slots_log2

    @property
    def high_watermark_slots(self) -> int:
        """Free slots at which eviction ends that began below the low watermark: half as many again."""
        return self.low_watermark_slots + self.low_watermark_slots // 2


@dataclass(frozen=True)
class NodeConfig:
    """One node.

    `ports`: number of ports and of banks, a power of two. `beat_bytes`: width of a port, a bank and a link.
    `block_bytes`: room of a slot. `models`: registered models per partition. `sharing`: "strict" (the isolation claim
    holds) or "donate" (idle directory turns go to others). Per partition: `fill_rows`, blocks that can be written at a
    time; `leases`; `sessions`. `tick_cycles_log2`: cycles of a tick, in which deadlines are counted.
    """

    name: str
    ports: int
    beat_bytes: int
    block_bytes: int
    max_payload_bytes: int
    partitions: tuple[PartitionConfig, ...] = field(default=())
    models: int = 4
    fill_rows: int = 8
    leases: int = 64
    sessions: int = 16
    ways: int = 8
    tag_bits: int = 32
    digest_bits: int = 256
    generation_bits: int = 16
    epoch_bits: int = 16
    boot_epoch_bits: int = 16
    session_generation_bits: int = 20
    lease_generation_bits: int = 16
    tick_cycles_log2: int = 8
    sharing: str = "strict"

    def __post_init__(self) -> None:
        for key in ("ports", "beat_bytes", "models", "fill_rows", "leases", "sessions", "ways"):
            _check(_is_power_of_two(getattr(self, key)), key, getattr(self, key), "must be a power of two")
        _check(2 <= self.ports <= 8, "ports", self.ports, "must be 2, 4 or 8")
        _check(8 <= self.beat_bytes <= REQUEST.size_bytes, "beat_bytes", self.beat_bytes, "must be 8 to 64")
        _check(self.sharing in ("strict", "donate"), "sharing", self.sharing, "must be 'strict' or 'donate'")
        for key, low, high in (
            ("models", 1, 256),
            ("fill_rows", 1, 256),
            ("leases", 1, 256),
            ("sessions", 1, 1024),
            ("ways", 2, 16),
            ("tag_bits", 2, 32),
            ("digest_bits", 1, 256),
            ("generation_bits", 1, 32),
            ("epoch_bits", 1, 32),
            ("boot_epoch_bits", 1, 32),
            ("session_generation_bits", 1, 31),
            ("lease_generation_bits", 1, 23),
            ("tick_cycles_log2", 0, 31),
        ):
            _check(low <= getattr(self, key) <= high, key, getattr(self, key), f"must be {low} to {high}")
        lap = self.beat_bytes * self.ports
        _check(self.block_bytes > 0 and self.block_bytes % lap == 0, "block_bytes", self.block_bytes,
               f"must be a multiple of a lap of the banks, {lap} bytes")  # fmt: skip
        unit = max(32, self.beat_bytes)
        _check(0 < self.max_payload_bytes <= self.block_bytes and self.max_payload_bytes % unit == 0,
               "max_payload_bytes", self.max_payload_bytes,
               f"must be a multiple of {unit} and at most block_bytes")  # fmt: skip
        _check(self.block_bytes < 1 << 32, "block_bytes", self.block_bytes, "must fit the 4 bytes of a length")
        _check(self.max_match_digests < 1 << 16, "max_payload_bytes", self.max_payload_bytes,
               "must hold at most 65535 digests of 32 bytes, the count of a response")  # fmt: skip
        _check(len(self.partitions) > 0, "partitions", self.partitions, "at least one is needed")
        owned = sorted(port for partition in self.partitions for port in partition.ports)
        _check(owned == list(range(self.ports)), "partitions", [p.ports for p in self.partitions],
               f"must own each of the ports 0..{self.ports - 1} exactly once")  # fmt: skip
        _check(all(partition.ports for partition in self.partitions), "partitions",
               [p.ports for p in self.partitions], "each must own a port")  # fmt: skip
        _check(self.session_bits + self.session_generation_bits <= 31, "session_generation_bits",
               self.session_generation_bits, f"with those of {self.sessions} sessions must be at most 31")  # fmt: skip
        _check(sum(partition.public for partition in self.partitions) <= 1, "partitions",
               [p.name for p in self.partitions if p.public], "at most one can be public")  # fmt: skip
        for index, partition in enumerate(self.partitions):
            _check(0 <= partition.slots_log2 <= 32, f"partitions[{index}].slots_log2", partition.slots_log2,
                   "must be 0 to 32")  # fmt: skip
        for index, partition in enumerate(self.partitions):
            key = f"partitions[{index}]"
            # The patrol must see every slot before an epoch's number returns.
            _check(self.epoch_bits > partition.slots_log2, "epoch_bits", self.epoch_bits,
                   f"must be above {key}.slots_log2 = {partition.slots_log2}")  # fmt: skip
            # The patrol must see every slot before a session's number returns.
            _check(self.session_bits + self.session_generation_bits > partition.slots_log2, "session_generation_bits",
                   self.session_generation_bits,
                   f"with those of {self.sessions} sessions must be above {key}.slots_log2 = "
                   f"{partition.slots_log2}")  # fmt: skip
            # A deadline must be looked at before it could be taken for one to come.
            round_cycles = SWEEP_ROUND * self.ports * (self.ports + 1)
            lap = round_cycles * max(self.fill_rows, self.leases, self.sessions)
            ticks = (1 << TIME_BITS - 1) << self.tick_cycles_log2
            _check(lap < ticks and round_cycles * partition.slots < ticks * TTL_TICKS, "tick_cycles_log2",
                   self.tick_cycles_log2, "is too small: the sweeper's laps take more than half of the time that is "
                   "counted")  # fmt: skip
            # Else eviction never makes room that a writer may have.
            most = max(0, partition.low_watermark_slots - 1)
            _check(0 <= partition.reserve_slots <= most, f"{key}.reserve_slots", partition.reserve_slots,
                   "must be less than low_watermark_slots")  # fmt: skip
            for name, limit in (("fill_deadline_ticks", 1 << 15), ("lease_ticks", 1 << 15), ("block_ttl", 256)):
                value = getattr(partition, name)
                _check(0 <= value < limit, f"{key}.{name}", value, f"must be less than {limit}")
            _check(partition.slots >= self.ways, f"{key}.slots_log2", partition.slots_log2,
                   f"must give at least {self.ways} slots, one index row")  # fmt: skip
            _check(self.slot_bases[index] % partition.slots == 0, f"{key}.slots_log2", partition.slots_log2,
                   "partitions must stand in order of falling size")  # fmt: skip
            _check(0 <= partition.low_watermark_slots <= partition.slots // 2, f"{key}.low_watermark_slots",
                   partition.low_watermark_slots, "must be at most half of the partition's slots")  # fmt: skip
            _check(0 <= partition.seed < 1 << SEED_BITS, f"{key}.seed", partition.seed,
                   f"must have at most {SEED_BITS} bits")  # fmt: skip

    # Derived sizes.

    @property
    def block_beats(self) -> int:
        return self.block_bytes // self.beat_bytes

    @property
    def bank_rows_per_block(self) -> int:
        return self.block_beats // self.ports

    @property
    def request_beats(self) -> int:
        return -(-REQUEST.size_bytes // self.beat_bytes)

    @property
    def response_beats(self) -> int:
        return -(-32 // self.beat_bytes)

    @property
    def max_match_digests(self) -> int:
        return self.max_payload_bytes // 32

    @property
    def slots(self) -> int:
        """Slots of the whole node."""
        return sum(partition.slots for partition in self.partitions)

    @functools.cached_property
    def slot_bases(self) -> tuple[int, ...]:
        """First physical slot of each partition."""
        bases, base = [], 0
        for partition in self.partitions:
            bases.append(base)
            base += partition.slots
        return tuple(bases)

    @property
    def slot_bits(self) -> int:
        """Bits of a slot number inside the largest partition."""
        return max(partition.slots_log2 for partition in self.partitions)

    @functools.cached_property
    def rows_log2(self) -> tuple[int, ...]:
        """Index rows of each partition in each of the two tables: two entries per slot."""
        ways_log2 = self.ways.bit_length() - 1
        return tuple(partition.slots_log2 - ways_log2 for partition in self.partitions)

    @property
    def index_rows(self) -> int:
        """Rows of each of the two index tables."""
        return self.slots // self.ways

    @property
    def session_bits(self) -> int:
        """Bits of a row of the session table."""
        return (self.sessions - 1).bit_length()

    @property
    def lease_bits(self) -> int:
        """Bits of a row of the lease table."""
        return (self.leases - 1).bit_length()

    @functools.cached_property
    def public_partition(self) -> int | None:
        """The partition that the ports of others may read, if there is one."""
        return next((index for index, partition in enumerate(self.partitions) if partition.public), None)

    @functools.cached_property
    def port_masks(self) -> tuple[int, ...]:
        """The ports of each partition as a mask."""
        return tuple(sum(1 << port for port in partition.ports) for partition in self.partitions)

    @functools.cached_property
    def partition_of_port(self) -> tuple[int, ...]:
        owner = {port: index for index, partition in enumerate(self.partitions) for port in partition.ports}
        return tuple(owner[port] for port in range(self.ports))

    @property
    def sweep_order(self) -> tuple[int, ...]:
        """Partitions in the order of the sweeper's turns: one for each port, so that room is made as fast as it is
        used.
        """
        return self.partition_of_port

    # Dictionaries in and out.

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and strings, complete: `from_dict` gives an equal configuration."""
        data = dataclasses.asdict(self)
        data["partitions"] = [{**p, "ports": list(p["ports"])} for p in data["partitions"]]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "NodeConfig":
        """Configuration of a dictionary; raises ConfigError for unknown or missing keys and wrong types."""
        values = _strict(cls, data, "configuration")
        partitions = values.get("partitions", ())
        if not isinstance(partitions, (list, tuple)):
            raise ConfigError(f"partitions = {partitions!r}: must be a list")
        values["partitions"] = tuple(
            PartitionConfig(**_strict(PartitionConfig, item, f"partitions[{index}]"))
            for index, item in enumerate(partitions)
        )
        return cls(**values)

    def replace(self, **changes: Any) -> "NodeConfig":
        """A copy with some values changed; raises ConfigError as the constructor does."""
        unknown = set(changes) - {f.name for f in dataclasses.fields(self)}
        if unknown:
            raise ConfigError(f"configuration has no key {sorted(unknown)[0]!r}")
        return dataclasses.replace(self, **changes)


def _strict(cls: type, data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ConfigError(f"{where} = {data!r}: must be a mapping")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values = {}
    for key, value in data.items():
        if key not in fields:
            raise ConfigError(f"{where} has no key {key!r}; it has {', '.join(fields)}")
        kind = fields[key].type
        if key == "ports" and cls is PartitionConfig:
            if not isinstance(value, (list, tuple)) or not all(type(port) is int for port in value):
                raise ConfigError(f"{where}.ports = {value!r}: must be a list of port numbers")
            value = tuple(value)
        elif kind is bool and type(value) is not bool:
            raise ConfigError(f"{where}.{key} = {value!r}: must be true or false")
        elif kind is int and type(value) is not int:
            raise ConfigError(f"{where}.{key} = {value!r}: must be a whole number")
        elif kind is str and not isinstance(value, str):
            raise ConfigError(f"{where}.{key} = {value!r}: must be a string")
        values[key] = value
    missing = [
        f.name
        for f in fields.values()
        if f.name not in values and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"{where} lacks {missing[0]!r}")
    return values


def _preset_seed(index: int) -> int:
    """Any constant will do for simulation; a deployment draws its own."""
    return int.from_bytes(hashlib.sha256(b"kvnode preset partition %d" % index).digest(), "little") % (1 << SEED_BITS)


def _partitions(*sizes: tuple[str, tuple[int, ...], int, int]) -> tuple[PartitionConfig, ...]:
    return tuple(
        PartitionConfig(
            ports=ports, slots_log2=slots_log2, low_watermark_slots=low, seed=_preset_seed(index), name=name
        )
        for index, (name, ports, slots_log2, low) in enumerate(sizes)
    )


PRESETS = {
    "tiny": NodeConfig(
        name="tiny",
        ports=2,
        beat_bytes=16,
        block_bytes=128,
        max_payload_bytes=64,
        partitions=_partitions(("a", (1,), 3, 2), ("b", (0,), 2, 1)),
        models=2,
        fill_rows=2,
        leases=4,
        sessions=2,
        ways=2,
        tag_bits=3,
        digest_bits=16,
        generation_bits=3,
        epoch_bits=4,
        boot_epoch_bits=4,
        session_generation_bits=4,
        lease_generation_bits=3,
        tick_cycles_log2=3,
    ),
    "sim": NodeConfig(
        name="sim",
        ports=4,
        beat_bytes=32,
        block_bytes=4096,
        max_payload_bytes=4096,
        partitions=_partitions(("large", (0, 3), 12, 128), ("left", (1,), 11, 64), ("right", (2,), 11, 64)),
    ),
    "wide": NodeConfig(
        name="wide",
        ports=8,
        beat_bytes=64,
        block_bytes=8192,
        max_payload_bytes=4096,
        partitions=_partitions(
            ("large", (0, 2, 4, 6), 12, 128),
            ("middle", (1, 3), 11, 64),
            ("left", (5,), 10, 32),
            ("right", (7,), 10, 32),
        ),
        models=8,
        fill_rows=16,
        sessions=32,
    ),
}


def preset(name: str) -> NodeConfig:
    """A preset by name; raises ConfigError naming the presets there are."""
    if name not in PRESETS:
        raise ConfigError(f"preset {name!r}: there are {', '.join(PRESETS)}")
    return PRESETS[name]
