"""What is measured after each epoch: the row of history that its steps and the validation rows give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from pipeline.methods.batch import Batch
from pipeline.methods.method import Method
from pipeline.nets.net import Net
from pipeline.training import curves
from pipeline.training.batches import Batches, SplitBatches
from pipeline.training.plan import Plan
from pipeline.training.refinement import refinement
from pipeline.training.state import Epoch, Row, TrainingState
from trueodds.errors import UserError

EVALUATION_BATCH = 500
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
    val_logits, val_features, val_labels = outputs(net, batches.val)
    method.after_validation(val_logits, val_labels)
    with torch.no_grad():
        val_loss = method.loss(val_logits, val_labels, val_features, head=net.head, progress=progress)
    val = Batch(
        logits=val_logits,
        targets=val_labels,
        labels=val_labels,
        features=val_features,
        head=net.head,
        progress=progress,
    )
    return {
        "epoch": number,
        "learning_rate": state.optimizer.param_groups[0]["lr"],
        "weight_norm": curves.weight_norm(net.head),
        **_scores("train", losses.sum() / len(batches.train), logits, labels),
        **_scores("val", val_loss, val_logits, val_labels),
        "val_refinement": refinement(val_logits, val_labels),
        **_gamma(method, val, net, batches.test, gamma),
        **curves.measure_rows(
            plan.curves, number, net, method, batches.train, batches.test, folder,
            batch_size=plan.recipe.batch_size, progress=progress,
        ),
        **method.meta.figures(),
    }  # fmt: skip


def _gamma(method: Method, val: Batch, net: Net, test: Batches, train_N: Tensor) -> Row:
    """Columns of gamma, None without one: that of training rows as their steps had it, of the others now.

    For it the test rows are passed through the net once an epoch, so their ECE is known, too.
    """
    val_N = method.exponents(val)
    if val_N is None:
        return {"test_ece": None, **{name: None for split in SPLITS for name in _columns(split, dict.fromkeys(SPREAD))}}
    logits, features, labels = outputs(net, test)
    test_N = method.exponents(replace(val, logits=logits, targets=labels, labels=labels, features=features))
    assert test_N is not None
    row: Row = {"test_ece": curves.scores(logits, labels)["ece"]}
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


def outputs(net: Net, batches: Batches) -> tuple[Tensor, Tensor, Tensor]:
    """Logits (N, C), the features (N, D) that they are made of, and labels (N,) of a split, in order, in eval mode."""
    net.eval()
    with torch.inference_mode():
        features = [(net.features(inputs), labels) for inputs, labels in batches.ordered(EVALUATION_BATCH)]
        parts = [(net.head(features_ND), features_ND, labels_N) for features_ND, labels_N in features]
    logits_NC, features_ND, labels_N = (torch.cat(part) for part in zip(*parts, strict=True))
    return logits_NC, features_ND, labels_N
