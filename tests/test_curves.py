"""What is logged of a run: every quantity against a plain twin, and nothing of it changes the run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from pipeline import data, methods, stages
from pipeline.config import Data, Training
from pipeline.data import DataSet
from pipeline.figures import training as pictures
from pipeline.nets.net import Net
from pipeline.training.batches import Batches
from pipeline.training.measuring import curves
from pipeline.training.training_result import TrainingResult, write_epochs
from tests import reference_curves as reference
from tests.training_runs import train
from trueodds import metrics
from trueodds.errors import ConfigError
from trueodds.files import FileError

SHORT = Training(epochs=3, width=4, curves=[1, 3])


@pytest.fixture
def digits(workspace: Path) -> DataSet:
    return data.load(Data(train_size=200))


def rows(n: int, classes: int, scale: float, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n + classes)
    logits = (scale * torch.randn(n, classes, generator=generator, dtype=torch.float64)).to(dtype)
    return logits, torch.randint(classes, (n,), generator=generator)


def cases() -> dict[str, tuple[Tensor, Tensor]]:
    logits, labels = rows(40, 5, 2.0)
    return {
        "float32": rows(60, 10, 3.0, torch.float32),
        "two classes": rows(30, 2, 1.0),
        "many classes": rows(20, 100, 2.0),
        "ties": (logits.round(), labels),
        "all right": (logits, logits.argmax(1)),
        "all wrong": (logits, logits.argmin(1)),
        "one row": (logits[:1], labels[:1]),
        "far apart": (torch.tensor([[900.0, 0.0], [0.0, 60.0], [-60.0, 60.0]]), torch.tensor([1, 0, 1])),
    }


@pytest.mark.parametrize("case", cases())
def test_means_of_right_and_wrong_rows(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = cases()[case]
    monkeypatch.setattr(curves, "ELEMENTS", 7 * logits.shape[1])  # several blocks, the last one shorter
    means, expected = curves.by_outcome(logits, labels), reference.by_outcome(logits.tolist(), labels.tolist())
    assert list(means) == list(curves.BY_OUTCOME) == list(expected)
    for name, value in expected.items():
        assert means[name] is None if value is None else means[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


def test_they_are_the_metrics_of_the_rows() -> None:
    logits, labels = rows(500, 10, 2.0)
    table, right = curves.scores(logits, labels), curves.is_right(logits, labels)
    p = metrics.softmax(logits.numpy())
    assert list(table) == list(curves.COLUMNS)
    assert table["error"] == metrics.error_rate(p, labels.numpy()) and table["ece"] == metrics.ece(p, labels.numpy())
    for chosen, outcome in ((right, "right"), (~right, "wrong")):
        assert table[f"nll_{outcome}"] == pytest.approx(metrics.nll(p[chosen], labels.numpy()[chosen]), rel=1e-12)
        assert table[f"entropy_{outcome}"] == pytest.approx(metrics.mean_entropy(p[chosen]), rel=1e-12)


def test_norm_of_the_last_layer() -> None:
    head = nn.Linear(6, 4)
    plain = math.sqrt(math.fsum(float(w) ** 2 for row in head.weight.tolist() for w in row))
    assert curves.weight_norm(head) == pytest.approx(plain, rel=1e-12)


METHODS = {
    "ce": {},
    "mse": {},
    "flsd53": {},
    "focal_lambert": {},
    "dfl": {},
    "bsce_gra": {},
    "ls05": {},
    "adafocal": {},
    "ce+mmce": {},
    "consistency": {"gra": False, "count": 3},
    "consistency+smoothing": {"gra": True},
}


@pytest.mark.parametrize("name", METHODS)
def test_gradient_norms_equal_autograd_row_by_row(name: str) -> None:
    method = methods.build(name, **METHODS[name])  # type: ignore[arg-type]
    torch.manual_seed(3)
    head, features = nn.Linear(6, 4).double(), torch.randn(9, 6, dtype=torch.float64)
    labels = torch.arange(9) % 4
    torch.manual_seed(4)
    norms = curves.gradient_norms(method, head, features, labels, progress=0.5)
    torch.manual_seed(4)  # `consistency` draws
    expected = reference.gradient_norms(method, head, features, labels, 0.5)
    assert norms.tolist() == pytest.approx(expected, rel=1e-9)
    assert all(weight.grad is None for weight in head.parameters())


def test_gradients_of_rows_that_are_nearly_certain() -> None:
    """In float32 p_y would be 1 and the norm 0."""
    head = nn.Linear(2, 2)
    nn.init.zeros_(head.bias)
    nn.init.eye_(head.weight)
    norm = curves.gradient_norms(methods.build("ce"), head, torch.tensor([[30.0, 0.0]]), torch.tensor([0]))
    assert float(norm) == pytest.approx(math.sqrt(2) * math.exp(-30) * math.sqrt(901), rel=1e-6)


def same(a: TrainingResult, b: TrainingResult) -> bool:
    states = a.net.state_dict(), b.net.state_dict()
    return all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_measuring_changes_nothing(digits: DataSet, tmp_path: Path) -> None:
    """Not even the random numbers that this method draws."""
    settings = SHORT.model_copy(update={"method": "consistency"})
    plain = train(digits, settings.model_copy(update={"curves": []}), tmp_path / "a")
    measured = train(digits, settings, tmp_path / "b")
    assert same(plain, measured)
    for before, after in zip(plain.history, measured.history, strict=True):
        assert before == {name: None if before[name] is None else after[name] for name in before}
    assert plain.epoch_rows.keys() == {"epochs"} and not plain.epoch_rows["epochs"].size


def test_the_rows_of_named_epochs(digits: DataSet, tmp_path: Path) -> None:
    result = train(digits, SHORT, tmp_path / "c")
    rows, last = result.epoch_rows, result.history[-1]
    assert rows["epochs"].tolist() == [1, 3] and rows["test_brier"].shape == (2, 600)
    batches, net = Batches.of(digits, "train", torch.device("cpu")), result.net
    assert isinstance(net, Net)
    with torch.no_grad():
        features = torch.cat([net.features(images) for images, _ in batches.in_order(200)])
        logits, labels = net.head(features), batches.labels_N
    p = metrics.softmax(logits.double().numpy())
    assert rows["train_confidence"][1] == pytest.approx(p.max(1), rel=1e-4)
    assert rows["train_correct"][1].tolist() == (p.argmax(1) == labels.numpy()).tolist()
    assert rows["train_p"][1] == pytest.approx(p[np.arange(len(labels)), labels], rel=1e-5)
    assert rows["train_brier"][1] == pytest.approx(((p - np.eye(10)[labels]) ** 2).sum(1), rel=1e-4, abs=1e-12)
    expected = reference.gradient_norms(methods.build("ce"), net.head.double(), features.double(), labels, 1.0)
    assert rows["train_gradient_norm"][1] == pytest.approx(expected, rel=1e-4)
    assert last["clean_train_error"] == pytest.approx(1 - rows["train_correct"][1].mean())
    assert last["test_error"] == pytest.approx(1 - rows["test_correct"][1].mean())
    assert [row["clean_train_nll"] is None for row in result.history] == [False, True, False]
    assert all(row["test_nll_wrong"] > row["test_nll_right"] for row in result.history)


class StoppedError(Exception):
    pass


def test_a_killed_run_keeps_its_measured_rows(digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(digits, SHORT, tmp_path / "whole")
    norm, ended = curves.weight_norm, 0

    def stops(head: nn.Linear) -> float:
        nonlocal ended
        ended += 1
        if ended == 2:
            raise StoppedError
        return norm(head)

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.training.measuring.curves.weight_norm", stops)
        with pytest.raises(StoppedError):
            train(digits, SHORT, tmp_path / "c")
    (first,) = (tmp_path / "c").glob("*/epoch-1.npz")
    written = first.stat().st_mtime_ns
    resumed = train(digits, SHORT, tmp_path / "c")
    assert first.stat().st_mtime_ns == written  # kept, not computed again
    assert resumed.history == whole.history and resumed.epoch_rows.keys() == whole.epoch_rows.keys()
    assert all(np.array_equal(resumed.epoch_rows[name], whole.epoch_rows[name]) for name in whole.epoch_rows)
    first.write_bytes(first.read_bytes()[:100])
    with pytest.raises(curves.CurvesError, match=r"epoch-1.npz is missing or damaged; remove .* and train again"):
        train(digits, SHORT, tmp_path / "c")


def test_an_epoch_that_the_run_does_not_have(digits: DataSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"training.curves names epoch 4; allowed are the epochs of this run, 1 to 3"):
        train(digits, SHORT.model_copy(update={"curves": [3, 4]}), tmp_path / "c")


def written(folder: Path, history: list[dict[str, Any]], epoch_rows: curves.Arrays) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    write_epochs(folder / "epochs.csv", history)
    np.savez(folder / "epoch_rows.npz", **epoch_rows)  # type: ignore[arg-type]
    return folder / "epochs.csv", folder / "epoch_rows.npz"


def made_up(epochs: int, named: int, wrong: bool = True) -> tuple[list[dict[str, Any]], curves.Arrays]:
    """A run that never was: `epochs` rows, 50 training rows at `named` of them."""
    rng = np.random.default_rng(0)
    names = [f"{split}_{name}" for split in ("train", "val", "test", "clean_train") for name in curves.COLUMNS]
    history: list[dict[str, Any]] = [
        {"epoch": k + 1, "learning_rate": 0.1 ** (k // 3), "weight_norm": 1.0 + k}
        | {name: None if name.endswith("wrong") and not wrong else rng.random() for name in names}
        for k in range(epochs)
    ]
    confidence, brier = rng.random((2, named, 50))
    correct = rng.random((named, 50)) < confidence if wrong else np.ones((named, 50), bool)
    arrays: curves.Arrays = {"train_confidence": confidence, "train_correct": correct}
    arrays |= {"train_brier": brier if wrong else 0 * brier, "train_gradient_norm": brier**2 if wrong else 0 * brier}
    return history, {"epochs": 1 + np.arange(named), **(arrays if named else {})}


@pytest.mark.full
def test_pictures_of_one_perfect_epoch(tmp_path: Path) -> None:
    drawn = pictures.draw(*written(tmp_path, *made_up(1, 1, wrong=False)), tmp_path / "out", "made up")
    assert [path.name for path in drawn] == ["training.png", "reliability.png", "gradients.png"]
    assert all(path.with_suffix(suffix).stat().st_size > 10_000 for path in drawn for suffix in (".png", ".svg"))


@pytest.mark.few(1)
@pytest.mark.parametrize("epochs", [1, 2, 8, 60])
def test_no_marker_is_cut(epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pixels: those of the first and last epoch, and of values at 0, are whole."""
    history, rows = made_up(epochs, 1)
    history[-1] |= {"test_error": 0.0, "train_ece": 0.0}
    figures = []

    @contextmanager
    def kept(out: Path, title: str, size: tuple[float, float], *, png: bool = False) -> Iterator[Figure]:
        figures.append(Figure(figsize=size, dpi=100))
        yield figures[-1]

    monkeypatch.setattr("pipeline.figures.training.new_figure", kept)
    pictures.curves(pictures.read(written(tmp_path, history, rows)[0]), tmp_path / "training", "made up")
    (figure,) = figures
    figure.draw_without_rendering()
    for axes in figure.axes:
        for line in (line for line in axes.lines if line.get_marker() not in ("None", "none", "", None)):
            half = line.get_markersize() * 100 / 72 / 2
            x = line.get_transform().transform(np.column_stack(line.get_data()))[:, 0]
            x = x[np.isfinite(x)]
            assert len(x) == 0 or (x.min() - half >= axes.bbox.x0 and x.max() + half <= axes.bbox.x1)
            assert not line.get_clip_on()


