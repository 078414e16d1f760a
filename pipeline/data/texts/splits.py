"""Arrays of the texts and trees of all splits, with word ids from the training rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.config import Data
from pipeline.data.raw import Inputs, Kind, Labels, TextRows, TreeRows
from pipeline.data.texts import archives, downloads, encoding
from trueodds.evaluation.splits import Index
from trueodds.inputs import TextInput

_KEPT = {"right": "first", "left": "last"}


class EncodedSplits(NamedTuple):
    """Encoded splits.

    Attributes:
        arrays: Rows and labels of each split, as in `pipeline.data.dataset.DataSet`.
        words: The vocabulary.
        entry: The card's entry `input`.
        notes: Notes for the card.
    """

    arrays: dict[str, tuple[Inputs, Labels]]
    words: encoding.Vocabulary
    entry: dict[str, Any]
    notes: list[str]


def encode(
    parts: Mapping[str, tuple[Any, Labels, Index | None]], kind: Kind, params: Data, download_folder: Path
) -> EncodedSplits:
    """Encode the rows of each split.

    Args:
        parts: Rows, labels and indices of each split.
        kind: text or tree.
        params: The section `data` of params.yaml.
        download_folder: Folder of downloads.

    Raises:
        DataError: The embeddings cannot be read.
    """
    rows = {split: x if index is None else x.take(index) for split, (x, _, index) in parts.items()}
    labels = {split: y if index is None else y[index] for split, (_, y, index) in parts.items()}
    if kind == "text":
        inputs, words, entry, notes = _texts(rows, params, _embeddings(params, download_folder))
    else:
        inputs, words, entry, notes = _trees(rows, params, _embeddings(params, download_folder))
    every = [*archives.notes(params), *notes, *words.notes]
    return EncodedSplits({split: (inputs[split], labels[split]) for split in parts}, words, entry, every)


def _texts(
    rows: Mapping[str, TextRows], params: Data, embeddings: Path | None
) -> tuple[dict[str, Inputs], encoding.Vocabulary, dict[str, Any], list[str]]:
    """Encode texts."""
    words = encoding.of_texts(rows["train"], params.vocabulary_size, embeddings, params.split_seed)
    kind = TextInput(
        max_tokens=params.max_tokens,
        truncation_side=params.truncation_side,
        pad_id=encoding.PAD_ID,
        vocabulary_size=len(words.words),
    ).with_tokenizer(words.tokenizer.encode())
    inputs: dict[str, Inputs] = {}
    notes = []
    for split, texts in rows.items():
        inputs[split] = encoding.encode_texts(texts, kind)
        if cut := len(kind.remarks(inputs[split])):
            notes.append(
                f"{cut:,} of {len(texts.texts):,} {split} texts are cut to their"
                f" {_KEPT[params.truncation_side]} {params.max_tokens:,} words."
            )
    return inputs, words, kind.model_dump(), notes


def _trees(
    rows: Mapping[str, TreeRows], params: Data, embeddings: Path | None
) -> tuple[dict[str, Inputs], encoding.Vocabulary, dict[str, Any], list[str]]:
    """Encode trees."""
    words = encoding.of_trees(rows, embeddings, params.split_seed)
    most = max(len(tree.words) for trees in rows.values() for tree in trees.trees)
    inputs: dict[str, Inputs] = {s: encoding.encode_trees(trees, words, most) for s, trees in rows.items()}
    entry = {
        "kind": "tree",
        "node_classes": list(rows["train"].node_classes),
        "vocabulary_size": len(words.words),
    }
    return inputs, words, entry, []


def _embeddings(params: Data, download_folder: Path) -> Path | None:
    """Return the file of embeddings: as named, below TRUEODDS_DATA, or downloaded if it is one of GloVe's."""
    if params.embeddings is None:
        return None
    path, mirror = Path(params.embeddings), os.environ.get("TRUEODDS_DATA")
    if path.is_file() or path.is_absolute():
        return path
    if mirror and (Path(mirror) / path).is_file():
        return Path(mirror) / path
    if params.embeddings not in downloads.GLOVE:
        return path
    cure = "put the file into a folder and name that: data.embeddings, or TRUEODDS_DATA=<folder>"
    downloads.fetch(downloads.GLOVE[params.embeddings], download_folder, cure)
    return download_folder / path
