"""Sums by day: together those of all rows in one go, whatever comes late, twice or early; and what is refused."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.warehouse.partitioned import DAY, START, described, end_ms, made, make, write
from tests.warehouse.tables import usual
from tests.warehouse.test_command import assert_close
from tests.warehouse.test_equality import assert_equal
from trueodds import cli
from trueodds.errors import UserError
from trueodds.files import FileChangedError, FileError, sha256
from trueodds.reports.table import reading, stored_sums
from trueodds.reports.table.reading import Form
from trueodds.reports.table.stored_sums import (
    FIRST,
    Partition,
    RowCounts,
    Window,
    day_ms,
    read_partition,
    read_sums,
    write_partition,
)
from trueodds.reports.table.summed import COLUMNS, SumGroups, TableSums
from trueodds.reports.table.table_report import sums_by, sums_of
from trueodds.reports.warehouse.daily import describe, make_day, missing_days
from trueodds.reports.warehouse.label_join import open_with_labels
from trueodds.reports.warehouse.partitions import PartitionedTable, rows_by_day, sums_of_partition
from trueodds.reports.warehouse.planning import plan_of
from trueodds.reports.warehouse.summing import sums_of_source
from trueodds.sums.rounding import EXACT, Resolution

pytestmark = pytest.mark.full

HALVES = (Window(START * 1000, (START + 2 * DAY) * 1000), Window((START + 2 * DAY) * 1000, end_ms()))


def run(*words: str | Path) -> int:
    return cli.main("trueodds", cli.COMMANDS, list(map(str, words)))


def whole(table: PartitionedTable) -> TableSums:
    """Return the sums of all rows in one go."""
    source, notes = open_with_labels(table.answers, "duckdb", table.labels, "label", "id")
    sums = sums_of_source(source, table.form, trend="hour")
    return replace(sums, notes=(*sums.notes, *notes))


def assert_same(found: TableSums, expected: TableSums) -> None:
    """Assert that all sums of a report are equal."""
    assert found.classes == expected.classes and found.source == expected.source and found.notes == expected.notes
    assert_equal(found.total, expected.total)
    for column in ("class", "version", "tag"):
        mine, theirs = found.by(column), expected.by(column)
        assert mine.keys() == theirs.keys()
        for name, sums in theirs.items():
            assert_equal(mine[name], sums)
    for unit in ("hour", "day"):
        mine_P, theirs_P = found.periods(unit)[1], expected.periods(unit)[1]
        assert [start for start, _ in mine_P] == [start for start, _ in theirs_P]
        for (_, one), (_, other) in zip(mine_P, theirs_P, strict=True):
            assert_equal(one, other)
    if expected.positive_class:
        assert_equal(found.positive(expected.positive_class).sums, expected.positive(expected.positive_class).sums)
    mine_R, theirs_R = found.rounding(0.95), expected.rounding(0.95)
    if theirs_R is None:
        assert mine_R is None
    else:
        assert mine_R is not None
        assert_close(vars(mine_R), vars(theirs_R))


def test_the_sums_of_all_days_are_those_of_all_rows(daily: tuple[PartitionedTable, list[Path]]) -> None:
    table, paths = daily
    days, total = read_sums(paths)
    assert_same(total, whole(table))
    assert [day.rows.answers > 0 for day in days] == [True, True, False, True], "no answer on the third day"
    assert days[2].rows.labels > 0, "but late labels"
    assert all(day.rows.corrections > 0 for day in days[1:])


def test_they_are_those_that_python_makes_of_the_rows(
    daily: tuple[PartitionedTable, list[Path]], tmp_path: Path
) -> None:
    table, paths = daily
    answers = pq.read_table(Path(table.answers).parent).to_pylist()
    labels = pq.read_table(Path(str(table.labels)).parent).to_pylist()
    latest = {row["id"]: row["label"] for row in sorted(labels, key=lambda row: row["time"])}
    rows = [{**{k: v for k, v in row.items() if k != "id"}, "label": latest.get(row["id"])} for row in answers]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    read = reading.read(tmp_path / "rows.parquet", Form(label="label"))
    total = read_sums(paths)[1]
    assert_equal(total.total, sums_of(read))
    assert read.groups.tags is not None
    for tag, sums in sums_by(read, read.groups.tags).items():
        assert_equal(total.by("tag")[tag], sums)


@pytest.mark.parametrize("kind", ["positive", "confidence", "rounded"])
def test_two_partitions_of_other_tables(kind: str, tmp_path: Path) -> None:
    table = make(tmp_path, kind, seed=1)
    for k, window in enumerate(HALVES):
        write_partition(tmp_path / f"{k}.parquet", sums_of_partition(table, window))
    assert_same(read_sums([tmp_path / "1.parquet", tmp_path / "0.parquet"])[1], whole(table))


@pytest.mark.parametrize(
    "options",
    [
        ("--by", "class", "--trend", "day"),
        (
            "--by",
            "tag",
        ),
    ],
)
def test_the_command_prints_the_same_report(
    options: tuple[str, ...],
    daily: tuple[PartitionedTable, list[Path]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table, paths = daily
    assert run("report", *paths, *options, "--json", tmp_path / "days.json") == 0
    by_days = capsys.readouterr().out
    joined = ("--engine", "duckdb", "--labels", str(table.labels))
    assert run("report", table.answers, *joined, *options, "--json", tmp_path / "rows.json") == 0
    assert by_days.rpartition("\n\n")[0] == capsys.readouterr().out.rpartition("\n\n")[0]
    assert_close(*(json.loads((tmp_path / name).read_text()) for name in ("days.json", "rows.json")))


def test_a_file_holds_its_provenance(daily: tuple[PartitionedTable, list[Path]], tmp_path: Path) -> None:
    table, paths = daily
    day = read_partition(paths[1])
    assert str(day.window) == "2026-03-02" and day.engine.startswith("duckdb ") and day.source == table.answers
    answers = [file for file in day.files if "/answers/" in file.path]
    assert sum(file.rows for file in answers) >= day.rows.answers > 0
    for file in day.files:
        assert file.bytes == Path(file.path).stat().st_size and file.sha256 == sha256(Path(file.path))
    write_partition(tmp_path / "again.parquet", sums_of_partition(table, day.window))
    assert (tmp_path / "again.parquet").read_bytes() == paths[1].read_bytes(), "a repeated run changes nothing"
    assert missing_days(table, paths[0].parent, end_ms()) == []


@pytest.fixture(scope="module")
def four_days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small table with the sums of its days, and a copy of all that."""
    folder = tmp_path_factory.mktemp("late") / "table"
    made(make(folder, rows=120), folder / "sums")
    return folder, Path(shutil.copytree(folder, folder.with_name("first")))


