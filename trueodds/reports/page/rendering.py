"""Renders the HTML page of a report with the templates in this folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound
from markupsafe import Markup

from trueodds.drawing import picture
from trueodds.drawing.reliability import Axes
from trueodds.reports import words
from trueodds.reports.figures import diagram_of
from trueodds.reports.page.evidence import evidence_diagram
from trueodds.reports.page.expectation import expectation_diagram
from trueodds.reports.page.glossary import glossary
from trueodds.reports.page.state import state_of
from trueodds.reports.page.trend import trend_diagram
from trueodds.reports.schemas import Report, Window
from trueodds.sums.bins import COARSE_CELLS

FOLDER = Path(__file__).parent


def _text(path: Path) -> str:
    """Read a file without its indentation, which is a tenth of the page."""
    return re.sub(r"^[ \t]+", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


SCRIPT = _text(FOLDER / "script.js")
STYLE = picture.PALETTE + picture.CHART + picture.read_css(FOLDER / "style.css")


@dataclass(frozen=True)
class Site:
    """Parts of a page that only a server has: its own HTML and addresses. A page in a file has none of them."""

    address: Callable[..., str]
    """Returns the report's address with some parameters changed.

    They are keywords (`class_` for class); None removes one.
    """
    refresh_address: str
    """Address of the page when it is refreshed, if its window moves with time; "" means the page's own address."""
    choice: Markup
    """Form to choose another model, window, class or tag."""
    acknowledgement: Markup
    """Form to acknowledge the alarm."""
    rearming: Markup
    """Form to re-arm the alarm."""
    group_forms: Markup
    """Forms to acknowledge the marks of tags and classes, or to re-arm their alarms."""
    first_steps: Markup
    """Instructions to get answers, or labels, if there are none yet."""
    footer: Markup
    """End of the page."""


def render(report: Report, *, now: datetime | None = None, site: Site | None = None) -> str:
    """Render a report as an HTML page.

    Args:
        report: The report.
        now: Time that the page shows. Default: the clock.
        site: Parts that only a server has.
    """
    after = report.offline.get("after")
    test, positive = after if isinstance(after, dict) else {}, report.positive
    return (
        environment()
        .get_template("page.html")
        .render(
            report=report,
            site=site,
            state=state_of(report),
            now=now or datetime.now(UTC),
            reliability=diagram_of(report.bins),
            reliability_of_positive=diagram_of(positive.bins, Axes.of_positive(positive.label)) if positive else None,
            trend=trend_diagram(report.trend, report.alarm) if report.trend else None,
            expectation=expectation_diagram(report.trend) if report.trend else None,
            evidence=evidence_diagram(report.alarm) if report.alarm else None,
            terms=glossary(report),
            test=test,
            binned=test if report.offline.get("bins", len(report.bins)) == len(report.bins) else {},
        )
    )


class _Loader(BaseLoader):
    """Loads templates from several folders, without indentation."""

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self._folders = folders

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, None]:
        path = next((path for folder in self._folders if (path := folder / template).is_file()), None)
        if path is None:
            raise TemplateNotFound(template)
        return _text(path), str(path), None


@lru_cache(maxsize=4)
def environment(*folders: Path) -> Environment:
    """Return the page's Jinja environment: its templates and those of `folders`, style, script, number formats."""
    environment = Environment(
        loader=_Loader((*folders, FOLDER / "templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= words.FILTERS
    environment.globals |= {"span": words.span, "style": STYLE, "script": SCRIPT, "whole": Window()}
    environment.globals["digits_of_rare"] = words.digits_of_rare
    environment.globals["coarse_cells"] = COARSE_CELLS
    return environment
