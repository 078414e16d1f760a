"""Answers whose window is open, and the labels that come meanwhile: stored at once, counted when the window closes.

Only versions with a maturity window have such answers; for all others nothing here is asked of the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from service.store.label_rules import Candidate, Change
from service.store.rows import Matured, Version
from service.store.work.statements import Insert, Query, Work
from service.store.work.versions import KnownVersions
from trueodds.bundle.contents import is_shadow

EARLY = ("version", "prediction", "label", "given_ms", "import_id")


class Entry(NamedTuple):
    """A label as it was given."""

    label: int
    given_ms: int
    import_id: str | None


def enrol(version: int, known: KnownVersions, answers: Iterable[tuple[str, int]], now_ms: int) -> Work[None]:
    """Have new answers (id, created_ms) wait for their window to close, where their version has one."""
    maturity = known.versions[version].maturity
    if maturity is not None:
        rows = [(version, id_, maturity.due_ms(created_ms, now_ms)) for id_, created_ms in answers]
        yield Insert("maturing", ("version", "prediction", "due_ms"), rows)


def mark(candidates: dict[str, list[Candidate]], known: KnownVersions) -> Work[dict[str, list[Candidate]]]:
    """The candidates, those whose window is open with the last label that came for them so far."""
    ids: dict[int, list[str]] = {}
    for id_, same_id in candidates.items():
        for candidate in same_id:
            if known.versions[candidate.version].maturity is not None:
                ids.setdefault(candidate.version, []).append(id_)
    waiting: dict[tuple[int, str], int | None] = {}
    for version, of_version in sorted(ids.items()):
        rows = yield Query(
            "SELECT prediction FROM maturing WHERE version = $1 AND prediction = ANY($2)", (version, of_version)
        )
        waiting |= {(version, id_): None for (id_,) in rows}
        said = yield from entries(version, [id_ for (id_,) in rows])
        waiting |= {(version, id_): given[-1].label for id_, given in said.items()}
    if not waiting:
        return candidates
    return {
        id_: [
            c._replace(maturing=True, label=waiting[c.version, id_]) if (c.version, id_) in waiting else c
            for c in same_id
        ]
        for id_, same_id in candidates.items()
    }


def entries(version: int, ids: Sequence[str]) -> Work[dict[str, list[Entry]]]:
    """The labels that came for answers whose window is open, by id, in their order."""
    said: dict[str, list[Entry]] = {}
    if ids:
        rows = yield Query(
            "SELECT prediction, label, given_ms, import_id FROM early WHERE version = $1 AND prediction = ANY($2)"
            " ORDER BY key",
            (version, list(ids)),
        )
        for id_, *entry in rows:
            said.setdefault(id_, []).append(Entry(*entry))
    return said


def keep(version: int, changes: Sequence[Change], given: dict[str, tuple[int, str | None]]) -> Work[None]:
    """Store labels of answers whose window is open; `given`: when each came and with which import, by id."""
    rows = []
    for change in changes:
        id_ = change.candidate.id
        if change.candidate.label is None and change.first != change.now:
            rows.append((version, id_, change.first, *given[id_]))
        rows.append((version, id_, change.now, *given[id_]))
    yield Insert("early", EARLY, rows)


def forget(version: int, ids: list[str]) -> Work[None]:
    """Have answers wait no longer."""
    yield Query("DELETE FROM early WHERE version = $1 AND prediction = ANY($2)", (version, ids))
    yield Query("DELETE FROM maturing WHERE version = $1 AND prediction = ANY($2)", (version, ids))


def assumed_of(version: Version, predicted: int) -> int | None:
    """The label that an answer counts with if nobody gave one; None where that means nothing.

    Of a model with a positive class it is the other one. Otherwise it is what was answered: nobody has complained. A
    shadow's answers are seen by nobody, so there it is not known from them.
    """
    if version.maturity is None or version.maturity.unlabelled_means != "ok":
        return None
    if positive := version.positive_class:
        return 1 - positive.index
    return None if is_shadow(version.model) else predicted


def counts(version: int) -> Work[Matured]:
    """Count a version's matured answers."""
    ((answers, assumed),) = yield Query("SELECT matured, assumed FROM versions WHERE key = $1", (version,))
    ((late,),) = yield Query("SELECT count(*) FROM labels WHERE version = $1 AND late = 1", (version,))
    return Matured(int(answers), int(assumed), int(late))
