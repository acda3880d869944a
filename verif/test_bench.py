"""The promises of the wheel, in cycles: the benches' short runs against the limits that the design gives."""

import pytest

from kvnode.sw_driver import benches


def test_every_turn_of_the_directory_is_used_and_latency_is_one_constant():
    bench = benches.run("directory", quick=True)
    assert bench.value("ops_per_cycle_donate") == 1
    assert bench.value("turns_used_strict") == 1
    assert bench.value("match_digests_per_turn") == 1
    assert bench.value("lookup_latency_spread_cycles") == 0


@pytest.mark.long
def test_the_store_loses_nothing_but_headers():
    bench = benches.run("store", quick=True)
    for metric in ("read_4KiB", "read_64KiB", "read_64KiB_same_block", "read_64KiB_one_port"):
        beats = 128 if "4KiB" in metric and "64" not in metric else 2048
        assert bench.value(metric) == pytest.approx(beats / (beats + 1), abs=2e-4), metric
    assert bench.value("read_64KiB_while_writing") >= 0.99
    assert bench.value("write_64KiB_while_reading") >= 0.99
    # Runs that go on at the bank where the one before ended, and runs that wait for a lap each.
    assert bench.value("read_64KiB_runs_of_8_every_16") >= 0.99
    assert bench.value("read_64KiB_runs_of_1_every_8") == pytest.approx(1 / 4, abs=0.01)


@pytest.mark.long
def test_a_full_index_refuses_nothing_on_the_rtl():
    bench = benches.run("index", quick=True)
    assert bench.value("refused_per_million_rtl") == 0
    assert bench.value("index_bits_per_slot") <= 128


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "zero", "some"),
    [
        ("migration", ("wrong_reads", "incomplete_sets", "late_writes_accepted"), ("moves", "reads", "late_writes")),
        ("members", ("wrong_bytes", "broken_blocks_read", "match_disagreements"), ("pairs", "bytes", "match_pairs")),
        ("leaks", ("leaked",), ("operations", "deaths", "messages_lost")),
        (
            "isolation",
            ("differences_strict", "denied_latency_minus_miss", "old_epoch_latency_minus_miss"),
            ("pairs", "cycles", "differences_donate"),
        ),
    ],
)
def test_what_must_not_happen_does_not(name, zero, some):
    bench = benches.run(name, quick=True)
    assert [metric for metric in zero if bench.value(metric)] == []
    assert [metric for metric in some if not bench.value(metric)] == []
