"""The loop: repeatable, resumable after a real kill, and plain about what went wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline import config, data, stages
from pipeline.config import Data, Training
from pipeline.data import DataSet
from pipeline.data.raw import Kind
from pipeline.flows.workspace import write_params
from pipeline.parameters import parse_overrides
from pipeline.training.measuring.curves import COLUMNS
from pipeline.training.measuring.epoch import TrainingError
from pipeline.training.recipe import Recipe
from pipeline.training.recipes import RECIPES, resolve
from pipeline.training.training_result import TrainingResult
from tests.conftest import environment
from tests.service.hooks import until
from tests.training_runs import plan, stopped, train
from trueodds.errors import ConfigError

SHORT = Training(epochs=3, width=4)


@pytest.fixture
def digits(workspace: Path) -> DataSet:
    return data.load(Data(train_size=200))


def equal(a: TrainingResult, b: TrainingResult) -> bool:
    states = a.net.state_dict(), b.net.state_dict()
    same_weights = all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    return same_weights and all(np.array_equal(a.logits[s], b.logits[s]) for s in ("val", "test"))


def test_learns_and_records_each_epoch(digits: DataSet, tmp_path: Path) -> None:
    result = train(digits, Training(epochs=12, width=8), tmp_path / "c")
    assert [row["epoch"] for row in result.history] == list(range(1, 13))
    columns = [f"{split}_{name}" for split in ("train", "val") for name in ("loss", *COLUMNS)]
    gamma = [f"{split}_gamma_{name}" for split in ("train", "val", "test") for name in ("mean", "std", "q05", "q95")]
    expected = ["epoch", "learning_rate", "weight_norm", *columns, "val_refinement", "test_ece", *gamma]
    assert list(result.history[0]) == expected and result.history[0]["test_gamma_mean"] is None
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


def test_what_the_data_lack_goes_along_with_the_model(workspace: Path, tmp_path: Path) -> None:
    few = data.load(Data(train_size=40, validation_size=7))
    result = train(few, Training(epochs=1, width=4, batch_size=20), tmp_path / "c")
    assert result.settings["notes"] == few.card["notes"]
    assert few.card["notes"][0].startswith("No validation row is left of classes ")


def test_same_seed_same_bits(digits: DataSet, tmp_path: Path) -> None:
    one, two = (train(digits, SHORT, tmp_path / name) for name in "ab")
    other = train(digits, SHORT.model_copy(update={"seed": 1}), tmp_path / "c")
    assert equal(one, two) and not equal(one, other)


def test_an_interrupted_run_ends_with_the_same_weights(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(digits, SHORT, tmp_path / "whole")
    stopped(digits, SHORT, tmp_path / "c", 0.5, monkeypatch)
    (left,) = (tmp_path / "c").iterdir()
    assert (left / "state.pt").exists()
    changed = train(digits, SHORT.model_copy(update={"method": "focal"}), tmp_path / "c")  # another hash starts afresh
    assert (left / "state.pt").exists() and not equal(changed, whole)
    resumed = train(digits, SHORT, tmp_path / "c")
    assert equal(resumed, whole) and resumed.history == whole.history


@pytest.mark.full
@pytest.mark.parametrize(
    "words", [[], ["method=mmce_interleaved", "optimizer=adam", "selection=val_nll", "held_out_size=100"]]
)
def test_a_killed_process_goes_on_to_the_same_files(words: list[str], workspace: Path) -> None:
    """SIGKILL, at a moment nobody chose, between the first checkpoint and the end: every step makes one."""
    env = {**environment(), "PYTHONPATH": str(Path(__file__).parent.parent)}
    write_params(Path("params.yaml"), parse_overrides(["width=4", "epochs=10", "train_size=600", *words]))
    stages.fetch(config.load())
    often = (
        "import math; from pipeline import config, data, stages; from tests.training_runs import train;"
        " train(data.read(stages.DATA), config.load().training, stages.CHECKPOINTS, every=0, share=math.inf)"
    )
    process = subprocess.Popen([sys.executable, "-c", often], env=env, stderr=subprocess.DEVNULL)
    until(lambda: list(Path(".checkpoints").glob("*/state.pt")))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not Path("artifacts/logits.npz").exists()
    command = [sys.executable, "-m", "pipeline", "train"]
    again = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert re.search(r"continuing after epoch \d+ of 10( and \d+ steps of the next)? from", again.stderr), again.stderr
    files = ("logits.npz", "model/network/weights.safetensors")
    resumed = {name: Path("artifacts", name).read_bytes() for name in files}
    stages.train(config.load())
    assert resumed == {name: Path("artifacts", name).read_bytes() for name in resumed}


def test_the_schedule_of_the_papers() -> None:
    recipe = RECIPES["papers-350"].recipe
    rates = [recipe.rate_at(epoch / 350) for epoch in (0, 149, 150, 249, 250, 349)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    tiny = RECIPES["papers-100"].recipe
    assert [tiny.rate_at(e / 100) for e in (39, 40, 59, 60)] == pytest.approx([0.1, 0.01, 0.01, 0.001])
    soft = RECIPES["soft-calibration"].recipe
    rates = [soft.rate_at(e / 200) for e in (0, 0.5, 1, 59, 60, 120, 160)]
    assert rates == pytest.approx([0, 0.05, 0.1, 0.1, 0.02, 0.004, 0.0008])


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("papers-350", "350 128 sgd 0.1 0.9 False 0.0005 sum 2.0 last"),
        ("papers-100", "100 64 sgd 0.1 0.9 False 0.0005 sum 2.0 last"),
        ("bsce-100", "100 128 sgd 0.1 0.9 False 0.0005 sum 2.0 last"),
        ("gamma-net", "350 128 sgd 0.1 0.9 False 0.0005 sum 2.0 val_error"),
        ("soft-calibration", "200 128 sgd 0.1 0.9 True 0.0004 mean 0.0 last"),
        ("augmix", "100 128 sgd 0.1 0.9 True 0.0005 mean 0.0 last"),
        ("newsgroups", "50 128 adam 0.001 0.9 False 0.0 mean 0.0 val_error"),
        ("sst", "25 25 adagrad 0.05 0.9 False 0.0001 mean 0.0 val_error"),
    ],
)
def test_what_the_papers_say(name: str, facts: str) -> None:
    r = RECIPES[name].recipe
    numbers = (r.epochs, r.batch_size, r.optimizer, r.learning_rate, r.momentum, r.nesterov, r.weight_decay)
    assert " ".join(map(str, (*numbers, r.reduction, r.clip, r.selection))) == facts


def test_every_recipe_can_be_named_and_every_setting_is_a_leaf() -> None:
    assert {field.name for field in fields(Recipe)} <= set(Training.model_fields)
    for name, named in RECIPES.items():
        net = named.recipe.net or "resnet18"
        assert resolve(Training(recipe=name, net=net), "digits", "image") == replace(named.recipe, net=net)


@pytest.mark.parametrize("name", [name for name, named in RECIPES.items() if not named.recipe.net])
def test_a_recipe_without_a_net_needs_one_named(name: str) -> None:
    words = rf"recipe '{name}' has no net of its own; .* {re.escape(RECIPES[name].paper_nets)}\. .* such as net: "
    cures: dict[Kind, str] = {"image": "resnet8", "vector": "mlp"}
    for kind, cure in cures.items():
        with pytest.raises(ConfigError, match=words + cure):
            resolve(Training(recipe=name), "mine", kind)


def test_the_schedules() -> None:
    def rates(**leaves: Any) -> list[float]:
        recipe = resolve(Training(recipe="cpu", learning_rate=0.2, **leaves), "cifar10", "image")
        return [recipe.rate_at(progress) for progress in (0, 0.25, 0.5, 0.75)]

    root = 0.5**0.5
    assert rates(schedule="cosine") == pytest.approx([0.2, 0.1 * (1 + root), 0.1, 0.1 * (1 - root)])
    assert rates(schedule="constant") == [0.2] * 4
    assert rates(milestones=[0.25, 0.6], decay=0.5) == pytest.approx([0.2, 0.1, 0.1, 0.05])
    assert rates(schedule="constant", warmup=0.5) == pytest.approx([0, 0.1, 0.2, 0.2])
    assert rates(schedule="cosine", warmup=0.75) == pytest.approx([0, 0.1 * (1 + root) / 3, 0.2 / 3, 0.1 * (1 - root)])
    assert rates(milestones=[0.25], decay=0.5, warmup=0.5) == pytest.approx([0, 0.05, 0.1, 0.1])


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ({"optimizer": "adam", "momentum": 0.5}, r"momentum = 0\.5 needs optimizer sgd, and optimizer is adam; leave"),
        ({"recipe": "newsgroups", "nesterov": True}, "nesterov = True needs optimizer sgd, and optimizer is adam"),
        ({"schedule": "cosine", "milestones": [0.5]}, r"milestones = \(0\.5,\) needs schedule step"),
        ({"nesterov": True, "momentum": 0.0}, "nesterov is true, but momentum is 0"),
    ],
)
def test_what_a_recipe_would_ignore_is_refused(leaves: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(Training(**leaves), "digits", "image")


def test_another_optimizer_has_its_usual_rate() -> None:
    assert resolve(Training(optimizer="adam"), "digits", "image").learning_rate == 0.001
    assert resolve(Training(optimizer="adagrad", learning_rate=0.3), "digits", "image").learning_rate == 0.3
    own = resolve(Training(recipe="sst", net="resnet8"), "digits", "image")
    assert own.learning_rate == 0.05


def test_leaves_win_over_the_recipe() -> None:
    recipe = resolve(Training(recipe="papers-350", epochs=7, net="resnet8", learning_rate=0.2), "cifar100", "image")
    assert (recipe.epochs, recipe.net, recipe.learning_rate, recipe.clip) == (7, "resnet8", 0.2, 2.0)
    assert resolve(Training(), "digits", "image") == RECIPES["digits"].recipe
    assert resolve(Training(), "cifar100", "image") == RECIPES["cpu"].recipe == resolve(Training(), "flowers", "image")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "leaves",
    [
        {"optimizer": "adagrad", "learning_rate": 0.05},
        {"optimizer": "adam", "learning_rate": 0.01},
        {"nesterov": True},
    ],
)
def test_every_optimizer_learns(leaves: dict[str, Any], digits: DataSet, tmp_path: Path) -> None:
    result = train(digits, Training(epochs=6, width=8, batch_size=20, **leaves), tmp_path / "c")
    assert result.history[-1]["train_loss"] < 0.7 * result.history[0]["train_loss"]


@pytest.mark.few(1)
@pytest.mark.parametrize("rule", ["val_error", "val_nll", "val_refinement"])
def test_the_best_epoch_is_taken_and_said_and_survives_a_stop(
    rule: str, digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(epochs=4, width=8, learning_rate=0.3, schedule="constant")
    last = train(digits, training, tmp_path / "a")
    choosing = training.model_copy(update={"selection": rule})
    stopped(digits, choosing, tmp_path / "b", 0.8, monkeypatch)
    best = train(digits, choosing, tmp_path / "b")
    assert best.history == last.history, "the choice does not change the training"
    least = min(last.history, key=lambda row: row[rule])
    assert least[rule] < last.history[-1][rule], "the last epoch must not be the best, or nothing is tested"
    assert best.settings["selection"] == {"rule": rule, "epoch": least["epoch"]}
    errors = (best.logits["val"].argmax(1) != digits.arrays["val"][1]).mean()
    assert errors == pytest.approx(least["val_error"])
    assert best.settings["notes"][0].startswith(
        f"The validation rows selected the weights: epoch {least['epoch']} of 4"
    )
    assert last.settings["selection"] == {"rule": "last", "epoch": 4} and last.settings["notes"] == []


def test_sum_and_clip_change_the_run(digits: DataSet, tmp_path: Path) -> None:
    plain = train(digits, SHORT, tmp_path / "a")
    clipped = train(digits, SHORT.model_copy(update={"recipe": "papers-350", "net": "resnet8"}), tmp_path / "b")
    assert not equal(plain, clipped)


def test_the_brier_rows_of_the_two_papers(digits: DataSet) -> None:
    """Both on the recipe that sums the loss; the focal paper's code takes the mean of this one."""

    def reduction(method: str, **leaves: Any) -> str:
        return plan(digits, Training(recipe="papers-350", net="resnet8", method=method, **leaves)).recipe.reduction

    assert reduction("brier") == reduction("brier+mdca") == "mean" and reduction("mse") == "sum"
    assert reduction("brier", reduction="sum") == "sum"


def test_divergence_is_said(digits: DataSet, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"training has diverged.*Lower learning_rate"):
        train(digits, Training(epochs=4, width=4, learning_rate=100.0, weight_decay=1.0), tmp_path / "c")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there(digits: DataSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no CUDA device; use device: auto or cpu"):
        train(digits, Training(device="cuda"), tmp_path / "c")


def test_unknown_recipe() -> None:
    with pytest.raises(ConfigError, match=r"unknown recipe 'paper-350'; allowed: auto, .*Did you mean 'papers-350'\?"):
        resolve(Training(recipe="paper-350"), "cifar100", "image")


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
