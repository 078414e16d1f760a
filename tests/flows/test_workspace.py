"""Workspaces: the caller's code and data as they are, other parameters, and nothing of the caller's touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dvc.repo import Repo

from pipeline import config
from pipeline.flows import workspace
from pipeline.flows.checkout import WorkspaceError
from pipeline.flows.workspace import Workspace
from tests.conftest import ROOT, copy_of_repository, run
from trueodds.errors import ConfigError

messages: list[str] = []


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Leave it as it is. Each test copies it, and makes workspaces of it: it has what a run reads."""
    without = ("benchmarks", "docs", "tests", "service", "deploy")
    return copy_of_repository(tmp_path_factory.mktemp("repository") / "home", without)


@pytest.fixture
def home(repository: Path, tmp_path: Path) -> Path:
    messages.clear()
    return Path(shutil.copytree(repository, tmp_path / "home", symlinks=True))


def opened(home: Path, run_name: str = "one", **overrides: object) -> Workspace:
    with workspace.open_workspace(home, run_name, overrides, messages.append) as place:
        return place


def snapshot(home: Path) -> tuple[str, str, str]:
    return tuple(run(["git", *words], home).stdout for words in (["status", "--porcelain"], ["stash", "list"], ["log"]))  # type: ignore[return-value]


@pytest.mark.full
def test_a_checkout_with_the_callers_changes_and_other_parameters(home: Path) -> None:
    (home / "pipeline" / "new.py").write_text("NEW = 1\n")
    (home / "trueodds" / "errors.py").write_text("CHANGED = 1\n")
    (home / "pipeline" / "parameters.py").unlink()
    run(["git", "add", "trueodds/errors.py"], home)
    before = snapshot(home)
    place = opened(home, method="focal", seed=7)
    assert place.folder == home / ".runs" / "one" and place.untracked_files == ("pipeline/new.py",)
    assert (place.folder / "pipeline" / "new.py").read_text() == "NEW = 1\n"
    assert (place.folder / "trueodds" / "errors.py").read_text() == "CHANGED = 1\n"
    assert not (place.folder / "pipeline" / "parameters.py").exists()
    params = config.load(place.folder / "params.yaml")
    assert (params.training.method, params.training.seed, params.data.dataset) == ("focal", 7, "digits")
    text = (place.folder / "params.yaml").read_text()
    assert text == (home / "params.yaml").read_text().replace("method: ce ", "method: focal ").replace(
        "seed: 0\n  device", "seed: 7\n  device"
    )
    with Repo(str(place.folder)) as there, Repo(str(home)) as here:
        assert there.cache.local.path == here.cache.local.path
    assert snapshot(home) == before
    assert "with uncommitted changes and 1 new files" in messages[0]
    assert run(["git", "rev-parse", "HEAD"], place.folder).stdout == run(["git", "rev-parse", "HEAD"], home).stdout
    kept(home)
    assert run(["git", "worktree", "list"], home).stdout.count("\n") == 1, "nothing that a kill could leave"
    place.remove()
    assert not place.root.exists() and snapshot(home) == before


def test_files_that_were_only_touched_are_no_change(home: Path) -> None:
    for name in ("params.yaml", "dvc.lock", "pipeline/training/loop.py"):
        os.utime(home / name, (1, 1))
    place = opened(home)
    assert messages == [f"checkout of {run(['git', 'rev-parse', 'HEAD'], home).stdout[:10]}: {place.root}"]


def test_a_retry_finds_what_was_there_and_a_half_made_one_is_made_again(home: Path) -> None:
    place = opened(home, seed=7)
    (place.folder / "half-done").touch()
    assert (opened(home, seed=7).folder / "half-done").exists()
    (home / ".runs" / "one.json").unlink()
    assert not (opened(home, seed=7).folder / "half-done").exists()


def test_only_one_process_works_in_it(home: Path) -> None:
    lock = home / ".runs" / "one.lock"
    lock.parent.mkdir()
    code = f"from filelock import FileLock; held = FileLock({str(lock)!r}); held.acquire(); print(flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None and other.stdout.readline()
    with (
        pytest.raises(WorkspaceError, match="in use by another process"),
        workspace.open_workspace(home, "one", {}, messages.append, patience=0.1),
    ):
        pass
    other.kill()
    other.communicate()
    opened(home)


def test_own_data_come_along_without_a_copy(home: Path) -> None:
    own = home / "datasets" / "pets" / "train" / "cat"
    own.mkdir(parents=True)
    (own / "a.png").write_bytes(b"png")
    place = opened(home, dataset="pets")
    linked = place.folder / "datasets" / "pets" / "train" / "cat" / "a.png"
    assert linked.read_bytes() == b"png" and linked.samefile(own / "a.png")
    assert (place.folder / "datasets" / "README.md").is_file()
    place.remove()
    assert (own / "a.png").read_bytes() == b"png"


