"""Tables in a bucket: moto's S3 behind a real port, read by DuckDB, with credentials, faults and changes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import moto.settings
import pyarrow.parquet as pq
import pytest

from benchmarks.faults.buckets import Store
from tests.warehouse.tables import arrow, usual
from tests.warehouse.test_command import assert_close, figures, part, refusal, written
from trueodds import cli
from trueodds.errors import UserError
from trueodds.files import FileChangedError
from trueodds.reports.table.reading import Form
from trueodds.reports.table.stored_sums import merge, read_partition
from trueodds.reports.warehouse.parquet_source import open_source
from trueodds.reports.warehouse.partitions import PartitionedTable, sums_of_partition
from trueodds.reports.warehouse.planning import plan_of
from trueodds.reports.warehouse.summing import sums_by_plan, sums_of_source

pytestmark = pytest.mark.full

ANSWERS = "s3://bucket/some/answers/*.parquet"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    with Store() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        yield store


def put(url: str, columns: dict[str, Any]) -> None:
    """Write a table as an object."""
    body = io.BytesIO()
    pq.write_table(arrow(columns), body, row_group_size=100)
    fsspec.filesystem("s3", skip_instance_cache=True).pipe_file(url, body.getvalue())


def put_parts(columns: dict[str, Any], folder: str = "s3://bucket/some/answers") -> None:
    for k in range(3):
        put(f"{folder}/day [{k}].parquet", part(columns, slice(500 * k, 500 * (k + 1))))


def test_a_report_on_a_bucket_is_that_of_the_same_files_here(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = usual(1_500)
    put_parts(columns)
    put("s3://bucket/other/answers/day-1.parquet", columns)
    whole = written(tmp_path / "whole.parquet", columns)
    options = ("--by", "tag", "--trend", "day")
    found = figures(tmp_path, ANSWERS, "--engine", "duckdb", *options)
    assert f"{ANSWERS}: " in capsys.readouterr().out
    expected = figures(tmp_path, str(whole), "--engine", "duckdb", *options)
    for name in ("answers", "labelled", "accuracy", "ece", "nll", "brier", "tags", "trend"):
        assert_close(found[name], expected[name])
    assert found["answers"] == 1_500
    one = figures(tmp_path, "s3://bucket/some/answers/day [[]1].parquet", "--engine", "duckdb")
    assert one["answers"] == 500
    one = figures(tmp_path, "s3://bucket/other/answers/day-1.parquet", "--engine", "duckdb")
    assert one["answers"] == 1_500


def test_labels_in_a_bucket_join_answers_here_and_there(store: Store, tmp_path: Path) -> None:
    columns = usual(300)
    labels = {"id": list(range(300)), "label": columns.pop("label")}
    expected = figures(tmp_path, str(written(tmp_path / "whole.parquet", {**columns, "label": labels["label"]})))
    put("s3://bucket/labels.parquet", labels)
    put("s3://bucket/answers.parquet", {**columns, "id": list(range(300))})
    here = written(tmp_path / "answers.parquet", {**columns, "id": list(range(300))})
    for place in (str(here), "s3://bucket/answers.parquet"):
        found = figures(tmp_path, place, "--engine", "duckdb", "--labels", "s3://bucket/labels.parquet")
        assert found["labelled"] == expected["labelled"]
        assert_close(found["ece"], expected["ece"])


def test_sums_of_a_day_in_a_bucket_are_those_of_the_same_files_here(
    store: Store, daily: tuple[PartitionedTable, list[Path]]
) -> None:
    table, paths = daily
    assert table.labels is not None
    here = read_partition(paths[1])
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    for kind, pattern in (("answers", table.answers), ("labels", table.labels)):
        for path in Path(pattern).parent.glob("*.parquet"):
            files.pipe_file(f"bucket/{kind}/{path.name}", path.read_bytes())
    far = PartitionedTable(answers="s3://bucket/answers/*.parquet", labels="s3://bucket/labels/*.parquet")
    there = sums_of_partition(far, here.window)
    assert there.rows == here.rows
    assert merge([there.groups]).sums_GK == pytest.approx(merge([here.groups]).sums_GK, rel=1e-9)
    facts = [[(file.bytes, file.sha256, file.rows) for file in one.files] for one in (there, here)]
    assert facts[0] == facts[1] and all(file.path.startswith("s3://bucket/") for file in there.files)
    store.fault = "denies"
    with pytest.raises(UserError, match="denies access"):
        sums_of_partition(far, here.window)


def test_a_bucket_that_cannot_be_read_is_named_with_the_cure(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_parts(usual(1_500))
    engine = ("--engine", "duckdb")
    assert "names no object; check the bucket" in refusal(capsys, "s3://bucket/nothing/*.parquet", *engine)
    assert "names no object" in refusal(capsys, "s3://bucket/nothing.parquet", *engine)
    assert "bucket that does not exist" in refusal(capsys, "s3://no-bucket/a*.parquet", *engine)
    assert "does not end in .parquet" in refusal(capsys, "s3://bucket/some/answers", *engine)
    assert "add --engine duckdb" in refusal(capsys, ANSWERS)
    assert "pip install gcsfs" in refusal(capsys, "gs://bucket/a*.parquet", *engine)
    store.fault = "denies"
    assert "denies access" in refusal(capsys, ANSWERS, *engine)
    store.fault = ""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert "without credentials; set AWS_ACCESS_KEY_ID" in refusal(capsys, ANSWERS, *engine)


def test_wrong_credentials_are_named(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
    message = refusal(capsys, ANSWERS, "--engine", "duckdb")
    assert "refuses the credentials" in message and "AWS_SECRET_ACCESS_KEY" in message


def test_half_an_object_is_refused(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    put_parts(usual(1_500))
    files = fsspec.filesystem("s3", skip_instance_cache=True)
    path = "bucket/some/answers/day [1].parquet"
    files.pipe_file(path, files.cat_file(path)[:-200])
    assert "whole Parquet file" in refusal(capsys, ANSWERS, "--engine", "duckdb")


CHANGES = {
    "another object": "s3://bucket/some/answers/day [1].parquet",
    "a new object": "s3://bucket/some/answers/day [7].parquet",
}


@pytest.mark.parametrize("url", CHANGES.values(), ids=CHANGES)
def test_an_object_that_changes_between_two_reads_is_refused(store: Store, url: str) -> None:
    put_parts(usual(1_500))
    source = open_source(ANSWERS, "duckdb")
    sums_by_plan(source, plan_of(source, Form()))
    put(url, usual(500, seed=9))
    with pytest.raises(FileChangedError, match="changed while it was read"):
        sums_of_source(source)


def test_an_object_that_goes_is_refused(store: Store) -> None:
    put_parts(usual(1_500))
    source = open_source(ANSWERS, "duckdb")
    fsspec.filesystem("s3", skip_instance_cache=True).rm_file("bucket/some/answers/day [2].parquet")
    with pytest.raises(FileChangedError, match="changed while it was read"):
        sums_of_source(source)


def test_a_bucket_that_fails_in_the_middle_gives_no_report(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At whichever request it begins to fail, nothing is printed but the error."""
    put_parts(usual(1_500))
    store.requests.clear()
    assert cli.main("trueodds", cli.COMMANDS, ["report", ANSWERS, "--engine", "duckdb"]) == 0
    asked = len(store.requests)
    capsys.readouterr()
    for last in (asked // 4, asked // 2, 3 * asked // 4):
        while True:
            put_parts(usual(1_500))
            end = len(store.requests) + last
            with monkeypatch.context() as context:
                context.setattr(Store, "fault", property(partial(fault_after, end)), raising=False)
                status = cli.main("trueodds", cli.COMMANDS, ["report", ANSWERS, "--engine", "duckdb"])
            printed = capsys.readouterr()
            if len(store.requests) > end:
                break
            last //= 2  # of objects that are some seconds old, DuckDB keeps what it has read, and asks less often
        assert status != 0 and not printed.out
        # The store answers HEAD with a body, which the client may take for a broken connection.
        assert "denies access" in printed.err or "cannot be reached" in printed.err, printed.err


def fault_after(end: int, store: Store) -> str:
    return "denies" if len(store.requests) > end else ""


def test_commands_that_read_files_refuse_a_url(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["threshold"], ["compare", "a.csv"]):
        with pytest.raises(SystemExit):
            cli.main("trueodds", cli.COMMANDS, [*command, "s3://me:secret@bucket/a.parquet"])
        message = capsys.readouterr().err
        assert "copy it to this machine first" in message and "secret" not in message
