"""The README is true: its examples run, the commands that it names exist, and its run is what the workload gives."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from kvnode.models.spec.config import PRESETS, preset
from kvnode.models.workloads import generate
from kvnode.sw_driver import benches, cli
from kvnode.sw_driver.replay import Replay
from kvnode.sw_driver.transports import open_transport

CHECKOUT = Path(__file__).resolve().parents[1]
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (CHECKOUT / "Makefile").read_text(encoding="utf-8")


def blocks(language, text=README):
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands(text=README):
    """The shell commands in the console blocks, without prompt and comment."""
    lines = [line for block in blocks("console", text) for line in block.splitlines()]
    return [line[2:].split("  #")[0].strip() for line in lines if line.startswith("$ ")]


def named(word, text=README):
    """What follows `word` in commands and in code spans: `make sim` gives sim."""
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    calls = [call.split() for call in [*commands(text), *spans]]
    return {call[1] for call in calls if call[:1] == [word] and len(call) > 1}


def table(first_column, text=README):
    """The code spans in the first column of the table with this heading."""
    rows = text.split(f"| {first_column} |", 1)[1].split("\n\n", 1)[0]
    return re.findall(r"^\| `([^`]+)` \|", rows, flags=re.MULTILINE)


def test_python_examples_run():
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    text = "\n".join(blocks("python"))
    result = runner.run(parser.get_doctest(text, {}, "README.md", "README.md", 0))
    assert result.attempted == text.count(">>> ") and result.attempted >= 15
    assert result.failed == 0


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", MAKEFILE, flags=re.MULTILINE))
    assert named("make") >= {"sim", "test", "setup", "verif"}
    assert named("make") - targets == set()


def test_options_of_make_sim_are_the_makefiles():
    (recipe,) = re.findall(r"^sim:.*\n\t(.*)$", MAKEFILE, flags=re.MULTILINE)
    assert {option.split("=")[0] for option in table("option")} == set(re.findall(r"\$\(if \$\((\w+)\)", recipe))


@pytest.mark.parametrize("command", [command for command in commands() if command.startswith("kvnode ")])
def test_kvnode_commands_are_understood(command):
    options = cli._parser().parse_args(shlex.split(command)[1:])
    assert getattr(options, "preset", None) in (None, *PRESETS)
    assert getattr(options, "name", "all") in (*benches.NAMES, "all")


def test_every_subcommand_is_in_the_readme(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    subcommands = set(re.findall(r"^    (\w+)", capsys.readouterr().out, flags=re.MULTILINE))
    assert subcommands and named("kvnode") == subcommands


def test_every_bench_is_in_the_readme():
    assert tuple(table("bench")) == benches.NAMES


def test_run_shown_is_the_built_in_workload():
    shown = next(block for block in blocks("") if "┃ operation " in block)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if line.startswith("│")]
    counts, opcode = {}, ""
    for row in rows:
        if len(row) == 3:
            opcode = row[0] or opcode
            counts[opcode, row[1]] = int(row[2].replace(",", ""))
    trace = generate(cli.DEFAULT_REQUESTS)
    report = Replay(open_transport("golden", preset("sim")), trace, seed=1).run()
    assert counts == dict(report.messages)
    figures = {row[0]: row[1] for row in rows if len(row) == 2}
    assert figures["requests"] == str(report.requests)
    asked = f"{report.blocks_asked:,} / {report.blocks_matched:,} / {report.blocks_read:,}"
    assert figures["blocks asked / matched / read"] == asked
    assert figures["beats read / written"] == f"{report.read_beats:,} / {report.write_beats:,}"
    assert figures["bytes read and checked"] == f"{report.bytes_checked:,}, 0 wrong"
    assert figures["operations checked in lockstep"].endswith(", 0 differences")


def test_command_that_does_not_exist_is_found():
    text = "`make dream` and\n```console\n$ kvnode dream  # no\n```\n"
    assert (named("make", text), named("kvnode", text)) == ({"dream"}, {"dream"})
