"""DVC's default remote, where one is set: a run takes from it what others have made, and gives to it what it made.

    python -m pipeline.flows.remote take           the entries of the run cache that only the remote has
    python -m pipeline.flows.remote repro STAGE    dvc repro -s STAGE, after what the run cache knows of it was fetched
    python -m pipeline.flows.remote give           the outputs of the stages here, then their entries in the run cache

`dvc repro --pull` and `dvc push --run-cache` copy every entry of every run each time, a request for each, the former at
each stage: of 700 entries, all there already, 5 s on a bucket of the same machine. Here what is there is asked for a
thousand at once, and only what is missing is copied: half a second.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.flows import child

if TYPE_CHECKING:
    from pipeline.flows.workspace import Workspace

TAKE_SECONDS, GIVE_SECONDS = 300.0, 6 * 3600.0
"""After so long without an end the remote is taken for one that cannot be reached."""
_ENTRY = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}/[0-9a-f]{64}")

Say = Callable[[str], None]


class RemoteError(RuntimeError):
    """Something was not copied."""


def name_of(folder: Path) -> str | None:
    """The default remote (core.remote) of a DVC repository, from any of its settings; None where there is none."""
    from dvc.config import Config

    name = Config(dvc_dir=str(folder / ".dvc"))["core"].get("remote")
    return None if name is None else str(name)


def command(*words: str) -> list[str]:
    """This module as a process in the workspace, for DVC is not made for threads."""
    return [sys.executable, "-m", "pipeline.flows.remote", *words]


def exchange(place: Workspace, verb: str, say: Say, seconds: float) -> str | None:
    """`take` or `give` in a workspace; why it did not come to its end, None where it did."""
    last: list[str] = []

    def line(text: str) -> None:
        say(text)
        last[:] = [text]

    try:
        status = child.run(command(verb), place.folder, place.environment(), line, seconds)
    except child.StageTimeoutError:
        return f"no end after {seconds:g} s"
    return (last or [f"exit status {status}"])[-1] if status else None


def take(folder: Path) -> int:
    """Copies the run cache's entries that only the remote has, not their data; returns the number of entries."""
    from dvc.repo import Repo

    with Repo(str(folder)) as repo:
        theirs = repo.cloud.get_remote_odb(None, "fetch", hash_name="md5-dos2unix")
        ours = repo.cache.legacy
        return _copy(theirs, ours, sorted(_entries(theirs) - _entries(ours)))


def fetch(folder: Path, stage: str) -> None:
    """The outputs of a stage that is not up to date, where the run cache knows them: from the remote into the cache."""
    from dvc.repo import Repo, lock_repo
    from dvc.stage.cache import RunCacheNotFoundError

    with Repo(str(folder), _wait_for_lock=True) as repo, lock_repo(repo):
        (node,) = repo.stage.collect(stage)
        if node.changed():
            try:
                repo.stage_cache.restore(node, pull=True)
            except RunCacheNotFoundError:
                return  # nobody has made it yet


def give(folder: Path) -> tuple[int, int]:
    """Copies the outputs of the stages to the remote, then their entries: whoever finds one finds its data.

    Returns:
        The numbers of files and of entries that were not there.

    Raises:
        RemoteError: a file was not copied; then no entry is.
    """
    from dvc.repo import Repo

    with Repo(str(folder)) as repo:
        theirs, ours = repo.cloud.get_remote_odb(None, "push", hash_name="md5-dos2unix"), repo.cache.legacy
        own = _own_entries(repo)
        files = 0
        for objects in repo.stage_cache.get_used_objs([entry.split("/")[1:] for entry in own]).values():
            result = repo.cloud.push(objects)
            files += len(result.transferred)
            if result.failed:
                raise RemoteError(f"{len(result.failed)} of {len(objects)} files were not copied")
        return files, _copy(ours, theirs, sorted(own - _entries(theirs)))


def _own_entries(repo: Any) -> set[str]:
    """Those of the stages as they stand in the workspace."""
    from dvc.stage.cache import _can_hash, _get_stage_hash

    keys = [_get_stage_hash(stage) for stage in repo.index.stages if _can_hash(stage)]
    folders = [Path(repo.stage_cache.cache_dir, key[:2], key) for key in keys]
    names = [f"{at.parent.name}/{at.name}/{file.name}" for at in folders if at.is_dir() for file in at.iterdir()]
    return {name for name in names if _ENTRY.fullmatch(name)}


def _entries(database: Any) -> set[str]:
    """Names in the run cache that lies beside a database of objects."""
    files, runs = database.fs, database.fs.join(database.path, "runs")
    if not files.exists(runs):
        return set()
    names = ("/".join(files.parts(path)[-3:]) for path in files.find(runs))
    return {name for name in names if _ENTRY.fullmatch(name)}


def _copy(source: Any, target: Any, names: list[str]) -> int:
    from dvc.fs import generic

    def paths(database: Any) -> list[str]:
        return [database.fs.join(database.path, "runs", *name.split("/")) for name in names]

    if names:
        generic.copy(source.fs, paths(source), target.fs, paths(target))
    return len(names)


def _repro(folder: Path, stage: str) -> int:
    from dvc.cli import main as dvc

    try:
        fetch(folder, stage)
    except Exception as error:  # botocore's, aiohttp's, the operating system's: the stage can be made here
        print(f"not taken from the remote: {_words(error)}", flush=True)
    return int(dvc(["--wait-for-lock", "repro", "-s", stage]))


def _words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def main(verb: str, *stage: str) -> int:
    """Runs a verb in the current folder and returns the exit status; the last line says why it is not 0."""
    here = Path.cwd()
    if verb == "repro":
        return _repro(here, *stage)
    try:
        if verb == "take":
            print(f"{take(here)} new entries of the run cache")
        else:
            files, entries = give(here)
            print(f"{files} files and {entries} entries of the run cache that were not there")
    except Exception as error:  # as above
        print(_words(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
