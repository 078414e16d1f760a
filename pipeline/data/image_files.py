"""Images that are still files: decoded when their rows are asked for, each straight into its place, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pipeline.data import mapped
from pipeline.data.raw import DataError, ImageFiles, Inputs, Labels, Rows
from trueodds.evaluation.splits import Index
from trueodds.inputs.image.pictures import PictureError, Scaling
from trueodds.inputs.image.pictures import read as read_picture
from trueodds.processes.progress import bar

if TYPE_CHECKING:
    from tqdm import tqdm

LISTED = 20  # files that cannot be read, by name; of the others the number

Part: TypeAlias = tuple[Rows, Labels, Index | None]
"""Rows, labels, and which of them make a split, in that order; None: all."""


@dataclass
class Unreadable:
    """Files that cannot be read, by their names in the data set's folder, with the reason."""

    total: int
    """Of all files that were tried."""
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, files: ImageFiles, path: Path, reason: Exception) -> None:
        self.reasons[str(path.relative_to(files.folder))] = str(reason)

    def check(self, folder: Path, share: float) -> None:
        """Raises DataError, for all of them, where they are more than `share` of the files."""
        if len(self.reasons) > share * self.total:
            cure = f"mend or remove them, or raise data.unreadable_share (now {share:g}) to leave them out"
            raise DataError(f"{folder}: {self._counted()} cannot be read; {cure}:\n" + "\n".join(self._lines("  ")))

    def note(self) -> str:
        """The sentence for the card."""
        return f"{self._counted()} could not be read and were left out: {'; '.join(self._lines(''))}."

    def _counted(self) -> str:
        return f"{len(self.reasons):,} of {self.total:,} images"

    def _lines(self, indent: str) -> Sequence[str]:
        lines = [f"{indent}{name}: {self.reasons[name]}" for name in sorted(self.reasons)[:LISTED]]
        if len(self.reasons) > LISTED:
            lines.append(f"{indent}and {len(self.reasons) - LISTED:,} more")
        return lines


def gather(
    parts: Mapping[str, Part], unreadable_share: float, scratch: Path | None
) -> tuple[dict[str, tuple[Inputs, Labels]], list[str]]:
    """The rows and labels of each split that is of arrays or of files; and notes of the files that were left out.

    Of files nothing is held but the splits themselves, and large ones are mapped (`pipeline.data.mapped`) from a file
    in `scratch`; a bar counts the images.

    Raises:
        DataError: more than `unreadable_share` of the files cannot be read, all of them by one message; or none of a
            split can.
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
        return arrays, []
    unreadable = Unreadable(sum(len(labels) for _, labels in files.values()))
    with bar(unreadable.total, "read images", "image") as shown:
        decoded = {split: _decoded(*part, unreadable, shown, scratch) for split, part in files.items()}
    folder = next(iter(files.values()))[0].folder
    unreadable.check(folder, unreadable_share)
    for split, (_, labels) in decoded.items():
        if not len(labels):
            raise DataError(f"{folder}: none of the {len(files[split][1]):,} images of split {split} can be read")
    notes = [unreadable.note()] if unreadable.reasons else []
    return {split: arrays.get(split) or decoded[split] for split in parts if split in arrays or split in decoded}, notes


def _decoded(
    files: ImageFiles, labels_N: Labels, unreadable: Unreadable, shown: tqdm[Any], scratch: Path | None
) -> tuple[Inputs, Labels]:
    """The images that can be read, and their labels."""
    images_NHWC = mapped.empty(files.shape, np.uint8, scratch)
    pages = mapped.Pages(images_NHWC)
    scaling = None if files.side is None else Scaling(files.side)
    kept = np.ones(len(labels_N), dtype=bool)
    place = 0
    for row, path in enumerate(files.paths):
        try:
            images_NHWC[place] = read_picture(path, files.channels, scaling)
            place += 1
            pages.touch(1)
        except (PictureError, OSError) as error:
            unreadable.add(files, path, error)
            kept[row] = False
        shown.update()
    return images_NHWC[:place], labels_N[kept]
