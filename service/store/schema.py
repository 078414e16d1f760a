"""The tables, as numbered migrations of each database. Published migrations never change."""

from __future__ import annotations

from trueodds.metrics import COLUMNS

APPLICATION_ID = 0x74727565
"""`true` in ASCII: marks a SQLite file as a store of this project."""

SQLITE_1: tuple[str, ...] = (
    "CREATE TABLE versions (key INTEGER PRIMARY KEY, model TEXT NOT NULL, version TEXT NOT NULL,"
    " classes TEXT NOT NULL, calibrator TEXT NOT NULL, metrics TEXT NOT NULL, UNIQUE (model, version)) STRICT",
    "CREATE TABLE predictions (id TEXT PRIMARY KEY, version INTEGER NOT NULL REFERENCES versions, created_ms"
    " INTEGER NOT NULL, predicted INTEGER NOT NULL, confidence REAL NOT NULL, logits BLOB NOT NULL)"
    " STRICT, WITHOUT ROWID",
    "CREATE TABLE labels (prediction TEXT PRIMARY KEY REFERENCES predictions, label INTEGER NOT NULL,"
    " labelled_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID",
    "CREATE TABLE cells (version INTEGER NOT NULL REFERENCES versions, cell INTEGER NOT NULL, answers INTEGER"
    f" NOT NULL DEFAULT 0, {', '.join(f'{name} REAL NOT NULL DEFAULT 0' for name in COLUMNS)},"
    " PRIMARY KEY (version, cell)) STRICT, WITHOUT ROWID",
)
"""Schema version 1 of SQLite: one model, no history."""

# key, version: INTEGER keys; times in Unix milliseconds; blobs of sums and moves as in service.store.sums.
_TABLES = (
    "CREATE TABLE models (key {serial}, name TEXT NOT NULL UNIQUE){strict}",
    "CREATE TABLE versions (key {serial}, model {int} NOT NULL, version TEXT NOT NULL, classes TEXT NOT NULL,"
    " calibrator TEXT NOT NULL, metrics TEXT NOT NULL, last_sequence {int} NOT NULL DEFAULT 0,"
    " UNIQUE (model, version)){strict}",
    "CREATE TABLE tags (version {int} NOT NULL, key {int} NOT NULL, name TEXT NOT NULL, PRIMARY KEY (version, key),"
    " UNIQUE (version, name)){clustered}",
    # Our ids sort by time, so new rows go to the end of the tree; in SQLite the tree is the table.
    "CREATE TABLE predictions (id TEXT NOT NULL, model {int} NOT NULL, version {int} NOT NULL, created_ms {int}"
    " NOT NULL, request TEXT NOT NULL, predicted {int} NOT NULL, raw_confidence {real} NOT NULL, confidence {real}"
    " NOT NULL, tag TEXT, tag_key {int} NOT NULL, propensity {real}, digest {blob}, logits {blob} NOT NULL,"
    " PRIMARY KEY (id, model)){clustered}",
    # Retention finds our ids by the time in them, own ids by this.
    "CREATE INDEX own_ids ON predictions (created_ms) WHERE digest IS NOT NULL",
    "CREATE TABLE labels (version {int} NOT NULL, sequence {int} NOT NULL, prediction TEXT NOT NULL, created_ms {int}"
    " NOT NULL, arrived_ms {int} NOT NULL, corrected_ms {int}, label {int} NOT NULL, predicted {int} NOT NULL,"
    " first_correct {int} NOT NULL, confidence {real} NOT NULL, nll {real} NOT NULL, brier {real} NOT NULL,"
    " propensity {real}, tag TEXT, PRIMARY KEY (version, sequence)){clustered}",
    "CREATE UNIQUE INDEX labelled ON labels (prediction, version)",
    "CREATE TABLE held (model {int} NOT NULL, id TEXT NOT NULL, label TEXT NOT NULL, given_ms {int} NOT NULL,"
    " PRIMARY KEY (model, id)){clustered}",
    "CREATE TABLE moves (key {serial}, version {int} NOT NULL, kind {int} NOT NULL, data {blob} NOT NULL){strict}",
    "CREATE TABLE sums (version {int} NOT NULL, kind {int} NOT NULL, unit {int} NOT NULL, period {int} NOT NULL,"
    " data {blob} NOT NULL, PRIMARY KEY (version, kind, unit, period)){clustered}",
    "CREATE TABLE compactions (one {int} PRIMARY KEY, number {int} NOT NULL){strict}",
    "INSERT INTO compactions VALUES (1, 0)",
    "CREATE TABLE states (version {int} NOT NULL, name TEXT NOT NULL, sequence {int} NOT NULL, state TEXT NOT NULL,"
    " PRIMARY KEY (version, name)){clustered}",
)

_SQLITE = {
    "int": "INTEGER",
    "real": "REAL",
    "blob": "BLOB",
    "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
    "strict": " STRICT",
    "clustered": " STRICT, WITHOUT ROWID",
}
_POSTGRES = {
    "int": "BIGINT",
    "real": "DOUBLE PRECISION",
    "blob": "BYTEA",
    "serial": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "strict": "",
    "clustered": "",
}

_REFERENCE = "ALTER TABLE versions ADD COLUMN reference TEXT"
# SQLite takes an index before the table itself only if all columns of the query are in it.
_CORRECTED = (
    "CREATE INDEX corrected ON labels (version, sequence, created_ms, predicted, tag, corrected_ms)"
    " WHERE corrected_ms IS NOT NULL"
)

SQLITE_2 = tuple(statement.format(**_SQLITE) for statement in _TABLES)
"""Schema version 2 of SQLite; `service.store.carry_over` fills it from version 1."""

SQLITE_3 = (_REFERENCE,)
"""Schema version 3 of SQLite: the confidences of each version's validation rows."""

SQLITE_4 = (_CORRECTED,)
"""Schema version 4 of SQLite: corrected labels are found without reading the log."""

POSTGRES: tuple[tuple[str, ...], ...] = (
    (
        *(statement.format(**_POSTGRES) for statement in _TABLES),
        # Logits are noise: nothing is gained by trying to compress those of many classes.
        "ALTER TABLE predictions ALTER COLUMN logits SET STORAGE EXTERNAL",
    ),
    (_REFERENCE,),
    (_CORRECTED,),
)
"""POSTGRES[v] takes a database from schema version v to v + 1."""
