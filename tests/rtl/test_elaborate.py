"""The top level: its flat ports, its manifest, and the Verilog that comes out."""

import gc
import json
import re

import pytest
from amaranth.lib.wiring import In

from kvnode.models.spec.config import NodeConfig, preset
from kvnode.rtl.elaborate import Top, flat_ports, input_names, main, manifest, verilog

pytestmark = pytest.mark.filterwarnings("ignore::amaranth.hdl.UnusedElaboratable")

TINY = preset("tiny")
#: Names, widths and directions of the ports of tiny: 2 ports of 16 bytes.
TINY_PORTS = {
    "boot_epoch": (4, "in"), "ports_down": (2, "out"), "reset_request": (1, "out"),
    "axi_awvalid": (1, "in"), "axi_awready": (1, "out"), "axi_awaddr": (16, "in"), "axi_awprot": (3, "in"),
    "axi_wvalid": (1, "in"), "axi_wready": (1, "out"), "axi_wdata": (32, "in"), "axi_wstrb": (4, "in"),
    "axi_bvalid": (1, "out"), "axi_bready": (1, "in"), "axi_bresp": (2, "out"),
    "axi_arvalid": (1, "in"), "axi_arready": (1, "out"), "axi_araddr": (16, "in"), "axi_arprot": (3, "in"),
    "axi_rvalid": (1, "out"), "axi_rready": (1, "in"), "axi_rdata": (32, "out"), "axi_rresp": (2, "out"),
    "p0_req_valid": (1, "in"), "p0_req_ready": (1, "out"), "p0_req_last": (1, "in"), "p0_req_data": (128, "in"),
    "p0_rsp_valid": (1, "out"), "p0_rsp_ready": (1, "in"), "p0_rsp_last": (1, "out"), "p0_rsp_data": (128, "out"),
    "p1_req_valid": (1, "in"), "p1_req_ready": (1, "out"), "p1_req_last": (1, "in"), "p1_req_data": (128, "in"),
    "p1_rsp_valid": (1, "out"), "p1_rsp_ready": (1, "in"), "p1_rsp_last": (1, "out"), "p1_rsp_data": (128, "out"),
    "trace_valid": (1, "out"), "trace_data": (1640, "out"),
}  # fmt: skip


@pytest.fixture(scope="module")
def tiny_verilog():
    """Verilog of tiny; `verilog` raises where Amaranth warns, so what other tests left behind goes first."""
    gc.collect()
    return verilog(TINY)


def test_ports_of_tiny_are_those_written_down():
    inputs = input_names(TINY)
    assert {n: (bits, "in" if n in inputs else "out") for n, bits in flat_ports(TINY).items()} == TINY_PORTS


@pytest.mark.parametrize("name", ["tiny", "sim", "wide"])
def test_every_input_is_a_port_and_half_of_each_stream_is_one(name):
    config = preset(name)
    ports, inputs = flat_ports(config), input_names(config)
    assert inputs <= set(ports)
    # The boot epoch, the register bus, the two that say what a node does to its ports, messages, the trace.
    assert len(ports) == 1 + 19 + 2 + 8 * config.ports + 2
    assert len(inputs) == 1 + 11 + 4 * config.ports


@pytest.mark.parametrize("name", ["tiny", "sim", "wide"])
def test_manifest_tells_the_ports_and_the_configuration(name):
    config = preset(name)
    told = json.loads(json.dumps(manifest(config)))
    assert NodeConfig.from_dict(told["config"]) == config
    ports = {port["name"]: port for port in told["ports"]}
    assert {n: port["bits"] for n, port in ports.items()} == flat_ports(config)
    assert {n for n, port in ports.items() if port["direction"] == "in"} == input_names(config)
    assert (told["top"], told["clock"], told["memory_module"]) == ("kvnode_node", "clk", "kvnode_ram")


def test_component_has_the_ports_of_the_list():
    members = dict(Top(TINY).signature.members)
    assert {n: (m.shape, "in" if m.flow == In else "out") for n, m in members.items()} == TINY_PORTS


def test_verilog_declares_the_ports_of_the_list(tiny_verilog):
    text = tiny_verilog[tiny_verilog.index("module kvnode_node(") :]
    text = text[: text.index("endmodule")]
    declared = {
        name: (int(high or 0) + 1, direction)
        for direction, high, name in re.findall(r"^  (in|out)put (?:\[(\d+):0\] )?(\w+);$", text, re.M)
    }
    assert declared == TINY_PORTS | {"clk": (1, "in"), "rst": (1, "in")}


def test_verilog_has_the_memory_module_and_one_top(tiny_verilog):
    assert tiny_verilog.startswith("module kvnode_ram ")
    assert len(re.findall(r"^module kvnode_node\(", tiny_verilog, re.M)) == 1
    assert "kvnode_ram #(" in tiny_verilog


def test_verilog_names_no_file(tiny_verilog):
    assert "src =" not in tiny_verilog and ".py" not in tiny_verilog


def test_command_writes_verilog_and_manifest(tmp_path, monkeypatch, tiny_verilog, capsys):
    monkeypatch.setattr("kvnode.rtl.elaborate.verilog", lambda config: tiny_verilog)
    assert main(["tiny", "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "kvnode_node.v").read_text() == tiny_verilog
    assert json.loads((tmp_path / "out" / "kvnode_node.json").read_text()) == manifest(TINY)
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "out" / "kvnode_node.v"),
        str(tmp_path / "out" / "kvnode_node.json"),
    ]


def test_command_names_an_unknown_preset(tmp_path, capsys):
    assert main(["huge", "-o", str(tmp_path)]) == 2
    assert "kvnode elaborate: preset 'huge': there are tiny, sim, wide" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
