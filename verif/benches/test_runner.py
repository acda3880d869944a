"""The runner believes no run that shows nothing, and the stream checker finds what breaks a law."""

import inspect
import re
import time
from pathlib import Path

import pytest
from cocotb.triggers import Timer

from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.stream import Sink, StreamViolation, pattern
from kvnode.verif.runner import BenchFailure, run_bench

MODULE = "kvnode.verif.benches.test_runner"

#: A stream whose source counts. `fault` 1: it withdraws valid, 2: it goes on counting, before the item is taken.
DESIGN = """\
module kvnode_bench(input clk, input rst, input [1:0] fault,
                    output reg o_valid, input o_ready, output reg [7:0] o_payload);
  always @(posedge clk)
    if (rst) begin o_valid <= 0; o_payload <= 0; end
    else if (!o_valid) o_valid <= 1;
    else if (o_ready) o_payload <= o_payload + 1;
    else begin
      if (fault == 1 && o_payload == 5) o_valid <= 0;
      if (fault == 2 && o_payload == 5) o_payload <= 9;
    end
endmodule
"""


@bench_test(max_cycles=200)
async def passes(dut):
    bench = Bench(dut)
    sink = Sink(bench, "o_", backpressure=pattern("alternate", 0))
    await bench.start(fault=bench.parameters.get("fault", 0))
    for _ in range(50):
        await bench.step()
    assert [value for (value,) in sink.items] == list(range(len(sink.items))) and len(sink.items) > 20


@bench_test(max_cycles=200)
async def fails(dut):
    await Timer(1, "ns")
    raise AssertionError("this one always fails")


@bench_test(max_cycles=10)
async def takes_too_long(dut):
    bench = Bench(dut)
    await bench.start()
    while True:
        await bench.step()


@bench_test(max_cycles=200)
async def blocks(dut):
    time.sleep(60)


def test_a_run_that_passes_counts_its_tests():
    assert run_bench(DESIGN, MODULE, "passes") == 1


def test_a_name_that_matches_no_test_fails():
    with pytest.raises(BenchFailure, match="no test ran, asked for .*passez"):
        run_bench(DESIGN, MODULE, "passez")


def test_a_name_that_does_not_run_beside_one_that_does_fails():
    with pytest.raises(BenchFailure, match="passe did not run, only .*passes"):
        run_bench(DESIGN, MODULE, ["passes", "passe"])


def test_an_empty_list_of_tests_fails():
    with pytest.raises(BenchFailure, match="is empty"):
        run_bench(DESIGN, MODULE, [])


def test_a_failing_test_fails_with_its_message():
    with pytest.raises(BenchFailure, match=r"fails failed(?s:.*)this one always fails"):
        run_bench(DESIGN, MODULE, ["passes", "fails"])


def test_a_test_that_takes_too_many_cycles_fails():
    with pytest.raises(BenchFailure, match="takes_too_long failed"):
        run_bench(DESIGN, MODULE, "takes_too_long")


def test_a_simulator_that_blocks_is_ended():
    with pytest.raises(BenchFailure, match="ended without results"):
        run_bench(DESIGN, MODULE, "blocks", timeout_s=3)


def test_a_module_that_is_not_there_fails():
    with pytest.raises(BenchFailure, match="kvnode.verif.benches.nothing"):
        run_bench(DESIGN, "kvnode.verif.benches.nothing")


def test_verilog_that_does_not_build_fails_with_the_tools_text():
    with pytest.raises(BenchFailure, match=r"could not be built(?s:.*)syntax error"):
        run_bench("module kvnode_bench(input clk); endmodul", MODULE)


@pytest.mark.long
def test_waves_of_a_failed_run_are_kept_and_named():
    with pytest.raises(BenchFailure, match=r"waves: (\S+)") as failure:
        run_bench(DESIGN, MODULE, ["passes", "fails"], waves=True)
    waves = Path(re.search(r"waves: (\S+)", str(failure.value)).group(1))
    assert "$enddefinitions" in waves.read_text()
    for path in waves.parent.iterdir():
        path.unlink()
    waves.parent.rmdir()


@pytest.mark.parametrize("fault,law", [(1, "valid was withdrawn"), (2, "o_payload changed")])
def test_the_stream_checker_finds_a_broken_law(fault, law):
    with pytest.raises(BenchFailure, match=rf"{StreamViolation.__name__}: stream o in cycle \d+: {law}"):
        run_bench(DESIGN, MODULE, "passes", {"fault": fault})


def test_every_cocotb_test_has_a_limit():
    for path in Path(inspect.getfile(inspect.currentframe())).parent.glob("*.py"):
        for line in path.read_text().splitlines():
            assert not line.startswith("@cocotb."), f"{path.name}: {line}: use bench_test"
