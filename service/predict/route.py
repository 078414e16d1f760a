"""POST /predict: from a request to stored predictions, and from those to JSON."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import numpy as np
import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from service.http import error_answers, keys
from service.http.json_body import JSON
from service.models.calls import PredictionCall, PredictionResult, acting_rows
from service.models.engine import Engine
from service.predict import request_body, schemas
from service.predict.options import Options
from service.predict.schemas import Abstention, Prediction, Predictions, Top
from service.runtime import runtime_of
from trueodds.bundle.risk_coverage import LEVEL, RiskCoverage

LARGE_ANSWER = 20_000
"""Probabilities from which encoding them takes over a millisecond, and goes to a thread."""


fast = APIRouter()
"""Reached through `service.http.routing`."""


@fast.post(
    "/predict",
    tags=["odds"],
    summary="Classify inputs",
    openapi_extra={"requestBody": schemas.BODY, "parameters": schemas.PARAMETERS, **keys.NEEDS_KEY},
    responses={
        200: {"model": Predictions},
        **error_answers.documented(
            _400="not JSON, not .npy, or a broken form",
            _404="no such model or version",
            _408="the body came too slowly",
            _409="another input came with this id",
            _413="too many bytes, inputs or pixels",
            _415="none of the content types below",
            _422="not what the model takes, or a parameter out of range",
            _503="no model is loaded, or too much is waiting; try again after Retry-After",
            **keys.ERRORS,
        ),
    },
)
async def predict(request: Request) -> Response:
    """Calibrated probabilities for up to 256 inputs, of the kind that the model takes.

    Images: send JSON, each image as nested lists of pixels, base64 of an image file, or base64 of raw pixels; a
    multipart form with image files in fields named `files`; a `.npy` array; or raw bytes, one image after the other.

    Vectors: send JSON, each vector as a list of numbers or as an object with a number for each feature; a `.npy` array;
    or CSV whose header names the features.

    Texts: send JSON, each text as a string, or CSV with the column `text`. The answer says which of them were cut.

    Every prediction is on disk before it is answered. An input may have an id of yours (`ids` in JSON, the header
    `x-prediction-id` for a single one): sent again with the same input it gets its stored answer, with another one a
    409.
    """
    keys.check(request, "predict")
    runtime, options = runtime_of(request), Options.of(request)
    engine = await runtime.registry.engine(options.model, options.version)
    with engine:
        request.state.version = engine.version.model, engine.version.version
        call, time = await request_body.read_call(request, options, engine.input, runtime.settings)
        result = await engine.predict(call, seconds=time.seconds, left=time.left, gone=request.is_disconnected)
    large = result.probabilities_NC.size > LARGE_ANSWER
    answer = result, options, engine, call
    body = await asyncio.to_thread(encode, *answer) if large else encode(*answer)
    return Response(body, media_type=JSON)


def encode(result: PredictionResult, options: Options, engine: Engine, call: PredictionCall) -> bytes:
    """The JSON of an answer."""
    tree: Predictions = {
        "request_id": call.request_id,
        "model": engine.version.model,
        "version": engine.version.version,
        "predictions": rows_of(result, options),
    }
    if engine.version.act_alone or result.repeated:
        for one, acting in zip(tree["predictions"], acting_rows(result, engine.audit_share), strict=True):
            one.update(cast(Prediction, acting))
    for n, remarks in engine.input.remarks(call.inputs).items():
        tree["predictions"][n] |= cast(Prediction, remarks)
    if call.columns:
        tree["columns"] = dict(call.columns)
    if options.classes:
        tree["classes"] = list(engine.version.classes)
    if options.abstain_below is not None:
        tree["abstention"] = abstention(options.abstain_below, engine.card.risk_coverage)
    return orjson.dumps(tree)


def rows_of(result: PredictionResult, options: Options) -> list[Prediction]:
    """One object for each input; without what the options leave out."""
    rows = result.probabilities_NC.tolist()
    predictions: list[Prediction] = []
    for n, (id_, i, row) in enumerate(zip(result.ids, result.index_N.tolist(), rows, strict=True)):
        classes = result.classes(n)
        one: Prediction = {"id": id_, "label": classes[i], "index": i, "confidence": row[i]}
        if options.top_k is None:
            one["probabilities"] = row
        else:
            one["top"] = _top(result.probabilities_NC[n], classes, options.top_k)
        if (positive := result.version_of(n).positive) is not None:
            one["positive"] = {"label": positive, "probability": row[classes.index(positive)]}
        if options.logits:
            one["logits"] = result.logits_NC[n].tolist()
        if options.abstain_below is not None:
            one["abstained"] = row[i] < options.abstain_below
            if one["abstained"]:
                one["label"] = one["index"] = None
        if n in result.repeated:
            one["repeated"], one["version"] = True, result.repeated[n].version
        predictions.append(one)
    return predictions


def _top(probabilities_C: Any, classes: tuple[str, ...], k: int) -> list[Top]:
    """The k most probable; of equals the one with the smallest index first."""
    order = np.argsort(-probabilities_C, kind="stable")[:k].tolist()
    return [{"label": classes[i], "index": i, "probability": float(probabilities_C[i])} for i in order]


def abstention(below: float, table: RiskCoverage | None) -> Abstention:
    """The meaning of answering only from a confidence on: on held-out rows, in numbers and in words."""
    if table is None:
        reading = "The model's card has no risk-coverage table, so nobody knows what this threshold means; export anew."
        return {"below": below, "reading": reading}
    point = table.at(below)
    where = f"Of {point.rows:,} {point.split} rows the model answers {100 * point.coverage:.3g}% at this threshold"
    if point.risk is None:
        reading = f"{where}: none, so how often it would be wrong is unknown."
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
