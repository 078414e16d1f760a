"""Numbers are computed once for the same sums: of a trend, finished periods cost nothing when it is asked for again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np

from service.store.records import LabelBlock, StoredSums
from trueodds.metrics import CalibrationSums

Data = CalibrationSums | StoredSums | LabelBlock
T = TypeVar("T")


def remembered(most: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Keep the results of the last `most` different calls `work(data, *options)`.

    Two calls are the same if their options are equal and their data hold the same bytes (128-bit BLAKE2b, of sums the
    occupied cells): there is nothing to invalidate. What is given back is shared, so it must not be changed.
    """

    def of(work: Callable[..., T]) -> Callable[..., T]:
        known: OrderedDict[tuple[Any, ...], T] = OrderedDict()
        lock = threading.Lock()

        @wraps(work)
        def call(data: Data, *options: Any) -> T:
            key = (digest(data), *options)
            with lock:
                if key in known:
                    known.move_to_end(key)
                    return known[key]
            found = work(data, *options)
            with lock:
                known[key] = found
                while len(known) > most:
                    known.popitem(last=False)
            return found

        return call

    return of


def digest(data: Data) -> bytes:
    """A name for what the data hold; of a block of labels, what they say, and when they came."""
    found, sums = blake2b(digest_size=16), data
    if isinstance(sums, LabelBlock):
        parts = (sums.created_ms_L, sums.arrived_ms_L, sums.confidence_L, sums.propensity_L, sums.correct_L)
        found.update(b"".join(part.tobytes() for part in parts))
        return found.digest()
    if isinstance(sums, StoredSums):
        asked = np.flatnonzero(sums.answers_C)
        found.update(b"answers" + len(asked).to_bytes(4, "little"))
        found.update(asked.tobytes() + sums.answers_C[asked].tobytes())
        sums = sums.labelled
    told = np.flatnonzero(sums.cells[0])
    found.update(told.tobytes() + sums.cells[:, told].tobytes())
    return found.digest()
