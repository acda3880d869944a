"""Wakes, and requests that wait for them. The stand-in sends a wake when a request that names the port is traced."""

from typing import Any

import numpy as np
import pytest

from kvnode.models.spec.enums import Opcode, Status

from .bench import CONFIGS, LIMIT_CYCLES, batch_of, open_harness, read_bytes
from .contract import Code, Done
from .harness import HarnessStall, StreamViolation
from .stand_in import Fault

STALLS: dict[str, Any] = {"idle": 0.4, "backpressure": 0.6}


@pytest.mark.parametrize("stalls", [{}, STALLS], ids=["straight", "stalls"])
@pytest.mark.parametrize("name", ["narrow", "tiny"])
def test_wake_at_any_time_is_counted_and_answers_nothing(name, stalls):
    config = CONFIGS[name]
    ours = [
        {"opcode": Opcode.READ, "length": 64, "sequence": 10},
        {"opcode": Opcode.WRITE, "payload_bytes": 40},
        {"opcode": Opcode.READ, "length": 32, "sequence": 20},
    ]
    response_beats = 3 * config.response_beats + 96 // config.beat_bytes
    with open_harness(name) as harness:
        for cycle in range(50):
            harness.reset()
            batch = batch_of(*ours, {"port": 1, "group": 0b01, "earliest_cycle": cycle})
            run = harness.run(batch, bytes(40), max_cycles=LIMIT_CYCLES, min_cycles=600, seed=cycle, **stalls)
            assert list(run.wakes) == list(harness.wakes()) == [1, 0]
            assert list(run.results["header"]["tag"]) == [100, 101, 102, 103]
            assert (run.results["done"] == Done.ANSWERED).all() and (run.results["tries"] == 1).all()
            assert [run.payload(index) for index in range(3)] == [read_bytes(10, 64), b"", read_bytes(20, 32)]
            assert run.response_beats[0] == response_beats + config.response_beats


@pytest.mark.parametrize("name", CONFIGS)
def test_many_wakes_between_many_messages(name):
    config, rng = CONFIGS[name], np.random.default_rng(4)
    requests = [
        {"port": int(rng.integers(config.ports)), "group": int(rng.integers(1 << config.ports))} for _ in range(100)
    ]
    with open_harness(name) as harness:
        run = harness.run(batch_of(*requests), max_cycles=9000, min_cycles=4000, **STALLS)
    assert list(run.wakes) == [sum(request["group"] >> p & 1 for request in requests) for p in range(config.ports)]
    assert (run.results["done"] == Done.ANSWERED).all()


def test_wake_under_way_at_the_end_of_a_run_goes_on_in_the_next(tiny):
    # Port 1 is traced one cycle later than port 0, so the wake on port 0 begins in the last cycle of the run.
    run = tiny.run(batch_of({"port": 0}, {"port": 1, "group": 0b01}), max_cycles=LIMIT_CYCLES)
    assert (run.cycles, list(run.response_beats), list(run.wakes)) == (8, [3, 2], [0, 0])
    run = tiny.run(batch_of({"port": 0}), max_cycles=LIMIT_CYCLES)
    assert (list(run.response_beats), list(run.wakes)) == ([3, 0], [1, 0])
    assert list(tiny.wakes()) == [1, 0]
    tiny.reset()
    assert list(tiny.wakes()) == [0, 0]


@pytest.mark.parametrize(
    ("fault", "code"),
    [(Fault.WITHDRAW, Code.WITHDRAWN), (Fault.UNSTABLE, Code.UNSTABLE), (Fault.SHORT, Code.SHORT),
     (Fault.LONG, Code.LONG)],
)  # fmt: skip
def test_violation_in_a_wake_is_about_no_request(tiny, fault, code):
    batch = batch_of({"port": 1}, {"port": 1, "members": fault, "group": 0b10})
    with pytest.raises(StreamViolation) as caught:
        tiny.run(batch, max_cycles=LIMIT_CYCLES, backpressure=0.8, seed=1)
    assert (caught.value.code, caught.value.port, caught.value.request) == (code, 1, -1)
    assert list(caught.value.result.wakes) == [0, 0]


