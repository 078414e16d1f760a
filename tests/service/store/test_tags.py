"""Tags from the 101st on: counted from their rows, and with sums of their own once they are frequent."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from service.app import create_app
from service.settings import Settings
from service.store import Store, open_store
from service.store.rows import Label, PredictionBatch, Version
from service.store.work.sums.deltas import MAX_TAGS, OTHER_KEY, OTHER_TAGS
from tests.service.app_client import Client
from tests.service.store import older
from tests.service.store.rows import HOUR, START, Twin, assert_same, batch, version

FIRST = [f"first-{k}" for k in range(MAX_TAGS)]
NEW = 14


async def filled(store: Store, of: Version | None = None) -> Twin:
    """The first hundred tags once each, then a new one with labels, among rare ones."""
    of, twin = of or version(), Twin()
    await store.put_version(of)
    later: list[str | None] = [*["new"] * NEW, *(f"rare-{k}" for k in range(5)), OTHER_TAGS]
    for number, tags in enumerate([list[str | None](FIRST), later]):
        answers = batch(len(tags), of, now=START + number * HOUR, seed=number, tags=tags)
        await store.put_predictions(answers)
        twin.add(answers)
        rows = {id_: k % len(of.classes) for k, id_ in enumerate(answers.ids) if k % 3}
        await store.put_labels([Label(id_, label) for id_, label in rows.items()])
        twin.labels |= rows
    return twin


def of_tag(tag: str) -> Any:
    return lambda answers, k: answers.tags[k] == tag


async def test_a_rare_tag_is_counted_from_its_rows(store: Store) -> None:
    twin = await filled(store)
    for tag in ("new", "rare-1"):
        rows = await store.read_rare_tag("m", "v1", tag)
        assert rows is not None
        assert_same(rows.total(), twin.sums(of_tag(tag)))
    both = await store.read_class_and_tag("m", "v1", "cat", "new")
    wanted = twin.sums(lambda a, k: a.tags[k] == "new" and a.index_N[k] == 0)
    assert_same(both.total(), wanted)
    assert (await store.read_rare_tag("m", "v1", "new", until=START)) is not None
    assert await store.read_rare_tag("m", "v1", "first-3") is None
    assert await store.read_rare_tag("m", "v1", OTHER_TAGS) is None
    assert await store.has_answers_of("m", "v1", "new") and not await store.has_answers_of("m", "v1", "none")
    await store.delete_prediction("m", twin.ids[-2])
    with pytest.raises(ValueError, match=r"has 20 answers with tags without .* only 19 are still stored"):
        await store.read_rare_tag("m", "v1", "new")


@pytest.mark.parametrize("positive", [False, True])
async def test_a_frequent_tag_gets_exact_sums_of_its_own(store: Store, other: Store, positive: bool) -> None:
    """Whatever was compacted before, with answers and labels before and after, and from another worker's view."""
    of = older.FRAUD if positive else version()
    key = of.model, of.version
    twin = await filled(store, of)
    await other.read_versions()  # it knows the first hundred
    whole, by_class = await store.read_sums(*key), await store.read_sums_by("class", *key)
    p_whole = await store.read_sums(*key, positive=True)
    await store.compact()
    await store.admit_tags(limit=5)
    assert await store.read_rare_tag(*key, "new") is None

    async def agree() -> None:
        tags = await store.read_sums_by("tag", *key)
        for tag in ("new", "first-7"):
            assert_same(tags[tag], twin.sums(of_tag(tag)), 60)
        others = twin.sums(lambda a, k: not str(a.tags[k]).startswith(("first-", "new")))
        assert_same(tags[OTHER_TAGS], others, 60)

    await agree()
    assert_same(await store.read_sums(*key), whole)
    assert_same(await store.read_sums(*key, positive=True), p_whole)
    for name, sums in (await store.read_sums_by("class", *key)).items():
        assert_same(sums, by_class[name], 60)
    for worker in (store, other):  # one that has not heard of the place keeps its answers with the others
        more: PredictionBatch = batch(3, of, seed=9, now=START + 2 * HOUR, tags=["new"] * 3)
        await worker.put_predictions(more)
        twin.add(more)
        await store.put_labels([Label(more.ids[0], 1)])
        twin.labels[more.ids[0]] = 1
    await store.admit_tags()
    await store.compact()
    await agree()
    p_tag = (await store.read_sums_by("tag", *key, only="new", positive=True)).get("new")
    assert (p_tag is not None and p_tag.answers == NEW + 6) == positive


async def test_rare_tags_take_no_places(store: Store) -> None:
    """Names that come once each, such as ids, never displace anything."""
    await store.put_version(version())
    tags = [f"id-{k}" for k in range(MAX_TAGS + 30)]
    await store.put_predictions(batch(len(tags), tags=tags))
    await store.admit_tags()
    assert len(await store.read_sums_by("tag", "m", "v1")) == MAX_TAGS + 1


async def _nothing(store: Store) -> None:
    """In place of housekeeping, which would admit the tag while its report is read."""


@pytest.mark.parametrize("admitted", [False, True])
def test_a_report_of_the_hundred_and_first_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, admitted: bool) -> None:
    """Before and after it has got its place, which a service does beside the requests."""
    address = str(tmp_path / "store.sqlite")

    async def write() -> Twin:
        store = await open_store(address)
        twin = await filled(store)
        if admitted:
            await store.admit_tags()
        await store.close()
        return twin

    twin = asyncio.run(write())
    monkeypatch.setattr(Store, "admit_tags", _nothing)
    with Client(create_app(Settings(store=address, models=str(tmp_path / "none")))) as client:
        labelled = sum(id_ in twin.labels for id_ in twin.ids[MAX_TAGS : MAX_TAGS + NEW])
        for tag, answers in (("new", NEW), ("rare-2", 1)):
            report = client.get("/calibration-report", params={"tag": tag, "trend": "hour", "bins": 10}).json()
            assert report["answers"] == answers and report["trend"]["points"][0]["answers"] == answers
            assert tag != "new" or report["labelled"] == labelled
        unknown = client.get("/calibration-report", params={"tag": "none"})
        assert unknown.status_code == 404 and "has the tag 'none'" in unknown.text
        empty = client.get("/calibration-report", params={"tag": "new", "until": "2000-01-01"})
        assert (empty.status_code, empty.json()["answers"]) == (200, 0)


async def test_an_index_leads_to_rare_tags(tmp_path: Path) -> None:
    """Counting rows of one rare tag does not read the other answers of the version."""
    path = tmp_path / "store.sqlite"
    await (await open_store(str(path))).close()
    with sqlite3.connect(path) as db:
        sql = (
            f"SELECT created_ms FROM predictions p WHERE p.version = 1 AND p.tag_key = {OTHER_KEY}"
            " AND p.created_ms >= 0 AND p.created_ms < 9 AND p.tag = 'new' LIMIT 9"
        )
        ((*_, plan),) = db.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
    assert "USING" in plan and "other_tags (version=? AND tag=? AND created_ms>? AND created_ms<?)" in plan
