"""Real, tiny bundles of independent labels: one matrix product with a curve for each label."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tests.importing.test_multilabel import NAMES, WEIGHTS, tagger
from trueodds.bundle import Description, LabelBundle
from trueodds.calibrators import MultilabelPlatt
from trueodds.inputs import VectorInput


def write_labels(
    out: Path,
    *,
    name: str = "tagger",
    slope: float = 0.5,
    names: tuple[str, ...] = NAMES,
    log: bool = False,
    metrics: Mapping[str, Any] = MappingProxyType({}),
) -> LabelBundle:
    """Write the bundle of `tagger` with the curves sigma(slope z + offset), an offset for each of up to 3 labels.

    `log`: the graph's output z is the logarithm of a sigmoid, which is -inf for extreme inputs.
    """
    x, count = np.array([1.0, -2.0], np.float32), len(names)
    z_L = x @ WEIGHTS[:, :count]
    z_L = -np.log1p(np.exp(-z_L)) if log else z_L
    curves = MultilabelPlatt([slope] * count, [-0.5, 0.0, 0.25][:count], slope, 0.0, 0.0, 0.1, names)
    description = Description(
        name=name,
        classes=[*names],
        multilabel=True,
        input=VectorInput(features=["heat", "damp"]),
        method="imported",
        training={},
        metrics=dict(metrics),
        data_sha256="",
        code_sha256="",
    )
    with tempfile.TemporaryDirectory() as folder:
        graph = tagger(Path(folder) / "tagger.onnx", labels=count, log=log)
        return LabelBundle.write(out, graph, curves, description, golden_input=x, golden_logits=z_L)
