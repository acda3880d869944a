"""Random traffic: the same for a seed, and with everything in it that it promises."""

from collections import Counter

import numpy as np
import pytest

from kvnode.models.spec.batch import BATCH_DTYPE
from kvnode.models.spec.config import preset
from kvnode.models.spec.enums import Opcode, Status
from kvnode.models.spec.messages import REQUEST
from kvnode.models.spec.requests import check_request
from kvnode.verif.traffic import Traffic

TINY = preset("tiny")


def made(seed, requests=400, config=TINY, **options):
    batch, payload = Traffic(config, seed, **options).batch(requests)
    return batch.tobytes(), payload


def form_of(config, row):
    fields = REQUEST.unpack(row["header"].tobytes())
    return check_request(config, int(row["port"]), 0, fields, int(row["payload_bytes"]))


def test_seed_decides_everything():
    assert made(5) == made(5)
    assert made(5) != made(6)
    assert made(5, malformed=0)[0] != made(5, malformed=0.5)[0]


def test_second_batch_goes_on_and_is_decided_by_the_seed_too():
    first, second = Traffic(TINY, 3), Traffic(TINY, 3)
    ours = [first.batch(100) for _ in range(2)]
    theirs = [second.batch(100) for _ in range(2)]
    assert [(b.tobytes(), p) for b, p in ours] == [(b.tobytes(), p) for b, p in theirs]
    assert ours[0][0].tobytes() != ours[1][0].tobytes()


@pytest.mark.parametrize("name", ["tiny", "sim", "wide"])
def test_every_opcode_comes_on_every_port(name):
    config = preset(name)
    batch, _ = Traffic(config, 1, malformed=0).batch(3000 * config.ports)
    seen = Counter(zip(batch["port"].tolist(), batch["header"]["opcode"].tolist()))
    assert set(seen) == {(port, int(opcode)) for port in range(config.ports) for opcode in Opcode}


def test_batch_is_at_least_as_long_as_asked():
    batch, _ = Traffic(TINY, 1).batch(123)
    assert batch.dtype == BATCH_DTYPE and 123 <= len(batch) < 160


def test_payloads_lie_behind_each_other():
    batch, payload = Traffic(TINY, 1).batch(300)
    sizes = batch["payload_bytes"].astype(np.int64)
    assert batch["payload_offset"].tolist() == (np.cumsum(sizes) - sizes).tolist()
    assert len(payload) == sizes.sum()


def test_handles_come_from_an_earlier_request_of_the_partition():
    batch, _ = Traffic(TINY, 1).batch(300)
    sources = batch["handle_from"]
    asking = np.flatnonzero(sources >= 0)
    assert len(asking) > 50
    assert all(sources[index] < index for index in asking)
    partitions = np.array(TINY.partition_of_port)[batch["port"]]
    assert all(partitions[index] == partitions[sources[index]] for index in asking)
    given = batch["header"]["opcode"][sources[asking]]
    well_formed = np.isin(given, [Opcode.PUT_START, Opcode.LOOKUP])
    assert well_formed.mean() > 0.9


def test_only_the_ports_asked_for_send():
    batch, _ = Traffic(preset("sim"), 1, ports=(0, 3)).batch(300)
    assert set(batch["port"].tolist()) == {0, 3}


def test_traffic_without_malformed_messages_has_none():
    batch, _ = Traffic(TINY, 2, malformed=0).batch(500)
    forms = Counter(
        form_of(TINY, row)
        for row in batch
        if row["handle_from"] < 0 and row["session_from"] < 0 and row["header"]["opcode"] != Opcode.WRITE
    )
    # What goes to another partition is well-formed, and denied; some members name shares that do not fit.
    shares = forms.pop(Status.BAD_REQUEST)
    assert set(forms) <= {Status.OK, Status.STALE_HANDLE, Status.DENIED} and shares < 0.1 * len(batch)


def test_malformed_share_is_about_what_was_asked():
    batch, _ = Traffic(TINY, 2, malformed=0.5).batch(2000)
    refused = [form_of(TINY, row) in (Status.BAD_REQUEST, Status.DENIED) for row in batch]
    # Some of what is spoiled still passes: a digest or a payload of another length, a field drawn as it was.
    assert 0.2 < np.mean(refused) < 0.6


def test_keys_are_few_so_that_operations_meet():
    batch, _ = Traffic(TINY, 4, keys=3, malformed=0).batch(600)
    starts = batch[batch["header"]["opcode"] == Opcode.PUT_START]
    keys = Counter((int(TINY.partition_of_port[row["port"]]), row["header"]["digest"].tobytes()) for row in starts)
    assert 3 <= len(keys) <= 6
