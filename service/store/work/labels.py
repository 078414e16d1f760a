"""Storing labels: the log of their arrival, what they change in the sums, and those that wait for their prediction."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from service.ids import is_generated
from service.store.label_rules import Candidate, Change, Plan, Rules
from service.store.rows import Integers, Label, storable
from service.store.work import deltas
from service.store.work.scoring import Scored, score
from service.store.work.statements import ExecuteMany, Insert, Lock, Query, Work
from service.store.work.versions import KnownVersions, load_versions
from trueodds.sums.inputs import Array

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
    "confidence",
    "nll",
    "brier",
    "propensity",
    "tag",
)
_CANDIDATES = (
    "SELECT p.id, p.version, p.created_ms, p.predicted, p.confidence, p.propensity, p.tag, p.tag_key, p.logits,"
    " l.sequence, l.label FROM predictions p LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
    " WHERE p.id = ANY($1)"
)


def put(labels: list[Label], known: KnownVersions, now_ms: int, *, each: bool) -> Work[Plan]:
    """Decide about the labels and write what was decided; nothing if one is refused, unless `each` stands alone.

    Labels of one version are written by one transaction at a time: so their sequence numbers have no holes and become
    visible in their order, and nobody labels the same answer meanwhile.
    """
    ids = list(dict.fromkeys(label.id for label in labels if storable(label.id)))
    models = sorted({label.model for label in labels if label.model is not None})
    early = [label.id for label in labels if label.model is not None and not is_generated(label.id)]
    if early:  # a prediction with an own id must not slip in between looking for it and holding its label
        yield Lock("SELECT key FROM models WHERE name = ANY($1) ORDER BY key FOR UPDATE", (models,))
    candidates, known = yield from candidates_of(ids, known)
    held = (yield from _held(early)) if early else {}
    if not known.models.keys() >= set(models):
        known = yield from load_versions(known)
    plan = Rules(candidates, known.versions, held, each=each).plan(labels)
    if plan.refusals and not each:
        return plan
    yield from write_changes(plan.changes, known, now_ms)
    if plan.held:
        yield ExecuteMany(
            "INSERT INTO held (model, id, label, given_ms) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (model, id) DO UPDATE SET label = excluded.label",
            [
                (known.models[model], id_, json.dumps(label), now_ms)
                for (model, id_), label in sorted(plan.held.items())
            ],
        )
    return plan


def candidates_of(ids: list[str], known: KnownVersions) -> Work[tuple[dict[str, list[Candidate]], KnownVersions]]:
    """The predictions of each id with their labels, which nobody changes meanwhile, and their versions."""
    yield Lock(
        "SELECT key FROM versions WHERE key IN (SELECT version FROM predictions WHERE id = ANY($1)) ORDER BY key"
        " FOR NO KEY UPDATE",
        (ids,),
    )
    candidates: dict[str, list[Candidate]] = {}
    for row in (yield Query(_CANDIDATES, (ids,))):
        candidates.setdefault(row[0], []).append(Candidate(*row))
    if not {candidate.version for same_id in candidates.values() for candidate in same_id} <= known.versions.keys():
        known = yield from load_versions(known)
    return candidates, known


def _held(ids: list[str]) -> Work[dict[tuple[str, str], str | int]]:
    rows = yield Query(
        "SELECT m.name, h.id, h.label FROM held h JOIN models m ON m.key = h.model WHERE h.id = ANY($1)",
        (sorted({id_ for id_ in ids if storable(id_)}),),
    )
    return {(model, id_): json.loads(label) for model, id_, label in rows}


def write_changes(
    changes: Mapping[tuple[int, str], Change], known: KnownVersions, arrived_ms: int | Mapping[str, int]
) -> Work[None]:
    """Write labels that are new or corrected, and their deltas. `arrived_ms`: of all, or by id."""
    by_version: dict[int, list[Change]] = {}
    for (key, _), change in changes.items():
        if change.candidate.label != change.now:
            by_version.setdefault(key, []).append(change)
    for key, version_changes in sorted(by_version.items()):
        scored = score(version_changes, known.versions[key])
        if fresh := int(scored.fresh_L.sum()):
            yield from _append(key, scored, fresh, arrived_ms)
        if fresh < len(version_changes):
            yield from _correct(key, scored, arrived_ms)
        yield deltas.insert_of(key, deltas.LABELS, *_deltas(scored))


def _append(key: int, scored: Scored, fresh: int, arrived_ms: int | Mapping[str, int]) -> Work[None]:
    rows = yield Query(
        "UPDATE versions SET last_sequence = last_sequence + $2 WHERE key = $1 RETURNING last_sequence", (key, fresh)
    )
    sequence = rows[0][0] - fresh
    written = []
    for change, nll, brier in zip(scored.changes, _stored(scored.nll_L), _stored(scored.brier_L), strict=True):
        c = change.candidate
        if c.label is not None:
            continue
        sequence += 1
        arrived = arrived_ms if isinstance(arrived_ms, int) else arrived_ms[c.id]
        arrived = max(arrived, c.created_ms)  # where clocks disagree
        corrected = None if change.first == change.now else arrived
        first_correct = int(change.first == c.predicted)
        when = (c.created_ms, arrived, corrected)
        what = (change.now, c.predicted, first_correct, c.confidence, nll, brier, c.propensity, c.tag)
        written.append((key, sequence, c.id, *when, *what))
    yield Insert("labels", COLUMNS, written)


def _correct(key: int, scored: Scored, arrived_ms: int | Mapping[str, int]) -> Work[None]:
    rows = zip(scored.changes, _stored(scored.nll_L), _stored(scored.brier_L), strict=True)
    yield ExecuteMany(
        "UPDATE labels SET label = $3, nll = $4, brier = $5, corrected_ms = $6 WHERE version = $1 AND sequence = $2",
        [
            (key, c.candidate.sequence, c.now, nll, brier, arrived_ms)
            for c, nll, brier in rows
            if c.candidate.label is not None
        ],
    )


def _stored(score_L: Array) -> list[float | None]:
    """Scores as the log has them: NULL where they are not known, for SQLite has no NaN."""
    return [None if math.isnan(score) else score for score in score_L.tolist()]


def _deltas(scored: Scored) -> tuple[deltas.DeltaRows, deltas.DeltaRows]:
    """Two tables: corrected labels as they were, to take out, and all changes as they are now, to add."""
    candidates = [change.candidate for change in scored.changes]
    columns = [np.array([getattr(c, name) for c in candidates]) for name in ("created_ms", "predicted", "tag_key")]
    created_L, predicted_L, tag_L = columns
    confidence_L = np.array([c.confidence for c in candidates])

    def rows(
        which: npt.NDArray[np.bool_], label_L: Integers, nll_L: Array, brier_L: Array, sign: int
    ) -> deltas.DeltaRows:
        return deltas.label_deltas(
            created_L[which],
            confidence_L[which],
            predicted_L[which],
            tag_L[which],
            (label_L == predicted_L)[which],
            nll_L[which],
            brier_L[which],
            sign,
        )

    old_L = ~scored.fresh_L
    before = rows(old_L, scored.before_L, scored.nll_before_L, scored.brier_before_L, -1)
    return before, rows(np.ones(len(old_L), bool), scored.now_L, scored.nll_L, scored.brier_L, 1)
