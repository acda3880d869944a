"""Replays on the golden node: nothing differs, everything is counted, faults are noticed."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from kvnode.models.spec.config import preset
from kvnode.models.spec.enums import Opcode
from kvnode.models.workloads import generate
from kvnode.sw_driver.client import Client
from kvnode.sw_driver.errors import Unanswered
from kvnode.sw_driver.replay import DataMismatch, Replay
from kvnode.sw_driver.transport import RunResult
from kvnode.sw_driver.transports import open_transport
from kvnode.sw_driver.transports.golden import GoldenTransport


def replay(name="sim", requests=60, **options):
    return Replay(open_transport("golden", preset(name)), generate(requests), **options)


def test_small_workload_replays_without_a_mismatch():
    trace = generate(60)
    report = replay().run()
    assert report.requests == 60
    assert report.blocks_asked == trace.block_count
    assert report.blocks_read == report.blocks_matched > 0
    assert report.bytes_checked == report.blocks_read * 4096
    assert report.messages["READ", "OK"] == report.blocks_read
    assert report.messages["PUT_END", "SEALED"] == report.messages["PUT_START", "GRANTED"]


def test_hit_rate_of_a_node_with_room_is_that_of_an_infinite_cache():
    # One request at a time, so that none misses what another is writing.
    report = replay(wave_size=1).run()
    assert report.block_hit_rate == pytest.approx(report.infinite["block"])
    assert report.token_hit_rate == pytest.approx(report.infinite["token"])
    assert report.lru == report.infinite


@pytest.mark.parametrize("name", ["tiny", "wide"])
def test_other_presets_replay_too(name):
    report = replay(name, 30).run()
    assert report.requests == 30


def test_every_block_asked_for_is_read_or_put():
    report = replay(requests=100).run()
    starts = sum(count for (opcode, _), count in report.messages.items() if opcode == "PUT_START")
    assert starts == report.blocks_asked - report.blocks_matched


def test_retired_models_are_written_anew():
    plain, retiring = replay().run(), replay(retire_every=5).run()
    assert retiring.models_retired == 12
    assert retiring.blocks_read < plain.blocks_read
    assert retiring.bytes_checked == retiring.blocks_read * 4096


def test_figures_are_plain_data_without_cycles_on_a_node_without_a_clock():
    figures = replay(requests=10).run().to_dict()
    assert figures["cycles"] == 0
    assert figures["bandwidth_percent"] == {"read": None, "write": None}
    assert figures["latency_cycles"] == {"lookup": None, "first_beat": None}
    assert figures["lockstep"] == {"operations": None, "differences": 0}
    assert figures["peak_memory_bytes"] > 1 << 20


@pytest.mark.parametrize("percent", [0, 100])
def test_sessions_change_no_hit(percent):
    plain, report = replay(sessions=False).run(), replay(migrate_percent=percent).run()
    assert report.blocks_read == plain.blocks_read == report.blocks_matched
    assert report.messages["PUT_END", "SEALED"] == plain.messages["PUT_END", "SEALED"]


def test_sessions_and_leases_are_all_given_back():
    report = replay(migrate_percent=30).run()
    sessions, leases = report.sessions, report.leases
    assert sessions["opened"] == sessions["closed"] > 0 and sessions["expired"] == sessions["refused"] == 0
    assert leases["granted"] == leases["released"] > 0 and leases["refused"] == leases["ended"] == 0
    assert sessions["migrated"] > 0
    statuses = {status for opcode, status in report.messages if opcode.startswith(("SESSION", "RELEASE", "PUT_START"))}
    assert statuses <= {"OK", "GRANTED", "EXISTS"}


def test_trace_that_recorded_no_sessions_opens_none():
    trace = generate(30)
    unknown = dataclasses.replace(trace, requests=[dataclasses.replace(r, session=-1) for r in trace.requests])
    report = Replay(open_transport("golden", preset("sim")), unknown).run()
    assert {opcode for opcode, _ in report.messages} == {
        "LOOKUP", "MATCH", "READ", "PUT_START", "WRITE", "PUT_END",
    }  # fmt: skip
    assert set(report.sessions.values()) == {0} and set(report.leases.values()) == {0}


def test_requests_run_without_a_session_when_none_can_be_had():
    transport = open_transport("golden", preset("sim"))
    for number in range(len(transport.config.partitions)):
        for _ in range(transport.config.sessions):
            Client(transport, number).session().open()
    report = Replay(transport, generate(40)).run()
    assert report.sessions["without"] == 40 and report.sessions["opened"] == 0
    assert report.sessions["refused"] == report.messages["SESSION_OPEN", "QUOTA"] > 0
    assert report.blocks_read == replay(requests=40).run().blocks_read


class Forgetful(GoldenTransport):
    """Ends the sessions that a run names before it."""

    def run(self, batch, payload=b"", **options):
        header = batch["header"]
        rows = zip(batch["port"].tolist(), header["session"].tolist(), header["session_epoch"].tolist())
        for port, session, epoch in {row for row in rows if row[1]}:
            self.node.ask(port, Opcode.SESSION_CLOSE, session=session, session_epoch=epoch)
        return super().run(batch, payload, **options)


def test_sessions_that_end_by_themselves_cost_no_hit():
    report = Replay(Forgetful(preset("sim")), generate(60), wave_size=1).run()
    assert report.sessions["expired"] > 10
    assert report.messages["MATCH", "STALE_EPOCH"] > 0
    assert report.bytes_checked == report.blocks_read * 4096 > 0


def test_blocks_that_leave_are_counted_by_cause():
    report = replay("tiny", 30, retire_every=5).run()
    evictions = report.to_dict()["evictions"]
    assert set(evictions) == {"CAPACITY", "MODEL"} and min(evictions.values()) > 0
    assert report.to_dict()["revocations"] == {}
    twice = Replay(transport := open_transport("golden", preset("tiny")), generate(30))
    first = dict(twice.run().causes)
    assert dict(Counter(transport.statistics()["causes"])) == first
    second = Replay(transport, generate(30), seed=1).run()
    assert Counter(transport.statistics()["causes"]) == Counter(first) + second.causes


class Lying(GoldenTransport):
    """Flips one bit of the data of the 20th read."""

    def run(self, batch, payload=b"", **options):
        result = super().run(batch, payload, **options)
        data = bytearray(result.data)
        if len(data) > 20 * 4096:
            data[19 * 4096 + 5] ^= 4
        return RunResult(result.results, memoryview(data), result.cycles, result.operation_count)


def test_wrong_byte_stops_the_replay_and_is_named():
    with pytest.raises(DataMismatch, match="answered OK with 4096 bytes .* byte 5 is the first that differs"):
        Replay(Lying(preset("sim")), generate(100)).run()


class Deaf(GoldenTransport):
    """Answers no READ."""

    def run(self, batch, payload=b"", **options):
        result = super().run(batch, payload, **options)
        result.results["done"] = np.where(batch["header"]["opcode"] == Opcode.READ, 0, result.results["done"])
        return result


def test_request_without_an_answer_stops_the_replay():
    with pytest.raises(Unanswered, match=r"\(READ\) was not answered .*DEADLINE \(-901\)"):
        Replay(Deaf(preset("sim")), generate(100)).run()


class Clocked(GoldenTransport):
    """Gives every request made-up cycles: sent at 10, answered from 10 + index on; 1,000 cycles a run."""

    def run(self, batch, payload=b"", **options):
        result = super().run(batch, payload, **options)
        result.results["sent_cycle"] = 10
        result.results["first_cycle"] = 10 + np.arange(len(batch))
        return RunResult(result.results, result.data, 1_000, result.operation_count)


def test_figures_of_a_clocked_transport_are_computed_from_its_cycles():
    replayed = Replay(Clocked(preset("sim")), generate(20), wave_size=1, sessions=False)
    report = replayed.run()
    figures = report.to_dict()
    assert figures["cycles"] == 2 * 20 * 1_000
    assert figures["bandwidth_percent"]["read"] == pytest.approx(100 * report.blocks_read * 128 / (40_000 * 4))
    written = report.messages["WRITE", "OK"] * 128
    assert figures["bandwidth_percent"]["write"] == pytest.approx(100 * written / (40_000 * 4))
    # A request's MATCHes are the first of their batch; one wave has one request, of at most two messages.
    assert figures["latency_cycles"]["lookup"]["min"] == 0
    assert figures["latency_cycles"]["first_beat"]["min"] == 0
