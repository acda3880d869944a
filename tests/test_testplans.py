"""Testplans (verif/testplans) and block pages belong together, and every test that a plan names exists.

A plan is a list of {id, goal, tests}. A test is `path::function`, `path::Class::function` or, for all tests of a file,
`path`; a function is one that pytest collects, or a cocotb test of a bench. Sources are read, never imported.
"""

import ast
import functools
import re
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
PLANS = sorted((CHECKOUT / "verif" / "testplans").glob("*.yaml"))
PAGES = sorted(page for page in (CHECKOUT / "docs" / "blocks").glob("*.md") if page.stem != "README")
BENCHES = sorted((CHECKOUT / "verif" / "benches").glob("test_*.py"))

every_plan = pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)


def load(path: Path) -> list[dict]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@functools.cache
def functions(path: Path) -> frozenset[str]:
    """The tests of a source: `name`, or `Class::name`; with them cocotb's, which are decorated with bench_test."""

    def is_test(node: ast.AST) -> bool:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return False
        calls = [d.func for d in node.decorator_list if isinstance(d, ast.Call)]
        return node.name.startswith("test_") or any(isinstance(c, ast.Name) and c.id == "bench_test" for c in calls)

    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if is_test(node):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if is_test(inner)}
    return frozenset(found)


def problem(name: str, checkout: Path = CHECKOUT) -> str | None:
    """Why a test that a plan names is none, or None."""
    path, _, function = name.partition("::")
    source = checkout / path
    if not source.is_file():
        return f"{path} does not exist"
    if function and function not in functions(source):
        return f"{path} has no test {function}"
    if not function and not functions(source):
        return f"{path} has no tests"
    return None


@every_plan
def test_plan_is_a_list_of_goals_with_tests(path):
    items = load(path)
    assert isinstance(items, list) and items
    for item in items:
        assert set(item) == {"id", "goal", "tests"}, item
        assert re.fullmatch(rf"{path.stem}\.[a-z0-9_]+", item["id"]), item["id"]
        assert item["goal"].endswith(".") and len(item["goal"].split()) > 3, item["id"]
        assert item["tests"] and len(set(item["tests"])) == len(item["tests"]), item["id"]
    identities = [item["id"] for item in items]
    assert len(set(identities)) == len(identities)


@every_plan
def test_tests_that_a_plan_names_exist(path):
    named = [(item["id"], name) for item in load(path) for name in item["tests"]]
    assert [(identity, why) for identity, name in named if (why := problem(name))] == []


def test_every_block_page_has_a_plan_and_every_plan_a_page():
    assert [path.stem for path in PLANS] == [page.stem for page in PAGES]
    assert len(PAGES) >= 18


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_has_its_parts_and_leads_to_its_plan(page):
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {page.stem}\n")
    parts = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert parts == ["Contract", "Performance", "Configuration", "Registers", "Tests"]
    assert f"(../../verif/testplans/{page.stem}.yaml)" in text.split("## Tests")[1]


def test_index_of_the_blocks_has_every_page():
    text = (CHECKOUT / "docs" / "blocks" / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[(\w+)\]\((?:\w+)\.md\)", text, flags=re.MULTILINE)) == [p.stem for p in PAGES]


def test_every_bench_is_named_by_a_plan():
    named = {name.partition("::")[0] for path in PLANS for item in load(path) for name in item["tests"]}
    assert {f"verif/benches/{bench.name}" for bench in BENCHES} - named == set()


def test_registers_that_the_pages_link_to_exist():
    anchors = set(
        re.findall(r'<a id="(\w+)">', (CHECKOUT / "docs" / "registers" / "node.md").read_text(encoding="utf-8"))
    )
    for page in PAGES:
        linked = set(re.findall(r"registers/node\.md#(\w+)", page.read_text(encoding="utf-8")))
        assert linked - anchors == set(), page


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a/test_x.py", None),
        ("a/test_x.py::test_plain", None),
        ("a/test_x.py::counts", None),
        ("a/test_x.py::Suite::test_in", None),
        ("a/test_y.py", "a/test_y.py does not exist"),
        ("a/test_x.py::test_gone", "a/test_x.py has no test test_gone"),
        ("a/test_x.py::test_in", "a/test_x.py has no test test_in"),
        ("a/test_x.py::helper", "a/test_x.py has no test helper"),
        ("a/none.py", "a/none.py has no tests"),
    ],
)
def test_name_of_a_test_is_looked_for_in_its_source(tmp_path, name, why):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "none.py").write_text("def helper(): ...\n")
    (tmp_path / "a" / "test_x.py").write_text(
        "@pytest.mark.parametrize('x', [1])\ndef test_plain(x): ...\n\n"
        "@bench_test(max_cycles=1)\nasync def counts(dut): ...\n\n"
        "def helper(): ...\n\nclass Suite:\n    def test_in(self): ...\n"
    )
    assert problem(name, tmp_path) == why
