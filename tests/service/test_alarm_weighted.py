"""The scope of the alarm: the labelled traffic, and with propensities all answers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from service.alarm import AlarmState, alarm_of
from service.alarm.readings import DIFFERS, standing
from service.settings import Settings
from service.store import StoreError
from tests.service.alarms import START, labels
from tests.service.app_client import Client
from tests.service.hooks import until
from tests.service.tiny_bundle import CLASSES, pictures
from trueodds.metrics import CELLS, CalibrationSums, WeightedEProcess
from trueodds.sums.answers import AnswerSums

NONE = AnswerSums.zero()


def corner(answers: int, seed: int = 0, *, off: float = 0.199) -> tuple[Any, Any, Any]:
    """Labels, with propensities: a tenth of the answers is off, and labelled 9 times as often as the rest."""
    rng = np.random.default_rng(seed)
    confidence_N, bad_N = rng.uniform(0.5, 1, answers), rng.random(answers) < 0.1
    propensity_N = np.where(bad_N, 0.9, 0.1)
    told_N = rng.random(answers) < propensity_N
    right_N = rng.random(answers) < confidence_N - off * bad_N
    return confidence_N[told_N], right_N[told_N], propensity_N[told_N]


def after(parts: tuple[Any, Any, Any], cuts: list[int], chosen: Settings) -> AlarmState:
    """The state after labels that are folded in parts, through JSON as in the store."""
    tree = None
    for low, high in zip([0, *cuts], [*cuts, len(parts[0])], strict=True):
        confidence_N, correct_N, propensity_N = (part[low:high] for part in parts)
        block = labels(confidence_N, correct_N, low, propensity_N)
        tree = json.loads(json.dumps(AlarmState.read(tree, chosen).take(block).tree(), allow_nan=False))
    return AlarmState.read(tree, chosen)


def test_a_corner_labelled_more_often_alarms_of_the_labelled_traffic_only() -> None:
    """The ECE of all answers is .0199; both halves of what is known are said, with the tolerance between them."""
    state = after(corner(30_000), [], Settings(alarm_propensity_floor=0.1))
    alarm = alarm_of(state, Settings(alarm_propensity_floor=0.1), model="m", sums=NONE)
    assert alarm.state == "fired" and alarm.weighted is not None and alarm.weighted.state == "quiet"
    assert alarm.weighted.labels == state.labels and alarm.weighted.left_out == 0
    words = f"Weighted by the propensities of {state.labels:,} labels: it has not been shown that the calibration error"
    assert f"{words} (ECE) of all answers so far with a propensity of 0.1 or more was above 0.02" in alarm.reading


def test_weighted_evidence_is_kept_fires_once_and_is_a_notice() -> None:
    chosen, parts = Settings(), corner(4_000, off=0.5)
    parts[2][::7] = np.nan  # some came without
    state = after(parts, [3, 20, 21, 400], chosen)
    assert state == after(parts, [], chosen) and state.weighted is not None
    finite = np.isfinite(parts[2])
    process, log_e_L = WeightedEProcess.start().advance(*(part[finite] for part in parts))
    assert state.weighted.process == process
    first, fired = int(np.argmax(log_e_L >= math.log(20))), state.weighted.fired
    assert fired is not None and fired.after == first + 1 and fired.log_e == log_e_L[first]
    assert fired.at_ms == START + 1000 * int(np.flatnonzero(finite)[first])
    nulls = {null: evidence.model_copy(update={"fired": None}) for null, evidence in state.nulls.items()}
    quiet = state.model_copy(update={"nulls": nulls})
    assert (standing(state, "m"), standing(quiet, "m")) == ("fired", "notice")
    alarm = alarm_of(quiet, chosen, model="m", sums=NONE)
    assert alarm.weighted is not None and alarm.weighted.fired_after == fired.after
    assert f"was above 0.02 at some time. This was shown after {fired.after:,} labels." in alarm.reading


def test_the_floor_is_kept_and_what_is_below_it_is_said() -> None:
    state = after(corner(2_000), [], Settings(alarm_propensity_floor=0.5))
    assert state.weighted is not None and state.weighted.process.left_out == (corner(2_000)[2] < 0.5).sum() > 100
    reading = alarm_of(state, Settings(), model="m", sums=NONE).reading
    assert (
        f"{state.weighted.process.left_out:,} labels are left out, because their propensities are below 0.5" in reading
    )
    assert "This version keeps propensity floor 0.5" in reading
    changed = {**state.tree(), "propensity_floor": 0.1}
    with pytest.raises(StoreError, match="damaged"):
        AlarmState.read(changed, Settings())


def test_without_propensities_there_is_none_and_an_older_state_goes_on() -> None:
    parts = corner(500)
    tree = AlarmState.start(Settings()).take(labels(*parts[:2])).tree()
    assert tree["weighted"] is None
    del tree["weighted"], tree["propensity_floor"]
    state = AlarmState.read(tree, Settings()).take(labels(*parts[:2], len(parts[0]), parts[2]))
    assert state.weighted is not None and state.weighted.process.labels == len(parts[0])
    assert alarm_of(AlarmState.start(Settings()), Settings(), model="m", sums=NONE).weighted is None


def told_of(share_C: Any, seed: int = 0) -> AnswerSums:
    """20,000 answers with confidences from .5 to 1, of which those of each cell are labelled by a share."""
    rng = np.random.default_rng(seed)
    confidence_N = rng.uniform(0.5, 1, 20_000)
    cell_N = np.ceil(confidence_N * CELLS).astype(int) - 1
    told_N = rng.random(20_000) < share_C[cell_N]
    sums = CalibrationSums.from_top(confidence_N[told_N], np.ones(told_N.sum(), bool))
    return AnswerSums(np.bincount(cell_N, minlength=CELLS), sums)


def test_it_is_said_where_the_labelled_traffic_is_not_all_traffic() -> None:
    state = AlarmState.start(Settings()).take(labels(*corner(2_000)[:2]))
    doubtful = np.linspace(0.9, 0.1, CELLS)
    alarm = alarm_of(state, Settings(), model="m", sums=told_of(doubtful))
    assert alarm.notice == DIFFERS and DIFFERS in alarm.reading and "not about all traffic" in DIFFERS
    for sums in (told_of(np.full(CELLS, 0.3)), told_of(np.ones(CELLS)), NONE):
        assert alarm_of(state, Settings(), model="m", sums=sums).notice is None


def test_propensities_reach_the_report_and_its_page(serve: Callable[..., Client]) -> None:
    """All answers are wrong, and those of a high confidence get no labels: the notice stands beside the alarm."""
    client = serve({"alarm_propensity_floor": 0.5})
    body = {"instances": pictures(60), "propensities": [0.5, 1.0, 0.2] * 20}
    predictions = client.post("/predict", json=body).json()["predictions"]
    sure = sorted(predictions, key=lambda p: p["confidence"])
    client.predict(pictures(200, seed=9))
    client.label([{"id": p["id"], "index": (p["index"] + 1) % len(CLASSES)} for p in sure])
    until(lambda: (client.report()["alarm"]["weighted"] or {"labels": 0})["labels"] == 40)
    alarm = client.report()["alarm"]
    weighted = alarm["weighted"]
    assert (weighted["floor"], weighted["left_out"], weighted["state"]) == (0.5, 20, "fired")
    assert weighted["reading"] in alarm["reading"] and alarm["nulls"][0]["labels"] == 60
    page = client.get("/calibration-report", params={"format": "html", "last": "5"}).text
    assert "<b>Over all answers:</b> Weighted by the propensities of 40 labels" in page
    assert {null["null"] for null in alarm["nulls"]} == {"ece", "point"}
