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
import traceback
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path

from pipeline import stages
from pipeline.config import Params
from pipeline.flows.checkout import RUNS, git, take_data
from pipeline.flows.workspace import FOLDERS
from pipeline.studies import duration, running
from pipeline.studies.machine import COMMIT, commit_of
from pipeline.studies.runs import Place
from trueodds.errors import UserError
from trueodds.files import read_json

FILES = {"data": ("embeddings", "label_counts"), "training": ("start", "model")}
"""Parameters of each section that may name a file by a path relative to the checkout."""


def run_here(home: Path, place: Place) -> None:
    """Carry out one run in this process. If it was stopped, it continues from its last checkpoint.

    The working folder of the process changes during the run, so no other thread may use relative paths.

    Args:
        home: The checkout, or any folder with the run's data.
        place: The run.

    Raises:
        RunError: The data cannot be read, or the net cannot be trained. Other errors than the user's also end only this
            run, because `running.run_one` ends only one process by them. The traceback is in the log.
        ConfigError: The variable COMMIT has no commit.
    """
    home = home.resolve()
    code = _code_of(home, os.environ.get(COMMIT))
    log = (home / place.folder).with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    attempts = duration.Attempts(log.with_suffix(".attempts.json"), log)
    work = home / RUNS / f"here-{place.key}"
    work.mkdir(parents=True, exist_ok=True)
    params = _absolute_files(home, place.run.params)
    if moved := take_data(home, work, params.data.path):
        params = params.model_copy(update={"data": params.data.model_copy(update=moved)})
    with _failing(place, log), running.count_time(attempts), _log_to(log), _absolute_folders(home), chdir(work):
        stages.fetch(params)
        stages.train(params)
        if params.evaluation.shift:
            stages.shift(params)
    record = running.record_of(place, attempts.seconds(), read_json(work / stages.DATA / "card.json"), *code)
    running.keep_files(work, place, record, log)
    log.with_suffix(".attempts.json").unlink()
    shutil.rmtree(work)


@cache
def _code_of(home: Path, variable: str | None) -> tuple[str | None, bool]:
    """Return the code's commit at the first run of this process, and whether source files differ from it.

    The process has loaded its code by then, so later commits do not count. `variable` is the value of COMMIT.
    """
    commit, changed = commit_of(home)
    if variable or commit is None:
        return commit, changed
    return commit, bool(git(home, *running.CHANGED))


@contextmanager
def _failing(place: Place, log: Path) -> Iterator[None]:
    """Raise each error inside the block as a RunError that names the run. Write the traceback of an unexpected one."""
    try:
        yield
    except UserError as error:
        raise running.RunError(f"{place.run.name}: {error}") from None
    except Exception as error:
        with log.open("a", encoding="utf-8") as file:
            traceback.print_exc(file=file)
        raise running.RunError(f"{place.run.name}: {type(error).__name__}: {error}; its traceback: {log}") from error


def _absolute_files(home: Path, params: Params) -> Params:
    """Make the paths of files that lie in the checkout absolute."""
    sections = {}
    for name, keys in FILES.items():
        section = getattr(params, name)
        named = {key: home / value for key in keys if (value := getattr(section, key)) is not None}
        # A name without a suffix, such as cifar10h, names no file.
        update = {key: str(path) for key, path in named.items() if path.suffix and path.is_file()}
        sections[name] = section.model_copy(update=update)
    return params.model_copy(update=sections)


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
