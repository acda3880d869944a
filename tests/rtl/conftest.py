"""Components that a test only constructs are thrown away in that test, where their warning is expected."""

import gc

import pytest


@pytest.fixture(autouse=True)
def _throw_away_components():
    yield
    gc.collect(1)
