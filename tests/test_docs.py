"""The pages name only what is there: links lead somewhere, paths, exceptions and make targets exist."""

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])
ROOTS = ("rtl", "models", "verif", "sw_driver", "fpga")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))


def prose(page):
    """The text of a page without its fenced blocks."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def code_spans(page):
    return re.findall(r"`([^`\n]+)`", prose(page))


def broken_links(page):
    """The relative links of a page that lead to nothing."""
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", prose(page))]
    return [t for t in targets if t and "://" not in t and not (page.parent / t).exists()]


def missing_paths(page):
    """The code spans of a page that name a file of the checkout which does not exist."""
    named = rf"(?:{'|'.join([*ROOTS, 'tests', 'docs'])})/[\w./-]+\.(?:py|cpp|md|sh|vlt)"
    return [span for span in code_spans(page) if re.fullmatch(named, span) and not (CHECKOUT / span).exists()]


def sections(text):
    """{number: title} of the numbered headings of the architecture."""
    return dict(re.findall(r"^## (\d+)\. (.+)$", text, flags=re.MULTILINE))


@every_page
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


@every_page
def test_paths_in_the_text_exist(page):
    assert missing_paths(page) == []


@every_page
def test_make_targets_in_the_text_exist(page):
    targets = re.findall(r"^([a-z]+):", (CHECKOUT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = [span.split()[1] for span in code_spans(page) if span.startswith("make ")]
    assert set(named) - set(targets) == set()


def test_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#x) [b](gone.md) [c](http://host/) ```[d](no.md)```")
    assert broken_links(page) == ["gone.md"]


def test_missing_path_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("`rtl/wheel.py` `rtl/wheels.py` `verif/` `tests/gone.md`")
    assert missing_paths(page) == ["rtl/wheels.py", "tests/gone.md"]


def rows_of_the_map():
    first_table = (CHECKOUT / "docs" / "map.md").read_text(encoding="utf-8").split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| (.*) \|$", first_table, flags=re.MULTILINE)


@pytest.mark.parametrize(("path", "what"), rows_of_the_map())
def test_map_says_what_exists(path, what):
    assert (CHECKOUT / path).exists() != what.startswith("*to come:*")


def test_map_has_every_folder_of_the_roots():
    listed = {path.rstrip("/") for path, _ in rows_of_the_map()}
    folders = {
        path.parent.relative_to(CHECKOUT).as_posix() for root in ROOTS for path in (CHECKOUT / root).rglob("*.py")
    }
    assert folders - listed - {"models"} == set()


def test_exceptions_of_if_it_hangs_exist():
    page = (CHECKOUT / "docs" / "if-it-hangs.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `(\w+)` \|", page.split("| exception |")[1].split("\n\n")[0], flags=re.MULTILINE)
    sources = "\n".join(path.read_text(encoding="utf-8") for root in ROOTS for path in (CHECKOUT / root).rglob("*.py"))
    assert len(names) >= 6
    assert [name for name in names if f"class {name}(" not in sources] == []


def test_sections_that_the_code_cites_are_in_the_architecture():
    known = sections((CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    for root in ROOTS:
        for path in (CHECKOUT / root).rglob("*.py"):
            cited = re.findall(r"ARCHITECTURE sections? ((?:\d+(?:, | and )?)+)", path.read_text(encoding="utf-8"))
            numbers = {number for text in cited for number in re.findall(r"\d+", text)}
            assert numbers - set(known) == set(), path


def test_decisions_have_the_agreed_parts():
    pages = sorted((CHECKOUT / "docs" / "decisions").glob("0*.md"))
    for number, page in enumerate(pages, 1):
        text = page.read_text(encoding="utf-8")
        assert page.name.startswith(f"{number:04}-") and text.startswith(f"# {number:04}: "), page
        parts = re.findall(r"^\*\*(\w+)(?:\.\*\*|\*\*)", text, flags=re.MULTILINE)
        assert parts == ["Context", "Measurement", "Decision", "Rejected"], page
