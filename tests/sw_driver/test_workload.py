"""Expansion of requests into operations: who waits for whom, what is read and what is written."""

import random

import numpy as np
import pytest

from kvnode.models.spec.config import preset
from kvnode.models.spec.enums import Opcode
from kvnode.models.workloads import Request, Trace, generate, infinite_hits
from kvnode.sw_driver.workload import Expansion, Placement, reference_hits, waves

SIM = preset("sim")


def trace_of(*requests, block_tokens=16, has_reuse=True):
    """Requests given as (conversation, block ids, output tokens)."""
    rows = [
        Request(float(number), len(ids) * block_tokens + 3, output, np.array(ids, np.int64), talk, talk)
        for number, (talk, ids, output) in enumerate(requests)
    ]
    return Trace("test", "generated", block_tokens, rows, has_reuse)


def test_waves_hold_every_request_once_and_no_conversation_twice():
    rng = random.Random(1)
    talks = [rng.choice([-1, 0, 1, 2, 3, 4]) for _ in range(500)]
    planned = list(waves(talks, [1] * 500, 6, 1_000))
    assert sorted(number for wave in planned for number in wave) == list(range(500))
    for wave in planned:
        known = [talks[number] for number in wave if talks[number] >= 0]
        assert len(wave) <= 6 and len(known) == len(set(known))


def test_requests_of_a_conversation_keep_their_order():
    rng = random.Random(2)
    talks = [rng.randrange(5) for _ in range(300)]
    order = [number for wave in waves(talks, [1] * 300, 4, 1_000) for number in wave]
    for talk in range(5):
        mine = [number for number in order if talks[number] == talk]
        assert mine == sorted(mine)


def test_request_is_put_off_behind_at_most_the_lookahead():
    talks = [0] * 50 + list(range(1, 51))
    first = next(waves(talks, [1] * 100, 8, 1_000, lookahead=20))
    assert first == [0]
    assert next(waves(talks, [1] * 100, 8, 1_000, lookahead=60)) == [0, 50, 51, 52, 53, 54, 55, 56]


def test_wave_is_closed_when_it_has_enough_blocks():
    assert list(waves([0, 1, 2, 3], [5, 5, 50, 1], 4, 10)) == [[0, 1], [2], [3]]


def test_tenants_get_conversations_in_proportion_to_their_slots():
    trace = trace_of(*((talk, [talk], 1) for talk in range(4_000)))
    placement = Placement.of(trace, SIM)
    share = np.bincount(placement.partition, minlength=3) / 4_000
    assert share == pytest.approx([0.5, 0.25, 0.25], abs=0.03)
    assert np.bincount(placement.model) / 4_000 == pytest.approx([0.25] * 4, abs=0.03)


def test_conversation_stays_with_its_tenant_model_and_ports():
    trace = trace_of(*((number % 7, [1, 2], 1) for number in range(70)))
    placement = Placement.of(trace, SIM)
    expansion = Expansion(trace, SIM)
    for number, job in enumerate(expansion.jobs(range(70))):
        assert (job.partition, job.model_id) == (placement.partition[number % 7], placement.model[number % 7])
        assert job.port in SIM.partitions[job.partition].ports


def test_ports_of_a_tenant_take_turns():
    jobs = Expansion(trace_of(*((5, [1], 1) for _ in range(6))), SIM).jobs(range(6))
    ports = SIM.partitions[jobs[0].partition].ports
    assert [job.port for job in jobs] == [ports[number % len(ports)] for number in range(6)]


def test_later_message_counts_only_behind_whole_hits():
    config = preset("tiny")  # Two digests a message.
    expansion = Expansion(trace_of((0, [1, 2, 3, 4, 5], 1)), config, sessions=False)
    (job,) = expansion.jobs([0])
    batch, _ = expansion.match_batch([job]).build()
    assert batch["header"]["opcode"].tolist() == [Opcode.LOOKUP, *[Opcode.MATCH] * 3]
    for counts, hits in (([2, 2, 1], 5), ([2, 1, 1], 3), ([1, 2, 1], 1), ([0, 2, 1], 0), ([2, 0, 0], 2)):
        expansion.note_hits([job], [0, *counts])
        assert job.hits == hits


