"""Configuration in, Verilog and a manifest out: `python -m kvnode.rtl.elaborate sim -o build/rtl`."""

import argparse
import json
import pathlib
import sys
import warnings

from amaranth.back import verilog as backend
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from kvnode.models.spec.config import ConfigError, NodeConfig, preset
from kvnode.models.spec.messages import TRACE

from .csr.bank import BUS
from .memory import RAM_VERILOG
from .node.node import Node

TOP = "kvnode_node"


def flat_ports(config: NodeConfig) -> dict[str, int]:
    """Names and widths of the top level's ports beside `clk` and `rst`."""
    data_bits = 8 * config.beat_bytes
    ports = {"boot_epoch": config.boot_epoch_bits} | {f"axi_{name}": bits for name, bits, _ in BUS}
    ports |= {"ports_down": config.ports, "reset_request": 1}
    for number in range(config.ports):
        for side in ("req", "rsp"):
            ports |= {f"p{number}_{side}_{name}": 1 for name in ("valid", "ready", "last")}
            ports[f"p{number}_{side}_data"] = data_bits
    return ports | {"trace_valid": 1, "trace_data": 8 * TRACE.size_bytes}


class Top(wiring.Component):
    """The node behind flat, stably named ports. Used by: verilog."""

    def __init__(self, config: NodeConfig, fault: str | None = None):
        self.config, self.fault = config, fault
        inputs = input_names(config)
        super().__init__({name: (In if name in inputs else Out)(width) for name, width in flat_ports(config).items()})

    def elaborate(self, platform):
        m = Module()
        m.submodules.node = node = Node(self.config, fault=self.fault)
        m.d.comb += [
            node.boot_epoch.eq(self.boot_epoch),
            self.ports_down.eq(node.ports_down),
            self.reset_request.eq(node.reset_request),
            self.trace_valid.eq(node.trace_valid),
            self.trace_data.eq(node.trace),
        ]
        for name, _, driven in BUS:
            inside, outside = getattr(node, f"axi_{name}"), getattr(self, f"axi_{name}")
            m.d.comb += outside.eq(inside) if driven else inside.eq(outside)
        for number in range(self.config.ports):
            for side, port, forward in (("req", node.req[number], True), ("rsp", node.rsp[number], False)):
                flat = {name: getattr(self, f"p{number}_{side}_{name}") for name in ("valid", "ready", "data", "last")}
                pairs = [(port.valid, flat["valid"]), (port.p.data, flat["data"]), (port.p.last, flat["last"])]
                backward = [(flat["ready"], port.ready)]
                for target, source in pairs + backward if forward else [(b, a) for a, b in pairs + backward]:
                    m.d.comb += target.eq(source)
        return m


def verilog(config: NodeConfig, fault: str | None = None) -> str:
    """Verilog of a node with top module `kvnode_node`; `fault` seeds one of node.FAULTS. A warning is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = backend.convert(Top(config, fault), name=TOP, emit_src=False)
    return RAM_VERILOG + text


def input_names(config: NodeConfig) -> set[str]:
    """Those of `flat_ports` that are inputs."""
    names = {"boot_epoch"} | {f"axi_{name}" for name, _, driven in BUS if not driven}
    for number in range(config.ports):
        names |= {f"p{number}_req_{name}" for name in ("valid", "data", "last")} | {f"p{number}_rsp_ready"}
    return names


def manifest(config: NodeConfig) -> dict:
    """What a user of the Verilog needs beside it: the configuration, the ports with their widths, the RAM module."""
    inputs = input_names(config)
    return {
        "top": TOP,
        "config": config.to_dict(),
        "clock": "clk",
        "reset": "rst (synchronous, active high)",
        "ports": [
            {"name": name, "bits": bits, "direction": "in" if name in inputs else "out"}
            for name, bits in flat_ports(config).items()
        ],
        "memory_module": "kvnode_ram",
    }


def main(arguments: list[str] | None = None) -> int:
    """Command line: writes OUT/kvnode_node.v and OUT/kvnode_node.json; returns the exit code."""
    parser = argparse.ArgumentParser(prog="kvnode elaborate", description="Verilog and manifest of a preset")
    parser.add_argument("preset")
    parser.add_argument("-o", "--out", default="build/rtl", help="folder to write to (default build/rtl)")
    options = parser.parse_args(arguments)
    try:
        config = preset(options.preset)
    except ConfigError as error:
        print(f"kvnode elaborate: {error}", file=sys.stderr)
        return 2
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{TOP}.v").write_text(verilog(config))
    (out / f"{TOP}.json").write_text(json.dumps(manifest(config), indent=2) + "\n")
    print(f"{out / TOP}.v\n{out / TOP}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
