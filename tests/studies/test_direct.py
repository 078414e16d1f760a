"""Runs of a study in this process, without DVC: the same numbers, checkpoints and records."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pipeline import config, stages
from pipeline.studies import direct, running, runs
from pipeline.studies.format import parse
from pipeline.studies.machine import COMMIT, commit_of
from pipeline.studies.runs import Place
from tests.conftest import ROOT
from trueodds.errors import UserError
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
        assert running.run_all(workspace, of, direct.run_here) == {of[0].key: "the device is gone"}
    assert [place.is_done for place in of] == [False, True] and Path.cwd() == workspace
    spent = read_json(of[0].folder.with_suffix(".attempts.json"))["spent"]
    assert running.run_all(workspace, of, direct.run_here) == {} and all(place.is_done for place in of)
    assert read_json(of[0].folder / runs.RUN)["seconds"] >= round(spent, 1), "the time of a failed attempt counts"


def test_the_commit_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert commit_of(tmp_path) == (None, False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(tmp_path) == (None, False), "there is no git"
    monkeypatch.setenv(COMMIT, "abc1234")
    assert commit_of(tmp_path) == ("abc1234", False)
