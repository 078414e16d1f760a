"""Rows with labels to replay: an .npz of the model's inputs, class folders of images, or texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds import files
from trueodds.inputs import Input, InputError, InputKind, Inputs, Limits, columns, row_groups
from trueodds.inputs.image.formats import SUFFIXES
from trueodds.inputs.text import labelled_texts
from trueodds.inputs.text.kind import COLUMN
from trueodds.processes.choices import LABEL
from trueodds.replay import ReplayError
from trueodds.replay.kinds import SPLITS
from trueodds.sums.group_names import GroupNames
from trueodds.sums.label_matrix import check_label_matrix
from trueodds.texts import quotes

KEPT_IMAGES = 4096
MISSING = "{path} does not exist; give an .npz file or a folder of images (dvc repro writes one)"
TAGS = "groups_"
"""Beginning of the names of the arrays of tags."""
Row = Inputs | str
"""A row in the form of the model's input, or a text."""


@dataclass(frozen=True)
class ModelSignature:
    """Input and classes of the served model, as the service states them."""

    input: Input
    classes: tuple[str, ...]
    multilabel: bool = False
    """Whether the classes are independent labels."""

    def __str__(self) -> str:
        return f"{self.input.dtype}, N x {' x '.join(map(str, self.input.shape))}"


@dataclass(frozen=True)
class RowSource:
    """Rows to draw from. `row` returns one in the form of the model's input."""

    name: str
    row: Callable[[int], Row]
    labels_N: npt.NDArray[np.int64]
    classes: tuple[str, ...] | None
    """Names of the labels. None: labels are indices of the model's classes."""
    noun: str = "image"
    """Word for one row."""
    deviation_D: npt.NDArray[np.float64] | None = None
    """Standard deviation of each feature; None for images and texts."""
    truth_NL: npt.NDArray[np.float64] | None = None
    """Truths of independent labels: 0, 1, and NaN if not known. `labels_N` are then the numbers of the rows."""
    tags_N: GroupNames | None = None
    """Tag of each row, None for a row without one; None for rows without tags."""

    def __len__(self) -> int:
        return len(self.labels_N)

    def label(self, index: int) -> str | int:
        """Return a label in the form in which it is sent: the name of a class, or its index without names."""
        return index if self.classes is None else self.classes[index]


def check(path: Path, split: str | None = None) -> None:
    """Check what no model changes, before the service is asked: the form of the data, its split, and its columns.

    Raises:
        ReplayError: No model takes these data. The message says what is allowed.
    """
    if not path.exists():
        raise ReplayError(MISSING.format(path=path))
    try:
        if path.is_dir():
            top, _ = _top(path, split, "*.png")
            if not any(files.files_below(top / name, [*SUFFIXES, ".txt"]) for name in files.class_folders(top)):
                raise ReplayError(f"{top} holds no image and no text; expected {top}/<class>/*.png or *.txt")
        elif path.suffix == ".npz":
            names = files.npz_names(path)
            if split or not {"x", "y"} <= set(names):
                _split(path, split, _splits(names), "x_<split> and y_<split>")
        elif path.suffix not in columns.SUFFIXES:
            raise ReplayError(f"{path} is no .npz; give an .npz with x_test and y_test, a folder, or a table of texts")
        elif COLUMN not in (header := columns.names(path)):
            problem = f"{path} has no column {COLUMN!r}; it has {quotes(header)}"
            raise ReplayError(f"{problem}. Give this name to the texts. For other inputs give an .npz (x_test, y_test)")
    except files.FileError as error:
        raise ReplayError(str(error)) from None


