import gzip
import json

import numpy as np
import pytest

from kvnode.models.workloads import WorkloadError, coarsen, read

MOONCAKE = [
    {"timestamp": 0, "input_length": 1100, "output_length": 9, "hash_ids": [0, 1, 2]},
    {"timestamp": 40, "input_length": 1024, "output_length": 8, "hash_ids": [0, 7]},
    {"timestamp": 1500, "input_length": 700, "output_length": 7, "hash_ids": [0, 9]},
    {"timestamp": 1500, "input_length": 100, "output_length": 6, "hash_ids": [11]},
]
REQUESTS_HEADER = {"format": "kv-requests-1", "block_tokens": 16, "hash_id_scope": "global"}
SESSIONS_HEADER = {"format": "kv-sessions-1", "block_tokens": 64, "hash_id_scope": "local"}


def session_row(time_s, input_tokens, runs, output_tokens=5):
    return [0, time_s, 0, input_tokens, output_tokens, 1.0, None, None, 1, runs]


def write_lines(path, rows):
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def ids_of(trace):
    return [request.block_ids.tolist() for request in trace.requests]


def test_mooncake_drops_the_partial_block_only(tmp_path):
    trace = read(write_lines(tmp_path / "m.jsonl", MOONCAKE))
    assert (trace.kind, trace.block_tokens) == ("mooncake", 512)
    assert ids_of(trace) == [[0, 1], [0, 7], [0], []]
    assert [request.time_s for request in trace.requests] == [0, 0.04, 1.5, 1.5]
    assert [request.output_tokens for request in trace.requests] == [9, 8, 7, 6]
    assert trace.requests[0].block_ids.dtype == np.int64


def test_mooncake_conversation_is_the_second_id_or_the_only_one(tmp_path):
    trace = read(write_lines(tmp_path / "m.jsonl", MOONCAKE))
    assert [request.conversation for request in trace.requests] == [1, 7, 9, 11]
    assert {request.session for request in trace.requests} == {-1}


def test_gzipped_file_reads_like_the_plain_one(tmp_path):
    plain = write_lines(tmp_path / "m.jsonl", MOONCAKE)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert ids_of(read(packed)) == ids_of(read(plain))


def test_reading_stops_at_the_limit_without_looking_further(tmp_path):
    path = write_lines(tmp_path / "m.jsonl", [*MOONCAKE[:2], "not json\n"])
    assert len(read(path, 2)) == 2
    with pytest.raises(WorkloadError, match="m.jsonl: line 3: not JSON"):
        read(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timestamp": "x"}, "line 2: timestamp 'x' is not a time"),
        ({"timestamp": -1}, "line 2: timestamp -1 is not a time"),
        ({"input_length": 1.5}, "line 2: input_length 1.5 is not a whole number"),
        ({"input_length": 5000}, "line 2: 2 hash_ids for input_length 5000, expected 10"),
        ({"hash_ids": [0, "a"]}, r"line 2: hash_ids \['a'\] is not a list"),
        ({"hash_ids": None}, "line 2: hash_ids None is not a list"),
    ],
)
def test_malformed_mooncake_row_is_named(tmp_path, change, message):
    path = write_lines(tmp_path / "bad.jsonl", [MOONCAKE[0], MOONCAKE[1] | change])
    with pytest.raises(WorkloadError, match=f"bad.jsonl: {message}"):
        read(path)


def test_missing_column_is_named(tmp_path):
    row = {key: value for key, value in MOONCAKE[0].items() if key != "output_length"}
    with pytest.raises(WorkloadError, match="line 1: 'output_length' is missing"):
        read(write_lines(tmp_path / "bad.jsonl", [row]))


def test_time_that_goes_back_is_refused(tmp_path):
    path = write_lines(tmp_path / "bad.jsonl", [MOONCAKE[2], MOONCAKE[0]])
    with pytest.raises(WorkloadError, match=r"line 2: timestamp 0 is before the line above it \(1500\)"):
        read(path)


@pytest.mark.parametrize("text", ["", "hello\n", "[1]\n", '{"format": "other"}\n'])
def test_unknown_format_is_refused(tmp_path, text):
    with pytest.raises(WorkloadError, match="bad: line 1: "):
        read(write_lines(tmp_path / "bad", [text]))


def test_truncated_gzip_is_refused(tmp_path):
    path = tmp_path / "cut.gz"
    rows = [MOONCAKE[0] | {"output_length": number} for number in range(9999)]
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())[:20_000])
    with pytest.raises(WorkloadError, match=r"cut.gz: line \d\d+: cannot be decoded"):
        read(path)


def test_negative_limit_is_refused(tmp_path):
    with pytest.raises(ValueError, match="limit -1 is negative"):
        read(write_lines(tmp_path / "m", MOONCAKE), -1)


def test_requests_expand_their_runs(tmp_path):
    rows = [
        REQUESTS_HEADER,
        {"t_us": 0, "s": 4, "in": 100, "out": 3, "runs": [5, 2, 90, 1, 7, 3]},
        {"t_us": 2_500_000, "s": -1, "in": 40, "out": 3, "runs": [5, 2]},
        {"t_us": 2_500_000, "s": -1, "in": 4, "out": 3, "runs": []},
    ]
    trace = read(write_lines(tmp_path / "r", rows))
    assert (trace.kind, trace.block_tokens) == ("requests", 16)
    assert ids_of(trace) == [[5, 6, 90, 7, 8, 9], [5, 6], []]
    assert [(r.time_s, r.session, r.conversation) for r in trace.requests] == [(0, 4, 4), (2.5, -1, 6), (2.5, -1, -1)]


