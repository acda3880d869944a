import csv
import gzip

import numpy as np
import pytest

from kvnode.models.workloads import WorkloadError, read

RATES = "client,window_start_s,rate_rps,iat_cv,iat_dist,p1,p2\n"
LENGTHS = (
    "client,window_start_s,in_mean,in_p50,in_p95,in_p99,out_mean,out_p50,out_p95,out_p99,reason_ratio_mean\n"
    "3,0,900,800.0,2000.0,4000.0,100,90.0,300.0,500.0,\n"
    "5,0,0.0,,,,0.0,,,,\n"
)


def pair(tmp_path, rates, lengths=LENGTHS):
    (tmp_path / "x_rates_day0.csv").write_text(RATES + rates)
    (tmp_path / "x_lengths_day0.csv").write_text(lengths)
    return tmp_path / "x_rates_day0.csv"


def test_rates_and_lengths_are_those_of_the_rows(tmp_path):
    trace = read(pair(tmp_path, "3,1200,8.0,1.5,Gamma,1,1\n3,1800,4.0,1.0,Gamma,1,1\n5,1200,9.0,1,Gamma,1,1\n"))
    times = np.array([request.time_s for request in trace.requests])
    assert (np.diff(times) >= 0).all()
    assert (times < 600).sum() == pytest.approx(4800, rel=0.06)
    assert (times >= 600).sum() == pytest.approx(2400, rel=0.08)
    lengths = [request.input_tokens for request in trace.requests]
    assert np.percentile(lengths, (50, 95, 99)) == pytest.approx([800, 2000, 4000], rel=0.08)
    outputs = [request.output_tokens for request in trace.requests]
    assert np.percentile(outputs, (50, 95, 99)) == pytest.approx([90, 300, 500], rel=0.08)


def test_burstiness_is_that_of_the_row(tmp_path):
    trace = read(pair(tmp_path, "3,0,20.0,3.0,Gamma,1,1\n"))
    gaps = np.diff([request.time_s for request in trace.requests])
    assert gaps.std() / gaps.mean() == pytest.approx(3.0, rel=0.15)


def test_nothing_is_reused_and_the_client_is_the_conversation(tmp_path):
    trace = read(pair(tmp_path, "3,0,1.0,1,Gamma,1,1\n"))
    assert (trace.kind, trace.has_reuse) == ("servegen", False)
    assert trace.distinct_block_count == trace.block_count > 0
    assert {request.conversation for request in trace.requests} == {3}


def test_either_file_of_the_pair_gives_the_same_trace(tmp_path):
    rates = pair(tmp_path, "3,0,1.0,1,Gamma,1,1\n")
    by_rates = read(rates)
    by_lengths = read(tmp_path / "x_lengths_day0.csv")
    assert [r.time_s for r in by_rates.requests] == [r.time_s for r in by_lengths.requests]
    assert [r.time_s for r in read(rates, 50).requests] == [r.time_s for r in by_rates.requests[:50]]


def test_client_without_lengths_is_left_out(tmp_path):
    assert len(read(pair(tmp_path, "5,0,1.0,1,Gamma,1,1\n7,0,1.0,1,Gamma,1,1\n"))) == 0


def test_missing_half_is_named(tmp_path):
    (tmp_path / "x_rates_day0.csv").write_text(RATES)
    with pytest.raises(WorkloadError, match="x_rates_day0.csv: line 1: its other half 'x_lengths_day0.csv' is missing"):
        read(tmp_path / "x_rates_day0.csv")


def test_malformed_rate_is_named(tmp_path):
    with pytest.raises(WorkloadError, match="x_rates_day0.csv: line 3: 'fast' is not a number"):
        read(pair(tmp_path, "3,0,1.0,1,Gamma,1,1\n3,600,fast,1,Gamma,1,1\n"))


def test_public_day_has_the_rate_of_its_first_windows(trace_path):
    def rows(name):
        with gzip.open(trace_path(name), "rt", newline="") as text:
            return list(csv.DictReader(text))

    known = {row["client"] for row in rows("servegen_m-large_lengths") if row["in_p50"]}
    rates = rows("servegen_m-large_rates")
    expected = 600 * sum(float(r["rate_rps"]) for r in rates if r["window_start_s"] == "0" and r["client"] in known)
    trace = read(trace_path("servegen_m-large_rates"), 2 * int(expected))
    assert sum(request.time_s < 600 for request in trace.requests) == pytest.approx(expected, rel=0.02)
