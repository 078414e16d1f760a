"""Train with a loss of your own, beside cross-entropy. It takes some seconds on one core.

    python examples/own_loss.py

A loss is a function of logits and targets that returns one value for each row. Its options are keyword arguments. An
entry in `methods.PARTS` gives it a name, and it then combines with penalties and label changes like any other.

The entry below exists only in this process. For `dvc repro`, params.yaml and `trueodds methods`, register the part in
the pyproject.toml of your package, and install your package:

    [project.entry-points."trueodds.methods"]
    poly1 = "my_package.losses:POLY1"

Here POLY1 is the `methods.Part` below. docs/how-to/extend.md says more.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor

import trueodds
from pipeline import config, data, methods
from pipeline.methods.targets import per_class
from pipeline.training import loop
from pipeline.training.resolution import plan_of


def poly1(logits_NC: Tensor, targets: Tensor, *, epsilon: float = 1.0) -> Tensor:
    """Return CE + epsilon (1 - p_y) of each row (Leng et al. 2022, PolyLoss, eq. 4).

    Args:
        logits_NC: logits of N rows and C classes.
        targets: class indices (N), or target distributions (N x C).
        epsilon: weight of the first polynomial term.
    """
    log_p_NC = torch.log_softmax(logits_NC, 1)
    return per_class(-log_p_NC + epsilon * (1 - log_p_NC.exp()), targets)


POLY1 = methods.Part(poly1, "Leng et al. 2022")
methods.PARTS["poly1"] = POLY1


def train(method: str, **options: float) -> trueodds.CalibrationSums:
    """Train a small net on digits and return the calibration sums of its test rows."""
    training = {"net": "resnet8", "epochs": 4, "method": method, "method_options": options}
    params = config.parse({"data": {"dataset": "digits"}, "training": training})
    dataset = data.load(params.data)
    plan = plan_of(params.training, dataset.card["name"], dataset.card["input"]["kind"], held_out=False)
    with tempfile.TemporaryDirectory() as checkpoints:
        trained = loop.train(dataset, plan, Path(checkpoints))
    probabilities_NC = trueodds.metrics.softmax(trained.logits["test"])
    return trueodds.CalibrationSums.from_probabilities(probabilities_NC, dataset.arrays["test"][1])


def main() -> None:
    """Compare the loss with cross-entropy on the same rows."""
    for method, options in (("ce", {}), ("poly1", {"epsilon": 2.0}), ("poly1+smoothing", {})):
        sums = train(method, **options)
        print(f"{method:24} error {trueodds.metrics.error_rate(sums):.3f}  ECE {trueodds.metrics.ece(sums):.3f}")


if __name__ == "__main__":
    main()
