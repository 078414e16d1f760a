"""Files of sums: one small Parquet file for each partition of a table of answers. Reports add them up."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from trueodds.errors import ConfigError, MissingExtraError
from trueodds.files import FileError, atomic_write
from trueodds.reports.schemas import Unit
from trueodds.reports.table.summed import COLUMNS, SumGroups, TableSums
from trueodds.sums.bins import CELLS
from trueodds.sums.fine import FINE_EDGES
from trueodds.sums.inputs import Array
from trueodds.sums.rounding import EXACT, Resolution
from trueodds.texts import plural, quotes

FORMAT = 2
"""Version of the file format."""
KEY = b"trueodds.sums"
"""Entry of a Parquet file's metadata that makes it a file of sums."""
GRID = {"cells": CELLS, "fine_cells": len(FINE_EDGES) - 1, "least_fine_edge": float(FINE_EDGES[1])}
"""Identity of the cells. Sums on other cells cannot be added."""
FIRST = "first"
"""Part of the groups with the labels of answers that had none before, by version. The alarm reads it."""
DAY_MS = 86_400_000


@dataclass(frozen=True, order=True)
class Window:
    """Half-open interval of whole days in UTC."""

    start_ms: int
    """First millisecond."""
    end_ms: int
    """First millisecond after it."""

    @classmethod
    def of_days(cls, first: str, end: str) -> Self:
        """Return the days from `first` up to, and without, `end`, such as 2026-01-31.

        Raises:
            ConfigError: A text is not a day, or `end` is not after `first`.
        """
        window = cls(day_ms(first), day_ms(end))
        if window.end_ms <= window.start_ms:
            raise ConfigError(f"the days from {first} up to {end} are none; give an end after the beginning")
        return window

    @classmethod
    def of_day(cls, start_ms: int) -> Self:
        """Return the day that begins at a time."""
        return cls(start_ms, start_ms + DAY_MS)

    @property
    def first_day(self) -> str:
        """First day, such as 2026-01-31."""
        return day_text(self.start_ms)

    def __str__(self) -> str:
        if self.end_ms - self.start_ms == DAY_MS:
            return self.first_day
        return f"{self.first_day} to {day_text(self.end_ms - DAY_MS)}"


def day_ms(text: str) -> int:
    """Parse a day in UTC to the Unix milliseconds of its beginning: 2026-01-31, `today` or `yesterday`.

    Raises:
        ConfigError: The text is something else.
    """
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"today": today, "yesterday": today - timedelta(days=1)}
    try:
        day = named.get(text) or datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise ConfigError(f"{text!r} is not a day; expected YYYY-MM-DD, such as 2026-01-31, or yesterday") from None
    return int(day.timestamp()) * 1000


def day_text(ms: int) -> str:
    """Return the day of a time, such as 2026-01-31."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d}"


@dataclass(frozen=True)
class ReadFile:
    """File whose rows a partition counts."""

    path: str
    bytes: int
    sha256: str
    rows: int
    """Number of its rows that count in the partition."""


@dataclass(frozen=True)
class ReadTable:
    """Table whose rows a partition counts, as it was then. Another number or time later shows that it has changed."""

    name: str
    """Name of the table, or pattern of its files."""
    address: str
    """Address of its database without a password; "" for files."""
    rows: int
    """Number of its rows in the partition: answers by their time, or labels by their arrival."""
    last_ms: int | None
    """Latest of these times in Unix milliseconds; None if there is none."""


@dataclass(frozen=True)
class RowCounts:
    """Numbers of rows of a partition."""

    answers: int = 0
    """Answers whose time lies in the partition."""
    labels: int = 0
    """Answers that got a label, or another one, in the partition."""
    corrections: int = 0
    """Labels that replace one of an earlier partition, which is subtracted."""
    without_answer: int = 0
    """Ids with a first label and without an answer, less those of earlier partitions whose answer has come since."""
    label_rows: int = 0
    """Rows with a label that arrived in the partition. Another number later shows that rows came late."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Sums of the answers and labels that arrived within some days, with their provenance."""

    window: Window
    groups: SumGroups
    source: str
    """Name of the table."""
    rows: RowCounts
    files: tuple[ReadFile, ...]
    engine: str
    """Engine that made the sums, with its version."""
    classes: tuple[str, ...] = ()
    by_confidence: bool = False
    positive_class: str = ""
    resolution: Resolution = EXACT
    unit: Unit | None = None
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[ReadTable, ...] = ()
    """The table of the answers and that of the labels."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options that decided how the rows were read."""

    @property
    def is_empty(self) -> bool:
        """Whether no row counts. Then the partition knows no classes."""
        return not self.rows.answers + self.rows.labels

    def first_labels(self) -> dict[str, Array]:
        """Return count, sum of confidences and correct ones per cell, shape (3, C), of the first labels by version."""
        groups = self.groups.of(FIRST)
        found: dict[str, Array] = {}
        for version in sorted(set(groups.name_G.tolist())):
            own = groups.only(groups.name_G == version)
            columns = [COLUMNS.index(name) for name in ("count", "confidence", "correct")]
            found[version] = np.stack([np.bincount(own.cell_G, own.sums_GK[:, k], CELLS) for k in columns]).astype(
                np.float64
            )
        return found


