"""Answers whose maturity window is open, and their labels. Both are stored at once and counted when it closes.

Only versions with a window have such answers. For all other versions this module costs no query.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from service.store.label_rules import LabelCandidate, LabelChange
from service.store.rows import MaturedCounts, Version
from service.store.work.statements import Insert, Query, Work
from service.store.work.versions import VersionCache
from trueodds.bundle.contents import is_shadow

GIVEN = ("version", "prediction", "label", "given_ms", "import_id")
"""Columns of the tables of labels outside the log: `early`, `replaced` and `doubtful`."""


class GivenLabel(NamedTuple):
    """Label as it was sent."""

    label: int
    given_ms: int
    import_id: str | None
    key: int | None = None
    """Key in the table that it is in; None for the current label of an answer."""


def enrol(version: int, cache: VersionCache, answers: Iterable[tuple[str, int]], now_ms: int) -> Work[None]:
    """Let new answers (id, created_ms) wait for their window to close, if their version has one."""
    maturity = cache.versions[version].maturity
    if maturity is not None:
        rows = [(version, id_, maturity.due_ms(created_ms, now_ms)) for id_, created_ms in answers]
        yield Insert("maturing", ("version", "prediction", "due_ms"), rows)


def mark(candidates: dict[str, list[LabelCandidate]], cache: VersionCache) -> Work[dict[str, list[LabelCandidate]]]:
    """Return the candidates. Those with an open window carry the last label that has arrived for them."""
    ids: dict[int, list[str]] = {}
    for id_, same_id in candidates.items():
        for candidate in same_id:
            if cache.versions[candidate.version].maturity is not None:
                ids.setdefault(candidate.version, []).append(id_)
    waiting: dict[tuple[int, str], int | None] = {}
    for version, of_version in sorted(ids.items()):
        rows = yield Query(
            "SELECT prediction FROM maturing WHERE version = $1 AND prediction = ANY($2)", (version, of_version)
        )
        waiting |= {(version, id_): None for (id_,) in rows}
        said = yield from given_labels("early", version, [id_ for (id_,) in rows])
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


def given_labels(table: str, version: int, ids: Sequence[str]) -> Work[dict[str, list[GivenLabel]]]:
    """Return the labels that a table of labels outside the log has for answers, by id, in their order."""
    given: dict[str, list[GivenLabel]] = {}
    if ids:
        rows = yield Query(
            f"SELECT prediction, label, given_ms, import_id, key FROM {table}"
            " WHERE version = $1 AND prediction = ANY($2) ORDER BY key",
            (version, list(ids)),
        )
        for id_, *entry in rows:
            given.setdefault(id_, []).append(GivenLabel(*entry))
    return given


def keep(version: int, changes: Sequence[LabelChange], arrivals: dict[str, tuple[int, str | None]]) -> Work[None]:
    """Store labels of answers with an open window. `given` has the time and the import of each label by id."""
    rows = []
    for change in changes:
        id_ = change.candidate.id
        if change.candidate.label is None and change.first != change.now:
            rows.append((version, id_, change.first, *arrivals[id_]))
        rows.append((version, id_, change.now, *arrivals[id_]))
    yield Insert("early", GIVEN, rows)


def forget(version: int, ids: list[str]) -> Work[None]:
    """Remove answers from those that wait."""
    yield Query("DELETE FROM early WHERE version = $1 AND prediction = ANY($2)", (version, ids))
    yield Query("DELETE FROM maturing WHERE version = $1 AND prediction = ANY($2)", (version, ids))


def assumed_label_of(version: Version, predicted_class: int) -> int | None:
    """Return the label that an answer without one counts with; None if a missing label means nothing.

    For a model with a positive class it is the other class. Otherwise it is the predicted class, because nobody has
    complained. Nobody sees a shadow's answers, so a missing complaint says nothing about them.
    """
    if version.maturity is None or version.maturity.unlabelled_means != "ok":
        return None
    if positive := version.positive_class:
        return 1 - positive.index
    return None if is_shadow(version.model) else predicted_class


def counts(version: int) -> Work[MaturedCounts]:
    """Count the matured answers of a version."""
    ((answers, assumed),) = yield Query("SELECT matured, assumed FROM versions WHERE key = $1", (version,))
    ((late,),) = yield Query("SELECT count(*) FROM labels WHERE version = $1 AND late = 1", (version,))
    return MaturedCounts(int(answers), int(assumed), int(late))
