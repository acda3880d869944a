"""The rules of a batch, violations, stalls, patterns, waves and builds."""

import multiprocessing
import os
import re

import numpy as np
import pytest

from kvnode.models.spec.config import NodeConfig
from kvnode.models.spec.enums import Flag, Opcode, ResponseFlag, Status
from kvnode.models.spec.messages import HANDLE

from . import build, stand_in
from .bench import BOOT_EPOCH, CONFIGS, LIMIT_CYCLES, batch_of, open_harness, read_bytes, words_xor
from .contract import Code, Done
from .harness import HarnessError, HarnessStall, RunError, StreamViolation
from .stand_in import Fault


def pattern(config: NodeConfig, seed: int, cycle: int, port: int) -> tuple[int, int]:
    """The draws for idle and backpressure, written down anew from what `Harness.run` promises."""

    def mix(x):
        x = x + 0x9E3779B97F4A7C15 & (1 << 64) - 1
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
        x = (x ^ x >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
        return x ^ x >> 31

    draw = mix(seed ^ mix(cycle * config.ports + port))
    return draw & 0xFFFF, draw >> 16 & 0xFFFF


@pytest.mark.parametrize("stalls", [{}, {"idle": 0.4, "backpressure": 0.6, "seed": 7}], ids=["straight", "stalls"])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_port_gets_its_own_answers(name, stalls):
    config, rng = CONFIGS[name], np.random.default_rng(1)
    payload = rng.integers(0, 256, 4096, np.uint8).tobytes()
    requests = []
    for index in range(60):
        length = int(rng.integers(0, config.max_payload_bytes // config.beat_bytes)) * config.beat_bytes
        length = min(length, 512)
        request = {"port": int(rng.integers(config.ports)), "sequence": 1000 * index, "length": length}
        request["opcode"] = int(rng.choice([Opcode.READ, Opcode.WRITE, Opcode.PING]))
        if request["opcode"] == Opcode.WRITE:
            request |= {"payload_bytes": int(rng.integers(1, 300)), "payload_offset": int(rng.integers(0, 3000))}
        requests.append(request)
    batch = batch_of(*requests)
    with open_harness(name) as harness:
        run = harness.run(batch, payload, max_cycles=20 * LIMIT_CYCLES, **stalls)

    assert (run.results["done"] == Done.ANSWERED).all() and (run.results["tries"] == 1).all()
    request_beats, response_beats = np.zeros(config.ports), np.zeros(config.ports)
    for index, (request, result) in enumerate(zip(requests, run.results)):
        sent = payload[request.get("payload_offset", 0) :][: request.get("payload_bytes", 0)]
        beats = -(-64 // config.beat_bytes) + -(-len(sent) // config.beat_bytes)
        header = result["header"]
        assert header["tag"] == index + 100
        assert header["count"] == beats
        assert header["crc"] == words_xor(sent)
        assert header["boot_epoch"] == BOOT_EPOCH
        expected = read_bytes(1000 * index, request["length"]) if request["opcode"] == Opcode.READ else b""
        assert run.payload(index) == expected
        assert result["sent_cycle"] < result["first_cycle"] <= result["last_cycle"] < run.cycles
        request_beats[request["port"]] += beats
        response_beats[request["port"]] += -(-32 // config.beat_bytes) + -(-len(expected) // config.beat_bytes)
    assert list(run.request_beats) == list(request_beats)
    assert list(run.response_beats) == list(response_beats)
    assert list(run.trace["order"]) == list(range(60))
    assert sorted(run.trace["slot"]) == [index + 100 for index in range(60)]
    for port in range(config.ports):
        own = [index for index, request in enumerate(requests) if request["port"] == port]
        assert [int(tag) - 100 for tag in run.trace["slot"][run.trace["owner"] == port]] == own
        assert (np.diff(run.results["first_cycle"][own].astype(int)) > 0).all()


def test_cycles_count_from_reset_and_runs_continue(tiny):
    first = tiny.run(batch_of({"port": 0}), max_cycles=LIMIT_CYCLES)
    # Tiny: a header has 4 beats in cycles 0 to 3, the trace record takes one cycle, then come 2 beats.
    assert [int(first.results[0][name]) for name in ("sent_cycle", "first_cycle", "last_cycle")] == [3, 5, 6]
    assert (first.cycles, int(first.trace["cycle"][0])) == (7, 4)
    second = tiny.run(batch_of({"port": 0}), max_cycles=LIMIT_CYCLES)
    assert (second.first_cycle, int(second.results[0]["sent_cycle"])) == (7, 10)
    tiny.reset()
    assert tiny.cycle == 0
    assert [list(counts) for counts in tiny.counters()] == [[0, 0], [0, 0]]


def test_earliest_cycle_counts_from_the_start_of_the_run(tiny):
    tiny.idle(50)
    run = tiny.run(batch_of({"earliest_cycle": 20}), max_cycles=LIMIT_CYCLES)
    assert int(run.results[0]["sent_cycle"]) == 50 + 20 + 3


def test_after_waits_for_the_answer_on_another_port(tiny):
    run = tiny.run(
        batch_of({"port": 1, "earliest_cycle": 30}, {"port": 0, "after": 0}, {"port": 1, "after": 1}),
        max_cycles=LIMIT_CYCLES,
    )
    sent, last = run.results["sent_cycle"].astype(int), run.results["last_cycle"].astype(int)
    assert list(sent) == [33, last[0] + 4, last[1] + 4]


@pytest.mark.parametrize("flags", [0, ResponseFlag.LEASED])
def test_handle_of_the_answer_is_sent_and_the_rest_of_the_digest_stays(tiny, flags):
    digest = bytes.fromhex("01020304 05060708 090A0B0C")
    source = {"port": 1, "ttl": Status.GRANTED, "deadline": flags, "digest": digest}
    run = tiny.run(batch_of(source, {"port": 0, "handle_from": 0, "digest": b"\xff" * 32}), max_cycles=LIMIT_CYCLES)
    # The lease is where the stand-in tells the bytes of the digest from the eighth on.
    lease = "090A0B0C" if flags else "FFFFFFFF"
    handle = bytes.fromhex(f"01020304 05060708 {BOOT_EPOCH:02X}000000 {lease}")
    assert run.trace["digest"][1].tobytes() == handle + b"\xff" * 16


@pytest.mark.parametrize("status", Status)
def test_request_without_a_handle_is_skipped(tiny, status):
    run = tiny.run(
        batch_of(
            {"port": 1, "ttl": status},
            {"port": 0, "handle_from": 0},
            {"port": 1, "handle_from": 1},
            {"port": 0, "after": 2},
        ),
        max_cycles=LIMIT_CYCLES,
    )
    middle = Done.ANSWERED if status in (Status.GRANTED, Status.HIT, Status.OK) else Done.SKIPPED
    assert list(run.results["done"]) == [Done.ANSWERED, middle, middle, Done.ANSWERED]
    if middle == Done.SKIPPED:
        # Skipping takes no time: the last request starts in the cycle after the only answer.
        assert run.results[3]["sent_cycle"] == run.results[0]["last_cycle"] + 4
        assert not run.results[1:3]["header"].tobytes().strip(b"\0")
        assert len(run.trace) == 2


def test_session_of_the_answer_is_sent(tiny):
    source = {"port": 1, "opcode": Opcode.SESSION_OPEN, "digest": bytes.fromhex("01020380 05060000")}
    handle = {"port": 1, "digest": bytes.fromhex("11121314")}
    asked = {"port": 0, "session_from": 0, "handle_from": 1, "session": 7, "session_epoch": 9}
    run = tiny.run(batch_of(source, handle, asked), max_cycles=LIMIT_CYCLES)
    last = run.trace[run.trace["owner"] == 0][0]
    assert (last["session"], last["session_epoch"]) == (0x80030201, 0x0605)
    assert last["digest"].tobytes()[:4] == bytes.fromhex("11121314")
    assert run.results["sent_cycle"][2] == run.results["last_cycle"][1] + 4


@pytest.mark.parametrize("status", [Status.OK, Status.HIT, Status.GRANTED, Status.DENIED])
@pytest.mark.parametrize("opcode", Opcode)
def test_request_without_a_session_is_skipped(tiny, opcode, status):
    source = {"port": 1, "opcode": opcode, "ttl": status}
    run = tiny.run(
        batch_of(source, {"port": 0, "session_from": 0}, {"port": 1, "session_from": 1}), max_cycles=LIMIT_CYCLES
    )
    good = status == Status.OK and opcode in (
        Opcode.SESSION_OPEN, Opcode.SESSION_FENCE, Opcode.SESSION_MIGRATE, Opcode.SESSION_CLOSE
    )  # fmt: skip
    assert list(run.results["done"]) == [Done.ANSWERED, Done.ANSWERED if good else Done.SKIPPED, Done.SKIPPED]
    assert list(run.results["tries"]) == [1, int(good), 0]


@pytest.mark.parametrize("name", CONFIGS)
def test_leased_match_is_followed_by_handles_and_another_is_not(name):
    match = {"opcode": Opcode.MATCH, "flags": Flag.LEASE, "length": 64, "sequence": 500, "payload_bytes": 64}
    batch = batch_of(match | {"deadline": ResponseFlag.LEASED}, match, {"opcode": Opcode.PING, "length": 64})
    with open_harness(name) as harness:
        run = harness.run(batch, bytes(64), max_cycles=LIMIT_CYCLES)
    assert [run.payload(index) for index in range(3)] == [read_bytes(500, 64), b"", b""]
    assert list(run.results["header"]["length"]) == [64, 0, 0]


def test_room_for_payloads_is_what_can_be_asked_for(tiny):
    runs = HANDLE.pack(stride=32, count=3)
    read = {"opcode": Opcode.READ, "length": 16, "digest": runs}
    match = {"opcode": Opcode.MATCH, "length": 64}
    for request, room in (
        (read, 16),
        (read | {"flags": Flag.BY_HANDLE}, 48),
        (read | {"length": 0}, 128),
        (read | {"length": 64, "flags": Flag.BY_HANDLE}, 128),
        (match, 0),
        (match | {"flags": Flag.LEASE}, 64),
        (match | {"flags": Flag.LEASE, "length": 4096}, 64),
    ):
        assert tiny._room(batch_of(request)) == room


def test_idle_and_backpressure_follow_the_promised_pattern():
    config = CONFIGS["wide"]
    with open_harness("wide") as harness:
        for seed in range(5):
            harness.reset()
            run = harness.run(batch_of({"port": 3}), max_cycles=LIMIT_CYCLES, idle=0.75, seed=seed)
            offered = next(c for c in range(LIMIT_CYCLES) if pattern(config, seed, c, 3)[0] >= 0xC000)
            assert int(run.results[0]["sent_cycle"]) == offered
            harness.reset()
            run = harness.run(batch_of({"port": 5}), max_cycles=LIMIT_CYCLES, backpressure=0.75, seed=seed)
            ready = [c for c in range(LIMIT_CYCLES) if pattern(config, seed, c, 5)[1] >= 0xC000]
            assert int(run.results[0]["sent_cycle"]) == ready[0]
            assert int(run.results[0]["last_cycle"]) == next(c for c in ready if c >= ready[0] + 2)


def test_runs_repeat_exactly_with_and_without_waves():
    batch = batch_of(*({"port": index % 2, "opcode": Opcode.READ, "length": 64} for index in range(20)))
    runs = []
    for waves in (None, None, True):
        with open_harness(waves=waves) as harness:
            runs.append(harness.run(batch, max_cycles=LIMIT_CYCLES, idle=0.3, backpressure=0.3, seed=11))
    assert len({run.results.tobytes() for run in runs}) == 1
    assert len({run.trace.tobytes() for run in runs}) == 1


def test_trace_of_idle_cycles_is_kept_for_the_next_taker(tiny):
    run = tiny.run(batch_of({"after": -1}, {}), max_cycles=LIMIT_CYCLES)
    assert len(run.trace) == 2 and len(tiny.take_trace()) == 0
    tiny.idle(10)
    assert tiny.run(batch_of({}), max_cycles=LIMIT_CYCLES).trace["order"].tolist() == [2]


def test_stall_names_the_first_unanswered_request(tiny):
    batch = batch_of({"port": 0}, {"port": 1, "opcode": Opcode.LOOKUP, "tag": 77, "members": Fault.SILENT}, {"port": 0})
    with pytest.raises(HarnessStall) as caught:
        tiny.run(batch, max_cycles=200)
    stall = caught.value
    assert (stall.request, stall.port, stall.opcode, stall.tag, stall.cycle) == (1, 1, Opcode.LOOKUP, 77, 200)
    assert str(stall) == (
        "no end after 200 cycles, in cycle 200: request 1 (LOOKUP, tag 77, port 1) was sent in cycle 3 and is not "
        "answered; 1 of 3 requests are unanswered"
    )
    assert list(stall.result.results["done"]) == [1, 0, 1]
    with pytest.raises(HarnessError, match="must be reset"):
        tiny.run(batch_of({}), max_cycles=LIMIT_CYCLES)
    tiny.reset()
    assert tiny.run(batch_of({}), max_cycles=LIMIT_CYCLES).results[0]["done"] == Done.ANSWERED


def test_stall_says_how_much_of_a_request_was_accepted(tiny):
    with pytest.raises(HarnessStall, match=r"port 0\) is not sent: 0 of its 6 beats were accepted"):
        tiny.run(batch_of({"payload_bytes": 17}), bytes(17), max_cycles=50, backpressure=1.0)


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (Fault.WITHDRAW, Code.WITHDRAWN, "rsp_valid fell"),
        (Fault.UNSTABLE, Code.UNSTABLE, "rsp_data or rsp_last changed"),
        (Fault.SHORT, Code.SHORT, r"rsp_last came with beat 1, but the message has [26] beats"),
        (Fault.LONG, Code.LONG, r"rsp_last did not come with beat [26], the final one"),
        (Fault.WRONG_TAG, Code.WRONG_TAG, "the response has tag 102, its request has tag 101"),
        (Fault.TWICE, Code.UNASKED, "every request sent was already answered"),
        (Fault.EARLY, Code.EARLY, "before the last beat of its request"),
    ],
)
@pytest.mark.parametrize("name", ["tiny", "wide"])
def test_stream_violation_is_caught(name, fault, code, words):
    # One request that is well answered, then the faulty one, on the other port.
    faulty = {"port": 1, "opcode": Opcode.READ, "length": 64, "members": fault, "payload_bytes": 256, "after": 0}
    batch = batch_of({"port": 0, "opcode": Opcode.READ, "length": 64}, faulty)
    with open_harness(name) as harness, pytest.raises(StreamViolation, match=words) as caught:
        harness.run(batch, bytes(256), max_cycles=LIMIT_CYCLES, min_cycles=1000, backpressure=0.8)
    violation = caught.value
    assert (violation.code, violation.port) == (code, 1)
    assert violation.request == (-1 if fault == Fault.TWICE else 1)
    assert f"port 1, cycle {violation.cycle}" in str(violation)
    assert violation.result.results[0]["done"] == Done.ANSWERED
    assert violation.cycle > violation.result.results[0]["last_cycle"]


def test_more_data_than_asked_for_is_refused(tiny, monkeypatch):
    monkeypatch.setattr(tiny, "_room", lambda batch: 63)
    with pytest.raises(RunError, match="more bytes than the READs"):
        tiny.run(batch_of({"opcode": Opcode.READ, "length": 64}), max_cycles=LIMIT_CYCLES)


def test_trace_limit_ends_the_run():
    with open_harness(trace_limit=5) as harness, pytest.raises(RunError, match="5 trace records") as caught:
        harness.run(batch_of(*[{}] * 9), max_cycles=LIMIT_CYCLES)
    assert list(caught.value.result.trace["order"]) == [0, 1, 2, 3, 4]


def test_error_of_the_model_does_not_end_the_process(tiny):
    with pytest.raises(RunError, match="node.v"):
        tiny.write_register(0xDEAD, 0)


@pytest.mark.parametrize(
    ("request_fields", "message"),
    [
        ({"port": 2}, r"batch\[1\].port = 2: there are 2 ports"),
        ({"after": 1}, r"batch\[1\].after = 1: only an earlier request"),
        ({"handle_from": 5}, r"batch\[1\].handle_from = 5: only an earlier request"),
        ({"session_from": 1}, r"batch\[1\].session_from = 1: only an earlier request"),
        ({"payload_bytes": 1}, r"batch\[1\].payload_offset = 0: .* ends behind the payload of 0 bytes"),
    ],
)
def test_senseless_batch_is_refused(tiny, request_fields, message):
    with pytest.raises(ValueError, match=message):
        tiny.run(batch_of({}, request_fields), max_cycles=LIMIT_CYCLES)


def test_probability_and_boot_epoch_are_checked(tiny):
    with pytest.raises(ValueError, match=r"idle = 1.5 is not a probability"):
        tiny.run(batch_of({}), max_cycles=LIMIT_CYCLES, idle=1.5)
    with pytest.raises(ValueError, match="boot_epoch = 16 does not fit in 4 bits"):
        tiny.reset(16)


def vcd_changes(text: str, name: str) -> dict[int, str]:
    """The changes of a one-bit signal of the top, by time."""
    code = re.findall(rf"\$var wire +1 (\S+) {name} \$end", text)[0]
    changes, time = {}, 0
    for line in text[text.index("$enddefinitions") :].splitlines():
        if line.startswith("#"):
            time = int(line[1:])
        elif line[1:] == code:
            changes[time] = line[0]
    return changes


def test_waves_hold_the_window_and_no_more(tmp_path):
    with open_harness(waves=True) as harness:
        harness.waves(tmp_path / "one.vcd", 20, 29)
        batch = batch_of({"earliest_cycle": 22, "port": 1})
        assert int(harness.run(batch, max_cycles=LIMIT_CYCLES).results[0]["sent_cycle"]) == 25
        harness.idle(20)
        harness.waves(tmp_path / "two.vcd", harness.cycle, harness.cycle + 4)
        harness.idle(20)
    text = (tmp_path / "one.vcd").read_text()
    times = [int(time) for time in re.findall(r"^#(\d+)$", text, re.M)]
    assert "$timescale 1ns $end" in re.sub(r"\s+", " ", text)
    assert (times[0], times[-1]) == (40, 59)
    assert vcd_changes(text, "p1_req_valid") == {40: "0", 44: "1", 52: "0"}
    assert (tmp_path / "two.vcd").stat().st_size > 0


def test_waves_need_a_build_with_waves(tiny, tmp_path):
    with pytest.raises(HarnessError, match="built without waves"):
        tiny.waves(tmp_path / "x.vcd")


def test_coverage_counts_every_cycle_since_the_node_was_made(tmp_path):
    with open_harness("tiny", coverage=True) as harness:
        counts = []
        for name in ("one", "two"):
            harness.run(batch_of({"opcode": Opcode.PING}), max_cycles=LIMIT_CYCLES)
            harness.reset(BOOT_EPOCH)
            harness.coverage(tmp_path / name)
            lines = (tmp_path / name).read_text().splitlines()
            counts.append(max(int(line.split()[-1]) for line in lines if "v_toggle" in line or "v_line" in line))
    assert counts[1] > counts[0] > 0


def test_coverage_needs_a_build_with_coverage(tiny, tmp_path):
    with pytest.raises(HarnessError, match="built without coverage"):
        tiny.coverage(tmp_path / "x.dat")


def test_closed_harness_says_so(tiny):
    tiny.close()
    tiny.close()
    with pytest.raises(HarnessError, match="closed"):
        tiny.idle(1)


def build_in(cache, queue):
    os.environ["KVNODE_CACHE"] = cache
    stages: list[str] = []
    config = CONFIGS["tiny"]
    path = build.build(config, text=stand_in.verilog(config), optimise=False, progress=stages.append)
    queue.put((str(path), stages))


def test_two_builds_at_once_share_one_library(tmp_path):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    builders = [context.Process(target=build_in, args=(str(tmp_path), queue)) for _ in range(2)]
    for builder in builders:
        builder.start()
    answers = [queue.get() for _ in builders]
    for builder in builders:
        builder.join(60)
    assert len({path for path, _ in answers}) == 1
    assert ["verilate", "compile", "link"] in [stages for _, stages in answers]
    assert [path.name for path in (tmp_path / "harness").iterdir()] == [answers[0][0].split("/")[-2]]
    build_in(str(tmp_path), queue)
    assert queue.get() == (answers[0][0], [])


def test_error_in_the_design_shows_the_tools_text():
    with pytest.raises(build.BuildError, match=r"(?s)%Error: node.v:1:.*syntax error"):
        build.build(CONFIGS["tiny"], text="module kvnode_node(input clk; endmodule\n")


def test_lint_passes_generated_code_and_catches_the_rest():
    text = stand_in.verilog(CONFIGS["tiny"])
    build.lint(text)
    with pytest.raises(build.BuildError, match="%Warning-WIDTHTRUNC"):
        build.lint(text.replace("endmodule", "wire [1:0] w = {clk, 2'b11};\nendmodule", 1))
    with pytest.raises(build.BuildError, match="%Warning-LATCH"):
        build.lint(text.replace("endmodule", "reg l; always @* if (clk) l = rst;\nendmodule", 1))
