"""Folder with logits of corrupted test rows, from which a shift is evaluated without the network.

shift.json describes them: `shift` (null: there are none), `severities`, `corruptions`, and the origin of the images.
clean.npz holds `rows` (indices of the test rows), `labels` and `logits` of the clean images, and their `groups`, if
there are some. <corruption>.npy holds S x N x C logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError, atomic_write, read_json, read_npz, write_json, write_npz
from trueodds.logits import Logits
from trueodds.sums.group_names import from_arrays, to_arrays

GROUPS = "groups"
DESCRIPTION, CLEAN = "shift.json", "clean.npz"
CURE = "run the shift stage first: dvc repro shift"
Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class ShiftedLogits:
    """Logits of N rows under T corruptions at S severities, read one corruption at a time."""

    folder: Path
    description: dict[str, Any]
    clean: Logits

    @property
    def corruptions(self) -> tuple[str, ...]:
        return tuple(self.description["corruptions"])

    @property
    def severities(self) -> tuple[int, ...]:
        return tuple(self.description["severities"])

    def __iter__(self) -> Iterator[tuple[str, npt.NDArray[np.floating]]]:
        """Yield each corruption with its logits_SNC.

        Raises:
            FileError: A file is missing, damaged or of another shape.
        """
        shape = (len(self.severities), *self.clean.logits_NC.shape)
        for name in self.corruptions:
            path = self.folder / f"{name}.npy"
            try:
                logits_SNC = np.load(path, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError, EOFError) as error:
                raise FileError(f"{path} is missing or damaged ({error}); {CURE}") from None
            if logits_SNC.shape != shape:
                raise FileError(f"{path} has shape {logits_SNC.shape}; expected {shape}; {CURE}")
            yield name, logits_SNC


def write_none(folder: Path) -> None:
    """Write a folder that states that there is no shift."""
    _empty(folder)
    write_json(folder / DESCRIPTION, {"shift": None})


def write(
    folder: Path,
    description: dict[str, Any],
    rows_N: Index,
    clean: Logits,
    corruptions: Sequence[str],
    severities: Sequence[int],
    logits_of: Callable[[str, int], npt.NDArray[np.floating]],
) -> None:
    """Write the logits of each corruption and severity, which `logits_of` computes (N x C). The description comes last.

    `clean` holds logits, labels and groups of the same clean rows, and `rows_N` their indices among the test rows.
    """
    _empty(folder)
    groups = {} if clean.groups_N is None else to_arrays(GROUPS, clean.groups_N)
    write_npz(folder / CLEAN, {"rows": rows_N, "logits": clean.logits_NC, "labels": clean.labels_N} | groups)
    for name in corruptions:
        logits_SNC = np.stack([logits_of(name, severity) for severity in severities])
        with atomic_write(folder / f"{name}.npy") as aside, aside.open("wb") as file:
            np.save(file, logits_SNC)
    lists = {"corruptions": list(corruptions), "severities": list(severities), "rows": len(rows_N)}
    write_json(folder / DESCRIPTION, description | lists)


def read(folder: Path) -> ShiftedLogits:
    """Read the folder that `write` wrote.

    Raises:
        FileError: The folder is empty or damaged, or states that there is no shift.
    """
    try:
        description = read_json(folder / DESCRIPTION)
        if description["shift"] is None:
            raise FileError(f"{folder} holds no logits of corrupted rows; {CURE}")
        arrays = read_npz(folder / CLEAN)
        clean = Logits(arrays["logits"], arrays["labels"], from_arrays(arrays, GROUPS, len(arrays["labels"])))
    except FileError:
        raise
    except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
        raise FileError(f"{folder} is not complete ({error}); {CURE}") from None
    return ShiftedLogits(folder, description, clean)


def _empty(folder: Path) -> None:
    """Remove the files of an earlier run, the description first, because a folder with a description is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (folder / DESCRIPTION, folder / CLEAN, *folder.glob("*.npy")):
        stale.unlink(missing_ok=True)
