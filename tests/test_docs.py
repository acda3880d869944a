"""The pages name only what is there: links lead somewhere, and the paths of the map exist."""

import re
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])


def broken_links(page):
    """The relative links of a page that lead to nothing."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    return [t for t in targets if t and "://" not in t and not (page.parent / t).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


def test_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#x) [b](gone.md) [c](http://host/) ```[d](no.md)```")
    assert broken_links(page) == ["gone.md"]


def rows_of_the_map():
    first_table = (CHECKOUT / "docs" / "map.md").read_text(encoding="utf-8").split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \| (.*) \|$", first_table, flags=re.MULTILINE)


@pytest.mark.parametrize(("path", "what"), rows_of_the_map())
def test_map_says_what_exists(path, what):
    assert (CHECKOUT / path).exists() != what.startswith("*to come:*")
