"""The archive: each old answer is in the store or in one file, at every moment and after every kill."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from benchmarks.faults import buckets
from service.predict.stored import tables
from service.predict.stored.archive import AnswerArchive, ArchiveError
from service.predict.stored.archive_places import ArchiveBucket, ArchiveFolder
from service.store import Store, open_store
from service.store.databases.database import Database
from service.store.housekeeping import keep_house
from service.store.label_rules import RefusedLabelsError
from service.store.rows import Label
from service.store.store import LATEST_MS
from service.store.work import archiving
from service.store.work.statements import Query, Work
from tests.service.store.conftest import opened
from tests.service.store.rows import HOUR, START, assert_same, batch, count, version
from tests.service.store.test_observed import without_logits
from trueodds.bundle.storage.objects import BucketError
from trueodds.processes.stores import folder_of, name_of

ROOT = Path(__file__).parents[3]
DAY = 24 * HOUR
BEFORE = START - START % DAY + 3 * DAY
"""End of the third day: what is older goes."""
Table = dict[tuple[str, str], dict[str, Any]]


async def filled(store: Store, rows: int = 40) -> None:
    """Answers of four days, of a model, its shadow and an observed version, with labels of all kinds."""
    shadow = version("v2", "m~shadow", heat=2.0)
    seen = replace(version("1", "../o"), is_observed=True, has_logits=False)
    for of in (version(), shadow, seen):
        await store.put_version(of)
    for day in range(4):
        now = START + day * DAY
        tags = [None if k % 3 else "=web" for k in range(rows)]
        answers = batch(rows, now=now, seed=day, tags=tags)
        beside = batch(rows, shadow, now=now, seed=day)
        own = batch(6, now=now, seed=day, own=[f"own {day} {k}" for k in range(6)])
        alone = batch(5, seen, now=now, seed=day, own=[f"o-{day}-{k}" for k in range(5)])
        for one in (answers, replace(beside, ids=answers.ids), own, without_logits(alone)):
            await store.put_predictions(one)
        await store.put_labels([Label(id_, k % 3) for k, id_ in enumerate(answers.ids[: rows // 2])], f"import {day}")
        await store.put_labels([Label(id_, 2, correct=True) for id_ in answers.ids[:3]])
        await store.put_labels([Label(own.ids[0], 1)])


async def stored(store: Store) -> Table:
    """Return what the store's export has, by model and id."""
    found: Table = {}
    for one in await store.read_versions():
        names = tables.columns_of(one, probabilities=one.has_logits)
        async for block in store.export(*one.key, logits=True):
            for row in tables.rows_of(block, one, probabilities=one.has_logits):
                found[one.model, row[0]] = dict(zip(names, row, strict=True))
    return found


def archived(files: list[Path]) -> Table:
    """Return what the files have; each answer once."""
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    found = {(row["model"], row["id"]): row for row in rows}
    assert len(found) == len(rows), "an answer is in two files"
    return found


def together(archive: Table, store: Table) -> Table:
    assert not archive.keys() & store.keys(), "an answer is in both"
    return archive | store


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


async def test_the_archive_takes_whole_days_with_the_columns_of_the_export(store: Store, tmp_path: Path) -> None:
    await filled(store)
    before, sums = await stored(store), await store.read_sums("m", "v1")
    archive = AnswerArchive(store, str(tmp_path))
    assert await archive.run(BEFORE + 5 * HOUR) == 3 * 91 == (await store.read_archive()).answers
    files = files_of(tmp_path)
    assert {path.parent.relative_to(tmp_path).as_posix() for path in files} == {
        "m/v1",
        "m~shadow/v2",
        "%2E.%2Fo/1",
    }
    assert len(files) == 9 and len({path.name[:10] for path in files}) == 3, "one a version and day"
    after = await stored(store)
    assert together(archived(files), after) == before
    assert {row["time"].timestamp() * 1000 >= BEFORE for row in after.values()} == {True}
    assert_same(await store.read_sums("m", "v1"), sums)
    schema = pq.read_schema(files[0])
    writer = tables.ParquetWriter(tables.columns_of(version(), probabilities=True))
    one = next(path for path in files if path.parent.name == "v1")
    assert pq.read_schema(one).equals(pq.read_schema(pa_file(tmp_path / "empty", writer))) and schema
    assert await archive.run(BEFORE) == 0 and files_of(tmp_path) == files
    state = await store.read_archive()
    assert (state.files, state.answers, state.labelled, state.waiting) == (9, 273, 3 * 41, 0), (
        "a label counts for the shadow too"
    )
    assert (state.failures, state.problem) == (0, None) and state.last_ms is not None
    assert await store.database.read(partial(count, "archiving")) == 0
    assert await store.database.read(partial(count, "replaced")) == 4, "those of the day that stays"


