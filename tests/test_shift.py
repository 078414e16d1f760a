"""The shift: what evaluation makes of logits of corrupted rows, and the stages that write both."""

from __future__ import annotations

import csv
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline import config, data, stages
from pipeline.config import Evaluation
from pipeline.data.corruptions import NAMES, corrupt
from pipeline.figures import shift_diagrams as figures
from pipeline.training.stored_network import read_net, read_settings, scorer
from tests.reference_metrics import standard_error_within_types
from trueodds import calibrators, logits, metrics
from trueodds.calibrators import FitError
from trueodds.evaluation import results, shifted_logits
from trueodds.evaluation.shift import FIGURES, ShiftResults, evaluate
from trueodds.files import FileError
from trueodds.logits import Logits


def sample(generator: np.random.Generator, scale: float, rows: int = 300) -> Logits:
    """Logits whose labels were drawn from softmax(z / scale)."""
    z = generator.normal(0, 2, (rows, 4))
    p = metrics.softmax(z / scale)
    return Logits(z.astype(np.float32), (p.cumsum(1) < generator.random((rows, 1))).sum(1).clip(0, 3))


@pytest.fixture
def under_shift(tmp_path: Path) -> tuple[ShiftResults, shifted_logits.ShiftedLogits]:
    """Three corruptions at two severities, on logits that get wilder."""
    generator = np.random.default_rng(3)
    val, clean = sample(generator, 2.0), sample(generator, 2.0)
    noise = generator.normal(size=(3, *clean.logits_NC.shape))

    def logits_of(name: str, severity: int) -> npt.NDArray[np.floating]:
        moved: npt.NDArray[np.float64] = clean.logits_NC + severity * noise["abc".index(name)]
        return moved.astype(np.float32)

    description = {"shift": "cifar-c", "source": "computed", "note": "Computed.", "seed": 0}
    shifted_logits.write(tmp_path / "shift", description, np.arange(300), clean, "abc", (2, 4), logits_of)
    shifted = shifted_logits.read(tmp_path / "shift")
    calibrator = calibrators.fit(val.logits_NC, val.labels_N, "temperature")
    settings = Evaluation(compare=["temperature objective=sb_ece", "vector"])
    return evaluate(calibrator, val, shifted, settings), shifted


