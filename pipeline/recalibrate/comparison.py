"""The comparison of a candidate with what is served, on labels that neither fit has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from trueodds.calibrators import Calibrator
from trueodds.calibrators.held_out import calibrated_nll
from trueodds.texts import plural

THRESHOLD = 20.0
LEAST = 100
LEVEL = 0.95


@dataclass(frozen=True)
class Comparison:
    """Candidate and served on the same labels, which neither fit has seen."""

    labels: int
    log_e: float
    """Natural logarithm of E, the likelihood ratio of candidate and served."""
    gain: float | None
    """Mean NLL of the served minus that of the candidate, nats a label; None without labels."""
    lower: float | None
    """Normal interval of `gain` at 95%, from the paired differences; for one look at this many labels."""
    upper: float | None
    verdict: Literal["better", "worse", "open"]

    def words(self) -> str:
        """One sentence for people."""
        if self.gain is None or self.lower is None or self.upper is None:
            return "No fresh labels yet: labels of answers given after the candidate was made decide."
        e = f"{math.exp(self.log_e):.3g}" if self.log_e < 50 else f"10^{self.log_e / math.log(10):.0f}"
        way = "lower" if self.gain >= 0 else "higher"
        summary = (
            f"{plural(self.labels, 'fresh label')}: the candidate's NLL is {abs(self.gain):.4f} nats a label {way}"
            f" (95% interval of the gain {self.lower:.4f} .. {self.upper:.4f}), e-value {e}."
        )
        if self.verdict != "open":
            return summary
        return f"{summary} From {LEAST} labels on, {THRESHOLD:g} decides for it and 1/{THRESHOLD:g} against it."


def compare(
    served: Calibrator,
    candidate: Calibrator,
    logits_NC: npt.NDArray[np.floating],
    labels_N: npt.NDArray[np.integer],
    candidate_logits_NC: npt.NDArray[np.floating] | None = None,
) -> Comparison:
    """E = prod_n q_n(y_n) / p_n(y_n), p served and q the candidate: log E = sum of (NLL served - NLL candidate).

    If the served probabilities are right, E is 1 on average after any number of labels, whatever came before, so that
    it ever reaches 20 has a chance of at most 5% (Ville 1939) and one may look after every label. 1/E is the same
    against the candidate. Both fits must know nothing of these labels. The verdict needs E or 1/E of 20 and 100 labels.
    A candidate with another net comes with its own logits of the same rows, `candidate_logits_NC`.
    """
    if not len(labels_N):
        return Comparison(0, 0.0, None, None, None, "open")
    gain_N = calibrated_nll(served, logits_NC, labels_N) - calibrated_nll(
        candidate, logits_NC if candidate_logits_NC is None else candidate_logits_NC, labels_N
    )
    n, gain, log_e = len(gain_N), float(gain_N.mean()), float(gain_N.sum())
    half = float(ndtri((1 + LEVEL) / 2) * gain_N.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    enough = n >= LEAST and abs(log_e) >= math.log(THRESHOLD)
    return Comparison(
        n, log_e, gain, gain - half, gain + half, ("better" if log_e > 0 else "worse") if enough else "open"
    )