@pytest.fixture
def summed(four_days: tuple[Path, Path]) -> tuple[Path, PartitionedTable, list[Path]]:
    """The small table as it was first: a test may change its files. Sums name the paths of what they are made of."""
    folder, first = four_days
    shutil.rmtree(folder)
    shutil.copytree(first, folder)
    return folder, described(folder), sorted((folder / "sums").iterdir())


Summed = tuple[Path, PartitionedTable, list[Path]]


def test_late_rows_make_their_day_and_those_after_it_again(summed: Summed) -> None:
    folder, table, paths = summed
    columns = pq.read_table(Path(table.answers).parent / "part-0.parquet").slice(0, 1).to_pydict()
    write(folder / "answers" / "late.parquet", columns | {"id": ["late"], "time": [START + DAY + 5]})
    changes = missing_days(table, folder / "sums", end_ms())
    assert [(change.path.stem[-2:], change.reason) for change in changes] == [
        ("02", "late rows"),
        ("03", "after late rows"),
        ("04", "after late rows"),
    ]
    for change in changes:
        make_day(table, change)
    assert missing_days(table, folder / "sums", end_ms()) == []
    assert_same(read_sums(paths)[1], whole(table))
    for path in (folder / "answers").iterdir():  # a retention removes answers: their sums stay
        pq.write_table(pq.read_table(path, filters=[("time", ">=", START + DAY)]), path)
    assert missing_days(table, folder / "sums", end_ms()) == []


@pytest.mark.parametrize(
    ("name", "form", "words"),
    [
        ("label", {"label": "truth"}, "'label', and now label is 'truth'"),
        ("classes", {"classes": ("class 0", "class 1")}, "not given, and now classes is \\['class 0', 'class 1'\\]"),
        ("first_label", {"first_label": 1}, "not given, and now first_label is 1"),
        ("positive", {"positive": "class 1"}, "not given, and now positive is 'class 1'"),
        ("resolution", {"resolution": EXACT}, "not given, and now resolution is 'exact'"),
    ],
)
def test_a_folder_of_days_keeps_its_options(name: str, form: dict[str, Any], words: str, summed: Summed) -> None:
    """Also if no day is missing: the report would be one of other labels or classes than were asked for."""
    folder, table, _ = summed
    with pytest.raises(FileError, match=rf"01\.parquet was made with {name} {words}; give the same"):
        missing_days(replace(table, form=replace(table.form, **form)), folder / "sums", end_ms())


