"""The archive: writes old answers to Parquet files, reads them back, and only then lets the store remove them.

An object's name and content are decided before it is first written: the name has the model, the version, the day and
the store's number of the file, and the content cannot change any more. So every attempt, also by another process,
writes the same object, and an existing one is compared instead of overwritten.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import tempfile
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from service.http.parameters import moment_of
from service.predict.stored import tables
from service.predict.stored.archive_places import ArchivePlace, place_of
from service.store import Store, StoreError
from service.store.rows import ArchiveFile, HeldLabel, StoredPrediction, Version
from service.store.work.archiving import DAY_MS
from trueodds.errors import UserError
from trueodds.files import is_full, sha256
from trueodds.processes.stores import LATE_LABELS, folder_of

_COMPARED = 8192
"""Rows that are compared at once."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ArchiveError(UserError, OSError):
    """The archive cannot be used, or holds something else than was written. No answer is lost."""


class AnswerArchive:
    """The archive of one store."""

    def __init__(self, store: Store, address: str, *, audit_share: float = 0.0) -> None:
        """Make the archive.

        Args:
            store: The store.
            address: A folder, or a URL such as `s3://bucket/prefix`.
            audit_share: Audited share of the answers that act alone, for their columns.
        """
        self._store, self._address, self._audit_share = store, address, audit_share
        self._place: ArchivePlace = place_of(address)
        self._id = ""

    async def run(self, before_ms: int) -> int:
        """Archive the answers of all whole days that end before a time. Return the number of answers written.

        The place is tested first, so that a wrong key or a full disk moves nothing. The reason of a failure is kept in
        the store, for `/metrics` and `/health/ready`.

        Raises:
            OSError: The place cannot be written or read, or holds something else. No answer is lost.
            (BucketError for a bucket, ArchiveError otherwise.)
            StoreError: The store cannot be read or written.
        """
        return await self._noting(self._run(before_ms - before_ms % DAY_MS))

    async def keep_labels(self, before_ms: int) -> int:
        """Write the labels that have waited for their predictions since before a time, then remove them from the store.

        They may be late labels of archived answers, which the store no longer knows. Return their number. A process
        that is killed in between may write a label twice; joined by id it counts once.

        Raises:
            OSError: See `run`.
            StoreError: The store cannot be read or written.
        """
        return await self._noting(self._write_labels(before_ms))

    async def _noting(self, work: Coroutine[Any, Any, int]) -> int:
        """Run work, and keep the reason of its failure in the store, or that it has not failed."""
        try:
            written = await work
        except (OSError, StoreError) as error:
            named = error if isinstance(error, (UserError, StoreError)) else self._error(error)
            await self._store.note_archive_problem(str(named))
            raise named from None
        except Exception as error:  # a library's own, such as gcsfs' HttpError
            await self._store.note_archive_problem(repr(error))
            raise
        await self._store.note_archive_problem("")
        return written

    def _error(self, error: OSError) -> ArchiveError:
        """Name the archive and the cure in an error of the operating system."""
        place = f" ({error.filename})" if error.filename else ""
        cure = "free some space" if is_full(error) else "check the path and its permissions (--archive)"
        words = error.strerror or str(error)
        return ArchiveError(f"the archive {self._address} cannot be used: {words}{place}; {cure}. No answer is lost")

    async def _check(self) -> None:
        """Read the store's name in the archive, and test the place."""
        self._id = self._id or await self._store.secret("archive", secrets.token_hex(4))
        marker = f"TrueOdds archive of store {self._id}\n".encode()  # the same for all, because others may check too
        await asyncio.to_thread(self._place.check, f".trueodds-{self._id}", marker)

    async def _run(self, before_ms: int) -> int:
        await self._check()
        await self._store.clear_archive_rows()
        written = await self._write_waiting()
        moved = 1
        while moved:
            moved = await self._store.move_to_archive(before_ms)
            written += await self._write_waiting()  # also the files that a killed process had begun, if nothing moved
        return written

    async def _write_waiting(self) -> int:
        """Write every file that waits. Return the number of answers that this process has finished."""
        written = 0
        for file in await self._store.read_archive_files():
            with tempfile.TemporaryDirectory(prefix="trueodds-archive-") as folder:
                if await self._write(file, Path(folder)) and await self._store.finish_archive_file(file):
                    written += file.answers
        return written

    async def _write(self, file: ArchiveFile, folder: Path) -> bool:
        """Write a file to the archive and read it back. Return False if another process has finished it meanwhile.

        Raises:
            ArchiveError: The archive has another file under this name, or returns other bytes or rows.
        """
        source, back = folder / "source.parquet", folder / "back.parquet"
        version = next(v for v in await self._store.read_versions() if v.key == (file.model, file.version))
        rows = await _compose(source, self._store.read_archive_rows(file), version, self._audit_share)
        if rows != file.answers:
            if await self._store.is_archive_file_waiting(file):
                raise StoreError(f"the store has {rows:,} of the {file.answers:,} answers of archive file {file.key}")
            return False
        await self._create(self._name(file), source, back)
        return True

    async def _create(self, name: str, source: Path, back: Path) -> None:
        """Write a file under a name, read it back to `back`, and compare.

        Raises:
            ArchiveError: The archive holds something else under this name, or does not return what was written.
        """
        is_new = await asyncio.to_thread(self._place.create, name, source)
        if not await asyncio.to_thread(self._place.fetch, name, back):
            raise ArchiveError(f"{self._address}/{name} was written and is not there; check the archive's settings")
        if not await asyncio.to_thread(_is_same if is_new else _has_same_answers, source, back):
            problem = "does not return what was written" if is_new else "holds something else"
            cure = "check its disk" if is_new else "move that file away, or give this store an archive of its own"
            raise ArchiveError(f"{self._address}/{name} {problem}; {cure} (--archive). Nothing was removed")

    async def _write_labels(self, before_ms: int) -> int:
        removed = 0
        versions = await self._store.read_versions()
        classes: dict[str, list[tuple[str, ...]]] = {}
        for version in versions:
            classes.setdefault(version.model, []).append(version.classes)
        while labels := await self._store.read_held_before(before_ms):
            await self._check()
            for model in sorted({label.model for label in labels}):
                rows = [(one.id, *_label_row(one, classes[model])) for one in labels if one.model == model]
                digest = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
                day = rows[0][2].date().isoformat()
                name = f"{folder_of(model)}/{LATE_LABELS}{day}-{self._id}-{digest}.parquet"
                with tempfile.TemporaryDirectory(prefix="trueodds-archive-") as folder:
                    source = Path(folder) / "source.parquet"
                    await asyncio.to_thread(_compose_labels, source, rows)
                    await self._create(name, source, Path(folder) / "back.parquet")
            removed += await self._store.remove_held(labels)
        return removed

    def _name(self, file: ArchiveFile) -> str:
        folder = f"{folder_of(file.model)}/{folder_of(file.version)}"
        return f"{folder}/{file_name(file.day, self._id, file.key)}"


