"""Texts of your own: a folder of .txt files for each class, or a table with a column of texts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.data.raw import DataError, Labels, Raw, TextRows, checked
from trueodds.files import FileError
from trueodds.inputs import columns
from trueodds.inputs.image.formats import SUFFIXES
from trueodds.inputs.text import labelled
from trueodds.inputs.text.kind import COLUMN
from trueodds.inputs.text.labelled import SUFFIX
from trueodds.texts import listed

log = logging.getLogger("pipeline.data")


def is_folder(folder: Path) -> bool:
    """Whether the first file below train/ that says what it is by its name is a text."""
    known = {SUFFIX, *SUFFIXES}
    train = folder / "train"
    files = (path for path in sorted(train.iterdir()) if path.is_dir()) if train.is_dir() else ()
    for group in files:
        for path in sorted(group.iterdir()):
            if path.suffix.lower() in known:
                return path.suffix.lower() == SUFFIX
    return False


def is_table(path: Path) -> bool:
    """Whether a table has a column of texts.

    Raises:
        DataError: not such a file.
    """
    try:
        return COLUMN in columns.names(path)
    except FileError as error:
        raise DataError(str(error)) from None


def read_folder(folder: Path) -> Raw:
    """train/<class>/*.txt and, optionally, val/<class>/*.txt and test/<class>/*.txt, in UTF-8; classes by name.

    Raises:
        DataError: a class without a text, one that train/ does not have, a text that is empty, not UTF-8 or too long.
    """
    classes = tuple(sorted(path.name for path in (folder / "train").iterdir() if path.is_dir()))
    if not classes:
        raise DataError(f"{folder / 'train'} has no class folder; expected {folder}/train/<class>/*{SUFFIX}")
    x_train, y_train = _split(folder / "train", classes)
    x_val, y_val = _optional(folder / "val", classes)
    x_test, y_test = _optional(folder / "test", classes)
    return checked(Raw(x_train, y_train, x_test, y_test, classes, x_val=x_val, y_val=y_val), str(folder))


def read_table(path: Path, label: str, group: str | None = None) -> Raw:
    """The column `text` of a CSV or Parquet file, and the class of each row in the column `label`; classes by name.

    Whole numbers as labels are ordered as numbers. Other columns than `group` are left out, with a warning.

    Raises:
        DataError: no such column, a row without a text or a label.
        MissingExtraError: a Parquet file without pyarrow.
    """
    try:
        found = labelled.of_table(path, label, setting="data.label_column in params.yaml")
    except FileError as error:
        raise DataError(str(error)) from None
    if others := [name for name in found.others if name != group]:
        log.warning("%s: columns left out beside %s and %s: %s", path, COLUMN, label, listed(others))
    place = {name: k for k, name in enumerate(found.classes)}
    y = np.array([place[name] for name in found.labels], dtype=np.int64)
    return checked(Raw(TextRows(found.texts), y, None, None, found.classes), str(path))


def _optional(folder: Path, classes: Sequence[str]) -> tuple[TextRows, Labels] | tuple[None, None]:
    return _split(folder, classes) if folder.is_dir() else (None, None)


def _split(folder: Path, classes: Sequence[str]) -> tuple[TextRows, Labels]:
    texts: list[str] = []
    labels: list[int] = []
    strange = sorted(path.name for path in folder.iterdir() if path.is_dir() and path.name not in classes)
    if strange:
        has = ", ".join(classes[:10])
        raise DataError(f"{folder} has the class {strange[0]!r}, which train/ does not have; it has {has}")
    for label, name in enumerate(classes):
        files = labelled.files_of(folder / name)
        if not files and folder.name == "train":
            raise DataError(f"{folder / name} holds no {SUFFIX} file; remove it or fill it")
        try:
            texts += [labelled.text_of(path) for path in files]
        except FileError as error:
            raise DataError(str(error)) from None
        labels += [label] * len(files)
    if not texts:
        raise DataError(f"{folder} holds no {SUFFIX} file in a folder of a class; fill it, or remove it")
    return TextRows(texts), np.array(labels, dtype=np.int64)
