"""Decoding of image files into the arrays of the splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from pipeline.data import mapped
from pipeline.data.raw import DataError, ImageFiles, Inputs, Labels, Rows
from trueodds.evaluation.splits import Index
from trueodds.inputs.image.pictures import PictureError, Scaling
from trueodds.inputs.image.pictures import read as read_picture
from trueodds.processes.progress import bar

if TYPE_CHECKING:
    from tqdm import tqdm

LISTED = 20  # unreadable files named in a message; the others are counted

Part: TypeAlias = tuple[Rows, Labels, Index | None]
"""Rows, labels, and the indices of the rows that make a split, in order; None means all."""


class Gathered(NamedTuple):
    """Rows of the splits.

    Attributes:
        arrays: Rows and labels of each split.
        notes: Notes about files that were left out.
        kept: Mask of the rows that could be read, for splits of files.
    """

    arrays: dict[str, tuple[Inputs, Labels]]
    notes: list[str]
    kept: dict[str, npt.NDArray[np.bool_]]


@dataclass
class Unreadable:
    """Image files that cannot be read: path in the data set's folder -> reason."""

    total: int
    """Number of all files that were tried."""
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, files: ImageFiles, path: Path, reason: Exception) -> None:
        """Add a file and the reason."""
        self.reasons[str(path.relative_to(files.folder))] = str(reason)

    def check(self, folder: Path, share: float) -> None:
        """Raise one DataError for all of them if they are more than `share` of the files."""
        if len(self.reasons) > share * self.total:
            cure = f"fix or remove them, or raise data.unreadable_share (now {share:g}) to leave them out"
            raise DataError(f"{folder}: {self._count()} cannot be read; {cure}:\n" + "\n".join(self._lines("  ")))

    def note(self) -> str:
        """Return the sentence for the card."""
        return f"{self._count()} could not be read and were left out: {'; '.join(self._lines(''))}."

    def _count(self) -> str:
        """Return the count as text."""
        return f"{len(self.reasons):,} of {self.total:,} images"

    def _lines(self, indent: str) -> Sequence[str]:
        """Return a line for each file, at most LISTED."""
        lines = [f"{indent}{name}: {self.reasons[name]}" for name in sorted(self.reasons)[:LISTED]]
        if len(self.reasons) > LISTED:
            lines.append(f"{indent}and {len(self.reasons) - LISTED:,} more")
        return lines


def gather(parts: Mapping[str, Part], unreadable_share: float, scratch: Path | None) -> Gathered:
    """Return the rows and labels of each split that consists of arrays or files.

    Files are decoded straight into the arrays of the splits. Large arrays are memory-mapped (`pipeline.data.mapped`)
    from a file in `scratch`. A progress bar counts the images.

    Raises:
        DataError: More than `unreadable_share` of the files cannot be read (one message for all), or none of a split
            can.
    """
    arrays: dict[str, tuple[Inputs, Labels]] = {}
    files: dict[str, tuple[ImageFiles, Labels]] = {}
    for split, (rows, labels, index) in parts.items():
        labels = labels if index is None else labels[index]
        if isinstance(rows, ImageFiles):
            files[split] = (rows if index is None else rows.take(index), labels)
        elif isinstance(rows, np.ndarray):
            arrays[split] = (rows if index is None else mapped.take(rows, index, scratch), labels)
    if not files:
        return Gathered(arrays, [], {})
    unreadable = Unreadable(sum(len(labels) for _, labels in files.values()))
    with bar(unreadable.total, "read images", "image") as progress:
        decoded = {split: _decode(of_split, unreadable, progress, scratch) for split, (of_split, _) in files.items()}
    folder = next(iter(files.values()))[0].folder
    unreadable.check(folder, unreadable_share)
    for split, (_, kept_N) in decoded.items():
        if not kept_N.any():
            raise DataError(f"{folder}: none of the {len(files[split][1]):,} images of split {split} can be read")
    notes = [unreadable.note()] if unreadable.reasons else []
    read = {split: (images, files[split][1][kept_N]) for split, (images, kept_N) in decoded.items()}
    both = {split: arrays.get(split) or read[split] for split in parts if split in arrays or split in read}
    return Gathered(both, notes, {split: kept_N for split, (_, kept_N) in decoded.items()})


def _decode(
    files: ImageFiles, unreadable: Unreadable, progress: tqdm[Any], scratch: Path | None
) -> tuple[Inputs, npt.NDArray[np.bool_]]:
    """Return the images that can be read, and the mask of their rows."""
    images_NHWC = mapped.empty(files.shape, np.uint8, scratch)
    pages = mapped.Pages(images_NHWC)
    scaling = None if files.side is None else Scaling(files.side)
    kept_N = np.ones(len(files.paths), dtype=bool)
    place = 0
    for row, path in enumerate(files.paths):
        try:
            images_NHWC[place] = read_picture(path, files.channels, scaling)
            place += 1
            pages.touch(1)
        except (PictureError, OSError) as error:
            unreadable.add(files, path, error)
            kept_N[row] = False
        progress.update()
    return images_NHWC[:place], kept_N
