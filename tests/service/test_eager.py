"""A time limit whose timer is set only where there is something to wait for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from service.http import body_limits


async def ends_at_once() -> int:
    return 3


async def waits(turns: int) -> int:
    for _ in range(turns):
        await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    return turns


async def fails(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)
    raise ZeroDivisionError


def test_the_value_is_that_of_the_coroutine(monkeypatch: pytest.MonkeyPatch) -> None:
    timers: list[float] = []
    real = asyncio.timeout

    def counted(seconds: float) -> asyncio.Timeout:
        timers.append(seconds)
        return real(seconds)

    monkeypatch.setattr(asyncio, "timeout", counted)
    assert asyncio.run(body_limits.within(ends_at_once(), 1)) == 3 and not timers
    assert [asyncio.run(body_limits.within(waits(n), 1)) for n in (0, 1, 2)] == [0, 1, 2] and timers == [1, 1, 1]


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_its_errors_are_its_own(turns: int) -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(body_limits.within(fails(turns), 1))


async def test_what_takes_too_long_or_is_cancelled_is_ended() -> None:
    ended: list[str] = []

    async def forever(name: str, event: asyncio.Event) -> None:
        try:
            await event.wait()
        finally:
            ended.append(name)

    with pytest.raises(TimeoutError):
        await body_limits.within(forever("late", asyncio.Event()), 0.001)
    task: asyncio.Task[Any] = asyncio.create_task(body_limits.within(forever("cancelled", asyncio.Event()), 9))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["late", "cancelled"]
