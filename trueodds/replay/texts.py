"""Texts to replay, and how they drift: words that get lost, and words of other subjects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError
from trueodds.inputs import InputKind
from trueodds.inputs.columns import SUFFIXES
from trueodds.inputs.text import labelled
from trueodds.replay import ReplayError

LABEL = "label"


def read(path: Path) -> tuple[list[str], npt.NDArray[np.int64], tuple[str, ...]]:
    """Texts, labels as places among the classes, and these: of a table, or of a folder of class folders.

    Raises:
        ReplayError: another file, and what `trueodds.inputs.text.labelled` refuses.
    """
    if not path.is_dir() and path.suffix not in SUFFIXES:
        raise ReplayError(f"{path} holds no texts; allowed are {labelled.FORMS}, and artifacts/data/arrays.npz")
    try:
        found = labelled.of_folder(path) if path.is_dir() else labelled.of_table(path, LABEL, setting="call it label")
    except FileError as error:
        raise ReplayError(str(error)) from None
    place = {name: k for k, name in enumerate(found.classes)}
    return found.texts, np.array([place[name] for name in found.labels], np.int64), found.classes


def of_rows(kind: InputKind, rows: npt.NDArray[np.integer], tokenizer: bytes) -> list[str]:
    """The texts of rows of tokens, as far as the vocabulary has their words.

    Raises:
        ReplayError: a row of no known word.
        InputError: another tokenizer than the model's.
    """
    known = kind.with_files(dict.fromkeys(kind.beside, tokenizer))
    texts = [str(known.values(row)[0]) for row in rows]
    if empty := [n for n, text in enumerate(texts) if not text.strip()]:
        raise ReplayError(f"row {empty[0]} has no word that the model knows; give the texts themselves")
    return texts


def drifted(text: str, other: str, dropped: float, foreign: float, generator: np.random.Generator) -> str:
    """The text without a share `dropped` of its words, and with a share `foreign` of the rest replaced by words of
    `other`, a text of another class; at least one word stays.
    """
    words = text.split()
    chance_W, lost_W = generator.random((2, len(words)))
    theirs = _drawn(other.split(), len(words), generator)
    kept = [
        new if chance < foreign else old
        for old, new, chance, lost in zip(words, theirs, chance_W, lost_W, strict=True)
        if lost >= dropped
    ]
    return " ".join(kept or words[:1])


def _drawn(words: Sequence[str], count: int, generator: np.random.Generator) -> list[str]:
    return [words[k] for k in generator.integers(len(words), size=count)]
