"""Say what can be said before labels come: expected precision, class shares, and corrected probabilities.

    python examples/before_labels.py

Half of the transactions that trained a model were fraud. Later only 15% are, and nobody knows the labels yet. The
expected precision needs calibrated answers, so it is wrong now. The shares follow from the scores, because nothing else
has changed. With them the calibrator is corrected, and the expected precision is right again. At last some labels
of random answers come. They contradict the served probabilities, and not the corrected ones.
docs/explanation/labelling-bias.md has the conditions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression

import trueodds
from trueodds import metrics

Array = npt.NDArray[np.float64]
THRESHOLD = 0.5
NAMES = ("as served", "corrected")


def transactions(rng: np.random.Generator, count: int, share: float) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return features of transactions, shape (N, 4), and whether each one is fraud, shape (N,)."""
    labels = (rng.random(count) < share).astype(np.int64)
    return rng.normal(labels[:, None] * [1.0, 0.8, 0.5, 0.0], 1.0), labels


def logits(model: LogisticRegression, x: Array) -> Array:
    """Return logits of both classes, shape (N, 2)."""
    return np.stack([np.zeros(len(x)), model.decision_function(x)], axis=1)


def expected(name: str, p_N: Array, labels: npt.NDArray[np.int64]) -> None:
    """Print the expected precision of alerts without a label, and the true one, which is hidden in real life."""
    (one,) = metrics.expected_decisions(p_N, at=[THRESHOLD])
    true = labels[p_N > THRESHOLD].mean()
    found = one.precision
    print(f"{name}: {found.value:.3f} ({found.lower:.3f} to {found.upper:.3f}); the hidden labels say {true:.3f}")


def main() -> None:
    """Fit, let the shares change, estimate them, correct, and test with the first labels."""
    rng = np.random.default_rng(0)
    model = LogisticRegression().fit(*transactions(rng, 2_000, 0.5))
    x, reference = transactions(rng, 2_000, 0.5)
    before = logits(model, x)
    served = trueodds.fit(before, reference, "temperature")

    x, labels = transactions(rng, 5_000, 0.15)
    now = logits(model, x)
    print(f"Expected precision of alerts above {THRESHOLD}, without a label:")
    expected(NAMES[0], served(now)[:, 1], labels)

    shift = metrics.prior_shift(served(now), served(before), reference)
    if shift.refusal:
        raise SystemExit(f"The shares cannot be told: {shift.refusal}")
    share = shift.em[1]
    print(f"Share of fraud without a label: {share.value:.3f} ({share.lower:.3f} to {share.upper:.3f});", end=" ")
    print(f"among the reference rows {shift.reference_shares[1]:.3f}; the hidden labels say {labels.mean():.3f}")
    corrected_NC = shift.correct(served(now))  # a service does it with: trueodds recalibrate --prior-shift
    expected(NAMES[1], corrected_NC[:, 1], labels)

    first = rng.choice(len(labels), 300, replace=False)
    print("\nThen 300 labels of answers that were drawn at random come:")
    for name, all_NC in zip(NAMES, (served(now), corrected_NC), strict=True):
        p_N, truth_N = all_NC[first, 1], labels[first]
        ratio = metrics.calibration_ratio(p_N, truth_N)
        holds = ratio.lower <= 1 <= ratio.upper
        verdict = "is not contradicted" if holds else "is contradicted: do not use its expected figures"
        print(f"{name}: {ratio.expected:.0f} fraud expected, {ratio.observed} observed;", end=" ")
        print(f"ratio {ratio.ratio:.2f} ({ratio.lower:.2f} to {ratio.upper:.2f}). The calibration {verdict}.")
    print(f"\nAll labels, as served:\n{trueodds.report(served(now)[:, 1], labels)}")


if __name__ == "__main__":
    main()
