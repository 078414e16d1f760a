"""Columns of tables in files, CSV with a header or Parquet (extra `table`), and NumPy arrays."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trueodds.errors import MissingExtraError
from trueodds.files import FileError
from trueodds.inputs import table, times
from trueodds.inputs.errors import InputError
from trueodds.texts import is_whole_number, plural, short, without_point

Array = npt.NDArray[np.float64]
SUFFIXES = (".csv", ".parquet")
_SUFFIX_CURES = {
    **dict.fromkeys((".tsv", ".tab", ".txt", ".dat"), f"rename it to .csv if its cells are {table.SEPARATED}"),
    **dict.fromkeys((".gz", ".bz2", ".xz", ".zst", ".zip"), "unpack it first"),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save it from the spreadsheet as 'CSV UTF-8'"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "pandas.read_json(path, lines=True).to_parquet(..) converts it"),
    **dict.fromkeys((".pq", ".parq"), "rename it to .parquet"),
}
"""Cure for a file of another suffix, for messages."""
LINES = 20_000
"""Rows of a CSV file that are in memory as text at a time."""
_ESCAPED = re.compile("[\udc80-\udcff]")
"""A byte that is not UTF-8, as `surrogateescape` decodes it."""
_NUMPY = re.compile(r"np\.float\d+\(([^()]*)\)")
"""A number as NumPy 2 represents it."""
_PANDAS_INDEX = re.compile(r"__index_level_\d+__|Unnamed: \d+")
"""Name that pandas gives an index without a name, in Parquet and Arrow, or after a CSV file with it was read."""
HEAD = 100
"""Rows of a CSV file that show which columns hold lists."""
FIRST = 2
"""Row number of the first cells; the header is row 1."""


class NumberError(FileError):
    """Error for a column of numbers that holds something else. `has_cure`: the message says how to write the cell."""

    def __init__(self, message: str, column: str, *, has_cure: bool = False) -> None:
        super().__init__(message)
        self.column, self.has_cure = column, has_cure


def is_pandas_index(name: str) -> bool:
    """Return whether a column's name is the one that pandas gives an index without a name.

    Such a column numbers the rows: pandas writes it to a Parquet file if rows were left out or shuffled.

    Examples:
        >>> is_pandas_index("__index_level_0__"), is_pandas_index("Unnamed: 0"), is_pandas_index("index")
        (True, True, False)
    """
    return _PANDAS_INDEX.fullmatch(name) is not None


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of text: its distinct values, and the index of each row's value. An empty cell is ""."""

    values: tuple[str, ...]
    code_N: npt.NDArray[np.intp]

    @classmethod
    def of(cls, values: Sequence[object], code_N: npt.NDArray[np.intp]) -> Texts:
        """Convert values to texts: whole numbers without a point, None and NaN as "". Equal texts become one value."""
        place: dict[str, int] = {}
        code_V = np.array([place.setdefault(_text(value), len(place)) for value in values], np.intp)
        return cls(tuple(place), code_V[code_N] if len(code_N) else code_N)

    @classmethod
    def of_array(cls, array_N: npt.NDArray[Any]) -> Texts:
        """Convert an array of numbers, booleans, times or text. Times become ISO 8601."""
        if array_N.dtype.kind == "M":
            times_N = np.where(np.isnat(array_N), "", np.datetime_as_string(array_N))
            return cls.of_array(times_N)
        if array_N.dtype.kind in "fiub":
            values, code_N = np.unique(array_N, return_inverse=True)
            return cls.of(values.tolist(), code_N)
        place: dict[object, int] = {}
        cells = array_N.tolist()
        code_N = np.fromiter((place.setdefault(cell, len(place)) for cell in cells), np.intp, len(cells))
        return cls.of([*place], code_N)

    def __len__(self) -> int:
        return len(self.code_N)

    @property
    def is_known_N(self) -> npt.NDArray[np.bool_]:
        """Whether each cell is not empty."""
        known_V = np.array([bool(value) for value in self.values], bool)
        return known_V[self.code_N] if len(self) else np.zeros(0, bool)

    def as_classes(self) -> Texts:
        """Remove the point from whole numbers, if all cells are whole numbers. A column with a gap holds 1.0 for 1."""
        if not all(is_whole_number(value) for value in self.values if value):
            return self
        return Texts.of([without_point(value) if "." in value else value for value in self.values], self.code_N)

    def as_list(self) -> list[str]:
        """Return the text of each row."""
        return [self.values[code] for code in self.code_N.tolist()]


