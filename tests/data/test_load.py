"""Finding, checking, splitting and storing data sets."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from pipeline import data
from pipeline.config import Data
from pipeline.data import DataError
from trueodds.inputs import ImageInput
from trueodds.replay import source
from trueodds.replay.source import ModelSignature


def own(path: Path, **changes: Any) -> Path:
    """A small .npz data set: 40 + 20 images of 6 x 5 x 3 in two classes; `changes` replaces arrays, None drops them."""
    generator = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "x_train": generator.integers(0, 256, (40, 6, 5, 3), dtype=np.uint8),
        "y_train": np.arange(40) % 2,
        "x_test": generator.integers(0, 256, (20, 6, 5, 3), dtype=np.uint8),
        "y_test": np.arange(20) % 2,
        "class_names": np.array(["cat", "dog"]),
    }
    np.savez(path, **{k: v for k, v in {**arrays, **changes}.items() if v is not None})
    return path


def test_digits_are_the_embedded_default(workspace: Path) -> None:
    digits = data.load(Data())
    assert digits.card["splits"] == {"train": 897, "val": 300, "test": 600}
    assert digits.card["input"] == {"kind": "image", "height": 8, "width": 8, "channels": 1, "resized": False}
    everything = np.concatenate([digits.arrays[split][0] for split in data.SPLITS])
    assert everything.shape == (1797, 8, 8, 1) and everything.dtype == np.uint8
    slow = sorted(bytes(round(15.9375 * v) for v in image.ravel()) for image in load_digits().images)
    assert sorted(image.tobytes() for image in everything) == slow
    for split, rows in digits.card["splits"].items():
        counts = np.bincount(digits.arrays[split][1], minlength=10)
        assert counts.sum() == rows and counts.max() - counts.min() <= 6  # the classes themselves differ by 9 in 1,797


def test_two_loads_are_identical_and_the_split_follows_its_seed(workspace: Path) -> None:
    first, second, other = data.load(Data()), data.load(Data()), data.load(Data(split_seed=1))
    assert first.card == second.card
    assert first.card["sha256"] != other.card["sha256"]
    assert np.array_equal(first.arrays["test"][0], other.arrays["test"][0])  # the test split is fixed for ever


def test_normalisation_is_that_of_the_training_pixels(workspace: Path) -> None:
    card, (x, _) = data.load(Data()).card, data.load(Data()).arrays["train"]
    assert card["normalise"]["mean"][0] == pytest.approx((x / 255).mean(), abs=1e-6)
    assert card["normalise"]["std"][0] == pytest.approx((x / 255).std(), abs=1e-6)


def test_train_size_takes_a_balanced_part(workspace: Path) -> None:
    small = data.load(Data(train_size=100))
    assert small.card["splits"] == {"train": 100, "val": 300, "test": 600}
    assert set(np.bincount(small.arrays["train"][1])) <= {9, 10, 11}


def test_held_out_rows_come_from_the_training_rows_alone(workspace: Path) -> None:
    plain, fourth = data.load(Data()), data.load(Data(held_out_size=100))
    assert fourth.card["splits"] == {"train": 797, "val": 300, "test": 600, "held_out": 100}
    for split in ("val", "test"):
        assert np.array_equal(fourth.arrays[split][0], plain.arrays[split][0])
    rows = {split: {image.tobytes() for image in arrays[0]} for split, arrays in fourth.arrays.items()}
    assert not rows["held_out"] & (rows["train"] | rows["val"] | rows["test"])
    assert rows["held_out"] | rows["train"] == {image.tobytes() for image in plain.arrays["train"][0]}
    assert set(np.bincount(fourth.arrays["held_out"][1])) <= {9, 10, 11}
    data.save(fourth, workspace / "a")
    back = data.read(workspace / "a")
    assert back.card == fourth.card and np.array_equal(back.arrays["held_out"][0], fourth.arrays["held_out"][0])
    with pytest.raises(DataError, match=r"cannot draw 897 of 897 rows.*data\.held_out_size"):
        data.load(Data(held_out_size=897))


@pytest.mark.parametrize("place", ["file", "folder", "datasets", "environment"])
def test_own_npz_is_found_everywhere_it_may_lie(workspace: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"dataset": "pets"}
    if place == "file":
        settings["path"] = str(own(workspace / "any.npz"))
    elif place == "folder":
        (workspace / "mine").mkdir()
        own(workspace / "mine" / "pets.npz")
        settings["path"] = "mine"
    elif place == "datasets":
        own(workspace / "datasets" / "pets.npz")
    else:
        own(workspace / "pets.npz")
        monkeypatch.setenv("TRUEODDS_DATA", str(workspace))
    dataset = data.load(Data(**settings))
    assert dataset.card["classes"] == ["cat", "dog"]
    assert dataset.card["splits"] == {"train": 36, "val": 4, "test": 20}


def test_where_data_came_from_is_logged_and_not_in_the_card(workspace: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    own(workspace / "datasets" / "pets.npz")
    card = data.load(Data(dataset="pets")).card
    assert "datasets/pets.npz" in caplog.text
    assert "datasets" not in str(card)


def test_without_a_test_split_one_is_held_out(workspace: Path) -> None:
    own(workspace / "datasets" / "pets.npz", x_test=None, y_test=None)
    card = data.load(Data(dataset="pets", test_fraction=0.25)).card
    assert card["splits"] == {"train": 27, "val": 3, "test": 10}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": np.array([0] * 19 + [2])}, r"y_test holds the label 2; allowed are 0\.\.1"),
        ({"y_train": np.array([-1] * 40)}, r"y_train holds the label -1"),
        ({"y_train": np.arange(40) % 2 * 1.0}, "y_train has dtype float64; expected integers"),
        ({"y_train": np.zeros(39, int)}, r"y_train has shape \(39,\); expected \(40,\)"),
        ({"x_train": np.zeros((40, 6, 5, 3), np.float32)}, "x_train is float32"),
        ({"x_train": np.zeros((40, 6, 5, 3), bool)}, "x_train is bool"),
        ({"x_train": np.zeros((40, 6, 5), np.uint8)}, r"shape \(40, 6, 5\); expected images, uint8"),
        ({"x_train": np.zeros((40, 6, 5, 4), np.uint8)}, "1 or 3 channels"),
        ({"x_test": np.zeros((20, 5, 5, 3), np.uint8)}, "test images are 5 x 5 x 3, training images 6 x 5 x 3"),
        ({"class_names": np.array(["cat", "cat"])}, "at least two different names"),
        ({"class_names": None}, "no array class_names; the file has x_train"),
        ({"y_test": None}, "no array y_test"),
        ({"class_names": np.array(["cat", {}], dtype=object)}, "without Python objects"),
    ],
)
def test_bad_arrays_are_named(workspace: Path, changes: dict[str, Any], message: str) -> None:
    own(workspace / "datasets" / "pets.npz", **changes)
    with pytest.raises(DataError, match=message) as error:
        data.load(Data(dataset="pets"))
    assert "pets.npz" in str(error.value)


def test_a_cut_off_file_is_refused(workspace: Path) -> None:
    path = own(workspace / "datasets" / "pets.npz")
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(DataError, match=r"not a complete \.npz"):
        data.load(Data(dataset="pets"))


def test_unknown_name_says_where_it_looked_and_what_is_near(workspace: Path) -> None:
    with pytest.raises(DataError, match=r"cifar10, cifar100, .*datasets/cifr100\.npz.*Did you mean 'cifar100'\?"):
        data.load(Data(dataset="cifr100"))


def test_a_path_that_does_not_exist_is_no_silent_fallback(workspace: Path) -> None:
    with pytest.raises(DataError, match="'nowhere', which does not exist"):
        data.load(Data(path="nowhere"))


def test_more_rows_than_there_are(workspace: Path) -> None:
    with pytest.raises(DataError, match=r"cannot draw 5,000 of .* rows.*data\.validation_size"):
        data.load(Data(validation_size=5000))


def test_stored_data_come_back_and_equal_bytes(workspace: Path) -> None:
    digits = data.load(Data())
    data.save(digits, workspace / "a")
    data.save(digits, workspace / "b")
    for name in ("arrays.npz", "card.json"):
        assert (workspace / "a" / name).read_bytes() == (workspace / "b" / name).read_bytes()
    back = data.read(workspace / "a")
    assert back.card == digits.card
    assert all(np.array_equal(back.arrays[s][i], digits.arrays[s][i]) for s in data.SPLITS for i in (0, 1))


def test_classes_that_are_other_numbers_than_their_places_are_named(workspace: Path) -> None:
    """A replay reads the numbers of an .npz as names if all classes are numbers: of classes 1 to 10, none is 0."""
    digits = data.load(Data())
    for names in (list(map(str, range(10))), list(map(str, range(1, 11)))):
        shifted = replace(digits, card={**digits.card, "classes": names})
        data.save(shifted, workspace / "a")
        rows = source.read(
            workspace / "a" / "arrays.npz", ModelSignature(ImageInput(height=8, width=8, channels=1), tuple(names))
        )
        assert rows.labels_N.tolist() == digits.arrays["test"][1].tolist()
        assert rows.label(0) == names[digits.arrays["test"][1][0]]


def test_stored_data_that_do_not_match_their_card(workspace: Path) -> None:
    data.save(data.load(Data()), workspace / "a")
    data.save(data.load(Data(split_seed=1)), workspace / "b")
    (workspace / "b" / "arrays.npz").replace(workspace / "a" / "arrays.npz")
    with pytest.raises(DataError, match="does not hold the arrays of"):
        data.read(workspace / "a")
    with pytest.raises(DataError, match="run the fetch stage first"):
        data.read(workspace / "none")


def test_own_data_need_a_name_of_their_own(workspace: Path) -> None:
    own(workspace / "mine.npz")
    with pytest.raises(DataError, match=r"data\.dataset is still 'digits'; .* such as dataset: mine"):
        data.load(Data(path="mine.npz"))
    with pytest.raises(DataError, match="cannot be named 'default'"):
        data.load(Data(dataset="default", path="mine.npz"))


def test_names_as_bytes_are_text(workspace: Path) -> None:
    own(workspace / "datasets" / "pets.npz", class_names=np.array([b"cat", "größe".encode()]))
    assert data.load(Data(dataset="pets")).card["classes"] == ["cat", "größe"]


def test_image_size_is_for_folders(workspace: Path) -> None:
    own(workspace / "datasets" / "pets.npz")
    with pytest.raises(DataError, match=r"data\.image_size is 16, but .*pets\.npz holds arrays"):
        data.load(Data(dataset="pets", image_size=16))


def test_a_class_without_training_rows_is_said(workspace: Path, caplog: pytest.LogCaptureFixture) -> None:
    own(workspace / "datasets" / "pets.npz", class_names=np.array(["cat", "dog", "emu"]))
    data.load(Data(dataset="pets"))
    assert "No training row is left of class emu" in caplog.text


def test_data_that_dvc_does_not_watch_are_said(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (workspace / "mirror").mkdir()
    own(workspace / "mirror" / "pets.npz")
    monkeypatch.setenv("TRUEODDS_DATA", str(workspace / "mirror"))
    data.load(Data(dataset="pets"))
    assert "DVC does not watch" in caplog.text and "dvc repro --force fetch" in caplog.text


def test_train_size_may_be_all_that_is_left(workspace: Path) -> None:
    own(workspace / "datasets" / "pets.npz")
    assert data.load(Data(dataset="pets", train_size=36)).card["splits"]["train"] == 36
    with pytest.raises(DataError, match=r"train_size is 37; allowed is 2\.\.36"):
        data.load(Data(dataset="pets", train_size=37))
