"""Rules of labels: whether each one is new, known, a correction, early or refused. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from service.errors import MOST_LISTED, Refusal
from service.ids import is_generated
from service.store.rows import Label, LabelCounts, Version, storable
from trueodds.bundle.contents import is_shadow, shadows_of
from trueodds.errors import nearest
from trueodds.texts import Places, short

_CURES = {
    "already": 'add "correct": true to replace it',
    "earlier in this call": "send one label per id",
}


class RefusedLabelsError(Exception):
    """At least one label of a call is refused, so nothing of the call was stored."""

    def __init__(self, refusals: list[Refusal], rows: int) -> None:
        super().__init__(f"{len(refusals):,} of {rows:,} labels are refused; the first: {refusals[0].message}")
        self.refusals, self.rows = refusals, rows


Outcome = Literal["stored", "already_known", "corrected", "held"]


class LabelCandidate(NamedTuple):
    """Prediction that a label may belong to, with its current label."""

    id: str
    version: int
    """Key of its version in the table `versions`."""
    created_ms: int
    predicted: int
    confidence: float
    propensity: float | None
    tag: str | None
    tag_key: int
    logits: bytes
    sequence: int | None
    label: int | None
    assumed: int | None = None
    """1 if its label was assumed when the window closed without one; nobody sent it."""
    maturing: bool = False
    """Whether its maturity window is open. `label` is then the last one that arrived; it does not count yet."""


@dataclass
class LabelChange:
    """Change of one prediction's label. For a new label, `first` is the one that arrived first."""

    candidate: LabelCandidate
    first: int
    now: int


@dataclass
class LabelPlan:
    """Changes to write, and the outcome of each row."""

    outcomes: list[Outcome | Refusal] = field(default_factory=list)
    changes: dict[tuple[int, str], LabelChange] = field(default_factory=dict)
    """Changes by version key and id, in the order of their first row."""
    held_labels: dict[tuple[str, str], str | int] = field(default_factory=dict)
    """Labels to hold, by model and id."""

    @property
    def refusals(self) -> list[Refusal]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Refusal)]

    @property
    def counts(self) -> LabelCounts:
        return LabelCounts(**{name: self.outcomes.count(name) for name in get_args(Outcome)})


