"""Makes a bundle of an ONNX file with independent yes/no outputs, and of rows with truths of its labels."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from trueodds.bundle import MODEL, BundleError, Description, LabelBundle
from trueodds.calibrators import MultilabelPlatt
from trueodds.calibrators.affine.label_slopes import slope_intervals
from trueodds.errors import ConfigError
from trueodds.files import write_bytes
from trueodds.importing.errors import LabelledRowsError, ModelFileError
from trueodds.importing.import_options import ImportOptions
from trueodds.importing.importer import BUNDLE, METHOD, convert, try_bundle
from trueodds.importing.labelled_rows import ImportRows
from trueodds.importing.rewriting import ServableModel
from trueodds.importing.scoring import LEAST, logits_of
from trueodds.inputs import VectorInput
from trueodds.processes.limited import step
from trueodds.reports.options import ReportOptions
from trueodds.reports.table.multilabel import MultilabelReport, report_of_rows
from trueodds.reports.table.multilabel_rows import MultilabelRows
from trueodds.sums.inputs import Array
from trueodds.sums.label_matrix import label_names
from trueodds.texts import NAME, quotes


@dataclass(frozen=True)
class LabelOutcome:
    """Bundle of an import, with the reports on its test rows before and after the calibrator."""

    bundle: LabelBundle
    before: MultilabelReport
    after: MultilabelReport
    calibration: int
    """Number of rows that the calibrator was fitted on."""


@dataclass(frozen=True)
class _Split:
    """Logits and truths (N, L) of some rows."""

    z_NL: Array
    truth_NL: Array


def import_labels(
    model: Path,
    labelled: ImportRows,
    out: Path,
    *,
    name: str,
    options: ImportOptions,
    test: ImportRows | None = None,
    seed: int = 0,
) -> LabelOutcome:
    """Import a model of independent labels: write `out`/bundle.

    `MultilabelPlatt` is fitted on the calibration rows. The reports are about the test rows, which it did not see.

    Args:
        model: The ONNX file. Its output has one number for each label: a logit, or a sigmoid's probability.
        labelled: Rows whose `y` are truths (N, L): 0, 1, and NaN if not known.
        out: Folder for the files.
        name: Name of the model.
        options: The caller's options for the model, with `multilabel`.
        test: Test rows. Default: half of `labelled`, chosen by `seed`.
        seed: Seed of the split.

    Raises:
        ModelFileError: The model cannot be imported, or the service would refuse its bundle.
        LabelledRowsError: The rows cannot be used, or not with this model.
        InputError: The model's kind of input does not allow the values of the rows.
        ConfigError: The name cannot be a folder's name, or a label's name is given twice.
        FitError: All known truths of the calibration rows are equal.
        FileNotFoundError: There is no such model.
    """
    if not re.fullmatch(NAME, name):
        allowed = "letters, digits, '.', '_' and '-', a letter or digit first"
        raise ConfigError(f"the name {name!r} is not allowed; allowed are {allowed} (--name)")
    servable = convert(model, labelled, options)
    names = _names(servable, labelled)
    step(f"scoring the rows by {model}")
    fitting, testing = _splits(servable, labelled, test, seed)
    step("")
    calibrator = MultilabelPlatt.fit_arrays(fitting.z_NL, fitting.truth_NL, names)
    before, after = (
        report_of_rows(MultilabelRows(p_NL, testing.truth_NL, names), ReportOptions(one_look=True))
        for p_NL in (scipy.special.expit(testing.z_NL), calibrator.apply(testing.z_NL))
    )
    features = servable.kind.features if isinstance(servable.kind, VectorInput) else ()
    renamed = [note for rows in (labelled, test) if rows and features for note in rows.notes(features)]
    notes = [*servable.notes, *renamed, *_gain_notes(before, after), *_order_notes(fitting, names)]
    description = Description(
        name=name,
        classes=list(names),
        multilabel=True,
        input=servable.kind,
        method=METHOD,
        training=dict(servable.origin),
        metrics={"n": after.n, "level": after.level, "before": before.to_dict(), "after": after.to_dict()},
        notes=notes,
        data_sha256=labelled.sha256() if test is None else f"{labelled.sha256()} {test.sha256()}",
        code_sha256="",
    )
    step(f"trying the bundle of {model} as the service will use it")
    bundle = _write(servable, calibrator, description, out / BUNDLE)
    step("")
    return LabelOutcome(bundle, before, after, len(fitting.z_NL))


def _names(model: ServableModel, rows: ImportRows) -> tuple[str, ...]:
    """Return the names of the labels in the order of the outputs: those of the rows, else the model's, else numbers."""
    if rows.classes != model.labels and sorted(rows.classes) == sorted(model.labels):
        problem = f"{rows.source} or --classes has the labels in the order {quotes(rows.classes)}, and"
        cure = f"give the order of the model's outputs: --classes {','.join(model.labels)}"
        raise LabelledRowsError(f"{problem} {model.labels_source} in the order {quotes(model.labels)}; {cure}")
    names: Sequence[str] = rows.classes or model.labels or [str(k) for k in range(model.classes)]
    if len(names) != model.classes:
        problem = f"{len(names)} labels are named ({quotes(names)}), and {model.file.path} answers"
        cure = "name all labels in the order of the model's outputs: --classes a,b,c"
        raise LabelledRowsError(f"{problem} with {model.classes} numbers a row; {cure}")
    return label_names(names, model.classes)


