"""Image folders, with real files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline import data
from pipeline.config import Data
from pipeline.data import DataError
from pipeline.data.splitting.checks import alike_classes, thin_classes
from tests.png_files import png_of_rows
from trueodds.inputs import ImageInput, Limits


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
    dataset = data.load(Data(dataset="flowers"))
    assert dataset.card["classes"] == ["daisy", "rose"]
    assert dataset.card["input"] == {"kind": "image", "height": 7, "width": 9, "channels": 3, "resized": False}
    assert dataset.card["splits"] == {"train": 22, "val": 2, "test": 6}
    x, y = dataset.arrays["test"]
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
    with pytest.raises(
        DataError, match=r"1 of 31 images cannot be read.*\n.*broken\.png: not an image that can be read"
    ):
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


def test_all_files_that_cannot_be_read_are_named_at_once(flowers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some by their headers, some by their pixels, in both folders; beyond the limit they are counted."""
    for path in (flowers / "train" / "daisy" / "05.png", flowers / "test" / "rose" / "deeper" / "2.png"):
        path.write_bytes(path.read_bytes()[:-60])
    with pytest.raises(DataError) as cut:
        data.load(Data(dataset="flowers"))
    assert "2 of 30 images cannot be read; fix or remove them, or raise data.unreadable_share (now 0)" in str(cut.value)
    assert "daisy/05.png: the image is damaged" in str(cut.value) and "deeper/2.png: the im" in str(cut.value)
    (flowers / "train" / "rose" / "00.png").write_bytes(b"not an image")
    (flowers / "train" / "rose" / "11.png").write_bytes(b"")
    with pytest.raises(DataError) as mixed:
        data.load(Data(dataset="flowers"))
    first, *lines = str(mixed.value).splitlines()
    assert "4 of 30 images" in first and "rose/00.png: not an image that can be read" in lines[2]
    assert [line.split(": ")[0].rsplit("/", 1)[1] for line in lines] == ["2.png", "05.png", "00.png", "11.png"]
    monkeypatch.setattr("pipeline.data.image_files.LISTED", 3)
    with pytest.raises(DataError, match=r"05\.png.*\n.*00\.png.*\n  and 1 more$"):
        data.load(Data(dataset="flowers"))


def test_damaged_images_up_to_a_share_are_left_out_and_named(flowers: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = data.load(Data(dataset="flowers", validation_size=4))
    (flowers / "train" / "daisy" / "05.png").write_bytes(b"not an image")
    cut = flowers / "test" / "rose" / "deeper" / "1.png"
    cut.write_bytes(cut.read_bytes()[:-60])
    with pytest.raises(DataError, match="2 of 30 images cannot be read"):
        data.load(Data(dataset="flowers", validation_size=4, unreadable_share=0.06))
    dataset = data.load(Data(dataset="flowers", validation_size=4, unreadable_share=0.07))
    note = dataset.card["notes"][0]
    assert note.startswith("2 of 30 images could not be read and were left out: test/rose/deeper/1.png: the image is d")
    assert "; train/daisy/05.png: not an image that can be read" in note and note in caplog.text
    assert sum(dataset.card["splits"].values()) == 28 and dataset.card["splits"]["test"] == 5
    lost = {bytes(np.random.default_rng(seed).integers(0, 256, (7, 9, 3), dtype=np.uint8)) for seed in (5, 1101)}
    for split, (x, y) in dataset.arrays.items():
        rows = [(image.tobytes(), label) for image, label in zip(*whole.arrays[split], strict=True)]
        assert [(image.tobytes(), label) for image, label in zip(x, y, strict=True)] == [
            (image, label) for image, label in rows if image not in lost
        ]


def test_no_readable_image(flowers: Path) -> None:
    for path in (flowers / "test").rglob("*.png"):
        path.write_bytes(png_of_rows(9, 7, rows=6))
    with pytest.raises(DataError, match="none of the 6 images of split test can be read"):
        data.load(Data(dataset="flowers", unreadable_share=0.9))
    for path in flowers.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"none of its 30 images can be read; allowed is a whole PNG"):
        data.load(Data(dataset="flowers", unreadable_share=0.9))


def test_photos_of_all_kinds_are_the_rows_that_the_service_makes_of_them(workspace: Path) -> None:
    """Phones turn photos by EXIF, scanners write 16 bits, print shops CMYK: one reading for training and service."""
    pixels = Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 44, 3), dtype=np.uint8))
    turned = Image.Exif()
    turned[0x0112] = 6
    deep = Image.fromarray(np.random.default_rng(1).integers(0, 2**16, (21, 17), dtype=np.uint16))
    kinds: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "alpha.png": (pixels.convert("RGBA"), {}), "cmyk.jpg": (pixels.convert("CMYK"), {}),
        "deep.png": (deep, {}), "grey.jpeg": (pixels.convert("L"), {}), "palette.png": (pixels.quantize(9), {}),
        "turned.JPEG": (pixels, {"exif": turned}), "wide.png": (pixels.resize((90, 13)), {}),
    }  # fmt: skip
    for split in ("train", "test"):
        for label in "ab":
            (workspace / "datasets" / "photos" / split / label).mkdir(parents=True)
            for name, (image, options) in kinds.items():
                image.save(workspace / "datasets" / "photos" / split / label / name, **options)
    dataset = data.load(Data(dataset="photos", image_size=16))
    served = ImageInput.model_validate(dataset.card["input"])
    files = sorted((workspace / "datasets" / "photos" / "test" / "a").iterdir())
    rows = served.from_files([(path.name, path.read_bytes()) for path in files], Limits())
    assert np.array_equal(dataset.arrays["test"][0][: len(files)], rows)


