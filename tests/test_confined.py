"""Functions in processes of their own: what they send, what they survive, what their death is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.service.hooks import has_ended, until
from trueodds.processes.confined import Readers
from trueodds.processes.pieces import ConfinedError

FUNCTION = "tests.confined_function:read"


@pytest.fixture(scope="module")
def readers() -> Iterator[Readers]:
    readers = Readers(FUNCTION, seconds=2.0, memory=2**28)
    yield readers
    readers.close()


def pid(readers: Readers) -> int:
    (piece,) = readers.read(b"x")
    assert isinstance(piece.head, int)
    return piece.head


def test_pieces_come_as_they_are(readers: Readers) -> None:
    body = bytes(range(256)) * 4096  # more than a pipe holds
    pieces = list(readers.read(body, times=3))
    assert [piece.head for piece in pieces] == 3 * readers.pids
    for piece in pieces:
        same, turned = piece.arrays
        assert same.tobytes() == body and np.array_equal(turned, np.arange(6.0).reshape(2, 3).T)
        turned += 1


def test_a_process_stays_warm_and_alive_after_what_it_refuses(readers: Readers) -> None:
    before = pid(readers)
    for body, code, message in [(b"refuse", "own", "not like this"), (b"fail", "failed", "RuntimeError: oh")]:
        with pytest.raises(ConfinedError, match=message) as caught:
            list(readers.read(body))
        assert caught.value.code == code
    with pytest.raises(ConfinedError, match="more than 256 MiB of memory, the limit") as caught:
        list(readers.read(b"memory"))
    assert caught.value.code == "memory"
    list(readers.read(b"print"))
    assert pid(readers) == before


@pytest.mark.parametrize(("body", "word"), [(b"abort", "SIGABRT"), (b"crash", "SIGSEGV"), (b"abort later", "SIGABRT")])
def test_a_death_is_an_error_and_the_next_body_is_read(readers: Readers, body: bytes, word: str) -> None:
    before = pid(readers)
    with pytest.raises(ConfinedError, match=word) as caught:
        list(readers.read(body))
    assert caught.value.code == "died" and pid(readers) != before


def test_time_is_up() -> None:
    readers = Readers(FUNCTION, seconds=0.2, memory=2**28)
    try:
        began = pid(readers)
        with pytest.raises(ConfinedError, match=r"more than 0\.2 s") as caught:
            list(readers.read(b"loop"))
        until(lambda: has_ended(began))
        assert caught.value.code == "time" and pid(readers) != began
        pieces = readers.read(bytes(2**20), times=4)
        next(pieces)
        time.sleep(0.3)  # the caller's time is not the reader's
        assert len(list(pieces)) == 3
    finally:
        readers.close()


def test_a_process_that_others_ended_costs_no_body(readers: Readers) -> None:
    before = pid(readers)
    os.kill(before, signal.SIGKILL)
    assert pid(readers) != before


def test_a_body_that_is_given_up_ends_its_process(readers: Readers) -> None:
    pieces = readers.read(bytes(2**20), times=100)
    began = next(pieces).head
    pieces.close()
    until(lambda: has_ended(began))
    assert pid(readers) != began


def test_who_waits_is_not_hurt_by_who_kills(readers: Readers) -> None:
    heads: list[int] = []
    neighbours = [threading.Thread(target=lambda: heads.append(pid(readers))) for _ in range(4)]
    killing = readers.read(b"abort later")
    next(killing)
    for neighbour in neighbours:
        neighbour.start()
    with pytest.raises(ConfinedError):
        list(killing)
    for neighbour in neighbours:
        neighbour.join()
    assert len(heads) == 4 and len(set(heads)) == 1


def test_it_knows_no_secret_of_its_parent(readers: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUEODDS_STORE", "postgresql://user:password@host/db")
    pid(readers)
    assert next(iter(list(readers.read(b"secret")))).head is None


def test_closed_readers_read_nothing_and_leave_no_process() -> None:
    readers = Readers(FUNCTION, seconds=2.0, memory=2**28)
    began = pid(readers)
    readers.close()
    until(lambda: has_ended(began))
    assert not readers.pids
    with pytest.raises(ConfinedError, match="closed") as caught:
        list(readers.read(b"x"))
    assert caught.value.code == "start"


def test_it_ends_with_a_parent_that_is_killed() -> None:
    code = (
        "import sys, time; from trueodds.processes.confined import Readers;"
        f"r = Readers({FUNCTION!r}, seconds=60.0, memory=2**28); print([p.head for p in r.read(b'x')][0], flush=True);"
        "next(r.read(b'loop'))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    reader = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    until(lambda: has_ended(reader))


def test_a_function_that_cannot_be_imported() -> None:
    readers = Readers("tests.no_such_module:read", seconds=2.0, memory=2**28)
    with pytest.raises(ConfinedError, match="no_such_module") as caught:
        list(readers.read(b""))
    readers.close()
    assert caught.value.code == "missing"
