"""`training.model`: an ONNX file in place of training, in the same graph."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pipeline.__main__ import main
from service.models.model import Model
from tests.conftest import copy_tree, run
from tests.importing.models import DIGITS_OPTIONS, save_digits_regression
from tests.test_stages import hashes, ran, skipped


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_digits_regression(tmp_path_factory.mktemp("model") / "digits.onnx")


@pytest.fixture(scope="module")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regression on the features of wine as they are."""
    table = load_wine()
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(table.data[::2], table.target[::2])
    weights = fitted[-1].coef_.T / fitted[0].scale_[:, None]
    bias = fitted[-1].intercept_ - fitted[0].mean_ @ weights
    constants = [
        numpy_helper.from_array(array.astype(np.float32), name) for array, name in ((weights, "W"), (bias, "b"))
    ]
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 13])
    given = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 3])
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "W", "b"], ["scores"])], "wine", [taken], [given], constants
    )
    path = tmp_path_factory.mktemp("model") / "wine.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.full
def test_a_model_of_vectors(
    wine: Path, workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["all", "dataset=wine", f"model={wine}"]) == 0, capsys.readouterr().err
    card = json.loads((workspace / "artifacts/bundle/card.json").read_text())
    assert card["input"] == {"kind": "vector", "features": load_wine().feature_names, "missing": False}
    assert card["metrics"]["after"]["error_rate"] < 0.1
    assert main(["plan", f"model={wine}"]) == 0, "of digits: that it does not fit is found where rows are there"
    assert main(["fetch"]) == 0 and main(["train", f"model={wine}"]) == 1
    assert "which is of kind vector" in capsys.readouterr().err
    monkeypatch.setattr("pipeline.foreign.SHARE", 1e-4)
    assert main(["fetch", "dataset=wine"]) == 0 and main(["train", f"model={wine}"]) == 1
    assert "GB of memory, the limit" in capsys.readouterr().err, "the file is read by another process"


@pytest.mark.full
def test_the_same_stages_make_its_bundle(digits: Path, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["all", f"model={digits}", DIGITS_OPTIONS]) == 0, capsys.readouterr().err
    card = json.loads((workspace / "artifacts/bundle/card.json").read_text())
    assert card["method"] == "imported" and card["training"]["model"]["sha256"]
    assert card["input"] == {"kind": "image", "height": 8, "width": 8, "channels": 1, "resized": False}
    after, before = card["metrics"]["after"], card["metrics"]["before"]
    assert after["nll"] < before["nll"] and after["ece"] < before["ece"]
    with (
        np.load(workspace / "artifacts/logits.npz") as logits,
        np.load(workspace / "artifacts/data/arrays.npz") as rows,
    ):
        served = Model.load(workspace / "artifacts/bundle", threads=1)
        assert np.allclose(served.logits(rows["x_test"]), logits["test_logits"], atol=1e-4)
    assert main(["curves"]) == 1
    assert "a model that was imported (training.model): there are no epochs to draw" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model=nothing.onnx"], "training.model is 'nothing.onnx', which does not exist"),
        (["model={}", "epochs=3"], "training.epochs = 3 is set besides training.model = "),
        (["model={}", "method=focal"], "nothing is trained; set method to its default, or model to"),
        (
            ["model={}", "model_options={preproces: unit}"],
            "unknown option of training.model 'preproces'; allowed: prep",
        ),
        (["model={}", "model_options={preprocess: imagnet}"], "Did you mean 'imagenet'?"),
        pytest.param(["model={}"], "give the preprocessing: --preprocess imagenet", marks=pytest.mark.full),
    ],
)
def test_what_is_refused(
    words: list[str], message: str, digits: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["all", *(word.format(digits) if word.startswith("model=") else word for word in words)]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.full
def test_dvc_runs_again_what_another_file_changes(digits: Path, reproduced: Path, tmp_path: Path) -> None:
    copy = copy_tree(reproduced, tmp_path / "copy")
    shutil.copy(digits, copy / "datasets" / "mine.onnx")
    params = yaml.safe_load((copy / "params.yaml").read_text())
    name, _, options = DIGITS_OPTIONS.partition("=")
    params["training"] |= {"model": "datasets/mine.onnx", name: yaml.safe_load(options)}
    (copy / "params.yaml").write_text(yaml.safe_dump(params))
    assert ran(run(["dvc", "repro"], copy)) >= {"plan", "train", "calibrate", "evaluate", "export"}
    before = hashes(copy)
    assert skipped(run(["dvc", "repro"], copy)) == {
        "fetch",
        "plan",
        "train",
        "shift",
        "calibrate",
        "evaluate",
        "export",
    }
    model = onnx.load(digits)
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.zeros(10, np.float32), "b"))
    onnx.save(model, copy / "datasets" / "mine.onnx")
    assert ran(run(["dvc", "repro", "calibrate"], copy)) >= {"plan", "train", "calibrate"}
    assert hashes(copy)["artifacts/logits.npz"] != before["artifacts/logits.npz"]
