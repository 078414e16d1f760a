"""From schema 6 (PostgreSQL: 5) to 8: deltas get a checksum and a sign, and labels that may be misread are in doubt."""

from __future__ import annotations

import numpy as np

from service.store.rows import decoding
from service.store.work.deltas import ANSWER, ANSWERS, LABEL, POSITIVE_ANSWERS, sealed
from service.store.work.doubtful import Doubt, mark
from service.store.work.statements import ExecuteMany, Query, Work
from service.store.work.versions import KnownVersions, load_versions
from service.store.work.voiding import Restart

_ANSWER = np.dtype([(name, kind) for name, kind, *_ in ANSWER.descr if name != "sign"])
_LABEL = np.dtype([*_ANSWER.descr, *LABEL.descr[len(_ANSWER.descr) :]])


def upgrade(restart: Restart) -> Work[dict[tuple[str, str], Doubt]]:
    """Convert the rows, after the tables: the labels in doubt, by model and version."""
    yield from _seal_deltas()
    return (yield from mark((yield from load_versions(KnownVersions())), restart))


def _seal_deltas() -> Work[None]:
    rows = yield Query("SELECT key, version, kind, data FROM moves")
    after = []
    for key, version, kind, data in rows:
        of_answers = kind in (ANSWERS, POSITIVE_ANSWERS)
        with decoding(f"row {key} of its table moves"):
            before_N = np.frombuffer(bytes(data), _ANSWER if of_answers else _LABEL)
        rows_N = np.ones(len(before_N), ANSWER if of_answers else LABEL)
        for name in before_N.dtype.names or ():
            rows_N[name] = before_N[name]
        after.append((key, sealed(version, kind, rows_N)))
    yield ExecuteMany("UPDATE moves SET data = $2 WHERE key = $1", after)
