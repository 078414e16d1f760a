"""The overview of the questions of decision models: one row per question, with the state of its report."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import orjson
from pydantic import BaseModel, Field

from service.alarm import ALARM, PROMISE
from service.alarm.notices import reading_of
from service.http.parameters import moment_of
from service.report import addresses
from service.report.data import read
from service.report.query import ReportQuery
from service.report.question_notes import LEAST_MASS
from service.report.recent import RecentLabels
from service.report.report_route import compose
from service.runtime import Runtime
from service.store.decision_rows import Notice, NoticeKind, QuestionCounts
from service.store.rows import Version
from trueodds.reports import Report
from trueodds.reports.page.state import Name, state_of
from trueodds.reports.schemas import Verdict

MOST_ROWS = 50
"""Questions on one page. A row takes about a tenth of a second if its numbers have changed."""
MOST_NOTICES = 20
CACHED = 1000


class QuestionNotice(BaseModel):
    """Finding about a question that needs no label."""

    question: str
    model: str
    version: str
    notice: NoticeKind
    at: datetime
    reading: str


class QuestionState(BaseModel):
    """State of a question: its version with the latest answer."""

    question: str = Field(description="name as it was sent")
    model: str
    version: str
    versions: int = Field(description="number of versions: served models, wordings and promises")
    type: str
    served: str = Field(description="served model")
    answers: int
    labelled: int
    verdict: Verdict
    state: Name = Field(description="verdict and alarm in one of six steps")
    state_word: str = Field(description="the same in words")
    alarm: Literal["quiet", "notice", "fired", "acknowledged"] | None = Field(description="null: damaged evidence")
    acts_share: float | None = Field(description="share of the answers that act alone; null without a promise")
    promise_broken: bool | None = Field(description="null without a promise to act alone")
    declined: int = Field(description="requests in which the host declined the question")
    declined_share: float
    repeated: int = Field(description="answers to an input that was asked before")
    option_mass: float | None = Field(
        description="mean share of the next-token probability that fell on the options; null if the server gives none"
    )
    low_mass: bool = Field(description=f"whether the mean option mass is below {LEAST_MASS:g}")
    headline: str
    first_answer: datetime
    last_answer: datetime
    report_url: str = Field(description="path of its report")


class QuestionReport(BaseModel):
    """Questions with the latest answers, and their last notices."""

    questions: list[QuestionState]
    total: int = Field(description="number of all questions")
    notices: list[QuestionNotice] = Field(description="the last 20, the newest first")


class Overview:
    """Maker of the overview. It caches the state of a report while sums and evidence are the same."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], tuple[bytes, Report]] = OrderedDict()

    async def report(self, runtime: Runtime, recent: RecentLabels, base_url: str, first: int = 0) -> QuestionReport:
        """Return the overview from the question number `first` on, in the order of their last answers."""
        latest, counts, totals = _latest(await runtime.store.read_questions())
        versions = {version.key: version for version in await runtime.store.read_versions()}
        states = []
        for question in latest[first : first + MOST_ROWS]:
            version = versions.get(question.of.key)
            report = None if version is None else await self._report_of(runtime, recent, version, base_url)
            states.append(_state(question, counts[question.of.model], report))
        names = {question.of.model: question.of.name for question in latest}
        notices = (await runtime.store.read_notices())[-MOST_NOTICES:]
        return QuestionReport(
            questions=states, total=totals, notices=[notice_of(notice, names) for notice in reversed(notices)]
        )

    async def _report_of(self, runtime: Runtime, recent: RecentLabels, version: Version, base_url: str) -> Report:
        store, key = runtime.store, version.key
        sums = await store.read_sums(*key)
        evidence = [await store.read_state(*key, name) for name in (ALARM, PROMISE)]
        digest = hashlib.blake2b(sums.answers_C.tobytes() + sums.labelled.cells.tobytes() + orjson.dumps(evidence))
        known = self._known.get(key)
        if known is None or known[0] != digest.digest():
            query = ReportQuery()
            data = await read(runtime, recent, version, query)
            report = await asyncio.to_thread(compose, data, version, query, runtime.settings, base_url)
            known = self._known[key] = digest.digest(), report
        self._known.move_to_end(key)
        while len(self._known) > CACHED:
            self._known.popitem(last=False)
        return known[1]


def _latest(questions: Sequence[QuestionCounts]) -> tuple[list[QuestionCounts], dict[str, int], int]:
    """Return the latest version of each question, latest first, the numbers of versions, and of questions."""
    by_model: dict[str, list[QuestionCounts]] = {}
    for question in questions:
        by_model.setdefault(question.of.model, []).append(question)
    latest = [max(versions, key=lambda version: version.last_ms) for versions in by_model.values()]
    latest.sort(key=lambda question: (-question.last_ms, question.of.name))
    return latest, {model: len(versions) for model, versions in by_model.items()}, len(latest)


def notice_of(notice: Notice, names: dict[str, str]) -> QuestionNotice:
    """Return a notice with its reading. `names` has the names of the questions by model."""
    question = names.get(notice.model, notice.model)
    return QuestionNotice(
        question=question,
        model=notice.model,
        version=notice.version,
        notice=notice.kind,
        at=moment_of(notice.at_ms),
        reading=reading_of(notice, question),
    )


def _state(question: QuestionCounts, versions: int, report: Report | None) -> QuestionState:
    asked = question.answered + question.declined
    mass, acting = question.mean_mass, None if report is None else report.acting
    return QuestionState(
        question=question.of.name,
        model=question.of.model,
        version=question.of.version,
        versions=versions,
        type=question.of.type,
        served=question.of.served,
        answers=0 if report is None else report.answers,
        labelled=0 if report is None else report.labelled,
        verdict="no_answers" if report is None else report.verdict,
        state="waiting" if report is None else state_of(report).name,
        state_word="No answers yet" if report is None else state_of(report).word,
        alarm="quiet" if report is None else None if report.alarm is None else report.alarm.state,
        acts_share=None if acting is None else acting.share,
        promise_broken=None if acting is None else acting.alarm.state == "fired",
        declined=question.declined,
        declined_share=question.declined / asked if asked else 0.0,
        repeated=question.repeated,
        option_mass=mass,
        low_mass=mass is not None and mass < LEAST_MASS,
        headline="The host has declined all requests so far." if report is None else report.headline,
        first_answer=moment_of(question.first_ms),
        last_answer=moment_of(question.last_ms),
        report_url=addresses.address({}, model=question.of.model, version=question.of.version),
    )
