"""The official variant of `consistency`: the true class's share of the draws, and the strength that is refitted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from pipeline import methods
from pipeline.methods.losses import Consistency
from pipeline.methods.losses.consistency import best_strength
from pipeline.methods.method import Method
from tests import reference_losses as reference
from tests.methods.batches import batch
from trueodds.errors import ConfigError


def weights(method: Method, logits: torch.Tensor, labels: torch.Tensor) -> list[float]:
    plain = methods.build("ce").per_sample(logits, labels)
    values: list[float] = (method.per_sample(logits, labels) / plain).tolist()
    return values


def test_a_row_that_is_wrong_and_sure_of_it_weighs_all_or_nothing() -> None:
    """The paper's text asks how steady the answer is, right or wrong; its public code how steady the TRUE class is."""
    logits, labels = torch.tensor([[10.0, 0, 0, 0]]), torch.tensor([1])
    (paper,) = weights(methods.build("consistency", noise=0.1, gamma=1.0), logits, labels)
    (official,) = weights(methods.build("consistency", noise=0.1, variant="official", gamma=3.0), logits, labels)
    assert paper < 2e-4 and official > 0.9999


def test_shares_of_many_draws_are_those_of_the_normal_distribution() -> None:
    """Of two classes z_0 - z_1 + s (e_0 - e_1) > 0 with probability Phi((z_0 - z_1) / (s sqrt 2))."""
    torch.manual_seed(0)
    gap = torch.linspace(-3, 3, 7, dtype=torch.float64)
    method = methods.build("consistency_official", start=0, noise=1.5, count=1000)
    values = weights(method, torch.stack([gap, torch.zeros(7)], 1), torch.zeros(7, dtype=torch.int64))
    assert values == pytest.approx((1 - ndtr(gap.numpy() / (1.5 * math.sqrt(2)))) ** 3, abs=0.06)


def test_draws_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.methods.losses.consistency.ELEMENTS", 3 * 6 * 4)
    logits, labels = batch(4, rows=6)
    part = Consistency(variant="official", count=8)
    assert [len(block) for block in part._draws(logits, None)] == [3, 3, 2]
    part.learn(logits, labels)
    values = part(logits, labels)
    assert bool((values >= 0).all()) and part._limits(logits).shape == (8, 6)


@pytest.mark.parametrize("search", ["fine", "grid"])
def test_the_strength_equals_the_slow_twin(search: str) -> None:
    logits, labels = batch(4, rows=30, seed=2)
    part = Consistency(variant="official", count=6, search=search)
    before = torch.get_rng_state()
    part.learn(3 * logits, labels)
    assert torch.equal(torch.get_rng_state(), before), "the draws of training are the same with and without a search"
    draws = torch.randn((6, 30, 4), generator=torch.Generator().manual_seed(0), dtype=torch.float64).tolist()
    rows, y = (3 * logits).tolist(), labels.tolist()
    assert part.noise == best_strength(lambda s: reference.consistency_error(rows, y, draws, s), search) > 0


def test_the_strength_of_rows_made_with_it_is_found() -> None:
    """Rows that are right as often as their answer withstands noise of strength 2."""
    random = np.random.default_rng(0)
    gap = random.uniform(0.2, 8, 6000)
    labels = (random.random(6000) > ndtr(gap / (2 * math.sqrt(2)))).astype(np.int64)
    part = Consistency(variant="official", count=500)
    part.learn(torch.from_numpy(np.stack([gap, 0 * gap], 1)), torch.from_numpy(labels))
    assert part.noise == pytest.approx(2, rel=0.15)


def test_the_search_of_the_strength() -> None:
    assert best_strength(lambda s: abs(s - 3.377), "fine") == pytest.approx(3.377, abs=2e-3)
    assert best_strength(lambda s: abs(s - 3.377), "grid") == pytest.approx(3.377, abs=0.06)
    assert best_strength(lambda s: s, "fine") == 0 and best_strength(lambda s: -s, "fine") == 10
    assert best_strength(lambda s: 1.0, "fine") == best_strength(lambda s: 1.0, "grid") == 0  # the first of equals


def test_it_learns_from_the_validation_rows_and_a_checkpoint_keeps_it() -> None:
    method, other = (methods.build("consistency_official") for _ in range(2))
    assert method.learns_from_validation and "the validation rows" in method.notes()[0]
    logits, labels = batch(4, rows=40)
    with torch.inference_mode():
        method.after_validation(4 * logits, labels)
    assert isinstance(method.primary, Consistency) and isinstance(other.primary, Consistency)
    assert method.primary.noise != other.primary.noise
    other.restore(method.state())
    assert method.primary.noise == other.primary.noise
    paper = methods.build("consistency")
    paper.after_validation(4 * logits, labels)
    assert isinstance(paper.primary, Consistency) and paper.primary.noise == 1.0 and not paper.notes()


def test_a_search_without_a_strength_to_find_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"search of method consistency needs variant official.*leave search out"):
        methods.build("consistency", search="grid")


def test_cross_entropy_comes_before_the_start() -> None:
    logits, labels = batch(4)
    method = methods.build("consistency_official", start=0.5)
    assert torch.equal(method.loss(logits, labels, progress=0.49), methods.build("ce").loss(logits, labels))
    assert not torch.equal(method.loss(logits, labels, progress=0.5), methods.build("ce").loss(logits, labels))
