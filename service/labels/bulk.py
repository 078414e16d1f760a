"""Labels in bulk: CSV or JSON lines, each row by itself."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from service.bulk.lines import CSV, NDJSON, row_blocks
from service.bulk.refusals import bad_rows
from service.bulk.report import Report, take
from service.errors import Refusal
from service.labels import formats
from service.labels.imports import IMPORT_ID
from service.labels.schemas import BulkSummary
from service.store import Store
from service.store.rows import Label
from service.telemetry.metrics import Telemetry

READERS = {CSV: formats.csv_lines, NDJSON: formats.json_lines}
"""Of the media types of labels in bulk."""
BLOCK = 64 * 1024
"""Bytes from which lines are stored: some 1,500 labels, 25 ms in which predictions wait. The most of one line."""


async def take_labels(
    request: Request, media_type: str, store: Store, telemetry: Telemetry, import_id: str, *, rows_wanted: bool
) -> Response:
    """Store the labels that the body holds; a summary, or with `rows_wanted` one line for each row.

    Raises:
        ServiceError: as `take`.
    """

    async def put(labels: list[Label]) -> list[str | Refusal]:
        return list(await store.put_each_label(labels, import_id))

    blocks = row_blocks(request, READERS[media_type](), BLOCK, "a label")
    summary = partial(_summary, import_id)
    answer = await take(blocks, put, summary, telemetry.label, rows_wanted=rows_wanted)
    answer.headers[IMPORT_ID] = import_id
    return answer


def _summary(import_id: str, report: Report) -> BulkSummary:
    return BulkSummary(
        rows=report.rows,
        stored=report.outcomes["stored"],
        already_known=report.outcomes["already_known"],
        corrected=report.outcomes["corrected"],
        held=report.outcomes["held"],
        failed=report.outcomes["failed"],
        import_id=import_id,
        problems=bad_rows(report.refusals),
    )