def read(path: Path, model: ModelSignature, split: str | None = None) -> RowSource:
    """Read the rows of a file or folder.

    The path is an .npz with x_<split>, y_<split> and optionally class_names, feature_names and groups_<split> (the tag
    of each row), or a folder <split>/<class>/*.png. `artifacts/data/arrays.npz`, which `dvc repro` writes, is one.

    y_<split> holds positions in class_names. Without class_names it holds the names of the model's classes if all of
    these are whole numbers, and otherwise their indices. A folder's images are scaled and cropped as by the service, to
    the size that the model takes.

    Args:
        path: File or folder.
        model: Input and classes of the served model.
        split: Split to read. Default: the first existing one of SPLITS.

    Raises:
        ReplayError: Data are missing or damaged, or do not fit the model. The message says what is allowed.
    """
    if not path.exists():
        raise ReplayError(MISSING.format(path=path))
    try:
        if model.multilabel:
            return _of_labels(path, model, split)
        if model.input.beside and path.suffix != ".npz":
            return _texts_of(path, model, split)
        return _folder(path, model, split) if path.is_dir() else _npz(path, model, split)
    except (files.FileError, InputError) as error:
        raise ReplayError(str(error)) from None


def _npz(path: Path, model: ModelSignature, split: str | None) -> RowSource:
    if path.suffix != ".npz":
        raise ReplayError(f"{path} is no .npz; give an .npz with x_test ({model}) and y_test")
    arrays = files.read_npz(path)
    there = _splits(arrays)
    split = _split(path, split, there, "x_<split> and y_<split>")
    x, labels_N, shape = arrays[f"x_{split}"], arrays[f"y_{split}"], model.input.shape
    if x.shape[1:] == shape[:-1] and shape[-1] == 1:
        x = x[..., None]
    if x.dtype.kind not in "uif" or x.shape[1:] != shape or not len(x):
        problem = f"{path}: x_{split} is {x.dtype} of shape {x.shape}"
        raise ReplayError(f"{problem}; the model takes {model}, N from 1 on")
    if labels_N.dtype.kind not in "iu" or labels_N.shape != (len(x),):
        array = f"{labels_N.dtype} of shape {labels_N.shape}"
        raise ReplayError(f"{path}: y_{split} is {array}; expected {len(x)} integers, one for each {model.input.noun}")
    classes = _names(arrays["class_names"]) if "class_names" in arrays else None
    if classes is None and all(map(str.isdecimal, model.classes)):
        labels_N, classes = _places(f"{path}: y_{split}", labels_N, model.classes), model.classes
    _check_labels(f"{path}: y_{split}", labels_N, len(classes or model.classes))
    features = _features(path, arrays, model)
    rows = model.input.check_rows(x, f"{path}: x_{split}")
    deviation_D = _deviations(rows) if features else None
    row: Callable[[int], Row] = rows.__getitem__
    if model.input.beside:
        if "tokenizer" not in arrays:
            raise ReplayError(f"{path} has no tokenizer; expected are the arrays of dvc repro, or texts")
        row = _texts_of_rows(model.input, rows, arrays["tokenizer"].tobytes()).__getitem__
    tags_N = _tags(path, arrays, split, len(x))
    return RowSource(
        f"{path} ({split})", row, labels_N.astype(np.int64), classes, model.input.noun, deviation_D, tags_N=tags_N
    )


def _tags(path: Path, arrays: Mapping[str, npt.NDArray[Any]], split: str, rows: int) -> GroupNames | None:
    """Return the tags of rows, which `dvc repro` writes as groups_<split>; None without this array.

    Raises:
        FileError: The array holds no tags.
        ReplayError: It has another number of tags than there are rows.
    """
    name = f"{TAGS}{split}"
    if name not in arrays:
        return None
    tags_N = row_groups.of_arrays(path, arrays, name)
    if len(tags_N) != rows:
        raise ReplayError(f"{path}: {name} has {len(tags_N)} tags for {rows} rows of x_{split}; give one for each row")
    return tags_N


def _of_labels(path: Path, model: ModelSignature, split: str | None) -> RowSource:
    """Read rows with truths of independent labels: .npz with x_<split> and y_<split> (rows, labels), or x and y."""
    if path.suffix != ".npz":
        problem = f"{path} is no .npz, and the model has independent labels"
        raise ReplayError(f"{problem}; give an .npz with x_test ({model}) and y_test (rows, labels: 0, 1 or NaN)")
    arrays = files.read_npz(path)
    there = _splits(arrays)
    x_name, y_name = ("x", "y") if not there and not split and {"x", "y"} <= arrays.keys() else ("", "")
    if not x_name:
        split = _split(path, split, there, "x_<split> and y_<split>")
        x_name, y_name = f"x_{split}", f"y_{split}"
    x, y, shape = arrays[x_name], arrays[y_name], model.input.shape
    if x.dtype.kind not in "uif" or x.shape[1:] != shape or not len(x):
        raise ReplayError(f"{path}: {x_name} is {x.dtype} of shape {x.shape}; the model takes {model}, N from 1 on")
    expected = (len(x), len(model.classes))
    try:
        truth_NL = check_label_matrix(y, expected, y_name)
    except ValueError as error:
        raise ReplayError(f"{path}: {error}; expected are truths {expected} of {quotes(model.classes)}") from None
    if "class_names" in arrays and (names := _names(arrays["class_names"])) != model.classes:
        if sorted(names) != sorted(model.classes):
            raise ReplayError(f"{path}: class_names are {quotes(names)}; the model has {quotes(model.classes)}")
        truth_NL = truth_NL[:, [names.index(name) for name in model.classes]]
    features = _features(path, arrays, model)
    rows = model.input.check_rows(x, f"{path}: {x_name}")
    row: Callable[[int], Row] = rows.__getitem__
    if model.input.beside:
        if "tokenizer" not in arrays:
            raise ReplayError(f"{path} has no tokenizer, which names the words of its tokens; add it")
        row = _texts_of_rows(model.input, rows, arrays["tokenizer"].tobytes()).__getitem__
    deviation_D = _deviations(rows) if features else None
    places_N = np.arange(len(x), dtype=np.int64)
    tags_N = _tags(path, arrays, x_name[2:], len(x))
    name = f"{path} ({x_name[2:] or 'rows'})"
    return RowSource(name, row, places_N, None, model.input.noun, deviation_D, truth_NL, tags_N)


def _texts_of(path: Path, model: ModelSignature, split: str | None) -> RowSource:
    top, name = _top(path, split, "*.txt")
    rows, labels_N, classes = _texts(top)
    _check_labels(name, labels_N, len(model.classes))
    return RowSource(name, rows.__getitem__, labels_N, classes, model.input.noun)


def _folder(path: Path, model: ModelSignature, split: str | None) -> RowSource:
    if not model.input.files:
        cure = f"give an .npz with x_test ({model}) and y_test"
        raise ReplayError(f"{path} is a folder of images, but the model takes {model.input.noun}s; {cure}")
    top, name = _top(path, split, "*.png")
    classes = files.class_folders(top)
    images = [(file, k) for k, name in enumerate(classes) for file in files.files_below(top / name, SUFFIXES)]
    if not images:
        raise ReplayError(f"{top} holds no image; expected {top}/<class>/*{', *'.join(sorted(SUFFIXES))}")

    @lru_cache(KEPT_IMAGES)
    def image(row: int) -> Inputs:
        file, _ = images[row]
        try:
            (image_HWC,) = model.input.from_files([(str(file), file.read_bytes())], Limits())
        except (InputError, OSError) as error:
            raise ReplayError(str(error)) from None
        return np.asarray(image_HWC)

    image(0)
    return RowSource(name, image, np.array([label for _, label in images]), classes)


def _deviations(rows_ND: Inputs) -> npt.NDArray[np.float64]:
    """Return the standard deviation of each feature over its values; 0 without values."""
    columns = (column[~np.isnan(column)].astype(np.float64) for column in rows_ND.T)
    return np.array([column.std() if len(column) else 0.0 for column in columns])


