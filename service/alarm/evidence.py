"""The parts of an alarm's state: evidence, its firing, and what people and webhooks made of it."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator

from service.store.rows import LabelBlock
from trueodds.metrics import EProcess, PositiveEProcess, Prequential, ShiryaevRoberts, WeightedEProcess

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
    model_config = ConfigDict(frozen=True, extra="forbid")


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
