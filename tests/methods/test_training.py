"""Methods in the real loop: what keeps state, mixes batches or needs features, and every preset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline import data, methods
from pipeline.config import Data, OptionValue, Training
from pipeline.data import DataSet
from tests.training_runs import stopped, train
from trueodds.errors import ConfigError

SPECIAL: list[tuple[str, dict[str, OptionValue], dict[str, Any]]] = [
    ("adafocal", {"rate": 5.0}, {"selection": "val_error"}),
    ("ce+class_smoothing+mixup", {"alpha": 0.4}, {"optimizer": "adam"}),
    ("ece_ce", {"bins": 5}, {"selection": "val_refinement"}),
    ("ece_ce+mixup", {"split": "val"}, {}),
    ("consistency", {"count": 3}, {}),
    ("consistency+mixup", {"variant": "official", "count": 50}, {}),
    ("fls531", {}, {"optimizer": "adagrad", "schedule": "cosine"}),
    ("augmix", {"group": 8}, {}),
    ("mmce_interleaved+sece", {"mmce.every": 2, "sece.when": "separate"}, {"selection": "val_nll"}),
]


@pytest.fixture
def digits(workspace: Path) -> DataSet:
    return data.load(Data(train_size=200, held_out_size=100))


@pytest.mark.full
def test_a_look_at_the_validation_rows_between_two_steps_changes_nothing_but_what_is_learned(
    digits: DataSet, tmp_path: Path
) -> None:
    """At rate 0 every gamma stays: the weights, and the statistics of batch normalisation, are those without a look."""
    nets, rates = {}, ((0, 0.0), (1, 0.0), (0, 5.0), (1, 5.0))
    for every, rate in rates:
        options: dict[str, OptionValue] = {"every": every, "rate": rate}
        training = Training(method="adafocal", method_options=options, epochs=2, width=4)
        nets[every, rate] = train(digits, training, tmp_path / "c").net.state_dict()
    assert all(torch.equal(nets[0, 0.0][key], nets[1, 0.0][key]) for key in nets[0, 0.0])
    assert not torch.equal(nets[0, 5.0]["head.weight"], nets[1, 5.0]["head.weight"])


def test_a_part_that_would_never_learn_is_refused(digits: DataSet, tmp_path: Path) -> None:
    training = Training(method="adafocal", method_options={"every": 9}, epochs=2, width=4)
    with pytest.raises(ConfigError, match=r"after every 9 steps, and this run has 8, so it .*every to 8 at most, or 0"):
        train(digits, training, tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("name", "options", "from_validation"),
    [
        ("ece_ce", {}, False),
        ("ece_ce", {"split": "val"}, True),
        ("consistency", {}, False),
        ("consistency", {"variant": "official"}, True),
    ],
)
def test_the_notes_say_that_validation_rows_were_learned_from(
    name: str, options: dict[str, OptionValue], from_validation: bool, digits: DataSet, tmp_path: Path
) -> None:
    result = train(digits, Training(method=name, method_options=options, epochs=1, width=4), tmp_path / "c")
    note = f"Training used the validation rows (method {name}), and the calibrator was fitted on the same"
    assert [text.startswith(note) for text in result.settings["notes"]] == ([True] if from_validation else [])


@pytest.mark.few(2)
@pytest.mark.parametrize(("name", "options", "leaves"), SPECIAL)
def test_an_interrupted_run_ends_with_the_same_weights(
    name: str,
    options: dict[str, OptionValue],
    leaves: dict[str, Any],
    digits: DataSet,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = Training(method=name, method_options=options, epochs=3, width=4, **leaves)
    whole = train(digits, training, tmp_path / "whole")
    stopped(digits, training, tmp_path / "c", 0.7, monkeypatch)
    resumed = train(digits, training, tmp_path / "c")
    assert resumed.history == whole.history and resumed.settings == whole.settings
    assert all(np.array_equal(resumed.logits[split], whole.logits[split]) for split in ("val", "test"))
    states = resumed.net.state_dict(), whole.net.state_dict()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_held_out_steps_do_not_change_the_order_of_the_training_rows(digits: DataSet, tmp_path: Path) -> None:
    """Before the penalty sets in, a run is the same with and without it."""
    training = Training(epochs=2, width=4)
    late = training.model_copy(update={"method": "mmce_interleaved", "method_options": {"start": 0.5}})
    plain, delayed = (train(digits, one, tmp_path / one.method) for one in (training, late))
    assert delayed.history[0] == plain.history[0] and delayed.history[1] != plain.history[1]


def test_interleaved_without_held_out_rows_is_refused(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"learns from set-aside rows, and there are none; set data\.held_out_size"):
        train(data.load(Data(train_size=200)), Training(method="mmce_interleaved"), tmp_path / "c")


def test_held_out_rows_that_nothing_learns_from_are_said(
    digits: DataSet, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(digits, Training(epochs=1, width=4), tmp_path / "c")
    assert "method ce does not use the set-aside rows" in caplog.text


FAST = ("bsce_gra", "dfl", "flsd53", "ls05", "brier")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.full) for name in methods.names()]
)
def test_every_name_trains_two_epochs(name: str, workspace: Path, tmp_path: Path) -> None:
    result = train(data.load(Data(held_out_size=100)), Training(method=name, epochs=2, width=8), tmp_path / "c")
    assert all(value is None or np.isfinite(value) for row in result.history for value in row.values())
    assert result.history[-1]["val_error"] < 0.88  # of ten classes; .83 is the slowest, most are under .5
