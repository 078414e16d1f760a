"""Storing the observations of a call: adds new versions with their first rows, then stores rows per version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from service.errors import Refusal
from service.http.error_answers import RefusedRowsError
from service.models.acting import Acting, acting_of
from service.observe.batches import ObservedBatch, batch_of, other_form, version_of
from service.observe.observation import CallDefaults, Form, Observation
from service.runtime import Runtime
from service.store.rows import ConflictsError, EarlierPrediction, Version
from trueodds.bundle.contents import shadow_of
from trueodds.texts import short

Key = tuple[str, str]
"""Name of the model in the store, and version."""


class Storing:
    """Stores the rows of one call."""

    def __init__(self, runtime: Runtime, defaults: CallDefaults, request_id: str) -> None:
        self._store, self._registry = runtime.store, runtime.registry
        self._most, self._audit_share = runtime.settings.max_observed, runtime.settings.audit_share
        self._acting: dict[int, Acting] = {}
        self._defaults, self._request_id = defaults, request_id
        self.readings = set[Form]()
        """Forms of the rows that were read as probabilities."""
        self.low_masses = 0
        """Number of rows with a low label mass."""
        self.steps = set[str]()
        """Sentences on rounded probabilities."""

    async def store_each(self, rows: list[Observation]) -> list[str | Refusal]:
        """Store each row by itself. Return per row stored, already_known, or its refusal."""
        batches, refusals = await self._batches(rows)
        earlier = await self._store.put_observations([batch.rows for batch in batches], each=True)
        outcomes: dict[int, str | Refusal] = {refusal.row: refusal for refusal in refusals}
        self._decide(batches, earlier)
        self._note(batches)
        for batch, known in zip(batches, earlier, strict=True):
            outcomes |= zip(batch.numbers, outcomes_of(batch, known), strict=True)
        return [outcomes[row.row] for row in rows]

    async def store_all(self, rows: list[Observation]) -> list[str]:
        """Store all rows or none. Return stored or already_known per row.

        Raises:
            RefusedRowsError: At least one row is refused.
        """
        batches, refusals = await self._batches(rows, all_or_none=True)
        if refusals:
            raise RefusedRowsError(sorted(refusals, key=lambda refusal: refusal.row), len(rows))
        try:
            earlier = await self._store.put_observations([batch.rows for batch in batches], each=False)
        except ConflictsError as error:
            earlier = error.outcomes
        self._decide(batches, earlier)
        self._note(batches)
        outcomes = [o for batch, known in zip(batches, earlier, strict=True) for o in outcomes_of(batch, known)]
        if conflicts := [outcome for outcome in outcomes if isinstance(outcome, Refusal)]:
            raise RefusedRowsError(sorted(conflicts, key=lambda refusal: refusal.row), len(rows))
        return [outcome for outcome in outcomes if isinstance(outcome, str)]

    def acting(self, row: Observation) -> Acting:
        """Return the decision on one of the rows that were stored last."""
        return self._acting.get(row.row, {})

    def _note(self, batches: list[ObservedBatch]) -> None:
        for batch in batches:
            self.readings |= batch.readings
            self.low_masses += batch.low_masses
            if (resolution := batch.version.resolution) is not None and resolution.words:
                self.steps.add(resolution.words)

    def _decide(self, batches: list[ObservedBatch], earlier: list[list[EarlierPrediction | None]]) -> None:
        self._acting.clear()
        for batch, known in zip(batches, earlier, strict=True):
            if (promise := batch.version.act_alone) is None:
                continue
            rows = batch.rows
            columns = rows.ids, rows.confidence_N.tolist(), rows.tags, rows.propensities
            for number, before, id_, confidence, tag, own in zip(batch.numbers, known, *columns, strict=True):
                propensity = own if before is None else before.propensity
                self._acting[number] = acting_of(promise, self._audit_share, id_, confidence, tag, propensity)

    async def _batches(
        self, rows: list[Observation], *, all_or_none: bool = False
    ) -> tuple[list[ObservedBatch], list[Refusal]]:
        """Return one batch per version, and the rows that fit no version. The store then knows all versions.

        If another worker adds the same version meanwhile, its definition counts. So rows are compared with the stored
        version.
        """
        while True:
            known = {v.key: v for v in await self._store.read_versions()}
            new, batches, refusals = await asyncio.to_thread(self._fit_rows, rows, known)
            decided = [batch for batch in batches if batch.new_resolution is not None]
            if not (new or decided) or (all_or_none and refusals):
                return batches, refusals
            for version in new:
                await self._store.put_version(version)
            for batch in decided:
                assert batch.new_resolution is not None
                await self._store.decide_resolution(*batch.version.key, batch.new_resolution)

    def _fit_rows(
        self, rows: list[Observation], versions: dict[Key, Version]
    ) -> tuple[list[Version], list[ObservedBatch], list[Refusal]]:
        """Return the versions to add, the rows that fit their versions, and the rows that do not."""
        new, batches, refusals = list[Version](), list[ObservedBatch](), list[Refusal]()
        for key, group in sorted(self._by_version(rows).items()):
            defaults = self._defaults_of(group[0])
            version = versions.get(key) or self._new_version(group[0], key[0], [*versions.values(), *new])
            if isinstance(version, Version) and not version.is_observed:
                version = _version_taken(group[0])
            elif isinstance(version, Version) and (problem := other_form(version, defaults)):
                version = Refusal(group[0].row, group[0].id, "other_form", problem)
            if isinstance(version, Refusal):
                refusals += [Refusal(row.row, row.id, version.code, version.message) for row in group]
                continue
            batch = batch_of(version, group, defaults, self._request_id, self._audit_share)
            refusals += batch.refusals
            if batch.numbers:
                batches.append(batch)
                new += [] if key in versions else [version]
        return new, batches, refusals

    def _by_version(self, rows: list[Observation]) -> dict[Key, list[Observation]]:
        groups: dict[Key, list[Observation]] = {}
        for row in rows:
            model = shadow_of(row.model) if self._defaults.shadow else row.model
            groups.setdefault((model, row.version), []).append(row)
        return groups

    def _new_version(self, first: Observation, model: str, versions: Sequence[Version]) -> Version | Refusal:
        if self._registry.is_published(first.model, first.version):
            return _version_taken(first)
        if sum(version.is_observed for version in versions) >= self._most:
            message = (
                f"{first.model}/{first.version} would exceed the limit of {self._most:,} versions from other servers."
                " Is its name different for each answer? Otherwise raise TRUEODDS_MAX_OBSERVED"
            )
            return Refusal(first.row, first.id, "too_many_versions", message)
        return version_of(first, self._defaults_of(first), model)

    def _defaults_of(self, row: Observation) -> CallDefaults:
        """Return the values that the call gives for all rows of the row's version."""
        return self._defaults


def _version_taken(row: Observation) -> Refusal:
    message = (
        f"this service serves {row.model}/{row.version} itself; send the answers of another server under another"
        " version"
    )
    return Refusal(row.row, row.id, "version_taken", message)


def outcomes_of(batch: ObservedBatch, earlier: Sequence[EarlierPrediction | None]) -> list[str | Refusal]:
    """Return stored, already_known or a refusal for each row of a batch."""
    outcomes: list[str | Refusal] = []
    for number, id_, known in zip(batch.numbers, batch.rows.ids, earlier, strict=True):
        if known is None:
            outcomes.append("stored")
        elif known.logits is not None:
            outcomes.append("already_known")
        else:
            message = (
                f"the id {short(id_)} was used for another answer, time or tag of version {known.version}; send it"
                " unchanged, or with a new id"
            )
            outcomes.append(Refusal(number, id_, "conflicting_answer", message))
    return outcomes
