"""Train a network on our parts: data, net, method, fit, report. It takes some seconds on one core.

python examples/train.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import trueodds
from pipeline import config, data
from pipeline.training import loop
from pipeline.training.resolution import plan_of

params = config.parse(
    {
        "data": {"dataset": "digits"},
        "training": {"net": "resnet8", "method": "focal", "method_options": {"gamma": 2.0}, "epochs": 8},
    }
)


def main() -> None:
    """Train, calibrate on the validation rows, and measure on the test rows."""
    dataset = data.load(params.data)
    plan = plan_of(params.training, dataset.card["name"], dataset.card["input"]["kind"], held_out=False)
    print({split: len(labels_N) for split, (_, labels_N) in dataset.arrays.items()})

    with tempfile.TemporaryDirectory() as checkpoints:
        trained = loop.train(dataset, plan, Path(checkpoints))
    labels = {split: dataset.arrays[split][1] for split in ("val", "test")}

    calibrator = trueodds.fit(trained.logits["val"], labels["val"])
    print(f"calibrator: {calibrator.name}")
    print(trueodds.report(trueodds.metrics.softmax(trained.logits["test"]), labels["test"]))
    print(trueodds.report(calibrator(trained.logits["test"]), labels["test"]))


if __name__ == "__main__":
    main()
