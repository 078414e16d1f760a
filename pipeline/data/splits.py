"""Seeded, class-balanced, disjoint splits, and what they leave to each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.intp]


def balanced(labels_N: npt.NDArray[np.int64], size: int, seed: int) -> tuple[Index, Index]:
    """Draw `size` rows so that every class gives its share of rows (largest remainder); returns (drawn, rest).

    Both are sorted, disjoint, and together all rows. A class's share differs from size * n_k / n by less than one.

    Raises:
        ValueError: `size` is not between 1 and the number of rows less one.
    """
    if not 1 <= size < len(labels_N):
        raise ValueError(f"cannot draw {size:,} of {len(labels_N):,} rows; allowed is 1..{len(labels_N) - 1:,}")
    classes, counts = np.unique(labels_N, return_counts=True)
    share = size * counts / len(labels_N)
    take = np.floor(share).astype(int)
    by_remainder = np.argsort(-(share - take), kind="stable")
    take[by_remainder[: size - take.sum()]] += 1
    generator = np.random.default_rng(seed)
    drawn = [generator.permutation(np.flatnonzero(labels_N == k))[:t] for k, t in zip(classes, take, strict=True)]
    drawn_sorted = np.sort(np.concatenate(drawn))
    return drawn_sorted, np.setdiff1d(np.arange(len(labels_N)), drawn_sorted, assume_unique=True)


NAMED = 10  # classes in a sentence; of the others the number
_WITHOUT = {
    "train": "No training row is left of {}: the net does not learn to answer so.",
    "val": "No validation row is left of {}: calibrators are fitted, and epochs compared, without any. Add images, or"
    " raise data.validation_size.",
    "test": "No test row is left of {}: the metrics on test rows leave it out.",
}


def thin_classes(classes: Sequence[str], labels: Mapping[str, npt.NDArray[np.int64]]) -> list[str]:
    """A sentence for each thing that classes lack, naming them: a second image, or any row of train, val or test.

    labels: the class of each row, per split; those three and any others.
    """
    counts = {split: np.bincount(labels_N, minlength=len(classes)) for split, labels_N in labels.items()}
    notes = []
    if len(single := np.flatnonzero(sum(counts.values()) == 1)):
        notes.append(f"A single image is all there is of {_named(classes, single)}: one split alone has it.")
    for split, words in _WITHOUT.items():
        if len(without := np.flatnonzero(counts[split] == 0)):
            notes.append(words.format(_named(classes, without)))
    return notes


def _named(classes: Sequence[str], which: Index) -> str:
    names = ", ".join(classes[k] for k in which[:NAMED])
    more = f" and {len(which) - NAMED:,} more" if len(which) > NAMED else ""
    return f"{'class' if len(which) == 1 else 'classes'} {names}{more}"
