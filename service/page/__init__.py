"""The report as a page: server-rendered, one request, no script."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from service.page.diagram import diagram
from service.report_schemas import Report

FOLDER = Path(__file__).parent


def render(report: Report) -> str:
    """HTML of a report."""
    return _environment().get_template("report.html").render(report=report, diagram=diagram(report.bins))


def is_preferred(accept: str) -> bool:
    """Whether an Accept header asks for HTML before JSON; `*/*` and a missing header do not."""
    quality = {"text/html": 0.0, "application/json": 0.0}
    for part in accept.lower().split(","):
        media, *parameters = (word.strip() for word in part.split(";"))
        if media in quality:
            quality[media] = max([_quality(p) for p in parameters if p.startswith("q=")], default=1.0)
    return quality["text/html"] > quality["application/json"]


def _quality(parameter: str) -> float:
    try:
        return float(parameter[2:])
    except ValueError:
        return 0.0


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"level": level, "percent": percent, "decimal": decimal, "signed": signed}
    return environment


def level(value: float) -> str:
    """.95 -> 95%, .999 -> 99.9%"""
    return f"{100 * value:.6g}%"


def percent(value: float | None, digits: int = 1) -> str:
    """.834 -> 83.4%"""
    return "–" if value is None else f"{100 * value:.{digits}f}%"


def decimal(value: Any, digits: int = 3) -> str:
    """A number with three decimals; anything that is not one as a dash."""
    return f"{value:.{digits}f}" if isinstance(value, int | float) and not isinstance(value, bool) else "–"


def signed(value: float | None) -> str:
    """-.07 -> −7.0 points, with a true minus sign."""
    return "–" if value is None else f"{'+' if value >= 0 else '−'}{abs(100 * value):.1f} points"
