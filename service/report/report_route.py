"""Route of the report. It reads the store once and computes the report in a thread."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from service.alarm import (
    AlarmState,
    CoverageState,
    GroupState,
    PromiseState,
    acting_alone,
    advice_of,
    alarm_of,
    class_shares_of,
    expected_of,
    group_alarms,
    set_coverage,
)
from service.http import documentation
from service.http.parameters import Moment
from service.labels.live_shares import shares_since
from service.report import pages
from service.report.data import CheckData, ReportData, read, read_checks
from service.report.notes import (
    doubtful_note,
    held_note,
    held_of,
    maturing_of,
    queue_figures_of,
    voiding_note,
    window_note,
)
from service.report.query import ReportQuery, TrendUnit, check, check_class, check_costs, costs_of, unix_ms
from service.report.question_notes import label_mass_note, question_notes
from service.runtime import runtime_of
from service.settings import Settings
from service.store import MAX_LAST, StoreError
from service.store.rows import Version
from trueodds.processes.choices import TOLERANCE, ReportBy
from trueodds.reports import (
    Marks,
    Report,
    ReportOptions,
    first_checks,
    is_off,
    labelling_of,
    report_of,
    slices_of,
    sources_of,
    tags_of,
    trend_of,
)
from trueodds.reports.labelling import choice_of
from trueodds.reports.resolution import RoundedFigures, rounded_figures_of_sums
from trueodds.reports.schemas import NO_TAG, Check, Maturing, Verdict
from trueodds.reports.schemas.alarm import ActingAlone, Advice, Alarm
from trueodds.reports.schemas.group_alarms import GroupAlarms, GroupKind
from trueodds.reports.schemas.sets import SetCoverage
from trueodds.sums.bins import COARSE_CELLS

NEXT_STEPS: dict[Verdict, str] = {
    "no_answers": "Send inputs to POST /predict. Every answer has an id.",
    "no_labels": "Send the true labels to POST /feedback with the ids of the answers.",
}

router = APIRouter(route_class=pages.ReportRoute)

_TIME = "ISO 8601 (UTC if no offset) or Unix time of the PREDICTION; extended to whole hours."


@router.get(
    "/calibration-report",
    summary="Get the calibration report",
    **documentation.route(
        "read",
        Report,
        {"text/html": {}},
        _404="unknown model, version, class or tag",
        _422="unknown or repeated parameter, value out of range, or parameters that contradict each other",
        _503="no model has been served yet",
    ),
)
async def calibration_report(
    request: Request,
    model: Annotated[str | None, Query(description="Model. Default: the served one.")] = None,
    version: Annotated[str | None, Query(description="Version. Default: the served one.")] = None,
    since: Annotated[Moment | None, Query(description=f"Only answers given at or after this time. {_TIME}")] = None,
    until: Annotated[Moment | None, Query(description=f"Only answers given before this time. {_TIME}")] = None,
    last: Annotated[
        Annotated[int, Field(ge=1, le=MAX_LAST)] | None,
        Query(
            description="Only the labels that arrived last: this many. Not with since, until, class, tag, by or trend."
        ),
    ] = None,
    predicted_class: Annotated[
        str | None,
        Query(
            alias="class",
            description="Only answers with this predicted class, by name. With tag: both, from stored predictions.",
        ),
    ] = None,
    tag: Annotated[
        str | None,
        Query(description=f"Only answers with this tag. {NO_TAG} selects answers without a tag."),
    ] = None,
    bins: Annotated[
        int,
        Query(
            description="Number of confidence bins: a divisor of 3,000, at most 1,000. With class, tag or by: of 60."
        ),
    ] = 15,
    binning: Annotated[
        Literal["width", "mass"],
        Query(description="Bins of equal width, or of about equally many answers."),
    ] = "width",
    level: Annotated[float, Query(ge=0.5, le=0.999, description="Confidence level of the intervals.")] = 0.95,
    by: Annotated[
        ReportBy | None,
        Query(description="Add a table by predicted class, by tag or by source of the confidence."),
    ] = None,
    trend: Annotated[
        TrendUnit | None,
        Query(
            description="Add a trend with one point per minute (of the last 6 hours), hour, day or month. `auto` takes"
            " the finest of these with at most 120 points (minutes only within 3 hours), else the month. It is the"
            " page's default."
        ),
    ] = None,
    costs: Annotated[
        Annotated[str, Field(max_length=100)] | None,
        Query(
            description="Costs of a missed positive and of a false alarm, such as miss:10,alarm:1. For a model with a"
            " positive class. The report then gives the best threshold and its cost.",
        ),
    ] = None,
    format: Annotated[
        Literal["json", "html"] | None, Query(description="Format. Default: as the header Accept says.")
    ] = None,
) -> Response:
    """Return the calibration of the labelled answers, beside the offline test values, and the limits of the labels.

    With `since`, `class_shares` are estimated for any number of classes and for observed versions. Their reference rows
    are the answers with a label from before.

    The answer is JSON, or a page for a browser. The intervals hold for a single look at a fixed number of labels. Only
    the interval of the signed gap and the alarm stay valid if you look repeatedly. `estimands` says what each number
    estimates.
    """
    html = pages.is_wanted(request)
    if html and trend is None and last is None:
        trend = "auto"
    times = unix_ms("since", since), unix_ms("until", until)
    query = ReportQuery(*times, last, predicted_class, tag, bins, binning, level, by, trend, costs_of(costs))
    check(query)
    runtime = runtime_of(request)
    subject = await runtime.version(model, version)
    check_class(query, subject)
    check_costs(query, subject)
    data = await read(runtime, request.app.state.recent, subject, query)
    report = await asyncio.to_thread(compose, data, subject, query, runtime.settings, str(request.base_url))
    if report.class_shares is None and query.since_ms is not None and not query.window.is_group and query.last is None:
        report.class_shares = await shares_since(runtime, subject, query.since_ms, query.until_ms, query.options.level)
    if is_off(report) and query.last is None:
        places = await read_checks(runtime.store, subject, query, data)
        positive = report.positive is not None
        report.checks = await asyncio.to_thread(checks_of, places, query, report.groups, positive=positive)
    if html:
        read_only = runtime.settings.read_only
        text = await asyncio.to_thread(pages.render, report, request.query_params, read_only=read_only)
        return pages.response(request, text, {"vary": "accept", **pages.HEADERS})
    return Response(report.model_dump_json(), media_type="application/json", headers={"vary": "accept"})


def checks_of(
    data: CheckData, query: ReportQuery, groups: GroupAlarms | None = None, *, positive: bool = False
) -> list[Check]:
    """Return what to look at first when a model is off.

    Sums by tag and class are kept on 60 cells. If the query's bins do not fit these, the default number of bins is
    used.

    Args:
        data: Sums by time, tag and class.
        query: The query of the report.
        groups: Alarms by tag and class.
        positive: See `first_checks`.
    """
    options, default = query.options, ReportOptions()
    options = options if COARSE_CELLS % options.bins == 0 else replace(options, bins=default.bins)
    options = replace(options, cells=COARSE_CELLS)
    return first_checks(
        trend_of(*data.trend, query.options),
        tags_of(data.tags, options, marks_of(groups, "tag", query)),
        slices_of(data.classes, options, marks_of(groups, "class", query)),
        positive=positive,
    )


def marks_of(groups: GroupAlarms | None, about: GroupKind, query: ReportQuery) -> Marks | None:
    """Return the marks of the alarms by group for a table of all answers so far. None for another window."""
    if groups is None or not query.window.is_everything:
        return None
    return Marks(groups.marks(about), groups.tolerance)


def groups_of(data: ReportData, version: Version, settings: Settings) -> GroupAlarms:
    """Return the report's part about alarms by tag and class, over all labels so far.

    Raises:
        StoreError: The evidence about the groups is damaged.
    """
    state = GroupState.read(data.group_alarms, len(version.classes), settings)
    return group_alarms(state, version.classes, has_corrections=data.corrected_block is not None)


def observed_notes(version: Version) -> list[str]:
    """Return notes on the numbers that are missing for a version on another server."""
    notes = []
    if version.is_observed:
        notes.append("Another server serves this version, so there are no test values to compare with.")
    if not version.has_logits:
        scores = "" if version.positive else " There is no NLL and no Brier score over all classes."
        notes.append(
            f"Only the probability of the predicted class is known.{scores} To recalibrate, send the probabilities of"
            " all classes."
        )
    return notes


def acting_of(data: ReportData, version: Version, settings: Settings) -> ActingAlone | None:
    """Return the report's part about acting alone, over all answers so far; None without a promise.

    Raises:
        StoreError: The evidence about the promise is damaged.
    """
    if version.act_alone is None:
        return None
    state = PromiseState.read(data.promise, version.act_alone, settings)
    corrected = data.corrected_block is not None
    return acting_alone(
        state, settings, answers=data.all_sums.answers, acted_count=data.acted_count, has_corrections=corrected
    )


def sets_of(data: ReportData, version: Version, settings: Settings) -> SetCoverage | None:
    """Return the report's part about conformal sets, over all answers so far; None without sets.

    The choice of labels is tested over all answers too, because the report may be about a part of them.

    Raises:
        StoreError: The evidence about the sets is damaged.
    """
    if not version.set_rules:
        return None
    state = CoverageState.read(data.coverage, version.set_rules, settings)
    choice, corrected = choice_of(data.all_sums), data.corrected_block is not None
    return set_coverage(
        state, version.classes, is_chosen=choice is not None and choice.warning, has_corrections=corrected
    )


def _next_steps(maturing: Maturing | None, settings: Settings) -> dict[Verdict, str]:
    """Return how to get answers and labels. While answers mature, their labels do not count yet."""
    steps = {} if settings.read_only else dict(NEXT_STEPS)
    if maturing is not None and maturing.maturing:
        window = maturing.window
        steps["no_labels"] = f"A label counts when the window of its answer closes, {window} after the answer."
    return steps


def _rounded_of(data: ReportData, version: Version, options: ReportOptions) -> RoundedFigures | None:
    if data.rounding_sums is None:
        return None
    figures = rounded_figures_of_sums(
        data.rounding_sums, round(data.sums.labelled.n), version.resolution, options.level
    )
    return figures if figures.rounding.reading else None


def compose(data: ReportData, version: Version, query: ReportQuery, settings: Settings, base_url: str) -> Report:
    """Compose the report. If the alarm's evidence is damaged, a note says so and alarm and advice are missing."""
    options = replace(query.options, alert_threshold=settings.alert_threshold)
    notes = observed_notes(version)
    held = held_note(data.held_labels, time.time_ns() // 1_000_000)
    in_doubt = doubtful_note(data.doubtful, data.settlements)
    maturing = maturing_of(version, data.matured_counts, data.all_sums.answers, settings.matures)
    waiting = window_note(version, settings.matures) if maturing is None else maturing.reading
    notes += filter(None, [waiting, in_doubt, held, voiding_note(data.voidings)])
    notes += question_notes(data.questions, data.notices, version)
    notes += filter(None, [label_mass_note(data.label_masses)])
    alarm: Alarm | None = None
    advice: Advice | None = None
    try:
        state = AlarmState.read(data.alarm, settings)
        model, corrected, positive = version.model, data.corrected_block, version.positive
        alarm = alarm_of(
            state,
            settings,
            model=model,
            sums=data.all_sums,
            has_corrections=corrected is not None,
            positive=positive,
            levels=version.watched_levels,
        )
        advice = advice_of(
            state,
            corrected,
            model=model,
            version=version.version,
            address=settings.alarm_url or base_url.rstrip("/"),
            positive=positive,
            has_logits=version.has_logits,
        )
    except StoreError as error:
        notes.append(f"The alarm is unavailable: {error}.")
    groups: GroupAlarms | None = None
    try:
        groups = groups_of(data, version, settings)
    except StoreError as error:
        notes.append(f"The alarms by group are unavailable, so marks hold for one look: {error}.")
    acting: ActingAlone | None = None
    try:
        acting = acting_of(data, version, settings)
    except StoreError as error:
        notes.append(f"The promise to act alone cannot be judged: {error}.")
    labelling = labelling_of(data.sums, options, data.rows, version.reference)
    # The counts are of all drawn answers, so an estimate of a part of the answers does not belong to them.
    of_all = labelling.weighted if query.window.is_everything else ()
    if (queue := queue_figures_of(data.queue_counts, of_all)) is not None:
        labelling = labelling.model_copy(update={"queue": queue})
        notes += [queue.reading] if queue.skips else []
    report = report_of(
        version.model,
        version.version,
        data.sums,
        options,
        positive=data.positive,
        ordered=data.level_sums,
        rounding=_rounded_of(data, version, options),
        offline=version.metrics,
        labelling=labelling,
        alarm=alarm,
        advice=advice,
        acting=acting,
        corrections=data.corrected_count,
        versions=slices_of(data.versions, options),
        classes=slices_of(data.groups, options, marks_of(groups, "class", query))
        if data.groups is not None and query.by == "class"
        else None,
        tags=tags_of(data.groups, options, marks_of(groups, "tag", query))
        if data.groups is not None and query.by == "tag"
        else None,
        confidence_sources=sources_of(data.groups, options)
        if data.groups is not None and query.by == "confidence_source"
        else None,
        trend=trend_of(*data.trend, options, alarm.nulls[0].tolerance if alarm else TOLERANCE) if data.trend else None,
        choices=data.known_versions,
        notes=notes,
        next_steps=_next_steps(maturing, settings),
    )
    report.groups = groups
    report.expected = expected_of(
        version,
        options,
        None if alarm is None else alarm.refuted_statement,
        data.sums,
        data.positive,
        data.all_sums,
        data.all_positive,
    )
    report.class_shares = class_shares_of(version, options, data.positive)
    report.judge = data.judge
    report.held, report.maturing = held_of(data.held_labels), maturing
    try:
        report.sets = sets_of(data, version, settings)
    except StoreError as error:
        report.cautions.append(f"The coverage of the sets cannot be judged: {error}.")
    return report
