"""What is measured after each epoch: the row of history that its steps and the validation rows give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.methods.batch import Batch
from pipeline.methods.method import Method
from pipeline.training.batches import SplitBatches
from pipeline.training.measuring import curves
from pipeline.training.measuring.outputs import outputs
from pipeline.training.plan import Plan
from pipeline.training.state import Epoch, Row, TrainingState
from trueodds.errors import UserError
from trueodds.evaluation.improvement import refinement_nll
from trueodds.metrics.binned import adaptive_ece, mce, sweep_ece
from trueodds.metrics.classwise import classwise_ece
from trueodds.metrics.scores import brier
from trueodds.sums.inputs import Array, softmax

ON_REQUEST: dict[str, Callable[[Array, npt.NDArray[np.integer]], float]] = {
    "adaptive_ece": adaptive_ece,
    "brier": brier,
    "classwise_ece": classwise_ece,
    "mce": mce,
    "sweep_ece": lambda p_NC, labels_N: sweep_ece(p_NC, labels_N).ece,
}
SPLITS = ("train", "val", "test")
SPREAD = ("mean", "std", "q05", "q95")


class TrainingError(UserError, RuntimeError):
    """Training cannot go on; the message says why and what to change."""


def measure(plan: Plan, state: TrainingState, epoch: Epoch, batches: SplitBatches, folder: Path) -> Row:
    """The row of an epoch whose steps are done; a method that adapts to the validation rows does so here.

    Raises:
        TrainingError: a loss, logits or what looks ahead is no longer finite.
    """
    net, method, number = state.net, state.method, len(state.history) + 1
    progress = number / plan.recipe.epochs
    if not method.meta.finite():
        raise TrainingError(
            f"training has diverged: {method.meta.name} is no longer finite. Lower its rate, or the recipe's"
            " learning_rate, or choose a recipe that clips gradients (trueodds recipes)"
        )
    losses, logits, labels, gamma = epoch.outputs()
    method.after_steps(logits, labels)
    val = outputs(net, batches.val, progress)
    test = outputs(net, batches.test, progress) if plan.curves or method.exponent else None
    method.after_validation(val.logits, val.labels)
    with torch.no_grad():
        val_loss = method.loss(val.logits, val.labels, val.features, head=net.head, progress=progress)
    return {
        "epoch": number,
        "learning_rate": state.optimizer.param_groups[0]["lr"],
        "weight_norm": curves.weight_norm(net.head),
        **_scores("train", losses.sum() / len(batches.train), logits, labels),
        **_scores("val", val_loss, val.logits, val.labels),
        "val_refinement": refinement_nll(val.logits.cpu().numpy(), val.labels.cpu().numpy()),
        "test_ece": None if test is None else curves.scores(test.logits, test.labels)["ece"],
        **_gamma(method, gamma, val, test),
        **on_request("val", plan.epoch_metrics, val),
        **({} if test is None else on_request("test", plan.epoch_metrics, test)),
        **(
            curves.measure_rows(plan.curves, number, net, method, batches.train, test, folder, plan.recipe.batch_size)
            if plan.curves and test is not None
            else {}
        ),
        **method.figures(),
    }


def on_request(split: str, names: Sequence[str], of: Batch) -> Row:
    """Of a split's rows the metrics of these names (`trueodds.metrics`), 15 bins where they need a number of bins."""
    if not names:
        return {}
    p_NC, labels_N = softmax(of.logits.cpu().numpy().astype(np.float64)), of.labels.cpu().numpy()
    return {f"{split}_{name}": ON_REQUEST[name](p_NC, labels_N) for name in names}


def _gamma(method: Method, train_N: Tensor, val: Batch, test: Batch | None) -> Row:
    """Columns of gamma, None without one: that of training rows as their steps had it, of the others now."""
    val_N, test_N = (None if split is None else method.exponents(split) for split in (val, test))
    if val_N is None or test_N is None:
        return {name: None for split in SPLITS for name in _columns(split, dict.fromkeys(SPREAD))}
    row: Row = {}
    for split, gamma_N in zip(SPLITS, (train_N, val_N, test_N), strict=True):
        row |= _columns(split, spread(gamma_N))
    return row


def _columns(split: str, values: Row) -> Row:
    return {f"{split}_gamma_{name}": value for name, value in values.items()}


def spread(values_N: Tensor) -> Row:
    """Mean, standard deviation (of all, not of a sample) and the quantiles 5% and 95%, linearly interpolated."""
    values_N = values_N.double()
    low, high = torch.quantile(values_N, values_N.new_tensor([0.05, 0.95])).tolist()
    std = float(values_N.std(unbiased=False))
    return dict(zip(SPREAD, (float(values_N.mean()), std, low, high), strict=True))


def _scores(split: str, loss: Tensor, logits_NC: Tensor, labels_N: Tensor) -> Row:
    if not (torch.isfinite(logits_NC).all() and torch.isfinite(loss)):
        raise TrainingError(
            f"training has diverged: the {split} loss is {float(loss):.4g}. Lower learning_rate, or choose a recipe"
            " that clips gradients (trueodds recipes)"
        )
    values = {"loss": float(loss), **curves.scores(logits_NC, labels_N)}
    return {f"{split}_{name}": value for name, value in values.items()}
