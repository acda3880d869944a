"""Two-dimensional reads on the golden node against slices of numpy arrays."""

import numpy as np
import pytest

from kvnode.models.spec.enums import Opcode

BEAT, BLOCK = 16, 192
WRITER, MATE = 3, 1
KEY = 0xFEDCBA9876543210
BEATS = 12


@pytest.fixture
def block(node):
    """(node, answer with the handle, the bytes as beats) of a sealed block of 12 beats."""
    data = node.bytes_of(BLOCK)
    granted = node.put(WRITER, 0, KEY, data)
    assert granted.status.name == "SEALED"
    return node, granted, np.frombuffer(data, np.uint8).reshape(BEATS, BEAT)


def read(node, granted, offset, run, stride, count, port=MATE, **fields):
    """READ of `count` runs; all in beats."""
    handle = node.handle_of(granted, stride=stride * BEAT, count=count)
    where = {"offset": offset * BEAT, "length": run * BEAT}
    return node.ask(port, Opcode.READ, digest=handle, flags=1, **where | fields)


@pytest.mark.parametrize(("heads", "layers", "run"), [(2, 3, 2), (3, 2, 2), (1, 4, 3), (4, 1, 3), (12, 1, 1)])
def test_one_layer_of_all_heads_is_a_column_of_the_block(block, heads, layers, run):
    # Head-major: [head][layer][beat], read layer by layer.
    node, granted, beats = block
    shaped = beats.reshape(heads, layers, run, BEAT)
    for layer in range(layers):
        answer = read(node, granted, layer * run, run, layers * run, heads)
        assert answer.status.name == "OK"
        assert answer.data == shaped[:, layer].tobytes()
        assert answer.fields["length"] == len(answer.data) == heads * run * BEAT


def test_every_well_formed_read_in_runs_equals_the_slices(block):
    node, granted, beats = block
    asked = 0
    for offset in (0, 1, 5, 11):
        for run in (1, 2, 5, 12):
            for stride in (0, 1, 2, 3, 7, 12):
                for count in (1, 2, 3, 6, 12):
                    span = (count - 1) * stride + run
                    answer = read(node, granted, offset, run, stride, count)
                    if run * count <= BEATS and offset + span <= BEATS:
                        rows = [beats[at : at + run] for at in offset + stride * np.arange(count)]
                        assert (answer.status.name, answer.data) == ("OK", np.concatenate(rows).tobytes())
                        asked += 1
                    else:
                        assert (answer.status.name, answer.data) == ("BAD_REQUEST", b"")
    assert asked > 50


@pytest.mark.parametrize(
    ("fields", "more"),
    [({"stride": 8, "count": 2}, {}), ({"stride": BEAT, "count": 0}, {}), ({"stride": BEAT, "count": 13}, {}),
     ({"stride": BLOCK + BEAT, "count": 1}, {}), ({"stride": BEAT, "count": 2}, {"length": 0}),
     ({"stride": BEAT, "count": 2}, {"length": 8}), ({"stride": 0, "count": 1 << 31}, {})],
)  # fmt: skip
def test_runs_that_are_not_inside_a_block_are_malformed(block, fields, more):
    node, granted, _ = block
    where = {"offset": 0, "length": BEAT} | more
    answer = node.ask(MATE, Opcode.READ, digest=node.handle_of(granted, **fields), flags=1, **where)
    assert answer.status.name == "BAD_REQUEST"


def test_runs_reach_to_the_end_of_a_short_block_and_no_further(node):
    data = node.bytes_of(5 * BEAT)
    granted = node.put(WRITER, 0, KEY, data)
    assert read(node, granted, 1, 1, 3, 2).data == data[BEAT : 2 * BEAT] + data[4 * BEAT :]
    assert read(node, granted, 2, 1, 3, 2).status.name == "BAD_REQUEST"


def test_runs_of_a_block_being_written_end_below_the_watermark(node):
    granted, data = node.start(), node.bytes_of(6 * BEAT)
    node.fill(granted, data)
    assert read(node, granted, 0, 1, 5, 2, WRITER).data == data[:BEAT] + data[5 * BEAT :]
    for offset, stride, count in ((1, 5, 2), (0, 2, 4), (6, 1, 1)):
        assert read(node, granted, offset, 1, stride, count, WRITER).status.name == "NOT_READY"
    assert read(node, granted, 0, 1, 5, 2, MATE).status.name == "NOT_READY"


def test_handle_that_is_granted_is_no_read_in_runs(block):
    node, granted, beats = block
    assert read(node, granted, 3, 0, 0, 0).data == beats[3:].tobytes()
    assert read(node, granted, 3, 2, 0, 0).data == beats[3:5].tobytes()
