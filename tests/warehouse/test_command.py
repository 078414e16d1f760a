"""`trueodds report --engine duckdb`: its report, labels joined by id, and its errors."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.warehouse.tables import arrow, usual
from trueodds import cli
from trueodds.files import FileError
from trueodds.reports.warehouse import summing
from trueodds.reports.warehouse.parquet_source import open_source


def written(path: Path, columns: dict[str, Any]) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(arrow(columns), path)
    return path


def part(columns: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {name: values[rows] for name, values in columns.items()}


def figures(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run the command, and return the numbers of its report."""
    assert cli.main("trueodds", cli.COMMANDS, ["report", *arguments, "--json", str(folder / "report.json")]) == 0
    tree: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return tree


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command, and return its error."""
    assert cli.main("trueodds", cli.COMMANDS, ["report", *arguments]) != 0
    printed = capsys.readouterr()
    assert not printed.out
    return printed.err


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [("--by", "tag", "--trend", "day"), ("--by", "class"), ("--positive", "class 1")])
def test_many_files_have_the_report_of_one_file(options: tuple[str, ...], tmp_path: Path) -> None:
    columns = usual(1_500, 2)
    whole = written(tmp_path / "whole.parquet", columns)
    for k in range(3):
        written(tmp_path / "version=1" / f"part-{k}.parquet", part(columns, slice(500 * k, 500 * (k + 1))))
    found = figures(tmp_path, str(tmp_path / "version=*" / "*.parquet"), "--engine", "duckdb", *options)
    expected = figures(tmp_path, str(whole), *options)
    for name in ("answers", "labelled", "accuracy", "ece", "nll", "brier", "tags", "classes", "trend", "positive"):
        assert_close(found.get(name), expected.get(name))
    assert found["answers"] == 1_500


def assert_close(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, dict):
        assert mine.keys() == theirs.keys()
        for name, value in theirs.items():
            assert_close(mine[name], value)
    elif isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            assert_close(one, other)
    else:
        assert mine == (pytest.approx(theirs, rel=1e-9, abs=1e-12) if isinstance(theirs, float) else theirs)


def test_the_latest_label_of_an_id_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = usual(400)
    ids = [f"id {k}" for k in range(400)]
    true = columns.pop("label")
    answers = written(tmp_path / "answers.parquet", {**columns, "id": ids})
    known = [(key, label) for key, label in zip(ids, true, strict=True) if label is not None]
    rows = [(key, "class 0", 1) for key, _ in known[:50]] + [(key, label, 2) for key, label in known]
    keys, labels, times = zip(*rows, ("nobody", "class 1", 2), strict=True)
    late = {"id": list(keys), "label": list(labels), "time": list(times)}
    found = figures(
        tmp_path, str(answers), "--engine", "duckdb", "--labels", str(written(tmp_path / "labels.parquet", late))
    )
    assert "1 label left out: no answer has the id." in capsys.readouterr().out
    expected = figures(tmp_path, str(written(tmp_path / "joined.parquet", {**columns, "label": true})))
    for name in ("answers", "labelled", "accuracy", "ece", "nll"):
        assert_close(found[name], expected[name])


def test_a_row_without_a_label_takes_no_label_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`trueodds sums` leaves such rows out, too."""
    answers = {name: values for name, values in usual(20).items() if name != "label"}
    one = written(tmp_path / "answers.parquet", {**answers, "id": list(range(20))})
    rows = {"id": [1, 2, 1, None, 99], "label": ["class 0", "class 1", None, None, None], "time": [1, 1, 2, 2, 2]}
    labels = written(tmp_path / "labels.parquet", rows)
    found = figures(tmp_path, str(one), "--engine", "duckdb", "--labels", str(labels))
    assert (found["answers"], found["labelled"]) == (20, 2)
    assert "left out" not in capsys.readouterr().out


def test_ids_that_are_numbers_of_any_name_are_no_class(tmp_path: Path) -> None:
    answers = {name: values for name, values in usual(20).items() if name != "label"}
    one = written(tmp_path / "answers.parquet", {**answers, "number": list(range(20))})
    labels = written(tmp_path / "labels.parquet", {"number": [1, 2], "label": ["class 0", "class 1"]})
    options = ("--engine", "duckdb", "--labels", str(labels), "--id", "number")
    found = figures(tmp_path, str(one), *options, "--by", "class")
    assert (found["answers"], found["labelled"]) == (20, 2)
    assert [row["name"] for row in found["classes"]] == [f"class {k}" for k in range(3)]


LABELS: dict[str, tuple[dict[str, Any], str]] = {
    "no ids": ({"label": ["class 0"]}, "has no column 'id'"),
    "no labels": ({"id": [1], "truth": ["class 0"]}, "has no column 'label'"),
    "no rows": (
        {"id": pa.array([], pa.int64()), "label": pa.array([], pa.string())},
        "holds no labels; give a table with rows",
    ),
    "a missing id": ({"id": [1, None], "label": ["class 0"] * 2}, "1 label have no id"),
    "two labels": ({"id": [1, 1], "label": ["class 0", "class 1"]}, "two different labels"),
    "ids of another type": ({"id": ["1"], "label": ["class 0"]}, "holds int64"),
    "ids of other answers": ({"id": [999], "label": ["class 0"]}, "no id of the labels"),
    "unknown class": ({"id": [1], "label": ["class 9"]}, "class 9"),
}


