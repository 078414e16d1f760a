"""The SQLite schema as numbered migrations, and the two upserts that keep the sums."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from pipeline.metrics import COLUMNS
from service.store import StoreError

APPLICATION_ID = 0x74727565
"""`true` in ASCII: marks a SQLite file as a store of this project."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE versions (key INTEGER PRIMARY KEY, model TEXT NOT NULL, version TEXT NOT NULL,"
        " classes TEXT NOT NULL, calibrator TEXT NOT NULL, metrics TEXT NOT NULL, UNIQUE (model, version)) STRICT",
        # Ids sort by time, so new rows go to the end of the tree; WITHOUT ROWID spares a second tree and its pages.
        "CREATE TABLE predictions (id TEXT PRIMARY KEY, version INTEGER NOT NULL REFERENCES versions, created_ms"
        " INTEGER NOT NULL, predicted INTEGER NOT NULL, confidence REAL NOT NULL, logits BLOB NOT NULL)"
        " STRICT, WITHOUT ROWID",
        "CREATE TABLE labels (prediction TEXT PRIMARY KEY REFERENCES predictions, label INTEGER NOT NULL,"
        " labelled_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID",
        "CREATE TABLE cells (version INTEGER NOT NULL REFERENCES versions, cell INTEGER NOT NULL, answers INTEGER"
        f" NOT NULL DEFAULT 0, {', '.join(f'{name} REAL NOT NULL DEFAULT 0' for name in COLUMNS)},"
        " PRIMARY KEY (version, cell)) STRICT, WITHOUT ROWID",
    ),
)
"""MIGRATIONS[v] takes a store from schema version v to v + 1. Published ones never change."""

ADD_ANSWERS = (
    "INSERT INTO cells (version, cell, answers) VALUES (?, ?, ?)"
    " ON CONFLICT (version, cell) DO UPDATE SET answers = answers + excluded.answers"
)
"""Parameters: version, cell, answers."""

# A cell whose last label is taken out again holds exactly 0, not what rounding left.
ADD_LABELLED = (
    f"INSERT INTO cells (version, cell, {', '.join(COLUMNS)}) VALUES (?, ?{', ?' * len(COLUMNS)})"
    " ON CONFLICT (version, cell) DO UPDATE SET "
    + ", ".join(
        f"{name} = CASE WHEN count + excluded.count = 0 THEN 0 ELSE {name} + excluded.{name} END" for name in COLUMNS
    )
)
"""Parameters: version, cell, then the changes of COLUMNS."""


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
        for statement in (s for migration in MIGRATIONS[found:] for s in migration):
            db.execute(statement)
        db.execute(f"PRAGMA application_id={APPLICATION_ID}")
        db.execute(f"PRAGMA user_version={len(MIGRATIONS)}")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise
