"""The bundle that leaves the pipeline is the net that was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from pipeline import data, nets
from pipeline import export as exporting
from pipeline.bundle import Bundle
from pipeline.calibrators import Temperature
from pipeline.config import Data
from pipeline.export import ExportError, Servable, export

METRICS: dict[str, Any] = {"n": 1, "bins": 15, "level": 0.95, "before": {}, "after": {}, "notes": []}
TRAINING = {"method": {"name": "ce"}, "data_sha256": "d", "code_sha256": "c"}


@pytest.fixture
def digits(workspace: Path) -> data.DataSet:
    return data.load(Data())


def write(digits: data.DataSet, out: Path, name: str = "resnet8") -> torch.nn.Module:
    torch.manual_seed(0)
    net = nets.build(name, 1, 10, width=4)
    net(torch.randn(32, 1, 8, 8))  # batch statistics that are not the initial ones
    export(net.eval(), Temperature(1.5), digits.card, TRAINING, METRICS, digits.arrays["val"][0], out)
    return net


def infer(path: Path, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["logits"], {"images": images})[0])


def test_onnx_answers_as_torch_does_for_any_batch(digits: data.DataSet, tmp_path: Path) -> None:
    net = write(digits, tmp_path)
    images = digits.arrays["test"][0]
    normalise = data.images.Normaliser.of(digits.card["normalise"], torch.device("cpu"))
    for rows in (1, 2, 7, 600):
        with torch.inference_mode():
            expected = net(normalise(torch.from_numpy(images[:rows]))).numpy()
        assert np.abs(infer(tmp_path / "model.onnx", images[:rows]) - expected).max() < 1e-4


def test_the_bundle_loads_and_reproduces_its_golden_answer(digits: data.DataSet, tmp_path: Path) -> None:
    write(digits, tmp_path)
    bundle = Bundle.load(tmp_path)
    bundle.check_golden(lambda images: infer(bundle.model_path, images))
    assert bundle.card.classes == [str(k) for k in range(10)]
    assert bundle.calibrator == Temperature(1.5)
    assert np.array_equal(bundle.golden_input()[0], digits.arrays["val"][0][0])


def test_two_exports_are_the_same_bytes(digits: data.DataSet, tmp_path: Path) -> None:
    for name in "ab":
        write(digits, tmp_path / name)
    for file in ("model.onnx", "calibrator.json", "card.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_the_graph_names_no_file_of_this_machine(digits: data.DataSet, tmp_path: Path) -> None:
    write(digits, tmp_path)
    content = (tmp_path / "model.onnx").read_bytes()
    assert b"stack_trace" not in content and b".py" not in content


def test_a_graph_that_differs_is_refused(digits: data.DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = exporting._write_onnx

    def off_by_a_little(servable: Servable, example: Any, path: Path) -> None:
        bias = servable.get_parameter("net.head.bias")
        with torch.no_grad():
            bias[3] += 2e-4
            honest(servable, example, path)
            bias[3] -= 2e-4

    monkeypatch.setattr(exporting, "_write_onnx", off_by_a_little)
    with pytest.raises(ExportError, match=r"differ by 0\.0002 in a logit on 256 validation images; allowed is 0\.0001"):
        write(digits, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("name", nets.names())
def test_every_net_exports(name: str, digits: data.DataSet, tmp_path: Path) -> None:
    write(digits, tmp_path, name)
