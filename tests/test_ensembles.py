"""Deep and snapshot ensembles: pooled probabilities, members as runs of their own, resuming, and one ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline import config, data, stages
from pipeline.config import Data, Training
from pipeline.data import DataSet
from pipeline.export.onnx_graph import run
from pipeline.export.trial import try_bundle
from pipeline.flows.workspace import write_params
from pipeline.nets.pool import Pool, pool_logits
from pipeline.studies import duration
from pipeline.training import ensemble
from pipeline.training.batches import SplitBatches
from pipeline.training.measuring.outputs import outputs
from pipeline.training.recipe import Recipe
from pipeline.training.resolution import plan_of
from tests.test_train import equal
from tests.training_runs import StoppedError, plan, train
from trueodds import logits
from trueodds.bundle import Bundle
from trueodds.errors import ConfigError
from trueodds.files import read_json

SHORT: dict[str, Any] = {"epochs": 2, "width": 4, "batch_size": 80}
CYCLES: dict[str, Any] = {"epochs": 4, "width": 4, "batch_size": 80, "schedule": "cosine", "snapshots": 2}


@pytest.fixture
def digits(workspace: Path) -> DataSet:
    return data.load(Data(train_size=160))


def softmax(z_NC: Any) -> Any:
    """The slow twin, in float64."""
    p_NC = np.array(z_NC, np.float64)
    for row in p_NC:
        row[:] = np.exp(row - row.max())
        row /= row.sum()
    return p_NC


def test_pooled_logits_are_the_log_of_the_mean_probabilities() -> None:
    z_MNC = np.random.default_rng(0).normal(0, 8, (5, 40, 7)).astype(np.float32)
    pooled_NC = pool_logits([torch.from_numpy(z_NC) for z_NC in z_MNC]).numpy()
    expected_NC = np.mean([softmax(z_NC) for z_NC in z_MNC], axis=0)
    np.testing.assert_allclose(np.exp(pooled_NC.astype(np.float64)), expected_NC, rtol=2e-5, atol=1e-12)
    np.testing.assert_allclose(softmax(pooled_NC), expected_NC, rtol=2e-5, atol=1e-12)


def test_certain_nets_pool_to_finite_logits() -> None:
    """One net gives a class the probability 0. The pool halves it, and never has a logit of minus infinity here."""
    sure, unsure = torch.tensor([[2000.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, 0.0]])
    assert softmax(pool_logits([sure, unsure]).numpy())[0] == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    assert bool(torch.isfinite(pool_logits([sure, sure])).all())
    one = torch.randn(3, 4)
    assert torch.allclose(pool_logits([one, one, one]), torch.log_softmax(one, 1), atol=1e-6)


def test_a_deep_ensemble_pools_the_runs_of_its_seeds(digits: DataSet, tmp_path: Path) -> None:
    training = Training(**SHORT, members=2, seed=3)
    pooled = ensemble.train(digits, plan(digits, training), tmp_path / "e")
    singles = [train(digits, Training(**SHORT, seed=seed), tmp_path / str(seed)) for seed in (6, 7)]
    assert isinstance(pooled.net, Pool)
    for member, single in zip(pooled.net.members, singles, strict=True):
        weights = single.net.state_dict()
        assert all(torch.equal(tensor, weights[name]) for name, tensor in member.state_dict().items())
    expected = np.mean([softmax(single.logits["test"]) for single in singles], axis=0)
    np.testing.assert_allclose(softmax(pooled.logits["test"]), expected, rtol=1e-5, atol=1e-9)
    assert [one["seed"] for one in pooled.settings["members"]] == [6, 7] and pooled.settings["seed"] == 3
    nll = [single.history[-1]["val_nll"] for single in singles]
    assert pooled.history[-1]["val_nll"] == pytest.approx(sum(nll) / 2)
    assert pooled.history[-1]["test_ece"] is None and [row["epoch"] for row in pooled.history] == [1, 2]
    assert any("deep ensemble: 2 nets" in note and "about 2 times as long" in note for note in pooled.settings["notes"])


def test_a_killed_ensemble_goes_on_with_the_member_that_was_not_finished(
    digits: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = plan(digits, Training(**SHORT, members=2))
    whole = ensemble.train(digits, of, tmp_path / "whole")
    rates: list[float] = []
    rate_at = Recipe.rate_at

    def stops(recipe: Recipe, progress: float) -> float:
        rates.append(progress)
        if len(rates) == 7:  # of 4 steps each; the second member has a checkpoint after its first epoch
            raise StoppedError
        return rate_at(recipe, progress)

    monkeypatch.setattr(Recipe, "rate_at", stops)
    with pytest.raises(StoppedError):
        ensemble.train(digits, of, tmp_path / "c")
    resumed = ensemble.train(digits, of, tmp_path / "c")
    assert len(rates) == 7 + 2, "two steps were left"
    assert equal(resumed, whole) and resumed.history == whole.history and resumed.settings == whole.settings
    resumed.write(tmp_path / "model", tmp_path / "logits.npz", digits)
    assert not list((tmp_path / "c").iterdir()), "both checkpoints are removed"


def test_snapshots_are_the_nets_at_the_ends_of_the_cycles(digits: DataSet, tmp_path: Path) -> None:
    result = train(digits, Training(**CYCLES), tmp_path)
    rates = [row["learning_rate"] for row in result.history]
    assert rates[0] > rates[1] and rates[:2] == pytest.approx(rates[2:]), "the schedule begins anew"
    assert isinstance(result.net, Pool) and len(result.net.members) == 2
    first, last = (member.state_dict() for member in result.net.members)
    assert not all(torch.equal(first[name], last[name]) for name in first)
    z_NC = result.logits["val"]
    rows = SplitBatches.of(
        digits, torch.device("cpu"), plan(digits, Training(**CYCLES)).recipe, None, held_out=False, draws_ahead=True
    )
    ends = [outputs(member, rows.val).logits.numpy() for member in result.net.members]  # type: ignore[arg-type]
    np.testing.assert_allclose(softmax(z_NC), np.mean([softmax(z) for z in ends], axis=0), rtol=1e-5, atol=1e-9)
    labels_N = digits.arrays["val"][1]
    nll = -np.log(softmax(ends[1])[np.arange(len(labels_N)), labels_N]).mean()
    assert result.history[-1]["val_nll"] == pytest.approx(nll, rel=1e-5), "the history is of the net that learns"


def test_the_rates_of_cycles() -> None:
    recipe = Recipe("mlp", 6, schedule="cosine", snapshots=3)
    single = Recipe("mlp", 2, schedule="cosine")
    progresses = np.arange(12) / 12
    expected = [single.rate_at(t) for t in np.tile(np.arange(4) / 4, 3)]
    assert [recipe.rate_at(t) for t in progresses] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("leaves", "message"),
    [
        ({"snapshots": 2}, r"snapshots is 2, .* schedule is step, .* set schedule: cosine"),
        ({"snapshots": 5, "schedule": "cosine"}, r"24 epochs are not whole epochs .* set epochs: 25"),
        (
            {"snapshots": 2, "schedule": "cosine", "selection": "val_nll"},
            r"selection is val_nll, .* set selection: last",
        ),
        ({"snapshots": 2, "schedule": "cosine", "ema": 0.9}, r"ema 0\.9, .* ema: 0"),
        ({"snapshots": 2, "schedule": "cosine", "members": 3}, r"members 3; .* set one of them to 1"),
    ],
)
def test_what_does_not_fit_is_refused(leaves: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(Training(**leaves), "digits", "image", held_out=False)


def test_a_single_run_does_not_depend_on_the_code_of_ensembles() -> None:
    single, pooled = (plan_of(Training(members=n), "digits", "image", held_out=False).code for n in (1, 2))
    assert set(pooled) - set(single) == {"pipeline/training/ensemble.py"}


def test_the_work_of_an_ensemble_and_of_sharp_steps() -> None:
    def work(**leaves: Any) -> float:
        of = duration.work_of(config.Params(training=Training(**leaves)), None)
        assert of is not None
        return of.total

    assert work(members=5) == pytest.approx(5 * work())
    assert work(sam=0.05) == pytest.approx(2 * work())


@pytest.mark.full
@pytest.mark.parametrize("leaves", [{"members": 2}, {"snapshots": 2, "schedule": "cosine"}])
def test_an_ensemble_is_one_bundle(leaves: dict[str, Any], workspace: Path) -> None:
    """From training to the bundle that a service loads: one graph, one calibrator, and golden rows of the pool."""
    write_params(Path("params.yaml"), {"train_size": 160, **SHORT, **leaves})
    params = config.load()
    for stage in (
        stages.fetch,
        stages.plan,
        stages.train,
        stages.shift,
        stages.calibrate,
        stages.evaluate,
        stages.export,
    ):
        stage(params)
    bundle = Bundle.load(stages.BUNDLE)
    assert try_bundle(stages.BUNDLE) == ""
    rows, stored = data.read(stages.DATA).arrays["test"][0], logits.read(stages.LOGITS, "test")
    z_NC = run(bundle.model_path, "logits", rows[:50])
    np.testing.assert_allclose(z_NC, stored.logits_NC[:50], rtol=1e-4, atol=1e-4)
    assert np.exp(stored.logits_NC.astype(np.float64)).sum(axis=1) == pytest.approx(1.0, abs=1e-5)
    assert bundle.calibrator.name == "temperature"
    assert any("ensemble" in note and "2 times as long" in note for note in bundle.card.notes)
    settings = read_json(stages.MODEL / "training.json")
    assert settings["recipe"]["members"] * settings["recipe"]["snapshots"] == 2
    assert [path.name for path in stages.BUNDLE.glob("*.onnx")] == ["model.onnx"]
