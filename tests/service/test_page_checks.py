"""What to look at first: since when, which tag, which class; each a sentence with a link to that view."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import numpy as np

from service.report import pages
from tests.service.app_client import Client
from tests.service.hooks import until
from tests.service.page_parts import NOW, START, right, slices, trend
from tests.service.page_reports import ALL, full
from tests.service.tiny_bundle import CLASSES, pictures
from trueodds.reports import first_checks, is_off
from trueodds.reports.schemas import Slice, Trend, TrendPoint


def slice_of(name: str, claimed: float, accuracy: float, ece: float, *, marked: bool) -> Slice:
    parts = {"mean_confidence": claimed, "accuracy": accuracy, "signed_gap": accuracy - claimed, "ece": ece}
    known = parts | {"floor_p95": 0.05, "more_than_chance": marked}
    return Slice.model_validate(known | {"name": name, "answers": 900, "labelled": 420})


def readings(*rows: Slice) -> list[str]:
    return [check.reading for check in first_checks(tags=rows)]


DAY = slice_of("day", 0.8, 0.79, 0.04, marked=False)
NIGHT = slice_of("night", 0.83, 0.61, 0.22, marked=True)
DUSK = slice_of("dusk", 0.8, 0.7, 0.1, marked=True)
FOG = slice_of("fog", 0.8, 0.79, 0.3, marked=True)


def test_the_clearest_of_those_off_by_more_than_chance() -> None:
    night = "night, right 61% of the time while it says 83% (420 labels)."
    assert readings(DAY, NIGHT) == [f"1 of 2 tags is off by more than chance: {night}"]
    assert readings(DAY, NIGHT, DUSK) == [f"2 of 3 tags are off by more than chance, the clearest: {night}"]
    assert readings(NIGHT, DUSK) == [f"Both tags are off by more than chance, the clearest: {night}"]
    assert readings(DAY, DAY) == ["Neither of the 2 tags is off by more than chance on its own."]
    assert readings(DAY) == [] and readings(DAY, Slice(name="new", answers=3, labelled=0)) == []
    (fog,) = first_checks(classes=[FOG, DAY])
    assert "fog, whose calibration error is 0.300, while chance alone shows up to 0.050 (420 labels)." in fog.reading
    assert fog.window is not None and fog.window.predicted_class == "fog"


def test_since_when() -> None:
    (since,) = first_checks(trend(change=12))
    assert since.window is not None and since.window.since == START + timedelta(days=12)
    before = r"those before \d\.\d points (more|less) often \([\d,]+\)\."
    before += r" They are split at the day that separates them best, at one look\."
    after = r"Answers from 4 Mar 2026 UTC on are right 1\d\.\d points less often than they say \([\d,]+ labels\), "
    assert re.fullmatch(after + before, since.reading), since.reading
    back = [p.model_copy(update={"start": p.start + timedelta(days=22)}) for p in trend(right).points]
    minutes = [p.model_copy(update={"start": NOW + k * timedelta(minutes=1)}) for k, p in enumerate(trend().points)]
    (within,) = first_checks(Trend(unit="minute", points=minutes))
    assert (
        within.reading.endswith(" They are split at the minute that separates them best, at one look.")
        and within.window is None
    )
    (passed,) = first_checks(Trend(unit="day", points=[*trend(change=12).points, *back]))
    assert passed.window is not None and (passed.window.since, passed.window.until) == (
        START + timedelta(days=12),
        START + timedelta(days=22),
    )
    episode = r"Answers from 4 Mar 2026 to 14 Mar 2026 UTC are right 1.*, those before .*, those since"
    episode += r" \d\.\d points .* at the"
    assert re.fullmatch(episode + r" days that separate them best, at one look\.", passed.reading), passed.reading
    (over,) = first_checks(Trend(unit="day", points=[*trend(change=0).points, *back]))
    assert over.window is not None and (over.window.since, over.window.until) == (None, START + timedelta(days=22))
    (sound,) = first_checks(trend(right))
    assert sound.window is None and sound.reading == "The error does not begin at any particular day."
    one = Trend(unit="hour", points=[trend().points[0], TrendPoint(start=NOW, answers=3, labelled=0)])
    assert first_checks(one) == []


def test_they_stand_only_where_something_is_off() -> None:
    off = {name for name in ALL if is_off(ALL[name]())}
    assert off >= {"over-confident", "acknowledged", "notice", "bare"}
    assert not off & {"no answers", "no labels", "few labels", "calibrated"}
    checked = full(checks=first_checks(trend(), slices(("plain", "left")), slices(("cat", "dog"))))
    html = pages.render(checked, {"bins": "30"}, now=NOW)
    links = re.findall(r'<a href="([^"]+)">Show only these</a>', html)
    assert [unescape(link) for link in links] == [
        "/calibration-report?since=2026-03-04T00%3A00%3A00Z&bins=30",
        "/calibration-report?tag=left&bins=30",
        "/calibration-report?class=dog&bins=30",
    ]


def test_the_service_finds_the_bad_tag(client: Client) -> None:
    """Answers with one tag are always wrong; the others' labels are drawn by their own probabilities."""
    rng = np.random.default_rng(0)
    for seed, tag in enumerate(["good", "bad"] * 3):
        body = {"instances": pictures(60, seed=seed), "tags": [tag] * 60}
        answers = client.post("/predict", json=body).json()["predictions"]
        rows = []
        for p in answers:
            wrong, odds = (p["index"] + 1) % len(CLASSES), np.array(p["probabilities"])
            label = wrong if tag == "bad" else rng.choice(len(CLASSES), p=odds / odds.sum())
            rows.append({"id": p["id"], "index": int(label)})
        client.label(rows)
    until(lambda: client.report()["alarm"]["state"] == "fired")
    until(lambda: client.report()["groups"]["labels"] == 360)
    checks = {check["about"]: check for check in client.report()["checks"]}
    assert checks["tag"]["window"]["tag"] == "bad" and "1 of 2 tags is off" in checks["tag"]["reading"]
    assert "right 0% of the time" in checks["tag"]["reading"]
    assert "predicted classes are off by more than 0.02, the" in checks["class"]["reading"] and "time" not in checks
    html = client.get("/calibration-report?format=html&bins=1000").text
    links = re.findall(r'<a href="([^"]+)">Show only these</a>', html)
    assert len(links) == 2 and all(client.get(unescape(link)).status_code == 200 for link in links)
