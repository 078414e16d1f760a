"""Reads of the store for one report: sums, labels, and the state of the alarm."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from service.alarm import ALARM, COVERAGE, GROUPS, PROMISE
from service.errors import ServiceError
from service.labels import judge_readings
from service.report.query import ReportQuery, unknown_tag
from service.report.recent import RecentLabels, select_labels
from service.runtime import Runtime
from service.store import MAX_PERIODS, By, RowSums, Store
from service.store.decision_rows import Notice, QuestionCounts
from service.store.queue_rows import QueueCounts
from service.store.rows import HeldLabels, LabelBlock, MaturedCounts, Settlement, Version, Voiding
from service.store.work.labelling.label_masses import LabelMasses
from trueodds.bundle.contents import shadowed_by, slot_of
from trueodds.metrics import CalibrationSums
from trueodds.reports import LabelledRows
from trueodds.reports.schemas import MOST_MINUTES, KnownVersion, Unit
from trueodds.reports.schemas.judge import JudgeFigures
from trueodds.sums.answers import AnswerSums
from trueodds.sums.fine import FineSums
from trueodds.sums.hours import MINUTE_MS, hour_of, hours_of, within
from trueodds.sums.ordered import LevelSums, OrderedSums
from trueodds.sums.positive import PositiveSums

UNITS: tuple[Unit, ...] = get_args(Unit)
MAX_POINTS = 120
"""Largest number of points in a trend with the unit `auto`, except by month."""
MAX_VERSIONS = 8
"""Largest number of versions in a comparison: those that were added last."""

Periods = list[tuple[int, AnswerSums]]
"""Start of each period in Unix milliseconds, with its sums."""


@dataclass(frozen=True, eq=False)
class ReportData:
    """All data that a report is computed from."""

    sums: AnswerSums
    positive: PositiveSums | None
    """Sums of the same answers by p(positive), for a version with a positive class."""
    level_sums: LevelSums | None
    """Sums of the labels by level, for a version with ordered classes; not for `last`, one class or one tag."""
    all_positive: AnswerSums | None
    """Sums of all answers so far by p(positive). Their labels test what is expected of the others."""
    rounding_sums: CalibrationSums | None
    """Sums of the labels that rounding is about; not for `last`, one class or one tag."""
    rows: LabelledRows
    """Labels of the window that arrived last."""
    corrected_count: int
    """Number of corrected labels in the window."""
    versions: dict[str, AnswerSums]
    groups: dict[str, AnswerSums] | None
    trend: tuple[Unit, Periods] | None
    class_and_tag: RowSums | None
    """Rows of a class and a tag together, or of a tag without sums of its own, if the report is about these."""
    known_versions: list[KnownVersion]
    all_sums: AnswerSums
    """Sums of all answers so far, which the alarm is about."""
    corrected_block: LabelBlock | None
    """Labels of all answers that arrived last, if any label of the version was corrected."""
    held_labels: HeldLabels | None
    """Held labels of the model."""
    voidings: list[Voiding]
    """Voidings of the version's labels, in their order."""
    doubtful: int
    """Number of doubtful labels of the version. They are in no other number."""
    settlements: list[Settlement]
    """Settlements of doubtful labels, in their order."""
    queue_counts: QueueCounts | None
    """Counts of the drawn answers; None if none were drawn."""
    matured_counts: MaturedCounts | None
    """Matured answers of a version with a maturity window; None without one."""
    alarm: Any
    """The alarm's state, as it is stored."""
    promise: Any
    """State of the evidence about the promise to act alone, as it is stored; None without a promise."""
    coverage: Any
    """State of the evidence about conformal sets, as it is stored; None without sets."""
    group_alarms: Any
    """State of the evidence about tags and classes, as it is stored."""
    acted_count: int
    """Number of answers so far that acted alone."""
    questions: list[QuestionCounts]
    """Versions of the question, if the model is a question of a decision model."""
    notices: list[Notice]
    """Notices about that question."""
    label_masses: LabelMasses | None
    """Label masses of the answers that came as log-probabilities; None without such answers."""
    judge: JudgeFigures | None
    """Estimates from human and judge's labels; None without a judge's label, for one class or tag, and for `last`."""


