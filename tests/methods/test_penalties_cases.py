"""Penalties where the value is known by hand or from another definition, and how they compose."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pipeline import methods
from pipeline.methods import penalties
from tests import reference
from tests.methods.batches import batch
from tests.reference_penalties import confidences

# Two answers of confidence 3/4, the first right and the second wrong.
PAIR = torch.tensor([[math.log(3), 0.0]] * 2, dtype=torch.float64), torch.tensor([0, 1])
# Four such answers, three right: calibrated.
CALIBRATED = torch.tensor([[math.log(3), 0.0]] * 4, dtype=torch.float64), torch.tensor([0, 0, 1, 0])
ENTROPY = math.log(4) - 0.75 * math.log(3)  # of (3/4, 1/4)
# Not mdca: where the classes are alike, over-confidence cancels in each class's mean.
SENSITIVE = ("beta_joint", "brier_reliability", "dca", "ks", "mmce", "sb_ece", "sece")


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("mmce", {}, 0.25),  # |(1/4 - 3/4) / 2|, the kernel being 1
        ("mmce", {"variant": "official"}, 0.0625),
        ("mmce", {"weighted": True}, 0.5),  # |1/4 - 3/4|
        ("sece", {}, 0.25),
        ("dca", {}, 0.25),
        ("mdca", {}, 0.25),
        ("ks", {}, 0.25),
        ("ks", {"variant": "spline"}, 0.25),
        ("sb_ece", {}, 0.25),
        ("sb_ece", {"variant": "official"}, 0.0625),
        ("sb_ece", {"kind": "bin", "order": 1.0}, 0.25),
        ("sb_ece", {"membership": "sigmoid", "temperature": 1.0}, 0.25),  # one confidence: memberships do not matter
        ("soft_histogram", {}, 0.25),
        ("brier_reliability", {}, 0.125),  # (1/4)^2 for each of the two classes
        ("entropy", {}, -ENTROPY),
        ("avuc", {"kappa": 0.5}, math.log(4)),  # both uncertain: 1 + .75 / .25
        ("avuc", {"kappa": 0.6}, math.log(4 / 3)),  # both certain: 1 + .25 / .75
        ("s_avuc", {}, math.log(2)),  # what is bad of the one is good of the other
        ("margin", {"margin": 1.0}, math.log(3) - 1),
        ("margin", {"margin": 1.0, "variant": "official"}, (math.log(3) - 1) / 2),
        ("cpc", {"bdc": 1.0}, (math.log(4 / 3) + math.log(4)) / 2),  # -log sigmoid(+-log 3); no other duels
    ],
)
def test_by_hand(name: str, options: dict[str, Any], expected: float) -> None:
    assert float(getattr(penalties, name)(*PAIR, **options)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["beta_joint", "brier_reliability", "dca", "ks", "mdca", "mmce", "sb_ece", "sece"])
def test_nothing_to_pay_where_calibrated(name: str) -> None:
    logits = CALIBRATED[0].clone().requires_grad_()
    value = getattr(penalties, name)(logits, CALIBRATED[1])
    assert value.item() == pytest.approx(0, abs=1e-12)
    (gradient,) = torch.autograd.grad(value, logits)
    assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("name", SENSITIVE)
def test_overconfidence_costs_more_than_calibration(name: str) -> None:
    logits, labels = batch(5, rows=400, scale=1.5)
    generator = torch.Generator().manual_seed(1)
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    costs = [float(getattr(penalties, name)(logits * sharper, labels)) for sharper in (1, 2, 4)]
    assert costs[0] < costs[1] < costs[2]


@pytest.mark.parametrize("classes", [3, 10, 1000])
def test_uniform_answers(classes: int) -> None:
    logits, labels = torch.zeros(6, classes, dtype=torch.float64), torch.arange(6) % 3
    assert float(penalties.entropy(logits, labels)) == pytest.approx(-math.log(classes), rel=1e-12)
    both = math.log(2) * (0.1 + 0.5)  # every duel is a toss: log 2, and half of it for a pair both must not win
    assert float(penalties.cpc(logits, labels)) == pytest.approx(both, rel=1e-12)
    assert float(penalties.margin(logits, labels)) == 0


def test_sharp_memberships_are_hard_bins() -> None:
    logits, labels = batch(4, rows=60)
    labels[::2] = logits[::2].argmax(1)
    expected = reference.ece(*confidences(logits.tolist(), labels.tolist()), bins=10)
    for membership in ("gaussian", "sigmoid"):
        soft = penalties.sb_ece(logits, labels, bins=10, temperature=1e-6, order=1.0, kind="bin", membership=membership)
        assert float(soft) == pytest.approx(expected, rel=1e-9)
    # With the soft accuracy of a sharp sigmoid only the true class within rounding of the top counts as right.
    for membership in ("softmax", "sigmoid"):
        soft = penalties.dece(logits, labels, bins=10, temperature=1e-6, membership=membership)
        assert float(soft) == pytest.approx(expected, rel=1e-9)


def test_far_confidences_leave_each_sample_alone() -> None:
    """Karandikar's and the gamma-net paper's limit: |a - c|, sample by sample."""
    logits, labels = batch(4, rows=5)
    c, a = confidences(logits.tolist(), labels.tolist())
    alone = math.fsum(abs(right - x) for x, right in zip(c, a, strict=True)) / len(c)
    assert float(penalties.sece(logits, labels, bandwidth=1e-5, variant="hard")) == pytest.approx(alone, rel=1e-12)
    square = math.fsum((right - x) ** 2 for x, right in zip(c, a, strict=True)) / len(c) ** 2
    assert float(penalties.mmce(logits, labels, bandwidth=1e-5)) == pytest.approx(math.sqrt(square), rel=1e-12)


def test_reliability_of_lonely_bins_is_the_brier_score() -> None:
    logits, labels = batch(4, rows=5)
    brier = methods.build("mse").loss(logits, labels)
    assert float(penalties.brier_reliability(logits, labels, bins=10_000)) == pytest.approx(float(brier), rel=1e-12)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(1, 6))
def test_label_bins_see_at_least_what_bins_see(seed: int, order: float) -> None:
    """Jensen's inequality (Karandikar et al. 2021, section 3.2)."""
    logits, labels = batch(3, rows=9, seed=seed)
    by_bin, by_label = (penalties.sb_ece(logits, labels, kind=kind, order=order) for kind in ("bin", "label"))
    assert float(by_bin) <= float(by_label) + 1e-12


