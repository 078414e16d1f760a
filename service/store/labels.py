"""Storing labels: the log of their arrival, what they move in the sums, and those that wait for their prediction."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from service.ids import is_generated
from service.store import catalogue as catalogues
from service.store import moves
from service.store.catalogue import Catalogue
from service.store.label_rules import Candidate, Change, Plan, Rules, storable
from service.store.records import GivenLabel, Integers
from service.store.scoring import Scored, score
from service.store.steps import Insert, Lock, Many, Rows, Work
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
FIND = (
    "SELECT p.id, p.version, p.created_ms, p.predicted, p.confidence, p.propensity, p.tag, p.tag_key, p.logits,"
    " l.sequence, l.label FROM predictions p LEFT JOIN labels l ON l.prediction = p.id AND l.version = p.version"
    " WHERE p.id = ANY($1)"
)


def put(labels: list[GivenLabel], catalogue: Catalogue, now_ms: int, *, each: bool) -> Work[Plan]:
    """Decide about the labels and write what was decided.

    Labels of one version are written by one transaction at a time: so their sequence numbers have no holes and become
    visible in their order, and nobody labels the same answer meanwhile.

    Raises:
        FeedbackError: see `service.store.label_rules.Rules.plan`; nothing was written.
    """
    ids = list(dict.fromkeys(given.id for given in labels if storable(given.id)))
    named = sorted({given.model for given in labels if given.model is not None})
    early = [given.id for given in labels if given.model is not None and not is_generated(given.id)]
    if early:  # a prediction with an own id must not slip in between looking for it and holding its label
        yield Lock("SELECT key FROM models WHERE name = ANY($1) ORDER BY key FOR UPDATE", (named,))
    yield Lock(
        "SELECT key FROM versions WHERE key IN (SELECT version FROM predictions WHERE id = ANY($1)) ORDER BY key"
        " FOR NO KEY UPDATE",
        (ids,),
    )
    candidates: dict[str, list[Candidate]] = {}
    for row in (yield Rows(FIND, (ids,))):
        candidates.setdefault(row[0], []).append(Candidate(*row))
    held = (yield from _held(early)) if early else {}
    keys = {candidate.version for found in candidates.values() for candidate in found}
    if not (keys <= catalogue.versions.keys() and catalogue.models.keys() >= set(named)):
        catalogue = yield from catalogues.load(catalogue)
    plan = Rules(candidates, catalogue.versions, held, each=each).plan(labels)
    yield from write_changes(plan.changes, catalogue, now_ms)
    if plan.held:
        yield Many(
            "INSERT INTO held (model, id, label, given_ms) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (model, id) DO UPDATE SET label = excluded.label",
            [
                (catalogue.models[model], id_, json.dumps(label), now_ms)
                for (model, id_), label in sorted(plan.held.items())
            ],
        )
    return plan


def _held(ids: list[str]) -> Work[dict[tuple[str, str], str | int]]:
    rows = yield Rows(
        "SELECT m.name, h.id, h.label FROM held h JOIN models m ON m.key = h.model WHERE h.id = ANY($1)",
        (sorted({id_ for id_ in ids if storable(id_)}),),
    )
    return {(model, id_): json.loads(label) for model, id_, label in rows}


def write_changes(
    changes: Mapping[tuple[int, str], Change], catalogue: Catalogue, arrived_ms: int | Mapping[str, int]
) -> Work[None]:
    """Write labels that are new or corrected, and move the sums. `arrived_ms`: of all, or by id."""
    by_version: dict[int, list[Change]] = {}
    for (key, _), change in changes.items():
        if change.candidate.label != change.now:
            by_version.setdefault(key, []).append(change)
    for key, found in sorted(by_version.items()):
        scored = score(found, catalogue.versions[key])
        if fresh := int(scored.fresh_L.sum()):
            yield from _append(key, scored, fresh, arrived_ms)
        if fresh < len(found):
            yield from _correct(key, scored, arrived_ms)
        yield Insert("moves", ("version", "kind", "data"), [(key, moves.LABELS, _moves(scored))])


def _append(key: int, scored: Scored, fresh: int, arrived_ms: int | Mapping[str, int]) -> Work[None]:
    rows = yield Rows(
        "UPDATE versions SET last_sequence = last_sequence + $2 WHERE key = $1 RETURNING last_sequence", (key, fresh)
    )
    sequence = rows[0][0] - fresh
    written = []
    for change, nll, brier in zip(scored.changes, scored.nll_L.tolist(), scored.brier_L.tolist(), strict=True):
        c = change.candidate
        if c.label is not None:
            continue
        sequence += 1
        given = arrived_ms if isinstance(arrived_ms, int) else arrived_ms[c.id]
        arrived = max(given, c.created_ms)  # where clocks disagree
        corrected = None if change.first == change.now else arrived
        first_correct = int(change.first == c.predicted)
        when = (c.created_ms, arrived, corrected)
        what = (change.now, c.predicted, first_correct, c.confidence, nll, brier, c.propensity, c.tag)
        written.append((key, sequence, c.id, *when, *what))
    yield Insert("labels", COLUMNS, written)


def _correct(key: int, scored: Scored, arrived_ms: int | Mapping[str, int]) -> Work[None]:
    rows = zip(scored.changes, scored.nll_L.tolist(), scored.brier_L.tolist(), strict=True)
    yield Many(
        "UPDATE labels SET label = $3, nll = $4, brier = $5, corrected_ms = $6 WHERE version = $1 AND sequence = $2",
        [
            (key, c.candidate.sequence, c.now, nll, brier, arrived_ms)
            for c, nll, brier in rows
            if c.candidate.label is not None
        ],
    )


def _moves(scored: Scored) -> bytes:
    """What is new goes in; of what is corrected, the old comes out as well."""
    candidates = [change.candidate for change in scored.changes]
    columns = [np.array([getattr(c, name) for c in candidates]) for name in ("created_ms", "predicted", "tag_key")]
    created_L, predicted_L, tag_L = columns
    confidence_L = np.array([c.confidence for c in candidates])

    def records(which: npt.NDArray[np.bool_], label_L: Integers, nll_L: Array, brier_L: Array, sign: int) -> bytes:
        return moves.labels(
            created_L[which],
            confidence_L[which],
            predicted_L[which],
            tag_L[which],
            (label_L == predicted_L)[which],
            nll_L[which],
            brier_L[which],
            sign,
        ).tobytes()

    old = ~scored.fresh_L
    before = records(old, scored.before_L, scored.nll_before_L, scored.brier_before_L, -1)
    return before + records(np.ones(len(old), bool), scored.now_L, scored.nll_L, scored.brier_L, 1)
