"""Storing labels: their log, their effect on the sums, and labels that wait for their prediction."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from service.ids import is_generated
from service.store.label_rules import LabelCandidate, LabelChange, LabelPlan, LabelRules
from service.store.rows import Label, Version, storable
from service.store.work import maturing
from service.store.work.scoring import ScoredChanges, score
from service.store.work.statements import ExecuteMany, Insert, Lock, Query, Work
from service.store.work.sums import deltas
from service.store.work.versions import VersionCache, load_versions, with_resolutions
from trueodds.sums.inputs import Array
from trueodds.sums.maturity import Maturity
from trueodds.sums.positive import PositiveClass

COLUMNS = (
    "version",
    "sequence",
    "prediction",
    "created_ms",
    "arrived_ms",
    "corrected_ms",
    "label",
    "predicted",
    "first_correct",
    "first_label",
    "confidence",
    "nll",
    "brier",
    "propensity",
    "tag",
    "import_id",
    "counted_ms",
    "assumed",
    "late",
)
CANDIDATES = (
    "SELECT p.id, p.version, p.created_ms, p.predicted, p.confidence, p.propensity, p.tag, p.tag_key, p.logits,"
    " l.sequence, l.label, CASE WHEN l.corrected_ms IS NULL THEN l.assumed END FROM predictions p"
    " LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
    " WHERE p.id = ANY($1)"
)


class Arrival(NamedTuple):
    """Time and import of a label."""

    at_ms: int
    import_id: str | None
    corrected_ms: int | None = None
    """Time at which it last replaced another label; for a label that is copied to a shadow."""
    counted_ms: int | None = None
    """Time at which the window of its answer closed; for a label that counts from then on."""
    is_assumed: bool = False
    """Whether nobody sent it and it was assumed; see `work.windows`."""


def put(labels: list[Label], cache: VersionCache, arrival: Arrival, *, each: bool) -> Work[LabelPlan]:
    """Decide about labels and write the result. Unless `each` is set, one refusal prevents all writes.

    Only one transaction at a time writes labels of a version. So their sequence numbers have no gaps and become visible
    in order, and no answer is labelled twice at the same time.
    """
    ids = list(dict.fromkeys(label.id for label in labels if storable(label.id)))
    models = sorted({label.model for label in labels if label.model is not None})
    early = [label.id for label in labels if label.model is not None and not is_generated(label.id)]
    if early:  # no prediction with an own id may arrive between the look-up and holding its label
        yield Lock("SELECT key FROM models WHERE name = ANY($1) ORDER BY key FOR UPDATE", (models,))
    candidates, cache = yield from candidates_of(ids, cache)
    held = (yield from _held_labels(early)) if early else {}
    if not cache.models.keys() >= set(models):
        cache = yield from load_versions(cache)
    plan = LabelRules(candidates, cache.versions, held, each=each).plan(labels)
    if plan.refusals and not each:
        return plan
    yield from write_changes(plan.changes, cache, arrival)
    if plan.held_labels:
        yield ExecuteMany(
            "INSERT INTO held (model, id, label, given_ms, import_id) VALUES ($1, $2, $3, $4, $5)"
            " ON CONFLICT (model, id) DO UPDATE SET label = excluded.label, given_ms = excluded.given_ms,"
            " import_id = excluded.import_id, doubtful = 0",
            [
                (cache.models[model], id_, json.dumps(label), arrival.at_ms, arrival.import_id)
                for (model, id_), label in sorted(plan.held_labels.items())
            ],
        )
    return plan


def candidates_of(ids: list[str], cache: VersionCache) -> Work[tuple[dict[str, list[LabelCandidate]], VersionCache]]:
    """Return the predictions of each id with their labels, and the versions. Both stay locked meanwhile."""
    yield Lock(
        "SELECT key FROM versions WHERE key IN (SELECT version FROM predictions WHERE id = ANY($1)) ORDER BY key"
        " FOR NO KEY UPDATE",
        (ids,),
    )
    candidates: dict[str, list[LabelCandidate]] = {}
    for row in (yield Query(CANDIDATES, (ids,))):
        candidates.setdefault(row[0], []).append(LabelCandidate(*row))
    if not {candidate.version for same_id in candidates.values() for candidate in same_id} <= cache.versions.keys():
        cache = yield from load_versions(cache)
    cache = yield from with_resolutions(cache)
    return (yield from maturing.mark(candidates, cache)), cache


def candidates_in(version: int, ids: Sequence[str]) -> Work[dict[str, LabelCandidate]]:
    """Return the predictions of one version with their labels, by id."""
    rows = yield Query(f"{CANDIDATES} AND p.version = $2", (list(ids), version))
    return {row[0]: LabelCandidate(*row) for row in rows}


def _held_labels(ids: list[str]) -> Work[dict[tuple[str, str], str | int]]:
    rows = yield Query(
        "SELECT m.name, h.id, h.label FROM held h JOIN models m ON m.key = h.model WHERE h.id = ANY($1)"
        " AND h.doubtful = 0",
        (sorted({id_ for id_ in ids if storable(id_)}),),
    )
    return {(model, id_): json.loads(label) for model, id_, label in rows}


def write_changes(
    changes: Mapping[tuple[int, str], LabelChange], cache: VersionCache, arrivals: Arrival | Mapping[str, Arrival]
) -> Work[None]:
    """Write new or corrected labels and their deltas. `arrivals` is one arrival for all, or one per id.

    Labels of answers whose window is open are kept aside until it closes.
    """
    by_version: dict[int, list[LabelChange]] = {}
    early: dict[int, list[LabelChange]] = {}
    for (key, _), change in changes.items():
        if change.candidate.label != change.now:
            (early if change.candidate.maturing else by_version).setdefault(key, []).append(change)
    for key, version_changes in sorted(early.items()):
        given = {c.candidate.id: _of(arrivals, c.candidate.id)[:2] for c in version_changes}
        yield from maturing.keep(key, version_changes, given)
    for key, version_changes in sorted(by_version.items()):
        scores = score(version_changes, cache.versions[key])
        maturity = cache.versions[key].maturity
        if fresh := int(scores.fresh_L.sum()):
            yield from _append(key, scores, fresh, arrivals, maturity)
        if fresh < len(version_changes):
            yield from _correct(key, scores, arrivals, late=None if maturity is None else 1)
        yield from move_labels(key, cache.versions[key], scores if fresh < len(version_changes) else None, scores)


def _append(
    key: int,
    scores: ScoredChanges,
    fresh: int,
    arrivals: Arrival | Mapping[str, Arrival],
    maturity: Maturity | None,
) -> Work[None]:
    # If a missing label counts as one, every answer has a label, so propensities must not weight them.
    always = maturity is not None and maturity.unlabelled_means == "ok"
    rows = yield Query(
        "UPDATE versions SET last_sequence = last_sequence + $2 WHERE key = $1 RETURNING last_sequence", (key, fresh)
    )
    sequence = rows[0][0] - fresh
    written, replaced = [], []
    for change, nll, brier in zip(scores.changes, nullable(scores.nll_L), nullable(scores.brier_L), strict=True):
        c = change.candidate
        if c.label is not None:
            continue
        sequence += 1
        arrival = _of(arrivals, c.id)
        arrived = max(arrival.at_ms, c.created_ms)  # clocks may disagree
        corrected = arrival.corrected_ms
        if change.first != change.now and corrected is None:
            corrected = arrived
            replaced.append((key, c.id, change.first, arrived, arrival.import_id))
        first_correct = int(change.first == c.predicted)
        when = (c.created_ms, arrived, corrected)
        what = (
            change.now,
            c.predicted,
            first_correct,
            change.first,
            c.confidence,
            nll,
            brier,
            None if always else c.propensity,
            c.tag,
        )
        late = 1 if maturity and (arrival.counted_ms is None or arrival.corrected_ms is not None) else None
        counted = arrival.counted_ms, 1 if arrival.is_assumed else None, late
        written.append((key, sequence, c.id, *when, *what, arrival.import_id, *counted))
    yield Insert("labels", COLUMNS, written)
    if replaced:
        yield Insert("replaced", maturing.GIVEN, replaced)


def _of(arrivals: Arrival | Mapping[str, Arrival], id_: str) -> Arrival:
    return arrivals if isinstance(arrivals, Arrival) else arrivals[id_]


def _correct(
    key: int, scores: ScoredChanges, arrivals: Arrival | Mapping[str, Arrival], *, late: int | None
) -> Work[None]:
    sequences = [c.candidate.sequence for c in scores.changes if c.candidate.label is not None]
    yield Query(
        f"INSERT INTO replaced ({', '.join(maturing.GIVEN)}) SELECT version, prediction, label,"
        " coalesce(corrected_ms, arrived_ms), import_id FROM labels WHERE version = $1 AND sequence = ANY($2)",
        (key, sequences),
    )
    rows = zip(scores.changes, nullable(scores.nll_L), nullable(scores.brier_L), strict=True)
    yield ExecuteMany(
        "UPDATE labels SET label = $3, nll = $4, brier = $5, corrected_ms = $6, import_id = $7, late = $8"
        " WHERE version = $1 AND sequence = $2",
        [
            (key, c.candidate.sequence, c.now, nll, brier, *_of(arrivals, c.candidate.id)[:2], late)
            for c, nll, brier in rows
            if c.candidate.label is not None
        ],
    )


def nullable(score_L: Array) -> list[float | None]:
    """Return scores as the log stores them: NULL if unknown, because SQLite has no NaN."""
    return [None if math.isnan(score) else score for score in score_L.tolist()]


def move_labels(key: int, version: Version, old: ScoredChanges | None, new: ScoredChanges | None) -> Work[None]:
    """Subtract the old values of the labels in `old` from all sums, and add the current values of those in `new`."""
    makers: dict[int, Callable[[ScoredChanges, int], deltas.DeltaRows]] = {deltas.LABELS: _top_deltas}
    if version.positive_class:
        makers[deltas.POSITIVE_LABELS] = partial(_top_deltas, positive=version.positive_class)
    if version.ordered:
        makers[deltas.ORDERED_LABELS] = _level_deltas
    makers[deltas.ROUNDED_LABELS] = _rounded_deltas
    for kind, make in makers.items():
        parts = [make(scores, sign) for scores, sign in ((old, -1), (new, 1)) if scores is not None]
        if any(map(len, parts)):
            yield deltas.insert_of(key, kind, *parts)


def _top_deltas(scores: ScoredChanges, sign: int, positive: PositiveClass | None = None) -> deltas.DeltaRows:
    """Return the current values of all labels, or with the sign -1 the old ones of those that had a label.

    With a positive class, they are by p(positive).
    """
    created_L, c_L, predicted_L, tag_L = scores.columns
    label_L, nll_L, brier_L = scores.now_L, scores.nll_L, scores.brier_L
    if sign < 0:
        label_L, nll_L, brier_L = scores.before_L, scores.nll_before_L, scores.brier_before_L
    of_labels = c_L, label_L == predicted_L, nll_L, brier_L
    if positive is not None:
        of_labels = positive.rows_of_top(c_L, predicted_L, label_L, nll_L)
    c_L, correct_L, nll_L, brier_L = of_labels
    columns = created_L, c_L, predicted_L, tag_L, correct_L, nll_L, brier_L
    rows_L = deltas.label_deltas(*columns, sign, positive=positive is not None)
    return rows_L if sign > 0 else rows_L[~scores.fresh_L]


def _level_deltas(scores: ScoredChanges, sign: int) -> deltas.DeltaRows:
    """Return the values of `_top_deltas` by level, for ordered classes."""
    assert scores.levels is not None
    (created_L, _, _, tag_L), (now, before), old_L = scores.columns, scores.levels, ~scores.fresh_L
    if sign > 0:
        return deltas.level_deltas(created_L, now, tag_L)
    return deltas.level_deltas(created_L[old_L], before.only(old_L), tag_L[old_L], -1)


def _rounded_deltas(scores: ScoredChanges, sign: int) -> deltas.DeltaRows:
    """Return the values of `_top_deltas` about rounding; see `deltas.ROUNDED_LABELS`."""
    created_L, confidence_L, predicted_L, tag_L = scores.columns
    bounds, nll_L = (scores.bounds, scores.nll_L) if sign > 0 else (scores.bounds_before, scores.nll_before_L)
    k = np.flatnonzero((bounds.zero_L | ~np.isnan(bounds.least_L)) & ((sign > 0) | ~scores.fresh_L))
    zero_K = bounds.zero_L[k]
    bound_scores = np.nan_to_num(bounds.least_L[k]), np.where(zero_K, np.nan_to_num(nll_L[k]), 0.0)
    return deltas.label_deltas(created_L[k], confidence_L[k], predicted_L[k], tag_L[k], zero_K, *bound_scores, sign)
