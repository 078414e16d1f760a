"""A copy of a model's answers, for reports on store and archive together."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from service.store.rows import HeldLabel, StoredPrediction, Version, decoding
from service.store.work.archiving import FINISHED, rows_of
from service.store.work.reading import exported_ours, exported_own
from service.store.work.statements import Query, Work
from service.store.work.versions import VersionCache, load_versions
from trueodds.bundle.contents import shadowed_by

ROWS = 10_000
"""Largest number of answers that are read at once."""
BYTES = 4 << 20
"""Largest number of bytes of their logits."""


class ArchivedFile(NamedTuple):
    """A file that the store has written to its archive."""

    key: int
    day: int
    answers: int


class Copied(NamedTuple):
    """Content of a copy beside the answers."""

    files: dict[str, list[ArchivedFile]]
    """Files in the archive, by version."""
    archive: str
    """The store's name in the archive; "" if it has none."""
    held: list[HeldLabel]
    """Labels that wait for their answers, without doubtful ones. Those of a shadow are those of its model."""


def versions() -> Work[list[tuple[str, str]]]:
    """Read model and version of all versions."""
    rows = yield Query("SELECT m.name, v.version FROM models m JOIN versions v ON v.model = m.key ORDER BY v.key")
    return [(model, version) for model, version in rows]


def copy(
    model: str, version: str | None, take: Callable[[Version, list[StoredPrediction]], None], latest_ms: int
) -> Work[Copied]:
    """Read the answers of a model with their labels, block by block, in one transaction.

    Answers that wait for the archive are among them, unless their file is verified: then they are there.

    Args:
        model: The model.
        version: Its version. None: all of them.
        take: Receives the answers. It is called for each version at least once.
        latest_ms: A time after that of all answers.
    """
    cache = yield from load_versions(VersionCache())
    files: dict[str, list[ArchivedFile]] = {}
    for key, of in cache.versions.items():
        if of.model != model or version not in (None, of.version):
            continue
        limit = min(ROWS, max(BYTES // (4 * len(of.classes)), 1))
        take(of, [])
        last, times = "", (0, latest_ms)
        while rows := (yield from exported_ours(key, times, last, limit, logits=True)):
            take(of, rows)
            last = rows[-1].id
        place = (-1, "")
        while rows := (yield from exported_own(key, times, place, limit, logits=True)):
            take(of, rows)
            place = rows[-1].created_ms, rows[-1].id
        files[of.version] = []
        for file, day, answers, state in (
            yield Query("SELECT key, day, answers, state FROM archive_files WHERE version = $1 ORDER BY key", (key,))
        ):
            if state >= FINISHED:
                files[of.version].append(ArchivedFile(file, day, answers))
                continue
            last = ""
            while rows := (yield from rows_of(file, last, limit)):
                take(of, rows)
                last = rows[-1].id
    names = yield Query("SELECT value FROM secrets WHERE name = 'archive'")
    held = yield Query(
        "SELECT h.id, h.label, h.given_ms, h.import_id FROM held h JOIN models m ON m.key = h.model"
        " WHERE m.name = $1 AND h.doubtful = 0 ORDER BY h.id",
        (shadowed_by(model),),
    )
    with decoding("its table held"):
        labels = [HeldLabel(model, id_, json.loads(label), *given) for id_, label, *given in held]
    return Copied(files, names[0][0] if names else "", labels)
