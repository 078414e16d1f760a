"""The int8 twin of a bundle is a whole bundle of its own: measured, calibrated anew, and it says what it is made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from pipeline import data, nets
from pipeline.config import Data, Evaluation
from pipeline.export.onnx_graph import run
from pipeline.export.quantise import QuantisationError, quantise
from pipeline.export.to_bundle import export
from tests.test_export import METRICS, TRAINING
from trueodds import calibrators
from trueodds.bundle import MODEL, Bundle
from trueodds.calibrators import Temperature
from trueodds.logits import Logits
from trueodds.metrics import ece


@pytest.mark.full
def test_the_twin(workspace: Path, tmp_path: Path) -> None:
    digits = data.load(Data())
    torch.manual_seed(0)
    net = nets.build("resnet8", 1, 10, width=4)
    net(torch.randn(32, 1, 8, 8))
    export(net.eval(), Temperature(1.5), digits.card, TRAINING, METRICS, digits.arrays["val"][0], tmp_path / "fp32")
    source = Bundle.load(tmp_path / "fp32")

    def fit(rows: Logits) -> Temperature:
        fitted = calibrators.fit(rows.logits_NC, rows.labels_N, "temperature")
        assert isinstance(fitted, Temperature)
        return fitted

    arrays, settings = digits.arrays, Evaluation()
    table = quantise(source, digits, settings, fit, tmp_path / "int8")
    twin = Bundle.load(tmp_path / "int8")
    twin.check_golden(lambda images: run(twin.model_path, "logits", images))
    assert twin.version != source.version and twin.card.name == source.card.name
    assert f"made from version {source.version}" in twin.card.notes[0]
    test_images, test_labels = arrays["test"]
    logits_NC = run(twin.model_path, "logits", test_images)
    assert twin.card.metrics["after"]["ece"] == table["after"]["ece"]
    assert ece(twin.calibrator(logits_NC), test_labels, bins=settings.bins) == pytest.approx(table["after"]["ece"])
    assert twin.calibrator == fit(Logits(run(twin.model_path, "logits", arrays["val"][0]), arrays["val"][1]))
    assert twin.card.risk_coverage is not None and twin.card.risk_coverage.at(0).rows == len(test_labels)
    before_NC = run(source.model_path, "logits", test_images)
    assert 0 < np.abs(logits_NC - before_NC).mean() < 0.1 * np.abs(before_NC).mean()
    kinds = {node.op_type for node in onnx.load(twin.model_path).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= kinds
    (tmp_path / "fp32" / MODEL).write_bytes(b"junk")
    with pytest.raises(QuantisationError, match="cannot be quantised"):
        quantise(source, digits, settings, fit, tmp_path / "never")