_TEXTS = ("source", "engine", "by_confidence", "positive_class", "unit")
_LISTS = ("classes", "columns", "notes")


def _parquet(user: str) -> Any:
    """Import pyarrow's module for Parquet."""
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise MissingExtraError(user, "pyarrow", "table") from None
    return parquet


def write_partition(path: Path, partition: Partition) -> None:
    """Write a partition to a Parquet file, with its facts as JSON in the file's metadata.

    Equal partitions give equal bytes.

    Raises:
        MissingExtraError: pyarrow is not installed.
        OSError: The file cannot be written.
    """
    parquet = _parquet(f"writing {path}")
    import pyarrow as pa

    groups = merge([partition.groups])
    facts = {name: getattr(partition, name) for name in (*_TEXTS, *_LISTS)}
    facts |= {"format": FORMAT, "grid": GRID, "window": asdict(partition.window), "rows": asdict(partition.rows)}
    facts |= {"resolution": partition.resolution.to_json(), "files": [asdict(file) for file in partition.files]}
    facts |= {"tables": [asdict(table) for table in partition.tables], "options": dict(partition.options)}
    columns = {
        "part": pa.array(groups.part_G.tolist(), pa.string()),
        "name": pa.array(groups.name_G.tolist(), pa.string()),
        "number": groups.number_G,
        "cell": groups.cell_G,
        **{name: groups.sums_GK[:, k] for k, name in enumerate(COLUMNS)},
    }
    table = pa.table(columns).replace_schema_metadata({KEY: json.dumps(facts).encode()})
    with atomic_write(path) as aside:
        parquet.write_table(table, aside)


def holds_sums(path: Path) -> bool:
    """Return whether a file is a Parquet file of sums."""
    if path.suffix != ".parquet" or not path.is_file():
        return False
    parquet = _parquet(f"reading {path}")
    from pyarrow import ArrowInvalid

    try:
        return KEY in (parquet.read_schema(path).metadata or {})
    except ArrowInvalid:
        return False


