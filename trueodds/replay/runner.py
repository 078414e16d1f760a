"""Runs a replay in time: sends rows and labels when they are due, and prints the progress."""

from __future__ import annotations

import heapq
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trueodds.metrics.alarms.sequential import BLOCK
from trueodds.replay import ReplayError
from trueodds.replay.caller import Caller, RowAnswer, instance
from trueodds.replay.drift import clock
from trueodds.replay.stream import Bias, Event, Stream
from trueodds.texts import plural

TOGETHER, AT_ONCE = 0.05, 64
"""Rows due within so many seconds go in one call; without a clock, about so many rows do."""
BATCH_BYTES = 5_000_000
"""Largest size in bytes of the rows in one call, as JSON."""
LABELS = 1000
"""Largest number of labels in one call."""
BEHIND = 2.0
"""Delay in seconds from which on a line says that the service does not keep up."""
CATCH_UP = 5.0
"""Seconds at the end in which `until_alarm` waits for the service to judge the last labels."""
NAP = 0.1
"""Longest sleep in seconds, so that `is_stopped` is called often."""
HEADER = "   time{:>9}   labels  accuracy   ECE [interval]           by chance   alarm"
FIRED = ("fired", "acknowledged")


@dataclass(frozen=True)
class ReplayPlan:
    """Length and speed of a replay, and the share of answers with labels. Times are those of the stream, in seconds."""

    labelled: float = 1.0
    bias: Bias = field(default_factory=Bias)
    seconds: float = math.inf
    speed: float = 1.0
    """Seconds of the stream per second of the clock. inf: as fast as the service answers."""
    every: float = 5.0
    until_alarm: bool = False
    drain: bool = False
    """After the last row, continue until every label has been sent."""
    batch: int = 128
    """Largest number of rows in one call."""


