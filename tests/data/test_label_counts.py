"""How many people labelled each test row as what: read, checked, and in metrics.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import config, data, stages
from pipeline.config import Data, Evaluation
from pipeline.data import DataError, DataSet
from pipeline.data.label_counts import CIFAR10H, FILE, load, read, write
from trueodds import metrics
from trueodds.calibrators import Temperature
from trueodds.evaluation.results import evaluate
from trueodds.files import read_json
from trueodds.logits import Logits


@pytest.fixture(scope="module")
def digits() -> DataSet:
    return data.load(Data(train_size=60))


@pytest.fixture(scope="module")
def counts(digits: DataSet) -> np.ndarray:
    labels = digits.arrays["test"][1]
    shares = np.where(np.eye(10)[labels] == 1, 0.9, 0.1 / 9)
    return np.random.default_rng(0).multinomial(51, shares)


def test_counts_go_through_a_file(digits: DataSet, counts: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", counts.astype(float))
    loaded = load(str(tmp_path / "mine.npy"), digits, tmp_path, tmp_path)
    write(tmp_path / "label_counts.npz", loaded)
    again = read(tmp_path / "label_counts.npz")
    assert again is not None and again.dtype == np.int64 and np.array_equal(again, counts)
    write(tmp_path / "label_counts.npz", None)
    assert read(tmp_path / "label_counts.npz") is None


def test_cifar10h_where_it_lies(
    digits: DataSet, counts: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRUEODDS_DATA", raising=False)

    monkeypatch.setattr("pipeline.data.label_counts.URL", "http://127.0.0.1:9/counts.npy")  # nobody listens there
    with pytest.raises(DataError, match=rf"cifar10h could not be downloaded from http://.*put {FILE} into a folder"):
        load(CIFAR10H, digits, tmp_path, tmp_path / "downloads")
    np.save(tmp_path / FILE, counts)
    assert np.array_equal(load(CIFAR10H, digits, tmp_path, tmp_path / "downloads"), counts)
    monkeypatch.setenv("TRUEODDS_DATA", str(tmp_path))
    assert np.array_equal(load(CIFAR10H, digits, tmp_path / "nowhere", tmp_path / "downloads"), counts)


def test_cifar10h_is_downloaded_once_and_whole(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRUEODDS_DATA", raising=False)
    served, downloads = tmp_path / "served.npy", tmp_path / "downloads"
    monkeypatch.setattr("pipeline.data.label_counts.URL", served.as_uri())
    labels = np.arange(10_000) % 10
    votes = 45 * np.eye(10, dtype=np.int64)[labels] + 1
    np.save(served, votes)
    whole = served.read_bytes()
    few = np.minimum(votes, 20)
    np.save(served, few)
    for content in (whole[:-100], whole[:100], b"<html>", served.read_bytes()):
        served.write_bytes(content)
        with pytest.raises(DataError, match=r"cifar10h: the download from .* is damaged; expected are 10,000 rows of"):
            load(CIFAR10H, digits, tmp_path, downloads)
        assert not list(downloads.glob("*.npy"))
    served.write_bytes(whole)
    images = np.zeros((10_000, 1), np.uint8)
    cifar = DataSet({"test": (images, labels)}, {"name": "cifar10", "classes": list("abcdefghij")})
    assert np.array_equal(load(CIFAR10H, cifar, tmp_path, downloads), votes)
    served.unlink()
    assert np.array_equal(load(CIFAR10H, cifar, tmp_path, downloads), votes)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda c: c[:-1], r"holds \(599, 10\); expected \(600, 10\): for each test row of digits, in their order"),
        (lambda c: c[:, :9], r"holds \(600, 9\); expected \(600, 10\)"),
        (lambda c: -c, r"mine\.npy\[0, 0\] is -?\d+; allowed are whole numbers|is -"),
        (lambda c: np.where(np.arange(600)[:, None] == 7, 0, c), r"has 1 of 600 rows without a vote \(7\)"),
        (
            lambda c: c[::-1],
            r"the most frequent vote is the label of \d+\.\d% of the test rows; allowed is at least 80%.*Order",
        ),
    ],
)
def test_counts_that_cannot_be(spoil: Any, message: str, digits: DataSet, counts: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", spoil(counts))
    with pytest.raises(DataError, match=message):
        load(str(tmp_path / "mine.npy"), digits, tmp_path, tmp_path)


def test_what_is_no_file_of_counts(digits: DataSet, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"label_counts is 'none\.npy', which does not exist; give the path of a"):
        load("none.npy", digits, tmp_path, tmp_path)
    (tmp_path / "text.npy").write_text("counts")
    with pytest.raises(DataError, match=r"text\.npy is not a \.npy file of numbers"):
        load(str(tmp_path / "text.npy"), digits, tmp_path, tmp_path)


def test_metrics_of_votes(counts: np.ndarray, digits: DataSet) -> None:
    """Before and after, with what right probabilities would show; a model that says the shares is at its floor."""
    labels = digits.arrays["test"][1]
    shares = np.where(np.eye(10)[labels] == 1, 0.9, 0.1 / 9)
    test = Logits(np.log(shares).astype(np.float32), labels)
    evaluated = evaluate(Temperature(2.0), test, test, Evaluation(compare=["vector"]), None, counts)
    before, after = evaluated.before.values, evaluated.after.values
    p_NC = Temperature(2.0)(test.logits_NC)
    assert after["samplewise_error"] == pytest.approx(metrics.samplewise_error(p_NC, counts))
    assert after["samplewise_floor"] == pytest.approx(metrics.samplewise_noise_floor(p_NC, 51))
    assert after["samplewise_error_lower"] < after["samplewise_error"] < after["samplewise_error_upper"]
    assert before["samplewise_error"] == pytest.approx(before["samplewise_floor"], rel=0.05)
    assert after["samplewise_error"] > 3 * before["samplewise_error"]
    assert evaluated.panel == {
        "mean_votes": 51.0,
        "unanimous_share": float((counts.max(1) == 51).mean()),
        "second_panel_error": metrics.second_panel_error(counts),
        "half_panels_error": metrics.half_panels_error(counts),
    }
    plain = evaluate(Temperature(2.0), test, test, Evaluation(compare=[]))
    assert plain.panel is None and "samplewise_error" not in plain.before.values


@pytest.mark.full
def test_votes_from_params_to_metrics(workspace: Path, digits: DataSet, counts: np.ndarray) -> None:
    """Through the stages; adding votes to a trained net takes fetch and evaluate alone."""
    small = {"train_size": 60, "epochs": 1, "compare": []}
    for stage in (stages.fetch, stages.plan, stages.train, stages.calibrate, stages.evaluate):
        stage(config.load(overrides=small))
    without, logits = read_json(stages.EVALUATION / "metrics.json"), stages.LOGITS.read_bytes()
    arrays = (stages.DATA / "arrays.npz").read_bytes()
    np.save("datasets/digits-counts.npy", counts)
    voted = config.load(overrides={**small, "label_counts": "datasets/digits-counts.npy"})
    stages.fetch(voted)
    stages.evaluate(voted)
    table = read_json(stages.EVALUATION / "metrics.json")
    assert (stages.DATA / "arrays.npz").read_bytes() == arrays and stages.LOGITS.read_bytes() == logits
    assert table.pop("label_counts")["second_panel_error"] == metrics.second_panel_error(counts)
    for when in ("before", "after"):
        entry = table[when]
        error, floor = entry.pop("samplewise_error"), entry.pop("samplewise_floor")
        assert entry.pop("samplewise_error_lower") < error < entry.pop("samplewise_error_upper")
        assert 0 < floor < error  # an epoch on 60 rows: far from what people say
    assert table == without
