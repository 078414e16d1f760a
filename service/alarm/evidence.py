"""The parts of an alarm's state: watched nulls and the evidence against them, its firing, and its news."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, ValidationError

from service.store.rows import LabelBlock, StoreError
from trueodds.metrics import MOST_RATIO, EProcess, PositiveEProcess, Prequential, ShiryaevRoberts, WeightedEProcess
from trueodds.reports.schemas.alarm import Watched
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveClass

NULLS: tuple[Watched, ...] = ("ece", "positive", "point")
"""Those that page first; "positive" is watched of versions with a positive class only."""
PAGING: tuple[Watched, ...] = ("ece", "positive")
POINTS = 192
"""Most points of the history; the first, the alarm and the present come to them."""
T = TypeVar("T", EProcess, ShiryaevRoberts, Prequential, WeightedEProcess)
Process = EProcess | PositiveEProcess


def reads(form: type[T]) -> PlainValidator:
    return PlainValidator(lambda value: value if isinstance(value, form) else form.from_json(value))


def _process(value: Process | dict[str, object]) -> Process:
    if isinstance(value, EProcess | PositiveEProcess):
        return value
    form = PositiveEProcess if isinstance(value, dict) and value.get("form") == PositiveEProcess.form else EProcess
    return form.from_json(value)


WRITES = PlainSerializer(lambda state: state.to_json())


class Frozen(BaseModel):
    """A part of a state, or a state, as the store keeps it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def tree(self) -> dict[str, Any]:
        """Return what JSON writes of it; validating that restores it exactly."""
        return self.model_dump(mode="json")


class Firing(Frozen):
    """When the evidence reached its threshold: once for each version."""

    at_ms: int
    """Arrival of the label that completed the block."""
    after: int
    """Labels until then."""
    log_e: float
    by: Literal["e-process", "shiryaev-roberts"]


class StoredAcknowledgement(Frozen):
    who: str
    why: str
    at_ms: int


class StoredRearming(Frozen):
    """The end of a watch that had alarmed, and the beginning of the next."""

    who: str
    why: str
    at_ms: int
    alpha: float
    """Of the watch that ended."""
    labels: int
    """On which it was based."""
    fired_ms: int | None
    """When it had alarmed; None: of a notice only."""


class Delivery(Frozen):
    """The delivery of an alarm's news to one webhook."""

    attempts: int = 0
    claimed_by: str | None = None
    claimed_until_ms: int = 0
    next_ms: int = 0
    """Not tried again before."""
    fired_ms: int | None = None
    """When the evidence fired that the news are about."""
    delivered_ms: int | None = None
    problem: str = ""
    """Why the last try failed."""


class Evidence(Frozen):
    """Against one null hypothesis."""

    process: Annotated[Process, PlainValidator(_process), WRITES]
    detector: Annotated[ShiryaevRoberts, reads(ShiryaevRoberts), WRITES] | None
    fired: Firing | None = None
    acknowledged: StoredAcknowledgement | None = None
    log_e: tuple[float, ...] = ()
    """After the blocks of the history, rounded: it is only drawn."""


class WeightedTest(Frozen):
    """Against "the ECE of all answers so far is within the tolerance", by the labels that came with a propensity."""

    process: Annotated[WeightedEProcess, reads(WeightedEProcess), WRITES]
    fired: Firing | None = None
    """Labels until then are those on which bets were placed."""

    def take(self, block: LabelBlock, alpha: float) -> Self:
        """The evidence after the labels that came next; those without a propensity are left out."""
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


def damaged(error: ValueError, what: str) -> StoreError:
    """Return the error of a stored state that cannot be read; `what` it is about, in words."""
    first = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else None
    problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}" if first else str(error)
    return StoreError(
        f"{what} in the store is damaged or of another release ({problem:.300}). It is left as it is: restore the store"
        " from a backup, or use the release that wrote it"
    )
