"""Nodes to run on: the golden model and the RTL. `open_transport` makes one by name."""

from collections.abc import Callable
from typing import Any

from kvnode.models.spec.config import NodeConfig

from ..errors import TransportError
from ..transport import Transport

NAMES = ("rtl", "golden")


def open_transport(
    name: str, config: NodeConfig, *, progress: Callable[[str], None] = lambda stage: None, **options: Any
) -> Transport:
    """A node of `config` after reset. `progress` is told of the stages of building it; `options` go to the transport.

    Raises TransportError for an unknown name, or when what the transport needs is not installed.
    """
    if name == "golden":
        from .golden import GoldenTransport

        return GoldenTransport(config, options.get("boot_epoch", 0))
    if name == "rtl":
        try:
            from .rtl import BuildError, RtlTransport
        except ImportError as error:
            raise TransportError(f"{error}: the RTL needs pip install 'kvnode[rtl,sim]'") from None
        try:
            return RtlTransport(config, progress=progress, **options)
        except BuildError as error:
            raise TransportError(f"the model of {config.name} could not be built: {error}") from error
    raise TransportError(f"transport {name!r}: there are {', '.join(NAMES)}")