class Times(NamedTuple):
    """Unix milliseconds of each row, and the unit of the numbers that stated them; "" if they were not numbers."""

    ms_N: npt.NDArray[np.int64]
    unit: str = ""


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of a table by their names."""

    numbers: dict[str, Array]
    """Columns of numbers, with NaN for an empty cell."""
    texts: dict[str, Texts]
    times: dict[str, Times]


def absence(path: Path) -> str:
    """Describe why there is no file with this path: it is a folder, or does not exist."""
    if path.is_dir():
        return f'{path} is a folder; name one of its files (`trueodds report --engine duckdb "{path}/*.parquet"`: all)'
    return f"{path} does not exist"


def suffix_problem(path: Path) -> str:
    """Describe a file's suffix that no reader takes, with what to do if that is known.

    Examples:
        >>> suffix_problem(Path("scores.CSV"))
        "scores.CSV has the suffix '.CSV'; rename it to .csv"
        >>> suffix_problem(Path("scores.xlsx"))
        "scores.xlsx has the suffix '.xlsx'; save it from the spreadsheet as 'CSV UTF-8'"
    """
    suffix = path.suffix.lower()
    cure = f"rename it to {suffix}" if suffix in (*SUFFIXES, ".npz", ".npy") else _SUFFIX_CURES.get(suffix, "")
    return f"{path} has the suffix {path.suffix!r}" + f"; {cure}" * bool(cure)


def names(path: Path) -> list[str]:
    """Read the names of the columns of a CSV or Parquet file. The row numbers that pandas adds to Parquet are left out.

    Raises:
        FileError: A name is repeated or empty, or the file has another format.
        MissingExtraError: The file is Parquet and pyarrow is not installed.
    """
    if path.suffix == ".csv":
        with _open_csv(path) as (header, _):
            pass
    else:
        header = [name for name in _parquet(path).schema_arrow.names if not name.startswith("__index_level_")]
    if "" in header:
        cure = "name it, or leave it out (pandas: to_csv(path, index=False); R: write.csv(x, path, row.names = FALSE))"
        raise FileError(f"{path}: column {header.index('') + 1} of the header has no name; {cure}")
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise FileError(f"{path} has the column {twice!r} twice; give each a name of its own")
    return header


def read(path: Path, numbers: Sequence[str], texts: Sequence[str], moments: Sequence[str] = ()) -> Columns:
    """Read some columns of a CSV or Parquet file, as numbers, as text or as times.

    Raises:
        FileError: A cell is not a number (NumberError) or not a time, a line has another length than the header, or the
            file has another format.
        MissingExtraError: The file is Parquet and pyarrow is not installed.
    """
    values, cells = (_read_csv if path.suffix == ".csv" else _read_parquet)(path, numbers, (*texts, *moments))
    try:
        read = {name: times_of(cells[name], f"column {name!r}") for name in moments}
    except ValueError as error:
        raise FileError(f"{path}: {error}") from None
    coded = {name: cells[name] for name in texts}
    as_texts = {name: cell if isinstance(cell, Texts) else Texts.of_array(cell) for name, cell in coded.items()}
    return Columns(values, as_texts, read)


def lists(path: Path) -> list[str]:
    """Return the names of the columns of a CSV or Parquet file that hold a list of numbers in each row.

    In CSV, the first cell with a content decides, among the first rows.

    Raises:
        FileError: The file has another format.
        MissingExtraError: The file is Parquet and pyarrow is not installed.
    """
    if path.suffix == ".csv":
        with _open_csv(path) as (header, rows):
            first = list(islice(rows, HEAD))
        columns = zip(header, zip(*(cells for _, cells in first), strict=True), strict=False)
        return [name for name, cells in columns if _list(next(filter(str.strip, cells), ""))]
    from pyarrow import types

    def holds_numbers(kind: Any) -> bool:
        is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        return bool(is_list and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)))

    return [field.name for field in _parquet(path).schema_arrow if holds_numbers(field.type)]


def read_lists(path: Path, name: str) -> Array:
    """Read a column of lists of numbers from a CSV or Parquet file, as one row of the array for each list.

    In CSV, a list is `[0.2, 0.8]`, or `[0.2 0.8]` as NumPy prints it.

    Raises:
        NumberError: A list is missing, lacks a number, or has another length than the first one.
    """
    flat, size_N = (_csv_lists if path.suffix == ".csv" else _parquet_lists)(path, name)
    if not len(size_N):
        return np.zeros((0, 0))
    size = int(size_N[0])
    if (wrong_N := np.flatnonzero((size_N != size) | (size_N < 1))).size:
        row = int(wrong_N[0])
        held = "no list" if size_N[row] < 0 else plural(int(size_N[row]), "number")
        expected = "a list of numbers" if row == 0 else plural(size, "number")
        problem = f"{path}, row {row + FIRST:,}, column {name!r} holds {held}"
        raise NumberError(f"{problem}; expected {expected}, one for each class, in every row", name)
    if (lacks := np.isnan(flat)).any():
        row = int(np.flatnonzero(lacks)[0]) // size
        raise NumberError(f"{path}, row {row + FIRST:,}, column {name!r} lacks a number; expected {size:,}", name)
    return flat.reshape(-1, size)


def _parquet_lists(path: Path, name: str) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return the numbers of all lists one after the other, NaN for a missing one, and each length; -1 for no list."""
    import pyarrow as pa
    from pyarrow import compute

    column = _parquet(path).read(columns=[name])[name]
    flat = compute.list_flatten(column).cast(pa.float64()).fill_null(float("nan"))
    return np.asarray(flat), np.asarray(compute.list_value_length(column).fill_null(-1))