def _splits(model: ServableModel, labelled: ImportRows, test: ImportRows | None, seed: int) -> tuple[_Split, _Split]:
    """Compute the logits of the rows, and split them for the calibrator and the test."""
    rows = {"val": labelled} | ({} if test is None else {"test": test})
    for each in rows.values():
        least = LEAST if test is not None else 2 * LEAST
        if len(each) < least:
            problem = f"{each.source} holds {len(each)} rows"
            raise LabelledRowsError(f"{problem}; at least {least} are needed, {LEAST} in each split")
        if each.classes and labelled.classes and each.classes != labelled.classes:
            problem = f"{each.source} has the labels {quotes(each.classes)}, and {labelled.source} has"
            raise LabelledRowsError(f"{problem} {quotes(labelled.classes)}; give both in the same order")
        if each.y.shape[1] != model.classes:
            problem = f"{each.source} has truths of {each.y.shape[1]} labels"
            raise LabelledRowsError(f"{problem}, and {model.file.path} answers with {model.classes} numbers a row")
    splits = {
        split: _Split(z_NL.astype(np.float64), rows[split].y.astype(np.float64))
        for split, z_NL in logits_of(model, rows).items()
    }
    if test is None:
        order_N = np.random.default_rng(seed).permutation(len(labelled))
        first_N, second_N = (np.sort(half_N) for half_N in np.array_split(order_N, 2))
        splits = {split: _take(splits["val"], index_N) for split, index_N in (("val", first_N), ("test", second_N))}
    for split, one in splits.items():
        if np.isnan(one.truth_NL).all():
            source = (labelled if test is None else rows[split]).source
            raise LabelledRowsError(f"{source} has no known truth in its {split} rows; give more rows")
    return splits["val"], splits["test"]


def _take(split: _Split, index_N: npt.NDArray[np.intp]) -> _Split:
    return _Split(split.z_NL[index_N], split.truth_NL[index_N])


def _gain_notes(before: MultilabelReport, after: MultilabelReport) -> list[str]:
    """Return a note if the calibrator does not lower the log loss of the test rows."""
    was, now = before.whole.nll, after.whole.nll
    if was is None or now is None or now < was:
        return []
    return [f"The calibrator does not lower the log loss on the test rows: {was:.4f} before, {now:.4f} after."]


def _order_notes(split: _Split, names: Sequence[str]) -> list[str]:
    """Return a note if outputs tell nothing about their labels: they may be named in the wrong order."""
    lower_L, upper_L = slope_intervals(split.z_NL, split.truth_NL)
    wrong = [name for name, low in zip(names, lower_L, strict=True) if low <= 0]
    if not wrong:
        return []
    ends = [(low, high) for low, high in zip(lower_L, upper_L, strict=True) if low <= 0]
    shown = ", ".join(f"{name} {low:.2f} to {high:.2f}" for name, (low, high) in zip(wrong[:5], ends, strict=False))
    return [
        f"Outputs whose logits do not rise with their label: {shown} (95% interval of the slope). Check that --classes"
        " names the labels in the order of the model's outputs."
    ]


def _write(model: ServableModel, calibrator: MultilabelPlatt, description: Description, out: Path) -> LabelBundle:
    """Write the bundle, after a trial."""
    options: dict[str, Any] = {"golden_input": model.sample[0], "golden_logits": model.golden_logits}
    with tempfile.TemporaryDirectory(prefix="trueodds-import-") as folder:
        file = Path(folder) / MODEL
        write_bytes(file, model.data)
        try:
            return LabelBundle.write(out, file, calibrator, description, **options, trial=try_bundle)
        except BundleError as error:  # the message names a temporary folder
            problem = re.sub(r"\S*/" + re.escape(MODEL), "the model", str(error))
            raise ModelFileError(f"the service would refuse the bundle of {description.name}: {problem}") from None
