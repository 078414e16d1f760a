"""Duplicates: rows in two parts of the split, which make one part an invalid test of the other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pipeline.data import mapped
from pipeline.data.raw import DataError, Images, Inputs, Labels, Rows, TextRows, TreeRows
from pipeline.data.splitting import near
from pipeline.data.texts.encoding import words_in

ORDER = ("train", "held_out", "val", "test")
"""Order of the parts. Each is compared with those before it, which were used for learning or fitting earlier."""
NAMES = {"train": "training", "held_out": "set-aside", "val": "validation", "test": "test"}
REMEDY = (
    "Duplicates make calibration and metrics look better than they are for new rows. data.duplicates: leave_out leaves"
    " them out."
)
DIGEST = 16
"""Bytes of a row's hash. Among 10^9 rows, two different rows share a hash with probability 10^-21."""
FEWEST = 2
"""Smallest number of rows that a part must keep."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Overlap:
    """Rows of a part that are also in an earlier part, and those of them that have another label there."""

    is_there_N: Mask
    other_label_N: Mask

    def counts(self) -> dict[str, int]:
        """Return both counts."""
        return {"rows": int(self.is_there_N.sum()), "other_label": int(self.other_label_N.sum())}


@dataclass(frozen=True)
class Duplicates:
    """Result of `find`.

    Attributes:
        rows: Number of rows of each part.
        repeats: Number of training rows that repeat another one.
        several_labels: Number of training rows that occur under several labels.
        same: Part -> earlier part -> equal rows.
        alike: Part -> earlier part -> near duplicates that are not equal; empty if `distance` is None.
        distance: Greatest number of bits by which hashes of near duplicates differ.
    """

    rows: dict[str, int]
    repeats: int
    several_labels: int
    same: dict[str, dict[str, Overlap]]
    alike: dict[str, dict[str, Overlap]] = field(default_factory=dict)
    distance: int | None = None

    def left_out(self, part: str) -> Mask:
        """Return the mask of a part's rows that are in an earlier part, equal or near."""
        masks = [overlap.is_there_N for found in (self.same, self.alike) for overlap in found.get(part, {}).values()]
        return np.asarray(np.any([np.zeros(self.rows[part], dtype=bool), *masks], axis=0))

    def to_json(self, leave_out: bool) -> dict[str, Any]:
        """Return the counts as `fetch` writes them."""
        parts: dict[str, Any] = {
            "train": {"rows": self.rows["train"], "repeated": self.repeats, "several_labels": self.several_labels}
        }
        for part in list(self.rows)[1:]:
            entry: dict[str, Any] = {"rows": self.rows[part], "duplicates": int(self.left_out(part).sum())}
            entry["left_out"] = entry["duplicates"] if leave_out else 0
            entry |= {f"in_{other}": overlap.counts() for other, overlap in self.same[part].items()}
            entry |= {f"near_{other}": overlap.counts() for other, overlap in self.alike.get(part, {}).items()}
            parts[part] = entry
        return parts | ({} if self.distance is None else {"distance": self.distance})

    def summary(self) -> str:
        """Return a line for the log, even if nothing was found."""
        counts = [f"{int(self.left_out(part).sum()):,} of {self.rows[part]:,} {NAMES[part]} rows" for part in self.same]
        return f"duplicates of earlier parts: {', '.join(counts)}"

    def notes(self, leave_out: bool) -> list[str]:
        """Return sentences for the card; none if nothing was found."""
        lines = []
        if self.several_labels:
            lines.append(f"{self.several_labels:,} training rows equal others with another label; check the labels.")
        for found, where in ((self.same, "among"), (self.alike, f"near duplicates (distance {self.distance}) of")):
            for part, others in found.items():
                lines += [
                    self._line(part, other, overlap, where)
                    for other, overlap in others.items()
                    if overlap.counts()["rows"]
                ]
        for part in self.same:
            if leave_out and (count := int(self.left_out(part).sum())):
                left = f"{self.rows[part] - count:,} {NAMES[part]} rows are left"
                lines.append(f"Left out as duplicates (data.duplicates: leave_out): {count:,}; {left}.")
        if not leave_out and any(self.left_out(part).any() for part in self.same):
            lines.append(REMEDY)
        return lines

    def _line(self, part: str, other: str, overlap: Overlap, where: str) -> str:
        """Return the sentence about one pair of parts."""
        count, others = overlap.counts().values()
        of = f"{count:,} of {self.rows[part]:,} {NAMES[part]} rows"
        return f"Duplicates, {where} the {NAMES[other]} rows: {of}, {others:,} of them with another label."


