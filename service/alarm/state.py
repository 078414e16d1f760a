"""State of a version's alarm: the evidence from its labels, in the order of their arrival, and its consequences.

`Store.update_state` keeps it under the name ALARM. Each label is used once, as it first arrived. The state does not
depend on how the log is cut: labels are evaluated in blocks of 20, and those after the last whole block wait in the
state.
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
    advance_levels,
    damaged_state,
    is_unknown,
    level_indicators,
    pick,
    points_to_keep,
    reads,
    rows_of_levels,
    rows_of_positive,
    start_of,
)
from service.settings import Settings
from service.store.rows import LabelBlock
from trueodds.metrics import EProcess, OrderedEProcess, PositiveEProcess, Prequential, ShiryaevRoberts, WeightedEProcess
from trueodds.metrics.alarms.sequential import BLOCK
from trueodds.processes.choices import SMALLEST_PROPENSITY
from trueodds.reports.schemas.alarm import Watched
from trueodds.sums.inputs import Array
from trueodds.sums.positive import PositiveClass

ALARM = "alarm"
"""Name of the state in the store."""
_NULL_OF: dict[type, Watched] = {PositiveEProcess: "positive", OrderedEProcess: "levels"}


class AlarmState(Frozen):
    """State of an alarm. It keeps the settings that it began with, because changing a test after its data voids it."""

    form: Literal[2] = 2
    tolerance: float
    ratio_tolerance: float
    """Largest acceptable ratio of expected to observed positives, either way."""
    alpha: float
    """False alarm rate of all paging tests together."""
    run_length: int | None
    watches_levels: bool = False
    """Whether the levels of ordered classes are watched, if the version has any."""
    propensity_floor: float = SMALLEST_PROPENSITY
    labels: int = Field(0, ge=0)
    sequence: int = Field(0, ge=0)
    """Sequence number of the last label taken from the log."""
    start_sequence: int = Field(0, ge=0)
    """Sequence number up to which labels belong to earlier watches."""
    rearmings: tuple[StoredRearming, ...] = ()
    last_ms: int | None = None
    """Arrival of the last label."""
    rest_confidence: tuple[float, ...] = Field((), max_length=BLOCK - 1)
    rest_correct: tuple[bool, ...] = Field((), max_length=BLOCK - 1)
    rest_p: tuple[float, ...] = Field((), max_length=BLOCK - 1)
    """p(positive) of the labels that wait; empty without a positive class."""
    rest_positive: tuple[bool, ...] = Field((), max_length=BLOCK - 1)
    rest_at_least: tuple[tuple[float, ...], ...] = Field((), max_length=BLOCK - 1)
    """Probabilities of "at least level k" of the labels that wait; empty unless levels are watched."""
    rest_first_label: tuple[int, ...] = Field((), max_length=BLOCK - 1)
    levels_after: int = Field(0, ge=0)
    """Number of labels, in whole blocks, up to the last one whose first level is unknown.

    The evidence about levels begins after them, because evidence without them would be biased.
    """
    history_blocks: tuple[int, ...] = ()
    history_ms: tuple[int, ...] = ()
    nulls: dict[Watched, Evidence]
    weighted: WeightedTest | None = None
    """Weighted evidence. None before the first label with a propensity."""
    prequential: Annotated[Prequential, reads(Prequential), WRITES]
    deliveries: dict[str, Delivery] = Field(default_factory=dict)
    """Deliveries by a hash of the webhook's URL, because a URL may hold a secret."""

    @property
    def history_labels(self) -> list[int]:
        """Numbers of labels at the points of the history."""
        return [block * BLOCK for block in self.history_blocks]

    @property
    def watched_nulls(self) -> tuple[Watched, ...]:
        """Nulls with evidence; those that page come first."""
        return tuple(null for null in NULLS if null in self.nulls)

    @property
    def paging(self) -> Evidence | None:
        """Evidence that calls somebody: of the fired nulls that page, the one that fired first."""
        fired = [self.nulls[null] for null in PAGING if null in self.nulls and self.nulls[null].fired]
        return min(fired, key=lambda one: one.fired.after if one.fired else 0, default=None)

    @property
    def alpha_of_each(self) -> float:
        """Significance level of each null. Two nulls that page get half of `alpha` each, so their sum is `alpha`."""
        return self.alpha / sum(null in self.nulls for null in PAGING)

    @classmethod
    def start(cls, settings: Settings) -> Self:
        """Return the state before any label."""
        tolerance, run_length = settings.alarm_tolerance, settings.alarm_run_length
        nulls: dict[Watched, Evidence] = {null: start_of(null, tolerance, run_length) for null in ("ece", "point")}
        return cls(
            tolerance=tolerance,
            ratio_tolerance=settings.alarm_ratio_tolerance,
            alpha=settings.alarm_alpha,
            run_length=run_length,
            watches_levels=settings.alarm_levels,
            propensity_floor=settings.alarm_propensity_floor,
            nulls=nulls,
            prequential=Prequential.start(),
        )

    @classmethod
    def read(cls, tree: Any, settings: Settings) -> Self:
        """Read the state from the store's tree; a new state if there is none.

        Raises:
            StoreError: The state is damaged or of another form. It is not replaced, because evidence must never start
                afresh.
        """
        if tree is None:
            return cls.start(settings)
        try:
            state = cls.model_validate(tree)
            state._check()
        except ValueError as error:
            raise damaged_state(error, "the alarm's evidence") from None
        return state

    def _check(self) -> None:
        """Raise ValueError unless all parts have the same labels and settings."""
        blocks = self.labels // BLOCK
        if not {"ece", "point"} <= set(self.nulls):
            raise ValueError(f"there is evidence about {sorted(self.nulls)}; expected ece and point")
        waiting = self.labels % BLOCK if "positive" in self.nulls else 0
        if not len(self.rest_p) == len(self.rest_positive) == waiting:
            raise ValueError(f"{len(self.rest_p)} values of p(positive) wait for their block, but {waiting} labels do")
        levels = self.nulls["levels"].process if "levels" in self.nulls else None
        waiting = 0 if levels is None else self.labels % BLOCK
        if not len(self.rest_at_least) == len(self.rest_first_label) == waiting:
            raise ValueError(f"{len(self.rest_at_least)} rows of levels wait for their block, but {waiting} labels do")
        if isinstance(levels, OrderedEProcess) and {len(row) + 1 for row in self.rest_at_least} - {levels.levels}:
            raise ValueError(f"the rows of levels that wait are not of {levels.levels} levels")
        if self.levels_after % BLOCK or self.levels_after > self.labels:
            raise ValueError(f"the evidence about levels begins after {self.levels_after} of {self.labels} labels")
        if not len(self.rest_confidence) == len(self.rest_correct) == self.labels % BLOCK:
            raise ValueError(f"{len(self.rest_confidence)} labels wait for their block, but {self.labels} arrived")
        if self.weighted and (self.weighted.process.tolerance, self.weighted.process.floor) != (
            self.tolerance,
            self.propensity_floor,
        ):
            raise ValueError("the weighted evidence has another tolerance or floor")
        tests: list[Process | ShiryaevRoberts | Prequential] = [self.prequential]
        for null, evidence in self.nulls.items():
            process = evidence.process
            of = process.null if isinstance(process, EProcess) else _NULL_OF[type(process)]
            if isinstance(process, PositiveEProcess) and process.ratio != self.ratio_tolerance:
                raise ValueError("the evidence of positive has another ratio")
            if (of, process.tolerance) != (null, self.tolerance):
                raise ValueError(f"the evidence of {null} has another null or tolerance")
            if not len(evidence.log_e) == len(self.history_blocks) == len(self.history_ms):
                raise ValueError(f"the history of {null} has lost points")
            if isinstance(process, OrderedEProcess):
                expected = blocks - self.levels_after // BLOCK
                if (process.blocks, process.labels) != (expected, expected * BLOCK):
                    raise ValueError(f"the evidence about levels has another number of labels than {expected * BLOCK}")
                continue
            tests += [evidence.process] + ([evidence.detector] if evidence.detector else [])
        if any((test.blocks, test.labels) != (blocks, blocks * BLOCK) for test in tests):
            raise ValueError(f"{self.labels} labels arrived, but the tests have another number")

    def watching(self, positive: bool, levels: int | None = None) -> Self:
        """Return a state that also watches p(positive), or levels if the settings ask for it, if there is no label yet.

        Args:
            positive: Whether the version has a positive class.
            levels: Number of its levels; None without levels to watch.
        """
        missing: list[Watched] = ["positive"] if positive else []
        if self.watches_levels and levels is not None:
            missing.append("levels")
        if self.labels or not (missing := [null for null in missing if null not in self.nulls]):
            return self
        starts = {null: self._start_of(null, levels) for null in missing}
        return self.model_copy(update={"nulls": {**self.nulls, **starts}})

    def _start_of(self, null: Watched, levels: int | None) -> Evidence:
        return start_of(null, self.tolerance, self.run_length, self.ratio_tolerance, levels or 2)

    @property
    def levels(self) -> int | None:
        """Number of the watched levels; None if none are watched."""
        process = self.nulls["levels"].process if "levels" in self.nulls else None
        return process.levels if isinstance(process, OrderedEProcess) else None

    def take(self, block: LabelBlock, positive: PositiveClass | None = None, levels: int | None = None) -> Self:
        """Return the state after the next labels.

        Args:
            block: The labels, with `at_least_LK` if levels are watched.
            positive: Positive class of the version.
            levels: Number of its levels; see `watching`.
        """
        if not len(block):
            return self
        return self.watching(positive is not None, levels)._take(block, positive)

    def _take(self, block: LabelBlock, positive: PositiveClass | None) -> Self:
        waiting = len(self.rest_confidence)
        confidence_N = np.concatenate([self.rest_confidence, block.confidence_L])
        correct_N = np.concatenate([np.array(self.rest_correct, bool), block.first_correct_L])
        whole = len(confidence_N) // BLOCK * BLOCK
        number_B = self.labels // BLOCK + 1 + np.arange(whole // BLOCK)
        at_ms_B = block.arrived_ms_L[(np.arange(len(number_B)) + 1) * BLOCK - 1 - waiting]
        taken = confidence_N[:whole], correct_N[:whole]
        p_N, positive_N = rows_of_positive(block, positive, self.rest_p, self.rest_positive)
        at_least_NK, first_N = rows_of_levels(block, self.levels, self.rest_at_least, self.rest_first_label)
        unknown_B = is_unknown(first_N[:whole])
        levels_after = max((int(number_B[b]) * BLOCK for b in np.flatnonzero(unknown_B)), default=self.levels_after)
        blocks, at_ms = (*self.history_blocks, *number_B.tolist()), (*self.history_ms, *at_ms_B.tolist())
        kept = points_to_keep(blocks)
        nulls, deliveries = {}, self.deliveries
        for null, evidence in self.nulls.items():
            process: Process
            if isinstance(evidence.process, OrderedEProcess):
                process, log_e_B = advance_levels(evidence.process, at_least_NK[:whole], first_N[:whole])
            else:
                of_null = (p_N[:whole], positive_N[:whole]) if null == "positive" else taken
                process, log_e_B = evidence.process.advance_each(*of_null)
            detector, log_r_B = evidence.detector.advance_each(*taken) if evidence.detector else (None, None)
            log_e = (*evidence.log_e, *(round(x, 4) for x in log_e_B.tolist()))
            fired = evidence.fired or self._firing(log_e_B, log_r_B, number_B, at_ms_B)
            acknowledged = evidence.acknowledged
            if fired and evidence.fired is None:  # after a voiding, it may have fired before, on other labels
                if acknowledged and acknowledged.at_ms < fired.at_ms:
                    acknowledged = None
                if null in PAGING and self.paging is None:
                    deliveries = {key: d for key, d in deliveries.items() if d.fired_ms == fired.at_ms}
            change = {"process": process, "detector": detector, "fired": fired, "log_e": pick(log_e, kept)}
            nulls[null] = evidence.model_copy(update={**change, "acknowledged": acknowledged})
        after = {
            "labels": self.labels + len(block),
            "sequence": int(block.sequence_L[-1]),
            "last_ms": int(block.arrived_ms_L[-1]),
            "rest_confidence": tuple(confidence_N[whole:].tolist()),
            "rest_correct": tuple(correct_N[whole:].tolist()),
            "rest_p": tuple(p_N[whole:].tolist()),
            "rest_positive": tuple(positive_N[whole:].tolist()),
            "rest_at_least": tuple(map(tuple, at_least_NK[whole:].tolist())),
            "rest_first_label": tuple(first_N[whole:].tolist()),
            "levels_after": levels_after,
            "history_blocks": pick(blocks, kept),
            "history_ms": pick(at_ms, kept),
            "nulls": nulls,
            "weighted": self._advance_weighted_test(block),
            "prequential": self.prequential.advance_each(*taken),
            "deliveries": deliveries,
        }
        return self.model_copy(update=after)

    def _advance_weighted_test(self, block: LabelBlock) -> WeightedTest | None:
        if self.weighted is None and not np.isfinite(block.propensity_L).any():
            return None
        start = WeightedEProcess.start(self.tolerance, self.propensity_floor)
        return (self.weighted or WeightedTest(process=start)).take(block, self.alpha)

    def _firing(self, log_e_B: Array, log_r_B: Array | None, number_B: Any, at_ms_B: Any) -> Firing | None:
        """Return the firing at the first of these blocks that reaches a threshold, if any."""
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
        """Return log E of all labels, including the unfinished block, whose stakes were set when it began."""
        process = self.nulls[null].process
        if not self.rest_confidence:
            return process.log_e
        if isinstance(process, OrderedEProcess):
            first_N = np.array(self.rest_first_label)
            if (first_N < 0).any():
                return process.log_e
            rows = self.rest_at_least, level_indicators(first_N, process.levels)
            return float(process.advance_each(*rows, len(first_N))[1][0])
        rest = (self.rest_p, self.rest_positive) if null == "positive" else (self.rest_confidence, self.rest_correct)
        return float(process.advance_each(*rest, len(rest[0]))[1][0])

    def acknowledge(self, nulls: tuple[Watched, ...], by: StoredAcknowledgement) -> Self:
        """Return the state with the fired ones of these nulls acknowledged. Earlier acknowledgements stay."""
        changed = {
            null: self.nulls[null].model_copy(update={"acknowledged": by})
            for null in nulls
            if null in self.nulls and self.nulls[null].fired and self.nulls[null].acknowledged is None
        }
        return self.model_copy(update={"nulls": {**self.nulls, **changed}})

    def anew(self, first: int) -> Self | None:
        """Return the state before any label, if labels in the log have changed from the sequence number `first` on.

        Return None if no label that the state has used has changed. The tests keep their settings. An acknowledgement
        stays valid if the alarm fires again on labels that had arrived by then. Webhooks that got the alarm do not get
        it again.
        """
        if not self.start_sequence < first <= self.sequence:
            return None
        nulls = {}
        for null, evidence in self.nulls.items():
            start = self._start_of(null, self.levels)
            nulls[null] = start.model_copy(update={"acknowledged": evidence.acknowledged})
        return type(self)(
            tolerance=self.tolerance,
            ratio_tolerance=self.ratio_tolerance,
            alpha=self.alpha,
            run_length=self.run_length,
            watches_levels=self.watches_levels,
            propensity_floor=self.propensity_floor,
            nulls=nulls,
            prequential=Prequential.start(),
            deliveries=self.deliveries,
            sequence=self.start_sequence,
            start_sequence=self.start_sequence,
            rearmings=self.rearmings,
        )

    def rearm(self, who: str, why: str, at_ms: int, settings: Settings) -> Self:
        """Return a new watch, with the current settings, over the labels that arrive from now on.

        The time of re-arming depends only on past labels, so the new evidence is as valid as the first. Each watch has
        a false alarm rate of at most alpha. For k + 1 watches the rate is at most the sum of their alphas (union
        bound). A smaller alpha for each later watch, alpha / 2^k, would slow down exactly those watches that have most
        to find.
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
        return self.start(settings).watching("positive" in self.nulls, self.levels).model_copy(update=change)

    def with_delivery(self, key: str, delivery: Delivery) -> Self:
        return self.model_copy(update={"deliveries": {**self.deliveries, key: delivery}})
