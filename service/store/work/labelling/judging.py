"""Labels of a judge, such as a language model: kept beside human labels, and read only for estimates from both."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from service.errors import MOST_LISTED, Refusal
from service.store.label_rules import LabelCandidate, class_message, names_of
from service.store.rows import UNKNOWN, JudgedAnswers, JudgedCounts, Label, decoding, storable
from service.store.work.labels import candidates_of
from service.store.work.statements import ExecuteMany, Query, Work
from service.store.work.versions import VersionCache
from trueodds.bundle.contents import is_shadow
from trueodds.texts import short

JudgeOutcome = Literal["stored", "already_known", "replaced"]
_WINDOW = "p.version = $1 AND p.created_ms >= $2 AND p.created_ms < $3"
_HUMAN = "CASE WHEN l.assumed IS NULL OR l.corrected_ms IS NOT NULL THEN l.label END"
"""Human label in SQL. An assumed label is none."""
_OF_WINDOW = (
    " FROM predictions p LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
    " LEFT JOIN judge_labels j ON j.prediction = p.id AND j.version = p.version"
    f" WHERE {_WINDOW} AND NOT EXISTS (SELECT 1 FROM maturing w WHERE w.version = p.version AND w.prediction = p.id)"
)
ANSWERS = (
    f"SELECT p.confidence, p.predicted, coalesce({_HUMAN}, {UNKNOWN}), coalesce(j.label, {UNKNOWN}), p.propensity"
    f"{_OF_WINDOW} LIMIT $4"
)
_COUNTS = (
    f"SELECT count(*), count(j.label), count({_HUMAN}), count(CASE WHEN p.propensity IS NOT NULL THEN {_HUMAN} END),"
    f" count(p.propensity){_OF_WINDOW}"
)
_BITS = 2**32
"""Times are summed modulo this, because SQLite's sums of whole numbers stop at 2^63."""


class JudgePlan(NamedTuple):
    """Outcome of each row, and what to write."""

    outcomes: list[JudgeOutcome | Refusal]
    labels: dict[tuple[int, str], int]

    @property
    def refusals(self) -> list[Refusal]:
        return [one for one in self.outcomes if isinstance(one, Refusal)]


def put(labels: list[Label], cache: VersionCache, at_ms: int, *, each: bool) -> Work[JudgePlan]:
    """Store labels of a judge. A later label replaces an earlier one: a judge may be run again.

    Unless `each` is set, one refusal prevents all writes. The labels of shadows' answers are those of the answers.
    """
    ids = list(dict.fromkeys(label.id for label in labels if storable(label.id)))
    candidates, cache = yield from candidates_of(ids, cache)
    of_versions = sorted({candidate.version for same_id in candidates.values() for candidate in same_id})
    rows = yield Query(  # versions come first in the key of the table
        "SELECT version, prediction, label FROM judge_labels WHERE version = ANY($1) AND prediction = ANY($2)",
        (of_versions, ids),
    )
    known = {(version, id_): label for version, id_, label in rows}
    plan = JudgePlan([], {})
    for row, label in enumerate(labels):
        found = _decide(row, label, candidates.get(label.id, []), cache, near=len(plan.refusals) < MOST_LISTED)
        if isinstance(found, Refusal):
            plan.outcomes.append(found)
            continue
        place, index = found
        before = plan.labels.get(place, known.get(place))
        plan.outcomes.append("stored" if before is None else "already_known" if before == index else "replaced")
        if before != index:
            plan.labels[place] = index
    if plan.refusals and not each:
        return plan
    yield ExecuteMany(
        "INSERT INTO judge_labels (version, prediction, label, given_ms) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (version, prediction) DO UPDATE SET label = excluded.label, given_ms = excluded.given_ms",
        [(version, id_, index, at_ms) for (version, id_), index in sorted(plan.labels.items())],
    )
    return plan


def _decide(
    row: int, label: Label, same_id: list[LabelCandidate], cache: VersionCache, *, near: bool
) -> tuple[tuple[int, str], int] | Refusal:
    """Return the answer and the class that a row is about, or why it is refused."""
    answers = [one for one in same_id if not is_shadow(cache.versions[one.version].model)]
    if label.model is not None:
        answers = [one for one in answers if cache.versions[one.version].model == label.model]
    if not answers:
        of = "" if label.model is None else f" of {short(label.model)}"
        message = (
            f"no prediction{of} has the id {short(label.id)}; use the id of a stored answer. A judge's label is not"
            " held for a later answer"
        )
        return Refusal(row, label.id, "unknown_id", message)
    if len(answers) > 1:
        models = ", ".join(sorted(cache.versions[one.version].model for one in answers))
        cure = 'add "model", or "question" if they are questions'
        message = f"several models have the id {short(label.id)} ({models}); {cure}"
        return Refusal(row, label.id, "ambiguous_id", message)
    version = answers[0].version
    classes = cache.versions[version].classes
    index = names_of(classes).index(label.label)
    if index is None:
        return Refusal(row, label.id, "unknown_class", class_message(label.label, classes, near=near))
    return (version, label.id), index


def count(version: int) -> Work[int]:
    """Count the judge's labels of a version."""
    rows = yield Query("SELECT count(*) FROM judge_labels WHERE version = $1", (version,))
    return int(rows[0][0])


def stamp(version: int) -> Work[tuple[int, ...]]:
    """Return numbers that change with every label of a judge, and with every label that is corrected or voided.

    They do not depend on clocks that agree: several processes may write. All are 0 without a judge's label.
    """
    given = f"coalesce(sum(given_ms % {_BITS}), 0)"
    ((count, *judge),) = yield Query(
        f"SELECT count(*), coalesce(sum(label), 0), {given} FROM judge_labels WHERE version = $1", (version,)
    )
    if not count:
        return (0,)
    corrected = f"coalesce(sum(corrected_ms % {_BITS}), 0)"
    rows = yield Query(
        f"SELECT count(*), coalesce(sum(label), 0), {corrected}, coalesce(max(sequence), 0) FROM labels"
        " WHERE version = $1",
        (version,),
    )
    return tuple(int(one) for one in (count, *judge, *rows[0]))


def counts(version: int, first_ms: int, end_ms: int) -> Work[JudgedCounts]:
    """Count the answers of `answers` with their labels."""
    rows = yield Query(_COUNTS, (version, first_ms, end_ms))
    return JudgedCounts(*(int(one) for one in rows[0]))


def answers(version: int, first_ms: int, end_ms: int, limit: int) -> Work[JudgedAnswers]:
    """Read up to `limit` answers made in [first, end) with both labels. Assumed labels are no human labels."""
    rows = yield Query(ANSWERS, (version, first_ms, end_ms, limit))
    with decoding("its table predictions, labels or judge_labels"):
        confidence, predicted, label, judge, propensity = zip(*rows, strict=True) if rows else [()] * 5
        return JudgedAnswers(
            np.array(confidence, np.float64),
            np.array(predicted, np.int64),
            np.array(label, np.int64),
            np.array(judge, np.int64),
            np.array(propensity, np.float64),
        )
