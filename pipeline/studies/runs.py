"""The runs of a study: the product of its axes, each run's key, and the folder that holds its results."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from pipeline import config, stages
from pipeline.config import Params
from pipeline.data.sources import FORMS
from pipeline.studies.format import Leaves, Study, StudyError
from pipeline.training.plan import fingerprint
from pipeline.training.provenance import code_hashes
from trueodds import logits
from trueodds.files import read_json, sha256, write_json
from trueodds.logits import Logits

FOLDER = Path(".run") / "studies"
STUDIES = "TRUEODDS_STUDIES"
"""Environment variable: the folder of finished runs (FOLDER otherwise), so that machines share them."""
RUN, LOGITS, LOG = "run.json", "logits.npz", "log.txt"
"""Files of a finished run, beside EPOCHS and, of runs with epochs to look at closely (`curves`), EPOCH_ROWS."""
SHIFT = "shift"
"""Folder with the logits of corrupted test rows, of runs with a shift."""
HASHES = FOLDER / "hashes.json"
"""Hashes of own data. A file is read again only where its name, size or time has changed."""
FETCHING = "pipeline.data.sources"
"""The module whose imports are the code that makes the rows."""
LENGTH = 16
"""Hexadecimal digits of a key."""


@dataclass(frozen=True)
class Run:
    """One run of a study.

    varied: the leaves of the study's axes. overrides: all leaves that replace those of params.yaml. params: the whole
    settings. tuned: the overrides that tuning chose.
    """

    varied: Leaves
    overrides: Leaves
    params: Params
    tuned: Leaves = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The run's leaves in words, such as `method=ce seed=0`."""
        said = [f"{leaf}={value}" for leaf, value in {**self.varied, **self.tuned}.items() if value is not None]
        return " ".join(said) or "the one run"

    def matches(self, leaves: Leaves) -> bool:
        """Whether the run has all of these leaves."""
        return _contains(self.overrides, leaves)

    def with_leaves(self, leaves: Leaves, tuned: Leaves, params: Path) -> Run:
        """Replaces leaves of the run.

        Raises:
            ConfigError: settings that params.yaml refuses.
        """
        overrides = {**self.overrides, **leaves}
        varied = {leaf: overrides[leaf] for leaf in self.varied}
        return replace(self, varied=varied, overrides=overrides, params=config.load(params, overrides), tuned=tuned)


def expand(study: Study, params: Path = Path("params.yaml")) -> list[Run]:
    """Lists all runs, in the order of the file.

    Raises:
        StudyError: no run is left, two have the same settings, or the baseline is none of them.
        ConfigError: settings that params.yaml refuses.
    """
    runs: list[Run] = []
    seen: dict[str, Run] = {}
    for varied in _varied(study):
        overrides = {**study.hold, **varied}
        run = Run(varied, overrides, config.load(params, overrides))
        key = fingerprint(run.params.model_dump(mode="json"))
        if key in seen:
            raise StudyError(f"the runs {seen[key].name!r} and {run.name!r} have the same settings; take one out")
        seen[key] = run
        runs.append(run)
    if not runs:
        raise StudyError("no run is left after except; leave out less")
    if study.baseline and not any(run.matches(study.baseline) for run in runs):
        raise StudyError(f"no run has the baseline's {dict(study.baseline)}; name leaves of one of the runs")
    return runs


def _varied(study: Study) -> Iterator[dict[str, Any]]:
    axes = [
        [dict(zip(axis, value if len(axis) > 1 else [value], strict=True)) for value in values]
        for axis, values in zip(study.axes, study.vary.values(), strict=True)
    ]
    for chosen in product(*axes) if axes else ():
        varied = {leaf: value for part in chosen for leaf, value in part.items()}
        if not any(_contains({**study.hold, **varied}, left_out) for left_out in study.leave_out):
            yield varied
    yield from study.runs


def _contains(leaves: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(leaf in leaves and leaves[leaf] == value for leaf, value in wanted.items())


@dataclass(frozen=True)
class Place:
    """A run with its key and the folder of its results, which is whole or not there."""

    run: Run
    key: str
    folder: Path

    @property
    def is_done(self) -> bool:
        return (self.folder / RUN).is_file()

    def record(self) -> dict[str, Any]:
        """The record of a finished run: its seconds, commit, work and settings."""
        record: dict[str, Any] = read_json(self.folder / RUN)
        return record

    def logits(self) -> tuple[Logits, Logits]:
        """The validation and the test logits of a finished run."""
        return logits.read(self.folder / LOGITS, "val"), logits.read(self.folder / LOGITS, "test")


def folder_of(home: Path) -> Path:
    """The folder of finished runs, one folder each."""
    return Path(os.environ.get(STUDIES) or home / FOLDER)


def places(home: Path, runs: Sequence[Run]) -> list[Place]:
    """Finds each run's place, in the order of the runs.

    Raises:
        ConfigError: settings that no run can have. Nothing has run by then.
    """
    keys = [key_of(run.params) for run in runs]
    return [Place(run, key, folder_of(home) / key) for run, key in zip(runs, keys, strict=True)]


def key_of(params: Params) -> str:
    """Computes the key of a run's logits; identical on every machine.

    The key depends on the run's settings, the code that can change its numbers and its own data files. A comment, a
    docstring or a progress bar leaves the key as it is (`pipeline.training.provenance`). So does a data setting that is
    null. Evaluation settings do not count. They change no logits but those of corrupted rows.

    Raises:
        ConfigError, DataError: settings that no run can have.
    """
    with quiet():
        plan = stages.planned(params)
    tree = {
        "data": params.data.model_dump(mode="json", exclude={"path"}, exclude_none=True),
        "plan": plan,
        "rows": code_hashes([FETCHING]),
        "files": [[path.name, _digest(path)] for path in _own(params)],
    }
    return fingerprint(tree)[:LENGTH]


def _own(params: Params) -> list[Path]:
    """Lists the run's own data on this machine. The checksums of downloads are in the code."""
    data = params.data
    folders = [Path(data.path), *([Path(os.environ["TRUEODDS_DATA"])] if os.environ.get("TRUEODDS_DATA") else [])]
    named = [folder / f"{data.dataset}{form}" for folder in folders for form in FORMS]
    named += [Path(file) for file in (data.label_counts, data.embeddings, params.training.start) if file is not None]
    named += [folder / data.embeddings for folder in folders if data.embeddings is not None]
    return [path for path in dict.fromkeys(named) if path.exists()]


def _digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of a folder's files."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    stats = [(file, file.stat()) for file in files]
    seen = fingerprint([[file.as_posix(), stat.st_size, stat.st_mtime_ns] for file, stat in stats])
    known: dict[str, Any] = read_json(HASHES) if HASHES.is_file() else {}
    place = str(path.resolve())
    if known.get(place, [None])[0] != seen:
        whole = hashlib.sha256()
        for file in files:
            whole.update(f"{file.relative_to(path).as_posix()} {sha256(file)}\n".encode())
        HASHES.parent.mkdir(parents=True, exist_ok=True)
        known[place] = [seen, whole.hexdigest()]
        write_json(HASHES, known)
    return str(known[place][1])


@contextmanager
def quiet() -> Iterator[None]:
    """Suppresses the remarks on a plan. A study plans hundreds of runs, and each makes its remarks when it begins."""
    log = logging.getLogger("pipeline")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
