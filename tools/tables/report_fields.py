"""The tables of docs/reference/report.md: every field of the calibration report."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table
from tools.tables.routes import values
from trueodds.reports.schemas import Report

PREFIX = "#/$defs/"


def report() -> str:
    """Return a table of the report's fields, then one for each object within it."""
    schema = Report.model_json_schema()
    objects = {name: part for name, part in schema["$defs"].items() if "properties" in part}
    sections = [_table(schema)]
    sections += [f"### {name}\n\n{_table(part)}" for name, part in sorted(objects.items())]
    return "\n\n".join(sections)


def _table(schema: dict[str, Any]) -> str:
    rows = [
        (name, _type(field), " ".join(field.get("description", "").split()))
        for name, field in schema["properties"].items()
    ]
    return table(("field", "type", "meaning"), rows, code=(0,))


def _type(field: dict[str, Any]) -> str:
    """Return the type of a field in words. An object is named by its section."""
    if "anyOf" in field:
        kinds = [_type(part) for part in field["anyOf"]]
        return " or ".join(kinds)
    if "$ref" in field:
        name = field["$ref"].removeprefix(PREFIX)
        return f"[{name}](#{name.lower()})"
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    if field.get("type") == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"object of {_type(field['additionalProperties'])}"
    return values({key: value for key, value in field.items() if key != "default"})
