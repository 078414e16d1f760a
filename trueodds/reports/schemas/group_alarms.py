"""Part of the report about alarms by tag and by predicted class."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field

from trueodds.reports.schemas.alarm import Acknowledgement, Rearming

GroupKind = Literal["tag", "class"]


class GroupEvidence(BaseModel):
    """Sequential test of "at every label of this group, given all labels before, its ECE is within the tolerance"."""

    about: GroupKind = Field(description="tag, or predicted class")
    name: str
    labels: int
    log_e: float = Field(description="natural logarithm of the e-value now; may fall again")
    is_marked: bool = Field(description="marked at this look; a mark may go again")
    threshold: float = Field(description="the group is marked for good when its e-value reaches this")
    ever_marked_at: datetime | None = Field(None, description="when it was marked for good; null: it was not")
    ever_marked_after: int | None = Field(None, description="labels of the version until then, in this watch")
    acknowledged: Acknowledgement | None = None


class GroupAlarms(BaseModel):
    """Alarms by tag and by predicted class, from the labels as they first arrived, whatever the report's window.

    `is_marked`: at each look, on average at most alpha / 2 of the marked tags, and at most alpha / 2 of the marked
    classes, are within the tolerance. So it is at most `alpha` of all that are marked. `ever_marked_at`: with a
    probability of at least 1 - alpha / 2, no tag and no class within the tolerance is ever marked for good.
    """

    state: Literal["quiet", "marked", "fired", "acknowledged"] = Field(
        description="fired: a group is marked for good, and not acknowledged; marked: one is marked at this look"
    )
    reading: str
    tolerance: float = Field(description="largest acceptable ECE of a group")
    alpha: float
    labels: int
    groups: list[GroupEvidence] = Field(description="tags, then classes, in the order of their first labels")
    left_out: int = Field(description="labels whose tag or class came after the first 100; these have no alarm")
    rearmings: list[Rearming] = Field(
        default_factory=list, description="all other fields are about the labels since the last one"
    )

    @property
    def with_marks(self) -> list[GroupEvidence]:
        """Groups that are marked at this look or for good."""
        return [one for one in self.groups if one.is_marked or one.ever_marked_at is not None]

    def marks(self, about: GroupKind) -> dict[str, bool]:
        """Return whether each tag or class is marked at this look."""
        return {one.name: one.is_marked for one in self.groups if one.about == about}
