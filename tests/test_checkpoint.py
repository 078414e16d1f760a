"""The middle of an epoch is kept, now and then, and a run goes on from there to the same bits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch

from pipeline import data
from pipeline.config import Data, Training
from pipeline.training.checkpoint import Checkpoint
from pipeline.training.recipe import Recipe
from pipeline.training.resolution import plan_of
from pipeline.training.training_state import Epoch, TrainingState
from tests.test_train import equal
from tests.training_runs import stopped, train


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("method", "leaves"),
    [
        ("ce", {}),
        ("adafocal", {"method_options": {"every": 2, "rate": 5.0}}),
        ("ce+class_smoothing+mixup", {"selection": "val_nll"}),
        ("consistency", {"optimizer": "adagrad"}),
        ("mmce_interleaved", {"optimizer": "adam", "selection": "val_error"}),
        ("ce", {"ema": 0.9, "selection": "val_nll"}),
        ("ce", {"swa": 0.67, "swa_rate": 0.05}),
        ("ce+mixup", {"sam": 0.05}),
        ("ce", {"snapshots": 3, "schedule": "cosine"}),
        ("mmce_separate+augmix", {"curves": [2]}),
    ],
)
def test_an_epoch_interrupted_in_its_middle_goes_on_there(
    method: str, leaves: dict[str, Any], workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Every step is kept here; a run stopped before the 12th of 5 + 5 + 5 repeats none and ends with the same bits."""
    rows = data.load(Data(train_size=160, held_out_size=70))
    training = Training(epochs=3, width=4, batch_size=32, method=method, **leaves)
    whole = train(rows, training, tmp_path / "whole")
    for at in (2 / 15, 11 / 15):  # twice: the middle of the first epoch, and of the third
        stopped(rows, training, tmp_path / "c", at - 1e-9, monkeypatch, every=0.0, share=math.inf)
    steps, rate_at = [], Recipe.rate_at

    def noted(recipe: Recipe, progress: float) -> float:
        steps.append(round(15 * progress, 6))
        return rate_at(recipe, progress)

    monkeypatch.setattr(Recipe, "rate_at", noted)
    caplog.set_level("INFO")
    resumed = train(rows, training, tmp_path / "c")
    assert "continuing after epoch 2 of 3 and 1 steps of the next from" in caplog.text
    assert steps == [11, 12, 13, 14]
    assert equal(resumed, whole) and resumed.history == whole.history and resumed.settings == whole.settings
    assert resumed.epoch_rows.keys() == whole.epoch_rows.keys()
    assert all(np.array_equal(resumed.epoch_rows[name], whole.epoch_rows[name]) for name in whole.epoch_rows)


@pytest.mark.parametrize(
    ("writing", "seconds", "due"), [(0, 59, False), (0, 61, True), (10, 61, False), (10, 199, False), (10, 201, True)]
)
def test_how_often_the_middle_of_an_epoch_is_kept(
    writing: float, seconds: float, due: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After a minute, or after 20 times what writing took."""
    clock = {"now": 0.0}

    def slowly(state: Any, file: IO[bytes]) -> None:
        clock["now"] += writing
        file.write(b"")

    monkeypatch.setattr("pipeline.training.checkpoint.time.monotonic", lambda: clock["now"])
    monkeypatch.setattr("pipeline.training.checkpoint.torch.save", slowly)
    checkpoint, epoch = Checkpoint(tmp_path / "c"), Epoch(0)
    epoch.add(torch.zeros(()), torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64), None)
    plan = plan_of(Training(width=4), "digits", "image", held_out=False)
    state = TrainingState.initial(plan, plan.net.build(1, 2))
    checkpoint.save_middle(state, epoch)
    clock["now"] += seconds
    assert checkpoint.due() == due
