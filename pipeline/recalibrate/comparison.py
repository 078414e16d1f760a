"""The comparison of a candidate with what is served, on labels that neither fit has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.recalibrate.gains import SMOOTHING, gain_limits, scores
from trueodds.calibrators import Calibrator
from trueodds.errors import ConfigError
from trueodds.metrics import GainSequence, gain_sequence
from trueodds.metrics.alarms.weighted_e_process import FLOOR
from trueodds.texts import plural

LEVEL = 0.95
ENOUGH = 50
"""Labels from which on it is said how many more would decide."""
MOST_MARGIN = 10.0
"""Nats a label: few versions lie further apart, so that a larger margin would decide alone."""
LEAST_SMOOTHING = 1e-12
"""With less, e / K vanishes beside the rounding of 1, and the score has no limits to speak of."""
LEAST_LOSS = 1e-3
"""Nats: the smallest gain is stated as this much below minus the margin, even where the margin is never reached."""
Verdict = Literal["better", "worse", "undecided"]


@dataclass(frozen=True)
class Rules:
    """The rules of a comparison, all fixed before its first label.

    Raises:
        ConfigError: a margin outside [0, 10], smoothing outside [1e-12, 1), a smallest propensity outside (0, 1].
    """

    margin: float = 0.0
    """Nats a label that the candidate may be worse by, because it is simpler or cheaper."""
    smoothing: float = SMOOTHING
    """e: the share of 1/K in the probabilities that are scored, (1 - e) p + e / K."""
    smallest_propensity: float = FLOOR
    """Answers of a smaller propensity are left out, where propensities are known."""
    candidate: int = 1
    """The number of this candidate among those that were judged beside the served version."""
    budget: Literal["each", "together"] = "each"
    """each: every candidate's interval misses in at most 5%. together: all of them together do."""

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= MOST_MARGIN:
            raise ConfigError(
                f"margin is {self.margin}; allowed is a number of nats from 0 to {MOST_MARGIN:g}, such as 0.002"
            )
        if not LEAST_SMOOTHING <= self.smoothing < 1:
            raise ConfigError(
                f"smoothing is {self.smoothing}; allowed is a number from {LEAST_SMOOTHING:g} to below 1, such as 0.001"
            )
        if not 0 < self.smallest_propensity <= 1:
            raise ConfigError(f"smallest propensity is {self.smallest_propensity}; allowed is (0, 1], such as 0.05")
        if self.candidate < 1:
            raise ConfigError(f"candidate is number {self.candidate}; allowed is a whole number from 1 on")
        if self.budget not in ("each", "together"):
            raise ConfigError(f"budget is {self.budget!r}; allowed: each, together")

    @property
    def level(self) -> float:
        """Confidence level of this candidate's interval: 1 - alpha, alpha = .05, or .05 x 6 / (pi k)^2 for the k-th.

        The alphas of all candidates add up to .05.
        """
        share = 6 / (math.pi * self.candidate) ** 2 if self.budget == "together" else 1.0
        return 1 - (1 - LEVEL) * share


@dataclass(frozen=True)
class Comparison:
    """Candidate and served on the same labels, which neither fit has seen: the interval, and its verdict."""

    labels: int
    gain: float | None
    """Mean log score of the candidate minus that of the served, nats a label; None without labels."""
    lower: float | None = None
    """Limits of the mean of the expected gains so far. They hold after every label. None without labels."""
    upper: float | None = None
    more: int | None = None
    """About so many labels more decide, if the gain stays as it is; None: more than 10 million."""
    brier: GainSequence | None = None
    """The same of the Brier score. It is shown, and decides nothing."""
    rules: Rules = Rules()
    weighted: bool = False
    """Whether labels were weighted by their propensities, so that the sign is that of the mean over all answers."""
    left_out: int = 0
    """Labels of answers whose propensity is below the smallest, or not known where others are."""

    @property
    def verdict(self) -> Verdict:
        """better: the lower limit is above -margin. worse: the upper limit is below it. Else undecided.

        The limits are those at the present label. So at most 5% of comparisons are ever decided wrongly, by the mean
        gain up to the decision, however often one looks.
        """
        if self.lower is None or self.upper is None:
            return "undecided"
        if self.lower > -self.rules.margin:
            return "better"
        return "worse" if self.upper < -self.rules.margin else "undecided"

    @property
    def enough(self) -> bool:
        """Whether the labels are enough for a verdict."""
        return self.verdict != "undecided"

    def evidence(self) -> str:
        """The evidence in one short line, for the audit log."""
        if self.gain is None or self.lower is None or self.upper is None:
            return "no fresh labels"
        size = f"gain {self.gain:+.4f} nats a label"
        limits = f"{_percent(self.rules.level)} {self.lower:+.4f} .. {self.upper:+.4f} at every label"
        margin = f", margin {self.rules.margin:g}" if self.rules.margin else ""
        return f"{self.verdict} on {plural(self.labels, 'fresh label')}: {size} ({limits}{margin})"

    def words(self) -> str:
        """The evidence for people."""
        if self.gain is None or self.lower is None or self.upper is None:
            left_out = f" {self._left_out_words()}" if self.left_out else ""
            return (
                "No fresh labels yet: the evidence is labels of answers that were given since the candidate was fixed,"
                f" and since the version that answers began to.{left_out}"
            )
        way = "lower" if self.gain >= 0 else "higher"
        of = "the labelled answers"
        if self.weighted:
            of = f"all answers of propensity {self.rules.smallest_propensity:g} or more: the size is an estimate"
        parts = [
            f"{plural(self.labels, 'fresh label')}: the candidate's log loss is {abs(self.gain):.4f} nats a label {way}"
            f" ({_percent(self.rules.level)} interval of the gain {self.lower:.4f} .. {self.upper:.4f}, valid however"
            f" often you look; of {of}).",
            self._verdict_words(),
        ]
        if self.brier is not None:
            b = self.brier
            parts.append(f"Brier score, which decides nothing: gain {b.mean:.4f} ({b.lower:.4f} .. {b.upper:.4f}).")
        parts.append(
            f"Scored are (1 - e) p + e/K with e = {self.rules.smoothing:g}: better and worse are of this score, and of"
            " the labels so far."
        )
        if self.left_out:
            parts.append(self._left_out_words())
        if self.rules.budget == "together":
            parts.append(f"This is candidate {self.rules.candidate}; all candidates together share an error of 5%.")
        return " ".join(parts)

    def _left_out_words(self) -> str:
        least = f"{self.rules.smallest_propensity:g}"
        return f"{plural(self.left_out, 'label')} left out: no propensity, or one below {least}."

    def _verdict_words(self) -> str:
        margin = self.rules.margin
        if self.verdict == "better":
            return f"The candidate is at most {margin:g} nats worse." if margin else "The candidate is better."
        if self.verdict == "worse":
            return f"The candidate is more than {margin:g} nats worse." if margin else "The candidate is worse."
        if self.labels < ENOUGH:
            return "Not yet decided."
        if self.more is None:
            return "Not yet decided; a gain of this size would take more than 10 million labels."
        return f"Not yet decided; a gain of this size would take about {plural(_round(self.more), 'label')} more."


