"""A folder of its own for a run: the caller's code and data as they are now, other parameters, the same DVC cache.

    .runs/<run>/        a `git worktree` of the caller's commit with its uncommitted changes on top (no git: a copy)
    .runs/<run>.json    what it was made from; written last, so a half-made workspace is made again
    .runs/<run>.lock    held by the process that works in it; released by the kernel when that dies

The folder goes when the run has succeeded. Until then it holds the stages that are done and the checkpoint, so a retry
goes on from there; after KEEP_DAYS it is cleared away by a later run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pipeline import config
from pipeline.config import ConfigError
from pipeline.errors import UserError
from pipeline.files import read_json, write_json

RUNS = ".runs"
KEEP_DAYS = 14
LOCK_SECONDS = 30.0  # a dying predecessor holds the lock for a moment
_NOT_COPIED = (".git", RUNS, ".prefect", "models", "downloads")
_IDENTITY = ("-c", "user.name=TrueOdds", "-c", "user.email=runs@trueodds.invalid")

Say = Callable[[str], None]


class WorkspaceError(UserError, RuntimeError):
    """The workspace cannot be made or used; the message says why and what to do."""


@dataclass(frozen=True)
class Workspace:
    """Where a run works. `commit` is what it stands on; None without git."""

    home: Path
    root: Path
    folder: Path
    commit: str | None
    untracked: tuple[str, ...]

    def environment(self) -> dict[str, str]:
        """For the run's processes: this interpreter first, the caller's downloads, unbuffered and quiet."""
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONUNBUFFERED": "1",
            "TRUEODDS_DOWNLOADS": os.environ.get("TRUEODDS_DOWNLOADS") or str(self.home / "downloads"),
        }

    def save_experiment(self, name: str) -> None:
        """`dvc exp save`: from then on `dvc exp show` in the caller's checkout lists the run."""
        include = [word for path in self.untracked for word in ("--include-untracked", path)]
        command = [sys.executable, "-m", "dvc", "exp", "save", "--force", "--name", name, *include]
        with _git_lock(self.home):
            _call(command, self.folder, self.environment())

    def remove(self) -> None:
        """Delete the folder; published bundle, DVC cache and experiment stay."""
        with _git_lock(self.home):
            _remove(self.home, self.root)
        _marker(self.root).unlink(missing_ok=True)


@contextmanager
def opened(home: Path, run: str, overrides: Mapping[str, Any], say: Say) -> Iterator[Workspace]:
    """The run's workspace, made or found again, and locked; kept if the block raises, for a retry.

    Raises:
        WorkspaceError: another process works in it, or git refuses.
    """
    root = home / RUNS / run
    root.parent.mkdir(exist_ok=True)
    lock = FileLock(f"{root}.lock")
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout:
        raise WorkspaceError(
            f"{root} is in use by another process: the run that was given up still works. Stop it, then retry"
        ) from None
    try:
        if _marker(root).is_file():
            fields = read_json(_marker(root))
            workspace = Workspace(home, root, Path(fields["folder"]), fields["commit"], tuple(fields["untracked"]))
            say(f"going on in {root}, which an earlier attempt left")
        else:
            workspace = _make(home, root, overrides, say)
        yield workspace
    finally:
        lock.release()
        if not root.exists():
            with suppress(FileNotFoundError):
                Path(lock.lock_file).unlink()


def prune(home: Path, say: Say, keep_days: float = KEEP_DAYS) -> None:
    """Clear away workspaces that failed runs left and nobody came back to."""
    for marker in sorted((home / RUNS).glob("*.json")):
        root, age_days = marker.with_suffix(""), (time.time() - marker.stat().st_mtime) / 86_400
        if age_days < keep_days:
            continue
        lock = FileLock(f"{root}.lock")
        try:
            with lock.acquire(timeout=0), _git_lock(home):
                _remove(home, root)
                marker.unlink(missing_ok=True)
        except Timeout:
            continue
        Path(lock.lock_file).unlink(missing_ok=True)
        say(f"removed {root}: left by a run {age_days:.0f} days ago")


def _make(home: Path, root: Path, overrides: Mapping[str, Any], say: Say) -> Workspace:
    params = config.load(home / "params.yaml", overrides)
    with _git_lock(home):
        _remove(home, root)
        workspace = _worktree(home, root, say) if _is_git(home) else _copy(home, root, params.data.path, say)
    folder = workspace.folder
    if (home / ".dvc" / "config.local").is_file():
        shutil.copy(home / ".dvc" / "config.local", folder / ".dvc")
    # autostage: DVC stages its lock file in the worktree's own index instead of advising to, five lines a stage.
    core = {"no_scm": True} if workspace.commit is None else {"autostage": True}
    _set_local(folder, {"cache": {"dir": str(_cache(home))}, "core": core})
    write_params(folder / "params.yaml", {**overrides, **_bring_data(home, folder, params.data.path)})
    made = {"folder": str(folder), "commit": workspace.commit, "untracked": list(workspace.untracked)}
    write_json(_marker(root), made)
    return workspace


