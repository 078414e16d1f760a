"""Rows taken block by block, with a report of every row.

Rows stand alone: a bad one does not keep the others from being stored. What is in memory is one block, however long
the body is; the report of rows waits in a temporary file, because many clients read nothing before they have sent all.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import IO, Any, Protocol, TypeVar

import orjson
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from service.bulk.lines import NDJSON, Row
from service.errors import SHOWN, Refusal, ServiceError
from service.http.json_body import JSON
from service.store import StoreError
from trueodds.texts import plural

IN_MEMORY = 1024**2
"""Bytes of the report that are kept in memory."""


class _HasId(Protocol):
    @property
    def id(self) -> str | None: ...


R = TypeVar("R", bound=_HasId)


@dataclass
class Report:
    """The outcomes of the rows so far."""

    lines: IO[bytes] | None
    """One JSON object for each row, if they are wanted."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Rows by what became of them; `failed` of those that were refused."""
    refusals: list[Refusal] = field(default_factory=list)
    """The first of them."""
    rows: int = 0

    def add(
        self,
        rows: list[Row[R]],
        outcomes: list[str | Refusal],
        beside: Callable[[R], Mapping[str, Any]] | None = None,
    ) -> None:
        """Take the outcomes of the next rows; `beside` says more of a row that was not refused."""
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
                if beside and not isinstance(row, Refusal):
                    line |= beside(row)
            self.lines.write(orjson.dumps(line) + b"\n")


async def take(
    blocks: AsyncGenerator[list[Row[R]]],
    store: Callable[[list[R]], Awaitable[list[str | Refusal]]],
    summary: Callable[[Report], BaseModel],
    count: Callable[[str, int], None],
    *,
    rows_wanted: bool,
    beside: Callable[[R], Mapping[str, Any]] | None = None,
) -> Response:
    """Store what the blocks hold; a summary, or with `rows_wanted` one line for each row.

    `store` says what became of each row that it gets, `beside` what else its line has; `count`
    gets outcomes, and codes of refusals, with their numbers.

    Raises:
        ServiceError: a bad header (422), a body or a line that is too long (413), or the store failed (503). What was
            stored before stays; sending all again is safe.
    """
    report = Report(tempfile.SpooledTemporaryFile(IN_MEMORY) if rows_wanted else None)  # noqa: SIM115  closed once sent
    try:
        async with aclosing(blocks):
            async for rows in blocks:
                if not rows:
                    continue
                outcomes = await _stored(rows, store)
                report.add(rows, outcomes, beside)
                for outcome, number in Counter(o.code if isinstance(o, Refusal) else o for o in outcomes).items():
                    count(outcome, number)
    except ServiceError as error:
        if report.lines:
            report.lines.close()
        raise _interrupted(error, report, summary) from error
    if report.lines is None:
        return Response(summary(report).model_dump_json(), media_type=JSON)
    return StreamingResponse(_sent(report.lines), media_type=NDJSON)


async def _stored(
    rows: list[Row[R]], store: Callable[[list[R]], Awaitable[list[str | Refusal]]]
) -> list[str | Refusal]:
    sound = [row for _, row in rows if not isinstance(row, Refusal)]
    stored = iter(await store(sound) if sound else [])
    outcomes: list[str | Refusal] = []
    for number, row in rows:
        outcome = row if isinstance(row, Refusal) else next(stored)
        outcomes.append(replace(outcome, row=number) if isinstance(outcome, Refusal) else outcome)
    return outcomes


def _interrupted(error: ServiceError, report: Report, summary: Callable[[Report], BaseModel]) -> ServiceError:
    """The error with what became of the rows before it."""
    if not report.rows and not isinstance(error, StoreError):
        return error
    taken = plural(report.rows, "row was", "rows were")
    message = f"{error}. {taken} taken before; sending all again changes nothing about that"
    error_so_far = ServiceError(error.status, error.code, message, details=summary(report).model_dump())
    error_so_far.headers = error.headers
    return error_so_far


async def _sent(lines: IO[bytes]) -> AsyncIterator[bytes]:
    with lines:
        lines.seek(0)
        while chunk := await asyncio.to_thread(lines.read, 64 * 1024):
            yield chunk
