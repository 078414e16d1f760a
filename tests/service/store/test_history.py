"""Store and archive as one table: its report is that of the store before the archive, whenever it is read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.faults import buckets
from service.predict.stored.archive import AnswerArchive
from service.predict.stored.copies import StoreCopies
from service.store import open_store
from service.store.rows import Label
from service.store.work import archiving
from tests.service.store.conftest import opened
from tests.service.store.rows import START, batch, version
from tests.service.store.test_archive import BEFORE, DAY, KilledError, Steps, dying, filled
from trueodds import cli
from trueodds.errors import UserError
from trueodds.reports.table.reading import Form
from trueodds.reports.table.stored_sums import merge
from trueodds.reports.table.summed import COLUMNS, TableSums
from trueodds.reports.warehouse.history import history_sums, open_history
from trueodds.reports.warehouse.summing import sums_of_source


def sums_of(store: str, archive: Path | str | None = None, model: str = "m", **options: Any) -> TableSums:
    place = None if archive is None else str(archive)
    return history_sums(store=store, archive=place, model=model, trend="hour", **options)


def rows_of(
    store: str, archive: Path | None = None, model: str = "m", version: str | None = None
) -> tuple[list[str], tuple[str, ...]]:
    """Return the rows and the notes of the table that a report sums; its sums take ten times as long."""
    place = None if archive is None else str(archive)
    with open_history(store, place, model=model, version=version, form=Form()) as found:
        return sorted(map(str, found.source.table.to_pyarrow().to_pylist())), found.notes


def labelled(rows: list[str]) -> int:
    return sum("'label': None" not in row for row in rows)


def assert_same(found: TableSums, expected: TableSums) -> None:
    """Check that counts are equal, and sums to 1e-9."""
    one, other = merge([found.groups]), merge([expected.groups])
    for name in ("part_G", "name_G", "number_G", "cell_G"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
    counts = [COLUMNS.index(name) for name in ("answers", "count", "correct", "zeros")]
    np.testing.assert_array_equal(one.sums_GK[:, counts], other.sums_GK[:, counts])
    np.testing.assert_allclose(one.sums_GK, other.sums_GK, rtol=1e-9)
    assert (found.classes, found.columns, found.positive_class) == (
        expected.classes,
        expected.columns,
        expected.positive_class,
    )


def command(*arguments: str) -> int:
    return cli.main("trueodds", cli.COMMANDS, ["report", *arguments])


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command(*arguments) == 1
    printed = capsys.readouterr()
    assert not printed.out
    return printed.err


@pytest.mark.full
async def test_the_sums_are_those_of_the_store_before_the_archive(address: str, tmp_path: Path) -> None:
    labels = {"m": 84} if "://" in address else {"m": 84, "m~shadow": 80, "../o": 0}
    async with opened(address) as store:
        await filled(store)
        sums = {model: sums_of(address, model=model) for model in labels}
        assert await AnswerArchive(store, str(tmp_path)).run(BEFORE) == 273
        for model, before in sums.items():
            assert before.by_confidence == (model == "../o") and before.total.labelled.n == labels[model]
            found = sums_of(address, tmp_path, model)
            assert_same(found, before)
            assert found.total.answers == len(before) and found.notes == before.notes
            assert len(rows_of(address, model=model)[0]) == len(before) // 4
            of_version = rows_of(address, tmp_path, model, version=before.version)
            assert of_version == rows_of(address, tmp_path, model) and of_version[0]


@pytest.mark.full
def test_a_process_that_is_killed_between_both_counts_nothing_twice(address: str, tmp_path: Path) -> None:
    async def main() -> None:
        fatal = 1
        while True:
            store = await open_store(address)
            shift = fatal * 10 * DAY
            await store.put_version(version())
            answers = batch(12, now=START + shift, seed=fatal)
            await store.put_predictions(answers)
            await store.put_predictions(
                batch(4, now=START + shift + DAY, seed=fatal, own=[f"{fatal} {k}" for k in range(4)])
            )
            await store.put_labels([Label(id_, 0) for id_ in answers.ids[:9]])
            before = rows_of(address, tmp_path)
            assert len(before[0]) == 16 * (1 + fatal // 3) and not before[1]
            try:
                await dying(store, tmp_path, Steps(fatal)).run(BEFORE + shift)
                ended = True
            except KilledError:
                ended = False
            await store.close()
            assert rows_of(address, tmp_path) == before
            async with opened(address) as other:
                await AnswerArchive(other, str(tmp_path)).run(BEFORE + shift)
            assert rows_of(address, tmp_path) == before
            if ended:
                return
            fatal += 3

    asyncio.run(main())


@pytest.mark.full
@pytest.mark.parametrize("moment", ["after the snapshot", "after the listing"])
async def test_answers_that_leave_while_a_report_reads_count_once(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    async with opened(address) as store:
        await filled(store)
        before, _ = rows_of(address)
        await AnswerArchive(store, str(tmp_path)).run(BEFORE - DAY)

        async def leave() -> None:
            async with opened(address) as other:
                assert await AnswerArchive(other, str(tmp_path)).run(BEFORE + 5 * DAY)

        def then_leave(work: Callable[..., Any]) -> Callable[..., Any]:
            def both(*arguments: Any) -> Any:
                result = work(*arguments)
                if not done:
                    done.append(1)
                    asyncio.run(leave())
                return result

            return both

        done: list[int] = []
        if moment == "after the snapshot":
            monkeypatch.setattr(StoreCopies, "copy", then_leave(StoreCopies.copy))
        else:
            from trueodds.reports.warehouse.history import _Reading

            monkeypatch.setattr(_Reading, "_listings", then_leave(_Reading._listings))
        found = await asyncio.to_thread(rows_of, address, tmp_path)
        assert done
        assert found == (before, ())
        monkeypatch.undo()
        assert rows_of(address, tmp_path) == (before, ())


@pytest.mark.full
async def test_labels_that_come_after_the_archive_are_joined_by_id(address: str, tmp_path: Path) -> None:
    """They wait in the store, and then are in files of labels. Both have the sums of labels that came in time."""
    clock = START
    ids = [f"own {k}" for k in range(40)]
    late = [Label(id_, 2 if k % 2 else "dog", model="m") for k, id_ in enumerate(ids[10:30])]
    async with opened(address) as store:
        store._clock = lambda: clock
        await store.put_version(version("v0", classes=("bird", "cat")))
        with pytest.raises(UserError, match="there are no answers"):
            sums_of(address)
        await store.put_version(version())
        await store.put_predictions(batch(40, own=ids))
        await store.put_labels([Label(id_, 0) for id_ in ids[:15]])
        early, _ = rows_of(address)
        archive = AnswerArchive(store, str(tmp_path))
        assert await archive.run(BEFORE) == 40
        clock += 5 * DAY
        await store.put_labels([*late, Label("nobody", 0, model="m"), Label(ids[31], "bird", model="m")])
        waiting = rows_of(address, tmp_path)
        assert await archive.keep_labels(clock + 1) == 22
        filed = rows_of(address, tmp_path)
    twin = str(tmp_path / "twin.sqlite")
    async with opened(twin) as store:
        await store.put_version(version())
        await store.put_predictions(batch(40, own=ids))
        await store.put_labels([Label(id_, 0) for id_ in ids[:15]])
        await store.put_labels([replace(one, correct=True) for one in late])
        expected, _ = rows_of(twin)
    assert labelled(expected) == 30 and labelled(early) == 15
    for found, notes in (waiting, filed):
        assert found == expected
        assert notes == (
            "1 late label left out: no answer has the id.",
            "1 late label left out: the answer's version has no such class.",
        )
    rows = {
        "id": ["own 1"] * 2,
        "label": ["cat", "dog"],
        "time": pa.array([clock + DAY] * 2, pa.timestamp("ms", "UTC")),
    }
    pq.write_table(pa.table(rows), tmp_path / "m" / "labels-2030-01-01-x-y.parquet")
    with pytest.raises(UserError, match=r"'own 1' has two different late labels of the same time; keep one of them"):
        sums_of(address, tmp_path)


@pytest.mark.full
async def test_an_id_that_is_sent_again_is_another_answer(address: str, tmp_path: Path) -> None:
    async with opened(address) as store:
        await store.put_version(version())
        await store.put_predictions(batch(5, own=list("abcde")))
        assert await AnswerArchive(store, str(tmp_path)).run(BEFORE) == 5
        await store.put_predictions(batch(2, own=["a", "x"], seed=1, now=START + DAY))
        assert len(rows_of(address, tmp_path)[0]) == 7
        with pytest.MonkeyPatch.context() as patch:  # its file is written and not verified
            patch.setattr(archiving, "finish", lambda *_: (_ for _ in ()).throw(KilledError()))
            with pytest.raises(KilledError):
                await AnswerArchive(store, str(tmp_path)).run(BEFORE)
        assert len(list(tmp_path.rglob("*.parquet"))) == 2
        assert len(rows_of(address, tmp_path)[0]) == 7


@pytest.mark.full
async def test_versions_with_other_classes_are_read_by_confidence(tmp_path: Path) -> None:
    address, other = str(tmp_path / "store.sqlite"), version("v2", classes=("cat", "dog"))
    async with opened(address) as store:
        for one in (version(), other):
            await store.put_version(one)
            await store.put_predictions(batch(20, one))
        assert await AnswerArchive(store, str(tmp_path)).run(BEFORE) == 40
        await store.put_predictions(batch(20, now=START + 9 * DAY))
        found = sums_of(address, tmp_path)
        assert (len(found), found.by_confidence) == (60, True)
        assert (
            found.notes[0] == "Read by confidence, so without NLL and Brier score: the versions have different classes."
        )
        alone = sums_of(address, tmp_path, version="v2")
        assert (len(alone), alone.classes, alone.by_confidence) == (20, ("cat", "dog"), False)
        with pytest.raises(UserError, match=r"the versions 'v1' have other classes.*--version.*leave --classes out"):
            sums_of(address, tmp_path, classes=("cat", "dog"))
        assert sums_of(address, tmp_path, version="v2", classes=("dog", "cat"), positive="cat").positive_class == "cat"


async def test_an_archive_alone_and_that_of_other_stores(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    for name in ("one", "two"):
        async with opened(str(tmp_path / name)) as store:
            await filled(store)
            await AnswerArchive(store, str(folder)).run(BEFORE)
    found = history_sums(archive=str(folder), model="m")
    both = sums_of(str(tmp_path / "one"), folder)
    assert (len(found), len(both)) == (2 * 3 * 46, 7 * 46)
    assert both.notes == (
        "The archive also has files of 1 other store. They count; answers that are still in those stores do not.",
    )


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A folder with a SQLite store and its archive."""

    async def make() -> None:
        async with opened(str(tmp_path / "store.sqlite")) as store:
            await filled(store)
            await AnswerArchive(store, str(tmp_path / "archive")).run(BEFORE)

    asyncio.run(make())
    return tmp_path


