"""Logits of corrupted test rows as a folder: what a shift's figures are computed from, without the network.

shift.json says what they are: `shift` (null: there are none), `severities`, `corruptions`, and where the images come
from. clean.npz: `rows`, which test rows; `labels`; `logits`, of the images as they are. <corruption>.npy: S x N x C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trueodds.files import FileError, read_json, read_npz, write_json, write_npz, written
from trueodds.logits import Logits

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
        """Each corruption with its logits_SNC.

        Raises:
            FileError: a file that is missing, damaged or of another shape.
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
    """A folder that says that there is no shift."""
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
    """Writes the logits of each corruption and severity, as `logits_of` (N x C) makes them; the description last.

    clean: logits and labels of the same rows as they are; rows_N: their numbers among the test rows.
    """
    _empty(folder)
    write_npz(folder / CLEAN, {"rows": rows_N, "logits": clean.logits_NC, "labels": clean.labels_N})
    for name in corruptions:
        logits_SNC = np.stack([logits_of(name, severity) for severity in severities])
        with written(folder / f"{name}.npy") as aside, aside.open("wb") as file:
            np.save(file, logits_SNC)
    lists = {"corruptions": list(corruptions), "severities": list(severities), "rows": len(rows_N)}
    write_json(folder / DESCRIPTION, description | lists)


def read(folder: Path) -> ShiftedLogits:
    """What `write` left.

    Raises:
        FileError: nothing, no shift, or damaged files.
    """
    try:
        description = read_json(folder / DESCRIPTION)
        if description["shift"] is None:
            raise FileError(f"{folder} holds no logits of corrupted rows; {CURE}")
        arrays = read_npz(folder / CLEAN)
        clean = Logits(arrays["logits"], arrays["labels"])
    except (FileNotFoundError, KeyError, TypeError) as error:
        raise FileError(f"{folder} is not whole ({error}); {CURE}") from None
    return ShiftedLogits(folder, description, clean)


def _empty(folder: Path) -> None:
    """Without what an earlier run left, the description first: a folder with one is whole."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (folder / DESCRIPTION, folder / CLEAN, *folder.glob("*.npy")):
        stale.unlink(missing_ok=True)
