"""A name that stands twice in an object of JSON is refused at every door that takes JSON, with its place."""

from __future__ import annotations

import base64
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.http import json_names
from service.http.json_names import repeated_name
from service.observe.cloud_event import STRUCTURED
from tests.service.app_client import Client

JSON, LINES = "application/json", "application/x-ndjson"


class Pairs(list[tuple[str, Any]]):
    """An object, whose names may stand twice."""


TEXTS = st.text(st.sampled_from('ab:"\\{}[],\u00e9\n'), max_size=4)
TREES = st.recursive(
    TEXTS | st.none() | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(TEXTS, inner), max_size=3).map(Pairs),
    max_leaves=12,
)


def written(tree: Any, ascii: bool) -> str:
    if isinstance(tree, Pairs):
        return f"{{{', '.join(f'{json.dumps(name)}: {written(value, ascii)}' for name, value in tree)}}}"
    if isinstance(tree, list):
        return f"[{', '.join(written(value, ascii) for value in tree)}]"
    text = json.dumps(tree, ensure_ascii=ascii)
    return text.replace(":", "\\u003a") if ascii and isinstance(tree, str) else text


def repeats(tree: Any) -> bool:
    if isinstance(tree, Pairs):
        names = [name for name, _ in tree]
        return len(set(names)) < len(names) or any(repeats(value) for _, value in tree)
    return isinstance(tree, list) and any(map(repeats, tree))


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(tree=TREES, ascii=st.booleans())
def test_exactly_the_bodies_with_a_repeated_name_are_told(tree: Any, ascii: bool) -> None:
    """Whatever colons, quotes and braces stand in texts."""
    body = written(tree, ascii).encode()
    assert bool(repeated_name(body, orjson.loads(body))) == repeats(tree), body


@pytest.mark.parametrize("body", [b'{"a":1,"b":{"c":[[%s],{"d":1,"d":2}]}}', b'{"z":"%s:","a":1,"b":{"d":0,"d":[]}}'])
def test_large_bodies_are_counted_as_short_ones(body: bytes) -> None:
    for fill in (b"1", b"1" * (json_names._CHUNK - 9), b"1" * json_names._CHUNK * 2):
        large = body.replace(b"%s", b'"' + fill + b'"' if body.startswith(b'{"a"') else fill)
        problem = repeated_name(large, orjson.loads(large))
        assert "has the name 'd' twice; remove one of them" in problem
        once = large.replace(b'"d"', b'"e"', 1)
        assert repeated_name(once, orjson.loads(once)) == ""


@pytest.mark.parametrize("names", [json_names._FEW - 2, json_names._FEW - 1, json_names._FEW, 5 * json_names._FEW])
def test_many_names_are_counted_as_few(names: int) -> None:
    tree = {f"name {k}": "1" * json_names._SHORT for k in range(names)}
    body = json.dumps(tree).encode()
    assert repeated_name(body, orjson.loads(body)) == ""
    twice = body[:-1] + b', "name 0": 2}'
    assert "has the name 'name 0' twice" in repeated_name(twice, orjson.loads(twice))


def test_the_place_is_named() -> None:
    for body, words in (
        (b'{"a": 1, "\\u0061": 2}', "the body has the name 'a' twice; remove one of them"),
        (b'{"rows": [{}, {"x": {"b": 1, "b": 2}}]}', "rows[1].x has the name 'b' twice"),
    ):
        assert words in repeated_name(body, orjson.loads(body))


def test_deep_nesting_needs_no_place() -> None:
    """Python's parser ends at its recursion limit, which other libraries raise; orjson reads 1,024 levels."""
    body = b"[" * 900 + b'{"a": 1, "a": 2}' + b"]" * 900
    tree, before = orjson.loads(body), sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    try:
        assert repeated_name(body, tree) == "an object of the body has a name twice; remove one of them"
    finally:
        sys.setrecursionlimit(before)


@pytest.fixture(scope="module")
def service(serve_once: Callable[..., Client]) -> Client:
    return serve_once()


SIGNED = '"who": "Ada", "who": "Bob", "why": "so"'
EVENT = '"type": "org.kubeflow.serving.inference.response", "id": "a", "inferenceservicename": "m"'
INSIDE = base64.b64encode(b'{"predictions": [[0.5, 0.5]], "predictions": [[0.9, 0.1]]}').decode()
DOORS = [
    ("/predict", JSON, '{"instances": [], "instances": [[1]]}', "instances"),
    ("/v2/models/tiny/infer", JSON, '{"inputs": [{"name": "images", "name": "x"}]}', "name"),
    ("/feedback", JSON, '{"id": "a", "label": "cat", "label": "dog"}', "label"),
    ("/feedback", JSON, '{"labels": [{"id": "a", "label": "cat", "correct": true, "correct": false}]}', "correct"),
    ("/feedback", LINES, '{"id": "a", "label": "cat", "label": "dog"}', "label"),
    ("/observe", JSON, '{"id": "a", "model": "m", "version": "1", "confidence": 1, "confidence": 0}', "confidence"),
    ("/observe", LINES, '{"id": "a", "model": "m", "version": "1", "probabilities": {"a": 1, "a": 0}}', "a"),
    ("/kserve/logger", STRUCTURED, f'{{{EVENT}, "id": "b", "data": {{}}}}', "id"),
    ("/kserve/logger", STRUCTURED, f'{{{EVENT}, "data_base64": "{INSIDE}"}}', "predictions"),
    ("/admin/labels/void", JSON, f'{{{SIGNED}, "import_id": "x"}}', "who"),
    ("/admin/alarm/acknowledge", JSON, f"{{{SIGNED}}}", "who"),
]


@pytest.mark.parametrize(("path", "media_type", "body", "name"), DOORS)
def test_every_door_refuses_it(service: Client, path: str, media_type: str, body: str, name: str) -> None:
    """Before, the last of the values was taken silently."""
    answer = service.post(path, content=body.encode(), headers={"content-type": media_type})
    if media_type == LINES:
        assert answer.json()["failed"] == 1
    else:
        assert answer.status_code == 422, answer.text
    assert f"has the name {name!r} twice; remove one of them" in answer.text
