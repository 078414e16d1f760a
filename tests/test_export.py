"""The bundle that leaves the pipeline is the net that was trained."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import pipeline.export.fold as folding
from pipeline import data, nets
from pipeline.config import Data
from pipeline.export import onnx_graph, to_bundle
from pipeline.export.fold import fold
from pipeline.export.to_bundle import ExportError, Servable, export
from pipeline.nets.shape import Shape, StagedShape
from pipeline.training.batches import ImageNormaliser
from trueodds import calibrators
from trueodds.bundle import Bundle
from trueodds.calibrators import Temperature
from trueodds.importing.folding import FoldError

METRICS: dict[str, Any] = {"n": 1, "bins": 15, "level": 0.95, "before": {}, "after": {}, "notes": []}
TRAINING = {"method": {"name": "ce"}, "data_sha256": "d", "code_sha256": "c"}


@pytest.fixture(scope="module")
def digits() -> data.DataSet:
    return data.load(Data())


@pytest.fixture(scope="module")
def exported(digits: data.DataSet, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.nn.Module]:
    """A bundle and the net in it. Leave the folder as it is."""
    folder = tmp_path_factory.mktemp("exported")
    return folder, write(digits, folder)


@pytest.fixture
def model(exported: tuple[Path, torch.nn.Module], tmp_path: Path) -> Path:
    """A copy of the exported graph, alone in the test's folder."""
    return Path(shutil.copy(exported[0] / "model.onnx", tmp_path))


def write(digits: data.DataSet, out: Path, name: str = "resnet8") -> torch.nn.Module:
    torch.manual_seed(0)
    net = nets.build(name, 1, 10, width=4)
    net(torch.randn(32, 1, 8, 8))  # batch statistics that are not the initial ones
    export(net.eval(), Temperature(1.5), digits.card, TRAINING, METRICS, digits.arrays["val"][0], out)
    return net


def infer(path: Path, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["logits"], {"images": images})[0])


def test_onnx_answers_as_torch_does_for_any_batch(digits: data.DataSet, exported: tuple[Path, torch.nn.Module]) -> None:
    folder, net = exported
    images = digits.arrays["test"][0]
    normalise = ImageNormaliser.of(digits.card["normalise"], torch.device("cpu"))
    for rows in (1, 2, 7, 600):
        with torch.inference_mode():
            expected = net(normalise(torch.from_numpy(images[:rows]))).numpy()
        assert np.abs(infer(folder / "model.onnx", images[:rows]) - expected).max() < 1e-4


def test_the_bundle_loads_and_reproduces_its_golden_answer(
    digits: data.DataSet, exported: tuple[Path, torch.nn.Module]
) -> None:
    bundle = Bundle.load(exported[0])
    bundle.check_golden(lambda images: infer(bundle.model_path, images))
    assert bundle.card.classes == [str(k) for k in range(10)]
    assert bundle.calibrator == Temperature(1.5)
    assert np.array_equal(bundle.golden_input()[0], digits.arrays["val"][0][0])


@pytest.mark.full
def test_two_exports_are_the_same_bytes(
    digits: data.DataSet, exported: tuple[Path, torch.nn.Module], tmp_path: Path
) -> None:
    write(digits, tmp_path)
    for file in ("model.onnx", "calibrator.json", "card.json"):
        assert (exported[0] / file).read_bytes() == (tmp_path / file).read_bytes()


def test_the_graph_names_no_file_of_this_machine(model: Path) -> None:
    content = model.read_bytes()
    assert b"stack_trace" not in content and b".py" not in content