def pa_file(path: Path, writer: tables.ParquetWriter) -> Path:
    path.write_bytes(writer.end())
    return path


async def test_what_retention_would_keep_stays(store: Store, tmp_path: Path) -> None:
    """Labels that the evidence has not used, and answers whose window is open."""
    await store.put_version(version())
    old = batch(6)
    await store.put_predictions(old)
    await store.update_state("m", "v1", "alarm", lambda state, block: len(block))
    await store.put_labels([Label(id_, 0) for id_ in old.ids[:2]])
    archive = AnswerArchive(store, str(tmp_path))
    assert await archive.run(BEFORE) == 4
    assert {id_ for _, id_ in await stored(store)} == set(old.ids[:2])
    await store.update_state("m", "v1", "alarm", lambda state, block: len(block))
    assert await archive.run(BEFORE) == 2
    assert {row["label"] for row in archived(files_of(tmp_path)).values()} == {None, "cat"}
    with pytest.raises(RefusedLabelsError, match="older than the retention time"):
        await store.put_labels([Label(old.ids[3], 0)])


async def test_large_days_become_several_files(store: Store, tmp_path: Path) -> None:
    await store.put_version(version())
    await store.put_predictions(batch(50))
    before = await stored(store)
    moved = [await store.move_to_archive(BEFORE, most=20, file_bytes=224 * 7, limit=5)]
    assert moved == [20] and len(await store.read_archive_files()) == 2, "two of 10: a file is full from 7 on"
    assert (await store.read_archive()).waiting == 20
    archive = AnswerArchive(store, str(tmp_path))
    assert await archive.run(BEFORE) == 50
    assert [pq.read_metadata(path).num_rows for path in files_of(tmp_path)] == [10, 10, 30]
    assert archived(files_of(tmp_path)) == before


async def test_an_id_that_is_sent_again_goes_to_another_file(store: Store, tmp_path: Path) -> None:
    """Its first answer waits in a file that a killed process has not sealed."""
    await store.put_version(version())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archiving, "seal", killed)
        await store.put_predictions(batch(2, own=["a", "b"]))
        with pytest.raises(KilledError):
            await store.move_to_archive(BEFORE)
    await store.put_predictions(batch(2, own=["a", "c"], seed=1))
    assert await AnswerArchive(store, str(tmp_path)).run(BEFORE) == 4
    ids = [pq.read_table(path)["id"].to_pylist() for path in files_of(tmp_path)]
    assert ids == [["a", "b"], ["a", "c"]]


def killed() -> Work[None]:
    yield Query("SELECT 1")
    raise KilledError


async def test_files_of_many_classes_are_cut(store: Store, tmp_path: Path) -> None:
    wide = version(classes=tuple(f"c{k}" for k in range(500)))
    await store.put_version(wide)
    await store.put_predictions(batch(50, wide))
    assert await store.move_to_archive(BEFORE, file_bytes=4200 * 20) == 50
    assert [file.answers for file in await store.read_archive_files()] == [20, 20, 10]


class KilledError(Exception):
    """The process ends here."""


class Steps:
    """Counts the steps, and kills at one of them: before it or after it."""

    def __init__(self, fatal: int) -> None:
        self.fatal, self.done = fatal, 0

    def step(self) -> None:
        self.done += 1
        if self.done == self.fatal:
            raise KilledError


