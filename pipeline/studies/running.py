"""Carries out a study: each run once, by DVC's graph in a workspace of its own. Finished runs are stored.

DVC provides the graph, the cache of trained nets, and the experiment under which a run is listed (`dvc exp save`).
DVC's own ways to run an experiment, `dvc exp run --temp` and `--queue`, are not used. Tests with DVC 3.67.1 on runs of
the digits showed:

- No retry in place. A killed run of the queue is "Failed", and its folder is deleted with the checkpoint. After a kill
  of `dvc exp run --temp` the next call creates a new folder, and training starts at its first epoch.
- No recovery. If its worker is killed, a run stays "Running" for ever and its training continues as an orphan. The next
  `dvc queue start` does not pick the run up again.
- No keys. An experiment is found by its name and belongs to one commit. The queue accepts the same settings twice. A
  run that comes entirely from the cache still costs ten seconds of processor time.
- Own data that git ignores are missing from the folder.
- `dvc queue start -j` limits the runs of one machine. Runs here take slots of Prefect's limit `gpu` on all machines.

In favour of the queue: it runs in parallel, `dvc queue logs` shows progress, and a change of wording trains no net
again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pipeline import data, stages
from pipeline.flows import child, workspace
from pipeline.flows.checkout import git
from pipeline.flows.workspace import Say
from pipeline.studies import duration, measuring, setting_choice
from pipeline.studies.format import Study
from pipeline.studies.kept_runs import KEY, KeptRuns
from pipeline.studies.machine import machine, processor
from pipeline.studies.runs import LOG, LOGITS, RUN, SHIFT, UNCOMMITTED, Place, Run, expand, folder_of, places
from pipeline.training.files import EPOCH_ROWS, EPOCHS
from trueodds.errors import UserError
from trueodds.files import copy, naming, read_json, write_json
from trueodds.inputs import SERVED
from trueodds.processes.progress import bar
from trueodds.texts import plural

WAIT_SECONDS = 2.0
TRAINED = "Running stage 'train'"
"""Line in DVC's log if a net is trained rather than taken from the cache."""
LAST = 8
"""Number of lines of a failed run's log that are shown."""
CHANGED = ("status", "--porcelain", "--", "*.py", ":(exclude)tests")
"""Git's command that lists the source files of a checkout that differ from its commit."""


Make = Callable[[Path, Place], None]
"""Function that carries out one run."""
RunAll = Callable[[Path, Sequence[Place]], dict[str, str]]
"""Function that carries out the runs at these places and returns the message of each failed run, by its key."""


class RunError(UserError, RuntimeError):
    """A run of a study ended without logits."""


class FailedRunsError(UserError, RuntimeError):
    """Some runs of a study ended without logits. The other runs are in its table."""


@dataclass(frozen=True)
class Estimate:
    """Number of runs, of finished runs, and of runs whose time is unknown, with the seconds of all others."""

    runs: int
    n_done: int
    seconds: float
    unknown: int


@dataclass(frozen=True)
class StudyOutcome:
    """The runs of a carried out study, a line for each choice of tuning, and the message of each failed run."""

    places: tuple[Place, ...]
    tuning: tuple[str, ...]
    failures: tuple[str, ...]

    def check(self) -> None:
        """Raise FailedRunsError if any run failed."""
        if self.failures:
            problems = "\n".join(self.failures)
            raise FailedRunsError(f"{plural(len(self.failures), 'run')} of {len(self.places)} failed:\n{problems}")


