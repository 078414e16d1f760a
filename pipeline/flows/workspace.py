"""A folder of its own for a run: the caller's code and data as they are now, other parameters, the same DVC cache.

    .runs/<run>/        a checkout of the caller's commit with its uncommitted changes on top (no git: a copy);
                        a repository of its own, which the caller's does not list
    .runs/<run>.json    what it was made from; written last, so a half-made workspace is made again
    .runs/<run>.lock    held by the process that works in it; released by the kernel when that dies
    .run/workspace/     that of `make run`, `make demo` and `make serve`: never other parameters, and there for good

The folder of a scheduled run goes when the run has succeeded or was cancelled. Until then it holds the stages that are
done and the checkpoint, so a retry goes on from there; after KEEP_DAYS it is cleared away by a later run.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pipeline import config
from pipeline.flows.checkout import RUNS, WorkspaceError, call, git, take_code, take_data, take_settings
from trueodds.dialect import difference
from trueodds.files import read_json, write_json, write_text

KEEP_DAYS = 14
_FOLDERS = {"TRUEODDS_DOWNLOADS": "downloads", "TRUEODDS_WEIGHTS": "weights", "TRUEODDS_DATA": ""}
"""Variables that name folders, perhaps relative to the checkout, and their defaults."""
LOCK_SECONDS = 30.0  # a dying predecessor holds the lock for a moment

Say = Callable[[str], None]


@dataclass(frozen=True)
class Workspace:
    """Where a run works. `commit` is what it stands on; None without git."""

    home: Path
    root: Path
    folder: Path
    commit: str | None
    untracked: tuple[str, ...]

    def environment(self) -> dict[str, str]:
        """For the run's processes: this interpreter first, the caller's data and downloads, unbuffered and quiet."""
        named = {name: os.environ.get(name) or default for name, default in _FOLDERS.items()}
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONUNBUFFERED": "1",
            **{name: str(self.home / path) for name, path in named.items() if path},
        }

    def save_experiment(self, name: str) -> None:
        """`dvc exp save`: from then on `dvc exp show` in the caller's checkout lists the run."""
        include = [word for path in self.untracked for word in ("--include-untracked", path)]
        command = [sys.executable, "-m", "dvc", "exp", "save", "--force", "--name", name, *include]
        with _git_lock(self.home):
            call(command, self.folder, self.environment())
            names = git(self.root, "for-each-ref", "--format=%(refname)", f"refs/exps/**/{name}").split()
            git(self.home, "fetch", "--quiet", "--no-tags", str(self.root), *(f"+{ref}:{ref}" for ref in names))

    def remove(self) -> None:
        """Delete the folder; published bundle, DVC cache and experiment stay."""
        shutil.rmtree(self.root, ignore_errors=True)
        _marker(self.root).unlink(missing_ok=True)


@contextmanager
def opened(
    home: Path, run: str, overrides: Mapping[str, Any], say: Say, *, patience: float = LOCK_SECONDS
) -> Iterator[Workspace]:
    """The run's workspace, made or found again, and locked; kept if the block raises, for a retry.

    `patience`: seconds to wait for another process that works in it.

    Raises:
        WorkspaceError: another process works in it, or git refuses.
    """
    root = home / RUNS / run
    with _locked(root, "the run that was given up still works. Stop it, then retry", patience):
        if _marker(root).is_file():
            fields = read_json(_marker(root))
            workspace = Workspace(home, root, Path(fields["folder"]), fields["commit"], tuple(fields["untracked"]))
            say(f"going on in {root}, which an earlier attempt left")
        else:
            shutil.rmtree(root, ignore_errors=True)
            workspace = _filled(home, root, overrides, say)
            made = {"folder": str(workspace.folder), "commit": workspace.commit, "untracked": [*workspace.untracked]}
            write_json(_marker(root), made)
        yield workspace


