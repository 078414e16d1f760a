"""Evidence about the coverage of a version's conformal sets, from the labels of its answers.

`Store.update_state` keeps it under the name COVERAGE, beside the alarm's state. The rules of a version never change,
and a set follows from the stored answer and its id. So each label has the set that was, or would have been, served.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field

from service.alarm.evidence import WRITES, Delivery, Firing, Frozen, StoredAcknowledgement, damaged_state, reads
from service.settings import Settings
from service.store.rows import NO_SET, LabelBlock, LabelledSets
from trueodds.calibrators.conformal import LiveSets, SetRule
from trueodds.calibrators.conformal.live_sets import WeightedCounts
from trueodds.metrics import RiskEProcess

COVERAGE = "coverage"
"""Name of the state in the store."""


class RuleEvidence(Frozen):
    """Counts of one rule's labelled sets, and the evidence that they cover too seldom."""

    live: LiveSets = LiveSets()
    weighted: WeightedCounts = WeightedCounts()
    process: Annotated[RiskEProcess, reads(RiskEProcess), WRITES]
    fired: Firing | None = None

    @classmethod
    def start(cls, rule: SetRule) -> Self:
        """Return the evidence before any label."""
        return cls(process=RiskEProcess.start(1 - min(rule.floors)))

    @property
    def acknowledged(self) -> StoredAcknowledgement | None:
        """Always None. Nobody can acknowledge sets that do not cover; a new version has new sets."""
        return None