def _worktree(home: Path, root: Path, say: Say) -> Workspace:
    """HEAD with the caller's uncommitted changes; nothing in the caller's checkout is written."""
    try:
        commit = _git(home, "rev-parse", "HEAD")
    except WorkspaceError:
        raise WorkspaceError(f"{home} has no commit yet; make one: git add -A && git commit -m start") from None
    # Asked first: of files that were only touched, `stash create` makes nothing and fails without a word.
    changed = _git(home, "status", "--porcelain", "--untracked-files=no")
    changes = _git(home, *_IDENTITY, "stash", "create") if changed else ""
    listed = _git(home, "ls-files", "-z", "-o", "--exclude-standard").split("\0")
    untracked = tuple(name for name in listed if name and not name.endswith("/"))  # with a slash: another repository
    _git(home, "worktree", "add", "--quiet", "--detach", str(root), changes or commit)
    if changes:
        _git(root, "reset", "--quiet", commit)
    folder = root / _git(home, "rev-parse", "--show-prefix")
    for name in untracked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(home / name, folder / name, follow_symlinks=False)
    taken = [*(["uncommitted changes"] if changes else []), *([f"{len(untracked)} new files"] if untracked else [])]
    say(f"worktree of {commit[:10]}{' with ' + ' and '.join(taken) if taken else ''}: {root}")
    return Workspace(home, root, folder, commit, untracked)


def _copy(home: Path, root: Path, data: str, say: Say) -> Workspace:
    with _repository(home) as repo:
        outs = {Path(out.fs_path) for out in repo.index.outs}
        ignored = repo.dvcignore

        def left_out(path: Path) -> bool:
            if path.is_relative_to(home / ".dvc"):  # which DVC's own ignore rules always hold
                return path.parent == home / ".dvc" and path.name in ("cache", "tmp", "config.local")
            ignores = ignored.is_ignored_dir if path.is_dir() else ignored.is_ignored_file
            if path == home / data or (path.parent == home and path.name in _NOT_COPIED):  # data are linked, later
                return True
            return path in outs or ignores(str(path))

        def skipped(folder: str, names: list[str]) -> set[str]:
            return {name for name in names if left_out(Path(folder, name))}

        shutil.copytree(home, root, ignore=skipped, symlinks=True)
    say(f"no git here: a copy of the code in {root}; the run is recorded in its card and in Prefect only")
    return Workspace(home, root, root, None, ())


def _bring_data(home: Path, folder: Path, path: str) -> dict[str, str]:
    """Hard-link (or symlink) the caller's own data, which git does not carry; DVC does not look through linked folders.

    Returns the parameter to replace: a path out of the checkout is made absolute.
    """
    source = (home / path).resolve()
    if source == home.resolve() or source in home.resolve().parents:
        raise ConfigError(
            f"path = {path!r} is the checkout itself or holds it; put your data into a folder of their own"
        )
    if Path(path).is_absolute() or not source.is_relative_to(home.resolve()):
        return {"path": str(source)} if source.exists() and not Path(path).is_absolute() else {}
    for file in [source] if source.is_file() else sorted(f for f in source.rglob("*") if f.is_file()):
        target = folder / path / file.relative_to(source) if source.is_dir() else folder / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(file)
            except OSError:  # another file system
                target.symlink_to(file)
    return {}


def write_params(path: Path, overrides: Mapping[str, Any]) -> None:
    """Replace leaves; comments, quotes and order stay."""
    from ruamel.yaml import YAML

    if not overrides:
        return
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.representer.add_representer(type(None), lambda r, _: r.represent_scalar("tag:yaml.org,2002:null", "null"))
    tree = yaml.load(path) or {}
    for leaf, value in overrides.items():
        section = config.SECTION_OF[leaf]
        if tree.get(section) is None:  # a section left empty: all defaults
            tree[section] = {}
        tree[section][leaf] = value
    yaml.dump(tree, path)


def _cache(home: Path) -> Path:
    """The DVC cache that `home` uses."""
    with _repository(home) as repo:
        return Path(repo.cache.local.path).parent.parent  # what DVC names is <cache>/files/md5


def _repository(home: Path) -> Any:
    """`home` for DVC, which has to be told where there is no git."""
    from dvc.repo import Repo

    return Repo(str(home), config=None if _is_git(home) else {"core": {"no_scm": True}})


def _set_local(folder: Path, settings: Mapping[str, Mapping[str, Any]]) -> None:
    from dvc.config import Config

    with Config(dvc_dir=str(folder / ".dvc")).edit("local") as local:
        for section, values in settings.items():
            local.setdefault(section, {}).update(values)


def _marker(root: Path) -> Path:
    return root.parent / f"{root.name}.json"


def _git_lock(home: Path) -> FileLock:
    """git refuses where another git writes the same index or refs; runs that start together take turns instead."""
    return FileLock(home / RUNS / ".git-lock", timeout=120)


def _is_git(home: Path) -> bool:
    return (
        shutil.which("git") is not None
        and subprocess.run(["git", "rev-parse", "--git-dir"], cwd=home, capture_output=True).returncode == 0
    )


def _remove(home: Path, root: Path) -> None:
    if root.exists():
        if (root / ".git").is_file():
            subprocess.run(
                ["git", "worktree", "remove", "--force", "--force", str(root)], cwd=home, capture_output=True
            )
        shutil.rmtree(root, ignore_errors=True)
    if _is_git(home):
        _git(home, "worktree", "prune")


def _git(folder: Path, *arguments: str) -> str:
    return _call(["git", *arguments], folder, dict(os.environ))


def _call(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise WorkspaceError(f"{' '.join(command)} failed in {folder}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip("\n")
