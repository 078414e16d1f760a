"""Storing answers: the rows, what they add to the sums, and the labels that came before them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from service.store import RowsError, moves
from service.store.catalogue import Catalogue
from service.store.label_rules import Candidate, Change, Rules
from service.store.labels import write_changes
from service.store.records import Earlier, GivenLabel, PredictionBatch
from service.store.steps import Insert, InsertNew, Lock, Rows, Work
from trueodds.shadows import is_shadow, shadowed_by

COLUMNS = (
    "id",
    "model",
    "version",
    "created_ms",
    "request",
    "predicted",
    "raw_confidence",
    "confidence",
    "tag",
    "tag_key",
    "propensity",
    "digest",
    "logits",
)


def put(batch: PredictionBatch, tag_keys: list[int], catalogue: Catalogue) -> Work[list[Earlier | None]]:
    """Store the rows that are new; for the others, what was stored before."""
    version = catalogue.keys[batch.model, batch.version]
    model = catalogue.model_of[version]
    rows = _rows(batch, model, version, tag_keys)
    own = [k for k, digest in enumerate(batch.digests) if digest is not None]
    outcomes: list[Earlier | None] = [None] * len(rows)
    if len(own) < len(rows):
        yield Insert("predictions", COLUMNS, [row for row in rows if row[-2] is None] if own else rows)
    if own:
        # Held labels of this model, and the labels that would be held, wait for this transaction; see labels.put.
        yield Lock("SELECT key FROM models WHERE key = $1 FOR SHARE", (model,))
        firsts = {batch.ids[k]: k for k in reversed(own)}
        # In the order of their ids: two workers that insert the same ones wait for each other in one direction only.
        inserted = yield InsertNew("predictions", COLUMNS, [rows[firsts[id_]] for id_ in sorted(firsts)])
        known = [k for k in own if firsts[batch.ids[k]] != k or batch.ids[k] not in inserted]
        if known:
            earlier = yield from _earlier([batch.ids[k] for k in known], model, catalogue)
            for k in known:
                outcomes[k] = _compared(batch.ids[k], batch.digests[k], earlier)
    fresh = np.array([k for k, outcome in enumerate(outcomes) if outcome is None], np.intp)
    if len(fresh):
        records = moves.answers(
            batch.created_ms, batch.confidence_N[fresh], batch.index_N[fresh], np.array(tag_keys)[fresh]
        )
        yield Insert("moves", ("version", "kind", "data"), [(version, moves.ANSWERS, records.tobytes())])
    if is_shadow(batch.model):
        yield from _apply_known(batch, rows, model, catalogue)
    elif new := [rows[k] for k in own if outcomes[k] is None]:
        yield from _apply_held(batch, new, model, catalogue)
    return outcomes


def _rows(batch: PredictionBatch, model: int, version: int, tag_keys: list[int]) -> list[tuple[Any, ...]]:
    blobs = [row.tobytes() for row in batch.logits_NC.astype("<f4", copy=False)]
    return [
        (id_, model, version, batch.created_ms, *row)
        for id_, *row in zip(
            batch.ids,
            batch.request_ids,
            batch.index_N.tolist(),
            batch.raw_confidence_N.tolist(),
            batch.confidence_N.tolist(),
            batch.tags,
            tag_keys,
            batch.propensities,
            batch.digests,
            blobs,
            strict=True,
        )
    ]


def _earlier(ids: list[str], model: int, catalogue: Catalogue) -> Work[dict[str, tuple[str, bytes | None, bytes]]]:
    rows = yield Rows(
        "SELECT p.id, v.version, p.digest, p.logits FROM predictions p JOIN versions v ON v.key = p.version"
        " WHERE p.id = ANY($1) AND p.model = $2",
        (sorted(set(ids)), model),
    )
    return {id_: (version, digest, logits) for id_, version, digest, logits in rows}


def _compared(id_: str, digest: bytes | None, earlier: dict[str, tuple[str, bytes | None, bytes]]) -> Earlier:
    if id_ not in earlier:  # retention took it between the two statements
        raise RowsError(f"the answer of {id_} was removed at this very moment; try again")
    version, stored, logits = earlier[id_]
    return Earlier(bytes(logits) if stored == digest else None, version)


def _candidates(rows: list[tuple[Any, ...]]) -> list[Candidate]:
    named = [dict(zip(COLUMNS, row, strict=True)) | {"sequence": None, "label": None} for row in rows]
    return [Candidate(*(row[name] for name in Candidate._fields)) for row in named]


def _apply_known(batch: PredictionBatch, rows: list[tuple[Any, ...]], model: int, catalogue: Catalogue) -> Work[None]:
    """A shadow's rows come after the answers, and maybe after their labels, which are theirs too.

    Those who label the answers wait for their versions' rows, so none comes between reading and writing.
    """
    answered, ids = shadowed_by(batch.model), [row[0] for row in rows]
    of = "SELECT p.version FROM predictions p JOIN models m ON m.key = p.model WHERE p.id = ANY($1) AND m.name = $2"
    yield Lock(f"SELECT key FROM versions WHERE key IN ({of}) ORDER BY key FOR NO KEY UPDATE", (ids, answered))
    known = yield Rows(
        f"SELECT prediction, label, arrived_ms FROM labels WHERE prediction = ANY($1) AND version IN ({of})",
        (ids, answered),
    )
    labels = {id_: label for id_, label, _ in known}
    version = catalogue.keys[batch.model, batch.version]
    changes = {(version, c.id): Change(c, labels[c.id], labels[c.id]) for c in _candidates(rows) if c.id in labels}
    yield from write_changes(changes, catalogue, {id_: arrived_ms for id_, _, arrived_ms in known})


def _apply_held(batch: PredictionBatch, rows: list[tuple[Any, ...]], model: int, catalogue: Catalogue) -> Work[None]:
    """Labels that came before these predictions become theirs. One that names no class of this version stays held."""
    held = yield Rows(
        "SELECT id, label, given_ms FROM held WHERE model = $1 AND id = ANY($2)", (model, [row[0] for row in rows])
    )
    if not held:
        return
    version = catalogue.keys[batch.model, batch.version]
    yield Lock("SELECT key FROM versions WHERE key = $1 FOR NO KEY UPDATE", (version,))
    found = {candidate.id: candidate for candidate in _candidates(rows)}
    candidates = {id_: [found[id_]] for id_, _, _ in held}
    labels = [GivenLabel(id_, json.loads(label), model=batch.model) for id_, label, _ in held]
    plan = Rules(candidates, catalogue.versions, {}, each=True).plan(labels)
    arrived = {id_: max(given_ms, batch.created_ms) for id_, _, given_ms in held}
    yield from write_changes(plan.changes, catalogue, arrived)
    applied = [id_ for _, id_ in plan.changes]
    yield Rows("DELETE FROM held WHERE model = $1 AND id = ANY($2)", (model, applied))