def _csv_lists(path: Path, name: str) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return what `_parquet_lists` does, of a CSV file.

    Raises:
        NumberError: A cell is neither empty nor a list of numbers.
    """
    parts, sizes = [np.zeros(0)], []
    with _open_csv(path) as (header, every):
        place = header.index(name)
        while rows := list(islice(every, LINES)):
            for row, cells in rows:
                cell = cells[place].strip()
                if (numbers := _list(cell)) is None and cell:
                    problem = f"{path}, row {row:,}, column {name!r} holds {short(cell)}"
                    raise NumberError(f"{problem}; expected a list of numbers, such as [0.2, 0.8]", name)
                sizes.append(-1 if numbers is None else len(numbers))
                parts.append(np.array(numbers or (), np.float64))
            parts = [np.concatenate(parts)]
    return parts[0], np.array(sizes, np.int64)


def _list(cell: str) -> list[float] | None:
    """Parse a list of numbers, with commas or only blanks between them; None for any other text.

    NumPy 2 writes the elements of a Python list as `np.float64(0.2)`.
    """
    if not (cell.startswith("[") and cell.endswith("]")):
        return None
    try:
        return [float(number) for number in _NUMPY.sub(r"\1", cell[1:-1]).replace(",", " ").split()]
    except ValueError:
        return None


def read_npy(path: Path) -> npt.NDArray[Any]:
    """Read the array of an .npy file.

    Raises:
        FileError: The file has another format, or holds Python objects.
    """
    try:
        with path.open("rb") as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
    except (EOFError, ValueError) as error:
        cure = "write numbers, or text as array.astype(str), with np.save"
        raise FileError(f"{path} is not a complete .npy file without Python objects ({error}); {cure}") from None
    return np.asarray(array)


def times_of(values: npt.NDArray[Any] | Texts, name: str) -> Times:
    """Parse a column of times: `datetime64`, or values that `trueodds.inputs.times` reads.

    All numbers of a column must have one unit.

    Raises:
        ValueError: A cell is not a time, or has another unit than the first. The message names the column.
    """
    if not isinstance(values, Texts):
        if values.dtype.kind == "M":
            if np.isnat(values).any():
                raise ValueError(f"{name} holds NaT; allowed is {times.ALLOWED}, in every row")
            if far := _far(values):
                rows, cure = plural(far, "row"), "; correct these rows, or leave them out"
                raise ValueError(
                    f"{name} holds infinite times, or times outside of the years 1 to 9998, in {rows}{cure}"
                )
            return Times(values.astype("datetime64[ms]").astype(np.int64))
        if values.dtype.kind not in "fiu":
            return times_of(Texts.of_array(values), name)
        distinct_V, code_N = np.unique(values, return_inverse=True)
        distinct: Sequence[str | float] = distinct_V.tolist()
    else:
        used, code_N = np.unique(values.code_N, return_inverse=True)
        distinct = [values.values[code] for code in used.tolist()]
    try:
        read = [times.time_of(value) for value in distinct]
    except ValueError as error:
        raise ValueError(f"{name} holds {error}, in every row") from None
    units = dict.fromkeys(time.unit for time in read)
    if len(units) > 1:
        first, other = (distinct[[time.unit for time in read].index(unit)] for unit in [*units][:2])
        words = " and ".join(f"Unix {unit}" if unit else "ISO 8601" for unit in [*units][:2])
        raise ValueError(f"{name} holds {short(first)} and {short(other)}, {words}; write all in one form")
    time_V = np.array([time.ms for time in read], np.int64)
    return Times(time_V[code_N] if len(code_N) else np.zeros(0, np.int64), next(iter(units), ""))


def _far(moment_N: npt.NDArray[np.datetime64]) -> int:
    """Count the infinite times, and those outside of the years 1 to 9998.

    numpy converts without a check, so each array is compared in a unit that can hold it. Infinite times are the largest
    numbers of their unit. As nanoseconds, those are in the years 1677 and 2262.
    """
    is_far_N = np.abs(moment_N.astype(np.int64)) == np.iinfo(np.int64).max
    if np.datetime_data(moment_N.dtype)[0] in ("us", "ns", "ps", "fs", "as"):
        moment_N = moment_N.astype("datetime64[ms]")
    first, end = np.array(times.YEARS_MS, "datetime64[ms]").astype(moment_N.dtype)
    return int(np.count_nonzero(is_far_N | (moment_N < first) | (moment_N >= end)))


def _text(value: object) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


@contextmanager
def _open_csv(path: Path) -> Iterator[tuple[list[str], Iterator[table.Row]]]:
    """Yield the header of a CSV file and its rows.

    Raises:
        FileError: As the context ends, if the file is not CSV in UTF-8.
    """
    with path.open("rb") as start:
        if problem := table.encoding_problem(start.read(4)):
            raise FileError(f"{path} {problem}")
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            header, rows = table.rows_of(file)
            yield header, table.without_empty_end(rows)
        except InputError as error:
            raise FileError(f"{path}, {error}") from None
        except UnicodeDecodeError:
            raise FileError(f"{path}, {_not_utf_8(path)}") from None


def _not_utf_8(path: Path) -> str:
    """Describe the first line that is not UTF-8. Decoding in blocks does not tell it."""
    with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as file:
        lines = ((number, _ESCAPED.search(line)) for number, line in enumerate(file, 1))
        number, byte = next((number, found) for number, found in lines if found)
    return (
        f"line {number:,} is not UTF-8 (byte {ord(byte[0]) - 0xDC00:#04x}); from a spreadsheet save it as 'CSV UTF-8'"
    )


Cells = dict[str, "Texts | npt.NDArray[Any]"]


def _read_csv(path: Path, numbers: Sequence[str], texts: Sequence[str]) -> tuple[dict[str, Array], Cells]:
    values: dict[str, list[Array]] = {name: [np.zeros(0)] for name in numbers}
    codes: dict[str, list[npt.NDArray[np.intp]]] = {name: [np.zeros(0, np.intp)] for name in texts}
    places: dict[str, dict[object, int]] = {name: {} for name in texts}
    with _open_csv(path) as (header, every):
        column_of = {name: header.index(name) for name in (*numbers, *texts)}
        while rows := list(islice(every, LINES)):
            row_N, cells_N = zip(*rows, strict=True)
            cells = list(zip(*cells_N, strict=True))
            for name in numbers:
                values[name].append(_floats(path, name, cells[column_of[name]], row_N))
            for name in texts:
                place, column = places[name], cells[column_of[name]]
                code = (place.setdefault(cell, len(place)) for cell in column)
                codes[name].append(np.fromiter(code, np.intp, len(column)))
    columns = {
        name: Texts.of([table.cell_of(str(cell)) for cell in places[name]], np.concatenate(parts))
        for name, parts in codes.items()
    }
    return {name: np.concatenate(parts) for name, parts in values.items()}, {**columns}


def _floats(path: Path, name: str, cells: Sequence[str], row_N: Sequence[int]) -> Array:
    """Convert cells to numbers, NaN for an empty one. `row_N` are their row numbers, counted from 1 with the header."""
    found = table.numbers(cells)
    for row, number in zip(row_N, found, strict=True):
        if isinstance(number, str):
            problem = f"{path}, row {row:,}, column {name!r} holds {short(number)}"
            allowed = "allowed are numbers, and an empty cell for a missing one"
            cure = table.number_cure(number)
            raise NumberError(f"{problem}; {allowed}{cure}", name, has_cure=bool(cure))
    return np.array(found, np.float64)


def _parquet(path: Path) -> Any:
    """Open a Parquet file."""
    try:
        from pyarrow import ArrowInvalid, parquet
    except ModuleNotFoundError:
        raise MissingExtraError(f"reading {path}", "pyarrow", "table") from None
    try:
        return parquet.ParquetFile(path)
    except ArrowInvalid as error:
        raise FileError(f"{path} is not a Parquet file ({error})") from None


def _read_parquet(path: Path, numbers: Sequence[str], texts: Sequence[str]) -> tuple[dict[str, Array], Cells]:
    from pyarrow import types

    rows = _parquet(path).read(columns=[*numbers, *texts])
    values: dict[str, Array] = {}
    columns: Cells = {}
    for name in numbers:
        array = rows[name].to_numpy()
        if types.is_temporal(rows[name].type):
            problem = f"{path}: the column {name!r} holds times ({rows[name].type})"
            raise NumberError(
                f"{problem}; allowed are numbers: leave it out, or make numbers of it", name, has_cure=True
            )
        plain = array.dtype.kind in "fiub"
        values[name] = array.astype(np.float64) if plain else _floats(path, name, *_number_cells(array.tolist()))
    for name in texts:
        column = rows[name]
        if types.is_temporal(column.type):
            columns[name] = column.to_numpy()
            continue
        if types.is_nested(column.type):
            columns[name] = np.array(_list_cells(path, name, column), object)
            continue
        coded = column.dictionary_encode().unify_dictionaries()
        codes = [np.asarray(chunk.indices.fill_null(-1)) for chunk in coded.chunks]
        distinct = coded.chunk(0).dictionary.to_pylist() if codes else []
        code_N = np.concatenate([np.zeros(0, np.intp), *codes])
        # "" is added only if a cell is empty. Otherwise it would be a predicted class, which an empty label would name.
        columns[name] = Texts.of([*distinct, None] if (code_N < 0).any() else distinct, code_N)
    return values, columns


def _list_cells(path: Path, name: str, column: Any) -> list[str | None]:
    """Return lists of texts or numbers in JSON."""
    from pyarrow import types

    kind = column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        with suppress(TypeError):  # bytes, or times
            return [None if value is None else json.dumps(value, ensure_ascii=False) for value in column.to_pylist()]
    problem = f"{path}: the column {name!r} holds {short(str(kind))}"
    raise FileError(f"{problem}; allowed are texts, numbers, times, and lists of texts or numbers: write it as text")


def _number_cells(values: Sequence[Any]) -> tuple[list[str], Sequence[int]]:
    """Convert values to cells, with the row numbers that a CSV with a header would have."""
    cells = ["" if value is None else str(int(value) if isinstance(value, bool) else value) for value in values]
    return cells, range(FIRST, FIRST + len(cells))
