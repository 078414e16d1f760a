"""Faster steps that mean the same: draws ahead, bfloat16 and compiled bodies, fewer validations."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pipeline import data, nets
from pipeline.config import Data, Training
from pipeline.data.dataset import DataSet
from pipeline.data.raw import Kind
from pipeline.figures import training as figures
from pipeline.nets import blocks
from pipeline.nets.net import Net
from pipeline.nets.text import WordNet
from pipeline.training.batches import Augmentation, Batches
from pipeline.training.machine import speed
from pipeline.training.machine.device import device_of
from pipeline.training.recipe import Recipe
from pipeline.training.resolution import plan_of
from pipeline.training.training_result import write_epochs
from tests.training_runs import train
from trueodds.errors import ConfigError

CPU = torch.device("cpu")


@pytest.fixture
def digits(workspace: Path) -> DataSet:
    return data.load(Data(train_size=200))


@pytest.mark.parametrize(("padding", "flip"), [(2, True), (1, False), (0, True), (0, False)])
def test_draws_ahead_are_the_steps_own(digits: DataSet, padding: int, flip: bool) -> None:
    each = Batches.of(digits, "train", CPU, Augmentation(padding, flip))
    ahead = replace(each, draws_ahead=True)
    first, second = ([*one.shuffle(48, torch.Generator().manual_seed(5))] for one in (each, ahead))
    assert len(first) == len(second) == 5
    for (x, y), (x_ahead, y_ahead) in zip(first, second, strict=True):
        assert torch.equal(x, x_ahead) and torch.equal(y, y_ahead)
    resumed = [*ahead.shuffle(48, torch.Generator().manual_seed(5), skip=3, state=torch.Generator().get_state())]
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(resumed, second[3:], strict=True))


def test_only_an_epoch_whose_steps_draw_nothing_else_is_drawn_ahead(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mixup draws after each batch's moves: drawn ahead they would be other numbers."""
    seen = []
    moves = Augmentation.moves

    def spied(self: Augmentation, n: int, generator: torch.Generator) -> torch.Tensor:
        seen.append(n)
        return moves(self, n, generator)

    monkeypatch.setattr(Augmentation, "moves", spied)
    small: dict[str, Any] = {"epochs": 1, "width": 4, "batch_size": 40, "padding": 1}
    per_step = []
    original = Batches.shuffle

    def shuffled(self: Batches, *args: Any, **kwargs: Any) -> Any:
        per_step.append(self.draws_ahead)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Batches, "shuffle", shuffled)
    for method, ahead in (("ce", True), ("ls05", True), ("mixup", False)):
        train(digits, Training(method=method, **small), tmp_path / method)
        assert per_step[-1] is ahead and seen[-5:] == [40] * 5
    assert not Augmentation(2, randaugment=1).is_moves_alone and not Augmentation(crop_scale=0.5).is_moves_alone


def test_bfloat16_is_of_the_body_alone_and_logits_are_near(digits: DataSet, tmp_path: Path) -> None:
    plain = train(digits, Training(epochs=6, width=8), tmp_path / "a")
    fast = train(digits, Training(epochs=6, width=8, precision="bfloat16"), tmp_path / "b")
    assert fast.settings["recipe"]["precision"] == "bfloat16"
    assert all(weight.dtype == torch.float32 for weight in fast.net.state_dict().values() if weight.is_floating_point())
    again = fast.net(Batches.of(digits, "val", CPU).normalise(torch.from_numpy(np.array(digits.arrays["val"][0]))))
    assert again.detach().numpy() == pytest.approx(fast.logits["val"], abs=1e-4), "written as the float32 net answers"
    losses = [[row["train_loss"] for row in result.history] for result in (plain, fast)]
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], rel=0.05)
    net, rows = fast.net.train(), Batches.of(digits, "train", CPU)
    assert isinstance(net, Net)
    inputs = rows.normalise(torch.from_numpy(np.array(digits.arrays["train"][0])))
    with torch.no_grad():
        single = net(inputs)
        with speed.accelerate(net, Recipe("resnet8", 1, precision="bfloat16"), CPU):
            half = net(inputs)
    gap = float((half - single).abs().mean() / single.abs().mean())
    assert 0 < gap < 8 * 2**-8, "eight roundings to eight bits, one for each layer"


