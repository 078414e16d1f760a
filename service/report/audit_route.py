"""GET /audit: the group of labelled answers whose confidence is furthest off, tested on other answers than found on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from service.errors import ServiceError
from service.http import documentation, json_body
from service.http.parameters import Moment, Served, Since, moment_of, unix_ms
from service.models.acting import acting_of
from service.report.addresses import AUDIT
from service.runtime import runtime_of
from service.store import MAX_LAST
from service.store.rows import LabelBlock, Version
from trueodds.errors import unknown
from trueodds.evaluation.audit_result import LiveAudit, audit_of
from trueodds.evaluation.worst_group import FEWEST_ROWS, MOST_DEPTH, GroupAudit, worst_group
from trueodds.processes.choices import TOLERANCE
from trueodds.reports.labelling import choice_of
from trueodds.reports.table.acting_threshold import unasked_words
from trueodds.sums.answers import AnswerSums
from trueodds.sums.hours import HOUR_MS
from trueodds.texts import plural

FEATURES = ("tag", "predicted", "confidence", "hour", "weekday")
"""Features of a stored answer. None depends on the label."""
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
THURSDAY = 3
"""Place of 1 January 1970 in DAYS."""
ONE_LOOK = (
    "The probability is that of one audit. If you audit again and again, or with several seeds, each audit has its own;"
    " the alarms by tag and class may be looked at any time."
)

router = APIRouter()


class Options(NamedTuple):
    """Options of the search and of the test."""

    tolerance: float
    alpha: float
    level: float
    depth: int
    swap: bool
    seed: int


@router.get(
    AUDIT,
    summary="Look for the worst group",
    **documentation.route(
        "read",
        LiveAudit,
        _404="unknown model or version",
        _409="fewer than 40 labelled answers count",
        _422="unknown or repeated parameter, unknown feature, or value out of range",
        _503="no model has been served yet, or the store is not readable",
    ),
)
async def audit(
    request: Request,
    model: Served = None,
    version: Served = None,
    since: Since = None,
    until: Annotated[Moment | None, Query(description="Only answers given before this time.")] = None,
    last: Annotated[
        int, Query(ge=1, le=MAX_LAST, description="Only the labels that arrived last: this many.")
    ] = MAX_LAST,
    features: Annotated[
        str | None,
        Query(max_length=200, description=f"Features that may form groups, of {', '.join(FEATURES)}. Default: all."),
    ] = None,
    tolerance: Annotated[float, Query(ge=0, lt=0.5, description="Largest acceptable gap of a group.")] = TOLERANCE,
    alpha: Annotated[float, Query(ge=0.0001, le=0.5, description="Largest probability of a false find.")] = 0.05,
    level: Annotated[float, Query(ge=0.5, le=0.999, description="Confidence level of the intervals.")] = 0.95,
    depth: Annotated[int, Query(ge=1, le=MOST_DEPTH, description="Largest number of conditions of a group.")] = 3,
    swap: Annotated[
        bool, Query(description="Also search on the second half and test on the first; each then has half of alpha.")
    ] = False,
    seed: Annotated[int, Query(ge=0, le=2**31 - 1, description="Seed of the split into halves.")] = 0,
) -> Response:
    """Find the group of labelled answers whose confidence is furthest off, and test it on other labelled answers.

    A tree on one half of the answers finds a group, such as `tag is "night" and hour > 17.5`. Bets on the other half
    test it. If no group is off by more than the tolerance, at most 5% of audits report one (`alpha`). This assumes
    that answers are independent, and that the choice of labelled answers does not depend on being right.

    The features are the tag, the predicted class, the confidence, and hour and weekday of the answer in UTC. If the
    labels of a group have different propensities, they are thinned until each of its answers has the same chance of
    one. Labels of acting answers that the service's audit had not asked for are left out.
    """
    runtime = runtime_of(request)
    names = _features(features)
    subject = await runtime.version(model, version)
    start, end = (None if time is None else unix_ms(time) for time in (since, until))
    if start is not None and end is not None and start >= end:
        message = f"since is {since}, which is not before until, {until}; give an earlier time"
        raise ServiceError(422, "invalid_parameter", message)
    await runtime.mature(subject)
    options = Options(tolerance, alpha, level, depth, swap, seed)
    async with request.app.state.audits:  # 100,000 labels take a second of a core, and memory: one audit at a time
        block = await runtime.store.read_labels(*subject.key, last=last)
        sums = await runtime.store.read_sums(*subject.key)
        result = await asyncio.to_thread(
            compose, block, sums, subject, names, (start, end), options, runtime.settings.audit_share
        )
    return Response(result.model_dump_json(), media_type=json_body.JSON, headers={"cache-control": "no-store"})


def compose(
    block: LabelBlock,
    sums: AnswerSums,
    version: Version,
    names: Sequence[str],
    times: tuple[int | None, int | None],
    options: Options,
    audit_share: float,
) -> LiveAudit:
    """Audit labels of a version.

    Args:
        block: The labels.
        sums: Sums of all answers, for the test of the choice of labels.
        version: The version.
        names: Features that may form groups.
        times: First time of the answers and their end, in milliseconds; None: no limit.
        options: Options of the search and of the test.
        audit_share: Audited share of the answers that act alone.

    Raises:
        ServiceError: 409 if too few labels count.
    """
    kept_L = np.ones(len(block), np.bool_)
    for limit, is_start in zip(times, (True, False), strict=True):
        if limit is not None:
            kept_L &= (block.created_ms_L >= limit) if is_start else (block.created_ms_L < limit)
    notes = [f"Looked at {plural(int(kept_L.sum()), 'labelled answer')} of {version.model}/{version.version}."]
    if (left := len(block) - int(kept_L.sum())) and kept_L.any():
        notes[0] = f"{notes[0][:-1]}; {left:,} of the {len(block):,} last labels are of other times."
    if (unasked_L := kept_L & _is_unasked(block, version, audit_share)).any():
        kept_L &= ~unasked_L
        notes.append(unasked_words(int(unasked_L.sum())))
    known_L = kept_L & ~np.isnan(block.propensity_L)
    counted_L = known_L if known_L.any() else kept_L
    if (count := int(counted_L.sum())) < FEWEST_ROWS:
        if undrawn := int(kept_L.sum()) - count:
            notes.append(f"{plural(undrawn, 'label has', 'labels have')} no propensity, so they are no random sample.")
        said = f" {' '.join(notes[1:])}" if notes[1:] else ""
        message = (
            f"{count:,} of the {len(block):,} labels that were read count, which is too few for an audit.{said} It"
            f" takes {FEWEST_ROWS} or more: send labels to POST /feedback, or give an earlier time (since)"
        )
        raise ServiceError(409, "too_few_labels", message)
    if (choice := choice_of(sums)) is not None and choice.warning and not known_L.any():
        notes.append(f"{choice.reading} The audit is about the labelled answers only.")
    known = features_of(block, kept_L, version)
    row_M = np.flatnonzero(kept_L)
    found: GroupAudit = worst_group(
        block.confidence_L[row_M],
        block.correct_L[row_M],
        {name: known[name] for name in names},
        propensity_N=block.propensity_L[row_M],
        **options._asdict(),
    )
    created_M = block.created_ms_L[counted_L]
    part = audit_of(found, names, [*notes, ONE_LOOK])
    return LiveAudit(
        **part.model_dump(),
        model=version.model,
        version=version.version,
        labels=len(block),
        first=moment_of(int(created_M.min())),
        last=moment_of(int(created_M.max())),
    )


def features_of(block: LabelBlock, kept_L: Any, version: Version) -> Mapping[str, Sequence[Any]]:
    """Return the features of labelled answers by name, with a value for each kept one."""
    hours_M = block.created_ms_L[kept_L] // HOUR_MS
    rows = np.flatnonzero(kept_L).tolist()
    return {
        "tag": [block.tags[row] for row in rows],
        "predicted": [version.classes[index] for index in block.predicted_L[kept_L].tolist()],
        "confidence": block.confidence_L[kept_L].tolist(),
        "hour": (hours_M % 24).tolist(),
        "weekday": [DAYS[day] for day in ((hours_M // 24 + THURSDAY) % 7).tolist()],
    }


def _is_unasked(block: LabelBlock, version: Version, audit_share: float) -> Any:
    """Return which labels are of acting answers that the audit had not asked for."""
    if version.act_alone is None or not audit_share:
        return np.zeros(len(block), np.bool_)
    promise = version.act_alone
    rows = zip(block.ids, block.confidence_L.tolist(), block.tags, block.propensity_L.tolist(), strict=True)
    return np.array([acting_of(promise, audit_share, *row).get("audit") is False for row in rows], np.bool_)


def _features(text: str | None) -> list[str]:
    """Return the features that a request names; all if it names none."""
    if text is None:
        return [*FEATURES]
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in FEATURES:
            raise ServiceError(422, "invalid_parameter", f"features: {unknown('feature', name, FEATURES)}")
    if len(set(names)) < len(names):
        raise ServiceError(422, "invalid_parameter", f"features is {text!r}; name each feature once")
    return names
