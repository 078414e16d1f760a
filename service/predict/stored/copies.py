"""Copies of a store's answers as Parquet files, for reports on store and archive together."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow
from pyarrow import parquet

from service.predict.stored.archive import file_name
from service.predict.stored.tables import has_class_columns
from service.store import Store, StoreError, open_reader
from service.store.rows import HeldLabel, StoredPrediction, Version
from service.store.store import LATEST_MS
from service.store.work import archiving
from service.store.work.archiving import Copied
from service.store.work.statements import Work
from trueodds.processes.stores import StoreCopy, StoredVersion, StoreUnreadableError
from trueodds.texts import hide_password

_TEXT, _TIME = pyarrow.string(), pyarrow.timestamp("ms", "UTC")
_COLUMNS = {
    "id": _TEXT,
    "time": _TIME,
    "version": _TEXT,
    "tag": _TEXT,
    "predicted": _TEXT,
    "confidence": pyarrow.float64(),
    "label": _TEXT,
    "label_time": _TIME,
    "confidence_source": _TEXT,
}
"""Columns of the archive's files that reports need, with their types."""
_LABELS = {"id": _TEXT, "label": _TEXT, "is_index": pyarrow.bool_(), "time": _TIME}
T = TypeVar("T")


class StoreCopies:
    """The service's reader of stores; see `StoreReader`."""

    def versions(self, address: str) -> list[tuple[str, str]]:
        """Return model and version of all versions of a store."""
        return _run(address, lambda store: store.database.read(archiving.versions_of_all))

    def copy(self, address: str, model: str, version: str | None, folder: Path) -> StoreCopy:
        """Copy a model's answers from one snapshot of the store."""
        return _run(address, lambda store: _copy(store, hide_password(address), model, version, folder))


def _run(address: str, read: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
    """Open a store, read it and close it, in a thread of its own: a notebook has a loop that runs already."""

    async def main() -> T:
        store = await open_reader(address)
        try:
            return await read(store)
        finally:
            await store.close()

    with ThreadPoolExecutor(1, "store-copy") as pool:
        try:
            return pool.submit(asyncio.run, main()).result()
        except StoreError as error:
            raise StoreUnreadableError(f"{error.message}. Check --store, and the rights of its user") from None


async def _copy(store: Store, name: str, model: str, version: str | None, folder: Path) -> StoreCopy:
    files: dict[str, tuple[Version, Path, parquet.ParquetWriter]] = {}
    counts: Counter[str] = Counter()

    def take(of: Version, rows: list[StoredPrediction]) -> None:
        if of.version not in files:
            path = folder / f"store-{len(files)}.parquet"
            files[of.version] = of, path, parquet.ParquetWriter(path, _schema(of))
        if rows:
            counts[of.version] += len(rows)
            files[of.version][2].write_table(_table(of, rows))

    def make() -> Work[Copied]:
        """Begin anew: a transaction may be repeated."""
        for _, _, writer in files.values():
            writer.close()
        files.clear()
        counts.clear()
        return archiving.copy(model, version, take, LATEST_MS)

    try:
        copied = await store.database.read(make)
    finally:
        for _, _, writer in files.values():
            writer.close()
    labels = await asyncio.to_thread(partial(_write_labels, folder / "labels.parquet", copied.held))
    versions = [
        StoredVersion(
            of.version,
            of.classes,
            has_class_columns(of),
            counts[of.version],
            {file_name(file.day, copied.archive, file.key): file.answers for file in copied.files[of.version]},
        )
        for of, _, _ in files.values()
    ]
    paths = tuple(path for name_of_version, (_, path, _) in files.items() if counts[name_of_version])
    return StoreCopy(name, tuple(versions), paths, labels)


def _schema(version: Version) -> pyarrow.Schema:
    classes = dict.fromkeys(version.classes if has_class_columns(version) else (), pyarrow.float64())
    return pyarrow.schema(list({**_COLUMNS, **classes}.items()))


def _table(version: Version, rows: list[StoredPrediction]) -> pyarrow.Table:
    """Return answers as a table. Its values are those of the archive's files."""
    classes, schema = version.classes, _schema(version)
    columns: list[Any] = [
        [row.id for row in rows],
        [row.created_ms for row in rows],
        [version.version] * len(rows),
        [row.tag for row in rows],
        [classes[row.predicted] for row in rows],
        [row.confidence for row in rows],
        [None if row.label is None else classes[row.label] for row in rows],
        [row.labelled_ms for row in rows],
        [row.confidence_source for row in rows],
    ]
    if len(schema) > len(columns):
        logits_NC = np.frombuffer(b"".join(row.logits for row in rows), "<f4").reshape(len(rows), len(classes))
        probabilities_NC = version.calibrator(logits_NC, groups=[row.tag for row in rows])
        columns += list(np.ascontiguousarray(probabilities_NC.T))
    arrays = [pyarrow.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)]
    return pyarrow.Table.from_arrays(arrays, schema=schema)


def _write_labels(path: Path, labels: list[HeldLabel]) -> Path | None:
    if not labels:
        return None
    rows = [(one.id, str(one.label), isinstance(one.label, int), one.given_ms) for one in labels]
    columns = zip(zip(*rows, strict=True), _LABELS.values(), strict=True)
    arrays = [pyarrow.array(values, type=kind) for values, kind in columns]
    parquet.write_table(pyarrow.Table.from_arrays(arrays, names=list(_LABELS)), path)
    return path
