"""Workspaces: a folder for each run with the caller's current code and data, other parameters, and the same DVC cache.

    .runs/<run>/        a checkout of the caller's commit with its uncommitted changes (without git, a copy); it is a
                        repository of its own, which the caller's repository does not list
    .runs/<run>.json    its origin; written last, so that a half-made workspace is made again
    .runs/<run>.lock    held by the process that works in it; the kernel releases it when that process dies
    .run/workspace/     the permanent workspace of `make run`, `make demo` and `make serve`, without other parameters

The folder of a scheduled run is deleted when the run succeeds or is cancelled. Until then it holds the finished stages
and the checkpoint, so that a retry continues from there. A later run deletes it after KEEP_DAYS.
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
FOLDERS = {"TRUEODDS_DOWNLOADS": "downloads", "TRUEODDS_WEIGHTS": "weights", "TRUEODDS_DATA": ""}
"""Variables that hold folders, possibly relative to the checkout, and their defaults."""
LOCK_SECONDS = 30.0  # a dying process holds its lock for a moment

Say = Callable[[str], None]


@dataclass(frozen=True)
class Workspace:
    """Folder in which a run works. `commit` is its base commit, or None without git."""

    home: Path
    root: Path
    folder: Path
    commit: str | None
    untracked_files: tuple[str, ...]

    def environment(self) -> dict[str, str]:
        """Return the environment of the run's processes: this Python, the caller's data and downloads, no buffering."""
        named = {name: os.environ.get(name) or default for name, default in FOLDERS.items()}
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONUNBUFFERED": "1",
            **{name: str(self.home / path) for name, path in named.items() if path},
        }

    def save_experiment(self, name: str) -> None:
        """Save the run as a DVC experiment, so that `dvc exp show` in the caller's checkout lists it."""
        include = [word for path in self.untracked_files for word in ("--include-untracked", path)]
        command = [sys.executable, "-m", "dvc", "exp", "save", "--force", "--name", name, *include]
        with _git_lock(self.home):
            call(command, self.folder, self.environment())
            names = git(self.root, "for-each-ref", "--format=%(refname)", f"refs/exps/**/{name}").split()
            git(self.home, "fetch", "--quiet", "--no-tags", str(self.root), *(f"+{ref}:{ref}" for ref in names))

    def remove(self) -> None:
        """Delete the folder. The published bundle, the DVC cache and the experiment stay."""
        shutil.rmtree(self.root, ignore_errors=True)
        _marker(self.root).unlink(missing_ok=True)


@contextmanager
def open_workspace(
    home: Path, run: str, overrides: Mapping[str, Any], say: Say, *, patience: float = LOCK_SECONDS
) -> Iterator[Workspace]:
    """Create or reopen the run's workspace and lock it. It is kept if the block raises, for a retry.

    Args:
        home: The caller's checkout.
        run: The run's id, which names the folder.
        overrides: Parameters that replace those of params.yaml.
        say: Receives progress messages.
        patience: Seconds to wait for another process that works in it.

    Raises:
        WorkspaceError: Another process works in it, or git failed.
    """
    root = home / RUNS / run
    with _lock(root, "an abandoned run still works in it. Stop that run, then retry", patience):
        if _marker(root).is_file():
            fields = read_json(_marker(root))
            workspace = Workspace(home, root, Path(fields["folder"]), fields["commit"], tuple(fields["untracked"]))
            say(f"continuing in {root}, which an earlier attempt left")
        else:
            shutil.rmtree(root, ignore_errors=True)
            workspace = _fill(home, root, overrides, say)
            made = {
                "folder": str(workspace.folder),
                "commit": workspace.commit,
                "untracked": [*workspace.untracked_files],
            }
            write_json(_marker(root), made)
        yield workspace


@contextmanager
def open_kept_workspace(home: Path, root: Path, say: Say) -> Iterator[Workspace]:
    """Lock the workspace at `root` and update it to the caller's current code, parameters and data.

    Its build outputs and checkpoint stay, so that stages which are up to date are skipped.

    Raises:
        WorkspaceError: Another process works in it, or git failed.
    """
    with _lock(root, "another make run, make demo or make serve works in it. Wait for its end, then try again"):
        try:
            workspace = _fill(home, root, {}, say)
        except WorkspaceError:  # incomplete, or left by a checkout at another place
            shutil.rmtree(root, ignore_errors=True)
            workspace = _fill(home, root, {}, say)
        yield workspace


def prune(home: Path, say: Say, was_cancelled: Callable[[str], bool], keep_days: float = KEEP_DAYS) -> None:
    """Delete workspaces of cancelled runs, and those of failed runs that nobody retried for `keep_days`."""
    for marker in sorted((home / RUNS).glob("*.json")):
        root, age_days = marker.with_suffix(""), (time.time() - marker.stat().st_mtime) / 86_400
        words = f"left by a run {age_days:.0f} days ago"
        if age_days < keep_days:
            if not was_cancelled(root.name):
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


def _fill(home: Path, root: Path, overrides: Mapping[str, Any], say: Say) -> Workspace:
    """Fill the workspace with the caller's code, data and parameters."""
    params = config.load(home / "params.yaml", overrides)
    with _git_lock(home):
        code = take_code(home, root, params.data.path)
    say(code.words)
    take_settings(home, code.folder, git=code.commit is not None)
    write_params(code.folder / "params.yaml", {**overrides, **take_data(home, code.folder, params.data.path)})
    return Workspace(home, root, code.folder, code.commit, code.untracked_files)


def write_params(path: Path, overrides: Mapping[str, Any]) -> None:
    """Replace parameters, or keys in them. Comments, quotes and order stay."""
    from ruamel.yaml import YAML

    if not overrides:
        return
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.representer.add_representer(type(None), lambda r, _: r.represent_scalar("tag:yaml.org,2002:null", "null"))

    def text(r: Any, value: str) -> Any:  # ruamel.yaml would drop the quotes of 'off'
        return (
            r.represent_str(value) if not difference(value) else r.represent_scalar("tag:yaml.org,2002:str", value, "'")
        )

    yaml.representer.add_representer(str, text)
    tree = yaml.load(path) or {}
    for name, value in overrides.items():
        leaf, _, option = name.partition(".")
        section = config.SECTION_OF[leaf]
        if tree.get(section) is None:  # an empty section: all defaults
            tree[section] = {}
        tree[section][leaf] = {**(tree[section].get(leaf) or {}), option: value} if option else value
    yaml.dump(tree, text_of := StringIO())
    write_text(path, text_of.getvalue())


@contextmanager
def _lock(root: Path, cure: str, patience: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock of a workspace."""
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
    """Return the file that describes the workspace."""
    return root.parent / f"{root.name}.json"


def _git_lock(home: Path) -> FileLock:
    """Return a lock for git in `home`. git fails if another git writes the same index or refs, so runs take turns."""
    (home / RUNS).mkdir(exist_ok=True)
    return FileLock(home / RUNS / ".git-lock", timeout=120)
