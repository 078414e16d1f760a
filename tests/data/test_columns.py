"""Columns that tell nothing or too much, and classes with few validation rows."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from pipeline import data
from pipeline.config import Data
from pipeline.data.splitting.checks import column_notes, telling_columns

RNG = np.random.default_rng(0)
N = 60
LABELS = RNG.integers(0, 3, N)
HARMLESS = {
    "noise": RNG.normal(size=N),
    "shuffled times": RNG.permutation(N) * 2.0,
    "half a label": np.minimum(LABELS, 1),
    "sorted groups": np.sort(RNG.integers(0, 5, N)),
    "rounded": RNG.normal(size=N).round(),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_usual_columns_are_not_named(name: str) -> None:
    found = telling_columns(HARMLESS[name][:, None].astype(np.float32), LABELS, [name])
    assert not any(found.values()) and not column_notes(found)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("constant", np.full(N, 3.0)),
        ("constant", np.full(N, np.nan)),
        ("row_number", np.arange(N)),
        ("ordered", -np.arange(N) * 7.0),
        ("row_number", RNG.permutation(N) + 5),
        ("ordered", np.cumsum(RNG.exponential(size=N))),
        ("ordered", 1.0e9 + np.arange(N) * 50),  # float32 has one in 64 here
        ("repeats_label", LABELS),
        ("repeats_label", np.array([7.0, np.nan, -1])[LABELS]),
    ],
)
def test_telling_columns_are_named(kind: str, column: npt.NDArray[np.float64]) -> None:
    found = telling_columns(np.stack([column, HARMLESS["noise"]], axis=1).astype(np.float32), LABELS, ["it", "noise"])
    assert {name: columns for name, columns in found.items() if columns} == {kind: ["it"]}
    (note,) = column_notes(found)
    assert ": 'it'" in note


def test_a_few_rows_are_in_some_order_by_chance() -> None:
    assert telling_columns(np.arange(4, dtype=np.float32)[:, None], LABELS[:4], ["x"])["row_number"] == []


def test_the_card_says_it(workspace: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Path("datasets/own.csv").open("w", newline="") as file:
        rows = [[k, 1, x, "yn"[k % 2], "yn"[k % 2] == "y"] for k, x in enumerate(RNG.normal(size=120))]
        csv.writer(file).writerows([["id", "unit", "x", "label", "was"], *[[*row[:4], int(row[4])] for row in rows]])
    loaded = data.load(Data(dataset="own"))
    assert loaded.checks["columns"] == {
        "constant": ["unit"], "row_number": ["id"], "ordered": [], "repeats_label": ["was"],
    }  # fmt: skip
    said = " ".join(loaded.card["notes"])
    assert "one value in every row" in said and "that number the rows: 'id'." in said
    assert "repeat the label, one value for each class: 'was'." in said and "own: Columns " in caplog.text
    assert "Fewer than 10 validation rows are left of classes n, y:" in said
    enough = " ".join(data.load(Data(dataset="own", validation_size=20)).card["notes"])
    assert "Fewer than" not in enough
