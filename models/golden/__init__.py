"""The node untimed and exact, usable alone as a library: `from kvnode.models.golden import GoldenNode`."""

from .lockstep import Difference, Lockstep
from .node import Answer, GoldenNode

__all__ = ["Answer", "Difference", "GoldenNode", "Lockstep"]