def carry_out(
    study: Study,
    params: Path,
    home: Path,
    say: Callable[[str], None],
    run: RunAll | None = None,
    kept_runs: KeptRuns | None = None,
) -> StudyOutcome:
    """Tune a study, then carry out its missing runs.

    Args:
        study: The study.
        params: The file params.yaml.
        home: The checkout.
        say: Receives progress messages.
        run: Replaces `run_all`.
        kept_runs: Folder of kept runs. Runs that it has are done, and it keeps those that finish.

    Raises:
        ConfigError: Settings are not possible.
        StudyError: No run of a tuning step could be measured, or a kept run cannot be used.
    """
    run = run or partial(run_all, kept_runs=kept_runs)
    find = places if kept_runs is None else kept_runs.places
    failed: dict[str, str] = {}
    tuned: list[str] = []

    def run_missing(of: Sequence[Run]) -> list[Place]:
        whole = find(home, of)
        failed.update(run(home, whole))
        if kept_runs is None:
            return whole
        for place in whole:
            _keep_file(kept_runs, place, failed)
        return find(home, of)

    def measure(trials: Sequence[Run]) -> list[Mapping[str, Any] | None]:
        assert study.choose is not None
        tried = run_missing(trials)
        rows = {row[measuring.KEY]: row for row in measuring.rows_of(tried, [study.choose.calibrator])}
        return [rows.get(place.key) for place in tried]

    def note(line: str) -> None:
        tuned.append(line)
        say(line)

    untuned = expand(study, params)
    every = find(
        home, [*untuned, *setting_choice.trials(study, untuned, params)]
    )  # refuses bad settings before hours of tuning
    if kept_runs is not None:
        kept_runs.check_writable(every)
    whole = run_missing(setting_choice.tune(study, untuned, params, measure, note))
    return StudyOutcome(tuple(whole), tuple(tuned), tuple(failed.values()))


def estimate(home: Path, of: Sequence[Place]) -> Estimate:
    """Estimate how long the missing runs will take, from the work and times of the runs finished here.

    Kept runs of another processor or GPU do not count.
    """
    records = [read_json(path) for path in sorted(folder_of(home).glob(f"*/{RUN}"))]
    records = [one for one in records if KEY not in one or _is_of_here((one.get("machine") or {}).get("processor"))]
    left = [place.run.params for place in of if not place.is_done]
    seconds = [duration.seconds_of(params, records) for params in left]
    known = [value for value in seconds if value is not None]
    return Estimate(len(of), len(of) - len(left), sum(known), len(left) - len(known))


def _is_of_here(name: str | None) -> bool:
    """Return whether a run's processor or GPU is that of this machine. To ask for the GPU loads torch: seconds."""
    return name == processor() or name == processor("auto")


def run_all(
    home: Path, of: Sequence[Place], make: Make | None = None, kept_runs: KeptRuns | None = None
) -> dict[str, str]:
    """Carry out the missing runs one after another and return the message of each failed run, by its key.

    A killed run continues from its checkpoint the next time. Several processes may do this at the same time, on one
    machine or on many that share the folder of finished runs. Each takes runs that no other process works on, and in
    the end waits for those of the others. `make` replaces `run_one`. `kept_runs` keeps each run when it is finished.
    """
    failed: dict[str, str] = {}
    left = [place for place in of if not place.is_done]
    with bar(len(of), "study", "run", done=len(of) - len(left)) as shown:
        while left:
            busy = []
            for place in left:
                shown.set_postfix_str(place.run.name)
                with _claim(place) as mine:
                    if not mine:
                        busy.append(place)
                        continue
                    if not place.is_done:
                        try:
                            (make or run_one)(home, place)
                        except UserError as error:
                            failed[place.key] = str(error)
                    if kept_runs is not None:
                        _keep_file(kept_runs, place, failed)
                shown.update()
            if len(busy) == len(left):
                time.sleep(WAIT_SECONDS)
            left = busy
    return failed


def _keep_file(kept_runs: KeptRuns, place: Place, failures: dict[str, str]) -> None:
    """Keep a run if it is finished. If that is not possible, note why: the other runs go on."""
    try:
        kept_runs.keep(place)
    except UserError as error:
        failures[place.key] = str(error)