@pytest.mark.parametrize("name", ["resnet8", "resnet50_tiny", "densenet100", "wrn28_10"])
def test_pooling_head_and_logits_are_float32(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    width = {"width": 2 if name == "wrn28_10" else 4}
    if name in ("resnet50_tiny", "densenet100", "wrn28_10"):
        width |= {"depth": 1}
    shape = nets.resolve(name, **width)
    net = shape.build(3, 4).train()
    seen = []
    single = blocks.at_least_float32

    def spied(x: torch.Tensor) -> torch.Tensor:
        seen.append((x.dtype, single(x).dtype))
        return single(x)

    for module in ("blocks", "bottleneck"):
        monkeypatch.setattr(importlib.import_module(f"pipeline.nets.{module}"), "at_least_float32", spied)
    inputs = torch.randn(4, 3, 16, 16)
    with speed.accelerate(net, Recipe(name, 1, precision="bfloat16"), CPU):
        assert net.features(inputs).dtype == torch.float32 and net(inputs).dtype == torch.float32
        assert seen == [(torch.bfloat16, torch.float32)] * 2
        net.eval()
        net.features(inputs)
        assert seen[-1] == (torch.float32, torch.float32), "what is measured is float32"
    assert "features" not in vars(net)
    net.train()
    net.features(inputs)
    assert seen[-1] == (torch.float32, torch.float32)


def test_a_rate_in_a_tensor_and_fused_steps_are_the_plain_ones() -> None:
    """As on CUDA, where the optimizer is made so; torch has fused steps on CPUs, too."""
    weights = [torch.nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4).clone()) for _ in range(2)]
    plain = torch.optim.SGD(weights[:1], 0.1, momentum=0.9, weight_decay=1e-2, nesterov=True)
    fused = torch.optim.SGD(weights[1:], torch.tensor(0.1), momentum=0.9, weight_decay=1e-2, nesterov=True, fused=True)
    for step in range(5):
        plain.param_groups[0]["lr"] = 0.1 / (step + 1)
        fused.param_groups[0]["lr"].fill_(0.1 / (step + 1))
        for weight, optimizer in zip(weights, (plain, fused), strict=True):
            weight.grad = torch.cos(weight.detach())
            optimizer.step()
    assert torch.allclose(weights[0], weights[1], rtol=1e-6)


@pytest.mark.full
def test_fewer_validations_change_no_weight(digits: DataSet, tmp_path: Path) -> None:
    each = train(digits, Training(epochs=5, width=4), tmp_path / "a")
    some = train(digits, Training(epochs=5, width=4, validate_every=3, curves=[2]), tmp_path / "b")
    weights = [result.net.state_dict().values() for result in (each, some)]
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    assert [row["val_nll"] is None for row in some.history] == [True, False, False, True, False]
    assert len({tuple(row) for row in some.history}) == 1, "every epoch has the same columns"
    for a, b in zip(each.history, some.history, strict=True):
        assert a["train_nll"] == b["train_nll"] and (b["val_ece"] is None or a["val_ece"] == b["val_ece"])
    write_epochs(tmp_path / "epochs.csv", some.history)
    assert math.isnan(figures.read(tmp_path / "epochs.csv")["val_nll"][0])
    figures.curves(figures.read(tmp_path / "epochs.csv"), tmp_path / "curves", "with gaps")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validate_every": 2, "selection": "val_nll"}, "selection val_nll needs the validation rows"),
        ({"validate_every": 2, "method": "adafocal"}, "method adafocal learns from the validation rows"),
        ({"compile": "graphs"}, "CUDA graphs need a CUDA device"),
    ],
)
def test_what_cannot_be(digits: DataSet, tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(digits, Training(epochs=2, width=4, device="cpu", **settings), tmp_path / "c")


def test_compiling_without_a_compiler_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _name: None)
    with pytest.raises(ConfigError, match=r"needs a C\+\+ compiler.*apt install g\+\+"):
        speed.check(Recipe("resnet8", 1, compile="features"), CPU)


