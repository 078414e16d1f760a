"""A function for `trueodds.processes.confined.Readers` that does what a body says, as a parser might."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterator

import numpy as np

from trueodds.processes.pieces import ConfinedError, Piece


def read(body: bytes, *, times: int = 1) -> Iterator[Piece]:
    """Yields the process's id and the body's bytes; some bodies are words that name a fault."""
    match body:
        case b"abort":
            os.abort()
        case b"crash":
            ctypes.string_at(0)
        case b"loop":
            time.sleep(60)
        case b"memory":
            np.ones(2**28)
        case b"refuse":
            raise ConfinedError("own", "not like this")
        case b"fail":
            raise RuntimeError("oh")
        case b"print":
            os.write(1, b"what a library prints")
        case b"secret":
            yield Piece(os.environ.get("TRUEODDS_STORE"), [])
        case b"abort later":
            yield Piece(0, [])
            os.abort()
    for _ in range(times):
        yield Piece(os.getpid(), [np.frombuffer(body, np.uint8), np.arange(6.0).reshape(2, 3).T])
