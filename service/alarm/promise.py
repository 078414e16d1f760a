"""Evidence about a version's promise to act alone, from the labels of the answers that acted.

`Store.update_state` keeps it under the name PROMISE, beside the alarm's state. A version's promise never changes, so
the stored confidence and tag determine whether an answer acted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field

from service.alarm.evidence import WRITES, Delivery, Firing, Frozen, StoredAcknowledgement, damaged_state, reads
from service.models.acting import is_audited
from service.settings import Settings
from service.store.rows import LabelBlock
from trueodds.bundle import ActAlone
from trueodds.metrics import RiskEProcess

PROMISE = "promise"
"""Name of the state in the store."""


class PromiseState(Frozen):
    """State of the evidence about a promise. The promise and alpha stay as they were at its start."""

    form: Literal[1] = 1
    promise: ActAlone
    alpha: float
    audit_shares: tuple[float, ...] = ()
    """Audit shares that the service has used. A label with such a propensity counts if its answer was drawn."""
    sequence: int = Field(0, ge=0)
    """Sequence number of the last label taken from the log."""
    last_ms: int | None = None
    escalated: int = Field(0, ge=0)
    """Labels of escalated answers. The promise is not about them."""
    left_out: int = Field(0, ge=0)
    """Labels of acting answers that the audit had not requested, such as complaints."""
    least_propensity: float | None = None
    most_propensity: float | None = None
    """Smallest and largest propensity that callers gave for the labels of the evidence."""
    process: Annotated[RiskEProcess, reads(RiskEProcess), WRITES]
    fired: Firing | None = None
    deliveries: dict[str, Delivery] = Field(default_factory=dict)

    @classmethod
    def start(cls, promise: ActAlone, settings: Settings) -> Self:
        """Return the state before any label."""
        return cls(promise=promise, alpha=settings.alarm_alpha, process=RiskEProcess.start(promise.risk))

    @classmethod
    def read(cls, tree: Any, promise: ActAlone, settings: Settings) -> Self:
        """Read the state from the store's tree; a new state if there is none.

        Raises:
            StoreError: The state is damaged, or of another form or promise. It is not replaced.
        """
        if tree is None:
            return cls.start(promise, settings)
        try:
            state = cls.model_validate(tree)
            if state.promise != promise or state.process.risk != promise.risk:
                raise ValueError("it is of another promise")
        except ValueError as error:
            raise damaged_state(error, "the evidence about a promise") from None
        return state

    @property
    def paging(self) -> Self | None:
        """The evidence that calls webhooks: this state once it has fired, else None."""
        return None if self.fired is None else self

    @property
    def acknowledged(self) -> StoredAcknowledgement | None:
        """Always None. Nobody can acknowledge a broken promise; it stays until a new version makes a new one."""
        return None

    def knows(self, audit_share: float) -> bool:
        """Return whether answers audited with this share are already told apart from callers' propensities."""
        return not audit_share or audit_share in self.audit_shares

    def take(self, block: LabelBlock, audit_share: float) -> Self:
        """Return the state after the next labels. `audit_share` is the service's current setting."""
        shares = self.audit_shares
        if not self.knows(audit_share):
            shares = (*shares, audit_share)
        if not len(block):
            return self.model_copy(update={"audit_shares": shares})
        acts_L = self.promise.acts(block.confidence_L, block.tags)
        drawn_L = np.isin(block.propensity_L, shares)  # propensities of the audit, not of a caller
        counts_L = acts_L.copy()
        for place in np.flatnonzero(acts_L & drawn_L).tolist():
            counts_L[place] = is_audited(block.ids[place], float(block.propensity_L[place]))
        process, log_e_L = self.process.advance(~block.first_correct_L[counts_L])
        stated_L = block.propensity_L[counts_L & ~drawn_L & np.isfinite(block.propensity_L)].tolist()
        least, most = self.least_propensity, self.most_propensity
        if stated_L:
            least = min(stated_L) if least is None else min(least, *stated_L)
            most = max(stated_L) if most is None else max(most, *stated_L)
        fired, reached_L = self.fired, log_e_L >= -math.log(self.alpha)
        if fired is None and reached_L.any():
            k = int(np.argmax(reached_L))
            at_ms = int(block.arrived_ms_L[counts_L][k])
            fired = Firing(at_ms=at_ms, after=self.process.labels + k + 1, log_e=float(log_e_L[k]), by="e-process")
        deliveries = self.deliveries
        if fired and self.fired is None:
            deliveries = {key: d for key, d in deliveries.items() if d.fired_ms == fired.at_ms}
        after = {
            "audit_shares": shares,
            "sequence": int(block.sequence_L[-1]),
            "last_ms": int(block.arrived_ms_L[-1]),
            "escalated": self.escalated + int((~acts_L).sum()),
            "left_out": self.left_out + int((acts_L & ~counts_L).sum()),
            "least_propensity": least,
            "most_propensity": most,
            "process": process,
            "fired": fired,
            "deliveries": deliveries,
        }
        return self.model_copy(update=after)

    def anew(self, first: int) -> Self | None:
        """Return the state before any label, if labels in the log have changed from the sequence number `first` on.

        Return None if no label that the state has used has changed. Webhooks that got the alarm do not get it again if
        it fires in the same way.
        """
        if not 0 < first <= self.sequence:
            return None
        return type(self)(
            promise=self.promise,
            alpha=self.alpha,
            audit_shares=self.audit_shares,
            process=RiskEProcess.start(self.promise.risk),
            deliveries=self.deliveries,
        )

    def with_delivery(self, key: str, delivery: Delivery) -> Self:
        return self.model_copy(update={"deliveries": {**self.deliveries, key: delivery}})


def taking_promise(promise: ActAlone, settings: Settings) -> Callable[[Any, LabelBlock], Any]:
    """Return the step of `Store.update_state` that takes labels."""

    def step(tree: Any, block: LabelBlock) -> Any:
        state = PromiseState.read(tree, promise, settings)
        if tree is not None and not len(block) and state.knows(settings.audit_share):
            return tree
        return state.take(block, settings.audit_share).tree()

    return step


def restarting_promise(tree: Any, first: int) -> tuple[Any, int] | None:
    """Restart the evidence for `Store.void_labels`. Damaged evidence stays as it is."""
    try:
        state = PromiseState.model_validate(tree).anew(first)
    except ValueError:
        return None
    return None if state is None else (state.tree(), 0)
