"""Conversations of a trace as sessions of the node: numbers, waits, moves, leases, and what happens without one."""

import numpy as np
import pytest

from kvnode.models.spec.config import preset
from kvnode.models.spec.enums import Flag, Opcode, Status
from kvnode.models.spec.sessions import WINDOW
from kvnode.models.workloads import Request, Trace
from kvnode.sw_driver.transports.golden import GoldenTransport
from kvnode.sw_driver.workload import PATIENCE_CYCLES, SPARE_ROWS, Expansion

SIM = preset("sim")


def trace_of(*requests):
    """Requests given as (session, block ids)."""
    rows = [
        Request(float(number), len(ids) * 16 + 3, 1, np.array(ids, np.int64), talk, talk)
        for number, (talk, ids) in enumerate(requests)
    ]
    return Trace("test", "generated", 16, rows)


class Driven:
    """An expansion on a golden node; `batches` are those that were run, `results` their results."""

    def __init__(self, *requests, config=SIM, **options):
        options = {"migrate_percent": 0} | options
        self.expansion = Expansion(trace_of(*requests), config, **options)
        self.transport = GoldenTransport(config)
        self.batches, self.results = [], []

    def run(self, builder):
        batch, payload = builder.build()
        self.batches.append(batch)
        self.results.append(self.transport.run(batch, payload))
        return self.results[-1]

    def wave(self, *numbers):
        """Both phases of these requests; (jobs, batch of the first, batch of the second)."""
        first = len(self.batches)
        jobs = self.expansion.jobs(numbers)
        again = self.expansion.note_matches(jobs, self.run(self.expansion.match_batch(jobs)))
        if again:
            counts = self.run(self.expansion.ask_again(again)).results["header"]["count"]
            self.expansion.note_hits(again, counts.tolist())
        self.expansion.note_puts(jobs, self.run(self.expansion.transfer_batch(jobs)))
        return jobs, self.batches[first], self.batches[-1]


def only(batch, opcode):
    return batch[batch["header"]["opcode"] == opcode]


def test_blocks_of_a_request_are_numbered_in_its_session():
    (job,), matches, transfers = Driven((0, range(3))).wave(0)
    assert len(only(matches, Opcode.SESSION_OPEN)) == 1
    starts = only(transfers, Opcode.PUT_START)["header"]
    assert starts["sequence"].tolist() == [1, 2, 3]
    assert set(starts["session"].tolist()) == {job.talk.number}


def test_last_blocks_are_numbered_as_far_as_the_window_goes():
    driven = Driven((0, range(WINDOW + 5)), (0, range(WINDOW + 7)))
    for number, numbers in enumerate(([0] * 5 + list(range(1, WINDOW + 1)), [WINDOW + 1, WINDOW + 2])):
        (job,), _, transfers = driven.wave(number)
        assert only(transfers, Opcode.PUT_START)["header"]["sequence"].tolist() == numbers
    assert job.hits == WINDOW + 5
    assert job.talk.numbering.committed == WINDOW + 2


def test_next_request_asks_for_a_state_after_the_last_number():
    driven = Driven((0, range(3)), (0, range(SIM.max_match_digests + 1)), (0, range(SIM.max_match_digests + 1)))
    asked = [only(driven.wave(number)[1], Opcode.MATCH) for number in range(3)]
    assert [match["header"]["sequence"].tolist() for match in asked] == [[0], [3, 0], [3 + WINDOW, 0]]
    assert [match["patience"].tolist() for match in asked] == [[0], [PATIENCE_CYCLES, 0], [PATIENCE_CYCLES, 0]]


