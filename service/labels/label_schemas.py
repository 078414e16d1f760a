"""Documented bodies of POST /feedback. The answers are validated with the same models."""

from __future__ import annotations

import csv
import io
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from service.bulk.lines import CSV, NDJSON
from service.bulk.report import BulkReport
from service.http import documentation
from service.http.documentation import TEXT, body_of, list_of, object_of
from service.http.error_answers import BadRow, bad_rows
from service.http.json_body import JSON
from service.ids import MAX_ID
from service.labels.imports import IMPORT_ID, PATTERN
from service.store.rows import Version

EXAMPLE_IMPORT = "labels-of-january"


class LabelsStored(BaseModel):
    """Result of a JSON call. The four counts add up to the number of labels sent."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"stored": 2, "already_known": 1, "corrected": 0, "held": 0, "import_id": "9f2c41aa07d35b68"}
        },
    )

    stored: int
    already_known: int = Field(description="The same label was stored already. It counts once.")
    corrected: int = Field(description='Replaced by a different label, with `"correct": true`.')
    held: int = Field(description="Held for your own id until its prediction arrives.")
    import_id: str = Field(description="Import of these labels. You can void them together.")


class BulkSummary(BaseModel):
    """Outcomes of the rows of a CSV or JSON lines body. The counts add up to `rows`."""

    rows: int
    stored: int
    already_known: int
    corrected: int
    held: int
    failed: int
    import_id: str = Field(description="Import of these labels. You can void them together.")
    problems: list[BadRow] = Field(description="The first 20 rows that failed.")

    @classmethod
    def of(cls, import_id: str, report: BulkReport) -> BulkSummary:
        """Return the summary of a report on rows."""
        names = ("stored", "already_known", "corrected", "held", "failed")
        counts = {name: report.outcomes[name] for name in names}
        return cls(rows=report.rows, **counts, import_id=import_id, problems=bad_rows(report.refusals))


_IMPORT = {
    "type": "string",
    "pattern": PATTERN,
    "description": "Name of the call's import, the same as in the header. Default: the service makes one.",
}
_ROW = {
    **object_of(
        {
            "id": {"type": "string", "minLength": 1, "maxLength": MAX_ID, "description": "Id of the prediction."},
            "label": {
                "oneOf": [TEXT, {"type": "integer"}, {"type": "boolean"}],
                "description": "Class by name. A whole number is read as a name. With `question`, true and false are"
                " names too.",
            },
            "index": {
                "type": "integer",
                "minimum": 0,
                "description": "Instead of label: class by its position, from 0.",
            },
            "correct": {"type": "boolean", "default": False, "description": "Replace a different label."},
            "model": {
                **TEXT,
                "description": "Model of your own id. Needed if it is not predicted yet, or if two models have it.",
            },
            "question": {
                **TEXT,
                "description": "Instead of model: name of the question, for an answer of a decision model.",
            },
        },
        ["id"],
    ),
    "oneOf": [{"required": ["label"]}, {"required": ["index"]}],
}
_ROWS = object_of(
    {
        "labels": list_of(_ROW, minItems=1, description="Several labels. Each has the keys of a single one."),
        "correct": {
            "type": "boolean",
            "default": False,
            "description": "Value for all rows that have none of their own.",
        },
        "model": {**TEXT, "description": "Value for all rows that have none of their own."},
        "question": {**TEXT, "description": "Instead of model, for all rows that have none of their own."},
        "import_id": _IMPORT,
    },
    ["labels"],
)
_ONE = {**_ROW, "properties": {**_ROW["properties"], "import_id": _IMPORT}}
PARAMETERS = [
    {
        "name": IMPORT_ID,
        "in": "header",
        "required": False,
        "schema": {"type": "string", "pattern": PATTERN},
        "description": "Name of the call's import. Default: the service makes one and returns it.",
    },
]
BODY = body_of({JSON: {"oneOf": [_ONE, _ROWS]}, CSV: TEXT, NDJSON: TEXT})
_JUDGE_ROW = {**_ROW, "properties": {k: v for k, v in _ROW["properties"].items() if k != "correct"}}
_JUDGE_ROWS = object_of(
    {
        "labels": list_of(_JUDGE_ROW, minItems=1, description="Several labels. Each has the keys of a single one."),
        **{name: _ROWS["properties"][name] for name in ("model", "question")},
    },
    ["labels"],
)
JUDGE_BODY = body_of({JSON: {"oneOf": [_JUDGE_ROW, _JUDGE_ROWS]}, CSV: TEXT, NDJSON: TEXT})


def examples(version: Version) -> documentation.Examples:
    """Return example labels for ids that have no prediction. They are held and enter no report."""
    rows: list[dict[str, Any]] = [
        {"id": f"example-{n}", "label": version.classes[0], "model": version.model} for n in range(1, 5)
    ]
    first, second, *bulk = rows
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows([first.keys(), *(row.values() for row in bulk)])
    return {
        JSON: {
            "one label": first,
            "several": {"labels": [first, second], "import_id": EXAMPLE_IMPORT},
            "a correction": {**first, "label": version.classes[-1], "correct": True},
        },
        CSV: {"two labels": table.getvalue()},
        NDJSON: {"two labels": b"".join(orjson.dumps(row) + b"\n" for row in bulk).decode()},
    }
