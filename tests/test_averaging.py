"""Averages of weights and sharpness-aware steps: slow twins, statistics of batch normalisation, refusals."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline import data
from pipeline.config import Data, Training
from pipeline.data import DataSet
from pipeline.methods.batch import ForwardPass
from pipeline.training import averaging
from pipeline.training.averaging import WeightAverage
from pipeline.training.batches import Batches
from pipeline.training.loop import check_processes
from pipeline.training.machine.processes import Processes
from pipeline.training.machine.speed import accelerate
from pipeline.training.recipe import Recipe
from pipeline.training.resolution import plan_of
from pipeline.training.sharpness import at_worst_weights
from pipeline.training.training_result import TrainingResult
from pipeline.training.training_state import TrainingState
from tests.training_runs import plan, train
from trueodds.errors import ConfigError

SHORT: dict[str, Any] = {"epochs": 4, "width": 4, "batch_size": 64}
Weights = dict[str, Tensor]


@pytest.fixture
def digits(workspace: Path) -> DataSet:
    return data.load(Data(train_size=160))


def recorded(
    hook: str, digits: DataSet, folder: Path, monkeypatch: pytest.MonkeyPatch, **leaves: Any
) -> tuple[TrainingResult, list[Weights]]:
    """Train, and note the state of the net that learns at each call of a method of TrainingState."""
    seen: list[Weights] = []
    original = getattr(TrainingState, hook)

    def noted(state: TrainingState) -> None:
        seen.append({name: tensor.detach().clone() for name, tensor in state.net.state_dict().items()})
        original(state)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingState, hook, noted)
        return train(digits, Training(**{**SHORT, **leaves}), folder), seen


def test_ema_equals_a_slow_twin(digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, steps = recorded("end_step", digits, tmp_path, monkeypatch, ema=0.8)
    assert len(steps) == 12
    for name, kept in result.net.state_dict().items():
        if not kept.is_floating_point():
            assert torch.equal(kept, steps[-1][name]), "counters are copied"
            continue
        expected = steps[0][name].double()
        for t, weights in enumerate(steps[1:], start=1):
            decay = min(0.8, (1 + t) / (10 + t))
            expected = decay * expected + (1 - decay) * weights[name].double()
        torch.testing.assert_close(kept.double(), expected, rtol=1e-5, atol=1e-6)
    assert any("exponential moving average" in note for note in result.settings["notes"])


def test_swa_is_the_mean_of_the_last_epochs_with_statistics_of_its_own(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin passes the same batches through the averaged net and averages what batch normalisation receives."""
    result, ends = recorded("end_steps", digits, tmp_path, monkeypatch, swa=0.75)
    assert len(ends) == 4
    for name, kept in result.net.named_parameters():
        expected = torch.stack([weights[name].double() for weights in ends[1:]]).mean(0)
        torch.testing.assert_close(kept.double(), expected, rtol=1e-5, atol=1e-6)
    twin = copy.deepcopy(result.net).train()
    layers = {name: module for name, module in twin.named_modules() if isinstance(module, nn.BatchNorm2d)}
    received: dict[str, list[Tensor]] = {name: [] for name in layers}
    for name, module in layers.items():
        module.register_forward_pre_hook(lambda _, args, name=name: received[name].append(args[0].detach().double()))
    rows = Batches.of(digits, "train", torch.device("cpu"))
    with torch.no_grad():
        for inputs in averaging._plain(rows, 3):
            twin(inputs)
    for name in layers:
        means, variances = (
            torch.stack([getattr(x, of)((0, 2, 3)) for x in received[name]]).mean(0) for of in ("mean", "var")
        )
        ours = result.net.get_submodule(name)
        torch.testing.assert_close(ours.running_mean.double(), means, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours.running_var.double(), variances, rtol=1e-4, atol=1e-5)
    note = "The weights are the mean of those after epochs 2 to 4 (SWA); batch normalisation was estimated anew"
    assert any(note in words for words in result.settings["notes"])


