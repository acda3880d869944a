"""What `pip install` gives: one top-level name, every package, the files beside them; a reason for each dependency."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
ROOTS = ("rtl", "models", "verif", "sw_driver", "fpga")
DATA_SUFFIXES = {".cpp", ".h", ".vlt", ".v"}
BUILD_LIMIT_S = 300


def files_under_the_roots():
    for root in ROOTS:
        for path in (CHECKOUT / root).rglob("*"):
            if path.is_file() and not {"__pycache__", "sim_build", "obj_dir"} & set(path.parts):
                yield path.relative_to(CHECKOUT)


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory):
    """The paths in the wheel, built without a network from a copy of what a source distribution would hold."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for path in [*files_under_the_roots(), Path("pyproject.toml"), Path("setup.py"), Path("LICENSE")]:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes((CHECKOUT / path).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_wheel_installs_one_top_level_name(wheel_names):
    assert {name.split("/")[0] for name in wheel_names if ".dist-info/" not in name} == {"kvnode"}


def test_every_folder_with_python_is_a_package():
    folders = {path.parent for path in files_under_the_roots() if path.suffix == ".py"}
    assert folders, "no package was found"
    assert [str(folder) for folder in sorted(folders) if not (CHECKOUT / folder / "__init__.py").exists()] == []


def test_every_package_is_in_the_wheel(wheel_names):
    modules = {f"kvnode/{path.as_posix()}" for path in files_under_the_roots() if path.suffix == ".py"}
    assert modules - set(wheel_names) == set()


def test_sources_and_waivers_of_the_harness_are_in_the_wheel(wheel_names):
    data = {f"kvnode/{path.as_posix()}" for path in files_under_the_roots() if path.suffix in DATA_SUFFIXES}
    assert data - set(wheel_names) == set()


def test_wheel_carries_the_licence_and_the_command(wheel_names):
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel_names)
    assert any(name.endswith(".dist-info/entry_points.txt") for name in wheel_names)


def requirements_without_a_reason(text):
    """The dependencies in the text of a pyproject.toml that no sentence follows on their line."""
    data = tomllib.loads(text)
    lists = [
        data["build-system"]["requires"],
        data["project"].get("dependencies", []),
        *data["project"].get("optional-dependencies", {}).values(),
    ]
    reasoned = re.findall(r'^\s*"([^"]+)",\s*# [A-Z][^#]+\.$', text, flags=re.MULTILINE)
    return [name for names in lists for name in names if name not in reasoned]


def test_every_dependency_says_why():
    assert requirements_without_a_reason((CHECKOUT / "pyproject.toml").read_text()) == []


def test_dependency_without_a_reason_is_found():
    text = '[build-system]\nrequires = [\n"a",  # Does this.\n"b",\n]\n[project]\ndependencies = ["c"]\n'
    assert requirements_without_a_reason(text) == ["b", "c"]