@pytest.mark.parametrize(
    ("runs", "message"),
    [([1, 2, 3], "3 numbers, not pairs"), ([1, 4], "name 4 blocks where the input has 6"), ([-1, 6], r"\[-1\] is not")],
)
def test_malformed_runs_are_named(tmp_path, runs, message):
    rows = [REQUESTS_HEADER, {"t_us": 0, "s": 4, "in": 100, "out": 3, "runs": runs}]
    with pytest.raises(WorkloadError, match=f"r: line 2: block id runs.*{message}"):
        read(write_lines(tmp_path / "r", rows))


def sessions(tmp_path):
    rows = [
        SESSIONS_HEADER,
        {"sid": "a", "req": [session_row(0, 130, [1, 2]), session_row(1000, 200, [1, 3])]},
        {"sid": "b", "req": [session_row(0, 64, [1, 1]), session_row(0.5, 20, [])]},
        {"sid": "c", "req": [session_row(2, 64, [4, 1])]},
    ]
    return write_lines(tmp_path / "s.jsonl", rows)


def test_local_ids_are_unique_to_their_session(tmp_path):
    trace = read(sessions(tmp_path))
    by_session = {}
    for request in trace.requests:
        by_session.setdefault(request.session, set()).update(request.block_ids.tolist())
    assert by_session == {0: {1, 2, 3}, 1: {4 + 1}, 2: {4 + 2 + 4}}


def test_sessions_start_at_seeded_exponential_gaps(tmp_path):
    rng = np.random.default_rng(1)
    second_start_s = rng.exponential(60.0)
    third_start_s = second_start_s + rng.exponential(60.0)
    trace = read(sessions(tmp_path))
    times = [(request.session, request.time_s) for request in trace.requests]
    expected = [(0, 0), (1, second_start_s), (1, second_start_s + 0.5), (2, third_start_s + 2), (0, 1000)]
    assert times == [(session, pytest.approx(time_s)) for session, time_s in expected]
    assert read(sessions(tmp_path), seed=2).requests[1].time_s != times[1][1]


def test_limited_sessions_are_the_beginning_of_all(tmp_path):
    every = read(sessions(tmp_path))
    for limit in range(6):
        part = read(sessions(tmp_path), limit)
        assert ids_of(part) == ids_of(every)[:limit]


def test_unknown_scope_is_refused(tmp_path):
    with pytest.raises(WorkloadError, match="line 1: hash_id_scope 'other' is neither"):
        read(write_lines(tmp_path / "s", [SESSIONS_HEADER | {"hash_id_scope": "other"}]))


def test_azure_requests_never_share_blocks(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,1024,27\n"
    )
    trace = read(path)
    assert (trace.kind, trace.has_reuse) == ("azure", False)
    assert [len(request.block_ids) for request in trace.requests] == [9, 2]
    assert trace.distinct_block_count == 11
    assert trace.requests[1].time_s == pytest.approx(0.052)
    assert len(read(path, block_tokens=1000).requests[0].block_ids) == 4


def test_malformed_azure_row_is_named(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,many,10\n")
    with pytest.raises(WorkloadError, match="azure.csv: line 2: '2023-11-16 18:17:03.97,many,10' is not a time"):
        read(path)


@pytest.mark.parametrize(
    ("name", "kind", "block_tokens", "requests", "blocks", "distinct"),
    [
        ("mooncake_conversation", "mooncake", 512, 7851, 186449, 118324),
        ("agent_miniswe", "requests", 16, 402, 154811, 10001),
        ("sharegpt", "requests", 16, 300, 15942, 14722),
        ("azure_llm_2023_code", "azure", 512, 8819, None, None),
        ("claude_code_v6_global", "sessions", 512, 18206, 3190742, 136327),
        ("claude_code_v8_local", "sessions", 512, 31010, 7027559, 263443),
    ],
)
def test_public_trace_has_its_documented_size(trace_path, name, kind, block_tokens, requests, blocks, distinct):
    trace = read(trace_path(name), block_tokens=block_tokens)
    assert (trace.kind, len(trace)) == (kind, requests)
    if kind != "sessions":  # Those are coarsened here: their own blocks are 64 tokens.
        assert all(len(request.block_ids) == request.input_tokens // block_tokens for request in trace.requests)
    if blocks is not None:
        assert (trace.block_count, trace.distinct_block_count) == (blocks, distinct)


def test_coarsening_while_reading_equals_coarsening_afterwards(trace_path):
    path = trace_path("claude_code_v6_global")
    assert ids_of(read(path, 300, block_tokens=512)) == ids_of(coarsen(read(path, 300), 512))


def test_limit_of_a_public_session_trace_gives_its_beginning(trace_path):
    path = trace_path("claude_code_v8_local")
    every = read(path, 2000, block_tokens=512)
    part = read(path, 500, block_tokens=512)
    assert [r.time_s for r in part.requests] == [r.time_s for r in every.requests[:500]]
    assert ids_of(part) == ids_of(every)[:500]
