"""Methods in the real loop: what keeps state, mixes batches or needs features, and every preset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline import data, methods
from pipeline.config import Data, OptionValue, Training
from pipeline.data import DataSet
from pipeline.train import learning_rate, train

SPECIAL: list[tuple[str, dict[str, OptionValue]]] = [
    ("adafocal", {"rate": 5.0}),
    ("ce+class_smoothing+mixup", {"alpha": 0.4}),
    ("consistency", {"count": 3}),
    ("fls531", {}),
]


@pytest.fixture
def digits(workspace: Path) -> DataSet:
    return data.load(Data(train_size=200))


class StoppedError(Exception):
    pass


@pytest.mark.parametrize(("name", "options"), SPECIAL)
def test_an_interrupted_run_ends_with_the_same_weights(
    name: str, options: dict[str, OptionValue], digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(method=name, method_options=options, epochs=3, width=4)
    whole = train(digits, training, tmp_path / "whole")

    def stops(recipe: object, progress: float) -> float:
        if progress > 0.7:
            raise StoppedError
        return learning_rate(recipe, progress)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.train.learning_rate", stops)
        with pytest.raises(StoppedError):
            train(digits, training, tmp_path / "c")
    resumed = train(digits, training, tmp_path / "c")
    assert resumed.history == whole.history
    assert all(np.array_equal(resumed.logits[split], whole.logits[split]) for split in ("val", "test"))
    states = resumed.net.state_dict(), whole.net.state_dict()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


FAST = ("bsce_gra", "dfl", "flsd53", "ls05", "brier")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.full) for name in methods.names()]
)
def test_every_name_trains_two_epochs(name: str, workspace: Path, tmp_path: Path) -> None:
    result = train(data.load(Data()), Training(method=name, epochs=2, width=8), tmp_path / "c")
    assert all(np.isfinite(list(row.values())).all() for row in result.history)
    assert result.history[-1]["val_error"] < 0.88  # of ten classes; .83 is the slowest, most are under .5
