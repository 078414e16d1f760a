"""The generated tables of the pages, and the claims."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service.cli import serve
from tests.conftest import ROOT
from tools import decisions_picture, forecasts_picture, studies_pictures
from tools.tables import pages, results, settings
from tools.tables.claims import CLAIMS, Claim
from tools.tables.engine_costs import engine_costs
from tools.tables.results import Key

each_claim = pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.claim)


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.name)
def test_tables_are_fresh(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert pages.refresh(text) == text, f"{page.name} is stale: make docs"


def test_the_options_of_serve_are_the_settings() -> None:
    assert serve.OPTIONS.read_text(encoding="utf-8") == settings.serve_options(), "stale: python -m tools.tables"


def test_the_picture_of_decision_models_is_that_of_its_result() -> None:
    assert decisions_picture.OUT.read_text(encoding="utf-8") == decisions_picture.drawing()
    page = ROOT / "docs" / "explanation" / "decision-models-and-forecasts.md"
    assert f"](../{decisions_picture.OUT.name})" in page.read_text(encoding="utf-8")


def test_the_picture_of_forecasts_is_that_of_its_result() -> None:
    assert forecasts_picture.OUT.read_text(encoding="utf-8") == forecasts_picture.drawing()
    assert f"]({forecasts_picture.OUT.relative_to(ROOT)})" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_pictures_of_the_papers_methods_are_those_of_their_result() -> None:
    page = (ROOT / "docs" / "explanation" / "papers-methods.md").read_text(encoding="utf-8")
    drawn = studies_pictures.drawings()
    assert sorted(path for path in (ROOT / "docs").glob("papers-*.svg")) == sorted(drawn)
    for path, svg in drawn.items():
        assert path.read_text(encoding="utf-8") == svg, f"{path.name} is stale: python -m tools.studies_pictures"
        assert f"](../{path.name})" in page


def test_every_table_is_shown_once() -> None:
    shown = [name for page in pages.PAGES for name in pages.BLOCK.findall(page.read_text(encoding="utf-8"))]
    assert sorted(shown) == sorted([*results.COMMANDS, *pages.CODE])


def test_each_table_that_an_engine_added_up_has_a_row() -> None:
    cases = [*results.read("warehouse_sums")["cases"], *results.read("database_sums")["cases"]]
    rows = engine_costs().splitlines()[2:]
    assert len(rows) == len(cases) > 0
    for row, case in zip(rows, cases, strict=True):
        assert f"| {case['rows']:,} | {case['sums']['processor_s']:,.2f} s |" in row


@pytest.mark.parametrize("result", results.COMMANDS)
def test_a_result_has_a_command_that_exists(result: str) -> None:
    """Its module says in its docstring that it is run so, and knows the options."""
    module, *words = results.COMMANDS[result].removeprefix("python -m ").split()
    source = (ROOT / results.module_of(result).replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
    assert f"python -m {module}" in source
    assert [word for word in words if word.startswith("--") and f'"{word}"' not in source] == []


def test_a_claim_has_a_result_with_a_command() -> None:
    assert {claim.result for claim in CLAIMS} <= set(results.COMMANDS)


@each_claim
def test_no_figure_of_a_claim_is_typed(claim: Claim) -> None:
    """Every figure comes from the result file, and the text has no digits of its own."""
    assert claim.values and re.search(r"{\w+", claim.figure)
    assert not re.search(r"\d", re.sub(r"{[^}]*}", "", claim.figure))
    assert all(f"{{{name}" in claim.condition + claim.figure + claim.failure for name in claim.values)
    assert re.search(r"\d", claim.text(claim.figure))


def test_readme_shows_six_claims() -> None:
    assert len(pages.short_claims().splitlines()) == 6


def test_a_figure_that_cannot_be_read_is_an_error() -> None:
    keys: tuple[Key, ...] = (("delays", {"shape": "A"}, "median"), ("summary", "no such"), ("command",))
    for key in keys:
        with pytest.raises(KeyError):
            results.figure("sequential", key)
