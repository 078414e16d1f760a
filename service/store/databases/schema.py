"""SQL of the tables, in the dialect of each database."""

from __future__ import annotations

from collections.abc import Iterable

APPLICATION_ID = 0x74727565
"""`true` in ASCII. Marks a SQLite file as a TrueOdds store; in PostgreSQL, the id of the lock for creating tables."""

VERSION = 16
"""The only schema version that this release reads."""

_OTHER_TAGS = "CREATE INDEX other_tags ON predictions (version, tag, created_ms) WHERE tag_key = 101"
"""Index of the answers whose tags have no sums of their own. 101 is `deltas.OTHER_KEY`."""

_DOUBTFUL = (
    # Doubtful labels, which wait outside the log for a decision. Labels that they had replaced come first; see
    # work.doubtful.
    "CREATE TABLE doubtful (key {serial}, version {int} NOT NULL, prediction TEXT NOT NULL, label {int} NOT NULL,"
    " given_ms {int} NOT NULL, import_id TEXT){strict}",
    "CREATE INDEX doubtful_labels ON doubtful (version, prediction)",
    "CREATE TABLE settlements (key {serial}, version {int} NOT NULL, at_ms {int} NOT NULL, decision TEXT NOT NULL,"
    " who TEXT NOT NULL, why TEXT NOT NULL, labels {int} NOT NULL){strict}",
)

_MATURING = (
    # Answers of versions with a maturity window that do not count yet, and their labels so far in the order of arrival;
    # see work.maturing.
    "CREATE TABLE maturing (version {int} NOT NULL, prediction TEXT NOT NULL, due_ms {int} NOT NULL,"
    " PRIMARY KEY (version, prediction)){clustered}",
    "CREATE INDEX due ON maturing (version, due_ms, prediction)",
    "CREATE TABLE early (key {serial}, version {int} NOT NULL, prediction TEXT NOT NULL, label {int} NOT NULL,"
    " given_ms {int} NOT NULL, import_id TEXT){strict}",
    "CREATE INDEX early_labels ON early (version, prediction)",
)

_DECISIONS = (
    # Questions of decision models, with the state of the test of declined ones; see work.decisions.
    "CREATE TABLE questions (model TEXT PRIMARY KEY, declined TEXT NOT NULL){clustered}",
    "CREATE TABLE question_versions (key {serial}, model TEXT NOT NULL, version TEXT NOT NULL, name TEXT NOT NULL,"
    " type TEXT NOT NULL, served TEXT NOT NULL, wording TEXT NOT NULL, ordered {int} NOT NULL, answered {int} NOT NULL,"
    " declined {int} NOT NULL, repeated {int} NOT NULL, masses {int} NOT NULL, mass_sum {real} NOT NULL,"
    " low_masses {int} NOT NULL, first_ms {int} NOT NULL, last_ms {int} NOT NULL, UNIQUE (model, version)){strict}",
    "CREATE TABLE decisions (id TEXT NOT NULL, question {int} NOT NULL, created_ms {int} NOT NULL, declined {int}"
    " NOT NULL, mass {real}, input TEXT, kept TEXT, PRIMARY KEY (id, question)){clustered}",
    "CREATE INDEX decision_inputs ON decisions (question, input)",
    "CREATE INDEX decision_times ON decisions (created_ms)",
    "CREATE TABLE notices (key {serial}, model TEXT NOT NULL, version TEXT NOT NULL, kind TEXT NOT NULL, at_ms {int}"
    " NOT NULL, details TEXT NOT NULL, deliveries TEXT NOT NULL, UNIQUE (model, version, kind)){strict}",
    "CREATE TABLE secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL){clustered}",
)

