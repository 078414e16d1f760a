"""Which calibrator fits the live labels best, and the bundle it makes: the same net, so the same logits bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.config import Evaluation
from trueodds import calibrators
from trueodds.bundle import METRICS, Bundle, Card, Reference, RiskCoverage
from trueodds.calibrators import Calibrator, Identity
from trueodds.calibrators.held_out import calibrated_nll, stratified_folds
from trueodds.calibrators.selection import default_candidates
from trueodds.evaluation.measurement import Measurement, measure, measure_probabilities
from trueodds.evaluation.results import table_of
from trueodds.sums.inputs import Array
from trueodds.sums.losses import nll_of
from trueodds.sums.positive import PositiveClass

FOLDS = 5
RECALIBRATION = "recalibration"
"""Key of `training` in a card: the served version that the bundle was made from, and its labels."""


@dataclass(frozen=True)
class CandidateScore:
    """A candidate in the table of a choice; all numbers over labels that its fit did not see."""

    name: str
    nll: float | None
    """Mean, in nats; None if it could not be fitted."""
    gain: float | None
    """NLL of the served calibrator minus its own: positive is better."""
    gain_standard_error: float | None
    """From the labels' paired differences."""
    problem: str | None = None
    """Why it could not be fitted, or was passed over."""
    reason: str | None = None
    """Why it was chosen, with its NLL and standard error; None of the others."""


@dataclass(frozen=True, eq=False)
class Choice:
    """The candidate of least cross-validated NLL beside the served calibrator as it is."""

    calibrator: Calibrator
    """Fitted on all rows."""
    gain: float
    """NLL of the served calibrator minus that of `after`, nats a label, and its paired standard error."""
    gain_standard_error: float
    served: CandidateScore
    table: tuple[CandidateScore, ...]
    best: CandidateScore
    before: Measurement
    """The served calibrator on the live labels: none of them was known to its fit."""
    after: Measurement
    """Choosing and fitting on the same labels: each by what the other folds alone would have chosen and fitted."""
    settings: Evaluation
    rows: int

    @property
    def better(self) -> bool:
        """Whether these labels can tell it from the served calibrator: the gain is above one standard error."""
        return self.gain > self.gain_standard_error


def choose(
    served: Calibrator,
    logits_NC: npt.NDArray[np.floating],
    labels_N: npt.NDArray[np.integer],
    candidates: Sequence[str] = (),
    settings: Evaluation | None = None,
    positive: PositiveClass | None = None,
) -> Choice:
    """Cross-validate the candidates (those of `select` unless they are named) and the served calibrator, refitted too.

    5 folds, stratified by class, and 5 within the rest of each for `after`, so that its numbers are not those of the
    winner on the rows it won on. 10,000 labels take 3 s for 10 classes, 13 s for 100.

    Raises:
        ConfigError: an unknown candidate.
        FitError: no candidate can be fitted.
    """
    names = list(dict.fromkeys([served.name, *(candidates or default_candidates(logits_NC.shape[1], len(labels_N)))]))
    selection = calibrators.select(logits_NC, labels_N, candidates=names, folds=FOLDS)
    served_N = calibrated_nll(served, logits_NC, labels_N)
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
        rest = calibrators.select(logits_NC[~inside], labels_N[~inside], candidates=names, folds=FOLDS)
        p_NC[inside] = rest.calibrator(logits_NC[inside])
    gain, gain_standard_error = _gain(served_N, nll_of(p_NC[np.arange(len(labels_N)), labels_N]))
    return Choice(
        selection.calibrator,
        gain,
        gain_standard_error,
        CandidateScore(served.name, float(served_N.mean()), 0.0, 0.0),
        table,
        best,
        measure(served, logits_NC, labels_N, settings, positive),
        measure_probabilities(best.name, p_NC, labels_N, settings, positive, before_NC=Identity()(logits_NC)),
        settings,
        len(labels_N),
    )


def write_candidate(served: Bundle, choice: Choice, out: Path) -> Bundle:
    """The served bundle with the chosen calibrator, and a card that says so; into `out`."""
    table = table_of(choice.before, choice.after, [], choice.calibrator, choice.settings)
    origin = {"from": served.version, "labels": choice.rows, "candidates": [line.name for line in choice.table]}
    changes = {
        "training": served.card.training | {RECALIBRATION: origin},
        "metrics": {key: table[key] for key in METRICS},
        "risk_coverage": RiskCoverage.of(choice.after.sums, "live labelled"),
        "act_alone": None,  # a promise is of the confidences that its version gives
        "notes": [
            f"Recalibrated from version {served.version} on the {choice.rows:,} live labels that arrived last: the same"
            f" net, a new calibrator. Its metrics are of these labels, 'before' by the calibrator of {served.version},"
            f" 'after' by what was chosen and fitted without them, in {FOLDS} folds.",
            *_without_promise(served),
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
        # Later confidences are compared with those of the live rows, by fits that had not seen them.
        reference=Reference.of_sums(choice.after.sums),
    )


def _without_promise(served: Bundle) -> list[str]:
    """A note where the served version acts alone: its confidences were others."""
    if served.card.act_alone is None:
        return []
    return [
        f"Version {served.version} {served.card.act_alone.short}. This one has no such promise, because its confidences"
        " are others: choose a threshold (trueodds threshold) and publish it with --act-alone."
    ]


def origin_of(card: Card) -> tuple[str, int] | None:
    """(version it was made from, labels of its fit) of a recalibrated bundle's card; None of any other."""
    origin = card.training.get(RECALIBRATION)
    try:
        return (str(origin["from"]), int(origin["labels"])) if origin else None
    except (TypeError, LookupError, ValueError):
        return None


def _gain(served_N: Array, nll_N: Array) -> tuple[float, float]:
    gain_N = served_N - nll_N
    return float(gain_N.mean()), float(gain_N.std(ddof=1) / np.sqrt(len(gain_N)))


def settings_of(card: Card) -> Evaluation:
    """Bins and level as in the served card, so that the two can be compared."""
    usual = Evaluation()
    return Evaluation(bins=card.metrics.get("bins", usual.bins), level=card.metrics.get("level", usual.level))
