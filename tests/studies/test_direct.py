"""Runs of a study in this process, without DVC: the same numbers, checkpoints and records."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import config, stages
from pipeline.flows.checkout import git
from pipeline.studies import direct, running, runs
from pipeline.studies.format import parse
from pipeline.studies.machine import COMMIT, commit_of
from pipeline.studies.runs import Place
from tests.conftest import ROOT
from trueodds.errors import ConfigError, UserError
from trueodds.files import read_json

SETTINGS = {"dataset": "wine", "epochs": 2, "curves": [1, 2]}


def places(home: Path, **vary: list[object]) -> list[Place]:
    study = parse({"title": "here", "hold": SETTINGS, "vary": vary or {"seed": [0]}, "report": ["nll"]})
    return runs.places(home, runs.expand(study, ROOT / "params.yaml"))


def test_the_numbers_are_those_of_the_stages(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT, "0f1e2d3c4b5a")
    monkeypatch.setenv("TRUEODDS_DOWNLOADS", "mine")
    (place,) = places(workspace)
    assert running.run_all(Path(), [place], direct.run_here) == {}
    assert Path.cwd() == workspace and os.environ["TRUEODDS_DOWNLOADS"] == "mine"
    assert not any((workspace / ".runs").iterdir()), "the working folder is gone"
    record = read_json(place.folder / runs.RUN)
    assert (record["commit"], record["uncommitted"]) == ("0f1e2d3c4b5a", False)
    assert record["seconds"] > 0 and record["work"]["epochs"] == 2
    params = config.load(ROOT / "params.yaml", SETTINGS)
    stages.fetch(params)
    stages.train(params)
    kept, own = np.load(place.folder / runs.LOGITS), np.load(workspace / stages.LOGITS)
    assert kept.files == own.files and all(np.array_equal(kept[name], own[name]) for name in own.files)
    assert (place.folder / "epoch_rows.npz").is_file(), "the arrays that curves asks for"


def test_a_failed_run_is_named_and_goes_on(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of, whole = places(workspace, seed=[0, 1]), stages.train

    def train(params: config.Params) -> None:
        if params.training.seed == 0:
            raise UserError("the device is gone")
        whole(params)

    with monkeypatch.context() as patch:
        patch.setattr(stages, "train", train)
        assert running.run_all(workspace, of, direct.run_here) == {of[0].key: f"{of[0].run.name}: the device is gone"}
    assert [place.is_done for place in of] == [False, True] and Path.cwd() == workspace
    spent = read_json(of[0].folder.with_suffix(".attempts.json"))["spent"]
    assert running.run_all(workspace, of, direct.run_here) == {} and all(place.is_done for place in of)
    assert read_json(of[0].folder / runs.RUN)["seconds"] >= round(spent, 3), "the time of a failed attempt counts"


def test_an_error_that_is_not_the_users_ends_one_run_only(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of, whole = places(workspace, seed=[0, 1]), stages.train

    def train(params: config.Params) -> None:
        if params.training.seed == 0:
            raise RuntimeError("CUDA out of memory")
        whole(params)

    monkeypatch.setattr(stages, "train", train)
    failed = running.run_all(workspace, of, direct.run_here)
    log = of[0].folder.with_suffix(".log")
    assert failed == {of[0].key: f"{of[0].run.name}: RuntimeError: CUDA out of memory; its traceback: {log}"}
    assert "Traceback" in log.read_text() and of[1].is_done and Path.cwd() == workspace


def test_files_that_parameters_name_by_a_relative_path_are_found(workspace: Path) -> None:
    """The run works in a folder of its own, which has no copy of them."""
    params = config.load(ROOT / "params.yaml", SETTINGS)
    stages.fetch(params)
    labels_N = np.load(workspace / stages.DATA / "arrays.npz")["y_test"]
    np.save(workspace / "votes.npy", 5 * np.eye(3, dtype=np.int64)[labels_N])
    stages.train(params)
    shutil.copy(next((workspace / stages.MODEL).glob("network/*")), workspace / "start.safetensors")
    of = places(workspace, label_counts=["votes.npy"], start=["start.safetensors"])
    assert running.run_all(workspace, of, direct.run_here) == {} and of[0].is_done
    assert read_json(of[0].folder / runs.RUN)["settings"]["training"]["start"] == "start.safetensors"


def test_the_code_is_that_of_the_first_run_of_a_process(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only source files count as changes, also new ones; later commits are not the code that the process has loaded."""
    monkeypatch.delenv(COMMIT, raising=False)
    git(workspace, "init", "-q", ".")

    def commit() -> str:
        git(workspace, "add", "-A", ".")
        git(workspace, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "step", "--allow-empty")
        return git(workspace, "rev-parse", "HEAD")

    (workspace / "notes.md").write_text("a")
    first = commit()
    (workspace / "notes.md").write_text("b")
    of = places(workspace, seed=[0, 1, 2])
    record = _record_of_run(workspace, of[0])
    assert (record["commit"], record["uncommitted"]) == (first, False), "pages are no code"
    assert commit() != first and _record_of_run(workspace, of[1])["commit"] == first
    direct._code_of.cache_clear()  # as another process has it
    (workspace / "new.py").write_text("")
    assert _record_of_run(workspace, of[2])["uncommitted"], "a new source file"


def _record_of_run(home: Path, place: Place) -> dict[str, Any]:
    assert running.run_all(home, [place], direct.run_here) == {}
    return dict(read_json(place.folder / runs.RUN))


def test_a_commit_is_named_by_its_digits(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT, "main")
    with pytest.raises(ConfigError, match="TRUEODDS_COMMIT is 'main'; give 7 to 40 digits of the commit"):
        direct.run_here(workspace, places(workspace)[0])


def test_the_commit_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit_of(tmp_path) == (None, False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) == (None, False), "there is no git"
    monkeypatch.setenv(COMMIT, "abc1234")
    assert commit_of(tmp_path) == ("abc1234", False)
