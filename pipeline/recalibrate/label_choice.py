"""Fits the curves of independent labels to live labels, and writes their bundle, which has the same net and logits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.recalibrate.calibrator_choice import RECALIBRATION
from trueodds.bundle import LabelBundle
from trueodds.calibrators import MultilabelPlatt
from trueodds.calibrators.affine.label_platt import FOLDS, cross_fit_arrays
from trueodds.reports.options import ReportOptions
from trueodds.reports.table.multilabel import MultilabelReport, report_of_rows
from trueodds.reports.table.multilabel_rows import MultilabelRows
from trueodds.sums.inputs import Array
from trueodds.texts import quotes


@dataclass(frozen=True, eq=False)
class LabelChoice:
    """Curves fitted on all live labels, beside the served ones."""

    calibrator: MultilabelPlatt
    gain: float
    """Log loss of the served curves minus that of curves fitted without the measured rows, in nats per label.

    It is the mean over the answers of the mean over an answer's known labels.
    """
    gain_standard_error: float
    """Standard error of the gain over the answers, because the labels of an answer depend on each other."""
    served_nll: float
    """Mean log loss of the served curves, in nats per label, averaged in the same way."""
    before: MultilabelReport
    """Report on the served curves. Their fit did not know any of these labels."""
    after: MultilabelReport
    """Report on curves that were fitted without the measured answers, in folds of whole answers."""
    rows: int
    """Number of answers with a known label."""
    kept: tuple[str, ...]
    """Labels without a known truth. They keep the served curve."""

    @property
    def better(self) -> bool:
        """Return whether the labels distinguish it from the served curves: the gain exceeds its standard error."""
        return self.gain > self.gain_standard_error


def choose_labels(served: MultilabelPlatt, z_NL: Array, truth_NL: Array) -> LabelChoice:
    """Fit curves to live labels, and measure them in 5 folds of whole answers.

    A label without a known truth keeps its served curve, because no live label is about it.

    Args:
        served: The served curves.
        z_NL: Logits of the labelled answers.
        truth_NL: Their truths: 0, 1, and NaN if not known. Each answer has one at least.

    Raises:
        FitError: There are fewer than 5 answers, or without the answers of some fold all known truths are equal.
    """
    known_NL = ~np.isnan(truth_NL)
    z_NL = np.where(known_NL, z_NL, 0.0).astype(np.float64)
    before_NL, after_NL = served.apply(z_NL), cross_fit_arrays(z_NL, truth_NL)
    fitted, kept = _with_served_curves(MultilabelPlatt.fit_arrays(z_NL, truth_NL, served.labels), served, known_NL)
    served_N = answer_losses(before_NL, truth_NL)
    gain_N = served_N - answer_losses(after_NL, truth_NL)
    before, after = (
        report_of_rows(MultilabelRows(p_NL, truth_NL, served.labels), ReportOptions(one_look=True))
        for p_NL in (before_NL, after_NL)
    )
    error = float(gain_N.std(ddof=1) / np.sqrt(len(gain_N)))
    return LabelChoice(fitted, float(gain_N.mean()), error, float(served_N.mean()), before, after, len(z_NL), kept)


def answer_losses(p_NL: Array, truth_NL: Array) -> Array:
    """Compute the log loss of each answer in nats, the mean over its known labels."""
    known_NL = ~np.isnan(truth_NL)
    true_NL = np.where(truth_NL == 1, p_NL, 1 - p_NL)
    loss_NL = np.where(known_NL, -np.log(np.maximum(true_NL, np.finfo(np.float64).tiny)), 0.0)
    loss_N: Array = loss_NL.sum(axis=1) / known_NL.sum(axis=1)
    return loss_N


def write_label_candidate(served: LabelBundle, choice: LabelChoice, out: Path) -> LabelBundle:
    """Write the served bundle with the fitted curves, and a card that says so, to `out`."""
    origin = {"from": served.version, "labels": choice.rows, "candidates": [choice.calibrator.name]}
    reports = {"before": choice.before.to_dict(), "after": choice.after.to_dict()}
    note = (
        f"Recalibrated from version {served.version} on its {choice.rows:,} newest labelled answers: the same net, new"
        f" curves. The metrics are from these answers: 'before' for the curves of {served.version}, 'after' for curves"
        f" that were fitted without the measured answers, in {FOLDS} folds."
    )
    changes = {
        "training": served.card.training | {RECALIBRATION: origin},
        "metrics": {"n": choice.rows, "level": choice.after.level, **reports},
        "notes": [note],
    }
    return LabelBundle.write(
        out,
        served.model_path,
        choice.calibrator,
        served.card.model_copy(update=changes),
        golden_input=served.golden_input()[0],
        golden_logits=served.card.golden.logits,
    )


def _with_served_curves(
    curves: MultilabelPlatt, served: MultilabelPlatt, known_NL: npt.NDArray[np.bool_]
) -> tuple[MultilabelPlatt, tuple[str, ...]]:
    """Return the fit with the served curve of each label without a known truth, and the names of these labels."""
    none_L: npt.NDArray[np.bool_] = ~np.asarray(known_NL.any(axis=0))
    kept = tuple(name for name, none in zip(served.labels, none_L.tolist(), strict=True) if none)
    if not kept:
        return curves, ()
    slope_L, offset_L = (
        np.where(none_L, np.asarray(old), np.asarray(new))
        for old, new in ((served.slope_L, curves.slope_L), (served.offset_L, curves.offset_L))
    )
    others = tuple(words for words in curves.warnings if "without a known truth" not in words)
    words = f"No live label of {quotes(kept, 5)} is known: the served curve is kept."
    return replace(curves, slope_L=slope_L, offset_L=offset_L, warnings=(*others, words)), kept
