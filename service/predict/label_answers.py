"""Answers of POST /predict by a model of independent labels: for each input, the probability of each label."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

import orjson
from fastapi import Request
from pydantic import ConfigDict, Field, with_config
from starlette.responses import Response
from typing_extensions import TypedDict

from service.errors import ServiceError
from service.http.json_body import JSON
from service.models.calls import PredictionCall
from service.models.label_engine import PREDICATE, LabelEngine, LabelResult
from service.predict import request_body
from service.predict.options import PredictOptions
from service.settings import Settings

OF_CLASSES = ("top_k", "logits", "abstain_below", "set")
"""Options about exclusive classes."""
LARGE_ANSWER = 20_000
"""Number of probabilities from which encoding takes over a millisecond and runs in a thread."""


class LabelAnswer(TypedDict):
    """Answer to the question of one label, as a decision model answers a predicate."""

    type: Literal["predicate"]
    name: Annotated[str, Field(description="Name of the question: send it to /feedback as `question`.")]
    probability: Annotated[float, Field(description="Calibrated probability that the label is true.")]


class _LabelPrediction(TypedDict):
    id: Annotated[str, Field(description="Send it to /feedback with each truth, as soon as you know it.")]
    answers: Annotated[list[LabelAnswer], Field(description="One per label, in the order of the labels.")]


class LabelPrediction(_LabelPrediction, total=False):
    """Answers for one input."""

    repeated: Annotated[bool, Field(description="This id was answered before, and these are the stored answers.")]
    version: Annotated[str, Field(description="Version that gave repeated answers.")]
    truncated: Annotated[dict[str, int], Field(description="Present if the text is longer than the model reads.")]


class _LabelPredictions(TypedDict):
    request_id: str
    model: str
    version: str
    predictions: list[LabelPrediction]


@with_config(ConfigDict(title="LabelPredictions"))
class LabelPredictions(_LabelPredictions, total=False):
    """Answers of a model of independent labels, in the order of the instances. Each was stored before it was sent."""

    columns: Annotated[
        dict[str, str],
        Field(description="Columns or names that are spelled differently from the model's features, by feature name."),
    ]
    classes: Annotated[list[str], Field(description="With classes=true: the labels of the version that answers.")]


async def answer(request: Request, options: PredictOptions, engine: LabelEngine, settings: Settings) -> Response:
    """Answer a call.

    Raises:
        ServiceError: 422 for an option about exclusive classes; also as `QueuedEngine.predict`.
    """
    for name in OF_CLASSES:
        if getattr(options, name) not in (None, False):
            message = f"{name} is of exclusive classes, and {engine.key[0]} has independent labels; leave it out"
            raise ServiceError(422, "multi_label", message)
    with engine:
        request.state.version = engine.key
        call, time = await request_body.read_call(request, options, engine.input, settings)
        result = await engine.predict(call, seconds=time.seconds, left=time.left, is_gone=request.is_disconnected)
    large = result.probabilities_NL.size > LARGE_ANSWER
    content = result, options, engine, call
    return Response(await asyncio.to_thread(encode, *content) if large else encode(*content), media_type=JSON)


def encode(result: LabelResult, options: PredictOptions, engine: LabelEngine, call: PredictionCall) -> bytes:
    """Encode an answer as JSON."""
    names = [question.name for question in engine.questions]
    predictions: list[dict[str, Any]] = []
    for row, (id_, p_L) in enumerate(zip(result.ids, result.probabilities_NL.tolist(), strict=True)):
        answers = [{"type": PREDICATE, "name": name, "probability": p} for name, p in zip(names, p_L, strict=True)]
        predictions.append({"id": id_, "answers": answers})
        if row in result.repeats:
            predictions[-1] |= {"repeated": True, "version": result.repeats[row]}
    for row, remarks in engine.input.remarks(call.inputs).items():
        predictions[row] |= remarks
    model, version = engine.key
    tree: dict[str, Any] = {
        "request_id": call.request_id,
        "model": model,
        "version": version,
        "predictions": predictions,
    }
    if call.columns:
        tree["columns"] = dict(call.columns)
    if options.classes:
        tree["classes"] = list(engine.card.classes)
    return orjson.dumps(tree)
