"""Decoding within the time of the answer: what is given up, what is never begun, and how much there is at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from service.errors import CallerGoneError, ServiceError
from service.predict import decoding
from service.predict.decoding import AnswerTimer
from tests.service.app_client import Client
from trueodds.inputs.checkpoint import checkpoint

WORDS = ("good", "bad", "plain")


class Caller:
    """A request whose caller may hang up."""

    gone = False

    async def is_disconnected(self) -> bool:
        return self.gone


class Work:
    """Goes on until it is told to stop, or given up at a checkpoint."""

    def __init__(self) -> None:
        self.began, self.stop, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.began.set()
        try:
            while not self.stop.wait(0.005):
                checkpoint()
            return "done"
        finally:
            self.ended.set()


def answering(caller: Caller, seconds: float = 10.0) -> AnswerTimer:
    return AnswerTimer(caller, seconds, "text")  # type: ignore[arg-type]


@pytest.fixture
async def one() -> AsyncIterator[ThreadPoolExecutor]:
    """For a minute: work that nobody stops would go on for ever."""
    async with asyncio.timeout(60):
        yield ThreadPoolExecutor(1)


async def test_work_that_takes_too_long_is_given_up(one: ThreadPoolExecutor) -> None:
    work = Work()
    with pytest.raises(ServiceError, match=r"took more than 0\.05 s; try again later, or with fewer texts") as caught:
        await answering(Caller(), 0.05).run(one, 1, work)
    assert (caught.value.status, caught.value.code) == (503, "too_slow")
    assert await asyncio.to_thread(work.ended.wait, 5)


async def test_the_inputs_of_a_refused_call_go_with_its_error(one: ThreadPoolExecutor) -> None:
    """Without the garbage collector, which comes late: the error's traceback holds the frames that hold the inputs."""
    held: list[weakref.ref[Work]] = []

    def refused() -> None:
        tree = Work()
        held.append(weakref.ref(tree))
        raise ServiceError(413, "too_many_values", "too many")

    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(ServiceError):
            await answering(Caller()).run(one, 1, refused)
        one.submit(int).result()  # the thread lets go of its last work
        assert held[0]() is None
    finally:
        gc.enable()


async def test_work_of_a_caller_who_hung_up_is_given_up_or_never_begun(one: ThreadPoolExecutor) -> None:
    callers, works = [Caller(), Caller(), Caller()], [Work(), Work(), Work()]
    tasks = [
        asyncio.create_task(answering(caller).run(one, 1, work)) for caller, work in zip(callers, works, strict=True)
    ]
    await asyncio.to_thread(works[0].began.wait, 5)
    callers[1].gone = True
    with pytest.raises(CallerGoneError):
        await tasks[1]
    callers[0].gone = True
    with pytest.raises(CallerGoneError):
        await tasks[0]
    works[2].stop.set()
    assert await tasks[2] == "done" and works[0].ended.is_set() and not works[1].began.is_set()


async def test_only_so_many_bytes_are_decoded_at_once(one: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "budget", decoding.ByteBudget("decoded", 100))

    work = Work()
    first = asyncio.create_task(answering(Caller()).run(one, 120, work))  # a single one may be larger
    await asyncio.to_thread(work.began.wait, 5)
    with pytest.raises(ServiceError, match="120 bytes are being decoded; the limit is 100") as caught:
        await answering(Caller()).run(one, 1, lambda: "more")
    assert (caught.value.status, caught.value.headers) == (503, {"retry-after": "1"})
    work.stop.set()
    assert await first == "done"
    assert await answering(Caller()).run(one, 100, lambda: "more") == "more"


async def test_an_error_of_the_work_is_the_callers(one: ThreadPoolExecutor) -> None:
    with pytest.raises(ZeroDivisionError):
        await answering(Caller()).run(one, 1, lambda: 1 // 0)
    assert not decoding.budget.bytes


@pytest.fixture(scope="module")
def slow(serve_once: Callable[..., Client]) -> Client:
    return serve_once(words=WORDS, limits={"answer_seconds": 0.1})


TEXTS = ["good bad plain " * 4000] * 60
CALLS: dict[str, dict[str, Any]] = {
    "JSON": {"url": "/predict", "json": {"instances": TEXTS}},
    "CSV": {
        "url": "/predict",
        "content": "\n".join(["text", *TEXTS]).encode(),
        "headers": {"content-type": "text/csv"},
    },
    "inference": {
        "url": "/v2/models/tiny/infer",
        "json": {"inputs": [{"name": "texts", "shape": [len(TEXTS)], "datatype": "BYTES", "data": TEXTS}]},
    },
}


@pytest.mark.parametrize("how", CALLS)
def test_texts_that_take_longer_than_the_answer_may_are_given_up(slow: Client, how: str) -> None:
    started = time.process_time()  # of this process, the service's part included: other processes do not count
    answer = slow.post(**CALLS[how])
    assert answer.status_code == 503 and "took more than 0.1 s" in json.dumps(answer.json()["error"]), answer.text
    assert time.process_time() - started < 3
