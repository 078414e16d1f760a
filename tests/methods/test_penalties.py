"""Every penalty: value and gradient against its slow twin, edges, invariances, and what it may not do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline import methods
from pipeline.methods import penalties
from tests import reference_penalties as reference
from tests.methods.batches import batch

TWINS: dict[str, Callable[..., float]] = {
    "avuc": reference.avuc,
    "avuc_gs": reference.avuc,
    "beta_joint": reference.beta_joint,
    "brier_reliability": reference.brier_reliability,
    "cpc": reference.cpc,
    "dca": reference.dca,
    "dece": reference.dece,
    "entropy": reference.entropy,
    "ks": reference.ks,
    "margin": reference.margin,
    "mdca": reference.mdca,
    "mmce": reference.mmce,
    "s_avuc": reference.s_avuc,
    "sb_ece": reference.sb_ece,
    "sece": reference.sece,
    "soft_histogram": reference.soft_histogram,
}
PAIRWISE = {"mmce", "sece"}
CASES: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in sorted(TWINS)),
    ("avuc", {"kappa": 1.2}),
    ("avuc_gs", {"kappa": 1.2}),
    ("brier_reliability", {"bins": 4}),
    ("cpc", {"bdc": 0.7, "bec": 0.0}),
    ("dece", {"bins": 5, "temperature": 0.1}),
    ("dece", {"bins": 5, "temperature": 0.05, "membership": "sigmoid"}),
    ("margin", {"margin": 0.5}),
    ("margin", {"margin": 2.0, "variant": "official"}),
    ("mmce", {"bandwidth": 0.05}),
    ("mmce", {"variant": "official"}),
    ("mmce", {"weighted": True}),
    ("mmce", {"weighted": True, "variant": "official"}),
    ("s_avuc", {"kappa": 0.3, "temperature": 0.2}),
    ("s_avuc", {"kappa": 0.8, "temperature": 3.0}),
    ("sb_ece", {"kind": "bin"}),
    ("sb_ece", {"kind": "bin", "order": 1.0, "bins": 7}),
    ("sb_ece", {"order": 1.0, "temperature": 0.1}),
    ("sb_ece", {"order": 3.5, "bins": 1}),
    ("sb_ece", {"variant": "official"}),
    ("sb_ece", {"membership": "sigmoid", "temperature": 0.1}),
    ("sb_ece", {"membership": "sigmoid", "kind": "bin", "bins": 1}),
    ("sb_ece", {"membership": "sigmoid", "variant": "official", "bins": 2}),
    ("sece", {"bandwidth": 0.2}),
    ("sece", {"variant": "hard"}),
    ("soft_histogram", {"bins": 3}),
]
EDGES: dict[str, Callable[[int], tuple[Tensor, Tensor]]] = {
    "all right": lambda k: (60.0 * torch.eye(k).repeat(3, 1), torch.arange(k).repeat(3)),
    "all wrong": lambda k: (60.0 * torch.eye(k).repeat(3, 1), (torch.arange(k) + 1).remainder(k).repeat(3)),
    "far apart": lambda k: (60.0 * (1 - 2 * torch.eye(k)), torch.arange(k)),
    "uniform": lambda k: (torch.zeros(6, k), torch.arange(6) % k),
    "nearly uniform": lambda k: (1e-9 * torch.arange(6.0 * k).view(6, k), torch.arange(6) % k),
    "ties at the top": lambda k: (torch.tensor([3.0, 3.0] + [0.0] * (k - 2)).repeat(5, 1), torch.arange(5) % 2),
    "one-hot to the last bit": lambda k: (
        torch.cat([1e4 * torch.eye(k), -1e4 * torch.eye(k)]),
        torch.arange(2 * k).remainder(k),
    ),
    "the same row": lambda k: (torch.arange(float(k)).repeat(4, 1), torch.tensor([0, 1, 1, k - 1])),
}


def twin(name: str, logits: Tensor, labels: Tensor, options: dict[str, Any], **more: Any) -> float:
    return TWINS[name](logits.tolist(), labels.tolist(), **options, **more)


def value(name: str, logits: Tensor, labels: Tensor, options: dict[str, Any] | None = None) -> Tensor:
    penalty: Tensor = getattr(penalties, name)(logits, labels, **(options or {}))
    return penalty


def sample(classes: int, rows: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Some right answers and some wrong, at all confidences."""
    logits, labels = batch(classes, rows, seed=seed)
    labels[::2] = logits[::2].argmax(1)
    return logits * torch.linspace(0.3, 2, rows, dtype=torch.float64).unsqueeze(1), labels