class LabelRules:
    """Decides about labels, row by row, inside the transaction that writes the result."""

    def __init__(
        self,
        candidates: Mapping[str, list[LabelCandidate]],
        versions: Mapping[int, Version],
        held_labels: Mapping[tuple[str, str], str | int],
        *,
        each: bool,
    ) -> None:
        """Prepare the rules.

        Args:
            candidates: Predictions by id.
            versions: All versions by key, in the order in which they were first served.
            held_labels: Labels that wait for a prediction, by model and id.
            each: Whether every row counts as a call of its own. Otherwise the rows are one call, in which an id has one
                label.
        """
        self._candidates, self._versions, self._held_labels, self._each = candidates, versions, held_labels, each
        self._plan, self._unknown_names = LabelPlan(), 0

    def plan(self, labels: list[Label]) -> LabelPlan:
        """Decide about every row. Unless `each` is set, the caller must not write a plan with a refusal.

        Refused are unknown ids, models and classes, an id of several models, and conflicting labels. A label conflicts
        with another one that is stored, or that came earlier in the call.
        """
        for row, label in enumerate(labels):
            self._plan.outcomes.append(self._decide(row, label))
        return self._plan

    def _decide(self, row: int, label: Label) -> Outcome | Refusal:
        same_id = self._candidates.get(label.id, ())
        answers = [c for c in same_id if not is_shadow(self._model(c))]
        if label.model is not None:
            answers = [c for c in answers if self._model(c) == label.model]
        if not answers:
            return self._hold(row, label)
        if len(answers) > 1:
            models = ", ".join(sorted(map(self._model, answers)))
            cure = 'add "model", or "question" if they are questions'
            message = f"several models have the id {short(label.id)} ({models}); {cure}"
            return Refusal(row, label.id, "ambiguous_id", message)
        answer = answers[0]
        index = self._names(answer.version).index(label.label)
        if index is None:
            return self._unknown_class(row, label, self._versions[answer.version].classes)
        outcome = self._settle(row, label, answer, index)
        if not isinstance(outcome, Refusal):
            self._follow(label.id, answer, same_id)
        return outcome

    def _follow(self, id_: str, answer: LabelCandidate, same_id: Iterable[LabelCandidate]) -> None:
        """Give the same label to the shadows' answers to the same input."""
        change, version = self._plan.changes[answer.version, id_], self._versions[answer.version]
        shadows = shadows_of(version.model)
        for candidate in same_id:
            other = self._versions[candidate.version]
            if other.model in shadows and other.classes == version.classes:
                place = candidate.version, id_
                self._plan.changes.setdefault(place, LabelChange(candidate, change.first, change.now)).now = change.now

    def _model(self, candidate: LabelCandidate) -> str:
        return self._versions[candidate.version].model

    def _settle(self, row: int, label: Label, candidate: LabelCandidate, index: int) -> Outcome | Refusal:
        change = self._plan.changes.get((candidate.version, label.id))
        known = candidate.label if change is None else change.now
        if change is not None and change.now != index and not self._each:
            return self._conflict(row, label, candidate, index, change.now, "earlier in this call")
        if known == index:
            if change is None:  # remember it: later rows of this call must agree
                self._plan.changes[candidate.version, label.id] = LabelChange(candidate, index, index)
            return "already_known"
        if known is not None and not label.correct and not (candidate.assumed and change is None):
            return self._conflict(row, label, candidate, index, known, "already")
        if change is None:
            self._plan.changes[candidate.version, label.id] = LabelChange(candidate, index, index)
        else:
            change.now = index
        return "stored" if known is None else "corrected"

    def _conflict(
        self, row: int, label: Label, candidate: LabelCandidate, index: int, current: int, where: str
    ) -> Refusal:
        classes = self._versions[candidate.version].classes
        message = f"{label.id} has the label {classes[current]!r} {where}, but {classes[index]!r} was sent"
        return Refusal(row, label.id, "conflicting_label", f"{message}; {_CURES[where]}")

    def _names(self, key: int) -> Names:
        return names_of(self._versions[key].classes)

    def _unknown_class(self, row: int, label: Label, classes: tuple[str, ...]) -> Refusal:
        self._unknown_names += 1  # finding a similar name takes milliseconds, too slow for thousands of rows
        message = class_message(label.label, classes, near=self._unknown_names <= MOST_LISTED)
        return Refusal(row, label.id, "unknown_class", message)

    def _hold(self, row: int, label: Label) -> Outcome | Refusal:
        """Hold a label with the caller's own id and a known model until its prediction arrives."""
        served = [key for key, version in self._versions.items() if version.model == label.model]
        if label.model is not None and not served:
            models = ", ".join(sorted({version.model for version in self._versions.values()})) or "none yet"
            message = f"unknown model {short(label.model)}; known are {models}"
            return Refusal(row, label.id, "unknown_model", message)
        if is_generated(label.id) or label.model is None or not storable(label.id):
            message = f"no prediction has the id {short(label.id)}; use an id that /predict returned"
            if is_generated(label.id):
                message += (
                    " (predictions older than the retention time are gone; if the service has an archive, keep the"
                    " label in a table of your own and join it by id)"
                )
            elif label.model is None:
                message += ". To send a label before its prediction, use an id of your own and add its model"
            return Refusal(row, label.id, "unknown_id", message)
        fitting = [names for key in reversed(served) if (names := self._names(key)).index(label.label) is not None]
        if not fitting:
            return self._unknown_class(row, label, self._versions[served[-1]].classes)
        place, newest = (label.model, label.id), fitting[0]
        if place in self._plan.held_labels:
            known, where, replaces = self._plan.held_labels[place], "earlier in this call", self._each and label.correct
        elif place in self._held_labels:
            known, where, replaces = self._held_labels[place], "already", label.correct
        else:
            self._plan.held_labels[place] = label.label
            return "held"
        if newest.index(known) == newest.index(label.label):
            return "already_known"
        if replaces:
            self._plan.held_labels[place] = label.label
            return "corrected"
        message = f"{label.id} waits with the label {known!r} {where}, but {label.label!r} was sent"
        return Refusal(row, label.id, "conflicting_label", f"{message}; {_CURES[where]}")


class Names:
    """Look-up of class indices by name, with the tolerance of `Places`."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self._count, self._places = len(classes), Places(classes)

    def index(self, label: str | int) -> int | None:
        """Return the index of a class, or None if it does not exist."""
        if isinstance(label, int):
            return label if 0 <= label < self._count else None
        return self._places.get(label)


@lru_cache(maxsize=64)
def names_of(classes: tuple[str, ...]) -> Names:
    """Return the names of one version, cached for its next label. Making them takes 0.5 us per class."""
    return Names(classes)


def class_message(label: str | int, classes: tuple[str, ...], *, near: bool) -> str:
    """Return the message about a label that is no class. `near` names the nearest one."""
    if isinstance(label, int):
        return (
            f"no class has the index {short(label)}; allowed are 0..{len(classes) - 1}, or the name of a class as label"
        )
    few = ", ".join(repr(name) for name in classes[:5]) + (f", ... ({len(classes)} in all)" if len(classes) > 5 else "")
    by_index = " To send the position of a class, from 0, use index." if label.isdecimal() else ""
    return f"unknown class {short(label)}; allowed are {few}.{nearest(label[:100], classes) if near else ''}{by_index}"
