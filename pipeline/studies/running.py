"""Runs, each once: DVC's graph in a workspace of its own, over the checkout's cache; what is done is kept."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pipeline import data, stages
from pipeline.flows import workspace
from pipeline.studies.expansion import Run
from pipeline.studies.keys import key_of
from trueodds.errors import UserError
from trueodds.files import read_json, write_json
from trueodds.inputs import SERVED
from trueodds.processes import binding
from trueodds.processes.progress import bar

FOLDER = Path(".run") / "studies"
RUN, LOGITS, EPOCHS, LOG = "run.json", "logits.npz", "epochs.csv", "log.txt"
LAST = 8
"""Lines of a failed run's log that are shown."""


class RunError(UserError, RuntimeError):
    """A run of a study that ended without logits."""


@dataclass(frozen=True)
class Place:
    """Where a run's logits lie, or will."""

    run: Run
    key: str
    folder: Path

    @property
    def is_done(self) -> bool:
        return (self.folder / RUN).is_file()

    def record(self) -> dict[str, Any]:
        """What was noted of a run that is done: its seconds, the commit, its settings."""
        record: dict[str, Any] = read_json(self.folder / RUN)
        return record


@dataclass(frozen=True)
class Estimate:
    """done, of runs; seconds that the others will take, None where nothing like them was ever run."""

    runs: int
    done: int
    seconds: float | None


def places(home: Path, runs: Sequence[Run]) -> list[Place]:
    """Of the runs, in their order; raises ConfigError for settings that no run can have, before anything has run."""
    keys = [key_of(run.params) for run in runs]
    return [Place(run, key, home / FOLDER / key) for run, key in zip(runs, keys, strict=True)]


def estimate(home: Path, of: Sequence[Place]) -> Estimate:
    """How long the runs that are left will take, by the median of those with the same net, data set and recipe, else of
    all that were ever run here.
    """
    records = [read_json(path) for path in sorted((home / FOLDER).glob(f"*/{RUN}"))]
    left = [place for place in of if not place.is_done]
    seconds = 0.0
    for place in left:
        like = [r["seconds"] for r in records if r["like"] == _like(place.run)] or [r["seconds"] for r in records]
        if not like:
            return Estimate(len(of), len(of) - len(left), None)
        seconds += median(like)
    return Estimate(len(of), len(of) - len(left), seconds)


def run_all(home: Path, of: Sequence[Place]) -> dict[str, str]:
    """Runs what is left, one after another; returns the message of each run that failed, by its key.

    A run that was killed goes on from its checkpoint the next time.
    """
    failed: dict[str, str] = {}
    with bar(len(of), "study", "run", done=sum(place.is_done for place in of)) as shown:
        for place in of:
            if place.is_done:
                continue
            shown.set_postfix_str(place.run.name)
            try:
                _run(home, place)
            except UserError as error:
                failed[place.key] = str(error)
            shown.update()
    return failed


def _run(home: Path, place: Place) -> None:
    log = home / FOLDER / f"{place.key}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with log.open("w", encoding="utf-8") as file:

        def say(words: str) -> None:
            print(words, file=file, flush=True)

        with workspace.opened(home, f"study-{place.key}", place.run.overrides, say) as work:
            served = data.kind_of(place.run.params.data) in SERVED
            command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", *([] if served else ["evaluate"])]
            process = subprocess.Popen(
                binding.command(command), cwd=work.folder, env=work.environment(), stdout=file, stderr=file
            )
            try:
                status = process.wait()
            except KeyboardInterrupt:  # it had the Ctrl-C too, and ends in order
                process.wait()
                raise KeyboardInterrupt("the next call goes on from the last checkpoint") from None
            if status:
                raise RunError(f"{place.run.name}: dvc repro ended with exit status {status}\n{_last_lines(log)}")
            seconds = round(time.monotonic() - started, 1)
            _keep(work.folder, place, {"seconds": seconds, "commit": work.commit, "like": _like(place.run)}, log)
            if work.commit is not None and served:  # DVC saves what has all outputs of the graph
                work.save_experiment(f"study-{place.key}")
            work.remove()


def _keep(work: Path, place: Place, record: dict[str, Any], log: Path) -> None:
    """The logits and what belongs to them, whole or not at all."""
    settings = {"name": place.run.name, "settings": place.run.params.model_dump(mode="json")}
    with tempfile.TemporaryDirectory(prefix=".aside-", dir=place.folder.parent) as aside:
        whole = Path(aside) / "run"
        whole.mkdir()
        shutil.copyfile(work / stages.LOGITS, whole / LOGITS)
        shutil.copyfile(work / stages.MODEL / EPOCHS, whole / EPOCHS)
        log.replace(whole / LOG)
        write_json(whole / RUN, {**record, **settings})
        shutil.rmtree(place.folder, ignore_errors=True)
        whole.rename(place.folder)


def _last_lines(log: Path) -> str:
    lines = [
        line.rstrip() for line in log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").split("\n")
    ]
    return "\n".join([line for line in lines if line][-LAST:])


def _like(run: Run) -> list[Any]:
    """What a run's time depends on most."""
    data, training = run.params.data, run.params.training
    return [data.dataset, data.train_size, training.recipe, training.net, training.width, training.epochs]
