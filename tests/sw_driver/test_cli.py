"""The command: one clear line and exit code 2 for mistakes, only JSON on standard output with --json."""

import json
import re

import pytest

from kvnode.models.spec.config import preset
from kvnode.models.workloads import generate, write_mooncake
from kvnode.sw_driver import benches, cli


def run(capsys, *arguments):
    code = cli.main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "no-such-trace"], "no-such-trace: no such file"),
        (["sim", "--on", "fpga"], "--on 'fpga': there are rtl, golden"),
        (["sim", "--preset", "huge", "--on", "golden"], "preset 'huge': there are tiny, sim, wide"),
        (["sim", "--config", "no-such.yaml", "--on", "golden"], "no-such.yaml: No such file or directory"),
        (["sim", "--requests", "0"], "--requests 0: must be at least 1"),
        (["sim", "--idle", "1"], "--idle 1.0: must be from 0 to below 1"),
        (["sim", "--backpressure", "-0.5"], "--backpressure -0.5: must be from 0 to below 1"),
        (["sim", "--retire-every", "-1"], "--retire-every -1: must be 0 or more"),
        (["sim", "--migrate-percent", "101"], "--migrate-percent 101: must be from 0 to 100"),
        (["sim", "--seed", "-1"], "--seed -1: must be 0 or more"),
        (["sim", "--on", "golden", "--waves"], "--waves: golden has no waveform; use --on rtl"),
        (["sim", "--waves", "--window", "9:3"], "--window '9:3': must be FIRST:LAST, two cycles"),
        (["sim", "--on", "golden", "--block-tokens", "32"], "--block-tokens: the built-in workload has"),
        (["bench", "speed"], f"bench 'speed': there are {', '.join(benches.NAMES)}, all"),
        (["bench", "golden", "--preset", "huge"], "preset 'huge': there are tiny, sim, wide"),
        (["waves", "no-such.vcd"], "no-such.vcd: no such file"),
        (["elaborate", "huge"], "preset 'huge': there are tiny, sim, wide"),
    ],
)
def test_mistake_is_one_line_and_exit_code_2(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"kvnode: {message}") and err.count("\n") == 1


def test_unknown_command_is_exit_code_2(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["dream"])
    assert stopped.value.code == 2


def test_broken_trace_is_named_with_its_line(capsys, tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2]}\nnonsense\n')
    code, out, err = run(capsys, "replay", str(path))
    assert (code, out) == (2, "")
    assert err.startswith("kvnode: broken.jsonl: line 2: ")


def test_blocks_that_do_not_fit_the_trace_are_a_mistake(capsys, tmp_path):
    path = tmp_path / "trace.jsonl"
    write_mooncake(generate(3), path)
    code, _, err = run(capsys, "replay", str(path), "--block-tokens", "100")
    assert code == 2 and "100" in err and err.count("\n") == 1


def test_json_is_all_there_is_on_standard_output(capsys, tmp_path):
    path = tmp_path / "trace.jsonl"
    write_mooncake(generate(8), path)
    code, out, _ = run(capsys, "replay", str(path), "--requests", "5", "--json")
    figures = json.loads(out)
    assert code == 0
    assert (figures["requests"], figures["on"], figures["kind"]) == (5, "golden", "mooncake")
    assert figures["byte_errors"] == figures["lockstep"]["differences"] == 0


def test_table_tells_the_figures(capsys):
    code, out, _ = run(capsys, "sim", "--on", "golden", "--requests", "20")
    assert code == 0
    for text in ("PUT_START", "GRANTED", "block hit rate (infinite cache, LRU)", "peak memory", "0 wrong"):
        assert text in out
    for text in ("sessions opened / closed / expired / refused", "leases granted", "migrations"):
        assert text in out


def test_sessions_are_left_out_where_there_are_none(capsys):
    code, out, _ = run(capsys, "sim", "--on", "golden", "--requests", "20", "--no-sessions")
    assert code == 0 and "sessions" not in out and "SESSION_OPEN" not in out


def test_table_names_the_causes_of_evictions(capsys):
    code, out, _ = run(capsys, "sim", "--on", "golden", "--preset", "tiny", "--requests", "20", "--retire-every", "5")
    assert code == 0
    assert re.search(r"blocks evicted +│ CAPACITY \d+, MODEL \d+ ", out)


def test_share_of_moves_is_an_option(capsys):
    code, out, _ = run(capsys, "sim", "--on", "golden", "--requests", "40", "--migrate-percent", "100", "--json")
    figures = json.loads(out)
    assert code == 0
    assert figures["sessions"]["migrated"] > figures["sessions"]["late"] > 0


def test_configuration_file_is_used(capsys, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("preset: tiny\nname: mine\n")
    code, out, _ = run(capsys, "sim", "--on", "golden", "--requests", "5", "--config", str(path), "--json")
    assert (code, json.loads(out)["preset"]) == (0, "mine")


def test_wrong_node_is_exit_code_1_with_the_notes(capsys, monkeypatch):
    def fail(*arguments, **options):
        error = AssertionError("lockstep difference: status is OK in RTL, MISS in golden")
        error.add_note("waveform of cycles 3 to 9: here.vcd")
        raise error

    monkeypatch.setattr(cli, "open_transport", fail)
    code, out, err = run(capsys, "sim", "--requests", "5")
    assert (code, out) == (1, "")
    assert "status is OK in RTL" in err and "here.vcd" in err


def test_bench_prints_one_object_in_the_agreed_form(capsys):
    code, out, _ = run(capsys, "bench", "golden", "--quick", "--json", "--preset", "wide")
    bench = json.loads(out)
    assert code == 0
    assert (bench["bench"], bench["preset"]) == ("golden", "wide")
    assert all(set(row) == {"metric", "value", "unit", "limit"} for row in bench["rows"])
    assert bench["rows"][0]["metric"] == "ops_per_second" and bench["rows"][0]["value"] > 0


def test_missing_traces_are_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("KVNODE_TRACES", str(tmp_path))
    code, out, err = run(capsys, "bench", "policy", "--quick")
    assert (code, out) == (2, "")
    assert "KVNODE_TRACES" in err and str(tmp_path) in err


def test_default_workload_is_the_generated_one_on_the_preset_sim():
    options = cli._parser().parse_args(["sim"])
    assert (options.on, options.preset, options.trace) == ("rtl", "sim", None)
    assert len(cli._trace(options)) == 300
    assert preset(options.preset).slots >= 4096
