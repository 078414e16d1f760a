"""Bringing a SQLite file to the newest schema, and carrying over what version 1 held."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np

from service.store import StoreError, moves, predictions
from service.store import catalogue as catalogues
from service.store.label_rules import Candidate, Change
from service.store.labels import write_changes
from service.store.schema import APPLICATION_ID, SQLITE_1, SQLITE_2, SQLITE_3, SQLITE_4
from service.store.sqlite_steps import run
from service.store.steps import Insert, Rows, Work
from trueodds.metrics import softmax

ROWS = 2000
"""Rows that are carried over at a time."""
_OLD = ("versions", "predictions", "labels", "cells")


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring an open store to the newest schema, in one transaction.

    Raises:
        StoreError: a SQLite file of something else, or of a newer release.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        found, application = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))
        tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if application != APPLICATION_ID and (tables or found or application):
            raise StoreError(f"{path} is a SQLite file, but not a TrueOdds store; give another path (--store)")
        if found > len(MIGRATIONS):
            newer = f"{path} has schema version {found}; this release knows versions up to {len(MIGRATIONS)}"
            raise StoreError(f"{newer}. Use the newer release that wrote it, or another path (--store)")
        for migration in MIGRATIONS[found:]:
            migration(db)
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={len(MIGRATIONS)}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _create(db: sqlite3.Connection) -> None:
    for statement in SQLITE_1:
        db.execute(statement)


def _remember_hours(db: sqlite3.Connection) -> None:
    """Version 1 kept one set of sums. They are built again from its rows, each in the hour of its prediction."""
    for table in _OLD:
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    for statement in SQLITE_2:
        db.execute(statement)
    run(db, _versions())
    for key, classes in db.execute("SELECT key, classes FROM old_versions").fetchall():
        run(db, _predictions(key, len(json.loads(classes))))
    cursor = db.execute(
        "SELECT p.id, p.version, p.created_ms, p.predicted, p.confidence, p.logits, l.label, l.labelled_ms"
        " FROM old_labels l JOIN old_predictions p ON p.id = l.prediction ORDER BY l.labelled_ms, l.prediction"
    )
    while rows := cursor.fetchmany(ROWS):
        changes, arrived = {}, {}
        for id_, version, created_ms, predicted, confidence, logits, label, labelled_ms in rows:
            plain = (None, None, moves.NO_TAG)  # propensity, tag, key of the tag
            candidate = Candidate(id_, version, created_ms, predicted, confidence, *plain, logits, None, None)
            changes[version, id_], arrived[id_] = Change(candidate, label, label), labelled_ms
        known = run(db, catalogues.load(catalogues.Catalogue(), reference="NULL"))
        run(db, write_changes(changes, known, arrived))
    for table in reversed(_OLD):
        db.execute(f"DROP TABLE old_{table}")


def _versions() -> Work[None]:
    yield Rows("INSERT INTO models (name) SELECT model FROM old_versions GROUP BY model ORDER BY min(key)")
    yield Rows(
        "INSERT INTO versions (key, model, version, classes, calibrator, metrics)"
        " SELECT o.key, m.key, o.version, o.classes, o.calibrator, o.metrics FROM old_versions o"
        " JOIN models m ON m.name = o.model ORDER BY o.key"
    )


def _predictions(version: int, classes: int) -> Work[None]:
    ((model,),) = yield Rows("SELECT model FROM versions WHERE key = $1", (version,))
    after = ""
    while rows := (
        yield Rows(
            "SELECT id, created_ms, predicted, confidence, logits FROM old_predictions"
            " WHERE version = $1 AND id > $2 ORDER BY id LIMIT $3",
            (version, after, ROWS),
        )
    ):
        ids, created, predicted, confidence, logits = zip(*rows, strict=True)
        after, row_N = ids[-1], np.arange(len(rows))
        logits_NC = np.frombuffer(b"".join(logits), "<f4").reshape(len(rows), classes).astype(np.float64)
        raw = softmax(logits_NC)[row_N, np.array(predicted)].tolist()
        yield Insert(
            "predictions",
            predictions.COLUMNS,
            [
                (id_, model, version, ms, "", index, before, after_, None, moves.NO_TAG, None, None, blob)
                for id_, ms, index, before, after_, blob in zip(
                    ids, created, predicted, raw, confidence, logits, strict=True
                )
            ],
        )
        records = moves.answers(created, np.array(confidence), predicted, moves.NO_TAG)
        yield Insert("moves", ("version", "kind", "data"), [(version, moves.ANSWERS, records.tobytes())])


def _remember_references(db: sqlite3.Connection) -> None:
    for statement in SQLITE_3:
        db.execute(statement)


def _find_corrections(db: sqlite3.Connection) -> None:
    for statement in SQLITE_4:
        db.execute(statement)


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    _create,
    _remember_hours,
    _remember_references,
    _find_corrections,
)
"""MIGRATIONS[v] takes a store from schema version v to v + 1. Published ones never change what they did."""
