"""Training runs of the tests: from params.yaml's section to the result, whole or stopped on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import Training
from pipeline.data import HELD_OUT, DataSet
from pipeline.training import loop
from pipeline.training.checkpoint import EVERY, SHARE
from pipeline.training.plan import Plan
from pipeline.training.recipe import Recipe
from pipeline.training.resolution import plan_of
from pipeline.training.training_result import TrainingResult


def plan(data: DataSet, training: Training) -> Plan:
    card = data.card
    return plan_of(training, card["name"], card["input"]["kind"], held_out=HELD_OUT in card["splits"])


def train(
    data: DataSet, training: Training, checkpoints: Path, *, every: float = EVERY, share: float = SHARE
) -> TrainingResult:
    return loop.train(data, plan(data, training), checkpoints, every=every, share=share)


class StoppedError(Exception):
    pass


def stopped(
    data: DataSet,
    training: Training,
    folder: Path,
    at: float,
    monkeypatch: pytest.MonkeyPatch,
    *,
    every: float = EVERY,
    share: float = SHARE,
) -> None:
    """A run that ends after the share `at` of its steps."""
    rate_at = Recipe.rate_at

    def stops(recipe: Recipe, progress: float) -> float:
        if progress > at:
            raise StoppedError
        return rate_at(recipe, progress)

    with monkeypatch.context() as patch:
        patch.setattr(Recipe, "rate_at", stops)
        with pytest.raises(StoppedError):
            train(data, training, folder, every=every, share=share)
