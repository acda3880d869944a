"""Workloads: traces of requests, a generator of our own, and what an ideal cache would make of them.

Third-party import: numpy. Imports nothing else of kvnode. Used by golden, cycle, system, benches and the command line.
"""

from .analysis import Hits, assign_tenants, infinite_hits, lru_hits, opt_hits, sample_blocks
from .corpus import find_trace, traces_folder
from .generator import Parameters, generate, write_mooncake
from .readers import read
from .records import Request, Trace, WorkloadError, coarsen

__all__ = [
    "Hits",
    "Parameters",
    "Request",
    "Trace",
    "WorkloadError",
    "assign_tenants",
    "coarsen",
    "find_trace",
    "generate",
    "infinite_hits",
    "lru_hits",
    "opt_hits",
    "read",
    "sample_blocks",
    "traces_folder",
    "write_mooncake",
]
