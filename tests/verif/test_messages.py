"""The checker of messages on runs made by a golden node: right ones pass, and every kind of wrong one is caught."""

import numpy as np
import pytest

from kvnode.models.golden import Difference
from kvnode.models.golden.crc import crc32c
from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.config import preset
from kvnode.models.spec.enums import Kind, Opcode, Status
from kvnode.models.spec.messages import REQUEST, TraceFlag
from kvnode.verif.checkers.messages import MessageCheck, WrongAnswer
from kvnode.verif.traffic import Traffic

TINY = preset("tiny")
BEAT = 16
PORT = 1  # Of partition 0.
KEY, OTHER = 0xBEEF, 0x1234
PING, PUT_START, WRITE, PUT_END, READ, MATCH, LOOKUP, BAD = range(8)


def batch_of(*requests):
    """BATCH_DTYPE and payload of (port, fields, payload, handle_from) in order."""
    rows, payloads = [], b""
    for port, fields, payload, handle_from in requests:
        values = {"version": 1, "partition": TINY.partition_of_port[port]} | fields
        header = np.frombuffer(REQUEST.pack(**values), BATCH_DTYPE["header"])[0]
        rows.append((port, -1, handle_from, -1, len(payload), len(payloads), 0, 0, header))
        payloads += payload
    return np.array(rows, BATCH_DTYPE), payloads


DATA = bytes(range(2 * BEAT))
STORY_START = PORT, {"opcode": Opcode.PUT_START, "digest": KEY, "length": 2 * BEAT}, b"", -1
STORY = batch_of(
    (PORT, {"opcode": Opcode.PING, "tag": 7}, b"", -1),
    STORY_START,
    (PORT, {"opcode": Opcode.WRITE, "length": 2 * BEAT}, DATA, PUT_START),
    (PORT, {"opcode": Opcode.PUT_END, "digest": crc32c(DATA) << 192}, b"", PUT_START),
    (PORT, {"opcode": Opcode.READ, "digest": KEY}, b"", -1),
    (PORT, {"opcode": Opcode.MATCH, "length": 64}, b"".join(k.to_bytes(32, "little") for k in (KEY, OTHER)), -1),
    (PORT, {"opcode": Opcode.LOOKUP, "digest": OTHER}, b"", -1),
    (PORT, {"opcode": Opcode.LOOKUP, "digest": KEY, "session": 1}, b"", -1),
)


@pytest.fixture
def story(make_runs):
    """The run of STORY."""
    return make_runs(TINY).run(*STORY)


def check(run, batch=STORY):
    checker = MessageCheck(TINY)
    checker.check(*batch, run)
    return checker


def renumbered(trace):
    """Records without a gap again, so that only the checker of messages can find what was changed."""
    trace = trace.copy()
    trace["order"], trace["cycle"] = np.arange(len(trace)), 16 * np.arange(len(trace))
    return trace


def nth(trace, kind, number=0):
    return int(np.flatnonzero(trace["kind"] == kind)[number])


def test_story_is_answered_as_it_should_be(story):
    assert [Status(s).name for s in story.results["header"]["status"].tolist()] == [
        "OK", "GRANTED", "OK", "SEALED", "OK", "HIT", "MISS", "BAD_REQUEST",
    ]  # fmt: skip
    assert story.payload(READ) == DATA
    assert check(story).answers_checked == 8


@pytest.mark.parametrize("name", ["tiny", "sim"])
@pytest.mark.parametrize("malformed", [0, 0.3])
def test_random_runs_of_a_golden_node_pass(make_runs, name, malformed):
    config = preset(name)
    node, checker = make_runs(config, 2), MessageCheck(config, 2)
    traffic = Traffic(config, 11, malformed=malformed)
    sent = answered = 0
    for _ in range(2):
        batch, payload = traffic.batch(400)
        # Blocks that nobody finishes hold the fill rows of tiny until their model retires.
        run = node.run(batch, payload, retire_every=50)
        checker.check(batch, payload, run)
        assert {Kind.RETIRE_MODEL, Kind.PATROL, Kind.REAP} <= set(run.trace["kind"].tolist())
        sent, answered = sent + len(batch), answered + int((run.results["done"] == 1).sum())
    assert checker.answers_checked == answered > 0.5 * sent


@pytest.mark.parametrize("index", range(len(STORY[0])))
def test_wrong_status_is_caught(story, index):
    story.results["header"]["status"][index] ^= 4
    with pytest.raises(WrongAnswer, match=f"^request {index} on port 1 .*differ: .'status'"):
        check(story)