def test_refused_request_is_sent_again_when_woken(tiny):
    run = tiny.run(
        batch_of(
            {"port": 0, "member": 1, "patience": 1000, "ttl": Status.GRANTED, "digest": b"\x09"},
            {"port": 0},
            {"port": 1, "group": 0b01, "earliest_cycle": 50},
            {"port": 1, "handle_from": 0},
        ),
        max_cycles=LIMIT_CYCLES,
    )
    # Sent in cycles 0 to 3. The other port's is sent in 50 to 53 and traced in 54, and the wake is taken in 55 and 56.
    waited, behind, _, other = run.results
    assert (waited["done"], waited["tries"], waited["header"]["status"]) == (Done.ANSWERED, 2, Status.GRANTED)
    assert [int(waited[name]) for name in ("sent_cycle", "first_cycle", "last_cycle")] == [60, 62, 63]
    assert (int(behind["sent_cycle"]), int(behind["tries"])) == (67, 1)
    assert (int(other["sent_cycle"]), int(other["header"]["slot"])) == (67, 9)
    assert list(run.wakes) == [1, 0] and list(run.trace["slot"]).count(100) == 2


@pytest.mark.parametrize(("refusals", "status"), [(1, Status.OK), (9, Status.NOT_READY)])
def test_without_a_wake_it_is_asked_once_more_when_the_time_is_over(tiny, refusals, status):
    run = tiny.run(
        batch_of({"member": refusals, "patience": 100}, {"opcode": Opcode.READ, "length": 16}), max_cycles=LIMIT_CYCLES
    )
    first, second = run.results
    # First sent in cycle 3, so offered again in cycle 103.
    assert (first["sent_cycle"], first["tries"], first["header"]["status"]) == (106, 2, status)
    assert (second["sent_cycle"], second["done"]) == (113, Done.ANSWERED)


@pytest.mark.parametrize(("patience", "tries"), [(0, 1), (1, 1), (3, 1), (4, 2), (5, 2)])
def test_answer_after_the_time_is_the_last(tiny, patience, tries):
    # Sent in cycle 3, answered in cycle 6.
    run = tiny.run(batch_of({"member": 9, "patience": patience}), max_cycles=LIMIT_CYCLES)
    assert (run.results[0]["tries"], run.results[0]["header"]["status"]) == (tries, Status.NOT_READY)


def test_only_the_request_with_patience_is_sent_again(tiny):
    refused = {"member": 1, "patience": 0}
    run = tiny.run(batch_of(refused, {"patience": 500}, {"member": 2}, {}, refused), max_cycles=LIMIT_CYCLES)
    assert list(run.results["tries"]) == [1] * 5
    assert list(run.results["header"]["status"] == Status.NOT_READY) == [True, False, True, False, True]
    assert run.cycles < 100


@pytest.mark.parametrize("name", ["narrow", "tiny", "wide"])
@pytest.mark.parametrize("stalls", [{}, STALLS], ids=["straight", "stalls"])
def test_wake_between_request_and_answer_is_not_lost(name, stalls):
    # Each sending is woken before it is answered, so none has to wait.
    batch = batch_of({"member": 5, "patience": 100_000, "group": 0b01}, {})
    with open_harness(name) as harness:
        run = harness.run(batch, max_cycles=LIMIT_CYCLES, **stalls)
    assert (list(run.results["tries"]), run.wakes[0]) == ([6, 1], 6)
    assert list(run.results["header"]["status"]) == [Status.OK, Status.OK]


def test_wake_counts_from_the_first_beat_of_the_request_on(tiny):
    for cycle in range(10, 40):
        tiny.reset()
        batch = batch_of(
            {"port": 0, "member": 1, "patience": 200, "earliest_cycle": 20},
            {"port": 1, "group": 0b01, "earliest_cycle": cycle},
        )
        run = tiny.run(batch, max_cycles=LIMIT_CYCLES)
        assert (run.results[0]["tries"], run.results[0]["header"]["status"], run.wakes[0]) == (2, Status.OK, 1)
        # The wake is taken 5 and 6 cycles after `cycle`, or after the answer. The first sending is in 20 to 23.
        last_beat = cycle + 6
        if last_beat < 20:
            assert run.results[0]["sent_cycle"] == 23 + 200 + 3
        elif last_beat < 26:
            # The answer is taken in 25 and 26, or one cycle later if a wake is in its way.
            assert run.results[0]["sent_cycle"] == 27 + (last_beat == 25) + 3
        else:
            assert run.results[0]["sent_cycle"] == max(last_beat, 28) + 4


def test_wait_is_named_in_a_stall(tiny):
    batch = batch_of({"opcode": Opcode.READ, "member": 1, "patience": 1000}, {})
    with pytest.raises(HarnessStall, match="READ, tag 100, port 0.* was answered NOT_READY in cycle 6 and waits to be"):
        tiny.run(batch, max_cycles=200)
    tiny.reset()
    with pytest.raises(HarnessStall, match="is not sent again: 2 of its 4 beats were accepted; 2 of 2"):
        tiny.run(batch, max_cycles=1003 + 2)
