"""Questions of decision models on both stores: counts, repeats, notices, and that single answers can be removed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from service.store import Store
from service.store.decision_rows import DecisionRow, QuestionDecisions, QuestionVersion
from service.store.rows import ConflictsError
from tests.service.store.rows import START, batch, count, version

SPAM = QuestionVersion("spam", "jev-1-aa", "spam", "noul", "jev-1", "aa", is_ordered=False)
URGENCY = QuestionVersion("urgency", "jev-1-bb", "How urgent?", "score", "jev-1", "bb", is_ordered=True)


def decisions(of: QuestionVersion, *rows: DecisionRow) -> list[QuestionDecisions]:
    return [QuestionDecisions(of, list(rows))]


def declined(*ids: str) -> list[DecisionRow]:
    return [DecisionRow(id_, START, is_declined=True) for id_ in ids]


def stream(share: float, size: int, seed: int) -> list[DecisionRow]:
    """Rows of which about a share is declined."""
    is_declined = np.random.default_rng(seed).random(size) < share
    return [DecisionRow(f"{seed}-{n}", START + n, is_declined=bool(one)) for n, one in enumerate(is_declined)]


async def test_questions_are_counted_once_with_their_repeats_and_masses(store: Store) -> None:
    rows = [
        DecisionRow("a", START + 5, mass=0.9, input="x"),
        DecisionRow("b", START + 1, mass=0.4, input="y"),
        DecisionRow("c", START + 9, input="x"),
        DecisionRow("c", START + 9, input="x"),
        *declined("d"),
    ]
    assert await store.put_decisions([], decisions(SPAM, *rows), 0.05) == []
    await store.put_decisions([], decisions(SPAM, *rows), 0.05)
    await store.put_decisions([], decisions(SPAM, DecisionRow("e", START + 7, input="y")), 0.05)
    await store.put_decisions([], decisions(URGENCY, DecisionRow("a", START, input="x")), 0.05)
    spam, urgency = await store.read_questions()
    assert (spam.of, urgency.of) == (SPAM, URGENCY)
    assert (spam.answered, spam.declined, spam.repeated) == (4, 1, 2)
    assert spam.mean_mass == pytest.approx(0.65) and (spam.masses, spam.low_masses) == (2, 1)
    assert (spam.first_ms, spam.last_ms) == (START, START + 9)
    assert (urgency.answered, urgency.repeated, urgency.mean_mass) == (1, 0, None)
    known = await store.read_earlier_decisions(["a", "d", "none"])
    assert known == {("spam", "a"): False, ("spam", "d"): True, ("urgency", "a"): False}
    assert await store.read_notices() == []


async def test_answers_are_stored_with_their_rows_and_a_conflict_is_not_counted(store: Store) -> None:
    of = replace(SPAM, model="m", version="v1")
    await store.put_version(version())
    answers = batch(2, own=["a", "b"])
    rows = [DecisionRow(id_, START, input="x", kept='"text"') for id_ in ("a", "b")]
    assert await store.put_decisions([answers], [QuestionDecisions(of, rows)], 0.05) == [[None, None]]
    other = batch(2, own=["b", "c"], seed=1, digest=b"another digest ..")
    earlier = await store.put_decisions(
        [other], [QuestionDecisions(of, [replace(rows[1]), DecisionRow("c", START)])], 0.05
    )
    assert earlier[0][0] is not None and earlier[0][0].logits is None and earlier[0][1] is None
    assert (await store.read_questions())[0].answered == 3
    assert (await store.read_sums("m", "v1")).answers == 3
    assert await store.read_input("m", "a") == '"text"' and await store.read_input("m", "c") is None
    assert (await store.delete_prediction("m", "a")).predictions == 1
    assert await store.read_input("m", "a") is None and await store.read_earlier_decisions(["a"]) == {}
    await store.prune(START + 1, limit=1)
    assert await store.database.read(lambda: count("decisions")) == 0
    assert (await store.read_questions())[0].answered == 3, "the counts stay"


async def test_a_conflict_in_one_question_prevents_all(store: Store) -> None:
    """Labels of one input are stored together or not at all, though only one question has had the id."""
    for model in ("m", "n"):
        await store.put_version(replace(version(), model=model))
    await store.put_predictions(batch(1, own=["a"]))
    other = batch(2, own=["a", "b"], seed=1, digest=b"another digest ..")
    answers = [replace(other, model=model) for model in ("n", "m")]
    rows = [DecisionRow(id_, START) for id_ in ("a", "b")]
    asked = [QuestionDecisions(replace(SPAM, model=model, version="v1"), rows) for model in ("n", "m")]
    with pytest.raises(ConflictsError) as caught:
        await store.put_decisions(answers, asked, 0.05, each=False)
    assert [[row is not None for row in rows] for rows in caught.value.outcomes] == [[False, False], [True, False]]
    assert [(await store.read_sums(model, "v1")).answers for model in ("m", "n")] == [1, 0]
    assert await store.read_questions() == []


async def test_a_new_served_model_and_a_new_wording_are_each_noticed_once(store: Store, other: Store) -> None:
    row = DecisionRow("a", START)
    await store.put_decisions([], decisions(SPAM, row), 0.05)
    served = replace(SPAM, served="jev-2", version="jev-2-aa")
    await asyncio.gather(*(s.put_decisions([], decisions(served, row), 0.05) for s in (store, other) for _ in range(3)))
    await store.put_decisions([], decisions(replace(SPAM, wording="cc", version="jev-2-cc", served="jev-2"), row), 0.05)
    await store.put_decisions([], decisions(replace(SPAM, version="jev-1-aa-promise"), row), 0.05)
    await other.put_decisions([], decisions(URGENCY, row), 0.05)
    found = [(n.kind, n.version, n.details) for n in await other.read_notices()]
    assert found == [
        ("served_model_changed", "jev-2-aa", {"before": "jev-1", "now": "jev-2"}),
        ("wording_changed", "jev-2-cc", {"before": "aa", "now": "cc"}),
    ]


async def test_a_rise_of_declined_questions_is_noticed_once_and_a_constant_share_is_not(store: Store) -> None:
    for seed in range(10):
        await store.put_decisions([], decisions(URGENCY, *stream(0.05, 200, seed)), 0.05)
        await store.put_decisions([], decisions(SPAM, *stream(0.05 if seed < 5 else 0.3, 200, seed)), 0.05)
    (notice,) = await store.read_notices()
    assert (notice.model, notice.version, notice.kind) == ("spam", "jev-1-aa", "refusals_rising")
    assert notice.details["now"] > 3 * notice.details["before"] and notice.details["alpha"] == 0.05
    assert notice.details["log_e"] >= 3 and 1000 < notice.details["questions"] <= 2000


async def test_workers_do_not_lose_each_others_counts(store: Store, other: Store) -> None:
    calls = [
        each.put_decisions([], decisions(of, *stream(0.1, 20, seed)), 0.05)
        for seed in range(6)
        for each, of in ((store, SPAM), (other, SPAM), (other, URGENCY), (store, URGENCY))
    ]
    await asyncio.gather(*calls)
    assert {q.answered + q.declined for q in await store.read_questions()} == {120}


async def test_deliveries_change_one_at_a_time_and_a_secret_stays(store: Store, other: Store) -> None:
    for served in ("jev-1", "jev-2"):
        of = replace(SPAM, served=served, version=f"{served}-aa")
        await store.put_decisions([], decisions(of, DecisionRow("a", START)), 0.05)
    (notice,) = await store.read_notices()

    def more(tree: dict[str, int]) -> dict[str, int]:
        return {"sent": tree.get("sent", 0) + 1}

    await asyncio.gather(*(each.change_deliveries(notice.key, more) for each in (store, other) for _ in range(4)))
    assert (await other.read_notices())[0].deliveries == {"sent": 8}
    assert len({await each.secret("input", fresh) for each, fresh in ((store, "x"), (other, "y"), (store, "z"))}) == 1
