"""Tiny-ImageNet's official layout, painted small, and through the real download code from a server on this machine."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline import data
from pipeline.config import Data
from pipeline.data import DataError, tiny_imagenet
from tests.local_server import LocalServer

WNIDS = ("n01443537", "n02012849", "n03126707")
WORDS = "n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\nn02012849\tcrane\nn03126707\tcrane\n"


def paint(path: Path, seed: int) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, "PNG")  # exact; the reader looks at the content
    return pixels.tobytes()


def official(root: Path) -> Path:
    """Three classes with 6 training images and one val image each, and a test image that has no label."""
    for label, wnid in enumerate(WNIDS):
        for number in range(6):
            paint(root / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", 10 * label + number)
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t7\t7\n")
    lines = []
    for number, label in enumerate((2, 0, 1)):
        paint(root / "val" / "images" / f"val_{number}.JPEG", 100 + number)
        lines.append(f"val_{number}.JPEG\t{WNIDS[label]}\t0\t0\t7\t7\n")
    (root / "val" / "val_annotations.txt").write_text("".join(lines))
    paint(root / "test" / "images" / "test_0.JPEG", 200)
    (root / "wnids.txt").write_text("\n".join(reversed(WNIDS)))
    (root / "words.txt").write_text(WORDS)
    return root


@pytest.fixture
def served(tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server of the archive, with its address and checksum in place of the official ones; gives the served file."""
    official(tmp_path / "made" / tiny_imagenet.NAME)
    folder = tmp_path / "served"
    archive = Path(shutil.make_archive(str(folder / tiny_imagenet.NAME), "zip", tmp_path / "made"))
    monkeypatch.setattr(tiny_imagenet, "MD5", hashlib.md5(archive.read_bytes()).hexdigest())
    with LocalServer().serve(partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        monkeypatch.setattr(tiny_imagenet, "URL", f"{server.url}/{archive.name}")
        yield archive


def test_a_folder_in_the_official_layout(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    official(workspace / "mirror" / tiny_imagenet.NAME)
    monkeypatch.setenv("TRUEODDS_DATA", str(workspace / "mirror"))
    dataset = data.load(Data(dataset="tiny-imagenet-200", validation_size=3))
    assert dataset.card["classes"] == ["goldfish", "crane (n02012849)", "crane (n03126707)"]
    assert dataset.card["splits"] == {"train": 15, "val": 3, "test": 3}
    x, y = dataset.arrays["test"]
    assert y.tolist() == [2, 0, 1]
    painted = [np.random.default_rng(100 + n).integers(0, 256, (8, 8, 3), dtype=np.uint8) for n in range(3)]
    assert np.array_equal(x, painted)
    for image, label in zip(*dataset.arrays["train"], strict=True):
        seeds = [10 * label + n for n in range(6)]
        assert any(np.array_equal(image, np.random.default_rng(s).integers(0, 256, (8, 8, 3), np.uint8)) for s in seeds)
    papers = data.load(Data(dataset="tiny-imagenet-200", benchmark_val="val_and_test"))
    assert papers.card["splits"] == {"train": 18, "val": 3, "test": 3}
    assert np.array_equal(papers.arrays["val"][0], x) and "val_and_test" in papers.card["notes"][0]


def test_the_download(served: Path, workspace: Path) -> None:
    settings = Data(dataset="tiny-imagenet-200", validation_size=3)
    whole = served.read_bytes()
    served.write_bytes(whole[:-9])
    with pytest.raises(DataError, match=r"the download from http.* is damaged .* was removed\. Run again"):
        data.load(settings)
    served.unlink()
    with pytest.raises(DataError, match=r"could not be downloaded .*TRUEODDS_DATA=<folder>"):
        data.load(settings)
    served.write_bytes(whole)
    assert data.load(settings).card["splits"]["train"] == 15
    served.unlink()
    assert data.load(settings).card["splits"]["train"] == 15, "it is fetched once"


def test_a_folder_that_is_not_whole_is_refused(workspace: Path) -> None:
    root = official(workspace / "datasets" / "birds")
    annotations = root / "val" / "val_annotations.txt"
    annotations.write_text(annotations.read_text() + "val_3.JPEG\tn9\t0\t0\t7\t7\n")
    with pytest.raises(DataError, match=r"val_annotations\.txt, line 4 is 'val_3.*; expected an image's file name"):
        data.load(Data(dataset="birds"))
    annotations.write_text("")
    with pytest.raises(DataError, match="is empty"):
        data.load(Data(dataset="birds"))
    shutil.rmtree(root / "train" / WNIDS[1] / "images")
    with pytest.raises(DataError, match=r"n02012849/images holds no image; add images or remove the class"):
        data.load(Data(dataset="birds"))


def test_a_val_image_that_is_missing_is_named(workspace: Path) -> None:
    root = official(workspace / "datasets" / "birds")
    (root / "val" / "images" / "val_1.JPEG").unlink()
    with pytest.raises(DataError, match=r"1 of 21 images cannot be read.*\n  val/images/val_1\.JPEG: .*No such file"):
        data.load(Data(dataset="birds", validation_size=3))
