"""A store that commit 955bcb0 wrote, upgraded: reports as they were, but for labels that may have been misread."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from service.choices import Meaning
from service.predict.stored.archive import AnswerArchive
from service.store import DoubtfulCounts, Store, StoreError, open_store
from service.store import upgrade_store as upgrade
from service.store.databases.schema import VERSION
from service.store.rows import Label, LabelSelection, SettleCounts, Settlement, Voiding
from service.store.work.statements import Query, Work
from service.store.work.upgrading import is_ambiguous
from tests.service.store import older
from tests.service.store.conftest import opened
from tests.service.store.rows import batch, count, version
from trueodds.calibrators.conformal import SetRule

STARS = ("stars/v1", "stars~shadow/v2")


def said() -> tuple[list[str], Callable[[str], None]]:
    lines: list[str] = []
    return lines, lines.append


async def written(address: str, file: Path = older.FILE) -> dict[str, Any]:
    """Write the older store to an address; what was read of it then."""
    if "://" in address:
        return await older.load_postgres(address, file)
    return older.load_sqlite(Path(address), file)


def near(actual: Any, expected: Any) -> None:
    """Equal, but for rounding of sums that were added up in another order."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            near(actual[key], expected[key])
    elif isinstance(expected, list) and all(isinstance(value, float) for value in expected):
        assert actual == pytest.approx(expected, rel=1e-12, abs=1e-12)
    else:
        assert actual == expected


