"""The alarm's state: each label once in the order of arrival, whatever the cuts; it fires once and says so in words."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.alarm import AlarmState, advice_of, alarm_of
from service.alarm.evidence import NULLS as WATCHED
from service.alarm.evidence import POINTS, Delivery, StoredAcknowledgement
from service.alarm.readings import standing
from service.settings import Settings
from service.store import StoreError
from tests.service.alarms import START, labels
from trueodds.metrics import CalibrationSums, EProcess, Prequential, ShiryaevRoberts
from trueodds.metrics import blocks as blocks_of
from trueodds.sums.answers import AnswerSums

NONE = AnswerSums.zero()
BY = StoredAcknowledgement(who="Ada", why="retraining.", at_ms=START)


def drawn(count: int, seed: int = 0, gap: float = 0.0) -> tuple[Any, Any]:
    """Confidences from .6 to 1, right less often than they say by `gap`."""
    rng = np.random.default_rng(seed)
    confidence_N = rng.uniform(0.6, 1, count)
    return confidence_N, rng.random(count) < confidence_N - gap


def after(confidence_N: Any, correct_N: Any, cuts: list[int], chosen: Settings) -> Any:
    """The tree after labels that are folded in parts, through JSON as in the store."""
    tree = None
    for low, high in zip([0, *cuts], [*cuts, len(confidence_N)], strict=True):
        block = labels(confidence_N[low:high], correct_N[low:high], low)
        tree = json.loads(json.dumps(AlarmState.read(tree, chosen).take(block).tree(), allow_nan=False))
    return tree


@pytest.fixture(scope="module")
def bad() -> AlarmState:
    """After 1,010 labels of a version that is right .2 less often than it says."""
    return AlarmState.start(Settings()).take(labels(*drawn(1010, gap=0.2)))


@settings(max_examples=25)
@given(st.lists(st.integers(0, 470), max_size=8).map(sorted), st.integers(0, 3), st.booleans())
def test_the_same_however_the_log_is_cut(cuts: list[int], seed: int, with_detector: bool) -> None:
    chosen = Settings(alarm_run_length=1000 if with_detector else None)
    stream = drawn(470, seed, gap=0.1)
    assert after(*stream, cuts, chosen) == after(*stream, [], chosen)


def test_equal_to_the_tests_of_the_metrics() -> None:
    """By the labels that came first, in whole blocks; the labels left over are read provisionally."""
    confidence_N, correct_N = drawn(1015, seed=1, gap=0.05)
    state = AlarmState.read(after(confidence_N, correct_N, [7, 500, 501], Settings(alarm_run_length=500)), Settings())
    for null in ("ece", "point"):
        e, r = EProcess.start(null), ShiryaevRoberts.start(null)
        for block in blocks_of(confidence_N, correct_N):
            before, e, r = e, e.advance(block), r.advance(block)
        assert state.log_e(null) == pytest.approx(e.log_e, abs=1e-9)
        assert state.nulls[null].process.log_e == pytest.approx(before.log_e, abs=1e-9)
        detector = state.nulls[null].detector
        assert detector is not None and detector.blocks == 50
    expected = Prequential.start().advance_each(confidence_N[:1000], correct_N[:1000])
    assert state.prequential.to_json() == expected.to_json()
    assert (state.labels, state.last_ms, len(state.rest_confidence)) == (1015, START + 1014_000, 15)


def test_fires_once_on_the_block_that_completes_the_evidence() -> None:
    chosen, (confidence_N, correct_N) = Settings(), drawn(1000, gap=0.2)
    process, expected = EProcess.start("ece"), 0
    for block in blocks_of(confidence_N, correct_N):
        process = process.advance(block)
        expected = expected or process.is_alarmed() * process.labels
    assert expected
    state = AlarmState.start(chosen)
    for low in range(0, 1000, 7):
        state = state.take(labels(confidence_N[low : low + 7], correct_N[low : low + 7], low))
        assert (state.nulls["ece"].fired is not None) == (state.labels >= expected)
    fired = state.nulls["ece"].fired
    assert fired is not None and (fired.after, fired.by) == (expected, "e-process")
    assert fired.at_ms == START + 1000 * (expected - 1) and fired.log_e >= math.log(20)
    good = state.take(labels(*drawn(20_000, seed=5), first=1000))  # a good time after does not take it back
    assert good.nulls["ece"].fired == fired and good.log_e("ece") < state.log_e("ece")


def test_the_quicker_rule_fires_sooner_and_is_named() -> None:
    confidence_N, correct_N = drawn(40_000, seed=3)
    late = np.arange(40_000) >= 30_000
    correct_N = correct_N & ~(late & (np.random.default_rng(4).random(40_000) < 0.1))
    plain = AlarmState.start(Settings()).take(labels(confidence_N, correct_N)).nulls["ece"].fired
    state = AlarmState.start(Settings(alarm_run_length=20_000)).take(labels(confidence_N, correct_N))
    quick = state.nulls["ece"].fired
    assert plain and quick and 30_000 < quick.after < plain.after and quick.by == "shiryaev-roberts"
    soon = AlarmState.start(Settings(alarm_run_length=20_000)).take(
        labels(confidence_N[: quick.after], correct_N[: quick.after])
    )
    assert "allows one false alarm in 20,000 labels" in alarm_of(soon, Settings(), model="m", sums=NONE).reading


def test_history_is_thin_and_keeps_its_ends(bad: AlarmState) -> None:
    long = bad.take(labels(*drawn(30_013, seed=2), first=1010))
    alarm = alarm_of(long, Settings(), model="m", sums=NONE)
    for null in alarm.nulls:
        places = [point.labels for point in null.history]
        assert places == sorted(set(places)) and 90 < len(places) <= POINTS + 3 <= 200
        assert places[0] == 20 and places[-1] == 31_023 and null.fired_after in places
        assert null.history[-1].log_e == pytest.approx(null.log_e)
    assert len(json.dumps(long.tree())) < 20_000


def test_standing(bad: AlarmState) -> None:
    """The null that pages decides; a shadow's alarm is a notice, and what is acknowledged stays so."""
    start = AlarmState.start(Settings())
    assert bad.nulls["ece"].fired and bad.nulls["point"].fired
    only_point = bad.model_copy(update={"nulls": {**bad.nulls, "ece": start.nulls["ece"]}})
    assert [standing(s, "m") for s in (start, only_point, bad)] == ["quiet", "notice", "fired"]
    assert standing(bad, "m~shadow") == "notice"
    known = bad.acknowledge(("ece",), BY)
    assert (standing(known, "m"), standing(known, "m~shadow")) == ("acknowledged", "notice")
    assert standing(only_point.acknowledge(WATCHED, BY), "m") == "acknowledged"
    assert start.acknowledge(WATCHED, BY) == start
    other = BY.model_copy(update={"who": "Bob"})
    assert known.acknowledge(WATCHED, other).nulls["ece"].acknowledged == BY
    assert known.take(labels(*drawn(500), first=1010)).nulls["ece"].acknowledged == BY


