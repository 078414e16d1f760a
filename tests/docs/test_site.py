"""The documentation site: every public object has an entry, and `make site` is clean."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest
from docutils import nodes
from docutils.core import publish_doctree

from tests.conftest import ROOT, run
from tools.site import api, docstrings
from tools.site.pages import places, site_link

PAGES = places()


@pytest.mark.parametrize("package", api.WHOLE)
def test_every_public_object_stands_on_a_page_of_the_api(package: str) -> None:
    entries = [getattr(importlib.import_module(module), name) for module, name in api.documented()]
    module = importlib.import_module(package)
    public = {name: getattr(module, name) for name in module.__all__}
    left_out = [name for name, value in public.items() if not any(value is entry for entry in entries)]
    assert [name for name in left_out if not inspect.ismodule(public[name])] == []


def test_an_object_stands_on_one_page_only() -> None:
    entries = list(api.documented())
    assert sorted(entries) == sorted(set(entries))


def test_links_of_a_page_lead_to_pages_of_the_site_or_to_the_repository() -> None:
    page, other = ROOT / "docs" / "index.md", next(page for page in PAGES if page.parent != ROOT)
    inside = str(other.relative_to(ROOT / "docs"))
    assert site_link(f"{inside}#part", page, PAGES) == f"{PAGES[other]}#part"
    assert site_link("#part", page, PAGES) == "#part"
    assert site_link("https://example.org/a.md", page, PAGES) == "https://example.org/a.md"
    assert site_link("../params.yaml", page, PAGES).endswith("/blob/main/params.yaml")
    assert site_link("../service", page, PAGES).endswith("/tree/main/service")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a * b | c_ is `x*y`s", r"a \* b \| c\_ is ``x*y``\ s"),
        ("`one\ntwo` and ``three``", "``one\ntwo`` and ``three``"),
        ("a lone ` stays", r"a lone \` stays"),
    ],
)
def test_no_character_of_a_docstring_is_markup(text: str, shown: str) -> None:
    assert docstrings.escaped(text) == shown
    assert docstrings.is_clean(docstrings.escape(text.splitlines()))


FORMULAS = """Compute two numbers.

    l1:  sum_b |a_b - c_b|   *usual*
    l2:  sqrt(sum_b `x`^2)

    max: |a_1|

Then a sentence. It
goes on.

Args:
    norm: One of these:

        l1 or l2.

Examples:
    >>> 1 + 1
    2
"""


def test_a_formula_of_several_lines_keeps_its_lines() -> None:
    """Issue: they flowed together."""
    escaped = docstrings.escape(FORMULAS.splitlines())
    assert escaped[:8] == ["Compute two numbers.", "", "::", "", *FORMULAS.splitlines()[2:4], "", "    max: |a_1|"]
    assert escaped.count("::") == 1 and "Then a sentence. It" in escaped and "    >>> 1 + 1" in escaped
    head = escaped[: escaped.index("Args:")]
    assert docstrings.is_clean(head)
    shown = publish_doctree("\n".join(head))
    (block,) = shown.findall(nodes.literal_block)
    assert block.astext().splitlines() == [line[4:] for line in FORMULAS.splitlines()[2:6]]


def test_every_constant_has_a_docstring() -> None:
    entries = {entry: api.directive(*entry) for entry in dict.fromkeys(api.documented())}
    constants = {entry: lines for entry, lines in entries.items() if lines[0].startswith(".. py:data::")}
    assert len(constants) > 25
    shown = {
        entry: [line for line in lines[1:] if line.strip() and ":value:" not in line]
        for entry, lines in constants.items()
    }
    assert [entry for entry, lines in shown.items() if not lines] == []


def test_a_layout_that_is_no_markup_is_shown_line_by_line() -> None:
    lines = ["name    meaning", "   more than that", "other"]
    assert not docstrings.is_clean(lines)
    assert docstrings.is_clean(docstrings.as_lines(lines))


@pytest.mark.full
def test_make_site_is_clean_and_asks_no_network(tmp_path: Path) -> None:
    command = ["python", "-m", "tools.site", "--source", str(tmp_path / "source"), "--site", str(tmp_path / "site")]
    run(command, ROOT)
    site = tmp_path / "site"
    text = "\n".join(page.read_text(encoding="utf-8") for page in site.rglob("*.html"))
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?:", text)
    assert [entry for entry in api.documented() if f'id="{".".join(entry)}"' not in text] == []
    assert [page for page, place in PAGES.items() if not (site / place).with_suffix(".html").is_file()] == []
    assert "calibr" in (site / "searchindex.js").read_text(encoding="utf-8")
