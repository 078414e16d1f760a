"""Windows for labels that arrive late because of their value (maturity), and the meaning of a missing label.

An answer enters the sums when its window closes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from trueodds.texts import short

UnlabelledMeans = Literal["ok", "unknown"]
"""Meaning of a missing label at the end of the window.

`ok`: the class that nobody reports. With a positive class it is the other class, otherwise the predicted one.
`unknown`: no meaning.
"""

UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DAY_MS = UNITS_MS["d"]
LONGEST_MS = 3653 * DAY_MS
"""Longest window: ten years."""
EXAMPLE = "fraud=45d:ok"

_ENTRY = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=([0-9]{1,100})([smhd])(?::([a-z]+))?")


@dataclass(frozen=True)
class Maturity:
    """Window of a model. An answer counts when its window closes, with the label that it has then."""

    window_ms: int
    unlabelled_means: UnlabelledMeans = "unknown"

    def due_ms(self, created_ms: int, stored_ms: int) -> int:
        """Return when the window of an answer closes, in Unix milliseconds.

        It is `created_ms` + window. If an answer is stored long after it was created (observed answers have their own
        time), it gets a further day for its label to follow, or the window if that is shorter.
        """
        return max(created_ms + self.window_ms, stored_ms + min(self.window_ms, DAY_MS))

    @property
    def window(self) -> str:
        """The window in its largest whole unit, such as `45d`."""
        unit = next(unit for unit, ms in reversed(UNITS_MS.items()) if self.window_ms % ms == 0)
        return f"{self.window_ms // UNITS_MS[unit]}{unit}"

    def __str__(self) -> str:
        return f"{self.window}:{self.unlabelled_means}"


Matures = tuple[tuple[str, Maturity], ...]
"""Names of models, each with its window."""


def read_matures(text: str) -> Matures:
    """Parse the windows of a setting: `MODEL=WINDOW:MEANING`, separated by commas. `:unknown` may be left out.

    Raises:
        ValueError: An entry is not a window, or a model occurs twice. The message names it.
    """
    windows: dict[str, Maturity] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        match = _ENTRY.fullmatch(word)
        if match is None:
            raise ValueError(
                f"{short(word)} is not a window; expected MODEL=WINDOW or MODEL=WINDOW:ok, such as {EXAMPLE}; units are"
                " s, m, h and d"
            )
        model, number, unit, means = match.groups()
        if means is not None and means not in get_args(UnlabelledMeans):
            raise ValueError(f"{short(word)} gives a missing label the meaning {means!r}; allowed are ok and unknown")
        window_ms = int(number) * UNITS_MS[unit]
        if not 0 < window_ms <= LONGEST_MS:
            raise ValueError(f"{short(word)} is a window of {number}{unit}; allowed are 1s to {LONGEST_MS // DAY_MS}d")
        if model in windows:
            raise ValueError(f"{model} has two windows; give one")
        windows[model] = Maturity(window_ms, "ok" if means == "ok" else "unknown")
    return tuple(windows.items())