def test_readings(bad: AlarmState) -> None:
    quiet = alarm_of(AlarmState.start(Settings()), Settings(), model="m", sums=NONE)
    assert (quiet.state, quiet.reading) == ("quiet", "No alarm: no labels have arrived yet.")
    few = alarm_of(AlarmState.start(Settings()).take(labels(*drawn(30))), Settings(), model="m", sums=NONE)
    assert "No alarm after 30 labels" in few.reading and "at most 1 of 20 calibrated versions" in few.reading
    fired = alarm_of(bad, Settings(), model="m", sums=NONE)
    ece, point = fired.nulls
    assert (ece.null, ece.pages, ece.state, ece.threshold) == ("ece", True, "fired", 20.0)
    assert (point.pages, point.tolerance, ece.labels) == (False, 0.02, 1010)
    assert ece.p_value <= 0.05 and ece.fired_at is not None and ece.fired_at.year == 2023
    for words in (
        "ALARM: the calibration error (ECE) of the answers that get labels was above 0.02 at some time",
        "If its ECE had been within that at every label, given the labels before it, at most 1 of 20 versions would",
        "The ECE of all answers, or over the whole time, may be smaller",
        f"after {ece.fired_after:,} labels",
        "until somebody acknowledges",
    ):
        assert words in fired.reading
    known = alarm_of(bad.acknowledge(WATCHED, BY), Settings(), model="m", sums=NONE)
    assert "Ada acknowledged it on 2023-11-14 22:13 UTC: retraining." in known.reading
    assert known.nulls[0].acknowledged and known.nulls[0].acknowledged.why == "retraining."
    shadow = alarm_of(bad, Settings(), model="m~shadow", sums=NONE)
    assert shadow.reading.startswith("Notice: ") and not shadow.nulls[0].pages


