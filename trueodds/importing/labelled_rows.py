"""Labelled rows as given (an .npz, a folder of class folders, a table), and in batches for a model."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.errors import nearest
from trueodds.files import class_folders, files_below, read_npz
from trueodds.importing import forms
from trueodds.importing.errors import LabelledRowsError
from trueodds.inputs import ImageInput, Input, InputError, Inputs, Limits, TextInput, VectorInput, columns, row_groups
from trueodds.inputs.image.formats import SUFFIXES
from trueodds.inputs.text import labelled_texts
from trueodds.inputs.vector.labelled_table import check_classes
from trueodds.inputs.vector.labelled_table import read as read_table
from trueodds.processes.choices import LABEL
from trueodds.sums.group_names import GroupNames
from trueodds.texts import alike, quotes

VALUES = 2_400_000
"""Numbers in a batch: 16 images of 224 x 224. onnxruntime gains nothing from larger batches."""
AHEAD = 2
"""Number of batches of images that are decoded in advance."""
LISTED = 20
"""Largest number of unreadable files that a message names."""
CHANNELS = (1, 3)
"""Allowed numbers of channels of an image: grey, RGB."""


@dataclass(frozen=True)
class ImportRows:
    """Inputs with their labels, before the model is known.

    Attributes:
        x: An array (for texts an array of objects), or image files.
        y: Names or numbers of the classes as in the source, (N,).
    """

    source: str
    x: npt.NDArray[Any] | tuple[Path, ...]
    y: npt.NDArray[Any]
    classes: tuple[str, ...] = ()
    """Classes that the source names, in the order of their numbers; empty if it names none."""
    features: tuple[str, ...] = ()
    """Names of the columns of `x`; empty if they have none."""
    groups_N: GroupNames | None = None
    """Group of each row; None if the rows have no groups."""
    index_N: npt.NDArray[np.intp] | None = None
    """Index of each row in the source; None: these are all of its rows."""

    def __len__(self) -> int:
        return len(self.y)

    def place(self, row: int) -> str:
        """Return the words for a row, by its index: its row in a table, where the header is row 1, else the index."""
        in_table = Path(self.source).suffix in columns.SUFFIXES
        index = row if self.index_N is None else int(self.index_N[row])
        return f"row {index + columns.FIRST:,}" if in_table else f"row {index:,}, counted from 0"

    def sha256(self) -> str:
        """Return the SHA-256 of inputs and labels, in hex."""
        digest = hashlib.sha256(f"{self.y.tolist()}\n{self.features}\n".encode())
        if isinstance(self.x, tuple):
            for path in self.x:
                digest.update(hashlib.sha256(path.read_bytes()).digest())
        else:
            digest.update(f"{self.x.dtype.str} {self.x.shape}\n".encode())
            texts = self.x.dtype.kind == "O"
            digest.update("\0".join(self.x).encode() if texts else np.ascontiguousarray(self.x).data)
        if self.groups_N is not None:
            digest.update(repr(self.groups_N.tolist()).encode())
        return digest.hexdigest()

    def take(self, index: Sequence[int] | npt.NDArray[np.intp]) -> ImportRows:
        """Return some of the rows."""
        some_N = np.asarray(index, np.intp)
        x = tuple(self.x[k] for k in index) if isinstance(self.x, tuple) else self.x[some_N]
        groups_N = None if self.groups_N is None else self.groups_N[some_N]
        index_N = some_N if self.index_N is None else self.index_N[some_N]
        return replace(self, x=x, y=self.y[some_N], groups_N=groups_N, index_N=index_N)

    def spread(self, count: int) -> npt.NDArray[np.intp]:
        """Return the indices of up to `count` rows, evenly spread."""
        return np.unique(np.linspace(0, len(self) - 1, count).astype(np.intp))

    def images(self) -> npt.NDArray[Any]:
        """Return the array as N x H x W x C, whatever the order of its axes.

        Raises:
            LabelledRowsError: The array does not hold images.
        """
        x = self.x
        assert not isinstance(x, tuple)
        if x.ndim == 3:
            return x[..., None]
        if x.ndim == 4 and x.shape[3] in CHANNELS:
            return x
        if x.ndim == 4 and x.shape[1] in CHANNELS:
            return x.transpose(0, 2, 3, 1)
        expectation = "expected images, N x height x width x channels (1 or 3), pixels 0 to 255"
        raise LabelledRowsError(f"{self.source}: x is {x.dtype} of shape {x.shape}; {expectation}")

    def reorder(self, features: Sequence[str]) -> ImportRows:
        """Put the columns in the order of `features`, matching names exactly or by `alike`.

        Raises:
            LabelledRowsError: A column is missing, or there is an additional one.
        """
        if isinstance(self.x, tuple) or not self.features or self.features == tuple(features):
            return self
        renamed = {other: name for name, other in alike(features, self.features).items()}
        names = [renamed.get(name, name) for name in self.features]
        if missing := [name for name in features if name not in names]:
            near = nearest(missing[0], names)
            problem = f"{self.source} has no column {quotes(missing)}, which the model takes"
            raise LabelledRowsError(f"{problem}; it has {quotes(names)}.{near}")
        if more := [name for name in names if name not in features]:
            cure = "remove it from the table, or give it with --label if it holds the labels"
            problem = f"{self.source} has the column {quotes(more)}, which the model does not take"
            raise LabelledRowsError(f"{problem}; {cure}")
        order = [names.index(name) for name in features]
        return replace(self, x=self.x[:, order], features=tuple(features))

    def notes(self, features: Sequence[str]) -> tuple[str, ...]:
        """Return a note for each column that `reorder` finds under another name."""
        renamed = alike(features, self.features)
        return tuple(f"The column {other!r} of {self.source} is the input {name!r}." for name, other in renamed.items())


def read(path: Path, label: str = LABEL, *, texts: bool = False, groups: str | None = None) -> ImportRows:
    """Read the rows of a file or folder.

    Args:
        path: File or folder.
        label: Column of the labels in a table.
        texts: The rows are texts.
        groups: Column of the rows' groups in a table, or in the table groups.csv of a folder, or their array in an
            .npz. None: the rows have no groups.

    Raises:
        LabelledRowsError: The path has another form, an array is missing, or there are no rows.
        FileError: A file cannot be read, a column or the groups are missing, or rows have no label.
        FileNotFoundError: There is no such path.
        MissingExtraError: A Parquet file needs pyarrow, which is not installed.
    """
    # First, because a column of groups that is not named would be read as a feature.
    arrays = read_npz(path) if path.is_file() and path.suffix == ".npz" else {}
    groups_N = None if groups is None or not path.is_file() else _groups_of(path, arrays, groups, label)
    if texts and (path.is_dir() or (path.is_file() and path.suffix in columns.SUFFIXES)):
        rows = _texts(path, label)
    elif texts and path.exists():
        raise LabelledRowsError(f"{path} holds no texts; allowed are {labelled_texts.FORMS}")
    elif path.is_dir():
        rows = _folder(path)
    elif path.is_file() and path.suffix == ".npz":
        rows = _npz(path, arrays)
    elif path.is_file() and path.suffix in (".csv", ".parquet"):
        features, x, y = read_table(path, label, apart=() if groups is None else (groups,))
        rows = ImportRows(str(path), x, y, features=features)
    elif not path.exists():
        raise FileNotFoundError(f"{path} does not exist; --labelled takes {forms.ROWS}")
    else:
        raise LabelledRowsError(f"{path} ends in {path.suffix or 'nothing'}; allowed are {forms.ROWS}")
    if not len(rows):
        raise LabelledRowsError(f"{path} holds no rows")
    if groups is not None and path.is_dir():
        groups_N = row_groups.of_files(path, _files_of(path, rows), groups)
    if groups is None or groups_N is None:
        return rows
    if len(groups_N) != len(rows):
        problem = f"{path}: {groups} has {len(groups_N):,} entries for {len(rows):,} rows"
        raise LabelledRowsError(f"{problem}; give one for each row")
    row_groups.check_any(path, groups_N, groups)
    return replace(rows, groups_N=groups_N)


def _groups_of(path: Path, arrays: Mapping[str, npt.NDArray[Any]], name: str, label: str) -> GroupNames:
    """Return the groups of a file's rows: those of an .npz from its `arrays`, those of a table from the file.

    Raises:
        FileError: There are none.
    """
    if path.suffix == ".npz":
        return row_groups.of_arrays(path, arrays, name)
    return row_groups.of_table(path, name, label)


def _files_of(folder: Path, rows: ImportRows) -> tuple[Path, ...]:
    """Return the file of each row of a folder."""
    if isinstance(rows.x, tuple):
        return rows.x
    return tuple(file for name in rows.classes for file in labelled_texts.files_of(folder / name))


def sample(kind: Input, rows: ImportRows, count: int) -> Inputs:
    """Return up to `count` rows as one batch, evenly spread from the first on. The errors are those of `batches`."""
    return np.concatenate(list(batches(kind, rows.take(rows.spread(count)))))


def batches(kind: Input, rows: ImportRows) -> Iterator[Inputs]:
    """Check the rows and yield them in their kind's form, batch by batch. Images are decoded in advance.

    Raises:
        LabelledRowsError: The shape differs. While iterating: images cannot be read; one message names all of them.
        InputError: The kind does not allow the values.
    """
    size = max(1, min(kind.together, VALUES // int(np.prod(kind.shape))))
    if isinstance(rows.x, tuple):
        return _decoded_ahead(kind, rows.x, size)
    x = _check(kind, rows)
    return (np.ascontiguousarray(x[start : start + size]) for start in range(0, len(x), size))


def _texts(path: Path, label: str) -> ImportRows:
    found = labelled_texts.of_folder(path) if path.is_dir() else labelled_texts.of_table(path, label, setting="--label")
    if not path.is_dir():
        check_classes(path, label, set(found.labels), len(found.labels))
    x = np.empty(len(found.texts), object)  # NumPy's text type would take the longest text's memory for each
    x[:] = found.texts
    return ImportRows(str(path), x, np.array(found.labels), found.classes if path.is_dir() else ())


def _npz(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> ImportRows:
    if missing := {"x", "y"} - arrays.keys():
        problem = f"{path}: no array {', '.join(sorted(missing))}; it holds {', '.join(arrays) or 'nothing'}"
        raise LabelledRowsError(f"{problem}. Needed are x, the rows, and y, their labels")
    x, y = arrays["x"], arrays["y"]
    if x.dtype.kind not in "fiub" or y.ndim != 1 or len(x) != len(y):
        wanted = "numbers (rows, ...) and one label for each row"
        raise LabelledRowsError(f"{path}: x is {x.dtype} of shape {x.shape}, y has shape {y.shape}; expected {wanted}")
    if y.dtype.kind not in "iuUS":
        raise LabelledRowsError(f"{path}: y is {y.dtype}; allowed are whole numbers and names")
    y = np.char.decode(y, "utf-8") if y.dtype.kind == "S" else y
    classes, features = (tuple(map(str, arrays.get(key, ()))) for key in ("class_names", "feature_names"))
    if features and (x.ndim != 2 or len(features) != x.shape[1]):
        raise LabelledRowsError(f"{path}: feature_names has {len(features)} names; x has the shape {x.shape}")
    return ImportRows(str(path), x, y, classes, features)


def _folder(path: Path) -> ImportRows:
    classes = class_folders(path)
    images = [(image, name) for name in classes for image in files_below(path / name, SUFFIXES)]
    if not images:
        allowed = f"expected {path}/<class>/*{', *'.join(sorted(SUFFIXES))}"
        raise LabelledRowsError(f"{path} holds no images in class folders; {allowed}")
    return ImportRows(str(path), tuple(image for image, _ in images), np.array([name for _, name in images]), classes)


def _check(kind: Input, rows: ImportRows) -> Inputs:
    """Return the rows of an array in their kind's form."""
    x = rows.images() if isinstance(kind, ImageInput) else rows.x
    if isinstance(kind, VectorInput):
        x = rows.reorder(kind.features).x
    assert not isinstance(x, tuple)
    if isinstance(kind, TextInput):
        return kind.from_texts(x.tolist(), Limits(), lambda n: f"{rows.source}, {rows.place(n)}")
    if x.shape[1:] != kind.shape:
        raise LabelledRowsError(f"{rows.source}: x has the shape {x.shape}; the model takes rows of shape {kind.shape}")
    if isinstance(kind, VectorInput):
        return kind.check_at(x, lambda row, k: f"{rows.source}, {rows.place(row)}, column {kind.features[k]!r},")
    return kind.check_rows(x, f"x of {rows.source}")


