"""Who may import whom: the arrows of docs/map.md, read from the sources without running them.

spec <- golden <- cycle <- system;  spec <- rtl;  spec <- sw_driver;  verif may import all;  rtl <- fpga
"""

import ast
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
ROOTS = ("rtl", "models", "verif", "sw_driver", "fpga")
ANY = None

SPEC, GOLDEN, CYCLE = "kvnode.models.spec", "kvnode.models.golden", "kvnode.models.cycle"
SYSTEM, WORKLOADS = "kvnode.models.system", "kvnode.models.workloads"
RTL, VERIF, DRIVER, FPGA = "kvnode.rtl", "kvnode.verif", "kvnode.sw_driver", "kvnode.fpga"


class Rule(NamedTuple):
    """What a module may import: parts of kvnode besides its own, and packages besides the standard library."""

    kvnode: tuple[str, ...]
    others: tuple[str, ...] | None


# The rule of a module is the one with the longest name that it lies in.
RULES = {
    SPEC: Rule((), ()),
    f"{SPEC}.batch": Rule((SPEC,), ("numpy",)),
    GOLDEN: Rule((SPEC,), ANY),
    f"{GOLDEN}.policy_study": Rule((SPEC, GOLDEN, WORKLOADS), ANY),
    CYCLE: Rule((SPEC, GOLDEN), ANY),
    SYSTEM: Rule((SPEC, GOLDEN, CYCLE, WORKLOADS), ANY),
    WORKLOADS: Rule((SPEC,), ANY),
    "kvnode.models": Rule((), ()),
    "kvnode.models.config_yaml": Rule((SPEC,), ("yaml",)),
    RTL: Rule((SPEC,), ("amaranth",)),
    f"{RTL}.csr": Rule((RTL, SPEC), ("amaranth", "systemrdl")),
    f"{RTL}.csr.generate": Rule((RTL, SPEC), ANY),
    DRIVER: Rule((SPEC, WORKLOADS, f"{GOLDEN}.crc", "kvnode.models.config_yaml"), ANY),
    f"{DRIVER}.transports": Rule(
        (SPEC, WORKLOADS, DRIVER, GOLDEN, CYCLE, f"{VERIF}.harness", f"{VERIF}.benches.speed"), ANY
    ),
    **dict.fromkeys(
        (f"{DRIVER}.benches", f"{DRIVER}.soak"), Rule((SPEC, WORKLOADS, DRIVER, f"{GOLDEN}.crc", VERIF), ANY)
    ),
    FPGA: Rule((SPEC, RTL), ANY),
    f"{DRIVER}.synth": Rule((SPEC, DRIVER, FPGA), ANY),
    VERIF: Rule(("kvnode",), ANY),
}


def lies_in(module, package):
    return module == package or module.startswith(package + ".")


def imports(source, module, is_package, known):
    """The absolute names that the source of `module` imports, wherever in it; `known` are the modules that exist."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in known else base
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "import_module"):
            if node.args and isinstance(node.args[0], ast.Constant):
                yield node.args[0].value


def violations(sources):
    """Sentences, one for each forbidden import. `sources` maps a module's name to (text, whether it is a package)."""
    found = []
    for module, (text, is_package) in sorted(sources.items()):
        home = max((name for name in RULES if lies_in(module, name)), key=len)
        rule = RULES[home]
        for target in imports(text, module, is_package, sources.keys()):
            top = target.split(".")[0]
            if top == "kvnode":
                allowed = any(lies_in(target, package) for package in (home, *rule.kvnode))
            else:
                allowed = rule.others is ANY or top in sys.stdlib_module_names or top in rule.others
            if not allowed:
                found.append(f"{module} may not import {target}")
    return found


def sources_of_the_checkout():
    sources = {}
    for root in ROOTS:
        for path in (CHECKOUT / root).rglob("*.py"):
            parts = path.relative_to(CHECKOUT).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(["kvnode", *(parts[:-1] if is_package else parts)])
            sources[name] = (path.read_text(encoding="utf-8"), is_package)
    return sources


def test_arrows_hold():
    sources = sources_of_the_checkout()
    assert "kvnode.verif.toolchain" in sources
    assert violations(sources) == []


@pytest.mark.parametrize(
    ("module", "line", "target"),
    [
        ("kvnode.models.spec.states", "import numpy", "numpy"),
        ("kvnode.models.spec.states", "from ..golden import index", "kvnode.models.golden.index"),
        ("kvnode.models.golden.index", "from kvnode.models.cycle import wheel", "kvnode.models.cycle"),
        ("kvnode.models.golden.index", "from kvnode import rtl", "kvnode.rtl"),
        ("kvnode.models.cycle.store", "import kvnode.rtl.wheel", "kvnode.rtl.wheel"),
        ("kvnode.models.workloads.zipf", "from kvnode.models.golden.index import x", "kvnode.models.golden.index"),
        ("kvnode.rtl.wheel", "from kvnode.models.golden import index", "kvnode.models.golden.index"),
        ("kvnode.rtl.wheel", "import numpy as np", "numpy"),
        ("kvnode.sw_driver.client", "from kvnode.models import golden", "kvnode.models.golden"),
        ("kvnode.sw_driver.cli", "def f():\n    from kvnode.verif import harness", "kvnode.verif.harness"),
        ("kvnode.sw_driver.cli", "import importlib\nimportlib.import_module('kvnode.rtl')", "kvnode.rtl"),
        ("kvnode.sw_driver.transports.rtl", "from kvnode.verif import toolchain", "kvnode.verif"),
        ("kvnode.sw_driver.benches.leaks", "from kvnode.models.golden import index", "kvnode.models.golden.index"),
        ("kvnode.sw_driver.transports.rtl", "import kvnode", "kvnode"),
    ],
)
def test_forbidden_import_is_found(module, line, target):
    known = ("kvnode.rtl", "kvnode.models.golden", "kvnode.models.golden.index", "kvnode.verif.harness")
    sources = dict.fromkeys(known, ("", True)) | {module: (line, False)}
    assert violations(sources) == [f"{module} may not import {target}"]


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("kvnode.models.spec.batch", "import numpy as np\nfrom .messages import Request"),
        ("kvnode.models.golden.index", "from ..spec import messages"),
        ("kvnode.rtl.node.index", "from amaranth.lib import wiring\nfrom ..wheel import Wheel"),
        ("kvnode.sw_driver.transports.golden", "from kvnode.models.golden import node\nfrom ..transport import T"),
        ("kvnode.sw_driver.transports.rtl", "from kvnode.verif.harness import library"),
        ("kvnode.sw_driver.benches.leaks", "from kvnode.verif.leaks import Leaks"),
        ("kvnode.sw_driver.soak", "from kvnode.verif.soak import play"),
        ("kvnode.verif.runner", "import kvnode.rtl.wheel, kvnode.models.golden.index, kvnode.sw_driver.client"),
    ],
)
def test_allowed_import_is_left_alone(module, line):
    assert violations({module: (line, False)}) == []
