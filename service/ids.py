"""Ids of predictions: the form of the service's own ids, and the rules for a caller's ids.

/predict, the Open Inference Protocol and /feedback share these rules. So no label waits for an id that is impossible.
"""

from __future__ import annotations

import re
import secrets

from trueodds.texts import short

MAX_ID = 128
"""Longest id in characters."""
_GENERATED = re.compile(r"[0-9a-fA-F]{36}")


def new_ids(count: int, now_ms: int) -> list[str]:
    """Make ids that sort by time to the millisecond and cannot be guessed: 12 hex digits of time, 24 of randomness."""
    prefix, random = f"{now_ms:012x}", secrets.token_hex(12 * count)
    return [prefix + random[24 * k : 24 * (k + 1)] for k in range(count)]


def is_generated(id_: str) -> bool:
    """Return whether an id has the form of the service's own ids, in upper or lower case. Callers' ids never do."""
    return _GENERATED.fullmatch(id_) is not None


def id_problem(value: object) -> str:
    """Return why a value cannot be the id of a prediction, phrased to follow its name; "" if it can."""
    allowed = f"allowed is a text of 1 to {MAX_ID} printable characters"
    if not isinstance(value, str):
        return f"is {short(value)}; {allowed}"
    if len(value) > MAX_ID:
        return f"has {len(value):,} characters; {allowed}"
    if not value or not value.isprintable():
        return f"is {short(value)}; {allowed}"
    if dots := next((part for part in value.split("/") if part in (".", "..")), ""):
        problem = f"is {short(value)}; clients and proxies resolve {dots!r} in the path /predictions/ID"
        return f"{problem}. Give an id without {dots!r} between slashes, such as 'photo-1'"
    return ""


def own_id_problem(value: object) -> str:
    """Return why a value cannot be a caller's own id, phrased to follow its name; "" if it can."""
    if isinstance(value, str) and is_generated(value):
        return f"is {value!r}; ids of 36 hex digits are reserved for the service"
    return id_problem(value)
