"""Calibrate independent yes/no labels, of which many truths are missing.

    python examples/multi_label.py

Each picture of a digit has three labels: it is even, it is larger than four, and it has a loop. Several can be true.
A small model gives a probability for each, and people know only some of the truths.
docs/how-to/multi-label.md says more, and shows how to serve such a model.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

import trueodds

NAMES = ["even", "above four", "loop"]


def main() -> None:
    """Fit a model of three labels to few rows, report on it, calibrate it and report again."""
    rng = np.random.default_rng(0)
    pictures_NF, digits_N = load_digits(return_X_y=True)
    order_N = rng.permutation(len(digits_N))
    x_NF, y_N = pictures_NF[order_N] / 16, digits_N[order_N]
    truths_NL = np.stack([y_N % 2 == 0, y_N > 4, np.isin(y_N, [0, 6, 8, 9])], axis=1).astype(float)
    model = MLPClassifier((16,), max_iter=2000, random_state=0).fit(x_NF[:150], truths_NL[:150])

    probabilities_NL = model.predict_proba(x_NF)
    truths_NL[rng.random(truths_NL.shape) < 0.4] = np.nan  # nobody knows these truths
    fit, test = slice(150, 900), slice(900, None)
    print(trueodds.report(probabilities_NL[test], truths_NL[test], multilabel=True, classes=NAMES))

    logits_NL = np.log(probabilities_NL) - np.log1p(-probabilities_NL)
    calibrator = trueodds.fit(logits_NL[fit], truths_NL[fit], multilabel=True, classes=NAMES)
    after = trueodds.report(calibrator.predict_proba(logits_NL[test]), truths_NL[test], multilabel=True, classes=NAMES)
    print(f"\nCalibrated, all labels together: ECE {after.whole.ece:.3f}, log loss {after.whole.nll:.3f}.")
    print(f"Labels that are off by more than chance: {sum(one.more_than_chance for one in after.by_label)} of 3.")


if __name__ == "__main__":
    main()
