"""A run's key: what changes its logits changes it, and nothing else does."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from pipeline import config
from pipeline.config import Params
from pipeline.studies.runs import HASHES, key_of
from trueodds.files import read_json


def params(**leaves: object) -> Params:
    return config.load("params.yaml", leaves)


def test_settings_and_not_how_they_are_judged(workspace: Path) -> None:
    key = key_of(params())
    assert key == key_of(params()) and len(key) == 16
    assert key == key_of(params(bins=10, calibrator="vector", path=str(workspace))), "they change no logits"
    others = [key_of(params(**one)) for one in ({"seed": 1}, {"method": "fl3"}, {"split_seed": 1}, {"epochs": 2})]
    assert len({key, *others}) == 5


def test_own_files_by_their_content(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(folder: Path, value: int) -> None:
        images = np.full((8, 4, 4, 1), value, np.uint8)
        np.savez(folder / "mine.npz", x_train=images, y_train=np.arange(8) % 2, class_names=np.array(["a", "b"]))

    write(workspace / "datasets", 1)
    key = key_of(params(dataset="mine"))
    (workspace / "datasets" / "other.npz").write_bytes(b"of another data set")
    os.utime(workspace / "datasets" / "mine.npz", (1, 1))
    assert key_of(params(dataset="mine")) == key, "a copy with another time, beside other files"
    elsewhere = workspace / "elsewhere"
    elsewhere.mkdir()
    write(elsewhere, 1)
    assert key_of(params(dataset="mine", path="elsewhere")) == key
    monkeypatch.setattr("pipeline.studies.runs.sha256", lambda _: pytest.fail("hashed again"))
    assert key_of(params(dataset="mine")) == key and len(read_json(HASHES)) == 2
    monkeypatch.undo()
    monkeypatch.chdir(workspace)
    write(workspace / "datasets", 2)
    assert key_of(params(dataset="mine")) != key


def test_a_folder_by_names_and_contents(workspace: Path) -> None:
    texts = [workspace / "datasets" / "mine" / "train" / name / f"{k}.txt" for name in "ab" for k in range(3)]
    for path in texts:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text {path.stem} of class {path.parent.name}")
    key = key_of(params(dataset="mine"))
    texts[0].write_text("text 0 of klass a")
    changed = key_of(params(dataset="mine"))
    texts[0].rename(texts[0].with_name("9.txt"))
    assert len({key, changed, key_of(params(dataset="mine"))}) == 3


def test_planning_is_quiet(workspace: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "pipeline"):
        key_of(params(held_out_size=100))
        assert not caplog.records and logging.getLogger("pipeline").level == logging.INFO
