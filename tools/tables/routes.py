"""The tables of docs/reference/http-api.md: each route with its key, parameters, bodies and statuses."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

from fastapi.testclient import TestClient

from benchmarks.markdown import table
from service.app import create_app
from service.http import keys
from service.http.hashed_keys import hash_of
from service.settings import Settings

JSON = dict[str, Any]
ON_EVERY_ROUTE = {*keys.ERRORS.values(), "the body came too slowly"}
"""Reasons that the page gives once, for all routes."""
WORDS = {"date-time": "time", "string": "text", "integer": "whole number", "array": "list"}
"""Words for the types of a schema."""
VERSION = "/versions/{version}"
"""The part of a path that names a version. The route without it stands for both in the details."""
ROLE = re.compile(r"send the (\w+) key")
"""The part of a refusal that names the key of a route."""


def summary() -> str:
    """Return one row for each route: method, path, key, purpose."""
    rows = [
        (operation["method"], operation["path"], operation["key"], operation.get("summary", ""))
        for operation in _operations()
    ]
    return table(("method", "path", "key", "purpose"), rows, code=(0, 1, 2))


def details() -> str:
    """Return a section for each route that takes parameters or a body. Routes of one version are left out."""
    operations = [operation for operation in _operations() if VERSION not in operation["path"]]
    return "\n\n".join(filter(None, map(_section, operations)))


def _section(operation: JSON) -> str:
    parameters = [
        (parameter["name"], parameter["in"], values(parameter["schema"]), _line(parameter.get("description", "")))
        for parameter in operation.get("parameters", ())
        if parameter["in"] != "path"
    ]
    types = operation.get("requestBody", {}).get("content", {})
    for name, (field, is_needed) in _fields(types.get("application/json", {}).get("schema", {})).items():
        shown = values(field) + ("; needed" if is_needed else "")
        parameters.append((name, "body", shown, _line(field.get("description", ""))))
    if not parameters and not types:
        return ""
    statuses = [
        (status, _line(answer["description"]))
        for status, answer in sorted(operation["responses"].items())
        if status != "200" and answer["description"] not in ON_EVERY_ROUTE
    ]
    parts = [f"### {operation['method']} {operation['path']}"]
    if types:
        parts.append(f"Body: {', '.join(f'`{media_type}`' for media_type in types)}.")
    if parameters:
        parts.append(table(("parameter", "place", "values", "meaning"), parameters, code=(0,)))
    parts.append(table(("status", "reason"), statuses, code=(0,)))
    return "\n\n".join(parts)


def _operations() -> list[JSON]:
    """List the operations of the service's OpenAPI document, by path, each with its method, path and key."""
    hashes = {f"{role}_key_hash": hash_of(role) for role in get_args(keys.Role)}
    app = create_app(Settings.model_validate(hashes))
    # Without `with`: the application is not started, and a route asks for its key first.
    client = TestClient(app, raise_server_exceptions=False)
    found = [
        {**operation, "method": method.upper(), "path": path}
        for path, operations in sorted(app.openapi()["paths"].items())
        for method, operation in operations.items()
    ]
    for operation in found:
        refusal = ROLE.search(client.request(operation["method"], operation["path"]).text)
        operation["key"] = refusal[1] if refusal else ""
        assert bool(refusal) == ("security" in operation), f"{operation['path']}: does it need a key?"
    return found


def _fields(schema: JSON) -> dict[str, tuple[JSON, bool]]:
    """Return the fields of a JSON body by name, each with whether it is needed; those of all forms of the body."""
    needed, forms = schema.get("required", ()), [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
    fields = {name: (field, name in needed) for name, field in schema.get("properties", {}).items()}
    for form in forms:
        for name, (field, is_needed) in _fields(form).items():
            fields.setdefault(name, (field, is_needed and len(forms) == 1))
    return fields


def values(schema: JSON) -> str:
    """Return the allowed values of a parameter, and its default."""
    if "anyOf" in schema:
        schema = {**schema, **next(part for part in schema["anyOf"] if part.get("type") != "null")}
    if "oneOf" in schema:
        return " or ".join(dict.fromkeys(map(values, schema["oneOf"])))
    if "enum" in schema:
        words = ", ".join(f"`{value}`" for value in schema["enum"])
    else:
        words = WORDS.get(kind := str(schema.get("format", schema.get("type", ""))), kind)
        least = _first(schema, "minimum", "ge")
        above = _first(schema, "exclusiveMinimum", "gt")
        most = _first(schema, "maximum", "le")
        if least is not None:
            words += f", {least} or more" if most is None else f", {least} to {most}"
        elif above is not None and most is not None:
            words += f", above {above}, up to {most}"
        if "maxLength" in schema:
            words += f", up to {schema['maxLength']} characters"
    if schema.get("default") is not None and schema["default"] is not False:
        words += f"; default `{json.dumps(schema['default']).strip(chr(34))}`"
    return words


def _first(schema: JSON, *names: str) -> Any:
    return next((schema[name] for name in names if name in schema), None)


def _line(text: str) -> str:
    return " ".join(text.split())
