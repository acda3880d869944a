"""The bound of an answer, of which verif.formal.answers proves that the RTL keeps it."""

from dataclasses import fields

import pytest

from kvnode.models.spec.bounds import answer_bound_cycles, service
from kvnode.models.spec.config import preset
from kvnode.models.spec.timing import DIRECTORY_LATENCY_CYCLES

TINY = preset("tiny")


def test_a_service_is_longer_than_what_it_is_made_of():
    of = service(TINY)
    assert of.rest >= 2 * TINY.response_beats + (TINY.block_beats + 1) * of.read_beat
    # Any answer waits for its turn and for the directory.
    assert of.whole > TINY.ports + DIRECTORY_LATENCY_CYCLES + of.rest
    assert all(getattr(of, field.name) > 0 for field in fields(of))


@pytest.mark.parametrize(
    "more",
    [{"block_bytes": 256}, {"beat_bytes": 8}, {"max_payload_bytes": 512, "block_bytes": 512}],
)
def test_more_beats_take_longer(more):
    assert answer_bound_cycles(TINY.replace(**more)) > answer_bound_cycles(TINY)


@pytest.mark.parametrize("name", ["tiny", "sim", "wide"])
def test_bound_is_that_of_the_services_in_front(name):
    config = preset(name)
    one = service(config).whole + 1
    # As many as a port keeps, and three that are not in its queue: in it, on their way out, and the message itself.
    assert answer_bound_cycles(config) % one == 0 and answer_bound_cycles(config) // one == 16 + 3