def compare(
    served: Calibrator,
    candidate: Calibrator,
    logits_NC: npt.NDArray[np.floating],
    labels_N: npt.NDArray[np.integer],
    candidate_logits_NC: npt.NDArray[np.floating] | None = None,
    rules: Rules | None = None,
    propensities_N: npt.NDArray[np.float64] | None = None,
) -> Comparison:
    """Compare two versions on fresh labels in their order, by a confidence sequence of the mean gain.

    The gain of label n is d_n = S(q_n, y_n) - S(p_n, y_n), p served, q the candidate, and S the log score of
    (1 - e) p + e / K, which is bounded. The limits are those of `trueodds.metrics.gain_sequence`: they hold after every
    label, and the expected gain may change over time. The product of q_n(y_n) / p_n(y_n) is no evidence for the
    candidate. It is an e-value against "the served probabilities are right", which is false whenever a recalibration
    begins. Both fits must know nothing of these labels.

    Args:
        served: The calibrator that answers.
        candidate: The other one.
        logits_NC: The answers' logits, in the order in which their labels arrived.
        labels_N: The labels.
        candidate_logits_NC: The logits of a candidate with another net, of the same rows.
        rules: None: those of `Rules()`.
        propensities_N: Each label's chance, NaN where it is not known. Known for none, or None: all labels count alike.
    """
    rules = rules or Rules()
    known = propensities_N is not None and bool(np.isfinite(propensities_N).any())
    left_out, weight_N = 0, None
    if known and propensities_N is not None:
        kept_N = np.nan_to_num(propensities_N, nan=0.0) >= rules.smallest_propensity
        left_out = int((~kept_N).sum())
        weight_N = rules.smallest_propensity / propensities_N[kept_N]
        logits_NC, labels_N = logits_NC[kept_N], labels_N[kept_N]
        candidate_logits_NC = None if candidate_logits_NC is None else candidate_logits_NC[kept_N]
    if not len(labels_N):
        return Comparison(0, None, rules=rules, weighted=known, left_out=left_out)
    others_NC = logits_NC if candidate_logits_NC is None else candidate_logits_NC
    log_p_N, brier_p_N = scores(served, logits_NC, labels_N, rules.smoothing)
    log_q_N, brier_q_N = scores(candidate, others_NC, labels_N, rules.smoothing)
    least, most = gain_limits(
        served, candidate, logits_NC.shape[1], rules.smoothing, same_logits=candidate_logits_NC is None
    )
    margin = rules.margin
    least, most = min(least + margin, -LEAST_LOSS), most + margin
    found = gain_sequence(log_q_N - log_p_N + margin, least=least, most=most, level=rules.level, weight_N=weight_N)
    brier = gain_sequence(brier_p_N - brier_q_N, least=-2.0, most=2.0, level=rules.level, weight_N=weight_N)
    return Comparison(
        found.labels,
        found.mean - margin,
        found.lower - margin,
        found.upper - margin,
        found.more,
        brier,
        rules,
        known,
        left_out,
    )


def _percent(level: float) -> str:
    return f"{100 * level:.4g}%"


def _round(count: int) -> int:
    """Two leading digits."""
    return round(count, -max(len(str(count)) - 2, 0))
