"""The fast CRC is the one of the contract, with google_crc32c and without it."""

import importlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvnode.models.golden import crc as golden
from kvnode.models.spec import crc as spec

CRCS = st.integers(0, spec.ALL_ONES)


@pytest.fixture(params=["with the package", "without the package"])
def crc32c(request, monkeypatch):
    """The function, as imported where the package is there and where it is not."""
    if request.param == "with the package":
        pytest.importorskip("google_crc32c")
    else:
        monkeypatch.setitem(sys.modules, "google_crc32c", None)
    importlib.reload(golden)
    assert (golden._extend is golden._pure) == (request.param == "without the package")
    yield golden.crc32c
    monkeypatch.undo()
    importlib.reload(golden)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(("size", "crc"), [(0, 0), (0, 0xFFFFFFFF), (1, 1), (9, 0x80000001), (4096, 0x12345678)])
def test_crc_is_that_of_the_contract(crc32c, kind, size, crc):
    data = bytes(i * i + 7 & 0xFF for i in range(size))
    assert crc32c(kind(data), crc) == spec.crc32c(data, crc)


def test_crc_of_the_catalogues_comes_out(crc32c):
    assert crc32c(b"123456789") == crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


@given(st.binary(max_size=200), CRCS)
def test_what_is_installed_agrees_with_the_contract(data, crc):
    assert golden.crc32c(data, crc) == spec.crc32c(data, crc)
