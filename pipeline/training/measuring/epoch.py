"""Measurements after each epoch: the row of history from its steps and the validation rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pipeline.methods.batch import Batch
from pipeline.methods.method import Method
from pipeline.nets.net import Net
from pipeline.training.batches import SplitBatches
from pipeline.training.measuring import curves
from pipeline.training.measuring.outputs import outputs
from pipeline.training.plan import Plan
from pipeline.training.training_state import Epoch, Row, TrainingState
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
    """Training cannot continue; the message says why and what to change."""


def measure(plan: Plan, state: TrainingState, epoch: Epoch, batches: SplitBatches, folder: Path) -> Row:
    """Return the row of a finished epoch; a method that adapts to the validation rows learns here.

    Between two validations (`validate_every`) only values from the steps are measured; the others are None. With an
    average of the weights, values from the steps are of the net that learns, and the others of the average.

    Raises:
        TrainingError: A loss, logits, or the parameters of a meta part are no longer finite.
    """
    method, number = state.method, len(state.history) + 1
    progress = number / plan.recipe.epochs
    if not method.meta.finite():
        raise TrainingError(
            f"training has diverged: {method.meta.name} is no longer finite. Lower its rate, or the recipe's"
            " learning_rate, or choose a recipe that clips gradients (trueodds recipes)"
        )
    losses, logits, labels, gamma = epoch.outputs()
    method.after_steps(logits, labels)
    due = number % plan.recipe.validate_every == 0 or number == plan.recipe.epochs or number in plan.curves
    looked_at = due and (plan.curves or method.exponent)
    net = state.measured_net
    if due:
        state.settle(batches.train)
    val = outputs(net, batches.val, progress) if due else None
    test = outputs(net, batches.test, progress) if looked_at else None
    if val is not None:
        method.after_validation(val.logits, val.labels)
    close = (net, method, batches.train, test, folder, plan.recipe.batch_size)
    return {
        "epoch": number,
        "learning_rate": state.rate,
        "weight_norm": curves.weight_norm(net.head),
        **_scores("train", losses.sum() / len(batches.train), logits, labels),
        **_of_validation(method, val, net, progress),
        "test_ece": None if test is None else curves.scores(test.logits, test.labels)["ece"],
        **_gamma(method, gamma, val, test),
        **on_request("val", plan.epoch_metrics, val),
        **(on_request("test", plan.epoch_metrics, test) if plan.curves or method.exponent else {}),
        **(curves.measure_rows(plan.curves, number, *close) if plan.curves else {}),
        **method.figures(),
    }


def _of_validation(method: Method, val: Batch | None, net: Net, progress: float) -> Row:
    """Return the columns of the validation rows."""
    if val is None:
        return dict.fromkeys([*(f"val_{name}" for name in ("loss", *curves.COLUMNS)), "val_refinement"])
    with torch.no_grad():
        loss = method.loss(val.logits, val.labels, val.features, head=net.head, progress=progress)
    scores = _scores("val", loss, val.logits, val.labels)  # first, because it raises if the run has diverged
    return {**scores, "val_refinement": refinement_nll(val.logits.cpu().numpy(), val.labels.cpu().numpy())}


def on_request(split: str, names: Sequence[str], of: Batch | None) -> Row:
    """Return the metrics of these names (`trueodds.metrics`) for a split's rows, with 15 bins if they need bins.

    A value is None if the rows were not measured.
    """
    if not names or of is None:
        return dict.fromkeys(f"{split}_{name}" for name in names)
    p_NC, labels_N = softmax(of.logits.cpu().numpy().astype(np.float64)), of.labels.cpu().numpy()
    return {f"{split}_{name}": ON_REQUEST[name](p_NC, labels_N) for name in names}


def _gamma(method: Method, train_N: Tensor, val: Batch | None, test: Batch | None) -> Row:
    """Return the columns of gamma: of training rows as their steps had it, of other rows now; None without gamma."""
    val_N, test_N = (None if split is None else method.exponents(split) for split in (val, test))
    of_splits = (train_N if method.exponent else None, val_N, test_N)
    row: Row = {}
    for split, gamma_N in zip(SPLITS, of_splits, strict=True):
        row |= _columns(split, dict.fromkeys(SPREAD) if gamma_N is None else spread(gamma_N))
    return row


def _columns(split: str, values: Row) -> Row:
    """Prefix the names of columns with the split."""
    return {f"{split}_gamma_{name}": value for name, value in values.items()}


def spread(values_N: Tensor) -> Row:
    """Return mean, standard deviation (of a population, not a sample) and interpolated 5% and 95% quantiles."""
    values_N = values_N.double()
    low, high = torch.quantile(values_N, values_N.new_tensor([0.05, 0.95])).tolist()
    std = float(values_N.std(unbiased=False))
    return dict(zip(SPREAD, (float(values_N.mean()), std, low, high), strict=True))


def _scores(split: str, loss: Tensor, logits_NC: Tensor, labels_N: Tensor) -> Row:
    """Return the loss and scores of a split; raise TrainingError if they are not finite."""
    if not (torch.isfinite(logits_NC).all() and torch.isfinite(loss)):
        raise TrainingError(
            f"training has diverged: the {split} loss is {float(loss):.4g}. Lower learning_rate, or choose a recipe"
            " that clips gradients (trueodds recipes)"
        )
    values = {"loss": float(loss), **curves.scores(logits_NC, labels_N)}
    return {f"{split}_{name}": value for name, value in values.items()}
