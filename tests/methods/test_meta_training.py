"""Training runs with parts that look ahead: what they leave as it is, what they tell, and going on after a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pipeline import data
from pipeline.config import Data, OptionValue, Training
from pipeline.data import DataSet
from pipeline.data.splitting.sampling import OF_RECIPES
from pipeline.figures.training import draw
from pipeline.methods.meta import GammaNet
from pipeline.training.measuring.epoch import TrainingError, spread
from pipeline.training.training_result import write_epochs
from tests.training_runs import stopped, train
from trueodds.errors import ConfigError
from trueodds.files import write_npz

SMALL: dict[str, Any] = {"epochs": 3, "width": 4, "threads": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def digits() -> DataSet:
    return data.load(Data(train_size=200, held_out_size=100))


def run(digits: DataSet, folder: Path, method: str, **options: OptionValue) -> Any:
    return train(digits, Training(**SMALL, method=method, method_options=options), folder)


@pytest.mark.few(2)
@pytest.mark.parametrize("lookahead", ["head", "all"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_a_part_that_learns_nothing_leaves_the_run_as_it_is_bit_for_bit(
    lookahead: str, reduction: Any, digits: DataSet, workspace: Path, tmp_path: Path
) -> None:
    small: dict[str, Any] = {**SMALL, "reduction": reduction, "clip": 2.0}
    idle: dict[str, OptionValue] = {"rate": 0, "lookahead": lookahead}
    plain = train(digits, Training(**small, method="ce+mdca+mixup"), tmp_path / "a")
    meta = train(digits, Training(**small, method="ce+mdca+mixup+unit_l2", method_options=idle), tmp_path / "b")
    for (name, one), other in zip(plain.net.state_dict().items(), meta.net.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    assert plain.settings["penalties"] == meta.settings["penalties"]
    kept = {name: value for name, value in meta.history[-1].items() if name in plain.history[-1]}
    assert kept == plain.history[-1] and set(meta.history[-1]) - set(kept) > {"outer_before", "outer_after"}


@pytest.mark.full
@pytest.mark.parametrize(
    "method",
    ["flg_sece", "ce_meta_dece", "focal+learned_smoothing", "ce+mmce+learned_weights", "ce+mdca+learned_histogram"],
)
def test_a_killed_run_goes_on_to_the_same_net(
    method: str, digits: DataSet, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle of an epoch: its network, optimizer, means and set-aside rows go on where they were."""
    options: dict[str, OptionValue] = {"lookahead": "all" if "meta" in method else "head"}
    if "mdca" in method:
        options["mdca.relative"] = True
    training = Training(**SMALL, method=method, method_options=options)
    whole = train(digits, training, tmp_path / "a")
    stopped(digits, training, tmp_path / "b", 0.55, monkeypatch, every=0)
    resumed = train(digits, training, tmp_path / "b")
    assert resumed.history == whole.history and resumed.settings == whole.settings
    for (name, one), other in zip(whole.net.state_dict().items(), resumed.net.state_dict().values(), strict=True):
        assert torch.equal(one, other), name


@pytest.mark.full
def test_what_was_learned_is_told(digits: DataSet, workspace: Path, tmp_path: Path) -> None:
    result = run(digits, tmp_path / "c", "flg_sece", every=2)
    meta, first, last = result.settings["meta"], result.history[0], result.history[-1]
    assert meta["part"] == "gamma_net" and meta["parameters"] == 16 * 10 + 16 and 0 < meta["share_of_net"] < 0.2
    assert 0 <= meta["share_at_cap"] <= 1 and 0 < first["outer_before"] < 1 and 0 < first["outer_after"] < 1
    assert first["outer_before"] != last["outer_before"]
    assert "Training also used the 100 set-aside rows." in result.settings["notes"]
    assert not any("heads" in name for name in result.net.state_dict())
    assert run(digits, tmp_path / "d", "ce").settings["meta"] is None
    layers = run(digits, tmp_path / "e", "ce_meta_sece", lookahead="all").history[-1]
    assert {"l2_stem", "l2_head", "l2_stages.1.conv2"} <= set(layers) and layers["l2_head"] != 0
    smoothing = run(digits, tmp_path / "f", "ce+learned_smoothing", per="class", rate=0.1).history[-1]
    assert 0 <= smoothing["smoothing_min"] <= smoothing["smoothing_mean"] <= smoothing["smoothing_max"] <= 0.5


def test_what_went_wrong_is_told(
    digits: DataSet, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GammaNet, "project", lambda part: part.weight_D.data.fill_(torch.nan))
        with pytest.raises(TrainingError, match=r"has diverged: gamma_net is no longer finite\. Lower its rate"):
            run(digits, tmp_path / "c", "flg")
    with pytest.raises(
        ConfigError, match=r"unit_l2 learns from set-aside rows, and there are none; set data\.held_out_size"
    ):
        run(data.load(Data(train_size=200)), tmp_path / "d", "ce_meta_sece")
    x, y = digits.arrays["held_out"]
    single = {**digits.arrays, "held_out": (x[y == 3], y[y == 3])}
    with pytest.raises(ConfigError, match=r"set-aside rows have one class, .* raise data.held_out_size"):
        run(DataSet(single, digits.card), tmp_path / "e", "flg")