async def read(runtime: Runtime, recent: RecentLabels, version: Version, query: ReportQuery) -> ReportData:
    """Read all data that the report needs.

    Raises:
        ServiceError: 404 for a tag without answers; 422 for a trend with too many periods.
    """
    store, key = runtime.store, version.key
    await runtime.mature(version)
    class_and_tag = await _class_and_tag(store, version, query)
    sums, block = await _sums_and_labels(store, recent, version, query, class_and_tag)
    positive = await _positive(store, version, query, block, class_and_tag)
    known = await store.read_versions()
    corrected = await _count_corrected_labels(store, version, query, block)
    versions = await sums_of_versions(store, known, query, version, sums)
    questions, notices = await _question(store, version)
    all_positive = None if positive is None else positive.sums
    if positive is not None and not query.window.is_everything:
        all_positive = await store.read_sums(*key, positive=True)
    all_sums = sums if query.window.is_everything else await store.read_sums(*key)
    any_corrected = corrected or await store.count_corrected_labels(*key)
    return ReportData(
        sums=sums,
        positive=positive,
        level_sums=await _read_level_sums(store, version, query),
        rounding_sums=await _read_rounding_sums(store, version, query),
        rows=rows_of_window(block, version, query),
        corrected_count=corrected,
        versions=versions,
        known_versions=_roles(known, runtime),
        all_sums=all_sums,
        all_positive=all_positive,
        corrected_block=await recent.labels(store, version) if any_corrected else None,
        held_labels=(await store.read_held()).get(version.model),
        voidings=await store.read_voidings(*key),
        doubtful=await store.count_doubtful(*key),
        settlements=await store.read_settlements(*key),
        queue_counts=await store.read_queue_counts(*key),
        matured_counts=await store.read_maturity_counts(*key),
        alarm=await store.read_state(*key, ALARM),
        promise=await store.read_state(*key, PROMISE) if version.act_alone else None,
        coverage=await store.read_state(*key, COVERAGE) if version.set_rules else None,
        group_alarms=await store.read_state(*key, GROUPS),
        acted_count=await store.count_acting_answers(*key) if version.act_alone else 0,
        groups=await sums_of_groups(store, version, query) if query.by else None,
        trend=await periods_of(store, version, query, class_and_tag) if query.trend else None,
        class_and_tag=class_and_tag,
        questions=questions,
        notices=notices,
        label_masses=await store.read_label_masses(*key),
        judge=await _judge(store, version, query),
    )


async def _judge(store: Store, version: Version, query: ReportQuery) -> JudgeFigures | None:
    """Read the estimates from human and judge's labels of the report's window."""
    if query.window.is_group or query.last is not None:
        return None
    return await judge_readings.figures_of(store, version, query.options, query.since_ms, query.until_ms)


async def _question(store: Store, version: Version) -> tuple[list[QuestionCounts], list[Notice]]:
    """Read the versions and the notices of a question. There are none for other models."""
    if not version.is_observed:
        return [], []
    questions = [question for question in await store.read_questions() if question.of.model == version.model]
    return questions, [one for one in await store.read_notices() if one.model == version.model] if questions else []


@dataclass(frozen=True)
class CheckData:
    """Data for the first checks of a version that is off."""

    trend: tuple[Unit, Periods]
    tags: dict[str, AnswerSums]
    classes: dict[str, AnswerSums]


async def read_checks(store: Store, version: Version, query: ReportQuery, data: ReportData) -> CheckData:
    """Read sums by time, tag and class in the report's window. Data that the report already has are not read again."""
    groups: dict[By, dict[str, AnswerSums]] = {"tag": {}, "class": {}}
    if query.group is None and query.class_and_tag is None:
        for by in groups:
            known = data.groups if query.by == by else None
            groups[by] = await sums_of_groups(store, version, replace(query, by=by)) if known is None else known
    trend = data.trend or await periods_of(store, version, replace(query, trend="auto"), data.class_and_tag)
    return CheckData(trend, groups["tag"], groups["class"])


def rows_of_window(block: LabelBlock, version: Version, query: ReportQuery) -> LabelledRows:
    """Return the labels that are in the report's window."""
    kept_L = within(hour_of(block.created_ms_L), hours_of(query.since_ms, query.until_ms))
    if query.predicted_class is not None:
        kept_L &= block.predicted_L == version.classes.index(query.predicted_class)
    if query.stored_tag is not None:
        kept_L &= np.array([(tag or "") == query.stored_tag for tag in block.tags], bool)
    kept = block if kept_L.all() else select_labels(block, kept_L)
    return LabelledRows(
        confidence_L=kept.confidence_L,
        correct_L=kept.correct_L,
        propensity_L=kept.propensity_L,
        delay_ms_L=kept.arrived_ms_L - kept.created_ms_L,
    )


