"""The evidence about a version by the labels that came back, in the order of their arrival, and what it set off.

Kept by `store.fold` under the name ALARM. Each label is taken once, as it first arrived, and the state is the same
however the log is cut: blocks of 20 are committed, the labels after the last whole one wait in the state.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field

from service.alarm.evidence import (
    NULLS,
    PAGING,
    WRITES,
    Delivery,
    Evidence,
    Firing,
    Frozen,
    Process,
    StoredAcknowledgement,
    StoredRearming,
    WeightedTest,
    chosen,
    damaged,
    reads,
    rows_of_positive,
    start_of,
    thinned,
)
from service.settings import Settings
from service.store.rows import LabelBlock
from trueodds.metrics import PositiveEProcess, Prequential, ShiryaevRoberts, WeightedEProcess
from trueodds.metrics.alarms.sequential import BLOCK
from trueodds.metrics.alarms.weighted_e_process import FLOOR
from trueodds.reports.schemas.alarm import Watched
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveClass

ALARM = "alarm"
"""Name of the state in the store."""


class AlarmState(Frozen):
    """See the module. The settings it began with stay: to change a test after having seen its data voids it."""

    form: Literal[2] = 2
    tolerance: float
    ratio_tolerance: float
    """Largest acceptable ratio of expected to observed positives, either way."""
    alpha: float
    """False alarm rate of all paging tests together."""
    run_length: int | None
    propensity_floor: float = FLOOR
    labels: int = Field(0, ge=0)
    sequence: int = Field(0, ge=0)
    """Of the last label in the log."""
    start_sequence: int = Field(0, ge=0)
    """Labels up to there are those of earlier watches."""
    rearmings: tuple[StoredRearming, ...] = ()
    last_ms: int | None = None
    """Arrival of the last label."""
    rest_confidence: tuple[float, ...] = Field((), max_length=BLOCK - 1)
    rest_correct: tuple[bool, ...] = Field((), max_length=BLOCK - 1)
    rest_p: tuple[float, ...] = Field((), max_length=BLOCK - 1)
    """p(positive) of the labels that wait; empty where there is no positive class."""
    rest_positive: tuple[bool, ...] = Field((), max_length=BLOCK - 1)
    history_blocks: tuple[int, ...] = ()
    history_ms: tuple[int, ...] = ()
    nulls: dict[Watched, Evidence]
    weighted: WeightedTest | None = None
    """None before the first label that has a propensity."""
    prequential: Annotated[Prequential, reads(Prequential), WRITES]
    deliveries: dict[str, Delivery] = Field(default_factory=dict)
    """By a hash of the webhook's URL: a URL may hold a secret."""

    @property
    def history_labels(self) -> list[int]:
        """Labels at the points of the history."""
        return [block * BLOCK for block in self.history_blocks]

    @property
    def watched(self) -> tuple[Watched, ...]:
        """The nulls there is evidence about, those that page first."""
        return tuple(null for null in NULLS if null in self.nulls)

    @property
    def paging(self) -> Evidence | None:
        """The evidence that calls somebody: of the nulls that page and have fired, the one that fired first."""
        fired = [self.nulls[null] for null in PAGING if null in self.nulls and self.nulls[null].fired]
        return min(fired, key=lambda one: one.fired.after if one.fired else 0, default=None)

    @property
    def alpha_of_each(self) -> float:
        """The level of each null. Two that page share `alpha` in halves, so both together alarm falsely no oftener."""
        return self.alpha / 2 if "positive" in self.nulls else self.alpha

    @classmethod
    def start(cls, settings: Settings) -> Self:
        """Before any label."""
        tolerance, run_length = settings.alarm_tolerance, settings.alarm_run_length
        nulls: dict[Watched, Evidence] = {null: start_of(null, tolerance, run_length) for null in ("ece", "point")}
        return cls(
            tolerance=tolerance,
            ratio_tolerance=settings.alarm_ratio_tolerance,
            alpha=settings.alarm_alpha,
            run_length=run_length,
            propensity_floor=settings.alarm_propensity_floor,
            nulls=nulls,
            prequential=Prequential.start(),
        )

    @classmethod
    def read(cls, tree: Any, settings: Settings) -> Self:
        """The state that the store gave; a new one where it has none.

        Raises:
            StoreError: a damaged state, or one of another form. Nothing replaces it: evidence never begins anew.
        """
        if tree is None:
            return cls.start(settings)
        try:
            state = cls.model_validate(tree)
            state._check()
        except ValueError as error:
            raise damaged(error, "the alarm's evidence") from None
        return state

    def _check(self) -> None:
        """Raises ValueError unless the parts are of the same labels and settings."""
        blocks = self.labels // BLOCK
        if not {"ece", "point"} <= set(self.nulls):
            raise ValueError(f"there is evidence of {sorted(self.nulls)}; expected ece and point")
        waiting = self.labels % BLOCK if "positive" in self.nulls else 0
        if not len(self.rest_p) == len(self.rest_positive) == waiting:
            raise ValueError(f"{len(self.rest_p)} p(positive) wait for their block; {waiting} labels do")
        if not len(self.rest_confidence) == len(self.rest_correct) == self.labels % BLOCK:
            raise ValueError(f"{len(self.rest_confidence)} labels wait for their block; {self.labels} arrived")
        if self.weighted and (self.weighted.process.tolerance, self.weighted.process.floor) != (
            self.tolerance,
            self.propensity_floor,
        ):
            raise ValueError("the weighted evidence is of another tolerance or floor")
        tests: list[Process | ShiryaevRoberts | Prequential] = [self.prequential]
        for null, evidence in self.nulls.items():
            process = evidence.process
            of = "positive" if isinstance(process, PositiveEProcess) else process.null
            if isinstance(process, PositiveEProcess) and process.ratio != self.ratio_tolerance:
                raise ValueError("the evidence of positive is of another ratio")
            if (of, process.tolerance) != (null, self.tolerance):
                raise ValueError(f"the evidence of {null} is of another null or tolerance")
            if not len(evidence.log_e) == len(self.history_blocks) == len(self.history_ms):
                raise ValueError(f"the history of {null} has lost points")
            tests += [evidence.process] + ([evidence.detector] if evidence.detector else [])
        if any((test.blocks, test.labels) != (blocks, blocks * BLOCK) for test in tests):
            raise ValueError(f"{self.labels} labels arrived, and the tests are of another number")

    def watching(self, positive: bool) -> Self:
        """The state that watches p(positive), too, of a version that has a positive class; before any label only."""
        if not positive or "positive" in self.nulls or self.labels:
            return self
        start = PositiveEProcess.start(self.tolerance, self.ratio_tolerance)
        return self.model_copy(update={"nulls": {**self.nulls, "positive": Evidence(process=start, detector=None)}})

    def take(self, block: LabelBlock, positive: PositiveClass | None = None) -> Self:
        """The state after the labels that came next; `positive`: the version's positive class."""
        if not len(block):
            return self
        return self.watching(positive is not None)._take(block, positive)

    def _take(self, block: LabelBlock, positive: PositiveClass | None) -> Self:
        waiting = len(self.rest_confidence)
        confidence_N = np.concatenate([self.rest_confidence, block.confidence_L])
        correct_N = np.concatenate([np.array(self.rest_correct, bool), block.first_correct_L])
        whole = len(confidence_N) // BLOCK * BLOCK
        number_B = self.labels // BLOCK + 1 + np.arange(whole // BLOCK)
        at_ms_B = block.arrived_ms_L[(np.arange(len(number_B)) + 1) * BLOCK - 1 - waiting]
        taken = confidence_N[:whole], correct_N[:whole]
        p_N, positive_N = rows_of_positive(block, positive, self.rest_p, self.rest_positive)
        blocks, at_ms = (*self.history_blocks, *number_B.tolist()), (*self.history_ms, *at_ms_B.tolist())
        kept = thinned(blocks)
        nulls, deliveries = {}, self.deliveries
        for null, evidence in self.nulls.items():
            of_null = (p_N[:whole], positive_N[:whole]) if null == "positive" else taken
            process, log_e_B = evidence.process.advance_each(*of_null)
            detector, log_r_B = evidence.detector.advance_each(*taken) if evidence.detector else (None, None)
            log_e = (*evidence.log_e, *(round(x, 4) for x in log_e_B.tolist()))
            fired = evidence.fired or self._fired(log_e_B, log_r_B, number_B, at_ms_B)
            acknowledged = evidence.acknowledged
            if fired and evidence.fired is None:  # before, if labels were voided, it may have fired on other labels
                if acknowledged and acknowledged.at_ms < fired.at_ms:
                    acknowledged = None
                if null in PAGING and self.paging is None:
                    deliveries = {key: d for key, d in deliveries.items() if d.fired_ms == fired.at_ms}
            change = {"process": process, "detector": detector, "fired": fired, "log_e": chosen(log_e, kept)}
            nulls[null] = evidence.model_copy(update={**change, "acknowledged": acknowledged})
        after = {
            "labels": self.labels + len(block),
            "sequence": int(block.sequence_L[-1]),
            "last_ms": int(block.arrived_ms_L[-1]),
            "rest_confidence": tuple(confidence_N[whole:].tolist()),
            "rest_correct": tuple(correct_N[whole:].tolist()),
            "rest_p": tuple(p_N[whole:].tolist()),
            "rest_positive": tuple(positive_N[whole:].tolist()),
            "history_blocks": chosen(blocks, kept),
            "history_ms": chosen(at_ms, kept),
            "nulls": nulls,
            "weighted": self._weighted(block),
            "prequential": self.prequential.advance_each(*taken),
            "deliveries": deliveries,
        }
        return self.model_copy(update=after)

    def _weighted(self, block: LabelBlock) -> WeightedTest | None:
        if self.weighted is None and not np.isfinite(block.propensity_L).any():
            return None
        start = WeightedEProcess.start(self.tolerance, self.propensity_floor)
        return (self.weighted or WeightedTest(process=start)).take(block, self.alpha)

    def _fired(self, log_e_B: Array, log_r_B: Array | None, number_B: Any, at_ms_B: Any) -> Firing | None:
        """The first of these blocks at which a threshold is reached, if any."""
        reached_B = log_e_B >= -math.log(self.alpha_of_each)
        by_detector_B = np.zeros_like(reached_B)
        if log_r_B is not None and self.run_length is not None:
            by_detector_B = log_r_B >= math.log(self.run_length / BLOCK)
        if not (reached_B | by_detector_B).any():
            return None
        b = int(np.argmax(reached_B | by_detector_B))
        by: Literal["e-process", "shiryaev-roberts"] = "e-process" if reached_B[b] else "shiryaev-roberts"
        return Firing(at_ms=int(at_ms_B[b]), after=int(number_B[b]) * BLOCK, log_e=float(log_e_B[b]), by=by)

    def log_e(self, null: Watched) -> float:
        """log E of all labels, those of the unfinished block too: its stakes were laid when it began."""
        process = self.nulls[null].process
        if not self.rest_confidence:
            return process.log_e
        rest = (self.rest_p, self.rest_positive) if null == "positive" else (self.rest_confidence, self.rest_correct)
        return float(process.advance_each(*rest, len(rest[0]))[1][0])

    def acknowledge(self, nulls: tuple[Watched, ...], by: StoredAcknowledgement) -> Self:
        """The state in which the fired ones of these nulls are acknowledged; those that were, stay as they are."""
        changed = {
            null: self.nulls[null].model_copy(update={"acknowledged": by})
            for null in nulls
            if null in self.nulls and self.nulls[null].fired and self.nulls[null].acknowledged is None
        }
        return self.model_copy(update={"nulls": {**self.nulls, **changed}})

    def anew(self, first: int) -> Self | None:
        """The state before any label, where labels in the log from `first` on are not those that were taken.

        Tests keep their settings. Who acknowledged an alarm has done so still if it fires on labels that had come by
        then, and who was told of it is not told again. None: no label that was taken has changed.
        """
        if not self.start_sequence < first <= self.sequence:
            return None
        nulls = {}
        for null, evidence in self.nulls.items():
            start = start_of(null, self.tolerance, self.run_length, self.ratio_tolerance)
            nulls[null] = start.model_copy(update={"acknowledged": evidence.acknowledged})
        return type(self)(
            tolerance=self.tolerance,
            ratio_tolerance=self.ratio_tolerance,
            alpha=self.alpha,
            run_length=self.run_length,
            propensity_floor=self.propensity_floor,
            nulls=nulls,
            prequential=Prequential.start(),
            deliveries=self.deliveries,
            sequence=self.start_sequence,
            start_sequence=self.start_sequence,
            rearmings=self.rearmings,
        )

    def rearm(self, who: str, why: str, at_ms: int, settings: Settings) -> Self:
        """A new watch, with the settings of today, over the labels that come from now on.

        The moment depends on labels that have come only, so the new evidence is as valid as the first: at most alpha
        of the sound versions alarm falsely in each watch, and in k + 1 of them at most the sum of their alphas (union
        bound). To spend less on each later watch, alpha / 2^k, would make those slower that have the most to find.
        """
        fired = self.paging.fired if self.paging else None
        ended = StoredRearming(
            who=who,
            why=why,
            at_ms=at_ms,
            alpha=self.alpha,
            labels=self.labels,
            fired_ms=None if fired is None else fired.at_ms,
        )
        change = {
            "sequence": self.sequence,
            "start_sequence": self.sequence,
            "rearmings": (*self.rearmings, ended),
            "last_ms": self.last_ms,
        }
        return self.start(settings).watching("positive" in self.nulls).model_copy(update=change)

    def with_delivery(self, key: str, delivery: Delivery) -> Self:
        return self.model_copy(update={"deliveries": {**self.deliveries, key: delivery}})
