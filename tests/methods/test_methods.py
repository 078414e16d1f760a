"""Names, options and their checks: what `build` makes of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from pipeline import methods, nets
from tests.methods.batches import batch
from trueodds.errors import ConfigError


@pytest.mark.parametrize("name", methods.names())
def test_every_name_builds_and_trains_a_step(name: str) -> None:
    logits, labels = batch(5)
    net = nets.build("mlp", 3, 5).double()
    features = torch.ones(len(labels), net.head.in_features, dtype=torch.float64)
    loss = methods.build(name, net).loss(logits.requires_grad_(), labels, features, head=net.head, progress=0.5)
    torch.autograd.backward(loss)
    assert logits.grad is not None and loss.item() > 0


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("focl", {}, r"unknown method 'focl'; allowed: ce, mse, focal, .*Did you mean 'focal'\?"),
        ("smoothing", {}, r"unknown method 'smoothing'; allowed: ce, "),
        ("focal+mixap", {}, r"unknown penalty or change of labels in method 'focal\+mixap': 'mixap'; .*'mixup'\?"),
        ("focal+ce", {}, r"unknown penalty or change of labels in method 'focal\+ce': 'ce'; allowed: "),
        ("ce+mixup+mixup", {}, r"method 'ce\+mixup\+mixup' names 'mixup' twice"),
        ("focal", {"gama": 2}, r"unknown option of method 'focal': 'gama'; allowed: gamma, .*Did you mean 'gamma'"),
        ("ce", {"gamma": 2}, r"unknown option of method 'ce': 'gamma'; allowed: none"),
        ("focal", {"gamma": "flsd35"}, r"unknown value of option gamma of method 'focal': 'flsd35'; .*'flsd53'\?"),
        ("bsce", {"gamma": "2"}, r"gamma = '2' .*allowed is a float"),
        ("adafocal", {"bins": 2.0}, r"bins = 2\.0 .*allowed is a int"),
        ("mbls", {"variant": 1}, r"variant = 1 .*allowed is a str, such as 'paper', or one of paper, official"),
        ("focal+mixup", {"alpha": 1}, r"'alpha' of method 'focal\+mixup' .*write focal\.alpha or mixup\.alpha"),
        ("focal+mixup", {"ce.alpha": 1}, r"unknown option of method 'focal\+mixup': 'ce\.alpha'"),
        ("focal", {"gamma": True}, r"gamma = True .*allowed is a float"),
        (
            "fl3",
            {"first_change": 0.3},
            r"option first_change of method 'fl3' has an effect only with gamma: fls531 or fls532, and gamma of focal"
            r" is 3\.0; set gamma: fls531 or fls532, or leave first_change out",
        ),
        ("fls531", {"second_change": 1.5}, r"second_change = 1\.5 .*allowed is 0 to 1"),
        ("focal", {"gra": 1}, r"gra = 1 .*allowed is a bool"),
        ("focal", {"gamma": -1}, r"gamma = -1 .*allowed is 0 to 50"),
        ("focal", {"gamma": float("nan")}, r"gamma = nan .*allowed is 0 to 50"),
    ],
)
def test_what_cannot_be_built_is_explained(spec: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        methods.build(spec, **options)


@pytest.mark.parametrize(
    ("logits", "labels", "progress", "message"),
    [
        (torch.zeros(3, 4), torch.zeros(2, dtype=torch.int64), 0.0, r"logits \(3, 4\) and labels \(2,\) do not fit"),
        (torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), 0.0, "N at least 1"),
        (torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64), 1.5, r"progress is 1\.5; allowed is \[0, 1\]"),
    ],
)
def test_bad_calls(logits: torch.Tensor, labels: torch.Tensor, progress: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        methods.build("ce").loss(logits, labels, progress=progress)


def test_an_option_of_several_parts_goes_to_the_one_that_is_named() -> None:
    logits, labels = batch(4)
    method = methods.build("focal+mixup", **{"focal.alpha": 0.5, "mixup.alpha": 0.1})
    assert torch.allclose(method.loss(logits, labels), 0.5 * methods.build("focal").loss(logits, labels))
    assert method.labels[0].alpha == 0.1  # type: ignore[attr-defined]


def test_a_preset_can_be_added_to() -> None:
    logits, labels = batch(4)
    one = methods.build("fl2+smoothing+mdca", epsilon=0.2, beta=3)
    two = methods.build("focal+mdca+smoothing", gamma=2, epsilon=0.2, beta=3)
    assert torch.equal(one.loss(logits, labels), two.loss(logits, labels))
    weights = [term.weight for term in methods.build("mmce+mdca", **{"mdca.beta": 0.5}).penalties]
    assert weights == [2.0, 0.5]  # the preset's beta stays its own penalty's
    with pytest.raises(ConfigError, match=r"'beta' of method 'mmce\+mdca' .*write mmce\.beta or mdca\.beta"):
        methods.build("mmce+mdca", beta=1.0)


@pytest.mark.parametrize(
    ("data", "gammas"),
    [
        ("cifar10", {"resnet50": 5, "resnet110": 4.5, "wrn": 2.6, "densenet": 5}),
        ("cifar100", {"resnet50": 5, "resnet110": 6.1, "wrn": 3.9, "densenet": 3.4}),
    ],
)
def test_dual_focal_loss_has_the_gamma_of_each_net(data: str, gammas: dict[str, float]) -> None:
    logits, labels = batch(5)
    for net, gamma in gammas.items():
        expected = methods.build("dual_focal", gamma=gamma).loss(logits, labels)
        assert methods.build(f"dfl_{data}_{net}").loss(logits, labels) == expected
    tiny = methods.build("dfl_tiny").loss(logits, labels)
    assert tiny == methods.build("dual_focal", gamma=2.3).loss(logits, labels)


def test_an_option_without_effect_is_refused_where_it_is_set_and_not_where_a_preset_brings_it() -> None:
    logits, labels = batch(4)
    fixed = methods.build("fls531_tiny", gamma=3).loss(logits, labels)
    assert fixed == methods.build("focal", gamma=3).loss(logits, labels)
    with pytest.raises(ConfigError, match=r"first_change .* and gamma of focal is 3; set gamma"):
        methods.build("fls531_tiny", gamma=3, first_change=0.2)
    with pytest.raises(ConfigError, match=r"alpha2 .* only with variant: survey, and variant of dual_focal is paper"):
        methods.build("dual_focal", alpha2=0.5)


@pytest.mark.parametrize("spec", ["adafocal", "consistency_official", "ece_ce", "ce+class_smoothing"])
def test_what_a_part_learns_is_told_in_the_same_columns_from_the_start(spec: str) -> None:
    method = methods.build(spec)
    before = method.figures()
    method.after_validation(*batch(4, rows=40))
    method.after_steps(*batch(4, rows=40))
    after = method.figures()
    assert list(before) == list(after) and before != after
    assert all(value is not None and math.isfinite(value) for value in after.values())


def test_penalties_have_a_weight_and_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(logits_NC: torch.Tensor, labels_N: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return logits_NC.new_tensor(0.5) * scale

    monkeypatch.setitem(methods.PARTS, "half", methods.Part(half, "this test", role="penalty"))
    monkeypatch.setitem(methods.PARTS, "twin", methods.Part(half, "this test", role="penalty"))
    logits, labels = batch(4)
    plain = float(methods.build("ce").loss(logits, labels))

    def added(spec: str, progress: float = 0.0, **options: Any) -> float:
        return float(methods.build(spec, **options).loss(logits, labels, progress=progress)) - plain

    assert added("ce+half") == pytest.approx(0.5)
    assert added("ce+half", beta=4, scale=3.0) == pytest.approx(6)
    assert [added("ce+half", at, start=0.5) for at in (0.49, 0.5, 1.0)] == pytest.approx([0, 0.5, 0.5])
    up, down = (
        [added("ce+half", at, start=0.5, schedule=name) for at in (0.5, 0.75, 1.0)] for name in ("ramp", "decay")
    )
    assert up == pytest.approx([0, 0.25, 0.5]) and down == pytest.approx([0.5, 0.25, 0])
    assert added("ce+half", 0.2, schedule="ramp", beta=5) == pytest.approx(0.5)
    assert added("ce+half", 1.0, start=1.0, schedule="decay") == pytest.approx(0.5)
    assert added("ce+half+twin", **{"half.beta": 2, "twin.beta": 3}) == pytest.approx(2.5)
    with pytest.raises(ConfigError, match=r"beta = -1 .*allowed is 0\.0 to"):
        methods.build("ce+half", beta=-1)
    with pytest.raises(ConfigError, match=r"start = 1\.5 .*allowed is 0\.0 to 1\.0"):
        methods.build("ce+half", start=1.5)


def test_only_what_adapts_to_the_validation_rows_says_so() -> None:
    adapting = {name for name in methods.names() if methods.build(name).learns_from_validation}
    assert adapting == {"adafocal", "consistency_official"}
    assert methods.build("ce+class_smoothing").learns_from_validation
    assert not methods.build("ce+smoothing+mixup").learns_from_validation


@pytest.mark.parametrize("name", methods.PARTS)
def test_every_text_option_lists_its_choices(name: str) -> None:
    part = methods.PARTS[name]
    texts = {option for option, default in part.options().items() if isinstance(default, str)}
    assert texts <= set(part.choices)
    assert all(default in part.choices[option] for option, default in part.options().items() if option in texts)
