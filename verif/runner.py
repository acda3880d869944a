"""The one way to run a cocotb bench: convert, build, run, and believe nothing that the results do not show.

cocotb's own runner returns normally when a filter matches no test, and outside of pytest also when tests fail;
`run_bench` raises in both cases.

Used by: every bench, speed.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from amaranth.back import verilog as backend
from amaranth.hdl import Elaboratable

from kvnode.models.spec.config import NodeConfig

from . import toolchain

__all__ = ["BenchFailure", "PARAMETERS_VARIABLE", "PORTS_VARIABLE", "node_verilog", "run_bench", "verilog_of"]

#: Carry the parameters of a bench and the names of the design's ports into the simulator, as JSON, for `agents.bench`.
PARAMETERS_VARIABLE = "KVNODE_BENCH"
PORTS_VARIABLE = "KVNODE_BENCH_PORTS"
TOP = "kvnode_bench"
TIMESCALE = ("1ns", "1ps")
#: Only the ports are public, where cocotb's runner makes every signal so: benches use no other, and a node is built in
#: half the time.
BUILD_ARGS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal", "-Wno-lint",
              "--no-public-flat-rw")  # fmt: skip
#: Objects of Verilator's own library: the same for every model, and most of the build time of a small one.
LIBRARY_OBJECTS = "verilated*.[od]"
#: Their time stamp where they are reused: Verilator's makefile wants them newer than the makefile it has just written.
FUTURE_S = 4_000_000_000


class BenchFailure(AssertionError):
    """A bench did not show what it should: a test failed, none ran, or the simulator or its build broke."""


def verilog_of(component: Elaboratable) -> str:
    """Verilog of a component as module `kvnode_bench`, its ports named by their path (`i.payload` is `i__payload`).

    A warning of Amaranth is an error.
    """
    from kvnode.rtl.memory import RAM_VERILOG

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return RAM_VERILOG + backend.convert(component, name=TOP, emit_src=False)


@functools.cache
def node_verilog(config: NodeConfig) -> str:
    """Verilog of a whole node, with the top module and the flat ports of kvnode.rtl.elaborate."""
    from kvnode.rtl.elaborate import verilog

    return verilog(config)


def run_bench(
    design: Elaboratable | str,
    module: str,
    testcases: str | Iterable[str] | None = None,
    parameters: Mapping[str, Any] | None = None,
    *,
    top: str = TOP,
    timeout_s: float = 300,
    seed: int = 1,
    waves: bool = False,
) -> int:
    """Run the cocotb tests of `module` on a design and return how many passed.

    `design`: an Amaranth component, or Verilog text with module `top`. `testcases`: names of tests in `module`; each of
    them must run; None for all. `parameters`: what `agents.bench.parameters` returns in the simulator (JSON types).
    `timeout_s`: wall clock for the whole simulation, beside the simulated-time limit that each test has. `seed`: of
    cocotb's random numbers. `waves`: writes `dump.vcd`, whose path is in the message of a failure.

    The built simulator is kept in the cache and made again when the Verilog or the tools change.

    Raises BenchFailure with the end of the log.
    """
    text = design if isinstance(design, str) else verilog_of(design)
    names = [testcases] if isinstance(testcases, str) else None if testcases is None else list(testcases)
    if names is not None and not names:
        raise BenchFailure(f"{module}: the list of tests is empty")
    build_dir = _build(text, top, waves)
    folder = Path(tempfile.mkdtemp(prefix="kvnode-bench-"))
    results, log = folder / "results.xml", folder / "log.txt"
    failed = True
    try:
        environment = {
            PARAMETERS_VARIABLE: json.dumps(dict(parameters or {})),
            PORTS_VARIABLE: json.dumps(_port_names(text, top)),
        }
        _simulate(build_dir, folder, top, module, names, environment, timeout_s, seed, waves, results, log)
        passed = _check_results(module, names, results, log, folder if waves else None)
        failed = False
        return passed
    finally:
        if not (failed and waves):
            shutil.rmtree(folder, ignore_errors=True)


def _build(text: str, top: str, waves: bool) -> Path:
    """The folder of the simulator of a Verilog text."""
    versions = [importlib.metadata.version(name) for name in ("cocotb", "verilator")]
    parts = [text, top, str(waves), *BUILD_ARGS, *versions, str(toolchain.REVISION)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
    folder = toolchain.cache_dir() / "benches" / key
    if folder.exists():
        return folder
    folder.parent.mkdir(exist_ok=True)
    library = toolchain.cache_dir() / "benches" / f"library-{'-'.join(versions)}-r{toolchain.REVISION}-{int(waves)}"
    draft = Path(tempfile.mkdtemp(prefix=f"{key}.", dir=folder.parent))
    source, control, log = draft / f"{top}.v", draft / "ports.vlt", draft / "build.txt"
    source.write_text(text)
    public = [f'public_flat_rw -module "{top}" -var "{port}"\n' for port in _port_names(text, top)]
    control.write_text("`verilator_config\n" + "".join(public))
    if library.exists():
        for path in library.iterdir():
            copy = Path(shutil.copy(path, draft))
            os.utime(copy, (FUTURE_S, FUTURE_S))
    try:
        with _environment(toolchain.verilator_env() | {"MAKEFLAGS": None, "WAVES": None}):
            _runner().build(
                sources=[control, source], hdl_toplevel=top, build_dir=draft, build_args=list(BUILD_ARGS), always=True,
                timescale=TIMESCALE, waves=waves, log_file=log,
            )  # fmt: skip
        _keep_library(draft, library)
        for path in draft.iterdir():
            if path.name not in (top, source.name, log.name):
                path.unlink()  # What the compiler needed; its precompiled headers alone are 200 MB.
        draft.rename(folder)
    except (RuntimeError, SystemExit) as error:
        raise BenchFailure(f"the simulator of {top} could not be built: {error}\n{_tail(log)}") from None
    except OSError:
        if not folder.exists():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _keep_library(draft: Path, library: Path) -> None:
    if library.exists():
        return
    copy = Path(tempfile.mkdtemp(prefix=f"{library.name}.", dir=library.parent))
    for path in draft.glob(LIBRARY_OBJECTS):
        shutil.copy(path, copy)
    try:
        copy.rename(library)
    except OSError:
        shutil.rmtree(copy, ignore_errors=True)  # Another process was first.


def _simulate(
    build_dir: Path,
    folder: Path,
    top: str,
    module: str,
    names: list[str] | None,
    environment: Mapping[str, str],
    timeout_s: float,
    seed: int,
    waves: bool,
    results: Path,
    log: Path,
) -> None:
    """Run the simulator. How it ended does not matter here: the results tell."""
    test_filter = rf"^{re.escape(module)}\."
    if names is not None:
        test_filter += rf"({'|'.join(map(re.escape, names))})(/.*)?$"
    settings = {
        **environment,
        "SIM_CMD_PREFIX": f"timeout -k 10 {timeout_s}",
        "COCOTB_TEST_FILTER": test_filter,
        "COCOTB_LOG_LEVEL": os.environ.get("COCOTB_LOG_LEVEL", "INFO"),
        "PYTEST_CURRENT_TEST": None,
        "WAVES": None,
    }
    with _environment(settings), contextlib.suppress(SystemExit, RuntimeError):
        _runner().test(
            test_module=module, hdl_toplevel=top, hdl_toplevel_lang="verilog", build_dir=build_dir, test_dir=folder,
            results_xml=str(results), timescale=TIMESCALE, seed=seed, waves=waves, log_file=log,
        )  # fmt: skip


def _check_results(module: str, names: list[str] | None, results: Path, log: Path, kept: Path | None) -> int:
    """Number of tests that passed; raises unless all did, at least one, and each of `names`."""
    where = f"\nwaves: {kept / 'dump.vcd'}" if kept else ""
    if not results.exists():
        raise BenchFailure(f"{module}: the simulator ended without results{where}\n{_tail(log)}")
    passed: list[str] = []
    failed: list[str] = []
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        name = case.get("name", "?")
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.find("skipped") is None:
            passed.append(name)
    if failed:
        raise BenchFailure(f"{module}: {', '.join(failed)} failed{where}\n{_tail(log)}")
    if not passed:
        raise BenchFailure(f"{module}: no test ran{f', asked for {names}' if names else ''}\n{_tail(log)}")
    missing = [name for name in names or () if not any(_same(name, ran) for ran in passed)]
    if missing:
        raise BenchFailure(f"{module}: {', '.join(missing)} did not run, only {', '.join(passed)}\n{_tail(log)}")
    return len(passed)


def _port_names(text: str, top: str) -> list[str]:
    """Ports of module `top`."""
    module = re.search(rf"^module {re.escape(top)}\b.*?^endmodule", text, re.MULTILINE | re.DOTALL)
    return re.findall(
        r"\b(?:input|output)\b(?: +(?:reg|wire))?(?: *\[[^]]*\])? +\\?(\w+)", module.group() if module else ""
    )


def _same(name: str, ran: str) -> bool:
    return ran.split("/")[0].rsplit(".", 1)[-1] == name


def _tail(log: Path, lines: int = 60) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"


def _runner() -> Any:
    from cocotb_tools.runner import get_runner

    return get_runner("verilator")


@contextlib.contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Environment variables for the time of a block; None unsets. cocotb's runner reads most of its settings there."""
    before = {name: os.environ.get(name) for name in values}
    try:
        _set(values)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
