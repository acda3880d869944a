"""The golden model as a library: its examples run, and a trace can be replayed with it and nothing else."""

import doctest
import hashlib

from kvnode.models.golden import GoldenNode
from kvnode.models.golden import node as node_module
from kvnode.models.spec.enums import Status
from kvnode.models.workloads import generate


def test_examples_in_the_docstring_run():
    result = doctest.testmod(node_module)
    assert result.attempted > 0 and result.failed == 0


def test_trace_is_replayed_with_the_node_alone():
    node = GoldenNode("sim")
    written, hits = {}, 0
    for request in generate(40).requests:
        digests = [digest_of(block) for block in request.block_ids.tolist()]
        if not digests:
            continue
        leading = 0
        for first in range(0, len(digests), node.config.max_match_digests):
            part = digests[first : first + node.config.max_match_digests]
            count = node.match(port=0, model_id=0, digests=part).fields["count"]
            leading += count
            if count < len(part):
                break
        hits += leading
        for digest in digests[:leading]:
            assert node.read(port=0, model_id=0, digest=digest).data == written[digest]
        for digest in digests[leading:]:
            written[digest] = digest.to_bytes(32, "little") * (node.config.block_bytes // 32)
            assert node.put(port=0, model_id=0, digest=digest, data=written[digest]).status == Status.SEALED
    assert hits > 0


def digest_of(number):
    return int.from_bytes(hashlib.sha256(str(number).encode()).digest(), "little")


def test_policy_can_be_tried_through_classes():
    node = GoldenNode("sim")
    slots = node.config.partitions[0].slots
    block = bytes(node.config.block_bytes)
    for number in range(slots + 500):
        klass = 0 if number < 16 else 3
        answer = node.put(port=0, model_id=0, digest=digest_of(number), data=block, klass=klass)
        assert answer.status == Status.SEALED
    kept = node.match(port=0, model_id=0, digests=[digest_of(number) for number in range(17)])
    assert kept.fields["count"] == 16
    assert node.partitions[0].free_count >= node.config.partitions[0].low_watermark_slots


def test_refusals_are_answers_and_not_exceptions():
    node = GoldenNode("tiny")
    assert node.put(0, 0, 1, bytes(17)).status == Status.BAD_REQUEST
    assert node.put(0, 99, 1, bytes(16)).status == Status.BAD_REQUEST
    assert node.read(0, 0, 1).status == Status.MISS
    assert node.drop(0, 0, 1).status == Status.MISS
