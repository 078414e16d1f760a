"""Theory in numbers: against the losses that train, and what each claim says of few draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline import methods
from pipeline.figures import soft_steps, weights
from pipeline.methods.penalties.bins import gaussian_memberships
from pipeline.methods.penalties.uncertainty import soft_uncertainty
from pipeline.studies import theory


@pytest.mark.parametrize("eta", [[0.9, 0.1], [0.6, 0.3, 0.1], [0.97, 0.01, 0.01, 0.01]])
def test_training_by_bsce_gra_rests_there(eta: list[float]) -> None:
    """The expected gradient of the loss that trains, over the labels, is 0 at the minimiser and not at eta."""
    method = methods.build("bsce_gra")

    def gradient(q: np.ndarray) -> float:
        z_1K = torch.tensor(np.log(q)[None], dtype=torch.float64, requires_grad=True)
        losses = [method.loss(z_1K, torch.tensor([k])) for k in range(len(eta))]
        total = sum(p * loss for p, loss in zip(eta, losses, strict=True))
        (found,) = torch.autograd.grad(total, z_1K)  # type: ignore[arg-type]
        return float(found.abs().max())

    q = theory.minimiser(eta)
    assert q.sum() == pytest.approx(1) and gradient(q) < 1e-9 < 1e-3 < gradient(np.array(eta))


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0, 5.0])
def test_of_two_classes_the_odds_have_a_root(gamma: float) -> None:
    q = theory.minimiser([0.8, 0.2], gamma)
    assert q[0] / q[1] == pytest.approx(4 ** (1 / (1 + gamma)))


def test_several_distributions_at_once_give_what_each_gives() -> None:
    eta_NK = np.random.default_rng(0).dirichlet(np.full(4, 0.3), 5)
    each = np.array([theory.minimiser(eta_K) for eta_K in eta_NK])
    assert theory.minimiser(eta_NK) == pytest.approx(each, abs=1e-12) and each.shape == (5, 4)


def test_what_the_claims_say() -> None:
    found = {(one.source, one.claim): one for one in theory.findings(60)}
    assert len(found) == len(theory.findings(1)) == 6 and theory.findings(60) == list(found.values())
    held = {source: one.held for (source, _), one in found.items()}
    assert held["bsce-gra, eq. 12"] == held["soft-calibration, section 3"] == 60
    assert held["bsce-gra, section 9"] == 0 and 40 < held["gamma-net, eq. 12"] <= 60
    printed = theory.lines(list(found.values()))
    assert "| 60 of 60 draws | - |" in printed and "the net predicts 0.675" in printed


def test_the_weights_of_rows_are_those_of_the_papers(tmp_path: Path) -> None:
    p = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.2, 0.3, 0.5]])
    focal, dual, brier = (weights.weights(loss, p) for loss in weights.WEIGHTS.values())
    assert focal == pytest.approx((1 - p[:, 0]) ** 2)
    assert dual == pytest.approx([(0.3 + 0.2) ** 2, (0.8 + 0.1) ** 2, 0.8**2]), "no other class is below p_y"
    assert brier == pytest.approx(((p - [1, 0, 0]) ** 2).sum(axis=1))
    picture = np.asarray(Image.open(weights.simplex(tmp_path / "new" / "weights")).convert("L"))
    assert picture.std() > 10 and (tmp_path / "new" / "weights.svg").is_file()


def test_soft_steps_are_hard_ones_in_the_limit(tmp_path: Path) -> None:
    """Karandikar et al. 2021, figures 3 and 4: the smaller T, the sharper; kappa is where t is 1/2."""
    c = torch.tensor([0.05, 0.31, 0.5, 0.69, 0.95], dtype=torch.float64)
    u = gaussian_memberships(c, 0.0, 5, 1e-6)
    assert u.argmax(1).tolist() == [0, 1, 2, 3, 4] and float(u.max(1).values.min()) > 1 - 1e-9
    h = torch.tensor([0.2, 0.3, 0.4], dtype=torch.float64)
    assert soft_uncertainty(h, 0.3, 1e-3).tolist() == pytest.approx([0, 0.5, 1], abs=1e-9)
    assert soft_uncertainty(h, 0.5, 1.0).tolist() == pytest.approx(h.tolist())
    for draw in (soft_steps.memberships, soft_steps.uncertainty):
        assert np.asarray(Image.open(draw(tmp_path / draw.__name__)).convert("L")).std() > 10