class CoverageState(Frozen):
    """State of the evidence about the sets of a version. Its rules and alpha stay as they were at its start."""

    form: Literal[1] = 1
    rules: tuple[SetRule, ...]
    alpha: float
    """False alarm rate of the tests of all levels together, if the coverage is not below the floor."""
    sequence: int = Field(0, ge=0)
    """Sequence number of the last label taken from the log."""
    last_ms: int | None = None
    left_out: int = Field(0, ge=0)
    """Labels whose first value is unknown."""
    taken: int = Field(0, ge=0)
    """Labels that count."""
    with_propensity: int = Field(0, ge=0)
    """Number of these with a propensity."""
    least_propensity: float | None = None
    most_propensity: float | None = None
    evidence: tuple[RuleEvidence, ...]
    deliveries: dict[str, Delivery] = Field(default_factory=dict)

    @classmethod
    def start(cls, rules: tuple[SetRule, ...], settings: Settings) -> Self:
        """Return the state before any label."""
        return cls(rules=rules, alpha=settings.alarm_alpha, evidence=tuple(map(RuleEvidence.start, rules)))

    @classmethod
    def read(cls, tree: Any, rules: tuple[SetRule, ...], settings: Settings) -> Self:
        """Read the state from the store's tree; a new state if there is none.

        Raises:
            StoreError: The state is damaged, or of other rules. It is not replaced.
        """
        if tree is None:
            return cls.start(rules, settings)
        try:
            state = cls.model_validate(tree)
            if state.rules != rules or len(state.evidence) != len(rules):
                raise ValueError("it is of other rules")
        except ValueError as error:
            raise damaged_state(error, "the evidence about conformal sets") from None
        return state

    @property
    def paging(self) -> RuleEvidence | None:
        """Evidence that calls webhooks: that of the level that fired first; None if none has."""
        ended = [one for one in self.evidence if one.fired is not None]
        return min(ended, key=lambda one: one.fired.at_ms if one.fired else 0, default=None)

    @property
    def alpha_of_each(self) -> float:
        """Significance level of the test of one level."""
        return self.alpha / len(self.rules)

    @property
    def is_mixed(self) -> bool:
        """Whether labels had different chances, so that the labelled answers are no random sample of all."""
        return self.with_propensity not in (0, self.taken) or self.least_propensity != self.most_propensity

    def take(self, block: LabelBlock) -> Self:
        """Return the state after the next labels, which have their sets."""
        if not len(block):
            return self
        sets = block.sets
        assert isinstance(sets, LabelledSets)
        known_L = (sets.size_LK != NO_SET).all(axis=1)
        place_M = np.flatnonzero(known_L)
        propensity_M = block.propensity_L[place_M]
        stated_M = np.isfinite(propensity_M)
        betting = self._betting(propensity_M)
        tags = [block.tags[k] for k in place_M.tolist()]
        labels_M, arrived_M = block.first_label_L[place_M], block.arrived_ms_L[place_M]
        evidence = []
        for k, (rule, one) in enumerate(zip(self.rules, self.evidence, strict=True)):
            covered_M = sets.covered_LK[place_M, k]
            live = one.live.take(covered_M, sets.size_LK[place_M, k], labels_M, tags)
            weighted = one.weighted.take(1 / propensity_M[stated_M], covered_M[stated_M])
            bet = slice(0, betting)
            process, log_e_M = one.process.advance(~covered_M[bet], rule.risks(labels_M[bet]))
            fired, reached_M = one.fired, log_e_M >= -math.log(self.alpha_of_each)
            if fired is None and reached_M.any():
                m = int(np.argmax(reached_M))
                after = one.process.labels + m + 1
                fired = Firing(at_ms=int(arrived_M[m]), after=after, log_e=float(log_e_M[m]), by="e-process")
            evidence.append(RuleEvidence(live=live, weighted=weighted, process=process, fired=fired))
        least, most = self.least_propensity, self.most_propensity
        if stated_M.any():
            low, high = float(propensity_M[stated_M].min()), float(propensity_M[stated_M].max())
            least, most = min(low, low if least is None else least), max(high, high if most is None else most)
        changes = {
            "sequence": int(block.sequence_L[-1]),
            "last_ms": int(block.arrived_ms_L[-1]),
            "left_out": self.left_out + int((~known_L).sum()),
            "taken": self.taken + len(place_M),
            "with_propensity": self.with_propensity + int(stated_M.sum()),
            "least_propensity": least,
            "most_propensity": most,
            "evidence": tuple(evidence),
        }
        state = self.model_copy(update=changes)
        firing = state.paging.fired if state.paging else None
        if firing and self.paging is None:  # after a voiding, it may have fired before, on other labels
            kept = {key: d for key, d in self.deliveries.items() if d.fired_ms == firing.at_ms}
            return state.model_copy(update={"deliveries": kept})
        return state

    def _betting(self, propensity_M: Any) -> int:
        """Return how many of the next labels the tests use: those before the first one with another propensity."""
        if self.is_mixed or not len(propensity_M):
            return 0
        values_M = np.nan_to_num(propensity_M, nan=-1.0)
        first = values_M[0]
        if self.taken:
            first = -1.0 if self.least_propensity is None else self.least_propensity
        other_M = values_M != first
        return int(np.argmax(other_M)) if other_M.any() else len(values_M)

    def anew(self, first: int) -> Self | None:
        """Return the state before any label, if labels in the log have changed from the sequence number `first` on.

        Return None if no label that the state has used has changed.
        """
        if not 0 < first <= self.sequence:
            return None
        evidence = tuple(map(RuleEvidence.start, self.rules))
        return type(self)(rules=self.rules, alpha=self.alpha, evidence=evidence, deliveries=self.deliveries)

    def with_delivery(self, key: str, delivery: Delivery) -> Self:
        return self.model_copy(update={"deliveries": {**self.deliveries, key: delivery}})


def taking_sets(rules: tuple[SetRule, ...], settings: Settings) -> Callable[[Any, LabelBlock], Any]:
    """Return the step of `Store.update_state` that takes labels."""

    def step(tree: Any, block: LabelBlock) -> Any:
        if tree is not None and not len(block):
            return tree
        return CoverageState.read(tree, rules, settings).take(block).tree()

    return step


def restarting_sets(tree: Any, first: int) -> tuple[Any, int] | None:
    """Restart the evidence for `Store.void_labels`. Damaged evidence stays as it is."""
    try:
        state = CoverageState.model_validate(tree).anew(first)
    except ValueError:
        return None
    return None if state is None else (state.tree(), 0)