def test_block_that_is_refused_leaves_its_number_to_the_next():
    driven = Driven((0, range(3)), (0, range(4)))
    jobs = driven.expansion.jobs([0])
    driven.expansion.note_matches(jobs, driven.run(driven.expansion.match_batch(jobs)))
    result = driven.run(driven.expansion.transfer_batch(jobs))
    # The last of the three got no slot.
    batch = driven.batches[-1]
    last = int(np.flatnonzero(batch["header"]["sequence"] == 3)[0])
    result.results["header"]["status"][last] = Status.NO_SPACE
    result.results["done"][batch["handle_from"] == last] = 2
    driven.expansion.note_puts(jobs, result)
    _, matches, transfers = driven.wave(1)
    assert only(matches, Opcode.MATCH)["header"]["sequence"].tolist() == [2]
    assert only(transfers, Opcode.PUT_START)["header"]["sequence"].tolist() == [3]


def test_what_a_request_finds_is_leased_read_by_handle_and_released():
    driven = Driven((0, range(4)), (0, range(6)))
    driven.wave(0)
    (job,), matches, transfers = driven.wave(1)
    assert only(matches, Opcode.MATCH)["header"]["flags"].tolist() == [Flag.LEASE]
    kinds = transfers["header"]["opcode"].tolist()
    assert kinds[:8] == [Opcode.READ] * 4 + [Opcode.RELEASE] * 4
    assert [bytes(value) for value in transfers["header"]["digest"][:8]] == job.leased * 2
    assert transfers["header"]["flags"][:4].tolist() == [Flag.BY_HANDLE] * 4
    assert driven.results[-1].results["header"]["status"][:8].tolist() == [Status.OK] * 8
    assert all(len(partition.leases) == 0 for partition in driven.transport.node.partitions)


def test_request_with_more_blocks_than_leases_reads_by_key():
    count = SIM.leases + 1
    driven = Driven((0, range(count)), (0, range(count)))
    driven.wave(0)
    (job,), matches, transfers = driven.wave(1)
    assert not only(matches, Opcode.MATCH)["header"]["flags"].any()
    assert job.hits == len(only(transfers, Opcode.READ)) == count
    assert [bytes(value) for value in only(transfers, Opcode.READ)["header"]["digest"]] == job.digests
    assert not len(only(transfers, Opcode.RELEASE))


