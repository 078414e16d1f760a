"""Labelled answers row by row, and a cache of results by the content of their data.

With the cache, the finished periods of a trend are computed only once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from trueodds.sums.answers import AnswerSums
from trueodds.sums.fine import FineSums
from trueodds.sums.inputs import Array
from trueodds.sums.sums import CalibrationSums


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """L labelled answers in the order in which their labels arrived, for figures that sums cannot give."""

    confidence_L: Array
    correct_L: npt.NDArray[np.bool_]
    propensity_L: Array
    """Probability of each answer to get a label; NaN if it is not known."""
    delay_ms_L: npt.NDArray[np.int64]
    """Milliseconds from the answer to its first label."""

    def __len__(self) -> int:
        return len(self.confidence_L)


Data = CalibrationSums | AnswerSums | LabelledRows
T = TypeVar("T")


def memoise(most: int) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a decorator that caches the results of the last `most` different calls `work(data, *options)`.

    Two calls are the same if their options are equal and their data hold the same bytes (128-bit BLAKE2b; for sums, of
    the occupied cells). So no cached result has to be invalidated. Results are shared and must not be changed.
    """

    def decorate(work: Callable[..., T]) -> Callable[..., T]:
        results: OrderedDict[tuple[Any, ...], T] = OrderedDict()
        lock = threading.Lock()

        @wraps(work)
        def call(data: Data, *options: Any) -> T:
            key = (digest(data), *options)
            with lock:
                if key in results:
                    results.move_to_end(key)
                    return results[key]
            result = work(data, *options)
            with lock:
                results[key] = result
                while len(results) > most:
                    results.popitem(last=False)
            return result

        return call

    return decorate


def digest(data: Data) -> bytes:
    """Return a hash of the data's content."""
    content = blake2b(digest_size=16)
    if isinstance(data, LabelledRows):
        parts = (data.confidence_L, data.correct_L, data.propensity_L, data.delay_ms_L)
        content.update(b"".join(part.tobytes() for part in parts))
        return content.digest()
    sums = data.labelled if isinstance(data, AnswerSums) else data
    if isinstance(data, AnswerSums):
        cell_A = np.flatnonzero(data.answers_C)
        content.update(b"answers" + len(cell_A).to_bytes(4, "little"))
        content.update(cell_A.tobytes() + data.answers_C[cell_A].tobytes())
    if isinstance(sums, FineSums):
        cell_F = np.flatnonzero(sums.fine[0])
        content.update(b"fine" + cell_F.tobytes() + sums.fine[:, cell_F].tobytes())
    cell_L = np.flatnonzero(sums.cells[0])
    content.update(cell_L.tobytes() + sums.cells[:, cell_L].tobytes())
    return content.digest()