def test_late_rows_do_not_lose_the_labels_of_removed_answers(summed: Summed) -> None:
    folder, table, paths = summed
    before = [read_partition(path).rows for path in paths]
    for path in (folder / "answers").iterdir():
        pq.write_table(pq.read_table(path, filters=[("time", ">=", START + DAY)]), path)
    write(folder / "labels" / "late.parquet", {"id": ["nobody"], "label": ["class 0"], "time": [START + DAY + 5]})
    changes = missing_days(table, folder / "sums", end_ms())
    assert [change.path for change in changes] == paths[1:]
    described = [describe(change, make_day(table, change)) for change in changes]
    assert "not made again" in described[0]
    assert [read_partition(path).rows.labels for path in paths] == [rows.labels for rows in before]


def test_an_id_without_an_answer_counts_once_however_many_labels_it_has(tmp_path: Path) -> None:
    """Labels before the first answer's day are in no file, so no later file may subtract them."""
    answers = {"confidence": [0.9] * 3, "predicted": ["a"] * 3, "id": ["x", "y", "z"]}
    write(tmp_path / "answers" / "a.parquet", {**answers, "time": [START, START + DAY, START + 2 * DAY]})
    rows = [("nobody", START), ("nobody", START + DAY), ("other", START + 2 * DAY), ("x", START - DAY)]
    rows += [("y", START - 2 * DAY), ("z", START + 3), ("z", START + DAY)]
    keys, times = zip(*rows, strict=True)
    write(tmp_path / "labels" / "l.parquet", {"id": list(keys), "label": ["a"] * len(rows), "time": list(times)})
    table = described(tmp_path)
    days, total = read_sums(made(table, tmp_path / "sums"))
    assert [day.rows.without_answer for day in days] == [2, 0, 0], "z is found on the third day, and other is lost"
    assert "2 labels left out: no answer has the id." in total.notes and total.notes == whole(table).notes


def test_labels_in_the_table_of_answers_belong_to_the_day_of_their_arrival(tmp_path: Path) -> None:
    columns = usual(300, 2)
    rng = np.random.default_rng(2)
    columns["time"] = START + rng.integers(0, 3 * DAY, 300)
    arrival = columns["time"] + rng.choice([0, DAY], 300)
    columns["arrived"] = [None if label is None else int(t) for label, t in zip(columns["label"], arrival, strict=True)]
    path = write(tmp_path / "a.parquet", columns)
    table = PartitionedTable(answers=str(path), arrival="arrived", form=Form(label="label"))
    windows = [Window.of_day((START + k * DAY) * 1000) for k in range(4)]
    days = [sums_of_partition(table, window) for window in windows]
    known = [t for t in columns["arrived"] if t is not None]
    assert [day.rows.labels for day in days] == [
        sum(START + k * DAY <= t < START + (k + 1) * DAY for t in known) for k in range(4)
    ]
    for k, day in enumerate(days):
        write_partition(tmp_path / f"day-{k}.parquet", day)
    total = read_sums([tmp_path / f"day-{k}.parquet" for k in range(4)])[1]
    del columns["arrived"]
    assert_equal(total.total, sums_of(reading.read(write(tmp_path / "b.parquet", columns), Form(label="label"))))


def test_a_label_that_overwrites_one_in_the_table_of_answers_counts_once(tmp_path: Path) -> None:
    def write_answers(label: str, arrival: int) -> PartitionedTable:
        times = pa.array([arrival * 1000] * 40, pa.timestamp("ms"))
        columns = {"class 0": [0.6] * 80, "class 1": [0.4] * 80, "time": [START] * 40 + [START + DAY] * 40}
        labels = {"label": [label] * 40 + [None] * 40, "at": pa.concat_arrays([times, pa.nulls(40, times.type)])}
        pq.write_table(pa.table(columns | labels), tmp_path / "a.parquet")
        form = Form(label="label", classes=("class 0", "class 1"))
        return PartitionedTable(answers=str(tmp_path / "a.parquet"), arrival="at", form=form)

    assert len(made(write_answers("class 1", START + 5), tmp_path / "sums")) == 2
    paths = made(write_answers("class 0", START + DAY + 5), tmp_path / "sums")
    assert [read_partition(path).rows.labels for path in paths] == [0, 40]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("ms", "Europe/Berlin"), pa.date32()])
