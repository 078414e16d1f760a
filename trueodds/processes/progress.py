"""Progress bars: a moving one in a terminal, and an occasional line in a log file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TextIO, TypeVar

from tqdm import tqdm

LOG_SECONDS = 15.0

Batch = TypeVar("Batch", bound=Sized)


class _Lines:
    """Stream of a bar for log files: one line for each state, where a terminal would overwrite it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        if text := text.strip("\r\n "):
            self._stream.write(text + "\n")

    def flush(self) -> None:
        self._stream.flush()


def bar(total: int, what: str, unit: str, *, done: int = 0, hidden: bool = False) -> tqdm[Any]:
    """Return a bar on stderr with the estimated end; `update(n)` moves it.

    A log file gets a line every 15 s and at the end.
    """
    live = sys.stderr.isatty()
    return tqdm(
        total=total,
        disable=hidden,
        initial=done,
        desc=what,
        unit=unit,
        dynamic_ncols=live,
        ncols=None if live else 110,
        file=sys.stderr if live else _Lines(sys.stderr),
        mininterval=0.2 if live else LOG_SECONDS,
        maxinterval=LOG_SECONDS,
        smoothing=0.05,
        delay=0 if live else 1e-9,  # in a log, no line before the first progress
    )


def count_off(batches: Iterable[Batch], total: int, what: str, unit: str) -> Iterator[Batch]:
    """Yield batches, and move a bar of `total` units by the length of each that has been worked on."""
    with bar(total, what, unit) as shown:
        for batch in batches:
            yield batch
            shown.update(len(batch))
