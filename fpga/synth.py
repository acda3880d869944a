"""`kvnode synth`: how large a block is on an ECP5, and how fast.

Used by: kvnode.sw_driver.cli.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvnode.models.spec.config import NodeConfig, PartitionConfig
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES

from .flow import Area, Speed, place, synthesise, verilog

BUILD = Path(__file__).resolve().parents[1] / "build" / "synth"
TARGET_MHZ = 110.0


@dataclass(frozen=True)
class Block:
    """A block by itself: how it is made, and the cycles from a question to its answer (0: it has none)."""

    make: Callable[[NodeConfig], Any]
    latency_cycles: int = 0


def _directory(config: NodeConfig) -> Any:
    from kvnode.rtl.node.directory import Directory

    return Directory(config)


def _store(config: NodeConfig) -> Any:
    from kvnode.rtl.node.store import Store

    return Store(config)


def _node(config: NodeConfig) -> Any:
    from kvnode.rtl.elaborate import Top

    return Top(config)


def _index(config: NodeConfig) -> Any:
    from kvnode.rtl.node.index import Index

    return Index(config)


def _port(config: NodeConfig) -> Any:
    from kvnode.rtl.node.port import Port

    return Port(config, 0)


def _sweeper(config: NodeConfig) -> Any:
    from kvnode.rtl.node.sweeper import Sweeper

    return Sweeper(config)


def _management(config: NodeConfig) -> Any:
    from kvnode.rtl.node.management import Management

    return Management(config)


BLOCKS = {
    "directory": Block(_directory, DIRECTORY_LATENCY_CYCLES),
    "store": Block(_store, 3),
    "node": Block(_node),
    "index": Block(_index),
    "port": Block(_port),
    "sweeper": Block(_sweeper),
    "management": Block(_management),
}


def sized(config: NodeConfig, ports: int, slots: int) -> NodeConfig:
    """A configuration with other numbers of ports and of slots: one partition for each port, of equal size.

    Raises ConfigError for what no node can have.
    """
    each = (slots // ports).bit_length() - 1
    first = config.partitions[0]
    parts = tuple(
        PartitionConfig(
            name=f"p{number}", ports=(number,), slots_log2=each, low_watermark_slots=max(1, (1 << each) // 16),
            seed=config.partitions[number % len(config.partitions)].seed, fill_deadline_ticks=first.fill_deadline_ticks,
            lease_ticks=first.lease_ticks,
        )
        for number in range(ports)
    )  # fmt: skip
    return config.replace(ports=ports, partitions=parts, name=f"{config.name}-{ports}x{slots}")


def measure(
    name: str, config: NodeConfig, seeds: tuple[int, ...] = (1,), progress: Callable[[str], None] = lambda text: None
) -> tuple[Area, list[Speed]]:
    """Area and, for each seed of the placement, speed of a block. Raises FlowError, and KeyError for another name."""
    block = BLOCKS[name]
    folder = BUILD / f"{config.name}"
    progress("synthesis")
    area = synthesise(verilog(block.make(config), name), name, folder)
    speeds = []
    for seed in seeds:
        progress(f"placement, seed {seed}")
        speeds.append(place(name, folder, TARGET_MHZ, seed))
    return area, speeds