def test_every_penalty_is_a_part_with_a_twin() -> None:
    parts = {name for name, part in methods.PARTS.items() if part.role == "penalty"}
    assert parts == set(TWINS) == set(penalties.__all__)


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_equals_the_slow_twin(name: str, options: dict[str, Any], classes: int) -> None:
    logits, labels = sample(classes)
    penalty = value(name, logits, labels, options)
    assert penalty.dtype == torch.float64 and penalty.shape == ()
    # The twin of beta_joint searches its minimum; one row has a confidence above .9999, whose 1 - c cancels there.
    assert float(penalty) == pytest.approx(
        twin(name, logits, labels, options), rel=1e-9 if name != "beta_joint" else 1e-7
    )
    rough = value(name, logits.float(), labels, options)
    assert rough.dtype == torch.float32 and float(rough) == pytest.approx(float(penalty), rel=2e-3, abs=1e-5)


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("classes", [2, 10])
def test_gradient_is_the_slope_of_the_slow_twin(name: str, options: dict[str, Any], classes: int) -> None:
    logits, labels = sample(classes, seed=1)
    (gradient,) = torch.autograd.grad(value(name, logits.requires_grad_(), labels, options), logits)
    more = {"frozen": logits.tolist()} if name == "avuc_gs" else {}
    generator = torch.Generator().manual_seed(2)
    for _ in range(3):
        step = 1e-5 * torch.randn(logits.shape, generator=generator, dtype=torch.float64)
        ends = [twin(name, logits.detach() + sign * step, labels, options, **more) for sign in (1, -1)]
        assert float((gradient * step).sum()) == pytest.approx((ends[0] - ends[1]) / 2, rel=1e-4, abs=1e-10)


@pytest.mark.parametrize("variant", ["plain", "spline"])
def test_ks_gradient(variant: str) -> None:
    logits, labels = sample(4, rows=12)
    assert torch.autograd.gradcheck(lambda z: penalties.ks(z, labels, variant=variant), logits.requires_grad_())


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_at_the_edges(edge: str, classes: int, dtype: torch.dtype) -> None:
    plain, labels = EDGES[edge](classes)
    for name, options in [*CASES, ("ks", {"variant": "spline"})]:
        logits = plain.to(dtype).requires_grad_()
        penalty = value(name, logits, labels, options)
        (gradient,) = torch.autograd.grad(penalty, logits)
        assert bool(torch.isfinite(penalty)), (name, options)
        assert bool(torch.isfinite(gradient).all()), (name, options)


@pytest.mark.parametrize("edge", ["ties at the top", "the same row", "uniform"])
def test_ties_equal_the_slow_twin(edge: str) -> None:
    logits, labels = EDGES[edge](3)
    logits = logits.double()
    for name, options in CASES:
        if not (name == "s_avuc" and edge == "uniform"):  # there h / log C is 1 or a rounding error less
            expected = twin(name, logits, labels, options)
            assert float(value(name, logits, labels, options)) == pytest.approx(expected, rel=1e-8, abs=1e-9), name


