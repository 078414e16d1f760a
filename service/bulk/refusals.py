"""Refused rows as the answer to a call."""

from __future__ import annotations

from collections import Counter

from service.errors import SHOWN, STATUSES, Refusal, ServiceError
from service.http.error_answers import BadRow


class RefusedRowsError(ServiceError):
    """A call with at least one refused row, of which nothing was stored; its status is that of the first."""

    def __init__(self, refusals: list[Refusal], rows: int) -> None:
        self.counts = Counter[str](refusal.code for refusal in refusals)
        first, count = refusals[0], len(refusals)
        where = "" if rows == 1 else f" ({count:,} of {rows:,} rows are bad; this is row {first.row})"
        message = f"{first.message}{where}"
        super().__init__(
            STATUSES[first.code],
            first.code,
            f"{message}{'' if message.endswith(('.', '?', '!')) else '.'} Nothing was stored.",
            details={"problems": bad_rows(refusals), "problem_count": count},
        )


def bad_row(row: int, id_: str | None, message: str) -> Refusal:
    """The refusal of a row of another shape."""
    return Refusal(row, id_, "invalid_row", message)


def bad_rows(refusals: list[Refusal]) -> list[BadRow]:
    """The first of them, as an answer lists them."""
    return [BadRow(row=r.row, id=r.id, code=r.code, message=r.message) for r in refusals[:SHOWN]]
