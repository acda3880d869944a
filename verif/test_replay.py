"""Traces on the RTL: every operation in lockstep, every byte checked, and seeded faults that do not get through."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from kvnode.models.golden import Difference
from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.config import preset
from kvnode.models.spec.node_registers import PARTITION_FREE_SLOTS_ADDRESS, PARTITION_STRIDE_BYTES
from kvnode.models.workloads import find_trace, generate, read, traces_folder
from kvnode.sw_driver import cli
from kvnode.sw_driver.replay import DataMismatch, Replay
from kvnode.sw_driver.transports.rtl import RtlTransport
from kvnode.sw_driver.waves import transactions

#: Traces by the beginning of their name, and the tokens of a block: sessions in groups of eight.
TRACES = {"mooncake_conversation": None, "claude_code_v8": cli.SESSION_BLOCK_TOKENS, "agent": cli.SESSION_BLOCK_TOKENS}
WRONG_BYTES = re.compile(
    r"request \d+, port [01]: READ of block [0-9a-f]{64} .* answered OK with \d+ bytes in cycles \d+ to (\d+); "
    r"byte \d+ is the first that differs"
)
CYCLES_AROUND = re.compile(r"waveform of cycles (\d+) to (\d+): (\S+\.vcd)")


@pytest.fixture(scope="module")
def sim():
    """One node of the preset sim, in lockstep."""
    with RtlTransport(preset("sim")) as transport:
        yield transport


def real_trace(name, requests):
    """The first requests of a real trace. Where it is missing, a run with `CI` set fails and any other skips."""
    path = find_trace(name)
    if path is None:
        reason = f"no trace {name}* in {traces_folder()}; set KVNODE_TRACES to the folder of traces"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return read(path, requests, block_tokens=TRACES[name])


def replay(transport, trace, **options):
    """Replay from reset; the report's own sums must fit together."""
    transport.reset()
    report = Replay(transport, trace, **options).run()
    assert report.requests == len(trace)
    assert report.lockstep_operations == transport.lockstep.operations >= sum(report.messages.values()) / 2
    assert report.bytes_checked == report.blocks_read * transport.config.block_bytes
    assert {status for opcode, status in report.messages if opcode == "READ"} <= {"OK"}
    return report


def test_generated_workload_differs_nowhere(sim):
    report = replay(sim, generate(60))
    figures = report.to_dict()
    assert figures["lockstep"]["differences"] == figures["byte_errors"] == 0
    assert report.blocks_read > 100
    assert report.messages["LOOKUP", "HIT"] + report.messages["LOOKUP", "MISS"] == 60


def test_generated_workload_under_idle_backpressure_and_retired_models(sim):
    report = replay(sim, generate(40), idle=0.1, backpressure=0.3, retire_every=7)
    assert report.models_retired == 5
    assert report.blocks_read > 0


def test_moved_conversations_wait_for_the_block_on_its_way(sim):
    report = replay(sim, generate(60), migrate_percent=40)
    assert report.sessions["migrated"] > report.sessions["late"] > 0
    assert report.waits and min(report.waits) > 0 and report.waited_out == 0
    assert report.leases["granted"] == report.leases["released"] > 0
    plain = replay(sim, generate(60), sessions=False)
    assert report.blocks_read == plain.blocks_read
    assert not plain.waits and plain.sessions["opened"] == 0


def test_every_block_that_left_is_counted_under_its_cause():
    config = preset("tiny")
    with RtlTransport(config) as transport:
        report = Replay(transport, generate(60), retire_every=7).run()
        transport.wait(20_000)
        rest = transport.run(np.zeros(0, BATCH_DTYPE)).trace
        free = [
            transport.read_register(PARTITION_FREE_SLOTS_ADDRESS + number * PARTITION_STRIDE_BYTES)
            for number in range(len(config.partitions))
        ]
    assert rest is not None
    assert {"CAPACITY", "MODEL"} <= set(report.to_dict()["evictions"])
    left = sum(report.causes.values()) + np.count_nonzero(rest["cause"])
    assert left == report.messages["PUT_START", "GRANTED"] - (config.slots - sum(free))


@pytest.mark.parametrize("name", TRACES)
def test_slice_of_a_real_trace_differs_nowhere(sim, name):
    assert replay(sim, real_trace(name, 25)).blocks_asked > 0


@pytest.mark.long
@pytest.mark.parametrize("name", TRACES)
def test_thousand_requests_of_a_real_trace_differ_nowhere(sim, name):
    assert replay(sim, real_trace(name, 1_000)).blocks_read > 0


@pytest.mark.long
def test_waveform_of_a_replay_lists_all_of_its_messages(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    asked = ["sim", "--preset", "tiny", "--requests", "3", "--waves", "--window", "0:1000000", "--json"]
    assert cli.main(asked) == 0
    captured = capsys.readouterr()
    assert "kvnode waves kvnode.vcd lists it" in " ".join(captured.err.split())
    sent = {
        opcode: sum(count for status, count in statuses.items() if status != "SKIPPED")
        for opcode, statuses in json.loads(captured.out)["operations"].items()
    }
    listed = transactions(Path("kvnode.vcd"))
    for opcode, count in sent.items():
        assert sum(item.direction == "req" and item.what == opcode for item in listed) == count
        assert sum(item.direction == "rsp" and item.what.endswith(f" {opcode}") for item in listed) == count
    assert cli.main(["waves", "kvnode.vcd"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(listed) + 1


@pytest.mark.parametrize("fault", [
    "index_compare",
    *(pytest.param(fault, marks=pytest.mark.long) for fault in ("transition", "watermark", "rotator")),
])  # fmt: skip
def test_seeded_fault_is_named_and_its_cycles_are_written(fault, tmp_path):
    # Built with waves from the start: one model serves the replay and the waveform.
    unused = tmp_path / "unused.vcd"
    with RtlTransport(preset("tiny"), fault=fault, waves=unused, window=(0, 0), optimise=False) as transport:
        with pytest.raises((Difference, DataMismatch)) as caught:
            for seed in range(5):
                Replay(transport, generate(30, seed=seed), seed=seed).run()
    message = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    first, last, path = CYCLES_AROUND.findall(message)[0]
    if fault == "rotator":
        (cycle,) = map(int, WRONG_BYTES.findall(message))
    else:
        assert isinstance(caught.value, Difference)
        cycle = caught.value.record["cycle"]
    assert int(first) <= cycle <= int(last)
    shown = transactions(Path(path))
    assert shown and min(item.cycle for item in shown) >= int(first)
    assert any(abs(item.cycle - cycle) < 200 for item in shown)
