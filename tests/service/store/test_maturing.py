"""What both stores promise of versions with a maturity window: an answer counts when its window closes, once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.store import Store, StoreError, WindowCounts, begin_windows, open_store
from service.store.label_rules import RefusedLabelsError
from service.store.rows import Label, LabelBlock, LabelSelection, MaturedCounts, Version, VoidCounts, Voiding
from tests.service.store.rows import START, assert_same, batch
from trueodds.bundle.contents import shadow_of
from trueodds.calibrators import Temperature
from trueodds.sums.answers import AnswerSums
from trueodds.sums.maturity import DAY_MS, Maturity, UnlabelledMeans

WINDOW = 45 * DAY_MS
WINDOW_CLASSES = ("ok", "fraud")
OK, FRAUD = range(2)


def version(means: UnlabelledMeans = "ok", *, positive: str | None = "fraud", model: str = "fraud") -> Version:
    calibrator = Temperature(1.7)
    maturity = Maturity(WINDOW, means)
    return Version(model, "v1", WINDOW_CLASSES, calibrator, {}, positive=positive, maturity=maturity)


class Clock:
    """A time that stands still until it is set."""

    def __init__(self) -> None:
        self.ms = START

    def __call__(self) -> int:
        return self.ms


def clocked(*stores: Store) -> Clock:
    clock = Clock()
    for store in stores:
        store._clock = clock
    return clock


async def filled(store: Store, count: int, of: Version | None = None, **options: Any) -> list[str]:
    of = of or version()
    await store.put_version(of)
    answers = batch(count, of, **options)
    await store.put_predictions(answers)
    return answers.ids


async def log(store: Store, model: str = "fraud") -> dict[str, int]:
    """The labels of the log, in its order."""
    block = await store.read_labels(model, "v1")
    return dict(zip(block.ids, block.label_L.tolist(), strict=True))


async def refused(store: Store, label: Label) -> str:
    with pytest.raises(RefusedLabelsError) as error:
        await store.put_labels([label])
    return error.value.refusals[0].code


async def test_an_answer_counts_when_its_window_closes_and_not_before(store: Store, other: Store) -> None:
    clock = clocked(store, other)
    ids = await filled(store, 5)
    clock.ms += DAY_MS
    assert (await store.put_labels([Label(ids[1], "fraud"), Label(ids[3], "ok")])).stored == 2
    assert (await other.put_labels([Label(ids[1], "fraud")])).already_known == 1
    assert await refused(other, Label(ids[1], "ok")) == "conflicting_label"
    assert (await other.put_labels([Label(ids[3], "fraud", correct=True)])).corrected == 1
    for now in (START + WINDOW - 1, START + WINDOW):
        clock.ms = now
        await other.mature()
        sums, positive = [await store.read_sums("fraud", "v1", positive=by) for by in (False, True)]
        closed = now == START + WINDOW
        assert (sums.answers, sums.labelled.n, positive.labelled.n) == (5, 5 * closed, 5 * closed)
        assert await store.read_maturity_counts("fraud", "v1") == MaturedCounts(5 * closed, 3 * closed, 0)
        blocks = [block async for block in store.read_labelled_logits("fraud", "v1")]
        assert sum(len(block.ids) for block in blocks) == 5 * closed
    assert await log(store) == {ids[0]: OK, ids[1]: FRAUD, ids[2]: OK, ids[3]: FRAUD, ids[4]: OK}
    block = await store.read_labels("fraud", "v1")
    assert block.arrived_ms_L.tolist() == [START + WINDOW] * 5
    # What was corrected in time is no correction: it is the label that counts from the first.
    assert (block.first_correct_L == (block.label_L == block.predicted_L)).all()
    assert await store.count_corrected_labels("fraud", "v1") == 0
    assert positive.labelled.cells[2].sum() == 2
    await store.mature()
    assert (await store.read_sums("fraud", "v1")).labelled.n == 5


async def test_without_a_meaning_an_answer_without_a_label_stays_unlabelled(store: Store) -> None:
    clock = clocked(store)
    ids = await filled(store, 3, version("unknown"))
    await store.put_labels([Label(ids[1], "fraud")])
    clock.ms += WINDOW
    assert await store.mature() == 3
    assert await log(store) == {ids[1]: FRAUD}
    clock.ms += 1
    assert (await store.put_labels([Label(ids[2], "ok")])).stored == 1
    assert await log(store) == {ids[1]: FRAUD, ids[2]: OK}
    assert await store.read_maturity_counts("fraud", "v1") == MaturedCounts(3, 0, 1)


async def test_a_label_after_the_window_replaces_what_no_label_meant(store: Store) -> None:
    clock = clocked(store)
    ids = await filled(store, 3)
    clock.ms += WINDOW + 5
    # Nobody has closed the window yet: the label is late all the same.
    assert (await store.put_labels([Label(ids[0], "fraud"), Label(ids[1], "ok")])).corrected == 1
    assert await log(store) == {ids[0]: FRAUD, ids[1]: OK, ids[2]: OK}
    block = await store.read_labels("fraud", "v1")
    assert (block.first_correct_L == (block.predicted_L == OK)).all()
    assert await store.read_maturity_counts("fraud", "v1") == MaturedCounts(3, 3, 1)
    assert await store.count_corrected_labels("fraud", "v1") == 1
    assert await refused(store, Label(ids[0], "ok")) == "conflicting_label"


async def test_of_a_model_without_a_positive_class_silence_says_that_the_answer_was_right(store: Store) -> None:
    clock = clocked(store)
    of = version(positive=None)
    ids = await filled(store, 20, of)
    clock.ms += WINDOW
    await store.mature()
    block = await store.read_labels("fraud", "v1")
    assert block.ids == sorted(ids) and set(block.predicted_L.tolist()) == {OK, FRAUD}
    assert (block.label_L == block.predicted_L).all()


async def test_a_shadow_is_judged_as_the_answer_that_people_saw(store: Store) -> None:
    clock = clocked(store)
    of = version(positive=None)
    shadow = replace(of, model=shadow_of("fraud"))
    answers = batch(20, of)
    said = replace(batch(20, shadow, seed=1), ids=answers.ids)
    for each, rows in ((of, answers), (shadow, said)):
        await store.put_version(each)
        await store.put_predictions(replace(rows, model=each.model))
        if each is of:  # the shadow's rows come after some labels
            right = WINDOW_CLASSES[1 - int(answers.index_N[0])]
            await store.put_labels([Label(answers.ids[0], right)])
    await store.put_labels([Label(answers.ids[1], WINDOW_CLASSES[1 - int(answers.index_N[1])])])
    clock.ms += WINDOW
    await store.mature()
    expected = answers.index_N.copy()
    expected[:2] = 1 - expected[:2]
    for model in ("fraud", shadow.model):
        assert await log(store, model) == dict(zip(answers.ids, expected.tolist(), strict=True))
    assert (said.index_N != answers.index_N).any()


async def test_what_is_stored_late_has_time_for_its_labels_and_held_ones_come_along(store: Store) -> None:
    clock = clocked(store)
    await store.put_version(version())
    clock.ms = START + 3 * WINDOW
    first = batch(1, version(), own=["a"])
    await store.put_predictions(first)  # makes the model known: labels may come before answers from now on
    assert (await store.put_labels([Label("b", "fraud", model="fraud")])).held == 1
    await store.put_predictions(batch(1, version(), own=["b"]))
    await store.mature()
    assert await log(store) == {}
    clock.ms += DAY_MS
    await store.mature()
    assert await log(store) == {"a": OK, "b": FRAUD}


@dataclass
class Day:
    """What comes on a day."""

    made: int
    labels: list[tuple[int, int]] = field(default_factory=list)
    """Place of an answer among all, and its label."""


def days() -> list[Day]:
    rng = np.random.default_rng(5)
    rows = [Day(int(rng.integers(0, 6))) for _ in range(120)]
    count = 0
    for day, row in enumerate(rows):
        for place in range(count, count + row.made):
            delay = int(rng.exponential(25))
            if rng.random() < 0.4 and day + delay < len(rows):
                rows[day + delay].labels.append((place, FRAUD))
        count += row.made
    return rows


async def lived(store: Store, every: int, of: Version) -> tuple[LabelBlock, Any, Any]:
    """The log, the sums and the counts after all days, with windows closed every so many of them."""
    clock, ids = clocked(store), list[str]()
    await store.put_version(of)
    for number, day in enumerate(days()):
        clock.ms = START + number * DAY_MS
        if day.made:
            own = [f"{len(ids) + k:05d}" for k in range(day.made)]
            await store.put_predictions(batch(day.made, of, now=clock.ms, seed=number, own=own))
            ids += own
        late = [Label(ids[place], label) for place, label in day.labels]
        if late:
            await store.put_labels(late)
        if every and number % every == 0:
            await store.mature(limit=3)
    await store.mature()
    sums = await store.read_sums("fraud", "v1")
    return await store.read_labels("fraud", "v1"), sums, await store.read_maturity_counts("fraud", "v1")


@pytest.mark.few(2)
@pytest.mark.parametrize("means", ["ok", "unknown"])
@pytest.mark.parametrize("every", [1, 9, 50, 0])
async def test_nothing_depends_on_how_often_windows_are_closed(
    store: Store, every: int, means: UnlabelledMeans
) -> None:
    """The slow twin: each answer by itself, from the days."""
    block, sums, counts = await lived(store, every, version(means))
    end = len(days()) - 1
    made = [day for day, row in enumerate(days()) for _ in range(row.made)]
    given = {place: day for day, row in enumerate(days()) for place, _ in row.labels}
    closed = [place for place, day in enumerate(made) if day + 45 <= end]
    in_time = {place for place in closed if place in given and given[place] < made[place] + 45}
    late = {place for place in closed if place in given and place not in in_time}
    labels = dict.fromkeys(sorted(in_time | late), FRAUD)
    if means == "ok":
        labels = {place: labels.get(place, OK) for place in closed}
    assert dict(zip(map(int, block.ids), block.label_L.tolist(), strict=True)) == labels
    assert counts == MaturedCounts(len(closed), len(closed) - len(in_time) if means == "ok" else 0, len(late))
    assert (sums.answers, sums.labelled.n) == (len(made), len(labels)) and late
    # Of one moment they come in the order of their ids; what came late by itself, when it came.
    when = {place: (made[place] if place in in_time or means == "ok" else given[place] - 45) for place in labels}
    order = [(when[int(id_)], int(id_)) for id_ in block.ids]
    assert [day for day, _ in order] == sorted(day for day, _ in order)
    expected = [START + (when[int(id_)] + 45) * DAY_MS for id_ in block.ids]
    assert block.arrived_ms_L.tolist() == expected


async def test_many_may_close_windows_at_once(store: Store, other: Store, third: Store) -> None:
    clock = clocked(store, other, third)
    await filled(store, 200)
    clock.ms += WINDOW
    counted = await asyncio.gather(*(each.mature(limit=7) for each in (store, other, third)))
    assert sum(counted) == 200
    assert (await store.read_sums("fraud", "v1")).labelled.n == 200
    assert (await store.read_labels("fraud", "v1")).sequence_L.tolist() == list(range(1, 201))


def restart(state: Any, first: int) -> tuple[Any, int]:
    return {"anew": first}, 0


def voiding(**selection: Any) -> Voiding:
    return Voiding(LabelSelection(**selection), START, "Ada", "a test")


async def test_voided_labels_leave_what_no_label_means(store: Store) -> None:
    clock = clocked(store)
    ids = await filled(store, 5)
    clock.ms += DAY_MS
    await store.put_labels([Label(id_, "fraud") for id_ in ids[:2]], "wrong")
    await store.put_labels([Label(ids[2], "fraud")], "right")
    await store.put_labels([Label(ids[2], "ok", correct=True)], "wrong")
    clock.ms = START + WINDOW + 1
    await store.put_labels([Label(ids[3], "fraud")], "wrong")
    await store.put_labels([Label(ids[0], "ok", correct=True)], "right")
    assert await log(store) == dict(zip(ids, (OK, FRAUD, OK, FRAUD, OK), strict=True))
    await store.update_state("fraud", "v1", "s", lambda state, block: (state or 0) + len(block))
    counts, _ = await store.void_labels(voiding(import_id="wrong"), {"s": restart})
    assert counts["fraud", "v1"] == VoidCounts(restored=3, kept=1)
    assert await log(store) == dict(zip(ids, (OK, OK, FRAUD, OK, OK), strict=True))
    block = await store.read_labels("fraud", "v1")
    first_L = [FRAUD if id_ == ids[2] else OK for id_ in block.ids]
    assert (block.first_correct_L == (block.predicted_L == first_L)).all()
    sums = await store.read_sums("fraud", "v1", positive=True)
    assert (sums.labelled.n, sums.labelled.cells[2].sum()) == (5, 1)
    assert await store.read_maturity_counts("fraud", "v1") == MaturedCounts(5, 4, 1)
    counts, _ = await store.void_labels(voiding(since_ms=0), {"s": restart})  # all that anybody gave
    assert await log(store) == dict.fromkeys(ids, OK)
    assert await store.read_maturity_counts("fraud", "v1") == MaturedCounts(5, 5, 0)


async def test_labels_that_do_not_count_yet_can_be_voided(store: Store) -> None:
    clock = clocked(store)
    ids = await filled(store, 3)
    await store.put_labels([Label(ids[0], "fraud"), Label(ids[1], "fraud")], "wrong")
    await store.put_labels([Label(ids[1], "ok", correct=True)], "right")
    for dry_run in (True, False):
        counts, _ = await store.void_labels(voiding(import_id="wrong"), {"s": restart}, dry_run=dry_run)
        assert counts == {("fraud", "v1"): VoidCounts(removed=1, kept=1)}
    assert (await store.put_labels([Label(ids[0], "ok")])).stored == 1
    clock.ms += WINDOW
    await store.mature()
    assert await log(store) == dict.fromkeys(ids, OK)
    assert [v.counts for v in await store.read_voidings("fraud", "v1")] == [VoidCounts(removed=1, kept=1)]


async def test_retention_waits_for_the_window_and_a_deletion_does_not(store: Store) -> None:
    clock = clocked(store)
    ids = await filled(store, 4)
    await store.put_labels([Label(ids[0], "fraud"), Label(ids[1], "fraud")])
    assert (await store.prune(START + 1)).predictions == 0
    assert (await store.delete_prediction("fraud", ids[0])).predictions == 1
    clock.ms += WINDOW
    await store.mature()
    assert await log(store) == {ids[1]: FRAUD, ids[2]: OK, ids[3]: OK}
    assert await store.read_maturity_counts("fraud", "v1") == MaturedCounts(4, 2, 0)
    assert (await store.prune(START + 1)).predictions == 3
    sums = await store.read_sums("fraud", "v1")
    assert (sums.answers, sums.labelled.n) == (4, 3)


async def test_a_version_keeps_the_window_with_which_it_began(store: Store, other: Store) -> None:
    store._matures = {"fraud": Maturity(WINDOW, "ok")}
    plain = replace(version(), maturity=None)
    for model in ("fraud", shadow_of("fraud"), "another"):
        await store.put_version(replace(plain, model=model))
    other._matures = {"fraud": Maturity(DAY_MS)}
    await other.put_version(plain)
    known = {each.model: each.maturity for each in await other.read_versions()}
    begun = Maturity(WINDOW, "ok")
    assert known == {"fraud": begun, "fraud~shadow": begun, "another": None}


async def read_all(store: Store) -> tuple[LabelBlock, AnswerSums, MaturedCounts | None]:
    """The log, the sums and the counts when all windows have closed."""
    clocked(store).ms = START + 400 * DAY_MS
    await store.mature(limit=7)
    sums = await store.read_sums("fraud", "v1")
    return await store.read_labels("fraud", "v1"), sums, await store.read_maturity_counts("fraud", "v1")


@pytest.mark.parametrize("means", ["ok", "unknown"])
async def test_a_version_that_is_given_a_window_later_is_as_if_it_had_had_it(
    address: str, tmp_path: Path, means: UnlabelledMeans
) -> None:
    """But that those labels which are late and the first come in the order of the windows' ends."""
    windows = (("fraud", Maturity(WINDOW, means)),)
    twin, store = await open_store(str(tmp_path / "twin.sqlite")), await open_store(address)
    try:
        await lived(twin, 9, version(means))
        whole, sums, counts = await read_all(twin)
        before, _, none = await lived(store, 9, replace(version(means), maturity=None))
        await store.update_state("fraud", "v1", "s", lambda state, block: (state or 0) + len(block))
        await store.put_version(replace(version(), model=shadow_of("fraud"), maturity=None))
        await store.put_version(replace(version(), model="another", maturity=None))
        with pytest.raises(StoreError, match=r"open; stop every service|connected to"):
            await begin_windows(address, windows, {"s": restart})
    finally:
        await twin.close()
        await store.close()
    assert none is None and set(before.label_L.tolist()) == {FRAUD}
    assert await begin_windows(address, windows, {"s": restart}) == {
        ("fraud", "v1"): WindowCounts(sums.answers, len(before), 0),
        ("fraud~shadow", "v1"): WindowCounts(0, 0, 0),
    }
    assert await begin_windows(address, windows, {"s": restart}) == {}
    store = await open_store(address)
    try:
        now, now_sums, now_counts = await read_all(store)
        assert await store.read_state("fraud", "v1", "s") == {"anew": 1}
    finally:
        await store.close()
    place, other = (np.argsort(block.ids) if means == "unknown" else slice(None) for block in (now, whole))
    assert np.array(now.ids)[place].tolist() == np.array(whole.ids)[other].tolist()
    for name in ("created_ms_L", "arrived_ms_L", "label_L", "first_correct_L", "confidence_L"):
        assert (getattr(now, name)[place] == getattr(whole, name)[other]).all()
    assert_same(now_sums, sums)
    assert now_counts == counts
