"""The loop: repeatable, resumable after a real kill, and plain about what went wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline import data
from pipeline.config import ConfigError, Data, Training
from pipeline.data import DataSet
from pipeline.recipes import RECIPES, Recipe, resolve
from pipeline.train import Trained, TrainingError, learning_rate, train
from tests.conftest import environment

SHORT = Training(epochs=3, width=4)


@pytest.fixture
def digits(workspace: Path) -> DataSet:
    return data.load(Data(train_size=200))


def equal(a: Trained, b: Trained) -> bool:
    states = a.net.state_dict(), b.net.state_dict()
    same_weights = all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    return same_weights and all(np.array_equal(a.logits[s], b.logits[s]) for s in ("val", "test"))


def test_learns_and_records_each_epoch(digits: DataSet, tmp_path: Path) -> None:
    result = train(digits, Training(epochs=12, width=8), tmp_path / "c")
    assert [row["epoch"] for row in result.history] == list(range(1, 13))
    columns = [f"{split}_{name}" for split in ("train", "val") for name in ("loss", "error", "nll", "ece")]
    assert list(result.history[0]) == ["epoch", "learning_rate", *columns]
    assert result.history[-1]["val_error"] < 0.4 < result.history[0]["val_error"]
    assert result.logits["val"].shape == (300, 10) and result.logits["test"].shape == (600, 10)
    assert result.logits["test"].dtype == np.float32
    errors = (result.logits["val"].argmax(1) != digits.arrays["val"][1]).mean()
    assert errors == pytest.approx(result.history[-1]["val_error"])
    assert result.history[-1]["val_loss"] == pytest.approx(result.history[-1]["val_nll"], rel=1e-5)  # ce is the NLL
    assert (result.checkpoint.folder / "state.pt").exists()  # until the stage has written its files


def test_a_run_killed_while_writing_its_files_loses_nothing(digits: DataSet, tmp_path: Path) -> None:
    whole = train(digits, SHORT, tmp_path / "c")
    again = train(digits, SHORT, tmp_path / "c")
    assert equal(whole, again) and again.history == whole.history
    again.checkpoint.remove()
    assert not list((tmp_path / "c").iterdir())


def test_same_seed_same_bits(digits: DataSet, tmp_path: Path) -> None:
    one, two = (train(digits, SHORT, tmp_path / name) for name in "ab")
    other = train(digits, SHORT.model_copy(update={"seed": 1}), tmp_path / "c")
    assert equal(one, two) and not equal(one, other)


class StoppedError(Exception):
    pass


def test_an_interrupted_run_ends_with_the_same_weights(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(digits, SHORT, tmp_path / "whole")
    schedule: Callable[[Recipe, float], float] = learning_rate

    def stops(recipe: Recipe, progress: float) -> float:
        if progress > 0.5:
            raise StoppedError
        return schedule(recipe, progress)

    with monkeypatch.context() as patch:
        patch.setattr("pipeline.train.learning_rate", stops)
        with pytest.raises(StoppedError):
            train(digits, SHORT, tmp_path / "c")
    (left,) = (tmp_path / "c").iterdir()
    assert (left / "state.pt").exists()
    changed = train(digits, SHORT.model_copy(update={"method": "focal"}), tmp_path / "c")  # another hash starts afresh
    assert (left / "state.pt").exists() and not equal(changed, whole)
    resumed = train(digits, SHORT, tmp_path / "c")
    assert equal(resumed, whole) and resumed.history == whole.history


def test_a_killed_process_goes_on_to_the_same_files(workspace: Path) -> None:
    """SIGKILL, at a moment nobody chose, between the first checkpoint and the end."""
    env = {**environment(), "PYTHONPATH": str(Path(__file__).parent.parent)}
    subprocess.run([sys.executable, "-m", "pipeline", "fetch"], env=env, capture_output=True, check=True)
    command = [sys.executable, "-m", "pipeline", "train", "width=8"]
    process = subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(Path(".checkpoints").glob("*/state.pt")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not Path("artifacts/logits.npz").exists()
    again = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "going on after epoch" in again.stderr
    resumed = {name: Path("artifacts", name).read_bytes() for name in ("logits.npz", "model/weights.safetensors")}
    subprocess.run(command, env=env, capture_output=True, check=True)
    assert resumed == {name: Path("artifacts", name).read_bytes() for name in resumed}


def test_the_schedule_of_the_papers() -> None:
    recipe = RECIPES["papers-350"]
    rates = [learning_rate(recipe, epoch / 350) for epoch in (0, 149, 150, 249, 250, 349)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    tiny = RECIPES["papers-100"]
    assert [learning_rate(tiny, e / 100) for e in (39, 40, 59, 60)] == pytest.approx([0.1, 0.01, 0.01, 0.001])


def test_leaves_win_over_the_recipe() -> None:
    recipe = resolve(Training(recipe="papers-350", epochs=7, net="resnet8", learning_rate=0.2), "cifar100")
    assert (recipe.epochs, recipe.net, recipe.learning_rate, recipe.clip) == (7, "resnet8", 0.2, 2.0)
    assert resolve(Training(), "digits") == RECIPES["digits"]
    assert resolve(Training(), "cifar100") == RECIPES["cpu"] == resolve(Training(), "flowers")


def test_sum_and_clip_change_the_run(digits: DataSet, tmp_path: Path) -> None:
    plain = train(digits, SHORT, tmp_path / "a")
    clipped = train(digits, SHORT.model_copy(update={"recipe": "papers-350", "net": "resnet8"}), tmp_path / "b")
    assert not equal(plain, clipped)


def test_divergence_is_said(digits: DataSet, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"training has diverged.*Lower learning_rate"):
        train(digits, Training(epochs=4, width=4, learning_rate=100.0, weight_decay=1.0), tmp_path / "c")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there(digits: DataSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no CUDA device; use device: auto or cpu"):
        train(digits, Training(device="cuda"), tmp_path / "c")


def test_unknown_recipe() -> None:
    with pytest.raises(ConfigError, match=r"unknown recipe 'paper-350'; allowed: auto, .*Did you mean 'papers-350'\?"):
        resolve(Training(recipe="paper-350"), "cifar100")


def test_a_damaged_checkpoint_starts_afresh(digits: DataSet, tmp_path: Path) -> None:
    whole = train(digits, SHORT, tmp_path / "c")
    state = whole.checkpoint.folder / "state.pt"
    state.write_bytes(state.read_bytes()[:500])
    assert equal(train(digits, SHORT, tmp_path / "c"), whole)


def test_a_batch_of_one_is_refused(digits: DataSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two rows in a batch"):
        train(digits, Training(batch_size=1), tmp_path / "c")


@pytest.mark.full
@pytest.mark.parametrize("net", ["resnet8", "resnet20", "resnet18"])
def test_every_net_trains(net: str, digits: DataSet, tmp_path: Path) -> None:
    result = train(digits, Training(net=net, width=8, epochs=6), tmp_path / "c")
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
