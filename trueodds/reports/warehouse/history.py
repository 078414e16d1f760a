"""The history of a model: its answers in a service's store and in the archive of that store, as one table.

The store is read first, in one snapshot, and then the archive is listed. An answer leaves the store only after its
file is in the archive, and files never go. So an answer that leaves meanwhile is in the snapshot, and no answer is
lost. It may be in both only if its file was not verified at the time of the snapshot: rows of such files count unless
the snapshot has them too. Files that appear after the listing hold answers of the snapshot, and are not read.
"""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trueodds.bundle.contents import is_shadow, shadowed_by
from trueodds.bundle.storage.objects import Objects, is_url
from trueodds.errors import MissingExtraError
from trueodds.files import FileError
from trueodds.processes.choices import TrendUnit
from trueodds.processes.stores import LATE_LABELS, NUMBERS, StoreCopy, folder_of, name_of, store_reader
from trueodds.reports.table.reading import Form
from trueodds.reports.table.summed import TableSums
from trueodds.reports.warehouse.parquet_files import TableFiles, files_of
from trueodds.sums.rounding import Given, Resolution
from trueodds.texts import column_quotes, hide_password, plural, quotes

try:
    import pyarrow

    from trueodds.reports.warehouse.parquet_source import connect
    from trueodds.reports.warehouse.summing import sums_of_source
    from trueodds.reports.warehouse.table_source import EMBEDDED, TableSource, naming
except ModuleNotFoundError as error:
    raise MissingExtraError("a report on an archive", (error.name or "ibis").partition(".")[0], "warehouse") from None

_TEXT, _TIME = "VARCHAR", "TIMESTAMP WITH TIME ZONE"
_COLUMNS = {
    "id": _TEXT,
    "time": _TIME,
    "version": _TEXT,
    "tag": _TEXT,
    "predicted": _TEXT,
    "confidence": "DOUBLE",
    "label": _TEXT,
    "label_time": _TIME,
}
"""Columns that each file of answers has, with their types in DuckDB."""
_LATER = {"confidence_source": _TEXT}
"""Columns that files of earlier releases may lack."""
_CURE = "give the folder or the bucket that --archive of the service names"


def history_sums(
    *,
    store: str | None = None,
    archive: str | None = None,
    model: str | None = None,
    version: str | None = None,
    classes: Sequence[str] = (),
    positive: str | None = None,
    resolution: Given = None,
    trend: TrendUnit | None = None,
) -> TableSums:
    """Return the sums of the answers in a service's store and in its archive, each answer once.

    Nothing is written to either. A copy of the store's answers is in a temporary folder until the sums are made.
    Labels that came after their answers had left the store are joined by id. The latest label of an answer counts.

    Args:
        store: The store: the path of a SQLite file, or a `postgresql://` URL. None: only the archive is read.
        archive: The archive: a folder, or a URL such as `s3://bucket/prefix`. None: only the store is read.
        model: The model. None: the only one that is there.
        version: Its version. None: all versions.
        classes: Names of the classes in their order. Empty: those of the versions.
        positive: The positive class of two. The sums then have `positive(name)`.
        resolution: Step of rounded probabilities, or "exact". None: the rows show it.
        trend: Unit of the periods. None: the finest one that a trend shows.

    Returns:
        The sums; see `trueodds.table_sums`.

    Raises:
        FileError: There is no such archive, model or version, or a file of the archive has other columns.
        StoreUnreadableError: The store cannot be read.
        BucketError: The bucket cannot be read.
        MissingExtraError: The extra `warehouse`, or for a store the extra `serve`, is not installed.
    """
    given = Resolution.of(resolution) if isinstance(resolution, float | int | str) else resolution
    form = Form(classes=tuple(classes), positive=positive, resolution=given)
    with open_history(store, archive, model=model, version=version, form=form) as history:
        return history.sums(trend)


@dataclass(frozen=True)
class History:
    """A model's answers in store and archive as a table."""

    source: TableSource
    form: Form
    notes: tuple[str, ...]

    def sums(self, trend: TrendUnit | None = None) -> TableSums:
        """Make the sums; see `sums_of_source`."""
        sums = sums_of_source(self.source, self.form, trend=trend)
        return replace(sums, notes=(*self.notes, *sums.notes))


