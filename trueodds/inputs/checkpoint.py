"""Checkpoints in long work at which it may be cancelled: the caller sets a check, which raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def cancelled_by(check: Callable[[], None]) -> Iterator[None]:
    """Make every `checkpoint` of the block call `check`, in this thread only."""
    before = _check.set(check)
    try:
        yield
    finally:
        _check.reset(before)


def checkpoint() -> None:
    """Call the check that the caller has set, if any. Long work calls this between parts of at most about 50 ms."""
    if (check := _check.get()) is not None:
        check()
