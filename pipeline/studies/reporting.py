"""What a study has found: its files, and the words for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pipeline.studies import choice, comparison, drawing, measuring, page, printing
from pipeline.studies.format import Study
from pipeline.studies.running import Place
from trueodds.texts import plural

PAGE = "study.html"


def report(study: Study, places: Sequence[Place], out: Path, tuned: Sequence[str], failed: Sequence[str]) -> str:
    """Of the runs that are done: study.csv, study.parquet, the figures and study.html in the folder `out`, and what a
    terminal shows; nothing is written where no run is done.
    """
    table = measuring.rows_of(places, study.calibrators)
    if not table:
        return f"{study.title}: no run is done"
    cells = printing.cells(study, table)
    compared = comparison.compare(study, places)
    chosen = choice.choose(study.choose, choice.settings_of(study, table)) if study.choose else []
    findings = page.Findings(
        cells=cells,
        summary=comparison.summary(compared),
        compared=[one.sentence() for one in compared],
        chosen=printing.chosen_lines(study, chosen),
        tuned=tuned,
        failed=failed,
        runs=plural(sum(place.is_done for place in places), "run"),
    )
    written = measuring.write(out, table)
    figures = drawing.draw(study, places, table, out)
    written += [*figures, page.write(out / PAGE, study, findings, figures)]
    lines = ["", *printing.markdown(cells), ""]
    lines += [findings.summary, *(f"  {line}" for line in findings.compared), *findings.chosen]
    lines += [f"Differs from what was published: {difference}" for difference in study.differs]
    lines += [f"written: {path}" for path in written]
    return "\n".join([*lines[: len(cells) + 3], *filter(None, lines[len(cells) + 3 :])])