@contextmanager
def open_history(
    store: str | None, archive: str | None, *, model: str | None, version: str | None, form: Form
) -> Iterator[History]:
    """Open the answers of a model as one table; see `history_sums`. The table lasts as long as the context.

    Raises:
        FileError: See `history_sums`.
    """
    if store is None and archive is None:
        raise FileError("neither a store nor an archive is given; give --store, --archive or both")
    place = None if archive is None else archive.rstrip("/") or "/"
    if place is not None and not is_url(place) and not Path(place).is_dir():
        raise FileError(f"{place} is no folder; {_CURE}")
    model = model if model is not None else _only_model(store, place)
    with tempfile.TemporaryDirectory(prefix="trueodds-history-") as folder:
        copy = None if store is None else store_reader().copy(store, model, version, Path(folder))
        yield _Reading(model, version, place, copy, form).history(store)


@dataclass(frozen=True)
class _Listing:
    """Files that one listing names. Others that appear later do not matter."""

    files: TableFiles
    entries: dict[str, Any]
    """The state of each file by its path or URL."""

    @classmethod
    def of(cls, pattern: str) -> _Listing:
        files = files_of(pattern)
        return cls(files, _by_name(files))

    def state(self) -> object:
        """Return a value that is equal as long as none of the files changes or goes."""
        found = _by_name(self.files)
        return {name: found.get(name) for name in self.entries}


def _by_name(files: TableFiles) -> dict[str, Any]:
    entries: Any = files.state()
    return {str(name): tuple(rest) for name, *rest in entries}


def _only_model(store: str | None, place: str | None) -> str:
    models = [name for name in dict.fromkeys(model for model, _ in _names(store, place)) if not is_shadow(name)]
    where = _where(store, place)
    if not models:
        raise FileError(f"{where} has no answers; check the address, or give the store and the archive of a service")
    if len(models) > 1:
        raise FileError(f"{where} has the models {quotes(sorted(models))}; name one with --model")
    return models[0]


def _names(store: str | None, place: str | None) -> list[tuple[str, str]]:
    """Return model and version of all versions in store and archive."""
    names = [] if store is None else store_reader().versions(store)
    if place is not None:
        if is_url(place):
            paths = [name.split("/") for name in Objects(place).list() if name.endswith(".parquet")]
        else:
            paths = [list(path.parts) for path in Path(place).glob("*/*/*.parquet")]
        names += [(name_of(parts[-3]), name_of(parts[-2])) for parts in paths if len(parts) >= 3]
    return list(dict.fromkeys(names))


def _where(store: str | None, place: str | None) -> str:
    return " and ".join(hide_password(name) for name in (place, store) if name is not None)


