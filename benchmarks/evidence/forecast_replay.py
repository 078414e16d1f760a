"""Published forecasts replayed by date through a service: what its report and its alarm said, and after how many games.

    trueodds data forecasts
    python -m benchmarks.evidence.forecast_replay        # downloads/forecasts; five minutes on one core

Each sport is a model of its own, whose answer to a game is p(first team wins). The games of a day are sent to
`/observe` with their date, and their outcomes to `/feedback` on the next day with games. The report is read after every
LOOK days with games. Everything goes through HTTP to `python -m service`, with its default settings.

The tolerance is the service's default, and no setting was chosen on these data.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.evidence.decision_questions import Games, read_games
from benchmarks.faults.process import without_model
from benchmarks.faults.replicas import Hook
from benchmarks.record import RESULTS, Run, options_parser
from pipeline.published_data import collections

RESULT = RESULTS / "forecast_replay.json"
CLASSES = ("lost", "won")
"""Outcomes of the first team."""
LOOK = 20
"""Days with games between two looks at the report."""


@dataclass(frozen=True)
class Look:
    """The report of a sport at one look."""

    date: str
    labelled: int
    verdict: str
    alarm: str
    ece: float
    ece_lower: float
    ece_upper: float
    gap: float | None
    """Share of games that the first team won, minus the mean p(first team wins)."""


def days_of(games: Games) -> Iterator[tuple[str, list[int]]]:
    """Yield each date with the numbers of its games, the oldest first."""
    dates, first = np.unique(games.day_N, return_index=True)
    for date, rows in zip(dates.tolist(), np.split(np.arange(len(games)), first[1:]), strict=True):
        yield date, rows.tolist()


def replay(http: httpx.Client, sport: str, games: Games) -> dict[str, Any]:
    """Send the games of a sport, day by day, and return what the reports said."""
    looks: list[Look] = []
    waiting: list[dict[str, Any]] = []
    days = list(days_of(games))
    for number, (date, rows) in enumerate(days):
        _label(http, waiting)
        if number and number % LOOK == 0:
            looks.append(look_of(days[number - 1][0], _report(http, sport)))
        of = [
            {
                "id": f"{sport}-{row}",
                "probabilities": [1 - games.p_N[row], games.p_N[row]],
                "time": f"{date}T12:00:00Z",
                "tag": str(games.season_N[row]),
            }
            for row in rows
        ]
        body = {"model": sport, "version": "1", "classes": CLASSES, "positive": CLASSES[1], "observations": of}
        answer = http.post("/observe", json=body).raise_for_status().json()
        if answer["stored"] != len(rows):
            raise RuntimeError(f"{sport}, {date}: {len(rows)} games were sent, but the service stored {answer}")
        waiting = [{"id": f"{sport}-{row}", "model": sport, "label": CLASSES[int(games.won_N[row])]} for row in rows]
    _label(http, waiting)
    report = _report(http, sport)
    looks.append(look_of(days[-1][0], report))
    fired = [null for null in report["alarm"]["nulls"] if null["fired_after"] is not None]
    return {
        "sport": sport,
        "games": len(games),
        "days": len(days),
        "first": days[0][0],
        "last": days[-1][0],
        "fired": [_fired(games, null) for null in sorted(fired, key=lambda null: null["fired_after"])],
        "looks": [asdict(one) for one in looks],
    }


def _fired(games: Games, null: dict[str, Any]) -> dict[str, Any]:
    """Return when a test of the alarm fired, and whether it calls somebody (an alarm) or is only shown (a notice)."""
    last = null["fired_after"] - 1
    day, season = str(games.day_N[last]), str(games.season_N[last])
    return {"null": null["null"], "pages": null["pages"], "after": null["fired_after"], "on": day, "season": season}


def look_of(date: str, report: dict[str, Any]) -> Look:
    """Return what matters of a report."""
    positive = report["positive"] or {}
    return Look(
        date,
        report["labelled"],
        report["verdict"],
        report["alarm"]["state"],
        report["ece"],
        report["ece_lower"],
        report["ece_upper"],
        positive.get("signed_gap", report["signed_gap"]),
    )


def changes(looks: list[Look]) -> list[Look]:
    """Return the looks at which the verdict or the alarm differed from the look before."""
    kept: list[Look] = []
    for one in looks:
        if not kept or (one.verdict, one.alarm) != (kept[-1].verdict, kept[-1].alarm):
            kept.append(one)
    return kept


def _label(http: httpx.Client, labels: list[dict[str, Any]]) -> None:
    """Send labels, and refuse to go on if one was not stored."""
    if labels:
        answer = http.post("/feedback", json={"labels": labels}).raise_for_status().json()
        if answer["stored"] != len(labels):
            raise RuntimeError(f"{len(labels)} labels were sent, but the service stored {answer}")


def _report(http: httpx.Client, sport: str) -> dict[str, Any]:
    report: dict[str, Any] = http.get("/calibration-report", params={"model": sport}).raise_for_status().json()
    return report


def markdown(result: dict[str, Any]) -> str:
    """Return the alarms of all sports, and the verdicts of each as they came."""
    lines = [
        "| sport | games | dates | alarm | notice | verdict at the end | ECE, 95% interval |",
        "|---|---:|---|---|---|---|---|",
    ]
    for one in result["sports"]:
        end = one["looks"][-1]
        when = [_when([of for of in one["fired"] if of["pages"] is pages]) for pages in (True, False)]
        lines.append(
            f"| {one['sport'].upper()} | {one['games']:,} | {one['first']} to {one['last']} | {' | '.join(when)}"
            f" | `{end['verdict']}` | {end['ece']:.3f} [{end['ece_lower']:.3f}, {end['ece_upper']:.3f}] |"
        )
    lines += [
        "",
        f"The report as it was read every {result['look']} days with games, where its verdict or its alarm changed:",
        "",
        "| sport | date | outcomes | verdict | alarm | ECE, 95% interval |",
        "|---|---|---:|---|---|---|",
    ]
    lines += [
        f"| {one['sport'].upper()} | {look.date} | {look.labelled:,} | `{look.verdict}` | {look.alarm}"
        f" | {look.ece:.3f} [{look.ece_lower:.3f}, {look.ece_upper:.3f}] |"
        for one in result["sports"]
        for look in changes([Look(**look) for look in one["looks"]])
    ]
    return "\n".join(lines)


def _when(fired: list[dict[str, Any]]) -> str:
    """Return when the first of some tests fired."""
    return f"after {fired[0]['after']:,} games, on {fired[0]['on']}" if fired else "-"


def main() -> None:
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--sports", nargs="+", metavar="SPORT", help="such as nfl; default: all")
    options = parser.parse_args()
    paths = {path.name.partition("_")[0]: path for path in collections.find("forecasts")}
    if wrong := set(options.sports or ()) - paths.keys():
        parser.error(f"--sports has {', '.join(sorted(wrong))}; allowed are {', '.join(paths)}")
    run, found = Run(), []
    with (
        tempfile.TemporaryDirectory() as name,
        Hook(0) as hook,
        without_model(Path(name), "--alarm-webhook", hook.url) as service,
        httpx.Client(base_url=service.url, timeout=300) as http,
    ):
        for sport in options.sports or paths:
            found.append(replay(http, sport, read_games(paths[sport])))
            run.say(f"{sport}, alarm {found[-1]['looks'][-1]['alarm']}")
    run.finish(options.out, markdown, look=LOOK, sports=found)


if __name__ == "__main__":
    main()
