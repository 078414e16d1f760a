"""Watched nulls: their names, their evidence before any label, and the labels by p(positive)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from service.alarm.evidence import Evidence
from service.store.rows import LabelBlock
from trueodds.metrics import MOST_RATIO, EProcess, PositiveEProcess, ShiryaevRoberts
from trueodds.reports.schemas.alarm import Watched
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveClass

NULLS: tuple[Watched, ...] = ("ece", "positive", "point")
"""Those that page first; "positive" is watched of versions with a positive class only."""
PAGING: tuple[Watched, ...] = ("ece", "positive")
POINTS = 192
"""Most points of the history; the first, the alarm and the present come to them."""


def start_of(null: Watched, tolerance: float, run_length: int | None, ratio: float = MOST_RATIO) -> Evidence:
    """Evidence before any label; the quicker rule is that of the nulls of the more probable class."""
    if null == "positive":
        return Evidence(process=PositiveEProcess.start(tolerance, ratio), detector=None)
    detector = None if run_length is None else ShiryaevRoberts.start(null, tolerance)
    return Evidence(process=EProcess.start(null, tolerance), detector=detector)


def rows_of_positive(
    block: LabelBlock, positive: PositiveClass | None, rest_p: tuple[float, ...], rest_positive: tuple[bool, ...]
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """p(positive) of the labels that wait and of those that came, and whether each was positive as it first came."""
    if positive is None:
        return np.zeros(0), np.zeros(0, bool)
    p_L = positive.probability_of_top(block.confidence_L, block.predicted_L)
    positive_L = (block.predicted_L == positive.index) == block.first_correct_L
    return np.concatenate([rest_p, p_L]), np.concatenate([np.array(rest_positive, bool), positive_L])


def thinned(blocks: tuple[int, ...]) -> list[int]:
    """Places of the points to keep: the first, and every 2^k-th block with the least k that leaves few enough.

    It depends on the number of blocks only, so it does not matter how often it was done on the way.
    """
    if not blocks:
        return []
    step = 1
    while blocks[-1] // step > POINTS:
        step *= 2
    return [i for i, block in enumerate(blocks) if block == 1 or block % step == 0]


def chosen(values: tuple[Any, ...], places: list[int]) -> tuple[Any, ...]:
    return tuple(values[i] for i in places)