def file_name(day: int, store: str, key: int) -> str:
    """Return the name of a file of answers, in the folder of its version.

    Args:
        day: Days since 1970.
        store: The store's name in the archive.
        key: The store's number of the file.
    """
    return f"{(_EPOCH + timedelta(days=day)).date().isoformat()}-{store}-{key:08d}.parquet"


def _label_row(label: HeldLabel, classes: list[tuple[str, ...]]) -> tuple[str, datetime, str, str | None]:
    """Return label, time, model and import of a held label.

    An index becomes the name of its class, unless the model's versions name it differently: nobody knows which version
    has answered.
    """
    index = label.label
    names = {names[index] for names in classes if 0 <= index < len(names)} if isinstance(index, int) else set()
    name = names.pop() if len(names) == 1 else str(index)
    return name, moment_of(label.given_ms), label.model, label.import_id


def _compose_labels(path: Path, rows: list[tuple[str, str, datetime, str, str | None]]) -> None:
    """Write labels as Parquet."""
    import pyarrow
    from pyarrow import parquet

    text = pyarrow.string()
    types = {"id": text, "label": text, "time": pyarrow.timestamp("ms", "UTC"), "model": text, "import_id": text}
    schema = pyarrow.schema(list(types.items()))
    columns = zip(zip(*rows, strict=True), schema.types, strict=True)
    arrays = [pyarrow.array(values, kind) for values, kind in columns]
    parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), path)


async def _compose(
    path: Path, blocks: AsyncIterator[list[StoredPrediction]], version: Version, audit_share: float
) -> int:
    """Write the rows as Parquet, with a column per class where probabilities are known. Return their number."""
    probabilities = tables.has_class_columns(version)
    writer = tables.ParquetWriter(tables.columns_of(version, probabilities=probabilities))
    count = 0

    with path.open("wb") as target:

        def append(block: list[StoredPrediction]) -> None:
            rows = tables.rows_of(block, version, probabilities=probabilities, audit_share=audit_share)
            target.write(writer.block(rows))

        async for block in blocks:
            await asyncio.to_thread(append, block)
            count += len(block)
        target.write(writer.end())
    return count


def _is_same(source: Path, back: Path) -> bool:
    """Return whether two files have the same bytes and the same number of rows."""
    from pyarrow import ArrowException, parquet

    try:
        rows = [parquet.read_metadata(path).num_rows for path in (source, back)]
    except ArrowException:
        return False
    return rows[0] == rows[1] and sha256(source) == sha256(back)


def _has_same_answers(source: Path, back: Path) -> bool:
    """Return whether two files hold the same answers.

    Their bytes may differ: an earlier attempt may have used another release of pyarrow or another audit share. An
    earlier release of this service has fewer columns. The new ones must then be empty.
    """
    from pyarrow import ArrowException, parquet

    if _is_same(source, back):
        return True
    try:
        with parquet.ParquetFile(source) as one, parquet.ParquetFile(back) as other:
            if one.metadata.num_rows != other.metadata.num_rows:
                return False
            names = [name for name in one.schema_arrow.names if name not in tables.ACTING]
            new = [name for name in names if name not in other.schema_arrow.names]
            for batch in one.iter_batches(_COMPARED, columns=new):
                if any(column.null_count < len(column) for column in batch.columns):
                    return False
            both = [name for name in names if name not in new]
            batches = (file.iter_batches(_COMPARED, columns=both) for file in (one, other))
            return all(a.equals(b) for a, b in zip(*batches, strict=True))
    except (ArrowException, ValueError):
        return False
