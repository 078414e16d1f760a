"""Parquet and CSV files with the numbers of all classes in one column of lists."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from trueodds.files import FileError
from trueodds.importing.calibrate import read_logits
from trueodds.reports.table.reading import Form, read

NAMES = ("cat", "dog", "hare")
_rng = np.random.default_rng(5)
P_NC = _rng.dirichlet([1, 1, 1], 60)
LABEL_N = np.array([_rng.choice(3, p=p) for p in P_NC])
TEXTS = np.array(NAMES)[LABEL_N]


def table(folder: Path, **columns: Any) -> Path:
    path = folder / "answers.parquet"
    parquet.write_table(pa.table(columns), path, row_group_size=25)
    return path


def csv_table(folder: Path, **columns: Any) -> Path:
    path = folder / "answers.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])
    return path


def wide(folder: Path) -> Path:
    """The same answers with a column for each class."""
    path = folder / "wide.parquet"
    parquet.write_table(pa.table({**dict(zip(NAMES, P_NC.T, strict=True)), "label": TEXTS}), path)
    return path


LISTS = {
    "list": pa.array(P_NC.tolist()),
    "large": pa.array(P_NC.tolist(), pa.large_list(pa.float64())),
    "fixed": pa.array(P_NC.tolist(), pa.list_(pa.float64(), 3)),
    "sliced": pa.concat_arrays([pa.array([[1.0, 0, 0]]), pa.array(P_NC.tolist())]).slice(1),
}


@pytest.mark.parametrize("column", LISTS.values(), ids=LISTS)
def test_lists_are_read_as_columns_are(tmp_path: Path, column: Any) -> None:
    path = table(tmp_path, customer=np.arange(60), probabilities=column, label=TEXTS)
    found, expected = read(path, Form(classes=NAMES)), read(wide(tmp_path))
    assert found.probabilities_NC is not None and found.predicted is not None and expected.predicted is not None
    np.testing.assert_array_equal(found.probabilities_NC, P_NC)
    np.testing.assert_array_equal(found.correct_N, expected.correct_N)
    assert found.predicted.as_list() == expected.predicted.as_list()


CELLS = {
    "JSON": [json.dumps(row) for row in P_NC.tolist()],
    "blanks": [f"[ {' '.join(map(repr, row))}\n]" for row in P_NC.tolist()],
    "NumPy's": [str([np.float64(p) for p in row]) for row in P_NC],
}


@pytest.mark.parametrize("cells", CELLS.values(), ids=CELLS)
def test_lists_in_csv(tmp_path: Path, cells: list[str]) -> None:
    found = read(csv_table(tmp_path, probabilities=cells, label=TEXTS), Form(classes=NAMES))
    assert found.probabilities_NC is not None
    np.testing.assert_array_equal(found.probabilities_NC, P_NC)
    np.testing.assert_array_equal(found.correct_N, read(wide(tmp_path)).correct_N)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("", "row 32, column 'probabilities' holds no list; expected 3 numbers"),
        ("[]", "row 32, column 'probabilities' holds 0 numbers; expected 3 numbers"),
        ("[0.5, 0.5]", "row 32, column 'probabilities' holds 2 numbers; expected 3 numbers"),
        ("[0.5 ... 0.5]", r"row 32, column 'probabilities' holds '\[0.5 ... 0.5\]'; expected a list of numbers"),
        ("[0.5, nan, 0.5]", "row 32, column 'probabilities' lacks a number; expected 3"),
        ("0.5", "row 32, column 'probabilities' holds '0.5'; expected a list of numbers, such as"),
    ],
)
def test_cells_that_are_no_lists(tmp_path: Path, cell: str, words: str) -> None:
    cells = [cell if k == 30 else text for k, text in enumerate(CELLS["JSON"])]
    with pytest.raises(FileError, match=words):
        read(csv_table(tmp_path, probabilities=cells, label=TEXTS), Form(classes=NAMES))


@pytest.mark.parametrize("name", ["logits", "scores"])
def test_lists_of_logits(tmp_path: Path, name: str) -> None:
    path = table(tmp_path, **{name: np.log(P_NC).tolist(), "label": LABEL_N})
    found = read(path, Form(scale=None if name == "logits" else "logits"))
    assert found.probabilities_NC is not None
    np.testing.assert_allclose(found.probabilities_NC, P_NC, rtol=1e-12)
    np.testing.assert_array_equal(found.label_N, LABEL_N)


def test_the_calibrators_rows_are_those_of_columns(tmp_path: Path) -> None:
    path = table(tmp_path, probabilities=P_NC.tolist(), label=TEXTS)
    found = read_logits(path, "label", probabilities=True, classes=NAMES)
    expected = read_logits(wide(tmp_path), "label", probabilities=True)
    assert found.classes == expected.classes == NAMES
    np.testing.assert_array_equal(found.rows.logits_NC, expected.rows.logits_NC)
    np.testing.assert_array_equal(found.rows.labels_N, expected.rows.labels_N)


def test_a_confidence_without_labels_comes_first(tmp_path: Path) -> None:
    right = P_NC.argmax(axis=1) == LABEL_N
    path = table(tmp_path, probabilities=P_NC.tolist(), confidence=P_NC.max(axis=1), correct=right)
    found = read(path)
    assert found.probabilities_NC is None
    np.testing.assert_array_equal(found.correct_N, right)


@pytest.mark.parametrize("make", [table, csv_table])
def test_a_confidence_comes_before_lists_of_another_name(tmp_path: Path, make: Any) -> None:
    """Embeddings may look like probabilities."""
    predicted = P_NC.argmax(axis=1)
    path = make(
        tmp_path, confidence=P_NC.max(axis=1), predicted=predicted, label=LABEL_N, attention=[[0.25] * 4] * len(P_NC)
    )
    found = read(path)
    np.testing.assert_array_equal(found.correct_N, predicted == LABEL_N)
    np.testing.assert_array_equal(found.confidence_N, P_NC.max(axis=1))


def test_one_number_in_each_list_is_that_of_one_of_two_classes(tmp_path: Path) -> None:
    path = table(tmp_path, probabilities=P_NC[:, :1].tolist(), label=LABEL_N % 2)
    with pytest.raises(FileError, match="say whose probability it is: --positive"):
        read(path)
    assert len(read(path, Form(positive="1"))) == 60


def changed(row: object) -> list[Any]:
    rows: list[Any] = P_NC.tolist()
    rows[30] = row
    return rows


@pytest.mark.parametrize(
    ("column", "form", "words"),
    [
        (P_NC.tolist(), Form(), "does not name its 3 classes, and the label '(cat|dog|hare)' is a name; .*--classes"),
        (P_NC.tolist(), Form(classes=("cat", "dog")), "3 numbers in each row, and --classes has 'cat', 'dog'; give"),
        (P_NC.tolist(), Form(classes=("cat", "cat", "dog")), "--classes has 'cat', 'cat', 'dog'; give"),
        (P_NC.tolist(), Form(classes=NAMES, scale="logits"), "lists of probabilities, not of logits"),
        (
            changed([0.5, 0.5]),
            Form(classes=NAMES),
            "row 32, column 'probabilities' holds 2 numbers; expected 3 numbers",
        ),
        (changed(None), Form(classes=NAMES), "row 32, column 'probabilities' holds no list; expected 3 numbers"),
        (changed([0.5, None, 0.5]), Form(classes=NAMES), "row 32, column 'probabilities' lacks a number; expected 3"),
        (
            changed([0.5, 0.1, 0.1]),
            Form(classes=NAMES),
            "row 32: the lists of the column 'probabilities' .* sum to 0.7",
        ),
        (
            changed([1.5, -0.5, 0.0]),
            Form(classes=NAMES),
            "row 32: number 1 of column 'probabilities' holds 1.5; allowed",
        ),
        ((100 * P_NC).tolist(), Form(classes=NAMES), "The lists of the column 'probabilities' sum to 100 .*divide"),
        (
            pa.array([[]] * 60, pa.list_(pa.float64())),
            Form(classes=NAMES),
            "row 2, column 'probabilities' holds 0 numbers; expected a list of numbers",
        ),
    ],
)
def test_lists_that_are_no_classes(tmp_path: Path, column: Any, form: Form, words: str) -> None:
    with pytest.raises(FileError, match=words):
        read(table(tmp_path, probabilities=column, label=TEXTS), form)


def test_lists_of_both_scales(tmp_path: Path) -> None:
    path = table(tmp_path, probabilities=P_NC.tolist(), logits=np.log(P_NC).tolist(), label=LABEL_N)
    with pytest.raises(FileError, match="lists of probabilities and of logits; choose one"):
        read(path)
    assert len(read(path, Form(scale="logits"))) == 60


def test_no_rows(tmp_path: Path) -> None:
    path = table(tmp_path, probabilities=pa.array([], pa.list_(pa.float64())), label=pa.array([], pa.int64()))
    with pytest.raises(FileError, match="both at least 1"):
        read(path)


def test_an_engine_says_what_to_do(tmp_path: Path) -> None:
    from trueodds.reports.warehouse.parquet_source import open_source
    from trueodds.reports.warehouse.planning import plan_of

    path = table(tmp_path, probabilities=P_NC.tolist(), label=TEXTS)
    with pytest.raises(FileError, match=r"holds lists .*a column for each class"):
        plan_of(open_source(str(path), "duckdb"), Form())
