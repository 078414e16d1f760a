"""Exchange with DVC's default remote, if there is one: a run fetches outputs that others made and pushes its own.

    python -m pipeline.flows.remote take           fetch the entries of the run cache that only the remote has python -m
    pipeline.flows.remote repro STAGE    dvc repro -s STAGE, after fetching its outputs if the run cache has them python
    -m pipeline.flows.remote give           push the outputs of the stages, then their entries in the run cache

`dvc repro --pull` and `dvc push --run-cache` copy every entry of every run each time, with one request per entry, the
former for each stage. With 700 entries that were all present this took 5 s on a bucket of the same machine. This module
lists a thousand entries per request and copies only the missing ones: half a second.
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
"""Longest duration of an exchange. After it, the remote counts as unreachable."""
_ENTRY = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}/[0-9a-f]{64}")

Say = Callable[[str], None]


class RemoteError(RuntimeError):
    """A file was not copied."""


def name_of(folder: Path) -> str | None:
    """Return the default remote (core.remote) of a DVC repository from any of its settings, or None."""
    from dvc.config import Config

    name = Config(dvc_dir=str(folder / ".dvc"))["core"].get("remote")
    return None if name is None else str(name)


def command(*words: str) -> list[str]:
    """Return a command that runs this module as a process, because DVC is not thread-safe."""
    return [sys.executable, "-m", "pipeline.flows.remote", *words]


def exchange(place: Workspace, verb: str, say: Say, seconds: float) -> str | None:
    """Run `take` or `give` in a workspace. Returns the reason if it failed, otherwise None."""
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
    """Copy the run cache's entries that only the remote has, without their data, and return their number."""
    from dvc.repo import Repo

    with Repo(str(folder)) as repo:
        theirs = repo.cloud.get_remote_odb(None, "fetch", hash_name="md5-dos2unix")
        ours = repo.cache.legacy
        return _copy(theirs, ours, sorted(_entries(theirs) - _entries(ours)))


def fetch(folder: Path, stage: str) -> None:
    """Fetch the outputs of an outdated stage from the remote into the cache, if the run cache knows them."""
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
    """Copy the outputs of the stages to the remote, and then their entries, so that an entry always has its data.

    Returns:
        The numbers of files and of entries that the remote did not have.

    Raises:
        RemoteError: A file was not copied. In this case no entry is copied.
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
    """Return the entries of the stages as they are in the workspace."""
    from dvc.stage.cache import _can_hash, _get_stage_hash

    keys = [_get_stage_hash(stage) for stage in repo.index.stages if _can_hash(stage)]
    folders = [Path(repo.stage_cache.cache_dir, key[:2], key) for key in keys]
    names = [f"{at.parent.name}/{at.name}/{file.name}" for at in folders if at.is_dir() for file in at.iterdir()]
    return {name for name in names if _ENTRY.fullmatch(name)}


def _entries(database: Any) -> set[str]:
    """Return the names in the run cache beside a database of objects."""
    files, runs = database.fs, database.fs.join(database.path, "runs")
    if not files.exists(runs):
        return set()
    names = ("/".join(files.parts(path)[-3:]) for path in files.find(runs))
    return {name for name in names if _ENTRY.fullmatch(name)}


def _copy(source: Any, target: Any, names: list[str]) -> int:
    """Copy entries and return their number."""
    from dvc.fs import generic

    def paths(database: Any) -> list[str]:
        return [database.fs.join(database.path, "runs", *name.split("/")) for name in names]

    if names:
        generic.copy(source.fs, paths(source), target.fs, paths(target))
    return len(names)


def _repro(folder: Path, stage: str) -> int:
    """Fetch a stage's outputs if possible, then run the stage."""
    from dvc.cli import main as dvc

    try:
        fetch(folder, stage)
    except Exception as error:  # from botocore, aiohttp or the operating system; the stage can still run here
        print(f"not fetched from the remote: {_words(error)}", flush=True)
    return int(dvc(["--wait-for-lock", "repro", "-s", stage]))


def _words(error: BaseException) -> str:
    """Return an error as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def main(verb: str, *stage: str) -> int:
    """Run a verb in the current folder and return the exit status. The last line gives the reason if it is not 0."""
    here = Path.cwd()
    if verb == "repro":
        return _repro(here, *stage)
    try:
        if verb == "take":
            print(f"{take(here)} new entries of the run cache")
        else:
            files, entries = give(here)
            print(f"{files} new files and {entries} new entries of the run cache pushed")
    except Exception as error:  # from botocore, aiohttp or the operating system
        print(_words(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
