"""A study as one HTML file that needs no network: table, sentences, choice, figures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from pipeline.studies.format import Study
from trueodds.files import write_text
from trueodds.reports.style import PALETTE

TEMPLATE = Path(__file__).with_name("page.html")


@dataclass(frozen=True)
class Findings:
    """What was found, in words: of `printing`, `comparison`, `tuning`, and messages of failed runs."""

    cells: Sequence[Sequence[str]]
    shifted: Sequence[Sequence[Sequence[str]]]
    """A table for each figure of a shift."""
    notes: Sequence[str]
    """About the columns."""
    summary: str
    compared: Sequence[str]
    chosen: Sequence[str]
    tuned: Sequence[str]
    failed: Sequence[str]
    runs: str


def write(path: Path, study: Study, findings: Findings, figures: Sequence[Path]) -> Path:
    """The page, with the PNGs in it."""
    shown = [
        {"address": f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}", "words": _words(study, png)}
        for png in figures
    ]
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(TEMPLATE.read_text(encoding="utf-8"))
    write_text(path, template.render(study=study, style=PALETTE, figures=shown, **vars(findings)))
    return path


def _words(study: Study, png: Path) -> str:
    spec = study.figures[int(png.stem.removeprefix("figure")) - 1]
    return f"{spec.title or study.title}: {spec.kind}"
