"""The route of the report: reads the store, and has the numbers computed beside the event loop."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from fastapi import APIRouter, Query, Request
from pydantic import BeforeValidator, Field
from starlette.responses import Response

from service.alarm import route as alarm
from service.http import error_answers
from service.report import Asked, data, numbers_of, page, report, slices
from service.report import schemas as report_schemas
from service.report.labelling import labelling
from service.report.recent import Recent
from service.report.schemas import KnownVersion, Labelling, Report
from service.report.scope import NO_TAG, TrendUnit, check, check_class, unix_ms, unknown_tag
from service.store import MAX_LAST, By, Store
from service.store.records import LabelBlock, StoredSums, Version
from trueodds.metrics import CalibrationSums
from trueodds.shadows import is_shadow, shadowed_by

if TYPE_CHECKING:
    from service.runtime import Runtime

router = APIRouter(route_class=page.Readable)

# A form sends its empty fields too.
_Blank = BeforeValidator(lambda value: None if value == "" else value)
_TIME = "ISO 8601 (UTC without an offset) or Unix seconds, of the PREDICTION; reached out to the whole hour"


@router.get(
    "/calibration-report",
    tags=["odds"],
    summary="Do the probabilities mean what they say?",
    responses={
        200: {"model": report_schemas.Report, "content": {"text/html": {}}},
        **error_answers.documented(
            _404="unknown model, version, class or tag",
            _422="a parameter that is unknown, given twice or out of range, or parameters that contradict each other",
            _503="no model has been served yet",
        ),
    },
)
async def calibration_report(
    request: Request,
    model: Annotated[str | None, _Blank, Query(description="default: the one that is served")] = None,
    version: Annotated[str | None, _Blank, Query(description="default: the one that is served")] = None,
    since: Annotated[datetime | None, _Blank, Query(description=f"answers given since then: {_TIME}")] = None,
    until: Annotated[datetime | None, _Blank, Query(description=f"answers given before then: {_TIME}")] = None,
    last: Annotated[
        Annotated[int, Field(ge=1, le=MAX_LAST)] | None,
        _Blank,
        Query(description="only so many labels that arrived last; not with since, class or trend"),
    ] = None,
    predicted_class: Annotated[
        str | None, _Blank, Query(alias="class", description="only answers of this class, by name")
    ] = None,
    tag: Annotated[
        str | None, _Blank, Query(description=f"only answers with this tag; {NO_TAG}: only those without")
    ] = None,
    bins: Annotated[
        int, Query(description="confidence bins: a divisor of 3,000, at most 1,000; of 60 with class, tag or by")
    ] = 15,
    binning: Annotated[
        Literal["width", "mass"], Query(description="bins of equal width, or of about as many answers each")
    ] = "width",
    level: Annotated[float, Query(ge=0.5, le=0.999, description="nominal coverage of the intervals")] = 0.95,
    by: Annotated[By | None, _Blank, Query(description="also a table by predicted class, or by tag")] = None,
    trend: Annotated[
        TrendUnit | None,
        _Blank,
        Query(description="also a point for each hour, day or month; auto: at most 120 points (a page's default)"),
    ] = None,
    format: Annotated[Literal["json", "html"] | None, _Blank, Query(description="default: as Accept says")] = None,
) -> Response:
    """Calibration on the labelled answers, with the offline test values beside it, and what labels cannot tell.

    JSON, or a page when a browser asks. The intervals are for one look at a number of labels that was fixed
    beforehand; those of the signed gap, and the alarm, may be watched. `estimands` says what each number estimates.
    """
    html = page.wanted(request)
    if html and trend is None and last is None:
        trend = "auto"
    times = unix_ms("since", since), unix_ms("until", until)
    asked = Asked(*times, last, predicted_class, tag, bins, binning, level, by, trend)
    check(asked)
    runtime = cast("Runtime", request.app.state.runtime)
    found = await runtime.version(model, version)
    check_class(asked, found)
    built = await build(runtime, request.app.state.recent, found, asked, str(request.base_url))
    if html:
        text = await asyncio.to_thread(page.render, built, request.query_params)
        return Response(text, media_type="text/html", headers={"vary": "accept", **page.HEADERS})
    return Response(built.model_dump_json(), media_type="application/json", headers={"vary": "accept"})


async def build(
    runtime: Runtime, recent: Recent, version: Version, asked: Asked, base_url: str | None = None
) -> Report:
    """All parts of a report; alarm and advice, of all labels since the version's start, only with a `base_url`.

    Raises:
        ServiceError: 404 for a tag that no answer has; 422 for a trend of too many periods.
    """
    store = runtime.store
    sums, labels = await _read(store, recent, version, asked)
    known = await store.read_versions()

    def computed() -> Labelling:
        numbers_of(sums, asked)  # `report` finds it remembered; two threads would only wait for each other
        return labelling(version, sums, labels, asked)

    about = await asyncio.to_thread(computed)
    parts: dict[str, Any] = {
        "about": about,
        "corrected": await _corrected(store, version, asked, labels),
        "versions": slices.versions(await data.sums_of_versions(store, known, asked, version, sums), asked),
        "known": _known(known, runtime),
    }
    if base_url is not None:
        ever = sums if asked.everything else await store.read_sums(version.model, version.version)
        corrected = parts["corrected"] or await store.count_corrected(version.model, version.version)
        rows = await recent.labels(store, version) if corrected else None
        parts |= await alarm.parts_of(runtime, version.model, version.version, ever, base_url, rows)
    if asked.by:
        parts["classes" if asked.by == "class" else "tags"] = await asyncio.to_thread(
            slices.groups, await data.sums_of_groups(store, version, asked), asked
        )
    if asked.trend:
        parts["trend"] = await asyncio.to_thread(slices.trend, *await data.periods_of(store, version, asked), asked)
    return report(version, sums, asked, **parts)


async def _read(store: Store, recent: Recent, version: Version, asked: Asked) -> tuple[StoredSums, LabelBlock]:
    """The sums that the report is about, and the labels that arrived last."""
    key = version.model, version.version
    if asked.last is not None:
        rows, all_answers = await store.read_labels(*key, last=asked.last), await store.read_sums(*key)
        scores = {"nll_N": rows.nll_L, "brier_N": rows.brier_L}
        told = await asyncio.to_thread(CalibrationSums.from_top, rows.confidence_L, rows.correct_L, **scores)
        return StoredSums(all_answers.answers_C, told), rows
    labels = await recent.labels(store, version)
    window = asked.since_ms, asked.until_ms
    if asked.group is None:
        return await store.read_sums(*key, *window), labels
    by, name = asked.group
    found = await store.read_sums_by(by, *key, *window, only=name)
    if name in found:
        return found[name], labels
    if by == "tag" and name not in (ever := await store.read_sums_by(by, *key)):
        raise unknown_tag(asked, version, list(ever))
    return StoredSums.zero(), labels


async def _corrected(store: Store, version: Version, asked: Asked, rows: LabelBlock) -> int:
    """How many labels that the report is about were corrected."""
    key = version.model, version.version
    if asked.last is not None:
        return await store.count_corrected(*key, after=int(rows.sequence_L[0]) - 1) if len(rows) else 0
    by, group = asked.group or (None, "")
    return await store.count_corrected(*key, asked.since_ms, asked.until_ms, by=by, group=group)


def _known(versions: list[Version], runtime: Runtime) -> list[KnownVersion]:
    """What the store has answers of, and what each is now. A shadow's are under its model's name with ~shadow."""
    listed: dict[str, Any] = {row["model"]: row for row in runtime.registry.listing()["models"]}
    found = []
    for version in versions:
        row = listed.get(shadowed_by(version.model), {})
        shadow = is_shadow(version.model)
        role = "past"
        if version.version == row.get("shadow"):
            role = "shadow"
        elif version.version == row.get("default") and not shadow:
            role = "default"
        elif version.version in [published["version"] for published in row.get("versions", [])]:
            role = "published"
        found.append(KnownVersion.model_validate({"model": version.model, "version": version.version, "role": role}))
    return found
