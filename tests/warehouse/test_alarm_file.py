"""The alarm on files of sums: its state, its order, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.warehouse.partitioned import DAYS
from trueodds import cli
from trueodds.errors import ConfigError
from trueodds.files import FileError
from trueodds.metrics import CalibrationSums, PartitionEProcess
from trueodds.reports.table.alarm_file import PartitionAlarm, read_alarm, write_alarm
from trueodds.reports.table.stored_sums import (
    DAY_MS,
    FIRST,
    Partition,
    RowCounts,
    Window,
    day_ms,
    read_partition,
    write_partition,
)
from trueodds.reports.table.summed import COLUMNS, SumGroups
from trueodds.reports.warehouse.partitions import PartitionedTable
from trueodds.sums.bins import cell_of

START = day_ms("2026-03-01")


def day_of(number: int, gap: float = 0.0, labels: int = 100, versions: tuple[str, ...] = ("",)) -> Partition:
    """Return the sums of a day, whose labels are right less often than their confidences say, by a gap."""
    rng = np.random.default_rng(number)
    part, name, cell, rows = list[str](), list[str](), list[int](), list[list[float]]()
    for version in versions:
        c_N = rng.uniform(0.6, 0.9, labels)
        for c, right in zip(c_N.tolist(), (rng.random(labels) < c_N - gap).tolist(), strict=True):
            values = {"count": 1.0, "confidence": c, "correct": float(right)}
            part.append(FIRST)
            name.append(version)
            cell.append(int(cell_of(np.array([c]))[0]))
            rows.append([values.get(column, 0.0) for column in COLUMNS])
    groups = SumGroups(
        np.array(part, object),
        np.array(name, object),
        np.zeros(len(part), np.int64),
        np.array(cell, np.int64),
        np.array(rows).reshape(-1, len(COLUMNS)),
    )
    window = Window.of_day(START + number * DAY_MS)
    return Partition(window, groups, "answers", RowCounts(labels, labels), (), "duckdb 1")


def test_it_reads_each_day_once_and_alarms() -> None:
    days = [day_of(k, gap=0.2) for k in range(5)]
    once, notes = PartitionAlarm.start().take(days)
    assert not notes and once.is_alarmed
    state = PartitionAlarm.start()
    for k in range(5):
        state, _ = state.take(days[: k + 1])
    assert state == once == state.take(days)[0]
    (version,) = state.versions.values()
    expected = PartitionEProcess.start("ece")
    for k, day in enumerate(days):
        cells = CalibrationSums.zero().cells.copy()
        cells[:3] = day.first_labels()[""]
        cells[3:, cells[0] > 0] = np.nan
        expected = expected.advance(CalibrationSums(cells))
        if expected.is_alarmed():
            assert version.fired["ece"] == day_of(k).window.first_day
            break
    assert "ALARM since 2026-03-0" in state.readings()[0]


def test_a_calibrated_model_is_quiet_and_a_day_without_labels_is_no_gap() -> None:
    state, _ = PartitionAlarm.start().take([day_of(0), day_of(1, labels=0), day_of(2)])
    assert not state.is_alarmed and len(state.taken) == 3
    assert "no alarm after 2 partitions with 200 labels" in state.readings()[0]
    assert PartitionAlarm.start().readings() == ["No alarm: there is no label in 0 partitions."]


def test_versions_have_evidence_of_their_own() -> None:
    days = [day_of(0, 0.2, versions=("1",)), day_of(1, 0.2, versions=("1", "2")), day_of(2, 0.2, versions=("1",))]
    state, _ = PartitionAlarm.start().take(days)
    assert {name: version.tests["ece"].labels for name, version in state.versions.items()} == {"1": 300, "2": 100}
    assert state.versions["2"].tests["ece"].blocks == 1
    assert [words.partition(":")[0] for words in state.readings()] == ["Version 1", "Version 2"]


def test_its_state_is_restored_and_a_repeated_write_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "alarm.json"
    state, _ = read_alarm(path, 0.05, 0.01).take([day_of(k, 0.1) for k in range(3)])
    write_alarm(path, state)
    assert read_alarm(path) == state == read_alarm(path, 0.05, 0.01)
    before = path.read_bytes()
    write_alarm(path, read_alarm(path).take([day_of(1, 0.1)])[0])
    assert path.read_bytes() == before
    for settings in ({"tolerance": 0.02}, {"alpha": 0.05}):
        with pytest.raises(FileError, match=r"was begun with the (tolerance 0\.05|alpha 0\.01)"):
            read_alarm(path, **settings)


def test_days_come_in_order_and_without_gaps() -> None:
    state, _ = PartitionAlarm.start().take([day_of(1)])
    with pytest.raises(FileError, match="2026-03-01 are given after the alarm has read 2026-03-02"):
        state.take([day_of(0)])
    with pytest.raises(FileError, match="the sums of 2026-03-03 to 2026-03-04 are missing between 2026-03-02"):
        state.take([day_of(4)])
    whole = replace(day_of(1), window=Window(START, START + 3 * DAY_MS))
    with pytest.raises(FileError, match="allowed are later days"):
        state.take([whole])


def test_evidence_stays_if_a_day_is_made_again() -> None:
    state, _ = PartitionAlarm.start().take([day_of(0), day_of(1)])
    again, notes = state.take([day_of(0, gap=0.5), day_of(1)])
    assert again == state and len(notes) == 1 and "2026-03-01 were made again" in notes[0]


@pytest.mark.parametrize("change", ["format", "tests", "labels", "text"])
def test_a_damaged_state_is_refused_and_kept(change: str, tmp_path: Path) -> None:
    path = tmp_path / "alarm.json"
    write_alarm(path, PartitionAlarm.start().take([day_of(0)])[0])
    tree = json.loads(path.read_text())
    if change == "format":
        tree["format"] = 2
    elif change == "tests":
        del tree["versions"][""]["tests"]["ece"]["log_wealth"]
    elif change == "labels":
        tree["partitions"][0]["labels"] += 1
    path.write_text(json.dumps(tree)[: -30 if change == "text" else None])
    before = path.read_bytes()
    with pytest.raises(FileError, match=r"is not the state of an alarm .*restore it from a copy"):
        read_alarm(path)
    assert path.read_bytes() == before


def test_settings_are_checked() -> None:
    for tolerance, alpha in ((0.5, 0.05), (-1, 0.05), (0.02, 0), (0.02, 1)):
        with pytest.raises(ConfigError):
            PartitionAlarm.start(tolerance, alpha)


@pytest.mark.full
def test_a_correction_is_no_evidence(daily: tuple[PartitionedTable, list[Path]]) -> None:
    """The alarm has read the first label. Evidence that was once shown cannot be withdrawn."""
    days = [read_partition(path) for path in daily[1]]
    counts = [sum(cells[0].sum() for cells in day.first_labels().values()) for day in days]
    assert counts == [day.rows.labels - day.rows.corrections for day in days] and len(days) == DAYS
    assert sum(day.rows.corrections for day in days) > 0
    state, _ = PartitionAlarm.start().take(days)
    assert set(state.versions) == {"1", "2"}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k in range(3):
        write_partition(tmp_path / f"day-{k}.parquet", day_of(k, 0.3))
    words_of_state = ["--state", str(tmp_path / "alarm.json")]
    words = ["alarm", str(tmp_path / "*.parquet"), *words_of_state]
    assert cli.main("trueodds", cli.COMMANDS, words) == 0
    first, state = capsys.readouterr().out, (tmp_path / "alarm.json").read_bytes()
    assert "ALARM since 2026-03-0" in first
    assert cli.main("trueodds", cli.COMMANDS, words) == 0
    assert capsys.readouterr().out == first and (tmp_path / "alarm.json").read_bytes() == state
    (tmp_path / "other.parquet").write_text("x")
    assert cli.main("trueodds", cli.COMMANDS, words) == 1
    assert "holds no sums; allowed are files of sums: make them with `trueodds sums`" in capsys.readouterr().err
    for name, problem in (
        ("no*", "no* matches no file;"),
        ("no", "no does not exist;"),
        ("", "is a folder; name its files:"),
    ):
        for others in ([], [str(tmp_path / "day-0.parquet")]):
            assert cli.main("trueodds", cli.COMMANDS, ["alarm", *others, str(tmp_path / name), *words_of_state]) == 1
            assert problem in capsys.readouterr().err