@pytest.mark.parametrize("name", sorted(TWINS))
@pytest.mark.parametrize("label", [0, 2])
def test_a_batch_of_one(name: str, label: int) -> None:
    logits, labels = torch.tensor([[2.0, 0.0, 1.0]], dtype=torch.float64, requires_grad=True), torch.tensor([label])
    if name in PAIRWISE:
        with pytest.raises(
            ValueError, match=r"have 1 rows; .*at least 2, because it compares pairs .*raise batch_size"
        ):
            value(name, logits, labels)
        return
    penalty = value(name, logits, labels)
    (gradient,) = torch.autograd.grad(penalty, logits)
    assert penalty.item() == pytest.approx(twin(name, logits.detach(), labels, {}), rel=1e-7)
    assert bool(torch.isfinite(gradient).all())


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([2, 3, 8]), st.integers(2, 9), st.floats(-50, 50))
def test_invariances(seed: int, classes: int, rows: int, shift: float) -> None:
    """Neither the batch's order, nor the classes' names, nor a constant added to a row's logits matter."""
    logits, labels = batch(classes, rows, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    order, names = torch.randperm(rows, generator=generator), torch.randperm(classes, generator=generator)
    other = logits[order][:, names] + shift
    renamed = names.argsort()[labels[order]]
    for name, options in [(name, {}) for name in TWINS] + [("ks", {"variant": "spline"})]:
        one, two = value(name, logits, labels, options), value(name, other, renamed, options)
        assert float(one) == pytest.approx(float(two), rel=1e-6, abs=1e-7), name
        assert float(one) >= -1e-12 or name == "entropy", name


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 200))
def test_a_row_gains_nothing_from_its_own_constant(seed: int, classes: int) -> None:
    """No penalty's gradient moves all logits of a row together."""
    logits, labels = batch(classes, 4, seed=seed)
    logits.requires_grad_()
    for name in TWINS:
        (gradient,) = torch.autograd.grad(value(name, logits, labels), logits)
        assert float(gradient.sum(1).abs().max()) < 1e-8 * (1 + float(gradient.abs().max())), name


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's stubs
    """The most elements that any tensor has that an operation returns."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                self.most = max(self.most, tensor.numel())
        return result


@pytest.mark.parametrize("name", sorted(TWINS))
def test_never_forms_rows_by_classes_by_classes(name: str) -> None:
    rows, classes = 8, 200
    logits, labels = batch(classes, rows)
    with Largest() as largest:  # type: ignore[no-untyped-call]
        torch.autograd.grad(value(name, logits.requires_grad_(), labels), logits)
    assert largest.most <= 20 * rows * classes


@pytest.mark.parametrize("name", sorted(TWINS))
def test_never_reads_a_value_back(name: str) -> None:
    """On the meta device there are no values to read."""
    logits = torch.zeros(4, 3, device="meta", requires_grad=True)
    penalty = value(name, logits, torch.zeros(4, dtype=torch.int64, device="meta"))
    assert torch.autograd.grad(penalty, logits)[0].shape == (4, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(TWINS))
def test_half_precision_is_raised(name: str, dtype: torch.dtype) -> None:
    logits, labels = sample(5)
    half = logits.to(dtype).requires_grad_()
    penalty = value(name, half, labels)
    assert penalty.dtype == torch.float32 and torch.equal(penalty, value(name, half.float(), labels))
    assert torch.autograd.grad(penalty, half)[0].dtype == dtype


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.zeros(3, 4), torch.zeros(2, dtype=torch.int64), r"logits \(3, 4\) and labels \(2,\) do not fit"),
        (torch.zeros(3, 1), torch.zeros(3, dtype=torch.int64), "C at least 2"),
        (torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), "have 0 rows"),
        (torch.zeros(3, 4), torch.zeros(3), r"labels torch.float32; expected .*int64 class indices"),
        (torch.zeros(3, 4, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), r"logits are torch.int64"),
        (torch.zeros(3, 4), torch.tensor([0, 4, 1]), "labels run from 0 to 4; allowed are 0 to 3"),
        (torch.zeros(3, 4), torch.tensor([0, -100, 1]), "labels run from -100 to 1; allowed are 0 to 3"),
    ],
)
@pytest.mark.parametrize("name", sorted(TWINS))
def test_bad_inputs(name: str, logits: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        value(name, logits, labels)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("avuc", {"kappa": 0.0}, r"kappa is 0.0; allowed are numbers above 0"),
        ("brier_reliability", {"bins": 0}, r"bins is 0; allowed are numbers above 0"),
        ("cpc", {"bec": -1.0}, r"bec is -1.0; allowed are numbers from 0 up"),
        ("dece", {"temperature": math.inf}, r"temperature is inf"),
        ("dece", {"membership": "gaussian"}, r"membership is 'gaussian'; allowed: 'softmax', 'sigmoid'"),
        ("ks", {"bins": 2.5}, r"bins is 2.5; allowed are whole numbers"),
        ("ks", {"variant": "official"}, r"variant is 'official'; allowed: 'plain', 'spline'"),
        ("margin", {"margin": math.nan}, r"margin is nan"),
        ("mmce", {"bandwidth": -0.4}, r"bandwidth is -0.4"),
        ("s_avuc", {"kappa": 1.0}, r"kappa is 1.0; allowed are numbers between 0 and 1"),
        ("sb_ece", {"kind": "labels"}, r"kind is 'labels'; allowed: 'label', 'bin'"),
        ("sb_ece", {"kind": "bin", "variant": "official"}, r"variant is 'official'; allowed: 'paper'"),
        ("sb_ece", {"membership": "sigmoids"}, r"membership is 'sigmoids'; allowed: 'gaussian', 'sigmoid'"),
        ("sb_ece", {"order": 0.5}, r"order is 0.5; allowed are numbers from 1 to 10"),
        ("sb_ece", {"order": 11.0}, r"order is 11.0"),
        ("sb_ece", {"bins": 15.0}, r"bins is 15.0; allowed are whole numbers"),
        ("sece", {"bandwidth": math.nan}, r"bandwidth is nan"),
    ],
)
def test_bad_options(name: str, options: dict[str, Any], message: str) -> None:
    logits, labels = sample(3)
    with pytest.raises(ValueError, match=message):
        value(name, logits, labels, options)


@pytest.mark.parametrize("name", sorted(TWINS))
def test_not_a_number_is_not_hidden(name: str) -> None:
    logits, labels = sample(4)
    logits[2, 1] = math.nan
    assert math.isnan(float(value(name, logits, labels)))
