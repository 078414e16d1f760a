"""Every primary loss against a slow twin in value and gradient, by hand, at the edges, and its properties."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pipeline import config, methods, nets
from pipeline.methods import losses
from pipeline.methods.gamma import RULES
from pipeline.methods.method import Moment
from tests import reference_losses as reference
from tests.methods.batches import batch
from trueodds.errors import ConfigError

PRIMARY = [name for name, part in methods.PARTS.items() if part.role == "primary"]
QUIET = {"noise": 0.0}  # without noise every draw is the answer itself
CASES: list[tuple[str, dict[str, Any]]] = [
    ("ce", {}),
    ("mse", {}),
    ("focal", {}),
    ("focal", {"gamma": 0}),
    ("focal", {"gamma": 0.5}),
    ("focal", {"gamma": 5, "alpha": 0.25}),
    ("focal", {"gra": True}),
    *(("focal", {"gamma": rule}) for rule in RULES),
    ("focal", {"gamma": "fls531", "first_change": 0.1, "second_change": 0.4}),
    ("focal", {"gamma": "flsd53", "gra": True}),
    ("inverse_focal", {}),
    ("inverse_focal", {"gamma": 0.5, "gra": True}),
    ("dual_focal", {}),
    ("dual_focal", {"gamma": 0.5}),
    ("dual_focal", {"gra": True}),
    ("dual_focal", {"gamma": "flsd53"}),
    ("dual_focal", {"variant": "official", "gra": True}),
    ("dual_focal", {"variant": "survey", "gamma": 2, "gamma2": 1.5, "alpha1": 0.25, "alpha2": 0.5}),
    ("dual_focal", {"variant": "survey", "gamma": 2, "gamma2": 0, "gra": True}),
    ("bsce", {}),
    ("bsce", {"gra": True}),
    ("bsce", {"norm": 1, "gamma": 2}),
    ("bsce", {"norm": 3, "gamma": 1}),
    ("bsce", {"norm": 2, "gamma": 0.5}),
    ("consistency", QUIET),
    ("consistency", {**QUIET, "gra": False}),
    ("consistency", {**QUIET, "variant": "vote"}),
    ("consistency", {**QUIET, "gamma": 2.5, "gra": False}),
    ("consistency", {**QUIET, "start": 0.6}),
    ("consistency", {**QUIET, "variant": "official", "gamma": 3.0}),
    ("adafocal", {}),
    ("adafocal", {"gamma": 3, "gra": True}),
    ("ece_ce", {}),
]
PROGRESS = 0.5


def complete(name: str, options: dict[str, Any]) -> dict[str, Any]:
    return {**methods.PARTS[name].options(), **options}


def gradient(loss: Tensor, logits: Tensor) -> Tensor:
    (slope,) = torch.autograd.grad(loss, logits)
    return slope


def test_every_part_has_a_twin_and_a_case() -> None:
    assert set(PRIMARY) == set(reference.TWINS) == {name for name, _ in CASES}


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("rows", [1, 6])
def test_value_equals_the_slow_twin(name: str, options: dict[str, Any], classes: int, rows: int) -> None:
    logits, labels = batch(classes, rows)
    expected = reference.mean(name, logits.tolist(), labels.tolist(), progress=PROGRESS, **complete(name, options))
    loss = methods.build(name, **options).loss(logits, labels, progress=PROGRESS)
    assert loss.dtype == torch.float64 and loss.shape == ()
    # gamma* is read from a table: 4e-4 of gamma is that of the loss, times |log(1 - p)|
    assert float(loss) == pytest.approx(expected, rel=1e-4 if options.get("gamma") == "lambert" else 1e-12)


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("classes", [2, 5])
def test_gradient_is_that_of_the_slow_twin_with_the_constants_held(
    name: str, options: dict[str, Any], classes: int
) -> None:
    logits, labels = batch(classes, rows=4)
    rows, settings_ = logits.tolist(), complete(name, options)
    loss = methods.build(name, **options).loss(logits.requires_grad_(), labels, progress=PROGRESS)
    numeric = reference.slope(
        lambda moved: reference.mean(name, moved, labels.tolist(), rows, PROGRESS, **settings_), rows
    )
    tolerance = 1e-3 if options.get("gamma") == "lambert" else 1e-7
    assert torch.allclose(gradient(loss, logits), torch.tensor(numeric, dtype=torch.float64), atol=tolerance)


@pytest.mark.parametrize("name", ["ce", "mse", "focal", "inverse_focal", "dual_focal", "bsce", "adafocal", "ece_ce"])
def test_gradient_is_the_numeric_one_where_nothing_is_constant(name: str) -> None:
    logits, labels = batch(5)
    method = methods.build(name)
    assert torch.autograd.gradcheck(lambda z: method.loss(z, labels), logits.requires_grad_())


@pytest.mark.parametrize("name", ["focal", "inverse_focal", "dual_focal", "bsce", "consistency", "adafocal"])
def test_gra_has_the_value_and_the_gradient_of_weighted_cross_entropy(name: str) -> None:
    logits, labels = batch(5)
    logits.requires_grad_()
    values = []
    for gra in (False, True):
        torch.manual_seed(3)
        values.append(methods.build(name, gra=gra).per_sample(logits, labels))
    assert torch.equal(values[0], values[1])
    p = torch.softmax(logits.detach(), 1)
    true = torch.nn.functional.one_hot(labels, 5)
    weight = values[1].detach() / -(p * true).sum(1).log()
    slope = gradient(values[1].sum(), logits)
    assert torch.allclose(slope, weight.unsqueeze(1) * (p - true), rtol=1e-9)
    assert not torch.allclose(slope, gradient(values[0].sum(), logits), rtol=1e-3)


EDGES = {
    "all right, certain": [[60.0, -60, 0], [1e4, 0, -1e4], [800, 0, 0]],
    "all wrong, certain": [[-60.0, 60, 0], [0, 1e4, -1e4], [-800, 0, 0]],
    "ties": [[0.0, 0, 0], [1, 1, 0], [0, 1, 1]],
    "two classes": [[60.0, -60], [-60, 60], [0, 0]],
    "p_y = .5 and its neighbours": [[0.0, 0], [1e-9, 0], [-1e-9, 0]],
}


@pytest.mark.parametrize(("name", "options"), [*CASES, ("bsce", {"norm": 1, "gamma": 0.1}), ("consistency", {})])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_at_the_edges(name: str, options: dict[str, Any], edge: str, dtype: torch.dtype) -> None:
    logits = torch.tensor(EDGES[edge], dtype=dtype, requires_grad=True)
    labels = torch.zeros(len(logits), dtype=torch.int64)
    method = methods.build(name, **options)
    for targets in (labels, torch.eye(logits.shape[1], dtype=dtype)[labels], torch.full_like(logits.detach(), 0.25)):
        values = method.per_sample(logits, targets)
        assert values.dtype == dtype and bool(torch.isfinite(values).all()) and bool((values >= 0).all())
        assert bool(torch.isfinite(gradient(values.sum(), logits)).all())


@pytest.mark.parametrize(("name", "options"), CASES)
def test_distributions_as_targets_weigh_the_classes(name: str, options: dict[str, Any]) -> None:
    logits, labels = batch(6)
    logits.requires_grad_()
    method = methods.build(name, **options)
    one_hot = torch.nn.functional.one_hot(labels, 6).double()
    one, two = (method.per_sample(logits, y) for y in (labels, (labels + 1) % 6))
    for targets, expected in ((one_hot, one), (0.3 * one_hot + 0.7 * one_hot.roll(1, 1), 0.3 * one + 0.7 * two)):
        values = method.per_sample(logits, targets)
        assert torch.allclose(values, expected, rtol=1e-10)
        weights = torch.linspace(1, 2, len(values), dtype=torch.float64)
        slopes = [torch.autograd.grad(v @ weights, logits, retain_graph=True)[0] for v in (values, expected)]
        assert torch.allclose(slopes[0], slopes[1], atol=1e-12)


def test_by_hand() -> None:
    even, y = torch.zeros(3, 4, dtype=torch.float64), torch.tensor([0, 1, 2])  # p = 1/4 everywhere
    ladder = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log()

    def value(name: str, logits: Tensor, labels: Tensor, **options: Any) -> float:
        return float(methods.build(name, **options).loss(logits, labels))

    assert value("ce", even, y) == pytest.approx(math.log(4))
    assert value("brier", even, y) == pytest.approx(0.75**2 + 3 / 16)
    assert value("fl2", even, y) == pytest.approx(0.75**2 * math.log(4))
    assert value("focal", even, y, gamma=2, alpha=0.25) == pytest.approx(0.25 * 0.75**2 * math.log(4))
    assert value("inverse_focal", even, y) == pytest.approx(1.25**2 * math.log(4))
    assert value("dfl", even, y) == pytest.approx(0.75**5 * math.log(4))  # nothing is strictly below p_y
    assert value("bsce", even, y) == pytest.approx((0.75**2 + 3 / 16) * math.log(4))
    second = torch.tensor([1])
    assert value("dual_focal", ladder, second, gamma=1) == pytest.approx((1 - 0.3 + 0.2) * -math.log(0.3))
    assert value("dual_focal", ladder, second, gamma=1, gamma2=2, alpha1=3, variant="survey") == pytest.approx(
        3 * 0.7 * -math.log(0.3) + 0.5**2 * -math.log(0.5)
    )
    assert value("consistency", ladder, second, noise=0.0) == pytest.approx(0.5 * -math.log(0.3))


def test_the_family_meets_where_the_papers_say() -> None:
    logits, labels = batch(10)
    two, y = batch(2)

    def value(name: str, z: Tensor = logits, labels: Tensor = labels, **options: Any) -> float:
        return float(methods.build(name, **options).loss(z, labels))

    for name in ("focal", "inverse_focal", "dual_focal", "bsce"):
        assert value(name, gamma=0) == pytest.approx(value("ce"), rel=1e-14)
    assert value("bsce", norm=1, gamma=2) == pytest.approx(4 * value("fl2"), rel=1e-12)  # ||y - p||_1 = 2 (1 - p_y)
    assert value("bsce", two, y) == pytest.approx(2 * value("fl2", two, y), rel=1e-12)  # for two classes too


def test_the_official_gra_of_dual_focal_lets_the_gradient_through_p_y() -> None:
    logits, labels = batch(5)
    logits.requires_grad_()
    slopes = {
        variant: gradient(methods.build("dfl_gra", variant=variant).loss(logits, labels), logits)
        for variant in ("paper", "official")
    }
    assert not torch.allclose(slopes["paper"], slopes["official"], rtol=1e-2)
    values = [methods.build("dual_focal", variant=variant).loss(logits, labels) for variant in ("paper", "official")]
    assert torch.equal(values[0], values[1])


@pytest.mark.parametrize(
    "options", [{}, {"gra": False}, {"gamma": 2.0}, {"variant": "vote"}, {"variant": "official", "gamma": 3.0}]
)
def test_consistency_equals_the_slow_twin_on_the_same_draws(options: dict[str, Any]) -> None:
    logits, labels = batch(4)
    logits.requires_grad_()
    torch.manual_seed(5)
    draws = torch.randn(8, 6, 4, dtype=torch.float64).tolist()
    torch.manual_seed(5)
    values = methods.build("consistency", **options).per_sample(logits, labels)
    for n, (row, k) in enumerate(zip(logits.tolist(), labels.tolist(), strict=True)):
        settings_ = {**complete("consistency", options), "draws": [draw[n] for draw in draws]}
        assert values[n].item() == pytest.approx(reference.consistency(row, k, row, 0.0, **settings_), rel=1e-12)
        numeric = reference.slope(
            lambda z, k=k, at=row, s=settings_: reference.consistency(z[0], k, at, 0.0, **s),  # type: ignore[misc]
            [row],
        )
        (slopes,) = torch.autograd.grad(values[n], logits, retain_graph=True)
        assert slopes[n].tolist() == pytest.approx(numeric[0], abs=1e-7)


def test_consistency_perturbs_the_features_where_there_are_some() -> None:
    logits, labels = batch(4)
    features, head = torch.eye(6, dtype=torch.float64), torch.nn.Linear(6, 4, bias=False).double()
    head.weight.data = logits.T.clone()
    method = methods.build("consistency", noise=0.1, count=100)
    torch.manual_seed(0)
    values = method.per_sample(logits, labels, features, head=head)
    torch.manual_seed(0)
    moved = features + 0.1 * torch.randn(100, 6, 6, dtype=torch.float64)
    answer = logits.argmax(1)
    weight = 1 - torch.softmax(head(moved), 2).mean(0)[torch.arange(6), answer]
    assert torch.allclose(values, weight * losses.cross_entropy(logits, labels))


@settings(max_examples=60, deadline=None)
@given(
    row=st.lists(st.floats(-30, 30), min_size=2, max_size=6),
    shift=st.floats(-50, 50),
    gamma=st.floats(0, 8),
    case=st.sampled_from([case for case in CASES if case[0] != "consistency" and "gamma" not in case[1]]),
)
def test_properties(row: list[float], shift: float, gamma: float, case: tuple[str, dict[str, Any]]) -> None:
    """Not negative; blind to a shift of all logits and to the order of the other classes."""
    name, options = case
    if name in ("focal", "inverse_focal", "dual_focal", "bsce"):
        options = {**options, "gamma": gamma}
    method = methods.build(name, **options)
    first = torch.tensor([0])
    z = torch.tensor([row], dtype=torch.float64)
    value = float(method.loss(z, first))
    assert value >= 0
    # a weight under a small power is steep at p_y = 1: what rounding moves there, it moves by more
    assert float(method.loss(z + shift, first)) == pytest.approx(value, rel=1e-6, abs=1e-9)
    turned = torch.cat([z[:, :1], z[:, 1:].flip(1)], 1)
    assert float(method.loss(turned, first)) == pytest.approx(value, rel=1e-6, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(p=st.floats(0.001, 0.999), gamma=st.floats(0.1, 10))
def test_the_gradient_of_focal_loss_is_g_times_that_of_cross_entropy(p: float, gamma: float) -> None:
    """g(p, gamma) = (1 - p)^gamma - gamma p (1 - p)^(gamma - 1) log p: Mukhoti et al. 2020, proposition 1."""
    z = torch.tensor([[math.log(p / (1 - p)), 0.0]], dtype=torch.float64, requires_grad=True)
    label = torch.tensor([0])
    values, plain = (
        gradient(method(z, label).sum(), z) for method in (partial(losses.focal, gamma=gamma), losses.cross_entropy)
    )
    factor = (1 - p) ** gamma - gamma * p * (1 - p) ** (gamma - 1) * math.log(p)
    assert torch.allclose(values, factor * plain, rtol=1e-8)


@pytest.mark.parametrize("options", [{}, {"gamma": "flsd53"}, {"gra": True}])
def test_focal_loss_weighs_each_class(options: dict[str, Any]) -> None:
    logits, labels = batch(3, rows=8)
    alpha = [0.25, 2.0, 0.0]
    rows, settings_ = logits.tolist(), complete("focal", {**options, "alpha": alpha})
    loss = methods.build("focal", **options, alpha=alpha).loss(logits.requires_grad_(), labels)
    assert loss.item() == pytest.approx(reference.mean("focal", rows, labels.tolist(), **settings_), rel=1e-12)
    numeric = reference.slope(lambda moved: reference.mean("focal", moved, labels.tolist(), rows, **settings_), rows)
    assert torch.allclose(gradient(loss, logits), torch.tensor(numeric, dtype=torch.float64), atol=1e-7)
    plain, equal = (methods.build("focal", **options, alpha=a).loss(logits, labels) for a in (0.5, [0.5] * 3))
    assert torch.allclose(plain, equal, rtol=1e-14)
    mixed = torch.full((8, 3), 1 / 3, dtype=torch.float64)
    each = [methods.build("focal", **options, alpha=a).per_sample(logits, labels * 0 + k) for k, a in enumerate(alpha)]
    weighed = methods.build("focal", **options, alpha=alpha).per_sample(logits, mixed)
    assert torch.allclose(weighed, torch.stack(each).mean(0))


def test_a_number_for_each_class_must_fit_the_classes() -> None:
    with pytest.raises(ConfigError, match="alpha of focal has 2 numbers, and the data has 3 classes; give one"):
        methods.build("focal", nets.build("mlp", 4, 3), alpha=[1.0, 2.0])
    with pytest.raises(ValueError, match="got 2 numbers for 3 classes"):
        methods.build("focal", alpha=[1.0, 2.0]).loss(*batch(3))
    with pytest.raises(ConfigError, match=r"alpha = -1 .*allowed is 0 to 100"):
        methods.build("focal", alpha=[1.0, -1])
    wrongs: list[Any] = [[], [True], ["a"], "inverse"]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=r"a float, such as 1.0, or a list with a number for each class"):
            methods.build("focal", alpha=wrong)
    with pytest.raises(ConfigError, match=r"gamma = \[2.0\] .*allowed is a float"):
        methods.build("focal", gamma=[2.0])
    loaded = config.parse({"training": {"method": "focal", "method_options": {"alpha": [1, 0.5]}}}).training
    assert loaded.method_options == {"alpha": [1, 0.5]}


def test_bare_functions_take_the_moment() -> None:
    logits, labels = batch(3)
    late = losses.focal(logits, labels, Moment(progress=0.9), gamma="fls531")
    assert torch.equal(late, losses.focal(logits, labels, gamma=1.0))