def dying(store: Store, folder: Path, steps: Steps) -> AnswerArchive:
    """Return an archive that dies at a step: a transaction, a write or a read of the place."""
    database, archive = store.database, AnswerArchive(store, str(folder))
    place = archive._place

    class Dying(Database):
        async def write(self, make: Any, *, large: bool = False) -> Any:
            steps.step()
            result = await database.write(make, large=large)
            steps.step()
            return result

        async def read(self, make: Any) -> Any:
            return await database.read(make)

        async def ping(self) -> None:
            await database.ping()

        async def close(self) -> None:
            await database.close()

    class DyingFolder(ArchiveFolder):
        def create(self, name: str, source: Path) -> bool:
            steps.step()
            result = place.create(name, source)
            steps.step()
            return result

    store.database, archive._place = Dying(), DyingFolder(folder)
    return archive


@pytest.mark.parametrize(
    ("address", "stride"),
    [("sqlite", 3), *(pytest.param(*case, marks=pytest.mark.full) for case in (("sqlite", 1), ("postgres", 3)))],
    indirect=["address"],
)
def test_a_kill_at_every_step_loses_nothing_and_writes_nothing_twice(address: str, tmp_path: Path, stride: int) -> None:
    async def main() -> None:
        fatal, seen = 1, set[int]()
        while True:
            store = await open_store(address)
            shift = fatal * 10 * DAY
            await store.put_version(version())
            answers = batch(12, now=START + shift, seed=fatal)
            await store.put_predictions(answers)
            own = batch(4, now=START + shift + DAY, seed=fatal, own=[f"{fatal} {k}" for k in range(4)])
            await store.put_predictions(own)
            await store.put_labels([Label(id_, 0) for id_ in answers.ids[:9]])
            before = await stored(store)
            folder, until = tmp_path / str(fatal), BEFORE + shift
            steps = Steps(fatal)
            try:
                await dying(store, folder, steps).run(until)
                ended = True
            except KilledError:
                ended = False
            await store.close()
            seen.add(len(archived(files_of(folder))))
            store = await open_store(address)
            if not ended:
                kept = await stored(store)
                waiting = (await store.read_archive()).waiting
                done = archived(files_of(folder))
                both = done | kept
                assert all(before[key] == row for key, row in both.items())
                assert len(kept) + waiting + sum(key not in kept for key in done) >= len(before), "nothing is lost"
            # Whoever comes next goes on, even under the eyes of another one.
            other = await open_store(address)
            await asyncio.gather(*(AnswerArchive(one, str(folder)).run(until) for one in (store, other)))
            assert archived(files_of(folder)) == before and await stored(store) == {}
            assert (await store.read_archive()).waiting == 0
            assert await store.database.read(partial(count, "archiving")) == 0
            assert not list(folder.rglob("*.part"))
            await other.close()
            await store.close()
            if ended:
                break
            fatal += stride
        assert fatal > 15 and {0, 16} <= seen, "kills before and after the files"

    asyncio.run(main())


async def test_processes_at_once_write_each_answer_once(address: str, tmp_path: Path) -> None:
    async with opened(address) as one, opened(address) as two, opened(address) as three:
        await filled(one, rows=30)
        before = await stored(one)
        archives = [AnswerArchive(store, str(tmp_path)) for store in (one, two, three)]
        written = await asyncio.gather(*(archive.run(BEFORE) for archive in archives))
        assert sum(written) == 3 * 71
        assert together(archived(files_of(tmp_path)), await stored(one)) == before


async def test_processes_that_clear_at_once_leave_nothing(address: str) -> None:
    async with opened(address) as one, opened(address) as two, opened(address) as three:
        await one.put_version(version())
        for k in range(5):
            await one.put_predictions(batch(60, seed=k))
            await one.move_to_archive(BEFORE)
            (file,) = await one.read_archive_files()
            await one.database.write(partial(archiving.finish, file.key, file.answers, START))
            await asyncio.gather(*(store.clear_archive_rows(limit=20) for store in (one, two, three)))
            assert await one.database.read(partial(count, "archiving")) == 0