@pytest.mark.parametrize(
    ("index", "field"),
    [
        (PING, "tag"), (PUT_START, "slot"), (PUT_START, "generation"), (PUT_START, "boot_epoch"), (WRITE, "watermark"),
        (PUT_END, "length"), (READ, "opcode"), (MATCH, "count"), (LOOKUP, "version"), (BAD, "flags"), (READ, "crc"),
    ],
)  # fmt: skip
def test_wrong_field_is_caught_and_both_values_are_told(story, index, field):
    right = int(story.results["header"][field][index])
    story.results["header"][field][index] += 1
    if (index, field) in ((PUT_START, "slot"), (PUT_START, "generation"), (PUT_START, "boot_epoch")):
        # A wrong handle is found where it is used, at the latest.
        with pytest.raises((WrongAnswer, Difference)):
            check(story)
        return
    with pytest.raises(WrongAnswer) as caught:
        check(story)
    assert f"the answer's (RTL, golden) differ: {{'{field}': ({right + 1}, {right})}}" in str(caught.value)
    assert str(caught.value).startswith(f"request {index} on port 1 ")


def test_wrong_byte_is_caught(story):
    wrong = bytearray(DATA)
    wrong[-1] ^= 1
    story.answers[READ] = bytes(wrong)
    with pytest.raises(WrongAnswer, match="^request 4 on port 1 .*the bytes differ from what was written"):
        check(story)


@pytest.mark.parametrize("data", [b"", DATA[:-BEAT], DATA + bytes(BEAT)])
def test_bytes_missing_or_too_many_are_caught(story, data):
    story.answers[READ] = data
    with pytest.raises(WrongAnswer, match="the bytes differ"):
        check(story)


def test_bytes_behind_an_answer_that_has_none_are_caught(story):
    story.answers[LOOKUP] = bytes(BEAT)
    with pytest.raises(WrongAnswer, match="^request 6 "):
        check(story)


@pytest.mark.parametrize("kind", [Kind.LOOKUP, Kind.READ, Kind.MATCH, Kind.ANSWER])
def test_operation_that_is_missing_is_caught(story, kind):
    story.trace = renumbered(np.delete(story.trace, nth(story.trace, kind)))
    with pytest.raises((WrongAnswer, Difference)):
        check(story)


def test_answer_without_an_operation_is_caught(story):
    story.trace = renumbered(story.trace[:-1])
    with pytest.raises(WrongAnswer, match="^request 7 .*was answered without an operation"):
        check(story)


def match_of(*digests):
    payload = b"".join(digest.to_bytes(32, "little") for digest in digests)
    return PORT, {"opcode": Opcode.MATCH, "length": len(payload)}, payload, -1


@pytest.fixture
def with_key(make_runs):
    """`with_key(*requests)`: a checker that has seen KEY sealed, the batch of the requests, and their run."""

    def run(*requests):
        node, checker = make_runs(TINY), MessageCheck(TINY)
        written = STORY[0][:4], STORY[1]
        checker.check(*written, node.run(*written))
        batch = batch_of(*requests)
        return checker, batch, node.run(*batch)

    return run


def test_match_that_looked_up_too_few_is_caught(with_key):
    checker, batch, run = with_key(match_of(KEY, KEY))
    run.trace = run.trace[:1]
    run.results["header"]["count"] = 1
    with pytest.raises(WrongAnswer, match="looked up 1 of 2 digests"):
        checker.check(*batch, run)


def test_match_that_looked_up_too_many_is_caught(with_key):
    # The surplus one is of digest 0, which is what the checker compares with behind the last.
    checker, _, run = with_key(match_of(KEY, 0))
    with pytest.raises(WrongAnswer, match="looked up 2 of 1 digests"):
        checker.check(*batch_of(match_of(KEY)), run)


@pytest.mark.parametrize("bit", [16, 255])
def test_match_with_a_digest_of_too_many_bits_is_looked_up_and_refused(with_key, bit):
    checker, batch, run = with_key(match_of(KEY, KEY | 1 << bit))
    assert run.trace["status"].tolist() == [Status.HIT, Status.HIT]
    assert (run.results["header"]["status"][0], run.results["header"]["count"][0]) == (Status.BAD_REQUEST, 0)
    checker.check(*batch, run)
    checker, batch, run = with_key(match_of(KEY, KEY | 1 << bit))
    run.results["header"]["status"], run.results["header"]["count"] = Status.HIT, 2
    with pytest.raises(WrongAnswer, match=r"differ: {'status': \(1, .*\), 'count': \(2, 0\)}"):
        checker.check(*batch, run)