def test_every_figure_is_that_of_the_metrics(
    under_shift: tuple[ShiftResults, shifted_logits.ShiftedLogits], tmp_path: Path
) -> None:
    found, shifted = under_shift
    assert [(one.name, one.role) for one in found.measurements] == [
        ("identity", "before"),
        ("temperature", "after"),
        ("temperature objective=sb_ece", "compared"),
        ("vector", "compared"),
    ]
    found.write(tmp_path / "out")
    with (tmp_path / "out/shift.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * (1 + 3 * 2) and rows[0]["corruption"] == "" and rows[0]["severity"] == "0"
    p_NC, y_N = metrics.softmax(dict(shifted)["b"][1].astype(float)), shifted.clean.labels_N
    (row,) = (row for row in rows[:7] if (row["corruption"], row["severity"]) == ("b", "4"))
    expected = {
        "error_rate": metrics.error_rate(p_NC, y_N),
        "nll": metrics.nll(p_NC, y_N),
        "ece": metrics.ece(p_NC, y_N),
        "adaptive_ece": metrics.adaptive_ece(p_NC, y_N),
        "adaptive_ece_l2": metrics.adaptive_ece(p_NC, y_N, norm="l2"),
    }
    assert tuple(expected) == FIGURES
    for name, value in expected.items():
        assert float(row[name]) == pytest.approx(value, rel=1e-9), name
    clean = metrics.softmax(shifted.clean.logits_NC.astype(float))
    assert float(rows[0]["nll"]) == pytest.approx(metrics.nll(clean, y_N))


def test_means_and_errors_are_those_of_the_table(
    under_shift: tuple[ShiftResults, shifted_logits.ShiftedLogits], tmp_path: Path
) -> None:
    found, _ = under_shift
    found.write(tmp_path / "out")
    table = json.loads((tmp_path / "out/shift.json").read_text())
    assert (table["source"], table["note"], table["rows"], table["unit"]) == ("computed", "Computed.", 300, "fraction")
    with (tmp_path / "out/shift.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["calibrator"] == "vector" and row["severity"] != "0"]
    values = [[float(row["ece"]) for row in rows if row["corruption"] == name] for name in "abc"]
    entry = table["calibrators"]["vector"]
    assert entry["severity"] == [0, 2, 4] and entry["role"] == "compared"
    assert entry["ece"]["mean"][1:] == pytest.approx(np.mean(values, 0).tolist())
    error = standard_error_within_types(values)
    assert entry["ece"]["standard_error"] == [None, pytest.approx(error), pytest.approx(error)]
    assert entry["ece"]["upper"][0] is None
    assert entry["ece"]["upper"][2] - entry["ece"]["mean"][2] == pytest.approx(4.302653 * error)  # t(2), 97.5%
    assert entry["nll"]["mean"][2] > entry["nll"]["mean"][0]


def test_one_corruption_has_no_error(under_shift: Any, tmp_path: Path) -> None:
    _, shifted = under_shift
    folder = shifted.folder
    text = json.loads((folder / "shift.json").read_text()) | {"corruptions": ["a"]}
    (folder / "shift.json").write_text(json.dumps(text))
    found = evaluate(calibrators.Identity(), shifted.clean, shifted_logits.read(folder), Evaluation())
    found.write(tmp_path / "out")
    figures.draw(found, tmp_path / "out", "test")
    (entry, _) = json.loads((tmp_path / "out/shift.json").read_text())["calibrators"], None
    assert entry["identity"]["ece"]["standard_error"] == [None] * 3


def test_a_calibrator_that_cannot_be_fitted_is_named(
    under_shift: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, shifted = under_shift
    one_class = Logits(shifted.clean.logits_NC, np.zeros(300, np.int64))
    entries = list(results.fit_others(calibrators.Identity(), one_class, ["vector", "beta"]))
    unfit = {name for name, fitted in entries if isinstance(fitted, FitError)}
    found = evaluate(calibrators.Identity(), one_class, shifted, Evaluation(compare=["vector", "beta"]))
    assert set(found.problems) == unfit


@pytest.mark.full
def test_pictures_are_the_same_bytes_and_name_every_calibrator(under_shift: Any, tmp_path: Path) -> None:
    found, _ = under_shift
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        figures.draw(found, tmp_path / folder, "digits, ce")
    for name in ("severities.svg", "severities.png", "corruptions.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    text = (tmp_path / "one" / "severities.svg").read_text()
    assert all(f"<!-- {label} -->" in text for label in ("identity (before)", "temperature (after)", "vector"))
    assert "300 test rows under 3 corruptions (computed here)" in text


def test_logits_that_are_not_there_or_not_whole(under_shift: Any, tmp_path: Path) -> None:
    _, shifted = under_shift
    np.save(shifted.folder / "b.npy", np.zeros((1, 2, 3)))
    with pytest.raises(FileError, match=r"b\.npy has shape \(1, 2, 3\); expected \(2, 300, 4\); run the shift stage"):
        list(shifted)
    (shifted.folder / "a.npy").unlink()
    with pytest.raises(FileError, match=r"a\.npy is missing or damaged .*run the shift stage first: dvc repro shift"):
        list(shifted)
    shifted_logits.write_none(shifted.folder)
    assert [path.name for path in shifted.folder.iterdir()] == ["shift.json"]
    with pytest.raises(FileError, match="holds no logits of corrupted rows; run the shift stage first"):
        shifted_logits.read(shifted.folder)
    with pytest.raises(FileError, match="is not complete"):
        shifted_logits.read(tmp_path / "nowhere")


def run_stages(overrides: dict[str, Any], *names: str) -> None:
    for name in names:
        stages.STAGES[name](config.load(overrides=overrides))


OTHER = "temperature objective=brier"
DIGITS: dict[str, Any] = {"train_size": 200, "validation_size": 60, "epochs": 1, "compare": [OTHER]}
SHIFTED = DIGITS | {"shift": "cifar-c", "shift_options": {"corruptions": ["contrast", "fog"], "rows": 50}}


def test_the_stage_on_digits(workspace: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The clean rows are the test rows, the others what the net makes of them corrupted; without a shift nothing."""
    with caplog.at_level(logging.INFO, "pipeline"):
        run_stages(SHIFTED, "fetch", "plan", "train", "shift")
    assert "The corrupted images were computed here" in caplog.text
    test, kept = logits.read(stages.LOGITS, "test"), np.load(stages.SHIFT / "clean.npz")
    np.testing.assert_array_equal(kept["logits"], test.logits_NC[kept["rows"]])
    dataset = data.read(stages.DATA)
    score = scorer(read_net(stages.MODEL, read_settings(stages.MODEL, dataset), dataset), dataset)
    rows = dataset.arrays["test"][0].astype(np.uint8)
    np.testing.assert_allclose(score(rows), test.logits_NC, atol=1e-5)
    expected = score(corrupt(rows[kept["rows"]], "fog", 5, rows_N=kept["rows"]))
    np.testing.assert_allclose(np.load(stages.SHIFT / "fog.npy")[4], expected, atol=1e-5)

    run_stages(DIGITS, "shift")
    assert json.loads((stages.SHIFT / "shift.json").read_text()) == {"shift": None}
    assert [path.name for path in stages.SHIFT.iterdir()] == ["shift.json"]
    with pytest.raises(FileError, match="run the shift stage first: dvc repro shift"):
        run_stages(SHIFTED, "evaluate")


@pytest.mark.full
def test_evaluation_with_and_without_a_shift(workspace: Path) -> None:
    run_stages(SHIFTED, "fetch", "plan", "train", "shift", "calibrate", "evaluate")
    out = stages.EVALUATION / "shift"
    files = {path.name for path in out.iterdir()}
    assert files == {"shift.json", "shift.csv", "severities.svg", "severities.png", "corruptions.svg"}
    table = json.loads((out / "shift.json").read_text())
    assert set(table["calibrators"]) == {"identity", "temperature", OTHER}
    assert table["rows"] == 50
    metrics_json = (stages.EVALUATION / "metrics.json").read_bytes()
    run_stages(DIGITS, "shift", "evaluate")
    assert not list(out.iterdir())
    assert (stages.EVALUATION / "metrics.json").read_bytes() == metrics_json


@pytest.mark.full
def test_an_imported_model_is_shifted_too(workspace: Path) -> None:
    """By onnxruntime, where `training.model` names the network: the logits of the net that it was exported from."""
    run_stages(SHIFTED, "fetch", "plan", "train", "shift", "calibrate", "evaluate", "export")
    by_torch = np.load(stages.SHIFT / "contrast.npy")
    shutil.copy(stages.BUNDLE / "model.onnx", "datasets/mine.onnx")
    imported = {name: value for name, value in SHIFTED.items() if name != "epochs"} | {"model": "datasets/mine.onnx"}
    run_stages(imported, "plan", "train", "shift")
    np.testing.assert_allclose(np.load(stages.SHIFT / "contrast.npy"), by_torch, atol=1e-4)


@pytest.mark.full
def test_cifar100_by_every_corruption(workspace: Path, development_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEODDS_DATA", str(development_data))
    settings: dict[str, Any] = {
        "dataset": "cifar100",
        "train_size": 1000,
        "validation_size": 500,
        "epochs": 1,
        "width": 4,
        "compare": [],
    }
    settings |= {"shift": "cifar-c", "shift_options": {"corruptions": ["all"], "rows": 100}}
    run_stages(settings, "fetch", "plan", "train", "shift", "calibrate", "evaluate")
    table = json.loads((stages.EVALUATION / "shift/shift.json").read_text())
    assert table["corruptions"] == list(NAMES) and table["table"] == "cifar"
    error = table["calibrators"]["identity"]["error_rate"]
    assert error["mean"][5] >= error["mean"][1] - 0.02
