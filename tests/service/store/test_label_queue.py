"""The label queue of the store: draws that do not overlap, leases that end, counts, retention and deletion."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3

import asyncpg
import pytest

from service.store import Store, StoreError, open_store
from service.store import upgrade_store as upgrade
from service.store.queue_rows import ClosedAnswer, LabelDraw, OverlapError, QueueCounts
from service.store.rows import Label, LabelSelection, Voiding
from service.store.work.statements import Query, Work
from tests.service.store import older
from tests.service.store.conftest import opened
from tests.service.store.rows import START, batch, version
from trueodds.sums.maturity import DAY_MS, Maturity

DRAW = LabelDraw(START, 0, START + 10, "ece", None, None, 0.5, 3, 9, "Ada")


def iter_rows(query: str, id_: str) -> Work[list[tuple[object, ...]]]:
    rows = yield Query(query, (id_,))
    return list(rows)


async def filled(store: Store, days: int | None = None, count: int = 9) -> list[str]:
    """Answers of a version; with `days`, of one whose labels mature."""
    maturity = None if days is None else Maturity(days * DAY_MS)
    await store.put_version(dataclasses.replace(version(), maturity=maturity))
    answers = dataclasses.replace(batch(count), propensities=[None] * count)
    await store.put_predictions(answers)
    return list(answers.ids)


async def test_a_draw_reaches_the_answers_and_their_labels(store: Store) -> None:
    ids = await filled(store)
    await store.put_labels([Label(ids[0], 0)])
    frame = await store.read_drawable("m", "v1", 0, 2**47, 100)
    assert [row.id for row in frame] == sorted(ids[1:])
    assert len(await store.read_drawable("m", "v1", 0, 2**47, 3)) == 3
    await store.put_labels([Label(ids[1], 0)])  # comes while the sample is drawn
    await store.put_label_draw("m", "v1", DRAW, [(ids[1], 0.2), (ids[2], 0.25), (ids[3], 0.5)])
    await store.put_labels([Label(ids[2], 0), Label(ids[8], 0)])
    log = await store.read_labels("m", "v1")
    found = dict(zip(log.ids, log.propensity_L.tolist(), strict=True))
    assert found[ids[1]] == 0.2 and found[ids[2]] == 0.25
    assert found[ids[0]] != found[ids[0]] and found[ids[8]] != found[ids[8]]  # NaN: not drawn
    assert {row.id for row in await store.read_drawable("m", "v1", 0, 2**47, 100)} == set(ids[4:8])


async def test_draws_do_not_overlap(store: Store) -> None:
    ids = await filled(store)
    assert await store.read_last_draw_end("m", "v1") == 0
    await store.put_label_draw("m", "v1", DRAW, [(ids[1], 0.2)])
    assert await store.read_last_draw_end("m", "v1") == START + 10
    with pytest.raises(OverlapError):
        await store.put_label_draw("m", "v1", DRAW, [(ids[2], 0.2)])
    assert (await store.read_queue_counts("m", "v1") or QueueCounts()).sample_size == 1
    later = dataclasses.replace(DRAW, since_ms=START + 10, until_ms=START + 20)
    assert await store.put_label_draw("m", "v1", later, [(ids[2], 0.2)]) > 0


async def test_leases_end_and_two_people_get_different_answers(store: Store) -> None:
    ids = await filled(store)
    now = [START]
    store._clock = lambda: now[0]
    await store.put_label_draw("m", "v1", DRAW, [(ids[k], 0.5) for k in (5, 2, 7)])
    first = await store.lease_answers("m", "v1", "Ada", START + 100, 2)
    assert [one.id for one in first] == [ids[5], ids[2]] and first[0].lease_until_ms == START + 100
    assert [one.id for one in await store.lease_answers("m", "v1", "Bo", START + 100, 2)] == [ids[7]]
    again = await store.lease_answers("m", "v1", "Ada", START + 200, 1)
    assert [one.id for one in again] == [ids[5]]  # the same person gets the same answer
    shorter = await store.lease_answers("m", "v1", "Ada", START + 20, 1)
    assert [(one.id, one.lease_until_ms) for one in shorter] == [(ids[5], START + 200)]  # a longer lease stays
    assert [one.id for one in await store.read_leases("m", "v1", "Ada", START + 150, 9)] == [ids[5]]
    now[0] = START + 150
    assert [one.id for one in await store.lease_answers("m", "v1", "Bo", START + 300, 9)] == [ids[2], ids[7]]
    await store.put_labels([Label(ids[5], 0)])
    await store.close_answers("m", "v1", [ids[5]], "Ada", is_skip=False)
    await store.close_answers("m", "v1", [ids[2]], "Bo", is_skip=True)
    assert [one.id for one in await store.lease_answers("m", "v1", "Ada", START + 500, 9)] == []
    assert await store.read_queue_ids("m", "v1", [*ids, "a\0b"]) == {ids[5], ids[2], ids[7]}
    assert await store.read_leases("m", "v1", "A\0da", START + 150, 9) == []


async def closed_by(store: Store) -> list[tuple[str | None, int]]:
    return [(one.who, one.at_ms - START) for one in await store.read_closed_answers("m", "v1", 9)]


async def test_the_first_person_stays_the_one_who_labelled_until_the_label_is_voided(store: Store) -> None:
    (id_, *_), now = await filled(store), [START]
    store._clock = lambda: now[0]
    await store.put_label_draw("m", "v1", DRAW, [(id_, 0.5)])
    await store.close_answers("m", "v1", [id_], "Eve", is_skip=True)
    for now[0], who in ((START + 5, "Ada"), (START + 9, "Bo")):  # Bo sends the same label again
        await store.put_labels([Label(id_, 0)])
        await store.close_answers("m", "v1", [id_], who, is_skip=False)
        assert await closed_by(store) == [("Ada", 5)]
    await store.void_labels(Voiding(LabelSelection(since_ms=0), START, "Eve", "wrong file"), {})
    assert await closed_by(store) == []
    await store.put_labels([Label(id_, 0)])
    assert await closed_by(store) == [(None, 9)]  # nobody knows who sent it
    await store.close_answers("m", "v1", [id_], "Bo", is_skip=False)
    assert await closed_by(store) == [("Bo", 9)]


@pytest.mark.parametrize("days", [None, 3])
async def test_a_skipped_answer_that_gets_a_label_elsewhere_is_labelled(store: Store, days: int | None) -> None:
    """Also while the label matures. Without its label it is skipped again."""
    ids, now = await filled(store, days), [START + 1000]
    store._clock = lambda: now[0]
    await store.put_label_draw("m", "v1", DRAW, [(id_, 0.5) for id_ in ids[:4]])
    await store.close_answers("m", "v1", [ids[0], ids[1]], "Eve", is_skip=True)
    now[0] += 10
    await store.put_labels([Label(ids[0], 1), Label(ids[2], 1)], "import-1")
    now[0] += 10
    await store.put_labels([Label(ids[3], 0)], "import-2")
    await store.close_answers("m", "v1", [ids[3]], "Ada", is_skip=False)
    now[0] += 10
    await store.put_labels([Label(ids[3], 1, correct=True)], "import-3")

    closed = await store.read_closed_answers("m", "v1", 9)
    skip = {"skipped_by": "Eve", "skipped_ms": START + 1000}
    skipped = ClosedAnswer(ids[1], "Eve", START + 1000, is_skip=True, **skip)  # type: ignore[arg-type]
    labels = [
        ClosedAnswer(ids[0], None, START + 1010, is_skip=False, **skip, import_id="import-1"),  # type: ignore[arg-type]
        ClosedAnswer(ids[2], None, START + 1010, is_skip=False, import_id="import-1"),
    ]
    corrected = ClosedAnswer(ids[3], "Ada", START + 1020, False, corrected_ms=START + 1030, import_id="import-3")
    assert closed == [corrected, *sorted(labels, key=lambda one: one.id), skipped]
    assert closed[:2] == await store.read_closed_answers("m", "v1", 2)
    counts = await store.read_queue_counts("m", "v1")
    assert counts is not None and (counts.skips, counts.right + counts.wrong + counts.maturing) == (1, 3)
    await store.void_labels(Voiding(LabelSelection(import_id="import-1"), now[0], "Eve", "wrong file"), {})
    again = await store.read_closed_answers("m", "v1", 9)
    assert again[0] == corrected and set(again[1:]) == {skipped, dataclasses.replace(skipped, id=ids[0])}


async def test_counts_follow_labels_from_anywhere(store: Store) -> None:
    ids = await filled(store)
    assert await store.read_queue_counts("m", "v1") is None
    await store.put_label_draw("m", "v1", DRAW, [(ids[k], 0.1 * (k + 1)) for k in range(4)])
    index_N = batch(9).index_N
    await store.put_labels([Label(ids[0], int(index_N[0])), Label(ids[1], int(index_N[1] + 1) % 3)])
    await store.close_answers("m", "v1", [ids[2]], "Ada", is_skip=True)
    counts = await store.read_queue_counts("m", "v1")
    assert counts is not None and (counts.right, counts.wrong, counts.skips, counts.waiting) == (1, 1, 1, 1)
    assert (counts.right_weight, counts.wrong_weight, counts.skip_weight) == pytest.approx((10, 5, 1 / 0.3))
    await store.close_answers("m", "v1", [ids[0]], "Bo", is_skip=True)  # too late: it has a label
    query = "SELECT skipped, who FROM label_queue WHERE prediction = $1"
    assert [tuple(row) for row in await store.database.read(lambda: iter_rows(query, ids[0]))] == [(0, None)]
    await store.put_labels([Label(ids[2], 0)])  # a skipped answer gets a label after all
    counts = await store.read_queue_counts("m", "v1")
    assert counts is not None and counts.skips == 0 and counts.right + counts.wrong == 3
    await store.delete_prediction("m", ids[3])
    assert await store.read_queue_ids("m", "v1", ids) == set(ids[:3])
    await store.prune(2**47)
    assert await store.read_queue_ids("m", "v1", ids) == set()


async def test_a_store_of_schema_12_gets_the_queue(address: str) -> None:
    async with opened(address) as store:
        ids = await filled(store)
        await store.put_labels([Label(ids[0], 1)])
        before = await store.read_labels("m", "v1")
    if "://" in address:
        connection = await asyncpg.connect(address)
        for table in ("label_draws", "label_queue", "judge_labels", "observed_sets"):
            await connection.execute(f"DROP TABLE {table}")
        for column in ("judge_label", "members"):
            await connection.execute(f"ALTER TABLE archiving DROP COLUMN {column}")
        await connection.execute("UPDATE trueodds_schema SET version = 12")
        await connection.close()
    else:
        with contextlib.closing(sqlite3.connect(address)) as db:
            for table in ("label_draws", "label_queue", "judge_labels", "observed_sets"):
                db.execute(f"DROP TABLE {table}")
            for column in ("judge_label", "members"):
                db.execute(f"ALTER TABLE archiving DROP COLUMN {column}")
            db.execute("PRAGMA user_version = 12")
            db.commit()
    with pytest.raises(StoreError, match=r"has schema version 12.*then run: trueodds store upgrade"):
        await open_store(address)
    assert await upgrade(address, older.RESTART, print) == {}
    async with opened(address) as store:
        assert (await store.read_labels("m", "v1")).ids == before.ids
        await store.put_label_draw("m", "v1", DRAW, [(ids[1], 0.2)])
        assert len(await store.lease_answers("m", "v1", "Ada", 2**47, 5)) == 1
