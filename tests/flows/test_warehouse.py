"""The flow of `report/warehouse` in this process: missed days, repeated runs, and late rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pipeline.flows import warehouse
from pipeline.flows.warehouse import report_on_warehouse
from tests.conftest import ROOT
from tests.warehouse.engines import Postgres
from tests.warehouse.partitioned import DAY, START, make, write
from trueodds.errors import UserError
from trueodds.files import FileError
from trueodds.reports.warehouse import daily, partitions
from trueodds.reports.warehouse.daily import missing_days
from trueodds.reports.warehouse.summing import sums_by_plan
from trueodds.reports.warehouse.table_source import EngineAwayError


@pytest.fixture(scope="module")
def server() -> Iterator[None]:
    """Prefect's database in a temporary folder."""
    # Its server takes seconds of each process that collects the tests, so it is loaded here.
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=300):
        yield


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder but the page and the numbers, which hold the time at which they were made."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("report.html", "report.json")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def day_of_files(folder: Path, end: int) -> Path:
    """Copy the rows before a time, as a warehouse held them then."""
    for name in ("answers", "labels"):
        for path in (folder / name).iterdir():
            rows = pq.read_table(path, filters=[("time", "<", end)])
            if len(rows):
                (folder / "then" / name).mkdir(parents=True, exist_ok=True)
                pq.write_table(rows, folder / "then" / name / path.name)
    return folder / "then"


@pytest.mark.full
def test_missed_days_are_made_and_a_repeated_run_ends_in_the_same_state(
    server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, rows=400)
    then = day_of_files(tmp_path, START + DAY)
    monkeypatch.chdir(tmp_path)
    first = report_on_warehouse(
        answers=f"{then}/answers/*.parquet", labels=f"{then}/labels/*.parquet", return_state=True
    )
    assert first.is_completed() and sorted(contents(tmp_path / "warehouse")) == [
        "alarm.json",
        "sums/2026-03-01.parquet",
    ]

    run: dict[str, Any] = {"answers": "answers/*.parquet", "labels": "labels/*.parquet"}
    later = report_on_warehouse(**run, return_state=True)
    assert later.name == "Completed" and "no alarm after" in str(later.message)
    state = contents(tmp_path / "warehouse")
    assert len(state) == 5, "three missed days"
    assert report_on_warehouse(**run, return_state=True).is_completed()
    assert contents(tmp_path / "warehouse") == state

    monkeypatch.setattr(warehouse, "write_report", _break)
    (tmp_path / "warehouse" / "sums" / "2026-03-04.parquet").unlink()
    with pytest.raises(RuntimeError, match="the process died"):
        report_on_warehouse(**run)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert report_on_warehouse(**run, return_state=True).is_completed(), "a run that died is repeated"
    assert contents(tmp_path / "warehouse") == state
    numbers = json.loads((tmp_path / "warehouse" / "report.json").read_text())
    assert numbers["answers"] == 400 and (tmp_path / "warehouse" / "report.html").is_file()


def _break(*_: object) -> None:
    raise RuntimeError("the process died")


