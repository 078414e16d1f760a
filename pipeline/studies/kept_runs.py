"""Keeps finished runs in small files that a repository can hold. Another machine takes these runs as done.

    <folder>/<key>.npz      one run: its record, its epochs, and the labels and logits of its validation and test rows

A file has what the tables, comparisons, noise floors and most figures of a study need. It does not have the arrays of
EPOCH_ROWS, so figures that show single training rows are drawn only on the machine that made the run.

The logits are rounded to multiples of 2^-10. The step is halved until no row changes its top class. A probability of
the net then changes by a factor of at most exp(2^-10), so a row's log loss changes by at most 0.001 nats. A calibrator
that multiplies logits by s multiplies this bound by s. The kept logits replace those of the run also on its own
machine. So all machines report the same numbers.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.studies import runs
from pipeline.studies.format import StudyError
from pipeline.studies.machine import DIGITS
from pipeline.studies.runs import LOGITS, RUN, UNCOMMITTED, Place, Run, folder_of, settings_key_of
from pipeline.training.files import EPOCH_ROWS, EPOCHS
from trueodds import logits
from trueodds.files import FileError, copy, naming, read_json, read_npz, sha256, write_json, write_text
from trueodds.logits import Logits
from trueodds.sums.group_names import from_arrays, to_arrays
from trueodds.texts import quotes

SPLITS = ("val", "test")
FIRST, LAST = 10, 149
"""Exponents of the largest and the smallest step 2^-exponent that is tried. The smallest is the last one of float32."""
KEY, SETTINGS_KEY, EXPONENTS, NOTES = "key", "settings_key", "exponents", "val_notes"
"""Entries that a kept record has beside those of RUN."""
ARRAYS = frozenset({"record", "epochs", *(f"{split}_{part}" for split in SPLITS for part in ("logits", "labels"))})
"""Names of the arrays of a file. Rows with groups have them in further arrays."""
CURE = "restore the file, or remove it to run its run again"
Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class KeptRuns:
    """A folder of kept runs.

    A run is taken if its key is equal, so its settings, data and code are equal.

    Attributes:
        folder: Folder of the files.
        commits: Commits, or their beginnings, whose code may differ from today's. A run of such a commit is also taken
            if its settings and data are equal. A run of uncommitted code is not: no commit has that code.
    """

    folder: Path
    commits: tuple[str, ...] = ()

    def places(self, home: Path, of: Sequence[Run]) -> list[Place]:
        """Return each run's place like `runs.places`. A kept run is unpacked, and its place is that folder.

        Raises:
            StudyError: A run has a shift, a file does not belong to its name, or two kept runs have equal settings.
            ConfigError: Settings are not possible.
        """
        if shifted := [run.name for run in of if run.params.evaluation.shift]:
            raise StudyError(
                f"{shifted[0]} has `shift`, and the logits of corrupted rows are too many to keep; "
                "remove shift, or run the study without a folder of kept runs"
            )
        return [self._take(home, place) for place in runs.places(home, of)]

    def check_writable(self, places: Sequence[Place]) -> None:
        """Make the folder and check that the files of some runs can be written there, unless all are kept already.

        Raises:
            StudyError: The folder cannot be written.
        """
        if all(self._path(place.key).is_file() for place in places):
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise StudyError(
                f"no run can be kept in {self.folder} ({error.strerror}); name a folder that you may write"
            ) from None

    def keep(self, place: Place) -> Path | None:
        """Write the file of a finished run and return it; None if the run is not finished or is kept already.

        Raises:
            StudyError: Its logits cannot be rounded (`pack`).
        """
        path = self._path(place.key)
        if not place.is_done or path.is_file():
            return None
        source = place.folder / LOGITS
        arrays: Arrays = {}
        exponents = {}
        for split in SPLITS:
            part = logits.read(source, split)
            try:
                arrays[f"{split}_logits"], exponents[split] = pack(part.logits_NC)
            except StudyError as error:
                raise StudyError(f"{place.run.name} is finished here, but cannot be kept: {error}") from None
            arrays[f"{split}_labels"] = part.labels_N.astype(np.min_scalar_type(part.logits_NC.shape[1] - 1))
            if part.groups_N is not None:
                arrays |= to_arrays(f"{split}_groups", part.groups_N)
        own = {KEY: place.key, SETTINGS_KEY: settings_key_of(place.run.params), EXPONENTS: exponents}
        record = {**place.record(), **own, NOTES: logits.notes(source)}
        arrays["record"] = _to_bytes(json.dumps(record))
        arrays["epochs"] = _to_bytes((place.folder / EPOCHS).read_text(encoding="utf-8"))
        self.folder.mkdir(parents=True, exist_ok=True)
        # Two machines that share only this folder may keep the same run at the same time.
        with tempfile.TemporaryDirectory(prefix=".aside-", dir=self.folder) as aside, naming(path, Path(aside)):
            whole = Path(aside) / path.name
            np.savez_compressed(whole, allow_pickle=False, **arrays)
            whole.replace(path)
        return path

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.npz"

    def _take(self, home: Path, place: Place) -> Place:
        """Return the place of a kept run, or the given place if there is none."""
        path = self._path(place.key)
        if path.is_file():
            return replace(place, folder=self._unpack(home, path))
        if place.is_done or not self.commits:
            return place
        older = self._by_settings.get(settings_key_of(place.run.params), [])
        if len(older) > 1:
            names = ", ".join(file.name for file in older)
            raise StudyError(f"{names} in {self.folder} have the settings of {place.run.name}; name fewer commits")
        return Place(place.run, older[0].stem, self._unpack(home, older[0]), other_code=True) if older else place

    @cached_property
    def _by_settings(self) -> Mapping[str, list[Path]]:
        """Files of the runs that the code of one of `commits` made, by the key of their settings."""
        found: dict[str, list[Path]] = {}
        for path in sorted(self.folder.glob("*.npz")):
            record, _ = _read(path)
            if (record.get("commit") or "").startswith(self.commits) and not record.get(UNCOMMITTED):
                found.setdefault(record[SETTINGS_KEY], []).append(path)
        return found

    def _unpack(self, home: Path, path: Path) -> Path:
        """Unpack a file into a folder of finished runs, named by the file's content, and return the folder."""
        made_here = folder_of(home) / path.stem
        folder = made_here.with_name(f"{path.stem}-{sha256(path)[:8]}")
        if (folder / RUN).is_file():
            return folder
        record, arrays = _read(path)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".aside-", dir=folder.parent) as aside:
            whole = Path(aside) / "run"
            whole.mkdir()
            splits = _splits(path, record, arrays)
            logits.write(whole / LOGITS, splits, record[NOTES])
            write_text(whole / EPOCHS, _to_text(arrays["epochs"]))
            if (made_here / EPOCH_ROWS).is_file() and read_json(made_here / RUN).items() <= record.items():
                copy(made_here / EPOCH_ROWS, whole / EPOCH_ROWS)
            write_json(whole / RUN, record)
            if not (folder / RUN).is_file():  # not whole
                shutil.rmtree(folder, ignore_errors=True)
            try:
                whole.rename(folder)
            except OSError:
                if not (folder / RUN).is_file():  # another process has unpacked it meanwhile
                    raise
        return folder


