"""The flow to an ECP5, on a store that is small enough for a test."""

import json

import pytest

from kvnode.fpga.flow import FlowError, synthesise
from kvnode.sw_driver.cli import USER_ERROR, main


def test_a_store_is_measured(capsys):
    assert main(["synth", "store", "--preset", "tiny", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    figures = {row["metric"]: row["value"] for row in told["rows"]}
    assert told["bench"] == "synth store" and told["preset"] == "tiny"
    # Two banks of 128 bits, in rows of 36.
    assert 6 <= figures["bram"] <= 8 and figures["latency_cycles"] == 3
    assert 2 * 128 < figures["ff"] < 2000 and 0 < figures["lut"] < 2000
    assert 30 < figures["fmax_mhz"] < 400


def test_another_block_is_refused(capsys):
    assert main(["synth", "shop"]) == USER_ERROR
    assert "synth 'shop': there are directory, store," in capsys.readouterr().err


def test_a_tool_that_refuses_is_quoted(tmp_path):
    with pytest.raises(FlowError, match="syntax error"):
        synthesise("module top(input a; endmodule", "top", tmp_path)
