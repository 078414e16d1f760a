"""POST /predict: reads a request, stores the predictions and encodes them as JSON."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import numpy as np
import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from service.errors import ServiceError
from service.http import error_answers, keys
from service.http.answers import answer_of
from service.http.json_body import JSON
from service.models.calls import PredictionCall, PredictionResult, acting_rows
from service.models.engine import Engine
from service.models.label_engine import PREDICATE, LabelEngine, LabelResult
from service.models.set_answers import SetAnswers, answer_sets, rule_of
from service.predict import predict_schemas, request_body
from service.predict.options import PredictOptions
from service.predict.predict_schemas import Abstention, LabelPredictions, Prediction, Predictions, Sets, Top
from service.runtime import runtime_of
from service.settings import Settings
from trueodds.bundle.card_measures import LEVEL, RiskCoverage
from trueodds.calibrators.conformal import SetRule

LARGE_ANSWER = 20_000
"""Number of probabilities from which encoding takes over a millisecond and runs in a thread."""
HEADER = b"content-type", JSON.encode()


class JsonResponse(Response):
    """Answer of JSON that is encoded already. Starlette's constructor takes several times as long."""

    def __init__(self, body: bytes) -> None:
        self.status_code, self.background, self.body = 200, None, body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), HEADER]


OF_CLASSES = ("top_k", "logits", "abstain_below", "set")
"""Options about exclusive classes."""


fast = APIRouter()
"""Routes that are matched by `service.http.routing`."""


@fast.post(
    "/predict",
    tags=["odds"],
    summary="Predict class probabilities",
    openapi_extra={"requestBody": predict_schemas.BODY, "parameters": predict_schemas.PARAMETERS, **keys.NEEDS_KEY},
    responses={
        200: {"content": answer_of(Predictions | LabelPredictions)},
        **error_answers.document_errors(
            _400="not JSON, not .npy, or a broken multipart form",
            _404="unknown model or version",
            _408="the body came too slowly",
            _409="the id was used for another input",
            _413="too many bytes, inputs or pixels",
            _415="a content type that is not listed below",
            _422="not an input of this model, a parameter out of range, or a set of a version without sets",
            _503="no model is loaded, or too many requests are waiting; try again after Retry-After",
            **keys.ERRORS,
        ),
    },
)
async def predict(request: Request) -> Response:
    """Return calibrated probabilities for up to 256 inputs of the model's kind.

    Images: send JSON with each image as nested lists of pixels, base64 of an image file, or base64 of raw pixels. Or
    send a multipart form with image files in fields named `files`, a `.npy` array, or raw bytes, one image after the
    other.

    Vectors: send JSON with each vector as a list of numbers or as an object with a number per feature. Or send a `.npy`
    array, or CSV whose header names the features.

    Texts: send JSON with each text as a string, or CSV with the column `text`. The answer tells which texts were
    truncated.

    Every prediction is on disk before the answer is sent. You may give an input an id of your own: `ids` in JSON, or
    the header `x-prediction-id` for a single input. The same id with the same input returns the stored answer; with
    another input it is refused with 409.

    A model of independent labels has `answers` in place of classes: the probability that each label is true. They need
    not sum to 1. Send a truth to /feedback with the id and the answer's name as `question`.
    """
    keys.check(request, "predict")
    runtime, options = runtime_of(request), PredictOptions.of(request)
    engine = await runtime.registry.answering(options.model, options.version)
    if isinstance(engine, LabelEngine):
        return await answer_labels(request, options, engine, runtime.settings)
    with engine:
        request.scope["state"]["version"] = engine.key
        rule = None if options.set is None else rule_of(engine, options.set)
        call, time = await request_body.read_call(request, options, engine.input, runtime.settings)
        result = await engine.predict(call, seconds=time.seconds, left=time.left, is_gone=request.is_disconnected)
    large = result.probabilities_NC.size > LARGE_ANSWER
    answer = result, options, engine, call, rule
    body = await asyncio.to_thread(encode, *answer) if large else encode(*answer)
    return JsonResponse(body)


def encode(
    result: PredictionResult,
    options: PredictOptions,
    engine: Engine,
    call: PredictionCall,
    rule: SetRule | None = None,
) -> bytes:
    """Encode an answer as JSON."""
    tree: Predictions = {
        "request_id": call.request_id,
        "model": engine.version.model,
        "version": engine.version.version,
        "predictions": rows_of(result, options),
    }
    if result.has_groups:
        for one, group in zip(tree["predictions"], result.groups, strict=True):
            one["group"] = group
    if engine.version.act_alone or result.repeats:
        for one, acting in zip(tree["predictions"], acting_rows(result, engine.audit_share), strict=True):
            one.update(cast(Prediction, acting))
    for n, remarks in engine.input.remarks(call.inputs).items():
        tree["predictions"][n] |= cast(Prediction, remarks)
    if rule is not None:
        answered = answer_sets(result, engine, rule)
        for one, names in zip(tree["predictions"], answered.sets, strict=True):
            one["set"] = names
        tree["sets"] = sets_part(answered)
    if call.columns:
        tree["columns"] = dict(call.columns)
    if options.classes:
        tree["classes"] = list(engine.version.classes)
    if options.abstain_below is not None:
        tree["abstention"] = abstention(options.abstain_below, engine.card.risk_coverage)
    return orjson.dumps(tree)