@pytest.mark.full
@pytest.mark.parametrize("named", [0, 5])
def test_pictures_are_the_same_bytes(named: int, tmp_path: Path) -> None:
    files = written(tmp_path, *made_up(8, named))
    once, again = (pictures.draw(*files, tmp_path / out, "made up") for out in ("a", "b"))
    assert len(once) == (3 if named else 1)
    for one, other in zip(once, again, strict=True):
        for suffix in (".png", ".svg"):
            assert one.with_suffix(suffix).read_bytes() == other.with_suffix(suffix).read_bytes()


def test_the_gamma_curve_needs_no_run(workspace: Path) -> None:
    (picture,) = stages.draw_gamma_curve()
    assert picture == Path("artifacts/curves/gamma.png") and picture.stat().st_size > 10_000
    assert picture.with_suffix(".svg").read_text().startswith("<?xml")


def test_epochs_without_wrong_rows(tmp_path: Path) -> None:
    epochs, _ = written(tmp_path, *made_up(2, 0, wrong=False))
    assert ",nan," in epochs.read_text() and ",," not in epochs.read_text()  # which `dvc plots` would draw as 0
    columns = pictures.read(epochs)
    assert np.isnan(columns["val_nll_wrong"]).all() and np.isfinite(columns["val_nll_right"]).all()


