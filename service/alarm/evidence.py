"""Parts of the alarm's state: watched nulls with their evidence, firing and deliveries."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, ValidationError

from service.store.rows import Integers, LabelBlock, StoreError
from trueodds.metrics import (
    MOST_RATIO,
    EProcess,
    OrderedEProcess,
    PositiveEProcess,
    Prequential,
    ShiryaevRoberts,
    WeightedEProcess,
)
from trueodds.metrics.alarms.sequential import BLOCK
from trueodds.reports.schemas.alarm import Watched
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveClass

NULLS: tuple[Watched, ...] = ("ece", "positive", "levels", "point")
"""Watched nulls; those that page come first.

"positive" is watched only for versions with a positive class. "levels" is watched only for ordered classes, where the
settings ask for it.
"""
PAGING: tuple[Watched, ...] = ("ece", "positive", "levels")
POINTS = 192
"""Largest number of points in the history, besides the first, the alarm and the present."""
T = TypeVar("T", EProcess, ShiryaevRoberts, Prequential, WeightedEProcess)
Process = EProcess | PositiveEProcess | OrderedEProcess


def reads(form: type[T]) -> PlainValidator:
    return PlainValidator(lambda value: value if isinstance(value, form) else form.from_json(value))


def _process(value: Process | dict[str, object]) -> Process:
    if isinstance(value, Process):
        return value
    forms: dict[object, type[Process]] = {form.form: form for form in (PositiveEProcess, OrderedEProcess)}
    return (
        forms.get(value.get("form"), EProcess).from_json(value)
        if isinstance(value, dict)
        else EProcess.from_json(value)
    )


WRITES = PlainSerializer(lambda state: state.to_json())


class Frozen(BaseModel):
    """State, or part of a state, as the store keeps it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def tree(self) -> dict[str, Any]:
        """Return the state as a JSON tree. Validating the tree restores the state exactly."""
        return self.model_dump(mode="json")


class Firing(Frozen):
    """Moment at which the evidence reached its threshold. It happens once per watch."""

    at_ms: int
    """Arrival of the label that completed the block."""
    after: int
    """Number of labels until then."""
    log_e: float
    by: Literal["e-process", "shiryaev-roberts"]


class StoredAcknowledgement(Frozen):
    who: str
    why: str
    at_ms: int


class StoredRearming(Frozen):
    """End of a watch that had alarmed, and beginning of the next one."""

    who: str
    why: str
    at_ms: int
    alpha: float
    """Significance level of the watch that ended."""
    labels: int
    """Number of labels in the watch that ended."""
    fired_ms: int | None
    """Time at which it had alarmed; None if there was only a notice."""


class Delivery(Frozen):
    """Delivery of an alarm's message to one webhook."""

    attempts: int = 0
    claimed_by: str | None = None
    claimed_until_ms: int = 0
    next_ms: int = 0
    """Time of the next attempt."""
    fired_ms: int | None = None
    """Time at which the alarm of this message fired."""
    delivered_ms: int | None = None
    problem: str = ""
    """Reason why the last attempt failed."""


class Evidence(Frozen):
    """Evidence against one null hypothesis."""

    process: Annotated[Process, PlainValidator(_process), WRITES]
    detector: Annotated[ShiryaevRoberts, reads(ShiryaevRoberts), WRITES] | None
    fired: Firing | None = None
    acknowledged: StoredAcknowledgement | None = None
    log_e: tuple[float, ...] = ()
    """Evidence after the blocks of the history, rounded. It is only drawn."""


class WeightedTest(Frozen):
    """Evidence against "the ECE of all answers so far is within the tolerance", from labels with a propensity."""

    process: Annotated[WeightedEProcess, reads(WeightedEProcess), WRITES]
    fired: Firing | None = None
    """Firing. Its number of labels counts those on which bets were placed."""

    def take(self, block: LabelBlock, alpha: float) -> Self:
        """Return the evidence after the next labels. Labels without a propensity are left out."""
        known_L = np.isfinite(block.propensity_L)
        parts = block.confidence_L, block.first_correct_L, block.propensity_L
        process, log_e_L = self.process.advance(*(part[known_L] for part in parts))
        reached_L = log_e_L >= -math.log(alpha)
        fired = self.fired
        if fired is None and reached_L.any():
            k = int(np.argmax(reached_L))
            labels = int((block.propensity_L[known_L][: k + 1] >= process.floor).sum())
            at_ms = int(block.arrived_ms_L[known_L][k])
            fired = Firing(at_ms=at_ms, after=self.process.labels + labels, log_e=float(log_e_L[k]), by="e-process")
        return self.model_copy(update={"process": process, "fired": fired})


