import numpy as np
import pytest

from kvnode.models.workloads import Parameters, generate, infinite_hits, read, write_mooncake

SEEDS = range(1, 13)


def ids_of(trace):
    return [request.block_ids.tolist() for request in trace.requests]


@pytest.fixture(scope="module")
def traces():
    return [generate(300, seed) for seed in SEEDS]


def test_same_seed_gives_the_same_trace_and_another_seed_another(traces):
    again = generate(300, SEEDS[0])
    assert ids_of(again) == ids_of(traces[0])
    assert [r.time_s for r in again.requests] == [r.time_s for r in traces[0].requests]
    assert ids_of(traces[1]) != ids_of(traces[0])


def test_fewer_requests_are_the_beginning_of_more(traces):
    assert ids_of(generate(40, SEEDS[0])) == ids_of(traces[0])[:40]
    assert len(generate(0)) == 0


def test_requests_come_in_order_with_full_blocks_only(traces):
    for trace in traces:
        assert len(trace) == 300
        times = [request.time_s for request in trace.requests]
        assert times == sorted(times)
        assert all(len(request.block_ids) == request.input_tokens // 512 for request in trace.requests)


def test_later_turns_of_a_session_begin_with_the_earlier_ones(traces):
    latest = {}
    continued = 0
    for request in traces[0].requests:
        before = latest.get(request.session)
        if before is not None:
            assert request.block_ids[: len(before)].tolist() == before.tolist()
            continued += 1
        latest[request.session] = request.block_ids
    assert continued > 50


def test_sessions_share_system_prompts(traces):
    sessions_of = {}
    for request in traces[0].requests:
        for block in request.block_ids.tolist():
            sessions_of.setdefault(block, set()).add(request.session)
    shared = [block for block, sessions in sessions_of.items() if len(sessions) > 1]
    assert 10 < len(shared) < 60


def test_footprint_and_hit_rate_are_as_documented(traces):
    distinct = [trace.distinct_block_count for trace in traces]
    rates = [infinite_hits(trace).prefix_hit_rate for trace in traces]
    assert 3500 <= min(distinct) and max(distinct) <= 6300
    assert np.mean(distinct) == pytest.approx(4800, rel=0.08)
    assert 0.45 <= min(rates) and max(rates) <= 0.70
    assert np.mean(rates) == pytest.approx(0.56, abs=0.03)


def test_lengths_and_reuse_are_as_documented(traces):
    for trace in traces:
        lengths = [request.input_tokens for request in trace.requests]
        median, high = np.percentile(lengths, (50, 99))
        assert 10_000 <= median <= 18_000
        assert 50_000 <= high <= 120_000
        _, counts = np.unique(trace.all_block_ids(), return_counts=True)
        assert 0.40 <= (counts == 1).mean() <= 0.67
        assert 100 <= trace.span_s <= 220


def test_mooncake_file_reads_back_as_the_same_requests(tmp_path, traces):
    path = tmp_path / "generated.jsonl"
    write_mooncake(traces[0], path)
    back = read(path)
    assert (back.kind, ids_of(back)) == ("mooncake", ids_of(traces[0]))
    assert [r.time_s for r in back.requests] == [r.time_s for r in traces[0].requests]
    assert [r.output_tokens for r in back.requests] == [r.output_tokens for r in traces[0].requests]


def test_other_block_sizes_cannot_be_written(tmp_path):
    trace = generate(3, parameters=Parameters(block_tokens=256))
    with pytest.raises(ValueError, match="block_tokens 256 cannot be written"):
        write_mooncake(trace, tmp_path / "x")


def test_burstiness_changes_the_gaps_only_in_spread():
    def gaps(cv):
        trace = generate(1500, 3, Parameters(burst_cv=cv, session_gap_s=2.0))
        first = {}
        for request in trace.requests:
            first.setdefault(request.session, request.time_s)
        found = np.diff(sorted(first.values()))
        return found.mean(), found.std() / found.mean()

    mean_s, cv = gaps(1.0)
    bursty_mean_s, bursty_cv = gaps(3.0)
    assert (mean_s, bursty_mean_s) == (pytest.approx(2.0, rel=0.15), pytest.approx(2.0, rel=0.35))
    assert cv == pytest.approx(1.0, rel=0.15)
    assert bursty_cv > 2.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"agent_share": 1.5}, "agent_share 1.5 is not between 0 and 1"),
        ({"burst_cv": 0}, "burst_cv 0 is not above 0"),
        ({"input_tokens_most": 100}, "input_tokens_most 100 has no room for 6300 system tokens"),
    ],
)
def test_parameters_that_cannot_be_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Parameters(**values)