@pytest.mark.full
def test_an_alarm_names_the_state_of_the_run(server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = 600
    columns = {"confidence": [0.9] * rows, "correct": [k % 2 == 0 for k in range(rows)]}
    columns |= {"time": [START + 60 * k for k in range(rows)]}
    write(Path("a.parquet"), columns)
    state = report_on_warehouse(answers="a.parquet", label="correct", arrival="time", return_state=True)
    assert state.name == "Alarm" and "ALARM since 2026-03-01" in str(state.message)
    with pytest.raises(FileError, match="does not tell when labels arrive"):
        report_on_warehouse(answers="a.parquet", label="correct", folder="other")


@pytest.mark.full
def test_days_of_a_database_are_those_of_files(server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files = make(tmp_path, rows=60)
    run: dict[str, Any] = {"answers": "answers/*.parquet", "labels": "labels/*.parquet"}
    assert report_on_warehouse(**run, folder="files", return_state=True).is_completed()
    database = Postgres()
    try:
        names = [database.write(pq.read_table(Path(str(one)).parent)) for one in (files.answers, files.labels)]
        run = {"answers": names[0], "labels": names[1], "engine": database.address, "folder": "database"}
        state = report_on_warehouse(**run, return_state=True)
        assert state.name == "Completed" and "no alarm after 4 partitions" in str(state.message)
        before = contents(tmp_path / "database")
        assert report_on_warehouse(**run, return_state=True).is_completed()
        assert contents(tmp_path / "database") == before, "a repeated run changes nothing"

        def start_late(*arguments: Any) -> Any:
            try:
                return missing_days(*arguments)
            except EngineAwayError:
                database.cluster.start()
                raise

        monkeypatch.setattr(warehouse, "RETRY_SECONDS", 0)
        monkeypatch.setattr(daily, "missing_days", start_late)
        database.cluster.stop()
        assert report_on_warehouse(**run, return_state=True).is_completed(), "a database that was away is tried again"
    finally:
        database.close()
    assert (tmp_path / "database" / "alarm.json").read_bytes() == (tmp_path / "files" / "alarm.json").read_bytes()


@pytest.mark.full
def test_bad_input_ends_a_run_and_leaves_the_results_before_it(
    server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails writes no report of a part of the rows, and the next one makes what it lacks.

    Each place where a run may fail once: its arguments, its columns, its database. The command has tests of the rest.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warehouse, "RETRY_SECONDS", 0)
    make(tmp_path, rows=80)
    run: dict[str, Any] = {"answers": "answers/*.parquet", "labels": "labels/*.parquet"}
    assert report_on_warehouse(**run, return_state=True).is_completed()
    state = {path: path.read_bytes() for path in (tmp_path / "warehouse").rglob("*") if path.is_file()}
    bad: dict[str, tuple[dict[str, Any], str]] = {
        "nowhere": ({"answers": "nowhere/*.parquet"}, "names no file; check the path"),
        "other classes": ({"classes": ["a", "b"], "folder": "other"}, "has no column 'a'"),
        "away": ({"engine": "postgres://127.0.0.1:1/none", "answers": "a", "labels": "b"}, "check the address"),
    }
    for other, words in bad.values():
        with pytest.raises(UserError, match=words):
            report_on_warehouse(**{**run, **other})
    path = max((tmp_path / "answers").iterdir())
    rows = pq.read_table(path)
    column = next(name for name in rows.schema.names if rows.schema.field(name).type == pa.float64())
    place = rows.schema.get_field_index(column)
    pq.write_table(rows.set_column(place, column, pa.array([float("nan")] * len(rows))), path)
    (tmp_path / "warehouse" / "sums" / "2026-03-04.parquet").unlink()
    with pytest.raises(UserError, match="gap"):
        report_on_warehouse(**run)
    pq.write_table(rows, path)

    def change_once(*arguments: Any) -> Any:
        if not changed:
            changed.append(1)
            pq.write_table(rows, path, compression="zstd")
        return sums_by_plan(*arguments)

    changed: list[int] = []
    monkeypatch.setattr(partitions, "sums_by_plan", change_once)
    assert report_on_warehouse(**run, return_state=True).is_completed(), "a file that changed is read again"
    assert changed
    numbers = {path: path.read_bytes() for path in state if path.suffix == ".json" and path.name == "alarm.json"}
    assert numbers == {path: state[path] for path in numbers}


def test_the_deployment_names_the_flow() -> None:
    deployments = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
    (one,) = [one for one in deployments if one["name"] == "warehouse"]
    assert (
        one["entrypoint"] == "pipeline/flows/warehouse.py:report_on_warehouse" and report_on_warehouse.name == "report"
    )
    assert one["parameters"].keys() <= report_on_warehouse.parameters.properties.keys()
    assert [schedule["cron"] for schedule in one["schedules"]] == ["30 0 * * *"]