def start_of(
    null: Watched, tolerance: float, run_length: int | None, ratio: float = MOST_RATIO, levels: int = 2
) -> Evidence:
    """Return the evidence before any label. Only the nulls of the more probable class have the quicker rule."""
    if null == "levels":
        return Evidence(process=OrderedEProcess.start(levels, tolerance), detector=None)
    if null == "positive":
        return Evidence(process=PositiveEProcess.start(tolerance, ratio), detector=None)
    detector = None if run_length is None else ShiryaevRoberts.start(null, tolerance)
    return Evidence(process=EProcess.start(null, tolerance), detector=detector)


def rows_of_positive(
    block: LabelBlock, positive: PositiveClass | None, rest_p: tuple[float, ...], rest_positive: tuple[bool, ...]
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return p(positive) of the waiting and the new labels, and whether each was positive when it first arrived."""
    if positive is None:
        return np.zeros(0), np.zeros(0, bool)
    p_L = positive.probability_of_top(block.confidence_L, block.predicted_L)
    positive_L = (block.predicted_L == positive.index) == block.first_correct_L
    return np.concatenate([rest_p, p_L]), np.concatenate([np.array(rest_positive, bool), positive_L])


def rows_of_levels(
    block: LabelBlock, levels: int | None, rest_at_least: tuple[tuple[float, ...], ...], rest_first: tuple[int, ...]
) -> tuple[Array, Integers]:
    """Return P(level >= k) and the first level of the waiting and the new labels. Without levels there are no rows."""
    if levels is None:
        return np.zeros((0, 0)), np.zeros(0, np.int64)
    waiting_NK = np.array(rest_at_least, np.float64).reshape(len(rest_at_least), levels - 1)
    first_N = np.concatenate([np.array(rest_first, np.int64), block.first_label_L])
    return np.concatenate([waiting_NK, block.at_least_LK]), first_N


def level_indicators(first_N: Integers, levels: int) -> npt.NDArray[np.bool_]:
    """Return whether each first level is at least k, for k = 1 .. `levels` - 1."""
    return first_N[:, None] > np.arange(levels - 1)


def is_unknown(first_N: Integers) -> npt.NDArray[np.bool_]:
    """Return whether each whole block has a label whose first level is unknown."""
    unknown_B: npt.NDArray[np.bool_] = np.logical_or.reduce(first_N.reshape(-1, BLOCK) < 0, axis=1)
    return unknown_B


def advance_levels(process: OrderedEProcess, at_least_NK: Array, first_N: Integers) -> tuple[OrderedEProcess, Array]:
    """Return the evidence about levels after whole blocks, and log E after each.

    It starts anew after a block with an unknown first level. There log E is 0.
    """
    unknown_B, begin = is_unknown(first_N), 0
    log_e_B = np.zeros(len(unknown_B))
    for end in (*np.flatnonzero(unknown_B).tolist(), len(unknown_B)):
        rows = slice(begin * BLOCK, end * BLOCK)
        process, log_e_B[begin:end] = process.advance_each(
            at_least_NK[rows], level_indicators(first_N[rows], process.levels)
        )
        if end < len(unknown_B):
            process = OrderedEProcess.start(process.levels, process.tolerance)
        begin = end + 1
    return process, log_e_B


def points_to_keep(blocks: tuple[int, ...]) -> list[int]:
    """Return the indices of the blocks whose points are kept: the first, and every 2^k-th with the smallest possible k.

    The result depends only on the number of blocks, not on how often the history was thinned before.
    """
    if not blocks:
        return []
    step = 1
    while blocks[-1] // step > POINTS:
        step *= 2
    return [i for i, block in enumerate(blocks) if block == 1 or block % step == 0]


def pick(values: tuple[Any, ...], places: list[int]) -> tuple[Any, ...]:
    return tuple(values[i] for i in places)


def damaged_state(error: ValueError, what: str) -> StoreError:
    """Return the error for a stored state that cannot be read. `what` names the state in the message."""
    first = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else None
    problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)
    return StoreError(
        f"{what} in the store is damaged or of another release ({problem:.300}). It is left unchanged: restore the"
        " store from a backup, or use the release that wrote it"
    )
