"""GET /multi-label-report: all labels of a model together, and each of them, from answers with known truths."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Literal

import numpy as np
import orjson
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from service.errors import ServiceError
from service.http import documentation
from service.http.parameters import Since, unix_ms
from service.models.label_engine import OWN_WORDING
from service.report import pages
from service.runtime import Runtime, runtime_of
from service.store.decision_rows import QuestionCounts, QuestionVersion
from service.store.rows import LabelledLogits, Version
from trueodds.inputs.decisions.questions import KINDS
from trueodds.processes.choices import Binning
from trueodds.reports.options import ReportOptions
from trueodds.reports.schemas import LabelFigures, PositiveFigures
from trueodds.reports.table.multilabel import MultilabelReport, report_of_rows
from trueodds.reports.table.multilabel_rows import MultilabelRows
from trueodds.texts import plural, short

MOST_TRUTHS = 1_000_000
"""Largest number of truths of one report. Reading them takes some seconds."""
YES_NO = {name for kinds in KINDS.values() for name, kind in kinds.items() if kind == "binary"}
"""Types of questions that are answered with yes or no."""
ONE_LOOK = (
    "The marks are those of one look. If you look again and again, more labels are marked by chance; the alarm of each"
    " label stays valid."
)

router = APIRouter(route_class=pages.ReportRoute)


class LiveLabelReport(BaseModel):
    """Report of independent labels, with the values of `trueodds report --multi-label` on the same rows."""

    model: str = Field(description="model that answers the questions")
    versions: dict[str, str] = Field(description="version of each label's question, by the question's model")
    n: int = Field(description="answered inputs with a known truth")
    labels: int
    pairs: int = Field(description="known truths")
    level: float
    binning: Binning
    whole: PositiveFigures = Field(description="all labels together; the unit of the intervals is the input")
    by_label: list[LabelFigures]
    design_effect: float = Field(description="variance of the pooled gap, divided by that of independent pairs")
    notes: list[str]
    reading: str = Field(description="the numbers in words")


@router.get(
    "/multi-label-report",
    summary="Report on independent labels",
    **documentation.route(
        "read",
        LiveLabelReport,
        {"text/html": {}},
        _404="no model with such labels has answers, or none of them has a truth",
        _422="unknown or repeated parameter, value out of range, or too many truths",
        _503="the store is not readable",
    ),
)
async def multi_label_report(
    request: Request,
    model: Annotated[
        str | None,
        Query(description="Model that answers all questions of an input. Default: the served one."),
    ] = None,
    version: Annotated[
        str | None, Query(description="Version of a model that this service runs. Default: that of the last answer.")
    ] = None,
    since: Since = None,
    level: Annotated[float, Query(ge=0.5, le=0.999, description="Confidence level of the intervals.")] = 0.95,
    format: Annotated[
        Literal["json", "html"] | None, Query(description="Format. Default: as the header Accept says.")
    ] = None,
) -> Response:
    """Report on the yes/no questions that one model answers about each input: pooled, and for each label.

    The model is one with independent labels that this service runs, or one on another server whose answers came through
    `/observe/decisions`. Truths may be missing. The values are those of `trueodds report --multi-label` on the same
    rows. The intervals of the pooled figures take the input as the unit.
    """
    runtime = runtime_of(request)
    served = runtime.registry.served_version() if model is None else None
    name = model if served is None else served[0]
    if name is None:
        raise ServiceError(422, "invalid_parameter", "model is missing; name the model whose labels you want")
    asked = _questions(await runtime.store.read_questions(), name, version)
    by_key = {of.key: of for of in asked}
    # Versions are in the order in which they were added: that of the labels, for a model that this service runs
    of_labels = [(by_key[one.key], one) for one in await runtime.store.read_versions() if one.key in by_key]
    if not of_labels:
        message = f"no answers to yes/no questions are stored of {short(name)}" + (f"/{version}" if version else "")
        raise ServiceError(404, "unknown_model", f"{message}; GET /questions lists the questions")
    blocks, truths = list[list[LabelledLogits]](), 0
    for _, one in of_labels:
        blocks.append(await _read(runtime, one, None if since is None else unix_ms(since), MOST_TRUTHS - truths))
        truths += sum(len(block.ids) for block in blocks[-1])
    if not truths:
        raise ServiceError(404, "no_labels", f"no answer of {name} has a truth yet; send truths to POST /feedback")
    names = [_label(of, name) for of, _ in of_labels]
    options = ReportOptions(level=level, one_look=True)
    found = await asyncio.to_thread(_report, blocks, [one for _, one in of_labels], names, options, name)
    if pages.is_wanted(request):
        text = await asyncio.to_thread(found.page)
        return pages.response(request, text, {"vary": "accept", **pages.TABLE_HEADERS})
    tree = {key: value for key, value in found.to_dict().items() if key != "source"}
    tree |= {"model": name, "versions": dict(of.key for of, _ in of_labels)}
    return Response(orjson.dumps(tree), media_type="application/json", headers={"vary": "accept"})


def _questions(questions: Sequence[QuestionCounts], model: str, version: str | None) -> list[QuestionVersion]:
    """Return the yes/no questions that a model answers, each in its newest version.

    All labels of a model that this service runs have one version: the named one, or that of the last answer.
    """
    of_model = [one for one in questions if one.of.served == model and one.of.type in YES_NO]
    if own := [one for one in of_model if one.of.wording == OWN_WORDING]:
        wanted = version or max(own, key=lambda one: one.last_ms).of.version
        return [one.of for one in own if one.of.version == wanted]
    newest = dict[str, QuestionCounts]()
    for one in of_model:
        if version in (None, one.of.version):
            before = newest.get(one.of.model)
            newest[one.of.model] = one if before is None or one.last_ms >= before.last_ms else before
    return [one.of for one in newest.values()]


def _label(question: QuestionVersion, model: str) -> str:
    """Return the name of a label: that of its question, without the model's name if this service runs the model."""
    return question.name.removeprefix(f"{model}-") if question.wording == OWN_WORDING else question.name


