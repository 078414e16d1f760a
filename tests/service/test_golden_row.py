"""The golden row of a bundle, which is a row of somebody's data, is in no answer and in no line of the log."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter
from starlette.routing import Route

from service.app import create_app
from service.settings import Settings
from tests.service.app_client import Client
from tests.service.tiny_bundle import change_card, write_bundle
from trueodds.bundle import Bundle, open_models
from trueodds.inputs.image.pictures import encode_png

JSON = "application/json"
BUNDLES: dict[str, dict[str, Any]] = {
    "image": {"shape": (8, 8, 3)},
    "vector": {"features": ("length", "width", "age")},
    "text": {"words": ("anna", "owes", "ninety")},
}


def traces(bundle: Bundle) -> Iterator[str]:
    """The golden row in every form in which it could be written, and what the model says of it."""
    kind, golden = bundle.card.input, bundle.card.golden
    (row,) = bundle.golden_input()
    values = kind.values(row)
    yield golden.input_b64
    yield base64.b64encode(row.tobytes()).decode()
    for shown in (values, row.tolist()):
        yield json.dumps(shown).strip("[]")
        yield json.dumps(shown, separators=(",", ":")).strip("[]")
    if kind.kind == "image":
        yield base64.b64encode(encode_png(row)).decode()
    else:  # each value by itself: a number of six digits, or the text
        yield from map(str, values)
    for number in (*golden.logits, *golden.probabilities):
        yield f"{number:.6f}"[:-1]


def readable(router: APIRouter) -> Iterator[str]:
    """The paths that take GET, documented or not."""
    for route in router.routes:
        if isinstance(route, Route) and "GET" in (route.methods or ()):
            yield route.path
        elif isinstance(part := getattr(route, "original_router", None), APIRouter):
            yield from readable(part)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", BUNDLES)
def test_no_answer_holds_the_golden_row(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    good, bad = (write_bundle(tmp_path / which, **BUNDLES[name]) for which in ("good", "bad"))
    bundle = Bundle.load(good)
    change_card(bad, golden={**bundle.card.golden.model_dump(), "logits": [99.0] * 4})
    models = open_models(tmp_path / "models")
    models.publish(good)
    said: list[bytes] = []
    with Client(create_app(Settings(models=tmp_path / "models", store=tmp_path / "s.sqlite", threads=1))) as client:
        version = client.app.state.runtime.registry.default.version
        examples = client.get("/openapi.json").json()["paths"]["/predict"]["post"]["requestBody"]["content"][JSON]
        answers = [client.post("/predict", json=one["value"]) for one in examples["examples"].values()]
        assert {answer.status_code for answer in answers} == {200}
        predicted = [answer.json()["predictions"][0] for answer in answers]
        assert len({json.dumps(one["probabilities"]) for one in predicted}) == 1, "one row in every form"
        client.label([{"id": predicted[0]["id"], "index": 0}])
        models.publish(bad)
        client.run(client.app.state.runtime.registry.look())
        assert "golden logits" in client.get("/models").text, "the bad bundle is refused in words"
        paths = sorted(path for path in readable(client.app.router))
        assert len(paths) > 15 and {"/docs", "/openapi.json", "/models", "/calibration-report"} <= set(paths)
        for path in paths:
            url = path.replace(":path", "").format(model=version.model, version=version.version, id=predicted[0]["id"])
            for accept in (JSON, "text/html"):
                answer = client.get(url, headers={"accept": accept})
                assert answer.status_code < 500, url
                said += [answer.content, str(answer.headers).encode()]
        said += [answer.content for answer in answers]
    text = b"\n".join(said).decode(errors="replace") + caplog.text
    found = [trace for trace in traces(bundle) if trace in text]
    assert not found, found