def test_days_of_timestamps_are_those_of_utc(kind: pa.DataType, tmp_path: Path) -> None:
    """Also of a column with a time zone, whose local day begins earlier."""
    seconds = [START, START + DAY - 1, START + DAY, START + 2 * DAY - 1]
    columns = pa.table({"a": [0.3] * 4, "b": [0.7] * 4, "label": ["a", "b", None, "b"]})
    times = pa.array([second * 1000 for second in seconds], pa.timestamp("ms", "UTC"))
    if pa.types.is_date(kind):
        times = pa.array([second // DAY for second in seconds], pa.int32()).cast(kind)
    else:
        times = times.cast(kind) if kind.tz else times.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us"))
    pq.write_table(columns.append_column("time", times), tmp_path / "a.parquet")
    table = PartitionedTable(answers=str(tmp_path / "a.parquet"), arrival="time", form=Form(label="label"))
    rows = rows_by_day(table)
    assert {day: row[:2] for day, row in rows.items()} == {START * 1000: (2, 2), (START + DAY) * 1000: (2, 1)}
    last = [1000 * (START if pa.types.is_date(kind) else START + DAY - 1) + k * DAY * 1000 for k in range(2)]
    assert [row[2:] for row in rows.values()] == [(ms, ms) for ms in last]
    days = [sums_of_partition(table, Window.of_day((START + k * DAY) * 1000)) for k in range(2)]
    assert [(day.rows.answers, day.rows.labels) for day in days] == [(2, 2), (2, 1)]


def small(day: str, *, end: str = "", count: float = 2, answers: float = 5, **changes: Any) -> Partition:
    """Return a partition with labels in one cell."""
    window = Window.of_days(day, end) if end else Window.of_day(day_ms(day))
    sums_GK = np.zeros((2, len(COLUMNS)))
    sums_GK[:, [COLUMNS.index(name) for name in ("count", "correct", "confidence")]] = count, count, count * 0.9
    sums_GK[0, COLUMNS.index("answers")] = answers
    names = np.array(["", ""], object)
    groups = SumGroups(np.array(["class", FIRST], object), names, np.zeros(2, np.int64), np.full(2, 2699), sums_GK)
    facts: dict[str, Any] = {"classes": ("a", "b"), "columns": (), "unit": "hour", "notes": ()}
    rows = RowCounts(answers=int(answers), labels=int(max(count, 1)))
    return replace(Partition(window, groups, "answers", rows, (), "duckdb 1"), **facts | changes)


CLASHES: dict[str, tuple[tuple[Partition, ...], str]] = {
    "the same day": ((small("2026-03-01"), small("2026-03-01")), "both hold 2026-03-01; give each day once"),
    "days that overlap": (
        (small("2026-03-01", end="2026-03-04"), small("2026-03-03")),
        "both hold 2026-03-03; give each day once",
    ),
    "classes": ((small("2026-03-01"), small("2026-03-02", classes=("b", "a"))), "sums of different classes"),
    "positive class": ((small("2026-03-01"), small("2026-03-02", positive_class="b")), "differ in --positive"),
    "unit": ((small("2026-03-01"), small("2026-03-02", unit="day")), "differ in --trend"),
    "form": ((small("2026-03-01"), small("2026-03-02", by_confidence=True)), "differ in form of the answers"),
    "columns": ((small("2026-03-01"), small("2026-03-02", columns=("tag",))), "differ in columns"),
    "resolution": ((small("2026-03-01"), small("2026-03-02", resolution=Resolution(0.01))), "exact and 0.01; state it"),
    "labels of earlier answers": ((small("2026-03-01", answers=1),), "labels of answers from before"),
    "corrections of earlier labels": ((small("2026-03-01", count=-1),), "correct labels that arrived before"),
    "no answers": ((small("2026-03-01", rows=RowCounts()),), "hold no answers"),
}


@pytest.mark.parametrize("name", CLASHES)
def test_sums_that_do_not_add_up_are_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, words = CLASHES[name]
    paths = [tmp_path / f"{k}.parquet" for k in range(len(files))]
    for path, partition in zip(paths, files, strict=True):
        write_partition(path, partition)
    assert run("report", *paths) == 1
    printed = capsys.readouterr()
    assert words in printed.err and not printed.out


def test_a_correction_of_one_cell_changes_what_is_correct(tmp_path: Path) -> None:
    """Its counts cancel within the day, but not the correct answers."""
    correction = small("2026-03-02", count=0, answers=0)
    correction.groups.sums_GK[:, COLUMNS.index("correct")] = -1
    for k, partition in enumerate((small("2026-03-01"), correction)):
        write_partition(tmp_path / f"{k}.parquet", partition)
    total = read_sums([tmp_path / "0.parquet", tmp_path / "1.parquet"])[1].total
    assert (total.labelled.n, total.labelled.cells[2].sum()) == (2, 1)


def test_classes_of_confidences_are_those_of_all_days(tmp_path: Path) -> None:
    one = small("2026-03-01", by_confidence=True, classes=("b",))
    other = small("2026-03-02", by_confidence=True, classes=("a", "c"))
    for k, partition in enumerate((one, other)):
        write_partition(tmp_path / f"{k}.parquet", partition)
    total = read_sums([tmp_path / "0.parquet", tmp_path / "1.parquet"])[1]
    assert total.classes == ("a", "b", "c") and set(total.by("class")) == {"a", "b"}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"format": 0}, "format 0; this version reads 2"),
        ({"grid": {"cells": 100}}, "on the cells"),
        ({"rows": 3}, "damaged"),
    ],
)
def test_a_file_of_another_form_is_refused(facts: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "sums.parquet"
    write_partition(path, small("2026-03-01"))
    table = pq.read_table(path)
    found = json.loads(table.schema.metadata[stored_sums.KEY]) | facts
    pq.write_table(table.replace_schema_metadata({stored_sums.KEY: json.dumps(found).encode()}), path)
    with pytest.raises(FileError, match=words):
        read_partition(path)


LABELS = {"id": [1], "label": ["class 0"], "time": [START]}
INPUTS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any], str]] = {
    "no ids": ({}, {"label": ["class 0"], "time": [START]}, {}, "has no column 'id'"),
    "a label without an id": (
        {},
        {"id": pa.array([None], pa.int64()), "label": ["class 0"], "time": [START]},
        {},
        "1 label have no id",
    ),
    "no arrival of labels": ({}, {"id": [1], "label": ["class 0"]}, {}, "has no column 'time'"),
    "no times": ({"time": None}, LABELS, {}, "has no column time"),
    "ids of another type": ({}, LABELS | {"id": ["1"]}, {}, "holds int64"),
    "labels twice": ({"label": ["class 0"] * 4}, LABELS, {}, "holds the column 'label' itself"),
    "two labels at once": (
        {},
        {"id": [1, 1], "label": ["class 0", "class 1"], "time": [START] * 2},
        {},
        "two different labels",
    ),
    "answers that repeat": ({"id": [1, 1, 2, 3]}, LABELS, {}, "repeat the id"),
    "labels without an arrival": ({"label": ["class 0"] * 4}, None, {}, "does not tell when labels arrive"),
    "another arrival": ({"label": ["class 0"] * 4}, None, {"arrival": "then"}, "the column 'then' of --arrival"),
    "a gap in the arrival": (
        {"label": ["class 0"] * 4, "at": [START, START, START, None]},
        None,
        {"arrival": "at"},
        "1 label have no at",
    ),
    "no labels": ({}, None, {"arrival": "time"}, "has no column 'label'"),
}