async def _read(runtime: Runtime, version: Version, since_ms: int | None, most: int) -> list[LabelledLogits]:
    """Read the answers of one label that have a truth.

    Raises:
        ServiceError: There are more than `most`, those that the labels before it leave.
    """
    await runtime.mature(version)
    blocks, rows = list[LabelledLogits](), 0
    stream: AsyncIterator[LabelledLogits] = runtime.store.read_labelled_logits(*version.key, since_ms)
    async for block in stream:
        rows += len(block.ids)
        if rows > most:
            message = f"the labels up to {version.model} have more than {plural(MOST_TRUTHS, 'truth')}"
            raise ServiceError(422, "invalid_parameter", f"{message}; give a later start: since")
        blocks.append(block)
    return blocks


def _report(
    blocks: Sequence[Sequence[LabelledLogits]],
    versions: Sequence[Version],
    names: Sequence[str],
    options: ReportOptions,
    source: str,
) -> MultilabelReport:
    """Join the labels of each input by its id, and report on them."""
    place: dict[str, int] = {}
    columns = []
    for of_label, version in zip(blocks, versions, strict=True):
        ids = [id_ for block in of_label for id_ in block.ids]
        row_M = np.array([place.setdefault(id_, len(place)) for id_ in ids], np.intp)
        p_M = [version.calibrator(block.logits_NC, groups=block.tags)[:, 1] for block in of_label]
        truth_M = [block.labels_N for block in of_label]
        columns.append((row_M, p_M, truth_M))
    p_NL = np.full((len(place), len(names)), 0.5)  # of a pair without a truth, which no figure reads
    truth_NL = np.full(p_NL.shape, np.nan)
    for label, (row_M, p_M, truth_M) in enumerate(columns):
        if len(row_M):
            p_NL[row_M, label], truth_NL[row_M, label] = np.concatenate(p_M), np.concatenate(truth_M)
    rows = MultilabelRows(p_NL, truth_NL, tuple(names), source=source, notes=(ONE_LOOK,))
    return report_of_rows(rows, options)