def test_match_of_less_than_a_digest_asks_for_nothing_and_leaves_the_rest_to_the_messages_behind(with_key):
    torn = PORT, {"opcode": Opcode.MATCH, "length": 32}, bytes(BEAT), -1
    lookup = PORT, {"opcode": Opcode.LOOKUP, "digest": KEY}, b"", -1
    checker, batch, run = with_key(torn, lookup, torn, match_of(KEY), torn)
    assert run.trace["kind"].tolist() == [Kind.LOOKUP, Kind.MATCH]
    checker.check(*batch, run)
    answers = [Status(status).name for status in run.results["header"]["status"].tolist()]
    assert answers == ["BAD_REQUEST", "HIT", "BAD_REQUEST", "HIT", "BAD_REQUEST"]


@pytest.mark.parametrize("kind", [Kind.LOOKUP, Kind.ANSWER, Kind.READ])
def test_extra_operation_is_caught(story, kind):
    at = nth(story.trace, kind)
    story.trace = renumbered(np.insert(story.trace, at, story.trace[at]))
    with pytest.raises((WrongAnswer, Difference)):
        check(story)


def test_operation_for_no_message_is_named(story):
    story.trace = renumbered(np.append(story.trace, story.trace[nth(story.trace, Kind.LOOKUP)]))
    with pytest.raises(WrongAnswer, match=r"^port 1 issued LOOKUP in cycle \d+ for no message"):
        check(story)


def test_landing_of_no_write_is_caught(make_runs):
    batch = batch_of(STORY_START)
    node = make_runs(TINY)
    run = node.run(*batch)
    full = make_runs(TINY).run(*STORY)
    land = full.trace[nth(full.trace, Kind.LAND)].copy()
    land["accepted"] = land["landed"]
    run.trace = renumbered(np.append(run.trace, land))
    with pytest.raises(WrongAnswer, match=r"^port 1 issued LAND in cycle \d+ for no WRITE"):
        check(run, batch)


@pytest.mark.parametrize(("length", "landed"), [(2, 2), (1, 0)])
def test_landing_that_is_not_its_write_is_caught(make_runs, length, landed):
    # One beat is written. The port claims that two landed, or that the payload was broken when it was whole.
    batch = batch_of(STORY_START, (PORT, {"opcode": Opcode.WRITE, "length": BEAT}, DATA[:BEAT], 0))
    run = make_runs(TINY).run(*batch)
    land = run.trace[nth(run.trace, Kind.LAND)]
    land["length"], land["landed"], land["accepted"] = length, landed, landed
    if not landed:
        land["flags"] &= ~TraceFlag.WHOLE & 0xFF
        land["status"] = run.results["header"]["status"][1] = Status.BAD_REQUEST
    run.results["header"]["watermark"][1] = landed * BEAT
    with pytest.raises(WrongAnswer, match="^request 1 on port 1 "):
        check(run, batch)


def test_operation_of_another_key_is_caught(story):
    # Both keys are absent, so the directory's answer is the same for both.
    at = nth(story.trace, Kind.LOOKUP)
    story.trace["digest"][at] = np.frombuffer((OTHER + 1).to_bytes(32, "little"), "V32")[0]
    with pytest.raises(WrongAnswer, match="the port issued another digest than"):
        check(story)


@pytest.mark.parametrize(("field", "value"), [("model_id", 1), ("group", 9)])
def test_operation_of_another_model_or_group_is_caught(story, field, value):
    story.trace[field][nth(story.trace, Kind.LOOKUP)] = value
    with pytest.raises(WrongAnswer, match=f"the port issued another {field} than"):
        check(story)


def test_refused_message_that_is_executed_is_caught(story):
    at = len(story.trace) - 1
    lookup = story.trace[nth(story.trace, Kind.LOOKUP)]
    story.trace[at] = lookup
    story.trace = renumbered(story.trace)
    with pytest.raises(WrongAnswer, match="should be answered BAD_REQUEST, not LOOKUP"):
        check(story)


def test_request_that_was_skipped_asks_for_nothing(make_runs):
    batch = batch_of(
        (PORT, {"opcode": Opcode.LOOKUP, "digest": KEY}, b"", -1),
        (PORT, {"opcode": Opcode.READ, "flags": 1}, b"", 0),
    )
    run = make_runs(TINY).run(*batch)
    assert run.results["done"].tolist() == [1, 2]
    assert check(run, batch).answers_checked == 1
