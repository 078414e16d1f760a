"""Words to numbers: the vocabulary, the tokenizer.json of a model, and arrays of ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.data.raw import COLUMNS, HEIGHT, LABEL, LEFT, RIGHT, WORD, DataError, Nodes, TextRows, TokenRows, TreeRows
from pipeline.data.texts import glove
from trueodds.inputs import TextInput
from trueodds.processes.progress import bar

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD = "[PAD]"
UNKNOWN = "[UNK]"
PAD_ID = 0
UNKNOWN_ID = 1
WIDTH = 100
"""Width of random word vectors, if no file of vectors is named."""
SEPARATORS = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'
"""Characters that separate words, besides white space: those of Keras's Tokenizer, as in the focal paper's code."""
BLOCK = 1000
"""Texts tokenized at a time."""


@dataclass(frozen=True)
class Vocabulary:
    """Vocabulary of a model.

    Attributes:
        words: The words in the order of their ids.
        vectors_VD: float32, the vector of each id; 0 for PAD and for an unknown word of texts.
        tokenizer: tokenizer.json for texts; empty for trees, which are already cut into words.
        notes: Notes for the card.
    """

    words: tuple[str, ...]
    vectors_VD: npt.NDArray[np.float32]
    tokenizer: str = ""
    notes: tuple[str, ...] = ()


def tokenizer_of(words: Sequence[str]) -> Tokenizer:
    """Return a tokenizer for lower-case words between white space and SEPARATORS; ids are indices of `words`."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers  # only texts need this package

    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    cuts = "".join(f"\\{mark}" for mark in SEPARATORS)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(rf"[{cuts}\s]+"), "removed")
    return tokenizer


def words_in(text: str) -> list[str]:
    """Return the words that `tokenizer_of` cuts a text into, known or not."""
    cut = _knows_no_word()
    return [word for word, _ in cut.pre_tokenizer.pre_tokenize_str(cut.normalizer.normalize_str(text))]


@cache
def _knows_no_word() -> Tokenizer:
    """Return a tokenizer with an empty vocabulary."""
    return tokenizer_of([PAD, UNKNOWN])


def of_texts(train: TextRows, size: int, embeddings: Path | None, seed: int) -> Vocabulary:
    """Return the `size` most frequent words of the training texts, PAD and UNKNOWN included; ties by first appearance.

    An unknown word, and a word without an embedding, has the vector 0, as in the focal paper's code. (That code leaves
    unknown words out, and also counts the words of test texts.)

    Raises:
        DataError: The embeddings cannot be read, or the texts have no word.
    """
    counts: Counter[str] = Counter()
    for text in train.texts:
        counts.update(words_in(text))
    if not counts:
        raise DataError("the training texts have no words, only punctuation or nothing; check their content")
    common = [word for word, _ in counts.most_common(size - 2)]
    words = (PAD, UNKNOWN, *common)
    vectors, notes = _vectors(words, embeddings, seed, scale=0.0)
    return Vocabulary(words, vectors, tokenizer_of(words).to_str(), notes)


def of_trees(splits: Mapping[str, TreeRows], embeddings: Path | None, seed: int) -> Vocabulary:
    """Return the words of the training trees, and those words of other trees that have an embedding.

    Other words are UNKNOWN. A word without an embedding has a random vector, N(-.05, .05^2), as in the focal paper's
    code.

    Raises:
        DataError: The embeddings cannot be read.
    """
    own = dict.fromkeys(word for tree in splits["train"].trees for word in tree.words if word is not None)
    every = (word for rows in splits.values() for tree in rows.trees for word in tree.words if word is not None)
    others = [word for word in dict.fromkeys(every) if word not in own]
    if embeddings is None:
        others = []
    elif others:
        known, _ = glove.read(embeddings, _forms(others))
        others = [word for word in others if word in known or word.lower() in known]
    words = (PAD, UNKNOWN, *own, *others)
    vectors, notes = _vectors(words, embeddings, seed, scale=0.05)
    return Vocabulary(words, vectors, notes=notes)


def encode_texts(rows: TextRows, kind: TextInput) -> TokenRows:
    """Return the texts as arrays of ids, and show a progress bar."""
    parts = []
    with bar(len(rows.texts), "tokenize", "text") as progress:
        for begin in range(0, len(rows.texts), BLOCK):
            parts.append(kind.of_texts(rows.texts[begin : begin + BLOCK]))
            progress.update(len(parts[-1]))
    return np.concatenate(parts)


def encode_trees(rows: TreeRows, words: Vocabulary, most_nodes: int) -> Nodes:
    """Return trees as int32 (N, most_nodes, 5).

    The columns of a node are word id (PAD_ID for an inner node), indices of its children (-1 for a leaf), label (-1
    without one) and height (0 for a leaf); see `pipeline.data.raw`. Nodes are in post-order from index 0 on. Behind the
    root all values are -1.
    """
    place = {word: k for k, word in enumerate(words.words)}
    nodes_NM5 = np.full((len(rows.trees), most_nodes, COLUMNS), -1, dtype=np.int32)
    for row, tree in enumerate(rows.trees):
        nodes = nodes_NM5[row, : len(tree.words)]
        nodes[:, WORD] = [PAD_ID if word is None else place.get(word, UNKNOWN_ID) for word in tree.words]
        nodes[:, LEFT], nodes[:, RIGHT], nodes[:, LABEL] = tree.left, tree.right, tree.labels
        heights: list[int] = []
        for left, right in zip(tree.left, tree.right, strict=True):
            heights.append(0 if left < 0 else 1 + max(heights[left], heights[right]))
        nodes[:, HEIGHT] = heights
    return nodes_NM5


def _vectors(
    words: Sequence[str], embeddings: Path | None, seed: int, scale: float
) -> tuple[npt.NDArray[np.float32], tuple[str, ...]]:
    """Return the vector of each word, from embeddings or random, and a note."""
    rng = np.random.default_rng(seed)
    if embeddings is None:
        drawn = rng.standard_normal((len(words), WIDTH)).astype(np.float32)
        drawn[PAD_ID] = 0
        note = f"The word vectors, {WIDTH} numbers each, are random (data.embeddings is null)."
        return drawn, (note,)
    known, width = glove.read(embeddings, _forms(words))
    unknown = rng.normal(-scale, scale, (len(words), width)).astype(np.float32)
    table = glove.table(words, known, width, unknown)
    table[PAD_ID] = 0
    missing = sum(word not in known and word.lower() not in known for word in words[UNKNOWN_ID + 1 :])
    note = f"The word vectors are those of {embeddings.name}, {width} numbers each"
    return table, (f"{note}; it lacks {missing:,} of {len(words) - 2:,} words.",)


def _forms(words: Collection[str]) -> set[str]:
    """Return the words and their lower-case forms."""
    return {form for word in words for form in (word, word.lower())}