def test_a_path_out_of_the_checkout_becomes_absolute(home: Path) -> None:
    (home.parent / "outside").mkdir()
    assert config.load(opened(home, path="../outside").folder / "params.yaml").data.path == str(home.parent / "outside")
    with pytest.raises(ConfigError, match="is the checkout itself"):
        opened(home, run_name="two", path=".")


@pytest.mark.full
def test_without_git_a_copy_without_what_was_built(home: Path) -> None:
    shutil.rmtree(home / ".git")
    for ignored in (
        "artifacts/logits.npz",
        "models/y",
        ".venv/z",
        ".dvc/cache/w",
        "pipeline/__pycache__/v",
        ".runs/u/t",
    ):
        (home / ignored).parent.mkdir(parents=True, exist_ok=True)
        (home / ignored).touch()
    (home / "datasets" / "own.npz").write_bytes(b"own")
    place = opened(home, seed=3)
    assert (place.folder / "datasets" / "own.npz").samefile(home / "datasets" / "own.npz")
    assert place.commit is None and "no experiment is recorded in DVC" in messages[0]
    there = {p.relative_to(place.folder).as_posix() for p in place.folder.rglob("*") if p.is_file()}
    assert {"dvc.yaml", "params.yaml", "pipeline/training/loop.py", ".dvc/config", "datasets/README.md"} <= there
    assert not [p for p in there if p.split("/")[0] in {"artifacts", "models", ".venv", ".runs"} or "__pycache__" in p]
    assert not [p for p in there if p.startswith(".dvc/cache")]
    assert config.load(place.folder / "params.yaml").training.seed == 3
    assert "fetch" in run(["dvc", "stage", "list"], place.folder).stdout
    place.remove()
    assert not place.root.exists()