async def test_a_place_that_cannot_be_written_takes_nothing(store: Store, tmp_path: Path) -> None:
    await filled(store)
    before = await stored(store)
    (tmp_path / "file").write_text("")
    for round_ in range(2):
        with pytest.raises(ArchiveError, match=r"cannot be used: Not a directory.*; check the path"):
            await AnswerArchive(store, str(tmp_path / "file" / "archive")).run(BEFORE)
        state = await store.read_archive()
        assert state.failures == round_ + 1 and "file" in (state.problem or "") and state.waiting == 0
    assert await stored(store) == before
    # Housekeeping removes nothing either, and goes on once the archive works.
    archive = AnswerArchive(store, str(tmp_path / "file" / "archive"))
    task = asyncio.create_task(keep_house(store, 1, 72, archive=archive, seconds=0.01))
    while (await store.read_archive()).failures < 5:
        await asyncio.sleep(0.01)
    assert await stored(store) == before
    (tmp_path / "file").unlink()
    while await stored(store) or (await store.read_archive()).problem:
        await asyncio.sleep(0.01)
    task.cancel()
    assert archived(files_of(tmp_path / "file")) == before


async def test_an_unexpected_error_does_not_end_housekeeping(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not all errors of a library are OSError: gcsfs has its HttpError."""
    await store.put_version(version())
    await store.put_predictions(batch(5))
    task = None
    with monkeypatch.context() as patch:
        patch.setattr(ArchiveFolder, "check", lambda *_: 1 / 0)
        task = asyncio.create_task(keep_house(store, 1, 72, archive=AnswerArchive(store, str(tmp_path)), seconds=0.01))
        while (await store.read_archive()).failures < 3:
            await asyncio.sleep(0.01)
        assert "division" in ((await store.read_archive()).problem or "") and len(await stored(store)) == 5
        assert "ZeroDivisionError" in caplog.text
    while await stored(store):
        await asyncio.sleep(0.01)
    task.cancel()


async def test_a_full_disk_in_the_middle_keeps_the_rows(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that have left the live tables wait in the store, and no others follow them."""
    await filled(store)
    before = await stored(store)
    archive = AnswerArchive(store, str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for _ in range(2):
            with pytest.raises(OSError, match=r"No space left on device.*; free some space"):
                await archive.run(BEFORE)
            assert files_of(tmp_path) == [] and not list(tmp_path.rglob("*.part"))
            state, kept = await store.read_archive(), await stored(store)
            assert state.waiting + len(kept) == len(before)
            assert state.answers == 0 and "No space left" in (state.problem or "")
    assert await archive.run(BEFORE) == 273
    assert together(archived(files_of(tmp_path)), await stored(store)) == before


def full(handle: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("damage", ["other", "cut", "gone"])
async def test_what_the_place_returns_is_compared(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    await filled(store)
    before = await stored(store)
    original = ArchiveFolder.fetch

    def fetch(self: ArchiveFolder, name: str, target: Path) -> bool:
        there = original(self, name, target)
        data = target.read_bytes()
        target.write_bytes(data[:-9] if damage == "cut" else data[:40] + b"?" + data[41:])
        return there and damage != "gone"

    archive = AnswerArchive(store, str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(ArchiveFolder, "fetch", fetch)
        with pytest.raises(ArchiveError, match="is not there" if damage == "gone" else "does not return"):
            await archive.run(BEFORE)
    state = await store.read_archive()
    assert state.answers == 0 and state.waiting + len(await stored(store)) == len(before)
    assert await archive.run(BEFORE) == 273
    assert together(archived(files_of(tmp_path)), await stored(store)) == before


async def test_another_file_under_the_name_is_kept(store: Store, tmp_path: Path) -> None:
    """A copy of the store writes to the same archive: refused by name. The same answers in other bytes are accepted."""
    await store.put_version(version())
    await store.put_predictions(batch(9))
    before = await stored(store)
    archive = AnswerArchive(store, str(tmp_path))
    await store.move_to_archive(BEFORE)
    archive._id = await store.secret("archive", "12345678")
    (file,) = await store.read_archive_files()
    path = tmp_path / archive._name(file)
    path.parent.mkdir(parents=True)
    for content in (b"something", b""):
        path.write_bytes(content)
        with pytest.raises(ArchiveError, match=r"holds something else; move that file away.*--archive"):
            await archive.run(BEFORE)
        assert path.read_bytes() == content and (await store.read_archive()).waiting == 9
    path.unlink()
    assert await archive.run(BEFORE) == 9
    table = pq.read_table(path)
    await store.put_predictions(batch(9, seed=1))
    await store.move_to_archive(BEFORE)
    (file,) = await store.read_archive_files()
    pq.write_table(table, tmp_path / archive._name(file))
    with pytest.raises(ArchiveError, match="holds something else"):
        await archive.run(BEFORE)
    (tmp_path / archive._name(file)).unlink()
    assert await archive.run(BEFORE) == 9
    await store.put_predictions(batch(9, seed=2))
    await store.move_to_archive(BEFORE)
    (file,) = await store.read_archive_files()
    elsewhere = AnswerArchive(store, str(tmp_path / "elsewhere"))
    elsewhere._id = archive._id
    target = tmp_path / "made.parquet"
    from service.predict.stored.archive import _compose

    await _compose(target, store.read_archive_rows(file), version(), 0.0)
    pq.write_table(pq.read_table(target), tmp_path / archive._name(file), compression="zstd")
    assert await archive.run(BEFORE) == 9, "the bytes of another release of pyarrow"
    assert before.keys() <= archived(files_of(tmp_path / "m")).keys()


@pytest.mark.parametrize("judged", [False, True])
async def test_a_file_of_an_earlier_release_lacks_the_columns_of_later_ones(
    store: Store, tmp_path: Path, judged: bool
) -> None:
    """A process of that release was killed before it removed the rows, and the store was upgraded."""
    from service.predict.stored.archive import _compose

    await store.put_version(version())
    answers = batch(9)
    await store.put_predictions(answers)
    if judged:
        await store.put_each_judge_label([Label(answers.ids[0], 1)])
    archive = AnswerArchive(store, str(tmp_path))
    await store.move_to_archive(BEFORE)
    archive._id = await store.secret("archive", "12345678")
    (file,) = await store.read_archive_files()
    path, made = tmp_path / archive._name(file), tmp_path / "made"
    await _compose(made, store.read_archive_rows(file), version(), 0.0)
    path.parent.mkdir(parents=True)
    pq.write_table(pq.read_table(made).drop_columns(["judge_label"]), path)
    if judged:  # the file would lose this label
        with pytest.raises(ArchiveError, match="holds something else"):
            await archive.run(BEFORE)
    else:
        assert await archive.run(BEFORE) == 9


async def test_the_rows_of_a_file_that_vanish_are_damage(store: Store, tmp_path: Path) -> None:
    from service.store.rows import StoreError

    await store.put_version(version())
    await store.put_predictions(batch(9))
    await store.move_to_archive(BEFORE)

    def lose() -> Work[None]:
        yield Query("DELETE FROM archiving WHERE id = (SELECT min(id) FROM archiving)")

    await store.database.write(lose)
    with pytest.raises(StoreError, match="8 of the 9 answers"):
        await AnswerArchive(store, str(tmp_path)).run(BEFORE)
    assert files_of(tmp_path) == []


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[buckets.Store]:
    with buckets.Store() as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        yield bucket


@pytest.mark.full
@pytest.mark.parametrize("address", ["sqlite"], indirect=True)
async def test_a_bucket(store: Store, bucket: buckets.Store, tmp_path: Path) -> None:
    """S3 with conditional writes: refused, away, back, and read back."""
    await filled(store)
    before = await stored(store)
    url = "s3://bucket/old/answers"
    archive = AnswerArchive(store, url + "/")
    for fault in ("denies", "away"):
        if fault == "denies":
            bucket.fault = "denies"
        else:
            bucket.stop()
        with pytest.raises(BucketError, match="denies access" if fault == "denies" else "cannot be reached"):
            await archive.run(BEFORE)
        assert await stored(store) == before and (await store.read_archive()).waiting == 0
        bucket.heal()
    with pytest.raises(BucketError, match="does not exist"):
        await AnswerArchive(store, "s3://nowhere/old").run(BEFORE)
    assert await archive.run(BEFORE) == 273
    files = fsspec.filesystem("s3", skip_instance_cache=True)  # of this test's port
    found = list[Path]()
    for name in files.find("bucket/old/answers"):
        if name.endswith(".parquet"):
            found.append(tmp_path / f"{len(found)}.parquet")
            found[-1].write_bytes(files.cat_file(name))
    assert len(found) == 9 and together(archived(found), await stored(store)) == before
    place, source = ArchiveBucket(url), tmp_path / "other"
    source.write_bytes(b"other")
    name = files.find("bucket/old/answers/m")[0].removeprefix("bucket/old/answers/")
    assert not place.create(name, source) and files.cat_file(f"{url}/{name}") != b"other"
    large = b"a" * (100 << 20)  # s3fs would send it in parts, without the condition
    source.write_bytes(large)
    assert place.create("large", source) and not place.create("large", source)


def test_a_bucket_of_google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """fsspec's own option for `only if none exists`, which gcsfs has too; the bucket is in memory."""
    monkeypatch.setitem(_registry, "gs", MemoryFileSystem)
    source = tmp_path / "a"
    source.write_bytes(b"one")
    place = ArchiveBucket("gs://bucket/archive")
    place.check("marker", b"1")
    assert place.create("m/a.parquet", source) and not place.create("m/a.parquet", source)
    assert place.fetch("m/a.parquet", tmp_path / "b") and (tmp_path / "b").read_bytes() == b"one"
    assert not place.fetch("m/b.parquet", tmp_path / "c")
    with pytest.raises(BucketError, match=r"need s3://, s3a://, gs://, gcs:// or a folder"):
        ArchiveBucket("memory://x").create("a", source)


async def test_a_missing_setting_loses_nothing(store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await store.put_version(version())
    await store.put_predictions(batch(5))

    async def keep(rounds: int = 3, days: int | None = 1, **options: bool) -> None:
        caplog.clear()
        task = asyncio.create_task(keep_house(store, days, 0, seconds=0.01, **options))  # type: ignore[arg-type]
        for _ in range(rounds):
            await asyncio.sleep(0.05)
        task.cancel()

    await store.move_to_archive(BEFORE)
    await store.put_predictions(batch(7, seed=1))
    await keep()
    assert len(await stored(store)) == 7 and "has archived 0 files, but --archive is not set" in caplog.text
    await AnswerArchive(store, str(tmp_path)).run(BEFORE)
    await store.put_predictions(batch(7, seed=1))
    await store.put_labels([Label("a", "dog", model="m")])
    await keep()
    assert len(await stored(store)) == 7 and "has archived 2 files, but --archive is not set" in caplog.text
    await keep(days=None)
    assert (await store.read_held())["m"].count == 1 and caplog.text == ""
    await keep(no_copy=True)
    assert await stored(store) == {} and await store.read_held() == {} and "removed 1 labels" in caplog.text


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    source, name = tmp_path / "source", "m/v[1]/a.parquet"
    source.write_bytes(b"one")
    folder = tmp_path / "archive/m/v[1]"
    folder.mkdir(parents=True)
    left = [folder / f".{part}" for part in ("a.parquet-old.part", "a.parquet-new.part", "b.parquet-old.part")]
    for path in left:
        path.write_bytes(b"o")
        if "old" in path.name:
            os.utime(path, (1, 1))
    assert ArchiveFolder(tmp_path / "archive").create(name, source)
    assert sorted(path.name for path in folder.iterdir()) == [left[1].name, left[2].name, "a.parquet"]


def test_new_folders_are_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = list[Path]()
    monkeypatch.setattr("service.predict.stored.archive_places._sync", synced.append)
    source, archive = tmp_path / "source", tmp_path / "archive"
    source.write_bytes(b"one")
    for is_new in (True, False):
        assert ArchiveFolder(archive).create("m/v/a.parquet", source) is is_new
        assert synced == [archive / "m/v", archive / "m", archive, tmp_path]
        synced.clear()


@pytest.mark.parametrize(
    ("name", "folder"), [("mail~shadow", "mail~shadow"), ("..", "%2E."), ("a/b c", "a%2Fb%20c"), ("é", "%C3%A9")]
)
def test_a_model_has_one_folder(name: str, folder: str) -> None:
    assert folder_of(name) == folder and name_of(folder) == name


@pytest.mark.parametrize(
    ("address", "kills"),
    [("sqlite", 1), *(pytest.param(store, 4, marks=pytest.mark.full) for store in ("sqlite", "postgres"))],
    indirect=["address"],
)
def test_kill_9_while_it_archives(address: str, tmp_path: Path, kills: int) -> None:
    """A process that archives without end is killed at any moment, and another one goes on."""
    choice = random.Random(kills)

    async def fill() -> Table:
        store = await open_store(address)
        await store.put_version(version())
        for k in range(54):  # to the end of the third day
            await store.put_predictions(batch(50, now=START + k * HOUR, seed=k))
        before = await stored(store)
        await store.close()
        return before

    async def rest() -> Table:
        store = await open_store(address)
        await AnswerArchive(store, str(tmp_path)).run(BEFORE)
        assert await store.database.read(partial(count, "archiving")) == 0
        left = await stored(store)
        await store.close()
        return left

    before = asyncio.run(fill())
    for _ in range(kills):
        command = [sys.executable, "-m", "tests.service.store.archiving", address, str(tmp_path), str(BEFORE)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        time.sleep(choice.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        process.wait(60)
        names = Counter(path.name for path in files_of(tmp_path))
        assert set(names.values()) <= {1}
        archived(files_of(tmp_path))
    assert together(archived(files_of(tmp_path)), asyncio.run(rest())).keys() <= before.keys()
    assert archived(files_of(tmp_path)) == before


async def test_labels_that_waited_in_vain_are_kept_for_a_join(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Late labels of archived answers with ids of your own: the store cannot know these ids any more."""
    await store.put_version(version())
    own = batch(3, own=["a", "b", "c"])
    await store.put_predictions(own)
    archive = AnswerArchive(store, str(tmp_path / "archive"))
    await archive.run(BEFORE)
    late = [Label("a", "dog", model="m"), Label("b", 2, model="m"), Label("never", 0, model="m")]
    counts = await store.put_labels(late, "import 1")
    assert counts.held == 3
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveError, match="cannot be used"):
        await AnswerArchive(store, str(tmp_path / "file")).keep_labels(LATEST_MS)
    assert (await store.read_held())["m"].count == 3
    assert await archive.keep_labels(BEFORE) == 0, "they have not waited that long"
    task = asyncio.create_task(keep_house(store, 1, 0, archive=archive, seconds=0.01))
    async with asyncio.timeout(60):
        while "removed 3 labels that had waited 0 hours" not in caplog.text:
            await asyncio.sleep(0.01)
    task.cancel()
    assert "the archive has them" in caplog.text and not await store.read_held()
    labels = [
        row for path in (tmp_path / "archive/m").glob("labels-*.parquet") for row in pq.read_table(path).to_pylist()
    ]
    assert [(row["id"], row["label"], row["import_id"]) for row in sorted(labels, key=lambda row: row["id"])] == [
        ("a", "dog", "import 1"),
        ("b", "café", "import 1"),
        ("never", "cat", "import 1"),
    ]
    assert len(archived(files_of(tmp_path / "archive/m/v1"))) == 3
    # A process that was killed before the removal writes the same file again.
    await store.put_labels([Label("a", "dog", model="m")])
    waiting = await store.read_held_before(LATEST_MS)
    for _ in range(2):
        with pytest.raises(KilledError):
            await killed_before_removal(archive, store)
    assert waiting == await store.read_held_before(LATEST_MS) and len(waiting) == 1
    assert await archive.keep_labels(LATEST_MS) == 1
    assert len(list((tmp_path / "archive/m").glob("labels-*.parquet"))) == 2
    # A label that replaces another one meanwhile stays.
    await store.put_labels([Label("a", "dog", model="m")])
    old = await store.read_held_before(LATEST_MS)
    await asyncio.sleep(0.005)
    await store.put_labels([Label("a", "cat", correct=True, model="m")])
    assert await store.remove_held(old) == 0 and (await store.read_held())["m"].count == 1


async def test_an_index_that_versions_name_differently_stays_a_number(store: Store, tmp_path: Path) -> None:
    await store.put_version(version())
    await store.put_version(version("v2", classes=("dog", "cat", "café")))
    await store.put_labels([Label("a", 1, model="m"), Label("b", 2, model="m"), Label("c", "cat", model="m")])
    assert await AnswerArchive(store, str(tmp_path)).keep_labels(LATEST_MS) == 3
    (file,) = files_of(tmp_path)
    assert {row["id"]: row["label"] for row in pq.read_table(file).to_pylist()} == {"a": "1", "b": "café", "c": "cat"}


async def killed_before_removal(archive: AnswerArchive, store: Store) -> None:
    async def remove_held(labels: Any) -> int:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "remove_held", remove_held)
        await archive.keep_labels(LATEST_MS)
