"""Parts of /openapi.json: schemas of bodies, and examples that the service can answer.

/docs sends the first example of a route unchanged.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.routing import Route

from service.errors import ServiceError
from service.http import error_answers, keys
from service.http.answers import add_schemas, answer_of
from service.http.routing import root_of

Examples = dict[str, dict[str, Any]]
"""Example bodies of a route by media type and name."""
Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
BINARY: Schema = {"type": "string", "format": "binary"}


def object_of(properties: Mapping[str, Schema], required_names: Sequence[str] = (), *, is_open: bool = False) -> Schema:
    """Return the schema of a JSON object. `is_open` allows other keys."""
    schema: Schema = {"type": "object", "properties": dict(properties)}
    if required_names:
        schema["required"] = list(required_names)
    return schema if is_open else {**schema, "additionalProperties": False}


def list_of(items: Schema, **more: Any) -> Schema:
    """Return the schema of a JSON list with the keywords `more`."""
    return {"type": "array", "items": items, **more}


def body_of(schemas: Mapping[str, Schema]) -> dict[str, Any]:
    """Return a required body with a schema per media type."""
    return {"required": True, "content": {media_type: {"schema": schema} for media_type, schema in schemas.items()}}


def route(
    role: keys.Role,
    answer: Any = None,
    content: Mapping[str, Any] | None = None,
    *,
    tag: str = "odds",
    **errors: str,
) -> dict[str, Any]:
    """Return the keywords of a route that needs a key.

    Args:
        role: Role of the key.
        answer: Model of the answer in JSON, or several (`A | B`); None if it has another form.
        content: Other forms of the answer, by media type.
        tag: Part of the documentation.
        errors: Descriptions of errors; see `error_answers.document_errors`.
    """
    forms = {**({} if answer is None else answer_of(answer)), **(content or {})}
    return {
        "tags": [tag],
        "dependencies": [keys.requires(role)],
        "responses": {200: {"content": forms}, **error_answers.document_errors(**errors, **keys.ERRORS)},
    }


@dataclass(frozen=True)
class LiveExamples:
    """Examples that the service can answer at the moment."""

    parameters: dict[str, str]
    """Values of path parameters by name."""
    bodies: dict[str, Examples]
    """Example bodies by path."""


def install(app: FastAPI, version: Callable[[], Hashable], examples: Callable[[], LiveExamples]) -> None:
    """Serve /openapi.json with examples of the default version, or without examples while there is none.

    The document is made once per version and its bytes are cached. Anybody may request it, and making its 128 kB anew
    takes 8 ms of the event loop.

    Args:
        app: The application. Its own route of the document is replaced.
        version: Returns the key that the examples depend on; raises ServiceError while there is no model.
        examples: Makes the examples.
    """
    plain = app.openapi
    kept: dict[Hashable, tuple[dict[str, Any], dict[str, bytes]]] = {}
    making = asyncio.Lock()

    def key() -> Hashable:
        try:
            return version()
        except ServiceError:
            return None

    def newest() -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return the document, and its encoded forms by the path under which the application is mounted."""
        if (now := key()) not in kept:
            document = add_schemas(plain())
            document = document if now is None else _with_examples(document, examples())
            kept.clear()
            kept[now] = document, {}
        return kept[now]

    def content(root: str) -> bytes:
        document, sent = newest()
        if root not in sent:
            sent[root] = orjson.dumps({**document, "servers": [{"url": root}]} if root else document)
        return sent[root]

    async def send(request: Request) -> Response:
        root = root_of(request)
        if key() not in kept:  # making it the first time takes a third of a second
            async with making:
                await asyncio.to_thread(content, root)
        return Response(content(root), media_type="application/json")

    app.openapi = lambda: newest()[0]  # type: ignore[method-assign]  # FastAPI's own way to extend the document
    path = app.openapi_url or ""
    app.router.routes[:] = [r for r in app.router.routes if not (isinstance(r, Route) and r.path == path)]
    app.add_route(path, send, include_in_schema=False)


def _with_examples(plain: dict[str, Any], examples: LiveExamples) -> dict[str, Any]:
    document = copy.deepcopy(plain)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter["example"] = examples.parameters[parameter["name"]]
            bodies = examples.bodies.get(path, {}) if "requestBody" in operation else {}
            for media_type, values in bodies.items():
                content = operation["requestBody"]["content"][media_type]
                content["examples"] = {name: {"value": value} for name, value in values.items()}
    return document
