"""The plan of a training run: all that decides the net, and only the code that makes it."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pipeline import data
from pipeline.config import Data, Training
from pipeline.training import loop
from pipeline.training.provenance import LEFT_OUT
from tests.conftest import ROOT, copy_tree, run
from tests.training_runs import plan


@pytest.mark.full
@pytest.mark.parametrize(
    ("method", "leaves"),
    [
        ("ce", {}),
        ("fl_mdca+smoothing", {"selection": "val_nll", "curves": [1]}),
        ("adafocal+mmce+augmix", {"method_options": {"when": "separate"}, "optimizer": "adam"}),
        ("mmce_interleaved+mixup", {"schedule": "cosine"}),
    ],
)
def test_the_plan_names_the_code_that_a_run_executes(
    method: str, leaves: dict[str, Any], workspace: Path, tmp_path: Path
) -> None:
    rows = data.load(Data(train_size=100, held_out_size=100))
    planned = plan(rows, Training(epochs=1, width=4, method=method, **leaves))
    for package in ("labels", "losses", "meta", "penalties", "views"):  # each imports modules that a run does not use
        importlib.import_module(f"pipeline.methods.{package}")
    executed: set[str] = set()

    def called(frame: FrameType, event: str, _argument: object) -> None:
        executed.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        loop.train(rows, planned, tmp_path / "c").write(tmp_path / "model", tmp_path / "logits.npz", rows)
    finally:
        sys.setprofile(before)
    own = {
        Path(name).relative_to(ROOT).as_posix()
        for name in executed
        if name.startswith((f"{ROOT}/pipeline/", f"{ROOT}/trueodds/"))
    }
    left_out = {f"{name.replace('.', '/')}.py" for name in LEFT_OUT}
    assert "pipeline/training/loop.py" in own and own - left_out <= planned.code.keys()


def test_the_code_is_the_methods_own(workspace: Path) -> None:
    rows = data.load(Data(train_size=100))
    plain, focal = (plan(rows, Training(method=method)).code.keys() for method in ("ce", "fl3"))
    assert focal - plain == {
        "pipeline/methods/gamma.py",
        "pipeline/methods/losses/focal.py",
        "pipeline/methods/targets.py",
    }
    assert plain - focal == {"pipeline/methods/losses/cross_entropy.py"}
    tables = {
        "pipeline/config.py",
        "pipeline/methods/__init__.py",
        "pipeline/methods/catalogue/parts.py",
        "pipeline/methods/catalogue/presets.py",
        "pipeline/nets/__init__.py",
        "pipeline/training/recipes.py",
    }
    assert not any("penalties" in file or "/meta/" in file for file in plain)
    assert not tables & plain and not any(file.startswith("trueodds/metrics/alarms") for file in plain)


def test_what_the_tables_say_is_in_the_plan(workspace: Path) -> None:
    rows = data.load(Data(train_size=100))
    tree = plan(rows, Training(method="fl_mdca", width=8)).to_json()
    changes = {"first_change": 2 / 7, "second_change": 5 / 7}
    assert tree["method"]["parts"]["focal"] == {"gamma": 1.0, "alpha": 1.0, **changes, "gra": False}
    acting = {"start": 0.0, "when": "joint", "every": 1, "schedule": "constant", "relative": False}
    assert tree["method"]["parts"]["mdca"] == {"beta": 1.0, **acting}
    assert tree["net"] == {"name": "resnet8", "width": 8, "depth": (1, 1, 1)}
    assert tree["recipe"]["epochs"] == 24 and None not in tree["recipe"].values()


@pytest.mark.full
def test_only_code_in_use_trains_anew(reproduced: Path, tmp_path: Path) -> None:
    copy = copy_tree(reproduced, tmp_path / "copy")

    def train_is_stale(*edited: str, by: str = "CHANGED = 1\n") -> bool:
        for name in edited:
            with (copy / name).open("a", encoding="utf-8") as file:
                file.write(by)
        run(["dvc", "repro", "plan"], copy)
        return "train" in json.loads(run(["dvc", "status", "--json", "train"], copy).stdout)

    assert not train_is_stale(
        "pipeline/methods/losses/focal.py",  # another loss
        "pipeline/methods/catalogue/parts.py",  # a table
        "trueodds/metrics/alarms/sequential.py",
        "pipeline/config.py",
        "trueodds/processes/progress.py",
    )
    used = "pipeline/methods/losses/cross_entropy.py"
    assert not train_is_stale(used, by="# changed\n") and train_is_stale(used)
