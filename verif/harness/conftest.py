"""The smallest stand-in, for most tests of the harness."""

import pytest

from .bench import open_harness


@pytest.fixture
def tiny():
    with open_harness("tiny") as harness:
        yield harness