@pytest.mark.parametrize("name", LABELS)
def test_a_table_of_labels_that_cannot_be_joined_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns, words = LABELS[name]
    answers = {key: values for key, values in usual(20).items() if key != "label"}
    paths = [written(tmp_path / "answers.parquet", {**answers, "id": list(range(20))}), tmp_path / "labels.parquet"]
    pq.write_table(pa.table(columns), paths[1])
    assert words in refusal(capsys, str(paths[0]), "--engine", "duckdb", "--labels", str(paths[1]))


def test_ids_that_repeat_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = {key: values for key, values in usual(4).items() if key != "label"}
    one = written(tmp_path / "answers.parquet", {**answers, "id": [1, 1, 2, 3]})
    labels = written(tmp_path / "labels.parquet", {"id": [1], "label": ["class 0"]})
    assert "repeat the id" in refusal(capsys, str(one), "--engine", "duckdb", "--labels", str(labels))


ARGUMENTS: dict[str, tuple[tuple[str, ...], str]] = {
    "no file": (("none/*.parquet", "--engine", "duckdb"), "names no file"),
    "another format": (("answers.csv", "--engine", "duckdb"), "does not end in .parquet"),
    "another engine": (("answers", "--engine", "mysql://me:secret@host/logs"), "allowed is duckdb"),
    "no rows": (("empty.parquet", "--engine", "duckdb"), "holds no answers; give a table with rows"),
    "half a file": (("half.parquet", "--engine", "duckdb"), "whole Parquet file"),
    "no such column": (("answers.parquet", "--engine", "duckdb", "--label", "truth"), "has no column 'truth'"),
    "no such class": (("answers.parquet", "--engine", "duckdb", "--classes", "class 0,x"), "has no column 'x'"),
    "no tags": (("bare.parquet", "--engine", "duckdb", "--by", "tag"), "has no column tag"),
    "levels": (("answers.parquet", "--engine", "duckdb", "--ordered"), "need the rows"),
    "logits": (("answers.parquet", "--engine", "duckdb", "--logits"), "--logits"),
    "labels twice": (("answers.parquet", "--engine", "duckdb", "--labels", "bare.parquet"), "holds the column 'label'"),
    "too many classes": (("wide.parquet", "--engine", "duckdb"), "at most 1,000"),
    "files with other columns": (("a*r*.parquet", "--engine", "duckdb"), "'tag' is in 1 of them"),
    "files with other types": (("typed*.parquet", "--engine", "duckdb"), "'class 0' is BIGINT or DOUBLE"),
    "an id alone": (("answers.parquet", "--id", "key"), "add --engine duckdb"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_bad_input_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "answers.parquet", usual(50))
    written(tmp_path / "bare.parquet", {name: values for name, values in usual(50).items() if name != "tag"})
    written(tmp_path / "are.parquet", {name: values for name, values in usual(50).items() if name != "tag"})
    written(tmp_path / "wide.parquet", usual(5, 1_001))
    written(tmp_path / "typed-1.parquet", {"class 0": [1, 0], "class 1": [0, 1], "label": ["class 0", "class 1"]})
    written(tmp_path / "typed-2.parquet", usual(50, 2))
    pq.write_table(arrow(usual(50)).slice(0, 0), "empty.parquet")
    Path("half.parquet").write_bytes(Path("answers.parquet").read_bytes()[:-200])
    arguments, words = ARGUMENTS[name]
    message = refusal(capsys, *arguments)
    assert words in message and "secret" not in message


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "answers.parquet", usual(50))
    sums_by_plan = summing.sums_by_plan

    def meanwhile(*arguments: Any) -> Any:
        found = sums_by_plan(*arguments)
        os.utime(path, (0, 0))
        return found

    monkeypatch.setattr(summing, "sums_by_plan", meanwhile)
    with pytest.raises(FileError, match="changed while it was read"):
        summing.sums_of_source(open_source(str(path), "duckdb"))


def test_a_file_without_any_label_may_have_a_column_of_nulls(tmp_path: Path) -> None:
    written(tmp_path / "1.parquet", usual(40))
    unlabelled = arrow(usual(30)).drop(["label"]).append_column("label", pa.nulls(30))
    pq.write_table(unlabelled.select(arrow(usual(1)).column_names), tmp_path / "2.parquet")
    sums = summing.sums_of_source(open_source(str(tmp_path / "*.parquet"), "duckdb"))
    assert len(sums) == 70 and sums.total.labelled.n == sum(label is not None for label in usual(40)["label"])


def test_signs_of_a_pattern_in_a_file_name_are_taken_as_they_are(tmp_path: Path) -> None:
    columns = usual(60)
    written(tmp_path / "a1.parquet", usual(40))
    path = written(tmp_path / "a[1].parquet", columns)
    assert len(summing.sums_of_source(open_source(str(path), "duckdb"))) == 60


def test_without_the_extra_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [name for name in sys.modules if name.startswith("trueodds.reports.warehouse")]
    for name in sorted(own, reverse=True):  # modules before their package
        package, _, module = name.rpartition(".")
        monkeypatch.delattr(sys.modules[package], module, raising=False)
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ibis", None)
    assert "trueodds[warehouse]" in refusal(capsys, str(tmp_path / "answers.parquet"), "--engine", "duckdb")