@contextmanager
def kept(home: Path, root: Path, say: Say) -> Iterator[Workspace]:
    """The workspace at `root`, locked and brought up to the caller's code, parameters and data as they are now.

    What was built in it stays, and the checkpoint, so that stages which are up to date are skipped.

    Raises:
        WorkspaceError: another process works in it, or git refuses.
    """
    with _locked(root, "another make run, make demo or make serve builds in it. Wait for its end, then try again"):
        try:
            workspace = _filled(home, root, {}, say)
        except WorkspaceError:  # half made, or left by a checkout that lay elsewhere
            shutil.rmtree(root, ignore_errors=True)
            workspace = _filled(home, root, {}, say)
        yield workspace


def prune(home: Path, say: Say, cancelled: Callable[[str], bool], keep_days: float = KEEP_DAYS) -> None:
    """Clear away workspaces of cancelled runs, and those that failed runs left and nobody came back to."""
    for marker in sorted((home / RUNS).glob("*.json")):
        root, age_days = marker.with_suffix(""), (time.time() - marker.stat().st_mtime) / 86_400
        words = f"left by a run {age_days:.0f} days ago"
        if age_days < keep_days:
            if not cancelled(root.name):
                continue
            words = "its run was cancelled"
        lock = FileLock(f"{root}.lock")
        try:
            with lock.acquire(timeout=0):
                shutil.rmtree(root, ignore_errors=True)
                marker.unlink(missing_ok=True)
        except Timeout:
            continue
        Path(lock.lock_file).unlink(missing_ok=True)
        say(f"removed {root}: {words}")


def _filled(home: Path, root: Path, overrides: Mapping[str, Any], say: Say) -> Workspace:
    params = config.load(home / "params.yaml", overrides)
    with _git_lock(home):
        code = take_code(home, root, params.data.path)
    say(code.words)
    take_settings(home, code.folder, git=code.commit is not None)
    write_params(code.folder / "params.yaml", {**overrides, **take_data(home, code.folder, params.data.path)})
    return Workspace(home, root, code.folder, code.commit, code.untracked)


def write_params(path: Path, overrides: Mapping[str, Any]) -> None:
    """Replace leaves, or names in them; comments, quotes and order stay."""
    from ruamel.yaml import YAML

    if not overrides:
        return
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.representer.add_representer(type(None), lambda r, _: r.represent_scalar("tag:yaml.org,2002:null", "null"))

    def text(r: Any, value: str) -> Any:  # ruamel.yaml would leave the quotes away from 'off'
        return (
            r.represent_str(value) if not difference(value) else r.represent_scalar("tag:yaml.org,2002:str", value, "'")
        )

    yaml.representer.add_representer(str, text)
    tree = yaml.load(path) or {}
    for name, value in overrides.items():
        leaf, _, option = name.partition(".")
        section = config.SECTION_OF[leaf]
        if tree.get(section) is None:  # a section left empty: all defaults
            tree[section] = {}
        tree[section][leaf] = {**(tree[section].get(leaf) or {}), option: value} if option else value
    yaml.dump(tree, text_of := StringIO())
    write_text(path, text_of.getvalue())


@contextmanager
def _locked(root: Path, cure: str, patience: float = LOCK_SECONDS) -> Iterator[None]:
    root.parent.mkdir(exist_ok=True)
    lock = FileLock(f"{root}.lock")
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        raise WorkspaceError(f"{root} is in use by another process: {cure}") from None
    try:
        yield
    finally:
        lock.release()
        if not root.exists():
            with suppress(FileNotFoundError):
                Path(lock.lock_file).unlink()


def _marker(root: Path) -> Path:
    return root.parent / f"{root.name}.json"


def _git_lock(home: Path) -> FileLock:
    """git refuses where another git writes the same index or refs; runs that start together take turns instead."""
    (home / RUNS).mkdir(exist_ok=True)
    return FileLock(home / RUNS / ".git-lock", timeout=120)
