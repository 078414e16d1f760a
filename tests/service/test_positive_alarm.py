"""The alarm on p(positive) itself: a fraud model that is four times too sure, of which the top label shows nothing."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest

from service.alarm import AlarmState, alarm_of
from service.alarm.evidence import StoredAcknowledgement
from service.alarm.readings import standing
from service.settings import Settings
from service.store import StoreError
from tests.service.alarms import labels
from tests.service.app_client import Client
from tests.service.hooks import Hook, until
from trueodds.metrics import EProcess, PositiveEProcess
from trueodds.reports import Report
from trueodds.sums.answers import AnswerSums
from trueodds.sums.positive import PositiveClass

FRAUD = PositiveClass("fraud", 1)
WHOSE = {"model": "cards", "version": "7"}
BY = StoredAcknowledgement(who="Ada", why="retraining", at_ms=1)


def drawn(count: int, factor: float, seed: int = 0) -> tuple[Any, Any]:
    """p(fraud) of 2% on average, and whether each is fraud: with the probability p / factor."""
    rng = np.random.default_rng(seed)
    p_N = np.minimum(rng.gamma(0.5, 0.04, count), 0.99)
    return p_N, rng.random(count) < p_N / factor


def taken(p_N: Any, positive_N: Any, cuts: tuple[int, ...] = (), settings: Settings | None = None) -> AlarmState:
    """The state after the labels, read and written between the cuts."""
    state, predicted_N = AlarmState.start(settings or Settings()), (p_N > 0.5).astype(np.int64)
    edges = [0, *cuts, len(p_N)]
    for first, end in itertools.pairwise(edges):
        rows = slice(first, end)
        parts = np.maximum(p_N, 1 - p_N)[rows], (predicted_N == positive_N)[rows]
        block = labels(*parts, first, predicted_N=predicted_N[rows])
        state = AlarmState.read(json.loads(json.dumps(state.take(block, FRAUD).tree())), Settings())
    return state


def test_the_state_is_that_of_both_tests_however_the_log_is_cut() -> None:
    p_N, positive_N = drawn(1010, 2)
    state = taken(p_N, positive_N)
    assert state == taken(p_N, positive_N, (3, 7, 501, 502, 1000))
    p_N = FRAUD.probability_of_top(np.maximum(p_N, 1 - p_N), p_N > 0.5)  # what the log knows
    of_p, log_e_B = PositiveEProcess.start().advance_each(p_N[:1000], positive_N[:1000])
    assert state.nulls["positive"].process == of_p and len(state.rest_p) == 10
    provisional = of_p.advance_each(p_N[1000:], positive_N[1000:], 10)[1][0]
    assert state.log_e("positive") == pytest.approx(provisional)
    of_top, _ = EProcess.start("ece").advance_each(np.maximum(p_N, 1 - p_N)[:1000], ((p_N > 0.5) == positive_N)[:1000])
    assert state.nulls["ece"].process == of_top and len(log_e_B) == of_top.blocks


def test_each_of_both_alarms_has_half_the_level() -> None:
    p_N, positive_N = drawn(4000, 4)
    state = taken(p_N, positive_N)
    _, log_e_B = PositiveEProcess.start().advance_each(p_N, positive_N)
    fired = state.nulls["positive"].fired
    assert state.alpha_of_each == 0.025 and fired is not None and state.paging is state.nulls["positive"]
    assert fired.after == 20 * (1 + int(np.argmax(log_e_B >= math.log(40))))
    assert AlarmState.start(Settings()).alpha_of_each == 0.05


def test_it_pages_is_acknowledged_re_armed_and_said() -> None:
    state = taken(*drawn(2000, 4))
    alarm = alarm_of(state, Settings(), model="cards", sums=AnswerSums.zero(), positive="fraud")
    assert alarm.state == "fired" and alarm.refuted_null is not None and alarm.refuted_null.null == "positive"
    assert alarm.refuted_null.pages and alarm.refuted_null.threshold == 40 and alarm.ratio_tolerance == 1.2
    assert alarm.reading.startswith("ALARM: at some time p(fraud) was wrong overall")
    assert "at most 1 of 40 versions would ever show this much" in alarm.reading
    assert standing(state, "cards~shadow") == "notice"
    known = state.acknowledge(("ece", "positive", "point"), BY)
    assert standing(known, "cards") == "acknowledged"
    again = known.rearm("Ada", "mended", 2, Settings())
    assert set(again.nulls) == {"ece", "positive", "point"} and again.rearmings[0].fired_ms is not None
    anew = known.anew(5)
    assert anew is not None and anew.nulls["positive"].acknowledged == BY and anew.nulls["positive"].fired is None


def test_a_calibrated_one_stays_quiet_and_a_damaged_one_is_an_error() -> None:
    state = taken(*drawn(10_000, 1.0))
    alarm = alarm_of(state, Settings(), model="cards", sums=AnswerSums.zero(), positive="fraud")
    assert alarm.state == "quiet" and "expected / observed fraud is not between 0.83 and 1.2" in alarm.reading
    for path, value in (("rest_p", [0.5]), ("ratio_tolerance", 1.5)):
        with pytest.raises(StoreError, match="damaged or of another release"):
            AlarmState.read(state.tree() | {path: value}, Settings())
    changed = alarm_of(
        state, Settings(alarm_ratio_tolerance=1.5), model="cards", sums=AnswerSums.zero(), positive="fraud"
    )
    assert "This version keeps ratio tolerance 1.2" in changed.reading


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_the_service_tells_of_it(serve: Any, hook: Hook, factor: float) -> None:
    """Report, page, /metrics and webhook of an observed version; the calibrated one is not known yet."""
    client: Client = serve({"alarm_webhook": hook.url})
    p_N, positive_N = drawn(2000, factor)
    rows = [{"id": f"r{n}", "probabilities": {"ok": 1 - p, "fraud": p}} for n, p in enumerate(p_N.tolist())]
    body = {"observations": rows, **WHOSE, "classes": ["ok", "fraud"], "positive": "fraud"}
    assert client.post("/observe", json=body).status_code == 200
    client.label([{"id": f"r{n}", "label": "fraud" if y else "ok"} for n, y in enumerate(positive_N)])
    until(lambda: client.report(**WHOSE)["alarm"]["nulls"][1]["labels"] == 2000)
    report = Report.model_validate(client.report(**WHOSE))
    assert report.alarm is not None and [null.null for null in report.alarm.nulls] == ["ece", "positive", "point"]
    page = client.get("/calibration-report", params={**WHOSE, "format": "html"}).text
    assert "of the probability of fraud (calls somebody)" in page and 'class="key positive"' in page
    p, metrics = report.positive, client.get("/metrics").text
    assert p is not None and p.ratio is not None and p.binning == "mass" and len(p.bins) > 10
    assert p.observed == positive_N.sum() and p.expected == pytest.approx(p_N.sum())
    start = 'trueodds_calibration_log_evalue{model="cards",null="positive"'
    (line,) = (line for line in metrics.splitlines() if line.startswith(start))
    assert float(line.split()[-1]) == pytest.approx(report.alarm.nulls[1].log_e)
    if factor == 1:
        assert (report.verdict, report.alarm.state) == ("cannot_tell", "quiet")
        assert "more fraud, about" in report.headline
        return
    assert report.alarm.state == "fired" and report.verdict == "too_high"
    assert "p(fraud) is too high" in report.headline and p.ratio > 2.5
    assert report.alarm.nulls[0].state == "quiet", "the more probable class shows nothing"
    until(lambda: bool(hook.calls))
    news = hook.calls[0].body
    assert (news["null"], news["ratio_tolerance"]) == ("positive", 1.2)