async def sums_of_versions(
    store: Store, versions: list[Version], query: ReportQuery, version: Version, sums: AnswerSums
) -> dict[str, AnswerSums]:
    """Return the versions of one model in the same window, in the order in which they were added.

    These are the last 8 and the version of the report, whose `sums` are given. There are none for a class, a tag or the
    last labels.
    """
    if query.window.is_group or query.last is not None:
        return {}
    same = [v.version for v in versions if v.model == version.model]
    shown = [name for k, name in enumerate(same) if k >= len(same) - MAX_VERSIONS or name == version.version]
    window = query.since_ms, query.until_ms
    return {
        name: sums if name == version.version else await store.read_sums(version.model, name, *window) for name in shown
    }


async def sums_of_groups(store: Store, version: Version, query: ReportQuery) -> dict[str, AnswerSums]:
    """Read the sums by class, by tag or by source of the confidence, under the store's names.

    Raises:
        ServiceError: 422 if the sources cannot be computed for the window.
    """
    assert query.by is not None
    if query.by == "confidence_source":
        try:
            return await store.read_sums_by_source(*version.key, query.since_ms, query.until_ms)
        except ValueError as error:
            raise ServiceError(422, "invalid_parameter", f"by = confidence_source: {error}") from None
    return await store.read_sums_by(query.by, *version.key, query.since_ms, query.until_ms)


async def periods_of(
    store: Store, version: Version, query: ReportQuery, class_and_tag: RowSums | None = None
) -> tuple[Unit, Periods]:
    """Return each minute, hour, day or month with answers.

    `auto` takes the finest unit with at most 120 points, but minutes only within 3 hours (and where they are kept).
    Else it takes the month.

    Raises:
        ServiceError: 422 for more than 750 periods, or minutes that are no longer kept.
    """
    assert query.trend is not None
    finer, coarsest = UNITS[:-1], UNITS[-1]
    unit = coarsest if query.trend == "auto" else query.trend
    try:
        chosen = unit, await _periods(store, version, query, class_and_tag, unit, MAX_PERIODS)
    except ValueError as error:
        cure = "" if query.trend == "auto" else ", or trend=auto"
        raise ServiceError(422, "invalid_parameter", f"trend = {query.trend}: {error}{cure}") from None
    if query.trend == "auto":
        for unit in reversed(finer):
            most = MOST_MINUTES if unit == "minute" else MAX_POINTS
            try:
                periods = await _periods(store, version, query, class_and_tag, unit, most)
            except ValueError:
                break
            if unit != "minute" or (periods and periods[-1][0] - periods[0][0] < MOST_MINUTES * MINUTE_MS):
                chosen = unit, periods
    return chosen


async def _periods(
    store: Store, version: Version, query: ReportQuery, class_and_tag: RowSums | None, unit: Unit, most: int
) -> Periods:
    """Read the periods of a unit.

    Raises:
        ValueError: There are more than `most`, or the window includes minutes that are not kept.
    """
    if class_and_tag is not None:
        return class_and_tag.periods(unit, most)
    by, group = query.group or (None, "")
    window = query.since_ms, query.until_ms
    trend = await store.read_trend(*version.key, unit, *window, by=by, group=group, most=most)
    return [period async for period in trend]


async def _class_and_tag(store: Store, version: Version, query: ReportQuery) -> RowSums | None:
    """Return the rows for a report about a class and a tag, or about a tag without sums of its own; else None.

    Raises:
        ServiceError: 422 if they cannot be read exactly.
    """
    key, window = version.key, (query.since_ms, query.until_ms)
    given, cure = f"tag = {query.tag}", "choose a shorter or later window (since, until)"
    try:
        if query.class_and_tag is not None:
            given, cure = f"class = {query.predicted_class}, {given}", f"{cure}, or only one of the two"
            return await store.read_class_and_tag(*key, *query.class_and_tag, *window)
        tag = query.stored_tag
        return None if tag is None else await store.read_rare_tag(*key, tag, *window)
    except ValueError as error:
        raise ServiceError(422, "invalid_parameter", f"{given}: {error}; {cure}") from None


