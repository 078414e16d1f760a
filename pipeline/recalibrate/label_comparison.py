"""Compares curves of independent labels with the served ones on labels that neither fit has seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline.recalibrate.candidate_comparison import LEAST_LOSS, CandidateComparison, Rules
from pipeline.recalibrate.gains import label_gain_limits
from trueodds.calibrators import MultilabelPlatt
from trueodds.client.label_truths import LabelTruths
from trueodds.metrics import gain_sequence
from trueodds.sums.inputs import Array

SETTLE_MS = 3_600_000
"""Milliseconds after the first label of an answer in which its other labels may come. Later ones are no evidence."""


@dataclass(frozen=True, eq=False)
class ClosedAnswers:
    """Answers whose labels are fixed as evidence, in the order in which they were fixed."""

    place_M: npt.NDArray[np.intp]
    """Place of each answer among the rows."""
    truth_ML: Array
    """Truths that count: 0, 1, and NaN otherwise."""
    waiting: int
    """Answers whose further labels may still come."""
    late: int
    """Labels that came too late to count."""


def closed_answers(truth_NL: Array, arrived_ms_NL: npt.NDArray[np.int64], now_ms: int) -> ClosedAnswers:
    """Return the answers that are closed: all labels known, or an hour after the first one.

    An answer is one step of the evidence, because its labels depend on each other. The step must not change later. So
    it waits until it is closed, and labels that come after that do not count.

    Args:
        truth_NL: Truths: 0, 1, and NaN if not known. Each answer has one at least.
        arrived_ms_NL: Time of each known truth in Unix milliseconds, by the service's clock.
        now_ms: Present time by the same clock.
    """
    known_NL = ~np.isnan(truth_NL)
    latest = np.iinfo(np.int64).max - SETTLE_MS
    first_N = np.where(known_NL, arrived_ms_NL, latest).min(axis=1, initial=latest)
    end_N = first_N + SETTLE_MS
    counts_NL = known_NL & (arrived_ms_NL <= end_N[:, None])
    closed_N = np.where(counts_NL.all(axis=1), np.where(counts_NL, arrived_ms_NL, 0).max(axis=1, initial=0), end_N)
    ready_N = closed_N <= now_ms
    place_M = np.flatnonzero(ready_N)
    place_M = place_M[np.argsort(closed_N[place_M], kind="stable")]
    truth_ML = np.where(counts_NL, truth_NL, np.nan)[place_M]
    late = int((known_NL & ~counts_NL)[ready_N].sum())
    return ClosedAnswers(place_M, truth_ML, int((~ready_N).sum()), late)


def label_scores(calibrator: MultilabelPlatt, z_NL: Array, truth_NL: Array, smoothing: float) -> tuple[Array, Array]:
    """Compute two scores of each answer: the mean over its known labels of ln((1 - e) p_y + e / 2), and of (p - y)^2.

    p_y is the probability of the truth y, and p that of a true label. The first is in nats.
    """
    known_NL = ~np.isnan(truth_NL)
    p_NL = calibrator.apply(np.where(known_NL, z_NL, 0.0).astype(np.float64))
    true_NL = np.where(truth_NL == 1, p_NL, 1 - p_NL)
    log_NL = np.where(known_NL, np.log((1 - smoothing) * true_NL + smoothing / 2), 0.0)
    brier_NL = np.where(known_NL, (1 - true_NL) ** 2, 0.0)
    count_N = known_NL.sum(axis=1)
    return log_NL.sum(axis=1) / count_N, brier_NL.sum(axis=1) / count_N


def compare_labels(
    served: MultilabelPlatt, candidate: MultilabelPlatt, rows: LabelTruths, rules: Rules, now_ms: int
) -> CandidateComparison:
    """Compare two sets of curves on fresh labels, answer by answer, by a confidence sequence of the mean gain.

    The gain of answer n is the mean over its known labels l of S(q_nl, y_nl) - S(p_nl, y_nl). S is the log score of
    (1 - e) p + e / 2. So each answer counts once, however many of its labels are known. The limits are those of
    `gain_sequence`: the mean of the expected gains so far is below 0 in at most 2.5% of the comparisons in which the
    lower limit is ever above 0. Single labels would be no valid steps: if the first label of an answer is known, its
    others have another expected gain.

    Args:
        served: The curves of the served version.
        candidate: The curves of the candidate.
        rows: The labelled answers of the served version.
        rules: The rules.
        now_ms: Present time in Unix milliseconds, by the service's clock.
    """
    closed = closed_answers(rows.truth_NL, rows.arrived_ms_NL, now_ms)
    z_ML, truth_ML, chance_M = (
        rows.logits_NL[closed.place_M].astype(np.float64),
        closed.truth_ML,
        rows.propensities_N[closed.place_M],
    )
    known, left_out, weight_M = bool(np.isfinite(chance_M).any()), 0, None
    if known:
        kept_M = np.nan_to_num(chance_M, nan=0.0) >= rules.smallest_propensity
        left_out = int((~kept_M).sum())
        z_ML, truth_ML = z_ML[kept_M], truth_ML[kept_M]
        weight_M = rules.smallest_propensity / chance_M[kept_M]
    about = {"unit": "answer", "waiting": closed.waiting, "late": closed.late, "left_out": left_out}
    if not len(z_ML):
        return CandidateComparison(0, None, rules=rules, weighted=known, **about)  # type: ignore[arg-type]
    log_p_M, brier_p_M = label_scores(served, z_ML, truth_ML, rules.smoothing)
    log_q_M, brier_q_M = label_scores(candidate, z_ML, truth_ML, rules.smoothing)
    least, most = label_gain_limits(served, candidate, rules.smoothing)
    margin = rules.margin
    least, most = min(least + margin, -LEAST_LOSS), most + margin
    found = gain_sequence(log_q_M - log_p_M + margin, least=least, most=most, level=rules.level, weight_N=weight_M)
    brier = gain_sequence(brier_p_M - brier_q_M, least=-1.0, most=1.0, level=rules.level, weight_N=weight_M)
    limits = found.mean - margin, found.lower - margin, found.upper - margin, found.more
    return CandidateComparison(found.labels, *limits, brier, rules, known, **about)  # type: ignore[arg-type]
