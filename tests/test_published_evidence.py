"""Benchmarks on published records and forecasts: splits, figures against slow twins, days in order, a small replay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.evidence import forecast_replay, forecasts, records
from benchmarks.evidence.decision_questions import Games
from benchmarks.faults.process import without_model
from service.alarm import AlarmState
from tests.reference_metrics import ece
from trueodds import calibrators
from trueodds.metrics import softmax


def drawn(rows: int, classes: int, temperature: float, seed: int = 0) -> tuple[records.Array, records.Labels]:
    """Draw logits that are `temperature` times those of a calibrated net."""
    rng = np.random.default_rng(seed)
    z_NC = rng.normal(0, 2, (rows, classes))
    return temperature * z_NC, (z_NC + rng.gumbel(size=z_NC.shape)).argmax(axis=1)


def test_a_split_uses_every_row_once() -> None:
    first, second = records.halves(101, 3)
    assert sorted([*first, *second]) == list(range(101)) and abs(len(first) - len(second)) == 1
    assert not np.array_equal(first, records.halves(101, 4)[0])


def test_figures_are_those_of_the_slow_twins() -> None:
    z_NC, labels_N = drawn(500, 4, 1.5)
    p_NC = softmax(z_NC)
    found = records.figures(p_NC, labels_N)
    right_N = p_NC.argmax(axis=1) == labels_N
    assert found["ece"] == pytest.approx(
        ece(list(zip(p_NC.max(axis=1).tolist(), right_N.tolist(), strict=True)), 15, "l1", "width"), abs=1e-9
    )
    assert found["nll"] == pytest.approx(np.mean([-np.log(p_NC[n, k]) for n, k in enumerate(labels_N)]))
    assert found["error"] == pytest.approx(1 - right_N.mean()) and found["floor"] < found["floor_p95"]


def test_a_calibrated_net_reaches_the_floor_and_an_over_confident_one_does_not() -> None:
    shares = {}
    for temperature in (1.0, 2.0):
        z_NC, labels_N = drawn(2000, 5, temperature)
        for name in ("identity", "temperature"):
            row = records.measured(z_NC, labels_N, records.ours(name), 8)
            shares[temperature, name] = row["reached"]
            assert row["splits"] == 8 and row["seconds"] > 0
    assert shares[1.0, "identity"] > 0.6 and shares[2.0, "identity"] == 0 and shares[2.0, "temperature"] > 0.6


def test_a_fit_that_fails_is_named() -> None:
    def fails(*_: object) -> calibrators.Identity:
        raise ValueError("no\nway")

    row = records.measured(*drawn(40, 3, 1.0), fails, 2)
    assert row == {"problem": "no way"}
    table = {"record": "net", "rows": 40, "classes": 3, "methods": [{"package": "other", "method": "x", **row}]}
    text = records.markdown({"splits": 2, "missing": ["netcal"], "records": [table]})
    assert "| other | `x` | no way |" in text and "Not installed where this ran: netcal." in text


def games(count: int = 60, per_day: int = 4) -> Games:
    rng = np.random.default_rng(5)
    p_N = rng.uniform(0.1, 0.9, count)
    day_N = np.array([f"2020-{1 + n // per_day // 28:02}-{1 + n // per_day % 28:02}" for n in range(count)])
    return Games(np.array(["2020"] * count), day_N, p_N, rng.random(count) < p_N, 0)


def test_days_come_in_order_with_all_games() -> None:
    of = list(forecast_replay.days_of(games()))
    assert [date for date, _ in of] == sorted(date for date, _ in of) and len(of) == 15
    assert [row for _, rows in of for row in rows] == list(range(60))


def test_only_changes_of_verdict_or_alarm_are_kept() -> None:
    looks = [
        forecast_replay.Look(f"day {k}", 20 * k, verdict, alarm, 0.1, 0.0, 0.2, None)
        for k, (verdict, alarm) in enumerate([("a", "quiet"), ("a", "quiet"), ("b", "quiet"), ("b", "fired")])
    ]
    assert [one.date for one in forecast_replay.changes(looks)] == ["day 0", "day 2", "day 3"]


def test_the_alarm_of_a_sport_is_that_of_its_labels() -> None:
    """Forecasts that are far off raise it, and calibrated ones raise it in few streams."""
    of = games(3000, 10)
    sure = Games(of.season_N, of.day_N, np.full(3000, 0.9), of.won_N, 0)
    state = AlarmState.start(forecasts.SETTINGS).take(
        forecasts.label_block(sure.p_N, np.arange(3000) % 2 == 0), forecasts.POSITIVE
    )
    assert state.paging is not None and state.paging.fired is not None and state.paging.fired.after < 500
    assert forecasts.alarm_share("x", of, (0.0, 0.0), 8, 1) <= 1 / 8


@pytest.mark.full
def test_a_replay_through_a_service(tmp_path: Path) -> None:
    import httpx

    with without_model(tmp_path) as service, httpx.Client(base_url=service.url, timeout=60) as http:
        found = forecast_replay.replay(http, "chess", games(120))
    assert found["looks"][-1]["labelled"] == found["games"] == 120 and found["days"] == 30 and found["fired"] == []
    assert found["looks"][0]["labelled"] == 80, "the first look is after 20 days"
    assert "| CHESS | 120 |" in forecast_replay.markdown({"look": 20, "sports": [found]})