def find(rows: Mapping[str, Rows], labels: Mapping[str, Labels], distance: int | None = None) -> Duplicates:
    """Compare each part of ORDER with those before it; with a `distance`, compare images by perceptual hash as well.

    Args:
        rows: Rows of each part.
        labels: Labels of each part.
        distance: Bits of 64 by which the hashes of near duplicates may differ (`pipeline.data.splitting.near`).
    """
    order = [part for part in ORDER if part in rows]
    counts = {part: len(labels[part]) for part in order}
    hashed_N = np.concatenate([digests(rows[part]) for part in order])
    distinct, code_N = np.unique(hashed_N, return_inverse=True)
    codes = dict(zip(order, np.split(code_N, np.cumsum(list(counts.values()))[:-1]), strict=True))
    classes = 1 + max(int(labels[part].max()) for part in order)
    same: dict[str, dict[str, Overlap]] = {part: {} for part in order[1:]}
    labels_V = {part: _labels_of(codes[part], labels[part], len(distinct), classes) for part in order}
    for k, part in enumerate(order):
        for other in order[:k]:
            is_there_N = labels_V[other][codes[part]] > 0
            own_N = np.isin(codes[part] * classes + labels[part], codes[other] * classes + labels[other])
            same[part][other] = Overlap(is_there_N, is_there_N & (labels_V[other][codes[part]] > own_N))
    train = codes["train"]
    alike = {} if distance is None else _alike(rows, labels, order, same, distance)
    several = int((labels_V["train"][train] > 1).sum())
    return Duplicates(counts, len(train) - len(np.unique(train)), several, same, alike, distance)


def leave_out(
    arrays: Mapping[str, tuple[Inputs, Labels]], duplicates: Duplicates, name: str, scratch: Path | None
) -> dict[str, tuple[Inputs, Labels]]:
    """Return the parts without the rows that are in an earlier one.

    Args:
        arrays: Rows and labels of each part.
        duplicates: The duplicates.
        name: Name of the data set, for messages.
        scratch: Folder of memory-mapped arrays.

    Raises:
        DataError: A part keeps fewer than FEWEST rows.
    """
    kept = dict(arrays)
    for part, (x, y) in arrays.items():
        out_N = duplicates.left_out(part)
        if part == "train" or not out_N.any():
            continue
        if (left := int((~out_N).sum())) < FEWEST:
            problem = f"{name}: only {left} of {len(y):,} {NAMES[part]} rows are not duplicates"
            raise DataError(
                f"{problem} (data.duplicates: leave_out); allowed are at least {FEWEST}. Remove duplicates from the"
                " data, or set data.duplicates to keep"
            )
        kept[part] = mapped.take(x, np.flatnonzero(~out_N), scratch), y[~out_N]
    return kept


def digests(rows: Rows) -> npt.NDArray[np.void]:
    """Return the BLAKE2b hash of each row, DIGEST bytes each, with one block of rows in memory at a time.

    Equality is that of decoded and scaled images; of vectors as float32 (-0 is 0, NaN is NaN); of the words of texts in
    lower case and without punctuation; and of words and form of trees, whatever the labels of their nodes.

    Raises:
        TypeError: The rows are image files that are not decoded.
    """
    hashed = (hashlib.blake2b(row, digest_size=DIGEST).digest() for row in _contents(rows))
    return np.frombuffer(b"".join(hashed), dtype=f"V{DIGEST}")


def _contents(rows: Rows) -> Iterator[bytes]:
    """Yield the bytes of each row by which rows are equal."""
    if isinstance(rows, TextRows):
        yield from (" ".join(words_in(text)).encode() for text in rows.texts)
    elif isinstance(rows, TreeRows):
        yield from (repr((list(tree.words), list(tree.left), list(tree.right))).encode() for tree in rows.trees)
    elif isinstance(rows, np.ndarray):
        for block in mapped.blocks(rows):
            if block.dtype.kind == "f":
                block = np.where(np.isnan(block), np.float32(np.nan), block + np.float32(0))
            yield from (row.tobytes() for row in block)
    else:
        raise TypeError(f"{type(rows).__name__} is not decoded; decode it first")


def _labels_of(code_N: npt.NDArray[np.intp], labels_N: Labels, distinct: int, classes: int) -> npt.NDArray[np.intp]:
    """Return the number of labels that each distinct row has in a part."""
    return np.bincount(np.unique(code_N * classes + labels_N) // classes, minlength=distinct)


def _alike(
    rows: Mapping[str, Rows],
    labels: Mapping[str, Labels],
    order: Sequence[str],
    same: Mapping[str, Mapping[str, Overlap]],
    distance: int,
) -> dict[str, dict[str, Overlap]]:
    """Return near duplicates that are not equal rows, for each part and earlier part."""
    hashed = {part: near.hashes(cast(Images, rows[part])) for part in order}
    alike: dict[str, dict[str, Overlap]] = {part: {} for part in order[1:]}
    for k, part in enumerate(order):
        for other in order[:k]:
            place_N, bits_N = near.nearest(hashed[part], hashed[other])
            is_near_N = (bits_N <= distance) & ~same[part][other].is_there_N
            alike[part][other] = Overlap(is_near_N, is_near_N & (labels[other][place_N] != labels[part]))
    return alike