@pytest.mark.parametrize("leaves", [{"ema": 0.9}, {"swa": 0.5}])
def test_an_average_leaves_the_net_that_learns_as_it_is(
    leaves: dict[str, Any], digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, without = recorded("end_step", digits, tmp_path / "a", monkeypatch)
    result, beside = recorded("end_step", digits, tmp_path / "b", monkeypatch, **leaves)
    assert all(torch.equal(a[name], b[name]) for a, b in zip(without, beside, strict=True) for name in a)
    assert [row["train_nll"] for row in result.history] == [row["train_nll"] for row in plain.history]
    assert result.history[-1]["val_nll"] != plain.history[-1]["val_nll"], "the average is measured"
    errors = (result.logits["val"].argmax(1) != digits.arrays["val"][1]).mean()
    assert errors == pytest.approx(result.history[-1]["val_error"]), "and kept"


def test_the_average_of_the_selected_epoch_is_kept(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = recorded("end_step", digits, tmp_path, monkeypatch, ema=0.5, selection="val_nll")
    best = min(result.history, key=lambda row: row["val_nll"])
    assert result.settings["selection"]["epoch"] == best["epoch"]
    errors = (result.logits["val"].argmax(1) != digits.arrays["val"][1]).mean()
    assert errors == pytest.approx(best["val_error"])


def test_a_selected_epoch_before_the_average_is_named(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate that ruins the averaged epochs makes an earlier one the best."""
    result, _ = recorded(
        "end_step", digits, tmp_path, monkeypatch, swa=0.5, swa_rate=20.0, clip=1.0, selection="val_nll", momentum=0.0
    )
    epoch = result.settings["selection"]["epoch"]
    assert epoch <= 2
    assert any(f"those of epoch {epoch}. The average over epochs (swa) began" in n for n in result.settings["notes"])


def test_frozen_statistics_stay_and_others_are_estimated() -> None:
    recipe = Recipe("resnet8", 2, swa=1.0)
    net = plan_of(Training(width=4), "digits", "image", held_out=False).net.build(1, 10)
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(not name.startswith("stages.0"))
    with torch.no_grad():
        for name, buffer in net.named_buffers():
            if name.endswith("running_mean"):
                buffer.fill_(7.0)
    average = WeightAverage(recipe, net)
    average.after_epoch(net, 1)
    images = np.random.default_rng(0).integers(0, 255, (40, 8, 8, 1)).astype(np.uint8)
    card = {"input": {"kind": "image"}, "normalise": {"mean": [0.5], "std": [0.3]}}
    rows = Batches.of(DataSet({"train": (images, np.zeros(40, np.int64))}, card), "train", torch.device("cpu"))
    before = torch.get_rng_state()
    used: list[Tensor] = []
    first = next(m for name, m in average.net.named_modules() if name.startswith("stages.0") and hasattr(m, "momentum"))
    first.register_forward_pre_hook(lambda module, _: used.append(module.running_mean.clone()))
    average.settle(net, rows, 0)
    assert used and all(bool((mean == 7.0).all()) for mean in used), "the others learn behind frozen statistics"
    assert torch.equal(before, torch.get_rng_state())
    means = {name: bool((b == 7.0).all()) for name, b in average.net.named_buffers() if name.endswith("running_mean")}
    assert set(means.values()) == {True, False}
    assert all(kept == name.startswith("stages.0") for name, kept in means.items())


def test_a_sharp_step_on_a_quadratic() -> None:
    """L(w) = w'Aw/2 has the gradient A w. So that at the worst weights is A (w + rho A w / |A w|)."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 3))
    matrix, w, rho = root @ root.T, rng.normal(size=3), 0.3
    gradient = matrix @ w
    expected = matrix @ (w + rho * gradient / np.linalg.norm(gradient))
    net = nn.Linear(3, 1, bias=False).double()
    net.weight.data = torch.from_numpy(w)[None]

    def loss() -> Tensor:
        v = net.weight[0]
        half: Tensor = v @ torch.from_numpy(matrix) @ v / 2
        return half

    torch.autograd.backward(loss())
    with at_worst_weights(net, rho):
        net.zero_grad()
        torch.autograd.backward(loss())
    assert net.weight.grad is not None
    np.testing.assert_allclose(net.weight.grad[0].numpy(), expected, rtol=1e-12)
    np.testing.assert_array_equal(net.weight.data[0].numpy(), w)


def test_without_a_gradient_the_weights_stay() -> None:
    net = nn.Linear(2, 1)
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = net.weight.detach().clone()
    with at_worst_weights(net, 0.5):
        assert torch.equal(net.weight, before)


@pytest.mark.parametrize("leaves", [{}, {"reduction": "sum", "clip": 2.0}, {"method": "fl2+mmce"}])
def test_a_sharp_run_equals_a_slow_twin(leaves: dict[str, Any], digits: DataSet, tmp_path: Path) -> None:
    """One epoch by hand: gradient, move, gradient, move back, plain SGD with weight decay; running statistics once."""
    training = Training(
        **{**SHORT, "epochs": 1, "sam": 0.1, "momentum": 0.0, "padding": 0, "schedule": "constant", **leaves}
    )
    result = train(digits, training, tmp_path)
    of = plan(digits, training)
    torch.manual_seed(of.seed)
    net = of.net.build(1, 10)
    method, recipe = of.method.build(net), of.recipe
    rows = Batches.of(digits, "train", torch.device("cpu"))
    net.train()
    factor = {"sum": float(len(rows)) / rows.steps(64), "mean": 1.0}[recipe.reduction]
    for step, (inputs, labels) in enumerate(rows.shuffle(64, torch.Generator().manual_seed(0))):
        factor = float(len(labels)) if recipe.reduction == "sum" else 1.0

        def gradients(
            inputs: Tensor = inputs, labels: Tensor = labels, step: int = step, factor: float = factor
        ) -> list[Tensor]:
            batch = ForwardPass.of(net, inputs, labels, labels, step / rows.steps(64))
            return list(torch.autograd.grad(factor * method.objective(batch), list(net.parameters())))

        first = gradients()
        norm = torch.sqrt(sum((g**2).sum() for g in first))  # type: ignore[arg-type]
        buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
        with torch.no_grad():
            weights = [parameter.clone() for parameter in net.parameters()]
            for parameter, g in zip(net.parameters(), first, strict=True):
                parameter.add_(0.1 * g / norm)
        second = gradients()
        with torch.no_grad():
            for name, buffer in net.named_buffers():
                buffer.copy_(buffers[name])
            size = torch.sqrt(sum((g**2).sum() for g in second))  # type: ignore[arg-type]
            shrink = min(1.0, recipe.clip / (float(size) + 1e-6)) if recipe.clip else 1.0
            for parameter, weight, g in zip(net.parameters(), weights, second, strict=True):
                parameter.copy_(weight - recipe.learning_rate * (shrink * g + recipe.weight_decay * weight))
    for name, tensor in result.net.state_dict().items():
        torch.testing.assert_close(tensor, net.state_dict()[name], rtol=1e-4, atol=1e-5)
    for line in result.settings["penalties"]:
        assert line["steps"] == rows.steps(64), "the second pass is not counted"


def test_in_bfloat16_the_second_pass_sees_the_moved_weights() -> None:
    """Autocast keeps copies of weights in bfloat16. A stale copy would give the first pass's features again."""
    recipe = Recipe("resnet8", 1, precision="bfloat16")
    net = plan_of(Training(width=4), "digits", "image", held_out=False).net.build(1, 10).train()
    inputs = torch.randn(8, 1, 8, 8)
    with accelerate(net, recipe, torch.device("cpu")):
        features = net.features(inputs)
        torch.autograd.backward(net.head(features).logsumexp(1).mean())
        with at_worst_weights(net, 1.0):
            moved = net.features(inputs)
        again = net.features(inputs)
    assert not torch.allclose(features, moved, atol=1e-2)
    torch.testing.assert_close(features, again)


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ({"ema": 0.9, "swa": 0.5}, r"ema is 0\.9 and swa 0\.5; a run keeps one average .* one of them to 0"),
        ({"swa": 0.02}, r"swa is 0\.02 of 24 epochs, .* fewer than two epochs .* set it to 0\.0833 or more"),
        ({"swa": 0.5, "epochs": 1}, r"swa is 0\.5 of 1 epochs, .*; set it to 0$"),
        ({"swa_rate": 0.05}, r"swa_rate = 0\.05 needs swa, and swa is 0; set swa: 0\.25"),
        ({"sam": 0.05, "compile": "graphs"}, r"sam is 0\.05, .* compile is graphs; set compile: features"),
        ({"sam": 0.05, "method": "mmce_separate"}, r"'mmce_separate': mmce\w* takes gradients of its own.* set sam: 0"),
    ],
)
def test_what_does_not_fit_is_refused(leaves: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(Training(**leaves), "digits", "image", held_out=False)


@pytest.mark.parametrize("method", ["mmce_interleaved", "flg_sece"])
def test_parts_with_rows_of_their_own_have_no_sharp_step(method: str) -> None:
    with pytest.raises(ConfigError, match=r"sam is 0\.1, and method .* takes gradients of its own"):
        plan_of(Training(sam=0.1, method=method), "digits", "image", held_out=True)


def test_what_learns_from_the_validation_rows_has_no_average(digits: DataSet, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ema is 0\.9 and swa 0, and method adafocal learns .* set ema: 0"):
        train(digits, Training(**SHORT, ema=0.9, method="adafocal"), tmp_path)


def test_several_processes_have_no_sharp_step(digits: DataSet) -> None:
    with pytest.raises(ConfigError, match=r"2 processes .*training\.sam, .* needs one process; set sam: 0"):
        check_processes(plan(digits, Training(sam=0.1)), digits, Processes(0, 2))


def test_the_rate_of_averaged_epochs() -> None:
    recipe = Recipe("mlp", 10, schedule="cosine", swa=0.3, swa_rate=0.05)
    assert [recipe.rate_at(t) for t in (0.0, 0.5)] == pytest.approx([0.1, 0.05])
    assert recipe.rate_at(0.69) == pytest.approx(0.1 * (1 + np.cos(0.69 * np.pi)) / 2)
    assert [recipe.rate_at(t) for t in (0.7, 0.95)] == [0.05, 0.05]
    assert recipe.swa_begin == 7
