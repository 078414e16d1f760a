"""The alarm on levels: stars whose levels are shifted while the top confidence stays calibrated."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import expit, ndtri

from service.alarm import ALARM, AlarmState, alarm_of
from service.alarm.evidence import StoredAcknowledgement
from service.settings import Settings
from service.store import StoreError
from tests.service.alarms import labels
from tests.service.app_client import Client
from tests.service.hooks import Hook, until
from trueodds.metrics import EProcess, OrderedEProcess
from trueodds.reports import Report
from trueodds.sums.answers import AnswerSums
from trueodds.sums.ordered import at_least

STARS = ("1", "2", "3", "4")
WHOSE = {"model": "stars", "version": "3"}
BY = StoredAcknowledgement(who="Ada", why="retraining", at_ms=1)
WATCHING = Settings(alarm_levels=True)


def drawn(count: int, shift: float, seed: int = 0) -> tuple[Any, npt.NDArray[np.int64]]:
    """Probabilities of four levels, dull ones, and levels drawn from those of a score that is `shift` lower."""
    rng = np.random.default_rng(seed)
    score_N, cuts_K = rng.normal(size=count), ndtri(np.arange(1, 4) / 4)

    def of(score_N: Any) -> Any:
        above_NK = np.pad(expit((score_N[:, None] - cuts_K) / 2), ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
        return above_NK[:, :-1] - above_NK[:, 1:]

    level_N = (of(score_N - shift).cumsum(axis=1)[:, :-1] < rng.random((count, 1))).sum(axis=1)
    return of(score_N), level_N


def taken(
    p_NC: Any, level_N: Any, cuts: tuple[int, ...] = (), settings: Settings = WATCHING, levels: int | None = 4
) -> AlarmState:
    """The state after the labels, read and written between the cuts."""
    state, top_N = AlarmState.start(settings), p_NC.argmax(axis=1)
    for first, end in itertools.pairwise([0, *cuts, len(p_NC)]):
        rows = slice(first, end)
        of_levels = level_N[rows], at_least(p_NC[rows])
        parts = p_NC.max(axis=1)[rows], (top_N == level_N)[rows]
        block = labels(*parts, first, predicted_N=top_N[rows], levels=of_levels)
        state = AlarmState.read(json.loads(json.dumps(state.take(block, None, levels).tree())), Settings())
    return state


def test_the_state_is_that_of_both_tests_however_the_log_is_cut() -> None:
    p_NC, level_N = drawn(1010, 0.3)
    state = taken(p_NC, level_N)
    assert state == taken(p_NC, level_N, (3, 7, 501, 502, 1000))
    p_NK, reached_NK = at_least(p_NC), level_N[:, None] > np.arange(3)
    of_levels, _ = OrderedEProcess.start(4).advance_each(p_NK[:1000], reached_NK[:1000])
    assert state.nulls["levels"].process == of_levels and len(state.rest_at_least) == 10
    provisional = of_levels.advance_each(p_NK[1000:], reached_NK[1000:], 10)[1][0]
    assert state.log_e("levels") == pytest.approx(provisional)
    top = p_NC.max(axis=1)[:1000], (p_NC.argmax(axis=1) == level_N)[:1000]
    assert state.nulls["ece"].process == EProcess.start("ece").advance_each(*top)[0]
    assert state.alpha_of_each == 0.025 and state.watched_nulls == ("ece", "levels", "point")


@pytest.mark.parametrize("cuts", [(), (25,), (100, 137), (150,)])
def test_the_evidence_on_levels_begins_after_an_unknown_first_level(cuts: tuple[int, ...]) -> None:
    p_NC, level_N = drawn(215, 0.3)
    level_N[[13, 130]] = -1
    state = taken(p_NC, level_N, cuts)
    after, _ = OrderedEProcess.start(4).advance_each(at_least(p_NC[140:200]), level_N[140:200, None] > np.arange(3))
    assert state.levels_after == 140 and state.nulls["levels"].process.log_e == after.log_e
    assert state.nulls["levels"].process.labels == 60 and state == taken(p_NC, level_N)
    alarm = alarm_of(state, WATCHING, model="m", sums=AnswerSums.zero(), levels=STARS)
    assert [null.labels for null in alarm.nulls] == [215, 75, 215]


def test_an_unknown_first_level_that_waits_for_its_block_adds_no_evidence() -> None:
    p_NC, level_N = drawn(205, 0.3)
    level_N[202] = -1
    state = taken(p_NC, level_N)
    assert state.log_e("levels") == state.nulls["levels"].process.log_e and state.levels_after == 0


def test_it_pages_is_acknowledged_re_armed_and_said() -> None:
    state = taken(*drawn(6000, 0.5))
    alarm = alarm_of(state, WATCHING, model="stars", sums=AnswerSums.zero(), levels=STARS)
    refuted = alarm.refuted_null
    assert alarm.state == "fired" and refuted is not None and refuted.null == "levels" and refuted.pages
    assert refuted.threshold == 40 and refuted.level in STARS[1:] and alarm.nulls[0].state == "quiet"
    _, log_e_B = OrderedEProcess.start(4).advance_each(
        at_least(drawn(6000, 0.5)[0]), drawn(6000, 0.5)[1][:, None] > np.arange(3)
    )
    assert refuted.fired_after == 20 * (1 + int(np.argmax(log_e_B >= math.log(40))))
    assert alarm.reading.startswith("ALARM: at some time and for some level k, the calibration error (ECE) of p(level")
    assert "If the ECE of every level had been within that at every label" in alarm.reading
    assert f'The largest evidence now is about "at least {refuted.level}".' in alarm.reading
    assert alarm_of(state, WATCHING, model="stars~shadow", sums=AnswerSums.zero(), levels=STARS).state == "notice"
    known = state.acknowledge(("levels",), BY)
    assert known.nulls["levels"].acknowledged == BY
    again = known.rearm("Ada", "mended", 2, WATCHING)
    assert again.levels == 4 and again.alpha_of_each == 0.025 and again.levels_after == 0
    assert known.rearm("Ada", "mended", 2, Settings()).levels is None
    anew = known.anew(5)
    assert anew is not None and anew.levels == 4 and anew.watches_levels and anew.nulls["levels"].acknowledged == BY


def test_a_calibrated_one_stays_quiet_and_a_damaged_one_is_an_error() -> None:
    state = taken(*drawn(10_005, 0.0))
    alarm = alarm_of(state, WATCHING, model="stars", sums=AnswerSums.zero(), levels=STARS)
    assert alarm.state == "quiet" and "Nor is there evidence of such an error for any level." in alarm.reading
    for path, value in (("rest_first_label", [1]), ("levels_after", 20), ("rest_at_least", [[0.5]] * 5)):
        with pytest.raises(StoreError, match="damaged or of another release"):
            AlarmState.read(state.tree() | {path: value}, Settings())


def test_the_setting_is_kept_and_said_where_it_does_nothing() -> None:
    def reading(state: AlarmState, settings: Settings, **about: Any) -> str:
        return alarm_of(state, settings, model="m", sums=AnswerSums.zero(), **about).reading

    on, off = taken(*drawn(40, 0.0)), taken(*drawn(40, 0.0), settings=Settings())
    assert off.levels is None and off.alpha_of_each == 0.05
    assert "(levels not watched). This version keeps levels watched" in reading(on, Settings(), levels=STARS)
    assert "(levels watched). This version keeps levels not watched" in reading(off, WATCHING, levels=STARS)
    plain = taken(*drawn(40, 0.0), levels=None)
    assert plain.levels is None and plain.alpha_of_each == 0.05
    why = "--alarm-levels has no effect on this version: its classes are not ordered"
    assert why in reading(plain, WATCHING) and why not in reading(plain, Settings())
    assert "the alarm on p(good) already covers its two classes" in reading(plain, WATCHING, positive="good")


def observed(client: Client, p_NC: Any, level_N: Any, **beside: Any) -> None:
    """Send answers in steps of .01 as ordered stars, and their labels."""
    rows = [{"id": f"s{n}", "probabilities": row} for n, row in enumerate(p_NC.tolist())]
    body = {"observations": rows, **WHOSE, "classes": {"names": STARS, "ordered": True}, **beside}
    answer = client.post("/observe", json=body)
    assert answer.status_code == 200, answer.text
    client.label([{"id": f"s{n}", "label": STARS[k], "model": "stars"} for n, k in enumerate(level_N)])
    until(lambda: client.report(**WHOSE)["alarm"]["nulls"][0]["labels"] == len(level_N))


@pytest.mark.full
@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_the_service_tells_of_shifted_levels_only(serve: Callable[..., Client], hook: Hook, shift: float) -> None:
    """Report, page, /metrics and webhook of an observed version whose top confidence is calibrated."""
    client = serve({"alarm_webhook": hook.url, "alarm_levels": True})
    p_NC, level_N = drawn(5000, shift)
    observed(client, p_NC, level_N)
    report = Report.model_validate(client.report(**WHOSE))
    assert report.alarm is not None and [null.null for null in report.alarm.nulls] == ["ece", "levels", "point"]
    of_levels = report.alarm.nulls[1]
    expected, _ = OrderedEProcess.start(4).advance_each(at_least(p_NC), level_N[:, None] > np.arange(3))
    assert of_levels.log_e == pytest.approx(expected.log_e, abs=1e-3)
    page = client.get("/calibration-report", params={**WHOSE, "format": "html"}).text
    assert "of the levels (calls somebody)" in page and 'class="key levels"' in page
    start = 'trueodds_calibration_log_evalue{model="stars",null="levels"'
    (line,) = (line for line in client.get("/metrics").text.splitlines() if line.startswith(start))
    assert float(line.split()[-1]) == pytest.approx(of_levels.log_e)
    if not shift:
        assert report.alarm.state == "quiet" and of_levels.state == "quiet" and not hook.calls
        return
    assert report.alarm.state == "fired" and of_levels.state == "fired"
    assert {null.state for null in report.alarm.nulls if null is not of_levels} == {"quiet"}
    assert report.verdict in ("off_at_times", "leans_over_confident", "leans_under_confident", "leans_uneven")
    assert "The alarm has found an error of the levels." in report.reading
    until(lambda: bool(hook.calls))
    assert (hook.calls[0].body["null"], hook.calls[0].body["level"]) == ("levels", of_levels.level)
    body = {**WHOSE, "who": "Ada", "why": "retraining", "null": "levels"}
    alarm = client.post("/admin/alarm/acknowledge", json=body).json()
    assert alarm["state"] == "acknowledged" and alarm["nulls"][1]["acknowledged"]["who"] == "Ada"


def test_corrections_change_nothing_and_a_voiding_restarts_from_the_right_first_labels(
    serve: Callable[..., Client],
) -> None:
    client = serve({"alarm_levels": True})
    p_NC, level_N = drawn(100, 0.0)
    observed(client, np.round(p_NC, 2), level_N, resolution=0.01)
    store = client.app.state.runtime.store

    def state() -> AlarmState:
        return AlarmState.read(client.run(store.read_state("stars", "3", ALARM)), Settings())

    before = state()
    wrong = {n: (int(k) + 1) % 4 for n, k in enumerate(level_N[:30])}
    rows = [{"id": f"s{n}", "label": STARS[k], "model": "stars", "correct": True} for n, k in wrong.items()]
    client.label(rows)
    assert state() == before
    since = client.run(store.read_labels("stars", "3")).arrived_ms_L
    assert len(since) == 100
    voided = {"who": "Ada", "why": "the file of another day", "model": "stars", "since": "2000-01-01T00:00:00Z"}
    assert client.post("/admin/labels/void", json=voided).status_code == 200
    assert state().labels == 0 and state().levels == 4
    client.label([{"id": f"s{n}", "label": STARS[k], "model": "stars"} for n, k in enumerate(level_N)])
    until(lambda: state().labels == 100)
    assert state().nulls["levels"].process == before.nulls["levels"].process


def test_an_unordered_version_says_that_the_setting_does_nothing(serve: Callable[..., Client]) -> None:
    client = serve({"alarm_levels": True})
    rows = [{"id": "a", "probabilities": {"ham": 0.9, "spam": 0.1}}]
    assert client.post("/observe", json={"observations": rows, "model": "mail", "version": "1"}).status_code == 200
    client.label([{"id": "a", "label": "ham", "model": "mail"}])
    until(lambda: client.report(model="mail")["alarm"]["nulls"][0]["labels"] == 1)
    alarm = client.report(model="mail")["alarm"]
    assert [null["null"] for null in alarm["nulls"]] == ["ece", "point"]
    assert "--alarm-levels has no effect on this version: its classes are not ordered" in alarm["reading"]
