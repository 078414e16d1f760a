"""Rows that stand in two parts of the split: such a part is no test of what was learned from the other."""

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
"""Each part is held against those before it, which something was learned or fitted from by then."""
NAMES = {"train": "training", "held_out": "held-out", "val": "validation", "test": "test"}
REMEDY = (
    "Duplicates make calibration and metrics look better than they are for new rows. data.duplicates: leave_out leaves"
    " them out."
)
DIGEST = 16
"""Bytes of a row's hash: among 10^9 rows two different ones share one with a probability of 10^-21."""
FEWEST = 2
"""Rows that a part keeps."""
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Shared:
    """The rows of a part that are also in an earlier one, and those of them whose label is another there."""

    is_there_N: Mask
    other_label_N: Mask

    def counts(self) -> dict[str, int]:
        return {"rows": int(self.is_there_N.sum()), "other_label": int(self.other_label_N.sum())}


@dataclass(frozen=True)
class Duplicates:
    """The result of `find`.

    rows: of each part. repeated, several_labels: training rows that repeat another, and those that stand among the
    training rows under several labels. same, alike: per part and earlier part, equal rows, and near duplicates that are
    not equal; the latter are empty where `distance` is None.
    """

    rows: dict[str, int]
    repeated: int
    several_labels: int
    same: dict[str, dict[str, Shared]]
    alike: dict[str, dict[str, Shared]] = field(default_factory=dict)
    distance: int | None = None

    def left_out(self, part: str) -> Mask:
        """The rows of a part that are in an earlier one, equal or near."""
        masks = [shared.is_there_N for found in (self.same, self.alike) for shared in found.get(part, {}).values()]
        return np.asarray(np.any([np.zeros(self.rows[part], dtype=bool), *masks], axis=0))

    def to_json(self, leave_out: bool) -> dict[str, Any]:
        """The counts, as `fetch` writes them."""
        parts: dict[str, Any] = {
            "train": {"rows": self.rows["train"], "repeated": self.repeated, "several_labels": self.several_labels}
        }
        for part in list(self.rows)[1:]:
            entry: dict[str, Any] = {"rows": self.rows[part], "duplicates": int(self.left_out(part).sum())}
            entry["left_out"] = entry["duplicates"] if leave_out else 0
            entry |= {f"in_{other}": shared.counts() for other, shared in self.same[part].items()}
            entry |= {f"near_{other}": shared.counts() for other, shared in self.alike.get(part, {}).items()}
            parts[part] = entry
        return parts | ({} if self.distance is None else {"distance": self.distance})

    def summary(self) -> str:
        """A line for the screen, also where nothing was found."""
        counts = [f"{int(self.left_out(part).sum()):,} of {self.rows[part]:,} {NAMES[part]} rows" for part in self.same]
        return f"duplicates of earlier parts: {', '.join(counts)}"

    def notes(self, leave_out: bool) -> list[str]:
        """Sentences for the card; none where nothing was found."""
        lines = []
        if self.several_labels:
            lines.append(f"{self.several_labels:,} training rows equal others with another label; see which is right.")
        for found, where in ((self.same, "among"), (self.alike, f"near duplicates (distance {self.distance}) of")):
            for part, others in found.items():
                lines += [
                    self._line(part, other, shared, where)
                    for other, shared in others.items()
                    if shared.counts()["rows"]
                ]
        for part in self.same:
            if leave_out and (count := int(self.left_out(part).sum())):
                left = f"{self.rows[part] - count:,} {NAMES[part]} rows are left"
                lines.append(f"Left out as duplicates (data.duplicates: leave_out): {count:,}; {left}.")
        if not leave_out and any(self.left_out(part).any() for part in self.same):
            lines.append(REMEDY)
        return lines

    def _line(self, part: str, other: str, shared: Shared, where: str) -> str:
        count, others = shared.counts().values()
        of = f"{count:,} of {self.rows[part]:,} {NAMES[part]} rows"
        return f"Duplicates, {where} the {NAMES[other]} rows: {of}, {others:,} of them with another label."


