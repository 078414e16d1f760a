"""An import in words: the calibrators before and after, what a sample of this size can show, and what comes next."""

from __future__ import annotations

from pathlib import Path

from trueodds.evaluation.measurement import Measurement, Problem
from trueodds.importing.importer import Imported
from trueodds.texts import plural

COLUMNS = ("calibrator", "error", "NLL", "ECE", "its interval", "noise floor (95%)")


def summary(imported: Imported) -> str:
    """The table of calibrators with what is to be known about it."""
    card, results = imported.bundle.card, imported.results
    size = card.input.size
    rows = [COLUMNS, _line("none", results.before), _line(f"* {results.after.name}", results.after)]
    rows += [_line(f"  {one.name}", one) for one in results.others]
    widths = [max(len(row[k]) for row in rows) for k in range(len(COLUMNS))]
    lines = [
        f"{card.name}: {plural(len(card.classes), 'class', 'classes')}, {card.input.kind} {size};"
        f" {plural(imported.calibration, 'calibration row')}, {plural(results.after.sums.n, 'test row')}",
        *(f"note: {note}" for note in card.notes),
        "",
        *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows),
        "",
        "On the test rows. *: chosen, of least cross-validated NLL on the calibration rows. ECE: a fraction, of"
        f" {results.settings.bins} bins, with its {results.settings.level:.0%} interval; the noise floor is the"
        " mean ECE of right probabilities in samples of this size, and what it stays below in 95 of 100.",
    ]
    return "\n".join(lines)


def next_step(bundle: Path, published: str | None) -> str:
    """The command that comes next."""
    if published is None:
        return f"Publish it:  trueodds publish --bundle {bundle}"
    return f"Serve it:  TRUEODDS_MODELS={published} trueodds serve"


def _line(name: str, one: Measurement | Problem) -> tuple[str, ...]:
    if isinstance(one, Problem):
        return (name, "", "", "", "", one.reason)
    values = one.values
    interval = f"{values['ece_lower']:.4f} .. {values['ece_upper']:.4f}"
    numbers = (f"{values[key]:.4f}" for key in ("error_rate", "nll", "ece"))
    return (name, *numbers, interval, f"{values['floor_mean']:.4f} ({values['floor_p95']:.4f})")
