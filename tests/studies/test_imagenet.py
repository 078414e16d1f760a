"""The papers' tables on ImageNet, on a folder of its layout: planned whole, and one step of each."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline import config, stages
from pipeline.__main__ import main
from pipeline.studies import runs
from pipeline.studies.format import read
from tests.conftest import ROOT

TABLES = {"bsce-gra/table8": 9, "soft-calibration/table1c": 40}
"""And their runs."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twenty images of two classes to train from, ten to test, none of them square."""
    rng = np.random.default_rng(0)
    for split, each in (("train", 10), ("val", 5)):
        for wnid in ("n01440764", "n02102040"):
            place = tmp_path / "datasets" / "imagenet" / split / wnid
            place.mkdir(parents=True)
            for k in range(each):
                pixels = rng.integers(0, 256, (40 + k, 50, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{wnid}_{k}.JPEG", "JPEG")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize("table", TABLES)
def test_a_dry_run_and_one_step(folder: Path, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", table, "--dry-run"]) == 0
    assert f"{TABLES[table]} runs, 0 done" in capsys.readouterr().out
    small = {"image_size": 32, "validation_size": 4, "epochs": 1, "start": None, "seed": 1}
    run = runs.expand(read(table), folder / "params.yaml")[-1]
    params = config.load(overrides={**run.overrides, **small})
    for stage in ("fetch", "train"):
        stages.STAGES[stage](params)
    with (folder / "artifacts" / "model" / "epochs.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["train_loss"]) > 0
