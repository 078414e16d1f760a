"""Ids of predictions: what /predict takes for one and what /feedback does is the same."""

from __future__ import annotations

import re

from service.errors import short

MAX_ID = 128
"""Characters in an id."""
OURS = re.compile(r"[0-9a-fA-F]{36}")
"""Ids that this service gives, in lower case; a caller's own ids look different."""


def id_problem(value: object) -> str:
    """Why a value is no id, to be read after its name; "" where it is one."""
    allowed = f"allowed is a text of 1 to {MAX_ID} printable characters"
    if not isinstance(value, str):
        return f"is {short(value)}; {allowed}"
    if len(value) > MAX_ID:
        return f"has {len(value):,} characters; {allowed}"
    return "" if value and value.isprintable() else f"is {short(value)}; {allowed}"
