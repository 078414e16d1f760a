"""The queues: order, sizes, failures, fullness and an orderly end; in threads, and on the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from service.errors import CallerGoneError, ServiceError
from service.models import batching
from service.models.batching import Inline
from service.models.lanes import Lanes
from trueodds.inputs.image.pictures import Pixels


def images(*values: int) -> Pixels:
    return np.array(values, np.uint8).reshape(-1, 1, 1, 1)


class Doubler:
    """Answers 2 x the pixel; holds the model until `go` is set."""

    def __init__(self, max_batch: int = 4, max_waiting: int = 10, lanes: int = 1) -> None:
        self.sizes: list[int] = []
        self.alone: list[bool] = []
        self.go = threading.Event()
        self.batcher: Lanes[Pixels, list[list[int]], list[int]] = Lanes(
            self.score, self.finish, max_batch=max_batch, max_waiting=max_waiting, noun="image", lanes=lanes
        )
        self.batcher.start()

    def score(self, calls: list[Pixels], alone: bool) -> list[list[int]]:
        self.sizes.append(sum(map(len, calls)))
        self.alone.append(alone)
        self.go.wait(10)
        if any((a == 13).any() for a in calls):
            raise ArithmeticError("thirteen")
        return [[2 * int(v) for v in a.ravel()] for a in calls]

    async def finish(self, scored: list[list[int]]) -> Sequence[list[int]]:
        await asyncio.sleep(0)
        if [28] in scored:
            raise OSError("fourteen")
        return scored


async def submitted(doubler: Doubler, *requests: Pixels) -> list[asyncio.Task[list[int]]]:
    """Tasks that are all in the queue; the first one has been taken by the model."""
    tasks = []
    for request in requests:
        tasks.append(asyncio.create_task(doubler.batcher.submit(request)))
        await asyncio.sleep(0)
        while not doubler.sizes:
            await asyncio.sleep(0.001)
    return tasks


async def test_takes_what_waits_and_keeps_order() -> None:
    doubler = Doubler()
    tasks = await submitted(doubler, images(1), images(2), images(3, 4), images(5), images(6), images(*range(7, 12)))
    doubler.go.set()
    assert [list(a) for a in await asyncio.gather(*tasks)] == [[2], [4], [6, 8], [10], [12], [14, 16, 18, 20, 22]]
    assert doubler.sizes == [1, 4, 1, 5]
    await doubler.batcher.close()


def test_a_batch_is_at_most_half_of_what_is_here_and_a_few_are_not_halved() -> None:
    async def sizes(requests: int) -> list[int]:
        doubler, answered = Doubler(max_batch=64, max_waiting=100), asyncio.Event()

        async def held(scored: list[list[int]]) -> list[list[int]]:
            await answered.wait()
            return scored

        doubler.batcher._finish = held
        tasks = await submitted(doubler, *(images(n) for n in range(20, 20 + requests)))
        doubler.go.set()
        while sum(doubler.sizes) < requests:
            await asyncio.sleep(0.001)
        answered.set()
        await asyncio.gather(*tasks)
        await doubler.batcher.close()
        return doubler.sizes

    assert asyncio.run(sizes(24)) == [1, 12, 11]
    assert asyncio.run(sizes(5)) == [1, 4]


async def test_every_lane_takes_its_share_unless_a_request_is_alone() -> None:
    doubler, together = Doubler(max_batch=8, max_waiting=100, lanes=3), threading.Barrier(3)
    score = doubler.batcher._score

    def shared(calls: list[Pixels], alone: bool) -> list[list[int]]:
        if not alone:
            together.wait(10)  # all three lanes are at work
        return score(calls, alone)

    doubler.batcher._score = shared
    first = await submitted(doubler, images(1))
    waiting = await submitted(doubler, *(images(k) for k in range(2, 13)), images(*range(13, 23)))
    assert (doubler.sizes, doubler.alone) == ([1], [True])  # it has every lane
    doubler.go.set()
    *answers, failed = await asyncio.gather(*first, *waiting, return_exceptions=True)
    assert [list(a) for a in answers] == [[2 * k] for k in range(1, 13)]  # type: ignore[arg-type]
    assert isinstance(failed, ArithmeticError)
    # A third of the 21 that are here, then what waits before the request of ten, which goes by itself.
    assert (sorted(doubler.sizes[1:]), doubler.alone[1:]) == ([4, 7, 10], [False] * 3)
    assert list(await doubler.batcher.submit(images(1))) == [2]
    assert doubler.alone[-1]
    await doubler.batcher.close()


async def test_a_failure_reaches_its_own_batch_only() -> None:
    doubler = Doubler(max_batch=1)
    doubler.go.set()
    tasks = await submitted(doubler, images(1), images(13), images(14), images(2))
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert (list(outcomes[0]), list(outcomes[3])) == ([2], [4])  # type: ignore[arg-type]
    assert isinstance(outcomes[1], ArithmeticError)
    assert isinstance(outcomes[2], OSError)
    await doubler.batcher.close()


async def test_a_request_that_cannot_be_scored_fails_alone() -> None:
    """Again and again: the room of batches that may be unstored is given back."""
    doubler = Doubler(max_batch=10, max_waiting=100)
    room = doubler.batcher._room
    for _ in range(room + 1):
        doubler.go.clear()
        doubler.sizes.clear()
        tasks = await submitted(doubler, images(1), images(2), images(13, 0), images(3), images(13), images(4))
        doubler.go.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [o for o in outcomes if isinstance(o, list)] == [[2], [4], [6], [8]]
        assert isinstance(outcomes[2], ArithmeticError) and isinstance(outcomes[4], ArithmeticError)
        assert doubler.sizes == [1, 4, 1, 2, 1, 2, 1, 1]
    await doubler.batcher.close()
    assert doubler.batcher._room == room


async def test_full_queue_answers_503_and_recovers() -> None:
    doubler = Doubler()
    tasks = await submitted(doubler, images(0), images(*range(1, 10)))
    with pytest.raises(ServiceError, match="9 images are waiting; the limit is 10") as refused:
        await doubler.batcher.submit(images(1, 2))
    assert (refused.value.status, refused.value.headers) == (503, {"retry-after": "1"})
    doubler.go.set()
    await asyncio.gather(*tasks)
    assert list(await doubler.batcher.submit(images(1, 2))) == [2, 4]
    await doubler.batcher.close()


async def test_a_cancelled_request_is_dropped() -> None:
    doubler = Doubler()
    first, second, third = await submitted(doubler, images(1), images(2), images(3))
    second.cancel()
    await asyncio.sleep(0)
    doubler.go.set()
    assert [list(await first), list(await third)] == [[2], [6]]
    assert doubler.sizes == [1, 1]
    await doubler.batcher.close()


async def test_a_caller_who_hung_up_after_a_long_wait_is_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "LONG_WAIT", 0.01)

    async def hung_up() -> bool:
        return True

    doubler = Doubler()
    (first,) = await submitted(doubler, images(1))
    second = asyncio.create_task(doubler.batcher.submit(images(2), is_gone=hung_up))
    third = asyncio.create_task(doubler.batcher.submit(images(3)))
    await asyncio.sleep(0.02)
    doubler.go.set()
    assert [await first, await third] == [[2], [6]]
    with pytest.raises(CallerGoneError):
        await second
    assert doubler.sizes == [1, 1]
    await doubler.batcher.close()


async def test_close_answers_what_is_queued() -> None:
    doubler = Doubler()
    tasks = await submitted(doubler, *(images(k) for k in range(9)))
    closing = asyncio.create_task(doubler.batcher.close())
    await asyncio.sleep(0)
    with pytest.raises(ServiceError, match="shutting down"):
        await doubler.batcher.submit(images(1))
    doubler.go.set()
    await closing
    assert [list(t.result()) for t in tasks] == [[2 * k] for k in range(9)]


class Counter:
    """Answers 2 x the pixel on the event loop; storing waits while `stored` is not set."""

    def __init__(self, max_batch: int = 8) -> None:
        self.sizes: list[int] = []
        self.stored = asyncio.Event()
        self.stored.set()
        self.batcher: Inline[Pixels, list[list[int]], list[int]] = Inline(
            self.score, self.finish, max_batch=max_batch, max_waiting=20, noun="image"
        )
        self.batcher.start()

    def score(self, calls: list[Pixels], alone: bool) -> list[list[int]]:
        assert alone and threading.current_thread() is threading.main_thread()
        self.sizes.append(sum(map(len, calls)))
        if any((a == 13).any() for a in calls):
            raise ArithmeticError("thirteen")
        return [[2 * int(v) for v in a.ravel()] for a in calls]

    async def finish(self, scored: list[list[int]]) -> Sequence[list[int]]:
        await self.stored.wait()
        return scored


async def test_the_event_loop_scores_all_that_has_come_at_once() -> None:
    counter = Counter()
    answers = await asyncio.gather(*(counter.batcher.submit(images(k)) for k in range(5)))
    assert (answers, counter.sizes) == ([[2 * k] for k in range(5)], [5])

    async def later(turns: int) -> list[int]:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await counter.batcher.submit(images(turns))

    assert await asyncio.gather(*map(later, range(3))) == [[0], [2], [4]]
    assert counter.sizes[1:] == [3]  # each turn of the loop brought one more
    answers = await asyncio.gather(*(counter.batcher.submit(images(k, k)) for k in range(7)))
    assert (answers, counter.sizes[2:]) == ([[2 * k] * 2 for k in range(7)], [8, 6])  # at most 8
    await counter.batcher.close()


async def test_on_the_event_loop_too_a_request_that_cannot_be_scored_fails_alone() -> None:
    counter = Counter()
    room = counter.batcher._room
    for _ in range(room + 1):
        calls = [counter.batcher.submit(images(k)) for k in (1, 13, 2)]
        one, two, three = await asyncio.gather(*calls, return_exceptions=True)
        assert (one, three) == ([2], [4]) and isinstance(two, ArithmeticError)
    await asyncio.sleep(0)
    assert counter.batcher._room == room
    await counter.batcher.close()


async def test_the_event_loop_scores_nothing_more_while_too_much_is_not_stored() -> None:
    counter = Counter(max_batch=1)
    counter.stored.clear()
    tasks = [asyncio.create_task(counter.batcher.submit(images(k))) for k in range(9)]
    await asyncio.sleep(0.02)
    assert (len(counter.sizes), counter.batcher.waiting) == (batching.UNSTORED, 9 - batching.UNSTORED)
    tasks[5].cancel()  # it is not scored any more
    with pytest.raises(ServiceError, match="6 images are waiting; the limit is 20"):
        await counter.batcher.submit(images(*range(15)))
    closing = asyncio.create_task(counter.batcher.close())
    await asyncio.sleep(0)
    with pytest.raises(ServiceError, match="shutting down"):
        await counter.batcher.submit(images(1))
    counter.stored.set()
    await closing
    assert [t.result() for t in tasks if t is not tasks[5]] == [[2 * k] for k in range(9) if k != 5]
    assert counter.sizes == [1] * 8