_ARCHIVE = (
    # Files of the archive, and the answers that wait in the store until their file is verified; see work.archiving.
    "CREATE TABLE archive_files (key {serial}, version {int} NOT NULL, day {int} NOT NULL, answers {int} NOT NULL,"
    " labelled {int} NOT NULL, state {int} NOT NULL, archived_ms {int}){strict}",
    "CREATE INDEX unfinished_files ON archive_files (state, version, day) WHERE state < 3",
    "CREATE TABLE archiving (file {int} NOT NULL, id TEXT NOT NULL, created_ms {int} NOT NULL, predicted {int}"
    " NOT NULL, raw_confidence {real} NOT NULL, confidence {real} NOT NULL, logits {blob} NOT NULL, tag TEXT,"
    " propensity {real}, label {int}, labelled_ms {int}, corrected_ms {int}, import_id TEXT, confidence_source TEXT,"
    " judge_label {int}, members {blob}, PRIMARY KEY (file, id)){clustered}",
    "CREATE TABLE archive_problems (one {int} PRIMARY KEY, failures {int} NOT NULL, problem TEXT){strict}",
    "INSERT INTO archive_problems VALUES (1, 0, NULL)",
)

_QUEUE = (
    # Draws of answers to label, and the drawn answers in the order in which people get them; see work.labelling.
    "CREATE TABLE label_draws (key {serial}, version {int} NOT NULL, at_ms {int} NOT NULL, since_ms {int} NOT NULL,"
    " until_ms {int} NOT NULL, goal TEXT NOT NULL, threshold {real}, tag TEXT, floor {real} NOT NULL, budget {int}"
    " NOT NULL, answers {int} NOT NULL, drawn {int} NOT NULL, who TEXT NOT NULL){strict}",
    "CREATE INDEX draws_of ON label_draws (version, until_ms)",
    "CREATE TABLE label_queue (version {int} NOT NULL, prediction TEXT NOT NULL, draw {int} NOT NULL, place {int}"
    " NOT NULL, propensity {real} NOT NULL, skipped {int} NOT NULL DEFAULT 0, leased_to TEXT, lease_until_ms {int},"
    " who TEXT, at_ms {int}, PRIMARY KEY (version, prediction)){clustered}",
)

_JUDGE = (
    # Labels of a judge, beside those of people. No sum, alarm or fit reads them; see work.labelling.
    "CREATE TABLE judge_labels (version {int} NOT NULL, prediction TEXT NOT NULL, label {int} NOT NULL, given_ms {int}"
    " NOT NULL, PRIMARY KEY (version, prediction)){clustered}",
)

_OBSERVED_SETS = (
    # Conformal sets of answers that another server gave: a bit for each class, the first class in the highest bit.
    "CREATE TABLE observed_sets (version {int} NOT NULL, prediction TEXT NOT NULL, members {blob} NOT NULL,"
    " PRIMARY KEY (version, prediction)){clustered}",
)

_AFTER_WINDOW = "CREATE INDEX after_window ON labels (version) WHERE late = 1"

