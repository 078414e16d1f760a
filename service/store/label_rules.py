"""The rules of labels: which are new, known, in conflict or early. No I/O."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from service.errors import ServiceError, short
from service.ids import OURS
from service.store.records import GivenLabel, LabelCounts, Version
from trueodds.errors import nearest
from trueodds.shadows import is_shadow, shadow_of

SHOWN = 20
"""Bad rows that an error lists."""
MAX_NAME = 1024
"""Characters of a label from which it is no class in another normal form."""

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Problem:
    """Why one row cannot be stored."""

    row: int
    id: str | None
    status: int
    code: str
    message: str


class FeedbackError(ServiceError):
    """A batch with at least one bad row; its status is that of the first."""

    def __init__(self, problems: list[Problem], rows: int) -> None:
        first, bad = problems[0], len(problems)
        where = "" if rows == 1 else f" ({bad:,} of {rows:,} rows are bad; this is row {first.row})"
        shown = [{"row": p.row, "id": p.id, "code": p.code, "message": p.message} for p in problems[:SHOWN]]
        message = f"{first.message}{where}"
        super().__init__(
            first.status,
            first.code,
            f"{message}{'' if message.endswith(('.', '?', '!')) else '.'} Nothing was stored.",
            details={"problems": shown, "problem_count": bad},
        )


Outcome = Literal["stored", "already_known", "corrected", "held"]


class Candidate(NamedTuple):
    """A prediction that a label may be for, and the label it has."""

    id: str
    version: int
    """Key of its model version."""
    created_ms: int
    predicted: int
    confidence: float
    propensity: float | None
    tag: str | None
    tag_key: int
    logits: bytes
    sequence: int | None
    label: int | None


@dataclass
class Change:
    """What becomes of one prediction's label: `first` is what came first of a label that is new."""

    candidate: Candidate
    first: int
    now: int


@dataclass
class Plan:
    """What to write, and what became of each row."""

    outcomes: list[Outcome | Problem] = field(default_factory=list)
    changes: dict[tuple[int, str], Change] = field(default_factory=dict)
    """By version key and id, in the order of their first row."""
    held: dict[tuple[str, str], str | int] = field(default_factory=dict)
    """By model and id."""

    @property
    def problems(self) -> list[Problem]:
        return [outcome for outcome in self.outcomes if isinstance(outcome, Problem)]

    @property
    def counts(self) -> LabelCounts:
        return LabelCounts(**{name: self.outcomes.count(name) for name in get_args(Outcome)})


