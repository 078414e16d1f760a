"""What of a net learns: the head alone, all from a stage on, the head first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pipeline import data, nets
from pipeline.config import Data, Training
from pipeline.data import DataSet
from pipeline.training.plan import Plan
from pipeline.training.start import features
from pipeline.training.start.freezing import freeze
from pipeline.training.training_result import TrainingResult
from tests.training_runs import plan, stopped, train
from trueodds.errors import ConfigError

PLAIN = {"padding": 0, "flip": False}


@pytest.fixture(scope="module")
def digits() -> DataSet:
    return data.load(Data(train_size=100, held_out_size=40))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Path]:
    torch.manual_seed(3)
    path = tmp_path / "start.safetensors"
    save_file(nets.build("resnet8", 1, 10, width=4).state_dict(), path)
    yield path


def short(path: Path, **leaves: Any) -> Training:
    return Training(**{"epochs": 2, "width": 4, "start": str(path), **leaves})


def changed(trained: TrainingResult, start: Path) -> set[str]:
    """The modules of which some weight or statistic is no longer the start's."""
    from safetensors.torch import load_file

    before = load_file(start)
    after = trained.net.state_dict()
    return {name.rpartition(".")[0] for name in before if not torch.equal(before[name], after[name])}


def test_stages() -> None:
    net = nets.build("resnet8", 1, 10, width=4)
    freeze(net, "stages.1")
    learning = {name for name, parameter in net.named_parameters() if parameter.requires_grad}
    assert learning == {name for name, _ in net.named_parameters() if name.startswith(("stages.2.", "head."))}
    net.train()
    assert not net.norm.training and not net.stages[1].norm1.training  # type: ignore[union-attr, index]
    assert net.stages[2].norm1.training and net.head.training  # type: ignore[union-attr, index]
    freeze(net, "nothing")
    net.train()
    assert all(parameter.requires_grad for parameter in net.parameters()) and net.norm.training  # type: ignore[union-attr]
    words = r"'stage\.1'; allowed are nothing, body, and the stages of this net: stem, norm, stages, .*'stages\.1'\?"
    with pytest.raises(ConfigError, match=words):
        freeze(net, "stage.1")


@pytest.mark.few(5)
@pytest.mark.parametrize("name", [name for name in nets.names("image") if name != "vit_b_16"])
def test_every_net_has_stages_in_the_order_of_its_layers(name: str) -> None:
    """What is frozen first is what the inputs meet first: the gradient of the first weights is never needed alone."""
    with torch.device("meta"):
        net = nets.build(name, 3, 10)
    order = [parameter for parameter, _ in net.named_parameters()]
    seen: list[str] = []
    for module_name, module in net.named_modules():
        if list(module.parameters(recurse=False)):
            module.register_forward_pre_hook(lambda _, __, at=module_name: seen.append(at))
    with torch.device("meta"):
        net.eval()(torch.zeros(1, 3, 64, 64))
    met, listed = (list(dict.fromkeys(".".join(name.split(".")[:2]) for name in names)) for names in (seen, order))
    assert met == [name.removesuffix(".weight") for name in listed if not name.endswith(".bias")]


@pytest.mark.parametrize(
    ("leaves", "learned"),
    [
        ({"freeze": "body", **PLAIN}, {"head"}),
        ({"freeze": "body"}, {"head"}),
        ({"freeze": "body", "method": "mixup", **PLAIN}, {"head"}),
        ({"freeze": "stages.1"}, {"stages.2", "head"}),
        ({"head_epochs": 1, "epochs": 2}, {"stem", "norm", "stages.0", "stages.1", "stages.2", "head"}),
    ],
)
def test_what_is_frozen_stays_as_it_began(
    leaves: dict[str, Any], learned: set[str], digits: DataSet, start: Path, tmp_path: Path
) -> None:
    modules = changed(train(digits, short(start, weight_decay=0.01, **leaves), tmp_path / "c"), start)
    assert {".".join(name.split(".")[: 2 if name.startswith("stages") else 1]) for name in modules} == learned