async def _sums_and_labels(
    store: Store, recent: RecentLabels, version: Version, query: ReportQuery, class_and_tag: RowSums | None
) -> tuple[AnswerSums, LabelBlock]:
    """Return the sums that the report is about, and the labels that arrived last."""
    key = version.key
    if query.last is not None:
        block, all_sums = await store.read_labels(*key, last=query.last), await store.read_sums(*key)
        scores = {"nll_N": block.nll_L, "brier_N": block.brier_L} if version.has_logits else {}
        labelled = await asyncio.to_thread(CalibrationSums.from_top, block.confidence_L, block.correct_L, **scores)
        return AnswerSums(all_sums.answers_C, labelled), block
    block = await recent.labels(store, version)
    window = query.since_ms, query.until_ms
    if class_and_tag is not None:
        sums = class_and_tag.total()
    elif query.group is not None:
        by, name = query.group
        sums = (await store.read_sums_by(by, *key, *window, only=name)).get(name, AnswerSums.zero())
    else:
        sums = await store.read_sums(*key, *window)
    tag = query.stored_tag
    if not sums.answers and tag is not None and not await store.has_answers_of(*key, tag):
        tags = await store.read_sums_by("tag", *key)
        if tag not in tags:
            raise unknown_tag(query, version, list(tags))
    return sums, block


async def _positive(
    store: Store, version: Version, query: ReportQuery, block: LabelBlock, class_and_tag: RowSums | None
) -> PositiveSums | None:
    """Return the sums of the same answers by p(positive). `block` has the labels of a report with `last`."""
    positive = version.positive_class
    if positive is None:
        return None
    key, window = version.key, (query.since_ms, query.until_ms)
    if query.last is not None:
        all_sums = await store.read_sums(*key, positive=True)
        columns = block.confidence_L, block.predicted_L, block.label_L, block.nll_L
        p_L, is_positive_L, nll_L, brier_L = await asyncio.to_thread(positive.rows_of_top, *columns)
        labelled = FineSums.of(p_L, is_positive_L, nll_N=nll_L, brier_N=brier_L)
        sums = AnswerSums(all_sums.answers_C, labelled)
    elif class_and_tag is not None:
        sums = class_and_tag.total(positive)
    elif query.group is None:
        sums = await store.read_sums(*key, *window, positive=True)
    else:
        by, name = query.group
        by_name = await store.read_sums_by(by, *key, *window, only=name, positive=True)
        sums = by_name.get(name, AnswerSums.zero())
    return PositiveSums(positive.name, sums)


async def _read_level_sums(store: Store, version: Version, query: ReportQuery) -> LevelSums | None:
    """Return the sums of the labels by level, or None if there are none for this window."""
    if not version.ordered or query.last is not None or query.group is not None or query.class_and_tag is not None:
        return None
    sums = await store.read_ordered_sums(*version.key, query.since_ms, query.until_ms)
    return LevelSums(version.classes, OrderedSums.zero(len(version.classes)) if sums is None else sums)


async def _read_rounding_sums(store: Store, version: Version, query: ReportQuery) -> CalibrationSums | None:
    """Return the sums of the labels that rounding is about, or None if there are none for this window."""
    if not version.is_observed or not version.has_logits:
        return None
    if query.last is not None or query.group is not None or query.class_and_tag is not None:
        return None
    return await store.read_rounded_sums(*version.key, query.since_ms, query.until_ms)


async def _count_corrected_labels(store: Store, version: Version, query: ReportQuery, block: LabelBlock) -> int:
    """Return the number of corrected labels that the report is about."""
    key = version.key
    if query.last is not None:
        return await store.count_corrected_labels(*key, after=int(block.sequence_L[0]) - 1) if len(block) else 0
    window, tag = (query.since_ms, query.until_ms), query.stored_tag
    return await store.count_corrected_labels(*key, *window, class_=query.predicted_class, tag=tag)


def _roles(versions: list[Version], runtime: Runtime) -> list[KnownVersion]:
    """Return the versions with answers in the store. A shadow's name is its model's, followed by ~ and the slot."""
    listed: dict[str, Any] = {row["model"]: row for row in runtime.registry.models(versions)["models"]}
    known = []
    for version in versions:
        row = listed.get(shadowed_by(version.model), {})
        slot = slot_of(version.model)
        role = "unknown" if runtime.settings.read_only else "past"
        if version.is_observed:
            role = "observed"
        elif version.version == row.get(slot or "shadow"):
            role = slot or "shadow"
        elif version.version == row.get("default") and not slot:
            role = "default"
        elif version.version in [published["version"] for published in row.get("versions", [])]:
            role = "published"
        known.append(KnownVersion.model_validate({"model": version.model, "version": version.version, "role": role}))
    return known