@dataclass
class _Reading:
    """One reading of store and archive."""

    model: str
    version: str | None
    place: str | None
    copy: StoreCopy | None
    form: Form
    notes: list[str] = field(default_factory=list)

    def history(self, store: str | None) -> History:
        """List the archive, and make the table of all answers."""
        answers, labels = self._listings()
        versions = self._versions(answers)
        if not versions:
            raise self._nothing(store)
        name = f"{self.model} in {_where(store, self.place)}"

        def state() -> object:
            return [listing.state() for listing in (answers, labels) if listing is not None]

        first_state = state()
        with naming(name, EMBEDDED, state, first_state):
            connection = connect()
            for listing in (answers, labels):
                if listing is not None and listing.entries:
                    listing.files.open_in(connection)
            columns = _columns(connection, list(answers.entries) if answers else [])
            if not columns and not (self.copy and self.copy.answers):
                raise FileError(f"{name}: there are no answers; give a model that has answered")
            classes = self._classes(versions, columns)
            _make_rows(connection, self._parts(connection, answers, columns, classes))
            self._add_late_labels(connection, labels, versions)
            wanted = ["time", "version", "tag", "label", "confidence_source", *(classes or ("predicted", "confidence"))]
            table = connection.table("labelled_rows").select(*wanted)
        form = replace(self.form, classes=classes)
        return History(TableSource(name, table, EMBEDDED, state, first_state), form, tuple(self.notes))

    def _listings(self) -> tuple[_Listing | None, _Listing | None]:
        if self.place is None:
            return None, None
        root = glob.escape(self.place)
        of_version = "*" if self.version is None else folder_of(self.version)
        answers = _Listing.of(f"{root}/{folder_of(self.model)}/{of_version}/*.parquet")
        return answers, _Listing.of(f"{root}/{folder_of(shadowed_by(self.model))}/{LATE_LABELS}*.parquet")

    def _nothing(self, store: str | None) -> FileError:
        names = _names(store, self.place)
        versions = [version for model, version in names if model == self.model]
        where = _where(store, self.place)
        if versions:
            return FileError(
                f"{where} has no version {self.version!r} of {self.model}; allowed are {quotes(versions)}: name one"
                " with --version, or leave it out"
            )
        models = sorted({model for model, _ in names})
        allowed = f"it has {quotes(models)}: name one with --model" if models else f"it has none: {_CURE}"
        return FileError(f"{where} has no model {self.model!r}; {allowed}")

    def _versions(self, answers: _Listing | None) -> dict[str, tuple[str, ...]]:
        """Return the versions with their classes, as far as the store knows them, and compare store and archive.

        Raises:
            FileError: The store has archived answers, and none of its files is there.
        """
        versions = {one.version: one.classes for one in self.copy.versions} if self.copy else {}
        for path in answers.entries if answers else ():
            versions.setdefault(_version_of(path), ())
        if self.copy is None:
            return versions
        written = {one.version: one.archive_files for one in self.copy.versions}
        if self.place is None:
            if gone := sum(sum(files.values()) for files in written.values()):
                self.notes.append(f"{plural(gone, 'archived answer')} left out: name their place with --archive.")
            return versions
        there = {(_version_of(path), _file_of(path)) for path in answers.entries} if answers else set()
        wanted = {(version, name): count for version, files in written.items() for name, count in files.items()}
        lost = {key: count for key, count in wanted.items() if key not in there}
        if lost and len(lost) == len(wanted):
            version, name = next(iter(lost))
            raise FileError(
                f"{hide_password(self.place)} has none of the {plural(len(lost), 'file')} that {self.copy.name} has"
                f" archived, such as {folder_of(self.model)}/{folder_of(version)}/{name}; {_CURE}"
            )
        if lost:
            self.notes.append(
                f"{plural(sum(lost.values()), 'answer')} left out: {plural(len(lost), 'file')} of the archive,"
                " which the store has written, went away."
            )
        return versions

    def _classes(self, versions: dict[str, tuple[str, ...]], columns: dict[str, dict[str, str]]) -> tuple[str, ...]:
        """Return the classes whose columns all versions have; none if only confidences can be read together."""
        stored = [one for one in self.copy.versions if one.answers] if self.copy else []
        own = {one.version: one.classes if one.has_columns else () for one in stored}
        for path, kinds in columns.items():
            of_file = tuple(name for name, kind in kinds.items() if kind == "DOUBLE" and name not in NUMBERS)
            version = _version_of(path)
            known = own.setdefault(version, of_file)
            if set(known) != set(of_file):
                own[version] = ()
            if not versions[version]:
                versions[version] = of_file
        wanted = self.form.classes or next(iter(own.values()), ())
        other = [version for version, classes in own.items() if set(classes) != set(wanted)]
        fixed = {*_COLUMNS, *_LATER}
        is_clear = len({name.lower() for name in (*wanted, *fixed)}) == len(wanted) + len(fixed)
        if wanted and not other and is_clear:
            return wanted
        if self.form.classes:
            problem = (
                f"the versions {quotes(other)} have other classes, or no column for each"
                if other
                else "DuckDB takes names that differ only in upper and lower case as one"
            )
            raise FileError(
                f"--classes names {quotes(self.form.classes)}, and {problem}; name one version with --version, or leave"
                " --classes out: the report then reads confidences"
            )
        why = "the versions have different classes" if other else "not every answer has a column for each class"
        if wanted and not other:
            why = "names of classes differ only in upper and lower case"
        self.notes.append(f"Read by confidence, so without NLL and Brier score: {why}.")
        return ()

    def _parts(
        self, connection: Any, answers: _Listing | None, columns: dict[str, dict[str, str]], classes: Sequence[str]
    ) -> list[str]:
        """Return the SELECTs whose union has every answer once."""
        parts = []
        files = [str(path) for path in self.copy.answers] if self.copy else []
        if files:
            connection.raw_sql(f"CREATE TEMP VIEW stored AS {_select(files, classes, {*_COLUMNS, *_LATER})}")
            parts.append("SELECT * FROM stored")
        if not columns:
            return parts
        assert answers is not None
        names: set[str] = {name for kinds in columns.values() for name in kinds}
        verified = (
            {(one.version, file) for one in self.copy.versions for file in one.archive_files} if self.copy else set()
        )
        sure = [path for path in columns if not files or (_version_of(path), _file_of(path)) in verified]
        open_ones = [path for path in columns if path not in set(sure)]
        if sure:
            parts.append(_select(sure, classes, names))
        if open_ones:
            connection.raw_sql(f"CREATE TEMP VIEW unverified AS {_select(open_ones, classes, names)}")
            key = "id, version, time"
            connection.raw_sql(
                f"CREATE TEMP TABLE twice AS SELECT DISTINCT {key} FROM unverified SEMI JOIN stored USING ({key})"
            )
            parts.append(f"SELECT * FROM unverified ANTI JOIN twice USING ({key})")
            self._note_other_stores(open_ones)
        return parts

    def _note_other_stores(self, paths: Sequence[str]) -> None:
        """Add a note if other stores share the archive."""
        own = {_store_of(file) for one in self.copy.versions for file in one.archive_files} if self.copy else set()
        others = {_store_of(_file_of(path)) for path in paths} - own
        if own and others:
            self.notes.append(
                f"The archive also has files of {plural(len(others), 'other store')}. They count; answers that are"
                " still in those stores do not."
            )

    def _add_late_labels(self, connection: Any, labels: _Listing | None, versions: dict[str, tuple[str, ...]]) -> None:
        """Make the view of all answers with their latest labels."""
        given = []
        if labels is not None and labels.entries:
            given.append(f"SELECT id, label, time, 'either' AS kind FROM read_parquet([{_quote(labels.entries)}])")
        if self.copy is not None and self.copy.labels is not None:
            kind = "CASE WHEN is_index THEN 'index' ELSE 'name' END AS kind"
            given.append(f"SELECT id, label, time, {kind} FROM read_parquet([{_quote([str(self.copy.labels)])}])")
        if not given or not self._match_labels(connection, " UNION ALL ".join(given), versions):
            connection.raw_sql("CREATE TEMP VIEW labelled_rows AS SELECT * FROM all_rows")
            return
        connection.raw_sql(
            "CREATE TEMP VIEW labelled_rows AS SELECT r.* REPLACE (CASE WHEN l.label IS NOT NULL AND (r.label IS NULL"
            " OR r.label_time IS NULL OR l.time > r.label_time) THEN l.label ELSE r.label END AS label)"
            " FROM all_rows r LEFT JOIN late l ON r.id = l.id AND r.version = l.version"
        )

    def _match_labels(self, connection: Any, labels: str, versions: dict[str, tuple[str, ...]]) -> int:
        """Find the answers of late labels, and return the number of ids that get one.

        Raises:
            FileError: An id has two different labels of the same time.
        """
        connection.raw_sql(f"CREATE TEMP TABLE given AS SELECT DISTINCT id, label, time, kind FROM ({labels})")
        connection.raw_sql(
            "CREATE TEMP TABLE hits AS SELECT DISTINCT id, version FROM all_rows SEMI JOIN given USING (id)"
        )
        rows = [row for version, classes in versions.items() for row in _meanings(version, classes)]
        schema = pyarrow.schema(dict.fromkeys(("version", "kind", "label", "name"), pyarrow.string()))
        connection.con.register("names", pyarrow.Table.from_pylist(rows, schema=schema))
        unknown = [version for version, classes in versions.items() if not classes]
        as_it_is = f"h.version IN ({_quote(unknown)}) AND g.kind <> 'index'" if unknown else "false"
        # A label waits in the store, or is in a file. If it moves meanwhile, it may be in both, in two spellings.
        connection.raw_sql(
            "CREATE TEMP TABLE late AS SELECT h.id, h.version, g.time, min(coalesce(n.name, g.label)) AS label,"
            " count(DISTINCT coalesce(n.name, g.label)) AS different"
            " FROM hits h JOIN given g USING (id) LEFT JOIN names n ON n.version = h.version AND n.kind = g.kind"
            f" AND n.label = g.label WHERE n.name IS NOT NULL OR ({as_it_is}) GROUP BY h.id, h.version, g.time"
            " QUALIFY g.time = max(g.time) OVER (PARTITION BY h.id, h.version)"
        )
        unclear = connection.raw_sql("SELECT id FROM late WHERE different > 1 ORDER BY id LIMIT 1").fetchone()
        if unclear:
            raise FileError(
                f"the id {unclear[0]!r} has two different late labels of the same time; keep one of them in"
                f" {hide_password(str(self.place))}/{folder_of(shadowed_by(self.model))}/{LATE_LABELS}*.parquet"
            )
        counts = [
            int(connection.raw_sql(f"SELECT count(DISTINCT id) FROM {table}").fetchone()[0])
            for table in ("given", "hits", "late")
        ]
        if counts[0] > counts[1]:
            self.notes.append(f"{plural(counts[0] - counts[1], 'late label')} left out: no answer has the id.")
        if counts[1] > counts[2]:
            self.notes.append(
                f"{plural(counts[1] - counts[2], 'late label')} left out: the answer's version has no such class."
            )
        return counts[2]