def read_partition(path: Path) -> Partition:
    """Read a file of sums.

    Raises:
        FileError: The file holds something else, other cells or another format, or is damaged.
        MissingExtraError: pyarrow is not installed.
    """
    parquet = _parquet(f"reading {path}")
    from pyarrow import ArrowException

    again = "make it again with `trueodds sums`"
    try:
        table = parquet.read_table(path)
        facts = json.loads((table.schema.metadata or {})[KEY])
    except KeyError:
        raise FileError(f"{path} holds no sums; expected a file that `trueodds sums` wrote") from None
    except (ArrowException, ValueError) as error:
        raise FileError(f"{path} is damaged ({error}); {again}") from None
    if facts.get("format") != FORMAT:
        raise FileError(f"{path} has the format {facts.get('format')!r}; this version reads {FORMAT}: {again}")
    if facts.get("grid") != GRID:
        raise FileError(f"{path} holds sums on the cells {facts.get('grid')}; expected {GRID}: {again}")
    try:
        part, name = (np.array(table.column(column).to_pylist(), object) for column in ("part", "name"))
        number, cell = (table.column(column).to_numpy() for column in ("number", "cell"))
        sums_GK = np.stack([table.column(column).to_numpy() for column in COLUMNS], axis=1)
        rest = {name: tuple(facts[name]) for name in _LISTS} | {name: facts[name] for name in _TEXTS}
        files = tuple(ReadFile(**file) for file in facts["files"])
        return Partition(
            window=Window(**facts["window"]),
            groups=SumGroups(part, name, number, cell, sums_GK),
            rows=RowCounts(**facts["rows"]),
            files=files,
            resolution=Resolution.from_json(facts["resolution"]),
            tables=tuple(ReadTable(**table) for table in facts["tables"]),
            options=facts["options"],
            **rest,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise FileError(f"{path} is damaged ({error}); {again}") from None


def paths_of_sums(names: Sequence[Path]) -> list[Path]:
    """Return the files that paths and patterns name, if each names some and all hold sums; otherwise none."""
    each = [_matches(name) for name in names]
    paths = [path for found in each for path in found]
    return paths if all(each) and all(map(holds_sums, paths)) else []


def problem_of_sums(names: Sequence[Path]) -> str:
    """Describe the first name that keeps `paths_of_sums` from returning files; "" if there is none."""
    for name in names:
        found = _matches(name)
        if name.is_dir():
            return f"{name} is a folder; name its files: {name}/*.parquet"
        if not found:
            return f"{name} matches no file"
        if other := next((path for path in found if not holds_sums(path)), None):
            return f"{other} {'holds no sums' if other.exists() else 'does not exist'}"
    return ""


def _matches(name: Path) -> list[Path]:
    """Return the files that a pattern matches. A path that is none is its only match, even if it does not exist."""
    if name.exists() or not any(sign in str(name) for sign in "*?["):
        return [name]
    whole = name.absolute()
    return sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor))))


def merge(several: Sequence[SumGroups]) -> SumGroups:
    """Add groups up: those with equal part, name, number and cell become one. The result is sorted by them."""
    part_G, name_G = (np.concatenate([getattr(one, field) for one in several]) for field in ("part_G", "name_G"))
    number_G, cell_G = (np.concatenate([getattr(one, field) for one in several]) for field in ("number_G", "cell_G"))
    sums_GK = np.concatenate([one.sums_GK for one in several])
    name_G = np.array([name or "" for name in name_G], object)
    _, part_code_G = np.unique(part_G.astype(str), return_inverse=True)
    _, name_code_G = np.unique(name_G.astype(str), return_inverse=True)
    keys_GK = np.stack([part_code_G, name_code_G, number_G, cell_G], axis=1).astype(np.int64)
    _, first_M, place_G = np.unique(keys_GK, axis=0, return_index=True, return_inverse=True)
    added_MK = np.zeros((len(first_M), len(COLUMNS)))
    np.add.at(added_MK, place_G.reshape(-1), sums_GK)
    kept_M = (added_MK != 0).any(axis=1)
    first_M = first_M[kept_M]
    return SumGroups(part_G[first_M], name_G[first_M], number_G[first_M], cell_G[first_M], added_MK[kept_M])


def _without_residue(sums_MK: Array) -> Array:
    """Set the sums of groups without labelled rows to 0.

    Rounding leaves a residue after a subtraction. In one partition they are not 0 if a correction was right.
    """
    labelled = [COLUMNS.index(name) for name in COLUMNS if name not in ("answers", "count")]
    sums_MK[np.ix_(sums_MK[:, COLUMNS.index("count")] == 0, labelled)] = 0.0
    return sums_MK


def read_sums(paths: Sequence[Path]) -> tuple[list[Partition], TableSums]:
    """Read files of sums, in the order of their days, and add them up.

    Args:
        paths: The files.

    Returns:
        The partitions, and sums of which a report is made.

    Raises:
        FileError: Two files hold the same days, were made with different options or of different classes, or hold
            labels of answers that no file holds.
    """
    found = sorted(((read_partition(path), path) for path in paths), key=lambda one: (one[0].window, str(one[1])))
    for (one, path), (other, later) in pairwise(found):
        if other.window.start_ms < one.window.end_ms:
            same = max(one.window.start_ms, other.window.start_ms), min(one.window.end_ms, other.window.end_ms)
            raise FileError(f"{path} and {later} both hold {Window(*same)}; give each day once: leave one of them out")
    full = [(partition, path) for partition, path in found if not partition.is_empty]
    if not full:
        raise FileError(
            f"{plural(len(paths), 'file')} of sums, from {found[0][0].window.first_day} on, hold no answers; give those"
            " of days with answers"
        )
    for partition, path in full[1:]:
        _check_alike(*full[0], partition, path)
    partitions = [partition for partition, _ in found]
    return partitions, _total([partition for partition, _ in full])