def test_held_out_rows_are_training_rows_where_that_is_asked_for(
    digits: DataSet, workspace: Path, tmp_path: Path
) -> None:
    official = Training(**SMALL, held_out="official")
    result = train(digits, official, tmp_path / "a")
    assert result.settings["notes"] == ["The set-aside rows were training rows (training.held_out: official)."]
    joined = {split: digits.arrays[split] for split in ("val", "test")}
    joined["train"] = tuple(  # type: ignore[assignment]
        np.concatenate([digits.arrays[split][i] for split in ("train", "held_out")]) for i in (0, 1)
    )
    plain = train(DataSet(joined, {**digits.card, "splits": {}}), Training(**SMALL), tmp_path / "b")
    assert [row["val_nll"] for row in plain.history] == [row["val_nll"] for row in result.history]
    meta = train(digits, official.model_copy(update={"method": "flg"}), tmp_path / "c")
    assert "Training also used the 100 set-aside rows." in meta.settings["notes"]
    with pytest.raises(ConfigError, match="there are no set-aside rows; leave it null, or set data"):
        train(DataSet(joined, {**digits.card, "splits": {}}), official, tmp_path / "d")


def test_the_recipe_makes_its_splits_itself() -> None:
    splits = data.load(Data(), OF_RECIPES["gamma-net"]).card["splits"]
    assert splits == {"train": 957, "val": 120, "test": 600, "held_out": 120}
    own = data.load(Data(validation_size=50, held_out_size=60), OF_RECIPES["gamma-net"]).card["splits"]
    assert own == {"train": 1087, "val": 50, "test": 600, "held_out": 60}


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("method", "options"),
    [("fl3", {}), ("flsd53", {}), ("fls531", {}), ("adafocal", {}), ("bsce", {}), ("flg_sece", {})],
)
def test_gamma_over_the_epochs(
    method: str, options: dict[str, OptionValue], digits: DataSet, workspace: Path, tmp_path: Path
) -> None:
    history = run(digits, tmp_path / "c", method, **options).history
    columns = {f"{split}_gamma_{name}" for split in ("train", "val", "test") for name in ("mean", "std", "q05", "q95")}
    assert all(columns <= row.keys() for row in history)
    constant = {"fl3": [3, 3, 3], "bsce": [2, 2, 2]}
    for split in ("train", "val", "test"):
        means = [row[f"{split}_gamma_mean"] for row in history]
        assert all(row[f"{split}_gamma_q05"] <= row[f"{split}_gamma_q95"] for row in history)
        if method in constant:
            assert means == constant[method] and all(row[f"{split}_gamma_std"] == 0 for row in history)
    if method == "flsd53":
        assert all(3 <= row["test_gamma_mean"] <= 5 and row["test_gamma_q95"] == 5 for row in history)
    if method == "flg_sece":
        spreads = [row["test_gamma_std"] for row in history]
        assert 0 < spreads[0] < spreads[-1] and history[0]["train_gamma_mean"] == pytest.approx(1, abs=0.2)


def test_spread_of_a_few_numbers() -> None:
    values = [0.0, 1.0, 2.0, 3.0, 10.0]
    expected = {"mean": 3.2, "std": np.std(values), "q05": 0.2, "q95": 8.6}
    assert spread(torch.tensor(values)) == pytest.approx(expected)


LONG = pytest.mark.full


@pytest.mark.full
@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("flg_sece", {"training", "learned", "reliability", "gradients", "gamma-rows"}),
        pytest.param("flsd53", {"training", "learned", "reliability", "gradients", "gamma-rows"}, marks=LONG),
        pytest.param("ce_meta_sece", {"training", "learned", "reliability", "gradients"}, marks=LONG),
        pytest.param("ce+learned_smoothing", {"training", "learned", "reliability", "gradients"}, marks=LONG),
    ],
)
def test_what_was_learned_is_drawn(
    method: str, names: set[str], digits: DataSet, workspace: Path, tmp_path: Path
) -> None:
    options: dict[str, OptionValue] = {"per": "class"} if "smoothing" in method else {}
    training = Training(**SMALL, method=method, curves=[1, 3], method_options=options)
    result = train(digits, training, tmp_path / "c")
    for split in ("train", "test"):
        assert (f"{split}_gamma" in result.epoch_rows) == ("gamma-rows" in names)
    write_epochs(tmp_path / "epochs.csv", result.history)
    write_npz(tmp_path / "rows.npz", result.epoch_rows)
    drawn = draw(tmp_path / "epochs.csv", tmp_path / "rows.npz", tmp_path / "out", "digits")
    assert {path.stem for path in drawn} == names and all(path.stat().st_size > 10_000 for path in drawn)
