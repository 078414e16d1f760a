"""Questions of decision models: their counts, repeated inputs, the test of declined questions, and notices."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import log
from typing import Any

from service.store.decision_rows import (
    LOW_MASS,
    DecisionRow,
    Notice,
    NoticeKind,
    QuestionCounts,
    QuestionDecisions,
    QuestionVersion,
)
from service.store.rows import EarlierPrediction, PredictionBatch, decoding
from service.store.work import predictions
from service.store.work.statements import InsertNew, Lock, Query, Work
from service.store.work.versions import VersionCache
from trueodds.metrics.alarms.share_change import ShareChange

COLUMNS = ("id", "question", "created_ms", "declined", "mass", "input", "kept")
_VERSION = "model, version, name, type, served, wording, ordered"
_COUNTS = "answered, declined, repeated, masses, mass_sum, low_masses, first_ms, last_ms"
_NOTICE = "model, version, kind, at_ms, details, deliveries"


def put_all(
    batches: list[tuple[PredictionBatch, list[int]]],
    decisions: list[QuestionDecisions],
    cache: VersionCache,
    now_ms: int,
    alpha: float,
    *,
    each: bool,
) -> Work[list[list[EarlierPrediction | None]]]:
    """Store answers, and what belongs to them. Return the outcomes of `predictions.put_all`.

    A row whose id was used for another answer is left out of the counts.

    Raises:
        ConflictsError: Without `each`, an id was already used for another answer. The caller must store nothing.
    """
    outcomes = yield from predictions.put_all(batches, cache, now_ms, each=each)
    conflicts = {
        (batch.model, batch.version, id_)
        for (batch, _), earlier in zip(batches, outcomes, strict=True)
        for id_, known in zip(batch.ids, earlier, strict=True)
        if known is not None and known.logits is None
    }
    by_model: dict[str, list[QuestionDecisions]] = {}
    for some in decisions:
        rows = [row for row in some.rows if row.is_declined or (*some.of.key, row.id) not in conflicts]
        by_model.setdefault(some.of.model, []).append(QuestionDecisions(some.of, rows))
    for model, of_model in sorted(by_model.items()):
        yield from _put(model, of_model, now_ms, alpha)
    return outcomes


def _put(model: str, decisions: list[QuestionDecisions], now_ms: int, alpha: float) -> Work[None]:
    """Store the rows of one question. One transaction at a time does this, because it holds the question's row."""
    start = json.dumps(ShareChange.start().to_json())
    yield Query(
        "INSERT INTO questions (model, declined) VALUES ($1, $2) ON CONFLICT (model) DO NOTHING", (model, start)
    )
    yield Lock("SELECT model FROM questions WHERE model = $1 FOR UPDATE", (model,))
    known = {}
    for key, version, served, wording in (
        yield Query(
            "SELECT key, version, served, wording FROM question_versions WHERE model = $1 ORDER BY key", (model,)
        )
    ):
        known[version] = key, served, wording
    for some in decisions:
        if some.rows and some.of.version not in known:
            key = yield from _add(some.of, list(known.values()), min(row.created_ms for row in some.rows), now_ms)
            known[some.of.version] = key, some.of.served, some.of.wording
    fresh = list[DecisionRow]()
    for some in decisions:
        if some.rows:
            fresh += yield from _count(known[some.of.version][0], some.rows)
    if fresh:
        yield from _test(model, decisions[-1].of.version, fresh, now_ms, alpha)


def _add(question: QuestionVersion, known_versions: list[tuple[Any, ...]], first_ms: int, now_ms: int) -> Work[int]:
    """Add a version of a question. Make a notice for a served model or a wording that the question had not before."""
    columns = (*question.key, question.name, question.type, question.served, question.wording, int(question.is_ordered))
    ((key,),) = yield Query(
        f"INSERT INTO question_versions ({_VERSION}, {_COUNTS})"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, 0, 0, 0, 0, $8, $8) RETURNING key",
        (*columns, first_ms),
    )
    if known_versions:
        _, served, wording = known_versions[-1]
        if question.served not in {row[1] for row in known_versions}:
            details = {"before": served, "now": question.served}
            yield from _notice(question.key, "served_model_changed", now_ms, details)
        if question.wording not in {row[2] for row in known_versions}:
            details = {"before": wording, "now": question.wording}
            yield from _notice(question.key, "wording_changed", now_ms, details)
    return int(key)


def _notice(key: tuple[str, str], kind: NoticeKind, now_ms: int, details: dict[str, Any]) -> Work[None]:
    yield Query(
        f"INSERT INTO notices ({_NOTICE}) VALUES ($1, $2, $3, $4, $5, '{{}}') ON CONFLICT (model, version, kind)"
        " DO NOTHING",
        (*key, kind, now_ms, json.dumps(details)),
    )


