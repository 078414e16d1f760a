"""Publishes a bundle of an untrained net, for measurements that depend on a model's shape and not on its weights."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

from pipeline import nets
from pipeline.export.to_bundle import export
from trueodds.bundle import open_models
from trueodds.calibrators import Temperature

SIZE, CHANNELS = 32, 3


def publish(net: str, models: Path, *, classes: int, temperature: float = 1.0, width: int | None = None) -> Path:
    """Export `net` for 32 x 32 x 3 images with the pipeline's own code, and publish it as the default of `models`.

    Returns the published folder.
    """
    torch.manual_seed(0)
    built = nets.build(net, CHANNELS, classes, width=width)
    images = np.random.default_rng(0).integers(0, 256, (64, SIZE, SIZE, CHANNELS), np.uint8)
    with torch.no_grad():  # batch norm's running moments, without which logits of deep nets run away
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float()
        for _ in range(30):
            built.train()(pixels / 127.5 - 1)
    numbers = {"n": 0, "bins": 15, "level": 0.95, "before": {}, "after": {}, "notes": ["untrained: for benchmarks"]}
    card = {
        "name": net,
        "classes": [f"class {k}" for k in range(classes)],
        "positive": None,
        "input": {"kind": "image", "height": SIZE, "width": SIZE, "channels": CHANNELS},
        "normalise": {"mean": [0.5] * CHANNELS, "std": [0.5] * CHANNELS},
    }
    training = {"method": {"name": "none"}, "data_sha256": "0" * 64, "code_sha256": "0" * 64}
    with tempfile.TemporaryDirectory() as folder:
        export(built.eval(), Temperature(temperature), card, training, numbers, images, Path(folder))
        return open_models(models).publish(folder)
