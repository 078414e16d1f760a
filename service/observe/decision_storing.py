"""Storing the questions of a call: answers as observations, declined questions, and the counts of both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from service.errors import Refusal
from service.observe.decision_pairs import PairDefaults, QuestionRow
from service.observe.observation import CallDefaults, Observation
from service.observe.storing import Key, Storing, outcomes_of
from service.runtime import Runtime
from service.store.decision_rows import DecisionRow, QuestionDecisions, QuestionVersion
from trueodds.sums.ordered import are_levels
from trueodds.texts import short

DECLINED = "declined"
"""Outcome of a question that the host declined."""


class DecisionStoring(Storing):
    """Stores the questions of one call, each by itself."""

    def __init__(self, runtime: Runtime, defaults: PairDefaults, request_id: str) -> None:
        super().__init__(runtime, CallDefaults(defaults.now_ms, resolution=defaults.resolution), request_id)
        self._pair_defaults, self._alpha = defaults, runtime.settings.alarm_alpha
        self._positive: dict[Key, str | None] = {}
        """Positive classes of the questions in the rows, by model and version."""
        self._has_levels: dict[Key, bool] = {}
        """Whether the classes of these questions are levels."""
        self.decisions: dict[tuple[str, str], dict[str, object]] = {}
        """Decisions on the answers that were stored last, by model and id, for versions with a promise."""

    async def store_questions(self, rows: list[QuestionRow]) -> list[str | Refusal]:
        """Store each row. Return per row stored, already_known, declined, or its refusal."""
        self._positive = {row.of.key: row.positive for row in rows}
        self._has_levels = {row.of.key: row.of.is_ordered for row in rows}
        earlier = await self._store.read_earlier_decisions(list(dict.fromkeys(row.id for row in rows)))
        outcomes = self._first_outcomes(rows, earlier)
        outcomes |= await self._too_many(rows, outcomes)
        waiting = [(n, row) for n, row in enumerate(rows) if n not in outcomes]
        observations = [replace(row.observation, row=n) for n, row in waiting if row.observation is not None]
        batches, refusals = await self._batches(observations)
        outcomes |= {refusal.row: refusal for refusal in refusals}
        stored = [row for n, row in waiting if n not in outcomes]
        known = await self._store.put_decisions([batch.rows for batch in batches], _by_version(stored), self._alpha)
        self._decide(batches, known)
        for batch, of_batch in zip(batches, known, strict=True):
            outcomes |= zip(batch.numbers, outcomes_of(batch, of_batch), strict=True)
        outcomes |= {n: DECLINED for n, row in waiting if row.observation is None}
        self.decisions = {
            (row.of.model, row.id): dict(acting) for n, row in enumerate(rows) if (acting := self._acting.get(n))
        }
        return [outcomes[n] for n in range(len(rows))]

    def beside(self, row: QuestionRow) -> dict[str, object]:
        """Return the keys of a row's line about its question, and what its answer may do."""
        about = {"question": row.of.name, "model": row.of.model, "version": row.of.version, "shape": row.shape}
        return {**about, **self.decisions.get((row.of.model, row.id), {})}

    def _defaults_of(self, row: Observation) -> CallDefaults:
        promise = self._pair_defaults.promise_of(row.model)
        key = row.model, row.version
        # Levels that are numbers in falling order have no figures of levels, but their answers are stored
        ordered = self._has_levels[key] and are_levels(row.names or ())
        return replace(self._defaults, positive=self._positive[key], act_alone=promise, ordered=ordered)

    def _first_outcomes(
        self, rows: list[QuestionRow], earlier: dict[tuple[str, str], bool]
    ) -> dict[int, str | Refusal]:
        """Return the outcomes of rows whose id was answered before and is declined now, or the reverse.

        A declined question that was declined before is known already.
        """
        outcomes, declined = dict[int, str | Refusal](), dict(earlier)
        for n, row in enumerate(rows):
            place, now = (row.of.model, row.id), row.observation is None
            is_known = place in declined
            before = declined.setdefault(place, now)
            if before != now:
                was = "declined" if before else "answered"
                message = (
                    f"the question {short(row.of.name)} was {was} before under the id {short(row.id)}; send it with a"
                    " new id"
                )
                outcomes[n] = Refusal(n, row.id, "conflicting_answer", message)
            elif now and is_known:
                outcomes[n] = "already_known"
        return outcomes

    async def _too_many(self, rows: list[QuestionRow], outcomes: dict[int, str | Refusal]) -> dict[int, Refusal]:
        """Refuse declined questions of new versions beyond the limit. Answers have the same limit in `_batches`."""
        declined = [(n, row) for n, row in enumerate(rows) if row.observation is None and n not in outcomes]
        if not declined:
            return {}
        known = {question.of.key for question in await self._store.read_questions()}
        refusals = dict[int, Refusal]()
        for n, row in declined:
            if row.of.key in known or len(known) < self._most:
                known.add(row.of.key)
                continue
            message = (
                f"{row.of.model}/{row.of.version} would exceed the limit of {self._most:,} versions of questions. Is"
                " the question's name or wording different for each request? Otherwise raise TRUEODDS_MAX_OBSERVED"
            )
            refusals[n] = Refusal(n, row.id, "too_many_versions", message)
        return refusals


def _by_version(rows: Iterable[QuestionRow]) -> list[QuestionDecisions]:
    of: dict[Key, QuestionVersion] = {}
    grouped: dict[Key, list[DecisionRow]] = {}
    for row in rows:
        of[row.of.key] = row.of
        grouped.setdefault(row.of.key, []).append(row.decision)
    return [QuestionDecisions(of[key], some) for key, some in grouped.items()]
