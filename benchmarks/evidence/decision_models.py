"""Two decision models under watch: a service process, both formats, delayed labels, and a silent change of one model.

    python -m benchmarks.evidence.decision_models --data FOLDER        # about five minutes on one core

FOLDER holds `forecasts` (FiveThirtyEight's games) and `records` (nets on CIFAR test images). Five questions get 20,000
answers (benchmarks/evidence/decision_questions.py). Two hosts answer, one in each format; one of them rounds to two
decimals. 3% of the questions are declined. Labels come a week of the replay after their answers. In the middle one host
serves another model under the same alias: one of its questions is then off by .05 on average, and the others are as
before. The runs differ in formats, rounding, draws, and the question that gets worse.

Everything goes through HTTP to `python -m service`. A webhook on a port of its own receives alarms and notices.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson

import trueodds
from benchmarks.evidence import decision_questions as made
from benchmarks.evidence.decision_questions import Question, Shape
from benchmarks.faults.process import without_model
from benchmarks.faults.replicas import Hook
from benchmarks.record import RESULTS, circumstances, conclude, options_parser

RESULT = RESULTS / "decision_models.json"
COUNTS = {
    "object": {
        "first_team_wins": 5_500,
        "home_team_wins": 2_000,
        "object": 8_000,
        "scene": 2_500,
        "wins_of_three": 2_000,
    },
    "first_team_wins": {
        "first_team_wins": 9_000,
        "home_team_wins": 2_000,
        "object": 4_500,
        "scene": 2_500,
        "wins_of_three": 2_000,
    },
}
"""Answers to each question, by the question that gets worse."""
HOSTS: dict[str, tuple[str, ...]] = {
    "lark": ("first_team_wins", "object", "wins_of_three"),
    "heron": ("home_team_wins", "scene"),
}
"""Questions of each host. The first host changes its model."""
DAYS, DELAY = 40, 7
"""Days of the replay with answers, and days until their labels come."""
DECLINED, ERROR, SECONDS = 0.03, 0.05, 86_400.0
SETTLING = 120.0
"""Largest number of seconds to wait for alarms and messages after the last label."""


@dataclass(frozen=True)
class Setup:
    """Circumstances of one run."""

    seed: int
    worse: str
    """Question that the new model answers worse."""
    shapes: dict[str, Shape]
    """Format of each host."""
    rounds: str
    """Host that rounds."""
    counts: dict[str, int]
    error: float = ERROR
    days: int = DAYS
    delay: int = DELAY


def setups() -> list[Setup]:
    """Return the runs: both formats, either host rounds, and either of two questions gets worse."""
    one: dict[str, Shape] = {"lark": "decisions", "heron": "systemone"}
    other: dict[str, Shape] = {"lark": "systemone", "heron": "decisions"}
    return [
        Setup(0, "object", one, "heron", COUNTS["object"]),
        Setup(1, "object", other, "lark", COUNTS["object"]),
        Setup(2, "first_team_wins", one, "lark", COUNTS["first_team_wins"]),
        Setup(3, "first_team_wins", other, "heron", COUNTS["first_team_wins"]),
    ]


@dataclass
class Day:
    """Pairs and labels of one day of the replay."""

    pairs: list[dict[str, Any]]
    labels: list[dict[str, Any]]
    """Labels of the day's answers, which are sent later."""
    declined: int
    questions: int


def days_of(setup: Setup, data: Path, start: float) -> list[Day]:
    """Return the days of a replay that starts at a Unix time."""
    rng = np.random.default_rng([setup.seed, 42])
    before = made.questions(data, setup.counts, rng)
    after = {**before, setup.worse: made.sharpened(before[setup.worse], setup.error)}
    days = [Day([], [], 0, 0) for _ in range(setup.days)]
    for host, names in HOSTS.items():
        most = max(setup.counts[name] for name in names)
        asked_at = {name: np.linspace(0, most, setup.counts[name], endpoint=False).astype(int) for name in names}
        row_of: dict[str, dict[int, int]] = {
            name: {int(n): k for k, n in enumerate(at_N)} for name, at_N in asked_at.items()
        }
        for n in range(most):
            day, is_after = n * setup.days // most, host == "lark" and n * 2 >= most
            known = after if is_after else before
            asked = [(known[name], row_of[name][n]) for name in names if n in row_of[name]]
            if setup.rounds == host:
                asked = [(made.rounded(Question(q.name, q.kind, q.options, q.p_NC[[k]], q.truth_N[[k]])), 0)
                         for q, k in asked]  # fmt: skip
            declined = [question.name for question, _ in asked if rng.random() < DECLINED]
            id_, moment = f"{host}-{n}", start + SECONDS * setup.days * n / most
            served = f"{host}-{2 if is_after else 1}"
            days[day].pairs.append(made.pair(setup.shapes[host], served, asked, declined, id_, moment))
            days[day].declined += len(declined)
            days[day].questions += len(asked)
            for question, row in asked:
                if question.name not in declined:
                    label = question.label(row)
                    true = {"index": int(question.truth_N[row])} if question.kind == "score" else {"label": label}
                    days[day].labels.append({"id": id_, "question": question.name, **true})
    return days


