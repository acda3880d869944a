"""The examples in the docstrings of the driver do what they say."""

import doctest

import pytest

from kvnode.sw_driver import batch, client, errors, events


@pytest.mark.parametrize("module", [batch, client, errors, events], ids=lambda module: module.__name__)
def test_examples_of_the_docstrings(module):
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0