def dumped(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


def settling(decision: Meaning) -> Settlement:
    return Settlement(decision, older.START, "Ada", "asked who sent them")


async def test_an_older_store_is_refused_with_the_command_then_upgraded_once(address: str) -> None:
    then = await written(address)
    with pytest.raises(StoreError, match=rf"reads version {VERSION}.*then run: trueodds store upgrade"):
        await open_store(address)
    lines, say = said()
    doubtful = await upgrade(address, older.RESTART, say)
    assert doubtful == {("stars", "v1"): DoubtfulCounts(9, 0), ("stars~shadow", "v2"): DoubtfulCounts(9, 0)}
    assert await upgrade(address, older.RESTART, say) is None
    assert len(lines) == 1 and ("is kept as" in lines[0] or "No copy is kept" in lines[0])
    store = await open_store(address)
    now = await older.read(store)
    for name in ("pets/v1", "fraud/v1", "held"):
        near(now[name], then[name])
    for name in STARS:
        assert now[name]["log"] == {} and now[name]["labelled"] == [0] * 7 and not now[name]["corrected"]
        assert now[name]["answers"] == then[name]["answers"]
        assert await store.count_doubtful(*name.split("/")) == 9
    assert now["stars/v1"]["state"] == []
    assert await store.database.read(lambda: count("labels")) == 14
    await store.close()


async def test_a_store_of_schema_9_gets_the_first_labels(address: str) -> None:
    then = await written(address, older.FILE_9)
    with pytest.raises(StoreError, match=rf"reads version {VERSION}.*then run: trueodds store upgrade"):
        await open_store(address)
    lines, say = said()
    assert await upgrade(address, older.RESTART, say) == {}
    assert await upgrade(address, older.RESTART, say) is None and len(lines) == 1
    store = await open_store(address)
    now = await older.read(store)
    near(now, {name: part for name, part in then.items() if name != "firsts"})
    for name, firsts in then["firsts"].items():
        log = await store.read_labels(*name.split("/"))
        found = dict(zip(log.ids, log.first_label_L.tolist(), strict=True))
        assert found == firsts, name
    await store.close()


async def test_a_store_of_schema_11_keeps_its_first_labels(tmp_path: Path) -> None:
    """Its versions have no conformal sets yet. A correction since then must not become a first label."""
    path = tmp_path / "store.sqlite"
    older.load_sqlite(path, older.FILE_9)
    await upgrade(str(path), older.RESTART, print)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE versions DROP COLUMN sets")
        for column in ("judge_label", "members"):
            db.execute(f"ALTER TABLE archiving DROP COLUMN {column}")
        for table in ("label_draws", "label_queue", "judge_labels", "observed_sets"):
            db.execute(f"DROP TABLE {table}")
        db.execute("UPDATE labels SET first_label = 1 - label WHERE label < 2")
        before = db.execute("SELECT prediction, version, first_label FROM labels ORDER BY 1, 2").fetchall()
        db.execute("PRAGMA user_version = 11")
        db.commit()
    assert await upgrade(str(path), older.RESTART, print) == {}
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT prediction, version, first_label FROM labels ORDER BY 1, 2").fetchall() == before
    store = await open_store(str(path))
    assert all(version.set_rules == () for version in await store.read_versions())
    await store.close()


async def test_a_store_of_schema_10_gets_the_archive_and_sets(address: str, tmp_path: Path) -> None:
    """Its tables are those of today without the archive's and the sets; no row changes."""
    async with opened(address) as store:
        await store.put_version(version())
        answers = batch(9)
        await store.put_predictions(answers)
        await store.put_labels([Label(id_, 0) for id_ in answers.ids[:3]])
        before = await store.read_labels("m", "v1")
    archive, later = ("archive_files", "archiving", "archive_problems"), ("judge_labels", "observed_sets")
    tables = (*archive, "label_draws", "label_queue", *later)
    if "://" in address:
        connection = await asyncpg.connect(address)
        for table in tables:
            await connection.execute(f"DROP TABLE {table}")
        await connection.execute("ALTER TABLE versions DROP COLUMN sets")
        await connection.execute("UPDATE trueodds_schema SET version = 10")
        await connection.close()
    else:
        with contextlib.closing(sqlite3.connect(address)) as db:
            for table in tables:
                db.execute(f"DROP TABLE {table}")
            db.execute("ALTER TABLE versions DROP COLUMN sets")
            db.execute("PRAGMA user_version = 10")
            db.commit()
    with pytest.raises(StoreError, match=r"has schema version 10.*then run: trueodds store upgrade"):
        await open_store(address)
    assert await upgrade(address, older.RESTART, print) == {}
    async with opened(address) as store:
        after = await store.read_labels("m", "v1")
        assert after.ids == before.ids and (after.first_label_L == before.first_label_L).all()
        assert await AnswerArchive(store, str(tmp_path / "archive")).run(older.START + 72 * older.HOUR) == 9


async def test_a_store_of_schema_13_takes_labels_of_a_judge(address: str, tmp_path: Path) -> None:
    """No row changes. A judge's labels leave the store with their answers, by deletion and by the archive."""
    async with opened(address) as store:
        await store.put_version(version())
        answers = batch(9)
        await store.put_predictions(answers)
        await store.put_labels([Label(id_, 0) for id_ in answers.ids[:3]])
    undo = (
        "DROP TABLE observed_sets",
        "DROP TABLE judge_labels",
        "ALTER TABLE archiving DROP COLUMN judge_label",
        "ALTER TABLE archiving DROP COLUMN members",
        "UPDATE trueodds_schema SET version = 13" if "://" in address else "PRAGMA user_version = 13",
    )
    if "://" in address:
        connection = await asyncpg.connect(address)
        for statement in undo:
            await connection.execute(statement)
        await connection.close()
    else:
        with contextlib.closing(sqlite3.connect(address)) as db:
            for statement in undo:
                db.execute(statement)
            db.commit()
    with pytest.raises(StoreError, match=r"has schema version 13.*then run: trueodds store upgrade"):
        await open_store(address)
    assert await upgrade(address, older.RESTART, print) == {}
    async with opened(address) as store:
        sums, log = await store.read_sums("m", "v1"), await store.read_labels("m", "v1")
        ids = answers.ids
        assert await store.put_judge_labels([Label(id_, 1) for id_ in ids[:5]]) == {
            "stored": 5,
            "already_known": 0,
            "replaced": 0,
        }
        assert await store.put_each_judge_label([Label(ids[0], 1), Label(ids[1], 0)]) == ["already_known", "replaced"]
        rows = {row.id: row.judge_label for block in [b async for b in store.export("m", "v1")] for row in block}
        assert [rows[id_] for id_ in ids] == [1, 0, 1, 1, 1, None, None, None, None]
        judged = await store.read_judged("m", "v1", 0, 2**47, 100)
        assert judged is not None and sorted(judged.label_N.tolist()) == [-1] * 6 + [0] * 3
        assert (await store.read_labels("m", "v1")).ids == log.ids
        assert (await store.read_sums("m", "v1")).labelled.n == sums.labelled.n == 3
        await store.delete_prediction("m", ids[0])
        assert await store.count_judge_labels("m", "v1") == 4
        assert await store.move_to_archive(older.START + 72 * older.HOUR) == 8
        assert await store.count_judge_labels("m", "v1") == 0
        (file,) = await store.read_archive_files()
        kept = {row.id: row.judge_label async for block in store.read_archive_rows(file) for row in block}
        assert [kept[id_] for id_ in ids[1:]] == [0, 1, 1, 1, None, None, None, None]


@pytest.mark.parametrize("schema", [14, 15])
async def test_an_older_store_takes_sets_of_other_servers(address: str, schema: int) -> None:
    """Retention and a deletion remove them with their answers. The archive keeps them."""
    async with opened(address) as store:
        await store.put_version(version())
        await store.put_predictions(batch(3))
    undo = ["DROP TABLE observed_sets"] * (schema == 14) + ["ALTER TABLE archiving DROP COLUMN members"]
    if "://" in address:
        connection = await asyncpg.connect(address)
        for statement in [*undo, f"UPDATE trueodds_schema SET version = {schema}"]:
            await connection.execute(statement)
        await connection.close()
    else:
        with contextlib.closing(sqlite3.connect(address)) as db:
            for statement in [*undo, f"PRAGMA user_version = {schema}"]:
                db.execute(statement)
            db.commit()
    with pytest.raises(StoreError, match=rf"has schema version {schema}.*then run: trueodds store upgrade"):
        await open_store(address)
    assert await upgrade(address, older.RESTART, print) == {}

    def stored_sets() -> Work[int]:
        ((rows,),) = yield Query("SELECT count(*) FROM observed_sets")
        return int(rows)

    async with opened(address) as store:
        given = replace(version("sets"), set_rules=(SetRule.of_level(0.9),))
        await store.put_version(given)
        answers = replace(batch(5, given, own=[f"own-{n}" for n in range(5)]), sets=[bytes([128])] * 5)
        await store.put_predictions(answers)
        assert await store.database.read(stored_sets) == 5
        await store.delete_prediction("m", answers.ids[0])
        assert await store.database.read(stored_sets) == 4
        assert await store.move_to_archive(older.START + 72 * older.HOUR) == 7
        assert await store.database.read(stored_sets) == 0
        kept = {
            row.id: row.members
            for file in await store.read_archive_files()
            async for block in store.read_archive_rows(file)
            for row in block
        }
        assert kept == dict.fromkeys(answers.ids[1:], bytes([128])) | dict.fromkeys(set(kept) - set(answers.ids))
        await store.put_predictions(answers)
        assert (await store.prune(older.START + 72 * older.HOUR)).predictions == 5
        assert await store.database.read(stored_sets) == 0


async def test_retention_removes_the_labels_of_a_judge(address: str) -> None:
    async with opened(address) as store:
        await store.put_version(version())
        answers = batch(9)
        await store.put_predictions(answers)
        await store.put_judge_labels([Label(id_, 1) for id_ in answers.ids])
        assert (await store.prune(older.START + 72 * older.HOUR)).predictions == 9
        assert await store.count_judge_labels("m", "v1") == 0


async def test_a_first_label_that_is_lost_is_the_predicted_one_or_unknown(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    firsts = older.load_sqlite(path, older.FILE_9)["firsts"]["levels/v1"]
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM replaced WHERE version = 5 AND prediction IN ('level-3', 'level-4')")
        db.commit()
    await upgrade(str(path), older.RESTART, print)
    store = await open_store(str(path))
    log = await store.read_labels("levels", "v1")
    found = dict(zip(log.ids, log.first_label_L.tolist(), strict=True))
    await store.close()
    assert found == firsts | {"level-4": -1}, "level-3 was right at first, level-4 was wrong"


@pytest.mark.parametrize("decision", ["as_stored", "as_names", "void"])
async def test_labels_in_doubt_are_settled(address: str, decision: Meaning) -> None:
    """As stored: all as it was. As names: each index is the class of that name. Void: as if they had never come."""
    then = await written(address)
    await upgrade(address, older.RESTART, print)
    store = await open_store(address)
    planned = await store.settle_labels(LabelSelection(), settling(decision), dry_run=True)
    assert await store.settle_labels(LabelSelection(), settling(decision), limit=2) == planned
    now = await older.read(store)
    for name in ("pets/v1", "fraud/v1"):
        near(now[name], then[name])
    log = then["stars/v1"]["log"]
    if decision == "as_stored":
        for name in STARS:
            near(
                {k: v for k, v in now[name].items() if k != "state"},
                {k: v for k, v in then[name].items() if k != "state"},
            )
        assert planned[0]["stars", "v1"] == SettleCounts(confirmed=9)
        taken = await store.update_state("stars", "v1", "log", older.log_of)
        assert sorted(taken) == sorted(then["stars/v1"]["state"])
    elif decision == "as_names":  # index 0 is no name, so it waits on
        assert now["stars/v1"]["log"] == {id_: label - 1 for id_, label in log.items() if label}
        assert planned[0]["stars", "v1"] == SettleCounts(confirmed=8, waiting=1)
    else:
        assert now["stars/v1"]["log"] == {} and planned[0]["stars", "v1"] == SettleCounts(voided=9)
    left = 1 if decision == "as_names" else 0
    assert await store.count_doubtful("stars", "v1") == left
    assert [s.labels for s in await store.read_settlements("stars", "v1")] == [9 - left]
    assert planned[1] == (SettleCounts(voided=1) if decision == "void" else SettleCounts(confirmed=1))
    assert (await store.settle_labels(LabelSelection(), settling("void")))[1] == SettleCounts()
    await store.close()


async def test_labels_in_doubt_by_import_and_those_that_come_anew(address: str) -> None:
    await written(address)
    await upgrade(address, older.RESTART, print)
    store = await open_store(address)
    counts, _ = await store.settle_labels(LabelSelection("as-names", model="stars"), settling("as_stored"))
    assert counts == dict.fromkeys([("stars", "v1"), ("stars~shadow", "v2")], SettleCounts(confirmed=3))
    await store.put_labels([Label("review-0", "4")])
    assert await store.count_doubtful("stars", "v1") == 5
    voiding = Voiding(LabelSelection("as-numbers"), older.START, "Ada", "unknown")
    voided, _ = await store.void_labels(voiding, older.RESTART)
    assert voided["stars", "v1"].removed == 4  # the fifth had been corrected, which stays in doubt
    assert await store.count_doubtful("stars", "v1") == 1
    assert (await store.read_labels("stars", "v1")).ids == ["review-6", "review-7", "review-8", "review-0"]
    await store.close()


async def test_a_held_label_in_doubt_stays_in_doubt_when_its_prediction_comes(address: str) -> None:
    await written(address)
    await upgrade(address, older.RESTART, print)
    store = await open_store(address)
    later = older.answers(older.STARS, 1, 9, own="review-9")
    await store.put_predictions(later)  # review-90, which came as the integer 3
    assert await store.count_doubtful("stars", "v1") == 10
    assert not len(await store.read_labels("stars", "v1"))
    await store.settle_labels(LabelSelection("early"), settling("as_names"))
    log = await store.read_labels("stars", "v1")
    assert (log.ids, log.label_L.tolist()) == (["review-90"], [2])
    await store.close()


def test_a_file_that_is_open_is_refused_and_a_failure_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    older.load_sqlite(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("SELECT * FROM models").fetchall()
        with pytest.raises(StoreError, match=r"another process has the store .* open; stop every service"):
            asyncio.run(upgrade(str(path), older.RESTART, print))

    def failing(tree: Any, first: int) -> Any:
        raise KeyError("stopped")

    before = dumped(path)
    with pytest.raises(KeyError):
        asyncio.run(upgrade(str(path), {"log": failing}, print))
    assert dumped(path) == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["store.sqlite"]
    asyncio.run(upgrade(str(path), older.RESTART, print))
    assert dumped(tmp_path / "store.sqlite.schema-6") == before


def test_labels_that_only_the_sums_still_hold_are_counted(tmp_path: Path) -> None:
    """Retention removes rows and keeps sums, of which nobody can tell the part of one label."""
    path = tmp_path / "store.sqlite"
    older.load_sqlite(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        for table, column in (("labels", "prediction"), ("replaced", "prediction"), ("predictions", "id")):
            db.execute(f"DELETE FROM {table} WHERE {column} IN ('review-0', 'review-1')")
        db.commit()
    doubtful = asyncio.run(upgrade(str(path), older.RESTART, print))
    assert doubtful == {("stars", "v1"): DoubtfulCounts(7, 2), ("stars~shadow", "v2"): DoubtfulCounts(7, 2)}


def test_what_is_no_older_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"the store .* does not exist"):
        asyncio.run(upgrade(str(tmp_path / "none"), older.RESTART, print))
    (tmp_path / "text").write_text("hello " * 1000)
    with pytest.raises(StoreError, match="is damaged: file is not a database"):
        asyncio.run(upgrade(str(tmp_path / "text"), older.RESTART, print))


@pytest.mark.parametrize(
    ("names", "ambiguous"),
    [
        (("1", "2", "3", "4", "5"), True),
        (("1", "0"), True),
        (("0", "1", "2"), False),
        (("-1", "1"), False),  # 0 is no name, and 1 is the index of the class 1
        (("7", "8"), False),  # no index is a name
        (("1", "2", "other"), True),
        (("other", "1", "2"), False),
        (("cat", "dog"), False),
        (("01", "02"), False),
    ],
)
def test_which_integers_are_ambiguous(names: tuple[str, ...], ambiguous: bool) -> None:
    assert is_ambiguous(names) == ambiguous


async def test_stores_open_after_an_upgrade_as_new_ones(address: str) -> None:
    """An upgraded store takes answers and labels, and compacts, beside what it held."""

    async def main(store: Store) -> None:
        before = await older.read(store)
        more = older.answers(older.PETS, 5, 77)
        await store.put_predictions(more)
        await store.put_labels([Label(id_, "cat") for id_ in more.ids])
        await store.compact()
        after = await older.read(store)
        assert after["pets/v1"]["answers"] == before["pets/v1"]["answers"] + 5
        assert after["pets/v1"]["labelled"][0] == before["pets/v1"]["labelled"][0] + 5
        near(after["fraud/v1"], before["fraud/v1"])

    await written(address)
    await upgrade(address, older.RESTART, print)
    store = await open_store(address)
    await main(store)
    await store.close()


async def test_the_stamp_of_a_judge_does_not_depend_on_agreeing_clocks(address: str) -> None:
    """A process whose clock is behind replaces a label of a judge; the kept figures must be read again."""
    async with opened(address) as store, opened(address) as late:
        await store.put_version(version())
        answers = batch(9)
        await store.put_predictions(answers)
        assert await store.read_judge_stamp("m", "v1") == (0,)
        await store.put_judge_labels([Label(id_, 1) for id_ in answers.ids])
        before = await store.read_judge_stamp("m", "v1")
        late._clock = lambda: older.START
        assert (await late.put_judge_labels([Label(answers.ids[0], 0)]))["replaced"] == 1
        assert await store.read_judge_stamp("m", "v1") != before
        counts = await store.count_judged("m", "v1", 0, 2**47)
        assert counts == (9, 9, 0, 0, 5), "five answers have a propensity"
