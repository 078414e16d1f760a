"""Your own texts: a folder of .txt files for each class, or a table with a column of texts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.data.raw import DataError, Labels, Raw, TextRows, check_raw
from trueodds.files import FileError, class_folders
from trueodds.inputs import columns
from trueodds.inputs.image.formats import SUFFIXES
from trueodds.inputs.text import labelled_texts
from trueodds.inputs.text.kind import COLUMN
from trueodds.inputs.text.labelled_texts import SUFFIX
from trueodds.texts import quotes

log = logging.getLogger("pipeline.data")


def is_folder(folder: Path) -> bool:
    """Return whether the first file below train/ with the suffix of an image or a text is a text."""
    known = {SUFFIX, *SUFFIXES}
    train = folder / "train"
    for name in class_folders(train) if train.is_dir() else ():
        for path in sorted((train / name).iterdir()):
            if path.suffix.lower() in known and not path.name.startswith("."):
                return path.suffix.lower() == SUFFIX
    return False


def is_table(path: Path) -> bool:
    """Return whether a table has a column of texts.

    Raises:
        DataError: The file is not a table.
    """
    try:
        return COLUMN in columns.names(path)
    except FileError as error:
        raise DataError(str(error)) from None


def read_folder(folder: Path) -> Raw:
    """Read train/<class>/*.txt and, optionally, val/<class>/*.txt and test/<class>/*.txt, in UTF-8; classes by name.

    Raises:
        DataError: A class has no text or is not in train/, or a text is empty, not UTF-8 or too long.
    """
    classes = class_folders(folder / "train")
    if not classes:
        raise DataError(f"{folder / 'train'} has no class folder; expected {folder}/train/<class>/*{SUFFIX}")
    x_train, y_train = _split(folder / "train", classes)
    x_val, y_val = _optional(folder / "val", classes)
    x_test, y_test = _optional(folder / "test", classes)
    return check_raw(Raw(x_train, y_train, x_test, y_test, classes, x_val=x_val, y_val=y_val), str(folder))


def read_table(path: Path, label: str, apart: tuple[str, ...] = ()) -> Raw:
    """Read the column `text` of a CSV or Parquet file, and the class of each row in the column `label`.

    Classes are in the order of their names. Whole numbers as labels are ordered as numbers. Other columns are
    ignored, with a warning unless they are in `apart`.

    Raises:
        DataError: There is no such column, or a row has no text or no label.
        MissingExtraError: The file is Parquet and pyarrow is not installed.
    """
    try:
        found = labelled_texts.of_table(path, label, setting="data.label_column in params.yaml")
    except FileError as error:
        raise DataError(str(error)) from None
    if others := [name for name in found.others if name not in apart]:
        log.warning("%s: columns other than %s and %s are ignored: %s", path, COLUMN, label, quotes(others))
    place = {name: k for k, name in enumerate(found.classes)}
    y = np.array([place[name] for name in found.labels], dtype=np.int64)
    return check_raw(Raw(TextRows(found.texts), y, None, None, found.classes), str(path))


def files_of(folder: Path, classes: Sequence[str]) -> list[Path]:
    """List the files of a split in the order of its rows. `folder` holds a folder for each class."""
    return [path for name in classes for path in labelled_texts.files_of(folder / name)]


def _optional(folder: Path, classes: Sequence[str]) -> tuple[TextRows, Labels] | tuple[None, None]:
    """Return the texts and labels of a folder if it exists."""
    return _split(folder, classes) if folder.is_dir() else (None, None)


def _split(folder: Path, classes: Sequence[str]) -> tuple[TextRows, Labels]:
    """Return the texts and labels of a folder."""
    texts: list[str] = []
    labels: list[int] = []
    strange = [name for name in class_folders(folder) if name not in classes]
    if strange:
        has = ", ".join(classes[:10])
        raise DataError(f"{folder} has the class {strange[0]!r}, and train/ does not; train/ has {has}")
    for label, name in enumerate(classes):
        files = labelled_texts.files_of(folder / name)
        if not files and folder.name == "train":
            raise DataError(f"{folder / name} holds no {SUFFIX} file; add files or remove it")
        try:
            texts += [labelled_texts.text_of(path) for path in files]
        except FileError as error:
            raise DataError(str(error)) from None
        labels += [label] * len(files)
    if not texts:
        raise DataError(f"{folder} holds no {SUFFIX} file in a folder of a class; add files or remove it")
    return TextRows(texts), np.array(labels, dtype=np.int64)
