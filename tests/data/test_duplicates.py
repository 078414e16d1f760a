"""Rows in two parts of a split: found in every kind of data, counted, said, left out on request."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipeline import data, stages
from pipeline.config import Data, Params
from pipeline.data import DataError
from pipeline.data.raw import Rows, TextRows, Tree, TreeRows
from pipeline.data.splitting import duplicates, near
from pipeline.data.splitting.duplicates import find

RNG = np.random.default_rng(0)


def parts_of(sizes: list[int], values: int, seed: int) -> dict[str, tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {
        part: (rng.integers(0, values, (n, 1, 2, 1), dtype=np.uint8), rng.integers(0, 3, n))
        for part, n in zip(duplicates.ORDER, sizes, strict=True)
    }


@settings(max_examples=50)
@given(st.lists(st.integers(1, 12), min_size=4, max_size=4), st.integers(2, 5), st.integers(0, 99))
def test_counts_are_those_of_comparing_all_pairs(sizes: list[int], values: int, seed: int) -> None:
    parts = parts_of(sizes, values, seed)
    rows = {
        part: [(image.tolist(), int(y)) for image, y in zip(*arrays, strict=True)] for part, arrays in parts.items()
    }
    found = find({part: x for part, (x, _) in parts.items()}, {part: y for part, (_, y) in parts.items()})
    for k, part in enumerate(duplicates.ORDER):
        for other in duplicates.ORDER[:k]:
            there = [[y for image, y in rows[other] if image == mine] for mine, _ in rows[part]]
            differs = [any(y != own for y in labels) for labels, (_, own) in zip(there, rows[part], strict=True)]
            assert found.same[part][other].is_there_N.tolist() == [bool(labels) for labels in there]
            assert found.same[part][other].other_label_N.tolist() == differs
    train = rows["train"]
    assert found.several_labels == sum(any(a == image and b != y for a, b in train) for image, y in train)
    assert found.repeats == sum(any(a == image for a, _ in train[:k]) for k, (image, _) in enumerate(train))


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[0.0, np.nan], [-0.0, -np.nan], [0.0, 1.0]], np.float32),
        np.array([[[[7]]], [[[7]]], [[[8]]]], np.uint8),
        TextRows(["A word, that nobody knows", "a word that nobody knows!", "a word that somebody knows"]),
        TreeRows(
            [
                Tree([word, "b", None], [-1, -1, 0], [-1, -1, 1], [1, 0, top])
                for word, top in [("a", 0), ("a", 1), ("c", 1)]
            ],
            (),
        ),
    ],
    ids=lambda rows: type(rows).__name__,
)
def test_what_rows_are_equal(rows: Rows) -> None:
    """One NaN and one 0; unknown words are words; a tree without the labels of its nodes."""
    first, second, third = duplicates.digests(rows).tolist()
    assert first == second != third


def table(path: Path, rows: list[list[object]], header: Sequence[object] = ("a", "b", "label")) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([[*header], *rows])


def fives() -> list[list[object]]:
    """Forty different rows, each five times."""
    return [[round(x, 6), k % 7, "yn"[k % 2]] for k, x in enumerate(RNG.normal(size=40)) for _ in range(5)]


def test_a_table_whose_rows_stand_five_times(workspace: Path) -> None:
    table(workspace / "datasets/five.csv", fives())
    kept = data.load(Data(dataset="five"))
    counts = kept.checks["duplicates"]["test"]
    assert counts["rows"] == 40 and counts["in_train"]["rows"] > 35 and counts["in_train"]["other_label"] == 0
    assert f"{counts['in_train']['rows']} of 40 test rows, 0 of them with another label" in " ".join(kept.card["notes"])
    assert duplicates.REMEDY in kept.card["notes"] and kept.card["splits"]["test"] == 40
    with pytest.raises(
        DataError, match=r"five: only 0 of 16 validation rows are not duplicates .* allowed are at least 2"
    ):
        data.load(Data(dataset="five", duplicates="leave_out"))


def test_a_column_that_numbers_the_rows_hides_no_duplicate(workspace: Path) -> None:
    rows = fives()
    table(workspace / "datasets/plain.csv", rows)
    table(workspace / "datasets/numbered.csv", [[k, *row] for k, row in enumerate(rows)], ["row", "a", "b", "label"])
    plain, numbered = (data.load(Data(dataset=name)).checks["duplicates"] for name in ("plain", "numbered"))
    assert plain == numbered and plain["test"]["in_train"]["rows"] > 35


def test_duplicates_are_left_out_on_request(workspace: Path) -> None:
    x = RNG.normal(size=(60, 3))
    y = np.arange(60) % 2
    x_test, y_test = np.concatenate([x[:5], RNG.normal(size=(20, 3))]), np.arange(25) % 2
    y_test[0] = 1 - y_test[0]
    names = np.array(["n", "p"])
    np.savez("datasets/own.npz", x_train=x, y_train=y, x_test=x_test, y_test=y_test, class_names=names)
    kept = data.load(Data(dataset="own"))
    clean = data.load(Data(dataset="own", duplicates="leave_out"))
    assert kept.card["splits"]["test"] == 25 and clean.card["splits"]["test"] == 20
    assert np.array_equal(clean.arrays["test"][0], x_test[5:].astype(np.float32))
    assert np.array_equal(clean.arrays["train"][0], kept.arrays["train"][0])
    entry = clean.checks["duplicates"]["test"]
    assert entry["duplicates"] == entry["left_out"] == 5
    assert entry["in_train"]["rows"] + entry["in_val"]["rows"] == 5
    assert entry["in_train"]["other_label"] + entry["in_val"]["other_label"] == 1
    left_out = "Left out as duplicates (data.duplicates: leave_out): 5; 20 test rows are left."
    assert left_out in clean.card["notes"] and duplicates.REMEDY not in clean.card["notes"]


def test_one_image_under_two_classes(workspace: Path) -> None:
    """Pixels are compared, not files: a PNG and another of the same pixels, written otherwise."""
    for k in range(24):
        for split, rows in (("train", 24), ("test", 6)):
            if k < rows:
                folder = workspace / f"datasets/seen/{split}/{'ab'[k % 2]}"
                folder.mkdir(parents=True, exist_ok=True)
                pixels = RNG.integers(0, 256, (8, 8), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{k}.png")
    source = workspace / "datasets/seen/train/a/0.png"
    Image.open(source).save(workspace / "datasets/seen/test/b/copy.png", compress_level=0)
    Image.open(source).save(workspace / "datasets/seen/train/b/copy.png", compress_level=0)
    loaded = data.load(Data(dataset="seen", validation_size=2))
    found = loaded.checks["duplicates"]
    assert found["test"]["duplicates"] == 1
    assert max(found["test"][key]["other_label"] for key in ("in_train", "in_val")) == 1
    assert found["train"]["several_labels"] == 2 or found["val"]["in_train"] == {"rows": 1, "other_label": 1}


def test_equal_texts_and_trees(workspace: Path) -> None:
    with (workspace / "datasets/said.csv").open("w", newline="") as file:
        words = [[f"word{k} again", "yn"[k % 2]] for k in range(40)]
        csv.writer(file).writerows([["text", "label"], *words, *([["the same text", "y"]] * 20)])
    said = data.load(Data(dataset="said", max_tokens=8))
    assert said.checks["duplicates"]["test"]["in_train"] == {"rows": 3, "other_label": 0}
    folder = workspace / "datasets/sst"
    folder.mkdir()
    lines = {"train": "(3 (2 so) (4 good))\n(1 (2 so) (0 bad))\n", "dev": "(3 (2 so) (4 fine))\n"}
    for name, trees in {**lines, "test": "(1 (2 so) (2 good))\n(3 (2 so) (3 bad))\n"}.items():
        (folder / f"{name}.txt").write_text(trees)
    trees_of = data.load(Data(dataset="sst-binary")).checks["duplicates"]["test"]
    assert trees_of["in_train"] == {"rows": 2, "other_label": 2}


def photo(seed: int) -> Any:
    """Smooth, as photos are."""
    noise = np.random.default_rng(seed).normal(size=(8, 8, 3))
    smooth = [np.asarray(Image.fromarray(noise[..., k].astype(np.float32)).resize((48, 48), 3)) for k in range(3)]
    return (128 + 50 * np.stack(smooth, axis=-1)).clip(0, 255).astype(np.uint8)


def test_a_perceptual_hash_knows_an_image_again() -> None:
    photos = np.stack([photo(seed) for seed in range(40)])
    paler = (0.8 * photos + 30).round().astype(np.uint8)
    smaller = np.stack([np.asarray(Image.fromarray(image).resize((24, 24))) for image in photos])
    hashes = near.hashes(photos)
    for changed in (paler, smaller):
        place, bits = near.nearest(near.hashes(changed), hashes)
        assert place.tolist() == list(range(40)) and bits.max() <= 4
    apart = [(int(a) ^ int(b)).bit_count() for k, a in enumerate(hashes) for b in hashes[:k]]
    assert min(apart) > 8 and abs(np.mean(apart) - 32) < 2
    assert near.nearest(hashes[:1], hashes[1:])[1][0] == min((int(hashes[0]) ^ int(b)).bit_count() for b in hashes[1:])


def test_the_hash_is_that_of_scipys_transform() -> None:
    from scipy.fft import dctn

    image = RNG.integers(0, 256, (1, 32, 32, 3), dtype=np.uint8)
    low = dctn(image[0] @ near.GREY[3])[:8, :8].ravel()
    assert near.hashes(image).view(np.uint8).tolist() == np.packbits(low > np.median(low)).tolist()


def test_near_duplicates_are_counted_and_left_out(workspace: Path) -> None:
    photos = np.stack([photo(seed) for seed in range(30)])
    tests = np.stack([photo(seed) for seed in range(100, 112)])
    tests[:3] = (0.8 * photos[:3] + 30).round()
    tests[3] = photos[3]
    labels = np.arange(30) % 2
    own = {"x_train": photos, "y_train": labels, "x_test": tests, "y_test": labels[:12], "class_names": ["a", "b"]}
    np.savez("datasets/seen.npz", **{name: np.asarray(array) for name, array in own.items()})  # type: ignore[arg-type]
    asked = Data(dataset="seen", near_duplicates=4, duplicates="leave_out")
    assert data.load(Data(dataset="seen")).checks["duplicates"]["test"]["duplicates"] == 1
    clean = data.load(asked)
    entry = clean.checks["duplicates"]["test"]
    assert entry["left_out"] == 4 and entry["near_train"]["rows"] + entry["near_val"]["rows"] == 3
    assert clean.card["splits"]["test"] == 8 and "near duplicates (distance 4) of" in " ".join(clean.card["notes"])
    with pytest.raises(DataError, match=r"data.near_duplicates is 4, which needs images, and wine holds vectors"):
        data.load(Data(dataset="wine", near_duplicates=4))


def test_fetch_says_and_writes_the_counts(workspace: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stages.fetch(Params())
    assert "digits: duplicates of earlier parts: 0 of 300 validation rows, 0 of 600 test rows" in caplog.text
    table = json.loads((stages.DATA / "checks.json").read_text())
    nothing = {"rows": 0, "other_label": 0}
    assert table["duplicates"] == {
        "train": {"rows": 897, "repeated": 0, "several_labels": 0},
        "val": {"rows": 300, "duplicates": 0, "left_out": 0, "in_train": nothing},
        "test": {"rows": 600, "duplicates": 0, "left_out": 0, "in_train": nothing, "in_val": nothing},
    }
