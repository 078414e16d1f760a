"""Labels in bulk: CSV or JSON lines, taken block by block as they come, with a report of every row.

Rows stand alone: a bad one does not keep the others from being stored. What is in memory is one block, however long
the body is; the report of rows waits in a temporary file, because many clients read nothing before they have sent all.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import IO, Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from service.errors import ServiceError
from service.http.json_body import JSON
from service.labels.formats import CsvLines, JsonLines, LineReader, Row
from service.labels.refusals import bad_rows
from service.labels.schemas import CSV, NDJSON, BulkSummary
from service.store import Store, StoreError
from service.store.label_rules import SHOWN, Outcome, Refusal
from service.store.rows import Label
from service.telemetry.metrics import Telemetry
from trueodds.texts import plural

READERS: dict[str, type[LineReader]] = {CSV: CsvLines, NDJSON: JsonLines}
"""Of the media types of labels in bulk."""
BLOCK = 64 * 1024
"""Bytes from which lines are stored: some 1,500 labels, 25 ms in which predictions wait. The most of one line."""
IN_MEMORY = 1024**2
"""Bytes of the report that are kept in memory."""


@dataclass
class Report:
    """The outcomes of the rows so far."""

    lines: IO[bytes] | None
    """One JSON object for each row, if they are wanted."""
    outcomes: Counter[str] = field(default_factory=Counter)
    refusals: list[Refusal] = field(default_factory=list)
    rows: int = 0

    def add(self, rows: list[Row], outcomes: list[Outcome | Refusal]) -> None:
        self.rows += len(outcomes)
        self.outcomes.update("failed" if isinstance(o, Refusal) else o for o in outcomes)
        refusals = [o for o in outcomes if isinstance(o, Refusal)]
        self.refusals += refusals[: SHOWN - len(self.refusals)]
        if self.lines is None:
            return
        for (number, row), outcome in zip(rows, outcomes, strict=True):
            line: dict[str, Any] = {"row": number, "id": row.id}
            if isinstance(outcome, Refusal):
                line |= {"outcome": "failed", "code": outcome.code, "message": outcome.message}
            else:
                line["outcome"] = outcome
            self.lines.write(orjson.dumps(line) + b"\n")

    def summary(self) -> BulkSummary:
        return BulkSummary(
            rows=self.rows,
            stored=self.outcomes["stored"],
            already_known=self.outcomes["already_known"],
            corrected=self.outcomes["corrected"],
            held=self.outcomes["held"],
            failed=self.outcomes["failed"],
            problems=bad_rows(self.refusals),
        )


async def take(
    request: Request, reader: LineReader, store: Store, telemetry: Telemetry, *, rows_wanted: bool
) -> Response:
    """Store what the body holds; a summary, or with `rows_wanted` one line for each row.

    Raises:
        ServiceError: a bad header (422), a body or a line that is too long (413), or the store failed (503). What was
            stored before stays; sending all again is safe.
    """
    report = Report(tempfile.SpooledTemporaryFile(IN_MEMORY) if rows_wanted else None)  # noqa: SIM115  closed once sent

    async def put(rows: list[Row]) -> None:
        outcomes = await _store(rows, store, report)
        for outcome, count in Counter(o.code if isinstance(o, Refusal) else o for o in outcomes).items():
            telemetry.label(outcome, count)

    try:
        async for block in _blocks(request):
            await put(await asyncio.to_thread(reader.rows, block))
        await put(reader.rest())
    except ServiceError as error:
        if report.lines:
            report.lines.close()
        raise _interrupted(error, report) from error
    if report.lines is None:
        return Response(report.summary().model_dump_json(), media_type=JSON)
    return StreamingResponse(_sent(report.lines), media_type=NDJSON)


async def _store(rows: list[Row], store: Store, report: Report) -> list[Outcome | Refusal]:
    if not rows:
        return []
    labels = [row for _, row in rows if isinstance(row, Label)]
    stored = iter(await store.put_each_label(labels) if labels else [])
    outcomes: list[Outcome | Refusal] = []
    for number, row in rows:
        outcome = row if isinstance(row, Refusal) else next(stored)
        outcomes.append(replace(outcome, row=number) if isinstance(outcome, Refusal) else outcome)
    report.add(rows, outcomes)
    return outcomes


async def _blocks(request: Request) -> AsyncIterator[bytes]:
    """Whole lines, at least BLOCK bytes of them save for the last."""
    buffer = bytearray()
    async for chunk in request.stream():
        buffer += chunk
        if len(buffer) < BLOCK:
            continue
        end = buffer.rfind(b"\n") + 1
        if not end:
            message = f"a line has more than {BLOCK:,} bytes; a label is one short line"
            raise ServiceError(413, "line_too_long", message)
        block = bytes(buffer[:end])
        del buffer[:end]
        yield block
    if buffer:
        yield bytes(buffer)


def _interrupted(error: ServiceError, report: Report) -> ServiceError:
    """The error with what became of the rows before it."""
    if not report.rows and not isinstance(error, StoreError):
        return error
    taken = plural(report.rows, "row was", "rows were")
    message = f"{error}. {taken} taken before; sending all again changes nothing about that"
    error_so_far = ServiceError(error.status, error.code, message, details=report.summary().model_dump())
    error_so_far.headers = error.headers
    return error_so_far


async def _sent(lines: IO[bytes]) -> AsyncIterator[bytes]:
    with lines:
        lines.seek(0)
        while chunk := await asyncio.to_thread(lines.read, 64 * 1024):
            yield chunk