@pytest.mark.parametrize(("order", "expected"), [("tail", [4, 3, 2]), ("head", [2, 3, 4])])
def test_leading_hits_are_read_and_the_rest_is_put(order, expected):
    expansion = Expansion(trace_of((0, [0, 1, 2, 3, 4], 1)), SIM, put_order=order, sessions=False)
    (job,) = expansion.jobs([0])
    expansion.match_batch([job])
    expansion.note_hits([job], [0, 2])
    batch, payload = expansion.transfer_batch([job]).build()
    header = batch["header"]
    digests = [bytes(value) for value in header["digest"]]
    reads = [digest for digest, opcode in zip(digests, header["opcode"]) if opcode == Opcode.READ]
    starts = [digest for digest, opcode in zip(digests, header["opcode"]) if opcode == Opcode.PUT_START]
    assert reads == job.digests[:2]
    assert starts == [job.digests[number] for number in expected]
    written = batch["payload_bytes"].sum()
    assert written == len(payload) == 3 * SIM.block_bytes
    assert payload[: SIM.block_bytes] == expansion.content(job, starts[0])


def test_every_write_and_end_takes_its_handle_from_its_own_start():
    expansion = Expansion(trace_of((0, list(range(9)), 1)), SIM)
    (job,) = expansion.jobs([0])
    batch, payload = expansion.transfer_batch([job]).build()
    opcodes = batch["header"]["opcode"]
    starts = np.flatnonzero(opcodes == Opcode.PUT_START).tolist()
    for opcode in (Opcode.WRITE, Opcode.PUT_END):
        assert batch["handle_from"][opcodes == opcode].tolist() == starts
    for row in batch[opcodes == Opcode.WRITE]:
        digest = bytes(batch["header"]["digest"][row["handle_from"]])
        at = int(row["payload_offset"])
        assert payload[at : at + SIM.block_bytes] == expansion.content(job, digest)


def test_open_fills_of_a_port_stay_within_its_share_of_the_fill_rows():
    for name in ("tiny", "sim", "wide"):
        config = preset(name)
        expansion = Expansion(trace_of(*((talk, list(range(20)), 1) for talk in range(8))), config)
        batch, _ = expansion.transfer_batch(expansion.jobs(range(8))).build()
        for port in range(config.ports):
            mine = batch["header"]["opcode"][batch["port"] == port]
            open_fills = np.cumsum((mine == Opcode.PUT_START).astype(int) - (mine == Opcode.PUT_END))
            ports = config.partitions[config.partition_of_port[port]].ports
            assert open_fills.max(initial=0) <= max(1, config.fill_rows // len(ports))


def test_answers_are_stored_only_where_no_later_turn_names_their_blocks():
    rows = ((0, [1, 2], 16 * 3), (0, [1, 2, 3, 4], 2))
    assert [len(job.decoded) for job in Expansion(trace_of(*rows), SIM).jobs([0, 1])] == [0, 0]
    without_ids = Expansion(trace_of(*rows, has_reuse=False), SIM).jobs([0, 1])
    # floor((35 + 48) / 16) - floor(35 / 16), floor((67 + 2) / 16) - floor(67 / 16).
    assert [len(job.decoded) for job in without_ids] == [3, 0]
    assert [len(job.decoded) for job in Expansion(trace_of(*rows), SIM, decode=True).jobs([0])] == [3]


def test_contents_differ_by_tenant_model_and_version():
    contents = Expansion(trace_of((0, [1], 1)), SIM).contents
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    made = {contents.of(*key, bytes(32)) for key in keys}
    assert len(made) == 4 and {len(data) for data in made} == {SIM.block_bytes}


def test_reference_hits_split_tenants_and_models():
    # Two conversations ask for the same blocks; they hit each other's only with the same tenant and model.
    trace = trace_of(*((talk, [7, 8], 1) for talk in (0, 1, 0, 1)))
    placement = Placement.of(trace, SIM)
    together = (placement.partition[0], placement.model[0]) == (placement.partition[1], placement.model[1])
    infinite, lru = reference_hits(trace, SIM, placement)
    assert infinite.prefix_hits == lru.prefix_hits == (6 if together else 4)


def test_reference_hits_of_one_tenant_and_one_model_are_the_plain_ones():
    config = preset("sim")
    one = config.replace(
        models=1, partitions=(config.partitions[0].__class__((0, 1, 2, 3), 12, 32, config.partitions[0].seed),)
    )
    trace = generate(100)
    infinite, _ = reference_hits(trace, one, Placement.of(trace, one))
    assert infinite == infinite_hits(trace)


def test_unknown_order_is_named():
    with pytest.raises(ValueError, match="put_order 'middle'"):
        Expansion(trace_of(), SIM, put_order="middle")


def test_unknown_share_of_moves_is_named():
    with pytest.raises(ValueError, match="migrate_percent = 101: must be from 0 to 100"):
        Expansion(trace_of(), SIM, migrate_percent=101)
