"""Vectors from the data to what answers: trained, exported, served; and what needs pixels refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from pipeline import data
from pipeline.__main__ import main
from pipeline.config import Data, Training
from pipeline.data import DataSet
from service.models.model import Model
from tests.training_runs import plan, stopped, train
from trueodds.bundle import Bundle
from trueodds.errors import ConfigError
from trueodds.logits import read as read_logits


@pytest.fixture(scope="module")
def cancer() -> DataSet:
    return data.load(Data(dataset="breast_cancer"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stages on a table with a missing value, done once."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "datasets").mkdir()
    rows = np.random.default_rng(0).normal(size=(200, 3)).round(3)
    lines = [["a", "b", "c", "label"]]
    for n, (a, b, c) in enumerate(rows.tolist()):
        lines.append([a, "" if n % 7 == 0 else b, c, "high" if a + b > 0 else "low"])
    with (folder / "datasets" / "sums.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    (folder / "params.yaml").write_text("data: {dataset: sums}\ntraining: {epochs: 15}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("TRUEODDS_DATA", raising=False)
        assert main(["all"]) == 0
    return folder


def test_breast_cancer_is_learned_in_seconds(cancer: DataSet, tmp_path: Path) -> None:
    trained = train(cancer, Training(), tmp_path / "c")
    assert (trained.logits["test"].argmax(1) == cancer.arrays["test"][1]).mean() >= 0.95
    assert trained.settings["net"] == {"name": "mlp", "width": 64, "depth": 2, "dropout": 0.1}


@pytest.mark.full
def test_the_bundle_takes_raw_features(finished: Path) -> None:
    bundle, model = Bundle.load(finished / "artifacts/bundle"), Model.load(finished / "artifacts/bundle", threads=1)
    assert bundle.card.input.kind == "vector" and bundle.card.classes == ["high", "low"]
    assert bundle.card.input.features == ["a", "b", "c"] and bundle.card.input.missing
    assert bundle.card.reference is not None and bundle.card.risk_coverage is not None
    x = data.read(finished / "artifacts/data").arrays["test"][0]
    test = read_logits(finished / "artifacts/logits.npz", "test")
    assert np.isnan(x).any() and np.abs(model.logits(x) - test.logits_NC).max() < 1e-5
    assert (test.logits_NC.argmax(1) == test.labels_N).mean() > 0.8


def test_a_missing_value_is_answered_as_the_mean(finished: Path) -> None:
    model = Model.load(finished / "artifacts/bundle", threads=1)
    mean = json.loads((finished / "artifacts/data/card.json").read_text())["normalise"]["mean"][1]
    rows = np.array([[0.5, np.nan, -1.0], [0.5, mean, -1.0]], np.float32)
    missing, filled = model.logits(rows)
    assert np.array_equal(missing, filled)


def test_folded_and_quantised(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished)
    assert main(["export", "--fold"]) == 0 and main(["export", "--int8"]) == 0
    x, y = data.read(finished / "artifacts/data").arrays["test"]
    bundle, twin = (Bundle.load(finished / "artifacts" / name) for name in ("bundle", "bundle_int8"))
    assert twin.card.input == bundle.card.input
    session = onnxruntime.InferenceSession(str(finished / "artifacts/model_calibrated.onnx"))
    (probabilities_NC,) = session.run(None, {"features": x})
    expected_NC = bundle.calibrator(Model.load(finished / "artifacts/bundle", threads=1).logits(x))
    assert np.abs(probabilities_NC - expected_NC).max() < 1e-5
    rounded_NC = Model.load(finished / "artifacts/bundle_int8", threads=1).logits(x)
    assert (rounded_NC.argmax(1) == y).mean() > 0.8


def test_an_interrupted_run_ends_with_the_same_weights(
    cancer: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(method="fl3+mixup", epochs=4, width=8, dropout=0.3)
    whole = train(cancer, training, tmp_path / "whole")
    stopped(cancer, training, tmp_path / "c", 0.7, monkeypatch, every=0.0)
    resumed = train(cancer, training, tmp_path / "c")
    assert resumed.history == whole.history
    states = resumed.net.state_dict(), whole.net.state_dict()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.parametrize(
    ("dataset", "leaves", "message"),
    [
        (
            "wine",
            {"net": "resnet8"},
            r"training\.net is 'resnet8', which takes images, and data set 'wine' holds vectors;",
        ),
        (
            "wine",
            {"recipe": "cpu"},
            r"recipe 'cpu' has the net 'resnet8', which takes images.* holds vectors; set net: mlp",
        ),
        (
            "digits",
            {"net": "mlp"},
            "'mlp', which takes vectors, and data set 'digits' holds images; set net: resnet8, or another",
        ),
        (
            "wine",
            {"recipe": "cpu", "net": "mlp"},
            r"padding is 4 and flip true: .*; set padding: 0 and flip: false, or",
        ),
        ("wine", {"crop_scale": 0.5}, r"training\.crop_scale is 0\.5 and randaugment 0: .*; set both to 0"),
        ("wine", {"flip": True}, r"training\.padding is 0 and flip true: they move the pixels of images"),
        ("wine", {"method": "fl3+augmix"}, r"method 'fl3\+augmix': augmix changes the pixels of images"),
        ("digits", {"dropout": 0.1}, "net 'resnet8' has no dropout"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused(dataset: str, leaves: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(data.load(Data(dataset=dataset)), Training(**leaves))


def test_the_code_is_the_nets_own(cancer: DataSet) -> None:
    images, vectors = (plan(rows, Training()).code.keys() for rows in (data.load(Data()), cancer))
    assert vectors - images == {"pipeline/nets/mlp.py", "pipeline/nets/shapes/mlp.py"}
    assert images - vectors == {
        "pipeline/nets/blocks.py",
        "pipeline/nets/resnet.py",
        "pipeline/nets/shapes/resnet.py",
    }


def test_a_wrong_net_is_refused_before_the_data_are_read(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fetch", "dataset=wine"]) == 0
    assert main(["all", "dataset=wine", "net=resnet8"]) == 1
    assert "set net: mlp" in capsys.readouterr().err
    assert main(["plan", "dataset=wine", "held_out_size=20", "method=mmce_interleaved"]) == 0
    assert json.loads((workspace / "artifacts/plan.json").read_text())["net"]["name"] == "mlp"
