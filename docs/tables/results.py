"""The committed results of the benchmarks, and single figures out of them."""

from __future__ import annotations

import functools
import json
from typing import Any

from docs.tables import ROOT

FOLDER = ROOT / "benchmarks" / "results"
Result = dict[str, Any]
Key = tuple[str | dict[str, object], ...]
"""The way to a figure: names, and for a list the values that single out one of its rows."""


@functools.cache
def read(name: str) -> Result:
    """The result that benchmarks/results/`name`.json holds."""
    result: Result = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return result


def figure(name: str, key: Key) -> float:
    """The number at `key` in the result `name`.

    Raises:
        KeyError: no such name, not exactly one such row, or no number there.
    """
    place: Any = read(name)
    for step in key:
        if isinstance(step, str):
            place = place[step]
        else:
            rows = [row for row in place if all(row.get(column) == value for column, value in step.items())]
            if len(rows) != 1:
                raise KeyError(f"{name}.json: {len(rows)} rows with {step}; exactly one is needed")
            place = rows[0]
    if isinstance(place, bool) or not isinstance(place, int | float):
        raise KeyError(f"{name}.json: {key} is no number but {place!r}")
    return place
