"""Seeded, class-balanced, disjoint splits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Index = npt.NDArray[np.intp]


def balanced_split(labels_N: npt.NDArray[np.int64], size: int, seed: int) -> tuple[Index, Index]:
    """Draw `size` rows so that every class has its share of rows (largest remainder). Return (drawn, rest).

    Both are sorted and disjoint, and together they are all rows. A class's share differs from size * n_k / n by less
    than one.

    Raises:
        ValueError: `size` is not between 1 and the number of rows minus one.
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
