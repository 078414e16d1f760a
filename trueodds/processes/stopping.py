"""Stops of a command by a signal."""

from __future__ import annotations

import signal
from types import FrameType


class Stop:
    """Callable that returns whether Ctrl-C or SIGTERM came. A second one ends the process at once."""

    def __init__(self) -> None:
        self._came = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._come)

    def __call__(self) -> bool:
        return self._came

    def _come(self, number: int, frame: FrameType | None) -> None:
        if self._came:
            raise KeyboardInterrupt
        self._came = True
