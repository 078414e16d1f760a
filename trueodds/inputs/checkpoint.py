"""Places in long work at which it may be given up: whoever has it done sets a check, which raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def checked_by(check: Callable[[], None]) -> Iterator[None]:
    """Have every `checkpoint` of the block call `check`, in this thread only."""
    before = _check.set(check)
    try:
        yield
    finally:
        _check.reset(before)


def checkpoint() -> None:
    """Called between parts that take some 50 ms at the most; raises what the check does."""
    if (check := _check.get()) is not None:
        check()
