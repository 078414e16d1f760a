"""The comparison of a candidate with what is served, on labels that neither fit has seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from trueodds.calibrators import Calibrator
from trueodds.calibrators.held_out import calibrated_nll
from trueodds.texts import plural

LEAST = 500
"""Fresh labels from which on the interval is shown: with 100, where errors are rare, it covers 88% at a nominal 95%."""
LEVEL = 0.95


@dataclass(frozen=True)
class Comparison:
    """Candidate and served on the same labels, which neither fit has seen."""

    labels: int
    gain: float | None
    """Mean NLL of the served minus that of the candidate, nats a label; None without labels."""
    lower: float | None = None
    """Limits of the expected gain; None below `LEAST` labels."""
    upper: float | None = None

    @property
    def enough(self) -> bool:
        """Whether the labels are enough for an interval."""
        return self.lower is not None

    def words(self) -> str:
        """The evidence for people."""
        if self.gain is None:
            return "No fresh labels yet: labels of answers given after the candidate was made are the evidence."
        way = "lower" if self.gain >= 0 else "higher"
        summary = (
            f"{plural(self.labels, 'fresh label')}: the candidate's NLL is {abs(self.gain):.4f} nats a label {way}"
        )
        if self.lower is None or self.upper is None:
            return f"{summary}; an interval needs {LEAST} labels."
        limits = f"{LEVEL:.0%} interval of the gain {self.lower:.4f} .. {self.upper:.4f}"
        return f"{summary} ({limits}, for one look at a number of labels fixed beforehand)."


def compare(
    served: Calibrator,
    candidate: Calibrator,
    logits_NC: npt.NDArray[np.floating],
    labels_N: npt.NDArray[np.integer],
    candidate_logits_NC: npt.NDArray[np.floating] | None = None,
) -> Comparison:
    """Compare the mean NLL of two versions on fresh labels: d_n = ln q_n(y_n) - ln p_n(y_n), p served, q the candidate.

    The interval is Student's, mean d +- t_{N-1} s / sqrt(N), a fixed-time interval: it holds for one look at a number
    of labels that does not depend on them. The product of q_n(y_n) / p_n(y_n) is no evidence for the candidate. It is
    an e-value against "the served probabilities are right", which is false whenever a recalibration begins.
    Both fits must know nothing of these labels. A candidate with another net comes with its own logits of the same
    rows, `candidate_logits_NC`.
    """
    if not len(labels_N):
        return Comparison(0, None)
    gain_N = calibrated_nll(served, logits_NC, labels_N) - calibrated_nll(
        candidate, logits_NC if candidate_logits_NC is None else candidate_logits_NC, labels_N
    )
    n, gain = len(gain_N), float(gain_N.mean())
    if n < LEAST:
        return Comparison(n, gain)
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2) * gain_N.std(ddof=1) / math.sqrt(n))
    return Comparison(n, gain, gain - half, gain + half)
