"""Chooses the calibrator that fits the live labels best, and writes its bundle, which has the same net and logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.config import Evaluation
from pipeline.recalibrate.set_rows import settings_of_sets
from trueodds import calibrators
from trueodds.bundle import METRICS, Bundle, Card, CardSets, Reference, RiskCoverage
from trueodds.calibrators import Calibrator, Identity, PriorCorrected
from trueodds.calibrators.conformal import fit_sets
from trueodds.calibrators.held_out import calibrated_nll, stratified_folds
from trueodds.calibrators.selection import default_candidates
from trueodds.evaluation.measurement import Measurement, measure_probabilities
from trueodds.evaluation.results import table_of
from trueodds.logits import Logits
from trueodds.sums.inputs import Array
from trueodds.sums.losses import nll_of
from trueodds.sums.positive import PositiveClass
from trueodds.sums.rounding import EXACT, Resolution

FOLDS = 5
NO_SAMPLE = "whose probabilities differ, and its labels were no random sample"
"""Why a version that was fitted to selected labels has no conformal sets."""
RECALIBRATION = "recalibration"
"""Key of `training` in a card, under which a recalibrated bundle has its origin: the served version and its labels."""


@dataclass(frozen=True)
class CandidateScore:
    """A candidate in the table of a choice. All numbers are from labels that its fit did not see."""

    name: str
    nll: float | None
    """Mean NLL in nats; None if the candidate could not be fitted."""
    gain: float | None
    """NLL of the served calibrator minus this one's; positive is better."""
    gain_standard_error: float | None
    """Standard error of the gain, from the paired differences of the labels."""
    problem: str | None = None
    """Reason why it could not be fitted, or was passed over."""
    reason: str | None = None
    """Reason why it was chosen, with its NLL and standard error; None for the other candidates."""


@dataclass(frozen=True, eq=False)
class CalibratorChoice:
    """The candidate with the lowest cross-validated NLL, beside the served calibrator."""

    calibrator: Calibrator
    """The best candidate, fitted on all rows."""
    gain: float
    """NLL of the served calibrator minus that of `after`, in nats per label."""
    gain_standard_error: float
    """Paired standard error of the gain."""
    served: CandidateScore
    table: tuple[CandidateScore, ...]
    best: CandidateScore
    before: Measurement
    """Measurement of the served calibrator on the live labels. Its fit did not know any of them."""
    after: Measurement
    """Measurement of the whole procedure: for each fold, the calibrator that the other folds choose and fit."""
    settings: Evaluation
    rows: int
    reference: Reference
    """Confidences of the rows under calibrators that were fitted without them."""

    @property
    def better(self) -> bool:
        """Return whether the labels distinguish it from the served calibrator: the gain exceeds its standard error."""
        return self.gain > self.gain_standard_error

    def without_rows_by_class(self) -> CalibratorChoice:
        """Return the choice without its rows by class, for labels that are no random sample of the answers.

        Among such labels the scores of a class, p(x | y), differ from those of all answers. Class shares by them would
        be wrong although nothing has changed.
        """
        return replace(self, reference=self.reference.model_copy(update={"rows_by_class": None}))


def choose(
    served: Calibrator,
    logits_NC: npt.NDArray[np.floating],
    labels_N: npt.NDArray[np.integer],
    candidates: Sequence[str] = (),
    settings: Evaluation | None = None,
    positive: PositiveClass | None = None,
    ordered: bool = False,
    resolution: Resolution = EXACT,
    groups_N: npt.NDArray[np.object_] | None = None,
) -> CalibratorChoice:
    """Cross-validate the candidates and the served calibrator, which is refitted as well.

    There are 5 stratified folds. `after` uses 5 more folds within the rest of each fold, so that its numbers are not
    those of the winner on the rows it won on. 10,000 labels take 3 s for 10 classes, 13 s for 100.

    Args:
        served: The served calibrator.
        logits_NC: The logits of the labelled answers.
        labels_N: Their labels.
        candidates: Names of calibrators. Empty: the candidates of `select`.
        settings: Bins and confidence level of the measurements.
        positive: The positive class, if there is one.
        ordered: The classes are levels, the lowest first.
        resolution: Resolution of the probabilities from which the logits come.
        groups_N: Tag of each answer, by which a candidate may have a temperature each. None: no candidate has.

    Raises:
        ConfigError: A candidate is unknown.
        FitError: No candidate can be fitted.
    """
    grouped = groups_N is not None
    default = default_candidates(logits_NC.shape[1], len(labels_N), ordered=ordered, has_groups=grouped)
    # A correction for class shares cannot be refitted to labels; the calibrator inside it can.
    refitted = served.calibrator if isinstance(served, PriorCorrected) else served
    names = list(dict.fromkeys([refitted.name, *(candidates or default)]))
    selection = calibrators.select(
        logits_NC, labels_N, candidates=names, folds=FOLDS, groups=groups_N, resolution=resolution
    )
    served_N = calibrated_nll(served, logits_NC, labels_N, groups_N)
    table = tuple(
        CandidateScore(c.name, c.nll, *_gain(served_N, nll_N), c.passed_over, c.chosen)
        if nll_N is not None
        else CandidateScore(c.name, None, None, None, c.problem)
        for c, nll_N in zip(selection.table, selection.nll_MN, strict=True)
    )
    best = next(line for line in table if line.reason)
    settings = settings or Evaluation()
    p_NC, fold_N = np.empty(logits_NC.shape), stratified_folds(labels_N.astype(np.intp), FOLDS)
    for inside in (fold_N == fold for fold in range(FOLDS)):
        others, own = (None if groups_N is None else groups_N[part] for part in (~inside, inside))
        rest = calibrators.select(
            logits_NC[~inside], labels_N[~inside], candidates=names, folds=FOLDS, groups=others, resolution=resolution
        )
        p_NC[inside] = rest.calibrator(logits_NC[inside], groups=own)
    measured, plain_NC = (labels_N, settings, positive), Identity()(logits_NC)
    gain, gain_standard_error = _gain(served_N, nll_of(p_NC[np.arange(len(labels_N)), labels_N]))
    return CalibratorChoice(
        selection.calibrator,
        gain,
        gain_standard_error,
        CandidateScore(served.name, float(served_N.mean()), 0.0, 0.0),
        table,
        best,
        measure_probabilities(served.name, served(logits_NC, groups=groups_N), *measured, before_NC=plain_NC),
        measure_probabilities(best.name, p_NC, *measured, before_NC=plain_NC),
        settings,
        len(labels_N),
        Reference.of_probabilities(p_NC, positive, labels_N),
    )