def test_the_head_learns_first(digits: DataSet, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is stopped in its second epoch and goes on to the weights of one that was not."""
    training = short(start, head_epochs=2, epochs=3)
    whole = train(digits, training, tmp_path / "whole")
    stopped(digits, training, tmp_path / "cut", 0.5, monkeypatch, every=0)
    halfway = torch.load(next((tmp_path / "cut").glob("*/state.pt")), weights_only=True)["net"]
    from safetensors.torch import load_file

    before = load_file(start)
    assert {name for name in before if not torch.equal(before[name], halfway[name])} == {"head.weight", "head.bias"}
    again = train(digits, training, tmp_path / "cut")
    assert all(torch.equal(tensor, whole.net.state_dict()[name]) for name, tensor in again.net.state_dict().items())


@pytest.mark.few(2)
@pytest.mark.parametrize("method", ["ce", "fl3+sb_ece", "ls05", "flg_sece", "ce_meta_dece", "adafocal"])
def test_a_head_learns_from_cached_features_as_from_rows(
    method: str, digits: DataSet, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = short(start, freeze="body", method=method, optimizer="adamw", **PLAIN)
    cached = train(digits, training, tmp_path / "c")
    assert len(list((tmp_path / "c").glob("features-*/*.npy"))) == 4
    monkeypatch.setattr(Plan, "head_alone", False)
    from_rows = train(digits, training, tmp_path / "d")
    for split in ("val", "test"):
        assert np.allclose(cached.logits[split], from_rows.logits[split], atol=2e-4)
    assert [row["val_nll"] for row in cached.history] == pytest.approx(
        [r["val_nll"] for r in from_rows.history], rel=1e-3
    )


def test_features_are_computed_once(
    digits: DataSet, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train(digits, short(start, freeze="body", **PLAIN), tmp_path)
    kept = list(tmp_path.glob("features-*"))

    def computed(*arguments: object) -> None:
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(features, "_write", computed)
        second = train(digits, short(start, freeze="body", method="fl3", seed=4, **PLAIN), tmp_path)
    assert not np.array_equal(first.logits["val"], second.logits["val"])
    with pytest.raises(AssertionError, match="computed again"), monkeypatch.context() as patch:
        patch.setattr(features, "_write", computed)
        other = nets.build("resnet8", 1, 10, width=4)
        save_file(other.state_dict(), start)
        train(digits, short(start, freeze="body", **PLAIN), tmp_path)
    assert set(kept) < set(tmp_path.glob("features-*")), "other weights have a folder of their own"


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        (
            {"start": None, "freeze": "body"},
            r"freeze is body, head_epochs 0: some layers .*set training\.start",
        ),
        (
            {"start": None, "head_epochs": 1},
            r"freeze is nothing, head_epochs 1: .*set training\.start to initial weights",
        ),
        ({"freeze": "body", "head_epochs": 1}, r"head_epochs is 1, and freeze is body: .*; set head_epochs: 0"),
        ({"head_epochs": 2}, r"head_epochs is 2 of 2 epochs; set it lower, or set freeze: body"),
        ({"freeze": "head"}, r"freeze is 'head'; allowed are nothing, body, and the stages"),
        ({"freeze": "stages.9"}, r"freeze is 'stages\.9'; allowed are .* stages\.2"),
        ({"net": "resnet8", "resize": 64}, r"training\.resize is 64, and net 'resnet8' has no resize"),
    ],
)
def test_what_does_not_go_together(leaves: dict[str, Any], message: str, digits: DataSet, start: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(digits, short(start, **leaves))


@pytest.mark.parametrize("recipe", ["finetune", "finetune-head"])
def test_the_recipes_begin_with_given_weights(recipe: str, digits: DataSet) -> None:
    with pytest.raises(ConfigError, match=r"set training\.start to initial weights, such as torchvision:resnet18"):
        plan(digits, Training(recipe=recipe))
    planned = plan(digits, Training(recipe=recipe, start="torchvision:resnet18"))
    assert planned.head_alone == (recipe == "finetune-head")
    assert planned.to_json()["start"]["sha256"] == "f37072fd"