async def answer_labels(request: Request, options: PredictOptions, engine: LabelEngine, settings: Settings) -> Response:
    """Answer a call to a model of independent labels.

    Raises:
        ServiceError: 422 for an option about exclusive classes; also as `QueuedEngine.predict`.
    """
    for name in OF_CLASSES:
        if getattr(options, name) not in (None, False):
            message = f"{name} is of exclusive classes, and {engine.key[0]} has independent labels; leave it out"
            raise ServiceError(422, "multi_label", message)
    with engine:
        request.scope["state"]["version"] = engine.key
        call, time = await request_body.read_call(request, options, engine.input, settings)
        result = await engine.predict(call, seconds=time.seconds, left=time.left, is_gone=request.is_disconnected)
    large = result.probabilities_NL.size > LARGE_ANSWER
    content = result, options, engine, call
    body = await asyncio.to_thread(encode_labels, *content) if large else encode_labels(*content)
    return Response(body, media_type=JSON)


def encode_labels(result: LabelResult, options: PredictOptions, engine: LabelEngine, call: PredictionCall) -> bytes:
    """Encode the answer of a model of independent labels as JSON."""
    names = [question.name for question in engine.questions]
    predictions: list[dict[str, Any]] = []
    for row, (id_, p_L) in enumerate(zip(result.ids, result.probabilities_NL.tolist(), strict=True)):
        answers: list[dict[str, Any]] = [
            {"type": PREDICATE, "name": name, "probability": p} for name, p in zip(names, p_L, strict=True)
        ]
        predictions.append({"id": id_, "answers": answers})
        if stored := result.repeats.get(row):
            predictions[-1] |= {"repeated": True, "version": next(iter(stored.values()))}
            gave = [stored.get(label, engine.key[1]) for label in range(len(names))]
            if len(set(gave)) > 1:
                for answer, version in zip(answers, gave, strict=True):
                    answer["version"] = version
    for row, remarks in engine.input.remarks(call.inputs).items():
        predictions[row] |= remarks
    tree: dict[str, Any] = {
        "request_id": call.request_id,
        "model": engine.key[0],
        "version": engine.key[1],
        "predictions": predictions,
    }
    if call.columns:
        tree["columns"] = dict(call.columns)
    if options.classes:
        tree["classes"] = list(engine.card.classes)
    return orjson.dumps(tree)


def sets_part(answers: SetAnswers) -> Sets:
    """Describe the sets of an answer."""
    rule = answers.rule
    assert rule.method != "given"  # no bundle has sets of another server
    return {
        "level": rule.level,
        "method": rule.method,
        "calibration_rows": rule.calibration_rows,
        "floor": answers.floor,
        "test_coverage": answers.test_coverage,
        "reading": answers.reading,
    }


def rows_of(result: PredictionResult, options: PredictOptions) -> list[Prediction]:
    """Return one object per input, with the parts that the options select."""
    rows = result.probabilities_NC.tolist()
    predictions: list[Prediction] = []
    for n, (id_, i, row) in enumerate(zip(result.ids, result.index_N.tolist(), rows, strict=True)):
        version = result.version_of(n) if result.repeats else result.version
        classes = version.classes
        one: Prediction = {"id": id_, "label": classes[i], "index": i, "confidence": row[i]}
        if options.top_k is None:
            one["probabilities"] = row
        else:
            one["top"] = _top(result.probabilities_NC[n], classes, options.top_k)
        if (positive := version.positive) is not None:
            one["positive"] = {"label": positive, "probability": row[classes.index(positive)]}
        if options.logits:
            one["logits"] = result.logits_NC[n].tolist()
        if options.abstain_below is not None:
            one["abstained"] = row[i] < options.abstain_below
            if one["abstained"]:
                one["label"] = one["index"] = None
        if n in result.repeats:
            one["repeated"], one["version"] = True, result.repeats[n].version
        predictions.append(one)
    return predictions


def _top(probabilities_C: Any, classes: tuple[str, ...], k: int) -> list[Top]:
    """Return the k most probable classes. Ties are broken by the smallest index."""
    order = np.argsort(-probabilities_C, kind="stable")[:k].tolist()
    return [{"label": classes[i], "index": i, "probability": float(probabilities_C[i])} for i in order]


def abstention(below: float, table: RiskCoverage | None) -> Abstention:
    """Describe, in numbers and words, what abstaining below a confidence means on held-out rows."""
    if table is None:
        reading = (
            "The model's card has no risk-coverage table, so the effect of this threshold is unknown. Export the model"
            " again."
        )
        return {"below": below, "reading": reading}
    point = table.at(below)
    where = f"On {point.rows:,} {point.split} rows the model answers {100 * point.coverage:.3g}% at this threshold"
    if point.risk is None:
        reading = f"{where}. It answers none of them, so its error rate is unknown."
    else:
        reading = (
            f"{where}, and {100 * point.risk:.2g}% of those answers are wrong ({LEVEL:.0%} interval"
            f" {100 * point.risk_lower:.2g}% to {100 * point.risk_upper:.2g}%). Live data may differ."
        )
    return {
        "below": below,
        "measured_at": point.threshold,
        "split": point.split,
        "rows": point.rows,
        "coverage": point.coverage,
        "risk": point.risk,
        "risk_lower": point.risk_lower,
        "risk_upper": point.risk_upper,
        "level": LEVEL,
        "reading": reading,
    }
