"""Images that are still files: decoded when their rows are asked for, each straight into its place, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipeline.data.raw import DataError, ImageFiles, Images, Inputs, Rows
from trueodds.evaluation.splits import Index
from trueodds.inputs.image.pictures import PictureError, Scaling
from trueodds.inputs.image.pictures import read as read_picture
from trueodds.processes.progress import bar

LISTED = 20  # files that cannot be read, by name; of the others the number


def gather(wanted: Mapping[str, tuple[Rows, Index | None]]) -> dict[str, Inputs]:
    """The rows of each split: of an array or of files, some of them in the order of their index, or all (None).

    Of files nothing is held but the splits themselves; a bar counts the images.

    Raises:
        DataError: files that cannot be read, all of them by one message.
    """
    files: dict[str, ImageFiles] = {}
    gathered: dict[str, Inputs] = {}
    for split, (source, rows) in wanted.items():
        if isinstance(source, ImageFiles):
            paths = source.paths if rows is None else [source.paths[row] for row in rows]
            files[split] = replace(source, paths=paths)
        else:
            gathered[split] = source if rows is None else source[rows]
    return {**gathered, **_decoded(files)} if files else gathered


def _decoded(files: Mapping[str, ImageFiles]) -> dict[str, Images]:
    decoded: dict[str, Images] = {}
    unreadable: dict[Path, str] = {}
    total = sum(len(split.paths) for split in files.values())
    with bar(total, "read images", "image") as shown:
        for name, split in files.items():
            decoded[name] = images = np.empty(split.shape, dtype=np.uint8)
            scaling = None if split.side is None else Scaling(split.side)
            for row, path in enumerate(split.paths):
                try:
                    images[row] = read_picture(path, split.channels, scaling)
                except (PictureError, OSError) as error:
                    unreadable[path] = str(error)
                shown.update()
    if unreadable:
        raise unreadable_files(unreadable, total)
    return decoded


def unreadable_files(unreadable: Mapping[Path, str], total: int) -> DataError:
    """One error for all files of `total` that cannot be read: the first 20 with the reason, and how many more."""
    lines = [f"  {path}: {unreadable[path]}" for path in sorted(unreadable)[:LISTED]]
    if len(unreadable) > LISTED:
        lines.append(f"  and {len(unreadable) - LISTED:,} more")
    which = f"{len(unreadable):,} of {total:,} images cannot be read; mend or remove them:"
    return DataError("\n".join([which, *lines]))
