"""Storing answers: their rows, their contribution to the sums, and labels that arrived before them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from service.store.label_rules import LabelCandidate, LabelChange, LabelRules
from service.store.rows import ConflictsError, EarlierPrediction, Integers, Label, PredictionBatch, RowsError, Version
from service.store.work import maturing
from service.store.work.labelling import label_masses
from service.store.work.labels import Arrival, candidates_of, write_changes
from service.store.work.statements import Insert, InsertNew, Lock, Query, Work
from service.store.work.sums import deltas
from service.store.work.versions import VersionCache, load_versions
from trueodds.bundle.contents import is_shadow, shadowed_by
from trueodds.sums.inputs import Array

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
    "confidence_source",
    "label_mass",
)


def put_all(
    batches: list[tuple[PredictionBatch, list[int]]], cache: VersionCache, now_ms: int, *, each: bool
) -> Work[list[list[EarlierPrediction | None]]]:
    """Store several batches; see `put`. Each batch comes with the keys of its tags.

    Raises:
        ConflictsError: Without `each`, an id was already used for another answer. The caller must store nothing.
    """
    outcomes = []
    for batch, tag_keys in batches:
        outcomes.append((yield from put(batch, tag_keys, cache, now_ms)))
    if not each and any(row is not None and row.logits is None for rows in outcomes for row in rows):
        raise ConflictsError(outcomes)
    return outcomes


def put(
    batch: PredictionBatch, tag_keys: list[int], cache: VersionCache, now_ms: int
) -> Work[list[EarlierPrediction | None]]:
    """Store the rows that are new. For the others, return what was stored before."""
    version = cache.keys[batch.model, batch.version]
    model = cache.model_of[version]
    rows = _rows(batch, model, version, tag_keys)
    own = [k for k, digest in enumerate(batch.digests) if digest is not None]
    outcomes: list[EarlierPrediction | None] = [None] * len(rows)
    if len(own) < len(rows):
        yield Insert(
            "predictions",
            COLUMNS,
            [row for row, digest in zip(rows, batch.digests, strict=True) if digest is None] if own else rows,
        )
    if is_shadow(batch.model) and cache.versions[version].is_observed:
        # A shadow's answer may precede the answer that it shadows. That answer, with a held label, must not be stored
        # in between.
        yield Lock("SELECT key FROM models WHERE name = $1 FOR UPDATE", (shadowed_by(batch.model),))
    if own:
        # Held labels of this model, and labels to be held, wait for this transaction; see labels.put.
        yield Lock("SELECT key FROM models WHERE key = $1 FOR SHARE", (model,))
        firsts = {batch.ids[k]: k for k in reversed(own)}
        # Sorted by id, so that two workers that insert the same ids wait for each other in one direction only.
        inserted = yield InsertNew("predictions", COLUMNS, [rows[firsts[id_]] for id_ in sorted(firsts)])
        repeated = [k for k in own if firsts[batch.ids[k]] != k or batch.ids[k] not in inserted]
        if repeated:
            earlier = yield from _earlier([batch.ids[k] for k in repeated], model)
            for k in repeated:
                outcomes[k] = _earlier_answer(batch.ids[k], batch.digests[k], earlier)
    fresh = np.array([k for k, outcome in enumerate(outcomes) if outcome is None], np.intp)
    if len(fresh):
        created_N, predicted_N, tag_N = batch.created_ms_N[fresh], batch.index_N[fresh], np.array(tag_keys)[fresh]
        columns = created_N, batch.confidence_N[fresh], predicted_N, tag_N
        yield from sum_answers(version, cache.versions[version], *columns, [batch.tags[k] for k in fresh])
        if batch.label_masses is not None:
            yield from label_masses.add(version, [batch.label_masses[k] for k in fresh.tolist()])
        if batch.sets is not None:
            members = [(version, batch.ids[k], batch.sets[k]) for k in fresh.tolist()]
            yield Insert("observed_sets", ("version", "prediction", "members"), members)
        yield from maturing.enrol(version, cache, [(batch.ids[k], int(batch.created_ms_N[k])) for k in fresh], now_ms)
    if is_shadow(batch.model):
        yield from _apply_labels_of_answers(batch, rows, [batch.ids[k] for k in fresh], cache)
    elif new := [batch.ids[k] for k in own if outcomes[k] is None]:
        yield from _apply_held(batch.model, new, model, cache)
    return outcomes


def sum_answers(
    key: int,
    version: Version,
    created_N: Integers,
    confidence_N: Array,
    predicted_N: npt.NDArray[np.integer],
    tag_N: Integers,
    tags: list[str | None],
    sign: int = 1,
) -> Work[None]:
    """Add answers to all sums of their version; with the sign -1, subtract them."""
    rows_N = deltas.answer_deltas(created_N, confidence_N, predicted_N, tag_N, sign)
    yield deltas.insert_of(key, deltas.ANSWERS, rows_N)
    if version.act_alone and (acts_N := version.act_alone.acts(confidence_N, tags)).any():
        yield deltas.insert_of(key, deltas.ACTED_ANSWERS, rows_N[acts_N])
    if positive := version.positive_class:
        p_N = positive.probability_of_top(confidence_N, predicted_N)
        part = deltas.answer_deltas(created_N, p_N, predicted_N, tag_N, sign)
        yield deltas.insert_of(key, deltas.POSITIVE_ANSWERS, part)


def _rows(batch: PredictionBatch, model: int, version: int, tag_keys: list[int]) -> list[tuple[Any, ...]]:
    blobs = [row.tobytes() for row in batch.logits_NC.astype("<f4", copy=False)]
    unknown = [None] * len(blobs)
    return [
        (id_, model, version, *row)
        for id_, *row in zip(
            batch.ids,
            batch.created_ms_N.tolist(),
            batch.request_ids,
            batch.index_N.tolist(),
            batch.raw_confidence_N.tolist(),
            batch.confidence_N.tolist(),
            batch.tags,
            tag_keys,
            batch.propensities,
            batch.digests,
            blobs,
            batch.confidence_sources or unknown,
            batch.label_masses or unknown,
            strict=True,
        )
    ]


def _earlier(ids: list[str], model: int) -> Work[dict[str, tuple[Any, ...]]]:
    rows = yield Query(
        "SELECT p.id, v.version, p.digest, p.logits, p.tag, p.propensity FROM predictions p"
        " JOIN versions v ON v.key = p.version WHERE p.id = ANY($1) AND p.model = $2",
        (sorted(set(ids)), model),
    )
    return {id_: tuple(row) for id_, *row in rows}


def _earlier_answer(id_: str, digest: bytes | None, earlier: dict[str, tuple[Any, ...]]) -> EarlierPrediction:
    if id_ not in earlier:  # retention removed it between the two statements
        raise RowsError(f"the answer of {id_} was removed in this moment; try again")
    version, stored, logits, tag, propensity = earlier[id_]
    return EarlierPrediction(bytes(logits) if stored == digest else None, version, tag, propensity)


def _candidates(rows: list[tuple[Any, ...]]) -> list[LabelCandidate]:
    named = [dict(zip(COLUMNS, row, strict=True)) | {"sequence": None, "label": None} for row in rows]
    return [LabelCandidate(*(row[name] for name in LabelCandidate._fields if name in row)) for row in named]


_VERSIONS_OF = (
    "SELECT p.version FROM predictions p JOIN models m ON m.key = p.model WHERE p.id = ANY($1) AND m.name = $2"
)


def _apply_labels_of_answers(
    batch: PredictionBatch, rows: list[tuple[Any, ...]], fresh: list[str], cache: VersionCache
) -> Work[None]:
    """Label a shadow's rows with the labels of the answers that they shadow. The answers may already have labels.

    Transactions that label the answers wait for the rows of their versions, so none runs between reading and writing.
    """
    answering_model, ids = shadowed_by(batch.model), [row[0] for row in rows]
    version = cache.keys[batch.model, batch.version]
    of = _VERSIONS_OF
    yield Lock(f"SELECT key FROM versions WHERE key IN ({of}) ORDER BY key FOR NO KEY UPDATE", (ids, answering_model))
    if cache.versions[version].maturity is not None:
        yield from _keep_labels_of_answers(fresh, answering_model, version, cache)
        return
    labelled = yield Query(
        "SELECT prediction, version, label, arrived_ms, import_id, corrected_ms FROM labels"
        f" WHERE prediction = ANY($1) AND version IN ({of})",
        (ids, answering_model),
    )
    if not labelled:
        return
    if not {key for _, key, *_ in labelled} <= cache.versions.keys():
        cache = yield from load_versions(cache)
    classes = cache.versions[version].classes
    fitting = {id_: row for id_, key, *row in labelled if cache.versions[key].classes == classes}
    past = yield Query(
        "SELECT prediction, label, given_ms, import_id FROM replaced"
        f" WHERE prediction = ANY($1) AND version IN ({of}) ORDER BY key",
        (list(fitting), answering_model),
    )
    labels = {id_: label for id_, (label, *_) in fitting.items()}
    firsts = labels | {id_: label for id_, label, *_ in reversed(past)}
    changes = {(version, c.id): LabelChange(c, firsts[c.id], labels[c.id]) for c in _candidates(rows) if c.id in labels}
    yield from write_changes(changes, cache, {id_: Arrival(*arrival) for id_, (_, *arrival) in fitting.items()})
    yield Insert("replaced", maturing.GIVEN, [(version, *row) for row in past])


def _keep_labels_of_answers(fresh: list[str], answering_model: str, version: int, cache: VersionCache) -> Work[None]:
    """Keep the labels that people gave to the answers for new rows of a shadow, until the shadow's window closes."""
    where = f"WHERE prediction = ANY($1) AND version IN ({_VERSIONS_OF})"
    given = yield Query(
        f"SELECT prediction, version, label, given_ms, import_id FROM early {where} ORDER BY key",
        (fresh, answering_model),
    )
    counted = yield Query(
        "SELECT prediction, version, label, coalesce(corrected_ms, arrived_ms), import_id FROM labels"
        f" {where} AND (assumed IS NULL OR corrected_ms IS NOT NULL)",
        (fresh, answering_model),
    )
    rows = [*given, *counted]
    if not {key for _, key, *_ in rows} <= cache.versions.keys():
        cache = yield from load_versions(cache)
    classes = cache.versions[version].classes
    alike = [(version, id_, *entry) for id_, key, *entry in rows if cache.versions[key].classes == classes]
    yield Insert("early", maturing.GIVEN, alike)