def test_with_a_positive_class_the_evidence_is_said_to_be_of_the_other_quantity(bad: AlarmState) -> None:
    about: dict[str, Any] = {"model": "m", "sums": NONE, "positive": "fraud"}
    fired = alarm_of(bad, Settings(), **about)
    assert fired.reading.startswith(
        "ALARM: the calibration error (ECE) of the more probable class, of the answers that get labels, was above 0.02"
    )
    assert "the accuracy of the more probable class differed" in fired.nulls[1].statement
    quiet = alarm_of(AlarmState.start(Settings()).take(labels(*drawn(30))), Settings(), **about)
    assert "Nor is there evidence that expected / observed fraud is not between 0.83 and 1.2." in quiet.reading


def test_labels_that_are_there_and_not_weighed_yet_are_not_said_to_be_missing() -> None:
    start, (confidence_N, correct_N) = AlarmState.start(Settings()), drawn(5)
    five = CalibrationSums.from_top(confidence_N, correct_N)
    sums = AnswerSums(five.cells[0].astype(np.int64), five)
    assert alarm_of(start, Settings(), model="m", sums=sums).reading == (
        "No alarm: the last 5 labels will be evaluated within seconds."
    )


def test_changed_settings_do_not_change_the_test_of_a_version(bad: AlarmState) -> None:
    changed = Settings(alarm_tolerance=0.3, alarm_alpha=0.01, alarm_run_length=1000)
    state = AlarmState.read(bad.tree(), changed)
    assert state == bad and state.take(labels(*drawn(50), first=1010)).nulls["ece"].process.tolerance == 0.02
    reading = alarm_of(state, changed, model="m", sums=NONE).reading
    assert "tolerance 0.3, alpha 0.01, run length 1000" in reading
    assert "keeps tolerance 0.02, alpha 0.05, run length none" in reading
    assert AlarmState.read(None, changed).tolerance == 0.3


def test_advice(bad: AlarmState) -> None:
    where: dict[str, Any] = {"model": "a b", "version": "v", "address": "http://x"}
    none = advice_of(AlarmState.start(Settings()), **where)
    assert (none.helps, none.labels, none.served_log_loss) == ("not_known", 0, None)
    yes = advice_of(bad, **where)
    assert yes.reading == "Recalibrating would help."
    assert yes.helps == "yes" and yes.log_e > math.log(20) and "Above 0 the gain counts as shown" in yes.basis
    assert yes.command == "trueodds recalibrate --url http://x --model 'a b' --version v"
    assert yes.recalibrated_log_loss is not None and yes.served_log_loss is not None
    seen = bad.prequential
    assert seen.log_e == pytest.approx(1000 * (yes.served_log_loss - yes.recalibrated_log_loss))
    assert yes.log_e == seen.evidence and seen.gain_lower is not None and seen.gain_lower > 0
    assert advice_of(bad, model="m~shadow", version="v", address="x").command is None
    alone = advice_of(bad, **where, has_logits=False)
    assert (alone.helps, alone.command) == ("yes", None) and "needs the probabilities of all classes" in alone.reading
    assert "would help" not in alone.reading
    calibrated = AlarmState.start(Settings())
    early = advice_of(calibrated.take(labels(*drawn(200, seed=6))), **where)
    late = advice_of(calibrated.take(labels(*drawn(5_000, seed=6))), **where)
    assert (early.helps, late.helps, late.command) == ("not_known", "no", None)
    of_p = advice_of(calibrated.take(labels(*drawn(5_000, seed=6))), **where, positive="fraud")
    assert of_p.helps == "no" and "This does not show errors of p(fraud) that cancel out" in of_p.reading


def _set(tree: Any, path: str, value: Any) -> Any:
    changed = copy.deepcopy(tree)
    *way, last = path.split(".")
    place = changed
    for name in way:
        place = place[name]
    place[last] = value
    return changed


def test_a_damaged_state_is_an_error_and_never_a_new_start(bad: AlarmState) -> None:
    tree = bad.with_delivery("x", Delivery(attempts=2)).tree()
    assert AlarmState.read(tree, Settings()).tree() == tree
    damages: list[tuple[str, Any]] = [
        ("form", 3),
        ("labels", 1011),
        ("labels", None),
        ("rest_correct", []),
        ("nulls", {}),
        ("extra", 1),
    ]
    damages += [("tolerance", 0.1), ("nulls.ece.process.blocks", 3), ("nulls.ece.process", {}), ("prequential", None)]
    damages += [("nulls.point.process.null", "ece"), ("nulls.ece.log_e", []), ("deliveries.x.attempts", "many")]
    for path, value in damages:
        with pytest.raises(StoreError, match="damaged or of another release"):
            AlarmState.read(_set(tree, path, value), Settings())
    others: list[Any] = [1, "x", [], {}]
    for other in others:
        with pytest.raises(StoreError, match="restore the store from a backup"):
            AlarmState.read(other, Settings())