class Rules:
    """Decides about labels, row by row, within the transaction that will write what comes out."""

    def __init__(
        self,
        candidates: Mapping[str, list[Candidate]],
        versions: Mapping[int, Version],
        held: Mapping[tuple[str, str], str | int],
        *,
        each: bool,
    ) -> None:
        """`versions` in the order in which they were first served; `held` by model and id.

        `each`: rows stand alone, one after the other, as if each came in a call of its own. Otherwise they are one
        call, in which an id has one label.
        """
        self._candidates, self._versions, self._held, self._each = candidates, versions, held, each
        self._plan, self._bad_names = Plan(), 0

    def plan(self, labels: list[GivenLabel]) -> Plan:
        """Decide about every row.

        Raises:
            FeedbackError: unless `each`, at least one row has an unknown id or model (404), a class that does not
                exist (422), an id of several models (409), or a label other than the stored one, or than the same
                id's earlier in the call (409).
        """
        outcomes = self._plan.outcomes
        for row, given in enumerate(labels):
            outcomes.append(self._decide(row, given))
        if not self._each and (problems := self._plan.problems):
            raise FeedbackError(problems, len(labels))
        return self._plan

    def _decide(self, row: int, given: GivenLabel) -> Outcome | Problem:
        everywhere = self._candidates.get(given.id, ())
        found = [c for c in everywhere if not is_shadow(self._model(c))]
        if given.model is not None:
            found = [c for c in found if self._model(c) == given.model]
        if not found:
            return self._hold(row, given)
        if len(found) > 1:
            models = ", ".join(sorted(map(self._model, found)))
            message = f'{short(given.id)} is an id of several models ({models}); add "model" to say which'
            return Problem(row, given.id, 409, "ambiguous_id", message)
        candidate = found[0]
        label = self._names(candidate.version).index(given.label)
        if label is None:
            classes = self._versions[candidate.version].classes
            return self._unknown_class(row, given, classes)
        outcome = self._settle(row, given, candidate, label)
        if not isinstance(outcome, Problem):
            self._follow(given.id, candidate, everywhere)
        return outcome

    def _follow(self, id_: str, answered: Candidate, everywhere: Iterable[Candidate]) -> None:
        """What shadows said about the same input gets the same label."""
        change, shadow = self._plan.changes[answered.version, id_], shadow_of(self._model(answered))
        for candidate in everywhere:
            if self._model(candidate) == shadow:
                place = candidate.version, id_
                self._plan.changes.setdefault(place, Change(candidate, change.first, change.now)).now = change.now

    def _model(self, candidate: Candidate) -> str:
        return self._versions[candidate.version].model

    def _settle(self, row: int, given: GivenLabel, candidate: Candidate, label: int) -> Outcome | Problem:
        change = self._plan.changes.get((candidate.version, given.id))
        known = candidate.label if change is None else change.now
        if change is not None and change.now != label and not self._each:
            return self._conflict(row, given, candidate, label, change.now, "earlier in this call")
        if known == label:
            if change is None:  # seen: a later row of this call must agree with it
                self._plan.changes[candidate.version, given.id] = Change(candidate, label, label)
            return "already_known"
        if known is not None and not given.correct:
            return self._conflict(row, given, candidate, label, known, "already")
        if change is None:
            self._plan.changes[candidate.version, given.id] = Change(candidate, label, label)
        else:
            change.now = label
        return "stored" if known is None else "corrected"

    def _conflict(
        self, row: int, given: GivenLabel, candidate: Candidate, label: int, known: int, where: str
    ) -> Problem:
        classes = self._versions[candidate.version].classes
        cure = 'add "correct": true to replace it' if where == "already" else "send one label for each id"
        message = f"{given.id} has the label {classes[known]!r} {where}, now {classes[label]!r} is given; {cure}"
        return Problem(row, given.id, 409, "conflicting_label", message)

    def _names(self, key: int) -> Names:
        return names_of(self._versions[key].classes)

    def _unknown_class(self, row: int, given: GivenLabel, classes: tuple[str, ...]) -> Problem:
        self._bad_names += 1  # looking for a near name takes milliseconds, too long for thousands of rows
        message = _class_message(given.label, classes, near=self._bad_names <= SHOWN)
        return Problem(row, given.id, 422, "unknown_class", message)

    def _hold(self, row: int, given: GivenLabel) -> Outcome | Problem:
        """A label for an own id of a known model waits for its prediction."""
        if OURS.fullmatch(given.id) or given.model is None or not storable(given.id):
            message = f"no prediction has the id {short(given.id)}; send an id that /predict answered"
            if OURS.fullmatch(given.id):
                message += " (predictions older than the retention time are gone)"
            elif given.model is None:
                message += ". A label for an id of your own may come before its prediction if it names its model"
            return Problem(row, given.id, 404, "unknown_id", message)
        served = [key for key, version in self._versions.items() if version.model == given.model]
        if not served:
            models = ", ".join(sorted({version.model for version in self._versions.values()})) or "none yet"
            message = f"there is no model {short(given.model)}; known are {models}"
            return Problem(row, given.id, 404, "unknown_model", message)
        fitting = [names for key in reversed(served) if (names := self._names(key)).index(given.label) is not None]
        if not fitting:
            classes = self._versions[served[-1]].classes
            return self._unknown_class(row, given, classes)
        place, newest = (given.model, given.id), fitting[0]
        if place in self._plan.held:
            known, where, replaces = self._plan.held[place], "earlier in this call", self._each and given.correct
        elif place in self._held:
            known, where, replaces = self._held[place], "already", given.correct
        else:
            self._plan.held[place] = given.label
            return "held"
        if newest.index(known) == newest.index(given.label):
            return "already_known"
        if replaces:
            self._plan.held[place] = given.label
            return "corrected"
        cure = 'add "correct": true to replace it' if where == "already" else "send one label for each id"
        message = f"{given.id} waits with the label {known!r} {where}, now {given.label!r} is given; {cure}"
        return Problem(row, given.id, 409, "conflicting_label", message)


class Names:
    """Class names to indices; a name in another Unicode normal form ("é" as one character or two) is the same name."""

    def __init__(self, classes: tuple[str, ...]) -> None:
        self._count = len(classes)
        self._exact = {name: i for i, name in enumerate(classes)}
        normal = Counter(unicodedata.normalize("NFC", name) for name in classes)
        self._normal = {
            form: i for i, name in enumerate(classes) if normal[form := unicodedata.normalize("NFC", name)] == 1
        }

    def index(self, label: str | int) -> int | None:
        """The class's index, or None if there is no such class."""
        if isinstance(label, int):
            return label if 0 <= label < self._count else None
        found = self._exact.get(label)
        if found is None and len(label) <= MAX_NAME and not label.isascii():
            found = self._normal.get(unicodedata.normalize("NFC", label))
        return found


@lru_cache(maxsize=64)
def names_of(classes: tuple[str, ...]) -> Names:
    """The names of one version, kept for its next label: making them takes half a microsecond for each class."""
    return Names(classes)


def storable(text: str) -> bool:
    """Whether every database can hold it: no NUL, no half of a surrogate pair."""
    return not _UNSTORABLE.search(text)


def _class_message(label: str | int, classes: tuple[str, ...], *, near: bool) -> str:
    if isinstance(label, int):
        return (
            f"there is no class {short(label)}; allowed are the indices 0..{len(classes) - 1}, or a class by its name"
        )
    few = ", ".join(repr(name) for name in classes[:5]) + (f", ... ({len(classes)} in all)" if len(classes) > 5 else "")
    by_index = " A class index is sent without quotes." if label.isdecimal() else ""
    return (
        f"there is no class {short(label)}; allowed are {few}.{nearest(label[:100], classes) if near else ''}{by_index}"
    )
