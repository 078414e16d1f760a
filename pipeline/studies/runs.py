"""The runs of a study: the product of its axes, each run's key, and the folder of its results."""

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
from trueodds.processes import extensions

FOLDER = Path(".run") / "studies"
STUDIES = "TRUEODDS_STUDIES"
"""Environment variable with the folder of finished runs, which machines can share. Default: FOLDER."""
RUN, LOGITS, LOG = "run.json", "logits.npz", "log.txt"
"""Files of a finished run. It also has EPOCHS and, if `curves` lists epochs, EPOCH_ROWS."""
UNCOMMITTED = "uncommitted"
"""Entry of RUN: whether source files differed from those of the run's commit."""
SHIFT = "shift"
"""Folder with the logits of corrupted test rows, for runs with a shift."""
HASHES = FOLDER / "hashes.json"
"""File with the hashes of own data. Data are hashed again only if a name, size or time has changed."""
FETCHING = "pipeline.data.sources"
"""Module whose imports are the code that makes the rows."""
CODE = ("code", "code_sha256")
"""Entries of a plan that depend on the source code."""
LENGTH = 16
"""Number of hexadecimal digits of a key."""


@dataclass(frozen=True)
class Run:
    """One run of a study.

    Attributes:
        axis_leaves: The parameters of the study's axes.
        overrides: All parameters that override params.yaml.
        params: The complete settings.
        tuned_leaves: The overrides that tuning chose.
    """

    axis_leaves: Leaves
    overrides: Leaves
    params: Params
    tuned_leaves: Leaves = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the run's parameters in words, such as `method=ce seed=0`."""
        said = [
            f"{leaf}={value}" for leaf, value in {**self.axis_leaves, **self.tuned_leaves}.items() if value is not None
        ]
        return " ".join(said) or "the single run"

    def matches(self, leaves: Leaves) -> bool:
        """Return whether the run has all of these parameters."""
        return _contains(self.overrides, leaves)

    def with_leaves(self, leaves: Leaves, tuned_leaves: Leaves, params: Path) -> Run:
        """Return the run with some parameters replaced.

        Raises:
            ConfigError: The settings are not valid in params.yaml.
        """
        overrides = {**self.overrides, **leaves}
        axis_leaves = {leaf: overrides[leaf] for leaf in self.axis_leaves}
        return replace(
            self,
            axis_leaves=axis_leaves,
            overrides=overrides,
            params=config.load(params, overrides),
            tuned_leaves=tuned_leaves,
        )


def expand(study: Study, params: Path = Path("params.yaml")) -> list[Run]:
    """List all runs in the order of the file.

    Raises:
        StudyError: No run is left, two have the same settings, or the baseline is not one of them.
        ConfigError: Settings are not valid in params.yaml.
    """
    runs: list[Run] = []
    seen: dict[str, Run] = {}
    for axis_leaves in _axis_leaves(study):
        overrides = {**study.hold, **axis_leaves}
        run = Run(axis_leaves, overrides, config.load(params, overrides))
        key = fingerprint(run.params.model_dump(mode="json"))
        if key in seen:
            raise StudyError(f"the runs {seen[key].name!r} and {run.name!r} have the same settings; remove one")
        seen[key] = run
        runs.append(run)
    if not runs:
        raise StudyError("except leaves out every run; leave out fewer")
    if study.baseline and not any(run.matches(study.baseline) for run in runs):
        raise StudyError(f"no run has the baseline's {dict(study.baseline)}; give parameters of one of the runs")
    return runs


def _axis_leaves(study: Study) -> Iterator[dict[str, Any]]:
    """Yield the axis parameters of each run."""
    axes = [
        [dict(zip(axis, value if len(axis) > 1 else [value], strict=True)) for value in values]
        for axis, values in zip(study.axes, study.vary.values(), strict=True)
    ]
    for chosen in product(*axes) if axes else ():
        axis_leaves = {leaf: value for part in chosen for leaf, value in part.items()}
        if not any(_contains({**study.hold, **axis_leaves}, left_out) for left_out in study.leave_out):
            yield axis_leaves
    yield from study.runs