@contextmanager
def _claim(place: Place) -> Iterator[bool]:
    """Claim a run. Yields False if another process works on it. The kernel releases a claim when its process dies."""
    place.folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(place.folder.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def run_one(home: Path, place: Place, say: Say | None = None) -> None:
    """Carry out one run in its workspace.

    Its seconds are those of all attempts together. They are unknown if DVC's cache had the net.

    Args:
        home: The checkout.
        place: The run.
        say: Receives the lines of its log.

    Raises:
        RunError: The graph failed. The message ends with the last lines of the log.
        WorkspaceError: Its workspace is in use, or git failed.
    """
    log = place.folder.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    attempts = duration.Attempts(place.folder.with_suffix(".attempts.json"), log)
    with count_time(attempts), log.open("a", encoding="utf-8") as file:

        def line(words: str) -> None:
            with naming(log):
                print(words, file=file, flush=True)
            if say is not None:
                say(words)

        with workspace.open_workspace(home, f"study-{place.key}", place.run.overrides, line) as work:
            served = data.kind_of(place.run.params.data) in SERVED
            command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", *([] if served else ["evaluate"])]
            try:
                status = child.run(command, work.folder, work.environment(), line)
            except KeyboardInterrupt:
                raise KeyboardInterrupt("the next call continues from the last checkpoint") from None
            if status:
                raise RunError(f"{place.run.name}: dvc repro ended with exit status {status}\n{_last_lines(log)}")
            trained = TRAINED in log.read_text(encoding="utf-8", errors="replace")
            card = read_json(work.folder / stages.DATA / "card.json")
            changed = work.commit is not None and bool(git(work.folder, *CHANGED))
            record = record_of(place, attempts.seconds() if trained else None, card, work.commit, changed)
            keep_files(work.folder, place, record, log)
            place.folder.with_suffix(".attempts.json").unlink()
            if work.commit is not None and served:  # DVC can only save a run that has all outputs of the graph
                work.save_experiment(f"study-{place.key}")
            work.remove()


def record_of(
    place: Place, seconds: float | None, card: dict[str, Any], commit: str | None, has_changes: bool
) -> dict[str, Any]:
    """Return the record of a run that was made on this machine, as `Place.record` reads it.

    Args:
        place: The run.
        seconds: Seconds of all attempts; None if the net was not trained.
        card: The card of its data set.
        commit: Commit of the code, if it is known.
        has_changes: Whether source files differ from the commit.
    """
    return {
        "seconds": None if seconds is None else round(seconds, 3),
        "commit": commit,
        UNCOMMITTED: has_changes,
        "machine": machine(place.run.params.training.device),
        "work": duration.to_record(place.run.params, card),
    }


@contextmanager
def count_time(attempts: duration.Attempts) -> Iterator[None]:
    """Record the time of an attempt that fails or is stopped."""
    try:
        yield
    except BaseException:
        attempts.stop()
        raise


def keep_files(work: Path, place: Place, record: dict[str, Any], log: Path) -> None:
    """Store the logits and the files that belong to them, all or none."""
    settings = {"name": place.run.name, "settings": place.run.params.model_dump(mode="json")}
    parent = place.folder.parent
    with tempfile.TemporaryDirectory(prefix=".aside-", dir=parent) as aside, naming(place.folder, Path(aside)):
        whole = Path(aside) / "run"
        whole.mkdir()
        copy(work / stages.LOGITS, whole / LOGITS)
        copy(work / stages.MODEL / EPOCHS, whole / EPOCHS)
        if place.run.params.training.curves:
            copy(work / stages.MODEL / EPOCH_ROWS, whole / EPOCH_ROWS)
        if place.run.params.evaluation.shift:
            shutil.copytree(work / stages.SHIFT, whole / SHIFT)
        log.replace(whole / LOG)
        write_json(whole / RUN, {**record, **settings})
        shutil.rmtree(place.folder, ignore_errors=True)
        whole.rename(place.folder)


def _last_lines(log: Path) -> str:
    """Return the last lines of a log."""
    lines = [
        line.rstrip() for line in log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").split("\n")
    ]
    return "\n".join([line for line in lines if line][-LAST:])