def test_a_graph_that_differs_is_refused(digits: data.DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = to_bundle.write_onnx

    def off_by_a_little(servable: Servable, example: Any, path: Path) -> None:
        bias = servable.get_parameter("net.head.bias")
        with torch.no_grad():
            bias[3] += 2e-4
            honest(servable, example, path)
            bias[3] -= 2e-4

    monkeypatch.setattr(to_bundle, "write_onnx", off_by_a_little)
    with pytest.raises(ExportError, match=r"differ by 0\.0002 in a logit on 256 validation rows; allowed is 0\.0001"):
        write(digits, tmp_path)


def fitted(name: str, classes: int = 10) -> calibrators.Calibrator:
    rng = np.random.default_rng(3)
    labels_N = np.arange(40 * classes) % classes
    logits_NC = rng.normal(0, 2, (len(labels_N), classes)) + 3 * np.eye(classes)[labels_N]
    return calibrators.fit(logits_NC, labels_N, name)


@pytest.mark.parametrize(
    "name",
    ["identity", "temperature", "bias_corrected_temperature", "vector", "structured_vector", "structured_matrix"],
)
def test_a_folded_graph_equals_the_numpy_call(name: str, digits: data.DataSet, model: Path, tmp_path: Path) -> None:
    images, calibrator = digits.arrays["test"][0], fitted(name)
    fold(model, calibrator, tmp_path / "model_calibrated.onnx", images[:3])
    session = onnxruntime.InferenceSession(str(tmp_path / "model_calibrated.onnx"), providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["probabilities"]
    for rows in (1, 5, 300):
        probabilities = session.run(None, {"images": images[:rows]})[0]
        expected = calibrator(infer(model, images[:rows]))
        assert probabilities.dtype == np.float32
        assert np.abs(probabilities - expected).max() <= 1e-6
    assert not list(tmp_path.glob("*.part"))


class Wrong(Temperature):
    """Says of itself another temperature than it has."""

    def affine(self, classes: int) -> tuple[np.ndarray, np.ndarray]:
        return np.eye(classes) / 1.6, np.zeros(classes)


def test_what_cannot_be_folded(digits: data.DataSet, model: Path, tmp_path: Path) -> None:
    out, images = tmp_path / "model_calibrated.onnx", digits.arrays["test"][0]
    with pytest.raises(FoldError, match="'isotonic' is not of the form softmax"):
        fold(model, fitted("isotonic"), out, images)
    with pytest.raises(FoldError, match=r"fitted on 3 classes; .*model\.onnx has 10"):
        fold(model, fitted("vector", 3), out, images)
    with pytest.raises(FoldError, match=r"differs by .* in a probability"):
        fold(model, Wrong(1.5), out, images)
    assert sorted(path.name for path in tmp_path.iterdir() if "onnx" in path.name) == ["model.onnx"]


def test_what_a_graph_must_be_to_be_folded(digits: data.DataSet, model: Path, tmp_path: Path) -> None:
    out, images = tmp_path / "model_calibrated.onnx", digits.arrays["test"][0][:2]
    with pytest.raises(FoldError, match="inputs is empty"):
        fold(model, Temperature(1.5), out, images[:0])
    fold(model, Temperature(1.5), out, images)
    with pytest.raises(FoldError, match="gives probabilities, so it has a calibrator already"):
        fold(out, Temperature(1.5), tmp_path / "twice.onnx", images)
    graph = onnx.load(model)
    graph.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "classes"
    onnx.save(graph, tmp_path / "open.onnx")
    with pytest.raises(
        FoldError, match=r"output of shape \(.*, classes\); expected \(N, classes\), with fixed classes"
    ):
        fold(tmp_path / "open.onnx", Temperature(1.5), tmp_path / "never.onnx", images)


def test_a_fold_that_breaks_leaves_nothing_behind(
    digits: data.DataSet, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = onnx_graph.run

    def broken(path: Path, output: str, images: Any, kind: Any) -> Any:
        if path.suffix == ".part":
            raise RuntimeError("no such operator")
        return honest(path, output, images, kind)

    monkeypatch.setattr(folding, "run", broken)
    with pytest.raises(RuntimeError, match="no such operator"):
        fold(model, Temperature(1.5), tmp_path / "out.onnx", digits.arrays["test"][0][:2])
    assert not list(tmp_path.glob("out.onnx*"))


@pytest.fixture(scope="module")
def answering() -> set[Shape]:
    """Shapes, but for their names, whose graphs have answered as they do."""
    return set()


@pytest.mark.full
@pytest.mark.parametrize("name", nets.names("image"))
def test_every_net_answers_in_onnx_as_in_torch(name: str, answering: set[Shape], tmp_path: Path) -> None:
    """With one or two blocks a stage, where a net has stages: more of them take the exporter long, and are the same.

    `export` compares the logits of five rows; it made the graph of two. Nets that differ in their blocks and their
    width alone are then one net, whose graph is made once.
    """
    options = {"depth": 2, "width": 8} if isinstance(nets.SHAPES[name], StagedShape) else {}
    shape = nets.resolve(name, **options)
    if replace(shape, name="") in answering:
        return
    rows = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    card = {
        "name": "mine",
        "classes": ["a", "b", "c"],
        "positive": None,
        "input": {"kind": "image", "height": 32, "width": 32, "channels": 3, "resized": False},
        "normalise": {"mean": [0.5] * 3, "std": [0.25] * 3},
    }
    torch.manual_seed(0)
    net = shape.build(3, 3)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0  # statistics of the next batch, not the initial ones, by which logits grow vast
    net(torch.randn(64, 3, 32, 32))
    net.eval()
    export(net, Temperature(1.5), card, TRAINING, METRICS, rows, tmp_path / "bundle")
    answering.add(replace(shape, name=""))
