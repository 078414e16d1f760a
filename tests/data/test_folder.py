"""Image folders, with real files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline import data
from pipeline.config import Data
from pipeline.data import DataError
from tests.png_files import png_of_rows


def paint(path: Path, size: tuple[int, int] = (9, 7), mode: str = "RGB", seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)).save(path)
    return path


@pytest.fixture
def flowers(workspace: Path) -> Path:
    root = workspace / "datasets" / "flowers"
    for label, name in enumerate(("daisy", "rose")):
        for i in range(12):
            paint(root / "train" / name / f"{i:02}.png", seed=100 * label + i)
        for i in range(3):
            paint(root / "test" / name / "deeper" / f"{i}.png", seed=1000 + 100 * label + i)
    return root


def test_classes_and_pixels(flowers: Path) -> None:
    found = data.load(Data(dataset="flowers"))
    assert found.card["classes"] == ["daisy", "rose"]
    assert found.card["input"] == {"kind": "image", "height": 7, "width": 9, "channels": 3, "resized": False}
    assert found.card["splits"] == {"train": 22, "val": 2, "test": 6}
    x, y = found.arrays["test"]
    assert y.tolist() == [0, 0, 0, 1, 1, 1]
    expected = np.asarray(Image.open(flowers / "test" / "rose" / "deeper" / "1.png"))
    assert np.array_equal(x[4], expected)


def test_grey_files_give_one_channel(workspace: Path) -> None:
    for name in ("a", "b"):
        for i in range(10):
            paint(workspace / "grey" / "train" / name / f"{i}.png", mode="L", seed=i)
    card = data.load(Data(dataset="grey", path="grey")).card
    assert card["input"]["channels"] == 1
    assert card["splits"]["test"] == 4  # held out from train/


def test_sizes_that_differ_need_image_size(flowers: Path) -> None:
    paint(flowers / "train" / "rose" / "wide.png", size=(20, 10))
    with pytest.raises(DataError, match=r"2 sizes .*9 x 7.*20 x 10.*set image_size"):
        data.load(Data(dataset="flowers"))
    card = data.load(Data(dataset="flowers", image_size=6)).card
    assert card["input"] == {"kind": "image", "height": 6, "width": 6, "channels": 3, "resized": True}


def test_what_is_no_image_is_named(flowers: Path) -> None:
    (flowers / "train" / "rose" / "broken.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"broken\.png cannot be read as PNG or JPEG"):
        data.load(Data(dataset="flowers"))


def test_a_cut_off_image_is_named(flowers: Path) -> None:
    path = flowers / "train" / "rose" / "03.png"
    path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DataError, match=r"03\.png: the image is damaged or cut short"):
        data.load(Data(dataset="flowers"))


def test_an_image_without_its_last_rows_is_named(flowers: Path) -> None:
    (flowers / "train" / "rose" / "03.png").write_bytes(png_of_rows(9, 7, rows=6))
    with pytest.raises(DataError, match=r"03\.png: the image is damaged or cut short .*before row 7, the last"):
        data.load(Data(dataset="flowers"))


def test_empty_and_strange_classes(flowers: Path) -> None:
    (flowers / "train" / "tulip").mkdir()
    with pytest.raises(DataError, match=r"tulip holds no image"):
        data.load(Data(dataset="flowers"))
    (flowers / "train" / "tulip").rmdir()
    paint(flowers / "test" / "lily" / "0.png")
    with pytest.raises(DataError, match=r"has the class 'lily', which train/ does not have; it has daisy, rose"):
        data.load(Data(dataset="flowers"))


def test_no_train_folder(workspace: Path) -> None:
    (workspace / "datasets" / "flowers").mkdir()
    with pytest.raises(DataError, match=r"has no folder train/; expected .*train/<class>/\*\.png"):
        data.load(Data(dataset="flowers"))


def test_files_left_out_are_said(flowers: Path, caplog: pytest.LogCaptureFixture) -> None:
    (flowers / "train" / "rose" / "notes.txt").write_text("x")
    data.load(Data(dataset="flowers"))
    assert "rose: files left out: 1; read are .jpeg, .jpg, .png" in caplog.text


def test_no_class_folders(workspace: Path) -> None:
    (workspace / "datasets" / "flowers" / "train").mkdir(parents=True)
    with pytest.raises(DataError, match="has no class folder"):
        data.load(Data(dataset="flowers"))
