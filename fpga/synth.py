"""`kvnode synth`: how large a block is on an ECP5, and how fast.

Used by: kvnode.sw_driver.synth.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvnode.models.spec.config import ConfigError, NodeConfig
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES
from kvnode.rtl.elaborate import Top
from kvnode.rtl.node.directory import Directory
from kvnode.rtl.node.index import Index
from kvnode.rtl.node.management import Management
from kvnode.rtl.node.port import Port
from kvnode.rtl.node.store import Store
from kvnode.rtl.node.sweeper import Sweeper

from .flow import Area, Speed, place, synthesise, verilog

BUILD = Path(__file__).resolve().parents[1] / "build" / "synth"
TARGET_MHZ = 110.0


@dataclass(frozen=True)
class Block:
    """A block by itself: how it is made, and the cycles from a question to its answer (0: it has none)."""

    make: Callable[[NodeConfig], Any]
    latency_cycles: int = 0


BLOCKS = {
    "directory": Block(Directory, DIRECTORY_LATENCY_CYCLES),
    "store": Block(Store, 3),
    "node": Block(Top),
    "index": Block(Index),
    "port": Block(lambda config: Port(config, 0)),
    "sweeper": Block(Sweeper),
    "management": Block(Management),
}


def sized(config: NodeConfig, ports: int, slots: int) -> NodeConfig:
    """A configuration with other numbers of ports and of slots: one partition for each port, of equal size.

    Raises ConfigError for what no node can have.
    """
    each = max(0, (slots // max(1, ports)).bit_length() - 1)
    if ports < 1 or ports << each != slots:
        raise ConfigError(f"slots = {slots}: must be a power of two for each of {ports} ports")
    parts = tuple(
        dataclasses.replace(
            config.partitions[number % len(config.partitions)], name=f"p{number}", ports=(number,), slots_log2=each,
            low_watermark_slots=max(1, (1 << each) // 16),
        )
        for number in range(ports)
    )  # fmt: skip
    return config.replace(ports=ports, partitions=parts, name=f"{config.name}-{ports}x{slots}")


def measure(
    name: str, config: NodeConfig, seeds: tuple[int, ...] = (1,), progress: Callable[[str], None] = lambda text: None
) -> tuple[Area, list[Speed]]:
    """Area and, for each seed of the placement, speed of a block. Raises FlowError, and KeyError for another name."""
    block = BLOCKS[name]
    folder = BUILD / config.name
    progress("synthesis")
    area = synthesise(verilog(block.make(config), name), name, folder)
    speeds = []
    for seed in seeds:
        progress(f"placement, seed {seed}")
        speeds.append(place(name, folder, TARGET_MHZ, seed))
    return area, speeds
