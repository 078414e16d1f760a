"""What a study has found: its files, the words for a terminal, and one HTML page that needs no network."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from pipeline.studies import choice, comparison, drawing, measuring, printing, shifted
from pipeline.studies.choice import Row
from pipeline.studies.format import Study
from pipeline.studies.whole import Done
from trueodds.drawing.picture import PALETTE
from trueodds.files import write_text
from trueodds.texts import plural

PAGE = "study.html"
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


def report(study: Study, done: Done, out: Path) -> str:
    """Of the runs that are done: study.csv, study.parquet, the figures and study.html in the folder `out`, and what a
    terminal shows; nothing is written where no run is done.
    """
    table = measuring.rows_of(done.places, study.calibrators)
    if not table:
        return f"{study.title}: no run is done"
    under_shift = shifted.rows_of(done.places, study.calibrators)
    found = findings(study, done, table, under_shift)
    written = [*measuring.write(out, table), *shifted.write(out, under_shift)]
    figures = drawing.draw(study, done.places, table, under_shift, out)
    written += [*figures, _write_page(out / PAGE, study, found, figures)]
    words = [*found.notes, found.summary, *(f"  {line}" for line in found.compared), *found.chosen]
    words += [f"Differs from what was published: {difference}" for difference in study.differs]
    words += [f"written: {path}" for path in written]
    tables = [line for cells in (found.cells, *found.shifted) for line in ["", *printing.markdown(cells)]]
    return "\n".join([*tables, "", *filter(None, words)])


def cells(study: Study, done: Done) -> list[list[str]]:
    """The table of the runs that are done."""
    return printing.cells(study, measuring.rows_of(done.places, study.calibrators))


def findings(study: Study, done: Done, table: Sequence[Row], under_shift: Sequence[Row]) -> Findings:
    """In words, of `measuring.rows_of` and `shifted.rows_of`."""
    compared = comparison.compare(study, done.places)
    chosen = choice.choose(study.choose, choice.settings_of(study, table)) if study.choose else []
    return Findings(
        cells=printing.cells(study, table),
        shifted=[
            cells
            for spec in study.figures
            if spec.kind == "shift"
            if (cells := shifted.cells(study, under_shift, spec))
        ],
        notes=printing.notes(study),
        summary=comparison.summary(compared),
        compared=[*(one.sentence() for one in compared), *printing.times(study, table)],
        chosen=printing.chosen_lines(study, chosen),
        tuned=done.tuned,
        failed=done.failed,
        runs=plural(sum(place.is_done for place in done.places), "run"),
    )


def _write_page(path: Path, study: Study, findings: Findings, figures: Sequence[Path]) -> Path:
    """The page, with the PNGs in it."""
    shown = [
        {"address": f"data:image/png;base64,{base64.b64encode(png.read_bytes()).decode()}", "words": _words(study, png)}
        for png in figures
    ]
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(TEMPLATE.read_text(encoding="utf-8"))
    write_text(path, template.render(study=study, style=PALETTE, figures=shown, **vars(findings)))
    return path


def _words(study: Study, png: Path) -> str:
    return drawing.title_of(study, int(png.stem.removeprefix("figure")))