def _count(question: int, rows: list[DecisionRow]) -> Work[list[DecisionRow]]:
    """Store the new rows of a version of a question and count them. Return the new rows in their order."""
    inputs = sorted({row.input for row in rows if row.input is not None})
    seen = {
        text
        for (text,) in (
            yield Query(
                "SELECT DISTINCT input FROM decisions WHERE question = $1 AND input = ANY($2)", (question, inputs)
            )
        )
    }
    first = {row.id: row for row in reversed(rows)}
    new = yield InsertNew("decisions", COLUMNS, [_columns(question, first[id_]) for id_ in sorted(first)])
    fresh = [row for row in rows if row.id in new and first[row.id] is row]
    repeated = 0
    for row in fresh:
        if row.input is not None:
            repeated += row.input in seen
            seen.add(row.input)
    if fresh:
        masses = [row.mass for row in fresh if row.mass is not None]
        declined, times = sum(row.is_declined for row in fresh), [row.created_ms for row in fresh]
        yield Query(
            "UPDATE question_versions SET answered = answered + $2, declined = declined + $3, repeated = repeated + $4,"
            " masses = masses + $5, mass_sum = mass_sum + $6, low_masses = low_masses + $7,"
            " first_ms = CASE WHEN $8 < first_ms THEN $8 ELSE first_ms END,"
            " last_ms = CASE WHEN $9 > last_ms THEN $9 ELSE last_ms END WHERE key = $1",
            (
                question,
                len(fresh) - declined,
                declined,
                repeated,
                len(masses),
                float(sum(masses)),
                sum(mass < LOW_MASS for mass in masses),
                min(times),
                max(times),
            ),
        )
    return fresh


def _columns(question: int, row: DecisionRow) -> tuple[Any, ...]:
    return row.id, question, row.created_ms, int(row.is_declined), row.mass, row.input, row.kept


def _test(model: str, version: str, rows: list[DecisionRow], now_ms: int, alpha: float) -> Work[None]:
    """Advance the test of declined questions. When it finds a change, begin a new test; make a notice of a rise."""
    ((text,),) = yield Query("SELECT declined FROM questions WHERE model = $1", (model,))
    with decoding(f"the row {model} of its table questions"):
        test = ShareChange.from_json(text).advance([row.is_declined for row in rows])
    if (log_e := test.log_e) >= -log(alpha):
        if test.is_rise:
            before, after = test.shares or (0.0, 0.0)
            details = {"before": before, "now": after, "questions": test.values, "log_e": log_e, "alpha": alpha}
            yield from _notice((model, version), "refusals_rising", now_ms, details)
        test = ShareChange.start()
    yield Query("UPDATE questions SET declined = $2 WHERE model = $1", (model, json.dumps(test.to_json())))


def questions() -> Work[list[QuestionCounts]]:
    """Read all versions of all questions with their counts, in the order in which they were added."""
    rows = yield Query(f"SELECT {_VERSION}, {_COUNTS} FROM question_versions ORDER BY key")
    read = list[QuestionCounts]()
    for model, version, name, type_, served, wording, ordered, *counts in rows:
        of = QuestionVersion(model, version, name, type_, served, wording, bool(ordered))
        read.append(QuestionCounts(of, *counts))
    return read


def earlier_decisions(ids: list[str]) -> Work[dict[tuple[str, str], bool]]:
    """Return, by model and id, whether an earlier row of one of these ids was declined."""
    rows = yield Query(
        "SELECT q.model, d.id, d.declined FROM decisions d JOIN question_versions q ON q.key = d.question"
        " WHERE d.id = ANY($1)",
        (ids,),
    )
    return {(model, id_): bool(declined) for model, id_, declined in rows}


def kept_inputs(id_: str, model: str) -> Work[str | None]:
    """Return the input of an answer as JSON, if the service has kept it."""
    rows = yield Query(
        "SELECT d.kept FROM decisions d JOIN question_versions q ON q.key = d.question WHERE d.id = $1 AND q.model = $2"
        " AND d.kept IS NOT NULL",
        (id_, model),
    )
    return rows[0][0] if rows else None


def notices() -> Work[list[Notice]]:
    """Read all notices in their order."""
    rows = yield Query(f"SELECT {_NOTICE} FROM notices ORDER BY key")
    with decoding("its table notices"):
        return [
            Notice(model, version, kind, at_ms, json.loads(details), json.loads(deliveries))
            for model, version, kind, at_ms, details, deliveries in rows
        ]


def change_deliveries(
    key: tuple[str, str, str], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> Work[dict[str, Any]]:
    """Change the deliveries of a notice, one process at a time. Return them as they are then."""
    where = "WHERE model = $1 AND version = $2 AND kind = $3"
    yield Lock(f"SELECT key FROM notices {where} FOR UPDATE", key)
    ((text,),) = yield Query(f"SELECT deliveries FROM notices {where}", key)
    with decoding("its table notices"):
        after = change(json.loads(text))
    yield Query(f"UPDATE notices SET deliveries = $4 {where}", (*key, json.dumps(after)))
    return after


def secret(name: str, fresh: str) -> Work[str]:
    """Return a secret of the store; `fresh` becomes it if there is none."""
    yield Query("INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING", (name, fresh))
    ((value,),) = yield Query("SELECT value FROM secrets WHERE name = $1", (name,))
    return str(value)


def prune(before_ms: int, limit: int) -> Work[int]:
    """Remove up to `limit` rows from before a time. Return their number. The counts stay."""
    rows = yield Query(
        "DELETE FROM decisions WHERE (id, question) IN (SELECT id, question FROM decisions WHERE created_ms < $1"
        " ORDER BY created_ms LIMIT $2) RETURNING id",
        (before_ms, limit),
    )
    return len(rows)


def remove(id_: str, models: list[str]) -> Work[int]:
    """Remove the rows of an id, of the given questions, with their inputs. Return their number."""
    rows = yield Query(
        "DELETE FROM decisions WHERE id = $1 AND question IN (SELECT key FROM question_versions WHERE model = ANY($2))"
        " RETURNING id",
        (id_, models),
    )
    return len(rows)
