"""The shift: where corrupted images come from, what the stage writes of them, and what evaluation makes of that."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from pipeline import config, shift, stages
from pipeline.config import Data, Evaluation
from pipeline.data import DataError, DataSet
from pipeline.data.corruptions import COMMON, IMAGENET, NAMES, corrupt
from pipeline.data.corruptions.source import Computed, Published, find, source_of
from pipeline.figures import shift as figures
from pipeline.shift import Options
from pipeline.training.network import read_net, read_settings
from pipeline.training.scoring import scorer
from tests.reference_metrics import standard_error_within_types
from trueodds import calibrators, logits, metrics
from trueodds.calibrators import FitError
from trueodds.errors import ConfigError
from trueodds.evaluation import results, shifted_logits
from trueodds.evaluation.shift import FIGURES, ShiftResults, evaluate
from trueodds.files import FileError
from trueodds.logits import Logits

Images = npt.NDArray[np.uint8]
ROWS = 20


def images(rows: int = ROWS, edge: int = 12, channels: int = 3) -> Images:
    return np.random.default_rng(rows).integers(0, 256, (rows, edge, edge, channels), dtype=np.uint8)


def labels(rows: int = ROWS) -> npt.NDArray[np.int64]:
    return np.arange(rows) % 4


def publish(folder: Path, names: tuple[str, ...] = ("fog", "snow"), rows: int = ROWS) -> Path:
    """Files as CIFAR-10-C has them: row n at severity s is all 40 s + n % 40."""
    folder.mkdir(parents=True)
    block = np.concatenate([np.full((rows, 12, 12, 3), 40 * severity, np.uint8) for severity in range(1, 6)])
    for name in names:
        np.save(folder / f"{name}.npy", block + (np.arange(5 * rows) % rows).astype(np.uint8)[:, None, None, None])
    np.save(folder / "labels.npy", np.tile(labels(rows), 5).astype(np.uint8))
    return folder


def test_published_files_are_found_in_either_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUEODDS_DATA", raising=False)
    publish(tmp_path / "datasets" / "CIFAR-10-C")
    mirrored = publish(tmp_path / "mirror" / "CIFAR-10-C")
    assert find("cifar10", str(tmp_path / "datasets")) == tmp_path / "datasets" / "CIFAR-10-C"
    assert find("cifar100", str(tmp_path / "datasets")) is None and find("digits", str(tmp_path / "datasets")) is None
    monkeypatch.setenv("TRUEODDS_DATA", str(tmp_path / "mirror"))
    assert find("cifar10", str(tmp_path / "datasets")) == mirrored


def test_published_rows_are_those_of_the_severity(tmp_path: Path) -> None:
    source = source_of(publish(tmp_path / "CIFAR-10-C"), (images(), labels()), ["fog"], 0)
    assert isinstance(source, Published) and source.origin["source"] == "published"
    assert "published files of CIFAR-10-C" in source.origin["note"]
    np.testing.assert_array_equal(source.images("fog", 3, np.array([0, 7]))[:, 0, 0, 0], [120, 127])


def test_without_files_images_are_computed() -> None:
    source = source_of(None, (images(), labels()), COMMON, 3)
    assert isinstance(source, Computed) and source.origin["table"] == "cifar"
    assert "frost is of generated textures" in source.origin["note"]
    some = np.array([4, 9])
    np.testing.assert_array_equal(source.images("frost", 2, some), corrupt(images(), "frost", 2, seed=3)[some])
    assert Computed(images(2, 64), 0).origin["table"] == IMAGENET.name


def damaged(folder: Path, what: str) -> None:
    path = folder / "fog.npy"
    if what == "missing":
        path.unlink()
    elif what == "cut":
        path.write_bytes(path.read_bytes()[:500])
    elif what == "shape":
        np.save(path, np.load(path)[:50])
    elif what == "dtype":
        np.save(path, np.load(path).astype(np.float32))
    elif what == "labels":
        np.save(folder / "labels.npy", np.load(folder / "labels.npy")[::-1])
    else:
        (folder / "labels.npy").unlink()


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            "missing",
            r"fog\.npy does not exist; take it from zenodo.*shift_options\.corruptions, or move the folder away",
        ),
        ("cut", r"fog\.npy is not a whole \.npy file"),
        (
            "shape",
            r"fog\.npy is uint8 of shape \(50, 12, 12, 3\); expected uint8 of shape \(100, 12, 12, 3\): severities",
        ),
        ("dtype", r"fog\.npy is float32 of shape \(100, 12, 12, 3\); expected uint8"),
        ("labels", r"labels\.npy does not hold the labels of the test rows, five times in their order"),
        ("no labels", r"labels\.npy does not exist"),
    ],
)
def test_a_published_file_that_does_not_fit_is_named(tmp_path: Path, what: str, message: str) -> None:
    folder = publish(tmp_path / "CIFAR-10-C")
    damaged(folder, what)
    with pytest.raises(DataError, match=message):
        source_of(folder, (images(), labels()), ["snow", "fog"], 0)


def test_a_file_of_another_corruption_may_be_damaged(tmp_path: Path) -> None:
    folder = publish(tmp_path / "CIFAR-10-C")
    damaged(folder, "cut")
    source_of(folder, (images(), labels()), ["snow"], 0)


def test_options_are_put_in_order() -> None:
    assert Options.of({}) == Options(COMMON, (1, 2, 3, 4, 5), None, 0)
    chosen = Options.of(
        {"corruptions": ["snow", "fog", "gaussian_noise"], "severities": [5, 1, 5], "rows": 9, "seed": 2}
    )
    assert chosen == Options(("gaussian_noise", "snow", "fog"), (1, 5), 9, 2)
    assert Options.of({"corruptions": ["all"]}).corruptions == NAMES


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corruptions": ["fogg"]}, r"unknown corruption 'fogg'; allowed: .*Did you mean 'fog'\?"),
        (
            {"corruption": ["fog"]},
            r"option in evaluation\.shift_options 'corruption'; allowed: .*Did you mean 'corruptions'",
        ),
        ({"corruptions": []}, r"shift_options\.corruptions = \[\]; allowed is a list of names, such as \[fog, snow\]"),
        ({"corruptions": 3}, r"shift_options\.corruptions = 3; allowed is a list of names"),
        ({"severities": [6]}, r"severity 6 of a corruption; allowed are 1 to 5"),
        ({"severities": [0, 1]}, r"severity 0 .*the images as they are, is measured anyway"),
        ({"severities": 3}, r"shift_options\.severities = 3; allowed is a list of whole numbers from 1 to 5"),
        ({"rows": 1}, r"shift_options\.rows = 1; allowed is a whole number from 2"),
        ({"seed": -1}, r"shift_options\.seed = -1; allowed is a whole number from 0"),
        ({"rows": True}, r"shift_options\.rows = True; allowed is a whole number"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Options.of(options)


def test_a_shift_that_is_not_there_and_vectors_are_refused_before_training(workspace: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"evaluation\.shift = 'cifar-d': allowed is 'cifar-c', or null\. Did you mean"
    ):
        config.load(overrides={"shift": "cifar-d"})
    with pytest.raises(ConfigError, match="unknown corruption 'rain'"):
        stages.check_names(config.load(overrides={"shift": "cifar-c", "shift_options.corruptions": ["rain"]}))
    with pytest.raises(DataError, match="which corrupts images, and the rows are of kind vector; set it to null"):
        stages.check_names(config.load(overrides={"shift": "cifar-c", "dataset": "wine"}))


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
    entries = list(results.fit_compared(calibrators.Identity(), one_class, ["vector", "beta"]))
    unfit = {name for name, fitted in entries if isinstance(fitted, FitError)}
    found = evaluate(calibrators.Identity(), one_class, shifted, Evaluation(compare=["vector", "beta"]))
    assert set(found.problems) == unfit


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
    with pytest.raises(FileError, match="is not whole"):
        shifted_logits.read(tmp_path / "nowhere")


def run_stages(overrides: dict[str, Any], *names: str) -> None:
    for name in names:
        stages.STAGES[name](config.load(overrides=overrides))


def test_the_stages_on_digits(workspace: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A tiny run of all there is: without a shift nothing, with one its files; the clean rows are the test rows."""
    settings: dict[str, Any] = {
        "train_size": 200,
        "validation_size": 60,
        "epochs": 1,
        "compare": ["temperature objective=brier"],
    }
    run_stages(settings, "fetch", "plan", "train", "calibrate")
    shifted = settings | {"shift": "cifar-c", "shift_options": {"corruptions": ["contrast", "fog"], "rows": 50}}
    with caplog.at_level(logging.INFO, "pipeline"):
        run_stages(shifted, "shift", "evaluate")
    assert "The corrupted images were computed here" in caplog.text
    files = {path.name for path in (stages.EVALUATION / "shift").iterdir()}
    assert files == {"shift.json", "shift.csv", "severities.svg", "severities.png", "corruptions.svg"}
    metrics_json = (stages.EVALUATION / "metrics.json").read_bytes()
    table = json.loads((stages.EVALUATION / "shift/shift.json").read_text())
    assert set(table["calibrators"]) == {"identity", "temperature", "temperature objective=brier"}
    assert table["rows"] == 50

    test, kept = logits.read(stages.LOGITS, "test"), np.load(stages.SHIFT / "clean.npz")
    np.testing.assert_array_equal(kept["logits"], test.logits_NC[kept["rows"]])
    data = stages_data()
    score = scorer(read_net(stages.MODEL, read_settings(stages.MODEL, data), data), data)
    rows = data.arrays["test"][0]
    np.testing.assert_allclose(score(rows), test.logits_NC, atol=1e-5)
    part = rows[kept["rows"]]
    expected = score(corrupt(part.astype(np.uint8), "fog", 5, rows_N=kept["rows"]))
    np.testing.assert_allclose(np.load(stages.SHIFT / "fog.npy")[4], expected, atol=1e-5)

    run_stages(settings, "shift", "evaluate")
    assert json.loads((stages.SHIFT / "shift.json").read_text()) == {"shift": None}
    assert not list((stages.EVALUATION / "shift").iterdir()) and not list(stages.SHIFT.glob("*.npy"))
    assert (stages.EVALUATION / "metrics.json").read_bytes() == metrics_json
    with pytest.raises(FileError, match="run the shift stage first: dvc repro shift"):
        run_stages(shifted, "evaluate")