# Times are Unix milliseconds. work.sums defines the blobs of sums and moves.
_TABLES = (
    "CREATE TABLE models (key {serial}, name TEXT NOT NULL UNIQUE){strict}",
    "CREATE TABLE versions (key {serial}, model {int} NOT NULL, version TEXT NOT NULL, classes TEXT NOT NULL,"
    " calibrator TEXT NOT NULL, metrics TEXT NOT NULL, last_sequence {int} NOT NULL DEFAULT 0,"
    " reference TEXT, observed {int} NOT NULL, has_logits {int} NOT NULL, positive TEXT, act_alone TEXT,"
    " resolution TEXT, matures_ms {int}, unlabelled_means TEXT, matured {int} NOT NULL DEFAULT 0,"
    " assumed {int} NOT NULL DEFAULT 0, sets TEXT, UNIQUE (model, version)){strict}",
    "CREATE TABLE tags (version {int} NOT NULL, key {int} NOT NULL, name TEXT NOT NULL, PRIMARY KEY (version, key),"
    " UNIQUE (version, name)){clustered}",
    # The service's ids sort by time, so new rows go to the end of the tree. In SQLite the tree is the table.
    "CREATE TABLE predictions (id TEXT NOT NULL, model {int} NOT NULL, version {int} NOT NULL, created_ms {int}"
    " NOT NULL, request TEXT NOT NULL, predicted {int} NOT NULL, raw_confidence {real} NOT NULL, confidence {real}"
    " NOT NULL, tag TEXT, tag_key {int} NOT NULL, propensity {real}, digest {blob}, logits {blob} NOT NULL,"
    " confidence_source TEXT, label_mass {real}, PRIMARY KEY (id, model)){clustered}",
    # Retention finds the service's ids by the time in them, and callers' own ids through this index.
    "CREATE INDEX own_ids ON predictions (created_ms) WHERE digest IS NOT NULL",
    _OTHER_TAGS,
    "CREATE TABLE labels (version {int} NOT NULL, sequence {int} NOT NULL, prediction TEXT NOT NULL, created_ms {int}"
    " NOT NULL, arrived_ms {int} NOT NULL, corrected_ms {int}, label {int} NOT NULL, predicted {int} NOT NULL,"
    " first_correct {int} NOT NULL, first_label {int}, confidence {real} NOT NULL, nll {real}, brier {real},"
    " propensity {real}, tag TEXT, import_id TEXT, counted_ms {int}, assumed {int}, late {int},"
    " PRIMARY KEY (version, sequence)){clustered}",
    "CREATE UNIQUE INDEX labelled ON labels (prediction, version)",
    _AFTER_WINDOW,
    # SQLite prefers an index to the table itself only if the index has all columns of the query.
    "CREATE INDEX corrected ON labels (version, sequence, created_ms, predicted, tag, corrected_ms)"
    " WHERE corrected_ms IS NOT NULL",
    # Labels that were replaced, in the order of replacement. Voiding a correction restores them.
    "CREATE TABLE replaced (key {serial}, version {int} NOT NULL, prediction TEXT NOT NULL, label {int} NOT NULL,"
    " given_ms {int} NOT NULL, import_id TEXT){strict}",
    "CREATE INDEX replaced_labels ON replaced (version, prediction)",
    "CREATE TABLE held (model {int} NOT NULL, id TEXT NOT NULL, label TEXT NOT NULL, given_ms {int} NOT NULL,"
    " import_id TEXT, doubtful {int} NOT NULL DEFAULT 0, PRIMARY KEY (model, id)){clustered}",
    *_DOUBTFUL,
    *_MATURING,
    *_DECISIONS,
    *_ARCHIVE,
    *_QUEUE,
    *_JUDGE,
    *_OBSERVED_SETS,
    # One row per transaction of a voiding, and per version in it. Version 0 stands for held labels.
    "CREATE TABLE voidings (key {serial}, version {int} NOT NULL, at_ms {int} NOT NULL, import_id TEXT, since_ms {int},"
    " until_ms {int}, who TEXT NOT NULL, why TEXT NOT NULL, removed {int} NOT NULL, restored {int} NOT NULL,"
    " kept {int} NOT NULL){strict}",
    "CREATE INDEX voidings_of ON voidings (version)",
    "CREATE TABLE moves (key {serial}, version {int} NOT NULL, kind {int} NOT NULL, data {blob} NOT NULL){strict}",
    "CREATE TABLE sums (version {int} NOT NULL, kind {int} NOT NULL, unit {int} NOT NULL, period {int} NOT NULL,"
    " data {blob} NOT NULL, PRIMARY KEY (version, kind, unit, period)){clustered}",
    "CREATE TABLE compactions (one {int} PRIMARY KEY, number {int} NOT NULL){strict}",
    "INSERT INTO compactions VALUES (1, 0)",
    # Requests and responses of inferences that KServe logs. Each waits for its other half.
    "CREATE TABLE pairs (model TEXT NOT NULL, id TEXT NOT NULL, arrived_ms {int} NOT NULL, request {blob},"
    " response {blob}, PRIMARY KEY (model, id)){clustered}",
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

_FIRST_LABEL = "ALTER TABLE labels ADD COLUMN first_label {int}"

_SETS = ("ALTER TABLE versions ADD COLUMN sets TEXT",)

_UPGRADE = (
    *_DOUBTFUL,
    *_MATURING,
    *_DECISIONS,
    *_ARCHIVE,
    *(f"ALTER TABLE labels ADD COLUMN {name} {{int}}" for name in ("counted_ms", "assumed", "late")),
    _AFTER_WINDOW,
    "ALTER TABLE versions ADD COLUMN matures_ms {int}",
    "ALTER TABLE versions ADD COLUMN unlabelled_means TEXT",
    *(f"ALTER TABLE versions ADD COLUMN {name} {{int}} NOT NULL DEFAULT 0" for name in ("matured", "assumed")),
    _OTHER_TAGS,
    "ALTER TABLE versions ADD COLUMN act_alone TEXT",
    "ALTER TABLE versions ADD COLUMN resolution TEXT",
    "ALTER TABLE predictions ADD COLUMN confidence_source TEXT",
    "ALTER TABLE predictions ADD COLUMN label_mass {real}",
    "ALTER TABLE held ADD COLUMN doubtful {int} NOT NULL DEFAULT 0",
    _FIRST_LABEL,
    *_SETS,
    *_QUEUE,
    *_JUDGE,
    *_OBSERVED_SETS,
)

_ARCHIVED = "ALTER TABLE archiving ADD COLUMN judge_label {int}"

_ARCHIVED_SETS = "ALTER TABLE archiving ADD COLUMN members {blob}"


def _of(dialect: dict[str, str], statements: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(statement.format(**dialect) for statement in statements)


SQLITE = _of(_SQLITE, _TABLES)
POSTGRES = (
    *_of(_POSTGRES, _TABLES),
    # Logits are noise, so compressing them gains nothing.
    "ALTER TABLE predictions ALTER COLUMN logits SET STORAGE EXTERNAL",
)
_FROM_15 = (_ARCHIVED_SETS,)
_FROM_14 = (*_OBSERVED_SETS, *_FROM_15)
_FROM_13 = (*_JUDGE, _ARCHIVED, *_FROM_14)
_FROM_12 = (*_QUEUE, *_FROM_13)
_FROM_11 = (*_SETS, *_FROM_12)
_FROM_10 = (*_ARCHIVE, *_SETS, *_QUEUE, *_JUDGE, *_OBSERVED_SETS)
_FROM_9 = (_FIRST_LABEL, *_FROM_10)
SQLITE_UPGRADES = {
    6: _of(_SQLITE, _UPGRADE),
    9: _of(_SQLITE, _FROM_9),
    10: _of(_SQLITE, _FROM_10),
    11: _of(_SQLITE, _FROM_11),
    12: _of(_SQLITE, _FROM_12),
    13: _of(_SQLITE, _FROM_13),
    14: _of(_SQLITE, _FROM_14),
    15: _of(_SQLITE, _FROM_15),
}
POSTGRES_UPGRADES = {
    5: _of(_POSTGRES, _UPGRADE),
    9: _of(_POSTGRES, _FROM_9),
    10: _of(_POSTGRES, _FROM_10),
    11: _of(_POSTGRES, _FROM_11),
    12: _of(_POSTGRES, _FROM_12),
    13: _of(_POSTGRES, _FROM_13),
    14: _of(_POSTGRES, _FROM_14),
    15: _of(_POSTGRES, _FROM_15),
}
"""Statements by the schema version that `trueodds store upgrade` upgrades. No other version is upgraded."""


def other_version(store: object, version: int, upgrades: Iterable[int], place: str) -> str:
    """Return the error for a store with another schema. `place` names the alternative for --store in the message."""
    message = f"the store {store} has schema version {version}; this release reads version {VERSION}. "
    if version in upgrades:
        return f"{message}Stop every service that uses it, then run: trueodds store upgrade --store {store}"
    return f"{message}Use the release that wrote it, or give another {place} (--store)"