def _features(path: Path, arrays: Mapping[str, npt.NDArray[Any]], model: ModelSignature) -> tuple[str, ...]:
    """Return the model's features, which a file that names its own must name in the same order; none without features.

    Raises:
        ReplayError: They differ.
    """
    features = tuple(model.input.model_dump().get("features", []))
    names = _names(arrays.get("feature_names", np.array(features)))
    if names != features:
        problem = f"{path}: feature_names are {quotes(names)}; the model takes {quotes(features)}"
        raise ReplayError(f"{problem}; put the columns in this order")
    return features


def _names(names: npt.NDArray[Any]) -> tuple[str, ...]:
    names = np.atleast_1d(names)
    return tuple(str(name) for name in (np.char.decode(names, "utf-8") if names.dtype.kind == "S" else names))


def _top(path: Path, split: str | None, files: str) -> tuple[Path, str]:
    """Return the folder of a split, or the path itself if it has no splits, and its name for people."""
    there = [name for name in SPLITS if (path / name).is_dir()]
    if not there and not split:
        return path, str(path)
    split = _split(path, split, there, f"<split>/<class>/{files}")
    return path / split, f"{path} ({split})"


def _splits(names: Collection[str]) -> list[str]:
    """Return the splits of an .npz: those with inputs and labels."""
    return [name.removeprefix("x_") for name in names if name.startswith("x_") and f"y_{name[2:]}" in names]


def _split(path: Path, split: str | None, there: list[str], expected: str) -> str:
    known = [name for name in SPLITS if name in there] + sorted(set(there) - set(SPLITS))
    if not known or (split is not None and split not in known):
        problem = f"no split {split!r}" if split else "no split"
        raise ReplayError(f"{path} has {problem}; it has {', '.join(known) or 'none'}, expected is {expected}")
    return split or known[0]


def _places(name: str, labels_N: npt.NDArray[np.integer[Any]], classes: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Return the positions among the classes of labels that are class names."""
    place = {class_: k for k, class_ in enumerate(classes)}
    if strange := sorted({str(label) for label in labels_N.tolist()} - place.keys()):
        raise ReplayError(f"{name} holds the label {strange[0]}; the model's classes are {quotes(classes)}")
    return np.array([place[str(label)] for label in labels_N.tolist()], np.int64)


def _check_labels(name: str, labels_N: npt.NDArray[np.generic], classes: int) -> None:
    low, high = int(labels_N.min()), int(labels_N.max())
    if low < 0 or high >= classes:
        wrong = low if low < 0 else high
        raise ReplayError(f"{name} holds the label {wrong}; allowed are 0..{classes - 1}, one for each class")


def _texts(path: Path) -> tuple[list[str], npt.NDArray[np.int64], tuple[str, ...]]:
    """Return texts, labels as positions among the classes, and the classes, of a table or a folder of class folders."""
    if not path.is_dir() and path.suffix not in columns.SUFFIXES:
        raise ReplayError(f"{path} holds no texts; allowed are {labelled_texts.FORMS}, and artifacts/data/arrays.npz")
    try:
        found = (
            labelled_texts.of_folder(path)
            if path.is_dir()
            else labelled_texts.of_table(path, LABEL, setting="call it label")
        )
    except files.FileError as error:
        raise ReplayError(str(error)) from None
    place = {name: k for k, name in enumerate(found.classes)}
    return found.texts, np.array([place[name] for name in found.labels], np.int64), found.classes


def _texts_of_rows(kind: InputKind, rows: npt.NDArray[np.integer], tokenizer: bytes) -> list[str]:
    """Return the texts of rows of tokens, as far as the vocabulary has their words."""
    known = kind.with_files(dict.fromkeys(kind.beside, tokenizer))
    texts = [str(known.values(row)[0]) for row in rows]
    if empty := [n for n, text in enumerate(texts) if not text.strip()]:
        raise ReplayError(f"row {empty[0]} has no word that the model knows; give the texts themselves")
    return texts