def test_files_that_cannot_be_drawn(tmp_path: Path) -> None:
    epochs, rows = written(tmp_path, *made_up(2, 1))
    with pytest.raises(FileError, match=r"no.csv does not exist; run the train stage: dvc repro train"):
        pictures.draw(tmp_path / "no.csv", rows, tmp_path, "t")
    with pytest.raises(FileError, match=r"no.npz does not exist"):
        pictures.draw(epochs, tmp_path / "no.npz", tmp_path, "t")
    np.savez(rows, epochs=np.array([1]))
    with pytest.raises(FileError, match=r"epoch_rows.npz has no array train_brier, train_confidence"):
        pictures.draw(epochs, rows, tmp_path, "t")
    for text, message in (("", "list index"), ("epoch\n1\n", "has no column learning_rate"), ("a\nb\n", "could not")):
        epochs.write_text(text)
        with pytest.raises(FileError, match=message):
            pictures.read(epochs)


def test_further_columns_are_those_of_the_metrics(digits: DataSet, tmp_path: Path) -> None:
    names = ["adaptive_ece", "brier", "classwise_ece", "mce", "sweep_ece"]
    training = Training(epochs=2, width=4, curves=[2], epoch_metrics=[*names, "mce"])  # type: ignore[list-item]
    result = train(digits, training, tmp_path / "c")
    p_NC, labels_N = metrics.softmax(result.logits["val"].astype(float)), digits.arrays["val"][1]
    last = result.history[-1]
    for name in names:
        found = getattr(metrics, name)(p_NC, labels_N)
        expected = found.ece if name == "sweep_ece" else found
        assert last[f"val_{name}"] == pytest.approx(expected, rel=1e-5)
        assert f"test_{name}" in last and f"val_{name}" in result.history[0]
    without = train(digits, Training(epochs=2, width=4, epoch_metrics=["mce"]), tmp_path / "d")
    assert "val_mce" in without.history[0] and "test_mce" not in without.history[0]