def stages_data() -> DataSet:
    from pipeline import data

    return data.read(stages.DATA)


def test_published_files_go_through_the_network(tmp_path: Path) -> None:
    """A real linear scorer in place of the net: the rows of the published files, in blocks, are what it sees."""
    publish(tmp_path / "CIFAR-10-C")
    card = {"name": "cifar10", "input": {"kind": "image"}}
    test = Logits(np.zeros((ROWS, 4), np.float32), labels())
    settings = Evaluation(shift="cifar-c", shift_options={"corruptions": ["fog"], "severities": [2, 4], "rows": 8})

    def score(batch: Images) -> npt.NDArray[np.floating]:
        return np.repeat(batch[:, :1, 0, 0], 4, 1).astype(np.float32)

    data = DataSet({"test": (images(), labels())}, card)
    shift.write(settings, Data(dataset="cifar10", path=str(tmp_path)), data, test, score, tmp_path / "out")
    found = shifted_logits.read(tmp_path / "out")
    rows = np.load(tmp_path / "out" / "clean.npz")["rows"]
    assert found.description["source"] == "published" and len(rows) == 8
    assert np.bincount(found.clean.labels_N).tolist() == [2, 2, 2, 2]
    ((name, logits_SNC),) = found
    assert name == "fog"
    np.testing.assert_array_equal(logits_SNC[:, :, 0], [80 + rows, 160 + rows])


@pytest.mark.full
def test_cifar100_by_every_corruption(workspace: Path, development_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEODDS_DATA", str(development_data))
    settings: dict[str, Any] = {"dataset": "cifar100", "train_size": 1000, "epochs": 1, "compare": ["vector"]}
    settings |= {"shift": "cifar-c", "shift_options": {"corruptions": ["all"], "rows": 100}}
    run_stages(settings, "fetch", "plan", "train", "shift", "calibrate", "evaluate")
    table = json.loads((stages.EVALUATION / "shift/shift.json").read_text())
    assert table["corruptions"] == list(NAMES) and table["table"] == "cifar"
    error = table["calibrators"]["identity"]["error_rate"]
    assert error["mean"][5] >= error["mean"][1] - 0.02
