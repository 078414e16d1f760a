"""Schemas of JSON answers in /openapi.json, made when somebody asks for the document.

FastAPI makes a validator of each model that it is given, for each route and status: 290 of them, which no request used,
because routes answer with bytes. They were a twentieth of the instructions until the application could start.
"""

from __future__ import annotations

from types import UnionType
from typing import Any, get_args

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

REFERENCE = "#/components/schemas/{model}"
"""Template of a reference to a model's schema in the document."""
_forms: dict[str, Any] = {}
"""Models and typed dictionaries by name."""


def answer_of(form: Any) -> dict[str, Any]:
    """Return the entry `content` of an answer: JSON in the form of a model, or of one of several (`A | B`).

    Raises:
        ValueError: Another model has the same name, which would be that of its schema.
    """
    models = get_args(form) if isinstance(form, UnionType) else (form,)
    for model in models:
        if _forms.setdefault(model.__name__, model) is not model:
            raise ValueError(f"two forms of answers are named {model.__name__}; rename one")
    references = [{"$ref": REFERENCE.format(model=model.__name__)} for model in models]
    return {"application/json": {"schema": references[0] if len(references) == 1 else {"anyOf": references}}}


def add_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Return an OpenAPI document with the schemas of all forms that `answer_of` refers to."""
    adapters: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]]
    adapters = [(name, "serialization", TypeAdapter(form)) for name, form in _forms.items()]
    _, made = TypeAdapter.json_schemas(adapters, ref_template=REFERENCE)
    components = document.get("components", {})
    schemas = {**components.get("schemas", {}), **made["$defs"]}
    return {**document, "components": {**components, "schemas": dict(sorted(schemas.items()))}}
