"""The middle of an epoch is kept, now and then, and a run goes on from there to the same bits."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline import data, methods
from pipeline.config import Data, Training
from pipeline.training.checkpoint import Begun, Checkpoint, Selection
from pipeline.training.loop import train
from pipeline.training.recipes import Recipe, learning_rate
from tests.test_train import equal, stopped


@pytest.mark.parametrize(
    ("method", "leaves"),
    [
        ("ce", {}),
        ("adafocal", {}),
        ("ce+class_smoothing+mixup", {"selection": "val_nll"}),
        ("consistency", {"optimizer": "adagrad"}),
        ("mmce_interleaved", {"optimizer": "adam", "selection": "val_error"}),
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
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.training.checkpoint.EVERY", 0.0)
        patch.setattr("pipeline.training.checkpoint.SHARE", math.inf)
        for at in (2 / 15, 11 / 15):  # twice: the middle of the first epoch, and of the third
            stopped(rows, training, tmp_path / "c", at - 1e-9, monkeypatch)
    went = []

    def noted(recipe: Recipe, progress: float) -> float:
        went.append(round(15 * progress, 6))
        return learning_rate(recipe, progress)

    monkeypatch.setattr("pipeline.training.loop.learning_rate", noted)
    caplog.set_level("INFO")
    resumed = train(rows, training, tmp_path / "c")
    assert "going on after epoch 2 of 3 and 1 steps of the next from" in caplog.text
    assert went == [11, 12, 13, 14]
    assert equal(resumed, whole) and resumed.history == whole.history and resumed.settings == whole.settings
    assert resumed.looks.keys() == whole.looks.keys()
    assert all(np.array_equal(resumed.looks[name], whole.looks[name]) for name in whole.looks)


@pytest.mark.parametrize(
    ("writing", "seconds", "due"), [(0, 59, False), (0, 61, True), (10, 61, False), (10, 199, False), (10, 201, True)]
)
def test_how_often_the_middle_of_an_epoch_is_kept(
    writing: float, seconds: float, due: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After a minute, or after 20 times what writing took."""
    clock = {"now": 0.0}

    def slowly(state: Any, path: Path) -> None:
        clock["now"] += writing
        path.write_bytes(b"")

    monkeypatch.setattr("pipeline.training.checkpoint.time.monotonic", lambda: clock["now"])
    monkeypatch.setattr("pipeline.training.checkpoint.torch.save", slowly)
    checkpoint, net, begun = Checkpoint(tmp_path / "c"), torch.nn.Linear(2, 2), Begun(0)
    begun.add(torch.zeros(()), torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    checkpoint.save(net, optimizer, methods.build("ce"), Selection("last"), [], begun=begun)
    clock["now"] += seconds
    assert checkpoint.due() == due
