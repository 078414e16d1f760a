"""Alarm on files of sums: its state in a file, one test for each version of the model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import numpy.typing as npt

from trueodds.errors import ConfigError
from trueodds.files import FileError, read_json, write_json
from trueodds.metrics.alarms.partitioned import PartitionEProcess
from trueodds.metrics.alarms.payoffs import Null, payoffs
from trueodds.processes.choices import TOLERANCE
from trueodds.reports.table.stored_sums import Partition, Window
from trueodds.sums.inputs import check_alpha
from trueodds.sums.sums import CalibrationSums
from trueodds.texts import plural

FORMAT = 1
"""Version of the state's format."""
ALPHA = 0.05
NULLS: tuple[Null, ...] = get_args(Null)
"""The nulls: `ece` alarms, `point` is a notice."""


@dataclass(frozen=True)
class TakenPartition:
    """Partition that the alarm has read."""

    window: Window
    sha256: str
    """Hash of the labels that it read. Evidence stays as it is if the file is made again."""
    labels: int


@dataclass(frozen=True)
class VersionAlarm:
    """Evidence about one version."""

    tests: dict[Null, PartitionEProcess]
    fired: dict[Null, str]
    """Last day of the partition at which a test reached its threshold, by null."""


@dataclass(frozen=True)
class PartitionAlarm:
    """Alarm on partitions: which it has read, and the evidence about each version.

    At most a share alpha of the versions whose confidences stay within the tolerance ever alarm
    (`trueodds.metrics.PartitionEProcess`).
    """

    tolerance: float = TOLERANCE
    alpha: float = ALPHA
    taken: tuple[TakenPartition, ...] = ()
    versions: dict[str, VersionAlarm] = field(default_factory=dict)
    """Evidence by the name of the version; "" if the answers have no column version."""

    @classmethod
    def start(cls, tolerance: float = TOLERANCE, alpha: float = ALPHA) -> Self:
        """Return the alarm before any partition.

        Raises:
            ConfigError: The tolerance is outside [0, .5), or alpha is outside (0, 1).
        """
        try:
            payoffs("ece", tolerance)
            check_alpha(alpha)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return cls(float(tolerance), float(alpha))

    def take(self, partitions: Sequence[Partition]) -> tuple[Self, list[str]]:
        """Read the partitions that it has not read yet, in the order of their days.

        A partition that it has read is left out, so a repeated call changes nothing.

        Args:
            partitions: Partitions in any order.

        Returns:
            The new state, and sentences about partitions that were made again after the alarm had read them.

        Raises:
            FileError: A partition begins before the end of the last one that the alarm has read, or a day is missing.
        """
        state, notes = self, []
        for partition in sorted(partitions, key=lambda one: one.window):
            known = next((one for one in self.taken if one.window == partition.window), None)
            if known is None:
                state = state._take_next(partition)
            elif known.sha256 != _hash(partition.first_labels()):
                notes.append(
                    f"The sums of {partition.window} were made again after the alarm had read them. Its evidence stays,"
                    " because evidence that was once shown cannot be withdrawn."
                )
        return state, notes

    def _take_next(self, partition: Partition) -> Self:
        if self.taken and partition.window.start_ms < (last := self.taken[-1].window).end_ms:
            raise FileError(
                f"the sums of {partition.window} are given after the alarm has read {last}, which is not before them;"
                " allowed are later days: leave these sums out, or begin a new state"
            )
        if self.taken and partition.window.start_ms > (last := self.taken[-1].window).end_ms:
            missing = Window(last.end_ms, partition.window.start_ms)
            raise FileError(
                f"the sums of {missing} are missing between {last} and {partition.window}; the alarm reads the days in"
                " order: make them with `trueodds sums` first"
            )
        first = partition.first_labels()
        versions = dict(self.versions)
        for version, cells in first.items():
            old = versions.get(version) or VersionAlarm(
                {null: PartitionEProcess.start(null, self.tolerance) for null in NULLS}, {}
            )
            sums = _calibration_sums(cells)
            tests = {null: test.advance(sums) for null, test in old.tests.items()}
            now = {null for null, test in tests.items() if test.is_alarmed(self.alpha)} - old.fired.keys()
            day = str(Window.of_day(partition.window.end_ms - 1).first_day)
            versions[version] = VersionAlarm(tests, old.fired | {null: day for null in NULLS if null in now})
        labels = int(sum(cells[0].sum() for cells in first.values()))
        taken = TakenPartition(partition.window, _hash(first), labels)
        return replace(self, taken=(*self.taken, taken), versions=versions)

    @property
    def is_alarmed(self) -> bool:
        """Whether the ECE of a version has exceeded the tolerance, by the evidence."""
        return any("ece" in version.fired for version in self.versions.values())

    def readings(self) -> list[str]:
        """Describe the evidence about each version in a sentence or two."""
        if not self.versions:
            days = plural(len(self.taken), "partition")
            return [f"No alarm: there is no label in {days}."]
        return [self._reading(name, version) for name, version in self.versions.items()]

    def _reading(self, name: str, version: VersionAlarm) -> str:
        ece = version.tests["ece"]
        whose = f"Version {name}: " if name else ""
        after = f"{plural(ece.blocks, 'partition')} with {plural(ece.labels, 'label')}"
        needed = f"E is {math.exp(min(ece.log_e, 700)):.3g}; it alarms at {1 / self.alpha:g}"
        point = ""
        if "point" in version.fired and "ece" not in version.fired:
            point = (
                f" Notice: since {version.fired['point']} there is evidence that some confidences are off by more than"
                f" {self.tolerance:g}."
            )
        if "ece" not in version.fired:
            return f"{whose}no alarm after {after} ({needed}).{point}"
        return (
            f"{whose}ALARM since {version.fired['ece']}: the ECE has exceeded {self.tolerance:g}. At most"
            f" {self.alpha:.0%} of well calibrated versions would ever show this much evidence. After {after},"
            f" {needed}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return a tree that `read_alarm` restores exactly."""
        taken = [
            {"start_ms": one.window.start_ms, "end_ms": one.window.end_ms, "sha256": one.sha256, "labels": one.labels}
            for one in self.taken
        ]
        versions = {
            name: {"fired": version.fired, "tests": {null: test.to_json() for null, test in version.tests.items()}}
            for name, version in self.versions.items()
        }
        settings = {"format": FORMAT, "tolerance": self.tolerance, "alpha": self.alpha}
        return {**settings, "alarmed": self.is_alarmed, "partitions": taken, "versions": versions}

    @classmethod
    def from_json(cls, tree: Any) -> Self:
        """Restore the state that `to_json` returned.

        Raises:
            ValueError: The tree is damaged or has another format.
        """
        try:
            if tree["format"] != FORMAT:
                raise ValueError(f"its format is {tree['format']!r}, and this version reads {FORMAT}")
            state = cls.start(tree["tolerance"], tree["alpha"])
            taken = tuple(
                TakenPartition(Window(one["start_ms"], one["end_ms"]), one["sha256"], one["labels"])
                for one in tree["partitions"]
            )
            versions = {name: _version(one, state.tolerance) for name, one in tree["versions"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from None
        labels = sum(one.labels for one in taken)
        if labels != sum(version.tests["ece"].labels for version in versions.values()):
            raise ValueError(f"its partitions hold {labels} labels, and its tests another number")
        return replace(state, taken=taken, versions=versions)


def _version(tree: dict[str, Any], tolerance: float) -> VersionAlarm:
    tests = {null: PartitionEProcess.from_json(tree["tests"][null]) for null in NULLS}
    if any((test.null, test.tolerance) != (null, tolerance) for null, test in tests.items()):
        raise ValueError("a test has another null or tolerance than its state")
    return VersionAlarm(tests, {null: tree["fired"][null] for null in NULLS if null in tree["fired"]})


def read_alarm(path: Path, tolerance: float | None = None, alpha: float | None = None) -> PartitionAlarm:
    """Read the state of an alarm; a new one if there is no file.

    Args:
        path: The file.
        tolerance: Largest acceptable ECE. None: that of the file; .02 for a new one.
        alpha: Share of calibrated versions that ever alarm. None: that of the file; .05 for a new one.

    Raises:
        FileError: The file is damaged, or was begun with other settings.
        ConfigError: A setting is not allowed.
    """
    if not path.exists():
        return PartitionAlarm.start(TOLERANCE if tolerance is None else tolerance, ALPHA if alpha is None else alpha)
    try:
        state = PartitionAlarm.from_json(read_json(path))
    except (FileError, ValueError) as error:
        raise FileError(
            f"{path} is not the state of an alarm ({error}); restore it from a copy. A new state would forget its"
            " evidence: name another file to begin one"
        ) from None
    for name, given in (("tolerance", tolerance), ("alpha", alpha)):
        if given is not None and given != (own := getattr(state, name)):
            raise FileError(
                f"{path} was begun with the {name} {own:g}, and {given:g} is given; a test whose settings change after"
                f" its data is void. Leave out --{name}, or name another file to begin a new state"
            )
    return state


def write_alarm(path: Path, state: PartitionAlarm) -> None:
    """Write the state of an alarm. The file is replaced at once, so a process that dies leaves the old one.

    Raises:
        OSError: The file cannot be written.
    """
    write_json(path, state.to_json())


def _calibration_sums(cells_3C: npt.NDArray[np.float64]) -> CalibrationSums:
    """Return counts, confidences and correct ones as calibration sums, without scores."""
    cells = CalibrationSums.zero().cells.copy()
    cells[:3] = cells_3C
    cells[3:] = np.where(cells[0] > 0, np.nan, 0.0)
    return CalibrationSums(cells)


def _hash(first: dict[str, npt.NDArray[np.float64]]) -> str:
    """Return a hash of the counts of right and wrong labels by version and cell."""
    digest = hashlib.sha256()
    for version, cells in sorted(first.items()):
        digest.update(f"{version}\n".encode() + cells[[0, 2]].astype("<i8").tobytes())
    return digest.hexdigest()
