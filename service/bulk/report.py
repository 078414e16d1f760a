"""Storing rows block by block, with a report on every row.

A bad row does not keep the others from being stored. Only one block is in memory, whatever the size of the body. The
report waits in a temporary file, because many clients read nothing until they have sent everything.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import IO, Any, Protocol, TypeAlias, TypeVar

import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from service.bulk.lines import NDJSON, Row
from service.errors import MOST_LISTED, Refusal, ServiceError
from service.http.json_body import JSON
from service.store import StoreError
from trueodds.texts import plural

IN_MEMORY = 1024**2
"""Bytes of the report that stay in memory."""


def lines_of(what: str) -> dict[str, Any]:
    """Return the documentation of an answer with one line per `what`, by its media type."""
    return {NDJSON: {"schema": {"type": "string", "description": f"one JSON object per {what}"}}}


class _HasId(Protocol):
    @property
    def id(self) -> str | None: ...


R = TypeVar("R", bound=_HasId)
Store: TypeAlias = Callable[[list[R]], Awaitable[list[str | Refusal]]]


@dataclass
class BulkReport:
    """Outcomes of the rows so far."""

    lines: IO[bytes] | None
    """One JSON object per row, if the caller wants them."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Number of rows by outcome; `failed` counts the refused ones."""
    refusals: list[Refusal] = field(default_factory=list)
    """The first refusals."""
    rows: int = 0

    def add(
        self,
        rows: list[Row[R]],
        outcomes: list[str | Refusal],
        beside: Callable[[R], Mapping[str, Any]] | None = None,
    ) -> None:
        """Add the outcomes of the next rows. `beside` returns further keys for a row that was not refused."""
        self.rows += len(outcomes)
        self.outcomes.update("failed" if isinstance(o, Refusal) else o for o in outcomes)
        refusals = [o for o in outcomes if isinstance(o, Refusal)]
        self.refusals += refusals[: MOST_LISTED - len(self.refusals)]
        if self.lines is None:
            return
        for (number, row), outcome in zip(rows, outcomes, strict=True):
            line: dict[str, Any] = {"row": number, "id": row.id}
            if isinstance(outcome, Refusal):
                line |= {"outcome": "failed", "code": outcome.code, "message": outcome.message}
            else:
                line["outcome"] = outcome
                if beside and not isinstance(row, Refusal):
                    line |= beside(row)
            self.lines.write(orjson.dumps(line) + b"\n")


async def take(
    request: Request,
    blocks: AsyncGenerator[list[Row[R]]],
    store: Store[R],
    summary: Callable[[BulkReport], BaseModel],
    count: Callable[[str, int], None],
    beside: Callable[[R], Mapping[str, Any]] | None = None,
) -> Response:
    """Store the rows of the blocks. Return a summary, or one line per row if the caller accepts JSON lines.

    Args:
        request: The request.
        blocks: Blocks of rows.
        store: Stores rows and returns their outcomes.
        summary: Makes the summary of a report.
        count: Receives each outcome or code of a refusal, with its number of rows.
        beside: Returns further keys of a row's line.

    Raises:
        ServiceError: A bad header (422), a body or line that is too long (413), or the store failed (503). Rows that
            were stored before stay; sending the whole body again is safe.
    """
    with_rows = NDJSON in request.headers.get("accept", "").lower()
    report = BulkReport(tempfile.SpooledTemporaryFile(IN_MEMORY) if with_rows else None)  # noqa: SIM115  closed when sent
    try:
        async with aclosing(blocks):
            async for rows in blocks:
                if rows:
                    await store_rows(report, rows, store, count, beside)
    except ServiceError as error:
        if report.lines:
            report.lines.close()
        raise _interrupted_error(error, report, summary) from error
    if report.lines is None:
        return Response(summary(report).model_dump_json(), media_type=JSON)
    return StreamingResponse(_stream(report.lines), media_type=NDJSON)


async def store_rows(
    report: BulkReport,
    rows: list[Row[R]],
    store: Store[R],
    count: Callable[[str, int], None],
    beside: Callable[[R], Mapping[str, Any]] | None = None,
) -> list[str | Refusal]:
    """Store the rows that are not refused yet, report and count all, and return their outcomes. See `take`."""
    sound = [row for _, row in rows if not isinstance(row, Refusal)]
    stored = iter(await store(sound) if sound else [])
    outcomes: list[str | Refusal] = []
    for number, row in rows:
        outcome = row if isinstance(row, Refusal) else next(stored)
        outcomes.append(replace(outcome, row=number) if isinstance(outcome, Refusal) else outcome)
    report.add(rows, outcomes, beside)
    for outcome_or_code, times in Counter(o.code if isinstance(o, Refusal) else o for o in outcomes).items():
        count(outcome_or_code, times)
    return outcomes


def _interrupted_error(
    error: ServiceError, report: BulkReport, summary: Callable[[BulkReport], BaseModel]
) -> ServiceError:
    """Return the error together with the outcomes of the rows before it."""
    if not report.rows and not isinstance(error, StoreError):
        return error
    taken = plural(report.rows, "row was", "rows were")
    message = f"{error}. {taken} processed before; you may send the whole body again"
    error_so_far = ServiceError(error.status, error.code, message, details=summary(report).model_dump())
    error_so_far.headers = error.headers
    return error_so_far


async def _stream(lines: IO[bytes]) -> AsyncIterator[bytes]:
    with lines:
        lines.seek(0)
        while chunk := await asyncio.to_thread(lines.read, 64 * 1024):
            yield chunk
