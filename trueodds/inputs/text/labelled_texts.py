"""Labelled texts in files: a table with a column of texts, or a folder of .txt files for each class."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from trueodds.errors import nearest
from trueodds.files import FileError, class_folders, files_below
from trueodds.inputs import columns
from trueodds.inputs.text.kind import COLUMN
from trueodds.texts import column_quotes

SUFFIX = ".txt"
LARGEST = 2**20
"""Largest size of one text in UTF-8, in bytes."""
FORMS = f"a .csv or .parquet table with the columns {COLUMN} and label, a folder of class folders of {SUFFIX} files"


class LabelledTexts(NamedTuple):
    """Texts with one label each.

    `classes` are in the order of the folders' names; in a table they are sorted, as numbers if all are numbers.
    `others` are the columns of the table that were left out.
    """

    texts: list[str]
    labels: list[str]
    classes: tuple[str, ...]
    others: tuple[str, ...] = ()


def of_table(path: Path, label: str, *, setting: str) -> LabelledTexts:
    """Read the column `text` of a CSV or Parquet file, and the labels in the column `label`, which `setting` names.

    Raises:
        FileError: A column does not exist, a row has no text or no label, or `columns` does not accept the file.
        MissingExtraError: The file is Parquet and pyarrow is not installed.
    """
    header = columns.names(path)
    for name, cure in (
        (COLUMN, "give the column of the texts this name"),
        (label, f"name the column of the labels: {setting}"),
    ):
        if name not in header:
            problem = f"{path} has no column {name!r}; it has {column_quotes(header)}"
            raise FileError(f"{problem}; {cure}.{nearest(name, header)}")
    found = columns.read(path, (), (COLUMN, label)).texts
    texts, labels = found[COLUMN].as_list(), found[label].as_classes().as_list()
    for row, (text, name) in enumerate(zip(texts, labels, strict=True), 2):
        if not name:
            raise FileError(f"{path}, row {row} has no {label}; take out rows without one")
        check(text, f"{path}, row {row}")
    classes = sorted(set(labels))
    if all(name.removeprefix("-").isdecimal() for name in classes):
        classes.sort(key=int)
    others = tuple(name for name in header if name not in (COLUMN, label))
    return LabelledTexts(texts, labels, tuple(classes), others)


def of_folder(folder: Path) -> LabelledTexts:
    """Read `folder`/<class>/*.txt in UTF-8; the classes are sorted by name.

    Raises:
        FileError: There are no such files, or a text is empty, not UTF-8 or too long.
    """
    classes = class_folders(folder)
    files = [(file, name) for name in classes for file in files_of(folder / name)]
    if not files:
        raise FileError(f"{folder} holds no texts in class folders; expected {folder}/<class>/*{SUFFIX}")
    return LabelledTexts([text_of(file) for file, _ in files], [name for _, name in files], classes)


def files_of(folder: Path) -> list[Path]:
    """List the text files of a class; none if the folder does not exist."""
    return files_below(folder, [SUFFIX])


def text_of(path: Path) -> str:
    """Read the text of a file in UTF-8.

    Raises:
        FileError: The text is empty, has another encoding, or more than LARGEST bytes.
    """
    if path.stat().st_size > LARGEST:
        raise FileError(f"{path} has {path.stat().st_size:,} bytes; allowed are {LARGEST:,}. Cut it into texts")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        cure = "save it as UTF-8, such as by iconv -f latin1 -t utf-8"
        raise FileError(
            f"{path} is not UTF-8: byte {error.start:,} is {error.object[error.start]:#04x}; {cure}"
        ) from None
    check(text, str(path))
    return text


def check(text: str, where: str) -> None:
    """Check one text. `where` is its place, for the message.

    Raises:
        FileError: The text is empty or too long.
    """
    if not text.strip():
        raise FileError(f"{where} holds an empty text; take it out")
    if (size := len(text.encode())) > LARGEST:
        raise FileError(f"{where} holds a text of {size:,} bytes; allowed are {LARGEST:,}. Cut it into texts")