def _version_of(path: str) -> str:
    return name_of(path.rsplit("/", 2)[-2])


def _file_of(path: str) -> str:
    return path.rsplit("/", 1)[-1]


def _store_of(file: str) -> str:
    """Return the store's name in the name of a file: DAY-STORE-NUMBER.parquet."""
    return file.rsplit("-", 2)[-2] if file.count("-") >= 2 else file


def _meanings(version: str, classes: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the texts that mean a class. A number in a file of the archive is a name, or else an index."""
    for k, name in enumerate(classes):
        yield {"version": version, "kind": "name", "label": name, "name": name}
        yield {"version": version, "kind": "index", "label": str(k), "name": name}
        yield {"version": version, "kind": "either", "label": name, "name": name}
        if str(k) not in classes:
            yield {"version": version, "kind": "either", "label": str(k), "name": name}


def _quote(texts: Any) -> str:
    return ", ".join(f"'{text.replace(chr(39), 2 * chr(39))}'" for text in texts)


def _columns(connection: Any, paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return name and type of the columns of each file, in their order.

    Raises:
        FileError: A file lacks a column, or has another type.
    """
    if not paths:
        return {}
    found = connection.raw_sql(
        "SELECT file_name, name, duckdb_type FROM parquet_schema([" + _quote(map(glob.escape, paths)) + "])"
        " WHERE duckdb_type IS NOT NULL"
    ).fetchall()
    columns: dict[str, dict[str, str]] = {path: {} for path in paths}
    for path, name, kind in found:
        columns[path][name] = kind
    for path, kinds in columns.items():
        for name, kind in {**_COLUMNS, **_LATER}.items():
            if name in kinds and kinds[name] != kind:
                raise FileError(
                    f"{path} has the column {name!r} of type {kinds[name]}; files of an archive have {kind}: move this"
                    f" file away, or {_CURE}"
                )
            if name not in kinds and name in _COLUMNS:
                raise FileError(
                    f"{path} has no column {name!r}, which files of an archive have; it has"
                    f" {column_quotes(list(kinds))}: move this file away, or {_CURE}"
                )
    return columns


def _select(paths: Sequence[str], classes: Sequence[str], names: set[str]) -> str:
    """Return the SELECT of the needed columns of some files. Columns are found by name: releases differ in them."""
    columns = [name if name in names else f"NULL::{kind} AS {name}" for name, kind in {**_COLUMNS, **_LATER}.items()]
    columns += ['"' + name.replace('"', '""') + '"' for name in classes]
    options = "union_by_name = true, hive_partitioning = false"
    return f"SELECT {', '.join(columns)} FROM read_parquet([{_quote(map(glob.escape, paths))}], {options})"


def _make_rows(connection: Any, parts: Sequence[str]) -> None:
    union = " UNION ALL ".join(f"({part})" for part in parts)
    connection.raw_sql(f"CREATE TEMP VIEW all_rows AS {union}")