def find(rows: Mapping[str, Rows], labels: Mapping[str, Labels], distance: int | None = None) -> Duplicates:
    """Holds each part of ORDER against those before it; with a `distance`, images by perceptual hash as well.

    Args:
        rows, labels: of each part.
        distance: bits of 64 in which the hashes of near duplicates may differ (`pipeline.data.splitting.near`).
    """
    order = [part for part in ORDER if part in rows]
    counts = {part: len(labels[part]) for part in order}
    hashed_N = np.concatenate([digests(rows[part]) for part in order])
    distinct, code_N = np.unique(hashed_N, return_inverse=True)
    codes = dict(zip(order, np.split(code_N, np.cumsum(list(counts.values()))[:-1]), strict=True))
    classes = 1 + max(int(labels[part].max()) for part in order)
    same: dict[str, dict[str, Shared]] = {part: {} for part in order[1:]}
    labels_V = {part: _labels_of(codes[part], labels[part], len(distinct), classes) for part in order}
    for k, part in enumerate(order):
        for other in order[:k]:
            is_there_N = labels_V[other][codes[part]] > 0
            own_N = np.isin(codes[part] * classes + labels[part], codes[other] * classes + labels[other])
            same[part][other] = Shared(is_there_N, is_there_N & (labels_V[other][codes[part]] > own_N))
    train = codes["train"]
    alike = {} if distance is None else _alike(rows, labels, order, same, distance)
    several = int((labels_V["train"][train] > 1).sum())
    return Duplicates(counts, len(train) - len(np.unique(train)), several, same, alike, distance)


def leave_out(
    arrays: Mapping[str, tuple[Inputs, Labels]], found: Duplicates, name: str, scratch: Path | None
) -> dict[str, tuple[Inputs, Labels]]:
    """The parts without the rows that are in an earlier one.

    Raises:
        DataError: a part that keeps fewer than FEWEST rows; `name` is the data set's.
    """
    kept = dict(arrays)
    for part, (x, y) in arrays.items():
        out_N = found.left_out(part)
        if part == "train" or not out_N.any():
            continue
        if (left := int((~out_N).sum())) < FEWEST:
            problem = f"{name}: {left} of {len(y):,} {NAMES[part]} rows are no duplicates (data.duplicates: leave_out)"
            raise DataError(
                f"{problem}; allowed are {FEWEST} and more. Take duplicates out of the data, or set it to keep"
            )
        kept[part] = mapped.take(x, np.flatnonzero(~out_N), scratch), y[~out_N]
    return kept


def digests(rows: Rows) -> npt.NDArray[np.void]:
    """BLAKE2b of each row, DIGEST bytes each; a block of rows is held at a time.

    Equal are images once decoded and scaled, vectors as float32 (-0 is 0, NaN is NaN), the words of texts in lower case
    and without punctuation, and trees of the same words and form, whatever the labels of their nodes.

    Raises:
        TypeError: images that are still files.
    """
    hashed = (hashlib.blake2b(row, digest_size=DIGEST).digest() for row in _contents(rows))
    return np.frombuffer(b"".join(hashed), dtype=f"V{DIGEST}")


def _contents(rows: Rows) -> Iterator[bytes]:
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
        raise TypeError(f"{type(rows).__name__} has no content yet; decode it first")


def _labels_of(code_N: npt.NDArray[np.intp], labels_N: Labels, distinct: int, classes: int) -> npt.NDArray[np.intp]:
    """The number of labels under which each distinct row stands in a part."""
    return np.bincount(np.unique(code_N * classes + labels_N) // classes, minlength=distinct)


def _alike(
    rows: Mapping[str, Rows],
    labels: Mapping[str, Labels],
    order: Sequence[str],
    same: Mapping[str, Mapping[str, Shared]],
    distance: int,
) -> dict[str, dict[str, Shared]]:
    hashed = {part: near.hashes(cast(Images, rows[part])) for part in order}
    alike: dict[str, dict[str, Shared]] = {part: {} for part in order[1:]}
    for k, part in enumerate(order):
        for other in order[:k]:
            place_N, bits_N = near.nearest(hashed[part], hashed[other])
            is_near_N = (bits_N <= distance) & ~same[part][other].is_there_N
            alike[part][other] = Shared(is_near_N, is_near_N & (labels[other][place_N] != labels[part]))
    return alike
