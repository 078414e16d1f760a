"""Result of an audit as pydantic models: what the command writes to a file, and what the service answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, Field

from trueodds.evaluation.worst_group import GroupAudit, WorstGroup
from trueodds.texts import plural


class AuditCondition(BaseModel):
    """One condition of a group."""

    feature: str
    relation: str = Field(description="`<=`, `>`, `is`, `is not`, `is missing` or `is not missing`")
    value: float | str | None
    with_missing: bool = Field(description="rows without a value belong to the group")


class AuditedGroup(BaseModel):
    """Group that was found on one half of the rows. Its numbers are those of the other half."""

    words: str = Field(description="the group in words")
    conditions: list[AuditCondition] = Field(description="conditions that all hold; empty: all rows")
    labels: int = Field(description="labelled rows of the group in that half")
    rows: int = Field(description="those that count; fewer than labels if the propensities differ")
    share: float = Field(description="share of the group in that half, weighted by 1 / propensity")
    accuracy: float | None = Field(description="null: no row of that half is in the group")
    mean_confidence: float | None
    signed_gap: float | None = Field(description="accuracy minus mean confidence")
    lower: float = Field(description="lower end of the interval of the signed gap")
    upper: float
    log_e: float = Field(description='natural logarithm of the e-value against "the gap is within the tolerance"')
    is_found: bool = Field(description="the e-value reaches the threshold")

    @classmethod
    def of(cls, group: WorstGroup) -> AuditedGroup:
        """Convert a group."""
        return cls(
            words=group.words,
            conditions=[AuditCondition(**vars(one)) for one in group.conditions],
            labels=group.labels,
            rows=group.rows,
            share=group.share,
            accuracy=group.accuracy if group.rows else None,
            mean_confidence=group.mean_confidence if group.rows else None,
            signed_gap=group.signed_gap if group.rows else None,
            lower=group.lower,
            upper=group.upper,
            log_e=group.log_e,
            is_found=group.is_found,
        )

    def line(self, level: float, threshold: float) -> str:
        """Format the group with its numbers as a line."""
        if self.accuracy is None or self.mean_confidence is None or self.signed_gap is None:
            return f"{self.words}: no row of the other half is in it."
        found = "found" if self.is_found else "not found"
        span = f"{self.lower:+.3f} to {self.upper:+.3f}"
        counted = f"{self.rows:,} rows"
        if self.rows < self.labels:
            counted = f"{self.rows:,} of {self.labels:,} labels, drawn so that each answer has the same chance of one"
        return (
            f"{self.words}: right {self.accuracy:.1%} of the time, says {self.mean_confidence:.1%}. Signed error"
            f" {self.signed_gap:+.3f} ({level:.0%} interval {span}), {counted}"
            f" ({self.share:.0%} of the answers). log e-value {self.log_e:.1f}, {found} from"
            f" {math.log(threshold):.1f} on."
        )


class Audit(BaseModel):
    """Audit: the group with the worst calibration, found on one half of the labelled rows and tested on the other."""

    is_found: bool = Field(description="some group is off by more than the tolerance")
    groups: list[AuditedGroup] = Field(description="the worst group; two if the halves also swap roles")
    features: list[str] = Field(description="features whose values may form groups")
    rows: int = Field(description="labelled rows of both halves")
    tolerance: float
    alpha: float = Field(description="largest probability of a false find")
    level: float = Field(description="confidence level of the intervals")
    threshold: float = Field(description="e-value from which on a group counts as found")
    notes: list[str] = Field(description="what the audit looked at, and what it left out")
    reading: str = Field(description="the result in words")

    def __str__(self) -> str:
        return "\n".join([self.reading, *self.notes])


class LiveAudit(Audit):
    """Audit of the labelled answers of a version that the service has stored."""

    model: str
    version: str
    labels: int = Field(description="labels that were read, also those that do not count here")
    first: datetime = Field(description="time of the earliest answer that counts")
    last: datetime = Field(description="time of the latest answer that counts")


def audit_of(audit: GroupAudit, features: Sequence[str], notes: Sequence[str]) -> Audit:
    """Describe an audit.

    Args:
        audit: The audit.
        features: Features that it was given.
        notes: What it looked at, and what was left out.
    """
    groups = [AuditedGroup.of(group) for group in audit.groups]
    if audit.is_found:
        first = f"A group is off by more than {audit.tolerance:g}:"
    else:
        first = f"No group is shown to be off by more than {audit.tolerance:g}. The worst candidate:"
    ending = (
        f"Groups are found on half of the {audit.rows:,} labelled rows and tested on the others. If no group were off"
        f" by more than {audit.tolerance:g}, an audit would report one with a probability of at most"
        f" {100 * audit.alpha:.3g}%."
    )
    said = [*notes, *audit.notes]
    if audit.left_out:
        many = plural(audit.left_out, "label has", "labels have")
        said.append(f"{many} no propensity and {'is' if audit.left_out == 1 else 'are'} left out: no random sample.")
    lines = [first, *(f"- {group.line(audit.level, audit.threshold)}" for group in groups), ending]
    return Audit(
        is_found=audit.is_found,
        groups=groups,
        features=list(features),
        rows=audit.rows,
        tolerance=audit.tolerance,
        alpha=audit.alpha,
        level=audit.level,
        threshold=audit.threshold,
        notes=said,
        reading="\n".join(lines),
    )
