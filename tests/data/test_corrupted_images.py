"""Corrupted test images: published or computed, their options, and their way through a network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline import config, shift, stages
from pipeline.config import Data, Evaluation
from pipeline.data import DataError, DataSet
from pipeline.data.corruptions import COMMON, IMAGENET, NAMES, corrupt
from pipeline.data.corruptions.image_source import ComputedImages, PublishedImages, find, source_of
from pipeline.shift import ShiftOptions
from trueodds.errors import ConfigError
from trueodds.evaluation import shifted_logits
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
    assert isinstance(source, PublishedImages) and source.origin["source"] == "published"
    assert "published files of CIFAR-10-C" in source.origin["note"]
    np.testing.assert_array_equal(source.images("fog", 3, np.array([0, 7]))[:, 0, 0, 0], [120, 127])


def test_without_files_images_are_computed() -> None:
    source = source_of(None, (images(), labels()), COMMON, 3)
    assert isinstance(source, ComputedImages) and source.origin["table"] == "cifar"
    assert "frost uses generated textures" in source.origin["note"]
    some = np.array([4, 9])
    np.testing.assert_array_equal(source.images("frost", 2, some), corrupt(images(), "frost", 2, seed=3)[some])
    assert ComputedImages(images(2, 64), 0).origin["table"] == IMAGENET.name


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
            r"fog\.npy does not exist; get it from zenodo.*shift_options\.corruptions, or move the folder away",
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


def test_options_are_put_in_order() -> None:
    assert ShiftOptions.of({}) == ShiftOptions(COMMON, (1, 2, 3, 4, 5), None, 0)
    chosen = ShiftOptions.of(
        {"corruptions": ["snow", "fog", "gaussian_noise"], "severities": [5, 1, 5], "rows": 9, "seed": 2}
    )
    assert chosen == ShiftOptions(("gaussian_noise", "snow", "fog"), (1, 5), 9, 2)
    assert ShiftOptions.of({"corruptions": ["all"]}).corruptions == NAMES


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
        ({"severities": [6]}, r"severity 6 of a corruption is unknown; allowed are 1 to 5"),
        ({"severities": [0, 1]}, r"severity 0 .*the unchanged images, is always measured"),
        ({"severities": 3}, r"shift_options\.severities = 3; allowed is a list of whole numbers from 1 to 5"),
        ({"rows": 1}, r"shift_options\.rows = 1; allowed is a whole number from 2"),
        ({"seed": -1}, r"shift_options\.seed = -1; allowed is a whole number from 0"),
        ({"rows": True}, r"shift_options\.rows = True; allowed is a whole number"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ShiftOptions.of(options)


def test_a_shift_that_is_not_there_and_vectors_are_refused_before_training(workspace: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"evaluation\.shift = 'cifar-d': allowed is 'cifar-c', or null\. Did you mean"
    ):
        config.load(overrides={"shift": "cifar-d"})
    with pytest.raises(ConfigError, match="unknown corruption 'rain'"):
        stages.check_names(config.load(overrides={"shift": "cifar-c", "shift_options.corruptions": ["rain"]}))
    with pytest.raises(DataError, match="which corrupts images, and the rows are of kind vector; set it to null"):
        stages.check_names(config.load(overrides={"shift": "cifar-c", "dataset": "wine"}))
