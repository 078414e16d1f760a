"""Deciding the resolution of a version: once, with its earlier answers and labels read again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from service.store.label_rules import LabelCandidate, LabelChange
from service.store.rows import Version
from service.store.work import predictions
from service.store.work.labels import candidates_in, move_labels, nullable
from service.store.work.scoring import as_sent, logits_of, score
from service.store.work.statements import ExecuteMany, Query, Work, lock_of
from service.store.work.versions import VersionCache, resolution_text
from trueodds.sums.rounding import Resolution

BLOCK = 2000
"""Rows that are read again at once."""


def decide(key: int, resolution: Resolution, cache: VersionCache) -> Work[None]:
    """Keep the resolution of a version, unless it has one, and read its answers and labels again.

    The transaction holds the lock of the version's labels, so no label is scored meanwhile.
    """
    yield lock_of(key)
    changed = yield Query(
        "UPDATE versions SET resolution = $2 WHERE key = $1 AND resolution IS NULL RETURNING key",
        (key, resolution_text(resolution)),
    )
    before = cache.versions[key]
    if not changed or resolution.step is None or not before.has_logits:
        return
    after = replace(before, resolution=resolution)
    yield from _rescore(key, replace(before, resolution=None), after, (yield from _lower_certain(key, after)))


def _lower_certain(key: int, version: Version) -> Work[dict[str, float]]:
    """Lower the confidence of rounded answers that were stored as certain. Return their old confidences by id."""
    assert version.resolution is not None
    most = float(version.resolution.confidence(np.ones(1))[0])
    old, last = dict[str, float](), ""
    while True:
        rows = yield Query(
            "SELECT id, created_ms, predicted, confidence, tag, tag_key, logits FROM predictions WHERE version = $1"
            " AND confidence > $2 AND id > $3 ORDER BY id LIMIT $4",
            (key, most, last, BLOCK),
        )
        if not rows:
            return old
        last = rows[-1][0]
        logits_NC = logits_of([bytes(row[-1]) for row in rows], len(version.classes))
        _, rounded_N = as_sent(logits_NC, np.array([row[3] for row in rows], np.float64), version)
        certain = [row for row, is_rounded in zip(rows, rounded_N.tolist(), strict=True) if is_rounded]
        if not certain:
            continue
        old |= {row[0]: row[3] for row in certain}
        created_N, predicted_N, old_N, tag_N = (np.array([row[k] for row in certain]) for k in (1, 2, 3, 5))
        for confidence_N, sign in ((old_N, -1), (np.full(len(certain), most), 1)):
            columns = created_N, confidence_N, predicted_N, tag_N
            yield from predictions.sum_answers(key, version, *columns, [row[4] for row in certain], sign)
        yield ExecuteMany(
            "UPDATE predictions SET confidence = $3 WHERE version = $1 AND id = $2",
            [(key, row[0], most) for row in certain],
        )


def _rescore(key: int, before: Version, after: Version, old: dict[str, float]) -> Work[None]:
    """Score all labels again. `old` has the confidences by id that have changed."""
    last = 0
    while True:
        rows = yield Query(
            "SELECT sequence, prediction FROM labels WHERE version = $1 AND sequence > $2 ORDER BY sequence LIMIT $3",
            (key, last, BLOCK),
        )
        if not rows:
            return
        last = rows[-1][0]
        found = yield from candidates_in(key, [id_ for _, id_ in rows])
        candidates = [c for c in found.values() if c.label is not None]
        if not candidates:
            continue
        were = [c._replace(confidence=old.get(c.id, c.confidence)) for c in candidates]
        was, now = score(_as_changes(were), before), score(_as_changes(candidates), after)
        yield from move_labels(key, before, was, now)
        scores = zip(candidates, nullable(now.nll_L), nullable(now.brier_L), strict=True)
        yield ExecuteMany(
            "UPDATE labels SET confidence = $3, nll = $4, brier = $5 WHERE version = $1 AND sequence = $2",
            [(key, c.sequence, c.confidence, nll, brier) for c, nll, brier in scores],
        )


def _as_changes(candidates: list[LabelCandidate]) -> list[LabelChange]:
    return [LabelChange(c, c.label, c.label) for c in candidates if c.label is not None]
