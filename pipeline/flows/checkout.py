"""Copies the caller's checkout to a workspace: code with uncommitted changes, data, and the settings of DVC's cache.

Nothing in the checkout is written. An existing workspace is updated in place and keeps its build outputs and
checkpoint.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trueodds.errors import ConfigError, UserError
from trueodds.files import copy, naming, write_text

RUNS = ".runs"
_NOT_COPIED = (".git", RUNS, ".prefect", "models", "downloads")
_KEPT = ("artifacts", ".checkpoints", ".dvc")
"""Folders that a copy keeps when it is updated. A git checkout keeps everything that git ignores."""
_IDENTITY = ("-c", "user.name=TrueOdds", "-c", "user.email=runs@trueodds.invalid")
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
"""Variables that would make git work in another repository than the given one, for example inside a git hook."""


_CONFIG = r"^(user|filter)\.|^core\.(autocrlf|eol|excludesfile|attributesfile)$"
"""Pattern of git settings that decide the content of a checkout and the author of its commits."""


class WorkspaceError(UserError, RuntimeError):
    """The workspace cannot be created or used. The message gives the reason and the cure."""


@dataclass(frozen=True)
class Code:
    """The code in a workspace.

    `commit` is its base commit, or None without git. `words` describes it for people.
    """

    folder: Path
    commit: str | None
    untracked_files: tuple[str, ...]
    words: str


def take_code(home: Path, root: Path, data: str) -> Code:
    """Check out the code of `home` with its new files at `root`, or copy it if there is no git. `data` is left out.

    The checkout is a repository of its own that borrows the objects of `home`. `home` therefore does not list it, and a
    killed run leaves nothing registered there.

    Raises:
        WorkspaceError: git failed.
    """
    return _checkout(home, root) if is_git(home) else _copy(home, root, data)


def _checkout(home: Path, root: Path) -> Code:
    """Check out the commit of `home` with its uncommitted changes and new files."""
    try:
        commit = git(home, "rev-parse", "HEAD")
    except WorkspaceError:
        raise WorkspaceError(f"{home} has no commit yet; create one: git add -A && git commit -m start") from None
    # Checked first, because `stash create` fails silently if files were only touched.
    changed = git(home, "status", "--porcelain", "--untracked-files=no")
    changes = git(home, *_IDENTITY, "stash", "create") if changed else ""
    listed = git(home, "ls-files", "-z", "-o", "--exclude-standard").split("\0")
    untracked = tuple(name for name in listed if name and not name.endswith("/"))  # a slash marks another repository
    _borrow(home, root)
    git(root, "update-ref", "--no-deref", "HEAD", commit)
    git(root, "reset", "--quiet", "--hard", changes or commit)
    git(root, "clean", "--quiet", "-ffd")
    if changes:
        git(root, "reset", "--quiet", commit)
    folder = root / git(home, "rev-parse", "--show-prefix")
    for name in untracked:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with naming(folder / name):
            shutil.copy2(home / name, folder / name, follow_symlinks=False)
    taken = [
        *(["uncommitted changes"] if changes else []),
        *([f"{len(untracked)} new files"] if untracked else []),
    ]
    words = f"checkout of {commit[:10]}{' with ' + ' and '.join(taken) if taken else ''}: {root}"
    return Code(folder, commit, untracked, words)


def _borrow(home: Path, root: Path) -> None:
    """Create or update a repository at `root` with the objects, ignore rules and filters of `home`."""
    shared = home / git(home, "rev-parse", "--git-common-dir")
    own = root / ".git"
    if own.is_file():
        raise WorkspaceError(f"{root} is not a checkout of {home}; remove it")
    if not own.is_dir():
        git(home, "init", "--quiet", "--template=", str(root))
    (own / "info").mkdir(exist_ok=True)
    write_text(own / "objects" / "info" / "alternates", f"{(shared / 'objects').resolve()}\n")
    for name in ("shallow", "info/exclude", "info/attributes"):
        if (shared / name).is_file():
            copy(shared / name, own / name)
    for setting in git(home, "config", "--local", "--list", "--null").split("\0"):
        name, _, value = setting.partition("\n")
        if re.match(_CONFIG, name):
            git(root, "config", name, value)


def _copy(home: Path, root: Path, data: str) -> Code:
    for old in [path for path in root.iterdir() if path.name not in _KEPT] if root.is_dir() else []:
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()
    with _repository(home) as repo:
        outs = {Path(out.fs_path) for out in repo.index.outs}
        ignored = repo.dvcignore

        def left_out(path: Path) -> bool:
            if path.is_relative_to(home / ".dvc"):  # DVC's ignore rules always match this folder
                return path.parent == home / ".dvc" and path.name in ("cache", "tmp", "config.local")
            ignores = ignored.is_ignored_dir if path.is_dir() else ignored.is_ignored_file
            if path == home / data or (path.parent == home and path.name in _NOT_COPIED):  # data are linked later
                return True
            return path in outs or ignores(str(path))

        def names_to_skip(folder: str, names: list[str]) -> set[str]:
            return {name for name in names if left_out(Path(folder, name))}

        try:
            shutil.copytree(home, root, ignore=names_to_skip, symlinks=True, dirs_exist_ok=True)
        except shutil.Error as error:  # one entry per file; the first gives the reason
            raise WorkspaceError(f"{root} cannot be created: {error.args[0][0][2]}") from None
    return Code(root, None, (), f"no git: the code is copied to {root}; no experiment is recorded in DVC")


def take_data(home: Path, folder: Path, path: str) -> dict[str, str]:
    """Hard-link (or symlink) the caller's own data, which git does not carry. DVC does not follow linked folders.

    Returns:
        The parameter to override: a path outside the checkout is made absolute.
    """
    source = (home / path).resolve()
    if source == home.resolve() or source in home.resolve().parents:
        raise ConfigError(
            f"path = {path!r} is the checkout itself or contains it; put your data into a folder of their own"
        )
    if Path(path).is_absolute() or not source.is_relative_to(home.resolve()):
        return {"path": str(source)} if source.exists() and not Path(path).is_absolute() else {}
    wanted = {folder / path / file.relative_to(source): file for file in _files(source)}
    for target in _files(folder / path):
        if target not in wanted or not target.exists() or not target.samefile(wanted[target]):
            target.unlink()  # left by an earlier update
    for target, file in wanted.items():
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(file)
            except OSError:  # on another file system
                target.symlink_to(file)
    return {}


def _files(path: Path) -> list[Path]:
    """List the files under a path."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.is_symlink() or file.is_file())
    return [path] if path.is_file() else []


