"""Alarms by tag and by predicted class: evidence from the labels, in the order of their arrival.

`Store.update_state` keeps it under the name GROUPS, beside the alarm's state. Each label is used once, as it first
arrived. The state does not depend on how the log is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainSerializer, PlainValidator

from service.alarm.evidence import Delivery, Frozen, StoredAcknowledgement, StoredRearming, damaged_state
from service.settings import Settings
from service.store.rows import LabelBlock
from trueodds.metrics import GroupAlarm
from trueodds.metrics.alarms.group_alarm import MOST_GROUPS
from trueodds.reports.schemas.group_alarms import GroupKind

GROUPS = "groups"
"""Name of the state in the store."""
KINDS: tuple[GroupKind, ...] = ("tag", "class")
_Alarm = Annotated[
    GroupAlarm,
    PlainValidator(lambda value: value if isinstance(value, GroupAlarm) else GroupAlarm.from_json(value)),
    PlainSerializer(lambda state: state.to_json()),
]


class MarkTime(Frozen):
    """Moment at which a tag or class was marked for good."""

    at_ms: int
    """Arrival of the label that completed the evidence."""
    after: int
    """Number of labels of the version until then, in this watch."""


class GroupMark(Frozen):
    """Mark of a tag or class for good."""

    about: GroupKind
    name: str
    """The tag, "" for answers without one; or the index of the class."""
    fired: MarkTime
    acknowledged: StoredAcknowledgement | None = None


class GroupState(Frozen):
    """State of the alarms by group. It keeps the settings that it began with."""

    form: Literal[1] = 1
    tolerance: float
    alpha: float
    """False discovery rate of tags and classes together. Each kind has half of it."""
    labels: int = Field(0, ge=0)
    sequence: int = Field(0, ge=0)
    """Sequence number of the last label taken from the log."""
    start_sequence: int = Field(0, ge=0)
    """Sequence number up to which labels belong to earlier watches."""
    rearmings: tuple[StoredRearming, ...] = ()
    tags: _Alarm
    classes: _Alarm
    marks: tuple[GroupMark, ...] = ()
    """Marks for good, in the order in which they came."""
    earlier: tuple[GroupMark, ...] = ()
    """Acknowledged marks of labels that were evaluated before some of them were voided."""
    deliveries: dict[str, Delivery] = Field(default_factory=dict)
    """Deliveries of the last mark's message, by a hash of the webhook's URL."""

    @classmethod
    def start(cls, classes: int, settings: Settings) -> Self:
        """Return the state before any label of a version with this many classes."""
        tolerance, alpha = settings.alarm_tolerance, settings.alarm_alpha
        return cls(
            tolerance=tolerance,
            alpha=alpha,
            tags=GroupAlarm.start(tolerance, alpha / 2, MOST_GROUPS),
            classes=GroupAlarm.start(tolerance, alpha / 2, min(classes, MOST_GROUPS), equal=True),
        )

    @classmethod
    def read(cls, tree: Any, classes: int, settings: Settings) -> Self:
        """Read the state from the store's tree; a new state if there is none.

        Raises:
            StoreError: The state is damaged. It is not replaced, because evidence must never start afresh.
        """
        if tree is None:
            return cls.start(classes, settings)
        try:
            state = cls.model_validate(tree)
            state._check()
        except ValueError as error:
            raise damaged_state(error, "the evidence about tags and classes") from None
        return state

    def _check(self) -> None:
        """Raise ValueError unless all parts have the same labels, settings and marks."""
        for kind in KINDS:
            alarm = self.alarm(kind)
            if (alarm.labels, alarm.tolerance, alarm.alpha) != (self.labels, self.tolerance, self.alpha / 2):
                raise ValueError(f"the evidence about each {kind} has other labels or settings")
            marks = {mark.name: mark.fired.after for mark in self.marks if mark.about == kind}
            known = zip(alarm.names, alarm.marked_after, strict=True)
            if marks != {name: after for name, after in known if after is not None}:
                raise ValueError(f"the marks of each {kind} are not those of its evidence")

    def alarm(self, about: GroupKind) -> GroupAlarm:
        """Return the evidence about all tags, or about all classes."""
        return self.tags if about == "tag" else self.classes

    @property
    def paging(self) -> GroupMark | None:
        """The mark that webhooks are told about: the last one that nobody has acknowledged, else the last one."""
        open_ = [mark for mark in self.marks if mark.acknowledged is None] or self.marks
        return open_[-1] if open_ else None

    def take(self, block: LabelBlock) -> Self:
        """Return the state after the next labels."""
        if not len(block):
            return self
        rows = block.confidence_L, block.first_correct_L
        tags = self.tags.advance(*rows, [(tag or "",) for tag in block.tags])
        classes = self.classes.advance(*rows, [(str(index),) for index in block.predicted_L.tolist()])
        fresh = []
        for kind in KINDS:
            before, alarm = self.alarm(kind), tags if kind == "tag" else classes
            known = {*before.lasting_marks()}
            for name, after in zip(alarm.names, alarm.marked_after, strict=True):
                if after is not None and name not in known:
                    at_ms = int(block.arrived_ms_L[after - self.labels - 1])
                    fresh.append(self._mark(kind, name, at_ms, after))
        fresh.sort(key=lambda mark: mark.fired.after)
        deliveries = self.deliveries
        if fresh:  # after a voiding, a message may have told of these marks before
            last_ms = fresh[-1].fired.at_ms
            deliveries = {key: d for key, d in deliveries.items() if (d.fired_ms or 0) >= last_ms}
        changes = {
            "labels": self.labels + len(block),
            "sequence": int(block.sequence_L[-1]),
            "tags": tags,
            "classes": classes,
            "marks": (*self.marks, *fresh),
            "deliveries": deliveries,
        }
        return self.model_copy(update=changes)

    def _mark(self, kind: GroupKind, name: str, at_ms: int, after: int) -> GroupMark:
        """Return a mark for good. An acknowledgement of an earlier watch over these labels stays if it came later."""
        known = [one.acknowledged for one in self.earlier if (one.about, one.name) == (kind, name)]
        seen = next((one for one in known if one is not None and one.at_ms >= at_ms), None)
        return GroupMark(about=kind, name=name, fired=MarkTime(at_ms=at_ms, after=after), acknowledged=seen)

    def marks_of(self, about: GroupKind | None, name: str | None, labels: int | None) -> list[GroupMark]:
        """Return the marks of one tag or class, or all; with `labels` only those within the first so many labels."""
        return [
            mark
            for mark in self.marks
            if about in (None, mark.about) and name in (None, mark.name)
            if labels is None or mark.fired.after <= labels
        ]

    def acknowledge(
        self,
        by: StoredAcknowledgement,
        about: GroupKind | None = None,
        name: str | None = None,
        labels: int | None = None,
    ) -> Self:
        """Return the state with marks acknowledged; see `chosen`. Earlier acknowledgements stay."""
        chosen = self.marks_of(about, name, labels)
        marks = tuple(
            mark.model_copy(update={"acknowledged": by}) if mark.acknowledged is None and mark in chosen else mark
            for mark in self.marks
        )
        return self.model_copy(update={"marks": marks})

    def anew(self, first: int) -> Self | None:
        """Return the state before any label, if labels in the log have changed from the sequence number `first` on.

        Return None if no label that the state has used has changed. The tests keep their settings. An acknowledgement
        stays valid if its group is marked again on labels that had arrived by then.
        """
        if not self.start_sequence < first <= self.sequence:
            return None
        acknowledged = [mark for mark in self.marks if mark.acknowledged is not None]
        again = {(mark.about, mark.name) for mark in acknowledged}
        kept = [mark for mark in self.earlier if (mark.about, mark.name) not in again]
        return type(self)(
            tolerance=self.tolerance,
            alpha=self.alpha,
            sequence=self.start_sequence,
            start_sequence=self.start_sequence,
            rearmings=self.rearmings,
            tags=_empty(self.tags),
            classes=_empty(self.classes),
            earlier=(*kept, *acknowledged),
            deliveries=self.deliveries,
        )

    def rearm(self, who: str, why: str, at_ms: int, classes: int, settings: Settings) -> Self:
        """Return a new watch over all groups, with the current settings, of the labels that arrive from now on.

        Each watch has its own false discovery rate at each look, and its own budget of marks for good.
        """
        fired = self.marks[0].fired.at_ms if self.marks else None
        ended = StoredRearming(who=who, why=why, at_ms=at_ms, alpha=self.alpha, labels=self.labels, fired_ms=fired)
        change = {
            "sequence": self.sequence,
            "start_sequence": self.sequence,
            "rearmings": (*self.rearmings, ended),
        }
        return self.start(classes, settings).model_copy(update=change)

    def with_delivery(self, key: str, delivery: Delivery) -> Self:
        return self.model_copy(update={"deliveries": {**self.deliveries, key: delivery}})


def _empty(alarm: GroupAlarm) -> GroupAlarm:
    return GroupAlarm.start(alarm.tolerance, alarm.alpha, alarm.places, equal=alarm.equal)


def taking_groups(classes: int, settings: Settings) -> Callable[[Any, LabelBlock], Any]:
    """Return the step of `Store.update_state` that takes labels of a version with this many classes."""

    def step(tree: Any, block: LabelBlock) -> Any:
        if tree is not None and not len(block):
            return tree
        return GroupState.read(tree, classes, settings).take(block).tree()

    return step


def restarting_groups(tree: Any, first: int) -> tuple[Any, int] | None:
    """Restart the evidence for `Store.void_labels`. Damaged evidence stays as it is."""
    try:
        state = GroupState.model_validate(tree).anew(first)
    except ValueError:
        return None
    return None if state is None else (state.tree(), state.start_sequence)
