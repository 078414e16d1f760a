"""Calibrate with a calibrator of your own, beside ours.

    python examples/own_calibrator.py

A calibrator is a frozen dataclass: its fields are the fitted numbers, `fit` finds them, and `_apply` maps logits to
probabilities. The base class checks the logits, remembers the number of classes, and writes JSON.

`trueodds.fit` and `select` take the class. To use its name too (`trueodds.fit` by name, `from_json`, bundles,
params.yaml, `trueodds calibrators`), register it in the pyproject.toml of your package, and install your package:

    [project.entry-points."trueodds.calibrators"]
    blend = "my_package.blend:Blend"

docs/how-to/extend.md says more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

import trueodds
from trueodds.metrics import nll, softmax

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Blend(trueodds.Calibrator):
    """p = (1 - w) softmax(z) + w / C, with the weight w of least NLL on the validation rows."""

    weight: float

    name: ClassVar[str] = "blend"

    @property
    def keeps_argmax(self) -> bool:
        """Return True: the same share is added to every class."""
        return True

    @classmethod
    def fit(cls, logits_NC: npt.NDArray[np.floating[Any]], labels_N: npt.NDArray[np.intp]) -> Self:
        """Fit the weight on validation rows."""
        probabilities_NC = softmax(logits_NC)
        uniform = 1 / logits_NC.shape[1]

        def loss(weight: float) -> float:
            return float(nll((1 - weight) * probabilities_NC + weight * uniform, labels_N))

        return cls(float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded").x))

    def _apply(self, logits_NC: Array) -> Array:
        probabilities_NC: Array = softmax(logits_NC)
        blend_NC: Array = (1 - self.weight) * probabilities_NC + self.weight / probabilities_NC.shape[1]
        return blend_NC


def main() -> None:
    """Fit the calibrator on one half of made-up rows, and compare it with temperature scaling on the other half."""
    rng = np.random.default_rng(0)
    logits_NC = rng.normal(0, 3, (4000, 5))
    labels_N = np.array([rng.choice(5, p=p) for p in softmax(logits_NC)])
    wrong_N = rng.random(4000) < 0.2  # the true labels of a fifth of the rows are drawn at random
    labels_N[wrong_N] = rng.integers(0, 5, wrong_N.sum())
    fit, test = slice(0, 2000), slice(2000, 4000)

    own = trueodds.fit(logits_NC[fit], labels_N[fit], Blend)
    print(json.dumps(own.to_json()))
    rows = logits_NC[fit], labels_N[fit]
    chosen = trueodds.calibrators.select(*rows, candidates=["identity", "temperature", Blend])
    print(f"select takes {chosen.calibrator.name}")
    ours = trueodds.fit(logits_NC[fit], labels_N[fit], "temperature")
    models = {
        "none": softmax(logits_NC[test]),
        "temperature": ours(logits_NC[test]),
        "blend": own(logits_NC[test]),
    }
    for name, probabilities_NC in models.items():
        report = trueodds.report(probabilities_NC, labels_N[test])
        print(f"{name:12} NLL {report.nll:.4f}  ECE {report.ece:.4f}, by chance up to {report.floor_p95:.4f}")
    print(trueodds.compare(models, labels_N[test]))


if __name__ == "__main__":
    main()
