"""Ids of predictions: the form of those that the service gives, and the rule for a caller's own.

/predict, the Open Inference Protocol and /feedback hold the same rule: no label waits for an id that cannot come.
"""

from __future__ import annotations

import re
import secrets

from trueodds.texts import short

MAX_ID = 128
"""Characters in an id."""
_GENERATED = re.compile(r"[0-9a-fA-F]{36}")


def new_ids(count: int, now_ms: int) -> list[str]:
    """Ids that sort by time to the millisecond and cannot be guessed: 12 hex digits of time, 24 of randomness."""
    prefix, random = f"{now_ms:012x}", secrets.token_hex(12 * count)
    return [prefix + random[24 * k : 24 * (k + 1)] for k in range(count)]


def is_generated(id_: str) -> bool:
    """Whether an id has the form of the service's own, in either case; a caller's own never have it."""
    return _GENERATED.fullmatch(id_) is not None


def id_problem(value: object) -> str:
    """Why a value is no id of a prediction, to be read after its name; "" where it may be one."""
    allowed = f"allowed is a text of 1 to {MAX_ID} printable characters"
    if not isinstance(value, str):
        return f"is {short(value)}; {allowed}"
    if len(value) > MAX_ID:
        return f"has {len(value):,} characters; {allowed}"
    return "" if value and value.isprintable() else f"is {short(value)}; {allowed}"


def own_id_problem(value: object) -> str:
    """Why a value is no id of a caller's own, to be read after its name; "" where it is one."""
    if isinstance(value, str) and is_generated(value):
        return f"is {value!r}; 36 hex digits are kept for the service's own ids"
    return id_problem(value)
