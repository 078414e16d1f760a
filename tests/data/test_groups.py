"""Rows that belong together stay on one side of every split."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pipeline import data
from pipeline.config import Data
from pipeline.data import DataError
from pipeline.data.splitting.groups import draw

RNG = np.random.default_rng(0)


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3), st.booleans()), min_size=2, max_size=40),
    st.integers(1, 4), st.integers(0, 5), st.data(),
)  # fmt: skip
def test_groups_stay_whole(made: list[tuple[int, int, bool]], leave: int, seed: int, data: st.DataObject) -> None:
    groups = np.repeat(np.arange(len(made)), [rows for rows, _, _ in made])
    labels = np.concatenate([[k, *([(k + mixed) % 4] * (rows - 1))] for rows, k, mixed in made]).astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(groups))
    groups, labels = groups[order].astype(np.int64), labels[order]
    if len(groups) < 2:
        return
    size = data.draw(st.integers(1, len(groups) - 1))
    if len(made) <= leave:
        with pytest.raises(ValueError, match=f"{len(made)} groups? of rows for {leave + 1} parts"):
            draw(labels, groups, size, seed, leave=leave)
        return
    drawn, rest = draw(labels, groups, size, seed, leave=leave)
    assert sorted([*drawn, *rest]) == list(range(len(groups)))
    of_drawn, of_rest = set(groups[drawn]), set(groups[rest])
    assert not of_drawn & of_rest and of_drawn and len(of_rest) >= leave
    if len(of_drawn) > 1 and len(of_rest) > leave:
        assert abs(len(drawn) - size) <= max(rows for rows, _, _ in made) / 2


def test_classes_keep_their_shares() -> None:
    """900 rows of one class and 100 of the other, in groups of 5: a fifth of each is drawn."""
    labels = np.repeat([0, 1], [900, 100])
    drawn, _ = draw(labels, np.arange(1000) // 5, 200, seed=3)
    assert np.bincount(labels[drawn]).tolist() == [180, 20]


def test_groups_of_one_row_give_the_exact_size() -> None:
    drawn, _ = draw(RNG.integers(0, 7, 501), np.arange(501), 77, seed=0)
    assert len(drawn) == 77


def table(path: Path, column: list[object], label: str = "label") -> None:
    with path.open("w", newline="") as file:
        rows = [
            [round(x, 6), group, "yn"[k % 2]]
            for k, (x, group) in enumerate(zip(RNG.normal(size=90), column, strict=True))
        ]
        csv.writer(file).writerows([["a", "patient", label], *rows])


def test_a_column_of_a_table(workspace: Path) -> None:
    """Rows are told apart by their feature."""
    column = [f"p{k // 3}" for k in range(90)]
    table(workspace / "datasets/ill.csv", [*column])
    with (workspace / "datasets/ill.csv").open(newline="") as file:
        group_of = {np.float32(row["a"]): row["patient"] for row in csv.DictReader(file)}
    loaded = data.load(Data(dataset="ill", group_column="patient", held_out_size=9))
    assert loaded.card["input"]["features"] == ["a"]
    of = {part: {group_of[x[0]] for x in rows} for part, (rows, _) in loaded.arrays.items()}
    assert len(of) == 4 and sum(map(len, of.values())) == len(set().union(*of.values())) == 30
    assert loaded.card["splits"] == {"train": 57, "val": 6, "test": 18, "held_out": 9}
    assert loaded.checks["groups"]["test"] == {"groups": 6, "shared_rows": 0}
    assert loaded.card["notes"][0].startswith(
        "Groups of rows (data.group_column: patient): 19 in train, 2 in val, 6 in"
    )
    with pytest.raises(DataError, match="column 'patient' holds 'p0'"):
        data.load(Data(dataset="ill"))


def test_a_column_of_texts(workspace: Path) -> None:
    with (workspace / "datasets/said.csv").open("w", newline="") as file:
        rows = [[f"word{k} of it", k // 2, "yn"[k % 4 // 2]] for k in range(60)]
        csv.writer(file).writerows([["text", "author", "label"], *rows])
    loaded = data.load(Data(dataset="said", max_tokens=4, group_column="author"))
    assert loaded.card["splits"] == {"train": 44, "val": 4, "test": 12}
    assert {entry["shared_rows"] for entry in loaded.checks["groups"].values()} == {0}


def test_given_test_rows_that_share_groups_are_said(workspace: Path) -> None:
    arrays = {
        "x_train": RNG.normal(size=(40, 2)), "y_train": np.arange(40) % 2, "class_names": np.array(["a", "b"]),
        "x_test": RNG.normal(size=(10, 2)), "y_test": np.arange(10) % 2,
        "who_train": np.arange(40) // 2, "who_test": np.repeat([100, 101], 5),
    }  # fmt: skip
    np.savez("datasets/own.npz", **arrays)  # type: ignore[arg-type]
    assert len(data.load(Data(dataset="own", group_column="who")).card["notes"]) == 1 + 1  # and few rows of a class
    np.savez("datasets/own.npz", **arrays | {"who_test": np.repeat([100, *set(range(20))], [3, *[1] * 20])[:10]})  # type: ignore[arg-type]
    shared = data.load(Data(dataset="own", group_column="who"))
    assert shared.checks["groups"]["test"]["shared_rows"] > 3
    assert any("of 10 test rows are in groups that also have training rows." in note for note in shared.card["notes"])
    del arrays["who_test"]
    np.savez("datasets/own.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"data.group_column is 'who', and .* has no array who_test"):
        data.load(Data(dataset="own", group_column="who"))


def test_folders_of_an_image_folder(workspace: Path) -> None:
    for k in range(40):
        folder = workspace / f"datasets/seen/train/{'ab'[k % 2]}/person{k // 4}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 6 * k, np.uint8)).save(folder / f"{k}.png")
    loaded = data.load(Data(dataset="seen", group_column="folder"))
    people = {part: {int(x[0, 0, 0]) // 24 for x in rows} for part, (rows, _) in loaded.arrays.items()}
    assert sum(map(len, people.values())) == 10 and loaded.card["splits"] == {"train": 28, "val": 4, "test": 8}
    with pytest.raises(DataError, match=r"data.group_column is 'person', and .* allowed is 'folder'"):
        data.load(Data(dataset="seen", group_column="person"))
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(workspace / "datasets/seen/train/a/alone.png")
    with pytest.raises(DataError, match=r"alone.png is not in the folder of a group"):
        data.load(Data(dataset="seen", group_column="folder"))


def test_refusals(workspace: Path) -> None:
    table(workspace / "datasets/few.csv", [k // 45 for k in range(90)])
    with pytest.raises(
        DataError,
        match=r"few: 2 groups of rows for 3 parts; .* name a column with more groups",
    ):
        data.load(Data(dataset="few", group_column="patient"))
    for column in ("patien", "label"):
        with pytest.raises(
            DataError, match=f"data.group_column is '{column}', and .* has the columns 'a', 'patient', 'label'"
        ):
            data.load(Data(dataset="few", group_column=column))
    table(workspace / "datasets/gaps.csv", ["p1", "", *["p2"] * 88])
    with pytest.raises(DataError, match=r"gaps.csv, row 3 has no patient \(data.group_column\)"):
        data.load(Data(dataset="gaps", group_column="patient"))
    with pytest.raises(DataError, match=r"data.group_column is 'patient', and the built-in data set digits"):
        data.load(Data(group_column="patient"))