def _decoded_ahead(kind: Input, files: tuple[Path, ...], size: int) -> Iterator[Inputs]:
    """Yield batches of `size` images. The next ones are decoded meanwhile."""
    unreadable: dict[Path, str] = {}
    waiting: deque[Future[npt.NDArray[Any] | InputError]] = deque()
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for start in range(0, len(files), size):
            while len(waiting) < min((AHEAD + 1) * size, len(files) - start):
                waiting.append(pool.submit(_decode, kind, files[start + len(waiting)]))
            images = [waiting.popleft().result() for _ in range(min(size, len(waiting)))]
            for path, image in zip(files[start:], images, strict=False):
                if isinstance(image, InputError):
                    unreadable[path] = str(image)
            if not unreadable:  # otherwise the rest is read only to find more errors
                yield np.concatenate([image for image in images if not isinstance(image, InputError)])
    if unreadable:
        raise _unreadable(unreadable, len(files))


def _decode(kind: Input, path: Path) -> npt.NDArray[Any] | InputError:
    """Decode an image, or return the error."""
    try:
        return kind.from_files([(str(path), path.read_bytes())], Limits())
    except InputError as error:
        return error


def _unreadable(files: dict[Path, str], total: int) -> LabelledRowsError:
    lines = [f"  {files[path]}" for path in sorted(files)[:LISTED]]
    more = [f"  and {len(files) - LISTED:,} more"] if len(files) > LISTED else []
    which = f"{len(files):,} of {total:,} images cannot be read; repair or remove them:"
    return LabelledRowsError("\n".join([which, *lines, *more]))
