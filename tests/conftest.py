"""Fixtures that more than one folder of tests needs."""

import os

import pytest

from kvnode.models.workloads.corpus import TRACES_VARIABLE, find_trace, traces_folder


@pytest.fixture(scope="session")
def trace_path():
    """`trace_path(name)`: a real trace whose file name begins with `name`.

    Where it is missing, a continuous-integration run (`CI` set) fails; any other skips, saying where it looked.
    """

    def path(name):
        found = find_trace(name)
        if found is None:
            reason = f"no trace {name}* in {traces_folder()}; set {TRACES_VARIABLE} to the folder of traces"
            if os.environ.get("CI"):
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason)
        return found

    return path
