"""Time limits that cost nothing where there is nothing to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


async def within(work: Coroutine[Any, Any, T], seconds: float) -> T:
    """What `work` returns. It is begun at once, and a timer set only where it waits: most bodies have come with their
    head, and a timer for each took 5 us of an image's time.

    Raises:
        TimeoutError: it took longer than `seconds`.
    """
    try:
        waits_for = work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    async with asyncio.timeout(seconds):
        return await _Begun(work, waits_for)


class _Begun(Generic[T]):
    """The rest of a coroutine that waits for the first time."""

    def __init__(self, work: Coroutine[Any, Any, T], waits_for: Any) -> None:
        self._work, self._waits_for = work, waits_for

    def __await__(self) -> Generator[Any, Any, T]:
        try:
            yield self._waits_for
        except BaseException:
            self._work.close()
            raise
        return (yield from self._work.__await__())