def write_candidate(served: Bundle, choice: CalibratorChoice, out: Path, apart: Logits | None = None) -> Bundle:
    """Write the served bundle with the chosen calibrator, and a card that says so, to `out`.

    `apart` has labelled answers that did not fit the calibrator. They give the thresholds of its conformal sets.
    """
    settings, sets = settings_of_sets(served), None
    if settings is not None and apart is not None:
        sets = fit_sets(choice.calibrator, apart.logits_NC, apart.labels_N, settings, apart.groups_N)
    table = table_of(choice.before, choice.after, [], choice.calibrator, choice.settings)
    origin = {"from": served.version, "labels": choice.rows, "candidates": [line.name for line in choice.table]}
    changes = {
        "training": served.card.training | {RECALIBRATION: origin},
        "metrics": {key: table[key] for key in METRICS},
        "risk_coverage": RiskCoverage.of(choice.after.sums, "live labelled"),
        "act_alone": None,  # a promise holds for the confidences of its own version only
        # Thresholds of conformal sets are about the probabilities of their own calibrator.
        "sets": None if sets is None or settings is None else CardSets.of(sets, settings, choice.calibrator, None),
        "notes": [
            f"Recalibrated from version {served.version} on its {choice.rows:,} newest live labels: the same net, a new"
            f" calibrator. The metrics are from these labels: 'before' for the calibrator of {served.version}, 'after'"
            f" for calibrators chosen and fitted without the measured labels, in {FOLDS} folds.",
            *without_promise(served),
            *(
                []
                if sets is not None
                else without_sets(served, "whose probabilities differ, and its labels were no random sample")
            ),
            *table["notes"],
        ],
    }
    return Bundle.write(
        out,
        served.model_path,
        choice.calibrator,
        served.card.model_copy(update=changes),
        golden_input=served.golden_input()[0],
        golden_logits=served.card.golden.logits,
        reference=choice.reference,
        conformal=sets,
    )


def without_promise(served: Bundle) -> list[str]:
    """Return a note if the served version may act alone, which this one may not."""
    if served.card.act_alone is None:
        return []
    return [
        f"Version {served.version} {served.card.act_alone.short}. This promise does not apply to this version, whose"
        " confidences differ. Choose a threshold (trueodds threshold) and publish it with --act-alone."
    ]


def without_sets(served: Bundle, reason: str) -> list[str]:
    """Return a note if the served version has conformal sets, which this one lacks for a reason."""
    if served.card.sets is None:
        return []
    return [
        f"Version {served.version} has conformal sets. They do not apply to this version, {reason}. So it has none. Fit"
        " sets to labelled rows that it was not fitted on, and publish the bundle anew."
    ]


def origin_of(card: Card) -> tuple[str, int] | None:
    """Return the version that a recalibrated bundle was made from and its number of labels; None for other bundles."""
    origin = card.training.get(RECALIBRATION)
    try:
        return (str(origin["from"]), int(origin["labels"])) if origin else None
    except (TypeError, LookupError, ValueError):
        return None


def _gain(served_N: Array, nll_N: Array) -> tuple[float, float]:
    """Return the mean gain and its standard error."""
    gain_N = served_N - nll_N
    return float(gain_N.mean()), float(gain_N.std(ddof=1) / np.sqrt(len(gain_N)))


def settings_of(card: Card) -> Evaluation:
    """Return bins and level of the served card, so that the two versions can be compared."""
    usual = Evaluation()
    return Evaluation(bins=card.metrics.get("bins", usual.bins), level=card.metrics.get("level", usual.level))