def _check_alike(one: Partition, path: Path, other: Partition, later: Path) -> None:
    """Check that two partitions can be added.

    Raises:
        FileError: They have other classes, columns or steps.
    """
    cure = "make both with the same options of `trueodds sums`"
    if not one.by_confidence and not other.by_confidence and one.classes != other.classes:
        raise FileError(
            f"{path} has the classes {quotes(one.classes)}, and {later} has {quotes(other.classes)}; sums of different"
            " classes do not add up: leave one out, or name the classes with --classes"
        )
    names = {"by_confidence": "form of the answers", "positive_class": "--positive", "unit": "--trend"}
    for name, words in {**names, "columns": "columns to compare"}.items():
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine != theirs:
            raise FileError(f"{path} and {later} differ in {words}: {mine!r} and {theirs!r}; {cure}")
    if one.resolution.step != other.resolution.step:
        steps = [partition.resolution.step or "exact" for partition in (one, other)]
        raise FileError(
            f"{path} and {later} were read with the resolutions {steps[0]} and {steps[1]}; state it for both with"
            " --resolution"
        )


def _total(partitions: Sequence[Partition]) -> TableSums:
    """Add partitions up.

    Raises:
        FileError: Labels, or corrections of labels, belong to answers of no partition.
    """
    classes = _all_classes(partitions)
    groups = merge([_renumber(partition, classes) for partition in partitions])
    groups = groups.only(groups.part_G != FIRST)
    groups = replace(groups, sums_GK=_without_residue(groups.sums_GK))
    one = partitions[0]
    before = f"give the files from the day of the first answer on; {one.window.first_day} is the first day here"
    answers_G, count_G = groups.sums_GK[:, COLUMNS.index("answers")], groups.sums_GK[:, COLUMNS.index("count")]
    if (count_G < 0).any():
        raise FileError(f"sums correct labels that arrived before the first file's day; {before}")
    if (count_G > answers_G)[groups.part_G == "class"].any():
        raise FileError(f"sums hold labels of answers from before the first file's day; {before}")
    sources = dict.fromkeys(partition.source for partition in partitions)
    notes = dict.fromkeys(note for partition in partitions for note in partition.notes)
    lost = sum(partition.rows.without_answer for partition in partitions)
    words = [f"{plural(lost, 'label')} left out: no answer has the id."] if lost else []
    return TableSums(
        ", ".join(sources),
        classes,
        groups,
        by_confidence=one.by_confidence,
        positive_class=one.positive_class,
        resolution=one.resolution,
        unit=one.unit,
        columns=one.columns,
        notes=(*notes, *words),
    )


def _all_classes(partitions: Sequence[Partition]) -> tuple[str, ...]:
    """Return the classes of all partitions. Those of a table of confidences are the ones that it has met."""
    one = partitions[0]
    if not one.by_confidence:
        return one.classes
    names = {name for partition in partitions for name in partition.classes} - {one.positive_class}
    last = (one.positive_class,) if one.positive_class else ()
    return (*sorted(names, key=_order), *last)


def _order(name: str) -> tuple[float, str]:
    """Return a key that sorts numbers by value and before other names."""
    try:
        return (float(name), name) if math.isfinite(float(name)) else (math.inf, name)
    except ValueError:
        return math.inf, name


def _renumber(partition: Partition, classes: Sequence[str]) -> SumGroups:
    """Return the groups of a partition with the numbers that its classes have among all classes."""
    groups = partition.groups
    if not partition.by_confidence or partition.classes == tuple(classes) or not partition.classes:
        return groups
    place_C = np.array([classes.index(name) for name in partition.classes], np.int64)
    is_class_G = groups.part_G == "class"
    number_G = groups.number_G.copy()
    number_G[is_class_G] = place_C[number_G[is_class_G]]
    return replace(groups, number_G=number_G)