def replay(setup: Setup, data: Path) -> dict[str, Any]:
    """Run one replay. Return what the service said, by day and at the end."""
    start = time.time() - SECONDS * (setup.days + setup.delay)
    days = days_of(setup, data, start)
    began, timeline, sent = time.perf_counter(), list[dict[str, Any]](), Counter[str]()
    with (
        tempfile.TemporaryDirectory() as name,
        Hook(0) as hook,
        without_model(Path(name), "--alarm-webhook", hook.url) as service,
        httpx.Client(base_url=service.url, timeout=300) as http,
        trueodds.Client(service.url) as client,
    ):
        for day in range(setup.days + setup.delay):
            if day < setup.days:
                summary = client.observe_decisions(days[day].pairs)
                sent.update(stored=summary.stored, declined=summary.declined, known=summary.already_known)
            if 0 <= day - setup.delay < setup.days:
                sent["labels"] += _label(http, days[day - setup.delay].labels)
            timeline += [{"day": day + 1, **row} for row in _states(http)]
        _settle(hook.messages)
        reports = _reports(http)
        fitted = _recalibrated(service.url, setup.worse, Path(name))
        shown = http.get("/questions").raise_for_status().json()["notices"]
    alarms = [(r["question"], r["version"]) for r in reports if r["alarm"] == "fired"]
    return {
        "seed": setup.seed,
        "worse": setup.worse,
        "shapes": setup.shapes,
        "rounds": setup.rounds,
        "error": setup.error,
        "questions": sum(day.questions for day in days),
        "sent": dict(sent),
        "expected_declined": sum(day.declined for day in days),
        "seconds": round(time.perf_counter() - began, 1),
        "alarms": [{"question": question, "version": version.rpartition("-")[0]} for question, version in alarms],
        "notices": [{"question": one["question"], "notice": one["notice"]} for one in shown],
        "messages": dict(Counter(message["type"] for message in hook.messages)),
        "reports": reports,
        "recalibration": fitted,
        "timeline": changes(timeline),
    }


def _label(http: httpx.Client, labels: list[dict[str, Any]]) -> int:
    body = b"".join(orjson.dumps(label) + b"\n" for label in labels)
    answer = http.post("/feedback", content=body, headers={"content-type": "application/x-ndjson"}).raise_for_status()
    summary = answer.json()
    if summary["stored"] != len(labels):
        raise RuntimeError(f"{len(labels):,} labels were sent, but: {answer.text[:500]}")
    return int(summary["stored"])


def _states(http: httpx.Client) -> list[dict[str, Any]]:
    """Return the state of each question as the overview shows it."""
    kept = ("question", "served", "answers", "labelled", "verdict", "state", "alarm", "declined")
    return [{key: one[key] for key in kept} for one in http.get("/questions").raise_for_status().json()["questions"]]


def _settle(messages: list[dict[str, Any]]) -> None:
    """Wait until no further message comes: two rounds of the service's watch."""
    deadline, quiet = time.monotonic() + SETTLING, time.monotonic()
    count = len(messages)
    while time.monotonic() < deadline and time.monotonic() - quiet < 12:
        time.sleep(0.5)
        if len(messages) != count:
            count, quiet = len(messages), time.monotonic()


def _reports(http: httpx.Client) -> list[dict[str, Any]]:
    """Return figures of the report of every version of every question."""
    observed = http.get("/models").raise_for_status().json()["observed"]
    reports = []
    for model, version in sorted((one["model"], version) for one in observed for version in one["versions"]):
        query = {"model": model, "version": version}
        one = http.get("/calibration-report", params=query).raise_for_status().json()
        ordered, fired = one["ordered"], [null for null in one["alarm"]["nulls"] if null["state"] != "quiet"]
        reports.append(
            {
                "question": one["model"],
                "version": one["version"],
                "answers": one["answers"],
                "labelled": one["labelled"],
                "verdict": one["verdict"],
                "alarm": one["alarm"]["state"],
                "fired_after": min((null["fired_after"] for null in fired if null["pages"]), default=None),
                "accuracy": one["accuracy"],
                "ece": one["ece"],
                "ece_lower": one["ece_lower"],
                "ece_upper": one["ece_upper"],
                "nll": one["nll"],
                "rps": None if ordered is None else ordered["rps"],
                "at_least": None if ordered is None else len(ordered["at_least"]),
            }
        )
    return reports


