"""Tags of rows (`data.groups`): read from every kind of own data, kept beside their rows in the split, no feature."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline import data
from pipeline.config import Data
from pipeline.data import DataError, DataSet

RNG = np.random.default_rng(0)
TAGS = ["day", "night", "night", ""]


def write_csv(path: Path, lines: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)


def tag_of(row: int) -> str | None:
    return TAGS[row % 4] or None


def own_rows(loaded: DataSet, split: str) -> list[int]:
    """The number of each row in its file: the rows carry it as their first value."""
    return [int(x.flat[0]) for x in loaded.arrays[split][0]]


def check(loaded: DataSet, tmp_path: Path) -> None:
    """Every validation and test row has its own tag, also after the data set was written and read."""
    data.save(loaded, tmp_path / "out")
    for one in (loaded, data.read(tmp_path / "out")):
        assert [*one.tags] == ["val", "test"]
        for split, tags_N in one.tags.items():
            assert tags_N.tolist() == [tag_of(row) for row in own_rows(loaded, split)]


def numbers(path: Path, tags: list[Any], rows: int = 80) -> None:
    lines = [[k, round(RNG.normal(), 4), tags[k % len(tags)], "yn"[k // 2 % 2]] for k in range(rows)]
    write_csv(path, [["id", "b", "when", "label"], *lines])


def test_a_column_of_a_table_is_no_feature(workspace: Path, tmp_path: Path) -> None:
    numbers(workspace / "datasets/sums.csv", TAGS)
    loaded = data.load(Data(dataset="sums", groups="when", held_out_size=10))
    assert loaded.card["input"]["features"] == ["id", "b"]
    check(loaded, tmp_path)
    said = [note for note in loaded.card["notes"] if "group" in note]
    assert said[0] == "Groups for temperatures (data.groups: when): 2 in 6 validation rows."
    assert said[-1].endswith("of 16 test rows have no group.")


def test_rows_and_split_are_those_without_groups(workspace: Path) -> None:
    """Only the column is left out: rows, labels and split are the same."""
    lines = [[k, round(RNG.normal(), 4), k % 3, "yn"[k // 2 % 2]] for k in range(80)]
    write_csv(workspace / "datasets/sums.csv", [["id", "b", "site", "label"], *lines])
    plain, tagged = data.load(Data(dataset="sums")), data.load(Data(dataset="sums", groups="site"))
    assert plain.card["input"]["features"] == ["id", "b", "site"] and plain.tags == {}
    for split, (x, y) in plain.arrays.items():
        assert np.array_equal(x[:, :2], tagged.arrays[split][0]) and np.array_equal(y, tagged.arrays[split][1])
    assert tagged.tags["val"].tolist() == [str(int(site)) for site in plain.arrays["val"][0][:, 2]]
    data.save(plain, workspace / "out")
    assert not any("groups" in name for name in np.load(workspace / "out/arrays.npz").files)


def test_a_group_may_also_keep_rows_together(workspace: Path) -> None:
    lines = [[k, f"site{k // 5}", k % 2, "yn"[k // 2 % 2]] for k in range(80)]
    write_csv(workspace / "datasets/sums.csv", [["id", "site", "shift", "label"], *lines])
    loaded = data.load(Data(dataset="sums", groups="shift", group_column="site"))
    assert loaded.card["input"]["features"] == ["id"]
    same = data.load(Data(dataset="sums", groups="site", group_column="site", held_out_size=None))
    note = next(note for note in same.card["notes"] if "without validation rows" in note)
    assert note.startswith("15 test rows are of groups without validation rows, and get the temperature of all rows:")


def test_duplicates_leave_with_their_tags(workspace: Path, tmp_path: Path) -> None:
    lines = [[k, TAGS[k % 4], "yn"[k // 2 % 2]] for k in range(80)]
    lines += [[k, TAGS[k % 4], "yn"[k // 2 % 2]] for k in range(0, 80, 3)]
    write_csv(workspace / "datasets/sums.csv", [["id", "when", "label"], *lines])
    loaded = data.load(Data(dataset="sums", groups="when", duplicates="leave_out"))
    assert loaded.checks["duplicates"]["test"]["left_out"] > 2
    check(loaded, tmp_path)


def test_texts_of_a_table_and_of_a_folder(workspace: Path) -> None:
    texts = [f"{'good' if k // 2 % 2 else 'bad'} number{k}" for k in range(80)]
    lines = [[text, TAGS[k % 4], "yn"[k // 2 % 2]] for k, text in enumerate(texts)]
    write_csv(workspace / "datasets/said.csv", [["text", "when", "label"], *lines])
    listed: list[list[object]] = [["file", "when"]]
    for k, text in enumerate(texts):
        path = workspace / f"datasets/files/train/{'yn'[k // 2 % 2]}/{k:02}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if tag_of(k):  # a file without a line has no group
            listed.append([path.relative_to(workspace / "datasets/files").as_posix(), tag_of(k)])
    write_csv(workspace / "datasets/files/groups.csv", listed)
    for name in ("said", "files"):
        loaded = data.load(Data(dataset=name, max_tokens=4, groups="when"))
        plain = data.load(Data(dataset=name, max_tokens=4))
        assert loaded.card["splits"] == {"train": 58, "val": 6, "test": 16}
        assert all(np.array_equal(loaded.arrays[split][0], plain.arrays[split][0]) for split in ("train", "val"))
        number = {int(word.removeprefix("number")): code for word, code in _words(loaded).items() if "number" in word}
        known = {code: row for row, code in number.items()}
        rows = [next((known[code] for code in ids.tolist() if code in known), None) for ids in loaded.arrays["val"][0]]
        seen = [(row, tag) for row, tag in zip(rows, loaded.tags["val"], strict=True) if row is not None]
        assert all(tag == tag_of(row) for row, tag in seen)
        assert {*loaded.tags["test"].tolist()} == {"day", "night", None}


def _words(loaded: DataSet) -> dict[str, int]:
    from tokenizers import Tokenizer

    words: dict[str, int] = Tokenizer.from_str(loaded.tokenizer).get_vocab()
    return words


def test_arrays(workspace: Path, tmp_path: Path) -> None:
    x, y = np.stack([np.arange(80.0), RNG.normal(size=80)], axis=1), np.arange(80) // 2 % 2
    whole = {"x": x, "y": y, "class_names": np.array(["a", "b"]), "when": np.array([TAGS[k % 4] for k in range(80)])}
    np.savez("datasets/own.npz", **whole)  # type: ignore[arg-type]
    check(data.load(Data(dataset="own", groups="when")), tmp_path)
    parts = {
        "x_train": x[:60], "y_train": y[:60], "x_test": x[60:], "y_test": y[60:], "class_names": np.array(["a", "b"]),
        "when_test": np.array([TAGS[k % 4] for k in range(60, 80)]),
    }  # fmt: skip
    numbered = {"when_train_names": np.array(["night"]), "when_train": np.zeros(60, int)}
    np.savez("datasets/own.npz", **parts | numbered)
    loaded = data.load(Data(dataset="own", groups="when"))
    assert {*loaded.tags["val"]} == {"night"}
    assert loaded.tags["test"].tolist() == [tag_of(k) for k in own_rows(loaded, "test")]
    np.savez("datasets/own.npz", **parts | numbered | {"when_test": parts["when_test"][:3]})
    with pytest.raises(DataError, match=r"when_test has 3 entries for 20 rows; give one for each row \(data.groups\)"):
        data.load(Data(dataset="own", groups="when"))
    del parts["when_test"]
    np.savez("datasets/own.npz", **parts | numbered)
    with pytest.raises(DataError, match="has no array 'when_test' of groups; it holds x_train"):
        data.load(Data(dataset="own", groups="when"))
    np.savez("datasets/own.npz", **whole | {"when": np.arange(80) / 7})  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"when has shape .* and type float64; expected one text or whole number per"):
        data.load(Data(dataset="own", groups="when"))


def images(folder: Path, group: bool = False) -> list[str]:
    """Write 40 images whose pixels are the number of the image, and return their paths in the folder."""
    paths = []
    for k in range(40):
        inside = (tag_of(k) or "dusk") if group else ""
        path = folder / "train" / "ab"[k // 2 % 2] / inside / f"{k:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), k, np.uint8)).save(path)
        paths.append(path.relative_to(folder).as_posix())
    return paths


def test_images_with_a_table(workspace: Path, tmp_path: Path) -> None:
    """An image that cannot be read leaves with its tag."""
    paths = images(workspace / "datasets/seen")
    table = workspace / "datasets/seen/groups.csv"
    write_csv(table, [["file", "when"], *([path, TAGS[k % 4]] for k, path in reversed([*enumerate(paths)]))])
    check(data.load(Data(dataset="seen", groups="when")), tmp_path)
    loaded = data.load(Data(dataset="seen", groups="when"))
    for row in (own_rows(loaded, "test")[0], own_rows(loaded, "val")[1]):
        (workspace / "datasets/seen" / paths[row]).write_bytes(b"\x89PNG")
    fewer = data.load(Data(dataset="seen", groups="when", unreadable_share=0.2))
    assert [len(fewer.tags[split]) for split in ("val", "test")] == [3 - 1, 8 - 1]
    check(fewer, tmp_path)


def test_images_in_folders_of_groups(workspace: Path) -> None:
    images(workspace / "datasets/seen", group=True)
    loaded = data.load(Data(dataset="seen", groups="folder"))
    for split, tags_N in loaded.tags.items():
        assert tags_N.tolist() == [tag_of(row) or "dusk" for row in own_rows(loaded, split)]


def test_validation_rows_that_are_the_test_rows(workspace: Path) -> None:
    paths = images(workspace / "datasets/seen")
    (workspace / "datasets/seen/val").mkdir()
    for name in "ab":
        (workspace / f"datasets/seen/train/{name}").rename(workspace / f"datasets/seen/val/{name}")
    paths = [path.replace("train/", "val/") for path in paths] + images(workspace / "datasets/seen")
    table = workspace / "datasets/seen/groups.csv"
    write_csv(table, [["file", "when"], *([path, TAGS[k % 4]] for k, path in enumerate(paths))])
    both = data.load(Data(dataset="seen", groups="when", benchmark_val="val_and_test"))
    assert both.tags["val"].tolist() == both.tags["test"].tolist() == [tag_of(row) for row in own_rows(both, "test")]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (None, r"has no table groups.csv with the groups of its files \(data.groups: when\); add one with the columns"),
        ([["path", "when"]], "has no column 'file'; it has 'path', 'when'"),
        ([["file", "wen"]], "has no column 'when'; it has 'file', 'wen'"),
        ([["file", "when"], ["a/00.png", "day"]], r"row 2 names the file 'a/00.png', which is not one of the rows; .*"
         r"such as train/a/00.png"),
        ([["file", "when"], *[["train/a/00.png", "day"]] * 2], "row 3 names the file 'train/a/00.png' again"),
        ([["file", "when"], ["train/a/00.png", ""]], "when is empty in every row; .* or leave data.groups out"),
    ],
)  # fmt: skip
def test_tables_beside_files_that_are_refused(workspace: Path, lines: list[list[object]] | None, message: str) -> None:
    images(workspace / "datasets/seen")
    if lines is not None:
        write_csv(workspace / "datasets/seen/groups.csv", lines)
    with pytest.raises(DataError, match=message):
        data.load(Data(dataset="seen", groups="when"))


def test_refusals(workspace: Path) -> None:
    numbers(workspace / "datasets/sums.csv", TAGS)
    with pytest.raises(DataError, match=r"the column of groups, 'wen', is not one of .*; name another: data.groups. "
                                        "Did you mean 'when'"):  # fmt: skip
        data.load(Data(dataset="sums", groups="wen"))
    with pytest.raises(DataError, match="the column of groups, 'label', holds the labels"):
        data.load(Data(dataset="sums", groups="label"))
    numbers(workspace / "datasets/none.csv", [""])
    with pytest.raises(DataError, match="when is empty in every row"):
        data.load(Data(dataset="none", groups="when"))
    with pytest.raises(
        DataError, match=r"data.groups is 'when', and the data set digits has no groups; set it to null"
    ):
        data.load(Data(groups="when"))
    images(workspace / "datasets/seen")
    with pytest.raises(DataError, match=r"train/a/\d+.png is not in the folder of a group \(data.groups: folder\)"):
        data.load(Data(dataset="seen", groups="folder"))


def test_tags_of_other_rows_are_noticed(workspace: Path) -> None:
    numbers(workspace / "datasets/sums.csv", TAGS)
    data.save(data.load(Data(dataset="sums", groups="when")), workspace / "out")
    with np.load(workspace / "out/arrays.npz") as file:
        arrays = dict(file)
    np.savez("out/arrays.npz", **arrays | {"groups_val": arrays["groups_val"][::-1]})
    with pytest.raises(DataError, match=r"does not hold the arrays of .*/card.json"):
        data.read(workspace / "out")
    np.savez("out/arrays.npz", **arrays | {"groups_val": arrays["groups_val"][1:]})
    with pytest.raises(DataError, match=r"groups_val must hold 6 places .*; run: dvc repro fetch"):
        data.read(workspace / "out")
