"""Carries out a run of a study in this process, without DVC, git and a checkout of its own.

Small nets on a GPU take seconds, and DVC's graph costs ten seconds of processor time a run. A machine with a GPU may
also have neither git nor DVC. The run's key, seeds and numbers are those of `pipeline.studies.running.run_one`. What is
missing is DVC's cache of trained nets and the experiment that `dvc exp show` lists. A run thus trains its net, even if
another run has the same one.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from pipeline import stages
from pipeline.flows.checkout import RUNS, take_data
from pipeline.flows.workspace import FOLDERS
from pipeline.studies import duration, running
from pipeline.studies.machine import commit_of
from pipeline.studies.runs import Place
from trueodds.files import read_json


def run_here(home: Path, place: Place) -> None:
    """Carry out one run in this process. If it was stopped, it continues from its last checkpoint.

    The working folder of the process changes during the run, so no other thread may use relative paths.

    Args:
        home: The checkout, or any folder with the run's data.
        place: The run.

    Raises:
        UserError: The data cannot be read, or the net cannot be trained.
    """
    home = home.resolve()
    log = (home / place.folder).with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    attempts = duration.Attempts(log.with_suffix(".attempts.json"), log)
    work = home / RUNS / f"here-{place.key}"
    work.mkdir(parents=True, exist_ok=True)
    params = place.run.params
    if moved := take_data(home, work, params.data.path):
        params = params.model_copy(update={"data": params.data.model_copy(update=moved)})
    with running.count_time(attempts), _log_to(log), _absolute_folders(home), chdir(work):
        stages.fetch(params)
        stages.train(params)
        if params.evaluation.shift:
            stages.shift(params)
    record = running.record_of(place, attempts.seconds(), read_json(work / stages.DATA / "card.json"), *commit_of(home))
    running.keep_files(work, place, record, log)
    log.with_suffix(".attempts.json").unlink()
    shutil.rmtree(work)


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Append the messages of `pipeline` to a file inside the block."""
    logger = logging.getLogger("pipeline")
    handler = logging.FileHandler(path, encoding="utf-8")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


@contextmanager
def _absolute_folders(home: Path) -> Iterator[None]:
    """Make the folders that variables name, and their defaults, absolute inside the block."""
    before = {name: value for name in FOLDERS if (value := os.environ.get(name))}
    named = {name: before.get(name, default) for name, default in FOLDERS.items()}
    os.environ.update({name: str(home / path) for name, path in named.items() if path})
    try:
        yield
    finally:
        for name in FOLDERS:
            os.environ.pop(name, None)
        os.environ.update(before)