def _apply_held(model_name: str, ids: list[str], model: int, cache: VersionCache) -> Work[None]:
    """Give predictions, and their shadows' answers, the held labels. A label of an unknown class stays held."""
    yield from _apply_doubtful(ids, model)
    held = yield Query(
        "SELECT id, label, given_ms, import_id FROM held WHERE model = $1 AND id = ANY($2)", (model, ids)
    )
    if not held:
        return
    candidates, cache = yield from candidates_of([id_ for id_, *_ in held], cache)
    labels = [Label(id_, json.loads(label), model=model_name) for id_, label, *_ in held]
    plan = LabelRules(candidates, cache.versions, {}, each=True).plan(labels)
    arrivals = {id_: Arrival(given_ms, import_id) for id_, _, given_ms, import_id in held}
    yield from write_changes(plan.changes, cache, arrivals)
    applied = [id_ for _, id_ in plan.changes]
    yield Query("DELETE FROM held WHERE model = $1 AND id = ANY($2)", (model, applied))


def _apply_doubtful(ids: list[str], model: int) -> Work[None]:
    """Turn doubtful held labels into doubtful labels of the predictions that have arrived."""
    where = "model = $1 AND id = ANY($2) AND doubtful = 1"
    held = yield Query(f"SELECT id, label, given_ms, import_id FROM held WHERE {where}", (model, ids))
    if not held:
        return
    versions = dict(
        (yield Query("SELECT id, version FROM predictions WHERE id = ANY($1) AND model = $2", (ids, model)))
    )
    rows = [(versions[id_], id_, int(json.loads(label)), *when) for id_, label, *when in held]
    yield Insert("doubtful", maturing.GIVEN, rows)
    yield Query(f"DELETE FROM held WHERE {where}", (model, ids))