def test_git_without_a_commit_says_what_to_do(tmp_path: Path) -> None:
    run(["git", "init", "-q"], tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    with pytest.raises(WorkspaceError, match="has no commit yet"):
        opened(tmp_path)


def test_what_failed_runs_left_is_cleared_away_when_old(home: Path) -> None:
    place = opened(home)
    workspace.prune(home, messages.append, lambda run: False)
    assert place.root.is_dir()
    old = time.time() - 15 * 86_400
    os.utime(home / ".runs" / "one.json", (old, old))
    workspace.prune(home, messages.append, lambda run: False)
    assert not place.root.exists() and "left by a run 15 days ago" in messages[-1]
    assert not [p for p in (home / ".runs").iterdir() if p.name.startswith("one")]


def test_a_subfolder_of_a_repository(repository: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(repository, tmp_path / "mono" / "odds", symlinks=True))
    shutil.move(home / ".git", tmp_path / "mono" / ".git")
    run(["git", "add", "-A"], tmp_path / "mono")
    run(["git", "-c", "user.name=t", "-c", "user.email=t@e.org", "commit", "-qm", "moved"], tmp_path / "mono")
    (home / "pipeline" / "new.py").touch()
    place = opened(home)
    assert place.folder == home / ".runs" / "one" / "odds"
    assert (place.folder / "pipeline" / "new.py").is_file()


def kept(home: Path) -> Workspace:
    with workspace.open_kept_workspace(home, home / ".run" / "workspace", messages.append) as place:
        return place


def test_the_kept_workspace_follows_the_checkout(home: Path) -> None:
    own = home / "datasets" / "pets"
    own.mkdir()
    (own / "a.png").write_bytes(b"one")
    before = snapshot(home)
    place = kept(home)
    assert place.folder == home / ".run" / "workspace" and snapshot(home) == before
    (place.folder / "artifacts" / "logits.npz").write_bytes(b"built")
    (place.folder / ".checkpoints").mkdir()
    (place.folder / "dvc.lock").write_text("as another CPU made it")
    (home / "params.yaml").write_text((home / "params.yaml").read_text().replace("method: ce ", "method: focal "))
    (home / "pipeline" / "new.py").touch()
    (own / "a.png").unlink()
    (own / "b.png").write_bytes(b"two")
    (own / "c.png").write_bytes(b"three")
    before = snapshot(home)
    place = kept(home)
    assert config.load(place.folder / "params.yaml").training.method == "focal"
    assert (place.folder / "dvc.lock").read_text() == (home / "dvc.lock").read_text()
    assert (place.folder / "pipeline" / "new.py").exists() and "with uncommitted changes and 1 new files" in messages[
        -1
    ]
    assert {file.name for file in (place.folder / "datasets" / "pets").iterdir()} == {"b.png", "c.png"}
    assert (place.folder / "artifacts" / "logits.npz").exists() and (place.folder / ".checkpoints").is_dir()
    assert snapshot(home) == before
    (home / "pipeline" / "new.py").unlink()
    run(["git", "checkout", "-q", "."], home)
    place = kept(home)
    assert not (place.folder / "pipeline" / "new.py").exists() and messages[-1] == f"{messages[0]}"
    assert config.load(place.folder / "params.yaml").training.method == "ce"


def test_a_kept_workspace_that_is_of_no_use_is_made_again(home: Path, tmp_path: Path) -> None:
    """Of a checkout that was moved; git would refuse to work in it."""
    kept(home)
    moved = home.rename(tmp_path / "moved")
    (moved / "pipeline" / "new.py").touch()
    assert (kept(moved).folder / "pipeline" / "new.py").exists()
    assert run(["git", "status", "--porcelain"], moved).stdout == "?? pipeline/new.py\n"


@pytest.mark.full
def test_a_kept_copy_without_git_follows_too(home: Path) -> None:
    shutil.rmtree(home / ".git")
    place = kept(home)
    (place.folder / ".checkpoints").mkdir()
    (place.folder / "artifacts").mkdir(exist_ok=True)
    (home / "pipeline" / "new.py").touch()
    (home / "pipeline" / "parameters.py").unlink()
    place = kept(home)
    code = place.folder / "pipeline"
    assert (code / "new.py").exists() and not (code / "parameters.py").exists()
    assert (place.folder / ".checkpoints").is_dir() and "fetch" in run(["dvc", "stage", "list"], place.folder).stdout


def test_folders_in_variables_are_the_callers(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUEODDS_DOWNLOADS", raising=False)
    monkeypatch.setenv("TRUEODDS_DATA", "mine")
    place = opened(home)
    assert place.environment()["TRUEODDS_DATA"] == str(home / "mine")
    assert place.environment()["TRUEODDS_DOWNLOADS"] == str(home / "downloads")


def test_workspaces_of_cancelled_runs_are_cleared_away(home: Path) -> None:
    for name in ("one", "two"):
        opened(home, name)
    workspace.prune(home, messages.append, lambda run: run == "two")
    assert {path.name for path in (home / ".runs").iterdir() if path.is_dir()} == {"one"}
    assert messages[-1] == f"removed {home / '.runs' / 'two'}: its run was cancelled"


def test_from_a_hook_of_gits_nothing_of_the_callers_is_reset(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(home)
    (home / "trueodds" / "errors.py").write_text("EDITED = 1\n")
    run(["git", "add", "trueodds/errors.py"], home)
    before = snapshot(home)
    monkeypatch.setenv("GIT_DIR", str(home / ".git"))  # as git sets it for its hooks
    monkeypatch.setenv("GIT_INDEX_FILE", str(home / ".git" / "index"))
    assert (kept(home).folder / "trueodds" / "errors.py").read_text() == "EDITED = 1\n"
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert snapshot(home) == before and before[0].startswith("M  trueodds/errors.py")


@pytest.mark.full
def test_a_stage_that_fails_is_said(home: Path) -> None:
    (home / "params.yaml").write_text((home / "params.yaml").read_text().replace("dataset: digits", "dataset: nothing"))
    failed = run([sys.executable, "-m", "pipeline", "repro"], home, check=False)
    assert failed.returncode == 1 and "Traceback" not in failed.stderr
    assert "dvc repro in " in failed.stderr and "its last lines say why" in failed.stderr
    assert not (home / ".run" / "artifacts").exists()


def test_of_a_shallow_clone_with_filters_and_names_of_its_own(home: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow"
    (home / "more").touch()
    run(["git", "add", "more"], home)
    run(["git", "-c", "user.name=t", "-c", "user.email=t@e.org", "commit", "-qm", "more"], home)
    run(["git", "clone", "-q", "--depth", "1", home.as_uri(), str(shallow)], tmp_path)
    run(["git", "config", "user.name", "Ada"], shallow)
    (shallow / ".git" / "info" / "exclude").write_text("secret\n")
    (shallow / "secret").touch()
    place = opened(shallow)
    assert run(["git", "log", "--format=%s"], place.folder).stdout == "more\n" and place.untracked_files == ()
    assert run(["git", "config", "user.name"], place.folder).stdout == "Ada\n"
    (place.folder / "secret").touch()
    assert "secret" not in run(["git", "status", "--porcelain"], place.folder).stdout


@pytest.mark.full
def test_an_experiment_is_the_callers(home: Path) -> None:
    stage = "stages:\n  a:\n    cmd: cp params.yaml out.txt\n    params: [training]\n    outs: [out.txt]\n"
    (home / "dvc.yaml").write_text(stage)
    (home / "dvc.lock").unlink()
    run(["git", "-c", "user.name=t", "-c", "user.email=t@e.org", "commit", "-qam", "one stage"], home)
    place = opened(home, seed=7)
    run(["dvc", "repro"], place.folder)
    place.save_experiment("study-1")
    place.remove()
    assert run(["dvc", "exp", "list", "--name-only"], home).stdout == "study-1\n"
    (ref,) = run(["git", "for-each-ref", "--format=%(refname)", "refs/exps"], home).stdout.split()
    assert "seed: 7" in run(["git", "show", f"{ref}:params.yaml"], home).stdout