def commits_in(folder: Path) -> tuple[str, ...]:
    """Return the commits of the kept runs in a folder whose source files were those of their commit."""
    records = [_read(path)[0] for path in sorted(folder.glob("*.npz"))]
    whole = [record["commit"] for record in records if record.get("commit") and not record.get(UNCOMMITTED)]
    return tuple(sorted(set(whole)))


def of_arguments(folder: Path | str | None, commits: Sequence[str]) -> KeptRuns | None:
    """Return the kept runs that a caller names by folder and commits; None without a folder.

    Raises:
        StudyError: Commits without a folder, or a commit of fewer than 7 hexadecimal digits.
    """
    if folder is None and commits:
        raise StudyError(f"the code of commit {commits[0]} is for kept runs; name their folder too (--kept FOLDER)")
    if wrong := [commit for commit in commits if not DIGITS.fullmatch(commit)]:
        raise StudyError(
            f"{wrong[0]!r} is not a commit; give 7 to 40 of its hexadecimal digits, as git log prints them"
        )
    return None if folder is None else KeptRuns(Path(folder), tuple(commits))


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return a kept run: the record, with the run's key and the key of its settings, and all arrays.

    Raises:
        StudyError: The file is damaged, has been renamed, or is no kept run of this version of TrueOdds.
    """
    try:
        arrays = read_npz(path)
    except FileError:
        raise StudyError(f"{path} is damaged; {CURE}") from None
    if missing := ARRAYS - arrays.keys():
        raise StudyError(f"{path} is no kept run: it has no array {quotes(sorted(missing))}; {CURE}")
    try:
        record: dict[str, Any] = dict(json.loads(_to_text(arrays["record"])))
    except (ValueError, TypeError) as error:
        raise StudyError(f"{path} is damaged: its record is no JSON object ({error}); {CURE}") from None
    if gone := [name for name in (KEY, SETTINGS_KEY, EXPONENTS, NOTES) if name not in record]:
        raise StudyError(f"{path} is of another version of TrueOdds: its record has no {quotes(gone)}; {CURE}")
    if record[KEY] != path.stem:
        raise StudyError(f"{path} holds the run {record[KEY]}; name the file {record[KEY]}.npz")
    return record, arrays


def pack(logits_NC: npt.NDArray[Any]) -> tuple[npt.NDArray[np.uint8], int]:
    """Round logits to multiples of 2^-exponent, with the smallest exponent from FIRST on that keeps each top class.

    Returns:
        The multiples as int32, whose first, second, third and fourth bytes are the four rows (4, N x C). Such rows
        compress better than numbers. Then the exponent.

    Raises:
        StudyError: No step keeps all top classes with multiples of 32 bits.

    Examples:
        >>> pack(np.array([[1.0, 1.0001]]))[1]
        13
    """
    for exponent in range(FIRST, LAST + 1):
        steps_NC = np.rint(np.asarray(logits_NC, np.float64) * 2.0**exponent)
        if np.abs(steps_NC).max(initial=0) >= 2**31:
            break
        planes = steps_NC.astype("<i4").view(np.uint8).reshape(-1, 4).T
        if np.array_equal(unpack(planes, exponent, logits_NC.shape[1]).argmax(1), logits_NC.argmax(1)):
            return planes, exponent
    raise StudyError(
        f"the logits reach {np.abs(logits_NC).max():g}, and rounding them to fit 32 bits changes the top class of a "
        "row; run the study without a folder of kept runs"
    )


def unpack(planes: npt.NDArray[np.uint8], exponent: int, classes: int) -> npt.NDArray[np.float32]:
    """Return the logits (N, C) of `pack`, as float32."""
    steps = np.ascontiguousarray(planes.T).view("<i4").reshape(-1, classes)
    return (steps * 2.0**-exponent).astype(np.float32)


def _splits(path: Path, record: Mapping[str, Any], arrays: Arrays) -> dict[str, Logits]:
    """Return the splits of a kept run.

    Raises:
        StudyError: Their arrays do not fit together.
    """
    try:
        return {split: _part(arrays, split, record[EXPONENTS][split]) for split in SPLITS}
    except (ValueError, TypeError, KeyError, ZeroDivisionError) as error:
        raise StudyError(f"{path} is damaged: its arrays do not fit together ({error}); {CURE}") from None


def _part(arrays: Arrays, split: str, exponent: int) -> Logits:
    """Return one split of a kept run."""
    planes, labels_N = arrays[f"{split}_logits"], arrays[f"{split}_labels"]
    logits_NC = unpack(planes, exponent, planes.shape[1] // len(labels_N))
    return Logits(logits_NC, labels_N.astype(np.int64), from_arrays(arrays, f"{split}_groups", len(labels_N)))


def _to_bytes(text: str) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text.encode(), np.uint8)


def _to_text(array: npt.NDArray[np.uint8]) -> str:
    return array.tobytes().decode()
