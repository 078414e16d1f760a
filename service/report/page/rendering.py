"""HTML of a report, and of what went wrong instead, with the policy under which it may run."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from jinja2 import BaseLoader, Environment, StrictUndefined, TemplateNotFound

from service.report.page import query, words
from service.report.page.evidence import evidence_diagram
from service.report.page.glossary import glossary
from service.report.page.reliability import reliability
from service.report.page.state import state_of
from service.report.page.trend import trend_diagram
from service.report.schemas import Report, Window

FOLDER = Path(__file__).parent


def _text(path: Path) -> str:
    """A file without its indentation: a tenth of the page."""
    return re.sub(r"^[ \t]+", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


SCRIPT = _text(FOLDER / "script.js")
STYLE = re.sub(r":\s+", ":", re.sub(r"\s*([{};,])\s*", r"\1", _text(FOLDER / "style.css")))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS = {
    "content-security-policy": "; ".join(
        [
            "default-src 'none'",
            f"style-src {_hash(STYLE)}",
            f"script-src {_hash(SCRIPT)}",
            "connect-src 'self'",
            "img-src data:",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        ]
    ),
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
"""To be sent with the page: nothing runs or is loaded but its own style and script."""


def render(report: Report, asked: Mapping[str, str] | None = None, *, now: datetime | None = None) -> str:
    """HTML of a report. `asked`: the request's query, which forms and links keep; `now` defaults to the clock."""
    asked, now = asked or {}, now or datetime.now(UTC)
    after = report.offline.get("after")
    test = after if isinstance(after, dict) else {}
    return (
        _environment()
        .get_template("page.html")
        .render(
            report=report,
            state=state_of(report),
            chosen=query.chosen(report, now),
            now=now,
            asked=asked,
            reliability=reliability(report.bins),
            trend=trend_diagram(report.trend) if report.trend else None,
            evidence=evidence_diagram(report.alarm) if report.alarm else None,
            terms=glossary(report),
            test=test,
            binned=test if report.offline.get("bins", len(report.bins)) == len(report.bins) else {},
        )
    )


def problem(message: str) -> str:
    """HTML that says what could not be shown, and why."""
    return _environment().get_template("problem.html").render(message=message)


class _Loader(BaseLoader):
    def get_source(self, environment: Environment, template: str) -> tuple[str, str, None]:
        path = FOLDER / "templates" / template
        if not path.is_file():
            raise TemplateNotFound(template)
        return _text(path), str(path), None


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=_Loader(), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= words.FILTERS
    environment.globals |= {
        "address": query.address,
        "choices": query,
        "span": words.span,
        "style": STYLE,
        "script": SCRIPT,
        "whole": Window(),
    }
    return environment
