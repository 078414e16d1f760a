"""Refused labels as the answer to a call."""

from __future__ import annotations

from collections import Counter

from service.errors import ServiceError
from service.http.error_answers import BadRow
from service.store.label_rules import SHOWN, Refusal, RefusalCode

STATUSES: dict[RefusalCode, int] = {
    "invalid_row": 422,
    "unknown_id": 404,
    "unknown_model": 404,
    "unknown_class": 422,
    "ambiguous_id": 409,
    "conflicting_label": 409,
}


class FeedbackError(ServiceError):
    """A call with at least one refused label; its status is that of the first."""

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


def bad_rows(refusals: list[Refusal]) -> list[BadRow]:
    """The first of them, as an answer lists them."""
    return [BadRow(row=r.row, id=r.id, code=r.code, message=r.message) for r in refusals[:SHOWN]]
