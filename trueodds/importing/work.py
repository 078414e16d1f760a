"""The part of `trueodds import` that reads foreign files. The command runs it in a process with limits."""

from __future__ import annotations

import argparse
import base64
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trueodds.cli import status_of
from trueodds.evaluation.measurement import Measurement, Problem
from trueodds.importing import importer, rows
from trueodds.importing.importer import Outcome
from trueodds.importing.options import Kind, Options, Preprocessing, TextOptions
from trueodds.processes.limited import step
from trueodds.reports.table.evaluation import aligned
from trueodds.texts import plural

COLUMNS = ("calibrator", "chosen by NLL", "error", "NLL", "ECE", "its interval", "noise floor (95%)")
OF_POSITIVE = ("calibrator", "mean p", "Brier (0 to 1)", "ECE", "its interval", "noise floor (95%)")


def main(word: str) -> int:
    """Calls `write` in a process of its own and returns the exit status; `word`: its arguments, pickled, in base64."""
    return status_of(lambda: write(*pickle.loads(base64.b64decode(word))))


def write(arguments: argparse.Namespace, name: str, folder: Path) -> int:
    """Writes the bundle of the model called `name` and the files beside it to `folder`, and prints the summary.

    Raises:
        UserError: as `importer.import_model` and `rows.read`.
    """
    preprocessing = None if arguments.preprocess is None else Preprocessing.parse(arguments.preprocess)
    texts = arguments.tokenizer is not None or arguments.input == "text"
    kind: Kind | None = "text" if texts and arguments.input is None else arguments.input
    of_texts = TextOptions(arguments.tokenizer, arguments.max_tokens, arguments.max_characters)
    step(f"reading {arguments.labelled}")
    labelled = rows.read(arguments.labelled, arguments.label, texts=texts)
    if arguments.test:
        step(f"reading {arguments.test}")
    imported = importer.import_model(
        arguments.model,
        labelled,
        folder,
        name=name,
        options=Options(
            kind,
            arguments.output,
            preprocessing,
            of_texts,
            _classes(arguments.classes),
            arguments.expected,
            arguments.allow_unseen,
        ),
        test=rows.read(arguments.test, arguments.label, texts=texts) if arguments.test else None,
        positive=arguments.positive,
    )
    print(summary(imported))
    return 0


def summary(imported: Outcome) -> str:
    """The table of calibrators with what is to be known about it."""
    card, results = imported.bundle.card, imported.results
    size = card.input.size
    nll = {one.name: one.nll for one in imported.selection.table}
    named: list[tuple[str, Measurement | Problem]] = [("none", results.before)]
    named.append((f"* {results.after.name}", results.after))
    named += [(f"  {one.name}", one) for one in results.others]
    rows = [COLUMNS, *(_line(name, one, nll.get("identity" if name == "none" else one.name)) for name, one in named)]
    lines = [
        f"{card.name}: {plural(len(card.classes), 'class', 'classes')}, {card.input.kind} {size};"
        f" {plural(imported.calibration, 'calibration row')}, {plural(results.after.sums.n, 'test row')}",
        *(f"note: {note}" for note in card.notes),
        "",
        *aligned(rows, "<" * len(COLUMNS)),
        "",
        *(f"{one.name} was chosen: {one.chosen}." for one in imported.selection.table if one.chosen),
        *(f"{one.name} was passed over: {one.passed_over}." for one in imported.selection.table if one.passed_over),
        *_of_positive(named),
        "On the test rows, but for the NLL that chose: cross-validated, on the calibration rows. *: chosen, of the"
        " least that is sound. ECE: of the more probable class, a fraction, of"
        f" {results.settings.bins} bins, with its {results.settings.level:.0%} interval; the noise floor is the"
        " mean ECE of right probabilities in samples of this size, and what it stays below in 95 of 100.",
    ]
    return "\n".join(lines)


def _classes(text: str) -> tuple[str, ...]:
    """Names of a list with commas, or of a file with one a line."""
    is_file = text and Path(text).is_file()
    names = Path(text).read_text(encoding="utf-8").splitlines() if is_file else text.split(",")
    return tuple(name.strip() for name in names if name.strip())


def _line(name: str, one: Measurement | Problem, chosen_by: float | None) -> tuple[str, ...]:
    cross = "" if chosen_by is None else f"{chosen_by:.4f}"
    if isinstance(one, Problem):
        return (name, cross, "", "", "", "", one.reason)
    return (name, cross, *_numbers(one.values, "error_rate", "nll", "ece"))


def _numbers(values: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    """Values, then the interval of the ECE and its noise floor."""
    interval = f"{values['ece_lower']:.4f} .. {values['ece_upper']:.4f}"
    floor = f"{values['floor_mean']:.4f} ({values['floor_p95']:.4f})"
    return (*(f"{values[key]:.4f}" for key in keys), interval, floor)


def _of_positive(named: Sequence[tuple[str, Measurement | Problem]]) -> list[str]:
    """The table of p(positive), with its title and a blank line; empty where there is no positive class."""
    known = [(name, one.positive) for name, one in named if isinstance(one, Measurement) and one.positive]
    if not known:
        return []
    first = known[0][1]
    rows = [OF_POSITIVE, *((name, *_numbers(p, "mean_probability", "brier", "ece")) for name, p in known)]
    title = f"p({first['class']}), over all of 0 to 1; {first['prevalence']:.4f} of the test rows are {first['class']}"
    return [title, *aligned(rows, "<" * len(OF_POSITIVE)), ""]