@pytest.mark.full
def test_the_command_reports_on_store_and_archive(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, archive = str(whole / "store.sqlite"), str(whole / "archive")
    place = ("--store", store, "--archive", archive, "--model", "m", "--version", "v1")
    assert command(*place, "--by", "tag", "--trend", "day", "--json", str(whole / "found.json")) == 0
    assert f"m in {archive} and {store}, version v1: 184 of 184" not in capsys.readouterr().out
    tree = json.loads((whole / "found.json").read_text())
    assert (tree["answers"], tree["labelled"]) == (184, 84) and len(tree["trend"]["points"]) == 4
    assert command("--archive", archive, "--model", "m", "--engine", "duckdb") == 0
    assert "84" not in capsys.readouterr().out.splitlines()[0]
    assert command("--store", store, "--model", "m") == 0
    assert "138 archived answers left out: name their place with --archive." in capsys.readouterr().out


def test_what_cannot_be_read_is_named_with_the_cure(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, archive = ("--store", str(whole / "store.sqlite")), ("--archive", str(whole / "archive"))
    model = ("--model", "m")
    assert "no answers are named; give a file" in refusal(capsys)
    assert "--model m is given without --store" in refusal(capsys, "answers.csv", *model)
    assert "answers.csv is given beside --store" in refusal(capsys, "answers.csv", *store)
    assert "--engine is given beside" in refusal(capsys, *store, "--engine", "chdb:///data")
    assert "--judge needs the rows" in refusal(capsys, *store, "--judge", "judge_label")
    assert "--store is given with --multi-label" in refusal(capsys, *store, "--multi-label")
    assert "has the models '../o', 'm'; name one with --model" in refusal(capsys, *store, *archive)
    assert "has no model 'mail'; it has '../o', 'm', 'm~shadow'" in refusal(capsys, *store, *archive, "--model", "mail")
    assert "has no version 'v9' of m; allowed are 'v1'" in refusal(capsys, *archive, *model, "--version", "v9")
    missing = refusal(capsys, "--archive", str(whole / "nowhere"), *store, *model)
    assert "nowhere is no folder; give the folder or the bucket that --archive" in missing
    (whole / "empty").mkdir()
    other = refusal(capsys, "--archive", str(whole / "empty"), *store, *model)
    assert (
        "has none of the 3 files that" in other and "such as m/v1/20" in other and "--archive of the service" in other
    )
    assert "empty has no answers; check the address" in refusal(capsys, "--archive", str(whole / "empty"))
    assert "does not exist; give the path of its SQLite file" in refusal(capsys, "--store", "gone.sqlite", *model)
    (whole / "text").write_text("no store")
    assert "not a database" in refusal(capsys, "--store", str(whole / "text"), *model)
    away = refusal(capsys, "--store", "postgresql://me:secret@127.0.0.1:1/none", *model)
    assert "cannot be opened" in away and "Check --store" in away and "secret" not in away
    assert "allowed are file paths and postgresql:// URLs" in refusal(capsys, "--store", "mysql://host/a", *model)
    first, *_ = sorted((whole / "archive" / "m" / "v1").iterdir())
    kept = first.read_bytes()
    pq.write_table(pq.read_table(first).drop_columns(["confidence"]), first)
    assert "has no column 'confidence', which files of an archive have" in refusal(capsys, *store, *archive, *model)
    table = pq.read_table(first.with_name(sorted(p.name for p in first.parent.iterdir())[1]))
    pq.write_table(table.set_column(1, "time", pa.array(range(len(table)))), first)
    assert "has the column 'time' of type BIGINT" in refusal(capsys, *store, *archive, *model)
    first.write_bytes(kept[:-100])
    assert "check that each file is a whole Parquet file" in refusal(capsys, *store, *archive, *model)
    first.unlink()
    assert command(*store, *archive, *model) == 0
    assert (
        "46 answers left out: 1 file of the archive, which the store has written, went away." in capsys.readouterr().out
    )


def test_a_file_of_the_archive_that_changes_meanwhile_ends_the_report(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = sorted((whole / "archive" / "m" / "v1").iterdir())

    def change(*arguments: Any, **options: Any) -> Any:
        first.write_bytes(first.read_bytes())
        return sums_of_source(*arguments, **options)

    monkeypatch.setattr("trueodds.reports.warehouse.history.sums_of_source", change)
    with pytest.raises(UserError, match="changed while it was read"):
        sums_of(str(whole / "store.sqlite"), whole / "archive")


@pytest.mark.full
async def test_an_archive_in_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = str(tmp_path / "store.sqlite")
    with buckets.Store() as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        async with opened(address) as store:
            await filled(store)
            before = sums_of(address)
            archive = AnswerArchive(store, "s3://bucket/some/answers")
            assert await archive.run(BEFORE) == 273
            clock = START + 9 * DAY
            store._clock = lambda: clock
            await store.put_labels([Label("own 0 5", 1, model="m")])
            await archive.keep_labels(clock + 1)
        found = await asyncio.to_thread(sums_of, address, "s3://bucket/some/answers/")
        assert len(found) == len(before) and found.total.labelled.n == before.total.labelled.n + 1
        place = ("--store", address, "--archive", "s3://bucket/some/answers", "--model", "m")
        assert "has no model 'mail'; it has '../o', 'm'" in refusal(capsys, *place[:4], "--model", "mail")
        assert "has none of the 3 files" in refusal(capsys, "--archive", "s3://bucket/other", *place[:2], *place[4:])
        assert "bucket that does not exist" in refusal(capsys, "--archive", "s3://none/a", *place[:2], *place[4:])
        bucket.fault = "denies"
        assert "denies access" in refusal(capsys, *place)


async def test_nothing_is_written_to_the_store(address: str) -> None:
    async with opened(address) as store:
        await filled(store, rows=4)
    files = (
        {path: path.stat().st_mtime_ns for path in Path(address).parent.glob("store.sqlite*")}
        if "://" not in address
        else {}
    )
    sums_of(address)
    assert all(path.stat().st_mtime_ns == time for path, time in files.items())
