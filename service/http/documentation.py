"""Examples in /openapi.json that the service answers: /docs sends the first one of a route as it stands."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from service.errors import ServiceError

Examples = dict[str, dict[str, Any]]
"""Bodies of a route, by media type and name."""


@dataclass(frozen=True)
class LiveExamples:
    """Examples of what the service can answer now."""

    parameters: dict[str, str]
    """Of paths, by name."""
    bodies: dict[str, Examples]
    """By path."""


def install(app: FastAPI, examples: Callable[[], LiveExamples]) -> None:
    """Have the document made with examples whenever it is asked for; without them where they raise ServiceError."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        try:
            return _with_examples(plain(), examples())
        except ServiceError:  # nothing answers yet
            return plain()

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to extend the document


def _with_examples(plain: dict[str, Any], examples: LiveExamples) -> dict[str, Any]:
    document = copy.deepcopy(plain)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if parameter["in"] == "path":
                    parameter["example"] = examples.parameters[parameter["name"]]
            for media_type, values in examples.bodies.get(path, {}).items():
                content = operation["requestBody"]["content"][media_type]
                content["examples"] = {name: {"value": value} for name, value in values.items()}
    return document
