"""Compares a candidate with the served version on labels that neither fit has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from pipeline.choices import SMOOTHING
from pipeline.recalibrate.gains import gain_limits, scores
from trueodds.calibrators import Calibrator
from trueodds.errors import ConfigError
from trueodds.metrics import GainSequence, gain_sequence
from trueodds.processes.choices import SMALLEST_PROPENSITY
from trueodds.texts import plural

LEVEL = 0.95
ENOUGH = 50
"""Number of labels from which the number of labels still needed is stated."""
MOST_MARGIN = 10.0
"""Largest margin in nats per label. Versions rarely differ by more, so a larger margin alone would decide."""
LEAST_SMOOTHING = 1e-12
"""Smallest smoothing. Below it e / K vanishes in the rounding of 1, and the score has no useful limits."""
LEAST_LOSS = 1e-3
"""Nats below minus the margin that the smallest possible gain is set to if it would not reach the margin."""
Verdict = Literal["better", "worse", "undecided"]


@dataclass(frozen=True)
class Rules:
    """The rules of a comparison, which are fixed before its first label.

    Raises:
        ConfigError: The margin is outside [0, 10], smoothing outside [1e-12, 1), or the smallest propensity outside
            (0, 1].
    """

    margin: float = 0.0
    """Nats per label by which the candidate may be worse, because it is simpler or cheaper."""
    smoothing: float = SMOOTHING
    """Share e of 1/K in the probabilities that are scored, (1 - e) p + e / K."""
    smallest_propensity: float = SMALLEST_PROPENSITY
    """Smallest propensity. Answers with a smaller one are left out, if propensities are known."""
    candidate: int = 1
    """Number of this candidate among those that were judged beside the served version."""
    budget: Literal["each", "together"] = "each"
    """Error budget. each: at most 5% of intervals miss, for every candidate. together: for all candidates together."""

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
            raise ConfigError(f"candidate is number {self.candidate}; allowed is a whole number from 1")
        if self.budget not in ("each", "together"):
            raise ConfigError(f"budget is {self.budget!r}; allowed: each, together")

    @property
    def level(self) -> float:
        """Return the confidence level of this candidate's interval, 1 - alpha.

        alpha is .05 for the budget `each`. For `together` it is .05 x 6 / (pi k)^2 for candidate k, so that the alphas
        of all candidates add up to .05.
        """
        share = 6 / (math.pi * self.candidate) ** 2 if self.budget == "together" else 1.0
        return 1 - (1 - LEVEL) * share


@dataclass(frozen=True)
class CandidateComparison:
    """Interval and verdict of a comparison of candidate and served version, on labels that neither fit has seen."""

    labels: int
    gain: float | None
    """Mean log score of the candidate minus that of the served version, in nats per label; None without labels."""
    lower: float | None = None
    """Lower limit of the mean of the expected gains so far. It holds after every label. None without labels."""
    upper: float | None = None
    """Upper limit, likewise."""
    more: int | None = None
    """Approximate number of further labels that would decide at this gain; None: more than 10 million."""
    brier: GainSequence | None = None
    """The same for the Brier score. It is shown, but does not decide."""
    rules: Rules = Rules()
    weighted: bool = False
    """Whether labels were weighted by their propensities. The sign is then that of the mean over all answers."""
    left_out: int = 0
    """Number of labels left out because their propensity is too small, or unknown while others are known."""
    unit: Literal["label", "answer"] = "label"
    """Step of the evidence. For independent labels it is the answer, because its labels depend on each other."""
    waiting: int = 0
    """Answers with independent labels of which further ones may still come, so that they do not count yet."""
    late: int = 0
    """Independent labels that came too long after the first one of their answer to count."""

    @property
    def verdict(self) -> Verdict:
        """Return the verdict: better if the lower limit is above -margin, worse if the upper limit is below it.

        The limits are those at the current label. At most 5% of comparisons are therefore ever decided wrongly, judged
        by the mean gain up to the decision, no matter how often you look.
        """
        if self.lower is None or self.upper is None:
            return "undecided"
        if self.lower > -self.rules.margin:
            return "better"
        return "worse" if self.upper < -self.rules.margin else "undecided"

    @property
    def enough(self) -> bool:
        """Return whether there is a verdict."""
        return self.verdict != "undecided"

    def evidence(self) -> str:
        """Return the evidence as one short line for the audit log."""
        if self.gain is None or self.lower is None or self.upper is None:
            return "no fresh labels"
        size = f"gain {self.gain:+.4f} nats a label"
        limits = f"{_percent(self.rules.level)} {self.lower:+.4f} .. {self.upper:+.4f} at every label"
        margin = f", margin {self.rules.margin:g}" if self.rules.margin else ""
        return f"{self.verdict} on {plural(self.labels, f'fresh {self.unit}')}: {size} ({limits}{margin})"

    def words(self) -> str:
        """Return the evidence in sentences."""
        if self.gain is None or self.lower is None or self.upper is None:
            left_out = f" {self._left_out_words()}" if self.left_out else ""
            return (
                "No fresh labels yet. Fresh labels belong to answers given after the candidate was published and after"
                f" the served version took over.{left_out}{self._unclosed_words()}"
            )
        way = "lower" if self.gain >= 0 else "higher"
        of = "the labelled answers"
        if self.weighted:
            of = f"all answers with propensity {self.rules.smallest_propensity:g} or more: the size is an estimate"
        parts = [
            f"{plural(self.labels, f'fresh {self.unit}')}: the candidate's log loss is {abs(self.gain):.4f} nats"
            f" a label {way} ({_percent(self.rules.level)} interval of the gain {self.lower:.4f} .. {self.upper:.4f},"
            f" valid however often you look; over {of}).",
            self._verdict_words(),
        ]
        if self.brier is not None:
            b = self.brier
            parts.append(f"Brier score, which does not decide: gain {b.mean:.4f} ({b.lower:.4f} .. {b.upper:.4f}).")
        parts.append(
            f"The scored probabilities are (1 - e) p + e/K with e = {self.rules.smoothing:g}. The verdict is about this"
            " score and the labels so far."
        )
        if self.left_out:
            parts.append(self._left_out_words())
        if self.rules.budget == "together":
            parts.append(f"This is candidate {self.rules.candidate}; all candidates together share an error of 5%.")
        return " ".join(parts) + self._unclosed_words()

    def _unclosed_words(self) -> str:
        """Return how answers with independent labels count, and which do not; "" for classes."""
        if self.unit == "label":
            return ""
        words = " An answer counts once, with the mean over its known labels."
        if self.waiting:
            words += (
                f" {plural(self.waiting, 'answer')} will count when all labels are known, or an hour after the first"
                " one."
            )
        if self.late:
            words += f" {plural(self.late, 'label')} came more than an hour after the first one: they do not count."
        return words

    def _left_out_words(self) -> str:
        """Return how many labels were left out, and why."""
        least = f"{self.rules.smallest_propensity:g}"
        return f"{plural(self.left_out, self.unit)} left out: their propensity is unknown or below {least}."

    def _verdict_words(self) -> str:
        """Return the verdict as a sentence."""
        margin = self.rules.margin
        if self.verdict == "better":
            return f"The candidate is at most {margin:g} nats worse." if margin else "The candidate is better."
        if self.verdict == "worse":
            return f"The candidate is more than {margin:g} nats worse." if margin else "The candidate is worse."
        if self.labels < ENOUGH:
            return "Not yet decided."
        if self.more is None:
            return f"Not yet decided; a gain of this size would take more than 10 million {self.unit}s."
        return f"Not yet decided; a gain of this size would take about {plural(_round(self.more), self.unit)} more."


def compare(
    served: Calibrator,
    candidate: Calibrator,
    logits_NC: npt.NDArray[np.floating],
    labels_N: npt.NDArray[np.integer],
    candidate_logits_NC: npt.NDArray[np.floating] | None = None,
    rules: Rules | None = None,
    propensities_N: npt.NDArray[np.float64] | None = None,
    tags_N: npt.NDArray[np.object_] | None = None,
) -> CandidateComparison:
    """Compare two versions on fresh labels, in their order, by a confidence sequence of the mean gain.

    The gain of label n is d_n = S(q_n, y_n) - S(p_n, y_n), with p of the served version, q of the candidate, and S the
    log score of (1 - e) p + e / K, which is bounded. The limits are those of `trueodds.metrics.gain_sequence`. They
    hold after every label, and the expected gain may change over time.

    The product of q_n(y_n) / p_n(y_n) is no evidence for the candidate. It is an e-value against the hypothesis that
    the served probabilities are right, which is false whenever a recalibration begins. Neither fit may have seen these
    labels.

    Args:
        served: The calibrator of the served version.
        candidate: The calibrator of the candidate.
        logits_NC: The answers' logits, in the order in which their labels arrived.
        labels_N: The labels.
        candidate_logits_NC: The candidate's logits for the same rows, if it has another net.
        rules: The rules. None: `Rules()`.
        propensities_N: The probability of each label, NaN where unknown. If all are unknown, or None, labels count
            equally.
        tags_N: Tags of the answers, for calibrators with groups. Answers without a tag have None.
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
        tags_N = None if tags_N is None else tags_N[kept_N]
    if not len(labels_N):
        return CandidateComparison(0, None, rules=rules, weighted=known, left_out=left_out)
    others_NC = logits_NC if candidate_logits_NC is None else candidate_logits_NC
    log_p_N, brier_p_N = scores(served, logits_NC, labels_N, rules.smoothing, tags_N)
    log_q_N, brier_q_N = scores(candidate, others_NC, labels_N, rules.smoothing, tags_N)
    least, most = gain_limits(
        served, candidate, logits_NC.shape[1], rules.smoothing, same_logits=candidate_logits_NC is None
    )
    margin = rules.margin
    least, most = min(least + margin, -LEAST_LOSS), most + margin
    found = gain_sequence(log_q_N - log_p_N + margin, least=least, most=most, level=rules.level, weight_N=weight_N)
    brier = gain_sequence(brier_p_N - brier_q_N, least=-2.0, most=2.0, level=rules.level, weight_N=weight_N)
    return CandidateComparison(
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
    """Return a level as a percentage."""
    return f"{100 * level:.4g}%"


def _round(count: int) -> int:
    """Round a count to two leading digits."""
    return round(count, -max(len(str(count)) - 2, 0))
