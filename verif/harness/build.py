"""From a configuration to a shared library: elaborate, Verilate, compile, link; and lint.

Used by: harness, sw_driver.cli, `make lint`.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from kvnode.models.spec.config import NodeConfig

from .. import toolchain
from .contract import header

__all__ = ["BuildError", "Progress", "build", "lint", "verilog"]

#: Called with the name of each stage as it starts; nothing is called for a library that is already there.
Progress = Callable[[str], None]

TOP = "kvnode_node"
FOLDER = Path(__file__).parent
LOOP = ("harness.cpp", "bus.h")

VERILATE = ("--cc", "--prefix", "Vnode", "--top-module", TOP, "-O3", "--x-assign", "fast", "--x-initial", "fast",
            "--noassert", "-Wno-fatal", "-Wno-lint")  # fmt: skip
#: vl_fatal is the harness's own, so that an error of the model is an exception and not the end of the process. No
#: symbol may be shared between the libraries of two configurations in one process.
COMPILE = ("-std=gnu++20", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-DVL_USER_FATAL")
OPTIMISE = "-O2"
#: The counting code is long: half the time to build, hardly slower.
OPTIMISE_COVERAGE = "-O1"
#: Lines and toggles are counted; `--coverage` alone does more, which Verilator cannot do with what yosys writes.
COVERAGE = ("--coverage-line", "--coverage-toggle", "--coverage-max-width", "1024")
JOBS = "2"


class BuildError(RuntimeError):
    """A tool refused the design or its lint found something; the message is the tool's own text."""


def verilog(config: NodeConfig, fault: str | None = None) -> str:
    """Verilog of the node, with one of the faults of `kvnode.rtl.elaborate` put in on request."""
    from kvnode.rtl import elaborate

    return elaborate.verilog(config, fault=fault)


def build(
    config: NodeConfig,
    fault: str | None = None,
    waves: bool = False,
    optimise: bool = True,
    *,
    text: str | None = None,
    coverage: bool = False,
    progress: Progress = lambda stage: None,
) -> Path:
    """Path of the library of a node. It is made once for each Verilog text and kept in the cache.

    `waves`: it can write waveforms, and is slower. `coverage`: it counts what of the Verilog was executed and which
    bits have moved, and is a few times slower. `optimise`: without, it is made sooner and runs slower. `text` is used
    in place of the node's own Verilog; it must have the same ports. Several processes may build at once: each
    works in a folder of its own, and the first to finish gives it its final name.

    Raises `BuildError` with the text of the tool that failed.
    """
    if text is None:
        progress("elaborate")
        text = verilog(config, fault)
    sources = {"node.v": text, "node.h": header(config), **{name: (FOLDER / name).read_text() for name in LOOP}}
    level = "-O0" if not optimise else OPTIMISE_COVERAGE if coverage else OPTIMISE
    traces = ("--trace", "--timescale", "1ns/1ns", "--trace-structs")
    verilate = [*VERILATE, *(traces if waves else ()), *(COVERAGE if coverage else ())]
    compile_flags = [*COMPILE, *(("-DWAVES",) if waves else ()), *(("-DCOVERAGE",) if coverage else ())]
    how = Path(__file__).read_text()
    parts = [*sources.values(), *verilate, *compile_flags, level, how, _versions()]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
    folder = toolchain.cache_dir() / "harness" / key
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=folder.parent))
        try:
            _make(draft, sources, verilate, compile_flags, level, progress)
            draft.rename(folder)
        except OSError:
            if not folder.exists():
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return folder / "node.so"


def lint(text: str) -> None:
    """Raise `BuildError` with Verilator's text if it warns of anything in `text` that `waivers.vlt` does not waive."""
    with tempfile.TemporaryDirectory(prefix="kvnode-lint-") as name:
        folder = Path(name)
        (folder / "node.v").write_text(text)
        _run(folder, ["verilator", "--lint-only", "-Wall", "--top-module", TOP, str(FOLDER / "waivers.vlt"), "node.v"])


def _make(
    folder: Path, sources: dict[str, str], verilate: list[str], compile_flags: list[str], level: str, progress: Progress
) -> None:
    """Fill the empty `folder` with `node.so`, and with the sources that it was made from."""
    for name, text in sources.items():
        (folder / name).write_text(text)
    progress("verilate")
    _run(folder, ["verilator", *verilate, "--Mdir", "model", "node.v"])
    # The trick needs one clock that is watched for nothing but its rise; waves show the low phase too.
    clocks = (folder / "model" / "Vnode___024root.h").read_text().count("__Vtrigprevexpr")
    one_edge = ["-DONE_CLOCK_EDGE"] if clocks == 1 and "--trace" not in verilate else []
    progress("compile")
    levels = [f"OPT_{kind}={level}" for kind in ("FAST", "SLOW", "GLOBAL")]
    make = ["make", "-C", "model", "-f", "Vnode.mk", "-j", JOBS, *levels, f"VM_USER_CFLAGS={' '.join(compile_flags)}"]
    _run(folder, [*make, "Vnode__ALL.a", "libverilated.a"])
    progress("link")
    include = toolchain.verilator_root() / "include"
    _run(folder, [
        "g++", *compile_flags, *one_edge, level, "-shared", "-Wl,-Bsymbolic",
        "-I.", "-Imodel", f"-I{include}", f"-I{include}/vltstd",
        "harness.cpp", "model/Vnode__ALL.a", "model/libverilated.a", "-pthread", "-o", "node.so",
    ])  # fmt: skip
    shutil.rmtree(folder / "model")


def _run(folder: Path, command: Sequence[str]) -> str:
    env = os.environ | toolchain.verilator_env()
    env.pop("MAKEFLAGS", None)  # Called below a make, the model's own make would wait for its job server.
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stdout.rstrip()}")
    return done.stdout


@functools.cache
def _versions() -> str:
    """What the tools call themselves: a library is made anew when one of them changes."""
    return _run(Path("."), ["g++", "--version"]) + toolchain.verilator_root().name