def _recalibrated(url: str, question: str, folder: Path) -> dict[str, Any]:
    """Run `trueodds recalibrate` for a question's latest version. Return its calibrator and its words."""
    out = folder / "calibrator.json"
    done = subprocess.run(
        [sys.executable, "-m", "trueodds", "recalibrate", "--url", url, "--model", question, "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    text = done.stdout.replace(str(folder) + "/", "")
    found = {"question": question, "status": done.returncode, "text": (text or done.stderr).strip()}
    if out.exists():
        found["calibrator"] = json.loads(out.read_text(encoding="utf-8"))["calibrator"]
    return found


def changes(timeline: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of a timeline at which the served model, the verdict or the alarm of a question changed."""
    last, kept = dict[str, tuple[Any, ...]](), list[dict[str, Any]]()
    for row in timeline:
        now = tuple(row[key] for key in ("served", "verdict", "state", "alarm"))
        if last.get(row["question"]) != now:
            last[row["question"]] = now
            kept.append(row)
    return kept


def markdown(result: dict[str, Any]) -> str:
    """Return the tables for the page on decision models and forecasts."""
    days, runs = result["days"], result["runs"]
    lines = [
        f"{days} days of answers, labels {result['delay']} days later; {result['declined']:.0%} of the questions are"
        " declined.",
        "",
        "| run | answered | declined | rounded to .01 | worse from the middle on | alarms (after labels) |"
        " other notices of the alarm | changes of the served model | seconds |",
        "|---|---:|---:|---|---|---|---|---|---:|",
    ]
    lines += [_run_row(run) for run in runs]
    run = runs[0]
    lines += ["", f"The verdicts of run {run['seed']} as they came:", ""]
    lines += ["| question | day | served model | labels | verdict | alarm |", "|---|---:|---|---:|---|---|"]
    lines += [
        f"| {row['question']} | {row['day']} | {row['served']} | {row['labelled']:,} | `{row['verdict']}` |"
        f" {row['alarm']} |"
        for row in sorted(run["timeline"], key=lambda row: (row["question"], row["day"]))
    ]
    lines += ["", f"The reports at the end of run {run['seed']}:", ""]
    lines += [
        "| question | version | labels | verdict | ECE, interval | NLL | ranked probability score |",
        "|---|---|---:|---|---|---:|---:|",
    ]
    lines += [_report_row(one) for one in run["reports"]]
    lines += ["", "`trueodds recalibrate` for the worse question of each run, by its latest labels:", ""]
    for one in runs:
        fitted = one["recalibration"]
        said = [" ".join(line.split()) for line in fitted["text"].splitlines() if line.startswith("ECE ")]
        kind = fitted.get("calibrator", "no calibrator")
        lines.append(f"- run {one['seed']}, {fitted['question']}: `{kind}`. {'; '.join(said)}")
    return "\n".join(lines)


def _run_row(run: dict[str, Any]) -> str:
    fired = [one for one in run["reports"] if one["alarm"] == "fired"]
    alarms = ", ".join(f"{one['question']} of {_served(one)} ({one['fired_after']:,})" for one in fired) or "none"
    noticed = ", ".join(f"{one['question']} of {_served(one)}" for one in run["reports"] if one["alarm"] == "notice")
    kinds = Counter(one["notice"] for one in run["notices"])
    of_model = ", ".join(sorted(one["question"] for one in run["notices"] if one["notice"] == "served_model_changed"))
    others = "".join(f"; {count} {kind}" for kind, count in kinds.items() if kind != "served_model_changed")
    rounds = f"{run['rounds']} ({run['shapes'][run['rounds']]})"
    return (
        f"| {run['seed']} | {run['sent']['stored']:,} | {run['sent']['declined']:,} | {rounds} | {run['worse']} |"
        f" {alarms} | {noticed or 'none'} | {of_model or 'none'}{others} | {run['seconds']:.0f} |"
    )


def _served(report: dict[str, Any]) -> str:
    return str(report["version"]).rpartition("-")[0]


def _report_row(one: dict[str, Any]) -> str:
    interval = f"{one['ece']:.3f} [{one['ece_lower']:.3f}, {one['ece_upper']:.3f}]"
    nll = "-" if one["nll"] is None else f"{one['nll']:.3f}"
    rps = "-" if one["rps"] is None else f"{one['rps']:.3f}"
    told = f"{one['labelled']:,} | `{one['verdict']}` | {interval} | {nll} | {rps}"
    return f"| {one['question']} | {_served(one)} | {told} |"


if __name__ == "__main__":
    parser = options_parser(__doc__, RESULT)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="folder of forecasts and records")
    parser.add_argument("--runs", type=int, default=4, help="number of runs, at most 4")
    parser.add_argument("--first", type=int, default=0, help="first run")
    chosen = parser.parse_args()
    runs = []
    for setup in setups()[chosen.first : chosen.first + chosen.runs]:
        runs.append(replay(setup, chosen.data))
        print(json.dumps({k: v for k, v in runs[-1].items() if k not in ("timeline", "reports")}, indent=1))
        sys.stdout.flush()
        for report in runs[-1]["reports"]:
            print(json.dumps(report), file=sys.stderr)
    conclude(
        chosen.out,
        markdown,
        packages=("numpy", "scipy"),
        command=circumstances()["command"].replace(str(chosen.data), "FOLDER"),
        days=DAYS,
        delay=DELAY,
        declined=DECLINED,
        runs=runs,
    )