class Replay:
    """One run. `is_stopped` is called between calls. Once it returns True, only labels that are due are sent."""

    def __init__(
        self,
        caller: Caller,
        stream: Stream,
        plan: ReplayPlan,
        say: Callable[[str], None] = print,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._caller, self._stream, self._plan, self._say, self._stopped = caller, stream, plan, say, is_stopped
        self._on_the_way: list[tuple[float, int, str, str | int, int]] = []
        """Heap of labels: due, number, id, label (or truth), and place of an independent label (-1 for classes)."""
        self._steps = stream.drift.steps
        self._rows = self._labels = 0
        self._now = 0.0
        self._answering = caller.answering
        self._alarm: str | None = None
        self._report: dict[str, Any] = {}
        self._shown: tuple[float, int] | None = None

    def run(self) -> bool:
        """Run until the plan's end, until the alarm, or until `is_stopped`. Return whether the alarm has fired.

        Raises:
            ReplayError: The service refuses a call, or is unreachable longer than the caller's patience; with
                `until_alarm`, the alarm had fired before.
        """
        if self._plan.until_alarm and self._stream.source.truth_NL is not None:
            raise ReplayError(
                "--until-alarm waits for one alarm, and each independent label has its own; remove --until-alarm"
            )
        self._alarm, _ = alarm_text(self._caller.report())
        if self._plan.until_alarm and self._alarm in FIRED:
            who = "/".join(self._caller.answering or ())
            raise ReplayError(
                f"the alarm of {who} has fired before, and a version's alarm fires once; publish another version, or"
                " remove --until-alarm"
            )
        self._say(HEADER.format(f"{self._stream.source.noun}s"))
        self._loop()
        if self._stopped():
            self._say("stopping: labels that are due are sent first")
        self._send_labels(self._now)
        if self._plan.until_alarm and self._alarm not in FIRED:
            self._let_the_alarm_catch_up()
        if self._shown != (self._now, self._labels):
            self._status()
        self._summary()
        return self._alarm in FIRED

    def _loop(self) -> None:
        plan, events = self._plan, self._stream.events()
        coming, status_at, start = next(events), plan.every, time.monotonic()
        together = max(TOGETHER, AT_ONCE / self._stream.rate) if math.isinf(plan.speed) else TOGETHER * plan.speed
        size = max(1, min(plan.batch, BATCH_BYTES // len(json.dumps(instance(coming.row)))))
        while not self._stopped():
            row_at = coming.at if coming.at <= plan.seconds else math.inf
            if self._now >= plan.seconds and math.isinf(row_at) and not (plan.drain and self._on_the_way):
                return
            label_at = self._on_the_way[0][0] if self._on_the_way else math.inf
            end = plan.seconds if self._now < plan.seconds else math.inf
            self._wait(min(row_at + together, label_at + together, status_at, end), start)
            self._announce()
            batch: list[Event] = []
            while coming.at <= min(self._now, plan.seconds) and len(batch) < size:
                batch.append(coming)
                coming = next(events)
            if batch:
                self._send_rows(batch)
            unsent_at = coming.at if coming.at <= plan.seconds else math.inf
            self._send_labels(min(self._now, unsent_at))  # a label of an unsent row may be due before others
            if self._now >= status_at:
                status_at += plan.every * math.ceil((self._now - status_at) / plan.every + 1e-9)
                self._status(behind=self._now - unsent_at)
                if plan.until_alarm and self._alarm in FIRED:
                    return

    def _wait(self, until: float, start: float) -> None:
        """Sleep until the stream's time is `until`. Without a clock, return at once."""
        speed = self._plan.speed
        if math.isinf(speed):
            self._now = max(self._now, until)
            return
        while (now := (time.monotonic() - start) * speed) < until and not self._stopped():
            time.sleep(min(NAP, (until - now) / speed))
        self._now = now if self._plan.drain else min(now, self._plan.seconds)

    def _announce(self) -> None:
        while self._steps and self._steps[0].start <= self._now:
            self._say(f"{clock(self._steps[0].start):>7}   {self._steps[0]}")
            self._steps = self._steps[1:]

    def _send_rows(self, batch: list[Event]) -> None:
        answers = self._caller.predict(batch)
        self._rows += len(batch)
        for event, answer in zip(batch, answers, strict=True):
            if self._stream.source.truth_NL is not None:
                self._plan_labels(event, answer, self._stream.source.truth_NL[event.label].tolist())
                continue
            label = self._stream.source.label(event.label)
            right = _is(answer, label)
            if event.fate < self._plan.bias.chance(self._plan.labelled, right, answer.confidence):
                due = event.at + self._plan.bias.delay(event.delay, right)
                heapq.heappush(self._on_the_way, (due, event.number, answer.id, label, -1))
        if self._caller.answering != self._answering:
            self._answering = self._caller.answering
            self._say(f"{clock(self._now):>7}   {'/'.join(self._answering or ())} answers from now on")

    def _plan_labels(self, event: Event, answer: RowAnswer, truth_L: list[float]) -> None:
        """Plan the known truths of an answer. Each is sent or not by itself; those that are sent come together."""
        fate_L = np.random.default_rng([self._stream.seed, 2, event.number]).random(len(truth_L)).tolist()
        for place, (truth, fate, p) in enumerate(zip(truth_L, fate_L, answer.probability_L, strict=True)):
            right = (p >= 0.5) == bool(truth)
            if truth == truth and fate < self._plan.bias.chance(self._plan.labelled, right, max(p, 1 - p)):
                due = event.at + self._plan.bias.delay(event.delay, right)
                heapq.heappush(self._on_the_way, (due, event.number, answer.id, int(truth), place))

    def _send_labels(self, until: float) -> None:
        """Send all labels that are due until then, in the order of their times."""
        due: list[tuple[str, str | int, int]] = []
        while self._on_the_way and self._on_the_way[0][0] <= until:
            due.append(heapq.heappop(self._on_the_way)[2:])
        for first in range(0, len(due), LABELS):
            part = due[first : first + LABELS]
            if self._stream.source.truth_NL is not None:
                self._caller.feedback_of_labels([(id_, place, bool(truth)) for id_, truth, place in part])
            else:
                self._caller.feedback([(id_, label) for id_, label, _ in part])
        self._labels += len(due)

    def _status(self, behind: float = 0.0) -> None:
        self._report = report = self._caller.report()
        self._shown = self._now, self._labels
        before, (self._alarm, text) = self._alarm, alarm_text(report)
        accuracy, chance = (_share(report[name]) for name in ("accuracy", "floor_p95"))
        late = f"   {behind:.0f} s behind: the service does not keep up" if behind > BEHIND * self._plan.speed else ""
        self._say(
            f"{clock(self._now):>7}{self._rows:>9,}{self._labels:>9,}{accuracy:>10}   {_ece(report):<24} "
            f"{chance:>9}   {text}{late}"
        )
        if self._alarm == "fired" and before != "fired":
            first = report["alarm"]["nulls"][0]
            after = f"after {plural(first['fired_after'], 'label')}"
            self._say(f"{clock(self._now):>7}   THE ALARM HAS FIRED {after}. {first['statement']}")

    def _let_the_alarm_catch_up(self) -> None:
        """Wait for the alarm.

        The service adds up evidence in the background, and a stream without a clock may end before that.
        """
        for _ in range(round(CATCH_UP / NAP)):
            report = self._caller.report()
            self._shown = None
            state, _ = alarm_text(report)
            if state is None or state in FIRED or report["alarm"]["nulls"][0]["labels"] > report["labelled"] - BLOCK:
                return
            time.sleep(NAP)

    def _summary(self) -> None:
        report, unsent = self._report, len(self._on_the_way)
        late = f"; {unsent:,} more were not due yet and are not sent" if unsent else ""
        sent = plural(self._rows, self._stream.source.noun)
        self._say(f"\n{sent} in {clock(self._now)}, {plural(self._labels, 'label')} sent{late}.")
        self._say(report["headline"])
        page = "calibration-report" if self._stream.source.truth_NL is None else "multi-label-report"
        self._say(f"{self._caller.url}/{page}?model={report['model']}&version={report['version']}")


def _is(answer: RowAnswer, label: str | int) -> bool:
    return label == (answer.index if isinstance(label, int) else answer.label)


def alarm_text(report: dict[str, Any]) -> tuple[str | None, str]:
    """Return the alarm's state (None without one), and a text with the evidence of the paging test."""
    alarm = report.get("alarm")
    if not alarm:
        return None, "-"
    state: str = alarm["state"]
    if not alarm["nulls"]:
        return state, state
    first = alarm["nulls"][0]
    evidence = math.exp(min(first["log_e"], 30.0))
    number = f"{evidence:.1f}" if evidence < 100 else f"{evidence:,.0f}" if evidence < 1e6 else "over a million"
    return state, f"{state}, evidence {number} of {first['threshold']:.0f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _ece(report: dict[str, Any]) -> str:
    if report["ece"] is None:
        return "-"
    return f"{report['ece']:.3f} [{report['ece_lower']:.3f}, {report['ece_upper']:.3f}]"