def take_settings(home: Path, folder: Path, *, git: bool) -> None:
    """Copy the settings of DVC that git does not carry, and point to the caller's cache."""
    local = folder / ".dvc" / "config.local"
    local.unlink(missing_ok=True)
    if (home / ".dvc" / "config.local").is_file():
        shutil.copy(home / ".dvc" / "config.local", local)
    with _repository(home) as repo:
        cache = Path(repo.cache.local.path).parent.parent  # DVC's path is <cache>/files/md5
    # autostage: DVC stages its lock file in this checkout's index instead of printing five lines of advice per stage.
    _set_local(folder, {"cache": {"dir": str(cache)}, "core": {"autostage": True} if git else {"no_scm": True}})


def _repository(home: Path) -> Any:
    """Open `home` with DVC, which must be told if there is no git."""
    from dvc.repo import Repo

    return Repo(str(home), config=None if is_git(home) else {"core": {"no_scm": True}})


def _set_local(folder: Path, settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Change local settings of DVC."""
    from dvc.config import Config

    with Config(dvc_dir=str(folder / ".dvc")).edit("local") as local:
        for section, values in settings.items():
            local.setdefault(section, {}).update(values)


def is_git(home: Path) -> bool:
    """Return whether git is installed and `home` is in a repository."""
    return (
        shutil.which("git") is not None
        and subprocess.run(["git", "rev-parse", "--git-dir"], cwd=home, capture_output=True).returncode == 0
    )


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and return its output. Raises WorkspaceError with git's message."""
    return call(["git", *arguments], folder, {k: v for k, v in os.environ.items() if k not in _ELSEWHERE})


def call(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Run a command and return its output. Raises WorkspaceError with the command's message."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise WorkspaceError(f"{' '.join(command)} failed in {folder}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip("\n")