@pytest.mark.full
def test_a_compiled_body_learns_the_same(digits: DataSet, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 2, "width": 4, "batch_size": 48, "device": "cpu"}
    plain = train(digits, Training(**settings), tmp_path / "a")
    compiled = train(digits, Training(compile="features", **settings), tmp_path / "b")
    assert plain.logits["val"] == pytest.approx(compiled.logits["val"], rel=2e-2, abs=2e-2)
    assert plain.history[0]["train_loss"] == pytest.approx(compiled.history[0]["train_loss"], rel=1e-3)


@pytest.mark.full
def test_a_compiled_body_of_texts_has_one_graph_for_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    compiler = torch.compile
    graphs = []

    def counting(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", lambda body, **options: compiler(body, **{**options, "backend": counting}))
    net = nets.build("gp_cnn", 6, 3, width=4, dropout=0.0).train()
    assert isinstance(net, WordNet)
    net.embed(torch.randn(30, 6))
    texts = [torch.randint(2, 30, (5, length)) for length in (40, 7, 23, 2, 60)]
    with speed.accelerate(net, Recipe("gp_cnn", 1, compile="features"), CPU):
        fast = [net.features(ids) for ids in texts]
    assert len(graphs) == 1
    assert all(torch.allclose(one, net.features(ids), atol=1e-5) for one, ids in zip(fast, texts, strict=True))


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("text", {"compile": "graphs"}, "holds texts of many lengths; set compile: features"),
        ("tree", {"compile": "features"}, "holds trees of different shapes; set it to off"),
        ("image", {"compile": "graphs", "method": "flg"}, "set compile: features"),
        ("image", {"compile": "graphs", "method": "mmce_separate"}, "mmce passes through the net again"),
        (
            "image",
            {"compile": "features", "method": "flg", "method_options": {"lookahead": "all"}},
            r"compile: off, or method_options\.lookahead: head",
        ),
    ],
)
def test_what_a_compiled_body_cannot_do(kind: Kind, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(Training(**settings), "mine", kind, held_out=True)


def test_convolutions_are_timed_only_for_fixed_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.set_float32_matmul_precision", lambda _precision: None)
    monkeypatch.setattr(torch.backends, "cudnn", SimpleNamespace(benchmark=None))
    for fixed in (True, False):
        device_of("cuda", fixed_sizes=fixed)
        assert torch.backends.cudnn.benchmark is fixed


def test_a_step_on_texts_asks_the_device_nothing() -> None:
    """Meta tensors have no values: whoever asks for one fails."""
    with torch.device("meta"):
        net = nets.build("gp_cnn", 6, 3, width=4).train()
    ids = torch.zeros(20, 50, dtype=torch.int64, device="meta")
    torch.autograd.backward(net(ids).sum())
    rows = np.array([[2, 5, 6, 0, 0], [1, 7, 0, 0, 0], [3, 8, 8, 8, 0]], np.int32)
    card = {"input": {"kind": "text"}, "normalise": {"mean": [], "std": []}}
    texts = Batches.of(DataSet({"train": (rows, np.arange(3))}, card), "train", CPU)
    there = replace(texts, rows=texts.rows.to("meta"), labels_N=texts.labels_N.to("meta"))
    assert [x.shape[1] for x, _ in there.in_order(2)] == [2, 3]
    assert [tuple(x.shape) for x, _ in there.shuffle(3, torch.Generator())] == [(3, 3)]
