"""Which block a part of the netlist belongs to, and how many mutants each block gets.

Used by: netlist, report.
"""

import math
from collections.abc import Mapping

#: Blocks by the names of their instances; a part without such a name belongs to the one that it is in.
BLOCK_OF_INSTANCE = {
    "node": "node",
    "wheel": "wheel",
    "directory": "directory",
    "index": "index",
    "blocks": "block_table",
    "fills": "fill_table",
    "free": "partitions",
    "queues": "partitions",
    "settings": "settings",
    "sessions": "sessions",
    "leases": "leases",
    "coherence": "coherence",
    "beside": "memory",
    "store": "store",
    "sweeper": "sweeper",
    "management": "management",
    "bank": "register_bank",
    "events": "events",
    "counters": "counters",
    "histogram": "counters",
    "port0": "port",
    "port1": "port",
    "check": "request_check",
    "reader": "transfer",
    "writer": "transfer",
    "walk": "match_walk",
    "responder": "responder",
    "payload": "stream",
    "answers": "stream",
    "landings": "stream",
    "beats": "stream",
    "lane": "crc",
    "shift": "crc",
}
#: A block with few cells gets at least so many mutants, that its score means something.
LEAST = 8


def block_of(module: str) -> str:
    """The block of a module, which is named by its path (`kvnode_node.node.port0.check`)."""
    for name in reversed(module.split(".")):
        if name in BLOCK_OF_INSTANCE:
            return BLOCK_OF_INSTANCE[name]
    raise ValueError(f"module {module!r} belongs to no block that is known")


def quotas(cells: Mapping[str, int], count: int) -> dict[str, int]:
    """Mutants of each module, `count` or some more in all.

    `cells`: the cells of each module. A block's share grows with the root of its cells; within a block the modules
    share by their cells, and each gets at least one.
    """
    blocks: dict[str, int] = {}
    for module, number in cells.items():
        blocks[block_of(module)] = blocks.get(block_of(module), 0) + number
    weight = sum(math.sqrt(number) for number in blocks.values())
    share = {block: max(LEAST, math.ceil(count * math.sqrt(number) / weight)) for block, number in blocks.items()}
    return {
        module: max(1, round(share[block_of(module)] * number / blocks[block_of(module)]))
        for module, number in cells.items()
        if number
    }
