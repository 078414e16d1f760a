"""A small version of benchmarks/alarms/daily.py."""

from __future__ import annotations

import json

from benchmarks.alarms import daily


def test_calibrated_years_seldom_alarm() -> None:
    population = daily.Population.of("C")
    found = daily.false_alarms(population, "alternating", 20, 40)
    assert set(found) == {"ece", "point"} and max(found.values()) <= 0.1


def test_both_alarms_find_a_change_and_the_daily_one_waits_for_the_end_of_the_day() -> None:
    found = daily.delays(daily.Population.of("A"), 2.5, "ece", 200, 12)
    assert found["by_label_before"] == found["by_day_before"] == 0
    assert 0 < found["by_label_labels"] <= found["by_day_labels"] <= 400
    assert found["by_day_labels"] % 200 == 100, "the change is in the middle of a day"


def test_the_committed_result_keeps_what_the_claim_says() -> None:
    record = json.loads(daily.RESULT.read_text(encoding="utf-8"))
    assert len(record["false_alarms"]) == 36 and len(record["delays"]) == 24
    assert max(max(one["ece"], one["point"]) for one in record["false_alarms"]) <= daily.ALPHA
    assert daily.markdown(record)