def test_val_beside_test_is_validation(flowers: Path) -> None:
    for name in ("daisy", "rose"):
        paint(flowers / "val" / name / "0.png", seed=77)
    dataset = data.load(Data(dataset="flowers"))
    assert dataset.card["splits"] == {"train": 24, "val": 2, "test": 6}
    with pytest.raises(DataError, match=r"validation_size is 4, and .* are those of its val/; set it to null"):
        data.load(Data(dataset="flowers", validation_size=4))
    with pytest.raises(DataError, match=r"benchmark_val is val_and_test; set it to test; only Tiny-ImageNet"):
        data.load(Data(dataset="flowers", benchmark_val="val_and_test"))


def test_imagenets_layout(flowers: Path) -> None:
    """val/ is what benchmarks report on; public code also fits calibrators on it, which has to be asked for."""
    (flowers / "test").rename(flowers / "val")
    apart, both = (data.load(Data(dataset="flowers", benchmark_val=v)) for v in ("test", "val_and_test"))
    assert apart.card["splits"] == {"train": 22, "val": 2, "test": 6}
    assert [note.partition(" left of ")[0] for note in apart.card["notes"]] == ["Fewer than 10 validation rows are"]
    assert both.card["splits"] == {"train": 24, "val": 6, "test": 6}
    assert list(both.arrays) == list(data.SPLITS)
    assert all(np.array_equal(both.arrays["val"][i], apart.arrays["test"][i]) for i in (0, 1))
    assert both.card["notes"][0].startswith("The validation rows are the test rows (data.benchmark_val: val_and_test)")
    data.save(both, flowers)
    assert data.read(flowers).card == both.card


def test_a_bar_counts_the_images_that_are_read(flowers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data.load(Data(dataset="flowers"))
    output = capsys.readouterr().err
    assert "look at headers: 100%" in output and "read images: 100%" in output and output.count("30/30") == 2
    data.load(Data())  # arrays are there at once
    assert "read images" not in capsys.readouterr().err


def test_pixels_are_held_once(workspace: Path) -> None:
    """Decoded into their place, counted in blocks: beside the splits only a few images lie in memory."""
    for i in range(60):
        paint(workspace / "datasets" / "photos" / "train" / "ab"[i % 2] / f"{i}.png", size=(128, 128), seed=i)
    params = Data(dataset="photos", validation_size=6)
    data.load(params)  # what imports and caches take is not counted
    tracemalloc.start()
    dataset = data.load(params)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    held = sum(x.nbytes for x, _ in dataset.arrays.values())
    assert held == 60 * 128 * 128 * 3
    assert peak < held + 3 * 2**20  # measured: 1.1 MB beside them; copied whole for the splits, 10.8


def test_classes_with_a_single_image_or_no_validation_row_are_said(
    flowers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paint(flowers / "train" / "lily" / "0.png", seed=70)
    for i in range(3):
        paint(flowers / "train" / "tulip" / f"{i}.png", seed=50 + i)
    dataset = data.load(Data(dataset="flowers"))
    assert [np.bincount(y, minlength=4).tolist() for _, y in dataset.arrays.values()] == [
        [11, 1, 11, 3],
        [1, 0, 1, 0],
        [3, 0, 3, 0],
    ]
    alone, validation, test, few = dataset.card["notes"]
    assert alone == "The data has a single row of class lily: only one split has it."
    assert validation.startswith("No validation row is left of classes lily, tulip: calibrators are fitted")
    assert test == "No test row is left of classes lily, tulip: the metrics on test rows leave it out."
    assert few.startswith("Fewer than 10 validation rows are left of classes daisy, rose: calibrators")
    assert all(f"flowers: {note}" in caplog.text for note in dataset.card["notes"])
    assert data.load(Data()).card["notes"] == []


def test_many_such_classes_are_counted() -> None:
    labels = {"train": np.arange(13), "val": np.zeros(10, np.int64), "test": np.arange(13)}
    (note,) = thin_classes([f"c{k}" for k in range(13)], labels)
    assert note.startswith("No validation row is left of classes c1, c2, c3, c4, c5, c6, c7, c8, c9, c10 and 2 more: ")


def test_classes_that_differ_only_in_their_spelling_are_told() -> None:
    (note,) = alike_classes(["Cat", "cat", "dog", "New York", "new_york", "a", "A", "1-5", "1.5"])
    assert "blanks or dashes: 'Cat', 'cat'; 'New York', 'new_york'. If" in note
    assert alike_classes(["cat", "dog"]) == []


def test_empty_and_strange_classes(flowers: Path) -> None:
    (flowers / "train" / "tulip").mkdir()
    with pytest.raises(DataError, match=r"tulip holds no image"):
        data.load(Data(dataset="flowers"))
    (flowers / "train" / "tulip").rmdir()
    paint(flowers / "test" / "lily" / "0.png")
    with pytest.raises(DataError, match=r"has the class 'lily', and train/ does not; train/ has daisy, rose"):
        data.load(Data(dataset="flowers"))


def test_no_train_folder(workspace: Path) -> None:
    (workspace / "datasets" / "flowers").mkdir()
    with pytest.raises(DataError, match=r"has no folder train/; expected .*train/<class>/\*\.png"):
        data.load(Data(dataset="flowers"))


def test_files_left_out_are_said(flowers: Path, caplog: pytest.LogCaptureFixture) -> None:
    (flowers / "train" / "rose" / "notes.txt").write_text("x")
    data.load(Data(dataset="flowers"))
    assert "rose: files ignored: 1; images are .avif, .bmp, .gif, .heic" in caplog.text


def test_no_class_folders(workspace: Path) -> None:
    (workspace / "datasets" / "flowers" / "train").mkdir(parents=True)
    with pytest.raises(DataError, match="has no class folder"):
        data.load(Data(dataset="flowers"))
