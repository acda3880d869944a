"""Configurations of the benches, by name: the presets, `quad`, and `quad_public` in which one partition is public.

Used by: the benches, on both sides of the simulator.
"""

import dataclasses

from kvnode.models.spec.config import NodeConfig, PartitionConfig, preset

__all__ = ["config_of"]

#: Four ports, three partitions of three sizes, one with two ports; three laps of the banks to a block; narrow tags;
#: numbers of sessions and leases that come back soon, and short deadlines.
QUAD = NodeConfig(
    name="quad",
    ports=4,
    beat_bytes=8,
    block_bytes=96,
    max_payload_bytes=64,
    partitions=(
        PartitionConfig(
            ports=(2, 0), slots_log2=4, low_watermark_slots=3, seed=0x0123456789ABCDEF02468ACE13579BDF,
            reserve_slots=1, fill_deadline_ticks=300, lease_ticks=100,
        ),
        PartitionConfig(
            ports=(3,), slots_log2=3, low_watermark_slots=2, seed=0xFEDCBA98765432100F1E2D3C4B5A6978, block_ttl=1,
        ),
        PartitionConfig(ports=(1,), slots_log2=2, low_watermark_slots=1, seed=0x55AA33CC0FF01E2D3C4B5A6978879605),
    ),
    models=4,
    fill_rows=4,
    leases=8,
    sessions=4,
    ways=4,
    tag_bits=5,
    digest_bits=64,
    generation_bits=4,
    epoch_bits=5,
    boot_epoch_bits=6,
    session_generation_bits=3,
    lease_generation_bits=4,
    tick_cycles_log2=3,
)  # fmt: skip
#: The partition in the middle, which has others on both sides.
PUBLIC = 1


def config_of(name: str) -> NodeConfig:
    """A preset, `quad` or `quad_public`, or one of them with `_donate` behind its name."""
    plain = name.removesuffix("_donate")
    config = QUAD if plain.startswith("quad") else preset(plain)
    if plain == "quad_public":
        partitions = list(config.partitions)
        partitions[PUBLIC] = dataclasses.replace(partitions[PUBLIC], public=True)
        config = config.replace(partitions=tuple(partitions))
    return config if plain == name else config.replace(sharing="donate")
