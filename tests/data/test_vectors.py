"""Data sets of vectors: those that are embedded, and arrays and tables of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.preprocessing import StandardScaler

from pipeline import data
from pipeline.config import Data
from pipeline.data import DataError, vectors
from pipeline.data.texts.own import read_table as read_texts
from trueodds.errors import ConfigError

X = np.random.default_rng(0).normal(size=(40, 3))
NAMES = np.array(["age", "income", "rate: net"])
CSV = "age,species,income\n" + "".join(f"{k},{('cat', 'dog')[k % 2]},{'' if k == 7 else k / 8}\n" for k in range(30))


def own(path: Path, **changes: Any) -> Path:
    """A small .npz of vectors; `changes` replaces arrays, None drops them."""
    arrays: dict[str, Any] = {"x": X, "y": np.arange(40) % 2, "feature_names": NAMES, "class_names": ["no", "yes"]}
    np.savez(path, **{k: v for k, v in {**arrays, **changes}.items() if v is not None})
    return path


@pytest.mark.parametrize(
    ("name", "load", "splits"),
    [
        ("breast_cancer", load_breast_cancer, {"train": 284, "val": 95, "test": 190}),
        ("wine", load_wine, {"train": 88, "val": 30, "test": 60}),
    ],
)
def test_embedded_tables_are_scikit_learns(name: str, load: Any, splits: dict[str, int], workspace: Path) -> None:
    table, loaded = load(), data.load(Data(dataset=name))
    assert loaded.card["splits"] == splits
    assert loaded.card["input"] == {"kind": "vector", "features": list(map(str, table.feature_names)), "missing": False}
    assert loaded.card["classes"] == list(map(str, table.target_names))
    everything = [np.column_stack(loaded.arrays[split]) for split in data.SPLITS]
    rows = np.column_stack([table.data.astype(np.float32), table.target])
    assert sorted(map(tuple, np.concatenate(everything))) == sorted(map(tuple, rows))
    scaler = StandardScaler().fit(loaded.arrays["train"][0].astype(np.float64))
    assert loaded.card["normalise"]["mean"] == pytest.approx(scaler.mean_, rel=1e-6)
    assert loaded.card["normalise"]["std"] == pytest.approx(scaler.scale_, rel=1e-6)
    data.save(loaded, workspace / "a")
    assert data.read(workspace / "a").card == loaded.card


@pytest.mark.parametrize("keys", [("x", "y"), ("x_train", "y_train")])
def test_own_arrays(keys: tuple[str, str], workspace: Path) -> None:
    x = X.copy()
    x[3, 1] = np.nan
    arrays = {"x": None, "y": None} | dict(zip(keys, (x, np.arange(40) % 2), strict=True))
    own(workspace / "datasets" / "mine.npz", **arrays)
    loaded = data.load(Data(dataset="mine"))
    assert loaded.card["input"] == {"kind": "vector", "features": NAMES.tolist(), "missing": True}
    assert loaded.card["splits"] == {"train": 29, "val": 3, "test": 8}
    assert all(x.dtype == np.float32 for x, _ in loaded.arrays.values())
    train = loaded.arrays["train"][0].astype(np.float64)
    assert loaded.card["normalise"]["mean"] == pytest.approx(np.nanmean(train, axis=0), rel=1e-6)


def test_whole_numbers_without_names_and_a_column_of_one_value(workspace: Path) -> None:
    x = np.column_stack([np.arange(40), np.full(40, 7)])
    own(workspace / "datasets" / "mine.npz", x=x, feature_names=None)
    card = data.load(Data(dataset="mine")).card
    assert card["input"]["features"] == ["x0", "x1"] and card["normalise"]["mean"][1] == 7
    assert card["normalise"]["std"][1] == 1


def test_an_infinite_cell_is_named_by_its_row_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("a,b,label\n1,2,x\n1,inf,y\n")
    with pytest.raises(DataError, match=r"own\.csv, row 3, column 'b' is infinite; .* empty the cell"):
        vectors.read_table(tmp_path / "own.csv", "label")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.where(X > 2, np.inf, X)}, r"x_train at \[\d+, \d\] \('.*'\) is inf; allowed are finite numbers"),
        ({"x": X.astype(str)}, "x_train is <U"),
        ({"x": X[:0], "y": np.arange(0)}, r"x_train is float32 of shape \(0, 3\); expected images, .* or vectors"),
        ({"x": X[..., None]}, r"x_train is float64 of shape \(40, 3, 1\); expected images, uint8"),
        ({"feature_names": NAMES[:2]}, r"feature_names has 2 names, x_train has shape \(40, 3\)"),
        ({"feature_names": ["a", "b", "a"]}, "the feature 'a' stands twice"),
        ({"feature_names": ["a", "b", " c"]}, "the feature ' c' begins or ends with a space"),
        (
            {"x_test": X[:, :2], "y_test": np.arange(40) % 2},
            r"x_test is float64 of shape \(40, 2\); expected numbers \(rows, 3\)",
        ),
        ({"y": None}, "no array y_train; the file has x_train, .*"),
        ({"x": X * [1, np.nan, 1]}, "no training row has a value of the feature 'income'; leave the column out"),
        ({"y": np.arange(40) % 3}, r"y_train holds the label 2; allowed are 0\.\.1"),
    ],
)
def test_bad_arrays_are_named(changes: dict[str, Any], message: str, workspace: Path) -> None:
    own(workspace / "datasets" / "mine.npz", **changes)
    with pytest.raises(DataError, match=message):
        data.load(Data(dataset="mine"))


@pytest.mark.parametrize("place", ["file", "datasets"])
def test_a_table(place: str, workspace: Path) -> None:
    path = workspace / ("any.csv" if place == "file" else "datasets/pets.csv")
    path.write_text(CSV)
    settings: dict[str, Any] = {"path": str(path)} if place == "file" else {}
    loaded = data.load(Data(dataset="pets", label_column="species", **settings))
    assert loaded.card["classes"] == ["cat", "dog"]
    assert loaded.card["input"] == {"kind": "vector", "features": ["age", "income"], "missing": True}
    for x, y in loaded.arrays.values():
        assert np.array_equal(x[:, 0] % 2, y)
        assert np.array_equal(x[:, 1], np.where(x[:, 0] == 7, np.nan, x[:, 0] / 8), equal_nan=True)


def test_whole_numbers_as_labels_are_ordered_as_numbers(workspace: Path) -> None:
    rows = "".join(f"{k},{(10, 9, 2)[k % 3]}\n" for k in range(30))
    (workspace / "datasets" / "mine.csv").write_text(f"a,label\n{rows}")
    loaded = data.load(Data(dataset="mine"))
    assert loaded.card["classes"] == ["2", "9", "10"]
    assert all(np.array_equal(2 - x[:, 0] % 3, y) for x, y in loaded.arrays.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CSV, r"no column 'label'.*name the column of the labels: data\.label_column in params\.yaml"),
        (CSV.replace("species", "label").replace("\n8,", "\nold,"), "row 10, column 'age' holds 'old'"),
        (CSV.replace("species", "label").replace("\n8,cat", "\n8,"), "row 10 has no label"),
        (CSV.replace("species", "label").replace("age", ""), "column 1 of the header has no name; .*index=False"),
        (CSV.replace("species", "label").replace("dog", "cat"), "at least two different names"),
    ],
)
def test_bad_tables_are_named(text: str, message: str, workspace: Path) -> None:
    (workspace / "datasets" / "pets.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        data.load(Data(dataset="pets"))


def test_the_kind_is_known_before_the_rows_are_read(workspace: Path) -> None:
    datasets = workspace / "datasets"
    own(datasets / "arrays.npz")
    own(datasets / "pixels.npz", x=np.zeros((40, 4, 4, 1), np.uint8), feature_names=None)
    (datasets / "table.csv").write_text(CSV)
    (datasets / "folder" / "train").mkdir(parents=True)
    kinds = {
        name: data.kind_of(Data(dataset=name)) for name in ("digits", "wine", "arrays", "pixels", "table", "folder")
    }
    assert kinds == {
        "digits": "image", "wine": "vector", "arrays": "vector", "pixels": "image",
        "table": "vector", "folder": "image",
    }  # fmt: skip
    (datasets / "cut.npz").write_bytes((datasets / "arrays.npz").read_bytes()[:-300])
    with pytest.raises(DataError, match=r"cut\.npz is not a complete \.npz"):
        data.kind_of(Data(dataset="cut"))


def test_settings_that_mean_nothing_for_vectors_are_refused(workspace: Path) -> None:
    with pytest.raises(DataError, match=r"data\.image_size is 16, but wine holds vectors; set it to null"):
        data.load(Data(dataset="wine", image_size=16))
    (workspace / "rows.txt").write_text(CSV)
    with pytest.raises(
        DataError, match=r"data\.path is '.*rows\.txt'; allowed are \.npz, \.csv, \.parquet, and folders"
    ):
        data.load(Data(dataset="rows", path=str(workspace / "rows.txt")))


def test_a_positive_class_is_in_the_card_and_one_of_two() -> None:
    assert data.load(Data(dataset="breast_cancer", positive="malignant")).card["positive"] == "malignant"
    with pytest.raises(ConfigError, match="there are 3 classes; a positive class is one of two"):
        data.load(Data(dataset="wine", positive="class_0"))


def test_a_table_as_other_programs_write_it(tmp_path: Path) -> None:
    """Semicolons, quotes and blanks; labels of a column with a gap, which pandas writes as 1.0, are whole numbers."""
    rows = "".join(f'"{k}"; {k / 8}; {k % 2}.0 \r\n' for k in range(8))
    (tmp_path / "own.csv").write_text(f'"age";" sepal length ";"label"\r\n{rows}', newline="")
    raw = vectors.read_table(tmp_path / "own.csv", "label")
    assert raw.classes == ("0", "1") and raw.features == ("age", "sepal length")
    assert isinstance(raw.x_train, np.ndarray) and raw.x_train[3].tolist() == [3, 0.375]


def test_a_column_of_dates_is_no_feature(tmp_path: Path) -> None:
    """Issue: nanoseconds since 1970 were a feature."""
    moments = np.array(["2026-01-01", "2026-01-02"], "datetime64[ns]")
    parquet.write_table(pyarrow.table({"day": moments, "label": ["a", "b"]}), tmp_path / "own.parquet")
    with pytest.raises(DataError, match=r"the column 'day' holds times \(timestamp.*; allowed are numbers"):
        vectors.read_table(tmp_path / "own.parquet", "label")
    (tmp_path / "own.csv").write_text("day,label\n2026-01-01,a\n2026-01-02,b\n")
    with pytest.raises(DataError, match="row 2, column 'day' holds '2026-01-01'; allowed are numbers"):
        vectors.read_table(tmp_path / "own.csv", "label")


def test_a_quantity_is_no_label_and_the_last_columns_are_named(tmp_path: Path) -> None:
    """Issue: a price became the names of as many classes; of many columns the last one, the label, was not named."""
    path = tmp_path / "own.csv"
    path.write_text("size,price\n" + "".join(f"{k},{k * 1.25}\n" for k in range(30)))
    with pytest.raises(DataError, match=r"the column 'price' holds 30 different numbers in 30 rows: a quantity"):
        vectors.read_table(path, "price")
    path.write_text("size,stars\n" + "".join(f"{k},{k % 5}\n" for k in range(30)))
    assert vectors.read_table(path, "stars").classes == ("0", "1", "2", "3", "4")
    path.write_text(",".join(f"x{k}" for k in range(30)) + ",outcome\n")
    for door in (vectors.read_table, read_texts):
        with pytest.raises(DataError, match=r"has no column '.*'x7', \.\.\., 'x28', 'x29', 'outcome' \(31 in all\)"):
            door(path, "label")
