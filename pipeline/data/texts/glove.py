"""Vectors of words in GloVe's text form: a line for each word, the word and its numbers, with spaces between."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from pipeline.data.raw import DataError

Vector = npt.NDArray[np.float32]


def read(path: Path, wanted: Collection[str]) -> tuple[dict[str, Vector], int]:
    """The vectors of those words that are wanted, and the width of all. Any line's width is that of the first.

    A word may hold spaces (glove.840B has such). The first of two lines with one word counts.

    Raises:
        DataError: no such file, a line of another width, a number that is none or not finite; the line is named.
    """
    if not path.is_file():
        raise DataError(
            f"data.embeddings is {str(path)!r}, which does not exist; name a file such as glove.6B.100d.txt"
            " (https://nlp.stanford.edu/projects/glove), or null for vectors drawn at random"
        )
    found: dict[str, Vector] = {}
    width = 0
    for number, line in _lines(path):
        cells = line.rstrip("\r\n").split(" ")
        if not width:
            width = _width(path, cells)
        word = " ".join(cells[:-width])
        if len(cells) <= width or (" " in word and _is_number(cells[-width - 1])):
            had = len(cells) - 1
            raise DataError(
                f"{path}, line {number:,}: the word {cells[0][:40]!r} has {had} numbers, those before it {width};"
                " all must have one width. Take the line out, or fetch the file again"
            )
        if word in wanted and word not in found:
            found[word] = _vector(path, number, cells[-width:])
    if not width:
        raise DataError(f"{path} is empty; expected a line for each word: the word and its numbers")
    return found, width


def table(
    words: Collection[str], vectors: Mapping[str, Vector], width: int, unknown: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """(V, width): of each word its vector, of one that has none that of its lower-case form, else that of `unknown`.

    unknown: (V, width), what stands where there is none.
    """
    rows = unknown.copy()
    for k, word in enumerate(words):
        vector = vectors.get(word, vectors.get(word.lower()))
        if vector is not None:
            rows[k] = vector
    return rows


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                yield number, line
    except UnicodeDecodeError:
        raise DataError(f"{path}: what comes after line {number:,} is not UTF-8; fetch the file again") from None


def _width(path: Path, cells: list[str]) -> int:
    width = 0
    while width < len(cells) - 1 and _is_number(cells[-1 - width]):
        width += 1
    if width < 2:
        start = " ".join(cells)[:60]
        raise DataError(f"{path}, line 1 is {start!r}; expected a word and its numbers, with a space between")
    return width


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _vector(path: Path, number: int, cells: list[str]) -> Vector:
    try:
        vector = np.array(cells, dtype=np.float32)
    except ValueError:
        bad = next(cell for cell in cells if not _is_number(cell))
        raise DataError(f"{path}, line {number:,} has {bad[:40]!r} where a number is expected") from None
    if not np.isfinite(vector).all():
        raise DataError(f"{path}, line {number:,} has a number that is not finite; take the line out")
    return vector