def _contains(leaves: Mapping[str, Any], part: Mapping[str, Any]) -> bool:
    """Return whether `leaves` contains all of `part`."""
    return all(leaf in leaves and leaves[leaf] == value for leaf, value in part.items())


@dataclass(frozen=True)
class Place:
    """A run with its key and the folder of its results, which is complete or does not exist.

    `other_code` says that another version of the code made the results, with equal settings and data.
    """

    run: Run
    key: str
    folder: Path
    other_code: bool = False

    @property
    def is_done(self) -> bool:
        """Return whether the run is finished."""
        return (self.folder / RUN).is_file()

    def record(self) -> dict[str, Any]:
        """Return the record of a finished run: its seconds, commit, work and settings."""
        record: dict[str, Any] = read_json(self.folder / RUN)
        return record

    def logits(self) -> tuple[Logits, Logits]:
        """Return the validation and the test logits of a finished run."""
        return logits.read(self.folder / LOGITS, "val"), logits.read(self.folder / LOGITS, "test")


def folder_of(home: Path) -> Path:
    """Return the folder of finished runs, which holds a folder for each."""
    return Path(os.environ.get(STUDIES) or home / FOLDER)


def places(home: Path, runs: Sequence[Run]) -> list[Place]:
    """Return each run's place, in the order of the runs.

    Raises:
        ConfigError: Settings are not possible. Nothing has run by then.
    """
    keys = [key_of(run.params) for run in runs]
    return [Place(run, key, folder_of(home) / key) for run, key in zip(runs, keys, strict=True)]


def key_of(params: Params) -> str:
    """Return the key of a run's logits, which is the same on every machine.

    The key depends on the run's settings, the code that can change its numbers, and its own data files. Comments,
    docstrings and progress bars do not change it (`pipeline.training.provenance`), nor does a data setting that is
    null. Evaluation settings do not count, because they change no logits except those of corrupted rows.

    Raises:
        ConfigError: Settings are not possible.
        DataError: The data set cannot be used.
    """
    registered = extensions.lookup("datasets", [params.data.dataset])
    users = [file for extension in registered for file in extension.files() if file.suffix == ".py"]
    rows = code_hashes([FETCHING], users) | {extension.title: extension.sha256() for extension in registered}
    return fingerprint({**_settings(params), "rows": rows})[:LENGTH]


def settings_key_of(params: Params) -> str:
    """Return the part of `key_of` that does not depend on this project's code: resolved settings and the run's data.

    Data are its own files, and the code of a data set that another distribution registers. Raises like `key_of`.
    """
    settings = _settings(params)
    plan = {name: value for name, value in settings["plan"].items() if name not in CODE}
    registered = extensions.lookup("datasets", [params.data.dataset])
    data = {"registered": [extension.sha256() for extension in registered]} if registered else {}
    return fingerprint({**settings, **data, "plan": plan})[:LENGTH]


def _settings(params: Params) -> dict[str, Any]:
    """Return the part of a key that is no code of the rows: data settings, the training's plan, and data files."""
    with quiet():
        plan = stages.make_plan(params)
    return {
        "data": params.data.model_dump(mode="json", exclude={"path"}, exclude_none=True),
        "plan": plan,
        "files": [[path.name, _digest(path)] for path in _own(params)],
    }


def _own(params: Params) -> list[Path]:
    """List the run's own data files on this machine. Downloads are covered by the checksums in the code."""
    data = params.data
    folders = [Path(data.path), *([Path(os.environ["TRUEODDS_DATA"])] if os.environ.get("TRUEODDS_DATA") else [])]
    named = [folder / f"{data.dataset}{form}" for folder in folders for form in FORMS]
    named += [Path(file) for file in (data.label_counts, data.embeddings, params.training.start) if file is not None]
    named += [folder / data.embeddings for folder in folders if data.embeddings is not None]
    return [path for path in dict.fromkeys(named) if path.exists()]


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of a folder's files."""
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
    """Suppress log messages about a plan. A study plans hundreds of runs, which repeat them later."""
    log = logging.getLogger("pipeline")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
