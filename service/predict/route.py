"""POST /predict: from a request to stored answers, and from those to JSON."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import orjson
from fastapi import Request
from starlette.responses import Response

from service.http import keys
from service.models.engine import Engine
from service.models.requests import Answers
from service.predict import request_body
from service.predict.options import Options
from service.runtime import Runtime
from trueodds.bundle.risk_coverage import LEVEL, RiskCoverage

LARGE_ANSWER = 20_000
"""Probabilities from which encoding them takes over a millisecond, and goes to a thread."""


async def predict(request: Request, runtime: Runtime) -> Response:
    """Score, store, answer."""
    keys.check(request, "predict")
    options = Options.of(request)
    engine = await runtime.registry.engine(options.model, options.version)
    with engine:
        request.state.version = engine.version.model, engine.version.version
        asked = await request_body.asked_of(request, options, engine.input, runtime.settings)
        answers = await engine.predict(asked, seconds=runtime.settings.answer_seconds, gone=request.is_disconnected)
    large = answers.probabilities_NC.size > LARGE_ANSWER
    body = (
        await asyncio.to_thread(encode, answers, options, engine, asked.request_id)
        if large
        else encode(answers, options, engine, asked.request_id)
    )
    return Response(body, media_type="application/json")


def encode(answers: Answers, options: Options, engine: Engine, request_id: str) -> bytes:
    """The JSON of an answer."""
    tree: dict[str, Any] = {
        "request_id": request_id,
        "model": engine.version.model,
        "version": engine.version.version,
        "predictions": rows_of(answers, options),
    }
    if options.abstain_below is not None:
        tree["abstention"] = abstention(options.abstain_below, engine.card.risk_coverage)
    return orjson.dumps(tree)


def rows_of(answers: Answers, options: Options) -> list[dict[str, Any]]:
    """One object for each image; what was not asked for is not there."""
    rows = answers.probabilities_NC.tolist()
    found: list[dict[str, Any]] = []
    for n, (id_, i, row) in enumerate(zip(answers.ids, answers.index_N.tolist(), rows, strict=True)):
        classes = answers.classes(n)
        one: dict[str, Any] = {"id": id_, "label": classes[i], "index": i, "confidence": row[i]}
        if options.top_k is None:
            one["probabilities"] = row
        else:
            one["top"] = _top(answers.probabilities_NC[n], classes, options.top_k)
        if options.logits:
            one["logits"] = answers.logits_NC[n].tolist()
        if options.abstain_below is not None:
            one["abstained"] = row[i] < options.abstain_below
            if one["abstained"]:
                one["label"] = one["index"] = None
        if n in answers.repeated:
            one |= {"repeated": True, "version": answers.repeated[n].version}
        found.append(one)
    return found


def _top(probabilities_C: Any, classes: tuple[str, ...], k: int) -> list[dict[str, Any]]:
    """The k most probable; of equals the one with the smallest index first."""
    order = np.argsort(-probabilities_C, kind="stable")[:k].tolist()
    return [{"label": classes[i], "index": i, "probability": float(probabilities_C[i])} for i in order]


def abstention(below: float, table: RiskCoverage | None) -> dict[str, Any]:
    """What answering only from a confidence on meant on held-out rows, in numbers and in words."""
    if table is None:
        reading = "The model's card has no risk-coverage table, so nobody knows what this threshold means; export anew."
        return {"below": below, "reading": reading}
    found = table.at(below)
    numbers: dict[str, Any] = {
        "below": below,
        "measured_at": found.threshold,
        "split": found.split,
        "rows": found.rows,
        "coverage": found.coverage,
        "risk": found.risk,
        "risk_lower": found.risk_lower,
        "risk_upper": found.risk_upper,
        "level": LEVEL,
    }
    where = f"Of {found.rows:,} {found.split} rows the model answers {100 * found.coverage:.3g}% at this threshold"
    if found.risk is None:
        numbers["reading"] = f"{where}: none, so how often it would be wrong is unknown."
    else:
        numbers["reading"] = (
            f"{where}, and {100 * found.risk:.2g}% of those answers are wrong ({LEVEL:.0%} interval"
            f" {100 * found.risk_lower:.2g}% to {100 * found.risk_upper:.2g}%). Live data may differ."
        )
    return numbers