def test_requests_of_a_wave_share_the_leases_of_their_partition():
    driven = Driven(*((talk, range(40 * talk, 40 * talk + 40)) for talk in range(12)))
    jobs, _, _ = driven.wave(*range(12))
    for partition in range(3):
        locks = [job.locks for job in jobs if job.partition == partition]
        assert sum(locks) == min(len(locks), SIM.leases // 40)


def test_prefix_that_is_no_longer_whole_releases_what_was_leased_behind_it():
    config = preset("tiny")  # Two digests a message.
    driven = Driven((0, range(4)), (0, range(4)), config=config)
    (job,), _, _ = driven.wave(0)
    partition = driven.transport.node.partitions[job.partition]
    driven.transport.node.drop(job.port, job.model_id, int.from_bytes(job.digests[0], "little"))
    (job,), _, _ = driven.wave(1)
    assert job.hits == 0
    assert len(partition.leases) == 0


def session_of_two_ports(**options):
    """A conversation in the partition that has two ports, driven up to its second request."""
    for talk in range(50):
        driven = Driven((talk, range(3)), (talk, range(4)), (talk, range(5)), migrate_percent=100, **options)
        jobs, _, transfers = driven.wave(0)
        if len(SIM.partitions[jobs[0].partition].ports) > 1:
            return driven, jobs[0], transfers
    raise AssertionError("no such conversation")


@pytest.mark.parametrize("late", [False, True])
def test_conversation_moves_to_another_port_with_its_session(monkeypatch, late):
    monkeypatch.setattr("kvnode.sw_driver.workload.LATE_SHARE", float(late))
    driven, before, _ = session_of_two_ports()
    (job,), matches, _ = driven.wave(1)
    assert job.port != before.port and job.talk.port == job.port
    (move,) = only(matches, Opcode.SESSION_MIGRATE)
    assert (move["port"], move["header"]["sequence"]) == (before.port, 3)
    (match,) = only(matches, Opcode.MATCH)
    assert (match["port"], match["header"]["sequence"]) == (job.port, 3)
    assert matches["header"]["opcode"][match["session_from"]] == Opcode.SESSION_MIGRATE
    assert job.talk.epoch == 1 and job.hits == 3


def test_block_on_its_way_is_written_by_the_port_before(monkeypatch):
    monkeypatch.setattr("kvnode.sw_driver.workload.LATE_SHARE", 1.0)
    driven, before, transfers = session_of_two_ports()
    assert only(transfers, Opcode.PUT_START)["header"]["sequence"].tolist() == [1, 2]
    (job,), matches, _ = driven.wave(1)
    (start,) = only(matches, Opcode.PUT_START)
    assert (start["port"], start["header"]["sequence"], start["header"]["session_epoch"]) == (before.port, 3, 0)
    order = matches["header"]["opcode"].tolist()
    assert order.index(Opcode.SESSION_MIGRATE) < order.index(Opcode.PUT_START) < order.index(Opcode.MATCH)
    assert job.hits == 3 and driven.expansion.counts["late"] == 1


def test_conversation_of_a_partition_with_one_port_moves_to_the_same():
    config = preset("tiny")
    driven = Driven((0, [1]), (0, [1, 2]), config=config, migrate_percent=100)
    (before,), _, _ = driven.wave(0)
    (job,), _, _ = driven.wave(1)
    assert job.port == before.port and job.talk.epoch == 1


def test_same_seed_moves_the_same_conversations():
    requests = [(talk % 9, [talk]) for talk in range(200)]
    moves = [Expansion(trace_of(*requests), SIM, seed=seed, migrate_percent=20)._moves for seed in (1, 1, 2)]
    assert moves[0] == moves[1] != moves[2]
    assert 20 < len(moves[0]) < 60


def test_session_that_was_silent_for_longest_makes_room():
    driven = Driven(*((talk, [talk]) for talk in range(120)))
    for number in range(120):
        driven.wave(number)
        for partition in range(3):
            rows = sum(session.open for session in driven.transport.node.partitions[partition].sessions)
            assert rows <= SIM.sessions - SPARE_ROWS
    closed = sum(len(only(batch, Opcode.SESSION_CLOSE)) for batch in driven.batches)
    assert closed > 50
    kept = [talk.conversation for talk in driven.expansion.talks.values() if talk.partition == 0]
    everyone = [n for n in range(120) if driven.expansion.placement.partition[n] == 0]
    assert kept == everyone[-len(kept) :]


def test_one_session_is_opened_in_a_phase_and_partition():
    driven = Driven(*((talk, [talk]) for talk in range(30)))
    jobs, matches, transfers = driven.wave(*range(30))
    partition = np.array(SIM.partition_of_port)
    for batch in (matches, transfers):
        assert sorted(partition[only(batch, Opcode.SESSION_OPEN)["port"]].tolist()) == [0, 1, 2]
    assert sum(job.talk is not None for job in jobs) == 3
    assert driven.expansion.counts["without"] == 27


def test_sessions_end_after_the_last_wave():
    driven = Driven((0, [1]), (1, [2]))
    driven.wave(0, 1)
    result = driven.run(driven.expansion.close_batch())
    assert set(result.results["header"]["status"].tolist()) == {Status.OK}
    assert not any(session.open for part in driven.transport.node.partitions for session in part.sessions)
    assert not len(driven.expansion.close_batch())


def test_request_whose_session_has_ended_asks_again_without_one():
    driven = Driven((0, range(3)), (0, range(4)), (0, range(5)))
    (job,), _, _ = driven.wave(0)
    driven.transport.node.ask(job.port, Opcode.SESSION_CLOSE, session=job.talk.number, session_epoch=job.talk.epoch)
    (job,), _, transfers = driven.wave(1)
    assert job.talk is None and job.hits == 3
    assert not only(transfers, Opcode.PUT_START)["header"]["session"].any()
    assert (driven.expansion.counts["expired"], driven.expansion.counts["without"]) == (1, 1)
    (job,), _, _ = driven.wave(2)
    assert job.talk is not None and job.hits == 4