def test_a_label_of_two_answers_on_different_days_is_refused(tmp_path: Path) -> None:
    columns = {"id": [1, 2, 1], "class 0": [0.6] * 3, "class 1": [0.4] * 3, "time": [START, START, START + DAY]}
    answers = write(tmp_path / "a.parquet", columns)
    labels = write(tmp_path / "labels.parquet", {"id": [1, 2], "label": ["class 0"] * 2, "time": [START + 5] * 2})
    table = PartitionedTable(answers=str(answers), labels=str(labels), form=Form(label="label"))
    assert sums_of_partition(table, Window.of_day(START * 1000)).rows.labels == 2
    with pytest.raises(FileError, match="1 answer repeat the id"):
        sums_of_partition(table, Window.of_day((START + DAY) * 1000))


@pytest.mark.parametrize("name", INPUTS)
def test_tables_that_tell_no_arrival_are_refused(name: str, tmp_path: Path) -> None:
    changes, labels, options, words = INPUTS[name]
    columns = {"id": list(range(4)), "class 0": [0.6] * 4, "class 1": [0.4] * 4, "time": [START] * 4} | changes
    answers = write(tmp_path / "a.parquet", {key: values for key, values in columns.items() if values is not None})
    if labels is not None:
        pq.write_table(pa.table(labels), tmp_path / "labels.parquet")
        options = options | {"labels": str(tmp_path / "labels.parquet")}
    table = PartitionedTable(answers=str(answers), form=Form(label="label"), **options)
    with pytest.raises(UserError, match=words):
        sums_of_partition(table, Window.of_day(START * 1000))


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path, rows=60)

    def meanwhile(*arguments: Any, **options: Any) -> Any:
        write(tmp_path / "labels" / "more.parquet", {"id": ["a1"], "label": ["class 0"], "time": [START]})
        return plan_of(*arguments, **options)

    monkeypatch.setitem(sums_of_partition.__globals__, "plan_of", meanwhile)
    with pytest.raises(FileChangedError, match="changed while it was read"):
        sums_of_partition(table, Window.of_day(START * 1000))


COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "a day that is not over": (("--partition", "today", "--out", "x.parquet"), "is not over"),
    "no day": (("--partition", "march", "--out", "x.parquet"), "'march' is not a day; expected YYYY-MM-DD"),
    "no days": (("--since", "2026-03-02", "--until", "2026-03-01", "--out", "x.parquet"), "are none"),
    "until alone": (("--daily", "--until", "2026-03-01", "--out", "sums"), "--until 2026-03-01 without --since"),
    "another suffix": (("--partition", "2026-03-01", "--out", "x.csv"), "does not end in .parquet"),
    "a file for days": (("--daily", "--out", "a.parquet"), "is a file"),
    "arrival beside labels": (
        ("--daily", "--out", "sums", "--labels", "l.parquet", "--arrival", "at"),
        "leave --arrival out",
    ),
    "another format": (("b.csv", "--daily", "--out", "sums", "--arrival", "time"), "write the table as Parquet\n"),
    "logits": (("--daily", "--out", "sums", "--arrival", "time", "--logits"), "--logits"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_options_that_do_not_fit_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a.parquet"), {"a": [0.3], "b": [0.7], "label": ["a"], "time": [START]})
    options, words = COMMANDS[name]
    answers = () if options[0].endswith(".csv") else ("a.parquet",)
    assert run("sums", *answers, *options) == 1
    assert words in capsys.readouterr().err and not Path("x.parquet").exists()


def test_days_without_rows_say_which_days_the_table_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    minutes = START // 60  # they are read as seconds
    write(Path("a.parquet"), {"a": [0.3], "b": [0.7], "label": ["a"], "time": [minutes]})
    options = ("--partition", "2026-03-01", "--out", "x.parquet", "--arrival", "time")
    assert run("sums", "a.parquet", *options) == 0
    words = "0 answers, 0 labels\nNo row of a.parquet is of 2026-03-01. In UTC, its rows are of 1970-12-08. Is"
    assert words in capsys.readouterr().out
    days = [START - DAY, START + DAY]  # the day between them is a quiet one
    write(Path("b.parquet"), {"a": [0.3, 0.3], "b": [0.7, 0.7], "label": ["a", "b"], "time": days})
    assert run("sums", "b.parquet", *options) == 0
    assert "its rows are of 2026-02-28 to 2026-03-02.\n" in capsys.readouterr().out


REPORTS: dict[str, tuple[tuple[str, ...], str]] = {
    "answers beside sums": (("sums.parquet", "a.parquet"), "a.parquet holds no sums; several files must be those"),
    "a pattern of answers": (("a*.parquet",), "need --engine duckdb"),
    "labels": (("sums.parquet", "--labels", "a.parquet"), "--labels is for rows"),
    "classes": (("sums.parquet", "--classes", "a,b"), "give it to `trueodds sums`"),
    "a finer trend": (("sums.parquet", "--trend", "minute"), "sums by hour, not by minute"),
    "another class": (("sums.parquet", "--positive", "b"), "without a positive class"),
    "an engine": (("sums.parquet", "a.parquet", "--engine", "duckdb"), "reads one table"),
}


@pytest.mark.parametrize("name", REPORTS)
def test_reports_that_sums_cannot_make_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a.parquet"), {"a": [0.3], "b": [0.7], "label": ["a"], "time": [START]})
    write_partition(Path("sums.parquet"), small("2026-03-01"))
    options, words = REPORTS[name]
    assert run("report", *options) == 1
    assert words in capsys.readouterr().err