def test_avuc_gs_has_avucs_value_and_spares_the_confidence() -> None:
    logits, labels = batch(5, rows=8)
    logits.requires_grad_()
    both = [getattr(penalties, name)(logits, labels, kappa=0.9) for name in ("avuc", "avuc_gs")]
    assert both[0].item() == both[1].item()
    one, two = (torch.autograd.grad(value, logits)[0] for value in both)
    assert not torch.allclose(one, two)


def test_an_ill_defined_avuc_is_large_and_finite() -> None:
    """Every answer right and uncertain: nothing is as it should be, and the formula divides by 0."""
    logits = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    value = penalties.avuc(logits, torch.zeros(3, dtype=torch.int64))
    assert value.item() == pytest.approx(math.log1p(3 * 0.25 * math.tanh(math.log(4)) / 1e-10), rel=1e-12)


def natural_basis(at: np.ndarray[Any, np.dtype[np.float64]], knots: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Natural cubic splines by truncated powers (Hastie et al. 2009, equation 5.4)."""
    knot = np.linspace(0, 1, knots)

    def d(k: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        last = np.maximum(at - knot[-1], 0) ** 3
        bent: np.ndarray[Any, np.dtype[np.float64]] = (np.maximum(at - knot[k], 0) ** 3 - last) / (knot[-1] - knot[k])
        return bent

    return np.stack([np.ones_like(at), at, *(d(k) - d(knots - 2) for k in range(knots - 2))], 1)


@pytest.mark.parametrize("knots", [3, 6, 9])
def test_the_spline_of_ks_fits_the_cumulative_gap(knots: int) -> None:
    logits, labels = batch(3, rows=40)
    c, a = confidences(logits.tolist(), labels.tolist())
    order = np.argsort(c)
    gap = np.cumsum(np.array(a)[order] - np.array(c)[order]) / 40
    basis = natural_basis(np.arange(1, 41) / 40, knots)
    fitted = basis @ np.linalg.lstsq(basis, gap, rcond=None)[0]
    penalty = penalties.ks(logits, labels, variant="spline", bins=knots)
    assert float(penalty) == pytest.approx(np.abs(fitted).max(), rel=1e-9)


@pytest.mark.parametrize("rows", [1, 3, 6])
def test_a_spline_through_few_points_meets_them(rows: int) -> None:
    logits, labels = batch(3, rows=rows)
    splined, plain = (penalties.ks(logits, labels, variant=variant) for variant in ("spline", "plain"))
    assert float(splined) == pytest.approx(float(plain), rel=1e-9)


def test_a_spline_made_in_inference_mode_trains() -> None:
    logits, labels = batch(3, rows=23)
    with torch.inference_mode():
        penalties.ks(logits, labels, variant="spline")
    torch.autograd.backward(penalties.ks(logits.requires_grad_(), labels, variant="spline"))
    assert logits.grad is not None


def test_beta_joint_finds_a_beta_map() -> None:
    """Labels drawn from a beta map of the confidence: what the penalty gains is what that map gains, and more."""
    generator = torch.Generator().manual_seed(0)
    margin = torch.rand(20_000, generator=generator, dtype=torch.float64) * 5
    c = torch.sigmoid(margin)
    truth = torch.sigmoid(0.6 * c.log() - 0.3 * torch.log1p(-c) + 0.2)
    right = torch.rand(len(c), generator=generator) < truth

    def nll(chance: Tensor) -> float:
        return -float(torch.where(right, chance.log(), torch.log1p(-chance)).mean())

    logits = torch.stack([margin, torch.zeros_like(margin)], 1)
    gained = float(penalties.beta_joint(logits, (~right).long()))
    assert nll(c) - nll(truth) < gained < nll(c) - nll(truth) + 3e-4  # three fitted numbers gain 3 / (2 n) by chance


def test_only_the_official_weighted_mmce_ignores_a_batch_of_one_kind() -> None:
    logits, labels = PAIR[0], torch.tensor([1, 1])
    assert float(penalties.mmce(logits, labels, weighted=True)) == pytest.approx(0.75, rel=1e-12)
    assert float(penalties.mmce(logits, labels, weighted=True, variant="official")) == 0


def test_the_logits_decide_where_the_probabilities_tie() -> None:
    logits = torch.tensor([[0.0, 1e-9, 0.0]])
    assert len(set(torch.softmax(logits, 1).flatten().tolist())) == 1
    assert float(penalties.dca(logits, torch.tensor([1]))) == pytest.approx(2 / 3, rel=1e-6)


def test_cpc_is_exact_beyond_the_linear_shortcut_and_in_single_precision() -> None:
    lost = torch.tensor([[21.0, 0.0]], dtype=torch.float64), torch.tensor([1])
    assert float(penalties.cpc(*lost, bdc=1.0)) == pytest.approx(21 + math.log1p(math.exp(-21)), rel=1e-14)
    logits, labels = batch(100, rows=8, scale=0.5)
    logits = (1000 + logits).float()  # a common constant costs no digits
    rough = penalties.cpc(logits, labels, bdc=0.0)
    assert float(rough) == pytest.approx(float(penalties.cpc(logits.double(), labels, bdc=0.0)), rel=5e-7)


@pytest.mark.parametrize("classes", [2, 5, 17])
def test_cpc_has_second_derivatives(classes: int) -> None:
    """Its pairs are an autograd function of their own; here every pair is formed and left to autograd."""
    logits, labels = batch(classes, rows=3)

    def slow(z_NC: torch.Tensor) -> torch.Tensor:
        true_N1 = z_NC.gather(1, labels.unsqueeze(1))
        others_NC = torch.ones_like(z_NC, dtype=torch.bool).scatter(1, labels.unsqueeze(1), False)
        duels_NK = torch.nn.functional.softplus(z_NC - true_N1, threshold=1e9)[others_NC].view(3, -1)
        rest_NK = z_NC[others_NC].view(3, -1)
        pairs = torch.nn.functional.softplus(rest_NK.unsqueeze(2) - rest_NK.unsqueeze(1), threshold=1e9)
        off = ~torch.eye(classes - 1, dtype=torch.bool)
        bec = pairs[:, off].mean() / 2 if classes > 2 else torch.zeros(())
        return 0.1 * duels_NK.mean() + bec

    def hessian(value: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        matrix: torch.Tensor = torch.autograd.functional.hessian(value, logits)  # type: ignore[no-untyped-call]
        return matrix

    assert torch.allclose(hessian(lambda z: penalties.cpc(z, labels)), hessian(slow), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    ("spec", "primary", "penalty", "weight", "options"),
    [
        ("mmce", "ce", "mmce", 2.0, {"weighted": True, "variant": "official"}),
        ("mmce_text", "ce", "mmce", 8.0, {"weighted": True, "variant": "official"}),
        ("mmce_kumar", "ce", "mmce", 2.0, {}),
        ("mdca", "ce", "mdca", 1.0, {}),
        ("fl_mdca", "fl1", "mdca", 1.0, {}),
        ("sb_ece", "ce", "sb_ece", 1.0, {"kind": "label"}),
        ("s_avuc", "ce", "s_avuc", 1.0, {}),
        ("avuc", "ce", "avuc", 1.0, {}),
        ("avuc_gs", "ce", "avuc_gs", 1.0, {}),
        ("focal_sb_ece", "fl2", "sb_ece", 1.0, {"kind": "label"}),
        ("focal_s_avuc", "fl2", "s_avuc", 1.0, {}),
        ("focal_mmce", "fl2", "mmce", 1.0, {}),
        ("mse_sb_ece", "mse", "sb_ece", 1.0, {"kind": "label"}),
        ("mse_avuc_gs", "mse", "avuc_gs", 1.0, {}),
        ("mbls", "ce", "margin", 0.1, {"margin": 6.0, "variant": "official"}),
        ("mbls_tiny", "ce", "margin", 0.1, {"margin": 10.0, "variant": "official"}),
        ("cpc", "ce", "cpc", 1.0, {"bdc": 0.1, "bec": 1.0}),
        ("focal+sb_ece", "fl3", "sb_ece", 1.0, {}),
    ],
)
def test_presets_are_what_the_papers_name(
    spec: str, primary: str, penalty: str, weight: float, options: dict[str, Any]
) -> None:
    logits, labels = batch(6, rows=8, scale=5)
    expected = methods.build(primary).loss(logits, labels) + weight * getattr(penalties, penalty)(
        logits, labels, **options
    )
    assert float(methods.build(spec).loss(logits, labels)) == pytest.approx(float(expected), rel=1e-12)


def test_any_primary_with_any_penalties() -> None:
    logits, labels = batch(6, rows=8)
    primaries = [name for name, part in methods.PARTS.items() if part.role == "primary" and name != "consistency"]
    added = [name for name, part in methods.PARTS.items() if part.role == "penalty"]
    everything = sum(float(getattr(penalties, name)(logits, labels)) for name in added)
    for primary in primaries:
        alone = float(methods.build(primary).loss(logits, labels))
        loss = float(methods.build("+".join([primary, *added])).loss(logits, labels))
        assert loss == pytest.approx(alone + everything, rel=1e-12), primary


def test_options_reach_the_penalty() -> None:
    logits, labels = batch(6, rows=8)
    method = methods.build("ce+sb_ece", bins=5, kind="bin", order=1, temperature=0.1, beta=0.5)
    penalty = penalties.sb_ece(logits, labels, bins=5, kind="bin", order=1.0, temperature=0.1)
    expected = float(methods.build("ce").loss(logits, labels)) + 0.5 * float(penalty)
    assert float(method.loss(logits, labels)) == pytest.approx(expected, rel=1e-12)
