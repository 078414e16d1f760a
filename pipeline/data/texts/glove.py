"""Word vectors in GloVe's text form: one line per word, with the word and its numbers separated by spaces."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.data.raw import DataError

Vector = npt.NDArray[np.float32]


def read(path: Path, words: Collection[str]) -> tuple[dict[str, Vector], int]:
    """Read the vectors of some words, and the width of all vectors, which is that of the first line.

    A word may contain spaces (glove.840B has such words). If two lines have the same word, the first one counts.

    Raises:
        DataError: The file does not exist, or a line has another width or an invalid number; the message names the
            line.
    """
    if not path.is_file():
        raise DataError(
            f"data.embeddings is {str(path)!r}, which does not exist; name a file such as glove.6B.100d.txt"
            " (https://nlp.stanford.edu/projects/glove), or null for random vectors"
        )
    vectors: dict[str, Vector] = {}
    width = 0
    for number, line in _lines(path):
        cells = line.rstrip("\r\n").split(" ")
        if not width:
            width = _width(path, cells)
        word = " ".join(cells[:-width])
        if len(cells) <= width or (" " in word and _is_number(cells[-width - 1])):
            had = len(cells) - 1
            raise DataError(
                f"{path}, line {number:,}: the word {cells[0][:40]!r} has {had} numbers, and earlier words {width};"
                " all must have one width. Remove the line, or download the file again"
            )
        if word in words and word not in vectors:
            vectors[word] = _vector(path, number, cells[-width:])
    if not width:
        raise DataError(f"{path} is empty; expected one line per word: the word and its numbers")
    return vectors, width


def table(
    words: Collection[str], vectors: Mapping[str, Vector], width: int, unknown: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Return a table (V, width) with the vector of each word, or of its lower-case form, or its row of `unknown`.

    `unknown` (V, width) has the vectors of words without one.
    """
    rows = unknown.copy()
    for k, word in enumerate(words):
        vector = vectors.get(word, vectors.get(word.lower()))
        if vector is not None:
            rows[k] = vector
    return rows


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers."""
    number = 0
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                yield number, line
    except UnicodeDecodeError:
        raise DataError(f"{path}: after line {number:,} it is not UTF-8; download the file again") from None


def _width(path: Path, cells: list[str]) -> int:
    """Return the count of numbers in the first line."""
    width = 0
    while width < len(cells) - 1 and _is_number(cells[-1 - width]):
        width += 1
    if width < 2:
        start = " ".join(cells)[:60]
        raise DataError(f"{path}, line 1 is {start!r}; expected a word and its numbers, separated by spaces")
    return width


def _is_number(cell: str) -> bool:
    """Return whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _vector(path: Path, number: int, cells: list[str]) -> Vector:
    """Return the vector of a line."""
    try:
        vector = np.array(cells, dtype=np.float32)
    except ValueError:
        bad = next(cell for cell in cells if not _is_number(cell))
        raise DataError(f"{path}, line {number:,} has {bad[:40]!r}; expected a number") from None
    if not np.isfinite(vector).all():
        raise DataError(f"{path}, line {number:,} has a number that is not finite; remove the line")
    return vector
