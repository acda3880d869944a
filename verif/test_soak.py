"""The soak: rounds that can be repeated one by one, and failures that name theirs."""

import json
from typing import Any

import pytest

from kvnode.models.spec.config import preset
from kvnode.sw_driver import cli, soak


def test_a_round_is_the_same_whatever_came_before_it():
    both = soak.run(1 << 40, seed=5, configs=[preset("tiny")], progress=stop_before_round(2))
    second = soak.run(1, seed=5, configs=[preset("tiny")], first_round=1)
    first = soak.run(1, seed=5, configs=[preset("tiny")])
    assert (both.rounds, second.rounds, second.next_round) == (2, 1, 2)
    assert both.operations == first.operations + second.operations and both.cycles == first.cycles + second.cycles
    assert both.failures == second.failures == []


def stop_before_round(number):
    def progress(text):
        if text.startswith(f"round {number},"):
            raise KeyboardInterrupt

    return progress


def test_the_command_prints_the_figures(capsys):
    assert cli.main(["soak", "--ops", "1", "--seed", "3", "--preset", "tiny", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["operations"] > 1000 and figures["rounds"] == figures["next_round"] == 1
    assert figures["differences"] == figures["hangs"] == 0 and figures["failures"] == []
    assert cli.main(["soak", "--ops", "0"]) == 2
    assert "--ops 0: must be at least 1" in capsys.readouterr().err


@pytest.mark.long
def test_a_failure_names_the_round_that_repeats_it():
    options: dict[str, Any] = {"configs": [preset("tiny")], "fault": "watermark", "optimise": False}
    found = soak.run(1_000_000, seed=1, **options)
    (failure,) = found.failures
    assert (found.differences, found.hangs) == (1, 0) and found.next_round == failure.round
    assert "landed is " in failure.message
    assert failure.command == f"kvnode soak --ops 1 --seed 1 --first-round {failure.round} --preset tiny"
    (again,) = soak.run(1, seed=1, first_round=failure.round, **options).failures
    assert again == failure


def test_a_hang_is_counted_and_named(monkeypatch):
    from kvnode.verif.harness.harness import HarnessStall

    def play(*arguments):
        raise HarnessStall("no end after 10 cycles", None, 0, 0, 0, 0, 10)  # type: ignore[arg-type]

    monkeypatch.setattr(soak, "play", play)
    report = soak.run(1, configs=[preset("tiny")], first_round=7)
    assert (report.hangs, report.differences, report.next_round, report.rounds) == (1, 0, 7, 0)
    assert report.failures[0].message == "HarnessStall: no end after 10 cycles"
